//! The task behind a session: connect, run the connection, reconnect, until the session is over.
//!
//! Owns the choice of the server, the handshake and the pauses between attempts. It must never open
//! a second session: a server that hands out another id has lost ours, and that is the end (`H37`).

use std::sync::Arc;
use std::time::Duration;

use baton_proto::{ConnectRequest, ConnectResponse, Limits, Request, frame};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::error::ConnectError;
use crate::session::connection::Connection;
use crate::session::core::{Closing, Core, Phase};
use crate::session::replies::Broken;
use crate::state::EndReason;
use crate::transport::{BoxStream, Endpoint};

/// The longest pause between two rounds through the server list; never more than a tenth of the
/// timeout (`hazards.md` G12).
const MAX_PAUSE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A handshake that a server accepted.
struct Attached {
    stream: BoxStream,
    incoming: BytesMut,
    response: ConnectResponse,
    sent: BootInstant,
}

enum Attempt {
    Attached(Box<Attached>),
    /// The server knows the session no more.
    Gone,
}

/// Ends the session when its task ends for whatever reason: a panic or a runtime that shuts down
/// included (`hazards.md` G16).
struct Supervised(Arc<Core>);

impl Drop for Supervised {
    fn drop(&mut self) {
        self.0.end(EndReason::DriverGone);
    }
}

/// Drives the session. `first` receives the outcome of the first attempt.
pub(crate) async fn drive(core: Arc<Core>, first: oneshot::Sender<Result<(), ConnectError>>) {
    let supervised = Supervised(Arc::clone(&core));
    let mut first = Some(first);
    loop {
        let attached = match establish(&core, first.as_mut()).await {
            Ok(attached) => attached,
            Err(stop) => {
                if let Some(first) = first.take() {
                    // The caller of `connect` has gone.
                    let _gone = first.send(Err(stop));
                } else if core.end_reason() == EndReason::ExpiredLocally {
                    close_unused(&core).await;
                }
                break;
            }
        };
        let created = core.inner.lock().identity.id == 0;
        let Attached {
            stream,
            incoming,
            response,
            sent,
        } = *attached;
        if !core.attach(&response, sent, created) {
            break;
        }
        if first
            .take()
            .is_some_and(|first| first.send(Ok(())).is_err())
        {
            core.begin_close();
        }
        match Connection::new(Arc::clone(&core), stream, incoming)
            .run()
            .await
        {
            Broken::Lost(why) => {
                tracing::info!(session = format_args!("0x{:x}", response.session_id), %why, "connection lost");
            }
            Broken::Ended => break,
        }
    }
    drop(supervised);
}

/// Tries servers until one takes the session. An error is final; the session has then ended.
async fn establish(
    core: &Arc<Core>,
    mut first: Option<&mut oneshot::Sender<Result<(), ConnectError>>>,
) -> Result<Box<Attached>, ConnectError> {
    let config = &core.config;
    let started = core.now();
    let mut last_error = "none was made".to_owned();
    let limit = match first {
        Some(_) => started + config.connect_within,
        None => core.expiry(),
    };
    let abandoned = async {
        match &mut first {
            Some(first) => first.closed().await,
            None => std::future::pending().await,
        }
    };
    let ended = core.wait_ended();
    let outcome = tokio::select! {
        biased;
        () = ended => None,
        () = abandoned => None,
        attempt = keep_trying(core, &mut last_error) => Some(attempt),
        () = config.clock.sleep_until(limit) => None,
    };
    let servers = config.servers();
    match outcome {
        Some(Attempt::Attached(attached)) => Ok(attached),
        Some(Attempt::Gone) => {
            let (id, closing) = {
                let inner = core.inner.lock();
                (inner.identity.id, inner.closing)
            };
            let closed = closing == Closing::Asked;
            core.end(if closed {
                EndReason::Closed
            } else {
                EndReason::ExpiredByServer
            });
            Err(ConnectError::Expired { id, servers })
        }
        None => {
            let waited = core.now().saturating_duration_since(started);
            core.end(EndReason::ExpiredLocally);
            Err(ConnectError::Unreachable {
                servers,
                waited,
                last: last_error,
            })
        }
    }
}

/// Closes a session that has expired here on a server that may still have it.
///
/// A server that could not be reached may keep the session for another timeout, and its ephemeral
/// nodes would block other processes for that long. The session stays expired here whatever the
/// outcome.
async fn close_unused(core: &Arc<Core>) {
    let timeout = core.inner.lock().timeout;
    let closing = async {
        let mut last_error = String::new();
        let Attempt::Attached(mut attached) = keep_trying(core, &mut last_error).await else {
            return;
        };
        let mut bye = Vec::new();
        frame::write_request(&mut bye, 1, &Request::CloseSession);
        if attached.stream.write_all(&bye).await.is_ok() {
            // The server answers and closes; either end of it will do.
            let _closed = attached.stream.read_buf(&mut attached.incoming).await;
        }
    };
    let clock = &core.config.clock;
    tokio::select! {
        biased;
        () = closing => {}
        () = clock.sleep_until(clock.now() + timeout) => {}
    }
}

/// One round after the other through the server list, in an order of its own, with pauses that
/// grow.
async fn keep_trying(core: &Arc<Core>, last_error: &mut String) -> Attempt {
    let config = &core.config;
    let (timeout, reattach) = {
        let inner = core.inner.lock();
        (inner.timeout, inner.identity.id != 0)
    };
    let longest = MAX_PAUSE.min(timeout / 10);
    // A third of the timeout is left when a dead link is noticed: one silent address must not use
    // it up.
    let patience = config.attempt_timeout(if reattach { timeout / 4 } else { timeout });
    let mut ceiling = FIRST_PAUSE.min(longest);
    let mut hosts = config.hosts.clone();
    loop {
        fastrand::shuffle(&mut hosts);
        for host in &hosts {
            let endpoints = match within(core, timeout, config.transport.resolve(host)).await {
                Ok(mut endpoints) => {
                    fastrand::shuffle(&mut endpoints);
                    endpoints
                }
                Err(e) => {
                    *last_error = format!("{host}: {e}");
                    Vec::new()
                }
            };
            for endpoint in endpoints {
                let attempt = handshake(core, &endpoint);
                match within(core, patience, attempt).await {
                    Ok(attempt) => return attempt,
                    Err(e) => {
                        tracing::debug!(%endpoint, error = %e, "connection attempt failed");
                        *last_error = format!("{host} ({endpoint}): {e}");
                    }
                }
            }
        }
        // Full jitter: clients that lost the same server at once come back spread out.
        let pause = ceiling.mul_f64(fastrand::f64());
        config.clock.sleep_until(core.now() + pause).await;
        ceiling = (ceiling * 2).min(longest);
    }
}

async fn within<T>(
    core: &Core,
    limit: Duration,
    what: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    tokio::select! {
        biased;
        result = what => result,
        () = core.config.clock.sleep_until(core.now() + limit) => {
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {limit:?}")))
        }
    }
}

async fn handshake(core: &Core, endpoint: &Endpoint) -> std::io::Result<Attempt> {
    let mut stream = core.config.transport.connect(endpoint).await?;
    let (identity, last_zxid) = {
        let inner = core.inner.lock();
        (inner.identity, inner.last_zxid)
    };
    let mut hello = Vec::with_capacity(64);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: last_zxid,
        timeout_ms: i32::try_from(core.config.session_timeout.as_millis()).unwrap_or(i32::MAX),
        session_id: identity.id,
        password: &identity.password,
        read_only: Some(false),
    };
    frame::write_connect_request(&mut hello, &request);
    let sent = core.now();
    stream.write_all(&hello).await?;
    let mut incoming = BytesMut::with_capacity(4096);
    let limits = Limits::default();
    let invalid = |e: &dyn std::fmt::Display| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, e.to_string())
    };
    let answer = loop {
        if let Some(answer) =
            frame::split_frame(&mut incoming, limits.max_frame_bytes).map_err(|e| invalid(&e))?
        {
            break answer;
        }
        if stream.read_buf(&mut incoming).await? == 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "the server closed the connection instead of answering the handshake; its log says why",
            ));
        }
    };
    let response = ConnectResponse::decode(&answer, &limits).map_err(|e| invalid(&e))?;
    let reattach = identity.id != 0;
    if reattach && (response.is_refused() || response.session_id != identity.id) {
        return Ok(Attempt::Gone);
    }
    if response.is_refused() || response.session_id == 0 {
        return Err(invalid(&"the server refused to open a session"));
    }
    Ok(Attempt::Attached(Box::new(Attached {
        stream,
        incoming,
        response,
        sent,
    })))
}

impl Core {
    /// Resolves when the session has ended.
    pub(crate) async fn wait_ended(&self) {
        loop {
            let changed = self.changed.notified();
            if matches!(self.inner.lock().phase, Phase::Ended(_)) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the server has accepted the configured credentials.
    pub(crate) async fn wait_credentials(&self) -> Result<(), ConnectError> {
        loop {
            let changed = self.changed.notified();
            {
                let inner = self.inner.lock();
                let refused = inner.phase == Phase::Ended(EndReason::AuthFailed);
                if refused {
                    let servers = self.config.servers();
                    return Err(ConnectError::AuthFailed { servers });
                }
                let settled =
                    inner.phase == Phase::Attached && inner.credentials_in_flight.is_empty();
                if settled || matches!(inner.phase, Phase::Ended(_)) {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// Begins the end: no new operations; the close request goes out once the cleanup is done.
    pub(crate) fn begin_close(&self) {
        {
            let mut inner = self.inner.lock();
            if matches!(inner.phase, Phase::Ended(_)) {
                return;
            }
            if inner.closing == Closing::No {
                inner.closing = Closing::Draining;
            }
        }
        self.wake_driver();
    }
}

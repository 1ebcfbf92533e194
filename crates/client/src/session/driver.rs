//! The task behind a session: connect, run the connection, reconnect, until the session is over.
//!
//! Owns the choice of the server, the handshake and the pauses between attempts. It must never open
//! a second session: a server that hands out another id has lost ours, and that is the end (`H37`).

use std::sync::Arc;
use std::time::Duration;

use baton_proto::{ConnectRequest, ConnectResponse, Limits, Request, frame};
use baton_tls::{ReloadOutcome, TlsFailure};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::error::ConnectError;
use crate::session::connection::Connection;
use crate::session::core::{Closing, Core, Phase};
use crate::session::replies::Broken;
use crate::state::EndReason;
use crate::transport::{BoxStream, Endpoint, Host};

/// The longest pause between two rounds through the server list; never more than a tenth of the
/// timeout (`hazards.md` G12).
const MAX_PAUSE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A handshake that a server accepted.
struct Attached {
    stream: BoxStream,
    incoming: BytesMut,
    /// Whether the stream has TLS.
    encrypted: bool,
    response: ConnectResponse,
    sent: BootInstant,
}

enum Attempt {
    Attached(Box<Attached>),
    /// The server knows the session no more.
    Gone,
}

/// The failure of an attempt, for whoever gives up.
#[derive(Default)]
struct LastFailure {
    /// The round through the server list that it belongs to.
    round: u64,
    text: String,
    /// The server and the failure, where TLS failed.
    tls: Option<(String, TlsFailure)>,
}

impl LastFailure {
    /// Takes the failure of `server` down. One of TLS says more than that another address of the
    /// same round does not answer.
    fn note(&mut self, round: u64, server: String, error: &std::io::Error) {
        let tls = TlsFailure::of(error);
        if self.round == round && self.tls.is_some() && tls.is_none() {
            return;
        }
        let why = match &tls {
            Some(failure) => failure.to_string(),
            None => error.to_string(),
        };
        *self = Self {
            round,
            text: format!("{server}: {why}"),
            tls: tls.map(|failure| (server, failure)),
        };
    }

    /// What whoever gives up reports.
    fn into_error(self, servers: String, waited: Duration) -> ConnectError {
        if let Some((server, failure)) = self.tls {
            return ConnectError::Tls {
                servers,
                waited,
                server,
                failure: Box::new(failure),
            };
        }
        let last = match self.text {
            text if text.is_empty() => "none was made".to_owned(),
            text => text,
        };
        ConnectError::Unreachable {
            servers,
            waited,
            last,
        }
    }
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
            encrypted,
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
        match Connection::new(Arc::clone(&core), stream, incoming, encrypted)
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
    let mut last = LastFailure::default();
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
        attempt = keep_trying(core, &mut last) => Some(attempt),
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
            Err(last.into_error(servers, waited))
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
        let mut last = LastFailure::default();
        let Attempt::Attached(mut attached) = keep_trying(core, &mut last).await else {
            return;
        };
        let mut bye = Vec::new();
        frame::write_request(&mut bye, 1, &Request::CloseSession);
        if write_whole(&mut attached.stream, &bye).await.is_ok() {
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
async fn keep_trying(core: &Arc<Core>, last: &mut LastFailure) -> Attempt {
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
    let mut round = 0;
    loop {
        round += 1;
        fastrand::shuffle(&mut hosts);
        for host in &hosts {
            let endpoints = match within(core, timeout, config.transport.resolve(host)).await {
                Ok(mut endpoints) => {
                    fastrand::shuffle(&mut endpoints);
                    endpoints
                }
                Err(e) => {
                    last.note(round, config.shown(host), &e);
                    Vec::new()
                }
            };
            for endpoint in endpoints {
                let attempt = handshake(core, host, &endpoint);
                match within(core, patience, attempt).await {
                    Ok(attempt) => return attempt,
                    Err(e) => {
                        tracing::debug!(%endpoint, error = %e, "connection attempt failed");
                        last.note(round, format!("{} ({endpoint})", config.shown(host)), &e);
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

/// Writes all of it, through the buffers that a stream with TLS has.
async fn write_whole(stream: &mut BoxStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The first bytes of a server that answers a plain handshake by TLS: the head of an alert or of a
/// handshake, as no answer begins.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, ..])
}

fn closed_unanswered() -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::UnexpectedEof,
        "the server closed the connection instead of answering the handshake; its log says why (a server may take TLS alone: tls://)",
    )
}

/// Why the server has closed a stream with TLS, if it has said so: one that refuses this client's
/// certificate does, after the handshake.
async fn refusal_of_tls(stream: &mut BoxStream) -> Option<std::io::Error> {
    let error = stream.read(&mut [0]).await.err()?;
    TlsFailure::of(&error).is_some().then_some(error)
}

async fn handshake(core: &Core, host: &Host, endpoint: &Endpoint) -> std::io::Result<Attempt> {
    let mut stream = core.config.transport.connect(endpoint).await?;
    let tls = core.config.tls_of(host);
    if let Some((tls, name)) = tls {
        if let ReloadOutcome::Kept(error) = tls.reload() {
            tracing::warn!(%error, "changed files of TLS are not used");
        }
        stream = Box::new(tls.connect(name, stream).await?);
    }
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
    if let Err(error) = write_whole(&mut stream, &hello).await {
        let said = match tls {
            Some(_) => refusal_of_tls(&mut stream).await,
            None => None,
        };
        return Err(said.unwrap_or(error));
    }
    let mut incoming = BytesMut::with_capacity(4096);
    let limits = Limits::default();
    let invalid = |e: &dyn std::fmt::Display| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, e.to_string())
    };
    let answer = loop {
        if tls.is_none() && is_tls(&incoming) {
            return Err(TlsFailure::TlsOnly.into());
        }
        if let Some(answer) =
            frame::split_frame(&mut incoming, limits.max_frame_bytes).map_err(|e| invalid(&e))?
        {
            break answer;
        }
        match stream.read_buf(&mut incoming).await {
            Ok(0) => return Err(closed_unanswered()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return Err(closed_unanswered());
            }
            Err(error) => return Err(error),
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
        encrypted: tls.is_some(),
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

//! The task behind a session: connect, run the connection, reconnect, until the session is over.
//!
//! Owns the choice of the server, the handshake and the pauses between attempts. It must never open
//! a second session: a server that hands out another id has lost ours, and that is the end (`H37`).

use std::sync::Arc;
use std::time::Duration;

use baton_proto::{Request, frame};
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;

use crate::error::ConnectError;
use crate::runtime;
use crate::session::connection::Connection;
use crate::session::core::{Closing, Core, Phase};
use crate::session::handshake::{AcceptedHandshake, Attempt, handshake, write_whole};
use crate::session::replies::ConnectionEnd;
use crate::state::EndReason;
use crate::tls::TlsFailure;

/// The longest pause between two rounds through the server list; never more than a tenth of the
/// timeout (`hazards.md` G12).
const MAX_PAUSE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Stage of an attempt.
#[derive(Clone, Copy)]
enum ConnectStage {
    Resolving,
    Connecting,
    Answering,
}

impl ConnectStage {
    /// The failure of an attempt that has come no further in this time.
    fn unfinished(self, limit: Duration) -> String {
        let lacking = match self {
            Self::Resolving => "its name was not resolved",
            Self::Connecting => "no connection",
            Self::Answering => "it took the connection and did not answer",
        };
        format!("{lacking} within {limit:.1?}")
    }
}

/// The failure of an attempt, for a caller that gives up.
#[derive(Default)]
struct LastFailure {
    /// The round through the server list that it belongs to.
    round: u64,
    text: String,
    /// The server and the failure, where TLS failed.
    tls: Option<(String, TlsFailure)>,
    /// The attempt that is under way.
    running: Option<(String, ConnectStage)>,
}

impl LastFailure {
    fn begin(&mut self, server: &str, stage: ConnectStage) {
        self.running = Some((server.to_owned(), stage));
    }

    /// Takes the failure of `server` down. One of TLS says more than that another address of the
    /// same round does not answer.
    fn note(&mut self, round: u64, server: String, error: &std::io::Error) {
        self.running = None;
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
            running: None,
        };
    }

    /// Returns the error for the one who gives up.
    fn into_error(self, servers: String, waited: Duration) -> ConnectError {
        #[cfg(feature = "tls")]
        if let Some((server, failure)) = self.tls {
            return ConnectError::Tls {
                servers,
                waited,
                server,
                failure: Box::new(failure),
            };
        }
        let last = match self.running {
            Some((server, stage)) if self.text.is_empty() => {
                format!("{server}: {}", stage.unfinished(waited))
            }
            _ => self.text,
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
struct EndOnDrop(Arc<Core>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(EndReason::DriverGone);
    }
}

/// Drives the session. `first` receives the outcome of the first attempt.
pub(crate) async fn drive(core: Arc<Core>, first: oneshot::Sender<Result<(), ConnectError>>) {
    let supervised = EndOnDrop(Arc::clone(&core));
    let mut first = Some(first);
    // Connections in a row that were lost at once: a server that takes the session and then closes
    // the connection each time must not be asked without a pause.
    let mut lost_at_once = 0;
    let mut pauses = Pauses::new(core.config.session_timeout);
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
        let AcceptedHandshake {
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
        let began = core.now();
        match Connection::new(Arc::clone(&core), stream, incoming, encrypted)
            .run()
            .await
        {
            ConnectionEnd::Lost(why) => {
                tracing::info!(session = format_args!("0x{:x}", response.session_id), %why, "connection lost");
            }
            ConnectionEnd::Ended => break,
        }
        let timeout = core.inner.lock().timeout;
        if core.now().saturating_duration_since(began) >= longest_pause(timeout) {
            lost_at_once = 0;
            continue;
        }
        lost_at_once += 1;
        if lost_at_once == 1 {
            // Of the timeout that the server has granted.
            pauses = Pauses::new(timeout);
        }
        if lost_at_once >= 3 {
            tokio::select! {
                biased;
                () = core.wait_ended() => {}
                () = core.config.clock.sleep_until(core.now() + pauses.next()) => {}
            }
        }
    }
    drop(supervised);
}

/// The longest pause between two attempts of a session with this timeout.
fn longest_pause(timeout: Duration) -> Duration {
    MAX_PAUSE.min(timeout / 10)
}

/// Pauses that grow. Full jitter: clients that lost the same server at once come back spread out.
struct Pauses {
    ceiling: Duration,
    longest: Duration,
}

impl Pauses {
    fn new(timeout: Duration) -> Self {
        let longest = longest_pause(timeout);
        Self {
            ceiling: FIRST_PAUSE.min(longest),
            longest,
        }
    }

    fn next(&mut self) -> Duration {
        let pause = self.ceiling.mul_f64(fastrand::f64());
        self.ceiling = (self.ceiling * 2).min(self.longest);
        pause
    }
}

/// Tries servers until one takes the session. An error is final; the session has then ended.
async fn establish(
    core: &Arc<Core>,
    mut first: Option<&mut oneshot::Sender<Result<(), ConnectError>>>,
) -> Result<Box<AcceptedHandshake>, ConnectError> {
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
        #[cfg(feature = "sasl")]
        Some(Attempt::Refused { server, failure }) => {
            tracing::warn!(%server, %failure, "SASL failed");
            core.end(EndReason::AuthFailed);
            Err(ConnectError::Sasl {
                servers,
                server,
                failure: Box::new(failure),
            })
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
    // Silent addresses must not use up the time before the last one is tried. A third of the
    // timeout is left when a dead link is noticed.
    let round_limit = match reattach {
        true => timeout / 4,
        false => timeout.min(config.connect_within),
    };
    let mut pauses = Pauses::new(timeout);
    let mut hosts = config.hosts.clone();
    let mut round = 0;
    loop {
        round += 1;
        fastrand::shuffle(&mut hosts);
        for host in &hosts {
            let shown = config.shown(host);
            last.begin(&shown, ConnectStage::Resolving);
            let resolving = config.transport.resolve(host);
            let endpoints = match within(core, timeout, ConnectStage::Resolving, resolving).await {
                Ok(mut endpoints) => {
                    fastrand::shuffle(&mut endpoints);
                    endpoints
                }
                Err(e) => {
                    last.note(round, shown.clone(), &e);
                    Vec::new()
                }
            };
            let addresses = hosts.len().saturating_sub(1) + endpoints.len();
            let patience = config.attempt_timeout(round_limit, addresses);
            for endpoint in endpoints {
                let server = format!("{shown} ({endpoint})");
                last.begin(&server, ConnectStage::Connecting);
                let began = core.now();
                let connecting = config.transport.connect(&endpoint);
                let attempt =
                    match within(core, patience, ConnectStage::Connecting, connecting).await {
                        Ok(stream) => {
                            last.begin(&server, ConnectStage::Answering);
                            let left = patience
                                .saturating_sub(core.now().saturating_duration_since(began));
                            let shaking = handshake(core, host, stream);
                            within(core, left, ConnectStage::Answering, shaking).await
                        }
                        Err(error) => Err(error),
                    };
                match attempt {
                    Ok(attempt) => return attempt,
                    Err(e) => {
                        tracing::debug!(%endpoint, error = %e, "connection attempt failed");
                        last.note(round, server, &e);
                    }
                }
            }
        }
        config.clock.sleep_until(core.now() + pauses.next()).await;
    }
}

async fn within<T>(
    core: &Core,
    limit: Duration,
    stage: ConnectStage,
    what: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    tokio::select! {
        biased;
        result = what => result,
        () = core.config.clock.sleep_until(core.now() + limit) => {
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, stage.unfinished(limit)))
        }
    }
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
                let servers = || self.config.servers();
                match inner.phase {
                    Phase::Ended(EndReason::AuthFailed) => {
                        return Err(ConnectError::AuthFailed { servers: servers() });
                    }
                    Phase::Ended(EndReason::AuthRequired) => {
                        return Err(ConnectError::AuthRequired { servers: servers() });
                    }
                    _ => {}
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

    /// Waits for a moment until a close that has begun is confirmed. Only from threads that the
    /// session does not need for that, and where a server is there to confirm it.
    pub(crate) fn await_close(&self) {
        let attached = self.inner.lock().phase == Phase::Attached;
        if !attached || !self.own_thread || runtime::is_own_thread() {
            return;
        }
        let limit = self.now() + runtime::CLOSE_ON_DROP_LIMIT;
        runtime::block_on(async {
            tokio::select! {
                biased;
                () = self.wait_ended() => {}
                () = self.config.clock.sleep_until(limit) => {}
            }
        });
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

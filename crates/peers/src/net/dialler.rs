//! Opens the connection of one lane to one peer, again whenever it has ended, with pauses after
//! failures.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::codec::{Hello, Lane, Refusal};
use crate::net::backoff::Backoff;
use crate::net::connection;
use crate::net::counters::add;
use crate::net::events::{Direction, EndCause, PeerEvent, RefusedBy};
use crate::net::exchange::{self, HandshakeError, Opened};
use crate::net::peer::Peer;
use crate::net::shared::Shared;
use crate::net::stream::{Connector, DialFailure};

pub(crate) struct Dialler<C> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connector: Arc<C>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) lane: Lane,
    pub(crate) address: String,
    /// Whether the peer is no longer to be connected to.
    pub(crate) removed: watch::Receiver<bool>,
}

enum Failure {
    Dial(DialFailure),
    Handshake(HandshakeError),
}

impl<C: Connector> Dialler<C> {
    /// Runs until the transport stops or the peer is removed.
    pub(crate) async fn run(self) {
        let timing = self.shared.options.timing.clone();
        let mut backoff = Backoff::new(&timing, self.shared.draw());
        let mut reported = None;
        loop {
            let outcome = tokio::select! {
                biased;
                () = self.shared.stopped() => return,
                _ = removed(self.removed.clone()) => return,
                outcome = self.attempt() => outcome,
            };
            match outcome {
                Ok(opened) => {
                    reported = None;
                    let began = Instant::now();
                    let is_wanted = || !*self.removed.borrow();
                    let direction = Direction::Outbound;
                    connection::run(&self.shared, &self.peer, opened, direction, is_wanted).await;
                    // A process that ends is noticed by a refusal, so nothing is waited for.
                    if began.elapsed() >= timing.longest_pause {
                        backoff.reset();
                        continue;
                    }
                }
                Err(failure) => self.report(failure, &mut reported),
            }
            tokio::select! {
                biased;
                () = self.shared.stopped() => return,
                _ = removed(self.removed.clone()) => return,
                () = self.peer.redial(self.lane).notified() => backoff.reset(),
                () = sleep(backoff.pause()) => {}
            }
        }
    }

    async fn attempt(&self) -> Result<Opened<C::Stream>, Failure> {
        let timing = &self.shared.options.timing;
        let dial = self.connector.connect(self.peer.id, &self.address);
        let connected = match timeout(timing.dial_timeout, dial).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(failure)) => return Err(Failure::Dial(failure)),
            Err(_) => return Err(Failure::Dial(DialFailure::TimedOut)),
        };
        let handshake = async {
            let secured = self.connector.secure(&self.address, connected).await;
            let stream = secured.map_err(Failure::Dial)?;
            let opened = exchange::connect(&self.shared, stream, self.peer.id, self.lane).await;
            opened.map_err(Failure::Handshake)
        };
        match timeout(timing.handshake_timeout, handshake).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let after_ms = timing.handshake_timeout.as_millis();
                let after_ms = u32::try_from(after_ms).unwrap_or(u32::MAX);
                let late = HandshakeError::ByUs(Refusal::Late { after_ms }, None);
                Err(Failure::Handshake(late))
            }
        }
    }

    /// Notifies the owner, unless the attempt before failed alike.
    fn report(&self, failure: Failure, reported: &mut Option<String>) {
        if matches!(failure, Failure::Dial(DialFailure::Refused)) {
            self.peer.dial_refused();
        }
        let (text, event) = match failure {
            Failure::Dial(failure) => (failure.to_string(), self.failed(failure)),
            Failure::Handshake(HandshakeError::Ended(cause)) => {
                let failure = match cause {
                    // With TLS 1.3, the first bytes behind the handshake say whether the other side
                    // took this server's certificate.
                    EndCause::Tls(failure) => DialFailure::Tls(failure),
                    cause => DialFailure::Other(format!(
                        "the connection ended in its handshake: {cause}"
                    )),
                };
                (failure.to_string(), self.failed(failure))
            }
            Failure::Handshake(HandshakeError::ByUs(refusal, hello)) => {
                let text = refusal.to_string();
                (text, self.refused(RefusedBy::Us, refusal, hello))
            }
            Failure::Handshake(HandshakeError::ByThem(refusal)) => {
                let text = refusal.to_string();
                (text, self.refused(RefusedBy::Them, refusal, None))
            }
        };
        if reported.as_ref() != Some(&text) {
            *reported = Some(text);
            self.shared.events.event(event);
        }
    }

    fn failed(&self, failure: DialFailure) -> PeerEvent {
        PeerEvent::DialFailed {
            peer: self.peer.id,
            lane: self.lane,
            address: self.address.clone(),
            failure,
        }
    }

    fn refused(&self, by: RefusedBy, refusal: Refusal, hello: Option<Hello>) -> PeerEvent {
        add(&self.shared.counters.refused, 1);
        PeerEvent::Refused {
            peer: Some(self.peer.id),
            remote: self.address.clone(),
            by,
            refusal,
            hello,
        }
    }
}

/// Waits until the peer is removed. An error says that the transport is gone.
async fn removed(mut removed: watch::Receiver<bool>) -> bool {
    removed.wait_for(|removed| *removed).await.is_ok()
}

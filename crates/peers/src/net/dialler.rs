//! Opens the connection of one lane to one peer, again whenever it has ended, with pauses after
//! failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::codec::{Hello, Lane, Refusal};
use crate::net::backoff::Backoff;
use crate::net::connection;
use crate::net::counters::add;
use crate::net::events::{Direction, EndCause, PeerEvent, RefusedBy};
use crate::net::exchange::{self, HandshakeError, OpenedStream};
use crate::net::peer::Peer;
use crate::net::shared::TransportState;
use crate::net::stream::{Connector, DialFailure};

pub(crate) struct Dialler<C> {
    pub(crate) shared: Arc<TransportState>,
    pub(crate) connector: Arc<C>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) lane: Lane,
    /// Address of the peer in the newest membership.
    pub(crate) address: watch::Receiver<String>,
    /// Whether the peer is no longer to be connected to.
    pub(crate) removed: watch::Receiver<bool>,
}

/// Addresses at which a peer is looked for. A handshake shows which server answers, so that the
/// wrong one is never taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServerAddresses {
    now: String,
    /// Address before: it may not have moved yet.
    before: Option<String>,
    /// Address at which it was last reached.
    reached: Option<String>,
}

impl ServerAddresses {
    fn at(address: &str) -> ServerAddresses {
        ServerAddresses {
            now: address.to_owned(),
            before: None,
            reached: None,
        }
    }

    /// It is to be at this address from now on.
    fn moved(&mut self, address: &str) {
        if self.now == address {
            return;
        }
        let former = std::mem::replace(&mut self.now, address.to_owned());
        // The address that it has been given meanwhile may be one where it never was.
        let before = self.reached.clone().unwrap_or(former);
        self.before = Some(before).filter(|before| before != address);
    }

    /// The address for an attempt, of which this many have failed before: the newest one first, and
    /// every second time.
    fn attempt(&self, failed: usize) -> &str {
        match &self.before {
            Some(before) if failed % 2 == 1 => before,
            _ => &self.now,
        }
    }

    fn was_reached(&mut self, address: &str) {
        if self.now == address {
            self.before = None;
        }
        self.reached = Some(address.to_owned());
    }

    /// Returns whether nobody listening at this address says that the peer's process has ended: it
    /// was there last, or nowhere.
    fn tells_of_the_end(&self, address: &str) -> bool {
        self.reached.as_deref().is_none_or(|at| at == address)
    }
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
        let mut reported = BTreeMap::new();
        let mut failed = 0;
        let mut newest = self.address.clone();
        let mut places = ServerAddresses::at(&newest.borrow_and_update());
        loop {
            places.moved(&newest.borrow_and_update());
            let address = places.attempt(failed).to_owned();
            let outcome = tokio::select! {
                biased;
                () = self.shared.stopped() => return,
                _ = removed(self.removed.clone()) => return,
                outcome = self.attempt(&address) => outcome,
            };
            match outcome {
                Ok(opened) => {
                    failed = 0;
                    reported.clear();
                    places.was_reached(&address);
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
                Err(failure) => {
                    failed += 1;
                    let is_refused = matches!(failure, Failure::Dial(DialFailure::Refused));
                    if is_refused && places.tells_of_the_end(&address) {
                        self.peer.dial_refused();
                    }
                    self.report(&address, failure, &mut reported);
                }
            }
            tokio::select! {
                biased;
                () = self.shared.stopped() => return,
                _ = removed(self.removed.clone()) => return,
                () = self.peer.redial(self.lane).notified() => backoff.reset(),
                _ = newest.changed() => {
                    backoff.reset();
                    failed = 0;
                }
                () = sleep(backoff.pause()) => {}
            }
        }
    }

    async fn attempt(&self, address: &str) -> Result<OpenedStream<C::Stream>, Failure> {
        let timing = &self.shared.options.timing;
        let dial = self.connector.connect(self.peer.id, address);
        let connected = match timeout(timing.dial_timeout, dial).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(failure)) => return Err(Failure::Dial(failure)),
            Err(_) => return Err(Failure::Dial(DialFailure::TimedOut)),
        };
        let handshake = async {
            let secured = self.connector.secure(address, connected).await;
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

    /// Notifies the owner, unless the attempt before at this address failed alike.
    fn report(&self, address: &str, failure: Failure, reported: &mut BTreeMap<String, String>) {
        let (text, event) = match failure {
            Failure::Dial(failure) => (failure.to_string(), self.failed(address, failure)),
            Failure::Handshake(HandshakeError::Ended(cause)) => {
                let failure = match cause {
                    // With TLS 1.3, the first bytes behind the handshake say whether the other side
                    // took this server's certificate.
                    EndCause::Tls(failure) => DialFailure::Tls(failure),
                    cause => DialFailure::Other(format!(
                        "the connection ended in its handshake: {cause}"
                    )),
                };
                (failure.to_string(), self.failed(address, failure))
            }
            Failure::Handshake(HandshakeError::ByUs(refusal, hello)) => {
                let text = refusal.to_string();
                (text, self.refused(address, RefusedBy::Us, refusal, hello))
            }
            Failure::Handshake(HandshakeError::ByThem(refusal)) => {
                let text = refusal.to_string();
                (text, self.refused(address, RefusedBy::Them, refusal, None))
            }
        };
        if reported.get(address) != Some(&text) {
            reported.insert(address.to_owned(), text);
            self.shared.events.event(event);
        }
    }

    fn failed(&self, address: &str, failure: DialFailure) -> PeerEvent {
        PeerEvent::DialFailed {
            peer: self.peer.id,
            lane: self.lane,
            address: address.to_owned(),
            failure,
        }
    }

    fn refused(
        &self,
        address: &str,
        by: RefusedBy,
        refusal: Refusal,
        hello: Option<Hello>,
    ) -> PeerEvent {
        add(&self.shared.counters.refused, 1);
        PeerEvent::Refused {
            peer: Some(self.peer.id),
            remote: address.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(places: &ServerAddresses) -> Vec<&str> {
        (0..3).map(|at| places.attempt(at)).collect()
    }

    #[test]
    fn a_server_that_moves_is_tried_at_both_addresses_until_it_is_reached_at_the_new_one() {
        let mut places = ServerAddresses::at("a:1");
        assert_eq!(tried(&places), ["a:1", "a:1", "a:1"]);
        places.moved("b:1");
        places.moved("b:1");
        assert_eq!(tried(&places), ["b:1", "a:1", "b:1"]);
        places.was_reached("a:1");
        assert_eq!(tried(&places), ["b:1", "a:1", "b:1"], "not yet moved");
        places.was_reached("b:1");
        assert_eq!(tried(&places), ["b:1", "b:1", "b:1"]);
        places.moved("a:1");
        assert_eq!(tried(&places), ["a:1", "b:1", "a:1"]);
    }

    #[test]
    fn an_address_with_a_mistake_in_it_is_not_where_a_server_was() {
        let mut places = ServerAddresses::at("a:1");
        places.was_reached("a:1");
        places.moved("mistake:1");
        places.moved("b:1");
        assert_eq!(tried(&places), ["b:1", "a:1", "b:1"]);
        places.moved("a:1");
        assert_eq!(tried(&places), ["a:1", "a:1", "a:1"], "it stays after all");
    }

    #[test]
    fn r06_that_nobody_listens_where_a_server_is_to_move_says_nothing_of_its_end() {
        let mut places = ServerAddresses::at("a:1");
        assert!(places.tells_of_the_end("a:1"));
        places.was_reached("a:1");
        places.moved("b:1");
        assert!(places.tells_of_the_end("a:1") && !places.tells_of_the_end("b:1"));
        places.was_reached("b:1");
        assert!(places.tells_of_the_end("b:1"));
    }
}

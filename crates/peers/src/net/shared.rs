//! State that all tasks of a transport share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::codec::{Hello, Refusal};
use crate::handshake::LocalServer;
use crate::net::counters::TransportCounters;
use crate::net::events::PeerEvents;
use crate::net::options::Options;
use crate::net::peer::Peer;

pub(crate) struct TransportState {
    pub(crate) options: Options,
    pub(crate) local: Mutex<LocalServer>,
    pub(crate) events: Arc<dyn PeerEvents>,
    pub(crate) counters: Arc<TransportCounters>,
    /// Whether the transport stops.
    pub(crate) stop: watch::Sender<bool>,
    /// The beginning of the numbers in signs of life.
    started: Instant,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    /// Addresses of the other servers.
    addresses: Mutex<BTreeMap<u64, String>>,
    /// Earlier addresses of servers that have another one now, until they show that they have
    /// moved.
    former: Mutex<BTreeMap<u64, String>>,
    rng: Mutex<fastrand::Rng>,
}

impl TransportState {
    pub(crate) fn new(
        options: Options,
        local: LocalServer,
        events: Arc<dyn PeerEvents>,
    ) -> TransportState {
        TransportState {
            rng: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            options,
            local: Mutex::new(local),
            events,
            counters: Arc::default(),
            stop: watch::Sender::new(false),
            started: Instant::now(),
            peers: Mutex::default(),
            addresses: Mutex::default(),
            former: Mutex::default(),
        }
    }

    /// The peer of an id that the handshake has admitted; there are at most as many as ids.
    pub(crate) fn peer(&self, id: u64) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        let peer = peers.entry(id).or_insert_with(|| {
            Arc::new(Peer::new(
                id,
                &self.options.limits,
                Arc::clone(&self.events),
            ))
        });
        Arc::clone(peer)
    }

    /// Returns whether the server that says this may connect, or may be connected to.
    pub(crate) fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        self.local.lock().check(hello)?;
        match self.known_peer(hello.from) {
            Some(peer) => peer.check_run(hello),
            None => Ok(()),
        }
    }

    /// Returns the address of this server, if it is known.
    pub(crate) fn address(&self, id: u64) -> Option<String> {
        self.addresses.lock().get(&id).cloned()
    }

    /// Returns the earlier address of this server: it may not have moved yet.
    pub(crate) fn former_address(&self, id: u64) -> Option<String> {
        self.former.lock().get(&id).cloned()
    }

    pub(crate) fn set_addresses(&self, addresses: &BTreeMap<u64, String>) {
        let before = std::mem::replace(&mut *self.addresses.lock(), addresses.clone());
        let mut former = self.former.lock();
        former.retain(|id, _| addresses.contains_key(id));
        for (id, address) in before {
            if addresses.get(&id).is_some_and(|now| *now != address) {
                // It may never have been at an address that it had only for a moment.
                former.entry(id).or_insert(address);
            }
        }
    }

    /// This server has shown that it is no longer where it was before.
    pub(crate) fn has_moved(&self, id: u64) {
        self.former.lock().remove(&id);
    }

    pub(crate) fn known_peer(&self, id: u64) -> Option<Arc<Peer>> {
        self.peers.lock().get(&id).cloned()
    }

    pub(crate) fn all_peers(&self) -> Vec<Arc<Peer>> {
        self.peers.lock().values().cloned().collect()
    }

    /// Microseconds since the start, from 1 on.
    pub(crate) fn now_us(&self) -> u64 {
        let passed = self.started.elapsed().as_micros();
        u64::try_from(passed).unwrap_or(u64::MAX - 1) + 1
    }

    /// The moments of signs of life, the same for all connections, so that one wake-up sends all.
    pub(crate) fn alive_ticks(&self) -> Interval {
        let period = self.options.timing.alive_interval;
        let past = self.started.elapsed().as_nanos() / period.as_nanos().max(1);
        let next = u32::try_from(past + 1).unwrap_or(u32::MAX);
        let mut ticks = interval_at(self.started + period * next, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    }

    /// Waits until the transport stops.
    pub(crate) async fn stopped(&self) {
        // An error says that the sender is gone, which `self` has.
        let _ = self.stop.subscribe().wait_for(|stops| *stops).await;
    }

    /// A number for a handshake, or a seed.
    pub(crate) fn draw(&self) -> u64 {
        self.rng.lock().u64(1..)
    }
}

//! The owner's handle on the connections to all other servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use baton_consensus::{MessageKind, PeerMessage};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::codec::{Bye, Frame, Lane, MAX_MESSAGES};
use crate::handshake::LocalServer;
use crate::net::acceptor;
use crate::net::counters::{PeerCounters, TransportCounters};
use crate::net::dialler::Dialler;
use crate::net::events::{Direction, PeerEvents};
use crate::net::options::Options;
use crate::net::outbound::SendError;
use crate::net::peer::Peer;
use crate::net::shared::Shared;
use crate::net::stream::{Acceptor, Connector};

/// A frame of messages is closed when it has this many bytes.
const RAFT_FRAME_BYTES: usize = 4 << 20;

/// Messages of one kind to one server were not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsent {
    /// The receiver.
    pub to: u64,
    /// Their kind. For [`MessageKind::Snapshot`] the consensus wants to know that the snapshot did
    /// not arrive, for the others that the receiver is unreachable.
    pub kind: MessageKind,
    /// Why.
    pub error: SendError,
}

/// Starts the diallers of one peer.
type Dial = dyn Fn(Arc<Peer>, &str, &watch::Receiver<bool>) + Send + Sync;

/// A peer that is to be connected to.
struct Dialled {
    address: String,
    removed: watch::Sender<bool>,
}

/// The connections to all other servers. Its calls do not block and may come from any thread.
pub struct Peers {
    shared: Arc<Shared>,
    dial: Box<Dial>,
    dialled: Mutex<BTreeMap<u64, Dialled>>,
    /// Ends when all tasks have ended.
    ended: mpsc::Receiver<()>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let local = self.shared.local.lock();
        f.debug_struct("Peers")
            .field("id", &local.id)
            .finish_non_exhaustive()
    }
}

impl Peers {
    /// Starts to accept connections. It connects to nobody before
    /// [`set_addresses`](Peers::set_addresses).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start<C: Connector, A: Acceptor>(
        options: Options,
        local: LocalServer,
        connector: C,
        acceptor: A,
        events: Arc<dyn PeerEvents>,
    ) -> Peers {
        let shared = Arc::new(Shared::new(options, local, events));
        let (token, ended) = mpsc::channel(1);
        let runtime = Handle::current();
        let accepting = {
            let token = token.clone();
            let accept = acceptor::accept(Arc::clone(&shared), Arc::new(acceptor), token.clone());
            async move {
                accept.await;
                drop(token);
            }
        };
        runtime.spawn(accepting);
        let connector = Arc::new(connector);
        let dial = {
            let shared = Arc::clone(&shared);
            move |peer: Arc<Peer>, address: &str, removed: &watch::Receiver<bool>| {
                for lane in Lane::ALL {
                    let dialler = Dialler {
                        shared: Arc::clone(&shared),
                        connector: Arc::clone(&connector),
                        peer: Arc::clone(&peer),
                        lane,
                        address: address.to_owned(),
                        removed: removed.clone(),
                    };
                    let token = token.clone();
                    runtime.spawn(async move {
                        dialler.run().await;
                        drop(token);
                    });
                }
            }
        };
        Peers {
            shared,
            dial: Box::new(dial),
            dialled: Mutex::default(),
            ended,
        }
    }

    /// The servers to connect to, by id, with their addresses. Connections to others are ended,
    /// and those to a server whose address has changed.
    pub fn set_addresses(&self, addresses: &BTreeMap<u64, String>) {
        let own = self.shared.local.lock().id;
        self.shared.set_addresses(addresses);
        let mut dialled = self.dialled.lock();
        dialled.retain(|id, known| {
            if addresses.get(id) == Some(&known.address) {
                return true;
            }
            let _ = known.removed.send(true);
            if let Some(peer) = self.shared.known_peer(*id) {
                peer.end_where(Bye::Removed, |link, _| {
                    link.direction == Direction::Outbound
                });
            }
            false
        });
        for (id, address) in addresses {
            if *id == own || dialled.contains_key(id) {
                continue;
            }
            let removed = watch::Sender::new(false);
            (self.dial)(self.shared.peer(*id), address, &removed.subscribe());
            dialled.insert(
                *id,
                Dialled {
                    address: address.clone(),
                    removed,
                },
            );
        }
    }

    /// Changes what this server says of itself and knows of the members. Connections of servers
    /// that the new membership does not admit are ended.
    pub fn update_local(&self, change: impl FnOnce(&mut LocalServer)) {
        let local = {
            let mut local = self.shared.local.lock();
            change(&mut local);
            local.clone()
        };
        for peer in self.shared.all_peers() {
            peer.end_where(Bye::Removed, |_, hello| !local.still_admits(hello));
        }
    }

    /// Sends a frame, on its lane, after those that wait there.
    ///
    /// # Errors
    /// [`SendError`]: the frame was not queued. A frame that was queued is lost when its connection
    /// ends; the owner is notified of that.
    pub fn send(&self, to: u64, frame: Frame) -> Result<(), SendError> {
        match self.shared.known_peer(to) {
            Some(peer) => peer.send(frame),
            None => Err(SendError::NotConnected),
        }
    }

    /// Sends messages of the consensus, all those for one server and lane in one frame. Returns
    /// what was not sent.
    pub fn send_raft(&self, messages: impl IntoIterator<Item = PeerMessage>) -> Vec<Unsent> {
        let mut waiting: BTreeMap<(u64, Lane), (Vec<PeerMessage>, usize)> = BTreeMap::new();
        let mut unsent = Vec::new();
        for message in messages {
            let (to, lane) = (message.to, Frame::lane_of(&message));
            let (frame, bytes) = waiting.entry((to, lane)).or_default();
            *bytes += Frame::bytes_of(&message);
            frame.push(message);
            if *bytes >= RAFT_FRAME_BYTES || frame.len() >= MAX_MESSAGES {
                *bytes = 0;
                let frame = std::mem::take(frame);
                self.send_frame(to, frame, &mut unsent);
            }
        }
        for ((to, _), (frame, _)) in waiting {
            if !frame.is_empty() {
                self.send_frame(to, frame, &mut unsent);
            }
        }
        unsent
    }

    fn send_frame(&self, to: u64, messages: Vec<PeerMessage>, unsent: &mut Vec<Unsent>) {
        let kinds: Vec<MessageKind> = messages.iter().map(|message| message.kind).collect();
        let Err(error) = self.send(to, Frame::Raft(messages)) else {
            return;
        };
        for kind in kinds {
            let this = Unsent { to, kind, error };
            if !unsent.contains(&this) {
                unsent.push(this);
            }
        }
    }

    /// The lanes on which frames to this server can be sent now.
    pub fn open_lanes(&self, to: u64) -> BTreeSet<Lane> {
        let peer = self.shared.known_peer(to);
        let is_open = |lane: &Lane| {
            peer.as_ref()
                .is_some_and(|peer| peer.outbound(*lane).is_open())
        };
        Lane::ALL.into_iter().filter(is_open).collect()
    }

    /// The counters of one peer; `None` when nothing is known of it.
    pub fn peer_counters(&self, id: u64) -> Option<Arc<PeerCounters>> {
        self.shared
            .known_peer(id)
            .map(|peer| Arc::clone(&peer.counters))
    }

    /// The counters of connections that belong to no peer yet.
    pub fn counters(&self) -> Arc<TransportCounters> {
        Arc::clone(&self.shared.counters)
    }

    /// Sends what waits, says to each peer that this server stops, and ends all connections.
    pub async fn stop(mut self) {
        let _ = self.shared.stop.send_replace(true);
        // What starts diallers counts as a task.
        self.dial = Box::new(|_, _, _| {});
        let limit = self.shared.options.timing.last_words_timeout * 2;
        let _ = timeout(limit, self.ended.recv()).await;
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = self.shared.stop.send_replace(true);
    }
}

//! The owner's handle on the connections to all other servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use baton_consensus::{MessageKind, PeerMessage};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::codec::{CloseReason, Frame, Lane, MAX_MESSAGES};
use crate::handshake::LocalServer;
use crate::net::acceptor;
use crate::net::counters::{PeerCounters, TransportCounters};
use crate::net::dialler::Dialler;
use crate::net::dialling::Diallers;
use crate::net::events::PeerEvents;
use crate::net::options::Options;
use crate::net::outbound::SendError;
use crate::net::peer::Peer;
use crate::net::shared::TransportState;
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
    /// The reason.
    pub error: SendError,
}

/// The connections to all other servers. Its calls do not block and may come from any thread.
pub struct Peers {
    shared: Arc<TransportState>,
    /// `None` once it stops.
    dialling: Option<Arc<Diallers>>,
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
        let shared = Arc::new(TransportState::new(options, local, events));
        let (token, ended) = mpsc::channel(1);
        let runtime = Handle::current();
        let connector = Arc::new(connector);
        let dial = {
            let (shared, token, runtime) = (Arc::clone(&shared), token.clone(), runtime.clone());
            move |peer: Arc<Peer>,
                  address: &watch::Receiver<String>,
                  removed: &watch::Receiver<bool>| {
                for lane in Lane::ALL {
                    let dialler = Dialler {
                        shared: Arc::clone(&shared),
                        connector: Arc::clone(&connector),
                        peer: Arc::clone(&peer),
                        lane,
                        address: address.clone(),
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
        let dialling = Arc::new(Diallers::new(Arc::clone(&shared), Box::new(dial)));
        let accepting = {
            let (shared, dialling) = (Arc::clone(&shared), Arc::clone(&dialling));
            let accept = acceptor::accept(shared, dialling, Arc::new(acceptor), token.clone());
            async move {
                accept.await;
                drop(token);
            }
        };
        runtime.spawn(accepting);
        Peers {
            shared,
            dialling: Some(dialling),
            ended,
        }
    }

    /// The servers to connect to, by id, with their addresses. Connections to others are ended.
    /// Those to a server whose address has changed stay: the next ones are made to the new address,
    /// or to the one before as long as the server is not reached at the new one. A server that
    /// connects, and whose membership says that this one's is too old to know it, is called back
    /// all the same, as long as that is so.
    pub fn set_addresses(&self, addresses: &BTreeMap<u64, String>) {
        if let Some(dialling) = &self.dialling {
            dialling.name(addresses);
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
            peer.end_where(CloseReason::Removed, |_, hello| !local.still_admits(hello));
        }
        if let Some(dialling) = &self.dialling {
            dialling.members_changed();
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
        self.dialling = None;
        let limit = self.shared.options.timing.last_words_timeout * 2;
        let _ = timeout(limit, self.ended.recv()).await;
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = self.shared.stop.send_replace(true);
    }
}

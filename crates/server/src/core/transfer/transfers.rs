//! Snapshots to and from the other servers, and the received one that is to take the place of the
//! state. Owns that no entry behind it is applied before it has; never touches the state itself.

use std::time::Instant;

use baton_consensus::{Entry, MessageKind, PeerMessage, PeerProgress, PersistToken, SnapshotPoint};
use baton_peers::codec::Frame;
use baton_peers::net::SendError;
use baton_tree::Tree;
use baton_wal::{SnapshotInfo, SnapshotStore};

use super::incoming::{Incoming, Received};
use super::limits::TransferLimits;
use super::outgoing::{EndedTransfer, Outgoing};
use crate::core::disk_worker::DiskWorker;

/// All transfers of one server.
#[derive(Debug)]
pub(crate) struct Transfers {
    outgoing: Outgoing,
    incoming: Incoming,
    installing: Option<Installing>,
}

/// A received snapshot whose mark the log is writing.
#[derive(Debug)]
struct Installing {
    token: PersistToken,
    received: Received,
    /// Entries behind it that were committed meanwhile.
    behind: Vec<Entry>,
}

impl Transfers {
    /// Transfers of server `id`, with its snapshots.
    pub(crate) fn new(
        id: u64,
        store: &SnapshotStore,
        mut worker: impl FnMut(&'static str) -> Box<dyn DiskWorker>,
    ) -> Self {
        let limits = TransferLimits::default();
        let outgoing = Outgoing::new(store.clone(), limits.clone(), worker("baton-send"));
        let incoming = Incoming::new(id, store.clone(), limits, worker("baton-receive"));
        Self {
            outgoing,
            incoming,
            installing: None,
        }
    }

    /// A frame of a transfer, for one side or the other.
    pub(crate) fn frame(&mut self, from: u64, frame: Frame, committed: u64, now: Instant) {
        self.outgoing.frame(from, &frame, now);
        self.incoming.frame(from, frame, committed, now);
    }

    /// The connection for snapshots with this server has ended.
    pub(crate) fn gone(&mut self, peer: u64) {
        self.outgoing.gone(peer);
        self.incoming.gone(peer);
    }

    /// Whether the consensus may see this message: one of a snapshot only when its file is here.
    pub(crate) fn admits(&self, message: &PeerMessage, committed: u64) -> bool {
        match (message.kind, &message.snapshot) {
            (MessageKind::Snapshot, Some(point)) => self.incoming.admits(point, committed),
            _ => true,
        }
    }

    /// Sends the file of a snapshot, and then this message of the consensus.
    pub(crate) fn begin(&mut self, message: PeerMessage, now: Instant) {
        self.outgoing.begin(message, now);
    }

    /// Does what can be done now; returns transfers to other servers that have ended.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        committed: u64,
        send: &mut dyn FnMut(u64, Frame) -> Result<(), SendError>,
    ) -> Vec<EndedTransfer> {
        let ended = self.outgoing.poll(now, send);
        self.incoming.poll(now, committed, send);
        ended
    }

    /// When [`Self::poll`] is due though nothing happens.
    pub(crate) fn next_poll(&self, now: Instant) -> Option<Instant> {
        let both = [self.outgoing.next_poll(now), self.incoming.next_poll(now)];
        both.into_iter().flatten().min()
    }

    /// The oldest entry that a transfer needs the log to keep.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.outgoing.oldest()
    }

    /// Ends the pins of snapshots whose receivers have caught up.
    pub(crate) fn release_matched(&mut self, progress: &[PeerProgress], last: u64, now: Instant) {
        self.outgoing.release_matched(progress, last, now);
    }

    /// This server leads no more.
    pub(crate) fn abandon(&mut self) {
        self.outgoing.abandon();
    }

    /// Gives up what it receives: the disk is full.
    pub(crate) fn give_way(&mut self) {
        self.incoming.give_way();
    }

    /// The consensus puts the snapshot of this point in the place of the log. Returns the file with
    /// which the log is to do the same; `None`: it is not here, and its message was not admitted.
    pub(crate) fn install(
        &mut self,
        point: &SnapshotPoint,
        token: PersistToken,
    ) -> Option<SnapshotInfo> {
        let received = self.incoming.take(point)?;
        let info = received.info.clone();
        self.installing = Some(Installing {
            token,
            received,
            behind: Vec::new(),
        });
        Some(info)
    }

    /// Whether a snapshot takes the place of the state as soon as it is durable.
    pub(crate) const fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// Keeps committed entries that come behind the snapshot that is being installed. Returns them
    /// where they may be applied now.
    pub(crate) fn hold_behind(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        match &mut self.installing {
            Some(installing) => {
                installing.behind.extend(entries);
                Vec::new()
            }
            None => entries,
        }
    }

    /// Everything up to these effects is durable: the snapshot among them, with the entries to be
    /// applied behind it.
    pub(crate) fn take_durable(&mut self, newest: PersistToken) -> Option<(Received, Vec<Entry>)> {
        let installing = self.installing.take_if(|it| it.token <= newest)?;
        Some((installing.received, installing.behind))
    }

    /// Drops the state that a snapshot has replaced, which takes long.
    pub(crate) fn dispose(&mut self, before: Tree) {
        self.incoming.dispose(before);
    }
}

//! Snapshots to and from the other servers: what the core of a member does about them, and how a
//! received one takes the place of the tree.

use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use baton_consensus::{Entry, MessageKind, PeerMessage, PersistToken, SnapshotPoint};
use baton_peers::codec::Frame;
use baton_wal::SnapshotInfo;

use super::CoreDriver;
use crate::audit::line::{Ending, Operation};
use crate::audit::record::Who;
use crate::connections::conn::CloseReason;
use crate::core::transfer::Received;
use crate::error::ServerError;

/// A received snapshot whose mark the log is writing.
#[derive(Debug)]
pub(crate) struct Installing {
    token: PersistToken,
    received: Received,
    /// Entries behind it that were committed meanwhile.
    behind: Vec<Entry>,
}

impl CoreDriver {
    /// A frame of a snapshot's transfer.
    pub(crate) fn transfer_frame(&mut self, from: u64, frame: Frame, now: Instant) {
        let member = &mut self.member;
        member.outgoing.frame(from, &frame, now);
        let committed = self.consensus.commit_index();
        member.incoming.frame(from, frame, committed, now);
    }

    /// The connection for snapshots with this server has ended.
    pub(crate) fn transfer_gone(&mut self, peer: u64) {
        self.member.outgoing.gone(peer);
        self.member.incoming.gone(peer);
    }

    /// Whether the consensus may see this message: one of a snapshot only when its file is here.
    pub(crate) fn admits(&self, message: &PeerMessage) -> bool {
        let (MessageKind::Snapshot, Some(point)) = (message.kind, &message.snapshot) else {
            return true;
        };
        let committed = self.consensus.commit_index();
        self.member.incoming.admits(point, committed)
    }

    /// Does what can be done now about snapshots on their way.
    pub(crate) fn poll_transfers(&mut self, now: Instant) {
        let member = &mut self.member;
        let wire = &member.links.wire;
        let mut send = |to, frame| wire.send(to, frame);
        for ended in member.outgoing.poll(now, &mut send) {
            let (to, index) = (ended.to, ended.index);
            self.consensus.report_snapshot(to, ended.outcome.is_ok());
            match ended.outcome {
                Ok(()) => tracing::info!(to, index, "another server has received a snapshot"),
                Err(failure) => {
                    // What is tried again at once can end alike many times in a second.
                    if failure.wants_pause() {
                        tracing::warn!(to, index, %failure, "a snapshot did not reach another server");
                    } else {
                        tracing::debug!(to, index, %failure, "a snapshot did not reach another server");
                    }
                    if failure.wants_fresh() {
                        self.snapshots.request();
                    }
                }
            }
        }
        let committed = self.consensus.commit_index();
        member.incoming.poll(now, committed, &mut send);
        self.consensus.keep_after(member.outgoing.oldest());
    }

    /// When [`CoreDriver::poll_transfers`] is due though nothing happens.
    pub(crate) fn next_transfer(&self, now: Instant) -> Option<Instant> {
        let member = &self.member;
        let both = [
            member.outgoing.next_poll(now),
            member.incoming.next_poll(now),
        ];
        both.into_iter().flatten().min()
    }

    /// The consensus puts the snapshot of this point in the place of the log: the log is to do the
    /// same with the returned file.
    pub(crate) fn begin_install(
        &mut self,
        point: &SnapshotPoint,
        token: PersistToken,
    ) -> Result<SnapshotInfo, ServerError> {
        let member = &mut self.member;
        // Its message was admitted because it is here.
        let received = member.incoming.take(point).ok_or(ServerError::Defect)?;
        let info = received.info.clone();
        member.installing = Some(Installing {
            token,
            received,
            behind: Vec::new(),
        });
        Ok(info)
    }

    /// Entries that are committed: they are applied now, or behind the snapshot that is being
    /// installed.
    pub(crate) fn apply_committed(&mut self, entries: Vec<Entry>) -> Result<(), ServerError> {
        if let Some(installing) = &mut self.member.installing {
            installing.behind.extend(entries);
            return Ok(());
        }
        for entry in entries {
            self.apply(&entry)?;
            self.entry_applied(entry.index, entry.term);
        }
        Ok(())
    }

    /// Everything up to these effects is durable: the snapshot among them takes the place of the
    /// tree. Clients of this server are sent away first, since their watches would miss what lies
    /// between (R25).
    pub(crate) fn install_when_durable(&mut self, newest: PersistToken) -> Result<(), ServerError> {
        let member = &mut self.member;
        let Some(installing) = member.installing.take_if(|it| it.token <= newest) else {
            return Ok(());
        };
        let Received { point, tree, .. } = installing.received;
        for conn in self.state.all_connections() {
            conn.close(CloseReason::StateReplaced, &mut self.applier.wake);
        }
        let mut waiting = self.backlog.take_all();
        waiting.append(&mut member.held);
        let mut dropped = member.outstanding.clear();
        dropped.extend(member.members.forget_answers());
        self.state.inbox.done(&mut waiting);
        for requested in dropped {
            self.finish(requested);
        }
        self.snapshots.give_way(&self.state, &mut self.log);
        tracing::info!(
            index = point.index,
            zxid = tree.zxid(),
            sessions = tree.sessions().count(),
            "a snapshot of another server has taken the place of this server's state"
        );
        #[cfg(feature = "simulation")]
        self.state.simulated.installed_snapshot();
        self.applier.set_level(tree.level());
        self.applier.unfinished_end = tree.unfinished_end();
        let zxid = tree.zxid();
        debug_assert!(
            self.state
                .all_connections()
                .iter()
                .all(|conn| conn.attached().is_none() || conn.is_closing()),
            "a client could see the new state before the events of what lies between"
        );
        let before = std::mem::replace(&mut *self.state.tree.write(), tree);
        self.state.show_restored();
        let (installed, done) = (Operation::SnapshotInstalled, Ending::Success);
        self.state.record(installed, done, Who::server, |fields| {
            fields.hex("before", before.zxid());
            fields.hex("zxid", zxid);
        });
        self.state.last_zxid.store(zxid, Release);
        self.start_clocks();
        self.consensus.applied(point.index)?;
        self.member.digests.replaced();
        self.members_changed();
        self.entry_applied(point.index, point.term);
        self.member.incoming.dispose(before);
        self.apply_committed(installing.behind)
    }

    /// Ends what depends on this server's being the leader.
    pub(crate) fn abandon_transfers(&mut self) {
        self.member.outgoing.abandon();
    }
}

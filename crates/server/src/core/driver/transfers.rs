//! Snapshots to and from the other servers: what the core of a member does about them, and how a
//! received one takes the place of the tree.

use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use baton_consensus::PersistToken;

use super::CoreDriver;
use crate::audit::line::{Ending, Operation};
use crate::audit::record::Principal;
use crate::connections::conn::CloseReason;
use crate::core::transfer::Received;
use crate::error::ServerError;

impl CoreDriver {
    /// Does what can be done now about snapshots on their way.
    pub(crate) fn poll_transfers(&mut self, now: Instant) {
        let wire = &self.links.wire;
        let mut send = |to, frame| wire.send(to, frame);
        let committed = self.consensus.commit_index();
        for ended in self.transfers.poll(now, committed, &mut send) {
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
        self.consensus.keep_after(self.transfers.oldest());
    }

    /// Everything up to these effects is durable: the snapshot among them takes the place of the
    /// tree. Clients of this server are sent away first, since their watches would miss what lies
    /// between (R25).
    pub(crate) fn install_when_durable(&mut self, newest: PersistToken) -> Result<(), ServerError> {
        let Some((received, behind)) = self.transfers.take_durable(newest) else {
            return Ok(());
        };
        let Received { point, tree, .. } = received;
        for conn in self.state.all_connections() {
            conn.close(CloseReason::StateReplaced, &mut self.applier.wake);
        }
        let mut waiting = self.backlog.take_all();
        waiting.append(&mut self.held);
        let mut dropped = self.outstanding.clear();
        let answers = self.members.take_answers().into_iter();
        dropped.extend(answers.map(|(requested, ..)| requested));
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
        self.state
            .record(installed, done, Principal::server, |fields| {
                fields.hex("before", before.zxid());
                fields.hex("zxid", zxid);
            });
        self.state.last_zxid.store(zxid, Release);
        self.start_clocks();
        self.consensus.applied(point.index)?;
        self.digests.replaced();
        self.members_changed();
        self.entry_applied(point.index, point.term);
        self.transfers.dispose(before);
        self.apply_committed(behind)
    }
}

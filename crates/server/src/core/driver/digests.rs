//! The servers of an ensemble compare their states, and one that differs from a majority stops
//! (R39).

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use baton_peers::codec::{Frame, StateDigest};

use super::CoreDriver;
use crate::core::digests::Judgement;
use crate::error::ServerError;

impl CoreDriver {
    /// The state after the entry that was just applied.
    pub(crate) fn note_digest(&mut self, index: u64) {
        let digest = self.state.tree.read().digest();
        self.digests.applied(StateDigest { index, digest });
    }

    /// Says to the leader what this server's state is.
    pub(crate) fn send_digest(&mut self, now: Instant) {
        let due = self.digests.due(now);
        if let (Some(leader), Some(state)) = (self.leadership.leader(), due)
            && leader != self.links.id
        {
            // The next one comes in a moment.
            let _ = self.links.wire.send(leader, Frame::Digest(state));
        }
    }

    /// On the leader: compares the state of another server.
    pub(crate) fn compare_digest(
        &mut self,
        from: u64,
        state: StateDigest,
    ) -> Result<(), ServerError> {
        if !self.leadership.leads() {
            return Ok(());
        }
        self.digests.reported(from, state);
        let voters = &self.consensus.membership().voters;
        let judgement = self.digests.judge(self.links.id, voters);
        if judgement != Judgement::Same {
            self.state.stats.digest_mismatches.fetch_add(1, Relaxed);
        }
        match judgement {
            Judgement::Same => Ok(()),
            Judgement::OthersDiffer(others) => {
                for (to, own) in others {
                    let index = own.index;
                    tracing::error!(
                        server = to,
                        index,
                        "another server's state differs from that of a majority: it has to stop"
                    );
                    let _ = self.links.wire.send(to, Frame::Contradiction(own));
                }
                Ok(())
            }
            Judgement::LeaderDiffers => Err(ServerError::Diverged { index: state.index }),
            Judgement::Undecided(others) => {
                tracing::error!(
                    ?others,
                    index = state.index,
                    "the states of servers differ, and no majority says which is right: start the other servers"
                );
                Ok(())
            }
        }
    }

    /// A server says that a majority has this state.
    pub(crate) fn contradicted(&self, from: u64, state: StateDigest) -> Result<(), ServerError> {
        if self.leadership.leader() == Some(from) && self.digests.contradict(state) {
            self.state.stats.digest_mismatches.fetch_add(1, Relaxed);
            return Err(ServerError::Diverged { index: state.index });
        }
        Ok(())
    }
}

//! Heartbeats of a leader, which go half as often while it has nothing to say, and ticks that an
//! idle node may sleep through. The engine sends the heartbeats of an idle leader, and this module
//! those between them. A leader that sleeps sends one with each look whether a majority has
//! answered.

use raft::{INVALID_ID, ProgressState, StateRole};

use super::Consensus;

impl Consensus {
    /// Sends the heartbeat of this tick that the engine does not send: halfway to its next one
    /// unless nothing is to be said, and after the look whether a majority has answered, or a
    /// hand-over that failed would leave little time for answers before the next look.
    pub(super) fn send_extra_heartbeat(&mut self) {
        let raft = &self.node.raft;
        let elapsed = raft.heartbeat_elapsed();
        let is_halfway = elapsed == self.heartbeat_ticks && !self.is_quiet();
        if is_halfway || (raft.election_elapsed == 0 && elapsed > 0) {
            self.node.ping();
        }
    }

    /// Ticks without a leader after which this node campaigns. Where its log has nothing that is
    /// not committed the leader may sleep from look to look, so it waits for that much more: a
    /// leader or a link may stand still for as long as when all heartbeats are sent.
    pub(super) fn campaign_ticks(&self) -> usize {
        let raft = &self.node.raft;
        let is_idle = raft.leader_id != INVALID_ID && self.all_is_committed();
        let sleep = match is_idle {
            true => raft.election_timeout() - self.heartbeat_ticks,
            false => 0,
        };
        self.timeouts.current() + sleep
    }

    fn all_is_committed(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.last_index() == log.committed
    }

    /// Whether all other nodes have acknowledged the whole log, and it is committed. A leader that
    /// was removed always has something to say: it hands over (R16).
    fn is_quiet(&self) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        let mut others = raft.prs().iter().filter(|(id, _)| **id != self.node_id);
        self.leads()
            && self.all_is_committed()
            && others.all(|(_, it)| it.matched == last && it.state == ProgressState::Replicate)
    }

    /// Ticks that nobody waits for, because each timeout is further away: their caller may make
    /// them later, all at once, if it makes them before it handles a message.
    pub fn idle_ticks(&self) -> u32 {
        let raft = &self.node.raft;
        if self.membership.is_joint()
            || !self.membership.votes(self.node_id)
            || raft.leader_id == INVALID_ID
            || !self.all_is_committed()
        {
            return 0;
        }
        let left = |timeout: usize, elapsed: usize| timeout.saturating_sub(elapsed + 1);
        let idle = match raft.state {
            StateRole::Leader => {
                let look = left(raft.election_timeout(), raft.election_elapsed);
                let elapsed = raft.heartbeat_elapsed();
                let next = match elapsed < self.heartbeat_ticks {
                    true => self.heartbeat_ticks,
                    false => raft.heartbeat_timeout(),
                };
                match self.is_quiet() {
                    true => look,
                    false => left(next, elapsed).min(look),
                }
            }
            StateRole::Follower => left(self.campaign_ticks(), raft.election_elapsed),
            _ => 0,
        };
        u32::try_from(idle).unwrap_or(0)
    }
}

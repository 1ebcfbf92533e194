//! Heartbeats of a leader, and ticks of which nothing comes: an idle node sleeps through them.

use raft::eraftpb::{Message, MessageType};
use raft::{INVALID_ID, ProgressState, StateRole};

use super::Consensus;

impl Consensus {
    /// Has the engine make a tick. While nothing is to be said, every second heartbeat is left out.
    pub(super) fn make_tick(&mut self) {
        let before = self.node.raft.msgs.len();
        self.node.tick();
        let is_plain = |message: &Message| {
            message.get_msg_type() == MessageType::MsgHeartbeat && message.context.is_empty()
        };
        let raft = &self.node.raft;
        let mut sent = raft.msgs.iter().skip(before);
        if raft.state == StateRole::Leader && raft.heartbeat_elapsed() == 0 {
            let leaves_out = self.leaves_out_heartbeat(raft.election_elapsed) && sent.all(is_plain);
            self.left_out_heartbeat = leaves_out;
            if leaves_out {
                self.node.raft.msgs.truncate(before);
            }
        }
    }

    /// Whether a leader leaves out the heartbeat of this tick since its last look for a majority.
    /// Of two one is sent, and so is the one of the look itself, which wakes the leader anyway.
    fn leaves_out_heartbeat(&self, tick: usize) -> bool {
        let both = 2 * self.node.raft.heartbeat_timeout();
        !self.left_out_heartbeat && !tick.is_multiple_of(both) && self.is_quiet()
    }

    /// Whether all other nodes have acknowledged the whole log, and it is committed.
    fn is_quiet(&self) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        let mut others = raft.prs().iter().filter(|(id, _)| **id != self.node_id);
        raft.raft_log.committed == last
            && raft.lead_transferee.is_none()
            && raft.pending_read_count() == 0
            && others.all(|(_, it)| it.matched == last && it.state == ProgressState::Replicate)
    }

    /// Ticks that nothing comes of, because each timeout is further away: their caller may make
    /// them later, all at once, if it makes them before it handles a message.
    pub fn idle_ticks(&self) -> u32 {
        let raft = &self.node.raft;
        if self.membership.is_joint()
            || !self.membership.votes(self.node_id)
            || raft.leader_id == INVALID_ID
            || raft.raft_log.last_index() > raft.raft_log.committed
        {
            return 0;
        }
        let left = |timeout: usize, elapsed: usize| timeout.saturating_sub(elapsed + 1);
        let idle = match raft.state {
            StateRole::Leader => {
                let beat = raft.heartbeat_timeout();
                let next = beat.saturating_sub(raft.heartbeat_elapsed());
                let is_left_out = self.leaves_out_heartbeat(raft.election_elapsed + next);
                let skipped = if is_left_out { beat } else { 0 };
                (left(beat, raft.heartbeat_elapsed()) + skipped)
                    .min(left(raft.election_timeout(), raft.election_elapsed))
            }
            StateRole::Follower => left(self.timeouts.current(), raft.election_elapsed),
            _ => 0,
        };
        u32::try_from(idle).unwrap_or(0)
    }
}

//! The positions that the leader knows of the logs of the other nodes.

use raft::{ProgressState, StateRole};

use super::Consensus;
use crate::types::PeerProgress;

impl Consensus {
    /// Returns the leader's knowledge of the other nodes; nothing on a node that does not lead.
    pub fn progress(&self) -> Vec<PeerProgress> {
        if self.node.raft.state != StateRole::Leader {
            return Vec::new();
        }
        let mut peers: Vec<_> = self
            .node
            .raft
            .prs()
            .iter()
            .filter(|(id, _)| **id != self.node_id)
            .map(|(id, progress)| PeerProgress {
                id: *id,
                matched: progress.matched,
                active: progress.recent_active,
                snapshot: match progress.state {
                    ProgressState::Snapshot => progress.pending_snapshot,
                    _ => 0,
                },
            })
            .collect();
        peers.sort_by_key(|peer| peer.id);
        peers
    }

    /// Whether most voters have acknowledged entries that this leader's own disk does not have:
    /// they could elect another one and go on.
    pub fn majority_is_ahead_of_own_disk(&self) -> bool {
        let raft = &self.node.raft;
        let matched = |id: &u64| raft.prs().get(*id).map_or(0, |progress| progress.matched);
        let own = matched(&self.node_id);
        let voters = &self.membership.voters;
        let ahead = voters.iter().filter(|id| matched(id) > own).count();
        raft.state == StateRole::Leader && 2 * ahead > voters.len()
    }

    /// Whether most voters have acknowledged the entry at `index` to this leader.
    pub fn majority_has(&self, index: u64) -> bool {
        let prs = self.node.raft.prs();
        let voters = &self.membership.voters;
        let has = |id: &&u64| prs.get(**id).is_some_and(|it| it.matched >= index);
        2 * voters.iter().filter(has).count() > voters.len()
    }
}

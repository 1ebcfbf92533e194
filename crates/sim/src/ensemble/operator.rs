//! Who adds, removes and replaces members while the run goes on. Asks of the cluster only what it
//! could know, except that it never lets go of the last majority with its data.

use baton_consensus::{Change, Membership, MembershipChange};
use bytes::Bytes;

use super::bug::SeededBug;
use super::drive::REFUSED;
use super::early::simple_change_to;
use super::members;
use super::timeline::MS_US;
use super::world::World;

/// Entries that a learner may lack when it is made a voter.
const CAUGHT_UP_ENTRIES: u64 = 6;

/// The most voters, and where several come at once.
const MOST_VOTERS: usize = 5;
const MOST_VOTERS_AT_ONCE: usize = 7;

impl World {
    pub(crate) fn operate(&mut self) {
        self.wipe_stopped();
        let Some(leader) = self
            .leader()
            .filter(|id| self.nodes.get(id).is_some_and(|node| !node.is_paused))
        else {
            return;
        };
        let Some(process) = self.process(leader) else {
            return;
        };
        let membership = process.consensus.membership().clone();
        if self.has_bug(SeededBug::B18) && self.percent(60) {
            self.change_two_voters(leader, &membership);
            return;
        }
        let changes = if self.percent(8) {
            vec![Change::Remove(leader), Change::Remove(self.rng.u64(1..9))]
        } else {
            self.wise_changes(leader, &membership)
        };
        if changes.is_empty() {
            return;
        }
        let mut change = MembershipChange {
            changes,
            context: Bytes::new(),
        };
        if self.percent(8) {
            change.context = Bytes::from_static(REFUSED);
        }
        if !self.leaves_a_majority(&membership, &change) {
            return;
        }
        self.propose_change(leader, &change);
        // Changes go wrong at cuts.
        if self.percent(20) {
            let ids = self.ids();
            self.partition(&ids);
        }
    }

    /// Nodes that wait for the operator get an empty folder, and can be admitted anew.
    fn wipe_stopped(&mut self) {
        for id in self.ids() {
            if self.node(id).stopped.is_some() && self.percent(50) {
                self.note(|_| format!("{id}: the operator empties its folder"));
                self.wipe(id);
                self.start_later(id, 100 * MS_US);
            }
        }
    }

    /// A change that an operator could want.
    fn wise_changes(&mut self, leader: u64, membership: &Membership) -> Vec<Change> {
        let progress = match self.process(leader) {
            Some(process) => process.consensus.progress(),
            None => return Vec::new(),
        };
        let last = self.process(leader).map_or(0, |p| p.consensus.last_index());
        let ids = self.ids();
        // A member that has lost its folder.
        let lost: Vec<u64> = ids
            .iter()
            .copied()
            .filter(|id| membership.contains(*id) && !self.is_intact(membership, *id))
            .collect();
        if let Some(id) = self.rng.choice(lost)
            && self.percent(70)
        {
            return vec![Change::Remove(id)];
        }
        let mut wanted = Vec::new();
        let outside: Vec<u64> = ids
            .iter()
            .copied()
            .filter(|id| {
                !membership.contains(*id) && self.nodes.get(id).is_some_and(|n| n.stopped.is_none())
            })
            .collect();
        if let Some(member) = self.rng.choice(&outside).and_then(|id| self.member(*id)) {
            wanted.push(vec![Change::AddLearner(member)]);
        }
        let ready: Vec<u64> = progress
            .iter()
            .filter(|peer| {
                membership.learners.contains(&peer.id)
                    && peer.active
                    && peer.matched + CAUGHT_UP_ENTRIES >= last
                    && self.is_intact(membership, peer.id)
            })
            .map(|peer| peer.id)
            .collect();
        if self.swarm.changes_several && self.percent(70) {
            return self.large_change(membership, &outside, &ready);
        }
        let voter = self.rng.choice(membership.voters.clone());
        if let Some(member) = self.rng.choice(&ready).and_then(|id| self.member(*id)) {
            if membership.voters.len() < MOST_VOTERS {
                wanted.push(vec![Change::AddVoter(member.clone())]);
            }
            if let Some(voter) = voter {
                wanted.push(vec![Change::AddVoter(member), Change::Remove(voter)]);
            }
        }
        if let Some(voter) = voter
            && membership.voters.len() > 1
        {
            wanted.push(vec![Change::Remove(voter)]);
            if let Some(member) = self.member(voter) {
                wanted.push(vec![Change::AddLearner(member)]);
            }
        }
        self.rng.choice(wanted).unwrap_or_default()
    }

    /// Any of those that may, all at once: learners are added, vote, voters leave, stop voting and
    /// move.
    fn large_change(
        &mut self,
        membership: &Membership,
        outside: &[u64],
        ready: &[u64],
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut voters = membership.voters.len();
        for id in ready {
            if voters < MOST_VOTERS_AT_ONCE
                && self.percent(80)
                && let Some(member) = self.member(*id)
            {
                voters += 1;
                changes.push(Change::AddVoter(member));
            }
        }
        let leave_percent = *self.rng.choice(&[0, 30, 70]).unwrap_or(&0);
        for id in &membership.voters {
            let Some(mut member) = self.member(*id) else {
                continue;
            };
            if voters > 1 && self.percent(leave_percent) {
                voters -= 1;
                changes.push(if self.percent(30) {
                    Change::AddLearner(member)
                } else {
                    Change::Remove(*id)
                });
            } else if self.percent(10) {
                // Its address is what it was, or this one.
                member.address.push_str(".elsewhere");
                let known = membership.members.iter().find(|known| known.id == *id);
                if known.is_some_and(|known| known.address != member.address) {
                    changes.push(Change::AddVoter(member));
                }
            }
        }
        for id in outside {
            if self.percent(50)
                && let Some(member) = self.member(*id)
            {
                changes.push(Change::AddLearner(member));
            }
        }
        changes
    }

    /// Whether intact nodes can decide after a change, and half-way through it.
    fn leaves_a_majority(&self, membership: &Membership, change: &MembershipChange) -> bool {
        let joint = members::after(membership, change);
        let left = members::after(&joint, &MembershipChange::leave_joint());
        [joint, left]
            .iter()
            .all(|after| members::is_quorum(after, |id| self.is_intact(after, id)))
    }

    /// B18: two voters at once, as a command that changes the members when it is applied.
    fn change_two_voters(&mut self, leader: u64, membership: &Membership) {
        let mut voters = membership.voters.clone();
        if voters.len() >= 4 {
            for _ in 0..2 {
                let others: Vec<u64> = voters.iter().copied().filter(|id| *id != leader).collect();
                if let Some(gone) = self.rng.choice(others) {
                    voters.retain(|id| *id != gone);
                }
            }
        } else {
            voters.extend(membership.learners.iter().copied().take(2));
            if voters.len() < membership.voters.len() + 2 {
                let changes = self.wise_changes(leader, membership);
                self.propose_change(
                    leader,
                    &MembershipChange {
                        changes,
                        context: Bytes::new(),
                    },
                );
                return;
            }
        }
        if membership.is_joint() {
            return;
        }
        let payload = simple_change_to(&members::with_voters(membership, voters));
        if let Some(process) = self.process(leader) {
            let _ = process.consensus.propose(payload);
            self.settle(leader);
        }
        if self.percent(50) {
            let ids = self.ids();
            self.partition(&ids);
        }
    }
}

//! The end of a run: faults are over, a majority is healed, the rest may stay down. Within ten
//! seconds it must have come to rest: one leader, no change half done, everybody at one index, and
//! writes from everywhere.

use std::collections::BTreeSet;

use baton_consensus::Role;

use super::life::End;
use super::members;
use super::timeline::SECOND_US;
use super::world::World;

/// How long the healed nodes have.
const PATIENCE_US: u64 = 10 * SECOND_US;

/// How long a write may take then.
const WRITE_US: u64 = SECOND_US / 2;

impl World {
    pub(crate) fn end(&mut self) {
        let mut core = self.heal();
        self.note(|_| format!("faults are over, healed are {core:?}"));
        self.run_for(PATIENCE_US);
        if self.is_judged() && !self.can_decide(|id| core.contains(&id)) {
            // What was on its way has brought a membership that needs others of them.
            self.note(|_| "everybody is needed".to_owned());
            core = self.heal_the_rest();
            self.run_for(PATIENCE_US);
            // Most of its voters may have lost their folders, or what these had acknowledged: then
            // nobody can decide in it.
            if !self.can_decide(|_| true) {
                self.check_gaps_are_shown();
                self.is_beyond = true;
            }
        }
        if !self.is_judged() {
            return;
        }
        let Some(leader) = self.check_rest(&core) else {
            return;
        };
        let members: Vec<u64> = self.members_of(leader, &core);
        for id in &members {
            self.write_from(*id, leader);
            self.run_for(WRITE_US);
        }
        if self.is_judged() {
            self.check_writes(leader, &members);
        }
    }

    fn run_for(&mut self, length_us: u64) {
        let end_us = self.timeline.now_us() + length_us;
        self.run_until(end_us);
    }

    /// Ends all faults. Nodes that are not needed may stay down; which have to come to rest is
    /// returned.
    fn heal(&mut self) -> BTreeSet<u64> {
        self.is_calm = true;
        self.network.heal_all();
        self.release();
        let mut core: BTreeSet<u64> = self.ids().into_iter().collect();
        for id in self.ids() {
            if self.percent(30) {
                let without = |other: u64| other != id && core.contains(&other);
                if self.can_decide(without) {
                    core.remove(&id);
                }
            }
        }
        for id in self.ids() {
            if core.contains(&id) {
                self.mend(id);
            } else {
                self.stop(id, End::PowerLoss);
                self.node(id).stays_down = true;
            }
        }
        core
    }

    /// A node has no faults any more, and runs.
    pub(crate) fn mend(&mut self, id: u64) {
        let pause = self.node(id).pauses;
        self.resume(id, pause);
        let node = self.node(id);
        node.disk.set_capacity(None);
        node.disk.clear_fault();
        node.stalled_until_us = 0;
        node.disk_breaks = false;
        let life = node.life;
        let is_stalled = self.process(id).is_some_and(|p| !p.in_flight.is_empty());
        if is_stalled {
            // The sync that was slow is complete now; its own event then finds nothing to do.
            self.synced(id);
        }
        if self.alive(id, life).is_none() {
            self.start_later(id, 1);
        }
    }

    /// Those that stayed down come back, too.
    fn heal_the_rest(&mut self) -> BTreeSet<u64> {
        for id in self.ids() {
            if std::mem::take(&mut self.node(id).stays_down) {
                self.start_later(id, 1);
            }
        }
        self.ids().into_iter().collect()
    }

    fn members_of(&self, leader: u64, core: &BTreeSet<u64>) -> Vec<u64> {
        let Some(process) = self
            .nodes
            .get(&leader)
            .and_then(|node| node.process.as_ref())
        else {
            return Vec::new();
        };
        let membership = process.consensus.membership();
        let counts = |id: &u64| membership.contains(*id) && self.is_intact(membership, *id);
        core.iter().copied().filter(counts).collect()
    }

    /// Whether a leader has a node as a member, with the folder that it has.
    fn is_its_member(&self, leader: u64, id: u64) -> bool {
        let process = |id| self.nodes.get(&id)?.process.as_ref();
        let incarnation = self.nodes.get(&id).map(|node| node.incarnation);
        process(leader).is_some_and(|process| {
            let mut members = process.consensus.membership().members.iter();
            members.any(|it| it.id == id && Some(it.incarnation) == incarnation)
        })
    }

    fn check_rest(&mut self, core: &BTreeSet<u64>) -> Option<u64> {
        let status = |id: &u64| {
            let node = self.nodes.get(id)?;
            Some(node.process.as_ref()?.consensus.status())
        };
        let leaders: Vec<u64> = core
            .iter()
            .copied()
            .filter(|id| status(id).is_some_and(|status| status.role == Role::Leader))
            .collect();
        let [leader] = leaders[..] else {
            let all: Vec<_> = core.iter().map(|id| (id, status(id))).collect();
            let what = format!("after ten seconds the leaders are {leaders:?}: {all:?}");
            self.broken(what);
            return None;
        };
        let mut wrong = Vec::new();
        let index = |id: u64| {
            let process = self.nodes.get(&id)?.process.as_ref()?;
            Some((
                process.applied,
                process.consensus.membership().is_joint(),
                process.consensus.status().leader,
            ))
        };
        let wanted = index(leader);
        for id in core {
            let node = self.nodes.get(id);
            if node.is_some_and(|node| node.forgotten.is_some() && node.stopped.is_none())
                && self.is_its_member(leader, *id)
            {
                wrong.push(format!(
                    "node {id} has not received what its folder had lost"
                ));
            }
        }
        for id in self.members_of(leader, core) {
            let found = index(id);
            if found != wanted || found.is_none_or(|(_, joint, _)| joint) {
                wrong.push(format!(
                    "node {id} is at {found:?}, the leader {leader} at {wanted:?}"
                ));
            }
        }
        if wrong.is_empty() {
            Some(leader)
        } else {
            self.broken(format!("after ten seconds: {}", wrong.join("; ")));
            None
        }
    }

    /// A server passes a client's write on to the leader that it knows.
    fn write_from(&mut self, id: u64, leader: u64) {
        let known = self.process(id).and_then(|p| p.consensus.status().leader);
        let payload = self.payload();
        let outcome = match self.process(leader) {
            Some(process) if known == Some(leader) => process
                .consensus
                .propose(payload)
                .map_err(|error| error.to_string()),
            _ => Err(format!("it knows {known:?} as its leader")),
        };
        match outcome {
            Ok(_) => self.settle(leader),
            Err(error) => self.broken(format!("a write from node {id} fails: {error}")),
        }
    }

    fn check_writes(&mut self, leader: u64, members: &[u64]) {
        let index = |id: &u64| {
            let process = self.nodes.get(id)?.process.as_ref()?;
            Some((process.applied, process.consensus.last_index()))
        };
        let found: Vec<_> = members.iter().map(index).collect();
        let last = index(&leader);
        if last.is_none_or(|(applied, last)| applied != last) || found.iter().any(|at| *at != last)
        {
            self.broken(format!(
                "writes are not applied everywhere: {found:?}, the leader is at {last:?}"
            ));
        }
        let membership = self
            .process(leader)
            .map(|p| p.consensus.membership().clone());
        let decides =
            membership.is_some_and(|m| members::is_quorum(&m, |id| members.contains(&id)));
        if !decides {
            self.broken("the healed nodes are no majority: a defect of the simulator");
        }
    }
}

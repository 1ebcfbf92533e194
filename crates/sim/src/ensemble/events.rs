//! Which event lets whom do what.

use baton_consensus::{MembershipChange, Role};
use baton_proto::{Acl, Create, CreateOp, OpCode, Request};
use baton_tree::{BatchBuilder, Command, FormatLevel};
use bytes::Bytes;

use super::timeline::MS_US;
use super::world::{Event, TICK_US, World};

/// Ticks that are made up for after a pause.
const CAUGHT_UP: u32 = 2;

impl World {
    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Tick { node, life } => self.tick(node, life),
            Event::Deliver(envelope) => self.deliver(*envelope),
            Event::Synced { node, life } => {
                let again = Event::Synced { node, life };
                if self.is_up(node, life, again) {
                    self.synced(node);
                }
            }
            Event::Received { node, life } => {
                let again = Event::Received { node, life };
                if self.is_up(node, life, again) {
                    self.received(node);
                }
            }
            Event::SnapshotWritten { node, life } => {
                let again = Event::SnapshotWritten { node, life };
                if self.is_up(node, life, again) {
                    self.write_snapshot(node);
                }
            }
            Event::Dial { one, other } => self.dial(one, other),
            Event::Campaign { node, life } => self.campaign(node, life),
            Event::Prune { node, life } => self.prune(node, life),
            Event::Start { node } => self.start(node),
            Event::Resume { node, pause } => self.resume(node, pause),
            Event::GiveUp { cut } => {
                for (from, to) in self.network.ways_of(cut) {
                    self.reset(from, to);
                }
            }
            Event::Heal { cut } => {
                self.network.heal(cut);
                self.note(|_| format!("cut {cut} heals"));
                self.release();
            }
            Event::Room { node } => self.node(node).disk.set_capacity(None),
            Event::Propose => {
                self.propose();
                if !self.is_calm {
                    let mean_us = self.swarm.propose_us;
                    let delay_us = self.around(mean_us);
                    self.timeline.after(delay_us, Event::Propose);
                }
            }
            Event::Operate => {
                if let Some(mean_us) = self.swarm.operate_us
                    && !self.is_calm
                {
                    self.operate();
                    let delay_us = self.around(mean_us);
                    self.timeline.after(delay_us, Event::Operate);
                }
            }
            Event::Fault(kind) => {
                if !self.is_calm {
                    self.strike(kind);
                    let mean_us = self.mean_of(kind);
                    let delay_us = self.around(mean_us);
                    self.timeline.after(delay_us, Event::Fault(kind));
                }
            }
        }
    }

    /// Whether a process can act; what comes to a paused one comes again when it goes on.
    fn is_up(&mut self, id: u64, life: u64, again: Event) -> bool {
        if self.alive(id, life).is_none() {
            return false;
        }
        if self.node(id).is_paused {
            self.timeline.after(20 * MS_US, again);
            return false;
        }
        true
    }

    /// What was held by a cut goes on.
    pub(crate) fn release(&mut self) {
        for envelope in self.network.release() {
            let delay_us = self.rng.u64(1..300) * MS_US;
            self.timeline
                .after(delay_us, Event::Deliver(Box::new(envelope)));
        }
    }

    fn tick(&mut self, id: u64, life: u64) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.life == life) else {
            return;
        };
        let rate_ppm = node.rate_ppm;
        let is_paused = node.is_paused;
        let Some(process) = node.process.as_mut() else {
            return;
        };
        let length_us =
            TICK_US.saturating_add_signed(-rate_ppm * TICK_US.cast_signed() / 1_000_000);
        self.timeline
            .after(length_us, Event::Tick { node: id, life });
        if is_paused {
            process.missed_ticks += 1;
        } else {
            process.consensus.tick();
            self.announce_when_due(id);
            self.settle(id);
        }
    }

    /// The process goes on: messages first, then a few of the ticks that it has missed.
    pub(crate) fn resume(&mut self, id: u64, pause: u64) {
        let node = self.node(id);
        if !node.is_paused || node.pauses != pause {
            return;
        }
        node.is_paused = false;
        self.note(|_| format!("{id}: goes on"));
        let Some(process) = self.process(id) else {
            return;
        };
        if process.consensus.status().role == Role::Leader {
            self.mark(super::mark::Mark::LeaderPaused);
        }
        let Some(process) = self.process(id) else {
            return;
        };
        let missed = std::mem::take(&mut process.missed_ticks).min(CAUGHT_UP);
        for envelope in std::mem::take(&mut process.mailbox) {
            self.deliver(envelope);
        }
        for _ in 0..missed {
            if let Some(process) = self.process(id) {
                process.consensus.tick();
                self.settle(id);
            }
        }
        self.dial_all(id);
    }

    fn campaign(&mut self, id: u64, life: u64) {
        if self.node(id).is_paused {
            return;
        }
        let Some(process) = self.alive(id, life) else {
            return;
        };
        if process.consensus.status().leader.is_none() {
            // A sole voter may have to wait for its disk; its ticks ask again.
            let _ = process.consensus.campaign();
            self.settle(id);
        }
    }

    /// Connections to those that are no members end, so that they learn of it at their next hello.
    fn prune(&mut self, id: u64, life: u64) {
        if self.alive(id, life).is_none() {
            return;
        }
        for other in self.ids() {
            let is_member = |world: &mut World| {
                let process = world.process(id);
                process.is_some_and(|process| process.consensus.membership().contains(other))
            };
            if other != id && !is_member(self) {
                self.reset(id, other);
            }
        }
    }

    /// The leader takes a batch of writes, or begins a read.
    pub(crate) fn propose(&mut self) {
        let Some(id) = self.any_leader() else {
            return;
        };
        if self.percent(10) {
            self.begin_read(id);
        }
        let payload = self.payload();
        if let Some(process) = self.process(id) {
            // What is refused now is proposed again some other time.
            let _ = process.consensus.propose(payload);
            self.settle(id);
        }
    }

    /// A node that believes that it leads: an old leader gets proposals too.
    fn any_leader(&mut self) -> Option<u64> {
        let leads = |node: &&super::node::Node| {
            let status = node
                .process
                .as_ref()
                .map(|process| process.consensus.status());
            !node.is_paused && status.is_some_and(|status| status.role == Role::Leader)
        };
        let leaders: Vec<u64> = self
            .nodes
            .values()
            .filter(leads)
            .map(|node| node.id)
            .collect();
        self.rng.choice(leaders)
    }

    fn begin_read(&mut self, id: u64) {
        let least = self.truth.commit();
        if let Some(process) = self.process(id)
            && let Ok(read) = process.consensus.read_index()
        {
            process.reads.insert(read, least);
            self.settle(id);
        }
    }

    /// A batch of writes that no other batch equals.
    pub(crate) fn payload(&mut self) -> Bytes {
        self.proposals += 1;
        let number = self.proposals;
        let time_ms = i64::try_from(self.timeline.now_us() / 1_000).unwrap_or(0);
        let mut builder = BatchBuilder::new(FormatLevel::Initial, time_ms);
        let cxid = i32::try_from(number).unwrap_or(0);
        for at in 0..self.rng.u64(1..=2) {
            let text = format!("{number}.{at}");
            let (op, request) = if self.rng.bool() {
                let create = Create {
                    op: CreateOp::Create,
                    path: "/n-",
                    data: Some(text.as_bytes()),
                    acl: Some(vec![Acl::open_unsafe()]),
                    flags: 2,
                    ttl_ms: -1,
                };
                (OpCode::Create, Request::Create(create))
            } else {
                let set = Request::SetData {
                    path: "/",
                    data: Some(text.as_bytes()),
                    version: -1,
                };
                (OpCode::SetData, set)
            };
            let mut body = Vec::new();
            request.encode(&mut body);
            builder.push(cxid, Command::Write { op, body: &body });
        }
        builder.finish()
    }

    /// A leader is asked for a change of the members; what comes of it is the facade's matter.
    pub(crate) fn propose_change(&mut self, id: u64, change: &MembershipChange) {
        let Some(process) = self.process(id) else {
            return;
        };
        let outcome = process.consensus.propose_change(change);
        self.note(|_| {
            let ids: Vec<u64> = change
                .changes
                .iter()
                .map(baton_consensus::Change::id)
                .collect();
            format!("{id}: change of {ids:?}: {outcome:?}")
        });
        if outcome.is_err() {
            self.mark(super::mark::Mark::ChangeRefused);
        }
        self.settle(id);
    }
}

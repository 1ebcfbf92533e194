//! Messages and connections between nodes. A connection begins with a hello, by which each side
//! refuses whom it must not count on; what an earlier connection still delivers comes late, and is
//! dropped once a newer one is known.

use std::sync::Arc;

use baton_consensus::{MessageKind, PeerMessage, StepError};

use super::bug::SeededBug;
use super::folder::{tree_of, write_received};
use super::mark::Mark;
use super::network::{Content, Envelope, Hello};
use super::node::{Received, Stopped};
use super::timeline::MS_US;
use super::world::{Event, World};

/// What a member says to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Welcome,
    /// The other is no member in what is the newer membership here.
    NoMember,
    /// The other has the id of a member, and another folder.
    OtherFolder,
    /// The other's log ends before this entry, which it has acknowledged to this node.
    OlderCopy {
        acknowledged: u64,
    },
}

impl World {
    /// A message leaves its sender, if there is a connection.
    pub(crate) fn send(&mut self, message: PeerMessage) {
        let (from, to) = (message.from, message.to);
        let generation = self.network.generation(from, to);
        let is_snapshot = message.kind == MessageKind::Snapshot;
        let content = match generation {
            Some(_) if is_snapshot => self.content_of(&message),
            _ => None,
        };
        if let Some(process) = self.process(from)
            && is_snapshot
        {
            process.shipping.insert(to, generation.unwrap_or(0));
            if content.is_none() {
                self.report_snapshot(from, to, generation.unwrap_or(0), false);
                return;
            }
        }
        let Some(generation) = generation else {
            return;
        };
        let Some(hello) = self.network.connection(from, to).hellos.get(&from).copied() else {
            return;
        };
        let latency_us = if self.is_calm {
            (100, 1_000)
        } else {
            self.swarm.latency_us
        };
        let at_us = self.timeline.now_us() + self.between(latency_us);
        let at_us = self.network.arrival(&message, generation, at_us);
        let envelope = Envelope {
            from_life: self.node(from).life,
            to_life: self.node(to).life,
            message,
            content,
            generation,
            hello,
        };
        self.timeline.at(at_us, Event::Deliver(Box::new(envelope)));
    }

    /// The snapshot that a message stands for, as the sender's disk has it.
    fn content_of(&mut self, message: &PeerMessage) -> Option<Arc<Content>> {
        let point = message.snapshot.as_ref()?;
        let store = self.process(message.from)?.wal.snapshots();
        let wanted = format!("snap-{:016}-{:010}", point.index, point.term);
        let mut reader = store.reader(&wanted).ok()?;
        let mut chunks = Vec::new();
        while let Some(chunk) = reader.next_chunk().ok()? {
            chunks.push((chunk.kind, chunk.payload));
        }
        let meta = reader.meta().clone();
        Some(Arc::new(Content { meta, chunks }))
    }

    /// Ends the sending of a snapshot; once for each.
    fn report_snapshot(&mut self, from: u64, to: u64, generation: u64, arrived: bool) {
        let Some(process) = self.process(from) else {
            return;
        };
        if process.shipping.get(&to) == Some(&generation) {
            process.shipping.remove(&to);
            process.consensus.report_snapshot(to, arrived);
            if !arrived {
                self.mark(Mark::SnapshotLost);
            }
        }
    }

    /// A message is lost on its way; only of a snapshot is the sender notified.
    pub(crate) fn lost(&mut self, envelope: &Envelope) {
        let (from, to) = envelope.way();
        if envelope.content.is_some() && self.alive(from, envelope.from_life).is_some() {
            self.report_snapshot(from, to, envelope.generation, false);
            self.settle(from);
        }
    }

    pub(crate) fn deliver(&mut self, envelope: Envelope) {
        let (from, to) = envelope.way();
        let current = self.network.generation(from, to) == Some(envelope.generation);
        if self.network.is_silent(envelope.generation) {
            self.lost(&envelope);
            return;
        }
        if self.network.is_cut(from, to) {
            // Held even without its connection: bytes of an earlier one come late.
            self.network.held.push(envelope);
            return;
        }
        let is_paused = self.node(to).is_paused;
        let Some(process) = self.alive(to, envelope.to_life) else {
            self.lost(&envelope);
            return;
        };
        if is_paused {
            process.mailbox.push(envelope);
            return;
        }
        let heard = process.heard.entry(from).or_insert(0);
        if *heard > envelope.generation {
            self.mark(Mark::LateBytesDropped);
            self.lost(&envelope);
            return;
        }
        *heard = envelope.generation;
        if !current {
            self.mark(Mark::LateBytes);
        }
        if self.is_of_another_folder(to, &envelope.hello) {
            self.lost(&envelope);
            if current {
                // As the transport does: by its next hello the sender may be admitted.
                self.reset(from, to);
            }
            return;
        }
        if envelope.content.is_some() {
            self.receive(to, envelope);
        } else {
            self.step(to, envelope.message);
        }
    }

    /// Whether a node knows by now that the sender's folder is not the member's.
    fn is_of_another_folder(&mut self, id: u64, hello: &Hello) -> bool {
        !self.has_bug(SeededBug::B19) && self.membership_answer(id, hello) == Answer::OtherFolder
    }

    pub(crate) fn step(&mut self, id: u64, message: PeerMessage) {
        let Some(process) = self.process(id) else {
            return;
        };
        let outcome = process.consensus.step(message);
        let stale_rejects = process.consensus.stale_rejects();
        if stale_rejects > 0 {
            self.mark(Mark::StaleReject);
        }
        match outcome {
            Ok(()) | Err(StepError::UnknownSender { .. } | StepError::LeaderLacks { .. }) => {
                self.settle(id);
            }
            Err(error @ StepError::LostLog { .. }) => {
                if self.bug.is_none() {
                    self.broken(format!(
                        "node {id} has lost nothing, and is refused: {error}"
                    ));
                }
                self.give_up(id, Stopped::LostLog);
            }
            Err(error) => self.broken(format!("node {id} refuses a message: {error}")),
        }
    }

    /// A snapshot's bytes are coming in; one at a time.
    fn receive(&mut self, id: u64, envelope: Envelope) {
        let delay_us = self.rng.u64(2..80) * MS_US;
        let life = self.node(id).life;
        let Some(process) = self.process(id) else {
            return;
        };
        if process.receiving.is_some() || process.is_installing() {
            self.lost(&envelope);
            return;
        }
        process.receiving = Some(envelope);
        self.timeline
            .after(delay_us, Event::Received { node: id, life });
    }

    /// The snapshot is there: durable and verified first, then consensus is asked whether it takes
    /// it.
    pub(crate) fn received(&mut self, id: u64) {
        let Some(process) = self.process(id) else {
            return;
        };
        let Some(envelope) = process.receiving.take() else {
            return;
        };
        let store = process.wal.snapshots();
        let info = match write_received(&store, &envelope) {
            Ok(Some(info)) => info,
            // Whatever becomes of a snapshot, the log is usable.
            Ok(None) | Err(_) => {
                self.lost(&envelope);
                return;
            }
        };
        let tree = match tree_of(&store, &info.name) {
            Ok(tree) => tree,
            Err(error) => {
                if !self.node(id).disk_breaks {
                    self.broken(format!(
                        "node {id} cannot read a snapshot that it received: {error}"
                    ));
                }
                self.lost(&envelope);
                return;
            }
        };
        let received = Box::new(Received { info, tree });
        if let Some(process) = self.process(id) {
            process.received = Some(received);
        }
        let (from, from_life) = (envelope.message.from, envelope.from_life);
        let generation = envelope.generation;
        self.step(id, envelope.message);
        // What consensus has not taken is not needed.
        if let Some(process) = self.process(id)
            && let Some(unneeded) = process.received.take()
        {
            let _ = process.wal.snapshots().discard_received(&unneeded.info);
        }
        if self.alive(from, from_life).is_some() {
            self.report_snapshot(from, id, generation, true);
            self.settle(from);
        }
    }

    /// Plans the next attempt to connect for each connection of a node.
    pub(crate) fn dial_all(&mut self, id: u64) {
        for other in self.ids() {
            self.dial_later(id, other, (1, 20));
        }
    }

    fn dial_later(&mut self, one: u64, other: u64, pause_ms: (u64, u64)) {
        let delay_us = self.between(pause_ms) * MS_US;
        if one != other && !self.network.connection(one, other).is_dialing {
            self.network.connection(one, other).is_dialing = true;
            self.timeline.after(delay_us, Event::Dial { one, other });
        }
    }

    /// Two nodes try to connect, and each answers the other's hello.
    pub(crate) fn dial(&mut self, one: u64, other: u64) {
        self.network.connection(one, other).is_dialing = false;
        if self.network.generation(one, other).is_some() {
            return;
        }
        let is_cut = self.network.is_cut(one, other) || self.network.is_cut(other, one);
        let (Some(hello), Some(their)) = (self.hello(one), self.hello(other)) else {
            // A start dials again.
            return;
        };
        if is_cut {
            self.dial_later(one, other, (50, 300));
            return;
        }
        let answers = [
            (one, self.answer(other, &hello)),
            (other, self.answer(one, &their)),
        ];
        for ((id, answer), hello) in answers.into_iter().zip([&hello, &their]) {
            self.act_on(id, answer);
            if matches!(answer, Answer::OlderCopy { .. }) {
                let by = if id == one { other } else { one };
                self.hear_hello(by, hello);
            }
        }
        let welcome = |answer| {
            answer == Answer::Welcome
                || (answer == Answer::OtherFolder && self.has_bug(SeededBug::B19))
        };
        if answers.into_iter().all(|(_, answer)| welcome(answer)) {
            self.note(|_| format!("{one} and {other} connect"));
            self.network.connect(hello, their);
            self.hear_hello(other, &hello);
            self.hear_hello(one, &their);
        } else {
            self.dial_later(one, other, (100, 500));
        }
    }

    fn hello(&self, id: u64) -> Option<Hello> {
        let node = self.nodes.get(&id).filter(|node| !node.is_paused)?;
        let process = node.process.as_ref()?;
        Some(Hello {
            id,
            incarnation: node.incarnation,
            run: node.life,
            applied: process.applied,
            is_member: process.consensus.membership().contains(id),
            term: node.image.term,
            last: node.image.last(),
            commit: process.consensus.commit_position(),
            lost: process.consensus.lost_acknowledgement().unwrap_or(0),
        })
    }

    /// What a member says to a hello.
    fn answer(&self, id: u64, hello: &Hello) -> Answer {
        match self.membership_answer(id, hello) {
            Answer::Welcome => match self.unmet_acknowledgement(id, hello) {
                Some(acknowledged) => Answer::OlderCopy { acknowledged },
                None => Answer::Welcome,
            },
            answer => answer,
        }
    }

    /// Whoever has applied as much or more knows as new a membership or a newer one, and judges.
    fn membership_answer(&self, id: u64, hello: &Hello) -> Answer {
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else {
            return Answer::Welcome;
        };
        let membership = process.consensus.membership();
        if process.applied < hello.applied || membership.voters.is_empty() {
            return Answer::Welcome;
        }
        if !membership.contains(hello.id) {
            return Answer::NoMember;
        }
        let members = &membership.members;
        let known = members.iter().find(|member| member.id == hello.id);
        match known {
            Some(member) if member.incarnation != hello.incarnation => Answer::OtherFolder,
            _ => Answer::Welcome,
        }
    }

    fn act_on(&mut self, id: u64, answer: Answer) {
        let is_member = self.hello(id).is_some_and(|hello| hello.is_member);
        match answer {
            Answer::NoMember if is_member => {
                self.mark(Mark::RemovedInformed);
                // Members that forget in a crash that the change is committed need it again.
                if self.can_decide(|other| other != id) {
                    self.give_up(id, Stopped::Removed);
                }
            }
            Answer::Welcome | Answer::NoMember => {}
            Answer::OtherFolder => self.mark(Mark::EmptyFolderRefused),
            Answer::OlderCopy { acknowledged } => self.refused_as_older_copy(id, acknowledged),
        }
    }

    /// The connection of two nodes ends. What was on its way comes late, or never.
    pub(crate) fn reset(&mut self, one: u64, other: u64) {
        let Some(generation) = self.network.disconnect(one, other) else {
            return;
        };
        self.note(|_| format!("{one} and {other} disconnect"));
        for (from, to) in [(one, other), (other, one)] {
            self.report_snapshot(from, to, generation, false);
        }
        let late_percent = self.swarm.late_percent;
        if !self.percent(late_percent) {
            self.network.drop_generation(generation);
        }
        self.dial_later(one, other, (1, 100));
        self.settle(one);
        self.settle(other);
    }
}

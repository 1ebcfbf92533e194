//! Figure 8 of the Raft paper, on purpose (R03): an entry of an older term comes to a majority
//! while its leader has committed nothing of its own term, and a node that lacks the entry leads
//! next. Faults that come by chance do not lead there: each step needs the one before.
//!
//! Three nodes: the *first* leads, is cut off, and takes an entry. The *second* leads, and is cut
//! off before anybody has an entry of its term. The first leads again, and the third node stores
//! the old entry. Then the first is cut off before the third has an entry of the new term, and the
//! second leads again: its last entry is of a newer term than the third node's.

use std::collections::BTreeSet;

use baton_consensus::Role;
use baton_proto::{OpCode, Request};
use baton_tree::{BatchBuilder, Command, FormatLevel};
use bytes::Bytes;

use super::mark::Mark;
use super::scene::{Scene, Step};
use super::timeline::{MS_US, SECOND_US};
use super::world::World;

/// What a step may take. Elections take a second where candidates meet nodes that trust a leader.
const STEP_LIMIT_US: u64 = 4 * SECOND_US;
/// The pause between two scenes.
const PAUSE_US: u64 = 300 * MS_US;
/// Data of an entry that travels in a message of its own: more than one message may hold.
const LARGE_BYTES: usize = 900;

impl World {
    /// Takes the next step, if its time has come.
    pub(crate) fn play_scene(&mut self) {
        let Some(mut scene) = self.scene.take() else {
            return;
        };
        let is_over = self.timeline.now_us() >= scene.limit_us;
        match scene.step {
            _ if self.is_calm || self.violation.is_some() => return,
            Step::Rest if !is_over => {}
            Step::Rest => self.begin_scene(&mut scene),
            _ if is_over => self.end_scene(&mut scene),
            Step::FirstAlone => self.await_second(&mut scene),
            Step::SecondAlone => self.await_majority(&mut scene),
            Step::FirstAloneAgain => {
                if self.leads_after(scene.second, scene.entry.term) {
                    self.end_scene(&mut scene);
                }
            }
        }
        self.scene = Some(scene);
    }

    fn begin_scene(&mut self, scene: &mut Scene) {
        let Some(first) = self.leader().filter(|_| self.has_one_log()) else {
            return;
        };
        self.separate(scene, &[first]);
        let payload = self.large_payload();
        let proposed = self
            .process(first)
            .and_then(|process| process.consensus.propose(payload).ok());
        let Some(entry) = proposed else {
            return self.end_scene(scene);
        };
        scene.first = first;
        scene.entry = entry;
        self.enter(scene, Step::FirstAlone);
        self.settle(first);
    }

    /// Another node leads: it is alone before anything of its term has arrived anywhere.
    fn await_second(&mut self, scene: &mut Scene) {
        let mut others = self.ids().into_iter().filter(|id| *id != scene.first);
        let leads = |id: &u64| self.leads_after(*id, scene.entry.term);
        let Some(second) = others.find(leads) else {
            return;
        };
        if !self.is_durable_at(scene.first, scene.entry.index, scene.entry.term) {
            return self.end_scene(scene);
        }
        scene.second = second;
        self.separate(scene, &[second]);
        self.enter(scene, Step::SecondAlone);
    }

    /// A majority has the entry, and its leader knows that.
    fn await_majority(&mut self, scene: &mut Scene) {
        let (first, entry) = (scene.first, scene.entry);
        if !self.leads_after(first, entry.term) {
            return;
        }
        let Some(process) = self.process(first) else {
            return self.end_scene(scene);
        };
        let commit = process.consensus.commit_index();
        let progress = process.consensus.progress();
        let has = |id: u64| {
            progress
                .iter()
                .any(|it| it.id == id && it.matched >= entry.index)
        };
        let mut others = progress.iter().map(|peer| peer.id);
        let has_majority = others.any(|id| id != first && id != scene.second && has(id));
        if commit >= entry.index {
            return self.end_scene(scene);
        }
        if has_majority {
            self.mark(Mark::FigureEight);
            self.separate(scene, &[first]);
            self.enter(scene, Step::FirstAloneAgain);
        }
    }

    /// Everything is whole again.
    fn end_scene(&mut self, scene: &mut Scene) {
        if let Some(cut) = scene.cut.take() {
            self.network.heal(cut);
            self.release();
        }
        scene.step = Step::Rest;
        scene.limit_us = self.timeline.now_us() + PAUSE_US;
    }

    fn enter(&mut self, scene: &mut Scene, step: Step) {
        self.note(|_| format!("scene: {step:?}"));
        scene.step = step;
        scene.limit_us = self.timeline.now_us() + STEP_LIMIT_US;
    }

    /// From now on these nodes and the others do not hear each other, and nothing of what is on its
    /// way arrives.
    fn separate(&mut self, scene: &mut Scene, alone: &[u64]) {
        let before = scene.cut.take();
        let ids = self.ids();
        let ways = ids
            .iter()
            .flat_map(|from| ids.iter().map(|to| (*from, *to)));
        let ways = ways.filter(|(from, to)| alone.contains(from) != alone.contains(to));
        let ways: BTreeSet<(u64, u64)> = ways.collect();
        scene.cut = Some(self.network.cut(ways.clone()));
        for (from, to) in ways.into_iter().filter(|(from, to)| from < to) {
            self.reset(from, to);
        }
        if let Some(before) = before {
            self.network.heal(before);
            self.release();
        }
    }

    fn leads_after(&self, id: u64, term: u64) -> bool {
        let process = self.nodes.get(&id).and_then(|node| node.process.as_ref());
        process.is_some_and(|process| {
            let status = process.consensus.status();
            status.role == Role::Leader && status.term > term
        })
    }

    /// Whether every node has the same log, all of it durable and committed.
    fn has_one_log(&self) -> bool {
        let mut ends = self.nodes.values().map(|node| {
            let process = node.process.as_ref()?;
            let last = process.consensus.last_index();
            let is_whole = process.consensus.commit_index() == last
                && process.applied == last
                && node.image.last() == last;
            is_whole.then_some(last)
        });
        let first = ends.next().flatten();
        first.is_some() && ends.all(|end| end == first)
    }

    /// A batch that fills a message.
    fn large_payload(&mut self) -> Bytes {
        self.proposals += 1;
        let number = self.proposals;
        let time_ms = i64::try_from(self.timeline.now_us() / 1_000).unwrap_or(0);
        let text = format!("{number}.{}", "x".repeat(LARGE_BYTES));
        let request = Request::SetData {
            path: "/",
            data: Some(text.as_bytes()),
            version: -1,
        };
        let mut body = Vec::new();
        request.encode(&mut body);
        let mut builder = BatchBuilder::new(FormatLevel::Initial, time_ms);
        let write = Command::Write {
            op: OpCode::SetData,
            body: &body,
        };
        builder.push(i32::try_from(number).unwrap_or(0), write);
        builder.finish()
    }
}

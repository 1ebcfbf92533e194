//! What goes wrong, when a fault is due.

use std::collections::BTreeSet;

use baton_wal::testing::{Fault, Loss};

use super::bug::SeededBug;
use super::folder::born;
use super::life::End;
use super::mark::Mark;
use super::node::FolderCopy;
use super::swarm::{FaultKind, one_of};
use super::timeline::{MS_US, SECOND_US};
use super::world::{Event, World};

impl World {
    /// The mean time between two faults of this kind.
    pub(crate) fn mean_of(&self, kind: FaultKind) -> u64 {
        let found = self.swarm.faults.iter().find(|(known, _)| *known == kind);
        found.map_or(SECOND_US, |(_, mean_us)| *mean_us)
    }

    pub(crate) fn strike(&mut self, kind: FaultKind) {
        let ids = self.ids();
        let (Some(id), Some(other)) = (self.rng.choice(ids.clone()), self.rng.choice(ids.clone()))
        else {
            return;
        };
        match kind {
            FaultKind::CutBoth if id != other => self.cut([(id, other), (other, id)].into()),
            FaultKind::CutOneWay if id != other => self.cut([(id, other)].into()),
            FaultKind::CutBoth | FaultKind::CutOneWay => {}
            FaultKind::Isolate => {
                let both = |to: &u64| [(id, *to), (*to, id)];
                self.cut(ids.iter().filter(|to| **to != id).flat_map(both).collect());
            }
            FaultKind::Partition => self.partition(&ids),
            FaultKind::Reset => self.reset(id, other),
            FaultKind::Pause => self.pause(id),
            FaultKind::Crash => self.crash(id),
            FaultKind::CrashAll => {
                for id in ids {
                    self.crash(id);
                }
            }
            FaultKind::Stall => {
                let length_us = if self.percent(80) {
                    self.rng.u64(100..2_000) * MS_US
                } else {
                    self.rng.u64(2_000..20_000) * MS_US
                };
                let until_us = self.timeline.now_us() + length_us;
                self.node(id).stalled_until_us = until_us;
                self.note(|_| format!("{id}: syncs stall for {} ms", length_us / MS_US));
            }
            FaultKind::Error => {
                let at = self.rng.u64(..10);
                let fault = one_of(
                    &mut self.rng,
                    (Fault::Error, Fault::PartialWrite, Fault::SyncLost),
                );
                let node = self.node(id);
                if node.process.is_some() {
                    node.disk_breaks = true;
                    node.disk.fail_at(node.disk.operations() + at, fault);
                }
            }
            FaultKind::Full => {
                let spare = self.rng.u64(..3_000);
                let length_us = self.rng.u64(200..2_000) * MS_US;
                let node = self.node(id);
                node.disk.set_capacity(Some(node.disk.used_bytes() + spare));
                self.timeline.after(length_us, Event::Room { node: id });
            }
            FaultKind::LostFolder => self.lose_folder(id),
            FaultKind::Copy => self.copy(id),
            FaultKind::OldCopy => self.put_copies_back(),
            FaultKind::HandOver => self.hand_over(other),
        }
    }

    fn cut(&mut self, ways: BTreeSet<(u64, u64)>) {
        let length_us = self.rng.u64(50..4_000) * MS_US;
        let patience_us = self.rng.u64(300..3_000) * MS_US;
        self.note(|_| format!("cut of {ways:?} for {} ms", length_us / MS_US));
        let cut = self.network.cut(ways);
        self.timeline.after(length_us, Event::Heal { cut });
        if patience_us < length_us {
            self.timeline.after(patience_us, Event::GiveUp { cut });
        }
    }

    pub(crate) fn partition(&mut self, ids: &[u64]) {
        let side: Vec<bool> = ids.iter().map(|_| self.rng.bool()).collect();
        let mut ways = BTreeSet::new();
        for (from, one) in ids.iter().zip(&side) {
            for (to, other) in ids.iter().zip(&side) {
                if one != other {
                    ways.insert((*from, *to));
                }
            }
        }
        self.cut(ways);
    }

    fn pause(&mut self, id: u64) {
        let length_us = self.rng.u64(20..4_000) * MS_US;
        let node = self.node(id);
        if node.is_paused || node.process.is_none() {
            return;
        }
        node.is_paused = true;
        node.pauses += 1;
        let pause = node.pauses;
        self.timeline
            .after(length_us, Event::Resume { node: id, pause });
        self.note(|_| format!("{id}: stands still for {} ms", length_us / MS_US));
    }

    fn crash(&mut self, id: u64) {
        let end = if self.percent(25) {
            End::Killed
        } else {
            End::PowerLoss
        };
        if self.node(id).process.is_some() {
            self.stop(id, end);
            self.start_later(id, 600 * MS_US);
        }
    }

    /// A folder is lost, if the others can go on without it.
    fn lose_folder(&mut self, id: u64) {
        if !self.can_decide(|other| other != id) {
            return;
        }
        let first = self.swarm.voters;
        let forgets = self.has_bug(SeededBug::B19) && id <= first;
        self.note(|_| format!("{id}: its folder is lost"));
        self.wipe(id);
        if forgets {
            let membership = self.first_membership();
            let node = self.node(id);
            if let Ok(image) = born(&node.disk, &membership) {
                node.image = image;
            }
        }
        self.start_later(id, 300 * MS_US);
    }

    /// Copies the folder as the disk has it now.
    fn copy(&mut self, id: u64) {
        let node = self.node(id);
        // What a stopped process left half-written is known only to its next start.
        if node.process.is_some() {
            node.copy = Some(FolderCopy {
                disk: node.disk.crash(Loss::Everything),
                image: node.image.clone(),
                incarnation: node.incarnation,
            });
        }
    }

    /// Puts copies in the place of the folders: of one node, if the others can go on without it, of
    /// two, or of all.
    fn put_copies_back(&mut self) {
        let mut ids = self.ids();
        ids.retain(|id| {
            let node = self.node(*id);
            let copy = node.copy.as_ref();
            node.stopped.is_none() && copy.is_some_and(|it| it.incarnation == node.incarnation)
        });
        self.rng.shuffle(&mut ids);
        ids.truncate(one_of(&mut self.rng, (1, 2, usize::MAX)));
        let [id] = ids[..] else {
            if !ids.is_empty() {
                self.mark(Mark::SeveralOldCopies);
            }
            // A machine's snapshot takes all of them down before any starts again.
            for id in ids {
                self.put_copy_back(id);
            }
            return;
        };
        if self.can_decide(|other| other != id) {
            self.put_copy_back(id);
        }
    }

    fn put_copy_back(&mut self, id: u64) {
        let Some(copy) = self.node(id).copy.take() else {
            return;
        };
        self.stop(id, End::PowerLoss);
        let node = self.node(id);
        // A write that was cut off may have reached the disk that is gone.
        let is_same = node.candidates.is_empty() && copy.image == node.image;
        let former = std::mem::replace(&mut node.image, copy.image);
        node.was_rolled_back = true;
        node.candidates.clear();
        node.disk = copy.disk;
        node.lost.push(former.clone());
        if is_same {
            self.mark(Mark::OldCopyHarmless);
        } else {
            let (term, last) = former.position();
            if !node.image.has(last, term) || node.image.last() < last {
                node.forgotten = node.forgotten.max(Some(last));
            }
            node.forgotten_term = node.forgotten_term.max(former.term);
            node.acknowledged.clear();
            node.promised = (0, 0);
        }
        self.note(|world| {
            let forgotten = world.nodes.get(&id).and_then(|node| node.forgotten);
            format!("{id}: its folder is an older copy, which lacks entries up to {forgotten:?}")
        });
        self.start_later(id, 300 * MS_US);
    }

    fn hand_over(&mut self, to: u64) {
        let Some(id) = self.leader() else {
            return;
        };
        if self.node(id).is_paused {
            return;
        }
        self.note(|_| format!("{id}: hands over to {to}"));
        self.handing_to = Some(to);
        if let Some(process) = self.process(id) {
            process.consensus.transfer_leader(to);
            self.settle(id);
        }
    }
}

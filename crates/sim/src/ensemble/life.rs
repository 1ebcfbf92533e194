//! A node starts, stops, crashes: what its disk gives back is held against what was synced, and
//! against what the node has promised.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use baton_consensus::{Consensus, Entry, HardState, Membership, Recovered, SnapshotPoint};
use baton_tree::Tree;
use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{Storage, Wal, WalError};

use super::bug::SeededBug;
use super::folder::{tree_of, wal_options, write_received};
use super::image::{LogImage, Written, content_of};
use super::mark::Mark;
use super::node::{Node, Process, Stopped};
use super::swarm::one_of;
use super::timeline::MS_US;
use super::world::{Event, TICK_US, World};

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The machine loses power.
    PowerLoss,
    /// The process is killed; the machine runs on.
    Killed,
}

/// Why a start came to nothing.
enum NoStart {
    /// The disk failed, as it was made to; another attempt may do.
    Disk(WalError),
    /// Something that must not be.
    Broken(String),
}

impl From<WalError> for NoStart {
    fn from(error: WalError) -> NoStart {
        match error {
            WalError::Io { .. } | WalError::Poisoned { .. } | WalError::NoSpace { .. } => {
                NoStart::Disk(error)
            }
            error => NoStart::Broken(format!("a node refuses its own folder: {error}")),
        }
    }
}

impl World {
    /// A node's process starts from its folder, unless it waits for the operator.
    pub(crate) fn start(&mut self, id: u64) {
        let may_crash = !self.is_calm && self.percent(10);
        let at = self.rng.u64(..40);
        let node = self.node(id);
        if node.process.is_some() || node.stopped.is_some() || node.stays_down {
            return;
        }
        if may_crash {
            node.disk.fail_at(node.disk.operations() + at, Fault::Crash);
        }
        let broke_before = node.disk_breaks;
        let breaks = may_crash || broke_before;
        node.disk_breaks = breaks;
        let started = self.open(id);
        if may_crash {
            let node = self.node(id);
            node.disk.clear_fault();
            node.disk_breaks = broke_before;
        }
        match started {
            Ok(process) => {
                let node = self.node(id);
                node.life += 1;
                node.process = Some(Box::new(process));
                let life = node.life;
                self.note(|world| {
                    let process = world.nodes.get(&id).and_then(|node| node.process.as_ref());
                    format!(
                        "{id}: starts, {:?}",
                        process.map(|p| (p.log.position(), p.applied))
                    )
                });
                let phase = self.rng.u64(..TICK_US);
                self.timeline.after(phase, Event::Tick { node: id, life });
                self.dial_all(id);
                self.settle(id);
            }
            Err(NoStart::Disk(WalError::NoSpace { .. })) if !may_crash => {
                self.start_later(id, 200 * MS_US)
            }
            Err(NoStart::Disk(_)) if breaks => {
                if may_crash {
                    self.mark(Mark::CrashInStart);
                }
                self.note(|_| format!("{id}: its disk ends the start"));
                self.lose_power(id);
                self.start_later(id, 200 * MS_US);
            }
            Err(NoStart::Disk(error)) => self.broken(format!("node {id} does not start: {error}")),
            Err(NoStart::Broken(what)) => self.broken(what),
        }
    }

    pub(crate) fn start_later(&mut self, id: u64, mean_us: u64) {
        let delay_us = if self.is_calm {
            1
        } else {
            self.around(mean_us)
        };
        self.timeline.after(delay_us, Event::Start { node: id });
    }

    fn open(&mut self, id: u64) -> Result<Process, NoStart> {
        let seed = self.seed;
        let incarnation = self.node(id).incarnation;
        let config = self.swarm.config(id, incarnation, seed);
        let skips_truncation = self.has_bug(SeededBug::B20);
        let disk = self.node(id).disk.clone();
        let had_received = disk
            .list()
            .is_ok_and(|names| names.iter().any(|name| name.starts_with("recv-")));
        let (wal, found) = Wal::open(Arc::new(disk), wal_options())?;
        if had_received
            && found
                .snapshot
                .as_ref()
                .is_some_and(|info| info.meta.index > self.node(id).image.base)
        {
            self.mark(Mark::InstallFinishedAtStart);
        }
        let node = self.node(id);
        let mut entries = Vec::new();
        for entry in found.entries {
            let entry = Entry::from_stored(entry.index, entry.term, entry.kind, entry.payload);
            entries.push(entry.map_err(|error| NoStart::Broken(error.to_string()))?);
        }
        let snapshot_at = found.snapshot.as_ref();
        let snapshot_at = snapshot_at.map_or((0, 0), |info| (info.meta.index, info.meta.term));
        let base = snapshot_at.0;
        let state = found.hard_state;
        let promised = (state.term, state.vote);
        let fits = |image: &&LogImage| image.is_found(snapshot_at, &entries, promised);
        let candidates = std::iter::once(&node.image).chain(&node.candidates);
        let Some(image) = candidates.into_iter().find(fits).cloned() else {
            return Err(NoStart::Broken(format!(
                "node {id} finds another log than it has synced: it ends at {} of term {}, synced was {:?} of term {}",
                base + entries.len() as u64,
                state.term,
                node.image.position(),
                node.image.term,
            )));
        };
        node.image = image;
        node.candidates.clear();
        kept_promises(node).map_err(NoStart::Broken)?;
        if skips_truncation {
            while let Some(back) = node.replaced.get(&(base + entries.len() as u64 + 1)) {
                entries.push(back.clone());
            }
        }
        node.entries = entries
            .iter()
            .map(|entry| (entry.index, entry.clone()))
            .collect();
        let mut log = node.image.clone();
        let mut tree = Tree::new();
        let mut snapshot = None;
        let believed = node.belief.as_ref().map(|belief| belief.membership.clone());
        if let Some(info) = &found.snapshot {
            tree = match tree_of(&wal.snapshots(), &info.name) {
                Ok(tree) => tree,
                Err(_) if node.disk_breaks => {
                    return Err(NoStart::Disk(WalError::MissingLog {
                        folder: String::new(),
                    }));
                }
                Err(error) => return Err(NoStart::Broken(error)),
            };
            let stored = Membership::decode(&info.meta.membership)
                .map_err(|error| NoStart::Broken(error.to_string()))?;
            snapshot = Some(SnapshotPoint {
                index: base,
                term: info.meta.term,
                membership: believed.unwrap_or(stored),
            });
        }
        let mut consensus = Consensus::new(
            &config,
            Recovered {
                snapshot,
                hard_state: HardState {
                    term: state.term,
                    vote: state.vote,
                },
                commit: found.commit,
                entries: entries.clone(),
            },
        )
        .map_err(|error| NoStart::Broken(error.to_string()))?;
        let proofs = self.begin_with_acknowledged(id, &mut consensus, &wal)?;
        let digest = tree.digest();
        for entry in &entries {
            let before = log.term_at(entry.index - 1).unwrap_or(log.base_term);
            let content = content_of(entry);
            if entry.index > log.last() {
                log.write(&Written::Entry {
                    index: entry.index,
                    term: entry.term,
                    content,
                });
            }
            let outcome = self
                .truth
                .appended(id, (entry.index, entry.term), content, before);
            outcome.map_err(NoStart::Broken)?;
        }
        if base > 0 {
            let outcome = self.truth.digest(id, base, digest);
            outcome.map_err(NoStart::Broken)?;
        }
        Ok(Process {
            observed: (state.term, 0, base),
            consensus,
            wal,
            tree,
            applied: base,
            log,
            queue: VecDeque::new(),
            in_flight: Vec::new(),
            commit_hint: None,
            receiving: None,
            received: None,
            own_snapshot: None,
            snapshot_index: base,
            wants_snapshot: false,
            proofs,
            shipping: BTreeMap::new(),
            heard: BTreeMap::new(),
            reads: BTreeMap::new(),
            joint_term: 0,
            compared: base,
            early: 0,
            take_over: None,
            mailbox: Vec::new(),
            missed_ticks: 0,
        })
    }

    /// The process ends, in the middle of whatever it does. Its folder stays as the disk leaves it.
    pub(crate) fn stop(&mut self, id: u64, end: End) {
        let executes = self.percent(60);
        let at = self.rng.u64(..14);
        let fault = one_of(
            &mut self.rng,
            (Fault::Crash, Fault::CrashAfter, Fault::TornWrite),
        );
        let node = self.node(id);
        let Some(mut process) = node.process.take() else {
            return;
        };
        node.is_paused = false;
        node.last_membership
            .clone_from(process.consensus.membership());
        node.last_applied = process.applied;
        node.last_snapshot = process.snapshot_index;
        let mut image = node.image.clone();
        node.candidates.clear();
        for batch in &process.in_flight {
            for written in batch.written(&image) {
                image.write(&written);
                node.candidates.push(image.clone());
            }
        }
        let mut marks = Vec::new();
        let has_received = process.received.is_some()
            || process
                .in_flight
                .iter()
                .any(|batch| batch.install.is_some());
        if !process.in_flight.is_empty() && executes {
            node.disk.fail_at(node.disk.operations() + at, fault);
            if process.write_in_flight().is_err() && !process.in_flight.is_empty() {
                marks.push(Mark::CrashInWrite);
            }
        } else if has_received {
            marks.push(Mark::CrashBeforeMark);
        } else if let Some(envelope) = &process.receiving
            && executes
        {
            node.disk.fail_at(node.disk.operations() + at % 5, fault);
            if write_received(&process.wal.snapshots(), envelope).is_err() {
                marks.push(Mark::CrashInReceive);
            }
        }
        drop(process);
        node.disk_breaks = false;
        node.disk = node.disk.kill();
        for mark in marks {
            self.mark(mark);
        }
        self.note(|_| format!("{id}: stops, {end:?}"));
        if end == End::PowerLoss {
            self.lose_power(id);
        }
        for other in self.ids() {
            self.reset(id, other);
        }
        if self.swarm.ends_are_noticed {
            self.notice_the_end(id);
        }
    }

    /// What was not synced may be lost, and what is left may be torn.
    pub(crate) fn lose_power(&mut self, id: u64) {
        let loss = match self.rng.u8(..10) {
            0 => Loss::Nothing,
            1..=3 => Loss::Everything,
            _ => Loss::Random(self.rng.u64(..)),
        };
        let node = self.node(id);
        node.disk = node.disk.crash(loss);
        node.disk_breaks = false;
    }

    /// Peers whose connection to the leader has ended, and that it refuses, campaign soon.
    fn notice_the_end(&mut self, gone: u64) {
        for id in self.ids() {
            let delay_us = self.rng.u64(5..60) * MS_US;
            let is_cut = self.network.is_cut(id, gone);
            let node = self.node(id);
            let (life, is_paused) = (node.life, node.is_paused);
            if let Some(process) = node.process.as_mut()
                && !is_paused
                && !is_cut
                && process.consensus.status().leader == Some(gone)
            {
                process.consensus.forget_leader();
                self.timeline
                    .after(delay_us, Event::Campaign { node: id, life });
                self.settle(id);
            }
        }
    }

    /// A node ends by itself and waits for the operator.
    pub(crate) fn give_up(&mut self, id: u64, why: Stopped) {
        self.note(|_| format!("{id}: waits for the operator, {why:?}"));
        self.stop(id, End::Killed);
        self.node(id).stopped = Some(why);
    }

    /// The folder is gone; an empty one takes its place.
    pub(crate) fn wipe(&mut self, id: u64) {
        self.stop(id, End::Killed);
        let incarnation = self.new_incarnation();
        let node = self.node(id);
        node.lost.push(std::mem::take(&mut node.image));
        node.disk = FaultStorage::new();
        node.incarnation = incarnation;
        node.candidates.clear();
        node.entries.clear();
        node.replaced.clear();
        node.acknowledged.clear();
        node.promised = (0, 0);
        node.last_membership = Membership::default();
        node.last_applied = 0;
        node.last_snapshot = 0;
        (node.forgotten, node.forgotten_term) = (None, 0);
        node.stopped = None;
        node.copy = None;
        node.belief = None;
    }
}

/// Term and vote that others know of, and entries that they count on, outlive every end.
fn kept_promises(node: &Node) -> Result<(), String> {
    let image = &node.image;
    let (term, vote) = node.promised;
    if image.term < term || (image.term == term && vote != 0 && image.vote != vote) {
        return Err(format!(
            "node {} has promised term {term} and its vote for {vote}, and starts with term {} and vote {}",
            node.id, image.term, image.vote
        ));
    }
    for (index, term) in &node.acknowledged {
        if !image.has(*index, *term) {
            return Err(format!(
                "node {} has acknowledged entry {index} of term {term}, and starts with a log that ends at {:?}",
                node.id,
                image.position()
            ));
        }
    }
    Ok(())
}

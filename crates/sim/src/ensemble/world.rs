//! The state of a run, and what every part of it uses: nodes, events, chance, marks, transcript.

use std::collections::{BTreeMap, BTreeSet};

use baton_consensus::{Member, Membership, Role};
use fastrand::Rng;

use super::bug::SeededBug;
use super::image::LogImage;
use super::mark::Mark;
use super::members;
use super::network::{Envelope, Network};
use super::node::{Node, Process};
use super::proofs::CastVote;
use super::scene::Scene;
use super::swarm::{FaultKind, Swarm};
use super::timeline::Timeline;
use super::truth::Truth;

/// Length of a tick.
pub(crate) const TICK_US: u64 = 25_000;

/// An event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node's clock ticks.
    Tick { node: u64, life: u64 },
    /// A message arrives.
    Deliver(Box<Envelope>),
    /// A sync is complete.
    Synced { node: u64, life: u64 },
    /// A snapshot from another node has arrived whole.
    Received { node: u64, life: u64 },
    /// A snapshot of the node's own is to be written.
    SnapshotWritten { node: u64, life: u64 },
    /// Two nodes try to connect.
    Dial { one: u64, other: u64 },
    /// A node that knows the leader to be gone campaigns.
    Campaign { node: u64, life: u64 },
    /// A node ends connections to those that are no members any more.
    Prune { node: u64, life: u64 },
    /// A node starts.
    Start { node: u64 },
    /// A paused process goes on.
    Resume { node: u64, pause: u64 },
    /// A connection that delivers nothing is given up.
    GiveUp { cut: u64 },
    /// A cut ends.
    Heal { cut: u64 },
    /// A full disk has room again.
    Room { node: u64 },
    /// A leader proposes something.
    Propose,
    /// The operator acts.
    Operate,
    /// A fault of this kind is due.
    Fault(FaultKind),
}

/// A run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) bug: Option<SeededBug>,
    pub(crate) swarm: Swarm,
    pub(crate) rng: Rng,
    pub(crate) timeline: Timeline<Event>,
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) network: Network,
    pub(crate) truth: Truth,
    pub(crate) marks: BTreeSet<Mark>,
    pub(crate) transcript: Vec<String>,
    pub(crate) is_recording: bool,
    pub(crate) violation: Option<String>,
    /// Rolled-back folders have elected a leader, and nobody there could know: what follows is not
    /// judged.
    pub(crate) is_beyond: bool,
    /// Votes by term and candidate.
    pub(crate) votes: BTreeMap<(u64, u64), Vec<CastVote>>,
    /// No faults come any more.
    pub(crate) is_calm: bool,
    pub(crate) proposals: u64,
    /// Whom leadership is being handed to.
    pub(crate) handing_to: Option<u64>,
    pub(crate) incarnations: u64,
    /// What is played step by step, in place of faults that come by chance.
    pub(crate) scene: Option<Scene>,
}

impl World {
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    #[allow(
        clippy::expect_used,
        reason = "ids come from the map itself, which only grows"
    )]
    pub(crate) fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of this run")
    }

    pub(crate) fn process(&mut self, id: u64) -> Option<&mut Process> {
        self.nodes.get_mut(&id)?.process.as_deref_mut()
    }

    /// The process of a node, if its life is still this one.
    pub(crate) fn alive(&mut self, id: u64, life: u64) -> Option<&mut Process> {
        let node = self.nodes.get_mut(&id)?;
        (node.life == life).then_some(node.process.as_deref_mut()?)
    }

    /// Adds a line to the transcript, which costs nothing where none is kept.
    pub(crate) fn note(&mut self, line: impl FnOnce(&World) -> String) {
        if self.is_recording {
            let at_us = self.timeline.now_us();
            let line = line(self);
            let (seconds, micros) = (at_us / 1_000_000, at_us % 1_000_000);
            self.transcript
                .push(format!("{seconds:3}.{micros:06} {line}"));
        }
    }

    pub(crate) fn mark(&mut self, mark: Mark) {
        if self.marks.insert(mark) {
            self.note(|_| format!("mark: {mark:?}"));
        }
    }

    /// A rule is broken; the first one counts.
    pub(crate) fn broken(&mut self, what: impl Into<String>) {
        if self.violation.is_none() && !self.is_beyond {
            let what = what.into();
            self.note(|_| format!("BROKEN: {what}"));
            self.violation = Some(what);
        }
    }

    pub(crate) fn hold(&mut self, outcome: Result<(), String>) {
        if let Err(what) = outcome {
            self.broken(what);
        }
    }

    pub(crate) fn has_bug(&self, bug: SeededBug) -> bool {
        self.bug == Some(bug)
    }

    /// A time drawn around a mean.
    pub(crate) fn around(&mut self, mean_us: u64) -> u64 {
        self.rng.u64(1..=2 * mean_us)
    }

    pub(crate) fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        self.rng.u64(least..=most)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.rng.u64(..100) < percent
    }

    /// The running node that leads in the newest term.
    pub(crate) fn leader(&self) -> Option<u64> {
        let leads = |node: &&Node| {
            let status = node
                .process
                .as_ref()
                .map(|process| process.consensus.status());
            status.filter(|status| status.role == Role::Leader)
        };
        let leaders = self
            .nodes
            .values()
            .filter_map(|node| Some((leads(&node)?.term, node.id)));
        leaders.max().map(|(_, id)| id)
    }

    pub(crate) fn member(&self, id: u64) -> Option<Member> {
        let node = self.nodes.get(&id)?;
        Some(Member {
            id,
            incarnation: node.incarnation,
            address: format!("server.{id}"),
        })
    }

    pub(crate) fn new_incarnation(&mut self) -> u128 {
        self.incarnations += 1;
        u128::from(self.incarnations) << 64 | u128::from(self.seed)
    }

    /// Whether a node has the folder that a membership counts on, and may use it.
    pub(crate) fn is_intact(&self, membership: &Membership, id: u64) -> bool {
        let known = membership.members.iter().find(|member| member.id == id);
        self.nodes.get(&id).is_some_and(|node| {
            known.is_none_or(|member| member.incarnation == node.incarnation)
                && node.stopped.is_none()
                && node.forgotten.is_none()
        })
    }

    /// Each membership that a node has, may have after a restart, which forgets up to where entries
    /// are committed, or has a configuration entry for.
    pub(crate) fn possible_memberships(&self) -> Vec<Membership> {
        let mut all = Vec::new();
        for node in self.nodes.values() {
            let (mut now, applied) = match &node.process {
                Some(process) => (process.consensus.membership().clone(), process.applied),
                None => (node.last_membership.clone(), node.last_applied),
            };
            let floor = node
                .process
                .as_ref()
                .map_or(node.last_snapshot, |p| p.snapshot_index);
            if floor > 0 {
                all.extend(self.truth.memberships_from(floor).cloned());
            }
            all.push(now.clone());
            for (_, entry) in node.entries.range(applied + 1..) {
                if entry.kind != baton_consensus::EntryKind::Configuration {
                    continue;
                }
                if let Ok(change) = baton_consensus::MembershipChange::decode(&entry.payload) {
                    now = members::after(&now, &change);
                    all.push(now.clone());
                }
            }
        }
        all.retain(|membership| !membership.voters.is_empty());
        all
    }

    /// Whether the nodes that `counts` names, as far as they are intact, can decide in every
    /// membership that may be in force.
    pub(crate) fn can_decide(&self, counts: impl Fn(u64) -> bool) -> bool {
        let possible = self.possible_memberships();
        let mut known = possible.iter();
        !possible.is_empty()
            && known.all(|membership| {
                members::is_quorum(membership, |id| {
                    counts(id) && self.is_intact(membership, id)
                })
            })
    }

    /// Whether an entry is, or was before a folder was lost, durable at a node.
    pub(crate) fn is_durable_at(&self, id: u64, index: u64, term: u64) -> bool {
        self.nodes.get(&id).is_some_and(|node| {
            let mut images = std::iter::once(&node.image).chain(&node.lost);
            images.any(|image: &LogImage| image.has(index, term))
        })
    }
}

//! One seed, from the first event to the result.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use baton_consensus::Membership;
use baton_wal::testing::FaultStorage;
use fastrand::Rng;

use super::bug::SeededBug;
use super::folder::born;
use super::image::LogImage;
use super::mark::Mark;
use super::network::Network;
use super::node::Node;
use super::scene::Scene;
use super::swarm::Swarm;
use super::timeline::Timeline;
use super::truth::Truth;
use super::world::{Event, World};
use crate::birth::BORN_INDEX;

/// What a run is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Everything that happens follows from it.
    pub seed: u64,
    /// A mistake that the run makes on purpose.
    pub bug: Option<SeededBug>,
    /// Whether the transcript is kept.
    pub is_recording: bool,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct EnsembleReport {
    /// The rule that was broken, if one was.
    pub violation: Option<String>,
    /// Rare situations that it came to.
    pub marks: BTreeSet<Mark>,
    /// What happened, line by line; empty unless it was to be kept.
    pub transcript: Vec<String>,
    /// Entries that were committed.
    pub committed: u64,
    /// Virtual time, in microseconds.
    pub elapsed_us: u64,
}

/// Runs one seed.
#[must_use]
pub fn run(settings: &Settings) -> EnsembleReport {
    let mut world = World::new(settings);
    // The engine panics on what it does not expect, and that is a failure like any other.
    let outcome = catch_unwind(AssertUnwindSafe(|| world.play()));
    if let Err(panic) = outcome {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let what = format!("a panic: {}", text.unwrap_or_default());
        world.note(|_| what.clone());
        world.violation.get_or_insert(what);
    }
    EnsembleReport {
        violation: world.violation,
        marks: world.marks,
        transcript: world.transcript,
        committed: world.truth.commit() - BORN_INDEX,
        elapsed_us: world.timeline.now_us(),
    }
}

impl World {
    pub(crate) fn new(settings: &Settings) -> World {
        let mut rng = Rng::with_seed(settings.seed);
        let mut swarm = Swarm::draw(&mut rng, settings.bug);
        let has_scene = Swarm::has_scene(settings.seed);
        if Swarm::has_large_changes(settings.seed) {
            swarm.suit_large_changes();
        }
        if Swarm::has_rollbacks(settings.seed) {
            swarm.suit_rollbacks(&mut rng);
        }
        if has_scene {
            swarm.suit_scene();
        }
        World {
            seed: settings.seed,
            bug: settings.bug,
            swarm,
            rng,
            timeline: Timeline::new(),
            nodes: BTreeMap::new(),
            network: Network::default(),
            truth: Truth::default(),
            marks: BTreeSet::new(),
            transcript: Vec::new(),
            is_recording: settings.is_recording,
            violation: None,
            is_beyond: false,
            votes: BTreeMap::new(),
            is_calm: false,
            proposals: 0,
            handing_to: None,
            incarnations: 0,
            scene: has_scene.then(Scene::new),
        }
    }

    /// The members that the cluster is born with.
    pub(crate) fn first_membership(&self) -> Membership {
        let voters: Vec<u64> = (1..=self.swarm.voters).collect();
        Membership {
            members: voters.iter().filter_map(|id| self.member(*id)).collect(),
            voters,
            ..Membership::default()
        }
    }

    fn play(&mut self) {
        self.be_born();
        let active_us = self.swarm.active_us;
        self.run_until(active_us);
        if self.is_judged() {
            self.end();
        }
        if self.violation.is_none() && self.marks.contains(&Mark::OldCopyLetIn) {
            self.follow_fork();
        }
    }

    /// Whether the run goes on: no rule is broken, and each that comes can be held.
    pub(crate) fn is_judged(&self) -> bool {
        self.violation.is_none() && !self.is_beyond
    }

    /// Handles events until `end_us`, or until a rule is broken.
    pub(crate) fn run_until(&mut self, end_us: u64) {
        while self.is_judged() {
            let Some(event) = self.timeline.next(end_us) else {
                break;
            };
            self.handle(event);
            self.play_scene();
        }
    }

    fn be_born(&mut self) {
        self.note(|world| format!("seed {}: {:?}", world.seed, world.swarm));
        for id in 1..=self.swarm.nodes {
            let incarnation = self.new_incarnation();
            let rate_ppm = self.rng.i64(-20_000..=20_000);
            self.nodes.insert(id, new_node(id, incarnation, rate_ppm));
        }
        let membership = self.first_membership();
        let outcome = self.truth.membership(0, BORN_INDEX, &membership);
        self.hold(outcome);
        for id in 1..=self.swarm.voters {
            match born(&self.node(id).disk.clone(), &membership) {
                Ok(image) => self.node(id).image = image,
                Err(error) => self.broken(format!("node {id} cannot be born: {error}")),
            }
        }
        for id in self.ids() {
            self.start(id);
        }
        self.timeline.after(1, Event::Propose);
        if self.swarm.operate_us.is_some() {
            self.timeline.after(1, Event::Operate);
        }
        for (kind, mean_us) in self.swarm.faults.clone() {
            let delay_us = self.around(mean_us);
            self.timeline.after(delay_us, Event::Fault(kind));
        }
    }
}

fn new_node(id: u64, incarnation: u128, rate_ppm: i64) -> Node {
    Node {
        id,
        incarnation,
        disk: FaultStorage::new(),
        image: LogImage::default(),
        candidates: Vec::new(),
        lost: Vec::new(),
        acknowledged: BTreeMap::new(),
        promised: (0, 0),
        forgotten: None,
        was_rolled_back: false,
        forgotten_term: 0,
        stopped: None,
        stays_down: false,
        rate_ppm,
        life: 0,
        pauses: 0,
        is_paused: false,
        stalled_until_us: 0,
        disk_breaks: false,
        copy: None,
        entries: BTreeMap::new(),
        last_membership: Membership::default(),
        last_applied: 0,
        last_snapshot: 0,
        replaced: BTreeMap::new(),
        belief: None,
        process: None,
    }
}

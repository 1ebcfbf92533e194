//! An ensemble of whole servers: plain operations whose history is judged, and every recipe; runs
//! that repeat, rare situations that runs come to, and mistakes that are found.

use std::collections::BTreeSet;

use baton_sim::scenario;
use baton_sim::servers::{MARKS, SeededBug, ServersSettings, explore, run};

/// Seeds of the short form.
const SEEDS: u64 = 18;
/// The same of runs that strike logs, elections and members.
const WRITES_SEEDS: u64 = 24;
/// Seeds behind those that came to the other marks when this was written. Others are tried behind
/// them, so a change that moves the marks costs time and no edit.
const LIKELY: [u64; 3] = [20, 36, 143];
/// Seeds of the search for what those miss.
const SEARCHED: u64 = 300;
const CALLED_BACK: &str = "a server calls back one that it does not know yet";

#[test]
fn a_history_makes_sense_whatever_befalls_the_servers() {
    let explored = |scenario, first_seed, seeds| match explore(scenario, first_seed, seeds, None) {
        Ok(summary) => summary,
        Err(failure) => panic!("{failure}"),
    };
    let (history, writes) = (scenario::history(), scenario::writes());
    let mut missed = BTreeSet::from(MARKS);
    for (scenario, seeds, least) in [(&history, SEEDS, 100), (&writes, WRITES_SEEDS, 50)] {
        let summary = explored(scenario, 0, seeds);
        assert_eq!(summary.runs, seeds);
        assert!(
            summary.entries > least * seeds,
            "runs come to nothing: {summary:?}"
        );
        missed.retain(|mark| !summary.marks.contains_key(mark));
    }
    // From here on coverage alone is judged.
    for seed in LIKELY.into_iter().chain(WRITES_SEEDS..SEARCHED) {
        for scenario in [&writes, &history] {
            if missed.is_empty() {
                return;
            }
            let summary = explored(scenario, seed, 1);
            missed.retain(|mark| !summary.marks.contains_key(mark));
        }
    }
    panic!("coverage: no run of {SEARCHED} comes to {missed:?}");
}

/// One is added while a server leads that was added itself.
#[test]
fn r41_a_server_that_lags_behind_its_addition_answers_the_leader() {
    let summary = match explore(&scenario::history(), 63, 1, None) {
        Ok(summary) => summary,
        Err(failure) => panic!("{failure}"),
    };
    assert!(summary.marks.contains_key(CALLED_BACK), "{summary:?}");
}

#[test]
fn recipes_keep_their_promises_on_several_servers() {
    for (number, scenario) in scenario::all().into_iter().enumerate() {
        if let Err(failure) = explore(&scenario, number as u64, 1, None) {
            panic!("{failure}");
        }
    }
}

/// At the end of these, all servers were down for a moment, or one was about to leave, or claims
/// lasted no longer than a write takes.
#[test]
fn runs_are_judged_by_what_the_members_agree_on() {
    let of = |name| scenario::find(name).unwrap();
    for (scenario, seed) in [
        (of("counter"), 30_148),
        (scenario::history(), 30_093),
        (scenario::history(), 50_002),
        (of("work-queue-visibility"), 22_000),
    ] {
        if let Err(failure) = explore(&scenario, seed, 1, None) {
            panic!("{failure}");
        }
    }
}

/// Runs that failed once, by mistakes of the simulator's.
#[test]
fn what_long_campaigns_have_found_is_mended() {
    let (history, writes) = (scenario::history(), scenario::writes());
    for (scenario, seed) in [(writes, 326), (writes, 370), (history, 247)] {
        if let Err(failure) = explore(&scenario, seed, 1, None) {
            panic!("{failure}");
        }
    }
}

#[test]
fn seeded_bugs_are_found() {
    // The others take longer than a test can wait for, see docs/project/simulation.md. With each
    // the seed to begin with that finds it soon.
    let (history, writes) = (scenario::history(), scenario::writes());
    let wanted = [
        (history, SeededBug::B07, 0),
        (history, SeededBug::B09, 0),
        (history, SeededBug::B11, 143),
        (history, SeededBug::B12, 60),
        (history, SeededBug::B13, 10),
        (writes, SeededBug::B01, 0),
        (writes, SeededBug::B02, 0),
        (writes, SeededBug::B03, 0),
        (writes, SeededBug::B04, 0),
        (writes, SeededBug::B17, 0),
        (writes, SeededBug::B18, 160),
        (writes, SeededBug::B19, 0),
        (writes, SeededBug::B21, 0),
    ];
    for (scenario, bug, likely) in wanted {
        let is_found = [(likely, 40), (0, SEARCHED)]
            .into_iter()
            .any(|(first, seeds)| explore(&scenario, first, seeds, Some(bug)).is_err());
        assert!(is_found, "coverage: no run of {SEARCHED} finds {bug:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    let (history, writes) = (scenario::history(), scenario::writes());
    // With small snapshots, members that change, read-only mode; figure 8, older copies.
    for (scenario, seed) in [
        (history, 0),
        (history, 3),
        (history, 14),
        (writes, 2),
        (writes, 7),
    ] {
        let settings = ServersSettings {
            scenario,
            seed,
            bug: None,
            is_recording: true,
        };
        let first = run(&settings).transcript;
        // In another thread, as another test of the same process would have it.
        let again =
            std::thread::scope(|scope| scope.spawn(|| run(&settings).transcript).join().unwrap());
        assert!(first.len() > 100);
        for (one, other) in first.iter().zip(&again) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(first.len(), again.len(), "seed {seed}");
    }
}

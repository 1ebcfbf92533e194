//! Whole servers that are one: plain operations whose history is judged, and every recipe; runs
//! that repeat.

use baton_sim::scenario;
use baton_sim::servers::{ServersSettings, explore, run};

/// Seeds of the short form.
const SEEDS: u64 = 10;

#[test]
fn a_history_makes_sense_whatever_befalls_the_servers() {
    let summary = match explore(&scenario::history(), 0, SEEDS, None) {
        Ok(summary) => summary,
        Err(failure) => panic!("{failure}"),
    };
    assert_eq!(summary.runs, SEEDS);
    assert!(
        summary.entries > 100 * SEEDS,
        "runs come to nothing: {summary:?}"
    );
}

#[test]
fn recipes_keep_their_promises_on_several_servers() {
    for (number, scenario) in scenario::all().into_iter().enumerate() {
        if let Err(failure) = explore(&scenario, number as u64, 1, None) {
            panic!("{failure}");
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..2 {
        let settings = ServersSettings {
            scenario: scenario::history(),
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

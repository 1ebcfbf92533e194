//! The simulated ensemble: some hundred seeds, runs that repeat, marks that runs come to, and
//! mistakes that are found.

use baton_sim::ensemble::{Settings, explore, run};

/// Seeds of the short form.
const SEEDS: u64 = 150;

#[test]
fn nodes_of_a_cluster_lose_nothing_and_come_to_rest_under_every_fault() {
    let summary = match explore(0, SEEDS, None) {
        Ok(summary) => summary,
        Err(failure) => panic!("{failure}"),
    };
    assert_eq!(summary.runs, SEEDS);
    assert!(
        summary.committed > 50 * SEEDS,
        "runs come to nothing: {summary:?}"
    );
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..6 {
        let settings = Settings {
            seed,
            bug: None,
            is_recording: true,
        };
        let first = run(&settings).transcript;
        // In another thread, as another test of the same process would have it.
        let again =
            std::thread::scope(|scope| scope.spawn(|| run(&settings).transcript).join().unwrap());
        assert!(first.len() > 20);
        for (one, other) in first.iter().zip(&again) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(first.len(), again.len(), "seed {seed}");
    }
}

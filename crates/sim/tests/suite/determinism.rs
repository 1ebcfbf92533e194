//! The same plan gives the same run, to the last line of its transcript; another seed gives
//! another.

use baton_sim::{Plan, run, scenario};

fn transcript(scenario: &scenario::Scenario, plan: &str) -> Vec<String> {
    run(scenario, &plan.parse::<Plan>().unwrap(), true).transcript
}

#[test]
fn a_plan_gives_the_same_run_each_time() {
    for scenario in scenario::all() {
        for plan in [
            "0",
            "7,c0.up.6.after.reset",
            "3,c1.down.8.before.partition,call1.poll2.after",
            "5,c0.up.9.before.late,c1.up.11.after.crash",
        ] {
            let first = transcript(&scenario, plan);
            assert!(!first.is_empty());
            // In another thread, as another test of the same process would have it.
            let again = std::thread::scope(|scope| {
                scope.spawn(|| transcript(&scenario, plan)).join().unwrap()
            });
            for (one, other) in first.iter().zip(&again) {
                assert_eq!(one, other, "{} {plan}", scenario.name);
            }
            assert_eq!(first.len(), again.len(), "{} {plan}", scenario.name);
        }
    }
}

#[test]
fn another_seed_gives_another_run() {
    let mutex = scenario::find("mutex").unwrap();
    assert_ne!(transcript(&mutex, "1"), transcript(&mutex, "2"));
}

//! Every scenario under as many plans as fit into a test run, thinned out evenly over boundaries
//! and kinds of faults. `docs/project/simulation.md` has the commands for the whole of it.

use baton_sim::{Effort, explore, scenario};

/// Runs of one scenario.
const RUNS: usize = 40;

fn survives(name: &str) {
    let scenario = scenario::find(name).expect("there is such a scenario");
    if let Err(failure) = explore(&scenario, &Effort::quick(RUNS)) {
        panic!("{failure}");
    }
}

/// One test for each scenario, and none forgotten.
macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                survives($name);
            }
        )*

        #[test]
        fn each_scenario_has_its_test() {
            let tested = [$($name),*];
            for scenario in scenario::all() {
                assert!(tested.contains(&scenario.name), "{} has no test", scenario.name);
            }
        }
    };
}

scenarios! {
    mutex: "mutex",
    mutex_requeue: "mutex-requeue",
    mutex_with_kazoos_names: "mutex-kazoo",
    mutex_with_the_names_of_zookeeper_recipes: "mutex-recipes",
    simple_mutex: "simple-mutex",
    simple_mutex_of_two_in_one_session: "simple-mutex-shared",
    reentrant_mutex: "reentrant-mutex",
    mutex_try: "mutex-try",
    mutex_stay: "mutex-stay",
    mutex_timeout: "mutex-timeout",
    election: "election",
    rw_lock: "rw-lock",
    rw_lock_with_kazoos_names: "rw-lock-kazoo",
    rw_lock_with_host_names: "rw-lock-host",
    rw_lock_downgrade: "rw-lock-downgrade",
    rw_lock_with_readers_and_writers_that_change: "rw-lock-changes",
    semaphore: "semaphore",
    semaphore_resized: "semaphore-resize",
    multi_lock: "multi-lock",
    multi_lock_with_a_line_removed: "multi-lock-removed",
    queue: "queue",
    queue_take: "queue-take",
    priority_queue: "priority-queue",
    delay_queue: "delay-queue",
    id_queue: "id-queue",
    locking_queue_with_curators_names: "locking-queue-curator",
    locking_queue: "locking-queue",
    work_queue: "work-queue",
    work_queue_delays_deaths_and_ids: "work-queue-fates",
    work_queue_visibility: "work-queue-visibility",
    mutex_with_guarded_changes: "mutex-txn",
    barrier: "barrier",
    double_barrier_abort: "double-barrier-abort",
    double_barrier: "double-barrier",
    double_barrier_of_three: "double-barrier-three",
    latch: "latch",
    counter: "counter",
    shared_value: "shared-value",
    membership: "membership",
    membership_takeover: "membership-takeover",
    membership_close: "membership-close",
    membership_of_one_id: "membership-one-id",
    tree_cache: "tree-cache",
    partitioner: "partitioner",
    partitioner_of_three: "partitioner-three",
}

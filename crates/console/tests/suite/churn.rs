//! No cycle is reported that did not stand at one instant, and one that stands is found.

use std::collections::BTreeSet;

use baton_client::path::parent;
use baton_console::{Deadlock, Limits, Surveyor};
use proptest::prelude::*;

use super::model::{Model, Queued, State};

/// Whether one of these nodes waits for the other, by the rules of the recipes.
fn waits_for(one: &Queued, other: &Queued) -> bool {
    parent(&one.path) == parent(&other.path)
        && other.czxid < one.czxid
        && !(one.reads && other.reads)
}

/// Reason why this cycle is none, or when it stood.
fn stood(state: &State, cycle: &Deadlock) -> Result<(i64, i64), String> {
    let (mut from, mut until) = (0, i64::MAX);
    let steps = &cycle.steps;
    for (at, step) in steps.iter().enumerate() {
        let queued = |node: &baton_console::WaitNode| Queued {
            path: node.path.clone(),
            session: node.session,
            czxid: node.czxid,
            reads: node.path.contains("__READ__"),
        };
        let (waiter, blocker) = (queued(&step.waiter), queued(&step.blocker));
        if !waits_for(&waiter, &blocker) {
            return Err(format!("{waiter:?} does not wait for {blocker:?}"));
        }
        let next = &steps[(at + 1) % steps.len()];
        if next.waiter.session != blocker.session {
            return Err(format!("{blocker:?} is not of the session that waits next"));
        }
        for node in [waiter, blocker] {
            let life = state
                .life(&node.path, node.czxid)
                .ok_or_else(|| format!("{node:?} never was"))?;
            from = from.max(life.from);
            until = until.min(life.until);
        }
    }
    if from < until {
        Ok((from, until))
    } else {
        Err(format!("all of it never stood at once: {cycle:#?}"))
    }
}

/// Whether there is a cycle, by trying every way.
fn has_cycle(all: &[Queued]) -> bool {
    let waits: Vec<(usize, usize)> = (0..all.len())
        .flat_map(|one| (0..all.len()).map(move |other| (one, other)))
        .filter(|(one, other)| waits_for(&all[*one], &all[*other]))
        .collect();
    // From a node that waits to those waits by which it goes on.
    let follows = |(one, other): (usize, usize), next: (usize, usize)| {
        next.0 == other
            || all[next.0].session == all[other].session
                && all[other].session != all[one].session
                && parent(&all[next.0].path) != parent(&all[other].path)
    };
    let mut alive: BTreeSet<usize> = (0..waits.len()).collect();
    loop {
        let before = alive.len();
        let kept = |at: &usize| alive.iter().any(|next| follows(waits[*at], waits[*next]));
        alive = alive.iter().copied().filter(kept).collect();
        if alive.len() == before {
            return before > 0;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_cycle_that_is_reported_stood_at_one_instant_and_one_that_stands_is_found(
        seed in any::<u64>(),
        calm in 1usize..40,
        rounds in 1usize..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let model = Model::new(seed, calm);
            for _ in 0..12 {
                model.state().change();
            }
            let mut surveyor = Surveyor::new(Limits { refreshed: 3, ..Limits::default() });
            for _ in 0..rounds {
                surveyor.update(&model).await.unwrap();
                let state = model.state();
                for cycle in surveyor.deadlocks() {
                    prop_assert!(cycle.steps.len() > 1);
                    prop_assert!(cycle.way_out().is_some());
                    if let Err(why) = stood(&state, cycle) {
                        prop_assert!(false, "{why}");
                    }
                }
            }
            // Nobody changes anything any more.
            model.state().calm = 0;
            surveyor.update(&model).await.unwrap();
            let state = model.state();
            let all = state.queued();
            prop_assert_eq!(!surveyor.deadlocks().is_empty(), has_cycle(&all), "{:#?}", all);
            let waiting: usize = surveyor.recipes().values().map(|recipe| recipe.waiters().len()).sum();
            let holding: usize = surveyor.recipes().values().map(|recipe| recipe.holders().count()).sum();
            prop_assert_eq!(waiting + holding, all.len());
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn cycles_are_found_under_churn_too() {
    // The property would hold of a finder that finds nothing while the tree changes.
    let mut found = 0;
    for seed in 0..40 {
        let model = Model::new(seed, 10);
        for _ in 0..15 {
            model.state().change();
        }
        let mut surveyor = Surveyor::new(Limits::default());
        for _ in 0..40 {
            surveyor.update(&model).await.unwrap();
            found += surveyor.deadlocks().len();
        }
    }
    assert!(found > 0);
}

#[tokio::test]
async fn two_sessions_that_wait_for_each_other_are_one_cycle_until_one_lets_go() {
    let model = Model::new(1, 0);
    let mut surveyor = Surveyor::new(Limits::default());
    for (session, lock) in [(1, 0), (2, 2), (1, 2), (2, 0), (3, 0)] {
        model.state().enqueue(session, lock, false);
    }
    surveyor.update(&model).await.unwrap();
    let [cycle] = surveyor.deadlocks() else {
        panic!("{:#?}", surveyor.deadlocks());
    };
    let sessions: BTreeSet<i64> = cycle.steps.iter().map(|step| step.waiter.session).collect();
    assert_eq!(sessions, BTreeSet::from([1, 2]));
    assert!(cycle.steps.iter().all(|step| step.holds));
    // Three wait for the first lock's holder, one for the other's.
    assert_eq!(cycle.steps.len(), 2);
    let asked = cycle.way_out().unwrap().path.clone();
    model.state().leave(&asked);
    surveyor.update(&model).await.unwrap();
    assert_eq!(surveyor.deadlocks(), []);
}

#[tokio::test]
async fn tasks_of_one_session_in_one_lock_are_no_cycle() {
    let model = Model::new(1, 0);
    let mut surveyor = Surveyor::new(Limits::default());
    // Each session holds nothing or once, and waits twice more behind the other.
    for (session, lock) in [(1, 0), (2, 0), (1, 0), (2, 0)] {
        model.state().enqueue(session, lock, false);
    }
    surveyor.update(&model).await.unwrap();
    assert_eq!(surveyor.deadlocks(), []);
}

#[tokio::test]
async fn a_round_without_a_change_costs_one_read() {
    let model = Model::new(7, 0);
    for _ in 0..30 {
        model.state().change();
    }
    let mut surveyor = Surveyor::new(Limits::default());
    surveyor.update(&model).await.unwrap();
    let reads = model.state().reads;
    let updated = surveyor.update(&model).await.unwrap();
    assert_eq!(model.state().reads, reads + 1);
    assert!(!updated.others);
    model.state().clear();
    surveyor.update(&model).await.unwrap();
    assert!(surveyor.recipes().is_empty());
}

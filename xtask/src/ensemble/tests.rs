//! Short forms of all trials. What takes how long is measured, and not judged.

use std::time::Duration;

use baton_testkit::{Target, baton_binary, skip};

use super::Trial;
use super::stage::Settings;

/// Does a trial this number of times; says so where the command is not built.
async fn passes(trial: Trial, runs: usize) {
    // The command belongs to another package, so it may not be built yet when this runs alone.
    if let Err(error) = baton_binary() {
        skip("baton", &error.to_string());
        return;
    }
    let settings = Settings {
        target: Target::Baton,
        baton: None,
        runs,
        limit: None,
        seed: 1,
        rate: 200,
        pause_ms: 1_000..=2_000,
        busy_threads: 2,
        apart: None,
    };
    let settings = match trial {
        Trial::BusyMachine | Trial::LargeWrites | Trial::Regions => Settings {
            limit: Some(Duration::from_secs(1)),
            ..settings
        },
        _ => settings,
    };
    let report = trial.run(&settings).await.unwrap();
    assert_eq!(report.runs, runs);
}

#[tokio::test(flavor = "multi_thread")]
async fn r27_nothing_acknowledged_is_lost_and_nothing_is_done_twice_when_leaders_are_killed() {
    passes(Trial::KillLeader, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r30_a_leader_that_was_paused_answers_nothing_from_the_past() {
    passes(Trial::PauseLeader, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r09_a_leader_that_is_cut_off_answers_nothing_and_the_majority_goes_on() {
    passes(Trial::CutLeader, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r01_nothing_acknowledged_is_lost_when_all_servers_are_killed() {
    passes(Trial::KillAll, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_is_lost_when_each_server_is_restarted_in_turn() {
    passes(Trial::RollingRestart, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_held_through_every_fault_of_the_servers() {
    passes(Trial::LockHeld, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_handed_on_has_one_holder_at_a_time_whatever_the_servers_do() {
    passes(Trial::LockHandedOn, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_a_server_that_has_lost_its_folder_neither_serves_nor_votes() {
    passes(Trial::WipedFolder, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r19_a_server_with_an_older_copy_of_its_folder_is_refused() {
    passes(Trial::OlderFolder, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_nothing_acknowledged_is_lost_when_several_members_change_at_once() {
    passes(Trial::Members, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn elections_on_a_busy_machine_are_counted() {
    passes(Trial::BusyMachine, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_under_faults_of_every_kind_in_random_order() {
    passes(Trial::Chaos, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_large_values_is_counted_beside_small_writes() {
    passes(Trial::LargeWrites, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_several_regions_serve() {
    passes(Trial::Regions, 1).await;
}

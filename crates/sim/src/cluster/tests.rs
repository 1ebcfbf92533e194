//! Directed runs of a cluster without clients.

use std::time::Duration;

use baton_client::{CreateMode, MembershipChange, State};
use baton_consensus::Role;

use super::life::WALL_MS;
use super::{Cluster, Setup, StopCause};
use crate::network::Network;
use crate::recorder::Recorder;
use crate::stage::Stage;

/// One step of virtual time. A turn of a server takes none.
const STEP: Duration = Duration::from_millis(1);

fn three() -> Setup {
    Setup {
        seed: 1,
        servers: 3,
        latency_ms: (1, 1),
        sync_ms: (1, 1),
        lane_bytes: 1 << 20,
        drift_ppm: 0,
        skew_ms: 2_000,
        bug: None,
        uncommitted_bytes: None,
        start_crash_percent: 0,
        spares: 0,
        snapshots: None,
        read_only_mode: false,
    }
}

async fn come_to_rest(cluster: &Cluster) {
    for _ in 0..10_000 {
        if cluster.unrest().is_none() {
            return;
        }
        tokio::time::sleep(STEP).await;
    }
    panic!("no common state: {:?}", cluster.unrest());
}

/// Servers that do not run yet, and a stage with one client.
fn staged(setup: Setup) -> (Cluster, Stage) {
    let timeout = Duration::from_secs(4);
    let (cluster, _ends) = Cluster::new(setup, Recorder::new(true)).unwrap();
    let network = Network::of_cluster(1, cluster.clone(), 1, timeout);
    let stage = Stage::new(network, 1, timeout, 1, Vec::new()).unwrap();
    (cluster, stage)
}

async fn start_all(cluster: &Cluster) {
    for id in cluster.ids() {
        cluster.start(id);
    }
    come_to_rest(cluster).await;
}

#[tokio::test(start_paused = true)]
async fn r10_a_follower_that_stood_still_reads_what_came_before_it_counts_ticks() {
    for pause in [Duration::from_secs(2), Duration::from_secs(20)] {
        let (cluster, _ends) = Cluster::new(three(), Recorder::new(true)).unwrap();
        start_all(&cluster).await;
        let leader = cluster.leader().unwrap();
        let follower = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
        let role = |id| cluster.state().seats[&id].progress.unwrap().role;
        let term = role(leader).term;
        cluster.pause(follower, pause);
        let steps = (pause + Duration::from_secs(2)).as_millis() / STEP.as_millis();
        for _ in 0..steps {
            tokio::time::sleep(STEP).await;
            // It asks for no votes, and its clients keep their connections.
            assert_eq!(role(follower).role, Role::Follower);
            assert_eq!(role(follower).leader, Some(leader));
            assert_eq!(role(leader).term, term);
        }
        assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
        cluster.shut();
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_never_judged_by_the_state_of_no_server() {
    let (cluster, stage) = staged(three());
    start_all(&cluster).await;
    stage.ensure(0, "/kept").await;
    for id in cluster.ids() {
        cluster.end(id, StopCause::Fails);
    }
    assert!(stage.network().agreed().is_err());
    let state = stage.final_state().await.unwrap();
    assert!(state.data("/kept").is_some());
    assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
    // Nobody starts any more.
    cluster.shut();
    assert!(stage.final_state().await.is_none());
    let failures = cluster.recorder().failures();
    assert!(
        matches!(&*failures, [what] if what.contains("do not come to rest")),
        "{failures:?}"
    );
}

/// A stage on three servers that run, and their leader.
async fn led(setup: Setup) -> (Stage, Cluster, u64) {
    let (cluster, stage) = staged(setup);
    start_all(&cluster).await;
    let leader = cluster.leader().unwrap();
    (stage, cluster, leader)
}

/// A failed hand-over lets everything go on that waits meanwhile: writes of clients of each server,
/// a handshake, and the reads behind them.
#[tokio::test(start_paused = true)]
async fn r27_a_hand_over_that_fails_leaves_no_request_unanswered() {
    let (stage, cluster, leader) = led(three()).await;
    let [to, third] = cluster
        .ids()
        .into_iter()
        .filter(|id| *id != leader)
        .collect::<Vec<_>>()[..]
    else {
        panic!("three servers");
    };
    let role = || cluster.state().seats[&leader].progress.unwrap().role;
    let mut sessions = Vec::new();
    for server in [leader, third] {
        let client = stage.client_of(server).unwrap();
        sessions.push((server, client.session().await.unwrap(), client));
    }
    let before = role();
    // Longer than a hand-over is tried for, shorter than the time after which a server is given up.
    cluster.cut(vec![(leader, to), (to, leader)], Duration::from_millis(900));
    cluster.hand_over(leader, to);
    // The leader has begun it when it comes to these.
    tokio::time::sleep(STEP).await;
    let mut requests = Vec::new();
    for (server, session, _) in &sessions {
        let path = format!("/{server}");
        let created = session.create(&path, b"", CreateMode::Persistent);
        let read = session.get_data(&path);
        let late = stage.client_of(*server).unwrap();
        requests.push(async move {
            created.await.unwrap();
            read.await.unwrap();
            late.session().await.unwrap();
        });
    }
    for request in requests {
        let answered = tokio::time::timeout(Duration::from_secs(3), request).await;
        answered.expect("an answer");
    }
    assert_eq!(role(), before, "the hand-over has failed");
    for (server, session, _) in &sessions {
        let connected = State::Connected { epoch: 1 };
        assert_eq!(session.state(), connected, "the connection to {server}");
    }
    assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
    cluster.shut();
}

/// A client that has given up waiting for one server, and goes on at another, keeps its session
/// there: what it asked of the first one in vain is not carried out afterwards.
#[tokio::test(start_paused = true)]
async fn a_handshake_whose_connection_has_ended_takes_the_session_from_no_later_one() {
    let (stage, cluster, leader) = led(three()).await;
    let alone = cluster.ids().into_iter().find(|id| *id != leader).unwrap();
    let client = stage.client_of_some(&[alone, leader]).unwrap();
    let session = client.session().await.unwrap();
    let ways = cluster.ids().into_iter().filter(|id| *id != alone);
    let ways: Vec<(u64, u64)> = ways.flat_map(|id| [(id, alone), (alone, id)]).collect();
    let (healed, heal) = tokio::sync::oneshot::channel::<()>();
    cluster.cut_until(ways, async {
        let _ = heal.await;
    });
    let epoch = || match session.state() {
        State::Connected { epoch } => epoch,
        _ => 0,
    };
    // It has been at the server that is alone again, and has left it.
    for _ in 0..20_000 {
        tokio::time::sleep(STEP).await;
    }
    let before = epoch();
    assert!(before > 0, "{:?}", session.state());
    drop(healed);
    come_to_rest(&cluster).await;
    for _ in 0..5_000 {
        tokio::time::sleep(STEP).await;
    }
    assert_eq!(epoch(), before, "the session stays where it is");
    assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
    cluster.shut();
}

/// Ten years.
const FAR_MS: i64 = 10 * 365 * 24 * 3_600_000;

/// Whichever server has the wrong clock, takes the write and leads.
#[tokio::test(start_paused = true)]
async fn one_wrong_clock_sets_no_time_of_the_ensemble() {
    for (wrong, skew_ms) in [(1, FAR_MS), (2, FAR_MS), (3, FAR_MS), (1, -FAR_MS)] {
        let (cluster, stage) = staged(three());
        cluster.state().seats.get_mut(&wrong).unwrap().skew_ms = skew_ms;
        start_all(&cluster).await;
        let begun = tokio::time::Instant::now();
        for leader in cluster.ids() {
            while let Some(before) = cluster.leader().filter(|before| *before != leader) {
                cluster.hand_over(before, leader);
                tokio::time::sleep(Duration::from_secs(2)).await;
                come_to_rest(&cluster).await;
            }
            for through in cluster.ids() {
                let client = stage.client_of(through).unwrap();
                let session = client.session().await.unwrap();
                let path = format!("/by-{leader}-through-{through}");
                let made = session.create(&path, &[], CreateMode::Persistent).await;
                made.unwrap();
            }
        }
        let passed = i64::try_from(begun.elapsed().as_millis()).unwrap();
        let possible = WALL_MS - 5_000..=WALL_MS + passed + 15_000;
        let server = cluster.state().seats[&wrong].server.clone().unwrap();
        let made: Vec<_> = server
            .nodes()
            .into_iter()
            .filter(|(path, _)| path.starts_with("/by-"))
            .collect();
        assert_eq!(made.len(), 9, "{made:?}");
        for (path, stat) in made {
            assert!(
                possible.contains(&stat.mtime),
                "s{wrong}: {path} is of {} ms",
                stat.mtime - WALL_MS
            );
        }
        assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
        cluster.shut();
    }
}

/// Three servers whose clients have written before and after the folders of some were copied. Those
/// that do not run on end, the copies are put back, and all that ended start at once.
async fn rolled_back(folders: &[u64], run_on: bool) -> (Cluster, Stage) {
    let (cluster, stage) = staged(three());
    start_all(&cluster).await;
    stage.ensure(0, "/before").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for id in folders {
        cluster.copy_folder(*id);
    }
    for number in 0..4 {
        stage.ensure(0, &format!("/after-{number}")).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ended: Vec<u64> = cluster
        .ids()
        .into_iter()
        .filter(|id| !run_on || folders.contains(id))
        .collect();
    for id in &ended {
        cluster.end(*id, StopCause::Stays);
    }
    for id in folders {
        cluster.state().put_copy_back(*id, &cluster.0);
    }
    for id in ended {
        cluster.start(id);
    }
    (cluster, stage)
}

fn has_all(cluster: &Cluster, id: u64) -> bool {
    let server = cluster.server(id).unwrap();
    (0..4).all(|number| server.data(&format!("/after-{number}")).is_some())
}

#[tokio::test(start_paused = true)]
async fn r19_one_rolled_back_folder_is_filled_again() {
    for folder in 1..=3 {
        for run_on in [false, true] {
            let (cluster, _stage) = rolled_back(&[folder], run_on).await;
            come_to_rest(&cluster).await;
            for id in cluster.ids() {
                assert!(has_all(&cluster, id), "{folder} {run_on}: {id}");
            }
            assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
            cluster.shut();
        }
    }
}

/// Nobody leads who lacks what the third server has: either that one leads, or nobody does.
#[tokio::test(start_paused = true)]
async fn r19_two_rolled_back_folders_take_nothing_from_the_third() {
    let mut healed = 0;
    for folders in [[1, 2], [1, 3], [2, 3]] {
        for run_on in [false, true] {
            let (cluster, _stage) = rolled_back(&folders, run_on).await;
            for _ in 0..20_000 {
                tokio::time::sleep(STEP).await;
                let mut leaders = cluster.ids().into_iter().filter(|id| cluster.leads(*id));
                assert!(leaders.all(|id| !folders.contains(&id) || has_all(&cluster, id)));
            }
            let third = cluster.ids().into_iter().find(|id| !folders.contains(id));
            assert!(has_all(&cluster, third.unwrap()), "{folders:?} {run_on}");
            if cluster.unrest().is_none() {
                healed += 1;
                assert!(cluster.ids().into_iter().all(|id| has_all(&cluster, id)));
            } else {
                assert_eq!(cluster.leader(), None, "{folders:?} {run_on}");
            }
            assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
            cluster.shut();
        }
    }
    assert!(healed > 0, "no run in which the third server leads");
}

/// A server that was named as rolled back knows it after another start, though the server that
/// named it is gone: with a server that lacks the entries, too, it elects nobody.
#[tokio::test(start_paused = true)]
async fn r19_a_server_that_was_rolled_back_remembers_it() {
    let (cluster, _stage) = rolled_back(&[1, 2], true).await;
    let lost = |id: u64| {
        let disk = cluster.state().seats[&id].disk.content("ACKNOWLEDGED");
        disk.is_some_and(|text| !String::from_utf8_lossy(&text).contains(" lost=0 "))
    };
    tokio::time::sleep(Duration::from_secs(10)).await;
    if cluster.leader().is_some() {
        // The third server followed when the copies were put back, and leads now.
        assert!(!lost(1) && !lost(2));
    } else {
        assert!(lost(1) || lost(2));
        cluster.end(3, StopCause::Fails);
        for id in [1, 2] {
            cluster.end(id, StopCause::Fails);
            cluster.start(id);
        }
        for _ in 0..20_000 {
            tokio::time::sleep(STEP).await;
            assert_eq!(cluster.leader(), None);
        }
    }
    assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
    cluster.shut();
}

/// Longer than a server waits for the answer to a change.
const ANSWERED_WITHIN: Duration = Duration::from_secs(75);

#[tokio::test(start_paused = true)]
async fn a_change_of_the_members_is_answered_though_leaders_are_killed() {
    let timeout = Duration::from_secs(4);
    let setup = Setup {
        spares: 1,
        ..three()
    };
    let (cluster, _ends) = Cluster::new(setup, Recorder::new(true)).unwrap();
    let network = Network::of_cluster(1, cluster.clone(), 1, timeout);
    let stage = Stage::new(network, 1, timeout, 1, Vec::new()).unwrap();
    for id in cluster.all_ids() {
        cluster.start(id);
    }
    come_to_rest(&cluster).await;
    let kills = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            if let Some(id) = cluster.leader() {
                cluster.end(id, StopCause::Stays);
                tokio::time::sleep(Duration::from_millis(300)).await;
                cluster.start(id);
            }
        }
    };
    let changes = async {
        let client = stage.operator().unwrap();
        for round in 0..8 {
            let joining = match round % 2 {
                0 => vec!["server.4=p4:1:1:participant;s4:1".parse().unwrap()],
                _ => Vec::new(),
            };
            let leaving = Vec::from_iter(joining.is_empty().then_some(4));
            let change = MembershipChange::Incremental { joining, leaving };
            let asked = async {
                let session = client.session().await.unwrap();
                // What comes of it depends on who leads when.
                let _ = session.change_members(&change, None).await;
            };
            let answered = tokio::time::timeout(ANSWERED_WITHIN, asked).await;
            assert!(answered.is_ok(), "{change:?} in round {round}");
        }
    };
    tokio::select! {
        () = changes => {}
        () = kills => {}
    }
    assert_eq!(cluster.recorder().failures(), [] as [String; 0]);
    cluster.shut();
}

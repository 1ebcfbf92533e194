//! Hazards that need several servers: three Batons, and three Apache ZooKeepers
//! (`docs/internals/hazards.md` §2.8).
//!
//! Where ZooKeeper is not installed, its tests say so and pass.
#![allow(clippy::print_stderr)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use baton::{Client, Config, Mutex};
use baton_testkit::{Direction, Ensemble, Target, zookeeper_or_skip};

use crate::common::{TICK, within};

/// The session timeout of a holder that is to lose its lock.
const HOLDER: Duration = Duration::from_millis(1600);

async fn connect(addr: SocketAddr, timeout: Duration) -> Client {
    let config = Config::new(&addr.to_string())
        .unwrap()
        .session_timeout(timeout);
    within(Client::connect(config)).await.unwrap()
}

async fn leader(ensemble: &Ensemble) -> usize {
    within(async {
        loop {
            if let Some(leader) = ensemble.leader().await {
                return leader;
            }
            tokio::time::sleep(TICK).await;
        }
    })
    .await
}

/// Three servers; `None` where they are not installed.
async fn three(target: Target) -> Option<Ensemble> {
    if target == Target::ZooKeeper && !zookeeper_or_skip() {
        return None;
    }
    Some(within(Ensemble::start(target, 3)).await.unwrap())
}

/// A lock is held at the server `cut_off` when that is cut off in these directions, and another
/// waits for it at the server `healthy`.
async fn hold_while_cut_off(
    ensemble: &Ensemble,
    path: &str,
    (cut_off, healthy): (usize, usize),
    directions: &[Direction],
) {
    let holder = connect(ensemble.servers()[cut_off].addr(), HOLDER).await;
    let guard = within(Mutex::new(&holder, path).unwrap().acquire())
        .await
        .unwrap();
    let waiter = connect(ensemble.servers()[healthy].addr(), Duration::from_secs(20)).await;
    let next = Mutex::new(&waiter, path).unwrap();
    let granted = tokio::spawn(async move {
        let guard = next.acquire().await.unwrap();
        (Instant::now(), guard)
    });
    tokio::time::sleep(2 * TICK).await;

    let cut = Instant::now();
    for direction in directions {
        ensemble.set_cut_one_way(cut_off, *direction, true);
    }
    within(guard.lost()).await;
    let ended = Instant::now();
    let (granted, next) = within(granted).await.unwrap();
    assert!(
        ended < granted,
        "two held at once: lost after {:?}, granted after {:?}, cut: {directions:?}",
        ended - cut,
        granted - cut
    );
    drop(next);
    for direction in directions {
        ensemble.set_cut_one_way(cut_off, *direction, false);
    }
    // It takes part again before the next round.
    within(connect(ensemble.servers()[cut_off].addr(), HOLDER)).await;
}

#[tokio::test]
async fn h91_a_holder_on_a_follower_that_is_cut_off_ends_before_the_next_grant() {
    let Some(ensemble) = three(Target::ZooKeeper).await else {
        return;
    };
    let leader = leader(&ensemble).await;
    let (follower, healthy) = ((leader + 1) % 3, (leader + 2) % 3);
    for round in 0..3 {
        let path = format!("/h91-{round}");
        hold_while_cut_off(&ensemble, &path, (follower, healthy), &Direction::BOTH).await;
        assert_eq!(self::leader(&ensemble).await, leader, "another leads now");
    }
}

/// Both ways, and one way each.
const CUTS: [&[Direction]; 3] = [
    &Direction::BOTH,
    &[Direction::Outgoing],
    &[Direction::Incoming],
];

#[tokio::test]
async fn h91_r33_a_holder_on_a_baton_that_follows_and_is_cut_off_ends_before_the_next_grant() {
    let Some(ensemble) = three(Target::Baton).await else {
        return;
    };
    for (round, cut) in CUTS.into_iter().enumerate() {
        let leader = within(ensemble.wait_leader()).await.unwrap();
        let (follower, healthy) = ((leader + 1) % 3, (leader + 2) % 3);
        let path = format!("/h91-{round}");
        hold_while_cut_off(&ensemble, &path, (follower, healthy), cut).await;
    }
}

#[tokio::test]
async fn h91_r33_a_holder_on_a_baton_that_leads_and_is_cut_off_ends_before_the_next_grant() {
    let Some(ensemble) = three(Target::Baton).await else {
        return;
    };
    for (round, cut) in CUTS.into_iter().enumerate() {
        let leader = within(ensemble.wait_leader()).await.unwrap();
        let path = format!("/h91-{round}");
        hold_while_cut_off(&ensemble, &path, (leader, (leader + 1) % 3), cut).await;
    }
}

/// Has the leader lose its quorum, or gain it again. The followers then hear nobody: paused as
/// ZooKeepers, cut off as Batons, which run in this process.
fn set_quorum_lost(ensemble: &Ensemble, followers: &[usize], lost: bool) {
    for index in followers {
        let server = &ensemble.servers()[*index];
        match server.target() {
            Target::ZooKeeper if lost => server.pause().unwrap(),
            Target::ZooKeeper => server.resume().unwrap(),
            Target::Baton => ensemble.set_cut_off(*index, lost),
        }
    }
}

async fn hold_while_the_quorum_is_lost(ensemble: &Ensemble) {
    let leader = leader(ensemble).await;
    let followers: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    let path = "/h91-quorum";
    let holder = connect(ensemble.servers()[leader].addr(), HOLDER).await;
    let guard = within(Mutex::new(&holder, path).unwrap().acquire())
        .await
        .unwrap();
    let waiter = connect(
        ensemble.servers()[followers[0]].addr(),
        Duration::from_secs(40),
    )
    .await;
    let next = Mutex::new(&waiter, path).unwrap();
    let granted = tokio::spawn(async move {
        let guard = next.acquire().await.unwrap();
        (Instant::now(), guard)
    });
    tokio::time::sleep(2 * TICK).await;
    set_quorum_lost(ensemble, &followers, true);
    within(guard.lost()).await;
    let ended = Instant::now();
    // Its client comes back as soon as there is a quorum; the session that it would come back with
    // has to be over.
    within(holder.close_timeout(Duration::ZERO))
        .await
        .unwrap_err();
    set_quorum_lost(ensemble, &followers, false);
    let (granted, _next) = within(granted).await.unwrap();
    assert!(ended < granted, "two held at once");
}

#[tokio::test]
async fn h91_a_holder_on_a_leader_that_lost_its_quorum_ends_before_the_next_grant() {
    if let Some(ensemble) = three(Target::ZooKeeper).await {
        hold_while_the_quorum_is_lost(&ensemble).await;
    }
}

#[tokio::test]
async fn h91_r09_a_holder_on_a_baton_that_lost_its_quorum_ends_before_the_next_grant() {
    if let Some(ensemble) = three(Target::Baton).await {
        hold_while_the_quorum_is_lost(&ensemble).await;
    }
}

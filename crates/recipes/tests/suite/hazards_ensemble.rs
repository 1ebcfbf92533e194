//! Hazards that need several servers: a real ensemble of Apache ZooKeeper
//! (`docs/internals/hazards.md` §2.8).
//!
//! Where ZooKeeper is not installed they say so and pass.
#![allow(clippy::print_stderr)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use baton::{Client, Config, Mutex};
use baton_testkit::{Ensemble, Target, zookeeper_or_skip};

use crate::common::{TICK, within};

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

#[tokio::test]
async fn h91_a_holder_on_a_follower_that_is_cut_off_ends_before_the_next_grant() {
    if !zookeeper_or_skip() {
        return;
    }
    let ensemble = within(Ensemble::start(Target::ZooKeeper, 3)).await.unwrap();
    let leader = leader(&ensemble).await;
    let follower = (0..3).find(|index| *index != leader).unwrap();
    let healthy = (0..3)
        .find(|index| *index != leader && *index != follower)
        .unwrap();
    for round in 0..3 {
        let path = format!("/h91-{round}");
        let timeout = Duration::from_millis(1600);
        let holder = connect(ensemble.servers()[follower].addr(), timeout).await;
        let guard = within(Mutex::new(&holder, &path).unwrap().acquire())
            .await
            .unwrap();
        let waiter = connect(ensemble.servers()[healthy].addr(), Duration::from_secs(20)).await;
        let next = Mutex::new(&waiter, &path).unwrap();
        let granted = tokio::spawn(async move {
            let guard = next.acquire().await.unwrap();
            (Instant::now(), guard)
        });
        tokio::time::sleep(2 * TICK).await;

        let cut = Instant::now();
        ensemble.set_cut_off(follower, true);
        within(guard.lost()).await;
        let ended = Instant::now();
        let (granted, next) = within(granted).await.unwrap();
        assert!(
            ended < granted,
            "two held at once: lost after {:?}, granted after {:?}",
            ended - cut,
            granted - cut
        );
        drop(next);
        ensemble.set_cut_off(follower, false);
        // It follows again before the next round.
        within(connect(ensemble.servers()[follower].addr(), timeout)).await;
        assert_eq!(self::leader(&ensemble).await, leader, "another leads now");
    }
}

#[tokio::test]
async fn h91_a_holder_on_a_leader_that_lost_its_quorum_ends_before_the_next_grant() {
    if !zookeeper_or_skip() {
        return;
    }
    let ensemble = within(Ensemble::start(Target::ZooKeeper, 3)).await.unwrap();
    let leader = leader(&ensemble).await;
    let followers: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    let path = "/h91-quorum";
    let timeout = Duration::from_millis(1600);
    let holder = connect(ensemble.servers()[leader].addr(), timeout).await;
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
    for index in &followers {
        ensemble.servers()[*index].pause().unwrap();
    }
    within(guard.lost()).await;
    let ended = Instant::now();
    // Its client comes back as soon as there is a quorum; the session that it would come back with
    // has to be over.
    within(holder.close(Duration::ZERO)).await.unwrap_err();
    for index in &followers {
        ensemble.servers()[*index].resume().unwrap();
    }
    let (granted, _next) = within(granted).await.unwrap();
    assert!(ended < granted, "two held at once");
}

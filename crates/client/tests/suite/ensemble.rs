//! Sessions on three Apache ZooKeeper servers, one of which is cut off or killed.

use std::time::Duration;

use baton_client::{Acl, Config, CreateMode, LeaseMode, LeaseOptions, OpCode, Session, State};
use baton_testkit::{Action, Ensemble, Match, Proxy, Target, Variant, zookeeper_or_skip};

const LONG: Duration = Duration::from_secs(30);

fn lease() -> LeaseOptions {
    LeaseOptions {
        tick: Some(Duration::from_millis(200)),
        mode: LeaseMode::Strict,
        ..LeaseOptions::default()
    }
}

async fn ensemble() -> Option<Ensemble> {
    if !zookeeper_or_skip() {
        return None;
    }
    Some(Ensemble::start(Target::ZooKeeper, 3).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_a_lost_create_is_found_through_a_follower_that_lags_behind() {
    let Some(ensemble) = ensemble().await else {
        return;
    };
    let leader = ensemble.leader().await.unwrap();
    let followers: Vec<usize> = (0..3).filter(|i| *i != leader).collect();
    let first = Proxy::start(ensemble.servers()[followers[0]].addr())
        .await
        .unwrap();
    let second = Proxy::start(ensemble.servers()[followers[1]].addr())
        .await
        .unwrap();
    second.refuse();
    let servers = format!("{},{}", first.connect_string(), second.connect_string());
    let config = Config::new(&servers)
        .unwrap()
        .session_timeout(LONG)
        .lease(lease());
    let s = Session::connect(config).await.unwrap();
    s.create("/p", b"", CreateMode::Persistent).await.unwrap();
    // The other follower stops learning; then the create is answered to nobody, and only that
    // follower can be reached.
    ensemble.set_cut_off(followers[1], true);
    let fault = first
        .on(Match::reply(OpCode::Create2))
        .then(Action::Cut(Variant::Rst));
    first.refuse();
    second.heal();
    let before = second.accepted();
    let s2 = s.clone();
    let create = tokio::spawn(async move {
        let open = [Acl::open_unsafe()];
        s2.create_protected("/p", "_c_x-", b"", CreateMode::EphemeralSequential, &open)
            .await
    });
    fault.fired().await;
    second.wait_accepted(before + 1).await;
    ensemble.set_cut_off(followers[1], false);
    let made = create.await.unwrap().unwrap();
    s.sync("/").await.unwrap();
    let names = s.children("/p").await.unwrap().names;
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(made.path, format!("/p/{}", names[0]));
    assert_eq!(made.stat.ephemeral_owner, s.id());
    s.close(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h32_a_session_survives_the_death_of_the_leader_with_its_nodes_and_watches() {
    let Some(mut ensemble) = ensemble().await else {
        return;
    };
    let servers = ensemble.connect_string();
    let config = Config::new(&servers)
        .unwrap()
        .session_timeout(LONG)
        .lease(lease());
    let s = Session::connect(config.clone()).await.unwrap();
    let _hold = s.hold_lease().await.unwrap();
    let made = s.create("/e", b"", CreateMode::Ephemeral).await.unwrap();
    let (_, watch) = s.exists_watch("/later").await.unwrap();
    let mut states = s.states();
    let leader = ensemble.leader().await.unwrap();
    ensemble.servers_mut()[leader].kill();
    // A new leader drops the connections of its time as a follower, so the session loses its own
    // whichever it was on.
    assert_eq!(states.next().await, Some(State::Suspended));
    assert!(
        s.lease().is_valid(),
        "the timeout is long enough for an election"
    );
    assert_eq!(
        s.exists("/e").await.unwrap().unwrap().czxid,
        made.stat.czxid
    );
    let other = Session::connect(config).await.unwrap();
    other
        .create("/later", b"", CreateMode::Persistent)
        .await
        .unwrap();
    watch.await.unwrap();
    // The lease is renewed by the new leader.
    let deadline = s.lease().deadline;
    while s.lease().deadline <= deadline {
        assert!(s.lease().is_valid());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    s.close(LONG).await.unwrap();
    other.close(LONG).await.unwrap();
}

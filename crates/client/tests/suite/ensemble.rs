//! Sessions on three servers, one of which is cut off or killed: on Batons, and on Apache
//! ZooKeepers.

use std::time::Duration;

use baton_client::{
    Acl, Config, CreateMode, LeaseMode, LeaseOptions, OpCode, Session, State, StateStream,
};
use baton_testkit::{Action, Ensemble, Match, Proxy, Target, Variant, zookeeper_or_skip};

const LONG: Duration = Duration::from_secs(30);

fn lease() -> LeaseOptions {
    LeaseOptions {
        tick: Some(Duration::from_millis(200)),
        mode: LeaseMode::Strict,
        ..LeaseOptions::default()
    }
}

fn config(servers: &str) -> Config {
    Config::new(servers)
        .unwrap()
        .session_timeout(LONG)
        .lease(lease())
}

/// Three servers; `None` where they are not installed.
async fn three(target: Target) -> Option<Ensemble> {
    if target == Target::ZooKeeper && !zookeeper_or_skip() {
        return None;
    }
    Some(Ensemble::start(target, 3).await.unwrap())
}

async fn find_a_lost_create(ensemble: Ensemble) {
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
    let s = Session::connect(config(&servers)).await.unwrap();
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
    s.close_timeout(LONG).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_a_lost_create_is_found_through_a_follower_that_lags_behind() {
    if let Some(ensemble) = three(Target::ZooKeeper).await {
        find_a_lost_create(ensemble).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h02_r32_a_lost_create_is_found_through_a_baton_that_lags_behind() {
    if let Some(ensemble) = three(Target::Baton).await {
        find_a_lost_create(ensemble).await;
    }
}

/// Has a session live through the death of the leader, with a node and a watch. `see_the_death`
/// waits for what the session notices of it.
async fn live_on(
    mut ensemble: Ensemble,
    leader: usize,
    s: Session,
    other: Config,
    see_the_death: impl AsyncFnOnce(StateStream),
) {
    let _hold = s.hold_lease().await.unwrap();
    let made = s.create("/e", b"", CreateMode::Ephemeral).await.unwrap();
    let (_, watch) = s.exists_watch("/later").await.unwrap();
    let states = s.states();
    ensemble.servers_mut()[leader].kill();
    see_the_death(states).await;
    assert!(
        s.lease().is_valid(),
        "the timeout is long enough for an election"
    );
    assert_eq!(
        s.exists("/e").await.unwrap().unwrap().czxid,
        made.stat.czxid
    );
    let other = Session::connect(other).await.unwrap();
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
    s.close_timeout(LONG).await.unwrap();
    other.close_timeout(LONG).await.unwrap();
}

async fn is_suspended(mut states: StateStream) {
    assert_eq!(states.next().await, Some(State::Suspended));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h32_a_session_survives_the_death_of_the_leader_with_its_nodes_and_watches() {
    let Some(ensemble) = three(Target::ZooKeeper).await else {
        return;
    };
    let config = config(&ensemble.connect_string());
    let s = Session::connect(config.clone()).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    // A new leader drops the connections of its time as a follower, so the session loses its own
    // whichever it was on.
    live_on(ensemble, leader, s, config, is_suspended).await;
}

/// A session on three Batons that is connected to the one with this index.
async fn session_at(ensemble: &Ensemble, index: usize) -> (Session, Vec<Proxy>) {
    let mut doors = Vec::new();
    for server in ensemble.servers() {
        doors.push(Proxy::start(server.addr()).await.unwrap());
    }
    for (other, door) in doors.iter().enumerate() {
        if other != index {
            door.refuse();
        }
    }
    let servers: Vec<String> = doors.iter().map(Proxy::connect_string).collect();
    let s = Session::connect(config(&servers.join(","))).await.unwrap();
    for door in &doors {
        door.heal();
    }
    (s, doors)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h32_a_session_survives_the_death_of_the_baton_that_it_is_connected_to() {
    let ensemble = three(Target::Baton).await.unwrap();
    let leader = ensemble.wait_leader().await.unwrap();
    let (s, _doors) = session_at(&ensemble, leader).await;
    let other = config(&ensemble.connect_string());
    live_on(ensemble, leader, s, other, is_suspended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h32_r27_a_session_on_a_baton_survives_the_death_of_the_leader() {
    let ensemble = three(Target::Baton).await.unwrap();
    let leader = ensemble.wait_leader().await.unwrap();
    let (s, _doors) = session_at(&ensemble, (leader + 1) % 3).await;
    let other = config(&ensemble.connect_string());
    // It may keep its connection, and notice nothing but a pause.
    live_on(ensemble, leader, s, other, async |_| {}).await;
}

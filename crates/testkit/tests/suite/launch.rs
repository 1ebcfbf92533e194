//! The launchers against real servers: start, kill, restart with the same data, pause.

use std::time::Duration;

use baton_proto::{Acl, Create, CreateMode, Request};
use baton_testkit::{
    Direction, Ensemble, LaunchError, RawClient, ServerOptions, Target, TestServer, baton_binary,
    inspect, skip, zookeeper_or_skip,
};

const SESSION: Duration = Duration::from_secs(10);

async fn keeps_data_over_a_kill(server: &mut TestServer) {
    let mut client = RawClient::connect(server.addr(), SESSION).await.unwrap();
    let create = Create::new(
        "/kept",
        Some(b"x"),
        vec![Acl::open_unsafe()],
        CreateMode::Persistent,
    );
    client.call(&Request::Create(create)).await.unwrap();
    server.kill();
    assert!(client.call(&Request::Ping).await.is_err());
    server.restart().await.unwrap();
    let kept = inspect::children(server.addr(), "/").await.unwrap();
    assert!(
        kept.iter()
            .any(|node| node.path == "/kept" && node.data.as_deref() == Some(b"x"))
    );
}

async fn says_nothing_while_paused(server: &TestServer) {
    server.pause().unwrap();
    let ask = inspect::srvr(server.addr(), "Mode");
    let silent = tokio::time::timeout(Duration::from_millis(300), ask).await;
    assert!(silent.is_err(), "a paused server answers nothing");
    server.resume().unwrap();
    let mode = inspect::srvr(server.addr(), "Mode").await.unwrap();
    assert_eq!(mode.as_deref(), Some("standalone"));
}

#[tokio::test]
async fn an_embedded_server_keeps_data_over_a_kill() {
    let mut server = TestServer::start(Target::Baton).await.unwrap();
    keeps_data_over_a_kill(&mut server).await;
    assert!(matches!(server.pause(), Err(LaunchError::NoProcess(_))));
    server.stop().await.unwrap();
    server.restart().await.unwrap();
    assert_eq!(server.pid(), None);
}

#[tokio::test]
async fn a_baton_process_keeps_data_over_a_kill() {
    // The command belongs to another package, so it may not be built yet when this runs alone.
    if let Err(error) = baton_binary() {
        skip("baton", &error.to_string());
        return;
    }
    let options = ServerOptions::default();
    let mut server = TestServer::start_process(Target::Baton, options)
        .await
        .unwrap();
    keeps_data_over_a_kill(&mut server).await;
    says_nothing_while_paused(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn zookeeper_keeps_data_over_a_kill() {
    if !zookeeper_or_skip() {
        return;
    }
    let options = ServerOptions::default();
    let mut server = TestServer::start_process(Target::ZooKeeper, options)
        .await
        .unwrap();
    keeps_data_over_a_kill(&mut server).await;
    says_nothing_while_paused(&server).await;
    server.stop().await.unwrap();
    assert_eq!(server.pid(), None);
}

async fn another_leads_after_a_kill(mut ensemble: Ensemble) {
    let leader = ensemble.leader().await.unwrap();
    ensemble.servers_mut()[leader].kill();
    assert!(!ensemble.servers()[leader].runs());
    let next = ensemble.wait_leader().await.unwrap();
    assert_ne!(leader, next);
    ensemble.servers_mut()[leader].restart().await.unwrap();
    ensemble.wait_leader().await.unwrap();
}

#[tokio::test]
async fn another_zookeeper_leads_after_a_kill() {
    if !zookeeper_or_skip() {
        return;
    }
    let ensemble = Ensemble::start(Target::ZooKeeper, 3).await.unwrap();
    another_leads_after_a_kill(ensemble).await;
}

#[tokio::test]
async fn another_embedded_baton_leads_after_a_kill() {
    let ensemble = Ensemble::start(Target::Baton, 3).await.unwrap();
    another_leads_after_a_kill(ensemble).await;
}

#[tokio::test]
async fn another_baton_process_leads_after_a_kill() {
    if let Err(error) = baton_binary() {
        skip("baton", &error.to_string());
        return;
    }
    let options = ServerOptions {
        wires: None,
        ..ServerOptions::default()
    };
    let ensemble = Ensemble::start_processes(Target::Baton, 3, options)
        .await
        .unwrap();
    another_leads_after_a_kill(ensemble).await;
}

/// Waits until a server other than `index` leads.
async fn await_leader_but(ensemble: &Ensemble, index: usize) {
    let others = || ensemble.servers().iter().enumerate();
    loop {
        for (_, server) in others().filter(|(other, _)| *other != index) {
            let mode = inspect::srvr(server.addr(), "Mode").await;
            if mode.unwrap().as_deref() == Some("leader") {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn r07_a_leader_that_is_cut_off_either_way_is_replaced_and_comes_back() {
    let ensemble = Ensemble::start(Target::Baton, 3).await.unwrap();
    for cut in [
        &Direction::BOTH[..],
        &[Direction::Outgoing],
        &[Direction::Incoming],
    ] {
        let leader = ensemble.wait_leader().await.unwrap();
        for direction in cut {
            ensemble.set_cut_one_way(leader, *direction, true);
        }
        await_leader_but(&ensemble, leader).await;
        for direction in cut {
            ensemble.set_cut_one_way(leader, *direction, false);
        }
    }
    ensemble.wait_leader().await.unwrap();
}

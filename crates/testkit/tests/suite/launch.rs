//! The launchers against real servers: start, kill, restart with the same data, pause.

use std::time::Duration;

use baton_proto::{Acl, Create, CreateMode, Request};
use baton_testkit::{
    Ensemble, LaunchError, RawClient, ServerOptions, Target, TestServer, baton_binary, inspect,
    skip, zookeeper_or_skip,
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

#[tokio::test]
async fn an_ensemble_elects_another_leader() {
    if !zookeeper_or_skip() {
        return;
    }
    let mut ensemble = Ensemble::start(Target::ZooKeeper, 3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    ensemble.servers_mut()[leader].kill();
    let next = loop {
        if let Some(next) = ensemble.leader().await {
            break next;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_ne!(leader, next);
    ensemble.servers_mut()[leader].restart().await.unwrap();
}

//! The launchers against real servers: start, kill, restart with the same data, pause.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use std::time::Duration;

use baton_proto::{Acl, Create, CreateMode, Request};
use baton_testkit::{Ensemble, RawClient, Target, TestServer, inspect};

const SESSION: Duration = Duration::from_secs(10);

async fn keeps_data_over_a_kill(target: Target) {
    let mut server = TestServer::start(target).await.unwrap();
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

    server.pause().unwrap();
    let silent = tokio::time::timeout(
        Duration::from_millis(300),
        inspect::srvr(server.addr(), "Mode"),
    );
    assert!(silent.await.is_err(), "a paused server answers nothing");
    server.resume().unwrap();
    assert_eq!(
        inspect::srvr(server.addr(), "Mode")
            .await
            .unwrap()
            .as_deref(),
        Some("standalone")
    );
    server.stop().await.unwrap();
    assert_eq!(server.pid(), None);
}

#[tokio::test]
async fn zookeeper_keeps_data_over_a_kill() {
    keeps_data_over_a_kill(Target::ZooKeeper).await;
}

#[tokio::test]
async fn an_ensemble_elects_another_leader() {
    let mut ensemble = Ensemble::start(3).await.unwrap();
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

//! The client that outlives its sessions: how long it tries for the next one, and what ends that.

use std::time::Duration;

use baton_client::{Client, Clock, ConnectError, State};

use crate::support::{FakeServers, SESSION, T};

/// A client whose session was lost because its only server is gone.
async fn bereft(world: &mut FakeServers, new_session_within: Option<Duration>) -> Client {
    let mut config = world.config().connect_within(2 * T);
    if let Some(limit) = new_session_within {
        config = config.new_session_within(limit);
    }
    let connecting = tokio::spawn(Client::connect(config));
    let peer = world.accept(SESSION).await;
    let client = connecting.await.unwrap().unwrap();
    let session = client.session().await.unwrap();
    world.transport.refuse(true);
    drop(peer);
    session.ended().await;
    assert_eq!(session.state(), State::Expired);
    let newest = client.newest().expect("the lost one");
    assert!(newest.is_same(&session));
    assert!(newest.unanswered_for() >= T);
    client
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_is_replaced_after_an_outage_of_any_length_if_asked_for() {
    let mut world = FakeServers::new();
    let client = bereft(&mut world, Some(Duration::MAX)).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.session().await }
    });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!waiting.is_finished(), "given up");
    world.transport.refuse(false);
    let _peer = world.accept(SESSION + 1).await;
    let session = waiting.await.unwrap().unwrap();
    assert_eq!(session.id(), SESSION + 1);
    assert!(
        client
            .newest()
            .is_some_and(|newest| newest.is_same(&session))
    );
}

#[tokio::test(start_paused = true)]
async fn the_close_of_a_client_ends_its_search_for_a_session() {
    let mut world = FakeServers::new();
    let client = bereft(&mut world, Some(Duration::MAX)).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.session().await.map(drop) }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    client.close().await.unwrap();
    assert_eq!(waiting.await.unwrap(), Err(ConnectError::Closed));
    assert!(client.newest().is_none());
    assert_eq!(client.session().await.map(drop), Err(ConnectError::Closed));
}

#[tokio::test(start_paused = true)]
async fn without_that_a_new_session_has_the_limit_of_the_first() {
    let mut world = FakeServers::new();
    let client = bereft(&mut world, None).await;
    let begun = world.clock.now();
    let error = client.session().await.map(drop).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
    assert!(world.clock.now().saturating_duration_since(begun) >= 2 * T);
}

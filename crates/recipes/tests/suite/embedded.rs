//! The embedded server as a test of an application uses it: sessions that expire, a server that
//! stops answering, a restart.
#![cfg(feature = "embedded")]

use std::time::Duration;

use baton::embedded::{Embedded, EmbeddedBuilder, EmbeddedError};
use baton::tree::CreateMode;
use baton::{Client, Guard, LostReason, Mutex};

use crate::common::within;

fn quick() -> EmbeddedBuilder {
    Embedded::builder()
        .tick(Duration::from_millis(50))
        .min_session_timeout(Duration::from_millis(200))
}

async fn hold(client: &Client) -> Guard {
    let mutex = Mutex::new(client, "/report").unwrap();
    within(mutex.acquire()).await.unwrap()
}

/// An application: it writes while it holds the lock, and stops where it is lost.
async fn application(client: Client) -> Result<(), baton::Error> {
    let guard = Mutex::new(&client, "/report")?.acquire().await?;
    let work = async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    guard.run(work).await?;
    Ok(())
}

#[tokio::test]
async fn a_holder_whose_session_is_expired_stops_and_the_next_one_holds() {
    let server = within(quick().start()).await.unwrap();
    let program = server.connect().await.unwrap();
    let session = within(program.session()).await.unwrap();
    let work = tokio::spawn(application(program));
    let locks = within(server.client().session()).await.unwrap();
    within(async {
        while locks.children("/report").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let next = Mutex::new(server.client(), "/report").unwrap();
    let mut next = tokio::spawn(async move { next.acquire().await });
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut next)
            .await
            .is_err()
    );
    within(server.expire(session.id())).await.unwrap();
    let outcome = within(work).await.unwrap();
    assert!(
        matches!(outcome, Err(baton::Error::Lost(LostReason::SessionLost))),
        "{outcome:?}"
    );
    let guard = within(next).await.unwrap().unwrap();
    within(guard.release()).await.unwrap();
    let again = within(server.expire(session.id())).await;
    assert!(matches!(again, Err(EmbeddedError::NoSession(id)) if id == session.id()));
    within(server.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_paused_server_answers_nothing_and_goes_on_where_it_was() {
    let server = within(quick().start()).await.unwrap();
    let guard = hold(server.client()).await;
    server.pause().await;
    server.pause().await;
    let mut asked = tokio::spawn(guard.session().sync("/"));
    // Further connections are accepted, by the system, and get no answer.
    let connecting = server.connect();
    let moment = Duration::from_millis(300);
    assert!(tokio::time::timeout(moment, connecting).await.is_err());
    let unanswered = tokio::time::timeout(Duration::from_millis(1), &mut asked).await;
    assert!(unanswered.is_err());
    server.resume();
    within(asked).await.unwrap().unwrap();
    assert_eq!(guard.check(), Ok(()));
    within(guard.release()).await.unwrap();
    within(server.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_guard_ends_by_its_lease_while_the_server_is_paused() {
    let server = quick().client(|config| config.session_timeout(Duration::from_millis(800)));
    let server = within(server.start()).await.unwrap();
    let guard = hold(server.client()).await;
    server.pause().await;
    assert_eq!(within(guard.lost()).await, LostReason::LeaseEnded);
    server.resume();
    let next = hold(server.client()).await;
    within(next.release()).await.unwrap();
    within(server.shutdown()).await.unwrap();
}

#[tokio::test]
async fn a_restart_keeps_the_port_the_data_the_sessions_and_the_guards() {
    let folder = std::env::temp_dir().join(format!("baton-{}", uuid::Uuid::new_v4().simple()));
    for builder in [quick(), quick().data_dir(&folder)] {
        let mut server = within(builder.start()).await.unwrap();
        let to = server.connect_string();
        let session = within(server.client().session()).await.unwrap();
        let created = session.create("/kept", b"data", CreateMode::Persistent);
        within(created).await.unwrap();
        let guard = hold(server.client()).await;
        server.pause().await;
        within(server.restart()).await.unwrap();
        within(server.restart()).await.unwrap();
        assert_eq!(server.connect_string(), to);
        within(session.sync("/")).await.unwrap();
        let kept = within(session.get_data("/kept")).await.unwrap();
        assert_eq!(&kept.data[..], b"data");
        assert_eq!(guard.check(), Ok(()));
        within(guard.release()).await.unwrap();
        within(server.shutdown()).await.unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn the_settings_are_those_of_the_builder() {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let server = quick()
        .in_memory()
        .port(port)
        .max_session_timeout(Duration::from_millis(700))
        .client(|config| config.session_timeout(Duration::from_secs(30)));
    let server = within(server.start()).await.unwrap();
    assert_eq!(server.connect_string(), format!("127.0.0.1:{port}"));
    let session = within(server.client().session()).await.unwrap();
    assert_eq!(session.timeout(), Duration::from_millis(700));
    let taken = within(quick().port(port).start()).await;
    assert!(matches!(taken, Err(EmbeddedError::Start(_))), "{taken:?}");
    let wrong = quick().min_session_timeout(Duration::from_millis(1));
    let wrong = within(wrong.start()).await.unwrap_err();
    assert!(wrong.to_string().contains("min_session_timeout"), "{wrong}");
}

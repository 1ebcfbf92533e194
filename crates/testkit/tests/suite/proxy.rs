//! The proxy against a real server: each kind of fault happens at the frame it names, and nowhere
//! else.

use std::time::Duration;

use baton_proto::{Acl, Create, CreateMode, EventKind, OpCode, Request, Response};
use baton_testkit::proxy::Direction;
use baton_testkit::{
    Action, Match, Proxy, RawClient, RawError, Target, TestServer, Variant, inspect,
    zookeeper_or_skip,
};
use tokio::time::timeout;

const SESSION: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(20);

/// Long enough to see that nothing comes.
const SHORT: Duration = Duration::from_millis(200);

fn create(path: &str) -> Request<'_> {
    Request::Create(Create::new(
        path,
        Some(b""),
        vec![Acl::open_unsafe()],
        CreateMode::Persistent,
    ))
}

async fn exists(server: &TestServer, path: &str) -> bool {
    inspect::children(server.addr(), "/")
        .await
        .unwrap()
        .iter()
        .any(|node| node.path == path)
}

async fn until_exists(server: &TestServer, path: &str) {
    timeout(LONG, async {
        while !exists(server, path).await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn faults_happen_where_the_script_says_with_baton() {
    faults_happen_where_the_script_says(Target::Baton).await;
}

#[tokio::test]
async fn faults_happen_where_the_script_says_with_zookeeper() {
    if zookeeper_or_skip() {
        faults_happen_where_the_script_says(Target::ZooKeeper).await;
    }
}

/// One server for all of it: starting a JVM is what costs.
async fn faults_happen_where_the_script_says(target: Target) {
    let server = TestServer::start(target).await.unwrap();
    cut_before_a_request_means_it_was_never_seen(&server).await;
    cut_before_a_reply_means_it_was_applied(&server).await;
    cut_after_a_request_means_it_was_applied(&server).await;
    only_the_nth_frame_is_meant(&server).await;
    a_held_reply_waits_for_its_release(&server).await;
    an_event_can_be_held_back_alone(&server).await;
    a_black_hole_notifies_nobody_and_delivers_when_healed(&server).await;
    one_direction_goes_dark_alone(&server).await;
    the_server_may_believe_in_a_dead_connection(&server).await;
    refused_connections_are_reset(&server).await;
    four_letter_words_pass(&server).await;
}

async fn through(server: &TestServer) -> (Proxy, RawClient) {
    let proxy = Proxy::start(server.addr()).await.unwrap();
    let client = RawClient::connect(proxy.addr(), SESSION).await.unwrap();
    (proxy, client)
}

async fn cut_before_a_request_means_it_was_never_seen(server: &TestServer) {
    for variant in [Variant::Rst, Variant::Fin] {
        let (proxy, mut client) = through(server).await;
        let fault = proxy
            .on(Match::request(OpCode::Create2))
            .then(Action::Cut(variant));
        let outcome = timeout(LONG, client.call(&create("/never"))).await.unwrap();
        match variant {
            Variant::Fin => assert!(matches!(outcome, Err(RawError::Closed)), "{outcome:?}"),
            _ => assert!(matches!(outcome, Err(RawError::Io(_))), "{outcome:?}"),
        }
        assert_eq!(fault.fired().await.path.as_deref(), Some("/never"));
        drop(client);
        timeout(LONG, proxy.wait_live(0)).await.unwrap();
        assert!(!exists(server, "/never").await);
    }
}

async fn cut_before_a_reply_means_it_was_applied(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    let fault = proxy
        .on(Match::reply(OpCode::Create2))
        .then(Action::Cut(Variant::Rst));
    assert!(client.call(&create("/applied")).await.is_err());
    assert_eq!(fault.times(), 1);
    assert!(exists(server, "/applied").await);
}

async fn cut_after_a_request_means_it_was_applied(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    let _ = proxy
        .on(Match::request(OpCode::Create2))
        .then(Action::ForwardThenCut(Variant::Fin));
    assert!(client.call(&create("/sent")).await.is_err());
    until_exists(server, "/sent").await;
}

async fn only_the_nth_frame_is_meant(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    let fault = proxy
        .on(Match::reply(OpCode::Exists).path_contains("nth").nth(3))
        .then(Action::Cut(Variant::Rst));
    let other = Request::Exists {
        path: "/other",
        watch: false,
    };
    let meant = Request::Exists {
        path: "/nth",
        watch: false,
    };
    for request in [&meant, &other, &meant, &other] {
        assert!(matches!(
            client.call(request).await,
            Err(RawError::Rejected(_))
        ));
    }
    assert_eq!(fault.times(), 0);
    assert!(!matches!(
        client.call(&meant).await,
        Err(RawError::Rejected(_))
    ));
    assert_eq!(fault.times(), 1);
    assert_eq!(proxy.count(&Match::request(OpCode::Exists)), 5);
    assert_eq!(proxy.count(&Match::connect_response()), 1);
}

async fn a_held_reply_waits_for_its_release(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    let fault = proxy.on(Match::reply(OpCode::Sync)).then(Action::Hold);
    client.send(&Request::Sync { path: "/" }).await.unwrap();
    fault.fired().await;
    assert!(timeout(SHORT, client.receive()).await.is_err());
    fault.release();
    assert_eq!(
        client.receive_response().await.unwrap().1,
        Response::Path("/".to_owned())
    );
}

async fn an_event_can_be_held_back_alone(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    client.call(&create("/watched")).await.unwrap();
    client
        .call(&Request::Exists {
            path: "/watched",
            watch: true,
        })
        .await
        .unwrap();
    let event = proxy
        .on(Match::event(EventKind::NodeDeleted))
        .then(Action::Hold);
    let mut other = RawClient::connect(server.addr(), SESSION).await.unwrap();
    other
        .call(&Request::Delete {
            path: "/watched",
            version: -1,
        })
        .await
        .unwrap();
    assert_eq!(event.fired().await.path.as_deref(), Some("/watched"));
    assert!(timeout(SHORT, client.next_event()).await.is_err());
    event.release();
    let (_, event) = client.next_event().await.unwrap();
    assert_eq!(
        (event.kind, event.path.as_str()),
        (EventKind::NodeDeleted, "/watched")
    );
}

async fn a_black_hole_notifies_nobody_and_delivers_when_healed(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    proxy.partition();
    client.send(&create("/late")).await.unwrap();
    assert!(timeout(SHORT, client.receive()).await.is_err());
    let newcomer = RawClient::connect(proxy.addr(), SESSION);
    tokio::pin!(newcomer);
    assert!(timeout(SHORT, &mut newcomer).await.is_err());
    assert!(!exists(server, "/late").await);
    proxy.heal();
    assert!(matches!(
        client.receive_response().await.unwrap().1,
        Response::PathStat(..)
    ));
    newcomer.await.unwrap();

    // A client that gave up: what it had sent arrives late all the same.
    proxy.partition();
    client
        .send(&Request::Delete {
            path: "/late",
            version: -1,
        })
        .await
        .unwrap();
    drop(client);
    proxy.heal();
    timeout(LONG, async {
        while exists(server, "/late").await {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

async fn one_direction_goes_dark_alone(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    let fault = proxy
        .on(Match::request(OpCode::Create2))
        .then(Action::ForwardThenCut(Variant::BlackHoleToClient));
    client.send(&create("/deaf")).await.unwrap();
    fault.fired().await;
    until_exists(server, "/deaf").await;
    assert!(timeout(SHORT, client.receive()).await.is_err());
    proxy.heal();
    assert!(client.receive_response().await.is_ok());
}

async fn the_server_may_believe_in_a_dead_connection(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    proxy.cut_all(Variant::RstClientOnly);
    assert!(client.call(&Request::Ping).await.is_err());
    let connections = inspect::four_letter_word(server.addr(), "cons")
        .await
        .unwrap();
    let sid = format!("sid=0x{:x}", client.session().session_id);
    assert!(connections.contains(&sid), "{connections}");
    assert_eq!(proxy.live(), 1);
    proxy.heal();
    timeout(LONG, proxy.wait_live(0)).await.unwrap();
}

async fn refused_connections_are_reset(server: &TestServer) {
    let (proxy, mut client) = through(server).await;
    proxy.refuse();
    assert!(RawClient::connect(proxy.addr(), SESSION).await.is_err());
    assert_eq!(client.call(&Request::Ping).await.unwrap(), Response::Empty);
    proxy.heal();
    RawClient::connect(proxy.addr(), SESSION).await.unwrap();
    assert_eq!(proxy.accepted(), 3);
}

async fn four_letter_words_pass(server: &TestServer) {
    let proxy = Proxy::start(server.addr()).await.unwrap();
    assert_eq!(
        inspect::four_letter_word(proxy.addr(), "ruok")
            .await
            .unwrap(),
        "imok"
    );
    assert_eq!(
        inspect::four_letter_word(proxy.addr(), "isro")
            .await
            .unwrap(),
        "rw"
    );
    assert!(proxy.count(&Match::any().direction(Direction::ToClient)) > 0);
}

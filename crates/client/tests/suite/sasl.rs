//! SASL on each connection of a session: what goes out before it, what its failures mean, and that
//! servers of both kinds accept it.

use std::time::Duration;

use baton_client::{
    Acl, Client, Config, ConnectError, CreateMode, EndReason, OpCode, Perms, SaslFailure, Session,
    State,
};
use baton_proto::{ErrorCode, Response};
use baton_sasl::Server;
use baton_testkit::{Match, Proxy, ServerOptions, Target, TestServer, Variant, zookeeper_or_skip};

use crate::support::{FakeServers, Peer, ReceivedRequest, SESSION, T, settle};

const USER: &str = "bob";
const PASSWORD: &str = "secret";

fn server() -> Server {
    Server::new("zookeeper", "zk-sasl-md5", "0123abcd")
}

fn token(bytes: impl Into<Vec<u8>>) -> Response {
    Response::Sasl(Some(bytes.into().into()))
}

/// The client's next message of SASL, with its token.
async fn step(peer: &mut Peer) -> (ReceivedRequest, Vec<u8>) {
    let asked = peer.any().await.expect("the client is there");
    assert_eq!(asked.op, OpCode::Sasl, "before anything else");
    let token = match asked.request() {
        baton_proto::Request::Sasl { token } => token.unwrap_or_default().to_vec(),
        other => panic!("{other:?}"),
    };
    (asked, token)
}

/// Does the server's part of an exchange, up to what the client is to receive last.
async fn challenge(peer: &mut Peer) -> (ReceivedRequest, String) {
    let (asked, begin) = step(peer).await;
    assert!(begin.is_empty(), "DIGEST-MD5 begins with nothing");
    let server = server();
    peer.ok(&asked, Some(token(server.challenge()))).await;
    let (asked, response) = step(peer).await;
    let accepted = server.judge(&response, |user| {
        (user == USER).then(|| PASSWORD.to_owned())
    });
    (asked, accepted.unwrap().message)
}

async fn let_in(peer: &mut Peer) {
    let (asked, proof) = challenge(peer).await;
    peer.ok(&asked, Some(token(proof))).await;
}

impl FakeServers {
    fn with_user(&self) -> Config {
        self.config().sasl(USER, PASSWORD)
    }
}

#[tokio::test(start_paused = true)]
async fn each_connection_authenticates_before_anything_else_of_the_session_is_sent() {
    let mut world = FakeServers::new();
    let config = world.with_user().auth("digest", b"u:p");
    let connect = tokio::spawn(Session::connect(config));
    let mut peer = world.accept(SESSION).await;
    let_in(&mut peer).await;
    let asked = peer.any().await.unwrap();
    assert_eq!(asked.op, OpCode::Auth);
    peer.ok(&asked, None).await;
    peer.answer_next_probe().await;
    let s = connect.await.unwrap().unwrap();
    let reading = s.get_data_watch("/n");
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, Default::default()).await;
    let _watch = reading.await.unwrap();

    drop(peer);
    settle().await;
    let waiting = s.set_data("/n", b"x", None);
    let mut peer = world.accept(SESSION).await;
    let (asked, proof) = challenge(&mut peer).await;
    settle().await;
    assert_eq!(s.state(), State::Suspended, "the server has proved nothing");
    peer.ok(&asked, Some(token(proof))).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(peer.any().await.unwrap().op);
    }
    let expected = [
        OpCode::Auth,
        OpCode::SetWatches,
        OpCode::GetData,
        OpCode::SetData,
    ];
    assert_eq!(order, expected);
    assert_eq!(s.state(), State::Connected { epoch: 2 });
    drop(waiting);
}

/// The lease rests on the request for the session, however long the exchange takes.
#[tokio::test(start_paused = true)]
async fn r33_answers_of_sasl_are_no_evidence_that_the_session_lives() {
    let mut world = FakeServers::new();
    let config = world.with_user().connect_timeout(T);
    let connect = tokio::spawn(Session::connect(config));
    let mut peer = world.accept(SESSION).await;
    peer.baton = true;
    let (asked, proof) = challenge(&mut peer).await;
    tokio::time::sleep(T / 2).await;
    peer.ok(&asked, Some(token(proof))).await;
    let s = connect.await.unwrap().unwrap();
    let left = s.lease().remaining();
    assert!(left <= T / 2, "{left:?}");
}

async fn failure(world: &mut FakeServers, serve: impl AsyncFn(&mut Peer)) -> SaslFailure {
    let connect = tokio::spawn(Session::connect(world.with_user()));
    let mut peer = world.accept(SESSION).await;
    serve(&mut peer).await;
    let error = connect.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("server:1: ") && !text.contains('\n'),
        "{text}"
    );
    assert!(!text.contains(PASSWORD), "{text}");
    match error {
        ConnectError::Sasl { failure, .. } => *failure,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_failure_is_reported_as_what_it_is() {
    let mut world = FakeServers::new();
    let refused = failure(&mut world, async |peer| {
        let (asked, _) = challenge(peer).await;
        peer.refuse(&asked, ErrorCode::AuthFailed).await;
    });
    assert_eq!(refused.await, SaslFailure::WrongPassword);

    let refused = failure(&mut world, async |peer| {
        let (asked, _) = step(peer).await;
        peer.refuse(&asked, ErrorCode::AuthFailed).await;
    });
    assert_eq!(refused.await, SaslFailure::NotOffered);

    // As a ZooKeeper without SASL answers.
    let refused = failure(&mut world, async |peer| {
        let (asked, _) = step(peer).await;
        peer.ok(&asked, Some(Response::Sasl(None))).await;
    });
    assert_eq!(refused.await, SaslFailure::NotOffered);

    let refused = failure(&mut world, async |peer| {
        let (asked, _) = step(peer).await;
        peer.ok(
            &asked,
            Some(token("nonce=\"x\",algorithm=md5-sess,qop=\"auth-conf\"")),
        )
        .await;
    });
    let SaslFailure::BadChallenge(why) = refused.await else {
        panic!();
    };
    assert!(why.contains("qop"), "{why}");

    let refused = failure(&mut world, async |peer| {
        let (asked, _) = challenge(peer).await;
        peer.refuse(&asked, ErrorCode::SessionClosedRequireSaslAuth)
            .await;
    });
    let expected = SaslFailure::Refused(ErrorCode::SessionClosedRequireSaslAuth);
    assert_eq!(refused.await, expected);
}

#[tokio::test(start_paused = true)]
async fn a62_a_server_that_does_not_know_the_password_is_not_used() {
    let mut world = FakeServers::new();
    for answer in [
        Response::Sasl(None),
        token(""),
        token("rspauth=0123456789abcdef0123456789abcdef"),
        token("rspauth"),
    ] {
        let refused = failure(&mut world, async |peer| {
            let (asked, _) = challenge(peer).await;
            peer.ok(&asked, Some(answer.clone())).await;
            assert!(peer.until_gone().await.is_empty(), "nothing is sent to it");
        });
        assert_eq!(refused.await, SaslFailure::ServerUnproven, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_or_silent_within_the_exchange_is_no_refusal() {
    let mut world = FakeServers::new();
    let connect = tokio::spawn(Session::connect(world.with_user()));
    let peer = world.accept(SESSION).await;
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    let (asked, _) = challenge(&mut peer).await;
    drop(peer);
    // An answer to something else, and one that is cut off.
    let mut peer = world.accept(SESSION).await;
    let (first, _) = step(&mut peer).await;
    peer.reply(first.xid + 7, 0, Some(token("x"))).await;
    let mut silent = world.accept(SESSION).await;
    step(&mut silent).await;
    let mut peer = world.accept(SESSION).await;
    let_in(&mut peer).await;
    peer.answer_next_probe().await;
    let s = connect.await.unwrap().unwrap();
    assert_eq!(s.state(), State::Connected { epoch: 1 });
    drop((asked, silent));
}

/// It answers nothing else before, and closes the connection: on the next one, too.
#[tokio::test(start_paused = true)]
async fn a_session_without_credentials_ends_where_the_server_requires_them() {
    let mut world = FakeServers::new();
    let client = Client::lazy(world.config());
    let session = tokio::spawn({
        let client = client.clone();
        async move { client.session().await }
    });
    let mut peer = world.accept(SESSION).await;
    let s = session.await.unwrap().unwrap();
    let waiting = s.set_data("/n", b"x", None);
    let asked = peer.any().await.unwrap();
    peer.refuse(&asked, ErrorCode::SessionClosedRequireSaslAuth)
        .await;
    assert_eq!(s.ended().await, EndReason::AuthRequired);
    assert_eq!(s.state(), State::AuthFailed);
    let error = waiting.await.unwrap_err();
    assert!(error.is_session_ended() && error.had_no_effect(), "{error}");
    assert!(!error.to_string().contains("new session"), "{error}");
    assert_eq!(world.transport.attempts(), 1, "nobody asks it again");
    let error = client.session().await.unwrap_err();
    assert!(
        matches!(error, ConnectError::AuthRequired { .. }),
        "{error}"
    );
    assert_eq!(world.transport.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_user_is_refused_on_a_later_connection_ends() {
    let mut world = FakeServers::new();
    let connect = tokio::spawn(Session::connect(world.with_user()));
    let mut peer = world.accept(SESSION).await;
    let_in(&mut peer).await;
    peer.answer_next_probe().await;
    let s = connect.await.unwrap().unwrap();
    drop(peer);
    settle().await;
    let waiting = s.set_data("/n", b"x", None);
    let mut peer = world.accept(SESSION).await;
    let (asked, _) = challenge(&mut peer).await;
    peer.refuse(&asked, ErrorCode::AuthFailed).await;
    assert_eq!(s.ended().await, EndReason::AuthFailed);
    assert_eq!(s.state(), State::AuthFailed);
    assert!(!s.lease().is_valid());
    let error = waiting.await.unwrap_err();
    assert!(error.had_no_effect() && error.is_session_ended(), "{error}");
}

fn options(requires_sasl: bool) -> ServerOptions {
    ServerOptions {
        sasl_users: vec![
            (USER.to_owned(), PASSWORD.to_owned()),
            ("eve".to_owned(), "other".to_owned()),
        ],
        requires_sasl,
        ..ServerOptions::default()
    }
}

fn config(server: &str, user: &str, password: &str) -> Config {
    let config = Config::new(server).unwrap().sasl(user, password);
    config.session_timeout(Duration::from_secs(6))
}

/// The conversation with a server that has users, through a proxy that cuts the connection.
async fn use_users_of(target: Target) {
    let server = TestServer::start_with(target, options(false))
        .await
        .unwrap();
    let proxy = Proxy::start(server.addr()).await.unwrap();
    let to = proxy.connect_string();
    let bob = Session::connect(config(&to, USER, PASSWORD)).await.unwrap();
    let own = bob.with_acl(&[Acl::creator_all()]);
    own.create("/own", b"1", CreateMode::Persistent)
        .await
        .unwrap();
    let (acl, _) = bob.get_acl("/own").await.unwrap();
    assert_eq!(acl, [Acl::new(Perms::ALL, "sasl", USER)]);

    let eve = Session::connect(config(&to, "eve", "other")).await.unwrap();
    let refused = eve.get_data("/own").await.unwrap_err();
    assert!(refused.is_no_auth(), "{refused}");
    // Who has proved nothing.
    let nobody = Session::connect(Config::new(&to).unwrap()).await.unwrap();
    let refused = nobody.get_data("/own").await.unwrap_err();
    assert!(refused.is_no_auth(), "{refused}");

    // On another connection, with a watch, which is set as the user.
    let watch = bob.get_data_watch("/own").await.unwrap();
    let before = proxy.count(&Match::request(OpCode::Sasl));
    proxy.cut_all(Variant::Rst);
    // A read goes on over the next connection.
    assert_eq!(&bob.get_data("/own").await.unwrap().data[..], b"1");
    own.set_data("/own", b"2", None).await.unwrap();
    assert_eq!(&bob.get_data("/own").await.unwrap().data[..], b"2");
    assert!(bob.epoch() > 1);
    assert!(proxy.count(&Match::request(OpCode::Sasl)) >= before + 2);
    drop(watch);

    // To an unknown user, ZooKeeper 3.8 may apply the password of anyone who came before.
    for (user, password) in [(USER, "wrong"), ("nobody", "wrong")] {
        let refused = Session::connect(config(&to, user, password)).await;
        let error = refused.unwrap_err();
        let ConnectError::Sasl { failure, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(**failure, SaslFailure::WrongPassword, "{user}");
    }
}

/// A server that answers nobody who has not proved who they are by SASL.
async fn use_strict(target: Target) {
    let server = TestServer::start_with(target, options(true)).await.unwrap();
    let to = server.connect_string();
    let bob = Session::connect(config(&to, USER, PASSWORD)).await.unwrap();
    bob.create("/n", b"", CreateMode::Ephemeral).await.unwrap();
    bob.close_timeout(Duration::from_secs(5)).await.unwrap();
    let nobody = Config::new(&to).unwrap();
    let nobody = nobody.connect_within(Duration::from_secs(1));
    let served = async {
        let session = Session::connect(nobody).await.map_err(drop)?;
        let asked = session.with_deadline(Duration::from_secs(1)).exists("/");
        asked.await.map(drop).map_err(drop)
    };
    assert_eq!(served.await, Err(()));
}

async fn use_without_users(target: Target) {
    let server = TestServer::start(target).await.unwrap();
    let refused = Session::connect(config(&server.connect_string(), USER, PASSWORD)).await;
    let error = refused.unwrap_err();
    let ConnectError::Sasl { failure, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(**failure, SaslFailure::NotOffered);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_baton_has_what_acls_give_on_every_connection() {
    use_users_of(Target::Baton).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_zookeeper_has_what_acls_give_on_every_connection() {
    if zookeeper_or_skip() {
        use_users_of(Target::ZooKeeper).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_baton_that_requires_sasl_serves_its_users_alone() {
    use_strict(Target::Baton).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zookeeper_that_requires_sasl_serves_its_users_alone() {
    if zookeeper_or_skip() {
        use_strict(Target::ZooKeeper).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_baton_without_users_is_named_as_that() {
    use_without_users(Target::Baton).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zookeeper_without_users_is_named_as_that() {
    if zookeeper_or_skip() {
        use_without_users(Target::ZooKeeper).await;
    }
}

//! SASL DIGEST-MD5 as ZooKeeper's clients speak it: who proves to know a password has what ACLs
//! give to `sasl:NAME`.

use baton_proto::{
    Acl, AuthPacket, ConnectResponse, Create, CreateMode, ErrorCode, Perms, Request, Response,
};
use baton_sasl::{Client, Proof};
use baton_server::{SaslUsers, Server};

use crate::support::ensemble::Ensemble;
use crate::support::{PATIENCE, Wire, in_memory};

fn users() -> SaslUsers {
    let users = [("bob", "secret"), ("eve", "other")];
    let users = users.map(|(name, password)| (name.to_owned(), password.to_owned()));
    SaslUsers::from_iter(users)
}

async fn with_users() -> Server {
    in_memory()
        .with(|options| options.sasl_users = users())
        .start()
        .await
        .unwrap()
}

/// Sends a step of the exchange and returns its answer.
async fn step(wire: &mut Wire, token: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    match wire.call(Request::Sasl { token: Some(token) }).await? {
        Response::Sasl(token) => Ok(token.unwrap_or_default().to_vec()),
        other => panic!("{other:?}"),
    }
}

/// A response to a new challenge, and what proves that the server knows the password.
async fn response(wire: &mut Wire, user: &str, password: &str) -> (Vec<u8>, Proof) {
    let challenge = step(wire, b"").await.unwrap();
    let client = Client::of_zookeeper(user, password);
    client.respond(&challenge, "c0ffee").unwrap()
}

async fn log_in(wire: &mut Wire, user: &str, password: &str) -> Result<(), ErrorCode> {
    let (response, proof) = response(wire, user, password).await;
    let last = step(wire, &response).await?;
    proof.verify(&last).unwrap();
    Ok(())
}

/// A znode that only this user of SASL may read.
fn closed_to_others(user: &'static str) -> Request<'static> {
    let acl = vec![Acl::new(Perms::ALL, "sasl", user)];
    Request::Create(Create::new(
        "/closed",
        Some(b"x"),
        acl,
        CreateMode::Persistent,
    ))
}

#[tokio::test]
async fn who_proves_to_know_the_password_has_what_the_acl_gives() {
    let server = with_users().await;
    let to = server.connect_string();
    let mut bob = Wire::open(&to).await;
    log_in(&mut bob, "bob", "secret").await.unwrap();
    bob.call(closed_to_others("bob")).await.unwrap();
    assert_eq!(bob.get("/closed").await.unwrap(), b"x");
    let mut eve = Wire::open(&to).await;
    assert_eq!(eve.get("/closed").await, Err(ErrorCode::NoAuth));
    log_in(&mut eve, "eve", "other").await.unwrap();
    assert_eq!(eve.get("/closed").await, Err(ErrorCode::NoAuth));
    // Both at once: a connection has all identities that it has proved.
    log_in(&mut eve, "bob", "secret").await.unwrap();
    assert_eq!(eve.get("/closed").await.unwrap(), b"x");
}

#[tokio::test]
async fn a60_a_wrong_password_ends_the_connection() {
    let server = with_users().await;
    for (user, password) in [("bob", "guess"), ("nobody", "secret"), ("", "")] {
        let mut wire = Wire::open(&server.connect_string()).await;
        let refused = log_in(&mut wire, user, password).await;
        assert_eq!(refused, Err(ErrorCode::AuthFailed), "{user}");
        assert!(wire.is_closed().await);
    }
}

#[tokio::test]
async fn a61_a_response_that_was_recorded_opens_nothing() {
    let server = with_users().await;
    let mut bob = Wire::open(&server.connect_string()).await;
    let (response, _) = response(&mut bob, "bob", "secret").await;
    step(&mut bob, &response).await.unwrap();
    // Without a challenge, and with another one.
    for begins in [false, true] {
        let mut eve = Wire::open(&server.connect_string()).await;
        if begins {
            step(&mut eve, b"").await.unwrap();
        }
        assert_eq!(step(&mut eve, &response).await, Err(ErrorCode::AuthFailed));
        assert!(eve.is_closed().await);
    }
}

#[tokio::test]
async fn answers_keep_the_order_of_requests() {
    let server = with_users().await;
    let mut bob = Wire::open(&server.connect_string()).await;
    let (response, _) = response(&mut bob, "bob", "secret").await;
    // What was asked before is asked as nobody.
    bob.send(&[
        closed_to_others("eve"),
        Request::Sasl {
            token: Some(&response),
        },
        Request::GetData {
            path: "/closed",
            watch: false,
        },
    ])
    .await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        codes.push(bob.reply().await.0.error());
    }
    assert_eq!(codes, [ErrorCode::Ok, ErrorCode::Ok, ErrorCode::NoAuth]);
}

#[tokio::test]
async fn an_acl_names_sasl_only_where_there_is_sasl() {
    let server = crate::support::start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let refused = wire.call(closed_to_others("bob")).await;
    assert_eq!(refused, Err(ErrorCode::InvalidAcl));
}

#[tokio::test]
async fn a_server_that_requires_authentication_answers_nothing_before() {
    let bob = ("bob".to_owned(), "secret".to_owned());
    let server = in_memory()
        .with(|options| {
            options.sasl_users = SaslUsers::from_iter([bob]);
            options.required_schemes = vec!["sasl".to_owned()];
        })
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    for request in [exists(), Request::Ping, Request::CloseSession] {
        let mut wire = Wire::open(&to).await;
        wire.send(&[request]).await;
        let refused = wire.reply().await.0.error();
        assert_eq!(refused, ErrorCode::SessionClosedRequireSaslAuth);
        assert!(wire.is_closed().await);
    }
    // Credentials of another scheme do not do.
    let mut wire = Wire::open(&to).await;
    let digest = Request::Auth(AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(b"bob:secret"),
    });
    wire.send(&[digest, exists()]).await;
    assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    let refused = wire.reply().await.0.error();
    assert_eq!(refused, ErrorCode::SessionClosedRequireSaslAuth);
    let mut wire = Wire::open(&to).await;
    log_in(&mut wire, "bob", "secret").await.unwrap();
    assert!(wire.exists("/").await);
}

fn exists() -> Request<'static> {
    Request::Exists {
        path: "/",
        watch: false,
    }
}

/// Whether a connection that has taken the session over, and has proved to be `user` if there is
/// one, is refused everything.
async fn is_refused(to: &str, session: &ConnectResponse, user: Option<(&str, &str)>) -> bool {
    // Closed while its server knows no leader.
    let resumed = async {
        loop {
            if let Some(wire) = Wire::resume(to, session, 0).await {
                return wire;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let mut thief = tokio::time::timeout(PATIENCE, resumed).await.unwrap();
    assert_eq!(thief.session.session_id, session.session_id);
    if let Some((user, password)) = user {
        log_in(&mut thief, user, password).await.unwrap();
    }
    thief.send(&[exists()]).await;
    match thief.reply().await.0.error() {
        ErrorCode::SessionClosedRequireSaslAuth => {
            assert!(thief.is_closed().await);
            true
        }
        code => {
            assert_eq!(code, ErrorCode::Ok);
            false
        }
    }
}

#[tokio::test]
async fn a19_the_session_of_a_user_obeys_nobody_else() {
    let server = with_users().await;
    let to = server.connect_string();
    let mut bob = Wire::open(&to).await;
    log_in(&mut bob, "bob", "secret").await.unwrap();
    bob.create("/held", b"", 1).await.unwrap();
    let session = bob.session;
    // With the session's password alone.
    for request in [exists(), Request::Ping, Request::CloseSession] {
        let mut thief = Wire::resume(&to, &session, 0).await.unwrap();
        thief.send(&[request]).await;
        let refused = thief.reply().await.0.error();
        assert_eq!(refused, ErrorCode::SessionClosedRequireSaslAuth);
        assert!(thief.is_closed().await);
    }
    assert!(is_refused(&to, &session, Some(("eve", "other"))).await);
    assert!(!is_refused(&to, &session, Some(("bob", "secret"))).await);
    let mut bob = Wire::resume(&to, &session, 0).await.unwrap();
    log_in(&mut bob, "bob", "secret").await.unwrap();
    assert!(bob.exists("/held").await, "nobody has closed it");
    // Who proves to be somebody else besides does not change whose it is.
    log_in(&mut bob, "eve", "other").await.unwrap();
    assert!(is_refused(&to, &session, Some(("eve", "other"))).await);
    // A session whose client has proved nothing is taken over with its password.
    let open = Wire::open(&to).await.session;
    assert!(!is_refused(&to, &open, None).await);
}

#[tokio::test]
async fn a19_whose_a_session_is_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let start = async || {
        let builder = Server::builder().data_dir(folder.path().join("data"));
        let builder = builder.listen("127.0.0.1:0");
        let builder = builder.with(|options| {
            options.sasl_users = users();
            options.snapshot_every_entries = 5;
        });
        builder.start().await.unwrap()
    };
    let server = start().await;
    let mut bob = Wire::open(&server.connect_string()).await;
    log_in(&mut bob, "bob", "secret").await.unwrap();
    for n in 0..20 {
        bob.create(&format!("/{n}"), b"", 0).await.unwrap();
    }
    let session = bob.session;
    server.shutdown().await.unwrap();
    let server = start().await;
    let to = server.connect_string();
    assert!(is_refused(&to, &session, None).await);
    assert!(!is_refused(&to, &session, Some(("bob", "secret"))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a19_every_server_of_an_ensemble_knows_whose_a_session_is() {
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.sasl_users = users();
    ensemble.start_every().await;
    let [one, other, _] = ensemble.ids()[..] else {
        panic!("three servers");
    };
    // Once the leader has heard that each server knows the format.
    let bound = async {
        loop {
            let mut bob = ensemble.open(one).await;
            log_in(&mut bob, "bob", "secret").await.unwrap();
            let session = bob.session;
            if is_refused(&ensemble.address(other), &session, None).await {
                return session;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let session = tokio::time::timeout(PATIENCE, bound).await.unwrap();
    let to = ensemble.address(other);
    assert!(is_refused(&to, &session, Some(("eve", "other"))).await);
    assert!(!is_refused(&to, &session, Some(("bob", "secret"))).await);
    // And after all of them have started again.
    for id in 1..=3 {
        ensemble.stop(id).await;
    }
    ensemble.start_every().await;
    ensemble.leader().await;
    for id in ensemble.ids() {
        let to = ensemble.address(id);
        assert!(is_refused(&to, &session, None).await);
        assert!(is_refused(&to, &session, Some(("eve", "other"))).await);
        assert!(!is_refused(&to, &session, Some(("bob", "secret"))).await);
    }
}

//! SASL DIGEST-MD5 as ZooKeeper's clients speak it: who proves to know a password has what ACLs
//! give to `sasl:NAME`.

use baton_proto::{Acl, AuthPacket, Create, CreateMode, ErrorCode, Perms, Request, Response};
use baton_sasl::{Client, Proof};
use baton_server::{SaslUsers, Server};

use crate::support::{Wire, in_memory};

async fn with_users() -> Server {
    let users = [("bob", "secret"), ("eve", "other")];
    let users = users.map(|(name, password)| (name.to_owned(), password.to_owned()));
    in_memory()
        .with(|options| options.sasl_users = SaslUsers::from_iter(users))
        .start()
        .await
        .unwrap()
}

/// What a step of the exchange is answered with.
async fn step(wire: &mut Wire, token: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    match wire.call(Request::Sasl { token: Some(token) }).await? {
        Response::Sasl(token) => Ok(token.unwrap_or_default().to_vec()),
        other => panic!("{other:?}"),
    }
}

/// A response to a new challenge, and what proves that the server knows the password.
async fn response(wire: &mut Wire, user: &str, password: &str) -> (Vec<u8>, Proof) {
    let challenge = step(wire, b"").await.unwrap();
    let client = Client::new(user, password, "zookeeper", "zk-sasl-md5");
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
async fn a05_a_wrong_password_ends_the_connection() {
    let server = with_users().await;
    for (user, password) in [("bob", "guess"), ("nobody", "secret"), ("", "")] {
        let mut wire = Wire::open(&server.connect_string()).await;
        let refused = log_in(&mut wire, user, password).await;
        assert_eq!(refused, Err(ErrorCode::AuthFailed), "{user}");
        assert!(wire.is_closed().await);
    }
}

#[tokio::test]
async fn a05_a_response_that_was_recorded_opens_nothing() {
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
    let exists = Request::Exists {
        path: "/",
        watch: false,
    };
    for request in [exists.clone(), Request::Ping, Request::CloseSession] {
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
    wire.send(&[digest, exists.clone()]).await;
    assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    let refused = wire.reply().await.0.error();
    assert_eq!(refused, ErrorCode::SessionClosedRequireSaslAuth);
    let mut wire = Wire::open(&to).await;
    log_in(&mut wire, "bob", "secret").await.unwrap();
    assert!(wire.exists("/").await);
}

//! A client that guesses the superuser's password is counted, logged and slowed, and keeps nobody
//! else waiting.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "suite/support/mod.rs"]
mod support;

use std::sync::LazyLock;

use baton_proto::{AuthPacket, ErrorCode, Request, Response};
use baton_server::{SaslUsers, Server};

use support::http::ask;
use support::log::{LOG, lines};
use support::{PATIENCE, Wire, in_memory, word};

async fn serving() -> (Server, String) {
    LazyLock::force(&LOG);
    let server = in_memory()
        .http("127.0.0.1:0")
        .with(|options| options.super_digest = Some(baton_tree::digest_id(b"super:secret")))
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    (server, to)
}

fn auth(credentials: &str) -> Request<'_> {
    Request::Auth(AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(credentials.as_bytes()),
    })
}

async fn failed(to: &str) -> u64 {
    let mntr = word(to, "mntr").await;
    let line = mntr
        .lines()
        .find_map(|line| line.strip_prefix("zk_auth_failed_count\t"));
    line.unwrap().parse().unwrap()
}

/// Each guess on a connection of its own, all at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a01_a_thousand_wrong_passwords_of_the_superuser_are_counted_reported_and_judged_in_turns()
{
    const GUESSES: usize = 1_000;
    let begun = std::time::Instant::now();
    let (server, to) = serving().await;
    let mut somebody = Wire::open(&to).await;
    let mut guessers = Vec::new();
    for n in 0..GUESSES {
        let mut wire = Wire::open(&to).await;
        wire.send(&[auth(&format!("super:guess-{n}")), Request::WhoAmI])
            .await;
        guessers.push(wire);
        // Its session would end while a busy machine takes long to open the others.
        assert!(somebody.exists("/").await);
    }
    let mut waiting = 0;
    for wire in &mut guessers {
        // Who waits for a turn keeps nobody else waiting.
        assert!(somebody.exists("/").await);
        let next = tokio::time::timeout(std::time::Duration::from_millis(1), wire.reply()).await;
        match next {
            Ok((header, _)) => assert_eq!(header.err, 0, "none is refused unjudged"),
            Err(_) => waiting += 1,
        }
    }
    // Five at once, and ten a second while this runs.
    let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    let most = 5 + 10 * seconds;
    let judged = usize::try_from(failed(&to).await).unwrap();
    assert!(
        (5..=most).contains(&judged),
        "{judged} judged, {waiting} wait"
    );
    assert!(!lines("a wrong password for the superuser").is_empty());
    // What an address may do without the superuser's name is not slowed.
    assert_eq!(
        somebody.call(auth("user:password")).await,
        Ok(Response::Empty)
    );
    drop(server);
}

#[tokio::test]
async fn a_wrong_password_makes_a_user_of_that_name_as_in_zookeeper_and_a_right_one_is_not_slowed()
{
    let (_server, to) = serving().await;
    let before = failed(&to).await;
    let mut wire = Wire::open(&to).await;
    assert_eq!(wire.call(auth("super:guess")).await, Ok(Response::Empty));
    assert_eq!(failed(&to).await, before + 1);
    let who = |answer| match answer {
        Ok(Response::WhoAmI(who)) => who.into_iter().map(|who| who.scheme).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let schemes = who(wire.call(Request::WhoAmI).await);
    assert!(!schemes.contains(&"super".to_owned()), "{schemes:?}");
    for _ in 0..50 {
        assert_eq!(wire.call(auth("super:secret")).await, Ok(Response::Empty));
    }
    let schemes = who(wire.call(Request::WhoAmI).await);
    assert!(schemes.contains(&"super".to_owned()), "{schemes:?}");
    assert_eq!(failed(&to).await, before + 1);
}

/// Behind the credentials that wait, the connection's other requests wait, in their order.
#[tokio::test]
async fn credentials_that_wait_for_their_turn_are_judged_then_and_what_is_behind_them_is_answered()
{
    let (_server, to) = serving().await;
    let mut wire = Wire::open(&to).await;
    for _ in 0..7 {
        wire.send(&[auth("super:guess")]).await;
    }
    wire.send(&[auth("super:secret"), Request::WhoAmI]).await;
    let answers = async {
        for _ in 0..8 {
            assert_eq!(wire.reply().await.0.err, 0);
        }
        let (header, body) = wire.reply().await;
        support::decode(baton_proto::OpCode::WhoAmI, header, &body).unwrap()
    };
    let who = tokio::time::timeout(PATIENCE, answers).await.unwrap();
    assert!(format!("{who:?}").contains("super"), "{who:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a01_a18_guesses_over_http_are_judged_in_turns_and_all_counted() {
    let (server, to) = serving().await;
    let http = server.http_addr().unwrap();
    let mut guesses = tokio::task::JoinSet::new();
    for n in 0..20 {
        guesses.spawn(async move {
            let credentials = format!("Authorization: digest super:guess-{n}\r\n");
            ask(http, "POST", "/commands/srst", &credentials, "")
                .await
                .0
        });
    }
    assert_eq!(guesses.join_all().await, [403; 20]);
    assert_eq!(failed(&to).await, 20);
}

async fn with_users() -> Server {
    let users = [("bob", "secret"), ("eve", "other")];
    let users = users.map(|(name, password)| (name.to_owned(), password.to_owned()));
    in_memory()
        .with(|options| options.sasl_users = SaslUsers::from_iter(users))
        .start()
        .await
        .unwrap()
}

async fn challenge(wire: &mut Wire) -> Vec<u8> {
    match wire.call(Request::Sasl { token: Some(b"") }).await {
        Ok(Response::Sasl(token)) => token.unwrap_or_default().to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Sends the response of this user to a new challenge.
async fn respond(wire: &mut Wire, user: &str, password: &str) {
    let challenge = challenge(wire).await;
    let client = baton_sasl::Client::of_zookeeper(user, password);
    let (response, _) = client.respond(&challenge, "c0ffee").unwrap();
    let token = Some(&*response);
    wire.send(&[Request::Sasl { token }]).await;
}

/// Clients of one address with an old password, more than there are turns for, beside the holder of
/// a session, another user, and a client of the same user that knows the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a60_right_proofs_succeed_however_many_of_their_address_are_wrong() {
    let server = with_users().await;
    let to = server.connect_string();
    let mut holder = Wire::open(&to).await;
    let session = holder.session;
    respond(&mut holder, "bob", "secret").await;
    assert_eq!(holder.reply().await.0.err, 0);
    let mut wrong = Vec::new();
    for n in 0..80 {
        let mut wire = Wire::open(&to).await;
        respond(&mut wire, "bob", &format!("old-{n}")).await;
        wrong.push(wire);
    }
    // The holder goes on over another connection.
    drop(holder);
    let mut holder = Wire::resume(&to, &session, 0).await.unwrap();
    respond(&mut holder, "bob", "secret").await;
    assert_eq!(holder.reply().await.0.err, 0);
    assert!(holder.exists("/").await);
    let mut eve = Wire::open(&to).await;
    respond(&mut eve, "eve", "other").await;
    assert_eq!(eve.reply().await.0.err, 0);
    let mut bob = Wire::open(&to).await;
    respond(&mut bob, "bob", "secret").await;
    assert_eq!(bob.reply().await.0.err, 0);
    for mut wire in wrong {
        assert_eq!(wire.reply().await.0.error(), ErrorCode::AuthFailed);
    }
    assert_eq!(failed(&to).await, 80);
}

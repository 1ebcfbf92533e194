//! Both sides of DIGEST-MD5 against each other, and against messages that nobody should accept.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod fuzz_smoke;

use baton_sasl::{AcceptedClient, Client, Proof, SaslError, Server};
use proptest::prelude::*;

const NONCE: &str = "Vb1xR0pMZ3c";
const CNONCE: &str = "q7Hn2kLs";

fn server() -> Server {
    Server::new("zookeeper", "zk-sasl-md5", NONCE)
}

fn respond(user: &str, password: &str, challenge: &[u8]) -> Result<(Vec<u8>, Proof), SaslError> {
    Client::new(user, password, "zookeeper", "zk-sasl-md5").respond(challenge, CNONCE)
}

fn response(user: &str, password: &str) -> Vec<u8> {
    respond(user, password, server().challenge().as_bytes())
        .unwrap()
        .0
}

/// Judges a response at a server that knows only bob, whose password is `secret`.
fn judge(response: &[u8]) -> Result<AcceptedClient, SaslError> {
    server().judge(response, |user| {
        (user == "bob").then(|| "secret".to_owned())
    })
}

#[test]
fn both_sides_prove_that_they_know_the_password() {
    for (user, password) in [
        ("bob", "secret"),
        ("b, \"o\\b", "se\"c,r\\et"),
        ("b\u{f6}b", "gehe\u{ef}m"),
        ("\u{431}\u{43e}\u{431}", "\u{5bc6}"),
        ("bob", ""),
    ] {
        let challenge = server().challenge();
        let (response, proof) = respond(user, password, challenge.as_bytes()).unwrap();
        let known = |name: &str| (name == user).then(|| password.to_owned());
        let accepted = server().judge(&response, known).unwrap();
        assert_eq!(accepted.user, user);
        assert_eq!(proof.verify(accepted.message.as_bytes()), Ok(()), "{user}");
    }
}

#[test]
fn a_wrong_password_and_an_unknown_user_have_one_answer() {
    assert!(judge(&response("bob", "secret")).is_ok());
    for (user, password) in [
        ("bob", "Secret"),
        ("bob", ""),
        ("eve", "secret"),
        ("eve", ""),
        ("", ""),
    ] {
        let refused = judge(&response(user, password));
        assert_eq!(refused, Err(SaslError::Credentials), "{user} {password}");
    }
}

#[test]
fn a_response_to_another_challenge_is_refused() {
    let later = Server::new("zookeeper", "zk-sasl-md5", "another1");
    let refused = later.judge(&response("bob", "secret"), |_| Some("secret".to_owned()));
    assert_eq!(refused, Err(SaslError::Impossible("nonce")));
}

#[test]
fn what_a_response_must_not_say_is_refused() {
    let right = String::from_utf8(response("bob", "secret")).unwrap();
    for (part, instead, error) in [
        ("nc=00000001", "nc=00000002", SaslError::Impossible("nc")),
        ("nc=00000001,", "", SaslError::Missing("nc")),
        ("qop=auth", "qop=auth-int", SaslError::Impossible("qop")),
        ("qop=auth", "qop=auth,qop=auth", SaslError::Twice("qop")),
        (
            "realm=\"zk-sasl-md5\"",
            "realm=\"other\"",
            SaslError::Impossible("realm"),
        ),
        ("realm=\"zk-sasl-md5\",", "", SaslError::Impossible("realm")),
        (
            "\"zookeeper/",
            "\"imap/",
            SaslError::Impossible("digest-uri"),
        ),
        (
            "\"zookeeper/zk-sasl-md5\"",
            "\"zookeeper\"",
            SaslError::Impossible("digest-uri"),
        ),
        (
            "\"zookeeper/zk-sasl-md5\"",
            "\"zookeeper/elsewhere\"",
            SaslError::Credentials,
        ),
        (
            "charset=utf-8",
            "charset=utf-7",
            SaslError::Impossible("charset"),
        ),
        ("username=\"bob\",", "", SaslError::Missing("username")),
        (
            "username=\"bob\"",
            "username=\"bob\",authzid=\"eve\"",
            SaslError::Impossible("authzid"),
        ),
        (
            "username=\"bob\"",
            "username=\"bob\",authzid=\"bob\"",
            SaslError::Credentials,
        ),
        (
            "username=\"bob\"",
            "username=\"bob\"x",
            SaslError::Malformed,
        ),
        ("response=", "response=0", SaslError::Credentials),
    ] {
        assert!(right.contains(part), "{part} in {right}");
        let wrong = right.replacen(part, instead, 1);
        assert_eq!(judge(wrong.as_bytes()), Err(error), "{wrong}");
    }
    // `qop=auth` is what its absence means; nothing else may be missing.
    let needed = right.strip_suffix(",qop=auth").unwrap().len();
    for cut in 0..right.len() {
        let is_whole = cut == needed || cut == needed + 1;
        assert_eq!(judge(&right.as_bytes()[..cut]).is_ok(), is_whole, "{cut}");
    }
}

#[test]
fn a_challenge_that_asks_for_what_is_not_possible_is_refused() {
    for (challenge, error) in [
        (
            "nonce=\"a\",algorithm=md5-sess,qop=\"auth-int,auth-conf\"",
            SaslError::Impossible("qop"),
        ),
        (
            "nonce=\"a\",algorithm=md5",
            SaslError::Impossible("algorithm"),
        ),
        ("nonce=\"a\"", SaslError::Missing("algorithm")),
        ("algorithm=md5-sess", SaslError::Missing("nonce")),
        (
            "nonce=\"a\",nonce=\"b\",algorithm=md5-sess",
            SaslError::Twice("nonce"),
        ),
        ("nonce=\"a", SaslError::Malformed),
    ] {
        let refused = respond("bob", "secret", challenge.as_bytes()).err();
        assert_eq!(refused, Some(error), "{challenge}");
    }
    // Of several realms and protections, those that are possible.
    let challenge =
        b"realm=\"one\",realm=\"two\",nonce=\"a\",qop=\"auth-int, auth\",algorithm=MD5-sess";
    let (response, _) = respond("b\u{f6}b", "x", challenge).unwrap();
    assert!(response.windows(11).any(|part| part == b"realm=\"one\""));
    // Without the charset it is ISO 8859-1.
    assert!(
        response
            .windows(5)
            .any(|part| part == b"b\xf6b\"," || part == b"\"b\xf6b\"")
    );
    let refused = respond("\u{431}", "x", challenge).err();
    assert_eq!(refused, Some(SaslError::Impossible("charset")));
}

#[test]
fn a_server_that_does_not_know_the_password_is_noticed() {
    for message in [
        "rspauth=00",
        "",
        "rspauth=ea40f60335c427b5527b84dbabcdfffd",
        "x",
    ] {
        let challenge = server().challenge();
        let (_, proof) = respond("bob", "secret", challenge.as_bytes()).unwrap();
        assert!(proof.verify(message.as_bytes()).is_err(), "{message}");
    }
}

#[test]
fn a_password_is_in_no_debug_text() {
    let client = Client::new("bob", "secret", "zookeeper", "zk-sasl-md5");
    assert!(!format!("{client:?}").contains("secret"));
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_refused_and_nothing_panics(message in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(judge(&message).is_err());
        if let Ok((_, proof)) = respond("bob", "secret", &message) {
            prop_assert!(proof.verify(&message).is_err());
        }
    }

    #[test]
    fn a_response_with_one_other_byte_is_not_bobs(at in 0_usize..200, byte in any::<u8>()) {
        let right = response("bob", "secret");
        let mut wrong = right.clone();
        if let Some(place) = wrong.get_mut(at) {
            *place = byte;
        }
        // Blanks, quotes and the case of names say nothing; but nobody else is let in.
        if let Ok(accepted) = judge(&wrong) {
            prop_assert_eq!(accepted.user, "bob");
        }
    }
}

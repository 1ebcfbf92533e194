//! Fuzz targets of SASL: each function takes any bytes at all and fails if a promise does not hold
//! for them. Nobody is let in who does not know the password, and nothing panics.

use baton_sasl::{Client, Server};

const SERVICE: &str = "zookeeper";
const REALM: &str = "zk-sasl-md5";

/// A client's response: an accepted client is the user whose password it was made with.
pub fn response(bytes: &[u8]) {
    let server = || Server::new(SERVICE, REALM, "c0ffee");
    let known = |user: &str| (user == "bob").then(|| "secret".to_owned());
    if let Ok(accepted) = server().judge(bytes, known) {
        assert_eq!(accepted.user, "bob");
        let other = server().judge(bytes, |_| Some("Secret".to_owned()));
        assert!(other.is_err(), "accepted with another password");
    }
}

/// A server's messages: a challenge, or a proof. Bytes that were made without the password prove
/// nothing.
pub fn challenge(bytes: &[u8]) {
    let client = Client::new("bob", "secret", SERVICE, REALM);
    if let Ok((response, proof)) = client.respond(bytes, "c1") {
        assert!(!response.windows(6).any(|part| part == b"secret"));
        assert!(proof.verify(bytes).is_err());
    }
}

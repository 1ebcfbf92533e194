//! The hashes of both sides (RFC 2831 §2.1.2.1 and §2.1.3).

use md5::{Digest as _, Md5};

/// Inputs of a response.
pub(crate) struct Exchange<'a> {
    pub(crate) user: &'a str,
    pub(crate) realm: &'a str,
    pub(crate) password: &'a str,
    pub(crate) nonce: &'a [u8],
    pub(crate) cnonce: &'a [u8],
    pub(crate) digest_uri: &'a [u8],
    /// Identity that the client wants to act as, if it names one.
    pub(crate) authzid: Option<&'a [u8]>,
}

/// The client sends one response to each nonce.
pub(crate) const NONCE_COUNT: &str = "00000001";
/// Authentication only.
pub(crate) const QOP: &str = "auth";

impl Exchange<'_> {
    /// Returns the proof that the client knows the password.
    pub(crate) fn response(&self) -> String {
        self.proof(b"AUTHENTICATE:")
    }

    /// Returns the proof that the server knows it.
    pub(crate) fn rspauth(&self) -> String {
        self.proof(b":")
    }

    fn proof(&self, method: &[u8]) -> String {
        let (user, realm) = (hashed_form(self.user), hashed_form(self.realm));
        let password = hashed_form(self.password);
        let secret = md5(&[&user, b":", &realm, b":", &password]);
        let mut a1: Vec<&[u8]> = vec![&secret, b":", self.nonce, b":", self.cnonce];
        if let Some(authzid) = self.authzid {
            a1.extend([b":", authzid]);
        }
        let a1 = hex(&md5(&a1));
        let a2 = hex(&md5(&[method, self.digest_uri]));
        let parts: [&[u8]; 11] = [
            a1.as_bytes(),
            b":",
            self.nonce,
            b":",
            NONCE_COUNT.as_bytes(),
            b":",
            self.cnonce,
            b":",
            QOP.as_bytes(),
            b":",
            a2.as_bytes(),
        ];
        hex(&md5(&parts))
    }
}

/// Returns whether both are equal, in a time that does not depend on where they differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = one
        .iter()
        .zip(other)
        .fold(0, |so_far, (a, b)| so_far | (a ^ b));
    one.len() == other.len() && differs == 0
}

/// A text that ISO 8859-1 can write is hashed as ISO 8859-1, every other one as UTF-8.
fn hashed_form(text: &str) -> Vec<u8> {
    let latin: Option<Vec<u8>> = text
        .chars()
        .map(|letter| u8::try_from(letter).ok())
        .collect();
    latin.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 2831 §4.
    #[test]
    fn the_example_of_the_standard_gives_its_hashes() {
        let exchange = Exchange {
            user: "chris",
            realm: "elwood.innosoft.com",
            password: "secret",
            nonce: b"OA6MG9tEQGm2hh",
            cnonce: b"OA6MHXh6VqTrRk",
            digest_uri: b"imap/elwood.innosoft.com",
            authzid: None,
        };
        assert_eq!(exchange.response(), "d388dad90d4bbd760a152321f2143af7");
        assert_eq!(exchange.rspauth(), "ea40f60335c427b5527b84dbabcdfffd");
        let other = Exchange {
            authzid: Some(b"chris"),
            ..exchange
        };
        assert_ne!(other.response(), "d388dad90d4bbd760a152321f2143af7");
    }

    #[test]
    fn texts_are_hashed_in_the_smaller_charset() {
        assert_eq!(hashed_form("\u{e9}"), [0xe9]);
        assert_eq!(hashed_form("\u{e9}\u{20ac}"), "\u{e9}\u{20ac}".as_bytes());
    }

    #[test]
    fn a_part_of_a_proof_is_not_the_proof() {
        assert!(is_same(b"ab", b"ab"));
        for other in [&b""[..], b"a", b"abc", b"aB"] {
            assert!(
                !is_same(b"ab", other) && !is_same(other, b"ab"),
                "{other:?}"
            );
        }
    }
}

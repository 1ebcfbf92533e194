//! The client's side: the response to a challenge, and the check of the server's proof.

use std::fmt;

use crate::digest::{Exchange, NONCE_COUNT, QOP, is_same};
use crate::directives::{Directives, quoted, text};
use crate::error::SaslError;
use crate::{ZOOKEEPER_REALM, ZOOKEEPER_SERVICE};

/// The client's side: a user, and the service that the user is known to.
#[derive(Clone)]
pub struct Client {
    user: String,
    password: String,
    digest_uri: String,
}

/// Proof that the server's last message must contain.
#[derive(Debug)]
#[must_use = "the server has proved nothing before this is verified"]
pub struct Proof(String);

impl Client {
    /// A user of a ZooKeeper or a Baton with this password.
    #[must_use]
    pub fn of_zookeeper(user: &str, password: &str) -> Self {
        Self::new(user, password, ZOOKEEPER_SERVICE, ZOOKEEPER_REALM)
    }

    /// A user with this password, and the service.
    #[must_use]
    pub fn new(user: &str, password: &str, service: &str, host: &str) -> Self {
        Self {
            user: user.to_owned(),
            password: password.to_owned(),
            digest_uri: format!("{service}/{host}"),
        }
    }

    /// The response to the server's challenge, and what its answer has to prove. `cnonce` must be
    /// unguessable and new; it is letters and digits.
    ///
    /// # Errors
    /// What is wrong with the challenge, or not possible here: only authentication is.
    pub fn respond(&self, challenge: &[u8], cnonce: &str) -> Result<(Vec<u8>, Proof), SaslError> {
        let read = Directives::read(challenge)?;
        let is_utf8 = read.is_utf8()?;
        if !read.needed("algorithm")?.eq_ignore_ascii_case(b"md5-sess") {
            return Err(SaslError::Impossible("algorithm"));
        }
        let mut offered = read
            .once("qop")?
            .unwrap_or(QOP.as_bytes())
            .split(|byte| *byte == b',');
        if !offered.any(|qop| qop.trim_ascii() == QOP.as_bytes()) {
            return Err(SaslError::Impossible("qop"));
        }
        let nonce = read.needed("nonce")?;
        let shown_nonce = text(nonce, is_utf8, "nonce")?;
        let realm = read.all("realm").next();
        let realm = text(realm.unwrap_or_default(), is_utf8, "realm")?;
        let exchange = Exchange {
            user: &self.user,
            realm: &realm,
            password: &self.password,
            nonce,
            cnonce: cnonce.as_bytes(),
            digest_uri: self.digest_uri.as_bytes(),
            authzid: None,
        };
        let charset = if is_utf8 { "charset=utf-8," } else { "" };
        let response = format!(
            "{charset}username={},realm={},nonce={},nc={NONCE_COUNT},cnonce={},digest-uri={},response={},qop={QOP}",
            quoted(&self.user),
            quoted(&realm),
            quoted(&shown_nonce),
            quoted(cnonce),
            quoted(&self.digest_uri),
            exchange.response(),
        );
        let response = match is_utf8 {
            true => Some(response.into_bytes()),
            false => response
                .chars()
                .map(|letter| u8::try_from(letter).ok())
                .collect(),
        };
        // The user's name has letters that the server's charset has not.
        let response = response.ok_or(SaslError::Impossible("charset"))?;
        Ok((response, Proof(exchange.rspauth())))
    }
}

impl fmt::Debug for Client {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Proof {
    /// Checks the server's last message.
    ///
    /// # Errors
    /// [`SaslError::ServerProof`]: the server does not know the password.
    pub fn verify(self, message: &[u8]) -> Result<(), SaslError> {
        let read = Directives::read(message)?;
        match is_same(read.needed("rspauth")?, self.0.as_bytes()) {
            true => Ok(()),
            false => Err(SaslError::ServerProof),
        }
    }
}

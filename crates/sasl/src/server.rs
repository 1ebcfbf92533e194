//! The server's side: a challenge, and the judgement of the response to it.

use crate::digest::{Exchange, NONCE_COUNT, QOP, is_same};
use crate::directives::{Directives, quoted, text};
use crate::error::SaslError;

/// The server's side of one exchange. One challenge has one response.
///
/// ```
/// use baton_sasl::{Client, Server};
///
/// // Both nonces come from a random source that nobody can guess.
/// let server = Server::new("zookeeper", "zk-sasl-md5", "Vb1xR0pMZ3c");
/// let client = Client::new("bob", "secret", "zookeeper", "zk-sasl-md5");
/// let (response, proof) = client.respond(server.challenge().as_bytes(), "q7Hn2kLs")?;
/// let accepted = server.judge(&response, |user| {
///     (user == "bob").then(|| "secret".to_owned())
/// })?;
/// assert_eq!(accepted.user, "bob");
/// proof.verify(accepted.message.as_bytes())?;
/// # Ok::<(), baton_sasl::SaslError>(())
/// ```
#[derive(Debug)]
pub struct Server {
    service: String,
    realm: String,
    nonce: String,
}

/// The user whom a client's response claims to be; `None`: it claims none, and is refused.
#[must_use]
pub fn claimed_user(response: &[u8]) -> Option<String> {
    let read = Directives::read(response).ok()?;
    user_of(&read).ok()
}

fn user_of(read: &Directives<'_>) -> Result<String, SaslError> {
    text(read.needed("username")?, read.is_utf8()?, "username")
}

/// A client that has proved who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedClient {
    /// The user.
    pub user: String,
    /// Message for the client: proof that the server knows the password too.
    pub message: String,
}

impl Server {
    /// A server of this service, `zookeeper` for ZooKeeper's clients, with the users of this realm.
    /// The nonce must be unguessable and new; it is letters and digits.
    #[must_use]
    pub fn new(service: &str, realm: &str, nonce: &str) -> Self {
        Self {
            service: service.to_owned(),
            realm: realm.to_owned(),
            nonce: nonce.to_owned(),
        }
    }

    /// Returns the first message for the client.
    #[must_use]
    pub fn challenge(&self) -> String {
        let (realm, nonce) = (quoted(&self.realm), quoted(&self.nonce));
        format!("realm={realm},nonce={nonce},qop=\"{QOP}\",charset=utf-8,algorithm=md5-sess")
    }

    /// Judges the client's response. A user who is not known costs as much time as one who is.
    ///
    /// # Errors
    /// [`SaslError::Credentials`], or what is wrong with the message.
    pub fn judge(
        self,
        response: &[u8],
        password_of: impl FnOnce(&str) -> Option<String>,
    ) -> Result<AcceptedClient, SaslError> {
        let read = Directives::read(response)?;
        let is_utf8 = read.is_utf8()?;
        let user = user_of(&read)?;
        let realm = text(read.once("realm")?.unwrap_or_default(), is_utf8, "realm")?;
        let expect = |name, expected: &str| match read.once(name)? {
            Some(value) if value == expected.as_bytes() => Ok(()),
            Some(_) => Err(SaslError::Impossible(name)),
            None => Err(SaslError::Missing(name)),
        };
        expect("nonce", &self.nonce)?;
        expect("nc", NONCE_COUNT)?;
        if read.once("qop")?.is_some_and(|qop| qop != QOP.as_bytes()) {
            return Err(SaslError::Impossible("qop"));
        }
        if realm != self.realm {
            return Err(SaslError::Impossible("realm"));
        }
        let digest_uri = read.needed("digest-uri")?;
        let service = digest_uri.split(|byte| *byte == b'/').next();
        if service != Some(self.service.as_bytes()) || !digest_uri.contains(&b'/') {
            return Err(SaslError::Impossible("digest-uri"));
        }
        // Nobody acts as somebody else.
        let authzid = read.once("authzid")?;
        if let Some(authzid) = authzid
            && text(authzid, is_utf8, "authzid")? != user
        {
            return Err(SaslError::Impossible("authzid"));
        }
        let password = password_of(&user);
        let exchange = Exchange {
            user: &user,
            realm: &realm,
            password: password.as_deref().unwrap_or_default(),
            nonce: self.nonce.as_bytes(),
            cnonce: read.needed("cnonce")?,
            digest_uri,
            authzid,
        };
        let is_right = is_same(exchange.response().as_bytes(), read.needed("response")?);
        if !is_right || password.is_none() {
            return Err(SaslError::Credentials);
        }
        let message = format!("rspauth={}", exchange.rspauth());
        Ok(AcceptedClient { user, message })
    }
}

//! SASL DIGEST-MD5 in ZooKeeper's framing (op 102, protocol.md §6): the exchange of one connection.
//! Owns what is asked and accepted; what an identity may do is the ACLs' matter.

use baton_sasl::{Server, ZOOKEEPER_REALM, ZOOKEEPER_SERVICE};
use baton_tree::Identity;

use super::credentials::{Refusal, within_bound};
use crate::options::Options;

/// The exchange of one connection: a challenge that waits for its response, or none.
#[derive(Debug, Default)]
pub(crate) struct Exchange(Option<Box<Server>>);

/// Answer to the client.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) token: String,
    /// Identity of the connection from now on, where the exchange has come to its end.
    pub(crate) identity: Option<Identity>,
}

impl Exchange {
    /// The user whom the client's next message claims to be, where it is judged: it could be a
    /// guess.
    pub(crate) fn claimed_user(&self, token: &[u8]) -> Option<String> {
        self.0.as_ref()?;
        baton_sasl::claimed_user(token)
    }

    /// Answers a message of the client. An empty one begins an exchange.
    ///
    /// # Errors
    /// [`Refusal`]. A challenge has one response: after it, the exchange is over.
    pub(crate) fn step(
        &mut self,
        token: &[u8],
        identity: &Identity,
        options: &Options,
    ) -> Result<Answer, Refusal> {
        let users = &options.sasl_users;
        if users.is_empty() {
            return Err(Refusal::NoSasl);
        }
        if token.is_empty() {
            let mut bytes = [0; size_of::<u128>()];
            getrandom::fill(&mut bytes).map_err(|_| Refusal::NoRandom)?;
            let nonce = format!("{:032x}", u128::from_ne_bytes(bytes));
            let server = Server::new(ZOOKEEPER_SERVICE, ZOOKEEPER_REALM, &nonce);
            let token = server.challenge();
            self.0 = Some(Box::new(server));
            return Ok(Answer {
                token,
                identity: None,
            });
        }
        let server = self.0.take().ok_or(Refusal::NoChallenge)?;
        let accepted = server.judge(token, |user| users.password(user))?;
        let mut more = identity.clone();
        if options.sasl_super_users.contains(&accepted.user) {
            more.add("super", "");
        }
        more.add("sasl", accepted.user);
        Ok(Answer {
            token: accepted.message,
            identity: Some(within_bound(more)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use baton_sasl::{Client, SaslError};

    use super::*;
    use crate::options::sasl_users::SaslUsers;

    fn options() -> Options {
        let users = ["bob", "root"].map(|name| (name.to_owned(), "secret".to_owned()));
        Options {
            sasl_users: SaslUsers::from_iter(users),
            sasl_super_users: vec!["root".to_owned()],
            ..Options::default()
        }
    }

    fn respond(exchange: &mut Exchange, user: &str, password: &str) -> Result<Answer, Refusal> {
        let nobody = Identity::anonymous();
        let challenge = exchange.step(b"", &nobody, &options()).unwrap();
        assert_eq!(challenge.identity, None);
        let client = Client::of_zookeeper(user, password);
        let (response, _) = client.respond(challenge.token.as_bytes(), "c1").unwrap();
        assert_eq!(exchange.claimed_user(&response).as_deref(), Some(user));
        assert_eq!(exchange.claimed_user(b""), None);
        exchange.step(&response, &nobody, &options())
    }

    #[test]
    fn who_knows_the_password_is_the_user() {
        let accepted = respond(&mut Exchange::default(), "bob", "secret").unwrap();
        let identity = accepted.identity.unwrap();
        let ids: Vec<_> = identity.ids().map(|id| (&*id.scheme, &*id.id)).collect();
        assert_eq!(ids, [("sasl", "bob")]);
        assert!(!identity.is_super());
        let accepted = respond(&mut Exchange::default(), "root", "secret").unwrap();
        assert!(accepted.identity.unwrap().is_super());
    }

    #[test]
    fn a61_a_challenge_is_answered_once() {
        let mut exchange = Exchange::default();
        let refused = respond(&mut exchange, "bob", "guess").unwrap_err();
        assert_eq!(refused, Refusal::Sasl(SaslError::Credentials));
        let nobody = Identity::anonymous();
        assert_eq!(exchange.claimed_user(b"username=\"bob\""), None);
        let refused = exchange.step(b"x", &nobody, &options()).unwrap_err();
        assert_eq!(refused, Refusal::NoChallenge);
    }

    #[test]
    fn a_user_counts_among_all_that_a_connection_has_proved() {
        let mut known = Identity::anonymous();
        known.add("digest", "x".repeat((64 << 10) - 10));
        let mut exchange = Exchange::default();
        let challenge = exchange.step(b"", &known, &options()).unwrap();
        let client = Client::of_zookeeper("bob", "secret");
        let (response, _) = client.respond(challenge.token.as_bytes(), "c1").unwrap();
        let refused = exchange.step(&response, &known, &options()).unwrap_err();
        assert_eq!(refused, Refusal::TooMany);
    }

    #[test]
    fn challenges_differ() {
        let nobody = Identity::anonymous();
        let challenge = || {
            Exchange::default()
                .step(b"", &nobody, &options())
                .unwrap()
                .token
        };
        assert_ne!(challenge(), challenge());
    }

    #[test]
    fn without_users_there_is_no_sasl() {
        let none = Options::default();
        let refused = Exchange::default().step(b"", &Identity::anonymous(), &none);
        assert_eq!(refused.unwrap_err(), Refusal::NoSasl);
    }
}

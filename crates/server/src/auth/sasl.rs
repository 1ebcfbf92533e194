//! SASL DIGEST-MD5 in ZooKeeper's framing (op 102, protocol.md §6): the exchange of one connection.
//! Owns what is asked and accepted; what an identity may do is the ACLs' matter.

use baton_sasl::Server;
use baton_tree::Identity;

use super::credentials::{Refusal, within_bound};
use crate::sasl_users::SaslUsers;

/// What ZooKeeper's clients name as the service.
const SERVICE: &str = "zookeeper";
/// What ZooKeeper's servers name as the realm of their users.
const REALM: &str = "zk-sasl-md5";

/// The exchange of one connection: a challenge that waits for its response, or none.
#[derive(Debug, Default)]
pub(crate) struct Exchange(Option<Box<Server>>);

/// What the client receives.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) token: String,
    /// Who the connection is from now on, where the exchange has come to its end.
    pub(crate) identity: Option<Identity>,
}

impl Exchange {
    /// Whether the client's next message is judged: it could be a guess.
    pub(crate) fn is_judged(&self, token: &[u8]) -> bool {
        self.0.is_some() && !token.is_empty()
    }

    /// Answers a message of the client. An empty one begins an exchange.
    ///
    /// # Errors
    /// [`Refusal`]. A challenge has one response: after it, the exchange is over.
    pub(crate) fn step(
        &mut self,
        token: &[u8],
        identity: &Identity,
        users: &SaslUsers,
    ) -> Result<Answer, Refusal> {
        if users.is_empty() {
            return Err(Refusal::NoSasl);
        }
        if token.is_empty() {
            let mut bytes = [0; size_of::<u128>()];
            getrandom::fill(&mut bytes).map_err(|_| Refusal::NoRandom)?;
            let nonce = format!("{:032x}", u128::from_ne_bytes(bytes));
            let server = Server::new(SERVICE, REALM, &nonce);
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

    fn users() -> SaslUsers {
        let bob = ("bob".to_owned(), "secret".to_owned());
        SaslUsers::from_iter([bob])
    }

    fn respond(exchange: &mut Exchange, password: &str) -> Result<Answer, Refusal> {
        let nobody = Identity::anonymous();
        let challenge = exchange.step(b"", &nobody, &users()).unwrap();
        assert_eq!(challenge.identity, None);
        let client = Client::new("bob", password, SERVICE, REALM);
        let (response, _) = client.respond(challenge.token.as_bytes(), "c1").unwrap();
        assert!(exchange.is_judged(&response) && !exchange.is_judged(b""));
        exchange.step(&response, &nobody, &users())
    }

    #[test]
    fn who_knows_the_password_is_the_user() {
        let accepted = respond(&mut Exchange::default(), "secret").unwrap();
        let identity = accepted.identity.unwrap();
        let ids: Vec<_> = identity
            .ids()
            .iter()
            .map(|id| (&*id.scheme, &*id.id))
            .collect();
        assert_eq!(ids, [("sasl", "bob")]);
        assert!(!identity.is_super());
    }

    #[test]
    fn a05_a_challenge_is_answered_once() {
        let mut exchange = Exchange::default();
        let refused = respond(&mut exchange, "guess").unwrap_err();
        assert_eq!(refused, Refusal::Sasl(SaslError::Credentials));
        let nobody = Identity::anonymous();
        assert!(!exchange.is_judged(b"x"));
        let refused = exchange.step(b"x", &nobody, &users()).unwrap_err();
        assert_eq!(refused, Refusal::NoChallenge);
    }

    #[test]
    fn a_user_counts_among_all_that_a_connection_has_proved() {
        let mut known = Identity::anonymous();
        known.add("digest", "x".repeat((64 << 10) - 10));
        let mut exchange = Exchange::default();
        let challenge = exchange.step(b"", &known, &users()).unwrap();
        let client = Client::new("bob", "secret", SERVICE, REALM);
        let (response, _) = client.respond(challenge.token.as_bytes(), "c1").unwrap();
        let refused = exchange.step(&response, &known, &users()).unwrap_err();
        assert_eq!(refused, Refusal::TooMany);
    }

    #[test]
    fn challenges_differ() {
        let nobody = Identity::anonymous();
        let challenge = || {
            Exchange::default()
                .step(b"", &nobody, &users())
                .unwrap()
                .token
        };
        assert_ne!(challenge(), challenge());
    }

    #[test]
    fn without_users_there_is_no_sasl() {
        let none = SaslUsers::default();
        let refused = Exchange::default().step(b"", &Identity::anonymous(), &none);
        assert_eq!(refused.unwrap_err(), Refusal::NoSasl);
    }
}

//! Identities that an auth packet proves (protocol.md §6). Owns the schemes that a client may add
//! to its connection; never decides what an identity may do: that is the ACLs' matter.

use std::borrow::Cow;

use baton_proto::AuthPacket;
use baton_sasl::SaslError;
use baton_tree::{AuthId, Identity, digest_id};
use subtle::ConstantTimeEq;

use super::attempts::Account;
use crate::options::Options;

/// Identities of one connection. `auth` in an ACL stands for all of them, and a new one is compared
/// with the others.
const MAX_NAMES: usize = 64;
/// Bytes of all that one connection has proved to be.
const MAX_IDENTITY_BYTES: usize = 4 << 10;

/// Reasons for which credentials are refused. The answer is `AuthFailed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("clients are known by ip, digest and x509 only")]
    Scheme,
    #[error("the connection has no client certificate; connect with TLS and a certificate")]
    NoCertificate,
    #[error("they are null; send user:password")]
    Null,
    #[error(
        "the connection would have over {MAX_NAMES} names or {MAX_IDENTITY_BYTES} bytes of them; use fewer or shorter names"
    )]
    TooMany,
    #[error("this server has no users for SASL; use digest, or name them in sasl_users")]
    NoSasl,
    #[error("it responds to no challenge")]
    NoChallenge,
    #[error("the system gives no random numbers")]
    NoRandom,
    #[error(transparent)]
    Sasl(#[from] SaslError),
}

/// The account of the user whom a packet of scheme `digest` names.
pub(crate) fn claimed_account<'a>(packet: &AuthPacket<'a>) -> Account<'a> {
    let auth = packet.auth.unwrap_or_default();
    let name = auth.split(|byte| *byte == b':').next();
    Account::Digest(name.unwrap_or_default())
}

/// Whether the packet claims to come from the superuser.
pub(crate) fn claims_superuser(packet: &AuthPacket<'_>, options: &Options) -> bool {
    let Some(digest) = options.super_digest.as_deref() else {
        return false;
    };
    let name = digest.split(':').next().unwrap_or_default();
    packet.scheme == "digest" && claimed_account(packet) == Account::Digest(name.as_bytes())
}

/// Whether the packet's password is the superuser's.
pub(crate) fn proves_superuser(packet: &AuthPacket<'_>, options: &Options) -> bool {
    let digest = packet.auth.map(digest_id);
    packet.scheme == "digest" && digest.is_some_and(|id| is_superusers(&id, options))
}

/// Whether this is the superuser's digest. The time that takes says nothing about it.
fn is_superusers(digest: &str, options: &Options) -> bool {
    let wanted = options.super_digest.as_deref();
    wanted.is_some_and(|wanted| wanted.as_bytes().ct_eq(digest.as_bytes()).into())
}

/// The connection's identity with that of a certificate of this subject.
///
/// # Errors
/// [`Refusal::TooMany`].
pub(crate) fn add_subject(
    identity: &Identity,
    subject: String,
    options: &Options,
) -> Result<Identity, Refusal> {
    let mut more = identity.clone();
    let tls = options.tls.as_ref();
    if tls.and_then(|tls| tls.super_subject.as_deref()) == Some(subject.as_str()) {
        more.add("super", "");
    }
    more.add("x509", subject);
    within_bound(more)
}

/// The connection's identity with what the packet adds; borrowed where that is nothing.
///
/// # Errors
/// [`Refusal`]: an unknown scheme, invalid data, or too many names.
pub(crate) fn add<'i>(
    identity: &'i Identity,
    packet: &AuthPacket<'_>,
    options: &Options,
) -> Result<Cow<'i, Identity>, Refusal> {
    match packet.scheme {
        "digest" => {
            // As in ZooKeeper: null is refused, but without a colon it is a user without a
            // password.
            let id = AuthId {
                scheme: "digest".to_owned(),
                id: digest_id(packet.auth.ok_or(Refusal::Null)?),
            };
            if identity.contains(&id) {
                return Ok(Cow::Borrowed(identity));
            }
            let mut more = identity.clone();
            if is_superusers(&id.id, options) {
                more.add("super", "");
            }
            more.add(id.scheme, id.id);
            within_bound(more).map(Cow::Owned)
        }
        // Known since the connection was made.
        "ip" => Ok(Cow::Borrowed(identity)),
        "x509" if identity.has("x509") => Ok(Cow::Borrowed(identity)),
        "x509" => Err(Refusal::NoCertificate),
        _ => Err(Refusal::Scheme),
    }
}

/// `identity`, if it is within the bound of all that one connection may prove to be.
///
/// # Errors
/// [`Refusal::TooMany`].
pub(crate) fn within_bound(identity: Identity) -> Result<Identity, Refusal> {
    match identity.ids().len() > MAX_NAMES || identity.bytes() > MAX_IDENTITY_BYTES {
        true => Err(Refusal::TooMany),
        false => Ok(identity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet<'a>(scheme: &'a str, auth: &'a [u8]) -> AuthPacket<'a> {
        AuthPacket {
            kind: 0,
            scheme,
            auth: Some(auth),
        }
    }

    #[test]
    fn a_digest_adds_and_the_configured_one_opens_everything() {
        let options = Options {
            super_digest: Some(digest_id(b"root:secret")),
            ..Options::default()
        };
        let nobody = Identity::anonymous();
        let someone = add(&nobody, &packet("digest", b"user:password"), &options).unwrap();
        assert!(!someone.is_super());
        assert_eq!(someone.ids().len(), 1);
        let root = add(&someone, &packet("digest", b"root:secret"), &options).unwrap();
        assert!(root.is_super());
        for unknown in ["kerberos", "world"] {
            assert_eq!(
                add(&nobody, &packet(unknown, b"x"), &options),
                Err(Refusal::Scheme)
            );
        }
        let null = AuthPacket {
            auth: None,
            ..packet("digest", b"")
        };
        assert_eq!(add(&nobody, &null, &options), Err(Refusal::Null));
        let no_password = add(&nobody, &packet("digest", b"no colon"), &options).unwrap();
        assert_eq!(no_password.ids().len(), 1);
    }
    #[test]
    fn names_of_a_connection_have_a_bound_and_one_that_is_known_copies_nothing() {
        let options = Options::default();
        let mut identity = Identity::from_ip("10.0.0.1".parse().unwrap());
        for n in 1..MAX_NAMES {
            let name = format!("user{n}");
            let more = add(&identity, &packet("digest", name.as_bytes()), &options);
            identity = more.unwrap().into_owned();
        }
        assert_eq!(identity.ids().len(), MAX_NAMES);
        let one_more = add(&identity, &packet("digest", b"one:more"), &options);
        assert_eq!(one_more, Err(Refusal::TooMany));
        for known in [packet("digest", b"user1"), packet("ip", b"")] {
            let same = add(&identity, &known, &options);
            assert!(matches!(same, Ok(Cow::Borrowed(_))), "{known:?}");
        }
        let long = vec![b'n'; MAX_IDENTITY_BYTES];
        let nobody = Identity::anonymous();
        let too_long = add(&nobody, &packet("digest", &long), &options);
        assert_eq!(too_long, Err(Refusal::TooMany));
    }
}

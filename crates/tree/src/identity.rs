//! Who a connection is, and what an access-control list lets it do (protocol.md §1.4, §1.6, §6).
//! Owns matching, validation and expansion of ACLs. Never looks at the tree, at a socket or at a
//! password file: the server authenticates and hands over the result.

use core::net::IpAddr;
use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use baton_proto::{Acl, ErrorCode, Perms};
use sha1::{Digest as _, Sha1};

/// One identity of a connection, in the terms of its scheme.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthId {
    /// `ip`, `digest`, `super`, or another that the server authenticates.
    pub scheme: String,
    /// The address; `user:hash`; empty for `super`.
    pub id: String,
}

/// All identities of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Identity {
    ids: Vec<AuthId>,
}

impl Identity {
    /// A connection about which nothing is known.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { ids: Vec::new() }
    }

    /// A connection from this address.
    #[must_use]
    pub fn from_ip(address: IpAddr) -> Self {
        let mut identity = Self::anonymous();
        identity.add("ip", address.to_canonical().to_string());
        identity
    }

    /// Adds an identity that the server has authenticated; one that is there already is not added
    /// twice.
    pub fn add(&mut self, scheme: impl Into<String>, id: impl Into<String>) {
        let id = AuthId {
            scheme: scheme.into(),
            id: id.into(),
        };
        if !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }

    /// The identities, in the order in which they were added.
    #[must_use]
    pub fn ids(&self) -> &[AuthId] {
        &self.ids
    }

    /// Whether it has an identity of this scheme.
    #[must_use]
    pub fn has(&self, scheme: &str) -> bool {
        self.ids.iter().any(|id| id.scheme == scheme)
    }

    /// Whether every ACL is open to this connection.
    #[must_use]
    pub fn is_super(&self) -> bool {
        self.ids.iter().any(|id| id.scheme == "super")
    }
}

/// The id of the scheme `digest` for `user:password`: `user:base64(sha1(user:password))`.
#[must_use]
pub fn digest_id(user_and_password: &[u8]) -> String {
    // What is no text is replaced before it is hashed, as in ZooKeeper.
    let text = String::from_utf8_lossy(user_and_password);
    let user = text.split(':').next().unwrap_or_default();
    let hash = STANDARD.encode(Sha1::digest(text.as_bytes()));
    format!("{user}:{hash}")
}

/// Whether `list` allows some permission of `wanted` to `identity`. An empty list allows
/// everything.
pub(crate) fn permits(list: &[Acl<'_>], identity: &Identity, wanted: Perms) -> bool {
    if list.is_empty() || identity.is_super() {
        return true;
    }
    list.iter()
        .filter(|entry| entry.perms.intersects(wanted))
        .any(|entry| {
            (entry.scheme == "world" && entry.id == "anyone")
                || identity
                    .ids
                    .iter()
                    .any(|own| own.scheme == entry.scheme && matches(own, &entry.id))
        })
}

fn matches(own: &AuthId, wanted: &str) -> bool {
    if own.scheme == "ip" {
        own.id
            .parse()
            .ok()
            .zip(parse_range(wanted))
            .is_some_and(|(address, (network, bits))| in_range(address, network, bits))
    } else {
        own.id == wanted
    }
}

fn parse_range(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= width)?,
        None => width,
    };
    Some((address, bits))
}

fn in_range(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (address.to_bits() ^ network.to_bits())
                .checked_shr(32 - bits)
                .unwrap_or(0)
                == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            (address.to_bits() ^ network.to_bits())
                .checked_shr(128 - bits)
                .unwrap_or(0)
                == 0
        }
        _ => false,
    }
}

/// The list to store for a list as sent: without repeats, `auth` replaced by the connection's
/// identities.
///
/// # Errors
/// [`ErrorCode::InvalidAcl`]: null, empty, an unknown scheme, an id that its scheme does not allow,
/// or `auth` from a connection that has authenticated as nobody.
pub(crate) fn fix_up(
    list: Option<&[Acl<'_>]>,
    identity: &Identity,
) -> Result<Vec<Acl<'static>>, ErrorCode> {
    let list = list
        .filter(|list| !list.is_empty())
        .ok_or(ErrorCode::InvalidAcl)?;
    let mut fixed: Vec<Acl<'static>> = Vec::with_capacity(list.len());
    for (index, entry) in list.iter().enumerate() {
        if list.iter().take(index).any(|earlier| earlier == entry) {
            continue;
        }
        match entry.scheme.as_ref() {
            "world" if entry.id == "anyone" => fixed.push(own(entry)),
            "auth" => {
                let before = fixed.len();
                for id in identity.ids.iter().filter(|id| is_authentication(id)) {
                    fixed.push(Acl::new(entry.perms, id.scheme.clone(), id.id.clone()));
                }
                if fixed.len() == before {
                    return Err(ErrorCode::InvalidAcl);
                }
            }
            "digest" if is_digest(&entry.id) => fixed.push(own(entry)),
            "ip" if parse_range(&entry.id).is_some() => fixed.push(own(entry)),
            // The server has seen to it that these are enabled where the client is connected.
            "sasl" if !entry.id.is_empty() => fixed.push(own(entry)),
            "x509" if entry.id.contains('=') => fixed.push(own(entry)),
            _ => return Err(ErrorCode::InvalidAcl),
        }
    }
    Ok(fixed)
}

/// Whether `auth` in an ACL stands for this identity: an address proves nothing, `super` is not a
/// name.
fn is_authentication(id: &AuthId) -> bool {
    !matches!(id.scheme.as_str(), "ip" | "super" | "world")
}

fn is_digest(id: &str) -> bool {
    id.split_once(':')
        .is_some_and(|(_, hash)| !hash.is_empty() && !hash.contains(':'))
}

fn own(entry: &Acl<'_>) -> Acl<'static> {
    entry.clone().into_owned()
}

/// The list as shown to somebody without the permission ADMIN: digests hide their hash.
pub(crate) fn mask(list: &[Acl<'static>]) -> Vec<Acl<'static>> {
    list.iter()
        .map(|entry| {
            let mut entry = entry.clone();
            if entry.scheme == "digest" {
                let user = entry.id.split(':').next().unwrap_or_default();
                entry.id = Cow::Owned(format!("{user}:x"));
            }
            entry
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(scheme: &'static str, id: &'static str) -> Acl<'static> {
        Acl::new(Perms::READ, scheme, id)
    }

    fn someone() -> Identity {
        let mut identity = Identity::from_ip("10.1.2.3".parse().unwrap());
        identity.add("digest", digest_id(b"user:password"));
        identity
    }

    #[test]
    fn digest_id_is_the_one_other_clients_compute() {
        assert_eq!(
            digest_id(b"super:test"),
            "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
        );
        assert_eq!(
            digest_id(b"\xff\xfe"),
            "\u{fffd}\u{fffd}:h1Dsnd/ik80dw5tCRcIcJw+PUrc="
        );
    }

    #[test]
    fn address_ranges_match_by_prefix() {
        let someone = someone();
        for (range, expected) in [
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("10.1.2.3/32", true),
            ("10.1.2.4/32", false),
            ("10.1.2.3/33", false),
            ("10.1.0.0/16", true),
            ("10.2.0.0/16", false),
            ("0.0.0.0/0", true),
            ("::/0", false),
        ] {
            let list = [acl("ip", range)];
            assert_eq!(permits(&list, &someone, Perms::READ), expected, "{range}");
        }
    }

    #[test]
    fn addresses_of_ipv6_have_ranges_and_an_ipv4_one_stays_what_it_is() {
        for (address, range, expected) in [
            ("fe80::1", "fe80::1", true),
            ("fe80::1", "FE80:0::0:1", true),
            ("fe80::1", "fe80::1/128", true),
            ("fe80::1", "fe80::1/129", false),
            ("fe80::1", "fe80::/10", true),
            ("fe80::1", "fec0::/10", false),
            ("fe80::1", "::/0", true),
            ("fe80::1", "0.0.0.0/0", false),
            ("::ffff:10.1.2.3", "10.1.0.0/16", true),
            ("::ffff:10.1.2.3", "::ffff:0:0/96", false),
        ] {
            let identity = Identity::from_ip(address.parse().unwrap());
            let permitted = permits(&[acl("ip", range)], &identity, Perms::READ);
            assert_eq!(permitted, expected, "{address} in {range}");
        }
    }

    #[test]
    fn permissions_not_named_are_not_given() {
        let list = [Acl::read_unsafe()];
        assert!(permits(&list, &someone(), Perms::READ));
        assert!(!permits(&list, &someone(), Perms::WRITE));
        assert!(permits(&list, &someone(), Perms::READ | Perms::ADMIN));
        let mut superuser = Identity::anonymous();
        superuser.add("super", "");
        assert!(permits(&list, &superuser, Perms::WRITE));
    }

    #[test]
    fn lists_are_validated_deduplicated_and_expanded() {
        let identity = someone();
        let fixed = fix_up(
            Some(&[
                acl("auth", "ignored"),
                acl("world", "anyone"),
                acl("world", "anyone"),
            ]),
            &identity,
        )
        .unwrap();
        assert_eq!(fixed.len(), 2);
        assert_eq!(fixed[0].scheme, "digest");
        for bad in [
            None,
            Some(&[][..]),
            Some(&[acl("world", "everyone")][..]),
            Some(&[acl("nonsense", "x")][..]),
            Some(&[acl("digest", "user")][..]),
            Some(&[acl("digest", "user:")][..]),
            Some(&[acl("digest", "a:b:c")][..]),
            Some(&[acl("ip", "10.0.0.0/33")][..]),
            Some(&[acl("ip", "localhost")][..]),
        ] {
            assert_eq!(
                fix_up(bad, &identity),
                Err(ErrorCode::InvalidAcl),
                "{bad:?}"
            );
        }
        let stranger = Identity::from_ip("10.1.2.3".parse().unwrap());
        assert_eq!(
            fix_up(Some(&[acl("auth", "")]), &stranger),
            Err(ErrorCode::InvalidAcl)
        );
    }

    #[test]
    fn masked_digest_keeps_the_user() {
        assert_eq!(mask(&[acl("digest", "user:hash")])[0].id, "user:x");
        assert_eq!(mask(&[acl("ip", "10.0.0.1")])[0].id, "10.0.0.1");
    }
}

//! The identities of a connection (protocol.md §1.4, §6): names with what a check of an ACL needs
//! of them. Never looks at the tree, at a socket or at a password file: the server authenticates
//! and hands over the result.

use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::varint::put_bytes;

/// One identity of a connection, in the terms of its scheme.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthId {
    /// `ip`, `digest`, `super`, or another that the server authenticates.
    pub scheme: String,
    /// The address; `user:hash`; empty for `super`.
    pub id: String,
}

/// An identity as checks look it up. Shared by all copies of the [`Identity`] that has it.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    id: Arc<AuthId>,
    hash: u64,
    address: Option<IpAddr>,
}

impl Name {
    fn new(id: AuthId) -> Self {
        let is_address = id.scheme == "ip";
        Self {
            hash: name_hash(&id.scheme, &id.id),
            address: is_address.then(|| id.id.parse().ok()).flatten(),
            id: Arc::new(id),
        }
    }

    pub(crate) fn id(&self) -> &AuthId {
        &self.id
    }

    /// [`name_hash`] of the identity.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// The address, if the identity is one.
    pub(crate) const fn address(&self) -> Option<IpAddr> {
        self.address
    }
}

/// A hash of an identity, by which ACLs find it. Equal hashes do not mean equal identities.
pub(crate) fn name_hash(scheme: &str, id: &str) -> u64 {
    xxh3_64_with_seed(id.as_bytes(), xxh3_64(scheme.as_bytes()))
}

/// All identities of a connection. A copy shares their texts.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    names: Vec<Name>,
    bytes: usize,
    is_super: bool,
}

impl Identity {
    /// A connection about which nothing is known.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self {
            names: Vec::new(),
            bytes: 0,
            is_super: false,
        }
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
        let name = Name::new(AuthId {
            scheme: scheme.into(),
            id: id.into(),
        });
        if !self.has_name(&name) {
            self.bytes += name.id.scheme.len() + name.id.id.len();
            self.is_super |= name.id.scheme == "super";
            if self.names.is_empty() {
                // Most connections have one, and there may be a hundred thousand.
                self.names.reserve_exact(1);
            }
            self.names.push(name);
        }
    }

    fn has_name(&self, wanted: &Name) -> bool {
        let mut names = self.names.iter();
        names.any(|name| name.hash == wanted.hash && name.id == wanted.id)
    }

    /// The identities, in the order in which they were added.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &AuthId> + Clone {
        self.names.iter().map(Name::id)
    }

    pub(crate) fn names(&self) -> &[Name] {
        &self.names
    }

    /// Bytes of the schemes and ids of all identities.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether it has this identity.
    #[must_use]
    pub fn contains(&self, id: &AuthId) -> bool {
        self.ids().any(|own| own == id)
    }

    /// Returns whether it has an identity of this scheme.
    #[must_use]
    pub fn has(&self, scheme: &str) -> bool {
        self.ids().any(|id| id.scheme == scheme)
    }

    /// Returns whether every ACL is open to this connection.
    #[must_use]
    pub const fn is_super(&self) -> bool {
        self.is_super
    }
}

impl FromIterator<AuthId> for Identity {
    fn from_iter<I: IntoIterator<Item = AuthId>>(ids: I) -> Self {
        let mut identity = Self::anonymous();
        for id in ids {
            identity.add(id.scheme, id.id);
        }
        identity
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.ids().eq(other.ids())
    }
}

impl Eq for Identity {}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Identity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ids().cmp(other.ids())
    }
}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ids().for_each(|id| id.hash(state));
    }
}

/// Appends scheme and id of each.
pub(crate) fn put_ids<'a>(out: &mut Vec<u8>, ids: impl Iterator<Item = &'a AuthId>) {
    for id in ids {
        put_bytes(out, id.scheme.as_bytes());
        put_bytes(out, id.id.as_bytes());
    }
}

/// The id of the scheme `digest` for `user:password`: `user:base64(sha1(user:password))`.
#[must_use]
pub fn digest_id(user_and_password: &[u8]) -> String {
    // What is not text is replaced before it is hashed, as in ZooKeeper.
    let text = String::from_utf8_lossy(user_and_password);
    let user = text.split(':').next().unwrap_or_default();
    let hash = STANDARD.encode(Sha1::digest(text.as_bytes()));
    format!("{user}:{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_name_counts_once_and_a_copy_shares_its_text() {
        let mut identity = Identity::from_ip("10.1.2.3".parse().unwrap());
        identity.add("digest", "a:x");
        identity.add("digest", "a:x");
        assert_eq!(identity.ids().len(), 2);
        assert_eq!(identity.bytes(), "ip10.1.2.3digesta:x".len());
        let mut copy = identity.clone();
        assert_eq!(copy, identity);
        copy.add("digest", "b:x");
        assert_ne!(copy, identity);
        for (one, other) in identity.names().iter().zip(copy.names()) {
            assert!(Arc::ptr_eq(&one.id, &other.id));
        }
    }
}

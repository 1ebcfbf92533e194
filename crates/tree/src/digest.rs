//! The digest by which replicas compare themselves: a sum over znodes and sessions of a hash of
//! each, kept up to date with every write. Owns what goes into the hash. It depends on content only
//! (paths, data, stats, ACLs), never on numbers or orders that are local to a process; the hash is
//! XXH3, whose values are fixed for good.
//!
//! Each znode has two terms, so that a new child costs its parent no second look at the parent's
//! data.

use baton_proto::PASSWORD_BYTES;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::arena::{Family, Node};
use crate::identity::{AuthId, Identity, put_ids};

/// A running sum of terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) const fn add(&mut self, term: u64) {
        self.0 = self.0.wrapping_add(term);
    }

    /// Adds the terms of another part of the state.
    pub(crate) const fn merge(&mut self, part: Self) {
        self.add(part.0);
    }

    pub(crate) const fn remove(&mut self, term: u64) {
        self.0 = self.0.wrapping_sub(term);
    }

    /// The digest of a state of level 1 after `zxid`.
    pub(crate) fn value(self, zxid: i64) -> u64 {
        hash_words(&[self.0, zxid as u64], 0)
    }

    /// The digest of a state of a later level after `zxid`, whose last entry has that time.
    pub(crate) fn value_at_level(self, zxid: i64, level: u64, time_ms: i64) -> u64 {
        hash_words(&[self.0, zxid as u64, level, time_ms as u64], 0)
    }
}

/// Hash of a znode's path, as it enters the digest.
pub(crate) fn hash_path(path: &str) -> u64 {
    xxh3_64(path.as_bytes())
}

/// The term of what a write of data changes.
pub(crate) fn data_term(path_hash: u64, node: Node<'_>) -> u64 {
    let (data, details) = (node.data(), node.details());
    hash_words(
        &[
            node.czxid() as u64,
            details.mzxid as u64,
            node.ctime() as u64,
            details.mtime as u64,
            details.owner as u64,
            u64::from(details.version as u32),
            u64::from(data.is_some()),
            xxh3_64(data.unwrap_or_default()),
        ],
        path_hash,
    )
}

/// The term of what a write of the ACL and the coming and going of children change.
pub(crate) fn family_term(path_hash: u64, node: Node<'_>, family: &Family, acl_hash: u64) -> u64 {
    hash_words(
        &[
            family.creates as u64,
            family.pzxid as u64,
            u64::from(node.details().aversion as u32),
            acl_hash,
        ],
        path_hash,
    )
}

/// The term of a session in a tree of level 1.
pub(crate) fn session_term(id: i64, password: &[u8; PASSWORD_BYTES], timeout_ms: i32) -> u64 {
    hash_words(
        &[id as u64, u64::from(timeout_ms as u32), xxh3_64(password)],
        1,
    )
}

/// The term of a session that stores its attachment, without what its sequence adds.
pub(crate) fn attached_session_term(
    id: i64,
    password: &[u8; PASSWORD_BYTES],
    timeout_ms: i32,
    nonce: u64,
    is_broken: bool,
) -> u64 {
    hash_words(
        &[
            id as u64,
            u64::from(timeout_ms as u32),
            xxh3_64(password),
            nonce,
            u64::from(is_broken),
        ],
        2,
    )
}

/// Addition of each applied command of an attachment to the digest. It is odd, so that no two
/// numbers of a sequence add the same. A sum and not a hash: every write adds to it.
pub(crate) fn sequence_step(session: i64, nonce: u64) -> u64 {
    hash_words(&[session as u64, nonce], 3) | 1
}

/// Addition of a session for the identities to which it is bound.
pub(crate) fn binding_term(session: i64, bound_to: &[AuthId]) -> u64 {
    if bound_to.is_empty() {
        return 0;
    }
    let mut bytes = Vec::new();
    put_ids(&mut bytes, bound_to.iter());
    hash_words(&[session as u64, xxh3_64(&bytes)], 4)
}

/// Returns what a session adds for the identity that it stores.
pub(crate) fn identity_term(session: i64, identity: &Identity) -> u64 {
    let mut bytes = Vec::new();
    put_ids(&mut bytes, identity.ids());
    hash_words(&[session as u64, xxh3_64(&bytes)], 5)
}

/// Returns what the newest id of a server's sessions adds.
pub(crate) fn newest_id_term(id: i64) -> u64 {
    hash_words(&[id as u64], 6)
}

fn hash_words(words: &[u64], seed: u64) -> u64 {
    let mut bytes = [0_u8; 64];
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    let used = bytes.get(..words.len() * 8).unwrap_or(&bytes);
    xxh3_64_with_seed(used, seed)
}

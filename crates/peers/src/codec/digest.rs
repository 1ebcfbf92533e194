//! Digest of a server's state after an entry of the log, so that servers that differ find out.

use crate::codec::fields::fields;

/// The digest of a server's state after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDigest {
    /// The entry.
    pub index: u64,
    /// The digest of the state once that entry is applied.
    pub digest: u64,
}

fields!(StateDigest { index, digest });

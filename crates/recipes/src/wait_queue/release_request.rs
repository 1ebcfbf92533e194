//! The data that asks a holder to release.
//!
//! Owns the bytes. They replace what the holder wrote to its node; a holder that listens for them
//! releases when it is ready, and holds until then.

/// Data that Baton writes to a node to ask its holder to release: the form of Curator's revocable
/// locks.
pub(crate) const RELEASE_REQUEST: &[u8] = b"__REVOKE__";

/// Returns whether a node's data asks its holder to release: in Curator's form, or in that of
/// ZooKeeper's page on recipes.
pub(crate) fn is_release_request(data: &[u8]) -> bool {
    data == RELEASE_REQUEST || data == b"unlock"
}

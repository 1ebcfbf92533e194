//! Settings of a Baton of an ensemble besides those of one that stands alone.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One of several Batons.
#[derive(Debug, Clone)]
pub(super) struct Member {
    /// Its id, from 1.
    pub(super) id: u8,
    /// Every server by its id, with the address at which the others reach it.
    pub(super) servers: BTreeMap<u64, String>,
    /// Address at which it listens for the others.
    pub(super) listen: SocketAddr,
}

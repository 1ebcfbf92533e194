//! The connections to the other servers, as the core uses them.
//!
//! | module | owns |
//! |---|---|
//! | `wire` | what the core needs of the connections to the other servers |
//! | `peer_log` | what the log says of other servers, and how many lines they may cause |
//! | `addresses` | where the other servers are reached |
//! | `events` | events of these connections, on their way to the core |

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use baton_peers::bootstrap::Bootstrap;

use self::addresses::PeerAddresses;
use self::events::EventQueue;
use self::peer_log::PeerLog;
use self::wire::{NoPeers, Wire};

pub(crate) mod addresses;
pub(crate) mod events;
pub(crate) mod peer_log;
pub(crate) mod wire;

/// Connections to the other servers.
#[derive(Debug)]
pub(crate) struct Links {
    /// This server's id among them.
    pub(crate) id: u64,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) events: Arc<EventQueue>,
    /// Has the first membership, for a server that missed it; `None` in a simulation.
    pub(crate) bootstrap: Option<Bootstrap>,
    /// Addresses of the other servers.
    pub(crate) addresses: PeerAddresses,
    /// Limits the lines about other servers.
    pub(crate) peer_log: PeerLog,
    /// Drawn at each start, so that batches of an earlier process are not taken for this one's.
    pub(crate) run: u64,
}

impl Links {
    /// Those of a server that stands alone, with this id in its log.
    pub(crate) fn alone(id: u64) -> Self {
        Self {
            id,
            wire: Arc::new(NoPeers),
            events: Arc::default(),
            bootstrap: None,
            addresses: PeerAddresses::default(),
            peer_log: PeerLog::default(),
            run: RandomState::new().hash_one(id),
        }
    }
}

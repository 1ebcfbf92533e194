//! What the core and the sockets share: the tree and the watches under their locks, the inbox, the
//! clocks, the connections. Locks are taken in one order: tree, watches, a connection's outbox.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use baton_proto::Limits;
use baton_tree::{Identity, Tree};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::auth::attempts::Guesses;
use crate::connections::conn::{CloseReason, Conn, Peer};
use crate::connections::inbound::Inbound;
use crate::connections::inbox::Inbox;
use crate::connections::outbound::Outbound;
use crate::options::Options;
use crate::report::listings::Listings;
use crate::report::notices::Notices;
use crate::session::beat::Beat;
use crate::session::clocks::ServerTime;
use crate::stats::counters::Stats;
use crate::stats::progress::Progress;
use crate::watch::table::WatchTable;

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) tree: RwLock<Tree>,
    pub(crate) watches: Mutex<WatchTable>,
    pub(crate) inbox: Inbox,
    pub(crate) time: ServerTime,
    pub(crate) beat: Beat,
    pub(crate) stats: Stats,
    pub(crate) notices: Notices,
    pub(crate) listings: Listings,
    pub(crate) guesses: Guesses,
    pub(crate) progress: Progress,
    /// The zxid of the last applied write. Set after every event up to it has been pushed.
    pub(crate) last_zxid: AtomicI64,
    /// Sessions that are open.
    pub(crate) sessions: AtomicUsize,
    /// Server time at which the last session or connection ended.
    pub(crate) idle_since_ms: AtomicU64,
    pub(crate) connections: Mutex<Connections>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) inbound: Inbound,
}

/// Every open connection.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: HashMap<u32, Arc<Conn>, RandomState>,
    per_address: HashMap<IpAddr, usize, RandomState>,
    next_id: u32,
    stopping: bool,
}

/// Why a connection was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMany {
    #[error(
        "{0} connections from its address are open already; raise max_connections_per_address or close some"
    )]
    FromAddress(usize),
    #[error("{0} connections are open already; raise max_connections or close some")]
    InAll(usize),
    #[error("the server stops")]
    Stopping,
}

impl Shared {
    pub(crate) fn zxid(&self) -> i64 {
        self.last_zxid.load(Ordering::Acquire)
    }

    /// Takes a connection into the books.
    pub(crate) fn open(&self, peer: Peer) -> Result<Arc<Conn>, TooMany> {
        let options = &self.options;
        let mut connections = self.connections.lock();
        if connections.stopping {
            return Err(TooMany::Stopping);
        }
        let open = connections.open.len();
        if options.max_connections > 0 && open >= options.max_connections {
            return Err(TooMany::InAll(open));
        }
        if let Some(ip) = peer.ip() {
            let count = connections.per_address.entry(ip).or_insert(0);
            if options.max_connections_per_address > 0
                && *count >= options.max_connections_per_address
            {
                return Err(TooMany::FromAddress(*count));
            }
            *count += 1;
        }
        let id = loop {
            connections.next_id = connections.next_id.wrapping_add(1);
            if !connections.open.contains_key(&connections.next_id) {
                break connections.next_id;
            }
        };
        let identity = Identity::from_ip(
            peer.ip()
                .unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        );
        let conn = Conn::new(id, peer, identity, self.time.now_ms(), &self.outbound);
        connections.open.insert(id, Arc::clone(&conn));
        Ok(conn)
    }

    /// Bytes received and sent, over all connections there have been.
    pub(crate) fn transferred_bytes(&self) -> (u64, u64) {
        let connections = self.connections.lock();
        let stats = &self.stats;
        let mut total = (
            stats.bytes_in_before.load(Ordering::Relaxed),
            stats.bytes_out_before.load(Ordering::Relaxed),
        );
        for conn in connections.open.values() {
            total.0 += conn.stats.bytes_in.load(Ordering::Relaxed);
            total.1 += conn.stats.bytes_out.load(Ordering::Relaxed);
        }
        total
    }

    /// Strikes a connection out, and its watches.
    pub(crate) fn forget(&self, conn: &Conn) {
        // First: watches that it asks for from now on are not set, those before are forgotten
        // below.
        let ended = conn.detach();
        self.release_unfinished(conn, ended);
        self.watches.lock().forget(conn.id);
        let mut connections = self.connections.lock();
        connections.open.remove(&conn.id);
        for (total, own) in [
            (&self.stats.bytes_in_before, &conn.stats.bytes_in),
            (&self.stats.bytes_out_before, &conn.stats.bytes_out),
        ] {
            total.fetch_add(own.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if let Some(ip) = conn.peer.ip()
            && let Some(count) = connections.per_address.get_mut(&ip)
        {
            *count -= 1;
            if *count == 0 {
                connections.per_address.remove(&ip);
            }
        }
        if connections.open.is_empty() {
            connections.open.shrink_to_fit();
        }
        self.idle_since_ms
            .store(self.time.now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.connections.lock().open.len()
    }

    /// Every connection, in order of id.
    pub(crate) fn all_connections(&self) -> Vec<Arc<Conn>> {
        let mut all: Vec<_> = self.connections.lock().open.values().cloned().collect();
        all.sort_by_key(|conn| conn.id);
        all
    }

    /// Takes no connection any more and closes those that are open.
    pub(crate) fn close_connections(&self) {
        self.connections.lock().stopping = true;
        let mut wake = Vec::new();
        for conn in self.all_connections() {
            conn.close(CloseReason::ServerStops, &mut wake);
        }
        for conn in wake {
            conn.wake(false);
        }
    }

    /// How long neither a session nor a connection has been open; zero while one is.
    pub(crate) fn idle(&self) -> Duration {
        if self.sessions.load(Ordering::Relaxed) > 0 || self.open_connections() > 0 {
            return Duration::ZERO;
        }
        let since = self.idle_since_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.time.now_ms().saturating_sub(since))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use baton_wal::MemoryStorage;

    use super::*;
    use crate::commit::starting::Starting;
    use crate::server::prepare;

    /// What a server without sockets, and with a core that does not run, shares.
    pub(crate) fn shared(options: Options) -> Arc<Shared> {
        let storage = Arc::new(MemoryStorage::new());
        prepare(options, storage, None, &Starting::default())
            .unwrap()
            .0
    }

    #[test]
    fn connections_of_an_address_are_counted_until_the_last_has_gone() {
        let shared = shared(Options {
            max_connections_per_address: 2,
            ..Options::default()
        });
        let open = |port| {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
            shared.open(Peer::Tcp(address))
        };
        let (one, two) = (open(1).unwrap(), open(2).unwrap());
        let full = |refused| matches!(refused, Err(TooMany::FromAddress(2)));
        assert!(full(open(3)));
        shared.forget(&one);
        let three = open(3).unwrap();
        assert!(full(open(4)));
        shared.forget(&two);
        shared.forget(&three);
        assert!(shared.connections.lock().per_address.is_empty());
        assert_eq!(shared.open_connections(), 0);
    }
}

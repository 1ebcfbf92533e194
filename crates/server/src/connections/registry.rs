//! Every open connection, and the limits on their number.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use baton_tree::Identity;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::connections::conn::Conn;
use crate::connections::counts::ClientCounts;
use crate::connections::outbound::Outbound;
use crate::connections::peer::{Peer, PeerGroup};
use crate::options::Options;

/// The open connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: HashMap<u32, Arc<Conn>, RandomState>,
    per_client: ClientCounts,
    next_id: u32,
    stopping: bool,
}

/// Limits for which a connection was refused.
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

impl Connections {
    /// Adds a connection of `peer`.
    ///
    /// # Errors
    /// [`TooMany`]: nothing has changed.
    pub(crate) fn open(
        &mut self,
        peer: Peer,
        options: &Options,
        now_ms: impl FnOnce() -> u64,
        outbound: &Arc<Outbound>,
    ) -> Result<Arc<Conn>, TooMany> {
        if self.stopping {
            return Err(TooMany::Stopping);
        }
        let open = self.open.len();
        if options.max_connections > 0 && open >= options.max_connections {
            return Err(TooMany::InAll(open));
        }
        let client = PeerGroup::of(Some(&peer));
        let count = self.per_client.of(client);
        let most = options.max_connections_per_address;
        if most > 0 && count >= most {
            return Err(TooMany::FromAddress(count));
        }
        self.per_client.add(client);
        let id = loop {
            self.next_id = self.next_id.wrapping_add(1);
            if !self.open.contains_key(&self.next_id) {
                break self.next_id;
            }
        };
        let identity = Identity::from_ip(peer.ip().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let conn = Conn::new(id, peer, identity, now_ms(), outbound);
        self.open.insert(id, Arc::clone(&conn));
        Ok(conn)
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove(&mut self, conn: &Conn) {
        self.open.remove(&conn.id);
        self.per_client.remove(PeerGroup::of(Some(&conn.peer)));
        if self.open.is_empty() {
            self.open.shrink_to_fit();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// The open connections, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Conn>> {
        self.open.values()
    }

    /// Refuses every further connection.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_address_and_unix_sockets_are_none() {
        let options = Options {
            max_connections_per_address: 1,
            ..Options::default()
        };
        let outbound = Outbound::new(&options);
        let mut connections = Connections::default();
        let mut open = |peer| connections.open(peer, &options, || 0, &outbound);
        let at = |address: &str| Peer::Tcp(address.parse().unwrap());
        let first = open(at("[2001:db8:0:1::1]:1"));
        assert!(first.is_ok());
        assert!(matches!(
            open(at("[2001:db8:0:1:f::2]:1")),
            Err(TooMany::FromAddress(1))
        ));
        assert!(open(at("[2001:db8:0:2::1]:1")).is_ok());
        assert!(open(at("[::ffff:192.0.2.1]:1")).is_ok());
        assert!(matches!(
            open(at("192.0.2.1:2")),
            Err(TooMany::FromAddress(1))
        ));
        for _ in 0..3 {
            assert!(open(Peer::Local).is_ok());
        }
    }

    #[test]
    fn connections_of_an_address_are_counted_until_the_last_has_gone() {
        let options = Options {
            max_connections_per_address: 2,
            ..Options::default()
        };
        let outbound = Outbound::new(&options);
        let mut connections = Connections::default();
        let open = |connections: &mut Connections, port| {
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
            connections.open(Peer::Tcp(address), &options, || 0, &outbound)
        };
        let one = open(&mut connections, 1).unwrap();
        let two = open(&mut connections, 2).unwrap();
        let full = |refused| matches!(refused, Err(TooMany::FromAddress(2)));
        assert!(full(open(&mut connections, 3)));
        connections.remove(&one);
        let three = open(&mut connections, 3).unwrap();
        assert!(full(open(&mut connections, 4)));
        connections.remove(&two);
        connections.remove(&three);
        assert!(connections.per_client.is_empty());
        assert_eq!(connections.len(), 0);
    }
}

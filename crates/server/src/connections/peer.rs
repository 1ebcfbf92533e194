//! The other end of a connection, and which of them count as one client in limits.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Tcp(SocketAddr),
    /// A process on this machine, over a unix socket.
    Local,
}

impl Peer {
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Peer::Tcp(addr) => Some(addr.ip().to_canonical()),
            Peer::Local => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(addr) => write!(f, "{addr}"),
            Peer::Local => f.write_str("unix"),
        }
    }
}

/// Peers that limits count as one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PeerGroup {
    Address(IpAddr),
    /// A /64 network of IPv6: a host that has one address of it has them all.
    Network(Ipv6Addr),
    /// Processes on this machine, over unix sockets.
    Local,
    /// The server itself, or a client that has disconnected.
    Nobody,
    /// All peers beyond the number that is counted separately.
    Others,
}

impl PeerGroup {
    /// Whether limits of what one client may have count it: a client of a unix socket may use the
    /// machine's memory anyway.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, PeerGroup::Address(_) | PeerGroup::Network(_))
    }

    pub(crate) fn of(peer: Option<&Peer>) -> Self {
        match peer {
            None => PeerGroup::Nobody,
            Some(peer) => match peer.ip() {
                None => PeerGroup::Local,
                Some(IpAddr::V6(ip)) if !ip.is_loopback() => {
                    let [a, b, c, d, ..] = ip.segments();
                    PeerGroup::Network(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
                }
                Some(ip) => PeerGroup::Address(ip),
            },
        }
    }
}

impl fmt::Display for PeerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerGroup::Address(ip) => write!(f, "{ip}"),
            PeerGroup::Network(ip) => write!(f, "{ip}/64"),
            PeerGroup::Local => f.write_str("unix"),
            PeerGroup::Nobody => f.write_str("none"),
            PeerGroup::Others => f.write_str("other peers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_network_of_addresses_is_one_peer() {
        let of = |address: &str| PeerGroup::of(Some(&Peer::Tcp(address.parse().unwrap())));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:9"));
        assert_ne!(of("[2001:db8:0:1::1]:1"), of("[2001:db8::1]:1"));
        assert_eq!(of("[2001:db8:0:1::1]:1").to_string(), "2001:db8:0:1::/64");
        assert_eq!(of("[::ffff:10.0.0.1]:1"), of("10.0.0.1:2"));
        assert_eq!(of("[::1]:7").to_string(), "::1");
    }
}

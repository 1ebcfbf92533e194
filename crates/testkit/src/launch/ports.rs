//! Ports of servers that a test starts as processes of their own. Owns which port is handed out.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use super::LaunchError;

/// Below the ports that Linux (32768 and up) and others (49152 and up) give to outgoing
/// connections, so that no connection takes a port between its choice here and the bind of the
/// server that it is for.
const PORTS: Range<u16> = 20_000..32_000;

/// Number of ports that were tried in this process.
static TRIED: AtomicU16 = AtomicU16::new(0);

/// A loopback address with a free TCP port, which no other test takes as long as this process runs.
///
/// # Errors
/// No port is free.
pub fn free_addr() -> Result<SocketAddr, LaunchError> {
    let count = PORTS.end - PORTS.start;
    // Processes begin at different ports, so that few of them ask for one that another has.
    let first = u16::try_from(std::process::id() % u32::from(count)).unwrap_or(0);
    for _ in 0..count {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + (first + tried) % count;
        if reserve(port) {
            return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        }
    }
    let none = io::Error::from(io::ErrorKind::AddrInUse);
    Err(LaunchError::io("no port of 127.0.0.1 is free")(none))
}

/// Takes the port for this process, if nobody has it.
fn reserve(port: u16) -> bool {
    // The UDP port of the same number, which nothing under test uses, is bound until the process
    // ends: this shows other test processes, of any user, that the TCP port is taken while
    // its server is still to start.
    let Ok(mark) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else {
        return false;
    };
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    if free {
        std::mem::forget(mark);
    }
    free
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_nor_while_another_has_it() {
        let taken: Vec<SocketAddr> = (0..50).map(|_| free_addr().unwrap()).collect();
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len());
        for addr in taken {
            assert!(PORTS.contains(&addr.port()));
            assert!(!reserve(addr.port()), "{addr} was reserved twice");
            assert!(TcpListener::bind(addr).is_ok(), "{addr} is not free");
        }
    }
}

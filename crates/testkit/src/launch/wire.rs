//! Wires between servers, which can be cut one way or both ways. Forwards bytes and understands
//! none but the first of a connection between Batons; never informs either side of a cut.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::LaunchError;
use super::background::background;

/// Large enough that a snapshot between servers is no matter of many small steps.
const CHUNK_BYTES: usize = 64 * 1024;

const REACH_ATTEMPTS: u32 = 100;
const REACH_PAUSE: Duration = Duration::from_millis(20);

/// Position of a connecting Baton's id: behind the 8 bytes with which each side begins, the head of
/// the first frame, and what stands before it in a hello (`docs/internals/peers.md`, "Handshake").
const CALLER_AT: usize = 8 + 12 + 32;
/// Up to the end of that id.
const OPENING_BYTES: usize = CALLER_AT + 8;

/// Direction of bytes, seen from one server of an ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From this server to others.
    Outgoing,
    /// From others to this server.
    Incoming,
}

impl Direction {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::Outgoing, Self::Incoming];
}

/// The way from one server to another. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    is_cut: watch::Sender<bool>,
}

impl Link {
    pub(super) fn set_cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

/// Both ways of a connection.
#[derive(Debug, Clone)]
pub(super) struct LinkPair {
    /// From the side that connects.
    pub(super) outward: Link,
    /// Back to it.
    pub(super) back: Link,
}

/// Servers that connect over a wire.
#[derive(Debug, Clone)]
pub(super) enum Callers {
    /// One server.
    One(LinkPair),
    /// Batons with these ids.
    Batons(BTreeMap<u64, LinkPair>),
}

/// Forwards connections on its own port to another. While a way is cut nothing moves on it, and
/// neither side is notified.
#[derive(Debug)]
pub(super) struct Wire {
    addr: SocketAddr,
    accept: tokio::task::JoinHandle<()>,
}

impl Wire {
    pub(super) async fn to(upstream: SocketAddr, callers: Callers) -> Result<Self, LaunchError> {
        let background = background()?;
        let bound = background.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = bound
            .await
            .unwrap_or_else(|ended| Err(ended.into()))
            .map_err(LaunchError::io("cannot bind a port on 127.0.0.1"))?;
        let addr = listener
            .local_addr()
            .map_err(LaunchError::io("a bound port has no address"))?;
        let accept = background.spawn(forward(listener, upstream, callers));
        Ok(Self { addr, accept })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn forward(listener: TcpListener, upstream: SocketAddr, callers: Callers) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(client, upstream, callers.clone()));
    }
}

async fn connection(mut client: TcpStream, upstream: SocketAddr, callers: Callers) {
    let (ways, opening, attempts) = match callers {
        Callers::One(ways) => (ways, Vec::new(), REACH_ATTEMPTS),
        Callers::Batons(by_id) => {
            let mut opening = vec![0; OPENING_BYTES];
            if client.read_exact(&mut opening).await.is_err() {
                return;
            }
            let Some(ways) = caller(&opening).and_then(|id| by_id.get(&id).cloned()) else {
                return;
            };
            (ways, opening, 1)
        }
    };
    let Some(server) = reach(upstream, attempts).await else {
        // The nearest that a wire comes to a port on which nothing listens.
        let _ = client.set_zero_linger();
        return;
    };
    for socket in [&client, &server] {
        let _ = socket.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        copy(opening, from_client, to_server, &ways.outward),
        copy(Vec::new(), from_server, to_client, &ways.back)
    );
}

/// The id of the Baton whose connection begins like this.
fn caller(opening: &[u8]) -> Option<u64> {
    let (_, id) = opening.split_at_checked(CALLER_AT)?;
    Some(u64::from_le_bytes(*id.first_chunk()?))
}

/// Connects. A ZooKeeper is tried again, because it may begin to listen a moment later: a follower
/// may find its leader before that is ready, and would take an accepted connection that ends at
/// once for the leader's end, where it tries again if it is refused.
async fn reach(upstream: SocketAddr, attempts: u32) -> Option<TcpStream> {
    for attempt in 1..=attempts {
        if let Ok(server) = TcpStream::connect(upstream).await {
            return Some(server);
        }
        if attempt < attempts {
            tokio::time::sleep(REACH_PAUSE).await;
        }
    }
    None
}

/// Passes on what was read already, then everything that comes.
async fn copy(
    read: Vec<u8>,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: &Link,
) {
    let mut is_cut = way.is_cut.subscribe();
    let mut chunk = read;
    let mut length = chunk.len();
    loop {
        // What arrives while the way is cut is delivered when it is mended, as TCP would.
        if is_cut.wait_for(|is_cut| !is_cut).await.is_err() {
            break;
        }
        let Some(bytes) = chunk.get(..length) else {
            break;
        };
        if to.write_all(bytes).await.is_err() {
            break;
        }
        chunk.resize(CHUNK_BYTES, 0);
        match from.read(&mut chunk).await {
            Ok(0) | Err(_) => break,
            Ok(more) => length = more,
        }
    }
    // The other side may only be notified of the end while the wire is whole.
    if is_cut.wait_for(|is_cut| !is_cut).await.is_ok() {
        let _ = to.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_has_the_callers_id_where_the_wire_reads_it() {
        let mut opening = vec![0; OPENING_BYTES];
        opening[CALLER_AT] = 3;
        assert_eq!(caller(&opening), Some(3));
        assert_eq!(caller(&opening[..OPENING_BYTES - 1]), None);
    }
}

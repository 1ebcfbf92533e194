//! Wires between servers, which can be cut one way or both ways, and may be long. Forwards bytes
//! and understands none but the first of a connection between Batons; never informs either side of
//! a cut.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::LaunchError;
use super::background::background;

/// Large enough that a snapshot between servers is no matter of many small steps.
const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks on their way over a wire, at most.
const CHUNKS_IN_FLIGHT: usize = 512;

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
    /// A wire to this address, on which each byte travels for `delay`.
    pub(super) async fn to(
        upstream: SocketAddr,
        callers: Callers,
        delay: Duration,
    ) -> Result<Self, LaunchError> {
        let background = background()?;
        let bound = background.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = bound
            .await
            .unwrap_or_else(|ended| Err(ended.into()))
            .map_err(LaunchError::io("cannot bind a port on 127.0.0.1"))?;
        let addr = listener
            .local_addr()
            .map_err(LaunchError::io("a bound port has no address"))?;
        let accept = background.spawn(forward(listener, upstream, callers, delay));
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

async fn forward(listener: TcpListener, upstream: SocketAddr, callers: Callers, delay: Duration) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(client, upstream, callers.clone(), delay));
    }
}

async fn connection(
    mut client: TcpStream,
    upstream: SocketAddr,
    callers: Callers,
    delay: Duration,
) {
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
        copy(opening, from_client, to_server, &ways.outward, delay),
        copy(Vec::new(), from_server, to_client, &ways.back, delay)
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

/// Passes on what was read already, then everything that comes, each chunk `delay` after it came.
async fn copy(
    read: Vec<u8>,
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: &Link,
    delay: Duration,
) {
    let mut is_cut = way.is_cut.subscribe();
    let (sender, mut travelling) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_IN_FLIGHT);
    let write = async {
        while let Some((due, chunk)) = travelling.recv().await {
            sleep_until(due).await;
            // What arrives while the way is cut is delivered when it is mended, as TCP would.
            if is_cut.wait_for(|is_cut| !is_cut).await.is_err()
                || to.write_all(&chunk).await.is_err()
            {
                break;
            }
        }
        // What comes now is read by nobody.
        drop(travelling);
        // The other side may only be notified of the end while the wire is whole.
        if is_cut.wait_for(|is_cut| !is_cut).await.is_ok() {
            let _ = to.shutdown().await;
        }
    };
    tokio::join!(take_in(read, from, sender, delay), write);
}

/// Reads until the end, or until nobody writes any more.
async fn take_in(
    read: Vec<u8>,
    mut from: impl AsyncRead + Unpin,
    chunks: mpsc::Sender<(Instant, Vec<u8>)>,
    delay: Duration,
) {
    let mut chunk = read;
    loop {
        if chunks.send((Instant::now() + delay, chunk)).await.is_err() {
            return;
        }
        chunk = Vec::with_capacity(CHUNK_BYTES);
        tokio::select! {
            read = from.read_buf(&mut chunk) => if !matches!(read, Ok(1..)) {
                return;
            },
            () = chunks.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[test]
    fn a_hello_has_the_callers_id_where_the_wire_reads_it() {
        let mut opening = vec![0; OPENING_BYTES];
        opening[CALLER_AT] = 3;
        assert_eq!(caller(&opening), Some(3));
        assert_eq!(caller(&opening[..OPENING_BYTES - 1]), None);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_come_in_order_and_each_after_the_delay_of_its_own() {
        let delay = Duration::from_millis(25);
        let ((mut near, from), (to, mut far)) = (duplex(1 << 16), duplex(1 << 16));
        let way = Link::default();
        let wire = tokio::spawn(async move {
            copy(b"0".to_vec(), from, to, &way, delay).await;
        });
        let begin = Instant::now();
        let sending = tokio::spawn(async move {
            for number in 1..=9_u8 {
                near.write_all(&[b'0' + number]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        for number in 0..=9_u8 {
            assert_eq!(far.read_u8().await.unwrap(), b'0' + number);
            let sent = Duration::from_millis(10) * u32::from(number.saturating_sub(1));
            assert_eq!(begin.elapsed(), sent + delay, "by the clock of the test");
        }
        sending.await.unwrap();
        assert!(far.read_u8().await.is_err(), "the end comes over the wire");
        wire.await.unwrap();
    }
}

//! A wire between two servers that can be cut. Forwards bytes and understands none; never informs
//! either side of a cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::LaunchError;

/// Large enough that a snapshot between servers is no matter of many small steps.
const CHUNK_BYTES: usize = 64 * 1024;

const REACH_ATTEMPTS: u32 = 100;
const REACH_PAUSE: Duration = Duration::from_millis(20);

/// Which way bytes go between a follower and whichever server it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the follower to its leader.
    ToLeader,
    /// From the leader to the follower.
    FromLeader,
}

impl Direction {
    /// Both of them.
    pub const BOTH: [Self; 2] = [Self::ToLeader, Self::FromLeader];
}

/// Forwards connections on its own port to another, until it is cut: then nothing moves, and
/// neither side is notified.
#[derive(Debug)]
pub(super) struct Wire {
    addr: SocketAddr,
    cut: Arc<Cut>,
    accept: tokio::task::JoinHandle<()>,
}

impl Wire {
    pub(super) async fn to(upstream: SocketAddr) -> Result<Self, LaunchError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(LaunchError::io("cannot bind a port on 127.0.0.1"))?;
        let addr = listener
            .local_addr()
            .map_err(LaunchError::io("a bound port has no address"))?;
        let cut = Arc::new(Cut::default());
        let accept = tokio::spawn(forward(listener, upstream, Arc::clone(&cut)));
        Ok(Self { addr, cut, accept })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn set_cut(&self, direction: Direction, cut: bool) {
        self.cut.of(direction).send_replace(cut);
    }
}

/// What is cut, for each direction.
#[derive(Debug, Default)]
struct Cut {
    to_leader: watch::Sender<bool>,
    from_leader: watch::Sender<bool>,
}

impl Cut {
    fn of(&self, direction: Direction) -> &watch::Sender<bool> {
        match direction {
            Direction::ToLeader => &self.to_leader,
            Direction::FromLeader => &self.from_leader,
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn forward(listener: TcpListener, upstream: SocketAddr, cut: Arc<Cut>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let to_leader = cut.to_leader.subscribe();
        let from_leader = cut.from_leader.subscribe();
        connections.spawn(async move {
            if let Some(server) = reach(upstream).await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::join!(
                    copy(from_client, to_server, to_leader),
                    copy(from_server, to_client, from_leader)
                );
            }
        });
    }
}

/// Connects, also to a server that begins to listen a moment later: a follower may find its leader
/// before that is ready, and would take an accepted connection that ends at once for the leader's
/// end, where it tries again if it is refused.
async fn reach(upstream: SocketAddr) -> Option<TcpStream> {
    for _ in 0..REACH_ATTEMPTS {
        if let Ok(server) = TcpStream::connect(upstream).await {
            return Some(server);
        }
        tokio::time::sleep(REACH_PAUSE).await;
    }
    None
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut cut: watch::Receiver<bool>,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if cut.wait_for(|cut| !cut).await.is_err() {
            break;
        }
        let Some(bytes) = chunk.get(..length) else {
            break;
        };
        if to.write_all(bytes).await.is_err() {
            break;
        }
    }
    // The other side may only be notified of the end while the wire is whole.
    if cut.wait_for(|cut| !cut).await.is_ok() {
        let _ = to.shutdown().await;
    }
}

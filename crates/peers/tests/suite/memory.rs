//! Servers in one process, connected by streams in memory: a listener by name, streams that can
//! stop to move bytes, events in a channel.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use baton_peers::codec::{Lane, Refusal};
use baton_peers::handshake::LocalServer;
use baton_peers::net::{
    Acceptor, Connector, DialFailure, Direction, Link, Options, PeerEvent, PeerEvents, Peers,
    WallClock,
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::{Instant, timeout};

/// Longer than anything a test waits for.
const LONG: Duration = Duration::from_secs(600);
/// Bytes that are on their way in one stream, at most.
const STREAM_BYTES: usize = 64 << 10;

/// One end of a stream, which moves nothing while it is frozen.
pub struct Wire {
    stream: DuplexStream,
    frozen: Arc<AtomicBool>,
}

impl Wire {
    fn is_frozen(&self) -> bool {
        self.frozen.load(Relaxed)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_frozen() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_frozen() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_frozen() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Default)]
struct State {
    listeners: BTreeMap<String, mpsc::UnboundedSender<(Wire, String)>>,
    /// Names that answer nothing.
    silent: BTreeSet<String>,
    /// Time at which which name was dialled.
    dialled: Vec<(Instant, String)>,
    frozen: BTreeMap<String, Arc<AtomicBool>>,
    /// Processes that were started.
    runs: u64,
}

/// The network of one test.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<State>>);

impl Network {
    pub fn listen(&self, name: &str) -> MemoryAcceptor {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.0.lock().unwrap();
        state.listeners.insert(name.to_owned(), sender);
        state.frozen.insert(name.to_owned(), Arc::default());
        MemoryAcceptor(AsyncMutex::new(receiver))
    }

    /// Nobody listens there any more.
    pub fn close(&self, name: &str) {
        self.0.lock().unwrap().listeners.remove(name);
    }

    /// Streams to this name are not answered, and no byte moves on those that there are.
    pub fn freeze(&self, name: &str) {
        let mut state = self.0.lock().unwrap();
        state.silent.insert(name.to_owned());
        state.frozen[name].store(true, Relaxed);
    }

    /// A new stream to a name, as a stranger would open it.
    pub fn open(&self, name: &str) -> Wire {
        self.try_open(name, "a stranger").unwrap()
    }

    fn try_open(&self, name: &str, from: &str) -> Result<Wire, DialFailure> {
        let state = self.0.lock().unwrap();
        let listener = state.listeners.get(name).ok_or(DialFailure::Refused)?;
        let (one, other) = duplex(STREAM_BYTES);
        let wire = |stream| Wire {
            stream,
            frozen: Arc::clone(&state.frozen[name]),
        };
        listener
            .send((wire(other), from.to_owned()))
            .map_err(|_| DialFailure::Refused)?;
        Ok(wire(one))
    }

    /// A number for a process that starts.
    fn next_run(&self) -> u64 {
        let mut state = self.0.lock().unwrap();
        state.runs += 1;
        state.runs
    }

    /// Returns when a name was dialled.
    pub fn dialled(&self, name: &str) -> Vec<Instant> {
        let state = self.0.lock().unwrap();
        let of_name = state.dialled.iter().filter(|(_, to)| to == name);
        of_name.map(|(at, _)| *at).collect()
    }
}

impl Connector for Network {
    type Connected = Wire;
    type Stream = Wire;

    async fn connect(&self, peer: u64, address: &str) -> Result<Wire, DialFailure> {
        let is_silent = {
            let mut state = self.0.lock().unwrap();
            state.dialled.push((Instant::now(), address.to_owned()));
            state.silent.contains(address)
        };
        if is_silent {
            std::future::pending::<()>().await;
        }
        self.try_open(address, &format!("server {peer}'s dialler"))
    }

    async fn secure(&self, _: &str, connected: Wire) -> Result<Wire, DialFailure> {
        Ok(connected)
    }
}

pub struct MemoryAcceptor(AsyncMutex<mpsc::UnboundedReceiver<(Wire, String)>>);

impl Acceptor for MemoryAcceptor {
    type Incoming = Wire;
    type Stream = Wire;

    async fn accept(&self) -> io::Result<(Wire, String)> {
        match self.0.lock().await.recv().await {
            Some(accepted) => Ok(accepted),
            // Nobody can connect any more.
            None => std::future::pending().await,
        }
    }

    async fn secure(&self, incoming: Wire) -> io::Result<Wire> {
        Ok(incoming)
    }

    fn verify(&self, _: &Wire, _: u64, _: Option<&str>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// An owner that handles frames only when it is said that all of a read are there.
struct Channel {
    handled: mpsc::UnboundedSender<PeerEvent>,
    frames: Mutex<Vec<PeerEvent>>,
}

impl PeerEvents for Channel {
    fn event(&self, event: PeerEvent) {
        let is_frame = matches!(event, PeerEvent::Frame { .. });
        let mut events = self.frames.lock().unwrap();
        events.push(event);
        if !is_frame {
            self.handle(&mut events);
        }
    }

    fn frames_arrived(&self) {
        self.handle(&mut self.frames.lock().unwrap());
    }
}

impl Channel {
    fn handle(&self, events: &mut Vec<PeerEvent>) {
        for event in events.drain(..) {
            let _ = self.handled.send(event);
        }
    }
}

/// One server: its transport and what it was notified of.
pub struct Server {
    pub peers: Peers,
    pub events: mpsc::UnboundedReceiver<PeerEvent>,
}

pub fn name(id: u64) -> String {
    format!("server{id}:2888")
}

pub fn incarnation(id: u64) -> u128 {
    0x1000 + u128::from(id)
}

pub fn options(id: u64) -> Options {
    Options::new(id, WallClock::new(|| 1_795_000_000_000))
}

impl Server {
    /// A server with an empty data folder that connects to servers 1 to `servers`.
    pub fn start(network: &Network, id: u64, servers: u64) -> Server {
        let local = LocalServer::new(id, incarnation(id), 1);
        Server::start_as(network, local, options(id), servers)
    }

    pub fn start_as(
        network: &Network,
        local: LocalServer,
        options: Options,
        servers: u64,
    ) -> Server {
        let place = name(local.id);
        Server::start_at(network, &place, local, options, servers)
    }

    /// [`Server::start_as`] at another address than the usual one.
    pub fn start_at(
        network: &Network,
        place: &str,
        mut local: LocalServer,
        options: Options,
        servers: u64,
    ) -> Server {
        local.run = network.next_run();
        let acceptor = network.listen(place);
        let (sender, events) = mpsc::unbounded_channel();
        let events_to = Arc::new(Channel {
            handled: sender,
            frames: Mutex::default(),
        });
        let peers = Peers::start(options, local, network.clone(), acceptor, events_to);
        peers.set_addresses(&(1..=servers).map(|id| (id, name(id))).collect());
        Server { peers, events }
    }

    /// The next event.
    pub async fn event(&mut self) -> PeerEvent {
        timeout(LONG, self.events.recv()).await.unwrap().unwrap()
    }

    /// The first event that `select` selects; those before it are dropped.
    pub async fn until<T>(&mut self, mut select: impl FnMut(PeerEvent) -> Option<T>) -> T {
        loop {
            if let Some(selected) = select(self.event().await) {
                return selected;
            }
        }
    }

    /// Waits until all three lanes are open in both directions.
    pub async fn connected(&mut self, peer: u64) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        while links.len() < 6 {
            let link = self
                .until(|event| match event {
                    PeerEvent::Connected { link, .. } if link.peer == peer => Some(link),
                    _ => None,
                })
                .await;
            let same = |other: &Link| (other.lane, other.direction) == (link.lane, link.direction);
            links.retain(|other| !same(other));
            links.push(link);
        }
        links
    }

    /// Returns the events so far, without waiting.
    pub fn so_far(&mut self) -> Vec<PeerEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// Two servers that are connected on each lane.
pub async fn pair(network: &Network) -> (Server, Server) {
    let mut one = Server::start(network, 1, 2);
    let mut two = Server::start(network, 2, 2);
    one.connected(2).await;
    two.connected(1).await;
    (one, two)
}

/// The link of a lane and direction.
pub fn link_of(links: &[Link], lane: Lane, direction: Direction) -> Link {
    let found = links
        .iter()
        .find(|link| link.lane == lane && link.direction == direction);
    *found.unwrap()
}

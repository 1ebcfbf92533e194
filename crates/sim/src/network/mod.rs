//! The network between clients and server: every frame passes here, is counted, takes its time, and
//! meets the plan's faults. Owns connections and the server's comings and goings; never reads
//! a frame but to name it.

mod pipe;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_client::{BoxFuture, BoxStream, Endpoint, Host, Transport};
use baton_proto::frame;
use baton_server::simulation::{SimulatedClocks, SimulatedServer};
use baton_server::{Options, StartError};
use baton_wal::MemoryStorage;
use bytes::BytesMut;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::pipe::{End, Mailbox, Outgoing};
use crate::fault::{Direction, Edge, Fault, FaultKind};
use crate::frames::Dialogue;
use crate::standstill::Standstill;
use crate::transcript::Transcript;

/// How long a frame is on its way, at least.
const LATENCY: Duration = Duration::from_millis(1);
/// What may come on top, by the seed.
const JITTER_MS: u64 = 3;
/// How long `late` frames wait for a connection that does not come.
const LATE_LIMIT: Duration = Duration::from_secs(2);
/// What the wall clock reads when a run begins: 2030.
const WALL_MS: i64 = 1_893_456_000_000;
/// Frames of a run that does not end: a hundred times what the longest one takes.
const ENDLESS: u64 = 200_000;
/// Turns given to the server between a frame and the crash after it.
const TURNS_BEFORE_CRASH: usize = 16;

/// One item on its way.
enum Item {
    Frame(Vec<u8>),
    Finish,
}

struct Conn {
    client: usize,
    to_client: Mailbox,
    to_server: Mailbox,
    dialogue: Dialogue,
    /// Nothing is delivered any more, up or down.
    lost: [bool; 2],
    /// What the client sends is held back.
    late: bool,
}

/// One client's side.
#[derive(Default)]
struct Link {
    frames: [usize; 2],
    creates: usize,
    /// Until when new connections get nowhere, and whether they are refused.
    blocked: Option<(Instant, bool)>,
    /// The newest connection that has had an answer.
    answered: watch::Sender<usize>,
    process: Standstill,
}

struct State {
    start: Instant,
    session_timeout: Duration,
    faults: Vec<Fault>,
    /// Whether faults still strike and frames still count.
    open: bool,
    rng: fastrand::Rng,
    jitter: bool,
    links: Vec<Link>,
    conns: Vec<Conn>,
    storage: MemoryStorage,
    server: Option<Arc<SimulatedServer>>,
    transcript: Transcript,
    failures: Vec<String>,
    marks: BTreeSet<&'static str>,
    arrived: u64,
    endless: watch::Sender<bool>,
}

/// Cheap to clone. See the module's page.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<State>>);

/// What becomes of a frame that arrives.
enum FrameFate {
    Deliver,
    Drop,
    DeliverAfter(Duration),
    DeliverLate,
    DeliverAndCut(FaultKind),
    /// The client is paused once it has read this, and does nothing with it.
    DeliverAndDeafen(Standstill),
    Crash,
}

fn place(direction: Direction) -> usize {
    match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    }
}

fn slot<const N: usize, T>(array: &mut [T; N], direction: Direction) -> Option<&mut T> {
    array.get_mut(place(direction))
}

fn server_options() -> Options {
    Options::default()
}

impl Network {
    /// A network with a server and nothing else on it. Needs a current-thread runtime with its time
    /// paused.
    pub(crate) fn new(
        seed: u64,
        faults: Vec<Fault>,
        clients: usize,
        session_timeout: Duration,
        transcript: bool,
    ) -> Result<Self, StartError> {
        let storage = MemoryStorage::new();
        let server = SimulatedServer::start(
            server_options(),
            Arc::new(storage.clone()),
            SimulatedClocks::at(WALL_MS),
        )?;
        Ok(Self(Arc::new(Mutex::new(State {
            start: Instant::now(),
            session_timeout,
            faults,
            open: true,
            rng: fastrand::Rng::with_seed(seed),
            jitter: seed != 0,
            links: (0..clients).map(|_| Link::default()).collect(),
            conns: Vec::new(),
            storage,
            server: Some(Arc::new(server)),
            transcript: Transcript::new(transcript),
            failures: Vec::new(),
            marks: BTreeSet::new(),
            arrived: 0,
            endless: watch::Sender::new(false),
        }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn server(&self) -> Option<Arc<SimulatedServer>> {
        self.state().server.clone()
    }

    /// A line of the transcript; `text` is only made if it is wanted.
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        let mut state = self.state();
        if state.transcript.wanted() {
            state.say(&text());
        }
    }

    /// Something that must not happen has happened.
    pub(crate) fn fail(&self, what: &str) {
        let mut state = self.state();
        let what = state.transcript.without_chance(what);
        state.say(&format!("FAILED: {what}"));
        state.failures.push(what);
    }

    /// Something has come about that a scenario has to meet in one of its runs.
    pub(crate) fn mark(&self, mark: &'static str) {
        let mut state = self.state();
        if state.marks.insert(mark) {
            state.say(&format!("MARK {mark}"));
        }
    }

    pub(crate) fn marks(&self) -> BTreeSet<&'static str> {
        self.state().marks.clone()
    }

    /// Returns once there have been more frames than a run that ends can have.
    pub(crate) async fn endless(&self) {
        let mut endless = self.state().endless.subscribe();
        // The network has the sender.
        let _ = endless.wait_for(|endless| *endless).await;
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.state().failures.clone()
    }

    pub(crate) fn transcript(&self) -> Vec<String> {
        self.state().transcript.lines()
    }

    /// The end: what keeps the network alive is dropped.
    pub(crate) fn shut(&self) {
        let (server, conns) = {
            let mut state = self.state();
            (state.server.take(), std::mem::take(&mut state.conns))
        };
        drop((server, conns));
    }

    /// From now on nothing goes wrong any more, and nothing is counted.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.open = false;
        for link in &mut state.links {
            link.blocked = None;
            link.process.end();
        }
        state.say("the network is whole again");
    }

    /// Frames of each client so far, up and down.
    pub(crate) fn frames(&self) -> Vec<[usize; 2]> {
        self.state().links.iter().map(|link| link.frames).collect()
    }

    /// Creates that clients have sent.
    pub(crate) fn creates(&self) -> usize {
        self.state().links.iter().map(|link| link.creates).sum()
    }

    /// The process that `client` runs in.
    pub(crate) fn process(&self, client: usize) -> Standstill {
        let state = self.state();
        let link = state.links.get(client);
        link.map(|link| link.process.clone()).unwrap_or_default()
    }

    /// What `client` connects with.
    pub(crate) fn transport(&self, client: usize) -> Arc<dyn Transport> {
        Arc::new(ClientTransport {
            network: self.clone(),
            client,
        })
    }

    async fn connect(self, client: usize) -> io::Result<BoxStream> {
        let (blocked, latency) = {
            let mut state = self.state();
            let latency = state.latency();
            (state.links.get(client).and_then(|l| l.blocked), latency)
        };
        tokio::time::sleep(latency).await;
        if let Some((until, refused)) = blocked.filter(|(until, _)| Instant::now() < *until) {
            if !refused {
                tokio::time::sleep_until(until).await;
            }
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let mut state = self.state();
        let (to_client, to_server) = (Mailbox::default(), Mailbox::default());
        let id = state.conns.len();
        state.conns.push(Conn {
            client,
            to_client: to_client.clone(),
            to_server: to_server.clone(),
            dialogue: Dialogue::default(),
            lost: [false; 2],
            late: false,
        });
        state.say(&format!("c{client}#{id} connects"));
        let server = state
            .server
            .clone()
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        drop(state);
        let ours = End::new(
            to_client,
            self.wire(id, Direction::Up),
            self.process(client),
        );
        let answers = Outgoing::new(to_server.clone(), self.wire(id, Direction::Down));
        server.serve(to_server, answers);
        Ok(Box::new(ours))
    }

    fn wire(&self, conn: usize, direction: Direction) -> Wire {
        let (queue, items) = mpsc::unbounded_channel();
        tokio::spawn(self.clone().carry(conn, direction, items));
        Wire {
            network: self.clone(),
            partial: BytesMut::new(),
            queue: Some(queue),
        }
    }

    /// Takes what one end sends to the other.
    async fn carry(
        self,
        conn: usize,
        direction: Direction,
        mut items: mpsc::UnboundedReceiver<(Instant, Item)>,
    ) {
        while let Some((due, item)) = items.recv().await {
            tokio::time::sleep_until(due).await;
            let bytes = match item {
                Item::Frame(bytes) => bytes,
                Item::Finish => {
                    if self.state().conns.get(conn).is_some_and(|conn| conn.late) {
                        self.next_answer(conn).await;
                    }
                    self.state().finish(conn, direction);
                    return;
                }
            };
            let fate = self.state().arrive(conn, direction, &bytes);
            match fate {
                FrameFate::Deliver => self.state().deliver(conn, direction, &bytes),
                FrameFate::Drop => {}
                FrameFate::DeliverAfter(delay) => {
                    tokio::time::sleep(delay).await;
                    self.state().deliver(conn, direction, &bytes);
                }
                FrameFate::DeliverLate => {
                    self.next_answer(conn).await;
                    self.state().deliver(conn, direction, &bytes);
                }
                FrameFate::DeliverAndCut(FaultKind::Crash) => {
                    self.state().deliver(conn, direction, &bytes);
                    for _ in 0..TURNS_BEFORE_CRASH {
                        tokio::task::yield_now().await;
                    }
                    self.crash();
                }
                FrameFate::DeliverAndCut(kind) => {
                    let mut state = self.state();
                    state.deliver(conn, direction, &bytes);
                    state.cut(conn, kind);
                }
                FrameFate::DeliverAndDeafen(process) => {
                    self.state().deliver(conn, direction, &bytes);
                    tokio::task::yield_now().await;
                    process.deafen();
                }
                FrameFate::Crash => self.crash(),
            }
        }
    }

    /// Returns once a later connection of the same client has had an answer, or will not have one
    /// soon.
    async fn next_answer(&self, conn: usize) {
        let answered = {
            let state = self.state();
            let client = state.conns.get(conn).map_or(0, |conn| conn.client);
            state
                .links
                .get(client)
                .map(|link| link.answered.subscribe())
        };
        if let Some(mut answered) = answered {
            let later = answered.wait_for(|newest| *newest > conn);
            let _ = tokio::time::timeout(LATE_LIMIT, later).await;
        }
    }

    /// The server is gone, and another one takes up its storage.
    fn crash(&self) {
        let (server, storage, wall_ms) = {
            let mut state = self.state();
            state.say("the server crashes and starts again");
            for conn in &mut state.conns {
                conn.lost = [true; 2];
                conn.to_client.reset();
                conn.to_server.reset();
            }
            let elapsed = i64::try_from(state.start.elapsed().as_millis()).unwrap_or(0);
            (
                state.server.take(),
                state.storage.clone(),
                WALL_MS.saturating_add(elapsed),
            )
        };
        drop(server);
        match SimulatedServer::start(
            server_options(),
            Arc::new(storage),
            SimulatedClocks::at(wall_ms),
        ) {
            Ok(server) => self.state().server = Some(Arc::new(server)),
            Err(error) => self.fail(&format!("the server does not start again: {error}")),
        }
    }
}

impl State {
    fn say(&mut self, text: &str) {
        let at = self.start.elapsed();
        self.transcript.line(at, text);
    }

    fn latency(&mut self) -> Duration {
        if self.jitter {
            LATENCY + Duration::from_millis(self.rng.u64(0..=JITTER_MS))
        } else {
            LATENCY
        }
    }

    fn deliver(&mut self, conn: usize, direction: Direction, bytes: &[u8]) {
        let Some(conn) = self.conns.get_mut(conn) else {
            return;
        };
        if slot(&mut conn.lost, direction).is_some_and(|lost| *lost) {
            return;
        }
        match direction {
            Direction::Up => conn.to_server.deliver(bytes),
            Direction::Down => conn.to_client.deliver(bytes),
        }
    }

    fn finish(&mut self, conn: usize, direction: Direction) {
        let Some(conn) = self.conns.get_mut(conn) else {
            return;
        };
        if slot(&mut conn.lost, direction).is_some_and(|lost| *lost) {
            return;
        }
        match direction {
            Direction::Up => conn.to_server.finish(),
            Direction::Down => conn.to_client.finish(),
        }
    }

    /// A frame has come to the far end: names it, counts it, and checks whether a fault strikes.
    fn arrive(&mut self, id: usize, direction: Direction, bytes: &[u8]) -> FrameFate {
        let Some(conn) = self.conns.get_mut(id) else {
            return FrameFate::Drop;
        };
        let client = conn.client;
        self.arrived += 1;
        if self.arrived == ENDLESS {
            self.endless.send_replace(true);
        }
        if slot(&mut conn.lost, direction).is_some_and(|lost| *lost) {
            return FrameFate::Drop;
        }
        if conn.late && direction == Direction::Up {
            return FrameFate::DeliverLate;
        }
        let body = bytes.get(frame::LENGTH_BYTES..).unwrap_or_default();
        let words = self.transcript.wanted();
        let (text, creates) = match direction {
            Direction::Up => {
                let frame = conn.dialogue.up(body, words);
                (frame.text, frame.creates)
            }
            Direction::Down => (conn.dialogue.down(body, words), 0),
        };
        let Some(link) = self.links.get_mut(client) else {
            return FrameFate::Drop;
        };
        let open = self.open;
        let number = slot(&mut link.frames, direction).map_or(0, |count| {
            let number = *count;
            *count += usize::from(open);
            number
        });
        link.creates += creates;
        if direction == Direction::Down {
            link.answered.send_if_modified(|newest| {
                let later = id > *newest;
                *newest = id.max(*newest);
                later
            });
        }
        if words {
            let arrow = match direction {
                Direction::Up => '>',
                Direction::Down => '<',
            };
            self.say(&format!(
                "c{client}#{id} {arrow} {text}   [{direction} {number}]"
            ));
        }
        let struck = self.faults.iter().copied().find(|fault| {
            fault.client == client && fault.direction == direction && fault.frame == number
        });
        match struck.filter(|_| open) {
            Some(fault) => self.strike(id, fault),
            None => FrameFate::Deliver,
        }
    }

    fn strike(&mut self, conn: usize, fault: Fault) -> FrameFate {
        self.say(&format!("FAULT {fault}"));
        match (fault.kind, fault.edge) {
            (FaultKind::Delay(by), _) => FrameFate::DeliverAfter(by),
            (FaultKind::Late, _) => {
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.late = true;
                    conn.lost = [false, true];
                    conn.to_client.reset();
                }
                FrameFate::DeliverLate
            }
            (FaultKind::Pause(length), edge) => {
                let process = self
                    .links
                    .get(fault.client)
                    .map(|link| link.process.clone());
                let Some(process) = process else {
                    return FrameFate::Deliver;
                };
                let reads = (fault.direction, edge) == (Direction::Down, Edge::After);
                process.begin(length, !reads);
                if reads {
                    FrameFate::DeliverAndDeafen(process)
                } else {
                    FrameFate::Deliver
                }
            }
            (kind, Edge::After) => FrameFate::DeliverAndCut(kind),
            (FaultKind::Crash, Edge::Before) => FrameFate::Crash,
            (kind, Edge::Before) => {
                self.cut(conn, kind);
                FrameFate::Drop
            }
        }
    }

    fn cut(&mut self, conn: usize, kind: FaultKind) {
        let Some(conn) = self.conns.get_mut(conn) else {
            return;
        };
        let long = Instant::now() + self.session_timeout * 5 / 2;
        let block = match kind {
            FaultKind::Partition => Some((long, false)),
            FaultKind::Exile => Some((long, true)),
            _ => None,
        };
        if let Some(block) = block
            && let Some(link) = self.links.get_mut(conn.client)
        {
            link.blocked = Some(block);
        }
        conn.lost = match kind {
            FaultKind::HoleUp => [true, conn.lost.get(1).copied().unwrap_or_default()],
            FaultKind::HoleDown => [conn.lost.first().copied().unwrap_or_default(), true],
            _ => [true; 2],
        };
        match kind {
            FaultKind::Reset | FaultKind::Exile => {
                conn.to_client.reset();
                conn.to_server.reset();
            }
            FaultKind::Finish => {
                conn.to_client.finish();
                conn.to_server.finish();
            }
            _ => {}
        }
    }
}

/// One end's way into the network.
pub(crate) struct Wire {
    network: Network,
    partial: BytesMut,
    queue: Option<mpsc::UnboundedSender<(Instant, Item)>>,
}

impl Wire {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let Some(queue) = &self.queue else {
            return;
        };
        self.partial.extend_from_slice(bytes);
        let due = Instant::now() + self.network.state().latency();
        // What is written at once travels at once.
        while let Ok(Some(length)) = frame::peek_length(&self.partial, usize::MAX) {
            let whole = frame::LENGTH_BYTES + length;
            if self.partial.len() < whole {
                break;
            }
            let frame = self.partial.split_to(whole).to_vec();
            // The carrier goes when the runtime does.
            let _gone = queue.send((due, Item::Frame(frame)));
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Some(queue) = self.queue.take() {
            let _gone = queue.send((Instant::now() + LATENCY, Item::Finish));
        }
    }
}

#[derive(Clone)]
struct ClientTransport {
    network: Network,
    client: usize,
}

impl Transport for ClientTransport {
    fn resolve(&self, host: &Host) -> BoxFuture<io::Result<Vec<Endpoint>>> {
        let endpoint = Endpoint::Unix(host.to_string().into());
        Box::pin(std::future::ready(Ok(vec![endpoint])))
    }

    fn connect(&self, _: &Endpoint) -> BoxFuture<io::Result<BoxStream>> {
        let process = self.network.process(self.client);
        Box::pin(process.run(self.network.clone().connect(self.client)))
    }
}

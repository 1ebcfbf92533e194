//! The network between clients and servers: every frame passes here, is counted, takes its time,
//! and meets the plan's faults. Owns connections, and the comings and goings of a server that
//! stands alone; reads a frame only to name it, and to see that no client goes back in time.

mod pipe;

use std::collections::BTreeMap;
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

use self::pipe::{End, Mailbox, OutgoingPipe};
use crate::cluster::{Cluster, StopCause};
use crate::fault::{Direction, Edge, Fault, FaultKind};
use crate::frames::{AnswerText, Dialogue};
use crate::recorder::Recorder;
use crate::standstill::Standstill;

/// Least time of a frame on its way.
const LATENCY: Duration = Duration::from_millis(1);
/// Largest delay that the seed may add.
const JITTER_MS: u64 = 3;
/// Time for which `late` frames wait for a connection that does not come.
const LATE_LIMIT: Duration = Duration::from_secs(2);
/// Wall clock at the beginning of a run: 2030.
const WALL_MS: i64 = 1_893_456_000_000;
/// Frames of a run that does not end: a hundred times what the longest one takes.
const ENDLESS: u64 = 200_000;
/// Turns given to the server between a frame and the crash after it.
const TURNS_BEFORE_CRASH: usize = 16;
/// Time for which a server of several is away after such a crash.
const AWAY: Duration = Duration::from_millis(400);

/// A session goes on at another server than before.
pub(crate) const SESSION_MOVED: &str = "a session moves to another server";

/// Servers that clients connect to.
enum ServerTarget {
    /// A server that stands alone.
    Alone {
        storage: MemoryStorage,
        server: Option<Arc<SimulatedServer>>,
    },
    /// Several servers.
    Ensemble(Cluster),
}

/// Clients' knowledge of a session.
struct SessionSeen {
    /// The newest connection that was attached to it, and that connection's server.
    conn: usize,
    server: u64,
    /// The largest zxid of an answer.
    zxid: i64,
}

/// One item on its way.
enum Item {
    /// With when it was written.
    Frame(Vec<u8>, Instant),
    Finish,
}

struct Conn {
    client: usize,
    /// The server's id; 0 for one that stands alone.
    server: u64,
    /// The session that it is attached to.
    session: Option<i64>,
    to_client: Mailbox,
    to_server: Mailbox,
    dialogue: Dialogue,
    /// Nothing is delivered any more, up or down.
    lost: [bool; 2],
    /// Whether the frames of the client are held back.
    late: bool,
}

/// One client's side.
#[derive(Default)]
struct Link {
    frames: [usize; 2],
    creates: usize,
    /// End of the time in which new connections get nowhere, and whether they are refused.
    blocked: Option<(Instant, bool)>,
    /// End of the time in which it reaches this one server only.
    confined: Option<(Instant, u64)>,
    /// End of the time in which each of its frames takes this much longer, both ways.
    slow: Option<(Instant, Duration)>,
    /// The newest connection that has had an answer.
    answered: watch::Sender<usize>,
    process: Standstill,
}

struct State {
    session_timeout: Duration,
    faults: Vec<Fault>,
    /// Whether faults still strike and frames still count.
    open: bool,
    rng: fastrand::Rng,
    jitter: bool,
    links: Vec<Link>,
    conns: Vec<Conn>,
    home: ServerTarget,
    sessions: BTreeMap<i64, SessionSeen>,
    /// Data of the nodes that a client has asked the servers to create, by connection.
    sent: BTreeMap<usize, Vec<String>>,
    recorder: Recorder,
    arrived: u64,
    endless: watch::Sender<bool>,
}

/// Cheap to clone. See the module's page.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<State>>);

/// Fates of a frame that arrives.
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
        let home = ServerTarget::Alone {
            storage,
            server: Some(Arc::new(server)),
        };
        let recorder = Recorder::new(transcript);
        Ok(Self::of(
            seed,
            faults,
            clients,
            session_timeout,
            home,
            recorder,
        ))
    }

    /// A network whose clients connect to the servers of `cluster`.
    pub(crate) fn of_cluster(
        seed: u64,
        cluster: Cluster,
        clients: usize,
        session_timeout: Duration,
    ) -> Self {
        let recorder = cluster.recorder().clone();
        // Beside the scenario's own, one for each server, and two of the run.
        let links = clients + cluster.all_ids().len() + 3;
        let home = ServerTarget::Ensemble(cluster);
        Self::of(seed, Vec::new(), links, session_timeout, home, recorder)
    }

    fn of(
        seed: u64,
        faults: Vec<Fault>,
        clients: usize,
        session_timeout: Duration,
        home: ServerTarget,
        recorder: Recorder,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            session_timeout,
            faults,
            open: true,
            rng: fastrand::Rng::with_seed(seed),
            jitter: seed != 0,
            links: (0..clients).map(|_| Link::default()).collect(),
            conns: Vec::new(),
            home,
            sessions: BTreeMap::new(),
            sent: BTreeMap::new(),
            recorder,
            arrived: 0,
            endless: watch::Sender::new(false),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server; of several one with what all members have applied. The error says why there is
    /// none.
    pub(crate) fn agreed(&self) -> Result<Arc<SimulatedServer>, String> {
        let cluster = match &self.state().home {
            ServerTarget::Alone { server, .. } => {
                return server
                    .clone()
                    .ok_or_else(|| "the server does not run".to_owned());
            }
            ServerTarget::Ensemble(cluster) => cluster.clone(),
        };
        cluster.agreed()
    }

    /// Whether the servers are an ensemble.
    pub(crate) fn has_several(&self) -> bool {
        matches!(self.state().home, ServerTarget::Ensemble(_))
    }

    /// The members of several, or the one.
    pub(crate) fn servers(&self) -> Vec<Arc<SimulatedServer>> {
        let state = self.state();
        match &state.home {
            ServerTarget::Alone { server, .. } => server.iter().cloned().collect(),
            ServerTarget::Ensemble(cluster) => {
                let servers = cluster.members().into_iter();
                servers.filter_map(|id| cluster.server(id)).collect()
            }
        }
    }

    /// Returns the connect string of the clients.
    pub(crate) fn connect_string(&self) -> String {
        match &self.state().home {
            ServerTarget::Alone { .. } => "simulated:1".to_owned(),
            ServerTarget::Ensemble(cluster) => {
                let hosts = cluster.all_ids().into_iter().map(|id| format!("s{id}:1"));
                hosts.collect::<Vec<_>>().join(",")
            }
        }
    }

    /// The servers of several, by id.
    pub(crate) fn ids(&self) -> Vec<u64> {
        match &self.state().home {
            ServerTarget::Alone { .. } => Vec::new(),
            ServerTarget::Ensemble(cluster) => cluster.all_ids(),
        }
    }

    pub(crate) fn recorder(&self) -> Recorder {
        self.state().recorder.clone()
    }

    /// Returns once there have been more frames than a run that ends can have.
    pub(crate) async fn endless(&self) {
        let mut endless = self.state().endless.subscribe();
        // The network has the sender.
        let _ = endless.wait_for(|endless| *endless).await;
    }

    /// The end: what keeps the network alive is dropped.
    pub(crate) fn shut(&self) {
        let (server, cluster, conns) = {
            let mut state = self.state();
            let (server, cluster) = match &mut state.home {
                ServerTarget::Alone { server, .. } => (server.take(), None),
                ServerTarget::Ensemble(cluster) => (None, Some(cluster.clone())),
            };
            (server, cluster, std::mem::take(&mut state.conns))
        };
        if let Some(cluster) = cluster {
            cluster.shut();
        }
        drop((server, conns));
    }

    /// A server of several has ended: its clients' connections break.
    pub(crate) fn server_ended(&self, id: u64) {
        let mut state = self.state();
        for conn in state.conns.iter_mut().filter(|conn| conn.server == id) {
            conn.end();
        }
    }

    /// Something happens to the newest connection of a client.
    pub(crate) fn disturb(&self, client: usize, kind: FaultKind) {
        let mut state = self.state();
        let newest = state.conns.iter().rposition(|conn| conn.client == client);
        if let Some(conn) = newest {
            state.say(&format!("FAULT {kind} on c{client}#{conn}"));
            match kind {
                FaultKind::Late => state.delay(conn),
                kind => state.cut(conn, kind),
            }
        }
    }

    /// The clients whose newest connection is one to this server of several.
    pub(crate) fn clients_of(&self, server: u64) -> Vec<usize> {
        let state = self.state();
        let is_here = |client: &usize| {
            let newest = state.conns.iter().rfind(|conn| conn.client == *client);
            newest.is_some_and(|conn| conn.server == server && conn.lost == [false; 2])
        };
        (0..state.links.len()).filter(is_here).collect()
    }

    /// For this long a client reaches this one server of several only. Its connections stay.
    pub(crate) fn confine(&self, client: usize, server: u64, length: Duration) {
        if let Some(link) = self.state().links.get_mut(client) {
            link.confined = Some((Instant::now() + length, server));
        }
    }

    /// For this long each frame from and to a client takes so much longer.
    pub(crate) fn slow(&self, client: usize, by: Duration, length: Duration) {
        let mut state = self.state();
        state.say(&format!("c{client} is slower by {by:?} for {length:?}"));
        if let Some(link) = state.links.get_mut(client) {
            link.slow = Some((Instant::now() + length, by));
        }
    }

    /// The process of a client stands still for this long.
    pub(crate) fn pause(&self, client: usize, length: Duration) {
        let state = self.state();
        state.say(&format!("c{client} stands still for {length:?}"));
        let process = state.links.get(client).map(|link| link.process.clone());
        drop(state);
        if let Some(process) = process {
            process.begin(length, true);
        }
    }

    /// `believes` says whether `client` has a lease on a session.
    pub(crate) fn is_believed(
        &self,
        client: usize,
        session: i64,
        believes: impl Fn() -> bool + Send + 'static,
    ) {
        let state = self.state();
        if let ServerTarget::Ensemble(cluster) = &state.home {
            cluster.is_believed(session, format!("client {client}"), believes);
        }
    }

    /// From now on nothing goes wrong any more, and nothing is counted.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.open = false;
        for link in &mut state.links {
            link.blocked = None;
            link.confined = None;
            link.slow = None;
            link.process.end();
        }
        state.say("the network is whole again");
        let cluster = match &state.home {
            ServerTarget::Alone { .. } => None,
            ServerTarget::Ensemble(cluster) => Some(cluster.clone()),
        };
        drop(state);
        if let Some(cluster) = cluster {
            cluster.heal();
        }
    }

    /// Returns the data of the nodes that a client has asked for, in order, by connection.
    pub(crate) fn sent(&self) -> BTreeMap<usize, Vec<String>> {
        self.state().sent.clone()
    }

    /// Whether faults still strike.
    pub(crate) fn is_open(&self) -> bool {
        self.state().open
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

    /// Returns the transport of `client`.
    pub(crate) fn transport(&self, client: usize) -> Arc<dyn Transport> {
        Arc::new(ClientTransport {
            network: self.clone(),
            client,
        })
    }

    async fn connect(self, client: usize, host: String) -> io::Result<BoxStream> {
        let name = host.trim_start_matches('s').split(':').next();
        let named = name.and_then(|id| id.parse().ok()).unwrap_or(0);
        let (blocked, latency) = {
            let mut state = self.state();
            let latency = state.latency_of(client);
            let link = state.links.get(client);
            let confined = link.and_then(|link| link.confined);
            let elsewhere = confined.filter(|(_, server)| *server != named);
            let blocked = elsewhere.map(|(until, _)| (until, false));
            (blocked.or(link.and_then(|link| link.blocked)), latency)
        };
        tokio::time::sleep(latency).await;
        if let Some((until, refused)) = blocked.filter(|(until, _)| Instant::now() < *until) {
            if !refused {
                tokio::time::sleep_until(until).await;
            }
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let mut state = self.state();
        let (server, id_of_server) = match &state.home {
            ServerTarget::Alone { server, .. } => (server.clone(), 0),
            ServerTarget::Ensemble(cluster) => (cluster.server(named), named),
        };
        let server = server.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (to_client, to_server) = (Mailbox::default(), Mailbox::default());
        let id = state.conns.len();
        state.conns.push(Conn {
            client,
            server: id_of_server,
            session: None,
            to_client: to_client.clone(),
            to_server: to_server.clone(),
            dialogue: Dialogue::default(),
            lost: [false; 2],
            late: false,
        });
        match id_of_server {
            0 => state.say(&format!("c{client}#{id} connects")),
            server => state.say(&format!("c{client}#{id} connects to s{server}")),
        }
        drop(state);
        let ours = End::new(
            to_client,
            self.wire((client, id), Direction::Up),
            self.process(client),
        );
        let down = self.wire((client, id), Direction::Down);
        let answers = OutgoingPipe::new(to_server.clone(), down);
        server.serve(to_server, answers);
        Ok(Box::new(ours))
    }

    fn wire(&self, (client, conn): (usize, usize), direction: Direction) -> Wire {
        let (queue, items) = mpsc::unbounded_channel();
        tokio::spawn(self.clone().carry(conn, direction, items));
        Wire {
            network: self.clone(),
            client,
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
            let (bytes, written) = match item {
                Item::Frame(bytes, written) => (bytes, written),
                Item::Finish => {
                    if self.state().conns.get(conn).is_some_and(|conn| conn.late) {
                        self.next_answer(conn).await;
                    }
                    self.state().finish(conn, direction);
                    return;
                }
            };
            let fate = self.state().arrive(conn, direction, (&bytes, written));
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
                    self.crash(conn);
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
                FrameFate::Crash => self.crash(conn),
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

    /// The server of this connection is gone, and another one takes up its storage.
    fn crash(&self, conn: usize) {
        let (server, storage, wall_ms) = {
            let mut state = self.state();
            let at = state.conns.get(conn).map_or(0, |conn| conn.server);
            let start = state.recorder.start();
            let (server, storage) = match &mut state.home {
                ServerTarget::Alone { server, storage } => (server.take(), storage.clone()),
                ServerTarget::Ensemble(cluster) => {
                    let cluster = cluster.clone();
                    drop(state);
                    cluster.end(at, StopCause::Fails);
                    tokio::spawn(async move {
                        tokio::time::sleep(AWAY).await;
                        cluster.start(at);
                    });
                    return;
                }
            };
            state.say("the server crashes and starts again");
            for conn in &mut state.conns {
                conn.end();
            }
            let elapsed = i64::try_from(start.elapsed().as_millis()).unwrap_or(0);
            (server, storage, WALL_MS.saturating_add(elapsed))
        };
        drop(server);
        match SimulatedServer::start(
            server_options(),
            Arc::new(storage),
            SimulatedClocks::at(wall_ms),
        ) {
            Ok(started) => {
                if let ServerTarget::Alone { server, .. } = &mut self.state().home {
                    *server = Some(Arc::new(started));
                }
            }
            Err(error) => self
                .recorder()
                .fail(&format!("the server does not start again: {error}")),
        }
    }
}

impl Conn {
    /// It breaks for both ends, and delivers nothing any more.
    fn end(&mut self) {
        self.lost = [true; 2];
        self.to_client.reset();
        self.to_server.reset();
    }
}

impl State {
    fn say(&self, text: &str) {
        self.recorder.note(|| text.to_owned());
    }

    fn latency(&mut self) -> Duration {
        if self.jitter {
            LATENCY + Duration::from_millis(self.rng.u64(0..=JITTER_MS))
        } else {
            LATENCY
        }
    }

    /// Returns the time of a frame from or to this client on its way.
    fn latency_of(&mut self, client: usize) -> Duration {
        let link = self.links.get(client);
        let slow = link.and_then(|link| link.slow);
        let slow = slow.filter(|(until, _)| Instant::now() < *until);
        self.latency() + slow.map_or(Duration::ZERO, |(_, by)| by)
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
    fn arrive(
        &mut self,
        id: usize,
        direction: Direction,
        (bytes, written): (&[u8], Instant),
    ) -> FrameFate {
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
        let words = self.recorder.wanted();
        let (text, creates) = match direction {
            Direction::Up => {
                let frame = conn.dialogue.up(body, written, words);
                if let (ServerTarget::Ensemble(_), Some(data)) = (&self.home, frame.created)
                    && !data.is_empty()
                {
                    self.sent.entry(id).or_default().push(data);
                }
                (frame.text, frame.creates)
            }
            Direction::Down => {
                let answer = conn.dialogue.down(body, words);
                let attached = answer.session.is_some();
                conn.session = conn.session.or(answer.session);
                if let (Some(session), server) = (conn.session, conn.server) {
                    self.answered((id, server), session, attached, &answer);
                }
                (answer.text, 0)
            }
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

    /// A client of several servers has an answer: it never sees an older state than before.
    fn answered(
        &mut self,
        (conn, server): (usize, u64),
        session: i64,
        attached: bool,
        answer: &AnswerText,
    ) {
        let ServerTarget::Ensemble(cluster) = &self.home else {
            return;
        };
        if attached {
            cluster.granted(session, answer.timeout);
        }
        if let Some(proof) = answer.proof {
            cluster.answered(session, proof);
        }
        let seen = self.sessions.entry(session).or_insert(SessionSeen {
            conn,
            server,
            zxid: 0,
        });
        if attached && conn >= seen.conn {
            if server != seen.server {
                self.recorder.mark(SESSION_MOVED);
            }
            (seen.conn, seen.server) = (conn, server);
        }
        // What an older connection still brings, its client does not read.
        let zxid = answer.zxid.filter(|zxid| *zxid > 0);
        let Some(zxid) = zxid.filter(|_| conn == seen.conn) else {
            return;
        };
        if zxid < seen.zxid {
            let before = seen.zxid;
            self.recorder.fail(&format!(
                "session 0x{session:x} goes back in time: an answer has zxid {zxid} after {before}"
            ));
        }
        seen.zxid = seen.zxid.max(zxid);
    }

    fn strike(&mut self, conn: usize, fault: Fault) -> FrameFate {
        self.say(&format!("FAULT {fault}"));
        match (fault.kind, fault.edge) {
            (FaultKind::Delay(by), _) => FrameFate::DeliverAfter(by),
            (FaultKind::Late, _) => {
                self.delay(conn);
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

    /// Delays every frame that the client sends from now on; nothing comes back.
    fn delay(&mut self, conn: usize) {
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.late = true;
            conn.lost = [false, true];
            conn.to_client.reset();
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
    client: usize,
    partial: BytesMut,
    queue: Option<mpsc::UnboundedSender<(Instant, Item)>>,
}

impl Wire {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let Some(queue) = &self.queue else {
            return;
        };
        self.partial.extend_from_slice(bytes);
        let now = Instant::now();
        let due = now + self.network.state().latency_of(self.client);
        // What is written at once travels at once.
        while let Ok(Some(length)) = frame::peek_length(&self.partial, usize::MAX) {
            let whole = frame::LENGTH_BYTES + length;
            if self.partial.len() < whole {
                break;
            }
            let frame = self.partial.split_to(whole).to_vec();
            // The carrier goes when the runtime does.
            let _gone = queue.send((due, Item::Frame(frame, now)));
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

    fn connect(&self, endpoint: &Endpoint) -> BoxFuture<io::Result<BoxStream>> {
        let process = self.network.process(self.client);
        let host = match endpoint {
            Endpoint::Unix(path) => path.to_string_lossy().into_owned(),
            other => other.to_string(),
        };
        Box::pin(process.run(self.network.clone().connect(self.client, host)))
    }
}

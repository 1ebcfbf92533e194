//! The server without its threads and without sockets, for deterministic tests: the same core, log,
//! sessions' clocks, watches and connections, as tasks of one tokio runtime whose time is paused.
//! Owns how they are driven; whatever they decide is decided by the code that runs in production.
//! A server of an ensemble reaches the others through [`MemberEnvironment`].

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use baton_consensus::{Config, Membership, MessageKind, PeerMessage};
use baton_peers::codec::{Frame, Lane};
use baton_peers::handshake::LocalServer;
use baton_peers::net::{PeerEvent, PeerEvents, SendError, Unsent};
use baton_proto::Stat;
use baton_tree::Identity;
use baton_wal::{Storage, Wal, WalOptions};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::connections::inbox::Work;
use crate::connections::peer::Peer;
use crate::core::driver::CoreDriver;
use crate::core::links::Links;
use crate::core::links::addresses::PeerAddresses;
use crate::core::links::events::EventQueue;
use crate::core::links::peer_log::PeerLog;
use crate::core::links::wire::Wire;
use crate::core::log::{Log, LogWriter};
use crate::core::snapshots::Snapshots;
use crate::core::start::join::describe;
use crate::core::start::recover::recover_member;
use crate::core::start::starting::Starting;
use crate::error::{ServerError, StartError};
use crate::net::accept::{self, Accepted};
use crate::net::stream::Stream;
pub use crate::net::stream::{MemoryInput, MemoryOutput};
use crate::options::Options;
use crate::server::{prepare, state_of};
use crate::state::ServerState;
pub use crate::state::simulated::{
    ChangeCounts, CoreObserver, MemberProgress, MemberView, ServerBug, UnappliedCounts,
};
use crate::time::{Clock, ServerTime};

/// The clocks of a simulated server, which follow the runtime's clock.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedClocks {
    /// Wall clock at the start, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Drift of the clocks, in parts per million of the runtime's clock.
    pub rate_ppm: u32,
}

impl SimulatedClocks {
    /// Clocks that run as fast as the runtime's.
    #[must_use]
    pub const fn at(wall_ms: i64) -> Self {
        Self {
            wall_ms,
            rate_ppm: 1_000_000,
        }
    }
}

/// A task of a simulated server.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Environment of a simulated server of an ensemble: the connections to the others, its disk's
/// speed, and its observer. The server's tasks call it; it must not call the server.
pub trait MemberEnvironment: CoreObserver {
    /// A start has found this in its folder. What is changed here is what it goes on with.
    ///
    /// Returns up to which entry the members found contain all changes, by mistake; 0 without.
    fn recovered(&self, found: &mut baton_wal::Recovered) -> u64;

    /// Everything that was handed out so far is on disk.
    fn stored(&self);

    /// Sends a frame to another server, behind those that wait on its lane.
    ///
    /// # Errors
    /// [`SendError`]: the frame was not taken.
    fn send(&self, to: u64, frame: Frame) -> Result<(), SendError>;

    /// Changes what this server says of itself, and knows of the members.
    fn update_local(&self, change: &mut dyn FnMut(&mut LocalServer));

    /// The servers to connect to. Connections to others end.
    fn set_peers(&self, ids: &[u64]);

    /// Time that the log's next write takes with its sync.
    fn sync_time(&self) -> Duration;

    /// The task as this server runs it: it may stand still for some time.
    fn run(&self, task: Task) -> Task;

    /// The server has made a turn, and is at this point now.
    fn turned(&self, at: &MemberProgress, view: MemberView);

    /// The server has applied the end of a session whose time was over.
    fn expired(&self, session: i64);

    /// The server had decided, as the leader, to end this session, and leads no more.
    fn expiry_is_void(&self, session: i64);

    /// The server has stopped because of this.
    fn failed(&self, error: &ServerError);
}

/// Parameters with which a simulated server of an ensemble is started.
#[derive(Debug, Clone)]
pub struct SimulatedMember {
    /// Names its folder.
    pub incarnation: u128,
    /// Options of its log.
    pub log: WalOptions,
    /// Bytes of applied entries that it keeps in memory for servers that lag, where that is not
    /// the usual number.
    pub window_bytes: Option<u64>,
    /// Bytes of proposals that may wait to be committed, where that is not the usual number.
    pub uncommitted_bytes: Option<u64>,
    /// Decides everything that a process draws at its start.
    pub seed: u64,
    /// A mistake that it makes on purpose.
    pub mistake: Option<ServerBug>,
    /// Its environment.
    pub around: Arc<dyn MemberEnvironment>,
}

/// A server that runs as tasks of the calling runtime. Dropping it is a crash: its connections
/// break, what was acknowledged stays in the storage for the next one.
pub struct SimulatedServer {
    state: Arc<ServerState>,
    running: Arc<Mutex<Option<RunningServer>>>,
    tasks: Mutex<JoinSet<()>>,
    member: Option<(Arc<EventQueue>, Arc<dyn MemberEnvironment>)>,
}

/// The core, and what writes its log where it does not itself.
struct RunningServer {
    core: CoreDriver,
    log: Option<SimulatedLog>,
}

/// The log of a member: what takes the place of its thread.
struct SimulatedLog {
    writer: LogWriter,
    around: Arc<dyn MemberEnvironment>,
    /// When what waits is written and synced.
    due: Option<Instant>,
    /// The log cannot go on.
    has_ended: bool,
}

impl fmt::Debug for SimulatedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedServer").finish_non_exhaustive()
    }
}

impl SimulatedServer {
    /// Recovers from `storage` and starts. Needs a current-thread runtime for a run to be
    /// repeatable.
    ///
    /// # Errors
    /// [`StartError`], as [`Server::start_with`](crate::Server::start_with).
    pub fn start(
        options: Options,
        storage: Arc<dyn Storage>,
        clocks: SimulatedClocks,
    ) -> Result<Self, StartError> {
        options.check()?;
        let time = ServerTime::simulated(clocks.wall_ms, Clock::with_rate(clocks.rate_ppm));
        let (state, core) = prepare(options, None, storage, time, &Starting::default())?;
        Ok(Self::run(state, RunningServer { core, log: None }, None))
    }

    /// Starts a server like [`SimulatedServer::start`], as one of several. Its storage has the
    /// snapshot that the cluster was born with, or the state that an earlier start has left.
    ///
    /// # Errors
    /// As [`SimulatedServer::start`].
    pub fn start_member(
        options: Options,
        storage: Arc<dyn Storage>,
        clocks: SimulatedClocks,
        member: SimulatedMember,
    ) -> Result<Self, StartError> {
        options.check()?;
        let SimulatedMember {
            incarnation,
            log,
            window_bytes,
            uncommitted_bytes,
            seed,
            mistake,
            around,
        } = member;
        let time = ServerTime::simulated(clocks.wall_ms, Clock::with_rate(clocks.rate_ppm));
        let mut opened = Wal::open(storage, log)?;
        let taken_over = around.recovered(&mut opened.1);
        let usual = Config::member(options.server_id.into(), seed);
        let config = Config {
            incarnation: Some(incarnation),
            window_bytes: window_bytes.unwrap_or(usual.window_bytes),
            max_uncommitted_bytes: uncommitted_bytes.unwrap_or(usual.max_uncommitted_bytes),
            ..usual
        };
        let begun = recover_member(opened, &config, &Starting::default())?;
        let entries = begun.wal.last_index().saturating_sub(begun.snapshot_index);
        around.update_local(&mut |local| {
            let cluster = local.cluster;
            describe(local, cluster, &begun);
        });
        let state = state_of(options, None, begun.tree, time, begun.snapshot);
        if let Some(mistake) = mistake {
            // Set once, here.
            let _ = state.simulated.mistake.set(mistake);
        }
        let observer: Arc<dyn CoreObserver> = Arc::clone(&around) as _;
        // Set once, here.
        let _ = state.simulated.observer.set(observer);
        let members_taken_over = &state.simulated.members_taken_over;
        members_taken_over.store(taken_over, std::sync::atomic::Ordering::Relaxed);
        let wire: Arc<dyn Wire> = Arc::new(SimulatedWire(Arc::clone(&around)));
        let events = Arc::new(EventQueue::default());
        let (log, writer) = Log::prepare(begun.wal, &state, &wire);
        let core = CoreDriver::new(
            Arc::clone(&state),
            begun.consensus,
            log,
            Snapshots::new(entries),
            Links {
                id: state.options.server_id.into(),
                wire,
                events: Arc::clone(&events),
                bootstrap: None,
                addresses: PeerAddresses::default(),
                peer_log: PeerLog::default(),
                run: seed,
            },
            &Starting::default(),
        )?;
        let log = SimulatedLog {
            writer,
            around: Arc::clone(&around),
            due: None,
            has_ended: false,
        };
        let running = RunningServer {
            core,
            log: Some(log),
        };
        Ok(Self::run(state, running, Some((events, around))))
    }

    fn run(
        state: Arc<ServerState>,
        running: RunningServer,
        member: Option<(Arc<EventQueue>, Arc<dyn MemberEnvironment>)>,
    ) -> Self {
        let server = Self {
            state: Arc::clone(&state),
            running: Arc::new(Mutex::new(Some(running))),
            tasks: Mutex::new(JoinSet::new()),
            member,
        };
        let around = server.member.as_ref().map(|(_, around)| Arc::clone(around));
        server.spawn(drive(state, Arc::clone(&server.running), around));
        server
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        match &self.member {
            None => tasks.spawn(task),
            Some((_, around)) => tasks.spawn(around.run(Box::pin(task))),
        };
    }

    /// Serves one connection, to its end or the server's.
    pub fn serve(&self, input: impl MemoryInput, output: impl MemoryOutput) {
        let stream = Stream::Memory(Box::new(input), Box::new(output));
        let accepted = Accepted::Ready(stream);
        if let Some(life) = accept::take_on(&self.state, accepted, Peer::Local) {
            self.spawn(life);
        }
    }

    /// Hands an event of the connections to the other servers to a server that is one of several.
    pub fn peer_event(&self, event: PeerEvent) {
        if let Some((events, _)) = &self.member {
            events.event(event);
            events.frames_arrived();
        }
    }

    /// Progress of a server of an ensemble; `None` where it is alone, or has stopped.
    #[must_use]
    pub fn progress(&self) -> Option<MemberProgress> {
        self.member.as_ref()?;
        let running = self.running.lock();
        Some(running.as_ref()?.core.progress())
    }

    /// The members that a server of an ensemble knows; `None` where it stands alone, or has
    /// stopped.
    #[must_use]
    pub fn membership(&self) -> Option<Membership> {
        self.member.as_ref()?;
        let running = self.running.lock();
        Some(running.as_ref()?.core.membership().clone())
    }

    /// Has the server's wall clock jump.
    pub fn step_clock(&self, by_ms: i64) {
        self.state.time.step_wall(by_ms);
    }

    /// Has the server hand leadership over to this one, as an operator asks for it.
    pub fn hand_over(&self, to: u64) {
        self.state.inbox.hand_over(to);
    }

    /// Every znode that is readable by all, in depth-first order.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, Stat)> {
        let identity = Identity::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let tree = self.state.tree.read();
        let mut found = Vec::new();
        let mut open = vec!["/".to_owned()];
        while let Some(path) = open.pop() {
            let Ok((children, stat)) = tree.get_children(&path, &identity) else {
                continue;
            };
            let mut children: Vec<String> = children
                .into_iter()
                .map(|name| baton_proto::path::join(&path, name))
                .collect();
            children.sort_unstable_by(|a, b| b.cmp(a));
            open.append(&mut children);
            found.push((path, stat));
        }
        found
    }

    /// The data of a znode that is readable by all.
    #[must_use]
    pub fn data(&self, path: &str) -> Option<Vec<u8>> {
        let identity = Identity::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let tree = self.state.tree.read();
        let (data, _) = tree.get_data(path, &identity).ok()?;
        Some(data.map(<[u8]>::to_vec).unwrap_or_default())
    }

    /// Every watch, as `wchp` shows it: path and the session that watches, in order of path.
    #[must_use]
    pub fn watches(&self) -> Vec<(String, i64)> {
        let mut found = Vec::new();
        let mut from = Some(0);
        while let Some(slot) = from {
            from =
                self.state
                    .watches
                    .lock()
                    .next_watched(slot, (usize::MAX, usize::MAX), &mut found);
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        let each = found.into_iter().flat_map(|watched| {
            let path = watched.path.to_string();
            let sessions = watched.sessions.into_iter();
            sessions.map(move |session| (path.clone(), session))
        });
        each.collect()
    }

    /// The ids of the open sessions, in order.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.state.tree.read().sessions().map(|s| s.id).collect();
        ids.sort_unstable();
        ids
    }
}

impl Drop for SimulatedServer {
    fn drop(&mut self) {
        self.state.inbox.close();
        self.tasks.get_mut().abort_all();
        // Here and not when its task is: the storage is then free for the next server.
        drop(self.running.lock().take());
    }
}

impl RunningServer {
    /// When there is something to do even if nothing comes in.
    fn due(&self, state: &ServerState) -> Option<Instant> {
        let core = self.core.deadline().map(|due| state.time.timer_at(due));
        let log = self.log.as_ref().and_then(|log| log.next_due(state));
        [core, log].into_iter().flatten().min()
    }

    /// One turn of the log where it is due, and one of the core.
    fn turn(&mut self, work: &mut Work, state: &ServerState) -> Result<(), ServerError> {
        let now = Instant::now();
        if let Some(log) = &mut self.log
            && log.next_due(state).is_some_and(|due| due <= now)
        {
            log.due = None;
            while !log.has_ended {
                log.has_ended = !log.writer.turn(None);
                if !log.writer.has_jobs() {
                    break;
                }
            }
            if !log.has_ended {
                log.around.stored();
            }
        }
        self.core.turn(work, state.time.now())?;
        if let Some(log) = &mut self.log {
            if log.due.is_none() && log.writer.has_jobs() {
                log.due = Some(now + log.around.sync_time());
            }
            for session in state.simulated.take_expired() {
                log.around.expired(session);
            }
            for session in state.simulated.take_void() {
                log.around.expiry_is_void(session);
            }
            log.around.turned(&self.core.progress(), self.core.view());
        }
        Ok(())
    }
}

impl SimulatedLog {
    fn next_due(&self, state: &ServerState) -> Option<Instant> {
        if self.has_ended {
            return None;
        }
        let mark = self.writer.mark_due();
        let mark = mark.map(|due| state.time.timer_at(due));
        self.due.or(mark)
    }
}

/// The core as a task: what [`CoreTurns::run`](crate::core::turns::CoreTurns::run) does on threads.
async fn drive(
    state: Arc<ServerState>,
    running: Arc<Mutex<Option<RunningServer>>>,
    around: Option<Arc<dyn MemberEnvironment>>,
) {
    let mut work = Work::default();
    loop {
        let (deadline, due) = match &*running.lock() {
            Some(running) => (running.core.deadline(), running.due(&state)),
            None => return,
        };
        let mark = state.time.mark();
        let due = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let ready = std::future::poll_fn(|cx| state.inbox.poll_take(&mut work, cx));
        tokio::select! {
            biased;
            () = ready => {}
            () = due => {}
        }
        if around.is_some() {
            state.time.forgive_late(mark, deadline, state.options.tick);
        }
        let outcome = match running.lock().as_mut() {
            Some(running) => running.turn(&mut work, &state),
            None => return,
        };
        if let Err(error) = outcome {
            stop_for(&state, &error);
            if let Some(around) = around {
                around.failed(&error);
            }
            return;
        }
    }
}

fn stop_for(state: &ServerState, error: &ServerError) {
    tracing::error!("{error}");
    state.inbox.close();
    state.close_connections();
}

/// [`MemberEnvironment`] as the core uses connections.
#[derive(Debug)]
struct SimulatedWire(Arc<dyn MemberEnvironment>);

impl Wire for SimulatedWire {
    fn send_raft(&self, messages: Vec<PeerMessage>) -> Vec<Unsent> {
        let mut frames: Vec<((u64, Lane), Vec<PeerMessage>)> = Vec::new();
        for message in messages {
            let to = (message.to, Frame::lane_of(&message));
            match frames.iter_mut().find(|(this, _)| *this == to) {
                Some((_, frame)) => frame.push(message),
                None => frames.push((to, vec![message])),
            }
        }
        let mut unsent = Vec::new();
        for ((to, _), messages) in frames {
            let kinds: Vec<MessageKind> = messages.iter().map(|message| message.kind).collect();
            if let Err(error) = self.0.send(to, Frame::Raft(messages)) {
                unsent.extend(kinds.into_iter().map(|kind| Unsent { to, kind, error }));
            }
        }
        unsent
    }

    fn send(&self, to: u64, frame: Frame) -> Result<(), SendError> {
        self.0.send(to, frame)
    }

    fn update_local(&self, change: &mut dyn FnMut(&mut LocalServer)) {
        self.0.update_local(change);
    }

    fn set_addresses(&self, addresses: &BTreeMap<u64, String>) {
        let ids: Vec<u64> = addresses.keys().copied().collect();
        self.0.set_peers(&ids);
    }
}

//! Shared parts of the recipe tests: a server of the chosen target, clients through a proxy, and
//! questions to the tree.
#![allow(dead_code)]

pub mod election;
pub mod work;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use baton::tree::CreateMode;
use baton::{Client, Config, Mutex};
use baton_client::{
    Acl, BootInstant, BoxFuture, Clock, LeaseMode, LeaseOptions, OpCode, Perms, Session,
    SystemClock,
};
use baton_server::Server;
use baton_testkit::inspect::{self, Znode};
use baton_testkit::{Action, Match, Proxy, ServerOptions, Target, TestServer, Variant};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::OnceCell;

/// The server's unit of time.
pub const TICK: Duration = Duration::from_millis(200);

/// Interval between a server's searches for empty containers, where a test needs that to be quick.
const REAPING: Duration = Duration::from_millis(500);

fn path(name: &str) -> String {
    format!("/{name}-{}", uuid::Uuid::new_v4().simple())
}

/// A session timeout that no healthy test machine runs into.
pub const LONG: Duration = Duration::from_secs(10);

/// A session timeout to wait for.
pub const SHORT: Duration = Duration::from_millis(1600);

/// Far longer than anything takes: what has not happened by then will not.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A server, and a path on it that no other test uses.
pub struct Stage {
    pub addr: SocketAddr,
    pub path: String,
    _baton: Option<Server>,
    _zookeeper: Option<TestServer>,
}

impl Stage {
    /// Baton's server runs in this process, one per test. Apache ZooKeeper is started once for all
    /// tests of a file, and ends with the test process.
    pub async fn new(name: &str) -> Self {
        static ZOOKEEPER: OnceCell<TestServer> = OnceCell::const_new();
        match Target::from_env().unwrap() {
            Target::Baton => Self::of_baton(name, Duration::from_secs(60)).await,
            Target::ZooKeeper => {
                let start = || async { TestServer::start(Target::ZooKeeper).await.unwrap() };
                let server = ZOOKEEPER.get_or_init(start).await;
                Self {
                    addr: server.addr(),
                    path: path(name),
                    _baton: None,
                    _zookeeper: None,
                }
            }
        }
    }

    /// A server of its own that removes empty containers quickly.
    pub async fn with_reaping(name: &str) -> Self {
        match Target::from_env().unwrap() {
            Target::Baton => Self::of_baton(name, REAPING).await,
            Target::ZooKeeper => {
                let every = format!("-Dznode.container.checkIntervalMs={}", REAPING.as_millis());
                let options = ServerOptions {
                    java_args: vec![every],
                    ..ServerOptions::default()
                };
                let server = TestServer::start_with(Target::ZooKeeper, options)
                    .await
                    .unwrap();
                let addr = server.addr();
                Self {
                    addr,
                    path: path(name),
                    _baton: None,
                    _zookeeper: Some(server),
                }
            }
        }
    }

    async fn of_baton(name: &str, reaping: Duration) -> Self {
        let start = Server::builder()
            .in_memory()
            .listen("127.0.0.1:0")
            .tick(TICK)
            .min_session_timeout(2 * TICK)
            .with(|options| options.reap_interval = reaping)
            .start();
        let server = elsewhere().spawn(start).await.unwrap().unwrap();
        let addr = server.local_addr().unwrap();
        Self {
            addr,
            path: path(name),
            _baton: Some(server),
            _zookeeper: None,
        }
    }

    /// A client straight to the server.
    pub async fn client(&self) -> Client {
        self.client_with(LONG).await
    }

    pub async fn client_with(&self, timeout: Duration) -> Client {
        connect(self.addr, timeout).await
    }

    /// A client on this test's runtime: [`pass`] moves its timers.
    pub async fn client_here(&self) -> Client {
        self.client_here_with(LONG).await
    }

    /// The same: while this test blocks its thread, the client stands still, as in a process that
    /// is paused.
    pub async fn client_here_with(&self, timeout: Duration) -> Client {
        let config = config(self.addr, timeout).runtime(Handle::current());
        within(Client::connect(config)).await.unwrap()
    }

    /// A client on a machine that may be made to have slept.
    pub async fn client_by(&self, clock: &Arc<SleptClock>) -> Client {
        let config = config(self.addr, LONG).clock(Arc::clone(clock) as Arc<dyn Clock>);
        within(Client::connect(config)).await.unwrap()
    }

    /// The same, through a proxy of its own.
    pub async fn proxied_by(&self, clock: &Arc<SleptClock>) -> (Client, Proxy) {
        let proxy = Proxy::start(self.addr).await.unwrap();
        let config = config(proxy.addr(), LONG).clock(Arc::clone(clock) as Arc<dyn Clock>);
        (within(Client::connect(config)).await.unwrap(), proxy)
    }

    /// A client whose lease ends when its clock has slept for [`LAPSE`], while its session lives
    /// on.
    pub async fn lapsing_by_clock(&self) -> (Client, Arc<SleptClock>) {
        let clock = Arc::new(SleptClock::default());
        let config = config(self.addr, LONG)
            .lease(short_lease())
            .clock(Arc::clone(&clock) as Arc<dyn Clock>);
        (within(Client::connect(config)).await.unwrap(), clock)
    }

    /// A client through a proxy of its own.
    pub async fn proxied(&self, timeout: Duration) -> (Client, Proxy) {
        let proxy = Proxy::start(self.addr).await.unwrap();
        (connect(proxy.addr(), timeout).await, proxy)
    }

    /// Puts a node without data at the path, as another program might: the session that has done
    /// it.
    pub async fn occupied(&self) -> Session {
        let admin = session(&self.client().await).await;
        within(admin.create(&self.path, b"", CreateMode::Persistent))
            .await
            .unwrap();
        admin
    }

    /// Holds the lock at the path once: its directory is there, and the next number is 1.
    pub async fn used(&self) {
        let guard = mutex(&self.client().await, &self.path).acquire().await;
        within(guard.unwrap().release()).await.unwrap();
    }

    /// The lock's children as the server sees them.
    pub async fn children(&self) -> Vec<Znode> {
        inspect::children(self.addr, &self.path).await.unwrap()
    }

    pub async fn names(&self) -> Vec<String> {
        let children = self.children().await;
        children
            .into_iter()
            .map(|node| node.path.rsplit('/').next().unwrap().to_owned())
            .collect()
    }

    /// Waits until the path has `count` children.
    pub async fn until_children(&self, count: usize) -> Vec<Znode> {
        within(async {
            loop {
                let children = self.children().await;
                if children.len() == count {
                    return children;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

/// A runtime that goes on while a test blocks its own.
pub fn elsewhere() -> &'static Runtime {
    static ELSEWHERE: OnceLock<Runtime> = OnceLock::new();
    ELSEWHERE.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
    })
}

/// The machine's clock and the time that it has slept, of which no timer knows yet.
#[derive(Default)]
pub struct SleptClock(AtomicU64);

impl SleptClock {
    pub fn sleep(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap();
        self.0.fetch_add(nanos, Ordering::AcqRel);
    }
}

impl Clock for SleptClock {
    fn now(&self) -> BootInstant {
        SystemClock.now() + Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<()> {
        let left = deadline.saturating_duration_since(self.now());
        Box::pin(tokio::time::sleep(left))
    }
}

fn config(addr: SocketAddr, timeout: Duration) -> Config {
    // One server has no followers, so any `syncLimit` is true of it; heartbeats would disturb tests
    // that count writes.
    let mode = if timeout >= LONG {
        LeaseMode::Ping
    } else {
        LeaseMode::Auto
    };
    let lease = LeaseOptions {
        tick: Some(TICK),
        sync_limit: Some(5),
        mode,
        ..LeaseOptions::default()
    };
    Config::new(&addr.to_string())
        .unwrap()
        .session_timeout(timeout)
        .lease(lease)
}

/// A lease of two fifths of the session's time: it expects servers' clocks to run much faster.
fn short_lease() -> LeaseOptions {
    LeaseOptions {
        tick: Some(TICK),
        clock_rate_ppm: 600_000,
        ..LeaseOptions::default()
    }
}

/// More than the lease of a session with [`LONG`] and a short lease, less than what ends its
/// connection.
pub const LAPSE: Duration = Duration::from_secs(5);

/// A client through a proxy of its own, whose lease ends long before its session can.
pub async fn lapsing(stage: &Stage) -> (Client, Proxy) {
    let proxy = Proxy::start(stage.addr).await.unwrap();
    let config = config(proxy.addr(), Duration::from_secs(6)).lease(short_lease());
    let client = within(Client::connect(config)).await.unwrap();
    (client, proxy)
}

pub async fn connect(addr: SocketAddr, timeout: Duration) -> Client {
    within(Client::connect(config(addr, timeout)))
        .await
        .unwrap()
}

pub async fn session(client: &Client) -> Session {
    within(client.session()).await.unwrap()
}

/// Number of reads that [`round_trips`] makes.
pub const TRIPS: usize = 100;

/// Makes reads one after the other on this client's connection. Requests that a task sends without
/// rest go out among them, and events that the server has sent before arrive.
pub async fn round_trips(client: &Client) {
    let session = session(client).await;
    for _ in 0..TRIPS {
        within(session.exists("/")).await.unwrap();
    }
}

pub fn mutex(client: &Client, path: &str) -> Mutex {
    Mutex::new(client, path).unwrap()
}

/// Fails the test instead of letting it hang.
pub async fn within<F: Future>(work: F) -> F::Output {
    // `cargo xtask mutants` runs a test that fails once more by itself, so that less will do, and
    // most mutants are found out by a test that hangs.
    let is_mutated = std::env::var_os("BATON_MUTANT").is_some();
    let patience = if is_mutated { PATIENCE / 2 } else { PATIENCE };
    tokio::time::timeout(patience, work)
        .await
        .expect("should have happened long ago")
}

/// Kind of an outage of the servers.
#[derive(Clone, Copy, Debug)]
pub enum Outage {
    /// The process is stopped: connections stay, and nothing comes.
    Silent,
    /// The process has ended.
    Refusing,
}

impl Outage {
    /// Begins it; where the process ends, until the client has noticed.
    pub async fn begin(self, client: &Client, proxy: &Proxy) {
        match self {
            Self::Silent => proxy.partition(),
            Self::Refusing => {
                proxy.refuse();
                proxy.cut_all(Variant::Rst);
                let session = client.newest().unwrap();
                let mut states = session.states();
                while session.state().is_connected() {
                    within(states.next()).await.unwrap();
                }
            }
        }
    }
}

/// Waits until the client behind this proxy asks its server nothing any more: all tasks of it wait
/// for news, or for a time. What the proxy had let through by then has been seen.
pub async fn until_quiet(client: &Client, proxy: &Proxy) {
    let session = session(client).await;
    let pings = Match::request(OpCode::Ping);
    let asked = || proxy.count(&Match::any_request()) - proxy.count(&pings);
    within(async {
        let mut rounds = 0;
        while rounds < 8 {
            let before = asked();
            session.sync("/").await.unwrap();
            rounds = if asked() == before + 1 { rounds + 1 } else { 0 };
        }
    })
    .await;
}

/// Lets `by` pass at once for the timers of this test's runtime: limits of [`within`], and what
/// waits in a client of [`Stage::client_here`]. Sessions go by the machine's clock, and servers
/// have a runtime of their own.
pub async fn pass(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

/// Polls `work` at most `polls` times, letting everything else happen between, and drops it.
/// Returns its output if it has ended.
pub async fn polled<F: Future>(work: F, polls: usize) -> Option<F::Output> {
    let mut work = pin!(work);
    for _ in 0..polls {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(output) = work.as_mut().poll(&mut context) {
            return Some(output);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        tokio::task::yield_now().await;
    }
    None
}

/// Drops `work` while such a frame of its client is held back on the wire; `false` if there is no
/// such frame.
pub async fn dropped_at<F>(proxy: &Proxy, frame: Match, work: F) -> bool
where
    F: Future<Output: Send> + Send + 'static,
{
    let at = proxy.on(frame).then(Action::Hold);
    let working = tokio::spawn(work);
    let met = tokio::time::timeout(Duration::from_millis(400), at.fired())
        .await
        .is_ok();
    working.abort();
    drop(working.await);
    at.release();
    met
}

/// Makes the experiment with the first request, the second, and so on while it finds one; then so
/// with the replies.
pub async fn at_each_frame(experiment: impl AsyncFn(Match) -> bool) {
    for frames in [Match::any_request, Match::any_reply] {
        let mut nth = 1;
        while experiment(frames().nth(nth)).await {
            nth += 1;
        }
        assert!(nth > 3, "some frames were met: {nth}");
    }
}

/// [`at_each_frame`] of an acquisition, beside no holder and then beside one.
pub async fn at_each_frame_of_an_acquire(experiment: impl AsyncFn(Match, bool) -> bool) {
    for behind_a_holder in [false, true] {
        at_each_frame(async |frame| experiment(frame, behind_a_holder).await).await;
    }
}

/// Has somebody delete the node of `acquire` before it first reads the queue. What it came to,
/// that node's path, and the proxy on its way.
pub async fn deleted_before_its_read<F>(
    stage: &Stage,
    acquire: impl FnOnce(Client) -> F,
) -> (F::Output, String, Proxy)
where
    F: Future<Output: Send> + Send + 'static,
{
    let admin = stage.occupied().await;
    let (client, proxy) = stage.proxied(LONG).await;
    let list = proxy
        .on(Match::request(OpCode::GetChildren2))
        .then(Action::Hold);
    let acquiring = tokio::spawn(acquire(client));
    let node = stage.until_children(1).await.remove(0).path;
    within(list.fired()).await;
    within(admin.delete(&node, None)).await.unwrap();
    list.release();
    (within(acquiring).await.unwrap(), node, proxy)
}

/// Creates an ephemeral node by exact name, as another program might.
pub async fn plant(session: &Session, path: &str) {
    within(session.create(path, b"planted", CreateMode::Ephemeral))
        .await
        .unwrap();
}

/// Sets the permissions of a node so that nobody may read it.
pub async fn hide(session: &Session, path: &str) {
    let unreadable = Acl::new(Perms::WRITE | Perms::ADMIN, "world", "anyone");
    within(session.set_acl(path, &[unreadable], None))
        .await
        .unwrap();
}

/// Waits until the node at the path has no children. A failed call has queued the deletes of its
/// nodes when it returns; they are gone a round trip later.
pub async fn until_empty(stage: &Stage, path: &str) {
    within(async {
        while !inspect::children(stage.addr, path)
            .await
            .unwrap()
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Waits until there is no node at the path.
pub async fn until_none(session: &Session, path: &str) {
    within(async {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let name = name.to_owned();
        while session
            .children(parent)
            .await
            .is_ok_and(|listing| listing.names.contains(&name))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Every way in which a connection can end.
pub const CUTS: [Variant; 3] = [Variant::Rst, Variant::Fin, Variant::BlackHole];

//! `kill -9` of the server in mid-run: no acknowledged write is lost or done twice, no lock is lost
//! within its session's timeout, and the wait queue stays in order. On `baton serve`, or with
//! BATON_TEST_TARGET=zookeeper on Apache ZooKeeper; one test on three of each, whatever the target.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use baton_client::{Config, CreatedNode, Error, Pending, Session};
use baton_proto::{CreateMode, Stat};
use baton_testkit::inspect;
use baton_testkit::{Ensemble, ServerOptions, Target, TestServer, zookeeper_or_skip};
use tokio::sync::watch;

use crate::common::{CommandHome, PATIENCE, RunningCommand, number_in, runs, until};

/// Number of times that the server is killed in one test.
const KILLS: u64 = 4;

/// Number of writes of the writer that are in flight at once.
const IN_FLIGHT: usize = 32;

async fn server() -> TestServer {
    TestServer::start_process(Target::from_env().unwrap(), ServerOptions::default())
        .await
        .unwrap()
}

/// The outcomes that the writer has received for its writes. Write number `n` creates a znode with
/// `n` in it and sets another to `n`.
#[derive(Default)]
struct WriteOutcomes {
    issued: u64,
    created: BTreeMap<u64, CreatedNode>,
    not_created: BTreeSet<u64>,
    set: BTreeMap<u64, Stat>,
}

impl WriteOutcomes {
    fn note_create(&mut self, number: u64, outcome: Result<CreatedNode, Error>) {
        match outcome {
            Ok(created) => {
                self.created.insert(number, created);
            }
            Err(Error::NotSent { .. }) => {
                self.not_created.insert(number);
            }
            Err(Error::MaybeApplied { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn note_set(&mut self, number: u64, outcome: Result<Stat, Error>) {
        match outcome {
            Ok(stat) => {
                self.set.insert(number, stat);
            }
            Err(Error::NotSent { .. } | Error::MaybeApplied { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// Writes without pause until it is asked to stop, and sends the number of acknowledged writes
/// after each acknowledgement.
async fn write(
    session: Session,
    acknowledged: watch::Sender<usize>,
    stop: watch::Receiver<bool>,
) -> WriteOutcomes {
    let mut notes = WriteOutcomes::default();
    let mut on_the_way: VecDeque<(u64, Pending<CreatedNode>, Pending<Stat>)> = VecDeque::new();
    loop {
        let stopping = *stop.borrow();
        while !stopping && on_the_way.len() < IN_FLIGHT {
            let number = notes.issued;
            let data = number.to_string();
            let create =
                session.create("/all/n-", data.as_bytes(), CreateMode::PersistentSequential);
            let set = session.set_data("/last", data.as_bytes(), None);
            on_the_way.push_back((number, create, set));
            notes.issued += 1;
        }
        let Some((number, create, set)) = on_the_way.pop_front() else {
            return notes;
        };
        notes.note_create(number, create.await);
        notes.note_set(number, set.await);
        acknowledged.send_replace(notes.created.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_or_done_twice() {
    let mut server = server().await;
    let config = Config::new(&server.connect_string())
        .unwrap()
        .session_timeout(Duration::from_secs(40));
    let session = Session::connect(config).await.unwrap();
    for path in ["/all", "/last"] {
        let made = session.create(path, b"", CreateMode::Persistent).await;
        made.unwrap();
    }
    let (count, mut acknowledged) = watch::channel(0);
    let (stop, stopped) = watch::channel(false);
    let writer = tokio::spawn(write(session.clone(), count, stopped));
    let mut moments = fastrand::Rng::with_seed(2);
    for kill in 0..=KILLS {
        let moment = *acknowledged.borrow() + moments.usize(20..400);
        let reached = acknowledged.wait_for(|count| *count >= moment);
        tokio::time::timeout(PATIENCE, reached)
            .await
            .unwrap()
            .unwrap();
        if kill < KILLS {
            server.kill();
            server.restart().await.unwrap();
        }
    }
    stop.send_replace(true);
    let notes = tokio::time::timeout(PATIENCE, writer)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(session.epoch(), KILLS + 1, "one session through all of it");

    let mut there: BTreeMap<u64, inspect::Znode> = BTreeMap::new();
    for node in inspect::children(server.addr(), "/all").await.unwrap() {
        let number: u64 = std::str::from_utf8(node.data.as_deref().unwrap())
            .unwrap()
            .parse()
            .unwrap();
        assert!(number < notes.issued);
        assert!(
            !notes.not_created.contains(&number),
            "{number} was not sent"
        );
        let path = node.path.clone();
        if let Some(twice) = there.insert(number, node) {
            panic!("{number} was done twice: {} and {path}", twice.path);
        }
    }
    for (number, created) in &notes.created {
        let node = there
            .get(number)
            .unwrap_or_else(|| panic!("{number} was acknowledged as {} and is lost", created.path));
        assert_eq!(
            (&node.path, node.stat.czxid),
            (&created.path, created.stat.czxid)
        );
    }
    let order: Vec<i64> = there.values().map(|node| node.stat.czxid).collect();
    assert!(order.is_sorted(), "applied in another order than sent");

    let versions: Vec<i32> = notes.set.values().map(|stat| stat.version).collect();
    assert!(
        versions.is_sorted_by(|one, next| one < next),
        "a version given twice"
    );
    let last = session.get_data("/last").await.unwrap();
    let value: u64 = std::str::from_utf8(&last.data).unwrap().parse().unwrap();
    let (newest, stat) = notes.set.last_key_value().unwrap();
    assert!(
        value >= *newest,
        "{newest} was acknowledged, and {value} is there"
    );
    assert!(last.stat.version >= stat.version);
    assert!(u64::try_from(last.stat.version).unwrap() <= notes.issued);
    session.close_timeout(PATIENCE).await.unwrap();
}

/// A lock with a holder and three waiters, and the log to which everybody who gets in writes.
struct WaitQueue {
    home: CommandHome,
    servers: String,
    /// The server whose list of waiter nodes counts.
    seen_at: SocketAddr,
    holder: RunningCommand,
    /// The holder's command.
    worker: i32,
    waiters: Vec<RunningCommand>,
    /// The sessions in the queue, in order.
    owners: Vec<i64>,
}

impl WaitQueue {
    async fn form(servers: String, seen_at: SocketAddr, timeout: &str) -> Self {
        let home = CommandHome::new();
        let work = "echo $$ > worker; echo $BATON_SESSION > session; while :; do echo beat >> log; sleep 0.02; done";
        let holder = join(&home, &servers, timeout, work);
        let mut queue = Self {
            worker: number_in(&home.path("worker")),
            home,
            servers,
            seen_at,
            holder,
            waiters: Vec::new(),
            owners: Vec::new(),
        };
        for nth in 1..=3 {
            let work = format!("echo enter {nth} >> log; sleep 0.05; echo leave {nth} >> log");
            let waiter = join(&queue.home, &queue.servers, "50s", &work);
            queue.waiters.push(waiter);
            queue.until(|owners| owners.len() == nth + 1).await;
        }
        queue.owners = queue.owners().await;
        queue.until_beats(1);
        let session = std::fs::read_to_string(queue.home.path("session")).unwrap();
        assert_eq!(session.trim(), format!("0x{:x}", queue.owners[0]));
        queue
    }

    /// The owners of the waiter nodes, in order, as the server lists them.
    async fn owners(&self) -> Vec<i64> {
        let mut nodes = inspect::children(self.seen_at, "/x")
            .await
            .unwrap_or_default();
        nodes.sort_by_key(|node| node.stat.czxid);
        nodes.iter().map(|node| node.stat.ephemeral_owner).collect()
    }

    async fn until(&self, as_it_should_be: impl Fn(&[i64]) -> bool) {
        let wait = async {
            while !as_it_should_be(&self.owners().await) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap();
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.home.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits until the holder's command has shown `more` further signs of life.
    fn until_beats(&self, more: u64) {
        let enough = self.log().len() + usize::try_from(more).unwrap();
        until("the holder's command goes on", || {
            self.log().len() >= enough || !runs(self.worker)
        });
        assert!(runs(self.worker), "the command was stopped");
    }

    /// All are where they were, nobody gets in, and the holder's command goes on for `beats` signs
    /// of life.
    async fn goes_on(&self, beats: u64) {
        self.until(|owners| owners == self.owners).await;
        let late = ["lock", "-n", "/x", "--servers", &self.servers, "--", "true"];
        let late = self.home.run(&late);
        assert_eq!(late.code, 124, "{late:?}");
        self.until_beats(beats);
        assert!(self.log().iter().all(|entry| entry == "beat"));
    }

    /// Kills the holder's `baton`: its command is gone at once, and its waiter node once its
    /// guardian has ended the session, or with the session.
    fn lose_the_holder(&self) {
        self.holder.signal("KILL");
        until("the command is gone with its baton", || !runs(self.worker));
    }

    /// The waiters get in, one by one.
    async fn passes_on(self) {
        let Self { home, waiters, .. } = self;
        let ends =
            tokio::task::spawn_blocking(|| waiters.into_iter().map(RunningCommand::end).collect());
        let ends: Vec<crate::common::Ran> = ends.await.unwrap();
        assert!(ends.iter().all(|end| end.code == 0), "{ends:?}");
        let log = std::fs::read_to_string(home.path("log")).unwrap();
        let entries: Vec<&str> = log.lines().skip_while(|entry| *entry == "beat").collect();
        assert_eq!(
            entries,
            [
                "enter 1", "leave 1", "enter 2", "leave 2", "enter 3", "leave 3"
            ],
            "one after another, in the order of arrival, and nothing more of the first holder"
        );
    }
}

fn join(home: &CommandHome, servers: &str, timeout: &str, work: &str) -> RunningCommand {
    let lock = [
        "lock",
        "/x",
        "--servers",
        servers,
        "--ensemble-tick",
        "200ms",
    ];
    let rest = ["--session-timeout", timeout, "--", "sh", "-c", work];
    home.spawn(&[lock.as_slice(), &rest].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_lost_and_the_wait_queue_stays_in_order() {
    let mut server = server().await;
    let queue = WaitQueue::form(server.connect_string(), server.addr(), "12s").await;
    let mut moments = fastrand::Rng::with_seed(3);
    for _ in 0..KILLS {
        queue.until_beats(moments.u64(1..60));
        server.kill();
        server.restart().await.unwrap();
        // Together these take longer than the session's timeout: it is kept alive, not merely not
        // yet expired.
        queue.goes_on(160).await;
    }
    queue.lose_the_holder();
    queue.passes_on().await;
}

async fn lose_no_lock_with_the_leader(mut ensemble: Ensemble) {
    let leader = ensemble.wait_leader().await.unwrap();
    let survivor = ensemble.servers()[(leader + 1) % 3].addr();
    // The testkit's ZooKeepers may take 20 s to elect another leader.
    let queue = WaitQueue::form(ensemble.connect_string(), survivor, "50s").await;
    ensemble.servers_mut()[leader].kill();
    queue.goes_on(200).await;
    queue.holder.signal("TERM");
    queue.passes_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_lost_when_the_leader_of_three_zookeepers_is_killed() {
    if !zookeeper_or_skip() {
        return;
    }
    let ensemble = Ensemble::start(Target::ZooKeeper, 3).await.unwrap();
    lose_no_lock_with_the_leader(ensemble).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_lost_when_the_leader_of_three_batons_is_killed() {
    let options = ServerOptions {
        wires: None,
        ..ServerOptions::default()
    };
    let ensemble = Ensemble::start_processes(Target::Baton, 3, options).await;
    lose_no_lock_with_the_leader(ensemble.unwrap()).await;
}

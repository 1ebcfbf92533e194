//! `kill -9` of the server in mid-run: no acknowledged write is lost or done twice, no lock is lost within its session's
//! timeout, and the line before it stays in order. On `baton serve`, or with BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    dead_code
)]

mod common;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use baton_client::{Config, Created, Error, Pending, Session};
use baton_proto::{CreateMode, Stat};
use baton_testkit::inspect;
use baton_testkit::{ServerOptions, Target, TestServer};
use common::{Home, PATIENCE, Running, number_in, runs, until};
use tokio::sync::watch;

/// How often the server is killed in one test.
const KILLS: u64 = 4;

/// How many writes of the writer are on their way at once.
const IN_FLIGHT: usize = 32;

/// Longer than a server takes to come back on a busy machine.
const SESSION: Duration = Duration::from_secs(12);

async fn server() -> TestServer {
    TestServer::start_process(Target::from_env().unwrap(), ServerOptions::default())
        .await
        .unwrap()
}

/// Numbers that are the same in every run.
struct Seeded(u64);

impl Seeded {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        low + (self.0 >> 33) % (high - low)
    }
}

/// What the writer was told about its writes. Write number `n` creates a znode with `n` in it and sets another to `n`.
#[derive(Default)]
struct Told {
    issued: u64,
    created: BTreeMap<u64, Created>,
    not_created: BTreeSet<u64>,
    set: BTreeMap<u64, Stat>,
}

impl Told {
    fn note_create(&mut self, number: u64, outcome: Result<Created, Error>) {
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

/// Writes without pause until told to stop, and tells after each acknowledgement how many there were.
async fn write(session: Session, told: watch::Sender<usize>, stop: watch::Receiver<bool>) -> Told {
    let mut notes = Told::default();
    let mut on_the_way: VecDeque<(u64, Pending<Created>, Pending<Stat>)> = VecDeque::new();
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
        told.send_replace(notes.created.len());
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
    let (told, mut acknowledged) = watch::channel(0);
    let (stop, stopped) = watch::channel(false);
    let writer = tokio::spawn(write(session.clone(), told, stopped));
    let mut moments = Seeded(2);
    for kill in 0..=KILLS {
        let moment = *acknowledged.borrow() + moments.between(20, 400) as usize;
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
    session.close(SESSION).await.unwrap();
}

/// A lock's line, and the log to which everybody who gets in writes.
struct Line {
    home: Home,
    server: TestServer,
}

impl Line {
    fn join(&self, timeout: &str, work: &str) -> Running {
        let servers = self.server.connect_string();
        let lock = [
            "lock",
            "/x",
            "--servers",
            &servers,
            "--ensemble-tick",
            "200ms",
        ];
        let rest = ["--session-timeout", timeout, "--", "sh", "-c", work];
        self.home.spawn(&[lock.as_slice(), &rest].concat())
    }

    /// Who stands in line, as the server sees it: the owning sessions in order.
    async fn owners(&self) -> Vec<i64> {
        let mut nodes = inspect::children(self.server.addr(), "/x").await.unwrap();
        nodes.sort_by_key(|node| node.stat.czxid);
        nodes.iter().map(|node| node.stat.ephemeral_owner).collect()
    }

    async fn until_so_many(&self, count: usize) -> Vec<i64> {
        let all = async {
            loop {
                let owners = self.owners().await;
                if owners.len() == count {
                    return owners;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap()
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.home.path("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits until the holder's command has shown so many more signs of life.
    fn until_beats(&self, more: u64) {
        let enough = self.log().len() + usize::try_from(more).unwrap();
        until("the holder's command goes on", || {
            self.log().len() >= enough
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_lost_and_the_line_stays_in_order() {
    let mut line = Line {
        home: Home::new(),
        server: server().await,
    };
    let work = "echo $$ > worker; echo $BATON_SESSION > session; while :; do echo beat >> log; sleep 0.02; done";
    let holder = line.join("12s", work);
    let worker = number_in(&line.home.path("worker"));
    let mut waiters = Vec::new();
    for nth in 1..=3 {
        let work = format!("echo enter {nth} >> log; sleep 0.05; echo leave {nth} >> log");
        waiters.push(line.join("40s", &work));
        line.until_so_many(nth + 1).await;
    }
    let owners = line.owners().await;
    line.until_beats(1);
    let session = std::fs::read_to_string(line.home.path("session")).unwrap();
    assert_eq!(session.trim(), format!("0x{:x}", owners[0]));

    // Together these beats take longer than the session's timeout: it was kept alive, not merely not yet expired.
    let mut moments = Seeded(3);
    for _ in 0..KILLS {
        line.until_beats(moments.between(1, 60));
        line.server.kill();
        line.server.restart().await.unwrap();
        let servers = line.server.connect_string();
        let late = ["lock", "-n", "/x", "--servers", &servers, "--", "true"];
        assert_eq!(line.home.run(&late).code, 124, "somebody else got in");
        assert_eq!(
            line.owners().await,
            owners,
            "the same sessions in the same places"
        );
        line.until_beats(160);
        assert!(runs(worker), "the command was stopped");
    }
    assert!(line.log().iter().all(|entry| entry == "beat"));

    holder.signal("KILL");
    until("the command is gone with its baton", || !runs(worker));
    let beats = line.log().len();
    assert_eq!(line.owners().await, owners, "its session is not over yet");
    let ends = tokio::task::spawn_blocking(|| waiters.into_iter().map(Running::end).collect());
    let ends: Vec<common::Ran> = ends.await.unwrap();
    assert!(ends.iter().all(|end| end.code == 0), "{ends:?}");
    let log = line.log();
    assert_eq!(
        log[beats..],
        [
            "enter 1", "leave 1", "enter 2", "leave 2", "enter 3", "leave 3"
        ],
        "one after another, in the order of arrival, and nothing of the dead holder"
    );
    assert!(log[..beats].iter().all(|entry| entry == "beat"));
}

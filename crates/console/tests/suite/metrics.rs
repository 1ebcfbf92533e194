//! The metrics of a server with real recipes on it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton::work_queue::WorkItem;
use baton::{DistributedQueue, LeaderElection, Mutex, WorkQueue};
use baton_client::{Client, Config};
use baton_console::metrics::{RecipeMetrics, Selection};
use baton_server::{Builder, MemoryStorage, Options, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_secs(60);

async fn start(builder: Builder) -> Server {
    let metrics = RecipeMetrics::new(Selection::default());
    builder
        .listen("127.0.0.1:0")
        .http("127.0.0.1:0")
        .with(|options| options.observer = Some(Arc::new(metrics)))
        .start()
        .await
        .unwrap()
}

async fn client(server: &Server) -> Client {
    let config = Config::new(&server.connect_string()).unwrap();
    Client::connect(config).await.unwrap()
}

async fn text(at: SocketAddr) -> String {
    let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// The samples of one path that are not zero, by what follows `baton_recipe_`.
async fn of(server: &Server, path: &str) -> BTreeMap<String, f64> {
    let label = format!("{{path=\"{path}\",kind=\"");
    let text = text(server.http_addr().unwrap()).await;
    let samples = text.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("baton_recipe_")?.rsplit_once(' ')?;
        let (name, labels) = name.split_once(&label)?;
        let cause = labels.split_once("cause=\"").map(|(_, cause)| cause);
        let name = match cause {
            Some(cause) => format!("{name} {}", cause.trim_end_matches("\"}")),
            None => name.to_owned(),
        };
        let value: f64 = value.parse().ok()?;
        (value != 0.0).then_some((name, value))
    });
    samples.collect()
}

/// The samples of a path once it has this number of waiters.
async fn once_waiting(server: &Server, path: &str, waiters: f64) -> BTreeMap<String, f64> {
    let waits = async {
        loop {
            let of = of(server, path).await;
            if of.get("lock_waiters").copied().unwrap_or(0.0) == waiters {
                return of;
            }
        }
    };
    tokio::time::timeout(PATIENCE, waits).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_metric_of_a_lock_follows_what_its_clients_do() {
    let server = start(Server::builder().in_memory()).await;
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = Mutex::new(&one, "/a").unwrap().acquire().await.unwrap();
    let mutex = Mutex::new(&two, "/a").unwrap();
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    let held = once_waiting(&server, "/a", 1.0).await;
    assert_eq!(held["lock_holders"], 1.0);
    assert_eq!(held.get("lock_handovers_total"), None);
    guard.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    let after = of(&server, "/a").await;
    for (name, value) in [
        ("lock_holders", 1.0),
        ("lock_handovers_total", 1.0),
        ("lock_hold_ends_total released", 1.0),
        ("lock_hold_seconds_count", 1.0),
        ("lock_wait_seconds_count", 2.0),
    ] {
        assert_eq!(after.get(name).copied(), Some(value), "{name}: {after:?}");
    }
    assert!(server.expire_session(second.session().id()).await);
    let after = of(&server, "/a").await;
    assert_eq!(after["lock_hold_ends_total session_expired"], 1.0);
    assert_eq!(after.get("lock_holders"), None);
    // Somebody breaks a lock.
    let guard = Mutex::new(&one, "/a").unwrap().acquire().await.unwrap();
    let session = two.session().await.unwrap();
    session.delete(guard.node(), None).await.unwrap();
    assert_eq!(of(&server, "/a").await["lock_hold_ends_total broken"], 1.0);
    // A leader's client closes its session.
    let three = client(&server).await;
    let leadership = LeaderElection::new(&three, "/e").unwrap().name("web-1");
    let leadership = leadership.campaign().await.unwrap();
    let text = text(server.http_addr().unwrap()).await;
    assert!(
        text.contains("holders{path=\"/e\",kind=\"election\"} 1\n"),
        "{text}"
    );
    three.close_timeout(PATIENCE).await.unwrap();
    drop(leadership);
    let ends = of(&server, "/e").await;
    let closed = ends.get("lock_hold_ends_total session_closed").copied();
    let released = ends.get("lock_hold_ends_total released").copied();
    assert_eq!(closed.or(released), Some(1.0), "{ends:?}");
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_metric_of_a_queue_follows_what_its_clients_do() {
    let server = start(Server::builder().in_memory()).await;
    let client = client(&server).await;
    let plain = DistributedQueue::new(&client, "/q").unwrap();
    for item in [b"1", b"2", b"3"] {
        plain.offer(item).await.unwrap();
    }
    plain.take().await.unwrap();
    let queue = of(&server, "/q").await;
    assert_eq!(queue["queue_items"], 2.0);
    assert_eq!(queue["queue_offered_total"], 3.0);
    assert_eq!(queue["queue_removed_total"], 1.0);

    let work = WorkQueue::new(&client, "/w").unwrap();
    for id in 0..4 {
        let item = WorkItem::new(b"payload".to_vec()).id(id.to_string());
        work.offer(item).await.unwrap();
    }
    work.take().await.unwrap().ack().await.unwrap();
    let failed = work.take().await.unwrap();
    failed
        .nack_after(Duration::from_secs(3_600), "busy")
        .await
        .unwrap();
    let bad = work.take().await.unwrap();
    bad.dead_letter("broken").await.unwrap();
    let claim = work.take().await.unwrap();
    let queue = of(&server, "/w").await;
    for (name, value) in [
        ("queue_items", 2.0),
        ("queue_delayed_items", 1.0),
        ("queue_claimed_items", 1.0),
        ("queue_dead_letters", 1.0),
        ("queue_offered_total", 4.0),
        ("queue_removed_total", 1.0),
        ("queue_requeued_total", 1.0),
        ("queue_dead_lettered_total", 1.0),
        ("queue_claims_total", 4.0),
        ("queue_claim_ends_total done", 1.0),
        ("queue_claim_ends_total requeued", 1.0),
        ("queue_claim_ends_total dead_lettered", 1.0),
    ] {
        assert_eq!(queue.get(name).copied(), Some(value), "{name}: {queue:?}");
    }
    assert!(server.expire_session(claim.session().id()).await);
    let queue = of(&server, "/w").await;
    assert_eq!(queue["queue_claim_ends_total session_expired"], 1.0);
    assert_eq!(queue.get("queue_claimed_items"), None);
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_again_knows_who_holds_and_what_is_queued() {
    let storage = MemoryStorage::new();
    let options = || {
        let metrics = RecipeMetrics::new(Selection::default());
        Options {
            listen: vec!["127.0.0.1:0".to_owned()],
            http: vec!["127.0.0.1:0".to_owned()],
            observer: Some(Arc::new(metrics)),
            ..Options::default()
        }
    };
    let server = Server::start_with(options(), Arc::new(storage.clone()));
    let server = server.await.unwrap();
    let (one, two) = (client(&server).await, client(&server).await);
    let guard = Mutex::new(&one, "/a").unwrap().acquire().await.unwrap();
    let mutex = Mutex::new(&two, "/a").unwrap();
    let waiting = tokio::spawn(async move { mutex.acquire().await });
    once_waiting(&server, "/a", 1.0).await;
    let queue = DistributedQueue::new(&one, "/q").unwrap();
    queue.offer(b"1").await.unwrap();
    let holder = guard.session().id();
    server.shutdown().await.unwrap();

    let server = Server::start_with(options(), Arc::new(storage));
    let server = server.await.unwrap();
    let after = of(&server, "/a").await;
    assert_eq!((after["lock_holders"], after["lock_waiters"]), (1.0, 1.0));
    assert_eq!(after.get("lock_wait_seconds_count"), None);
    assert_eq!(of(&server, "/q").await["queue_items"], 1.0);
    assert!(server.expire_session(holder).await);
    let after = of(&server, "/a").await;
    for (name, value) in [
        ("lock_handovers_total", 1.0),
        ("lock_hold_ends_total session_expired", 1.0),
        ("lock_holders", 1.0),
    ] {
        assert_eq!(after.get(name).copied(), Some(value), "{name}: {after:?}");
    }
    waiting.abort();
    server.shutdown().await.unwrap();
}

//! Requests of the recipes, their order and number: a read that must not be stale comes behind a
//! sync, and what is known is not asked for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use baton::lock::LockError;
use baton::tree::CreateMode;
use baton::work_queue::{Claim, Settlement};
use baton::{Client, Config, LostReason, MultiLock, Semaphore, WorkQueue};
use baton_client::{Acl, BootInstant, BoxFuture, Clock, EventKind, OpCode, Perms, SystemClock};
use baton_testkit::{Action, Match, Proxy, Variant, inspect};

use crate::common::work::queue;
use crate::common::{LONG, Stage, mutex, session, until_quiet, within};

/// The requests that the proxy has seen since its frames were cleared, without pings.
fn requests(proxy: &Proxy) -> Vec<OpCode> {
    let frames = proxy.frames().into_iter();
    let requests = frames.filter(|frame| Match::any_request().describes(frame));
    requests
        .filter_map(|frame| frame.op())
        .filter(|op| *op != OpCode::Ping)
        .collect()
}

/// Returns whether a sync was asked for, and nothing of `reads` before it.
fn synced_before(requests: &[OpCode], reads: &[OpCode]) -> bool {
    let first = |ops: &[OpCode]| requests.iter().position(|op| ops.contains(op));
    let sync = first(&[OpCode::Sync]);
    sync.is_some_and(|sync| first(reads).is_none_or(|read| sync < read))
}

/// A queue behind a proxy that has two items, one of them claimed, and its client, which asks for
/// nothing more.
async fn used(stage: &Stage) -> (WorkQueue, Client, Proxy, Claim) {
    let (client, proxy) = stage.proxied(LONG).await;
    let queue = queue(&client, &stage.path).visibility(Duration::from_secs(60));
    within(queue.offer_all(["claimed".into(), "free".into()]))
        .await
        .unwrap();
    let claim = within(queue.take()).await.unwrap();
    until_quiet(&client, &proxy).await;
    proxy.clear_frames();
    (queue, client, proxy, claim)
}

#[tokio::test]
async fn a_read_that_decides_over_what_others_have_syncs_first() {
    for call in ["purge", "claims", "settle", "repair"] {
        let stage = Stage::new(call).await;
        let (queue, _client, proxy, claim) = used(&stage).await;
        match call {
            "purge" => drop(within(queue.purge()).await.unwrap()),
            "claims" => drop(within(queue.claims()).await.unwrap()),
            "settle" => {
                let ack = queue.settle(claim.item(), claim.token(), Settlement::Ack);
                within(ack).await.unwrap();
            }
            _ => drop(within(queue.repair()).await.unwrap()),
        }
        let asked = requests(&proxy);
        let reads = [OpCode::Exists, OpCode::GetData, OpCode::GetChildren2];
        assert!(synced_before(&asked, &reads), "{call}: {asked:?}");
    }
}

#[tokio::test]
async fn h02_a_read_that_resolves_a_lost_answer_syncs_first() {
    for call in ["put", "take", "extend", "ack", "purge", "txn"] {
        let stage = Stage::new(call).await;
        let (queue, client, proxy, claim) = used(&stage).await;
        let guard = within(mutex(&client, &format!("{}-lock", stage.path)).acquire()).await;
        let txn = guard.as_ref().unwrap().txn();
        // Reads the server's clock, which a slow `take` would do by a multi of its own.
        within(queue.depth()).await.unwrap();
        proxy.clear_frames();
        let cut = proxy
            .on(Match::reply(OpCode::Multi))
            .then(Action::Cut(Variant::Rst));
        match call {
            "put" => drop(within(queue.offer("x")).await.unwrap()),
            "take" => drop(within(queue.take()).await.unwrap()),
            "extend" => within(claim.extend()).await.unwrap(),
            "ack" => within(claim.ack()).await.unwrap(),
            "purge" => drop(within(queue.purge()).await.unwrap()),
            _ => drop(within(txn.check("/", None).commit()).await.unwrap()),
        }
        assert_eq!(cut.times(), 1, "{call}");
        let asked = requests(&proxy);
        let sent = asked.iter().position(|op| *op == OpCode::Multi).unwrap();
        let after = &asked[sent..];
        assert!(
            after.contains(&OpCode::Exists) && synced_before(after, &[OpCode::Exists]),
            "{call}: {asked:?}"
        );
    }
}

#[tokio::test]
async fn a_missing_directory_is_asked_for_once_and_once_more_when_what_is_above_it_is_there() {
    let stage = Stage::new("directories").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let path = format!("{}/above/lock", stage.path);
    let made = || {
        let containers = proxy.count(&Match::request(OpCode::CreateContainer));
        (containers, proxy.count(&Match::request(OpCode::Create2)))
    };
    let guard = within(mutex(&client, &path).acquire()).await.unwrap();
    // Down from the lock until one can be made, and up again; the lock's node before and after.
    assert_eq!(made(), (5, 2));
    within(guard.release()).await.unwrap();
    proxy.clear_frames();
    // All permits stand in one directory.
    let semaphore = Semaphore::new(&client, &format!("{path}-permits"), 4).unwrap();
    drop(within(semaphore.acquire(4)).await.unwrap());
    assert_eq!(made().0, 1, "{:?}", requests(&proxy));
}

#[tokio::test]
async fn a_refusal_to_make_a_node_is_reported_at_once() {
    let stage = Stage::new("refused").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let admin = session(&stage.client().await).await;
    let paths = ["one", "two"].map(|name| format!("{}-{name}", stage.path));
    let read_only = Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone");
    for path in &paths {
        within(admin.create(path, b"", CreateMode::Persistent))
            .await
            .unwrap();
        let set = admin.set_acl(path, std::slice::from_ref(&read_only), None);
        within(set).await.unwrap();
    }
    let refused = within(mutex(&client, &paths[0]).acquire()).await;
    assert!(
        matches!(refused, Err(LockError::Client { .. })),
        "{refused:?}"
    );
    assert_eq!(proxy.count(&Match::request(OpCode::Create2)), 1);
    let both = MultiLock::new(&client, &paths).unwrap();
    let refused = within(both.acquire()).await;
    assert!(
        matches!(refused, Err(LockError::Client { .. })),
        "{refused:?}"
    );
    assert_eq!(proxy.count(&Match::request(OpCode::Multi)), 1);
    assert_eq!(proxy.count(&Match::request(OpCode::CreateContainer)), 0);
}

#[tokio::test]
async fn a_receipt_serves_one_transaction_after_the_other() {
    let stage = Stage::new("receipts").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    for _ in 0..4 {
        within(guard.txn().check("/", None).commit()).await.unwrap();
    }
    assert_eq!(proxy.count(&Match::request(OpCode::Multi)), 4);
    let receipts = format!("{}-__receipts__", stage.path);
    let receipts = inspect::children(stage.addr, &receipts).await.unwrap();
    assert_eq!(receipts.len(), 1);
}

#[tokio::test]
async fn h09_a_guard_whose_node_is_gone_asks_for_no_deletion() {
    let stage = Stage::new("gone").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let admin = session(&stage.client().await).await;
    for drops in [true, false] {
        let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
        within(admin.delete(guard.node(), None)).await.unwrap();
        assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
        if drops {
            drop(guard);
        } else {
            within(guard.release()).await.unwrap_err();
        }
        within(session(&client).await.sync("/")).await.unwrap();
        assert_eq!(proxy.count(&Match::request(OpCode::Delete)), 0);
    }
}

/// Requests of a poll of an empty queue, once it has read all that it keeps.
async fn polled(queue: &WorkQueue, (client, proxy): &(Client, Proxy)) -> Vec<OpCode> {
    until_quiet(client, proxy).await;
    proxy.clear_frames();
    assert!(within(queue.poll()).await.unwrap().is_none());
    until_quiet(client, proxy).await;
    let mut asked = requests(proxy);
    asked.retain(|op| *op != OpCode::Sync);
    asked
}

#[tokio::test]
async fn a_poll_that_finds_nothing_has_a_task_that_waits_beside_it_ask_for_nothing() {
    let stage = Stage::new("beside").await;
    let (alone, beside) = (stage.proxied(LONG).await, stage.proxied(LONG).await);
    let queue_alone = queue(&alone.0, &stage.path);
    polled(&queue_alone, &alone).await;
    let expected = polled(&queue_alone, &alone).await;
    let queue = queue(&beside.0, &stage.path);
    let of_task = queue.clone();
    let waiting = tokio::spawn(async move { of_task.take().await.map(drop) });
    let admin = session(&stage.client().await).await;
    let waiters = format!("{}/waiters", stage.path);
    within(async {
        while admin
            .children(&waiters)
            .await
            .map_or(0, |read| read.names.len())
            == 0
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(polled(&queue, &beside).await, expected);
    waiting.abort();
}

/// The machine's clock, and how often it was asked.
#[derive(Default)]
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now(&self) -> BootInstant {
        self.0.fetch_add(1, Ordering::Relaxed);
        SystemClock.now()
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<()> {
        SystemClock.sleep_until(deadline)
    }
}

#[tokio::test]
async fn a_guard_that_may_not_queue_the_read_of_its_node_reads_it_later() {
    let stage = Stage::new("full-later").await;
    let proxy = Proxy::start(stage.addr).await.unwrap();
    let config = Config::new(&proxy.addr().to_string())
        .unwrap()
        .session_timeout(LONG)
        .max_pending(2, 1 << 20);
    let client = within(Client::connect(config)).await.unwrap();
    let (full, admin) = (session(&client).await, session(&stage.client().await).await);
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    until_quiet(&client, &proxy).await;
    let requests = proxy.on(Match::request(OpCode::Exists)).then(Action::Hold);
    let kept = [full.exists("/"), full.exists("/")];
    within(requests.fired()).await;
    let changed = proxy.on(Match::event(EventKind::NodeDataChanged)).observe();
    within(admin.set_data(guard.node(), b"x", None))
        .await
        .unwrap();
    within(changed.fired()).await;
    for _ in 0..25 {
        within(admin.sync("/")).await.unwrap();
    }
    assert_eq!(guard.check(), Ok(()));
    requests.release();
    for kept in kept {
        let _ = within(kept).await;
    }
    until_quiet(&client, &proxy).await;
    assert_eq!(guard.check(), Ok(()));
    within(admin.delete(guard.node(), None)).await.unwrap();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
}

#[tokio::test]
async fn an_acquire_that_may_not_queue_its_request_rests_before_it_tries_again() {
    let stage = Stage::new("full").await;
    let proxy = Proxy::start(stage.addr).await.unwrap();
    let clock = Arc::new(CountingClock::default());
    let config = Config::new(&proxy.addr().to_string())
        .unwrap()
        .session_timeout(LONG)
        .max_pending(2, 1 << 20)
        .clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let client = within(Client::connect(config)).await.unwrap();
    let full = session(&client).await;
    let lease = within(full.hold_lease()).await.unwrap();
    until_quiet(&client, &proxy).await;
    let answers = proxy.on(Match::any_reply()).then(Action::Hold);
    let kept = [full.exists("/"), full.exists("/")];
    within(answers.fired()).await;
    let (begin, asked) = (Instant::now(), clock.0.load(Ordering::Relaxed));
    let lock = mutex(&client, &stage.path);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    // Enough for one that does not rest to try thousands of times.
    let other = session(&stage.client().await).await;
    for _ in 0..25 {
        within(other.sync("/")).await.unwrap();
    }
    let tries = begin.elapsed().as_millis() / 20 + 2;
    let asked = clock.0.load(Ordering::Relaxed) - asked;
    assert!(u128::from(asked) < 20 * tries, "{asked}, {tries}");
    assert!(!acquiring.is_finished());
    answers.release();
    for kept in kept {
        let _ = within(kept).await;
    }
    let guard = within(acquiring).await.unwrap().unwrap();
    assert_eq!(guard.check(), Ok(()));
    drop(lease);
}

//! The read/write lock: who may go together, who waits for whom, and the changes between reading
//! and writing.

use std::time::Duration;

use baton::lock::{LockError, ReadGuard, WriteGuard};
use baton::naming::RwDialect;
use baton::tree::CreateMode;
use baton::{Client, LostReason, RwLock};
use baton_client::{EventKind, OpCode};
use baton_testkit::{Action, Match, Proxy};
use tokio::task::JoinHandle;

use crate::common::{CUTS, LAPSE, LONG, Stage, plant, session, within};

const DIALECTS: [RwDialect; 3] = [RwDialect::Curator, RwDialect::Kazoo, RwDialect::Host];

/// Long enough for a client to notice a silent connection and come back on another.
const ROOMY: Duration = Duration::from_secs(4);

type ReadTask = JoinHandle<Result<ReadGuard, LockError>>;
type WriteTask = JoinHandle<Result<WriteGuard, LockError>>;

fn lock(client: &Client, stage: &Stage) -> RwLock {
    RwLock::new(client, &stage.path).unwrap()
}

/// A reader on a client of its own, once its node is in the queue as the `nth`.
async fn reader(stage: &Stage, dialect: RwDialect, nth: usize) -> (ReadTask, Proxy) {
    let (client, proxy) = stage.proxied(LONG).await;
    let lock = lock(&client, stage).dialect(dialect);
    let waiting = tokio::spawn(async move { lock.read().await });
    stage.until_children(nth).await;
    (waiting, proxy)
}

/// A writer on a client of its own, once its node is in the queue as the `nth` and it waits.
async fn writer(stage: &Stage, dialect: RwDialect, nth: usize) -> (WriteTask, Proxy) {
    let (client, proxy) = stage.proxied(LONG).await;
    // Those on its own node and on the one before it.
    let watches = Match::reply(OpCode::GetData).path_contains(&*stage.path);
    let watches = proxy.on(watches.every()).observe();
    let lock = lock(&client, stage).dialect(dialect);
    let waiting = tokio::spawn(async move { lock.write().await });
    stage.until_children(nth).await;
    within(watches.fired_times(2)).await;
    (waiting, proxy)
}

#[tokio::test]
async fn readers_go_together_and_a_writer_alone_and_tokens_grow_with_the_grants() {
    for dialect in DIALECTS {
        let stage = Stage::new("rw").await;
        let client = stage.client().await;
        let lock = lock(&client, &stage).dialect(dialect).name("me");
        let first = within(lock.read()).await.unwrap();
        let second = within(lock.try_read()).await.unwrap().unwrap();
        assert!(within(lock.try_write()).await.unwrap().is_none());
        let limit = Duration::from_millis(50);
        let timed_out = within(lock.write_timeout(limit)).await;
        assert!(matches!(timed_out, Err(LockError::TimedOut { limit: l, .. }) if l == limit));
        // Its node may be created, and then deleted, after the time-out.
        stage.until_children(2).await;
        assert_eq!((first.check(), second.check()), (Ok(()), Ok(())));
        assert!(first.token() < second.token(), "{dialect}");
        let last = second.token();
        within(first.release()).await.unwrap();
        within(second.release()).await.unwrap();
        let writer = within(lock.try_write()).await.unwrap().unwrap();
        assert!(last < writer.token(), "{dialect}");
        assert!(within(lock.try_read()).await.unwrap().is_none());
        assert!(within(lock.read_timeout(limit)).await.is_err());
        assert!(within(lock.try_write()).await.unwrap().is_none());
        within(writer.release()).await.unwrap();
        stage.until_children(0).await;
    }
}

#[tokio::test]
async fn h40_a_writer_that_waits_behind_a_waiting_reader_waits_for_it() {
    for dialect in DIALECTS {
        let stage = Stage::new("h40").await;
        let client = stage.client().await;
        let first = within(lock(&client, &stage).dialect(dialect).write())
            .await
            .unwrap();
        let (reading, _r) = reader(&stage, dialect, 2).await;
        let (writing, _w) = writer(&stage, dialect, 3).await;
        within(first.release()).await.unwrap();
        let read = within(reading).await.unwrap().unwrap();
        let (late, _l) = reader(&stage, dialect, 3).await;
        session(&client).await.sync("/").await.unwrap();
        assert!(!writing.is_finished() && !late.is_finished(), "{dialect}");
        within(read.release()).await.unwrap();
        let write = within(writing).await.unwrap().unwrap();
        assert!(!late.is_finished(), "{dialect}: in order of arrival");
        within(write.release()).await.unwrap();
        within(within(late).await.unwrap().unwrap().release())
            .await
            .unwrap();
    }
}

fn reading_token(dialect: RwDialect) -> &'static str {
    match dialect {
        RwDialect::Kazoo => "__rlock__",
        RwDialect::Host => "-R-",
        _ => "__READ__",
    }
}

#[tokio::test]
async fn h43_no_writer_goes_before_the_reader_that_the_last_writer_has_become() {
    for dialect in DIALECTS {
        let stage = Stage::new("h43").await;
        let client = stage.client().await;
        let first = within(lock(&client, &stage).dialect(dialect).write())
            .await
            .unwrap();
        let (ended, token) = (first.lost(), first.token());
        let (writing, other) = writer(&stage, dialect, 2).await;
        let reads = Match::reply(OpCode::GetData).path_contains(reading_token(dialect));
        let reads = other.on(reads).observe();
        let read = within(first.downgrade()).await.unwrap();
        assert_eq!(within(ended).await, LostReason::Released);
        assert!(read.token() > token);
        // It was woken, has read the queue, and waits for the reader.
        within(reads.fired()).await;
        assert!(!writing.is_finished(), "{dialect}");
        let again = within(lock(&client, &stage).dialect(dialect).try_write()).await;
        assert!(again.unwrap().is_none(), "{dialect}");
        let last = read.token();
        within(read.release()).await.unwrap();
        let write = within(writing).await.unwrap().unwrap();
        assert!(write.token() > last, "{dialect}");
    }
}

#[tokio::test]
async fn h21_h43_equal_numbers_do_not_put_a_writer_before_the_downgraded_reader() {
    let stage = Stage::new("h43b").await;
    let client = stage.client().await;
    let first = within(lock(&client, &stage).write()).await.unwrap();
    let number = first.node().rsplit('_').next().unwrap().to_owned();
    // Past the end of the numbers, a later writer may carry the holder's.
    let other = session(&stage.client().await).await;
    plant(&other, &format!("{}/_c_zz-__WRIT__{number}", stage.path)).await;
    let read = within(first.downgrade()).await.unwrap();
    let (late, proxy) = stage.proxied(LONG).await;
    // The reads of the Stats, the watch on its own node, then the one on the nearest before it.
    let reads = Match::request(OpCode::GetData).path_contains(&*stage.path);
    let reads = proxy.on(reads.every()).observe();
    let writing = lock(&late, &stage);
    let writing = tokio::spawn(async move { writing.write().await });
    let nearest = within(reads.fired_times(5)).await.path.unwrap();
    assert!(nearest.contains("zz"), "{nearest}");
    assert_eq!(read.check(), Ok(()));
    writing.abort();
}

#[tokio::test]
async fn h44_a_reader_becomes_the_writer_only_where_it_need_not_wait() {
    for dialect in DIALECTS {
        let stage = Stage::new("h44").await;
        let client = stage.client().await;
        let lock = lock(&client, &stage).dialect(dialect);
        let one = within(lock.read()).await.unwrap();
        let two = within(lock.read()).await.unwrap();
        // Both want to, and neither can.
        let (one, two) = within(async { tokio::join!(one.upgrade(), two.upgrade()) }).await;
        let (one, two) = (one.unwrap_err(), two.unwrap_err());
        for refused in [&one, &two] {
            assert!(matches!(refused.source, LockError::WouldDeadlock { .. }));
            assert_eq!(refused.guard.check(), Ok(()), "{dialect}: still reads");
        }
        within(two.guard.release()).await.unwrap();
        stage.until_children(1).await;
        // A writer that waits would be overtaken.
        let (writing, _w) = writer(&stage, dialect, 2).await;
        let refused = within(one.guard.upgrade()).await.unwrap_err();
        assert!(matches!(refused.source, LockError::WouldDeadlock { .. }));
        writing.abort();
        stage.until_children(1).await;
        let (ended, token) = (refused.guard.lost(), refused.guard.token());
        let write = within(refused.guard.upgrade()).await.unwrap();
        assert_eq!(within(ended).await, LostReason::Released);
        assert!(write.token() > token && write.check().is_ok());
        stage.until_children(1).await;
        assert!(within(lock.try_read()).await.unwrap().is_none());
        within(write.release()).await.unwrap();
    }
}

/// Becomes the writer, which must be refused because the reader is none any more.
async fn upgrade_is_lost(reader: ReadGuard) -> LostReason {
    let refused = within(reader.upgrade()).await.unwrap_err();
    assert!(refused.guard.check().is_err());
    match refused.source {
        LockError::Lost { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn h44_a_reader_that_has_lost_the_lock_does_not_become_the_writer() {
    for dialect in DIALECTS {
        let stage = Stage::new("h44l").await;
        let lock_here = lock(&stage.client().await, &stage).dialect(dialect);
        let reader = within(lock_here.read()).await.unwrap();
        let other = stage.client().await;
        let admin = session(&other).await;
        within(admin.delete(reader.node(), None)).await.unwrap();
        assert_eq!(within(reader.lost()).await, LostReason::NodeGone);
        // Another writes meanwhile what the reader has not read.
        let other = lock(&other, &stage).dialect(dialect);
        let write = within(other.write()).await.unwrap();
        within(write.release()).await.unwrap();
        assert_eq!(upgrade_is_lost(reader).await, LostReason::NodeGone);
        stage.until_children(0).await;
    }
    // The same where the lease ends, the session lives, and the node stays for now.
    let stage = Stage::new("h44m").await;
    let (client, clock) = stage.lapsing_by_clock().await;
    let reader = within(lock(&client, &stage).read()).await.unwrap();
    reader.keep_node().unwrap();
    clock.sleep(LAPSE);
    assert_eq!(upgrade_is_lost(reader).await, LostReason::LeaseEnded);
    stage.until_children(0).await;
}

#[tokio::test]
async fn h44_a_reader_that_loses_the_lock_on_its_way_does_not_become_the_writer() {
    for dialect in DIALECTS {
        let stage = Stage::new("h44w").await;
        let (client, proxy) = stage.proxied(LONG).await;
        let lock_here = lock(&client, &stage).dialect(dialect);
        let reader = within(lock_here.read()).await.unwrap();
        let node = reader.node().to_owned();
        let create = proxy.on(Match::request(OpCode::Create2)).then(Action::Hold);
        let upgrading = tokio::spawn(upgrade_is_lost(reader));
        within(create.fired()).await;
        let other = stage.client().await;
        within(session(&other).await.delete(&node, None))
            .await
            .unwrap();
        let write = within(lock(&other, &stage).dialect(dialect).write()).await;
        within(write.unwrap().release()).await.unwrap();
        create.release();
        assert_eq!(within(upgrading).await.unwrap(), LostReason::NodeGone);
        stage.until_children(0).await;
    }
}

#[tokio::test]
async fn h45_a_reader_whose_node_has_vanished_is_not_granted() {
    let stage = Stage::new("h45").await;
    let client = stage.client().await;
    let write = within(lock(&client, &stage).write()).await.unwrap();
    let (reading, _r) = reader(&stage, RwDialect::Curator, 2).await;
    let nodes = stage.until_children(2).await;
    let gone = nodes.iter().find(|node| node.path != write.node()).unwrap();
    let admin = session(&client).await;
    admin.delete(&gone.path, None).await.unwrap();
    // It comes back with another node, at the end.
    let nodes = within(async {
        loop {
            let nodes = stage.until_children(2).await;
            if nodes.iter().all(|node| node.path != gone.path) {
                return nodes;
            }
        }
    })
    .await;
    assert!(!reading.is_finished());
    within(write.release()).await.unwrap();
    let read = within(reading).await.unwrap().unwrap();
    assert!(nodes.iter().any(|node| node.path == read.node()));
    stage.until_children(1).await;
}

#[tokio::test]
async fn h45_a_waiter_whose_node_vanished_before_it_read_the_queue_is_not_granted() {
    let stage = Stage::new("h45").await;
    let path = stage.path.clone();
    let read = async move |client| RwLock::new(&client, &path).unwrap().read().await.unwrap();
    let (read, gone, _proxy) = crate::common::deleted_before_its_read(&stage, read).await;
    assert_ne!(read.node(), gone);
    let nodes = stage.until_children(1).await;
    assert_eq!(nodes[0].path, read.node());
}

#[tokio::test]
async fn h52_a_release_wakes_only_those_who_can_now_go() {
    let stage = Stage::new("h52").await;
    let dialect = RwDialect::Curator;
    let client = stage.client().await;
    let gone = Match::event(EventKind::NodeDeleted);
    let first = within(lock(&client, &stage).write()).await.unwrap();
    let mut readers = Vec::new();
    for nth in 2..5 {
        readers.push(reader(&stage, dialect, nth).await);
    }
    let (writing, next) = writer(&stage, dialect, 5).await;
    let (late, behind) = reader(&stage, dialect, 6).await;
    within(first.release()).await.unwrap();
    let mut guards = Vec::new();
    for (reading, proxy) in &mut readers {
        guards.push(within(reading).await.unwrap().unwrap());
        assert_eq!(proxy.count(&gone), 1, "each reader once");
    }
    let last = guards.pop().unwrap();
    for guard in guards {
        within(guard.release()).await.unwrap();
    }
    stage.until_children(3).await;
    assert_eq!(next.count(&gone), 0, "the writer waits for the last reader");
    within(last.release()).await.unwrap();
    let write = within(writing).await.unwrap().unwrap();
    assert_eq!(next.count(&gone), 1, "the writer once");
    assert_eq!(behind.count(&gone), 0, "nobody behind it");
    within(write.release()).await.unwrap();
    drop(within(late).await.unwrap().unwrap());
}

#[tokio::test]
async fn h01_h43_a_downgrade_whose_connection_is_cut_leaves_one_reader() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("downgrade").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let write = within(lock(&client, &stage).write()).await.unwrap();
            proxy.on(message).then(Action::Cut(variant));
            let read = within(write.downgrade()).await.unwrap();
            let nodes = stage.until_children(1).await;
            assert_eq!(nodes[0].path, read.node(), "{variant:?}");
            assert_eq!(read.check(), Ok(()), "{variant:?}");
            within(read.release()).await.unwrap();
            stage.until_children(0).await;
        }
    }
}

#[tokio::test]
async fn h10_a_downgrade_dropped_at_any_point_leaves_nothing() {
    let stage = Stage::new("h10").await;
    let client = stage.client().await;
    for polls in 0..6 {
        let write = within(lock(&client, &stage).write()).await.unwrap();
        drop(crate::common::polled(write.downgrade(), polls).await);
        stage.until_children(0).await;
    }
}

#[tokio::test]
async fn a_token_whose_reply_was_lost_is_minted_again() {
    for variant in CUTS {
        let stage = Stage::new("mint").await;
        let (client, proxy) = stage.proxied(ROOMY).await;
        let cut = proxy
            .on(Match::reply(OpCode::SetData).path_contains("__WRIT__"))
            .then(Action::Cut(variant));
        let write = within(lock(&client, &stage).write()).await.unwrap();
        assert_eq!(cut.times(), 1, "{variant:?}");
        let node = session(&client).await.get_data(write.node()).await.unwrap();
        assert_eq!(u64::try_from(node.stat.mzxid), Ok(write.token()));
        assert_eq!(stage.children().await.len(), 1);
    }
}

#[tokio::test]
async fn a_request_to_let_go_that_came_before_the_grant_is_not_lost() {
    let stage = Stage::new("asked").await;
    let client = stage.client().await;
    let first = within(lock(&client, &stage).write()).await.unwrap();
    let (reading, _r) = reader(&stage, RwDialect::Curator, 2).await;
    let nodes = stage.until_children(2).await;
    let waiter = nodes.iter().find(|node| node.path != first.node()).unwrap();
    let admin = session(&client).await;
    let asked = admin.set_data(&waiter.path, b"__REVOKE__", None);
    within(asked).await.unwrap();
    within(first.release()).await.unwrap();
    let read = within(reading).await.unwrap().unwrap();
    assert_eq!(within(read.on_revoke()).await, Ok(()));
    assert!(read.revoke_requested());
}

#[tokio::test]
async fn a_request_to_let_go_that_meets_the_token_on_its_way_is_not_overwritten() {
    let stage = Stage::new("minting").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let minting = proxy.on(Match::request(OpCode::SetData)).then(Action::Hold);
    let lock_here = lock(&client, &stage);
    let writing = tokio::spawn(async move { lock_here.write().await });
    within(minting.fired()).await;
    let node = stage.until_children(1).await.remove(0).path;
    let admin = session(&stage.client().await).await;
    within(admin.set_data(&node, b"__REVOKE__", None))
        .await
        .unwrap();
    minting.release();
    let write = within(writing).await.unwrap().unwrap();
    assert_eq!(within(write.on_revoke()).await, Ok(()));
    within(write.release()).await.unwrap();
}

#[tokio::test]
async fn h13_a_lock_of_another_kind_is_refused_and_leaves_nothing() {
    let stage = Stage::new("h13").await;
    let client = stage.client().await;
    let held = within(crate::common::mutex(&client, &stage.path).acquire())
        .await
        .unwrap();
    for dialect in DIALECTS {
        let lock = lock(&client, &stage).dialect(dialect);
        let read = within(lock.read()).await.unwrap_err();
        assert!(matches!(read, LockError::Foreign { .. }), "{read}");
        let write = within(lock.write()).await.unwrap_err();
        assert!(matches!(write, LockError::Foreign { .. }), "{write}");
        stage.until_children(1).await;
    }
    within(held.release()).await.unwrap();
    let plain = format!("{}/config", stage.path);
    let session = session(&client).await;
    within(session.create(&plain, b"", CreateMode::Persistent))
        .await
        .unwrap();
    let write = within(lock(&client, &stage).try_write()).await.unwrap();
    assert!(write.is_some(), "a child that is not a waiter is skipped");
    assert!(RwLock::new(&client, "/").is_err() && RwLock::new(&client, "x").is_err());
}

#[tokio::test]
async fn a_writer_whose_node_was_deleted_does_not_become_a_reader() {
    let stage = Stage::new("lostdown").await;
    let client = stage.client().await;
    let write = within(lock(&client, &stage).write()).await.unwrap();
    let admin = session(&client).await;
    admin.delete(write.node(), None).await.unwrap();
    let error = within(write.downgrade()).await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    stage.until_children(0).await;
}

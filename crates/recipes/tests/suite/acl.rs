//! The ACL of every node that a recipe creates.

use std::collections::BTreeSet;
use std::time::Duration;

use baton::barrier::BarrierLayout;
use baton::lock::{LockError, OwnerId, SimpleMutex};
use baton::membership::{GroupLayout, PersistentNode};
use baton::naming::Dialect;
use baton::partition::PartitionEvent;
use baton::queue::{DelayQueue, IdQueue, LockingQueue, PriorityQueue, QueueLayout};
use baton::tree::{Acl, CreateMode, Perms};
use baton::work_queue::WorkItem;
use baton::{
    Barrier, Client, Config, CountdownLatch, Counter, DistributedQueue, DoubleBarrier,
    LeaderElection, Membership, MultiLock, Mutex, Partitioner, ReentrantMutex, RwLock, Semaphore,
    Session, SharedValue, WorkQueue,
};

use crate::common::{LONG, Stage, within};

async fn user(stage: &Stage, secret: &[u8]) -> Client {
    let config = Config::new(&stage.addr.to_string()).unwrap();
    let config = config.session_timeout(LONG).auth("digest", secret);
    within(Client::connect(config)).await.unwrap()
}

/// Reads every node below `path`, and requires that its ACL has one entry, of this scheme and a
/// user of this name, who may do everything. The last parts of the nodes' paths.
async fn walk(session: &Session, path: &str, scheme: &str, user: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut left = vec![path.to_owned()];
    while let Some(node) = left.pop() {
        let (acl, _) = match within(session.get_acl(&node)).await {
            Ok(read) => read,
            // Nodes go while the tree is read.
            Err(error) if error.is_no_node() => continue,
            Err(error) => panic!("{node}: {error}"),
        };
        assert_eq!(acl.len(), 1, "{node}: {acl:?}");
        assert_eq!(acl[0].perms, Perms::ALL, "{node}: {acl:?}");
        assert_eq!(acl[0].scheme, scheme, "{node}: {acl:?}");
        assert!(acl[0].id.starts_with(user), "{node}: {acl:?}");
        if let Ok(children) = within(session.children(&node)).await {
            let children = children.names.iter();
            left.extend(children.map(|name| format!("{node}/{name}")));
        }
        seen.insert(node.rsplit('/').next().unwrap().to_owned());
    }
    seen
}

/// Runs every recipe, each in as many layouts as it has kinds of nodes, and calls `check` while
/// something is held.
async fn run_everything(
    client: &Client,
    root: &str,
    acl: Option<&[Acl<'static>]>,
    check: impl AsyncFn(&str),
) {
    /// The handle with the ACL, if one is asked for.
    macro_rules! with {
        ($handle:expr) => {{
            let handle = $handle.unwrap();
            match acl {
                Some(acl) => handle.acl(acl),
                None => handle,
            }
        }};
    }
    let at = |name: &str| format!("{root}/{name}/below");

    for dialect in [Dialect::Curator, Dialect::Kazoo] {
        let mutex = with!(Mutex::new(client, &at("mutex"))).dialect(dialect);
        let held = within(mutex.acquire()).await.unwrap();
        let next = tokio::spawn(async move { mutex.acquire().await });
        check("mutex").await;
        within(held.release()).await.unwrap();
        within(within(next).await.unwrap().unwrap().release())
            .await
            .unwrap();
    }
    let simple = with!(SimpleMutex::new(client, &at("simple")));
    let held = within(simple.acquire()).await.unwrap();
    check("simple").await;
    within(held.release()).await.unwrap();

    let reentrant = with!(ReentrantMutex::new(client, &at("reentrant")));
    let held = within(reentrant.acquire(&OwnerId::unique())).await.unwrap();
    check("reentrant").await;
    drop(held);

    let lock = with!(RwLock::new(client, &at("rw")));
    let reader = within(lock.read()).await.unwrap();
    check("read").await;
    within(reader.release()).await.unwrap();
    let writer = within(lock.write()).await.unwrap();
    let reader = within(writer.downgrade()).await.unwrap();
    check("downgraded").await;
    within(reader.release()).await.unwrap();

    let both = with!(MultiLock::new(client, [at("one"), at("two")]));
    let held = within(both.acquire()).await.unwrap();
    check("multi").await;
    within(held.release()).await.unwrap();

    let semaphore = with!(Semaphore::new(client, &at("semaphore"), 3));
    let held = within(semaphore.acquire(2)).await.unwrap();
    check("semaphore").await;
    within(held.release()).await.unwrap();

    let election = with!(LeaderElection::new(client, &at("election")));
    let leadership = within(election.campaign()).await.unwrap();
    check("election").await;
    within(leadership.resign()).await.unwrap();

    let barrier = with!(Barrier::new(client, &at("barrier")));
    within(barrier.close()).await.unwrap();
    check("barrier").await;
    within(barrier.open()).await.unwrap();

    for layout in [BarrierLayout::Rounds, BarrierLayout::Curator] {
        let double = with!(DoubleBarrier::new(
            client,
            &at(&format!("double-{layout:?}")),
            2
        ));
        let double = double.layout(layout);
        let (one, other) = within(async { tokio::join!(double.enter(), double.enter()) }).await;
        check("double barrier").await;
        let left = async { tokio::join!(one.unwrap().leave(), other.unwrap().leave()) };
        let (one, other) = within(left).await;
        one.unwrap();
        other.unwrap();
    }

    let latch = with!(CountdownLatch::new(client, &at("latch"), 2));
    within(latch.count_down("one")).await.unwrap();
    check("latch").await;
    within(latch.count_down("two")).await.unwrap();
    check("open latch").await;

    for layout in [
        QueueLayout::Recipes,
        QueueLayout::Curator,
        QueueLayout::Kazoo,
    ] {
        let queue = with!(DistributedQueue::new(
            client,
            &at(&format!("queue-{layout:?}"))
        ));
        let queue = queue.layout(layout);
        within(queue.offer(b"item")).await.unwrap();
        check("queue").await;
        within(queue.take()).await.unwrap();
    }
    let queue = with!(PriorityQueue::new(client, &at("priority")));
    within(queue.offer(b"item", 1)).await.unwrap();
    let queue = with!(IdQueue::new(client, &at("id")));
    within(queue.offer(b"item", "id")).await.unwrap();
    let queue = with!(DelayQueue::new(client, &at("delay")));
    within(queue.offer(b"item", Duration::ZERO)).await.unwrap();
    check("other queues").await;
    within(queue.take()).await.unwrap();

    let kazoo = with!(LockingQueue::new(client, &at("locking")));
    let curator = with!(LockingQueue::new(client, &at("locking-curator")));
    let curator = curator.curator_layout(&at("locking-claims"));
    for queue in [kazoo, curator] {
        within(queue.offer(b"item")).await.unwrap();
        let item = within(queue.take()).await.unwrap();
        check("locking queue").await;
        within(item.requeue()).await.unwrap();
        check("requeued").await;
        within(within(queue.take()).await.unwrap().consume())
            .await
            .unwrap();
    }

    let queue = with!(WorkQueue::new(client, &at("work"))).capacity(9);
    let queue = queue.settled_elsewhere();
    for item in [
        WorkItem::new("a").id("a").priority(7),
        WorkItem::new("b").delay(Duration::from_millis(1)),
        WorkItem::new("c"),
    ] {
        within(queue.offer(item)).await.unwrap();
    }
    let claim = within(queue.take()).await.unwrap();
    check("claim").await;
    within(claim.nack_after(Duration::ZERO, "again"))
        .await
        .unwrap();
    check("returned").await;
    let claim = within(queue.take()).await.unwrap();
    within(claim.dead_letter("bad")).await.unwrap();
    check("dead letter").await;
    let dead = within(queue.dead_letters()).await.unwrap();
    within(queue.replay(&dead[0].name)).await.unwrap();
    check("replayed").await;
    within(queue.purge()).await.unwrap();
    check("purged").await;

    let counter = with!(Counter::new(client, &at("counter")));
    within(counter.add(7)).await.unwrap();
    let value = with!(SharedValue::new(client, &at("value")));
    within(value.set(b"value")).await.unwrap();
    check("values").await;

    for layout in [GroupLayout::Native, GroupLayout::Party] {
        let group = with!(Membership::new(client, &at(&format!("group-{layout:?}"))));
        let member = group.layout(layout).join("one", b"").unwrap();
        within(member.registered()).await.unwrap();
        check("member").await;
        within(member.leave()).await;
    }
    let registrar = acl.map_or_else(|| client.clone(), |acl| client.with_acl(acl));
    let node = PersistentNode::start(&registrar, &at("node"), b"data").unwrap();
    within(node.registered()).await.unwrap();
    check("node").await;
    within(node.close()).await;

    let parts = with!(Partitioner::new(client, &at("parts"), ["item"]));
    let mut partition = parts.join("one").unwrap();
    let event = within(partition.next()).await.unwrap();
    check("partition").await;
    assert!(
        matches!(event, PartitionEvent::Assigned { .. }),
        "{event:?}"
    );
    drop(event);
    within(partition.leave()).await;
}

#[tokio::test]
async fn every_node_of_every_recipe_has_the_acl_that_was_asked_for() {
    let stage = Stage::new("acl").await;
    let ann = user(&stage, b"ann:secret").await;
    let session = within(ann.session()).await.unwrap();
    let check = async |what: &str| {
        let seen = walk(&session, &stage.path, "digest", "ann:").await;
        assert!(seen.len() > 1, "{what}: {seen:?}");
    };
    let own = [Acl::creator_all()];
    run_everything(&ann, &stage.path, Some(&own), check).await;
}

#[tokio::test]
async fn without_an_acl_every_node_is_open_to_everybody() {
    let stage = Stage::new("open").await;
    let ann = user(&stage, b"ann:secret").await;
    let session = within(ann.session()).await.unwrap();
    let check = async |what: &str| {
        let seen = walk(&session, &stage.path, "world", "anyone").await;
        assert!(seen.len() > 1, "{what}: {seen:?}");
    };
    run_everything(&ann, &stage.path, None, check).await;
}

#[tokio::test]
async fn another_user_can_neither_read_nor_break_what_has_an_acl() {
    let stage = Stage::new("foreign").await;
    let ann = user(&stage, b"ann:secret").await;
    let path = format!("{}/lock", stage.path);
    let mutex = Mutex::new(&ann, &path).unwrap().acl(&[Acl::creator_all()]);
    let guard = within(mutex.acquire()).await.unwrap();

    let bob = user(&stage, b"bob:other").await;
    let session = within(bob.session()).await.unwrap();
    let node = guard.node();
    let refusals = [
        within(session.get_data(node)).await.unwrap_err(),
        within(session.children(&path)).await.unwrap_err(),
        within(session.set_data(node, b"mine", None))
            .await
            .unwrap_err(),
        within(session.delete(node, None)).await.unwrap_err(),
        within(session.create(&format!("{path}/x"), b"", CreateMode::Ephemeral))
            .await
            .unwrap_err(),
    ];
    for refused in &refusals {
        assert!(refused.is_no_auth(), "{refused}");
    }
    let missing = format!("missing: permission delete on {path}");
    assert!(refusals[3].to_string().contains(&missing), "{refusals:?}");

    let refused = within(Mutex::new(&bob, &path).unwrap().acquire()).await;
    let error = refused.unwrap_err();
    assert!(matches!(&error, LockError::Client { source, .. } if source.is_no_auth()));
    let missing = format!("missing: permission create on {path}");
    assert!(error.to_string().contains(&missing), "{error}");

    assert_eq!(guard.check(), Ok(()));
    within(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_handle_with_an_acl_shares_the_session_of_the_one_without() {
    let stage = Stage::new("shared").await;
    let ann = user(&stage, b"ann:secret").await;
    let own = ann.with_acl(&[Acl::creator_all()]);
    let (plain, restricted) = (
        within(ann.session()).await.unwrap(),
        within(own.session()).await.unwrap(),
    );
    assert!(plain.is_same(&restricted));
    assert_eq!(plain.acl(), [Acl::open_unsafe()]);
    assert_eq!(restricted.acl(), [Acl::creator_all()]);
    assert_eq!(restricted.fail_fast().acl(), [Acl::creator_all()]);
    assert_eq!(own.newest().unwrap().acl(), [Acl::creator_all()]);
}

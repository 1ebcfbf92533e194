//! The snippets of docs/user/recipes.md, and one of test-your-application.md: each stands here as
//! it stands there, so that it compiles.
#![allow(dead_code)]

use std::collections::HashMap;

use baton::inspect::Inspector;
use baton::lock::{OwnerId, SimpleMutex};
use baton::partition::PartitionEvent;
use baton::queue::LockingQueue;
use baton::tree::Acl;
use baton::tree::CreateMode;
use baton::work_queue::WorkItem;
use baton::{
    Barrier, Client, Config, CountdownLatch, Counter, DistributedQueue, DoubleBarrier,
    LeaderElection, Membership, MultiLock, Mutex, Partitioner, ReentrantMutex, RwLock, Semaphore,
    SharedValue, TreeCache, WorkQueue,
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

async fn work(_: impl Sized) -> Result<(), String> {
    Ok(())
}

async fn once(client: &Client) -> Outcome {
    let guard = Mutex::new(client, "/migrations/lock")?.acquire().await?;
    if guard.session().exists("/migrations/42").await?.is_none() {
        guard.run(work(guard.token())).await??;
        let done = guard
            .txn()
            .create("/migrations/42", b"", CreateMode::Persistent);
        done.commit().await?;
    }
    guard.release().await?;
    Ok(())
}

async fn leading_forever(election: LeaderElection) {
    use std::ops::ControlFlow;

    use baton::election::{Term, TermEnd};

    async fn serve(_: Term) -> Result<(), String> {
        Ok(())
    }

    let fatal = election.lead_forever(serve, |end| {
        eprintln!("{end}");
        match end {
            TermEnd::Failed { error, .. } if error.is_empty() => ControlFlow::Break(error),
            _ => ControlFlow::Continue(()),
        }
    });
    println!("no more campaigns: {}", fatal.await);
}

async fn restricted() -> Outcome {
    let client =
        Client::connect(Config::new("127.0.0.1:2181")?.auth("digest", b"ann:secret")).await?;
    let mutex = Mutex::new(&client, "/locks/report")?.acl(&[Acl::creator_all()]);
    mutex.acquire().await?.release().await?;
    Ok(())
}

#[cfg(feature = "embedded")]
async fn testing() -> Outcome {
    use std::time::Duration;

    use baton::LostReason;
    use baton::embedded::Embedded;

    let server = Embedded::builder()
        .tick(Duration::from_millis(50))
        .start()
        .await?;
    let guard = Mutex::new(server.client(), "/report")?.acquire().await?;
    let session = guard.session().id();
    let work = tokio::spawn(async move { guard.run(work("report")).await });
    server.expire(session).await?;
    assert_eq!(work.await?.err(), Some(LostReason::SessionLost)); // its stop point
    Ok(())
}

async fn mutex(client: &Client) -> Outcome {
    let mutex = Mutex::new(client, "/locks/report")?;
    let guard = mutex.acquire().await?;
    guard.run(work(guard.token())).await??;
    guard.release().await?;
    Ok(())
}

async fn reentrant(client: &Client) -> Outcome {
    let lock = ReentrantMutex::new(client, "/account/7")?;
    let request = OwnerId::unique();
    let outer = lock.acquire(&request).await?;
    let inner = lock.acquire(&request).await?; // at once: the same owner
    drop((outer, inner));
    Ok(())
}

async fn simple(client: &Client) -> Outcome {
    let guard = SimpleMutex::new(client, "/demo")?.acquire().await?;
    guard.release().await?;
    Ok(())
}

async fn rw_lock(client: &Client) -> Outcome {
    let lock = RwLock::new(client, "/config")?;
    let reader = lock.read().await?;
    reader.release().await?;
    let writer = lock.write().await?;
    let reader = writer.downgrade().await?;
    drop(reader);
    Ok(())
}

async fn multi_lock(client: &Client) -> Outcome {
    let both = MultiLock::new(client, ["/accounts/ann", "/accounts/bob"])?;
    let guard = both.acquire().await?;
    guard.run(work("transfer")).await??;
    guard.release().await?;
    Ok(())
}

async fn semaphore(client: &Client) -> Outcome {
    let calls = Semaphore::new(client, "/limits/api", 5)?; // five permits, over all machines
    let guard = calls.acquire(1).await?; // one of them
    guard.run(work("call")).await??;
    guard.release().await?;
    Ok(())
}

async fn partitioner(client: &Client) -> Outcome {
    let shards = (0..64).map(|number| format!("shard-{number}"));
    let mut partition = Partitioner::new(client, "/index", shards)?.join("worker-1")?;
    let mut mine = HashMap::new();
    loop {
        match partition.next().await? {
            PartitionEvent::Assigned { item, guard } => drop(mine.insert(item, guard)),
            PartitionEvent::Revoked { item } => drop(mine.remove(&item)), // stop its work first
            _ => {}
        }
    }
}

async fn election(client: &Client) -> Outcome {
    let election = LeaderElection::new(client, "/leader")?;
    election.lead(async |term| work(term.token).await).await??; // while it leads
    Ok(())
}

async fn barrier(client: &Client) -> Outcome {
    let gate = Barrier::new(client, "/start")?;
    gate.close().await?;
    gate.open().await?; // by one; the others: gate.wait().await?
    Ok(())
}

async fn double_barrier(client: &Client) -> Outcome {
    let inside = DoubleBarrier::new(client, "/step", 3)?.enter().await?; // when three have come
    inside.leave().await?; // when all three are done
    Ok(())
}

async fn latch(client: &Client) -> Outcome {
    let loaded = CountdownLatch::new(client, "/loaded", 3)?;
    loaded.count_down("worker-1").await?;
    loaded.wait().await?;
    Ok(())
}

async fn distributed_queue(client: &Client) -> Outcome {
    let queue = DistributedQueue::new(client, "/mail")?;
    queue.offer(b"hello").await?;
    let item = queue.take().await?;
    drop(item);
    Ok(())
}

async fn locking_queue(client: &Client) -> Outcome {
    let queue = LockingQueue::new(client, "/orders")?;
    let item = queue.take().await?;
    item.run(work(item.data())).await??;
    item.consume().await?;
    Ok(())
}

async fn work_queue(client: &Client) -> Outcome {
    let queue = WorkQueue::new(client, "/jobs")?.max_attempts(3);
    queue
        .offer(WorkItem::new("build 17").id("build-17"))
        .await?;
    let claim = queue.take().await?;
    match claim.run(work(claim.payload())).await? {
        Ok(()) => claim.ack().await?,
        Err(why) => claim.nack(&why).await?,
    }
    Ok(())
}

async fn work_runner(client: &Client, stop: impl Future<Output = ()>) -> Outcome {
    let queue = WorkQueue::new(client, "/jobs")?;
    let summary = queue
        .run(4, |claim| async move { work(claim.payload()).await }, stop)
        .await?;
    let _done = summary.acked;
    Ok(())
}

async fn membership(client: &Client) -> Outcome {
    let group = Membership::new(client, "/services/web")?;
    let here = group.join("10.0.0.7", b"port=80")?;
    let mut view = group.updates()?;
    while view.next().await?.members.len() < 3 {} // until three are there
    here.leave().await;
    Ok(())
}

async fn values(client: &Client) -> Outcome {
    let visits = Counter::new(client, "/visits")?;
    println!("{}", visits.add(1).await?);
    let switch = SharedValue::new(client, "/maintenance")?;
    switch.set(b"on").await?;
    let mut values = switch.values()?;
    while let Some(value) = values.next().await? {
        println!("now {:?}", value.data); // at first what it is, then each change
    }
    Ok(())
}

async fn tree_cache(client: &Client) -> Outcome {
    let cache = TreeCache::builder(client, "/config")?.start()?;
    cache.ready().await?;
    println!("{:?}", cache.get("/config/db").map(|node| node.data)); // asks no server
    Ok(())
}

async fn inspection(client: &Client) -> Outcome {
    let inspector = Inspector::new(client);
    let lock = inspector.lock("/deploy").await?;
    for holder in &lock.holders {
        println!(
            "{holder} holds {} with token {:?}",
            holder.info.path, holder.token
        );
    }
    for (position, waiter) in lock.waiters.iter().enumerate() {
        println!("{}. {waiter}, {}", position + 1, waiter.scheme);
    }
    for holder in &lock.holders {
        inspector.revoke(holder).await?; // asks it to release; it holds until it does
    }
    Ok(())
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|char| !char.is_whitespace()).collect()
}

#[test]
fn every_snippet_of_the_page_compiles_here() {
    let page = include_str!("../../../../docs/user/recipes.md");
    let compiled = squeezed(include_str!("recipes_page.rs"));
    let blocks: Vec<&str> = page
        .split("```rust\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() > 15, "one for each recipe");
    for block in blocks {
        assert!(
            compiled.contains(&squeezed(block)),
            "only on the page:\n{block}"
        );
    }
}

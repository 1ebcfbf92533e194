//! Recipes whose layout has lost a node by hand: it makes the node again, or names it in a typed
//! error. It never hangs, and never seems healthy while it does nothing.

use std::time::Duration;

use baton::queue::LockingQueue;
use baton::tree::CreateMode;
use baton::work_queue::{WorkError, WorkItem};
use baton::{
    Client, Counter, DoubleBarrier, LeaderElection, Membership, Mutex, RwLock, Semaphore, WorkQueue,
};
use baton_client::Session;
use baton_testkit::Match;
use baton_testkit::Proxy;

use crate::common::work::{drain, queue};
use crate::common::{LONG, Stage, TRIPS, connect, round_trips, session, within};

/// Deletes a node with all below it, as `rm -r` does.
async fn remove(session: &Session, path: &str) {
    for path in subtree(session, path).await.iter().rev() {
        match session.delete(path, None).await {
            Ok(()) => {}
            Err(error) if error.is_no_node() => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

/// The path, and the paths of all that is below it, parents first.
async fn subtree(session: &Session, path: &str) -> Vec<String> {
    let mut found = vec![path.to_owned()];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        if let Ok(children) = session.children(&path).await {
            found.extend(children.names.iter().map(|name| format!("{path}/{name}")));
        }
        at += 1;
    }
    found
}

/// The paths of all that is below `path`.
async fn below(session: &Session, path: &str) -> Vec<String> {
    subtree(session, path).await.split_off(1)
}

/// The parts of a work queue's layout: `docs/user/recipes.md`.
const PARTS: [&str; 7] = [
    "items", "dead", "ids", "gate", "waiters", "verdicts", "clock",
];

/// Uses every part of the layout.
async fn use_all(queue: &WorkQueue, id: &str) {
    within(queue.offer(WorkItem::new("named").id(id)))
        .await
        .unwrap();
    within(queue.offer("plain")).await.unwrap();
    let later = WorkItem::new("later").delay(Duration::from_millis(1));
    within(queue.offer(later)).await.unwrap();
    let again = queue.offer(WorkItem::new("again").id(id)).await;
    assert!(
        matches!(again, Err(WorkError::Duplicate { .. })),
        "{again:?}"
    );
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let claim = within(queue.take()).await.unwrap();
        seen.push(String::from_utf8(claim.payload().to_vec()).unwrap());
        within(claim.ack()).await.unwrap();
    }
    seen.sort();
    assert_eq!(seen, ["later", "named", "plain"]);
    within(queue.offer("bad")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    within(claim.dead_letter("no good")).await.unwrap();
    let dead = within(queue.dead_letters()).await.unwrap();
    assert_eq!(dead.len(), 1);
    within(queue.replay(&dead[0].name)).await.unwrap();
    assert_eq!(drain(queue).await, ["bad"]);
    let depth = within(queue.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.dead), (0, 0));
}

#[tokio::test]
async fn a_work_queue_goes_on_whichever_part_of_it_was_deleted() {
    let stage = Stage::new("parts").await;
    let (old, new) = (stage.client().await, stage.client().await);
    let admin = session(&stage.client().await).await;
    for part in PARTS {
        for user in ["who used it before", "who comes later"] {
            let path = format!("{}/{part}-{}", stage.path, user.len());
            let first = queue(&old, &path).capacity(4).settled_elsewhere();
            use_all(&first, "one").await;
            remove(&admin, &format!("{path}/{part}")).await;
            let second = if user == "who used it before" {
                first
            } else {
                queue(&new, &path).settled_elsewhere()
            };
            tokio::time::timeout(crate::common::PATIENCE, use_all(&second, "two"))
                .await
                .unwrap_or_else(|_| panic!("{part} deleted: {user} hangs"));
            let full = within(second.offer_all(["1", "2", "3", "4", "5"].map(WorkItem::new))).await;
            assert!(matches!(full, Err(WorkError::Full { .. })), "{full:?}");
        }
    }
}

#[tokio::test]
async fn each_call_on_a_damaged_work_queue_works_or_names_the_missing_node() {
    let stage = Stage::new("calls").await;
    let client = stage.client().await;
    let admin = session(&stage.client().await).await;
    for part in ["items", "dead", "gate"] {
        for call in ["poll", "take", "replay", "capacity", "dead-letter", "nack"] {
            let path = format!("{}/{part}-{call}", stage.path);
            let made = queue(&client, &path).capacity(10);
            within(made.offer("a")).await.unwrap();
            let queue = queue(&client, &path);
            within(within(queue.take()).await.unwrap().dead_letter("bad"))
                .await
                .unwrap();
            within(queue.offer("b")).await.unwrap();
            let dead = within(queue.oldest_dead_letters(1))
                .await
                .unwrap()
                .remove(0)
                .name;
            let claim = match call {
                "dead-letter" | "nack" => Some(within(queue.take()).await.unwrap()),
                _ => None,
            };
            let missing = format!("{path}/{part}");
            remove(&admin, &missing).await;
            let seen = within(queue.depth()).await;
            assert!(
                matches!(&seen, Err(WorkError::Damaged { node, .. }) if *node == missing),
                "{part}: {seen:?}"
            );
            match call {
                "poll" => {
                    let claim = within(queue.poll()).await.unwrap();
                    assert_eq!(claim.is_some(), part != "items");
                }
                "take" => {
                    let (taken, put) = tokio::join!(within(queue.take()), async {
                        match part {
                            "items" => within(queue.offer("c")).await.map(drop),
                            _ => Ok(()),
                        }
                    });
                    put.unwrap();
                    let expected = if part == "items" { "c" } else { "b" };
                    assert_eq!(taken.unwrap().payload(), expected);
                }
                "replay" if part == "dead" => {
                    let gone = within(queue.replay(&dead)).await;
                    assert!(
                        matches!(gone, Err(WorkError::NoDeadLetter { .. })),
                        "{gone:?}"
                    );
                }
                "replay" => within(queue.replay(&dead)).await.unwrap(),
                "capacity" => within(queue.set_capacity(Some(11))).await.unwrap(),
                "dead-letter" | "nack" => {
                    let claim = claim.unwrap();
                    let settled = match call {
                        "dead-letter" => within(claim.dead_letter("bad")).await,
                        _ => within(claim.nack_after(Duration::from_secs(1), "x")).await,
                    };
                    // Items that were deleted are gone, and so is the claim on one.
                    let lost = matches!(settled, Err(WorkError::ClaimLost { .. }));
                    assert_eq!(lost, part == "items", "{settled:?}");
                }
                other => panic!("{other}"),
            }
            within(queue.offer("d")).await.unwrap();
            within(queue.repair()).await.unwrap();
            assert!(within(queue.depth()).await.unwrap().is_some());
        }
    }
}

#[tokio::test]
async fn a_queue_without_a_limit_needs_no_count_of_its_items() {
    let stage = Stage::new("gate").await;
    let queue = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    within(queue.offer("x")).await.unwrap();
    remove(&admin, &format!("{}/gate", stage.path)).await;
    let depth = within(queue.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.capacity), (1, None));
    within(queue.offer("y")).await.unwrap();
    assert_eq!(drain(&queue).await, ["x", "y"]);
}

#[tokio::test]
async fn a_list_of_what_is_in_a_queue_is_empty_where_there_is_none_and_an_error_where_its_folder_is_gone()
 {
    let stage = Stage::new("lists").await;
    let queue = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    assert!(within(queue.dead_letters()).await.unwrap().is_empty());
    assert!(within(queue.claims()).await.unwrap().is_empty());
    within(queue.purge_dead()).await.unwrap();
    assert!(within(admin.exists(&stage.path)).await.unwrap().is_none());
    within(queue.offer("x")).await.unwrap();
    let damaged = |outcome: Result<(), WorkError>, part: &str| {
        let missing = format!("{}/{part}", stage.path);
        assert!(
            matches!(&outcome, Err(WorkError::Damaged { node, .. }) if *node == missing),
            "{part}: {outcome:?}"
        );
    };
    remove(&admin, &format!("{}/dead", stage.path)).await;
    damaged(within(queue.dead_letters()).await.map(drop), "dead");
    damaged(within(queue.purge_dead()).await.map(drop), "dead");
    within(queue.repair()).await.unwrap();
    remove(&admin, &format!("{}/items", stage.path)).await;
    damaged(within(queue.claims()).await.map(drop), "items");
    damaged(within(queue.purge()).await.map(drop), "items");
}

#[tokio::test]
async fn what_consumers_leave_at_a_queue_that_was_deleted_is_no_other_program_s() {
    let stage = Stage::new("helpers").await;
    let queue = queue(&stage.client().await, &stage.path);
    let admin = stage.occupied().await;
    for helper in ["waiters", "verdicts", "clock"] {
        let path = format!("{}/{helper}", stage.path);
        within(admin.create(&path, b"", CreateMode::Persistent))
            .await
            .unwrap();
    }
    let other = format!("{}/config", stage.path);
    within(admin.create(&other, b"", CreateMode::Persistent))
        .await
        .unwrap();
    let refused = within(queue.offer("x")).await;
    assert!(
        matches!(refused, Err(WorkError::NotAWorkQueue { .. })),
        "{refused:?}"
    );
    within(admin.delete(&other, None)).await.unwrap();
    within(queue.offer("x")).await.unwrap();
    assert_eq!(drain(&queue).await, ["x"]);
}

#[tokio::test]
async fn an_item_without_attempts_left_is_not_tried_for_ever_where_the_dead_letters_were_deleted() {
    let stage = Stage::new("dead-letter").await;
    let queue = queue(&stage.client().await, &stage.path).max_attempts(1);
    let admin = session(&stage.client().await).await;
    within(queue.offer("poison")).await.unwrap();
    drop(within(queue.take()).await.unwrap());
    remove(&admin, &format!("{}/dead", stage.path)).await;
    within(async {
        while queue
            .oldest_dead_letters(1)
            .await
            .is_ok_and(|dead| dead.is_empty())
            || queue.oldest_dead_letters(1).await.is_err()
        {
            assert!(queue.poll().await.unwrap().is_none());
        }
    })
    .await;
}

#[tokio::test]
async fn ids_that_are_not_known_any_more_are_refused_and_not_taken_for_free() {
    let stage = Stage::new("ids").await;
    let queue = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    within(queue.offer(WorkItem::new("x").id("x")))
        .await
        .unwrap();
    let ids = format!("{}/ids", stage.path);
    remove(&admin, &ids).await;
    // Nobody can know whether the second is the first once more.
    let again = within(queue.offer(WorkItem::new("x").id("x"))).await;
    assert!(
        matches!(&again, Err(WorkError::Damaged { node, .. }) if *node == ids),
        "{again:?}"
    );
    within(queue.offer("without an id")).await.unwrap();
    assert_eq!(drain(&queue).await.len(), 2);
    // Nothing is left that has an id: none is in use.
    within(queue.offer(WorkItem::new("x").id("x")))
        .await
        .unwrap();
    remove(&admin, &ids).await;
    assert_eq!(within(queue.repair()).await.unwrap(), [ids]);
    within(queue.offer(WorkItem::new("x").id("x")))
        .await
        .unwrap();
}

#[tokio::test]
async fn who_waits_at_a_queue_that_is_deleted_asks_for_nothing_and_gets_what_is_put_later() {
    let stage = Stage::new("waits").await;
    let admin = session(&stage.client().await).await;
    for part in ["", "/items"] {
        let path = format!("{}/q{}", stage.path, part.len());
        let proxy = Proxy::start_recording(stage.addr).await.unwrap();
        let client = connect(proxy.addr(), LONG).await;
        let consumer = queue(&client, &path);
        let producer = queue(&stage.client().await, &path);
        let taking = tokio::spawn(async move { consumer.take().await.map(|_| ()) });
        within(async {
            while below(&admin, &format!("{path}/waiters")).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        // Anyone who waits may make a node again under the hand that deletes: then once more.
        within(async {
            let gone = format!("{path}{part}");
            while admin.exists(&gone).await.unwrap().is_some() {
                for path in below(&admin, &gone).await.iter().rev().chain([&gone]) {
                    let _ = admin.delete(path, None).await;
                }
            }
        })
        .await;
        // One that does not rest asks at least once for each of these.
        for _ in 0..3 {
            round_trips(&client).await;
        }
        let asked = proxy.count(&Match::any_request()) - 3 * TRIPS;
        assert!(asked < 200, "{part}: {asked} requests");
        within(producer.offer("x")).await.unwrap();
        within(taking).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_claim_read_before_the_items_were_deleted_does_not_overwrite_what_was_put_after() {
    let stage = Stage::new("aba").await;
    let (proxied, proxy) = stage.proxied(LONG).await;
    let consumer = queue(&proxied, &stage.path);
    let producer = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    within(producer.offer("deleted")).await.unwrap();
    let claiming = proxy
        .on(Match::request(baton_client::OpCode::Multi))
        .then(baton_testkit::Action::Hold);
    let taking = tokio::spawn(async move {
        let claim = consumer.take().await.unwrap();
        claim.payload().clone()
    });
    within(claiming.fired()).await;
    remove(&admin, &format!("{}/items", stage.path)).await;
    // The numbers begin again: the same name, the same version, another item.
    within(producer.offer("put after")).await.unwrap();
    claiming.release();
    assert_eq!(within(taking).await.unwrap(), "put after");
}

/// One use of a recipe at a path, from nothing to nothing.
async fn use_once(recipe: &str, client: &Client, path: &str) {
    match recipe {
        "mutex" => {
            let guard = Mutex::new(client, path).unwrap().acquire().await;
            guard.unwrap().release().await.unwrap();
        }
        "rw_lock" => {
            let lock = RwLock::new(client, path).unwrap();
            lock.read().await.unwrap().release().await.unwrap();
            lock.write().await.unwrap().release().await.unwrap();
        }
        "semaphore" => {
            let semaphore = Semaphore::new(client, path, 2).unwrap();
            let (one, two) = (semaphore.acquire(1).await, semaphore.acquire(1).await);
            let waiting = tokio::spawn(async move { semaphore.acquire(2).await });
            one.unwrap().release().await.unwrap();
            two.unwrap().release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
        "locking_queue" => {
            let queue = LockingQueue::new(client, path).unwrap();
            queue.offer(b"x").await.unwrap();
            queue.take().await.unwrap().consume().await.unwrap();
        }
        "barrier" => {
            let barrier = DoubleBarrier::new(client, path, 1).unwrap();
            let inside = barrier.enter().await.unwrap();
            inside.leave().await.unwrap();
        }
        "curator_barrier" => {
            let barrier = DoubleBarrier::new(client, path, 1)
                .unwrap()
                .layout(baton::barrier::BarrierLayout::Curator);
            let inside = barrier.enter().await.unwrap();
            inside.leave().await.unwrap();
        }
        "counter" => {
            let counter = Counter::new(client, path).unwrap();
            counter.add(1).await.unwrap();
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn each_recipe_works_after_any_node_that_its_use_has_left_was_deleted() {
    let stage = Stage::new("left").await;
    let (client, other) = (stage.client().await, stage.client().await);
    let admin = session(&stage.client().await).await;
    for recipe in [
        "mutex",
        "rw_lock",
        "semaphore",
        "locking_queue",
        "barrier",
        "curator_barrier",
        "counter",
    ] {
        let path = format!("{}/{recipe}", stage.path);
        within(use_once(recipe, &client, &path)).await;
        let mut left = below(&admin, &path).await;
        left.push(path.clone());
        for node in left {
            remove(&admin, &node).await;
            for client in [&client, &other] {
                tokio::time::timeout(crate::common::PATIENCE, use_once(recipe, client, &path))
                    .await
                    .unwrap_or_else(|_| panic!("{recipe}: hangs after {node} was deleted"));
            }
        }
    }
}

#[tokio::test]
async fn who_waits_below_a_node_that_is_deleted_goes_on() {
    let stage = Stage::new("waiting").await;
    let (one, two) = (stage.client().await, stage.client().await);
    let admin = session(&stage.client().await).await;

    for part in ["/leases", "/locks", ""] {
        let path = format!("{}/sem{}", stage.path, part.len());
        let held = Semaphore::new(&one, &path, 1).unwrap();
        let guard = within(held.acquire(1)).await.unwrap();
        let waits = Semaphore::new(&two, &path, 1).unwrap();
        let waiting = tokio::spawn(async move { waits.acquire(1).await });
        until_below(&admin, &format!("{path}/locks"), 1).await;
        delete_once_possible(&admin, &format!("{path}{part}")).await;
        if part != "/locks" {
            within(guard.lost()).await;
        }
        let _ = within(guard.release()).await;
        let guard = within(waiting).await.unwrap().unwrap();
        // Its own node may have been among those that were deleted.
        let _ = within(guard.release()).await;
    }

    let path = format!("{}/round", stage.path);
    let enter = |client: &Client| {
        let barrier = DoubleBarrier::new(client, &path, 2).unwrap();
        tokio::spawn(async move { barrier.enter().await.map(drop) })
    };
    let first = enter(&one);
    until_below(&admin, &path, 2).await;
    delete_once_possible(&admin, &path).await;
    let second = enter(&two);
    within(first).await.unwrap().unwrap();
    within(second).await.unwrap().unwrap();

    for part in ["/entries", "/taken", ""] {
        let path = format!("{}/kazoo{}", stage.path, part.len());
        let queue = LockingQueue::new(&one, &path).unwrap();
        let offers = LockingQueue::new(&two, &path).unwrap();
        let waiting = tokio::spawn(async move { queue.take().await.map(drop) });
        until_below(&admin, &path, 2).await;
        delete_once_possible(&admin, &format!("{path}{part}")).await;
        within(offers.offer(b"x")).await.unwrap();
        within(waiting).await.unwrap().unwrap();
    }

    let path = format!("{}/group", stage.path);
    let group = Membership::new(&one, &path).unwrap();
    let joined = group.join("one", b"").unwrap();
    within(joined.registered()).await.unwrap();
    delete_once_possible(&admin, &path).await;
    until_below(&admin, &path, 1).await;
    assert_eq!(within(group.members()).await.unwrap().len(), 1);
    within(joined.leave()).await;

    let path = format!("{}/election", stage.path);
    let leads = LeaderElection::new(&one, &path).unwrap();
    let leadership = within(leads.campaign()).await.unwrap();
    let waits = LeaderElection::new(&two, &path).unwrap();
    let waiting = tokio::spawn(async move { waits.campaign().await.map(drop) });
    until_below(&admin, &path, 2).await;
    delete_once_possible(&admin, &path).await;
    within(leadership.lost()).await;
    within(waiting).await.unwrap().unwrap();
}

/// Waits until there are `count` nodes below `path`.
async fn until_below(session: &Session, path: &str, count: usize) {
    within(async {
        while below(session, path).await.len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Deletes a node that others may make again under the hand that deletes.
async fn delete_once_possible(session: &Session, path: &str) {
    within(async {
        loop {
            for node in below(session, path).await.iter().rev() {
                let _ = session.delete(node, None).await;
            }
            match session.delete(path, None).await {
                Ok(()) => return,
                Err(error) if error.is_no_node() => return,
                Err(_) => {}
            }
        }
    })
    .await;
}

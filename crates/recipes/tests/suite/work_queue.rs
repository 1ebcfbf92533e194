//! The work queue: what it does when nothing breaks, and what it refuses.

use std::time::Duration;

use baton::WorkQueue;
use baton::tree::CreateMode;
use baton::work_queue::{WorkError, WorkItem};
use baton_client::{OpCode, Session};
use baton_testkit::{Match, Proxy};

use crate::common::work::{drain, queue};
use crate::common::{LONG, Stage, connect, session, within};

#[tokio::test]
async fn items_come_out_by_priority_and_then_in_order_and_leave_nothing_behind() {
    let stage = Stage::new("order").await;
    let client = stage.client().await;
    let queue = queue(&client, &format!("{}/deep/jobs", stage.path));
    assert_eq!(within(queue.depth()).await.unwrap(), None);
    for item in ["a", "b"] {
        within(queue.offer(item)).await.unwrap();
    }
    within(queue.offer_all([
        WorkItem::new("urgent").priority(0),
        WorkItem::new("c"),
        WorkItem::new("idle").priority(999),
        WorkItem::new("d"),
    ]))
    .await
    .unwrap();
    let depth = within(queue.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.delayed, depth.dead), (6, 0, 0));
    assert!(depth.oldest.unwrap() < Duration::from_secs(60));
    assert_eq!(drain(&queue).await, ["urgent", "a", "b", "c", "d", "idle"]);
    let depth = within(queue.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.oldest), (0, None));
}

#[tokio::test]
async fn an_item_that_is_done_is_deleted_with_its_claim_and_not_once_more() {
    let stage = Stage::new("once").await;
    let proxy = Proxy::start_recording(stage.addr).await.unwrap();
    let client = connect(proxy.addr(), LONG).await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    within(claim.ack()).await.unwrap();
    // Behind all that the end of the claim has sent.
    within(session(&client).await.sync("/")).await.unwrap();
    assert_eq!(proxy.count(&Match::request(OpCode::Delete)), 0);
}

#[tokio::test]
async fn a_claim_says_what_it_is_and_is_seen_from_outside() {
    let stage = Stage::new("claim").await;
    let (one, other) = (stage.client().await, stage.client().await);
    let queue_one = queue(&one, &stage.path).name("worker");
    within(queue_one.offer(WorkItem::new("x").id("job-1")))
        .await
        .unwrap();
    let claim = within(queue_one.take()).await.unwrap();
    assert_eq!(
        (claim.id(), claim.attempt(), claim.priority()),
        ("job-1", 1, 500)
    );
    assert_eq!(claim.check(), Ok(()));
    assert!(claim.remaining() > Duration::ZERO && claim.token() > 0);
    let queue_other = queue(&other, &stage.path);
    assert!(within(queue_other.poll()).await.unwrap().is_none());
    let seen = within(queue_other.claims()).await.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].id.as_str(), seen[0].token),
        ("job-1", claim.token())
    );
    assert_eq!(seen[0].session, claim.session().id());
    assert_eq!(
        seen[0].record.as_ref().unwrap().name.as_deref(),
        Some("worker")
    );
    // Dropped, it goes back, and its attempt has counted.
    let first_token = claim.token();
    drop(claim);
    let again = within(queue_other.take()).await.unwrap();
    assert_eq!((again.id(), again.attempt()), ("job-1", 2));
    assert!(again.token() > first_token);
    // Given back, it counts for nothing.
    within(again.release()).await.unwrap();
    let third = within(queue_other.take()).await.unwrap();
    assert_eq!(third.attempt(), 2);
    within(third.ack()).await.unwrap();
}

#[tokio::test]
async fn a_change_under_a_claim_is_applied_only_while_it_stands() {
    let stage = Stage::new("txn").await;
    let client = stage.client().await;
    let session = session(&client).await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    let result = format!("{}-result", stage.path);
    let txn = claim.txn().create(&result, b"1", CreateMode::Persistent);
    within(txn.commit()).await.unwrap();
    assert_eq!(within(claim.run(async { 7 })).await, Ok(7));
    within(session.delete(claim.node(), None)).await.unwrap();
    within(claim.lost()).await;
    let txn = claim.txn().set(&result, b"2", None);
    assert!(within(txn.commit()).await.is_err());
    assert_eq!(
        &within(session.get_data(&result)).await.unwrap().data[..],
        b"1"
    );
}

#[tokio::test]
async fn an_id_is_taken_until_its_item_is_acknowledged() {
    let stage = Stage::new("ids").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    let item = || WorkItem::new("x").id("order/17");
    assert_eq!(within(queue.offer(item())).await.unwrap(), "order/17");
    let again = within(queue.offer_all([WorkItem::new("y"), item()])).await;
    assert!(matches!(again, Err(WorkError::Duplicate { id, .. }) if id == "order/17"));
    let claim = within(queue.take()).await.unwrap();
    assert!(within(queue.offer(item())).await.is_err());
    within(claim.nack_after(Duration::from_millis(1), "not yet"))
        .await
        .unwrap();
    assert!(within(queue.offer(item())).await.is_err());
    let claim = within(queue.take()).await.unwrap();
    assert_eq!((claim.id(), claim.attempt()), ("order/17", 2));
    within(claim.ack()).await.unwrap();
    within(queue.offer(item())).await.unwrap();
    assert_eq!(drain(&queue).await, ["x"]);
}

#[tokio::test]
async fn a_bounded_queue_is_never_taken_over_its_capacity() {
    let stage = Stage::new("full").await;
    let mut producers = Vec::new();
    for _ in 0..4 {
        let queue = queue(&stage.client().await, &stage.path).capacity(25);
        producers.push(tokio::spawn(async move {
            let mut put = 0;
            for _ in 0..20 {
                match queue.offer("x").await {
                    Ok(_) => put += 1,
                    Err(WorkError::Full { capacity: 25, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            put
        }));
    }
    let mut put = 0;
    for producer in producers {
        put += within(producer).await.unwrap();
    }
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    assert_eq!(within(queue.depth()).await.unwrap().unwrap().items, 25);
    assert_eq!(put, 25);
    let claim = within(queue.take()).await.unwrap();
    assert!(matches!(
        within(queue.offer("y")).await,
        Err(WorkError::Full { .. })
    ));
    within(claim.ack()).await.unwrap();
    within(queue.offer("y")).await.unwrap();
    let two = [WorkItem::new("1"), WorkItem::new("2")];
    assert!(matches!(
        within(queue.offer_all(two)).await,
        Err(WorkError::Full { .. })
    ));
    let other = WorkQueue::new(&client, &stage.path).unwrap().capacity(26);
    let differs = within(other.offer("z")).await.unwrap_err();
    assert!(matches!(
        differs,
        WorkError::CapacityDiffers {
            agreed: Some(25),
            asked: Some(26),
            ..
        }
    ));
    let text = differs.to_string();
    assert!(
        text.contains("a capacity of 25") && text.contains("a capacity of 26"),
        "{text}"
    );
    within(queue.set_capacity(None)).await.unwrap();
    let fresh = WorkQueue::new(&client, &stage.path).unwrap().capacity(1);
    let text = within(fresh.offer("z")).await.unwrap_err().to_string();
    assert!(text.contains("no limit"), "{text}");
    within(queue.offer("y")).await.unwrap();
    within(queue.set_capacity(Some(27))).await.unwrap();
    within(queue.offer("y")).await.unwrap();
    assert!(matches!(
        within(queue.offer("y")).await,
        Err(WorkError::Full { .. })
    ));
}

#[tokio::test]
async fn many_at_once_are_claimed_in_one_change_and_what_is_not_taken_is_given_back() {
    let stage = Stage::new("many").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path).prefetch(8);
    within(queue.offer_all((0..10).map(|n| WorkItem::new(n.to_string()))))
        .await
        .unwrap();
    let claims = within(queue.take_many(3)).await.unwrap();
    let payloads: Vec<_> = claims.iter().map(|claim| claim.payload().clone()).collect();
    assert_eq!(payloads, ["0", "1", "2"]);
    let zxids: std::collections::HashSet<u64> =
        claims.iter().map(baton::work_queue::Claim::token).collect();
    assert_eq!(zxids.len(), 1, "one change");
    assert_eq!(within(queue.claims()).await.unwrap().len(), 8);
    within(queue.give_back()).await.unwrap();
    assert_eq!(within(queue.claims()).await.unwrap().len(), 3);
    for claim in claims {
        within(claim.ack()).await.unwrap();
    }
    let next = within(queue.take()).await.unwrap();
    assert_eq!((&next.payload()[..], next.attempt()), (&b"3"[..], 1));
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_discarded() {
    let stage = Stage::new("dead").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path).max_attempts(1);
    for id in ["a", "b"] {
        within(queue.offer(WorkItem::new("x").id(id).priority(7)))
            .await
            .unwrap();
        let claim = within(queue.take()).await.unwrap();
        within(claim.nack("no such thing")).await.unwrap();
    }
    let dead = within(queue.dead_letters()).await.unwrap();
    let ids: Vec<&str> = dead.iter().map(|letter| letter.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(
        within(queue.oldest_dead_letters(1)).await.unwrap(),
        dead[..1]
    );
    assert_eq!(dead[0].reason, "no such thing");
    assert_eq!(
        (dead[0].priority, dead[0].attempts, &dead[0].payload[..]),
        (7, 1, &b"x"[..])
    );
    assert!(
        within(queue.offer(WorkItem::new("x").id("a")))
            .await
            .is_err(),
        "the id is still taken"
    );
    within(queue.discard(&dead[0].name)).await.unwrap();
    within(queue.replay(&dead[1].name)).await.unwrap();
    for done in [
        queue.discard(&dead[0].name).await,
        queue.replay(&dead[1].name).await,
    ] {
        assert!(matches!(done, Err(WorkError::NoDeadLetter { .. })));
    }
    within(queue.offer(WorkItem::new("new").id("a")))
        .await
        .unwrap();
    let claim = within(queue.take()).await.unwrap();
    assert_eq!((claim.id(), claim.attempt(), claim.priority()), ("b", 1, 7));
    within(claim.ack()).await.unwrap();
    assert_eq!(drain(&queue).await, ["new"]);
}

#[tokio::test]
async fn bad_input_is_refused_and_leaves_nothing_behind() {
    let stage = Stage::new("bad").await;
    let client = stage.client().await;
    let session = session(&client).await;
    for path in ["", "/", "x", "/x/", "/a//b"] {
        assert!(matches!(
            WorkQueue::new(&client, path),
            Err(WorkError::BadPath { .. })
        ));
    }
    let other = queue(&client, &stage.path);
    let items = [
        WorkItem::new("x").priority(1000),
        WorkItem::new("x").id(""),
        WorkItem::new("x").id("i".repeat(201)),
        WorkItem::new("x").max_attempts(0),
        WorkItem::new("x").delay(Duration::MAX),
        WorkItem::new(vec![0; 1_000_001]),
    ];
    for item in items {
        assert!(matches!(
            within(other.offer(item)).await,
            Err(WorkError::BadItem { .. })
        ));
    }
    let twice = [WorkItem::new("x").id("a"), WorkItem::new("x").id("a")];
    assert!(matches!(
        within(other.offer_all(twice)).await,
        Err(WorkError::Duplicate { .. })
    ));
    assert!(within(session.exists(&stage.path)).await.unwrap().is_none());
    // Another kind of node at the path.
    within(session.create(&stage.path, b"mine", CreateMode::Persistent))
        .await
        .unwrap();
    for outcome in [other.offer("x").await.err(), other.poll().await.err()] {
        assert!(
            matches!(outcome, Some(WorkError::NotAWorkQueue { .. })),
            "{outcome:?}"
        );
    }
    assert!(stage.names().await.is_empty());
    // A bare node is taken for the queue's.
    within(session.set_data(&stage.path, b"", None))
        .await
        .unwrap();
    within(session.delete(&stage.path, None)).await.unwrap();
    stage.occupied().await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("x")).await.unwrap();
    // Foreign children are skipped and stay.
    let lanes = format!("{}/items", stage.path);
    within(session.create(&format!("{lanes}/config"), b"", CreateMode::Persistent))
        .await
        .unwrap();
    assert_eq!(drain(&queue).await, ["x"]);
    assert!(
        within(session.exists(&format!("{lanes}/config")))
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn what_is_just_within_the_limits_is_taken() {
    let stage = Stage::new("limits").await;
    let queue = queue(&stage.client().await, &stage.path);
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let items = [
        WorkItem::new("x").priority(999),
        WorkItem::new("x").priority(0),
        WorkItem::new("x").id("i".repeat(200)),
        WorkItem::new("x").max_attempts(1),
        WorkItem::new("x").delay(century),
        WorkItem::new(vec![0; 1_000_000]),
    ];
    for item in items {
        within(queue.offer(item)).await.unwrap();
    }
    let longer = WorkItem::new("x").delay(century + Duration::from_millis(1));
    let refused = within(queue.offer(longer)).await;
    assert!(
        matches!(refused, Err(WorkError::BadItem { .. })),
        "{refused:?}"
    );
    assert_eq!(within(queue.depth()).await.unwrap().unwrap().items, 6);
}

/// Fails the item that is first, and returns for how many milliseconds it is put off.
async fn put_off(queue: &WorkQueue, session: &Session) -> i64 {
    let claim = within(queue.take()).await.unwrap();
    within(claim.nack("no")).await.unwrap();
    let items = format!("{}/items", queue.path());
    for lane in within(session.children(&items)).await.unwrap().names {
        let lane = format!("{items}/{lane}");
        for item in within(session.children(&lane)).await.unwrap().names {
            let made = within(session.exists(&format!("{lane}/{item}"))).await;
            if let Some((due_ms, _)) = item.split_once('-')
                && let Ok(due_ms) = due_ms.parse::<i64>()
            {
                return due_ms - made.unwrap().unwrap().ctime;
            }
        }
    }
    panic!("no item is put off");
}

#[tokio::test]
async fn without_settings_an_item_is_put_off_for_a_second_to_ten_minutes_and_dies_of_ten_attempts()
{
    let stage = Stage::new("defaults").await;
    let client = stage.client().await;
    let session = session(&client).await;
    let first = queue(&client, &format!("{}/first", stage.path));
    within(first.offer("x")).await.unwrap();
    let put_off_ms = put_off(&first, &session).await;
    // From when the servers' time was asked for, a moment before.
    assert!((-60_000..=1_000).contains(&put_off_ms), "{put_off_ms}");

    let last = queue(&client, &format!("{}/last", stage.path));
    within(last.offer(WorkItem::new("x").max_attempts(20)))
        .await
        .unwrap();
    for _ in 0..11 {
        drop(within(last.take()).await.unwrap());
    }
    let put_off_ms = put_off(&last, &session).await;
    assert!((540_000..=600_000).contains(&put_off_ms), "{put_off_ms}");

    let dead = queue(&client, &format!("{}/dead", stage.path));
    within(dead.offer("x")).await.unwrap();
    for attempt in 1..=10 {
        assert!(within(dead.dead_letters()).await.unwrap().is_empty());
        let claim = within(dead.take()).await.unwrap();
        assert_eq!(claim.attempt(), attempt);
        within(claim.nack_after(Duration::ZERO, "no"))
            .await
            .unwrap();
    }
    let letters = within(dead.dead_letters()).await.unwrap();
    assert_eq!((letters.len(), letters[0].attempts), (1, 10));
}

#[tokio::test]
async fn the_largest_payload_can_be_put_claimed_and_put_off() {
    let stage = Stage::new("large").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    within(queue.offer(WorkItem::new(vec![b'x'; 1_000_000]).id("i".repeat(200))))
        .await
        .unwrap();
    let claim = within(queue.take()).await.unwrap();
    within(claim.nack_after(Duration::from_millis(1), &"why".repeat(1000)))
        .await
        .unwrap();
    let claim = within(queue.take()).await.unwrap();
    assert_eq!((claim.payload().len(), claim.attempt()), (1_000_000, 2));
    within(claim.dead_letter("enough")).await.unwrap();
    assert_eq!(
        within(queue.oldest_dead_letters(1)).await.unwrap()[0]
            .payload
            .len(),
        1_000_000
    );
}

//! The queue whose items are locked first, in kazoo's and Curator's layouts, and its hazards
//! (`docs/internals/hazards.md` §3.6).

use std::time::Duration;

use baton::guard::TxnError;
use baton::queue::{LockingQueue, QueueError};
use baton::tree::CreateMode;
use baton::{Client, LostReason};
use baton_client::{Op, OpCode};
use baton_testkit::{Action, Match, Proxy, Variant, inspect};

use crate::common::{CUTS, LONG, SHORT, Stage, TRIPS, connect, round_trips, session, within};

const ROOMY: Duration = Duration::from_secs(4);

fn queue(client: &Client, path: &str) -> LockingQueue {
    LockingQueue::new(client, path).unwrap()
}

/// The names below `<path>/<part>` as the server has them.
async fn below(stage: &Stage, part: &str) -> Vec<String> {
    let path = format!("{}/{part}", stage.path);
    let nodes = inspect::children(stage.addr, &path).await.unwrap();
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    nodes.iter().map(|node| name(&node.path)).collect()
}

async fn until_free(stage: &Stage) {
    within(async {
        while !below(stage, "taken").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn names_and_claims_are_those_of_kazoo() {
    let stage = Stage::new("golden").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    assert!(within(queue.poll()).await.unwrap().is_none());
    within(queue.offer(b"usual")).await.unwrap();
    within(queue.offer_with_priority(b"urgent", 7))
        .await
        .unwrap();
    within(queue.offer_all(["x", "y"])).await.unwrap();
    let mut names = below(&stage, "entries").await;
    names.sort();
    let expected = [
        "entry-007-0000000001",
        "entry-100-0000000000",
        "entry-100-0000000002",
        "entry-100-0000000003",
    ];
    assert_eq!(names, expected);
    assert_eq!(within(queue.names()).await.unwrap(), expected);
    let item = within(queue.take()).await.unwrap();
    assert_eq!(item.data(), b"urgent");
    assert_eq!(
        item.item(),
        format!("{}/entries/{}", stage.path, expected[0])
    );
    let observer = session(&stage.client().await).await;
    let claim = format!("{}/taken/{}", stage.path, expected[0]);
    let claim = observer.get_data(&claim).await.unwrap();
    assert_eq!(claim.stat.ephemeral_owner, session(&client).await.id());
    assert_eq!(claim.data.len(), 32);
    assert!(claim.data.iter().all(u8::is_ascii_hexdigit));
    assert_eq!(item.check(), Ok(()));
    assert!(!item.remaining().is_zero());
    within(item.consume()).await.unwrap();
    assert_eq!(within(queue.depth()).await.unwrap(), 3);
    assert!(below(&stage, "taken").await.is_empty());
}

#[tokio::test]
async fn h70_a_locked_item_is_nobody_elses_until_it_is_put_back() {
    let stage = Stage::new("locked").await;
    let (one, other) = (
        queue(&stage.client().await, &stage.path),
        queue(&stage.client().await, &stage.path),
    );
    within(one.offer_all(["a", "b"])).await.unwrap();
    let a = within(one.take()).await.unwrap();
    let b = within(other.take()).await.unwrap();
    assert_eq!((a.data(), b.data()), (&b"a"[..], &b"b"[..]));
    assert!(within(other.poll()).await.unwrap().is_none());
    // Put back, it is the first again; who waits gets it at once.
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.take().await }
    });
    let first = a.token();
    within(a.release()).await.unwrap();
    let a = within(waiting).await.unwrap().unwrap();
    assert_eq!(a.data(), b"a");
    assert!(a.token() > first);
    drop(a);
    let a = within(one.take()).await.unwrap();
    assert_eq!(a.data(), b"a");
    within(a.consume()).await.unwrap();
    within(b.consume()).await.unwrap();
    assert_eq!(within(one.depth()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_claim_of_another_library_is_honoured() {
    let stage = Stage::new("kazoo").await;
    let queue = queue(&stage.client().await, &stage.path);
    within(queue.offer_all(["a", "b"])).await.unwrap();
    drop(within(queue.take()).await.unwrap());
    until_free(&stage).await;
    let kazoo = session(&stage.client().await).await;
    let claim = format!("{}/taken/entry-100-0000000000", stage.path);
    crate::common::plant(&kazoo, &claim).await;
    assert_eq!(within(queue.take()).await.unwrap().data(), b"b");
}

#[tokio::test]
async fn h71_a_requeued_item_keeps_its_priority_and_its_name_does_not_grow() {
    let stage = Stage::new("requeue").await;
    let queue = queue(&stage.client().await, &stage.path);
    within(queue.offer_with_priority(b"poison", 50))
        .await
        .unwrap();
    within(queue.offer_with_priority(b"good", 50))
        .await
        .unwrap();
    within(queue.offer(b"last")).await.unwrap();
    for turn in 0..6 {
        let item = within(queue.take()).await.unwrap();
        let expected: &[u8] = if turn % 2 == 0 { b"poison" } else { b"good" };
        assert_eq!(item.data(), expected);
        within(item.requeue()).await.unwrap();
        for name in within(queue.names()).await.unwrap() {
            assert_eq!(name.len(), "entry-050-0000000000".len(), "{name}");
        }
    }
    assert_eq!(within(queue.depth()).await.unwrap(), 3);
    assert!(below(&stage, "taken").await.is_empty());
}

#[tokio::test]
async fn h67_who_lost_its_session_cannot_remove_what_another_has() {
    let stage = Stage::new("h67").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let slow = queue(&client, &stage.path);
    let next = queue(&stage.client().await, &stage.path);
    within(next.offer(b"work")).await.unwrap();
    let item = within(slow.take()).await.unwrap();
    let lost = item.lost();
    assert_eq!(within(item.run(async { 7 })).await, Ok(7));
    proxy.partition();
    let taken = within(next.take()).await.unwrap();
    // The slow one knew before the other could have it.
    assert!(item.check().is_err());
    assert!(matches!(
        within(lost).await,
        LostReason::LeaseEnded | LostReason::SessionLost
    ));
    let late = item.run(async { panic!("work is not begun for an item that is lost") });
    let late: Result<(), LostReason> = within(late).await;
    assert!(late.is_err());
    proxy.heal();
    let error = within(item.consume()).await.unwrap_err();
    assert!(matches!(error, QueueError::ClaimLost { .. }), "{error}");
    assert_eq!(within(next.depth()).await.unwrap(), 1);
    assert_eq!(taken.check(), Ok(()));
    within(taken.consume()).await.unwrap();
    assert_eq!(within(next.depth()).await.unwrap(), 0);
}

/// Somebody removes the claim and takes the item, and the first consumer's acknowledgement is on
/// its way before it hears of it.
#[tokio::test]
async fn h67_an_acknowledgement_under_a_claim_that_has_passed_on_is_refused_by_the_server() {
    for (by_baton, how) in [false, true]
        .into_iter()
        .flat_map(|by| [(by, 0), (by, 1), (by, 2)])
    {
        let stage = Stage::new("h67b").await;
        let (client, proxy) = stage.proxied(LONG).await;
        let slow = queue(&client, &stage.path);
        let next = queue(&stage.client().await, &stage.path);
        // With this the slow one has all that an acknowledgement needs.
        within(slow.offer(b"work")).await.unwrap();
        let item = within(slow.take()).await.unwrap();
        // Answered behind the item's own read of its claim, which has to find the claim there.
        let own = session(&client).await;
        within(own.get_data(item.node())).await.unwrap();
        let held = proxy.on(Match::any_event()).then(Action::Hold);
        let other = session(&stage.client().await).await;
        let claim = format!("{}/taken/entry-100-0000000000", stage.path);
        let taken = if by_baton {
            other.delete(&claim, None).await.unwrap();
            Some(within(next.take()).await.unwrap())
        } else {
            let swap = [
                Op::delete(&*claim, None),
                Op::create(&*claim, &b"kazoo"[..], CreateMode::Ephemeral),
            ];
            other.multi(&swap).await.unwrap();
            None
        };
        assert_eq!(item.check(), Ok(()), "the event is held back");
        let sent = proxy.on(Match::request(OpCode::Multi)).observe();
        let ending = tokio::spawn(async move {
            match how {
                0 => item.consume().await,
                1 => item.release().await,
                _ => item.requeue().await,
            }
        });
        within(sent.fired()).await;
        held.release();
        let error = within(ending).await.unwrap().unwrap_err();
        assert!(matches!(error, QueueError::ClaimLost { .. }), "{error}");
        assert_eq!(within(next.depth()).await.unwrap(), 1);
        assert_eq!(below(&stage, "taken").await.len(), 1, "{by_baton}");
        if let Some(taken) = &taken {
            assert_eq!(taken.check(), Ok(()));
        }
        if let Some(taken) = taken {
            within(taken.consume()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn h67_an_item_that_changes_before_it_is_claimed_is_claimed_as_it_is_then() {
    let stage = Stage::new("changes").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let taker = queue(&client, &stage.path);
    let other = stage.client().await;
    // Once before, so that the folder of claims is there.
    let offering = queue(&other, &stage.path);
    within(offering.offer(b"first")).await.unwrap();
    let first = within(offering.take()).await.unwrap();
    within(first.consume()).await.unwrap();
    within(offering.offer(b"old")).await.unwrap();
    let claim = Match::request(OpCode::Multi).path_contains("/taken/");
    let claim = proxy.on(claim).then(Action::Hold);
    let taking = tokio::spawn(async move { taker.take().await.unwrap() });
    within(claim.fired()).await;
    let item = format!("{}/entries/entry-100-0000000001", stage.path);
    let admin = session(&other).await;
    within(admin.set_data(&item, b"new", None)).await.unwrap();
    claim.release();
    let taken = within(taking).await.unwrap();
    assert_eq!(taken.data(), b"new");
    let read = within(admin.get_data(&item)).await.unwrap();
    assert_eq!(read.data, "new");
    within(taken.consume()).await.unwrap();
}

/// The same, where the first consumer changes something else under its claim.
#[tokio::test]
async fn h67_a_transaction_is_applied_under_its_own_claim_alone() {
    let stage = Stage::new("h67c").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let slow = queue(&client, &stage.path);
    let next = queue(&stage.client().await, &stage.path);
    within(slow.offer(b"work")).await.unwrap();
    let other = session(&stage.client().await).await;
    let result = format!("{}-result", stage.path);
    within(other.create(&result, b"", CreateMode::Persistent))
        .await
        .unwrap();
    let item = within(slow.take()).await.unwrap();
    let change = item.txn().set(&result, b"first", None);
    within(change.commit()).await.unwrap();
    let held = proxy.on(Match::any_event()).then(Action::Hold);
    within(other.delete(item.node(), None)).await.unwrap();
    let taken = within(next.take()).await.unwrap();
    assert_eq!(taken.node(), item.node());
    let sent = proxy.on(Match::request(OpCode::Multi)).observe();
    let status = item.status();
    assert_eq!(status.check(), Ok(()), "the event is held back");
    let path = result.clone();
    let changing = tokio::spawn(async move {
        let outcome = item.txn().set(&path, b"late", None).commit().await;
        drop(item);
        outcome
    });
    within(sent.fired()).await;
    held.release();
    let error = within(changing).await.unwrap().unwrap_err();
    assert!(matches!(error, TxnError::Lost { .. }), "{error}");
    assert!(status.check().is_err());
    let change = taken.txn().set(&result, b"second", None);
    within(change.commit()).await.unwrap();
    let data = within(other.get_data(&result)).await.unwrap().data;
    assert_eq!(data, "second");
    within(taken.consume()).await.unwrap();
}

#[tokio::test]
async fn h69_a_lost_answer_to_a_claim_leaves_one_claim_that_is_used() {
    let mut cases = tokio::task::JoinSet::new();
    for variant in CUTS {
        for reply in [false, true] {
            cases.spawn(async move {
                let stage = Stage::new("h69").await;
                let producer = queue(&stage.client().await, &stage.path);
                within(producer.offer_all(["a", "b"])).await.unwrap();
                drop(within(producer.take()).await.unwrap());
                until_free(&stage).await;
                let (client, proxy) = stage.proxied(ROOMY).await;
                let consumer = queue(&client, &stage.path);
                let message = match reply {
                    false => Match::request(OpCode::Multi),
                    true => Match::reply(OpCode::Multi),
                };
                let cut = proxy.on(message).then(Action::Cut(variant));
                let a = within(consumer.take()).await.unwrap();
                assert_eq!(cut.times(), 1);
                assert_eq!(a.data(), b"a", "{variant:?} {reply}");
                assert_eq!(below(&stage, "taken").await.len(), 1);
                within(a.consume()).await.unwrap();
                let b = within(consumer.take()).await.unwrap();
                assert_eq!(b.data(), b"b");
                within(b.consume()).await.unwrap();
                assert_eq!(within(consumer.depth()).await.unwrap(), 0);
            });
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

/// The answer is lost, and then nobody may read the claim any more.
#[tokio::test]
async fn h69_a_claim_that_cannot_be_resolved_is_freed() {
    let stage = Stage::new("h69c").await;
    let producer = queue(&stage.client().await, &stage.path);
    within(producer.offer(b"work")).await.unwrap();
    drop(within(producer.take()).await.unwrap());
    until_free(&stage).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let id = session(&client).await.id();
    let consumer = queue(&client, &stage.path);
    proxy.refuse();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let taking = tokio::spawn(async move { consumer.poll().await });
    within(cut.fired()).await;
    let claim = below(&stage, "taken").await.remove(0);
    let claim = format!("{}/taken/{claim}", stage.path);
    let admin = session(&stage.client().await).await;
    crate::common::hide(&admin, &claim).await;
    proxy.heal();
    let error = within(taking).await.unwrap().unwrap_err();
    assert!(matches!(error, QueueError::Client { .. }), "{error}");
    crate::common::until_none(&admin, &claim).await;
    assert_eq!(session(&client).await.id(), id);
    let item = within(producer.take()).await.unwrap();
    within(item.consume()).await.unwrap();
}

#[tokio::test]
async fn h69_a_take_dropped_at_any_point_leaves_the_item_free() {
    let stage = Stage::new("h69b").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    within(queue.offer(b"work")).await.unwrap();
    for polls in 0..25 {
        if let Some(item) = crate::common::polled(queue.take(), polls).await {
            assert_eq!(item.unwrap().data(), b"work");
        }
        let item = within(queue.take()).await.unwrap();
        assert_eq!(item.data(), b"work");
        within(item.release()).await.unwrap();
        until_free(&stage).await;
    }
    assert_eq!(within(queue.depth()).await.unwrap(), 1);
}

#[tokio::test]
async fn h65_a_lost_answer_to_the_acknowledgement_is_resolved() {
    let mut cases = tokio::task::JoinSet::new();
    for variant in CUTS {
        for reply in [false, true] {
            cases.spawn(async move {
                let stage = Stage::new("ack").await;
                let (client, proxy) = stage.proxied(ROOMY).await;
                let queue = queue(&client, &stage.path);
                within(queue.offer_all(["a", "b"])).await.unwrap();
                let a = within(queue.take()).await.unwrap();
                let message = match reply {
                    false => Match::request(OpCode::Multi),
                    true => Match::reply(OpCode::Multi),
                };
                let cut = proxy.on(message).then(Action::Cut(variant));
                within(a.consume()).await.unwrap();
                assert_eq!(cut.times(), 1);
                assert!(below(&stage, "taken").await.is_empty());
                assert_eq!(within(queue.depth()).await.unwrap(), 1);
                assert_eq!(within(queue.take()).await.unwrap().data(), b"b");
            });
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

#[tokio::test]
async fn h65_an_acknowledgement_that_cannot_be_found_out_says_so() {
    let stage = Stage::new("ackb").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let queue = queue(&client, &stage.path);
    within(queue.offer(b"work")).await.unwrap();
    let item = within(queue.take()).await.unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let consuming = tokio::spawn(item.consume());
    within(cut.fired()).await;
    proxy.partition();
    let error = within(consuming).await.unwrap().unwrap_err();
    assert!(matches!(error, QueueError::Unknown { .. }), "{error}");
}

#[tokio::test]
async fn h74_a_waiting_take_survives_the_loss_of_its_session() {
    let stage = Stage::new("h74").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let consumer = queue(&client, &stage.path);
    let before = session(&client).await.id();
    let producer = queue(&stage.client().await, &stage.path);
    within(producer.offer(b"first")).await.unwrap();
    within(async {
        within(consumer.take())
            .await
            .unwrap()
            .consume()
            .await
            .unwrap()
    })
    .await;
    let listing = Match::reply(OpCode::GetChildren2).nth(4);
    let listed = proxy.on(listing).observe();
    let taking = tokio::spawn(async move { consumer.take().await });
    // Two listings to find nothing, two more with watches; what is asked next is answered behind
    // them.
    within(listed.fired()).await;
    within(session(&client).await.sync("/")).await.unwrap();
    proxy.partition();
    within(session(&client).await.ended()).await;
    within(producer.offer(b"meanwhile")).await.unwrap();
    proxy.heal();
    let item = within(taking).await.unwrap().unwrap();
    assert_eq!(item.data(), b"meanwhile");
    assert_ne!(session(&client).await.id(), before);
}

#[tokio::test]
async fn curators_lock_path_works_alike_and_h72_leaves_what_cannot_be_read() {
    let stage = Stage::new("curator").await;
    let client = stage.client().await;
    let (items, locks) = (format!("{}/q", stage.path), format!("{}/locks", stage.path));
    let queue = LockingQueue::new(&client, &items)
        .unwrap()
        .curator_layout(&locks);
    within(queue.offer(b"a")).await.unwrap();
    let observer = session(&client).await;
    let plant = |data: &[u8]| {
        let path = format!("{items}/queue-");
        observer.create(&path, data, CreateMode::PersistentSequential)
    };
    plant(b"no envelope").await.unwrap();
    plant(b"\0\x01\0\x01\x01\0\0\0\x01b\x01\0\0\0\x01c\x02")
        .await
        .unwrap();
    let a = within(queue.take()).await.unwrap();
    assert_eq!(a.data(), b"a");
    assert_eq!(below(&stage, "locks").await, ["queue-0000000000"]);
    let several = within(queue.take()).await.unwrap();
    assert_eq!(several.items(), ["b", "c"]);
    within(several.consume()).await.unwrap();
    assert!(matches!(
        within(queue.poll()).await,
        Err(QueueError::Undecodable { .. })
    ));
    within(a.requeue()).await.unwrap();
    let names = within(queue.names()).await.unwrap();
    assert_eq!(names, ["queue-0000000001", "queue-0000000003"]);
    assert_eq!(within(queue.take()).await.unwrap().data(), b"a");
    assert!(matches!(
        within(queue.offer_with_priority(b"x", 1)).await,
        Err(QueueError::BadArgument { .. })
    ));
    let alike = LockingQueue::new(&client, &items)
        .unwrap()
        .curator_layout(&items);
    let alike = within(alike.offer(b"a")).await;
    assert!(matches!(alike, Err(QueueError::BadPath { .. })));
    assert!(LockingQueue::new(&client, "/").is_err());
}

#[tokio::test]
async fn what_is_too_large_to_be_locked_is_refused_and_blocks_nobody_where_it_came_from_elsewhere()
{
    let stage = Stage::new("large").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    // The largest that there may be can be locked, put back and removed.
    let largest = vec![7; 1_000_000];
    within(queue.offer(&largest)).await.unwrap();
    let refused = within(queue.offer(&vec![7; 1_000_001])).await;
    assert!(
        matches!(refused, Err(QueueError::BadArgument { .. })),
        "{refused:?}"
    );
    let item = within(queue.take()).await.unwrap();
    within(item.requeue()).await.unwrap();
    let item = within(queue.take()).await.unwrap();
    assert_eq!(item.data(), largest);
    within(item.consume()).await.unwrap();
    // Of another library, larger than a request that locks it may be.
    let session = session(&client).await;
    let entry = format!("{}/entries/entry-000-", stage.path);
    let lump = vec![7; 1_048_575 - 120];
    within(session.create(&entry, &lump, CreateMode::PersistentSequential))
        .await
        .unwrap();
    within(queue.offer(b"small")).await.unwrap();
    let item = within(queue.take()).await.unwrap();
    assert_eq!(item.data(), b"small");
    within(item.consume()).await.unwrap();
    let polled = within(queue.poll()).await;
    assert!(matches!(polled, Err(QueueError::Undecodable { .. })));
    assert_eq!(within(queue.depth()).await.unwrap(), 1);
}

#[tokio::test]
async fn h72_who_waits_behind_what_cannot_be_read_does_not_ask_again_and_again() {
    let stage = Stage::new("h72w").await;
    let proxy = Proxy::start_recording(stage.addr).await.unwrap();
    let client = connect(proxy.addr(), LONG).await;
    let locks = format!("{}-locks", stage.path);
    let queue = LockingQueue::new(&client, &stage.path)
        .unwrap()
        .curator_layout(&locks);
    within(queue.offer(b"first")).await.unwrap();
    within(within(queue.take()).await.unwrap().consume())
        .await
        .unwrap();
    let entry = format!("{}/queue-", stage.path);
    let session = session(&client).await;
    within(session.create(&entry, b"no envelope", CreateMode::PersistentSequential))
        .await
        .unwrap();
    let before = proxy.count(&Match::any_request());
    let of_task = queue.clone();
    let taking = tokio::spawn(async move { of_task.take().await });
    round_trips(&client).await;
    let asked = proxy.count(&Match::any_request()) - before - TRIPS;
    assert!(asked < 30, "{asked} requests for nothing");
    within(queue.offer(b"second")).await.unwrap();
    let item = within(taking).await.unwrap().unwrap();
    assert_eq!(item.data(), b"second");
}

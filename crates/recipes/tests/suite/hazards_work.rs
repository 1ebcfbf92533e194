//! The work queue's hazards (`docs/internals/hazards.md` §3.6).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use baton::tree::CreateMode;
use baton::work_queue::{WorkError, WorkItem};
use baton::{Client, LostReason};
use baton_client::{Acl, EventKind, OpCode, Perms};
use baton_testkit::{Action, Fault, Match, Variant};

use crate::common::work::{drain, queue};
use crate::common::{CUTS, LONG, SHORT, SleptClock, Stage, round_trips, session, within};

const ROOMY: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(5);

/// The full paths of the items in the tree.
async fn items(stage: &Stage) -> Vec<String> {
    let client = stage.client().await;
    let session = session(&client).await;
    let lanes = format!("{}/items", stage.path);
    let mut items = Vec::new();
    for lane in within(session.children(&lanes)).await.unwrap().names {
        let lane = format!("{lanes}/{lane}");
        for item in within(session.children(&lane)).await.unwrap().names {
            items.push(format!("{lane}/{item}"));
        }
    }
    items
}

#[tokio::test]
async fn h67_an_ack_after_the_session_was_lost_and_the_item_taken_by_another_is_refused() {
    let stage = Stage::new("h67").await;
    let other = queue(&stage.client().await, &stage.path);
    within(other.offer("x")).await.unwrap();
    let (client, proxy) = stage.proxied(SHORT).await;
    let late = within(queue(&client, &stage.path).take()).await.unwrap();
    proxy.partition();
    let lost = late.lost();
    // The other gets it only after the clock of the first has ended its claim.
    let again = within(other.take()).await.unwrap();
    assert!(late.check().is_err() && late.remaining().is_zero());
    within(lost).await;
    assert_eq!((again.attempt(), again.payload()), (2, late.payload()));
    assert!(again.token() > late.token());
    proxy.heal();
    let error = within(late.ack()).await.unwrap_err();
    assert!(matches!(error, WorkError::ClaimLost { .. }), "{error}");
    within(again.ack()).await.unwrap();
    assert!(items(&stage).await.is_empty());
}

#[tokio::test]
async fn h67_a_claim_whose_time_is_up_may_be_taken_over_and_its_ack_is_refused() {
    let stage = Stage::new("h67b").await;
    let (one, proxy) = stage.proxied(LONG).await;
    let slow = queue(&one, &stage.path).visibility(Duration::from_millis(300));
    within(slow.offer("x")).await.unwrap();
    let late = within(slow.take()).await.unwrap();
    assert!(late.remaining() <= Duration::from_millis(300));
    let news = proxy
        .on(Match::event(EventKind::NodeDeleted))
        .then(Action::Hold);
    let quick = queue(&stage.client().await, &stage.path);
    let again = within(quick.take()).await.unwrap();
    within(news.fired()).await;
    // By its own clock it was over before, and it has not heard of the other.
    assert_eq!(late.check(), Err(LostReason::ClaimTimedOut));
    assert!(late.remaining().is_zero());
    news.release();
    assert_eq!(again.attempt(), 2);
    let error = within(late.ack()).await.unwrap_err();
    assert!(matches!(error, WorkError::ClaimLost { .. }), "{error}");
    assert_eq!(again.check(), Ok(()));
    within(again.ack()).await.unwrap();
    assert!(items(&stage).await.is_empty());
}

#[tokio::test]
async fn h67_the_time_of_a_claim_counts_from_its_request_be_the_answer_late_or_lost() {
    // Less than a session's lease, which would end the claim as well.
    let visibility = Duration::from_secs(9);
    let pause = Duration::from_secs(3);
    let at_most = visibility - visibility / 100 - pause;
    for (action, extended) in [
        (Action::Hold, Action::Hold),
        (Action::Cut(Variant::Rst), Action::Hold),
        (Action::Hold, Action::Cut(Variant::Rst)),
    ] {
        let stage = Stage::new("h67t").await;
        let clock = Arc::new(SleptClock::default());
        let (client, proxy) = stage.proxied_by(&clock).await;
        let queue = queue(&client, &stage.path).visibility(visibility);
        within(queue.offer("x")).await.unwrap();
        // The next answer about an item, while which the machine sleeps. A cut connection comes
        // back behind that only.
        let answer = |action| {
            proxy.refuse();
            proxy
                .on(Match::reply(OpCode::Multi).path_contains("/items/"))
                .then(action)
        };
        let sleep = async |answer: &Fault| {
            within(answer.fired()).await;
            clock.sleep(pause);
            answer.release();
            proxy.heal();
        };
        let late = answer(action);
        let taking = tokio::spawn(async move { queue.take().await.unwrap() });
        sleep(&late).await;
        let claim = within(taking).await.unwrap();
        assert!(claim.remaining() <= at_most, "a take, {action:?}");
        let late = answer(extended);
        let extending = tokio::spawn(async move {
            claim.extend().await.unwrap();
            claim
        });
        sleep(&late).await;
        let claim = within(extending).await.unwrap();
        assert!(claim.remaining() <= at_most, "an extension, {extended:?}");
        within(claim.ack()).await.unwrap();
    }
}

#[tokio::test]
async fn h71_a_claim_that_is_over_before_anybody_has_it_uses_no_attempt() {
    let visibility = Duration::from_secs(5);
    let stage = Stage::new("h71u").await;
    let clock = Arc::new(SleptClock::default());
    let (client, proxy) = stage.proxied_by(&clock).await;
    let queue = queue(&client, &stage.path)
        .visibility(visibility)
        .max_attempts(1);
    within(queue.offer("x")).await.unwrap();
    for _ in 0..3 {
        let answer = proxy
            .on(Match::reply(OpCode::Multi).path_contains("/items/"))
            .then(Action::Hold);
        let taking = tokio::spawn({
            let queue = queue.clone();
            async move { queue.take().await.unwrap() }
        });
        within(answer.fired()).await;
        clock.sleep(visibility);
        answer.release();
        let claim = within(taking).await.unwrap();
        assert_eq!((claim.attempt(), claim.check()), (1, Ok(())));
        within(claim.release()).await.unwrap();
    }
    // What was claimed ahead and waited too long is such a claim as well.
    let ahead = queue.prefetch(2);
    within(ahead.offer("y")).await.unwrap();
    let first = within(ahead.take()).await.unwrap();
    assert_eq!(first.payload(), "x");
    clock.sleep(visibility);
    let second = within(ahead.take()).await.unwrap();
    assert_eq!((&second.payload()[..], second.attempt()), (&b"y"[..], 1));
    within(second.ack()).await.unwrap();
    within(first.ack()).await.unwrap();
    assert!(items(&stage).await.is_empty());
    assert!(within(ahead.dead_letters()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_claim_that_is_extended_stays_and_one_whose_time_is_up_but_nobody_wants_can_be_acknowledged()
 {
    let stage = Stage::new("extend").await;
    let client = stage.client().await;
    let timeout = Duration::from_millis(1500);
    let queue = queue(&client, &stage.path).visibility(timeout);
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    let before = within(async {
        loop {
            let remaining = claim.remaining();
            if remaining < timeout - timeout / 10 {
                return remaining;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    within(claim.extend()).await.unwrap();
    assert!(claim.remaining() > before);
    assert_eq!(within(claim.lost()).await, LostReason::ClaimTimedOut);
    assert!(matches!(
        within(claim.extend()).await,
        Err(WorkError::ClaimLost {
            reason: LostReason::ClaimTimedOut,
            ..
        })
    ));
    within(claim.ack()).await.unwrap();
    assert!(items(&stage).await.is_empty());
}

#[tokio::test]
async fn h67_an_extension_whose_answer_is_lost_is_found_out() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("extend-cut").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let queue = queue(&client, &stage.path).visibility(Duration::from_secs(20));
            within(queue.offer("x")).await.unwrap();
            let claim = within(queue.take()).await.unwrap();
            let cut = proxy.on(message).then(Action::Cut(variant));
            within(claim.extend()).await.unwrap();
            assert_eq!(cut.times(), 1);
            within(claim.ack()).await.unwrap();
            assert!(items(&stage).await.is_empty());
        }
    }
}

#[tokio::test]
async fn h67_an_extension_that_finds_the_claim_gone_says_so_before_its_guard_has_heard() {
    let stage = Stage::new("extend-gone").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let queue = queue(&client, &stage.path).visibility(Duration::from_secs(20));
    within(queue.offer("x")).await.unwrap();
    // Claimed on a runtime that stands still from then on, and the guard's news with it.
    let taking = tokio::task::spawn_blocking(move || {
        let still = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let claim = still.block_on(queue.take()).unwrap();
        (still, claim)
    });
    let (still, claim) = within(taking).await.unwrap();
    let multi = proxy
        .on(Match::request(OpCode::Multi))
        .then(Action::ForwardThenCut(Variant::Rst));
    let node = claim.node().to_owned();
    // The connection that is there goes on until its answer is cut off.
    proxy.refuse();
    let extending = tokio::spawn(async move { (claim.extend().await, claim) });
    within(multi.fired()).await;
    let admin = session(&stage.client().await).await;
    within(admin.delete(&node, None)).await.unwrap();
    proxy.heal();
    let (extended, claim) = within(extending).await.unwrap();
    let error = extended.unwrap_err();
    assert!(matches!(error, WorkError::ClaimLost { .. }), "{error}");
    assert_eq!(claim.check(), Err(LostReason::NodeGone));
    still.shutdown_background();
}

#[tokio::test]
async fn h68_a_transaction_that_failed_is_reported() {
    let stage = Stage::new("h68").await;
    let client = stage.client().await;
    let session = session(&client).await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    // Somebody writes to the item.
    let written = claim.item().to_owned();
    let data = within(session.get_data(&written)).await.unwrap().data;
    within(session.set_data(&written, &data, None))
        .await
        .unwrap();
    let error = within(claim.ack()).await.unwrap_err();
    assert!(matches!(error, WorkError::Changed { .. }), "{error}");
    // Somebody takes the claim away.
    let claim = within(queue.take()).await.unwrap();
    let lost = claim.lost();
    within(session.delete(claim.node(), None)).await.unwrap();
    assert_eq!(within(lost).await, LostReason::NodeGone);
    let error = within(claim.nack("?")).await.unwrap_err();
    assert!(
        matches!(
            error,
            WorkError::ClaimLost {
                reason: LostReason::NodeGone,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(drain(&queue).await, ["x"]);
}

#[tokio::test]
async fn h68_an_ack_whose_answer_is_lost_is_found_out_and_never_guessed() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("h68b").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let queue = queue(&client, &stage.path);
            within(queue.offer_all([WorkItem::new("a").id("a"), WorkItem::new("b")]))
                .await
                .unwrap();
            let claim = within(queue.take()).await.unwrap();
            let cut = proxy.on(message).then(Action::Cut(variant));
            within(claim.ack()).await.unwrap();
            assert_eq!(cut.times(), 1);
            within(queue.offer(WorkItem::new("c").id("a")))
                .await
                .unwrap();
            assert_eq!(drain(&queue).await, ["b", "c"], "{variant:?}");
        }
    }
    let stage = Stage::new("h68c").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let acking = tokio::spawn(claim.ack());
    within(cut.fired()).await;
    proxy.partition();
    let error = within(acking).await.unwrap().unwrap_err();
    assert!(matches!(error, WorkError::SettleUnknown { .. }), "{error}");
}

#[tokio::test]
async fn h69_a_claim_whose_answer_is_lost_is_used_or_freed() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("h69").await;
            let other = queue(&stage.client().await, &stage.path);
            for item in ["a", "b", "c"] {
                within(other.offer(item)).await.unwrap();
            }
            let (client, proxy) = stage.proxied(ROOMY).await;
            let cut = proxy.on(message.clone()).then(Action::Cut(variant));
            let consumer = queue(&client, &stage.path);
            let claim = within(consumer.take()).await.unwrap();
            assert_eq!(cut.times(), 1);
            assert_eq!((&claim.payload()[..], claim.attempt()), (&b"a"[..], 1));
            assert_eq!(
                within(other.claims()).await.unwrap().len(),
                1,
                "{variant:?}"
            );
            within(claim.ack()).await.unwrap();
            assert_eq!(drain(&consumer).await, ["b", "c"]);
        }
    }
}

#[tokio::test]
async fn h69_a_take_dropped_at_any_point_leaves_no_claim_that_nobody_has() {
    let stage = Stage::new("h69b").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    for polls in 0..30 {
        within(queue.offer(polls.to_string().as_str()))
            .await
            .unwrap();
        let claim = match crate::common::polled(queue.take(), polls).await {
            Some(taken) => taken.unwrap(),
            None => within(queue.take()).await.unwrap(),
        };
        assert_eq!(claim.payload(), polls.to_string().as_str());
        // A dropped take cost no attempt: what it claimed went to the next caller.
        assert_eq!(claim.attempt(), 1);
        within(claim.ack()).await.unwrap();
    }
    assert!(items(&stage).await.is_empty());
}

#[tokio::test]
async fn h70_consumers_that_contend_take_each_item_once_and_none_waits_for_a_claimed_one() {
    let stage = Stage::new("h70").await;
    let producer = queue(&stage.client().await, &stage.path);
    // Held all the time, first in the queue.
    within(producer.offer("held")).await.unwrap();
    let held = within(producer.take()).await.unwrap();
    let mut consumers = Vec::new();
    for _ in 0..4 {
        let queue = queue(&stage.client().await, &stage.path);
        consumers.push(tokio::spawn(async move {
            let mut got = Vec::new();
            loop {
                let claim = queue.take().await.unwrap();
                assert_eq!(claim.attempt(), 1);
                let payload = String::from_utf8(claim.payload().to_vec()).unwrap();
                claim.ack().await.unwrap();
                if payload == "stop" {
                    return got;
                }
                got.push(payload);
            }
        }));
    }
    for item in 0..80 {
        within(producer.offer(item.to_string().as_str()))
            .await
            .unwrap();
    }
    for _ in 0..4 {
        within(producer.offer(WorkItem::new("stop").priority(999)))
            .await
            .unwrap();
    }
    let mut got = Vec::new();
    for consumer in consumers {
        got.extend(within(consumer).await.unwrap());
    }
    got.sort_by_key(|item| item.parse::<u32>().unwrap());
    let expected: Vec<String> = (0..80).map(|item| item.to_string()).collect();
    assert_eq!(got, expected);
    within(held.ack()).await.unwrap();
}

#[tokio::test]
async fn h71_a_poison_item_dies_in_one_change_after_its_attempts_with_id_and_priority() {
    let stage = Stage::new("h71").await;
    let client = stage.client().await;
    let session = session(&client).await;
    let queue = queue(&client, &stage.path)
        .max_attempts(5)
        .backoff(SOON, SOON);
    within(queue.offer(WorkItem::new("poison").id("p").priority(3)))
        .await
        .unwrap();
    let mut lengths = HashSet::new();
    for attempt in 1..=5 {
        let claim = within(queue.take()).await.unwrap();
        assert_eq!(
            (claim.attempt(), claim.id(), claim.priority()),
            (attempt, "p", 3)
        );
        if attempt > 2 {
            lengths.insert(claim.item().len());
        }
        if attempt != 1 {
            within(claim.nack("bitter")).await.unwrap();
        } else {
            // A consumer that dies counts as well.
            let name = claim.item().to_owned();
            within(session.delete(claim.node(), None)).await.unwrap();
            drop(claim);
            assert!(within(session.exists(&name)).await.unwrap().is_some());
        }
    }
    assert_eq!(lengths.len(), 1, "names do not grow: {lengths:?}");
    assert!(within(queue.poll()).await.unwrap().is_none());
    assert!(items(&stage).await.is_empty());
    let dead = within(queue.dead_letters()).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(
        (dead[0].id.as_str(), dead[0].priority, dead[0].attempts),
        ("p", 3, 5)
    );
    assert_eq!(
        (dead[0].reason.as_str(), &dead[0].payload[..]),
        ("bitter", &b"poison"[..])
    );
}

#[tokio::test]
async fn h71_an_item_that_kills_its_consumers_dies_without_being_handed_out_again() {
    let stage = Stage::new("h71b").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    within(queue.offer(WorkItem::new("poison").max_attempts(2)))
        .await
        .unwrap();
    for _ in 0..2 {
        drop(within(queue.take()).await.unwrap());
    }
    within(queue.offer("next")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    assert_eq!(claim.payload(), "next");
    assert_eq!(within(queue.dead_letters()).await.unwrap()[0].attempts, 2);
}

#[tokio::test]
async fn h72_what_cannot_be_read_is_kept_with_its_bytes_and_blocks_nobody() {
    let stage = Stage::new("h72").await;
    let client = stage.client().await;
    let session = session(&client).await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("first")).await.unwrap();
    let lane = items(&stage).await[0]
        .rsplit_once('/')
        .unwrap()
        .0
        .to_owned();
    let foreign = format!("{lane}/i-");
    within(session.create(
        &foreign,
        b"\x00\xffno header",
        CreateMode::PersistentSequential,
    ))
    .await
    .unwrap();
    within(queue.offer("second")).await.unwrap();
    assert_eq!(drain(&queue).await, ["first", "second"]);
    let dead = within(queue.dead_letters()).await.unwrap();
    assert_eq!(
        (dead.len(), &dead[0].payload[..]),
        (1, &b"\x00\xffno header"[..])
    );
    // Replayed, it is an item like any other.
    within(queue.replay(&dead[0].name)).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    assert_eq!(&claim.payload()[..], b"\x00\xffno header");
    within(claim.ack()).await.unwrap();
}

#[tokio::test]
async fn h73_a_put_that_the_server_refuses_is_reported() {
    let stage = Stage::new("h73c").await;
    let client = stage.client().await;
    let producer = queue(&client, &stage.path);
    within(producer.offer("first")).await.unwrap();
    let session = session(&client).await;
    let items = format!("{}/items", stage.path);
    for lane in session.children(&items).await.unwrap().names {
        let read_only = Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone");
        let lane = format!("{items}/{lane}");
        let set = session.set_acl(&lane, &[read_only], None);
        within(set).await.unwrap();
    }
    let error = within(producer.offer("second")).await.unwrap_err();
    assert!(matches!(error, WorkError::Client { .. }), "{error}");
}

#[tokio::test]
async fn h73_a_put_that_failed_is_reported_and_one_whose_answer_is_lost_is_put_once() {
    for variant in CUTS {
        for message in [
            Match::request(OpCode::Multi),
            Match::reply(OpCode::Multi),
            Match::reply(OpCode::Create2),
        ] {
            let stage = Stage::new("h73").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let cut = proxy.on(message).then(Action::Cut(variant));
            let producer = queue(&client, &stage.path).capacity(4);
            for item in ["a", "b", "c"] {
                within(producer.offer(WorkItem::new(item).id(item)))
                    .await
                    .unwrap();
            }
            within(producer.offer(WorkItem::new("d").delay(SOON)))
                .await
                .unwrap();
            assert_eq!(cut.times(), 1);
            let full = within(producer.offer("e")).await;
            assert!(matches!(full, Err(WorkError::Full { .. })));
            let consumer = queue(&stage.client().await, &stage.path);
            let mut got = Vec::new();
            for _ in 0..4 {
                let claim = within(consumer.take()).await.unwrap();
                got.push(String::from_utf8(claim.payload().to_vec()).unwrap());
                within(claim.ack()).await.unwrap();
            }
            got.sort_unstable();
            assert_eq!(got, ["a", "b", "c", "d"], "{variant:?}");
            assert!(within(consumer.poll()).await.unwrap().is_none());
        }
    }
    let stage = Stage::new("h73b").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let producer = queue(&client, &stage.path);
    within(producer.offer("first")).await.unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let putting = tokio::spawn(async move { producer.offer("second").await });
    within(cut.fired()).await;
    proxy.partition();
    let error = within(putting).await.unwrap().unwrap_err();
    assert!(matches!(error, WorkError::OfferUnknown { .. }), "{error}");
    let consumer = queue(&stage.client().await, &stage.path);
    assert_eq!(drain(&consumer).await, ["first", "second"], "queued once");
}

#[tokio::test]
async fn h74_a_waiting_take_survives_an_outage_and_a_lost_session() {
    for timeout in [LONG, SHORT] {
        let stage = Stage::new("h74").await;
        let (client, proxy) = stage.proxied(timeout).await;
        let consumer = queue(&client, &stage.path);
        let taking = tokio::spawn(async move {
            let claim = consumer.take().await.unwrap();
            claim.payload().clone()
        });
        let other = stage.client().await;
        until_waiting(&other, &stage).await;
        proxy.refuse();
        proxy.cut_all(Variant::Rst);
        if timeout == SHORT {
            let lost = session(&client).await;
            within(lost.ended()).await;
        }
        within(queue(&other, &stage.path).offer("back"))
            .await
            .unwrap();
        proxy.heal();
        assert_eq!(within(taking).await.unwrap(), "back");
    }
}

/// Waits until a consumer is in the wait queue.
async fn until_waiting(client: &Client, stage: &Stage) {
    let session = session(client).await;
    let line = format!("{}/waiters", stage.path);
    within(async {
        loop {
            if let Ok(children) = session.children(&line).await
                && !children.names.is_empty()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_new_item_wakes_one_of_many_idle_consumers() {
    let stage = Stage::new("herd").await;
    let producer = stage.client().await;
    let mut consumers = Vec::new();
    let mut taking = Vec::new();
    for _ in 0..8 {
        let (client, proxy) = stage.proxied(LONG).await;
        let consumer = queue(&client, &stage.path);
        taking.push(tokio::spawn(async move { consumer.take().await.unwrap() }));
        consumers.push((client, proxy));
        // One behind the other, so that all are known to wait.
        let session = session(&producer).await;
        let line = format!("{}/waiters", stage.path);
        within(async {
            loop {
                let waiting = session
                    .children(&line)
                    .await
                    .map_or(0, |line| line.names.len());
                if waiting == consumers.len() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    let events: Vec<_> = consumers
        .iter()
        .map(|(_, proxy)| proxy.on(Match::any_event().every()).then(Action::Pass))
        .collect();
    within(queue(&producer, &stage.path).offer("x"))
        .await
        .unwrap();
    within(async {
        while !taking.iter().any(tokio::task::JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // Anyone who else were to be woken would be by then.
    for (client, _) in &consumers {
        round_trips(client).await;
    }
    let woken = events.iter().filter(|event| event.times() > 0).count();
    assert!(
        woken <= 2,
        "the scout, and the one who takes its place: {woken}"
    );
    for task in taking {
        task.abort();
    }
}

#[tokio::test]
async fn h75_a_deep_queue_is_kept_in_folders_of_bounded_size_and_stays_in_order() {
    let stage = Stage::new("h75").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    let count = 4000;
    for some in (0..count).collect::<Vec<_>>().chunks(200) {
        let items = some.iter().map(|n| WorkItem::new(n.to_string()));
        within(queue.offer_all(items)).await.unwrap();
    }
    let session = session(&client).await;
    let lanes = format!("{}/items", stage.path);
    let names = within(session.children(&lanes)).await.unwrap().names;
    assert!(names.len() >= 3, "{names:?}");
    for lane in &names {
        let held = within(session.exists(&format!("{lanes}/{lane}")))
            .await
            .unwrap();
        assert!(held.unwrap().num_children <= 1024 + 200);
    }
    assert_eq!(within(queue.depth()).await.unwrap().unwrap().items, count);
    let mut next = 0;
    while next < count {
        let claims = within(queue.take_many(64)).await.unwrap();
        let mut acks = Vec::new();
        for claim in claims {
            assert_eq!(claim.payload(), next.to_string().as_str());
            next += 1;
            acks.push(tokio::spawn(claim.ack()));
        }
        for ack in acks {
            within(ack).await.unwrap().unwrap();
        }
    }
    assert!(within(queue.poll()).await.unwrap().is_none());
    let left = within(session.children(&lanes)).await.unwrap().names;
    assert_eq!(left.len(), 1, "empty folders are removed: {left:?}");
}

#[tokio::test]
async fn h76_delayed_items_come_when_the_servers_clock_says_so() {
    let stage = Stage::new("h76").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    let much_later = WorkItem::new("much later").delay(Duration::from_secs(3600));
    within(queue.offer(much_later)).await.unwrap();
    within(queue.offer("now")).await.unwrap();
    assert_eq!(drain(&queue).await, ["now"]);
    assert_eq!(within(queue.depth()).await.unwrap().unwrap().delayed, 1);
    let later = WorkItem::new("later").delay(Duration::from_millis(400));
    within(queue.offer(later)).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    assert_eq!(claim.payload(), "later");
    // Its name says when it was due; the claim's node, when that was, by the same clock.
    let session = session(&client).await;
    let due_ms: i64 = claim.item().rsplit('/').next().unwrap()[..13]
        .parse()
        .unwrap();
    let claimed = within(session.exists(claim.node())).await.unwrap().unwrap();
    assert!(claimed.ctime >= due_ms, "{} {due_ms}", claimed.ctime);
    within(claim.ack()).await.unwrap();
    assert!(within(queue.poll()).await.unwrap().is_none());
}

#[tokio::test]
async fn h76_an_answer_that_comes_late_does_not_put_the_servers_clock_ahead() {
    let stage = Stage::new("h76b").await;
    let producer = queue(&stage.client().await, &stage.path);
    let delay = Duration::from_secs(2);
    within(producer.offer(WorkItem::new("later").delay(delay)))
        .await
        .unwrap();
    let clock = Arc::new(SleptClock::default());
    let (client, proxy) = stage.proxied_by(&clock).await;
    let consumer = queue(&client, &stage.path);
    // The answer that has the server's time in it.
    let answer = proxy
        .on(Match::reply(OpCode::Multi).path_contains("/t-"))
        .then(Action::Hold);
    let taking = tokio::spawn(async move { consumer.take().await.unwrap() });
    within(answer.fired()).await;
    clock.sleep(2 * delay);
    answer.release();
    let claim = within(taking).await.unwrap();
    let admin = session(&stage.client().await).await;
    let due_ms: i64 = claim.item().rsplit('/').next().unwrap()[..13]
        .parse()
        .unwrap();
    let claimed = within(admin.exists(claim.node())).await.unwrap().unwrap();
    assert!(claimed.ctime >= due_ms, "{} {due_ms}", claimed.ctime);
    within(claim.ack()).await.unwrap();
}

//! The queue, and its hazards (`docs/internals/hazards.md` §3.6).

use std::time::Duration;

use baton::queue::QueueError;
use baton::tree::CreateMode;
use baton::{Client, Config, DistributedQueue};
use baton_client::OpCode;
use baton_testkit::{Action, Match, Variant};

use crate::common::{CUTS, LONG, SHORT, Stage, session, within};

const ROOMY: Duration = Duration::from_secs(4);

fn queue(client: &Client, path: &str) -> DistributedQueue {
    DistributedQueue::new(client, path).unwrap()
}

async fn all(queue: &DistributedQueue) -> Vec<String> {
    let mut items = Vec::new();
    while let Some(item) = within(queue.poll()).await.unwrap() {
        items.push(String::from_utf8(item.to_vec()).unwrap());
    }
    items
}

#[tokio::test]
async fn items_come_out_in_the_order_in_which_they_went_in() {
    let stage = Stage::new("fifo").await;
    let client = stage.client().await;
    let queue = queue(&client, &format!("{}/deep/jobs", stage.path));
    assert_eq!(within(queue.peek()).await.unwrap(), None);
    assert_eq!(within(queue.poll()).await.unwrap(), None);
    assert!(matches!(
        within(queue.element()).await,
        Err(QueueError::Empty { .. })
    ));
    assert!(matches!(
        within(queue.remove()).await,
        Err(QueueError::Empty { .. })
    ));
    for item in 0..20 {
        within(queue.offer(item.to_string().as_bytes()))
            .await
            .unwrap();
    }
    assert_eq!(within(queue.names()).await.unwrap().len(), 20);
    assert_eq!(&within(queue.peek()).await.unwrap().unwrap()[..], b"0");
    assert_eq!(&within(queue.element()).await.unwrap()[..], b"0");
    assert_eq!(&within(queue.remove()).await.unwrap()[..], b"0");
    let rest: Vec<String> = (1..20).map(|item| item.to_string()).collect();
    assert_eq!(all(&queue).await, rest);
}

#[tokio::test]
async fn h70_each_item_goes_to_one_consumer_and_none_waits_for_a_taken_one() {
    let stage = Stage::new("shared").await;
    let producer = queue(&stage.client().await, &stage.path);
    let mut consumers = Vec::new();
    for _ in 0..4 {
        let queue = queue(&stage.client().await, &stage.path);
        consumers.push(tokio::spawn(async move {
            let mut got = Vec::new();
            loop {
                let item = queue.take().await.unwrap();
                if item.is_empty() {
                    return got;
                }
                got.push(String::from_utf8(item.to_vec()).unwrap());
            }
        }));
    }
    for item in 0..60 {
        within(producer.offer(item.to_string().as_bytes()))
            .await
            .unwrap();
    }
    for _ in 0..4 {
        within(producer.offer(b"")).await.unwrap();
    }
    let mut got = Vec::new();
    for consumer in consumers {
        got.extend(within(consumer).await.unwrap());
    }
    got.sort_by_key(|item| item.parse::<u32>().unwrap());
    let expected: Vec<String> = (0..60).map(|item| item.to_string()).collect();
    assert_eq!(got, expected);
}

#[tokio::test]
async fn foreign_children_and_an_item_changed_in_place_do_no_harm() {
    let stage = Stage::new("foreign").await;
    let client = stage.client().await;
    let session = session(&client).await;
    let queue = queue(&client, &stage.path);
    within(queue.offer(b"first")).await.unwrap();
    for child in ["config", "queue-0000000009", "qn-x"] {
        let path = format!("{}/{child}", stage.path);
        session
            .create(&path, b"", CreateMode::Persistent)
            .await
            .unwrap();
    }
    let name = within(queue.names()).await.unwrap().remove(0);
    session
        .set_data(&format!("{}/{name}", stage.path), b"second", None)
        .await
        .unwrap();
    assert_eq!(all(&queue).await, ["second"]);
    assert_eq!(stage.names().await.len(), 3);
}

#[tokio::test]
async fn h65_a_lost_answer_to_a_removal_neither_loses_nor_doubles_the_item() {
    let mut cases = tokio::task::JoinSet::new();
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            cases.spawn(async move {
                let stage = Stage::new("h65").await;
                let producer = queue(&stage.client().await, &stage.path);
                for item in ["a", "b", "c"] {
                    within(producer.offer(item.as_bytes())).await.unwrap();
                }
                let (client, proxy) = stage.proxied(ROOMY).await;
                let cut = proxy.on(message).then(Action::Cut(variant));
                let consumer = queue(&client, &stage.path);
                assert_eq!(all(&consumer).await, ["a", "b", "c"], "{variant:?}");
                assert_eq!(cut.times(), 1);
                assert!(stage.names().await.is_empty());
            });
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

#[tokio::test]
async fn h65_a_removal_that_cannot_be_found_out_brings_the_item_and_says_so() {
    let stage = Stage::new("h65b").await;
    let producer = queue(&stage.client().await, &stage.path);
    within(producer.offer(b"precious")).await.unwrap();
    let (client, proxy) = stage.proxied(SHORT).await;
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let consumer = queue(&client, &stage.path);
    let taking = tokio::spawn(async move { consumer.poll().await });
    within(cut.fired()).await;
    proxy.partition();
    match within(taking).await.unwrap() {
        Err(QueueError::TakeUnknown { item, .. }) => assert_eq!(&item[..], b"precious"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn h65_a_take_dropped_at_any_point_loses_no_item() {
    let stage = Stage::new("h65c").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    for polls in 0..30 {
        within(queue.offer(polls.to_string().as_bytes()))
            .await
            .unwrap();
        let item = match crate::common::polled(queue.take(), polls).await {
            Some(taken) => taken.unwrap(),
            None => within(queue.take()).await.unwrap(),
        };
        assert_eq!(item, polls.to_string());
    }
    assert_eq!(within(queue.poll()).await.unwrap(), None);
}

#[tokio::test]
async fn h65_what_a_dropped_take_brings_can_be_waited_for_before_the_program_ends() {
    let stage = Stage::new("h65d").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let queue = queue(&client, &stage.path);
    assert_eq!(within(queue.recover()).await, Ok(None));
    within(queue.offer(b"precious")).await.unwrap();
    let held = proxy.on(Match::reply(OpCode::Multi)).then(Action::Hold);
    tokio::select! {
        item = queue.take() => panic!("{item:?}"),
        _ = held.fired() => {}
    }
    let recovering = queue.recover();
    held.release();
    assert_eq!(within(recovering).await.unwrap().unwrap(), "precious");
    assert_eq!(within(queue.recover()).await, Ok(None));
    assert!(stage.names().await.is_empty());
}

#[tokio::test]
async fn h65_what_was_perhaps_taken_for_a_take_that_was_dropped_is_reported_to_the_next_caller() {
    let stage = Stage::new("h65e").await;
    let producer = queue(&stage.client().await, &stage.path);
    within(producer.offer(b"precious")).await.unwrap();
    let (client, proxy) = stage.proxied(SHORT).await;
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let consumer = queue(&client, &stage.path);
    tokio::select! {
        item = consumer.take() => panic!("{item:?}"),
        _ = cut.fired() => {}
    }
    proxy.partition();
    session(&client).await.ended().await;
    proxy.heal();
    // It was taken, so `peek` does not show it.
    assert_eq!(within(consumer.peek()).await.unwrap(), None);
    for nth in 0..2 {
        let outcome = match nth {
            0 => within(consumer.recover()).await,
            _ => within(consumer.poll()).await,
        };
        match (nth, outcome) {
            (0, Err(QueueError::TakeUnknown { item, .. })) => assert_eq!(&item[..], b"precious"),
            (1, Ok(None)) => {}
            (_, other) => panic!("{nth}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn h66_a_lost_answer_to_an_offer_queues_the_item_once() {
    let mut cases = tokio::task::JoinSet::new();
    for variant in CUTS {
        for message in [
            Match::request(OpCode::Multi),
            Match::reply(OpCode::Multi),
            Match::reply(OpCode::Create2),
        ] {
            cases.spawn(async move {
                let stage = Stage::new("h66").await;
                let (client, proxy) = stage.proxied(ROOMY).await;
                let cut = proxy.on(message).then(Action::Cut(variant));
                let producer = queue(&client, &stage.path);
                for item in ["a", "b", "c"] {
                    within(producer.offer(item.as_bytes())).await.unwrap();
                }
                assert_eq!(cut.times(), 1);
                let consumer = queue(&stage.client().await, &stage.path);
                assert_eq!(all(&consumer).await, ["a", "b", "c"], "{variant:?}");
            });
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

#[tokio::test]
async fn h66_an_offer_that_cannot_be_found_out_is_not_made_again() {
    let stage = Stage::new("h66b").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let producer = queue(&client, &stage.path);
    within(producer.offer(b"first")).await.unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let offering = tokio::spawn(async move { producer.offer(b"second").await });
    within(cut.fired()).await;
    proxy.partition();
    let error = within(offering).await.unwrap().unwrap_err();
    assert!(matches!(error, QueueError::OfferUnknown { .. }), "{error}");
    proxy.heal();
    let consumer = queue(&stage.client().await, &stage.path);
    assert_eq!(all(&consumer).await, ["first", "second"]);
}

#[tokio::test]
async fn h74_a_waiting_take_survives_an_outage() {
    let stage = Stage::new("outage").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let consumer = queue(&client, &stage.path);
    let taking = tokio::spawn(async move { consumer.take().await });
    stage_exists(&stage).await;
    proxy.refuse();
    proxy.cut_all(Variant::Rst);
    let producer = queue(&stage.client().await, &stage.path);
    within(producer.offer(b"meanwhile")).await.unwrap();
    proxy.heal();
    assert_eq!(&within(taking).await.unwrap().unwrap()[..], b"meanwhile");
}

#[tokio::test]
async fn h74_a_producer_and_a_waiting_consumer_go_on_after_the_loss_of_their_session() {
    let stage = Stage::new("h74b").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let consumer = queue(&client, &stage.path);
    let producer = queue(&client, &stage.path);
    let first = session(&client).await;
    let taking = tokio::spawn(async move { [consumer.take().await, consumer.take().await] });
    within(producer.offer(b"before")).await.unwrap();
    proxy.partition();
    within(first.ended()).await;
    let offering = tokio::spawn(async move { producer.offer(b"after").await });
    proxy.heal();
    within(offering).await.unwrap().unwrap();
    let [before, after] = within(taking).await.unwrap();
    assert_eq!(
        (before.unwrap(), after.unwrap()),
        ("before".into(), "after".into())
    );
    assert_ne!(session(&client).await.id(), first.id());
}

#[tokio::test(flavor = "multi_thread")]
async fn h75_a_hundred_thousand_items_can_be_counted_listed_and_taken() {
    const ITEMS: usize = 100_000;
    const AT_ONCE: usize = 5_000;
    let stage = Stage::new("h75").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    for chunk in 0..ITEMS / AT_ONCE {
        let items = (0..AT_ONCE).map(|at| (chunk * AT_ONCE + at).to_string());
        within(queue.offer_all(items)).await.unwrap();
    }
    assert_eq!(within(queue.depth()).await.unwrap(), ITEMS);
    assert_eq!(within(queue.names()).await.unwrap().len(), ITEMS);
    for item in 0..20 {
        assert_eq!(within(queue.take()).await.unwrap(), item.to_string());
    }
    assert_eq!(within(queue.depth()).await.unwrap(), ITEMS - 20);
}

/// Asked again on the next connection, it would bring the same answer, for ever.
#[tokio::test]
async fn h75_a_listing_over_the_limit_is_a_clear_error_and_the_session_goes_on() {
    let stage = Stage::new("h75b").await;
    let producer = queue(&stage.client().await, &stage.path);
    within(producer.offer_all((0..1000).map(|item| item.to_string())))
        .await
        .unwrap();
    let config = Config::new(&stage.addr.to_string())
        .unwrap()
        .max_reply_bytes(10_000);
    let client = within(Client::connect(config)).await.unwrap();
    let before = session(&client).await.id();
    let queue = queue(&client, &stage.path);
    let error = tokio::time::timeout(LONG, queue.names())
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        error.to_string().contains("raise max_reply_bytes"),
        "{error}"
    );
    assert!(within(queue.poll()).await.is_err());
    assert!(within(queue.take()).await.is_err());
    assert_eq!(within(queue.depth()).await.unwrap(), 1000);
    assert_eq!(session(&client).await.id(), before);
}

/// Waits until somebody has made the queue's directory.
async fn stage_exists(stage: &Stage) {
    let observer = session(&stage.client().await).await;
    within(async {
        while observer.exists(&stage.path).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

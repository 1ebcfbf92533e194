//! The queues in other libraries' layouts: names, bytes, order, and what they do with what they
//! cannot read.

use std::time::{Duration, SystemTime};

use baton::queue::{DelayQueue, IdQueue, PriorityQueue, QueueError, QueueLayout};
use baton::tree::CreateMode;
use baton::{Client, DistributedQueue};
use baton_client::OpCode;
use baton_testkit::{Action, Match, Variant};

use crate::common::{CUTS, LONG, Stage, session, within};

const ROOMY: Duration = Duration::from_secs(4);

/// The bytes that Curator's `ItemSerializer` writes for these items.
fn envelope(items: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0, 1, 0, 1];
    for item in items {
        bytes.push(1);
        bytes.extend((item.len() as u32).to_be_bytes());
        bytes.extend_from_slice(item);
    }
    bytes.push(2);
    bytes
}

/// Creates a node as another library would.
async fn plant(stage: &Stage, stem: &str, data: &[u8]) -> String {
    let client = stage.client().await;
    let path = format!("{}/{stem}", stage.path);
    let session = session(&client).await;
    let created = session.create(&path, data, CreateMode::PersistentSequential);
    within(created).await.unwrap().path
}

async fn data_of(stage: &Stage, name: &str) -> Vec<u8> {
    let client = stage.client().await;
    let path = format!("{}/{name}", stage.path);
    let read = session(&client).await.get_data(&path).await.unwrap();
    read.data.to_vec()
}

async fn drained(queue: &DistributedQueue) -> Vec<String> {
    let mut items = Vec::new();
    while let Some(item) = within(queue.poll()).await.unwrap() {
        items.push(String::from_utf8(item.to_vec()).unwrap());
    }
    items
}

#[tokio::test]
async fn names_and_bytes_are_those_of_the_other_libraries() {
    for (layout, name, data) in [
        (QueueLayout::Recipes, "qn-0000000000", b"one".to_vec()),
        (
            QueueLayout::Curator,
            "queue-0000000000",
            envelope(&[b"one"]),
        ),
        (QueueLayout::Kazoo, "entry-100-0000000000", b"one".to_vec()),
    ] {
        let stage = Stage::new("golden").await;
        let client = stage.client().await;
        let queue = DistributedQueue::new(&client, &stage.path)
            .unwrap()
            .layout(layout);
        within(queue.offer(b"one")).await.unwrap();
        assert_eq!(stage.names().await, [name], "{layout}");
        assert_eq!(data_of(&stage, name).await, data, "{layout}");
        assert_eq!(within(queue.depth()).await.unwrap(), 1);
        within(queue.offer_all([b"two", b"six"])).await.unwrap();
        assert_eq!(within(queue.peek()).await.unwrap().unwrap(), "one");
        assert_eq!(drained(&queue).await, ["one", "two", "six"], "{layout}");
        assert_eq!(within(queue.depth()).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn what_curator_put_as_several_items_comes_out_one_by_one() {
    let stage = Stage::new("multi").await;
    let client = stage.client().await;
    let queue = DistributedQueue::new(&client, &stage.path)
        .unwrap()
        .layout(QueueLayout::Curator);
    within(queue.offer(b"a")).await.unwrap();
    plant(&stage, "queue-", &envelope(&[b"b", b"", b"c"])).await;
    plant(&stage, "queue-", &envelope(&[])).await;
    within(queue.offer(b"d")).await.unwrap();
    assert_eq!(drained(&queue).await, ["a", "b", "", "c", "d"]);
    assert!(stage.names().await.is_empty());
}

/// Has a consumer take the first item of an envelope of `before` while that becomes one of `now`:
/// what it is handed, and what is left.
async fn overtaken(before: &[&[u8]], now: &[&[u8]]) -> (String, Vec<String>) {
    let stage = Stage::new("overtaken").await;
    let admin = stage.occupied().await;
    let (client, proxy) = stage.proxied(LONG).await;
    let node = plant(&stage, "queue-", &envelope(before)).await;
    let queue = |client: &Client| {
        let queue = DistributedQueue::new(client, &stage.path).unwrap();
        queue.layout(QueueLayout::Curator)
    };
    let taking = proxy.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let slow = queue(&client);
    let slow = tokio::spawn(async move { slow.take().await.unwrap() });
    within(taking.fired()).await;
    within(admin.set_data(&node, &envelope(now), None))
        .await
        .unwrap();
    taking.release();
    let item = within(slow).await.unwrap();
    let item = String::from_utf8(item.to_vec()).unwrap();
    (item, drained(&queue(&stage.client().await)).await)
}

#[tokio::test]
async fn h70_what_others_have_taken_of_an_envelope_meanwhile_is_taken_once() {
    let rest = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect();
    // Another consumer has taken the first.
    let expected = ("b".to_owned(), rest(&["c"]));
    assert_eq!(
        overtaken(&[b"a", b"b", b"c"], &[b"b", b"c"]).await,
        expected
    );
    // And the last one of an envelope is not deleted along with what has come behind it.
    let expected = ("a".to_owned(), rest(&["b"]));
    assert_eq!(overtaken(&[b"a"], &[b"a", b"b"]).await, expected);
}

#[tokio::test]
async fn h72_what_cannot_be_read_is_passed_over_reported_and_left_in_place() {
    let stage = Stage::new("h72").await;
    let client = stage.client().await;
    let queue = DistributedQueue::new(&client, &stage.path)
        .unwrap()
        .layout(QueueLayout::Curator);
    within(queue.offer(b"a")).await.unwrap();
    let bad = plant(&stage, "queue-", b"not an envelope").await;
    within(queue.offer(b"b")).await.unwrap();
    assert_eq!(within(queue.take()).await.unwrap(), "a");
    assert_eq!(within(queue.peek()).await.unwrap().unwrap(), "b");
    assert_eq!(within(queue.poll()).await.unwrap().unwrap(), "b");
    for outcome in [within(queue.poll()).await, within(queue.peek()).await] {
        match outcome {
            Err(QueueError::Undecodable { node, .. }) => assert_eq!(node, bad),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stage.names().await.len(), 1);
    // Who waits, waits for what can be read.
    let waiting = tokio::spawn(async move { queue.take().await });
    let other = DistributedQueue::new(&client, &stage.path)
        .unwrap()
        .layout(QueueLayout::Curator);
    within(other.offer(b"c")).await.unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap(), "c");
    assert_eq!(
        data_of(&stage, bad.rsplit('/').next().unwrap()).await,
        b"not an envelope"
    );
}

#[tokio::test]
async fn the_most_urgent_comes_first_in_both_layouts() {
    for (layout, stem) in [
        (QueueLayout::Curator, "queue-100000003"),
        (QueueLayout::Kazoo, "entry-003-"),
    ] {
        let stage = Stage::new("urgent").await;
        let client = stage.client().await;
        let queue = PriorityQueue::new(&client, &stage.path)
            .unwrap()
            .layout(layout);
        for (item, priority) in [("c", 7), ("a", 2), ("d", 7), ("e", 300)] {
            within(queue.offer(item.as_bytes(), priority))
                .await
                .unwrap();
        }
        let data = match layout {
            QueueLayout::Curator => envelope(&[b"b"]),
            _ => b"b".to_vec(),
        };
        plant(&stage, stem, &data).await;
        assert_eq!(within(queue.peek()).await.unwrap().unwrap(), "a");
        assert_eq!(within(queue.take()).await.unwrap(), "a");
        assert_eq!(within(queue.take()).await.unwrap(), "b");
        assert_eq!(within(queue.take()).await.unwrap(), "c");
        // What comes later and is more urgent does not wait behind what was listed before.
        within(queue.offer(b"now", 0)).await.unwrap();
        assert_eq!(within(queue.poll()).await.unwrap().unwrap(), "now");
        assert_eq!(within(queue.take()).await.unwrap(), "d");
        assert_eq!(within(queue.depth()).await.unwrap(), 1);
        assert_eq!(within(queue.names()).await.unwrap().len(), 1);
        assert_eq!(within(queue.take()).await.unwrap(), "e");
        assert_eq!(within(queue.poll()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn negative_priorities_come_before_zero() {
    let stage = Stage::new("negative").await;
    let client = stage.client().await;
    let queue = PriorityQueue::new(&client, &stage.path).unwrap();
    for priority in [i32::MAX, 0, -1, i32::MIN, 1] {
        within(queue.offer(priority.to_string().as_bytes(), priority))
            .await
            .unwrap();
    }
    for priority in [i32::MIN, -1, 0, 1, i32::MAX] {
        assert_eq!(within(queue.take()).await.unwrap(), priority.to_string());
    }
}

#[tokio::test]
async fn h76_a_delayed_item_waits_for_the_servers_time() {
    let stage = Stage::new("delay").await;
    let client = stage.client().await;
    let queue = DelayQueue::new(&client, &stage.path).unwrap();
    let soon = SystemTime::now() + Duration::from_secs(3600);
    within(queue.offer_at(b"far", soon)).await.unwrap();
    assert_eq!(within(queue.poll()).await.unwrap(), None);
    assert_eq!(within(queue.peek()).await.unwrap(), None);
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take().await }
    });
    // Put in while somebody waits for the later one.
    within(queue.offer(b"near", Duration::from_millis(120)))
        .await
        .unwrap();
    assert_eq!(within(waiting).await.unwrap().unwrap(), "near");
    // Without a time, and with one that is past: due at once, the older first.
    plant(&stage, "queue-|00000001|", &envelope(&[b"old"])).await;
    plant(&stage, "queue-", &envelope(&[b"bare"])).await;
    assert_eq!(within(queue.take()).await.unwrap(), "bare");
    assert_eq!(within(queue.take()).await.unwrap(), "old");
    assert_eq!(within(queue.depth()).await.unwrap(), 1);
    let name = within(queue.names()).await.unwrap().remove(0);
    let millis = soon
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    assert!(name.starts_with(&format!("queue-|{millis:X}|")), "{name}");
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    let refused = within(queue.offer_at(b"x", before)).await;
    assert!(matches!(refused, Err(QueueError::BadArgument { .. })));
}

#[tokio::test]
async fn items_are_found_and_removed_by_id() {
    let stage = Stage::new("ids").await;
    let client = stage.client().await;
    let queue = IdQueue::new(&client, &stage.path).unwrap();
    for (item, id) in [("1", "b"), ("2", "a/x"), ("3", "b"), ("4", "bb")] {
        within(queue.offer(item.as_bytes(), id)).await.unwrap();
    }
    assert_eq!(
        within(queue.names()).await.unwrap()[1],
        "queue-|a_x|0000000001"
    );
    assert!(within(queue.contains("a/x")).await.unwrap());
    assert_eq!(within(queue.remove("b")).await.unwrap(), 2);
    assert_eq!(within(queue.remove("b")).await.unwrap(), 0);
    let head = within(queue.peek()).await.unwrap().unwrap();
    assert_eq!((&*head.id, &head.data[..]), ("a_x", &b"2"[..]));
    assert_eq!(within(queue.take()).await.unwrap(), head);
    assert_eq!(within(queue.poll()).await.unwrap().unwrap().id, "bb");
    assert_eq!(within(queue.poll()).await.unwrap(), None);
}

#[tokio::test]
async fn bad_input_is_refused_and_leaves_nothing() {
    let stage = Stage::new("bad").await;
    let client = stage.client().await;
    let path = &*stage.path;
    for bad in ["", "/", "jobs", "/a//b", "/a/"] {
        let refused = DistributedQueue::new(&client, bad);
        assert!(matches!(refused, Err(QueueError::BadPath { .. })), "{bad}");
    }
    let refused = PriorityQueue::new(&client, path)
        .unwrap()
        .layout(QueueLayout::Recipes);
    let refused = within(refused.offer(b"x", 1)).await;
    assert!(matches!(refused, Err(QueueError::BadArgument { .. })));
    let kazoo = PriorityQueue::new(&client, path)
        .unwrap()
        .layout(QueueLayout::Kazoo);
    for priority in [-1, 1000] {
        let refused = within(kazoo.offer(b"x", priority)).await;
        assert!(matches!(refused, Err(QueueError::BadArgument { .. })));
    }
    let ids = IdQueue::new(&client, path).unwrap();
    for id in ["", "a\0b", "a\u{1}"] {
        let refused = within(ids.offer(b"x", id)).await;
        assert!(
            matches!(refused, Err(QueueError::BadArgument { .. })),
            "{id:?}"
        );
    }
    let observer = session(&client).await;
    assert!(observer.exists(path).await.unwrap().is_none());
}

#[tokio::test]
async fn h68_h73_what_cannot_be_put_is_reported_and_none_of_it_is_there() {
    let stage = Stage::new("h73").await;
    let client = stage.client().await;
    let queue = DistributedQueue::new(&client, &stage.path).unwrap();
    within(queue.offer(b"first")).await.unwrap();
    let large = vec![7; 2 << 20];
    let error = within(queue.offer(&large)).await.unwrap_err();
    assert!(matches!(error, QueueError::Client { .. }), "{error}");
    assert!(
        error.to_string().contains("store less in one node"),
        "{error}"
    );
    let error = within(queue.offer_all([&b"second"[..], &large]))
        .await
        .unwrap_err();
    assert!(matches!(error, QueueError::Client { .. }), "{error}");
    // One that a server refuses: a node that can have no children has the queue's path.
    let blocked = format!("{}/blocked", stage.path);
    let observer = session(&client).await;
    observer
        .create(&blocked, b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let refusing = DistributedQueue::new(&client, &blocked).unwrap();
    let error = within(refusing.offer_all(["a", "b"])).await.unwrap_err();
    assert!(matches!(error, QueueError::Client { .. }), "{error}");
    assert_eq!(drained(&queue).await, ["first"]);
}

#[tokio::test]
async fn h65_h66_a_lost_answer_in_any_layout_neither_loses_nor_doubles() {
    let mut cases = tokio::task::JoinSet::new();
    for variant in CUTS {
        // Of the offer; of taking all of a node; of taking a part of one.
        for nth in [1, 2, 4] {
            cases.spawn(one_lost_answer(variant, nth));
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn one_lost_answer(variant: Variant, nth: u64) {
    let stage = Stage::new("layouts").await;
    let (client, proxy) = stage.proxied(ROOMY).await;
    let queue = DistributedQueue::new(&client, &stage.path)
        .unwrap()
        .layout(QueueLayout::Curator);
    let fault = Match::reply(OpCode::Multi).nth(nth);
    let cut = proxy.on(fault).then(Action::Cut(variant));
    within(queue.offer_all(["a", "b"])).await.unwrap();
    plant(&stage, "queue-", &envelope(&[b"c", b"d"])).await;
    assert_eq!(
        drained(&queue).await,
        ["a", "b", "c", "d"],
        "{variant:?} {nth}"
    );
    assert_eq!(cut.times(), 1);
    assert!(stage.names().await.is_empty());
}

#[tokio::test]
async fn a_change_of_an_id_whose_outcome_cannot_be_found_is_reported() {
    let stage = Stage::new("unknown").await;
    let (client, proxy) = stage.proxied(crate::common::SHORT).await;
    let queue = IdQueue::new(&client, &stage.path).unwrap();
    within(queue.offer(b"x", "id")).await.unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let removing = tokio::spawn(async move { queue.remove("id").await });
    within(cut.fired()).await;
    proxy.partition();
    let error = within(removing).await.unwrap().unwrap_err();
    assert!(matches!(error, QueueError::Unknown { .. }), "{error}");
}

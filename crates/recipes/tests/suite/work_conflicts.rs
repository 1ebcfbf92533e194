//! The work queue when another program changes a node between a read of it and the transaction that
//! rests on that read: the transaction is refused, and what the other program has written stays.

use std::time::Duration;

use baton::WorkQueue;
use baton::tree::CreateMode;
use baton::work_queue::{WorkError, WorkItem};
use baton_client::{OpCode, Session};
use baton_testkit::{Action, Match, Proxy, Variant};

use crate::common::work::queue;
use crate::common::{LONG, Stage, session, within};

/// Holds back the first transaction of `work`, whose client is behind the proxy, until `meanwhile`
/// is done.
async fn overtaken<F>(proxy: &Proxy, work: F, meanwhile: impl Future<Output = ()>) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    overtaken_at(Match::request(OpCode::Multi), proxy, work, meanwhile).await
}

/// The same of another request.
async fn overtaken_at<F>(
    request: Match,
    proxy: &Proxy,
    work: F,
    meanwhile: impl Future<Output = ()>,
) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    let request = proxy.on(request).then(Action::Hold);
    let working = tokio::spawn(work);
    within(request.fired()).await;
    within(meanwhile).await;
    request.release();
    within(working).await.unwrap()
}

async fn data(session: &Session, path: &str) -> String {
    let read = within(session.get_data(path)).await.unwrap();
    String::from_utf8(read.data.to_vec()).unwrap()
}

async fn write(session: &Session, path: &str, data: &str) {
    within(session.set_data(path, data.as_bytes(), None))
        .await
        .unwrap();
}

/// Puts an item with an id and moves it to the dead letters: its name there.
async fn dead_letter(queue: &WorkQueue, id: &str) -> String {
    within(queue.offer(WorkItem::new("spoilt").id(id)))
        .await
        .unwrap();
    let claim = within(queue.take()).await.unwrap();
    within(claim.dead_letter("no good")).await.unwrap();
    within(queue.oldest_dead_letters(1))
        .await
        .unwrap()
        .remove(0)
        .name
}

#[tokio::test]
async fn h67_an_extension_does_not_overwrite_what_somebody_wrote_to_the_item() {
    let stage = Stage::new("extend").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path).visibility(Duration::from_secs(60));
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    let admin = session(&stage.client().await).await;
    write(&admin, claim.item(), "a note").await;
    let extended = within(claim.extend()).await;
    assert!(
        matches!(extended, Err(WorkError::ClaimLost { .. })),
        "{extended:?}"
    );
    assert_eq!(data(&admin, claim.item()).await, "a note");
}

#[tokio::test]
async fn h68_no_end_of_a_claim_overwrites_what_somebody_wrote_to_the_item() {
    let stage = Stage::new("settle").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    let admin = session(&stage.client().await).await;
    for end in ["ack", "release", "nack", "nack later", "dead-letter"] {
        within(queue.offer("x")).await.unwrap();
        let claim = within(queue.take()).await.unwrap();
        let item = claim.item().to_owned();
        let noted = data(&admin, &item).await;
        write(&admin, &item, &noted).await;
        let settled = within(async {
            match end {
                "ack" => claim.ack().await,
                "release" => claim.release().await,
                "nack" => claim.nack_after(Duration::ZERO, "no").await,
                "nack later" => claim.nack_after(Duration::from_secs(1), "no").await,
                _ => claim.dead_letter("no").await,
            }
        })
        .await;
        assert!(
            matches!(settled, Err(WorkError::Changed { .. })),
            "{end}: {settled:?}"
        );
        assert_eq!(data(&admin, &item).await, noted, "{end}");
        within(within(queue.take()).await.unwrap().ack())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_purge_leaves_an_item_that_was_claimed_and_given_back_since_it_was_read() {
    let stage = Stage::new("purge").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let purging = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    within(other.offer("x")).await.unwrap();
    let purged = overtaken(&proxy, async move { purging.purge().await }, async {
        other.take().await.unwrap().release().await.unwrap();
    })
    .await
    .unwrap();
    assert_eq!((purged.removed, purged.left), (0, 1));
    assert_eq!(within(other.depth()).await.unwrap().unwrap().items, 1);
}

#[tokio::test]
async fn a_dead_letter_that_is_mended_while_it_is_put_back_comes_back_mended() {
    let stage = Stage::new("replay").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let replaying = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    let name = dead_letter(&other, "a").await;
    let letter = format!("{}/dead/{name}", stage.path);
    let replayed = overtaken(
        &proxy,
        async move { replaying.replay(&name).await },
        async {
            let mended = data(&admin, &letter).await.replace("spoilt", "mended");
            write(&admin, &letter, &mended).await;
        },
    )
    .await;
    assert_eq!(replayed, Ok(()));
    let claim = within(other.take()).await.unwrap();
    assert_eq!((claim.id(), &claim.payload()[..]), ("a", &b"mended"[..]));
}

#[tokio::test]
async fn a_dead_letter_that_is_changed_while_it_is_discarded_frees_the_id_that_it_has_now() {
    let stage = Stage::new("discard").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let discarding = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    let name = dead_letter(&other, "old").await;
    let letter = format!("{}/dead/{name}", stage.path);
    let discarded = overtaken(
        &proxy,
        async move { discarding.discard(&name).await },
        async {
            let id = format!("{}/ids/new", stage.path);
            admin
                .create(&id, b"", CreateMode::Persistent)
                .await
                .unwrap();
            let renamed = data(&admin, &letter).await.replace("\"old\"", "\"new\"");
            write(&admin, &letter, &renamed).await;
        },
    )
    .await;
    assert_eq!(discarded, Ok(()));
    within(other.offer(WorkItem::new("x").id("new")))
        .await
        .unwrap();
}

#[tokio::test]
async fn h71_an_item_without_attempts_left_dies_with_what_was_noted_in_it_last() {
    let stage = Stage::new("dead-letter").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let hasty = queue(&client, &stage.path).max_attempts(1);
    let patient = queue(&stage.client().await, &stage.path).max_attempts(9);
    within(patient.offer("x")).await.unwrap();
    let fail = async |why| {
        let claim = patient.take().await.unwrap();
        claim.nack_after(Duration::ZERO, why).await.unwrap();
    };
    within(fail("first")).await;
    let polled = overtaken(&proxy, async move { hasty.poll().await }, fail("second")).await;
    assert!(polled.unwrap().is_none());
    let dead = within(patient.dead_letters()).await.unwrap().remove(0);
    assert_eq!((dead.attempts, dead.reason.as_str()), (2, "second"));
}

#[tokio::test]
async fn a_capacity_that_is_agreed_while_an_item_is_put_or_put_back_holds_for_it() {
    let stage = Stage::new("capacity").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let other = stage.client().await;
    for call in ["offer", "replay"] {
        let path = format!("{}/{call}", stage.path);
        let (changing, others) = (queue(&client, &path), queue(&other, &path));
        let name = dead_letter(&others, "a").await;
        within(others.offer("first")).await.unwrap();
        let full = overtaken(
            &proxy,
            async move {
                match call {
                    "offer" => changing.offer("second").await.map(drop),
                    _ => changing.replay(&name).await,
                }
            },
            async { others.set_capacity(Some(1)).await.unwrap() },
        )
        .await;
        assert!(
            matches!(full, Err(WorkError::Full { capacity: 1, .. })),
            "{call}: {full:?}"
        );
        let depth = within(others.depth()).await.unwrap().unwrap();
        assert_eq!((depth.items, depth.dead), (1, 1), "{call}");
    }
}

#[tokio::test]
async fn a_repair_does_not_undo_a_change_of_the_capacity() {
    let stage = Stage::new("repair").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let repairing = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    within(other.offer("x")).await.unwrap();
    let ids = format!("{}/ids", stage.path);
    within(admin.delete(&ids, None)).await.unwrap();
    let repaired = overtaken(&proxy, async move { repairing.repair().await }, async {
        other.set_capacity(Some(5)).await.unwrap();
    })
    .await;
    assert_eq!(repaired.unwrap(), [ids]);
    let depth = within(other.depth()).await.unwrap().unwrap();
    assert_eq!(depth.capacity, Some(5));
}

#[tokio::test]
async fn a_node_that_gets_the_data_of_another_program_is_not_made_a_queue() {
    let stage = Stage::new("foreign").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let admin = stage.occupied().await;
    // Before there is a queue, and when its capacity is to change.
    for call in ["offer", "set_capacity"] {
        let queue = queue(&client, &stage.path);
        let made = queue.clone();
        let refused = overtaken(
            &proxy,
            async move {
                match call {
                    "offer" => queue.offer("x").await.map(drop),
                    _ => queue.set_capacity(Some(5)).await,
                }
            },
            async { write(&admin, &stage.path, "another program's").await },
        )
        .await;
        assert!(
            matches!(refused, Err(WorkError::NotAWorkQueue { .. })),
            "{call}: {refused:?}"
        );
        assert_eq!(data(&admin, &stage.path).await, "another program's");
        if call == "offer" {
            // Without data it is taken for the queue's node.
            write(&admin, &stage.path, "").await;
            within(made.offer("x")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn h70_an_item_that_another_claims_while_it_is_claimed_is_passed_over() {
    let stage = Stage::new("claim").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let consumer = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    within(other.offer_all(["a".into(), "b".into()]))
        .await
        .unwrap();
    let mut claimed = None;
    let taken = overtaken(&proxy, async move { consumer.take().await }, async {
        claimed = Some(other.take().await.unwrap());
    });
    assert_eq!(taken.await.unwrap().payload(), "b");
    let claim = claimed.unwrap();
    assert_eq!((&claim.payload()[..], claim.check()), (&b"a"[..], Ok(())));
}

#[tokio::test]
async fn an_item_that_another_has_failed_at_while_it_is_claimed_counts_that_attempt() {
    let stage = Stage::new("attempts").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let consumer = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    within(other.offer("x")).await.unwrap();
    let taken = overtaken(&proxy, async move { consumer.take().await }, async {
        let claim = other.take().await.unwrap();
        claim.nack_after(Duration::ZERO, "no").await.unwrap();
    });
    assert_eq!(taken.await.unwrap().attempt(), 2);
}

/// The create of the folder that an item is to be put off to.
fn lane() -> Match {
    Match::request(OpCode::Create2).path_contains("/items/t")
}

#[tokio::test]
async fn two_that_put_items_off_to_a_folder_that_both_have_to_make_succeed() {
    let stage = Stage::new("folder").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let queue_here = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    let hour = Duration::from_secs(3600);
    within(other.offer_all(["a".into(), "b".into()]))
        .await
        .unwrap();
    let claim = within(queue_here.take()).await.unwrap();
    let others = within(other.take()).await.unwrap();
    let settled = overtaken_at(
        lane(),
        &proxy,
        async move { claim.nack_after(hour, "no").await },
        async { others.nack_after(hour, "no").await.unwrap() },
    );
    assert_eq!(settled.await, Ok(()));
    // And so do two producers, in another hour.
    let put = overtaken_at(
        lane(),
        &proxy,
        async move { queue_here.offer(WorkItem::new("c").delay(2 * hour)).await },
        async {
            let put = other.offer(WorkItem::new("d").delay(2 * hour)).await;
            put.unwrap();
        },
    );
    put.await.unwrap();
    let depth = within(other.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.delayed), (4, 4));
}

#[tokio::test]
async fn an_item_is_put_off_though_the_answer_about_its_folder_is_lost() {
    for frame in [
        lane(),
        Match::reply(OpCode::Create2).path_contains("/items/t"),
    ] {
        let stage = Stage::new("folder-cut").await;
        let (client, proxy) = stage.proxied(LONG).await;
        let queue = queue(&client, &stage.path);
        within(queue.offer("a")).await.unwrap();
        let claim = within(queue.take()).await.unwrap();
        let cut = proxy.on(frame).then(Action::Cut(Variant::Rst));
        within(claim.nack_after(Duration::from_secs(3600), "no"))
            .await
            .unwrap();
        assert_eq!(cut.times(), 1);
        assert_eq!(within(queue.depth()).await.unwrap().unwrap().delayed, 1);
    }
}

#[tokio::test]
async fn h66_what_is_done_to_a_queue_by_hand_is_done_though_its_answer_is_lost() {
    for call in ["repair", "set_capacity", "replay", "discard"] {
        for frame in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new(call).await;
            let (client, proxy) = stage.proxied(LONG).await;
            let queue_here = queue(&client, &stage.path);
            let other = queue(&stage.client().await, &stage.path);
            let admin = session(&stage.client().await).await;
            let name = dead_letter(&other, "a").await;
            let gate = format!("{}/gate", stage.path);
            if call == "repair" {
                within(admin.delete(&gate, None)).await.unwrap();
            }
            let cut = proxy.on(frame).then(Action::Cut(Variant::Rst));
            match call {
                "repair" => drop(within(queue_here.repair()).await.unwrap()),
                "set_capacity" => within(queue_here.set_capacity(Some(9))).await.unwrap(),
                // The call that was cut off has done it, so the read after it finds nothing.
                "replay" => within(queue_here.replay(&name)).await.unwrap(),
                _ => within(queue_here.discard(&name)).await.unwrap(),
            }
            assert_eq!(cut.times(), 1, "{call}");
            assert!(within(admin.exists(&gate)).await.unwrap().is_some());
            let depth = within(other.depth()).await.unwrap().unwrap();
            let dead = u64::from(matches!(call, "repair" | "set_capacity"));
            let items = u64::from(call == "replay");
            assert_eq!((depth.items, depth.dead), (items, dead), "{call}");
            let capacity = (call == "set_capacity").then_some(9);
            assert_eq!(depth.capacity, capacity, "{call}");
            let free = within(other.offer(WorkItem::new("x").id("a"))).await;
            assert_eq!(free.is_ok(), call == "discard", "{call}: {free:?}");
        }
    }
}

#[tokio::test]
async fn an_item_that_is_given_back_before_a_waiting_consumer_watches_its_claim_is_taken() {
    let stage = Stage::new("given-back").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let waits = queue(&client, &stage.path);
    let other = queue(&stage.client().await, &stage.path);
    within(other.offer("x")).await.unwrap();
    let claim = within(other.take()).await.unwrap();
    let taken = overtaken_at(
        Match::request(OpCode::GetData).path_contains("/claim-"),
        &proxy,
        async move { waits.take().await },
        async { claim.release().await.unwrap() },
    );
    assert_eq!(within(taken).await.unwrap().payload(), "x");
}

//! Emptying a work queue by hand: what goes, what stays, and what is free again afterwards.

use std::time::Duration;

use baton::tree::CreateMode;
use baton::work_queue::{WorkError, WorkItem};
use baton_client::OpCode;
use baton_testkit::{Action, Match, Variant};

use crate::common::work::{drain, queue};
use crate::common::{LONG, Stage, hide, session, within};

#[tokio::test]
async fn a_purge_takes_all_that_nobody_has_claimed_and_frees_its_ids() {
    let stage = Stage::new("purge").await;
    let queue = queue(&stage.client().await, &stage.path).capacity(104);
    let admin = session(&stage.client().await).await;
    within(queue.offer(WorkItem::new("claimed").id("claimed").priority(0)))
        .await
        .unwrap();
    let claim = within(queue.take()).await.unwrap();
    within(queue.offer_all((0..100).map(|n| WorkItem::new("many").id(n.to_string()))))
        .await
        .unwrap();
    let later = WorkItem::new("later").delay(Duration::from_secs(3600));
    within(queue.offer(later)).await.unwrap();
    let lane = format!("{}/items/p500-", stage.path);
    let lane = within(admin.create(&lane, b"", CreateMode::PersistentSequential)).await;
    let foreign = format!("{}/i-0000000009", lane.unwrap().path);
    within(admin.create(&foreign, b"not of this form", CreateMode::Persistent))
        .await
        .unwrap();

    let purged = within(queue.purge()).await.unwrap();
    assert_eq!((purged.removed, purged.left), (102, 1));
    let depth = within(queue.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.delayed), (1, 0));
    let taken = within(queue.offer(WorkItem::new("x").id("claimed"))).await;
    assert!(
        matches!(taken, Err(WorkError::Duplicate { .. })),
        "{taken:?}"
    );
    within(claim.ack()).await.unwrap();
    // The ids are free, and so is the room.
    within(queue.offer_all((0..100).map(|n| WorkItem::new("again").id(n.to_string()))))
        .await
        .unwrap();
    assert_eq!(drain(&queue).await.len(), 100);
    let purged = within(queue.purge()).await.unwrap();
    assert_eq!((purged.removed, purged.left), (0, 0));
}

#[tokio::test]
async fn dead_letters_stay_until_they_are_purged_themselves() {
    let stage = Stage::new("dead").await;
    let queue = queue(&stage.client().await, &stage.path);
    for id in ["a", "b", "c"] {
        within(queue.offer(WorkItem::new("x").id(id)))
            .await
            .unwrap();
        let claim = within(queue.take()).await.unwrap();
        within(claim.dead_letter("no good")).await.unwrap();
    }
    within(queue.offer("item")).await.unwrap();
    let purged = within(queue.purge()).await.unwrap();
    assert_eq!((purged.removed, purged.left), (1, 0));
    assert_eq!(within(queue.dead_letters()).await.unwrap().len(), 3);
    let purged = within(queue.purge_dead()).await.unwrap();
    assert_eq!((purged.removed, purged.left), (3, 0));
    let depth = within(queue.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.dead), (0, 0));
    within(queue.offer(WorkItem::new("x").id("a")))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_purge_goes_on_after_a_lost_connection_and_makes_no_queue() {
    let stage = Stage::new("cut").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let queue = queue(&client, &stage.path);
    let purged = within(queue.purge()).await.unwrap();
    assert_eq!((purged.removed, purged.left), (0, 0));
    assert_eq!(within(queue.depth()).await.unwrap(), None);
    // Removals whose answers were lost, and removals that never arrived.
    for lost in [
        Match::reply(OpCode::Multi).nth(2),
        Match::request(OpCode::Multi).nth(2),
    ] {
        within(queue.offer_all(["a", "b", "c", "d"].map(WorkItem::new)))
            .await
            .unwrap();
        let _ = proxy.on(lost).then(Action::Cut(Variant::Rst));
        within(queue.purge()).await.unwrap();
        assert_eq!(within(queue.depth()).await.unwrap().unwrap().items, 0);
    }
}

#[tokio::test]
async fn an_item_that_may_not_be_read_holds_up_neither_consumers_nor_listings() {
    let stage = Stage::new("hidden").await;
    let queue = queue(&stage.client().await, &stage.path);
    let admin = session(&stage.client().await).await;
    for item in ["hidden", "plain"] {
        within(queue.offer(item)).await.unwrap();
    }
    let lane = format!("{}/items/p500-0000000000", stage.path);
    hide(&admin, &format!("{lane}/i-0000000000")).await;
    let claim = within(queue.take()).await.unwrap();
    assert_eq!(claim.payload(), "plain");
    let seen = within(queue.all_claims()).await.unwrap();
    assert_eq!(seen.claims.len(), 1);
    assert_eq!(seen.unreadable, [format!("{lane}/i-0000000000")]);
    assert_eq!(within(queue.depth()).await.unwrap().unwrap().items, 2);
    within(claim.dead_letter("dead")).await.unwrap();
    assert_eq!(within(queue.dead_letters()).await.unwrap().len(), 1);
    let dead = format!("{}/dead/d-0000000000", stage.path);
    hide(&admin, &dead).await;
    let letters = within(queue.dead_letters()).await.unwrap();
    assert!(letters[0].reason.contains("ACL"), "{letters:?}");
    let purged = within(queue.purge()).await.unwrap();
    assert_eq!((purged.removed, purged.left), (0, 1));
}

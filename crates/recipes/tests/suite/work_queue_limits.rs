//! The work queue at its limits: items as large as they may be, delays without end, foreign nodes
//! below items, and tasks of one process that ask while another waits.

use std::time::{Duration, Instant};

use baton::tree::CreateMode;
use baton::work_queue::{Settlement, WorkError};
use baton::{Client, LostReason, WorkQueue};
use baton_client::{Acl, Perms};
use baton_testkit::{Action, Match, Proxy};
use tokio::task::JoinHandle;

use crate::common::work::queue;
use crate::common::{LONG, Outage, SHORT, Stage, hide, polled, session, until_quiet, within};

/// Claims and acknowledges one item.
async fn done(queue: &WorkQueue) -> Vec<u8> {
    let claim = within(queue.take()).await.unwrap();
    let payload = claim.payload().to_vec();
    within(claim.ack()).await.unwrap();
    payload
}

/// A task that takes one item and acknowledges it, once it has nothing to do but wait. `of` has the
/// queue's client.
async fn waiting(queue: &WorkQueue, of: &(Client, Proxy)) -> JoinHandle<Vec<u8>> {
    let (client, proxy) = of;
    let of_task = queue.clone();
    let task = tokio::spawn(async move { done(&of_task).await });
    let admin = session(client).await;
    let line = format!("{}/waiters", queue.path());
    within(async {
        while admin
            .children(&line)
            .await
            .map_or(0, |line| line.names.len())
            == 0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // Behind what it asks the server as the first waiter.
    until_quiet(client, proxy).await;
    task
}

#[tokio::test]
async fn items_that_are_too_large_to_be_claimed_together_are_claimed_one_by_one() {
    let stage = Stage::new("together").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path).prefetch(4);
    for nth in 0..4 {
        within(queue.offer(vec![nth; 600_000])).await.unwrap();
    }
    for nth in 0..4 {
        assert_eq!(done(&queue).await, vec![nth; 600_000]);
    }
}

#[tokio::test]
async fn what_is_too_large_to_be_moved_is_left_in_place_and_blocks_nobody() {
    let stage = Stage::new("lump").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("before")).await.unwrap();
    let session = session(&client).await;
    let items = format!("{}/items", stage.path);
    let lane = within(session.children(&items)).await.unwrap().names[0].clone();
    // What another program may put there, but no dead letter can hold.
    let room = 1_048_575 - 120;
    let lump = within(session.create(
        &format!("{items}/{lane}/i-"),
        &vec![0xff; room],
        CreateMode::PersistentSequential,
    ))
    .await
    .unwrap();
    within(queue.offer("behind")).await.unwrap();
    assert_eq!(done(&queue).await, b"before");
    assert_eq!(done(&queue).await, b"behind");
    assert!(within(queue.poll()).await.unwrap().is_none());
    assert!(within(session.exists(&lump.path)).await.unwrap().is_some());
    // Made smaller, it moves.
    within(session.set_data(&lump.path, b"small", None))
        .await
        .unwrap();
    assert!(within(queue.poll()).await.unwrap().is_none());
    assert_eq!(within(queue.dead_letters()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_item_that_is_put_off_for_ever_is_still_an_item() {
    let stage = Stage::new("forever").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    within(claim.nack_after(Duration::MAX, "parked"))
        .await
        .unwrap();
    let depth = within(queue.depth()).await.unwrap().unwrap();
    assert_eq!((depth.items, depth.delayed), (1, 1));
}

#[tokio::test]
async fn a_try_and_a_giving_back_do_not_wait_for_a_task_that_waits_for_items() {
    let stage = Stage::new("beside").await;
    let of = stage.proxied(LONG).await;
    let queue = queue(&of.0, &stage.path);
    let waiter = waiting(&queue, &of).await;
    assert!(within(queue.poll()).await.unwrap().is_none());
    within(queue.give_back()).await.unwrap();
    within(queue.offer("x")).await.unwrap();
    assert_eq!(within(waiter).await.unwrap(), b"x");
}

#[tokio::test]
async fn what_a_dropped_try_has_claimed_goes_to_the_task_that_waits() {
    let stage = Stage::new("handed").await;
    let of = stage.proxied(LONG).await;
    let queue = queue(&of.0, &stage.path);
    for polls in 0..24 {
        let waiter = waiting(&queue, &of).await;
        within(queue.offer("x")).await.unwrap();
        match polled(queue.poll(), polls).await {
            Some(Ok(Some(claim))) => {
                within(claim.ack()).await.unwrap();
                waiter.abort();
                drop(waiter.await);
            }
            _ => assert_eq!(within(waiter).await.unwrap(), b"x", "{polls}"),
        }
    }
}

#[tokio::test]
async fn a_claim_is_known_to_be_ours_for_as_long_as_its_timeout_allows() {
    let stage = Stage::new("left").await;
    // Less than the lease.
    let timeout = Duration::from_secs(4);
    let queue = queue(&stage.client().await, &stage.path).visibility(timeout);
    within(queue.offer("x")).await.unwrap();
    let before = Instant::now();
    let claim = within(queue.take()).await.unwrap();
    let left = [claim.remaining(), claim.status().remaining()];
    // All of it, from the request on, but what servers' clocks may be too fast by.
    let at_least = (timeout - timeout / 100).saturating_sub(before.elapsed());
    assert!(left.iter().all(|left| *left >= at_least), "{left:?}");
    let before = Instant::now();
    within(claim.extend()).await.unwrap();
    let left = claim.remaining();
    let at_least = (timeout - timeout / 100).saturating_sub(before.elapsed());
    assert!(left >= at_least, "{left:?}");
}

/// The first is not sent; of the second nobody knows whether it was applied.
#[tokio::test]
async fn an_extension_that_has_no_answer_before_the_session_ends_says_that_the_claim_is_lost() {
    for outage in [Outage::Refusing, Outage::Silent] {
        let stage = Stage::new("extend-late").await;
        let (client, proxy) = stage.proxied(SHORT).await;
        let of_late = queue(&client, &stage.path).visibility(Duration::from_secs(60));
        within(of_late.offer("x")).await.unwrap();
        let claim = within(of_late.take()).await.unwrap();
        outage.begin(&client, &proxy).await;
        let late = within(claim.extend()).await;
        // By its own clock the lease may have ended before the session.
        let reasons = [LostReason::SessionLost, LostReason::LeaseEnded];
        assert!(
            matches!(&late, Err(WorkError::ClaimLost { reason, .. }) if reasons.contains(reason)),
            "{outage:?}: {late:?}"
        );
    }
}

#[tokio::test]
async fn an_extension_that_the_server_refuses_leaves_the_claim_as_it_is() {
    let stage = Stage::new("extend-refused").await;
    let queue = queue(&stage.client().await, &stage.path).visibility(Duration::from_secs(60));
    within(queue.offer("x")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    let admin = session(&stage.client().await).await;
    let read_only = Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone");
    within(admin.set_acl(claim.item(), &[read_only], None))
        .await
        .unwrap();
    let refused = within(claim.extend()).await;
    assert!(
        matches!(refused, Err(WorkError::Client { .. })),
        "{refused:?}"
    );
    assert_eq!(claim.check(), Ok(()));
}

/// Consumers of an item that has a foreign child, and no claim any more.
async fn beside_a_foreign_child(visibility: Option<Duration>) {
    let stage = Stage::new("child").await;
    let holder = stage.client().await;
    let mut of_holder = queue(&holder, &stage.path);
    if let Some(visibility) = visibility {
        of_holder = of_holder.visibility(visibility);
    }
    within(of_holder.offer("x")).await.unwrap();
    let claim = within(of_holder.take()).await.unwrap();
    let admin = session(&stage.client().await).await;
    let note = format!("{}/note", claim.item());
    within(admin.create(&note, b"", CreateMode::Persistent))
        .await
        .unwrap();
    let node = claim.node().to_owned();
    drop(claim);
    crate::common::until_none(&admin, &node).await;
    if let Some(visibility) = visibility {
        tokio::time::sleep(visibility).await;
    }
    let of = stage.proxied(LONG).await;
    let queue = queue(&of.0, &stage.path);
    // Which asks nothing, in the end.
    let waiter = waiting(&queue, &of).await;
    within(of_holder.offer("y")).await.unwrap();
    assert_eq!(within(waiter).await.unwrap(), b"y");
    // Without it, the item is one like any other.
    let waiter = waiting(&queue, &of).await;
    within(admin.delete(&note, None)).await.unwrap();
    assert_eq!(within(waiter).await.unwrap(), b"x");
}

#[tokio::test]
async fn h13_an_item_with_a_foreign_child_is_skipped_without_asking_again_and_again() {
    beside_a_foreign_child(None).await;
}

#[tokio::test]
async fn a_claim_that_may_not_be_read_does_not_keep_others_from_waiting() {
    let stage = Stage::new("hidden").await;
    let holds = queue(&stage.client().await, &stage.path);
    within(holds.offer("x")).await.unwrap();
    let claim = within(holds.take()).await.unwrap();
    let admin = session(&stage.client().await).await;
    hide(&admin, claim.node()).await;
    let of = stage.proxied(LONG).await;
    let queue = queue(&of.0, &stage.path);
    let waiter = waiting(&queue, &of).await;
    within(holds.offer("y")).await.unwrap();
    assert_eq!(within(waiter).await.unwrap(), b"y");
    // And its end is noticed.
    let waiter = waiting(&queue, &of).await;
    drop(claim);
    assert_eq!(within(waiter).await.unwrap(), b"x");
}

#[tokio::test]
async fn h13_an_item_with_a_foreign_child_and_a_claim_past_its_time_is_skipped_too() {
    beside_a_foreign_child(Some(Duration::from_millis(400))).await;
}

#[tokio::test]
async fn h13_an_item_with_a_foreign_child_cannot_be_settled_and_whoever_tries_receives_the_error() {
    let stage = Stage::new("settle").await;
    let client = stage.client().await;
    let keeper = queue(&client, &stage.path);
    within(keeper.offer("x")).await.unwrap();
    let claim = within(keeper.take()).await.unwrap();
    let (item, token) = (claim.item().to_owned(), claim.token());
    let note = format!("{item}/note");
    within(
        session(&client)
            .await
            .create(&note, b"", CreateMode::Persistent),
    )
    .await
    .unwrap();
    let settled = within(queue(&client, &stage.path).settle(&item, token, Settlement::Ack)).await;
    assert!(
        matches!(settled, Err(WorkError::Changed { .. })),
        "{settled:?}"
    );
    let settled = within(claim.ack()).await;
    assert!(
        matches!(settled, Err(WorkError::Changed { .. })),
        "{settled:?}"
    );
}

/// Has a put of `racer` stop at this frame, another producer put meanwhile, and sees to it that one
/// of them has found the queue full; `false` if there is no such frame.
async fn raced_at(stage: &Stage, racer: &(Client, Proxy), other: &Client, frame: Match) -> bool {
    let path = format!("{}-{}", stage.path, uuid::Uuid::new_v4().simple());
    let others = queue(other, &path).capacity(2);
    // There is room for one item, and the capacity counter does not know it.
    within(others.offer_all(["a".into(), "b".into()]))
        .await
        .unwrap();
    done(&others).await;
    let (client, proxy) = racer;
    let at = proxy.on(frame).then(Action::Hold);
    let racing = queue(client, &path).capacity(2);
    let mut putting = tokio::spawn(async move { racing.offer("c").await });
    let met = within(async {
        tokio::select! {
            biased;
            _ = at.fired() => true,
            put = &mut putting => {
                put.unwrap().unwrap();
                false
            }
        }
    })
    .await;
    if met {
        let put = within(queue(other, &path).capacity(2).offer("d")).await;
        at.release();
        let raced = within(putting).await.unwrap();
        let (full, fits) = match (put, raced) {
            (Err(full), Ok(_)) => (full, b"c"),
            (Ok(_), Err(full)) => (full, b"d"),
            both => panic!("{both:?}"),
        };
        assert!(matches!(full, WorkError::Full { .. }), "{full}");
        let items = [done(&others).await, done(&others).await];
        assert_eq!(items, [b"b", fits]);
    }
    at.remove();
    met
}

#[tokio::test]
async fn a_put_that_races_with_another_for_the_last_free_slot_never_overfills_the_queue() {
    let stage = Stage::new("last-place").await;
    let racer = stage.proxied(LONG).await;
    let other = stage.client().await;
    for frames in [Match::any_request, Match::any_reply] {
        let mut nth = 1;
        while raced_at(&stage, &racer, &other, frames().nth(nth)).await {
            nth += 1;
        }
        assert!(nth > 3, "some frames were met: {nth}");
    }
}

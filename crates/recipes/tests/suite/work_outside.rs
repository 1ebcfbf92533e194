//! Claims of a work queue that another process settles, by their tokens.

use std::time::Duration;

use baton::work_queue::{Claim, SettledState, Settlement, WorkError, WorkItem};
use baton::{Client, LostReason, WorkQueue};
use baton_client::OpCode;
use baton_testkit::{Action, Match, Variant, inspect};

use crate::common::work::queue;
use crate::common::{CUTS, LONG, SHORT, Stage, session, within};

const ROOMY: Duration = Duration::from_secs(2);

fn keeper(client: &Client, path: &str) -> WorkQueue {
    queue(client, path).settled_elsewhere()
}

fn nack(delay: Option<Duration>) -> Settlement {
    Settlement::Nack {
        delay,
        reason: "no luck".to_owned(),
    }
}

async fn settle(
    queue: &WorkQueue,
    claim: &Claim,
    how: Settlement,
) -> Result<SettledState, WorkError> {
    within(queue.settle(claim.item(), claim.token(), how)).await
}

/// Waits until no settlement is kept for anybody.
async fn until_no_settlements(stage: &Stage) {
    within(async {
        let folder = format!("{}/verdicts", stage.path);
        while !inspect::children(stage.addr, &folder)
            .await
            .unwrap()
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn h67_another_process_settles_a_claim_by_its_token_and_the_keeper_is_notified_how() {
    let stage = Stage::new("outside").await;
    let keeper = keeper(&stage.client().await, &stage.path).max_attempts(3);
    let other = queue(&stage.client().await, &stage.path).max_attempts(3);
    within(other.offer(WorkItem::new("x").id("x")))
        .await
        .unwrap();

    let mut claim = within(keeper.take()).await.unwrap();
    let info = within(other.claims_of(claim.token())).await.unwrap();
    assert_eq!((info.len(), info[0].item.as_str()), (1, claim.item()));
    assert_eq!(
        settle(&other, &claim, Settlement::Release).await,
        Ok(SettledState::Released)
    );
    assert_eq!(within(claim.settled()).await, Ok(SettledState::Released));

    claim = within(keeper.take()).await.unwrap();
    assert_eq!(claim.attempt(), 1, "it did not count");
    let soon = nack(Some(Duration::from_millis(1)));
    assert_eq!(
        settle(&other, &claim, soon.clone()).await,
        Ok(SettledState::Nacked)
    );
    assert_eq!(within(claim.settled()).await, Ok(SettledState::Nacked));

    claim = within(keeper.take()).await.unwrap();
    assert_eq!(claim.attempt(), 2);
    let at_once = nack(Some(Duration::ZERO));
    assert_eq!(
        settle(&other, &claim, at_once).await,
        Ok(SettledState::Nacked)
    );
    claim = within(keeper.take()).await.unwrap();
    assert_eq!(claim.attempt(), 3);
    assert_eq!(
        settle(&other, &claim, soon).await,
        Ok(SettledState::DeadLettered),
        "its last attempt"
    );
    assert_eq!(
        within(claim.settled()).await,
        Ok(SettledState::DeadLettered)
    );
    let dead = within(other.dead_letters()).await.unwrap();
    assert_eq!((dead.len(), dead[0].reason.as_str()), (1, "no luck"));
    within(other.replay(&dead[0].name)).await.unwrap();

    claim = within(keeper.take()).await.unwrap();
    let dead_letter = Settlement::DeadLetter {
        reason: "never".to_owned(),
    };
    assert_eq!(
        settle(&other, &claim, dead_letter).await,
        Ok(SettledState::DeadLettered)
    );
    let dead = within(other.dead_letters()).await.unwrap();
    within(other.replay(&dead[0].name)).await.unwrap();

    claim = within(keeper.take()).await.unwrap();
    assert_eq!(
        settle(&other, &claim, Settlement::Ack).await,
        Ok(SettledState::Acked)
    );
    assert_eq!(within(claim.settled()).await, Ok(SettledState::Acked));
    assert_eq!(claim.check(), Err(LostReason::NodeGone));
    // Gone with its id, and settled for good.
    within(other.offer(WorkItem::new("y").id("x")))
        .await
        .unwrap();
    let error = settle(&other, &claim, Settlement::Release)
        .await
        .unwrap_err();
    assert!(matches!(error, WorkError::NotClaimed { .. }), "{error}");
    assert!(matches!(
        within(claim.ack()).await,
        Err(WorkError::ClaimLost { .. })
    ));
    until_no_settlements(&stage).await;
}

#[tokio::test]
async fn what_is_no_claim_of_this_queue_is_not_settled() {
    let stage = Stage::new("no-claim").await;
    let client = stage.client().await;
    let queue = queue(&client, &stage.path);
    assert!(within(queue.claims_of(7)).await.unwrap().is_empty());
    within(queue.offer_all([WorkItem::new("a"), WorkItem::new("b")]))
        .await
        .unwrap();
    let claim = within(queue.take()).await.unwrap();
    let foreign = [
        (claim.item().to_owned(), claim.token() + 1),
        (claim.item().to_owned(), u64::MAX),
        (
            claim.item().replace("-0000000000/i-", "-0000000001/i-"),
            claim.token(),
        ),
        (format!("{}/ids", stage.path), claim.token()),
        (claim.node().to_owned(), claim.token()),
        (String::new(), claim.token()),
        ("/".to_owned(), claim.token()),
    ];
    for (item, token) in foreign {
        let error = within(queue.settle(&item, token, Settlement::Ack))
            .await
            .unwrap_err();
        assert!(
            matches!(error, WorkError::NotClaimed { .. }),
            "{item}: {error}"
        );
    }
    // A claim whose handle asked for no word is settled all the same.
    assert_eq!(
        settle(&queue, &claim, Settlement::Ack).await,
        Ok(SettledState::Acked)
    );
    assert_eq!(within(claim.settled()).await, Err(LostReason::NodeGone));
    // Claimed in one change, they share the token, and are settled one by one.
    within(queue.offer("c")).await.unwrap();
    let fresh = WorkQueue::new(&client, &stage.path).unwrap();
    let two = within(fresh.take_many(2)).await.unwrap();
    assert_eq!(two.len(), 2);
    assert_eq!(
        within(queue.claims_of(two[0].token())).await.unwrap().len(),
        2
    );
    assert_eq!(
        settle(&queue, &two[1], Settlement::Ack).await,
        Ok(SettledState::Acked)
    );
    assert_eq!(two[0].check(), Ok(()));
    let left = within(queue.claims_of(two[0].token())).await.unwrap();
    assert_eq!((left.len(), left[0].item.as_str()), (1, two[0].item()));
}

#[tokio::test]
async fn h67_a_settlement_that_comes_when_another_has_the_item_changes_nothing() {
    let stage = Stage::new("outside-late").await;
    let (first, cut_off) = stage.proxied(SHORT).await;
    let (settler, slow) = stage.proxied(LONG).await;
    let other = keeper(&stage.client().await, &stage.path);
    within(other.offer("x")).await.unwrap();
    let late = within(keeper(&first, &stage.path).take()).await.unwrap();
    let (item, token) = (late.item().to_owned(), late.token());
    let multi = slow.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let settling = {
        let queue = queue(&settler, &stage.path);
        let item = item.clone();
        tokio::spawn(async move { queue.settle(&item, token, Settlement::Ack).await })
    };
    // It has read the claim, which was there.
    within(multi.fired()).await;
    cut_off.partition();
    let again = within(other.take()).await.unwrap();
    assert_eq!((again.item(), again.attempt()), (item.as_str(), 2));
    multi.release();
    let error = within(settling).await.unwrap().unwrap_err();
    assert!(matches!(error, WorkError::NotClaimed { .. }), "{error}");
    assert_eq!(again.check(), Ok(()));
    assert!(within(late.settled()).await.is_err());
    // Nor does the old token settle the new claim.
    let error = within(other.settle(&item, token, Settlement::Ack))
        .await
        .unwrap_err();
    assert!(matches!(error, WorkError::NotClaimed { .. }), "{error}");
    within(again.ack()).await.unwrap();
}

#[tokio::test]
async fn h67_an_extension_between_read_and_settlement_does_not_spoil_it() {
    let stage = Stage::new("outside-extend").await;
    let (settler, slow) = stage.proxied(LONG).await;
    let keeper = keeper(&stage.client().await, &stage.path).visibility(Duration::from_secs(20));
    within(keeper.offer("x")).await.unwrap();
    let claim = within(keeper.take()).await.unwrap();
    let multi = slow.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let (queue, item, token) = (
        queue(&settler, &stage.path),
        claim.item().to_owned(),
        claim.token(),
    );
    let settling = tokio::spawn(async move { queue.settle(&item, token, Settlement::Ack).await });
    within(multi.fired()).await;
    within(claim.extend()).await.unwrap();
    multi.release();
    assert_eq!(within(settling).await.unwrap(), Ok(SettledState::Acked));
    assert_eq!(within(claim.settled()).await, Ok(SettledState::Acked));
}

#[tokio::test]
async fn h68_a_settlement_whose_answer_is_lost_is_resolved_and_never_guessed() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("outside-cut").await;
            let (settler, proxy) = stage.proxied(ROOMY).await;
            let keeper = keeper(&stage.client().await, &stage.path);
            within(keeper.offer("x")).await.unwrap();
            let claim = within(keeper.take()).await.unwrap();
            let cut = proxy.on(message).then(Action::Cut(variant));
            let settled = settle(&queue(&settler, &stage.path), &claim, Settlement::Ack).await;
            assert_eq!(
                (settled, cut.times()),
                (Ok(SettledState::Acked), 1),
                "{variant:?}"
            );
            assert_eq!(within(claim.settled()).await, Ok(SettledState::Acked));
            assert_eq!(within(keeper.depth()).await.unwrap().unwrap().items, 0);
        }
    }
    let stage = Stage::new("outside-unknown").await;
    let (settler, proxy) = stage.proxied(SHORT).await;
    let keeper = keeper(&stage.client().await, &stage.path);
    within(keeper.offer("x")).await.unwrap();
    let claim = within(keeper.take()).await.unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let queue = queue(&settler, &stage.path);
    let settling = settle(&queue, &claim, Settlement::Ack);
    let cut_off = async {
        within(cut.fired()).await;
        proxy.partition();
    };
    let (settled, ()) = tokio::join!(settling, cut_off);
    let error = settled.unwrap_err();
    assert!(matches!(error, WorkError::SettleUnknown { .. }), "{error}");
    assert_eq!(
        within(claim.settled()).await,
        Ok(SettledState::Acked),
        "the keeper knows"
    );
}

#[tokio::test]
async fn h69_a_claim_for_others_that_is_found_out_or_given_up_leaves_no_node_beside_it() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("resolved").await;
            let (client, proxy) = stage.proxied(ROOMY).await;
            let other = queue(&stage.client().await, &stage.path);
            within(other.offer("x")).await.unwrap();
            let cut = proxy.on(message).then(Action::Cut(variant));
            let claim = within(keeper(&client, &stage.path).take()).await.unwrap();
            assert_eq!((cut.times(), claim.attempt()), (1, 1), "{variant:?}");
            assert_eq!(
                settle(&other, &claim, Settlement::Ack).await,
                Ok(SettledState::Acked)
            );
            assert_eq!(within(claim.settled()).await, Ok(SettledState::Acked));
            drop(claim);
            until_no_settlements(&stage).await;
        }
    }
    // Where somebody deleted the claim before it could be read.
    let stage = Stage::new("resolved-gone").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let other = queue(&stage.client().await, &stage.path);
    within(other.offer("x")).await.unwrap();
    let lost = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let sync = proxy.on(Match::request(OpCode::Sync)).then(Action::Hold);
    let taking = {
        let keeper = keeper(&client, &stage.path);
        tokio::spawn(async move { keeper.take().await })
    };
    within(lost.fired()).await;
    within(sync.fired()).await;
    let admin = session(&stage.client().await).await;
    let info = within(other.claims()).await.unwrap().remove(0);
    for node in inspect::children(stage.addr, &info.item).await.unwrap() {
        within(admin.delete(&node.path, None)).await.unwrap();
    }
    sync.release();
    let claim = within(taking).await.unwrap().unwrap();
    assert_eq!(claim.attempt(), 2);
    within(claim.release()).await.unwrap();
    until_no_settlements(&stage).await;
}

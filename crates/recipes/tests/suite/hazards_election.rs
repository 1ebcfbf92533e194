//! The hazards of the election (`docs/internals/hazards.md` §3.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton::LostReason;
use baton::election::Stage as Step;
use baton::naming::Dialect;
use baton_client::{Acl, CreateMode, OpCode, Perms};
use baton_testkit::{Action, Match};

use crate::common::election::{election, until};
use crate::common::{CUTS, LONG, Stage, plant, polled, session, within};

#[tokio::test]
async fn h61_an_offer_for_leader_election_support_is_found_again_though_its_name_has_room_for_a_number_only()
 {
    for variant in CUTS {
        let stage = Stage::new("h61").await;
        let (client, proxy) = stage.proxied(Duration::from_secs(4)).await;
        proxy
            .on(Match::reply(OpCode::Create2).path_contains("n_"))
            .then(Action::Cut(variant));
        let candidate = election(&client, &stage.path).dialect(Dialect::ElectionSupport);
        let leadership = within(candidate.campaign()).await.unwrap();
        let offers = stage.children().await;
        assert_eq!(offers.len(), 1, "{variant:?}: {offers:?}");
        assert_eq!(offers[0].path, leadership.node());
    }
}

#[tokio::test]
async fn h59_a_leader_that_resigns_is_a_follower_in_memory_before_its_offer_is_deleted() {
    let stage = Stage::new("h59").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let candidate = election(&client, &stage.path);
    let leadership = within(candidate.campaign()).await.unwrap();
    let mut stages = candidate.stages();
    let deletion = proxy.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let lost = leadership.lost();
    let resigning = tokio::spawn(leadership.resign());
    within(deletion.fired()).await;
    assert_eq!(polled(lost, 1).await, Some(LostReason::Released));
    until(&mut stages, |s| matches!(s, Step::StopStart)).await;
    assert_eq!(stage.children().await.len(), 1, "the offer is still there");
    deletion.release();
    within(resigning).await.unwrap().unwrap();
    assert!(stage.children().await.is_empty());
}

#[tokio::test]
async fn a_term_that_somebody_else_writes_to_meanwhile_is_numbered_after_it() {
    let stage = Stage::new("term").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let admin = session(&stage.client().await).await;
    let candidate = election(&client, &stage.path);
    let first = within(candidate.campaign()).await.unwrap();
    let epoch = first.term().epoch;
    within(first.resign()).await.unwrap();
    let numbering = proxy.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let campaigning = tokio::spawn(async move { candidate.campaign().await.unwrap() });
    within(numbering.fired()).await;
    let node = format!("{}-__term__", stage.path);
    let said = within(admin.get_data(&node)).await.unwrap().data;
    within(admin.set_data(&node, &said, None)).await.unwrap();
    numbering.release();
    let second = within(campaigning).await.unwrap();
    assert_eq!(second.term().epoch, epoch + 1);
    let offers = stage.children().await;
    assert_eq!(offers.len(), 1, "{offers:?}");
    assert_eq!(offers[0].path, second.node());
}

#[tokio::test]
async fn h60_a_sibling_that_vanishes_fails_nobody_and_a_lost_offer_is_made_again() {
    let stage = Stage::new("h60").await;
    let admin = session(&stage.client().await).await;
    let leader = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    let bystander = format!("{}/_c_zz-latch-0000000777", stage.path);
    let candidate = election(&stage.client().await, &stage.path);
    let mut stages = candidate.stages();
    let campaign = tokio::spawn(async move { candidate.campaign().await });
    let seen = until(&mut stages, |s| matches!(s, Step::ReadyComplete { .. })).await;
    plant(&admin, &bystander).await;
    admin.delete(&bystander, None).await.unwrap();

    let Step::OfferComplete { node } = &seen[2] else {
        panic!("{seen:?}")
    };
    admin.delete(node, None).await.unwrap();
    let again = until(&mut stages, |s| matches!(s, Step::ReadyComplete { .. })).await;
    assert_eq!(again[0], Step::OfferStart, "{again:?}");
    within(leader.resign()).await.unwrap();
    let leadership = within(campaign).await.unwrap().unwrap();
    assert_ne!(leadership.node(), node);
}

#[tokio::test]
async fn h60_a_sibling_that_vanishes_while_all_of_them_are_read_fails_nobody() {
    let stage = Stage::new("h60").await;
    let admin = session(&stage.client().await).await;
    let leader = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    // With such a number the order does not follow from the names.
    let last = "latch-2147483647";
    let bystander = format!(
        "{}/_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-{last}",
        stage.path
    );
    plant(&admin, &bystander).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let read = proxy
        .on(Match::request(OpCode::GetData).path_contains(last))
        .then(Action::Hold);
    let candidate = election(&client, &stage.path);
    let campaign = tokio::spawn(async move { candidate.campaign().await });
    within(read.fired()).await;
    within(admin.delete(&bystander, None)).await.unwrap();
    read.release();
    within(leader.resign()).await.unwrap();
    let leadership = within(campaign).await.unwrap().unwrap();
    assert_eq!(leadership.check(), Ok(()));
}

#[tokio::test]
async fn h61_a_lost_reply_to_the_offer_leaves_no_orphan_that_could_be_elected() {
    for variant in CUTS {
        let stage = Stage::new("h61").await;
        let first = within(election(&stage.client().await, &stage.path).campaign())
            .await
            .unwrap();
        let (client, proxy) = stage.proxied(Duration::from_secs(4)).await;
        let cut = proxy
            .on(Match::reply(OpCode::Create2))
            .then(Action::Cut(variant));
        let candidate = election(&client, &stage.path);
        let campaign = tokio::spawn(async move { candidate.campaign().await });
        within(cut.fired()).await;
        within(first.resign()).await.unwrap();
        let leadership = within(campaign).await.unwrap().unwrap();
        let offers = stage.children().await;
        assert_eq!(offers.len(), 1, "{variant:?}: {offers:?}");
        assert_eq!(offers[0].path, leadership.node());
        within(leadership.resign()).await.unwrap();
        assert!(stage.children().await.is_empty());
    }
}

#[tokio::test]
async fn a_lost_answer_to_the_numbering_of_a_term_counts_it_once() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("numbering").await;
            let first = within(election(&stage.client().await, &stage.path).campaign()).await;
            within(first.unwrap().resign()).await.unwrap();
            let (client, proxy) = stage.proxied(Duration::from_secs(4)).await;
            proxy.on(message).then(Action::Cut(variant));
            let leadership = within(election(&client, &stage.path).campaign())
                .await
                .unwrap();
            assert_eq!(leadership.term().epoch, 2, "{variant:?}");
        }
    }
}

#[tokio::test]
async fn h62_after_a_term_the_rejoin_delay_lets_others_go_first() {
    let stage = Stage::new("rejoin").await;
    let client = stage.client().await;
    let eager = election(&client, &stage.path).rejoin_delay(Duration::from_millis(500));
    within(within(eager.campaign()).await.unwrap().resign())
        .await
        .unwrap();
    let offered = Arc::new(AtomicBool::new(false));
    let mut stages = eager.stages();
    let rejoining = tokio::spawn({
        let offered = Arc::clone(&offered);
        async move {
            let leadership = eager.campaign().await.unwrap();
            offered.store(true, Ordering::Relaxed);
            leadership
        }
    });
    let other = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    assert!(!offered.load(Ordering::Relaxed));
    assert_eq!(other.term().epoch, 2);
    until(&mut stages, |s| matches!(s, Step::ReadyComplete { .. })).await;
    within(other.resign()).await.unwrap();
    assert_eq!(within(rejoining).await.unwrap().term().epoch, 3);
}

#[tokio::test]
async fn h57_an_offer_that_is_refused_fails_the_campaign_and_is_reported() {
    let stage = Stage::new("h57").await;
    let client = stage.client().await;
    let read_only = [Acl::new(Perms::READ, "world", "anyone")];
    let session = session(&client).await;
    let dir = session.create_with_acl(&stage.path, b"", CreateMode::Persistent, &read_only);
    within(dir).await.unwrap();
    let candidate = election(&client, &stage.path);
    let mut stages = candidate.stages();
    let error = within(candidate.campaign()).await.unwrap_err();
    assert!(error.to_string().contains("NoAuth"), "{error}");
    let seen = until(&mut stages, |s| matches!(s, Step::Failed { .. })).await;
    assert_eq!(
        seen.last(),
        Some(&Step::Failed {
            reason: error.to_string()
        })
    );
}

#[tokio::test]
async fn h58_stopping_a_finished_term_does_not_touch_the_next_campaign() {
    let stage = Stage::new("h58").await;
    let client = stage.client().await;
    let candidate = election(&client, &stage.path);
    let first = within(candidate.campaign()).await.unwrap();
    let lost = first.lost();
    let next = tokio::spawn({
        let candidate = candidate.clone();
        async move { candidate.campaign().await }
    });
    stage.until_children(2).await;
    within(first.resign()).await.unwrap();
    assert_eq!(within(lost).await, LostReason::Released);
    let second = within(next).await.unwrap().unwrap();
    assert_eq!(second.check(), Ok(()));
    assert_eq!(second.term().epoch, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h55_under_flaps_of_all_members_one_term_is_valid_at_a_time_and_terms_grow() {
    let stage = Stage::new("h55").await;
    let held = Arc::new(std::sync::Mutex::new((
        Vec::<Arc<baton::Leadership>>::new(),
        Vec::new(),
    )));
    let stop = Arc::new(AtomicBool::new(false));
    let (mut proxies, mut members) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (client, proxy) = stage.proxied(Duration::from_millis(1200)).await;
        proxies.push(proxy);
        let (held, stop) = (Arc::clone(&held), Arc::clone(&stop));
        let candidate = election(&client, &stage.path);
        members.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let campaign = candidate.campaign();
                let Ok(elected) = tokio::time::timeout(Duration::from_secs(1), campaign).await
                else {
                    continue;
                };
                let leadership = Arc::new(elected.unwrap());
                {
                    let (leaders, terms) = &mut *held.lock().unwrap();
                    leaders.push(Arc::clone(&leadership));
                    assert!(
                        leaders
                            .iter()
                            .filter(|leader| leader.check().is_ok())
                            .count()
                            <= 1
                    );
                    if leadership.check().is_ok() {
                        terms.push(leadership.term());
                    }
                }
                let _ = leadership
                    .run(tokio::time::sleep(Duration::from_millis(20)))
                    .await;
                held.lock()
                    .unwrap()
                    .0
                    .retain(|other| !Arc::ptr_eq(other, &leadership));
            }
        }));
    }
    let mut nth = 0;
    while nth < 25 || held.lock().unwrap().1.len() <= 5 {
        assert!(nth < 500, "{:?}", held.lock().unwrap().1);
        for (member, proxy) in proxies.iter().enumerate() {
            proxy.cut_all(CUTS[(nth + member) % CUTS.len()]);
        }
        // On a busy machine the members need longer to come to a term.
        let pause = (60 + 40 * (nth as u64 % 4)) * (1 + nth as u64 / 25);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        nth += 1;
    }
    stop.store(true, Ordering::Relaxed);
    for member in members {
        within(member).await.unwrap();
    }
    stage.until_children(0).await;
    let terms = &held.lock().unwrap().1;
    for (earlier, later) in terms.iter().zip(terms.iter().skip(1)) {
        assert!(
            later.epoch > earlier.epoch && later.token > earlier.token,
            "{terms:?}"
        );
    }
}

#[tokio::test]
async fn h56_offers_that_are_deleted_again_and_again_are_each_made_again_once() {
    let stage = Stage::new("h56").await;
    let admin = session(&stage.client().await).await;
    let leader = within(election(&stage.client().await, &stage.path).campaign())
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let mut campaigns = Vec::new();
    for _ in 0..2 {
        let candidate = election(&client, &stage.path);
        campaigns.push(tokio::spawn(async move { candidate.campaign().await }));
    }
    let rounds = 10;
    let offers = Match::request(OpCode::Create2);
    for round in 1..=rounds {
        for offer in stage.until_children(3).await {
            if offer.path != leader.node() {
                admin.delete(&offer.path, None).await.unwrap();
            }
        }
        within(async {
            while proxy.count(&offers) < 2 + 2 * round {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    stage.until_children(3).await;
    assert_eq!(proxy.count(&offers), 2 + 2 * rounds);
    for campaign in campaigns {
        campaign.abort();
    }
}

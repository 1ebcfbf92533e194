//! Guarded transactions whose answer is lost (`docs/internals/hazards.md` §6.1, rule 3).

use std::time::Duration;

use baton::guard::TxnError;
use baton::tree::CreateMode;
use baton_client::OpCode;
use baton_testkit::{Action, Match, Variant, inspect};

use crate::common::{CUTS, SHORT, Stage, mutex, session, within};

const ROOMY: Duration = Duration::from_secs(4);

/// Adds one to the counter by a transaction under the lock. Blind repetition would add twice,
/// giving up would add nothing.
#[tokio::test]
async fn h77_a_guarded_transaction_whose_answer_is_lost_is_applied_once_and_says_so() {
    let mut cases = tokio::task::JoinSet::new();
    for variant in CUTS {
        for message in [
            Match::request(OpCode::Multi),
            Match::reply(OpCode::Multi),
            Match::reply(OpCode::Multi).nth(2),
        ] {
            cases.spawn(one_lost_answer(variant, message));
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn one_lost_answer(variant: Variant, message: Match) {
    let stage = Stage::new("txn").await;
    let observer = session(&stage.client().await).await;
    let (count, log) = (
        format!("{}-count", stage.path),
        format!("{}-log", stage.path),
    );
    for node in [&count, &log] {
        within(observer.create(node, b"", CreateMode::Persistent))
            .await
            .unwrap();
    }
    let (client, proxy) = stage.proxied(ROOMY).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let cut = proxy.on(message).then(Action::Cut(variant));
    for version in 0..3 {
        let txn = guard.txn().set(&count, b"more", Some(version)).create(
            &format!("{log}/entry-"),
            b"",
            CreateMode::PersistentSequential,
        );
        let done = within(txn.commit()).await.unwrap();
        assert!(done.results().is_none_or(|results| results.len() == 2));
        let now = observer.get_data(&count).await.unwrap().stat.version;
        assert_eq!(now, version + 1, "{variant:?}");
    }
    assert_eq!(cut.times(), 1);
    assert_eq!(observer.children(&log).await.unwrap().names.len(), 3);
    assert_eq!(guard.check(), Ok(()));
    within(guard.release()).await.unwrap();
    // The receipt goes with the guard.
    let receipts = format!("{}-__receipts__", stage.path);
    crate::common::until_empty(&stage, &receipts).await;
}

#[tokio::test]
async fn a_transaction_that_cannot_be_read_back_says_so() {
    let stage = Stage::new("unknown").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let state = format!("{}-state", stage.path);
    let made = guard.txn().create(&state, b"1", CreateMode::Persistent);
    within(made.commit()).await.unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    let committing = tokio::spawn(async move {
        let outcome = guard.txn().set(&state, b"2", None).commit().await;
        (outcome, guard)
    });
    within(cut.fired()).await;
    proxy.partition();
    let (outcome, guard) = within(committing).await.unwrap();
    match outcome {
        Err(error @ TxnError::Unknown { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with(guard.node()), "{text}");
            assert!(!text.contains(" / "), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let lost = guard.txn().commit().await;
    assert!(matches!(lost, Err(TxnError::Lost { .. })), "{lost:?}");
}

#[tokio::test]
async fn a_transaction_under_a_lost_lock_changes_nothing_even_where_the_news_is_held_back() {
    let stage = Stage::new("held").await;
    let (client, proxy) = stage.proxied(crate::common::LONG).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let state = format!("{}-state", stage.path);
    let made = guard.txn().create(&state, b"1", CreateMode::Persistent);
    within(made.commit()).await.unwrap();
    let held = proxy.on(Match::any_event()).then(Action::Hold);
    let observer = session(&stage.client().await).await;
    observer.delete(guard.node(), None).await.unwrap();
    assert_eq!(guard.check(), Ok(()), "the news is held back");
    let sent = proxy.on(Match::request(OpCode::Multi)).observe();
    let path = state.clone();
    let committing = tokio::spawn(async move { guard.txn().set(&path, b"2", None).commit().await });
    within(sent.fired()).await;
    held.release();
    let lost = within(committing).await.unwrap();
    assert!(matches!(lost, Err(TxnError::Lost { .. })), "{lost:?}");
    assert_eq!(&observer.get_data(&state).await.unwrap().data[..], b"1");
}

#[tokio::test]
async fn a_part_whose_version_has_passed_refuses_the_whole_transaction_and_is_named() {
    let stage = Stage::new("versions").await;
    let client = stage.client().await;
    let observer = session(&client).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let (state, made) = (
        format!("{}-state", stage.path),
        format!("{}-made", stage.path),
    );
    within(observer.create(&state, b"", CreateMode::Persistent))
        .await
        .unwrap();
    within(observer.set_data(&state, b"new", None))
        .await
        .unwrap();
    for (part, nth) in [("set", 0), ("set", 1), ("check", 0), ("delete", 1)] {
        let commit = async |version| {
            let mut txn = guard.txn();
            if nth == 1 {
                txn = txn.create(&made, b"", CreateMode::Persistent);
            }
            txn = match part {
                "set" => txn.set(&state, b"newer", version),
                "check" => txn.check(&state, version),
                _ => txn.delete(&state, version),
            };
            if nth == 0 {
                txn = txn.create(&made, b"", CreateMode::Persistent);
            }
            within(txn.commit()).await
        };
        let now = within(observer.exists(&state))
            .await
            .unwrap()
            .unwrap()
            .version;
        let refused = commit(Some(now - 1)).await;
        assert!(
            matches!(refused, Err(TxnError::Conflict { index, .. }) if index == nth),
            "{part}: {refused:?}"
        );
        let text = refused.unwrap_err().to_string();
        assert_eq!(text.matches("part").count(), 1, "{text}");
        assert!(text.contains(&format!("part {nth} ")), "{text}");
        assert!(text.contains(&state), "{text}");
        assert_eq!(guard.check(), Ok(()));
        commit(Some(now)).await.unwrap();
        // Applied whole, as nothing of the one before was.
        within(observer.delete(&made, None)).await.unwrap();
    }
    assert_eq!(within(observer.exists(&state)).await.unwrap(), None);
}

#[tokio::test]
async fn a_receipt_that_somebody_else_writes_to_is_not_relied_on() {
    let stage = Stage::new("receipt").await;
    let observer = session(&stage.client().await).await;
    let count = format!("{}-count", stage.path);
    within(observer.create(&count, b"", CreateMode::Persistent))
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(ROOMY).await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let add = async || within(guard.txn().set(&count, b"more", None).commit()).await;
    add().await.unwrap();
    let receipts = format!("{}-__receipts__", stage.path);
    for receipt in inspect::children(stage.addr, &receipts).await.unwrap() {
        within(observer.set_data(&receipt.path, b"", None))
            .await
            .unwrap();
    }
    add().await.unwrap();
    // This one never arrives; a receipt that is further than it should be would say that it did.
    let cut = proxy
        .on(Match::request(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    add().await.unwrap();
    assert_eq!(cut.times(), 1);
    let counted = within(observer.exists(&count)).await.unwrap().unwrap();
    assert_eq!(counted.version, 3);
}

//! A session that lives under an application that does not (`docs/internals/hazards.md` H39).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use baton::guard::ReleaseError;
use baton::lock::SimpleMutex;
use baton::{LostReason, Semaphore};
use baton_client::EventKind;
use baton_testkit::{Action, Match};
use tokio::sync::oneshot;

use crate::common::{LONG, Stage, connect, elsewhere, mutex, pass, session, within};

/// Long enough for a healthy application on a busy machine to answer in.
const PERIOD: Duration = Duration::from_millis(700);

#[tokio::test]
async fn h39_an_application_that_blocks_its_event_loop_loses_its_lock_though_its_session_lives() {
    let stage = Stage::new("h39").await;
    let addr = stage.addr;
    // The client runs on a runtime that the application does not block.
    let client = elsewhere().spawn(connect(addr, LONG)).await.unwrap();
    let (acquired, is_acquired) = oneshot::channel();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let path = stage.path.clone();
    let application = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let guard = mutex(&client, &path).acquire().await.unwrap();
            let guard = guard.with_liveness(PERIOD, || async { true });
            assert_eq!(guard.check(), Ok(()));
            acquired.send(()).unwrap();
            let _ = blocked.recv();
            // The first call after it, before any event can have been delivered.
            guard.check()
        })
    });
    within(is_acquired).await.unwrap();
    let next = within(mutex(&stage.client().await, &stage.path).acquire())
        .await
        .unwrap();
    assert_eq!(next.check(), Ok(()));
    unblock.send(()).unwrap();
    let first_call = elsewhere()
        .spawn_blocking(move || application.join().unwrap())
        .await
        .unwrap();
    assert_eq!(first_call, Err(LostReason::NotAlive));
    assert_eq!(stage.until_children(1).await[0].path, next.node());
}

#[tokio::test]
async fn h39_an_answer_of_no_or_a_panic_or_none_gives_all_nodes_of_the_guard_away() {
    for failing in ["no", "panic", "none"] {
        let stage = Stage::new("h39b").await;
        let client = stage.client().await;
        let of = Semaphore::new(&client, &stage.path, 2).unwrap();
        let guard = within(of.acquire(2)).await.unwrap();
        let (kept, dropped) = oneshot::channel::<()>();
        let mut kept = Some(kept);
        let guard = guard.with_liveness(Duration::from_millis(100), move || {
            let _is_dropped_with_the_answer = kept.take();
            async move {
                let _is_dropped_with_the_answer = _is_dropped_with_the_answer;
                match failing {
                    "no" => false,
                    "panic" => panic!("the probe itself fails"),
                    _ => std::future::pending().await,
                }
            }
        });
        assert_eq!(
            within(guard.lost()).await,
            LostReason::NotAlive,
            "{failing}"
        );
        assert_eq!(guard.check(), Err(LostReason::NotAlive));
        assert!(
            within(dropped).await.is_err(),
            "nobody waits for the answer"
        );
        let again = within(of.acquire(2)).await.unwrap();
        let error = within(guard.release()).await.unwrap_err();
        assert!(
            matches!(
                error,
                ReleaseError::Lost {
                    reason: LostReason::NotAlive,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(again.check(), Ok(()));
    }
}

#[tokio::test]
async fn h39_a_lock_given_away_spares_the_next_holders_node_of_the_same_name() {
    let stage = Stage::new("h39d").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let other = stage.client().await;
    let lock = SimpleMutex::new(&client, &stage.path).unwrap();
    let guard = within(lock.acquire()).await.unwrap();
    // Its watch on its node is set.
    within(session(&client).await.sync("/")).await.unwrap();
    // Somebody takes the lock away and another gets it, and the holder has not heard of it.
    let unheard = proxy
        .on(Match::event(EventKind::NodeDeleted))
        .then(Action::Hold);
    within(session(&other).await.delete(guard.node(), None))
        .await
        .unwrap();
    let lock = SimpleMutex::new(&other, &stage.path).unwrap();
    let next = within(lock.acquire()).await.unwrap();
    assert_eq!(next.node(), guard.node());
    within(unheard.fired()).await;
    let guard = guard.with_liveness(LONG, || async { false });
    assert_eq!(within(guard.lost()).await, LostReason::NotAlive);
    unheard.release();
    // Behind all that the old holder has sent, and what that has brought about.
    for _ in 0..2 {
        let seen = within(session(&client).await.exists(next.node())).await;
        let seen = seen.unwrap().expect("the next holder's node is there");
        assert_eq!(u64::try_from(seen.czxid).unwrap(), next.token());
    }
}

#[tokio::test]
async fn h39_a_live_application_keeps_its_lock_and_is_asked_until_it_releases() {
    let stage = Stage::new("h39c").await;
    let client = stage.client().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (kept, dropped) = oneshot::channel::<()>();
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let counter = Arc::clone(&asked);
    let guard = guard.with_liveness(Duration::from_millis(50), move || {
        let _is_dropped_with_the_probe = &kept;
        counter.fetch_add(1, Ordering::SeqCst);
        async { true }
    });
    within(async {
        while asked.load(Ordering::SeqCst) < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(guard.check(), Ok(()));
    within(guard.release()).await.unwrap();
    // Nobody is asked any more: the probe is gone.
    assert!(within(dropped).await.is_err());
}

#[tokio::test]
async fn an_application_is_asked_once_per_period_and_a_question_ends_with_the_guard() {
    let stage = Stage::new("period").await;
    let client = stage.client_here().await;
    let admin = session(&client).await;
    let period = Duration::from_secs(3600);
    let asked = Arc::new(AtomicUsize::new(0));
    let (kept, dropped) = oneshot::channel::<()>();
    let mut kept = Some(kept);
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let counter = Arc::clone(&asked);
    let guard = guard.with_liveness(period, move || {
        let first_three = counter.fetch_add(1, Ordering::SeqCst) < 3;
        let kept = if first_three { None } else { kept.take() };
        async move {
            let _is_dropped_with_the_answer = kept;
            first_three || std::future::pending().await
        }
    });
    for times in 1..=4 {
        // Round trips in which anyone who has something to ask does so.
        for _ in 0..20 {
            within(admin.sync("/")).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::SeqCst), times);
        if times < 4 {
            pass(period).await;
        }
    }
    within(guard.release()).await.unwrap();
    assert!(
        within(dropped).await.is_err(),
        "the answer is not waited for"
    );
}

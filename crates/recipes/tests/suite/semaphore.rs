//! The semaphore: its permits, its number, its wait queue (`docs/internals/hazards.md` H41, H42,
//! H46–H48).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use baton::lock::LockError;
use baton::semaphore::SemaphoreError;
use baton::{Client, Guard, LostReason, Semaphore};
use baton_client::{Acl, OpCode, Perms};
use baton_testkit::inspect::{self, Znode};
use baton_testkit::{Action, Match, Proxy, Variant};
use tokio::task::JoinHandle;

use crate::common::{CUTS, LONG, SHORT, Stage, plant, session, within};

/// Long enough for a client to notice a silent connection and come back on another.
const ROOMY: Duration = Duration::from_secs(4);

fn semaphore(client: &Client, stage: &Stage, permits: u32) -> Semaphore {
    Semaphore::new(client, &stage.path, permits).unwrap()
}

async fn take(client: &Client, stage: &Stage, of: u32, permits: u32) -> Guard {
    within(semaphore(client, stage, of).acquire(permits))
        .await
        .unwrap()
}

async fn nodes(stage: &Stage, dir: &str) -> Vec<Znode> {
    let dir = format!("{}/{dir}", stage.path);
    inspect::children(stage.addr, &dir).await.unwrap()
}

/// Waits until this number of leases exists, and this number of waiters of the mutex.
async fn until(stage: &Stage, leases: usize, locks: usize) {
    within(async {
        while (
            nodes(stage, "leases").await.len(),
            nodes(stage, "locks").await.len(),
        ) != (leases, locks)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

async fn stored(stage: &Stage) -> String {
    let session = session(&stage.client().await).await;
    let data = within(session.get_data(&stage.path)).await.unwrap().data;
    String::from_utf8(data.to_vec()).unwrap()
}

/// Counts who is inside.
#[derive(Clone, Default)]
struct Occupancy {
    inside: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl Occupancy {
    async fn visit(&self, permits: u32) {
        let now = self.inside.fetch_add(permits, Ordering::SeqCst) + permits;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.inside.fetch_sub(permits, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn permits_are_leases_under_curators_names_and_tokens_grow_with_the_grants() {
    let stage = Stage::new("layout").await;
    let client = stage.client().await;
    let one = take(&client, &stage, 3, 1).await;
    let two = take(&stage.client().await, &stage, 3, 2).await;
    assert!(one.token() < two.token());
    assert_eq!(stored(&stage).await, "3");
    let leases = nodes(&stage, "leases").await;
    assert_eq!(leases.len(), 3);
    let prefix = format!("{}/leases/_c_", stage.path);
    assert!(leases.iter().all(|node| node.path.starts_with(&prefix)));
    assert!(leases.iter().all(|node| node.path.contains("-lease-")));
    let first = leases.iter().find(|node| node.path == one.node()).unwrap();
    assert_eq!(
        u64::try_from(first.stat.mzxid).unwrap(),
        one.token(),
        "minted at the grant"
    );
    assert!(first.stat.mzxid > first.stat.czxid);
    within(one.release()).await.unwrap();
    within(two.release()).await.unwrap();
    until(&stage, 0, 0).await;
}

#[tokio::test]
async fn h41_whichever_holder_releases_the_waiter_is_granted() {
    for second in [false, true] {
        let stage = Stage::new("h41").await;
        let a = take(&stage.client().await, &stage, 2, 1).await;
        let b = take(&stage.client().await, &stage, 2, 1).await;
        let waiter = semaphore(&stage.client().await, &stage, 2);
        let waiting = tokio::spawn(async move { waiter.acquire(1).await });
        until(&stage, 3, 1).await;
        assert!(!waiting.is_finished());
        let (released, kept) = if second { (b, a) } else { (a, b) };
        within(released.release()).await.unwrap();
        let c = within(waiting).await.unwrap().unwrap();
        assert!(c.token() > kept.token());
        assert_eq!((c.check(), kept.check()), (Ok(()), Ok(())));
        until(&stage, 2, 0).await;
    }
}

#[tokio::test]
async fn h42_two_that_each_want_all_permits_do_not_wait_for_each_other() {
    let stage = Stage::new("h42").await;
    let room = Occupancy::default();
    let mut workers = Vec::new();
    for _ in 0..2 {
        for permits in [1, 2] {
            let (room, of) = (room.clone(), semaphore(&stage.client().await, &stage, 2));
            workers.push(tokio::spawn(async move {
                for _ in 0..12 {
                    let guard = of.acquire(permits).await.unwrap();
                    room.visit(permits).await;
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for worker in workers {
        within(worker).await.unwrap();
    }
    assert_eq!(room.most.load(Ordering::SeqCst), 2);
    until(&stage, 0, 0).await;
}

#[tokio::test]
async fn h42_one_that_wants_many_is_not_overtaken_for_ever_by_those_who_want_one() {
    let stage = Stage::new("weighted").await;
    let (one, other) = (stage.client().await, stage.client().await);
    let first = take(&one, &stage, 3, 1).await;
    let second = take(&one, &stage, 3, 1).await;
    let heavy = semaphore(&other, &stage, 3);
    let waiting = tokio::spawn(async move { heavy.acquire(3).await });
    until(&stage, 5, 1).await;
    // One permit is free, and spoken for.
    let small = semaphore(&one, &stage, 3);
    assert!(within(small.try_acquire(1)).await.unwrap().is_none());
    let later = small.clone();
    let later = tokio::spawn(async move { later.acquire(1).await });
    until(&stage, 5, 2).await;
    within(first.release()).await.unwrap();
    assert!(within(small.try_acquire(1)).await.unwrap().is_none());
    within(second.release()).await.unwrap();
    let heavy = within(waiting).await.unwrap().unwrap();
    assert!(!later.is_finished());
    within(heavy.release()).await.unwrap();
    assert_eq!(within(later).await.unwrap().unwrap().check(), Ok(()));
}

#[tokio::test]
async fn h46_releases_that_race_acquires_on_one_handle_lose_no_permit() {
    let stage = Stage::new("h46").await;
    let of = semaphore(&stage.client().await, &stage, 3);
    let room = Occupancy::default();
    let mut workers = Vec::new();
    for nth in 0..8 {
        let (of, room) = (of.clone(), room.clone());
        workers.push(tokio::spawn(async move {
            for round in 0..8 {
                if (nth + round) % 3 == 0 {
                    if let Some(guard) = of.try_acquire(1).await.unwrap() {
                        room.visit(1).await;
                        drop(guard);
                    }
                } else {
                    let guard = of.acquire(1).await.unwrap();
                    room.visit(1).await;
                    // The next acquire is on its way before the server has answered.
                    drop(guard.release());
                }
            }
        }));
    }
    for worker in workers {
        within(worker).await.unwrap();
    }
    assert!(room.most.load(Ordering::SeqCst) <= 3);
    let all = within(of.acquire(3)).await.unwrap();
    until(&stage, 3, 0).await;
    drop(all);
}

#[tokio::test]
async fn h47_a_try_that_fails_leaves_the_queue_free_and_the_leases_as_they_were() {
    let stage = Stage::new("h47").await;
    let held = take(&stage.client().await, &stage, 1, 1).await;
    let other = semaphore(&stage.client().await, &stage, 1);
    for _ in 0..3 {
        assert!(within(other.try_acquire(1)).await.unwrap().is_none());
    }
    until(&stage, 1, 0).await;
    within(held.release()).await.unwrap();
    let guard = within(other.try_acquire(1)).await.unwrap().unwrap();
    drop(guard);
    // Several that try at the same instant get what there is.
    for _ in 0..5 {
        until(&stage, 0, 0).await;
        let tries: Vec<_> = (0..3)
            .map(|_| {
                let of = other.clone();
                tokio::spawn(async move { of.try_acquire(1).await })
            })
            .collect();
        let mut guards = Vec::new();
        for one in tries {
            guards.extend(within(one).await.unwrap().unwrap());
        }
        assert_eq!(guards.len(), 1);
    }
}

#[tokio::test]
async fn h47_closing_the_client_ends_an_acquire_that_waits() {
    let stage = Stage::new("h47c").await;
    let _held = take(&stage.client().await, &stage, 1, 1).await;
    let client = stage.client().await;
    let of = semaphore(&client, &stage, 1);
    let waiting = tokio::spawn(async move { of.acquire(1).await });
    until(&stage, 2, 1).await;
    within(client.close_timeout(LONG)).await.unwrap();
    let error = within(waiting).await.unwrap().unwrap_err();
    assert!(
        matches!(
            &error,
            SemaphoreError::Lock(LockError::Connect { .. } | LockError::Client { .. })
        ),
        "{error}"
    );
    until(&stage, 1, 0).await;
}

#[tokio::test]
async fn h48_participants_with_another_number_are_refused_also_as_creators() {
    for round in 0..4 {
        let stage = Stage::new("h48").await;
        if round % 2 == 1 {
            // Another library made the node, and keeps no number there.
            stage.occupied().await;
        }
        let mut racers = Vec::new();
        for permits in [2, 5, 2, 5] {
            let of = semaphore(&stage.client().await, &stage, permits);
            racers.push(tokio::spawn(
                async move { (permits, of.try_acquire(1).await) },
            ));
        }
        let mut outcomes = Vec::new();
        for racer in racers {
            outcomes.push(within(racer).await.unwrap());
        }
        let stored: u32 = stored(&stage).await.parse().unwrap();
        for (permits, outcome) in &outcomes {
            match outcome {
                Ok(_) => assert_eq!(*permits, stored),
                Err(SemaphoreError::MaximumDiffers {
                    ours,
                    stored: theirs,
                    ..
                }) => {
                    assert_eq!((*ours, *theirs), (*permits, stored));
                    assert_ne!(*ours, stored);
                }
                Err(error) => panic!("{error}"),
            }
        }
        until(&stage, 2, 0).await;
    }
}

#[tokio::test]
async fn h48_a_number_that_another_has_stored_meanwhile_is_not_overwritten() {
    let stage = Stage::new("h48m").await;
    // A node of another library, without a number.
    stage.occupied().await;
    let (client, proxy) = stage.proxied(LONG).await;
    let set = proxy.on(Match::request(OpCode::SetData)).then(Action::Hold);
    let ours = semaphore(&client, &stage, 3);
    let asking = tokio::spawn(async move { ours.try_acquire(1).await });
    within(set.fired()).await;
    let theirs = take(&stage.client().await, &stage, 5, 1).await;
    set.release();
    let refused = within(asking).await.unwrap().unwrap_err();
    assert!(
        matches!(
            refused,
            SemaphoreError::MaximumDiffers {
                ours: 3,
                stored: 5,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(stored(&stage).await, "5");
    within(theirs.release()).await.unwrap();
}

#[tokio::test]
async fn h48_no_lease_is_taken_under_a_number_that_the_tree_no_longer_has() {
    let stage = Stage::new("h48r").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let of = semaphore(&client, &stage, 3);
    drop(within(of.acquire(1)).await.unwrap());
    until(&stage, 0, 0).await;
    // The handle believes in three; while its request is on the wire, they become one.
    let multi = proxy.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let trying = {
        let of = of.clone();
        tokio::spawn(async move { of.try_acquire(2).await })
    };
    within(multi.fired()).await;
    let admin = semaphore(&stage.client().await, &stage, 3);
    assert_eq!(within(admin.resize(1)).await.unwrap(), 3);
    multi.release();
    let error = within(trying).await.unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            SemaphoreError::BadPermits {
                asked: 2,
                most: 1,
                ..
            }
        ),
        "{error}"
    );
    until(&stage, 0, 0).await;
}

#[tokio::test]
async fn a_resize_is_followed_by_all_who_agreed_before_and_reported_to_the_others() {
    let stage = Stage::new("resize").await;
    let client = stage.client().await;
    let of = semaphore(&client, &stage, 1);
    let held = within(of.acquire(1)).await.unwrap();
    let waiter = of.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(1).await });
    until(&stage, 2, 1).await;
    let admin = Semaphore::open(&stage.client().await, &stage.path).unwrap();
    assert_eq!(within(admin.resize(2)).await.unwrap(), 1);
    let second = within(waiting).await.unwrap().unwrap();
    assert_eq!(within(of.maximum()).await.unwrap(), 2);

    // Fewer: nobody loses any, and nobody gets any before enough have been released.
    assert_eq!(within(admin.resize(1)).await.unwrap(), 2);
    assert_eq!((held.check(), second.check()), (Ok(()), Ok(())));
    within(held.release()).await.unwrap();
    assert!(within(of.try_acquire(1)).await.unwrap().is_none());
    within(second.release()).await.unwrap();
    let third = within(of.try_acquire(1)).await.unwrap();
    assert!(third.is_some());

    assert_eq!(within(admin.resize(4)).await.unwrap(), 1);
    let error = within(semaphore(&client, &stage, 1).acquire(1))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            SemaphoreError::MaximumDiffers {
                ours: 1,
                stored: 4,
                ..
            }
        ),
        "{error}"
    );
    let four = within(admin.acquire_timeout(3, LONG)).await.unwrap();
    until(&stage, 4, 0).await;
    drop((third, four));
}

#[tokio::test]
async fn a_change_of_the_number_returns_the_number_that_it_has_replaced() {
    let stage = Stage::new("replaced").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let of = semaphore(&client, &stage, 3);
    drop(within(of.acquire(1)).await.unwrap());
    let set = proxy.on(Match::request(OpCode::SetData).path_contains(&*stage.path));
    let set = set.then(Action::Hold);
    let changing = tokio::spawn(async move { of.resize(5).await });
    within(set.fired()).await;
    let admin = Semaphore::open(&stage.client().await, &stage.path).unwrap();
    assert_eq!(within(admin.resize(7)).await.unwrap(), 3);
    set.release();
    assert_eq!(within(changing).await.unwrap().unwrap(), 7);
    assert_eq!(stored(&stage).await, "5");
}

#[tokio::test]
async fn one_who_waits_for_more_than_there_will_ever_be_receives_an_error() {
    let stage = Stage::new("shrunk").await;
    let of = semaphore(&stage.client().await, &stage, 2);
    let _held = within(of.acquire(1)).await.unwrap();
    let waiter = of.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(2).await });
    until(&stage, 3, 1).await;
    within(of.resize(1)).await.unwrap();
    let error = within(waiting).await.unwrap().unwrap_err();
    assert!(
        matches!(error, SemaphoreError::BadPermits { .. }),
        "{error}"
    );
    until(&stage, 1, 0).await;
}

#[tokio::test]
async fn h01_a_lost_answer_leaves_as_many_leases_as_were_asked_for() {
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            let stage = Stage::new("h01s").await;
            drop(take(&stage.client().await, &stage, 3, 1).await);
            let (client, proxy) = stage.proxied(ROOMY).await;
            let cut = proxy.on(message).then(Action::Cut(variant));
            let guard = take(&client, &stage, 3, 2).await;
            assert_eq!(cut.times(), 1, "{variant:?}");
            until(&stage, 2, 0).await;
            within(guard.release()).await.unwrap();
            until(&stage, 0, 0).await;
        }
    }
}

#[tokio::test]
async fn h01_what_is_left_of_leases_of_which_one_was_deleted_before_the_read_is_deleted_too() {
    let stage = Stage::new("h01p").await;
    drop(take(&stage.client().await, &stage, 3, 1).await);
    until(&stage, 0, 0).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let of = semaphore(&client, &stage, 3);
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(Variant::Rst));
    // The connection that is there goes on until its answer is cut off.
    proxy.refuse();
    let acquiring = tokio::spawn(async move { of.acquire(2).await.unwrap() });
    within(cut.fired()).await;
    let made = nodes(&stage, "leases").await;
    assert_eq!(made.len(), 2);
    let admin = session(&stage.client().await).await;
    within(admin.delete(&made[0].path, None)).await.unwrap();
    proxy.heal();
    let guard = within(acquiring).await.unwrap();
    until(&stage, 2, 0).await;
    let kept = nodes(&stage, "leases").await;
    assert!(kept.iter().all(|lease| lease.path != made[1].path));
    within(guard.release()).await.unwrap();
    until(&stage, 0, 0).await;
}

#[tokio::test]
async fn h01_a_lost_answer_to_the_minting_yields_the_token_that_the_tree_has() {
    for variant in CUTS {
        let stage = Stage::new("mint").await;
        drop(take(&stage.client().await, &stage, 2, 1).await);
        let (client, proxy) = stage.proxied(ROOMY).await;
        let lease = Match::reply(OpCode::SetData).path_contains("-lease-");
        let cut = proxy.on(lease).then(Action::Cut(variant));
        let guard = take(&client, &stage, 2, 1).await;
        assert_eq!(cut.times(), 1, "{variant:?}");
        until(&stage, 1, 0).await;
        let node = nodes(&stage, "leases").await.remove(0);
        assert_eq!(u64::try_from(node.stat.mzxid).unwrap(), guard.token());
    }
}

/// Drops an acquire while such a frame is held back on the wire; `false` if there is no such frame.
async fn drop_at_frame(frame: Match, behind_a_holder: bool) -> bool {
    let stage = Stage::new("h10s").await;
    let held = match behind_a_holder {
        true => Some(take(&stage.client().await, &stage, 2, 1).await),
        false => None,
    };
    let (client, proxy) = stage.proxied(LONG).await;
    let of = semaphore(&client, &stage, 2);
    let met = crate::common::dropped_at(&proxy, frame, async move { of.acquire(2).await }).await;
    until(&stage, usize::from(behind_a_holder), 0).await;
    drop(held);
    until(&stage, 0, 0).await;
    met
}

#[tokio::test]
async fn h10_an_acquire_dropped_at_any_frame_on_the_wire_leaves_no_node() {
    crate::common::at_each_frame_of_an_acquire(drop_at_frame).await;
}

#[tokio::test]
async fn a_wait_that_is_too_long_says_so_and_leaves_the_queue() {
    let stage = Stage::new("timeout").await;
    let client = stage.client().await;
    let _held = take(&client, &stage, 2, 2).await;
    let of = semaphore(&client, &stage, 2).name("late");
    let error = within(of.acquire_timeout(1, Duration::from_millis(300)))
        .await
        .unwrap_err();
    assert!(
        matches!(error, SemaphoreError::TimedOut { permits: 1, .. }),
        "{error}"
    );
    assert!(!error.to_string().contains('\n'));
    until(&stage, 2, 0).await;
}

#[tokio::test]
async fn h45_the_first_waiter_whose_node_is_deleted_joins_again() {
    let stage = Stage::new("place").await;
    let held = take(&stage.client().await, &stage, 1, 1).await;
    let next = semaphore(&stage.client().await, &stage, 1);
    let next = tokio::spawn(async move { next.acquire(1).await });
    until(&stage, 2, 1).await;
    let place = nodes(&stage, "locks").await.remove(0).path;
    let admin = session(&stage.client().await).await;
    within(admin.delete(&place, None)).await.unwrap();
    let joined_again = async {
        while nodes(&stage, "locks")
            .await
            .iter()
            .all(|node| node.path == place)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(joined_again).await;
    within(held.release()).await.unwrap();
    drop(within(next).await.unwrap().unwrap());
    until(&stage, 0, 0).await;
}

#[tokio::test]
async fn the_loss_of_one_lease_ends_the_guard_and_the_loss_of_the_session_frees_the_permits() {
    let stage = Stage::new("loss").await;
    let guard = take(&stage.client().await, &stage, 2, 2).await;
    let admin = session(&stage.client().await).await;
    let second = nodes(&stage, "leases").await.remove(1).path;
    within(admin.delete(&second, None)).await.unwrap();
    assert_eq!(within(guard.lost()).await, LostReason::NodeGone);
    drop(guard);
    until(&stage, 0, 0).await;

    let (client, proxy) = stage.proxied(SHORT).await;
    let guard = take(&client, &stage, 2, 2).await;
    let next = semaphore(&stage.client().await, &stage, 2);
    let next = tokio::spawn(async move { next.acquire(2).await });
    until(&stage, 4, 1).await;
    proxy.partition();
    within(guard.lost()).await;
    assert_eq!(within(next).await.unwrap().unwrap().check(), Ok(()));
}

#[tokio::test]
async fn what_is_no_semaphore_of_ours_is_refused_and_nothing_stays_behind() {
    let stage = Stage::new("bad").await;
    let client = stage.client().await;
    for path in ["", "relative", "/", "/a//b"] {
        let error = Semaphore::new(&client, path, 1).unwrap_err();
        assert!(
            matches!(error, SemaphoreError::Lock(LockError::BadPath { .. })),
            "{path}: {error}"
        );
    }
    let error = Semaphore::new(&client, &stage.path, 0).unwrap_err();
    assert!(
        matches!(error, SemaphoreError::BadMaximum { .. }),
        "{error}"
    );
    let open = Semaphore::open(&client, &stage.path).unwrap();
    for error in [
        within(open.acquire(1)).await.unwrap_err(),
        within(open.maximum()).await.unwrap_err(),
        within(open.resize(2)).await.unwrap_err(),
    ] {
        assert!(matches!(error, SemaphoreError::NoMaximum { .. }), "{error}");
    }

    let of = semaphore(&client, &stage, 2);
    for permits in [0, 3] {
        let error = within(of.acquire(permits)).await.unwrap_err();
        assert!(
            matches!(error, SemaphoreError::BadPermits { most: 2, .. }),
            "{error}"
        );
    }
    let admin = session(&stage.client().await).await;
    for foreign in [
        "5c1b0f546d3c4f0b9d0e0a4b7d3f2e11",
        "_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-lock-0000000001",
    ] {
        let child = format!("{}/{foreign}", stage.path);
        plant(&admin, &child).await;
        let error = within(of.acquire(1)).await.unwrap_err();
        assert!(
            matches!(&error, SemaphoreError::Foreign { child, .. } if child == foreign),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'));
        within(admin.delete(&child, None)).await.unwrap();
    }
    until(&stage, 0, 0).await;
    within(admin.set_data(&stage.path, b"{\"not\": \"ours\"}", None))
        .await
        .unwrap();
    let error = within(of.acquire(1)).await.unwrap_err();
    assert!(
        matches!(error, SemaphoreError::ForeignData { .. }),
        "{error}"
    );
    until(&stage, 0, 0).await;
}

/// Asserts that an acquisition which fails while nodes of ours exist returns its error only after
/// their deletes.
async fn returns_its_error_when_all_is_gone(
    stage: &Stage,
    proxy: &Proxy,
    mut acquiring: JoinHandle<Result<Guard, SemaphoreError>>,
) -> SemaphoreError {
    let delete = proxy.on(Match::request(OpCode::Delete)).then(Action::Hold);
    within(delete.fired()).await;
    let early = tokio::time::timeout(Duration::from_millis(50), &mut acquiring).await;
    assert!(
        early.is_err(),
        "returned while nodes of ours exist: {early:?}"
    );
    delete.release();
    let error = within(acquiring).await.unwrap().unwrap_err();
    assert_eq!(nodes(stage, "locks").await.len(), 0, "{error}");
    error
}

#[tokio::test]
async fn h13_who_was_refused_has_left_the_queue_and_its_leases_when_it_receives_the_error() {
    let stage = Stage::new("h13").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let admin = session(&stage.client().await).await;
    let of = semaphore(&client, &stage, 2);
    drop(within(of.acquire(1)).await.unwrap());
    until(&stage, 0, 0).await;

    // A child of another library's semaphore.
    let child = format!("{}/5c1b0f546d3c4f0b9d0e0a4b7d3f2e11", stage.path);
    plant(&admin, &child).await;
    let asking = of.clone();
    let acquiring = tokio::spawn(async move { asking.acquire(2).await });
    let error = returns_its_error_when_all_is_gone(&stage, &proxy, acquiring).await;
    assert!(matches!(error, SemaphoreError::Foreign { .. }), "{error}");
    assert_eq!(nodes(&stage, "leases").await.len(), 0);
    within(admin.delete(&child, None)).await.unwrap();

    // Fewer permits than are waited for, first in the queue with leases.
    let held = take(&stage.client().await, &stage, 2, 1).await;
    let asking = of.clone();
    let acquiring = tokio::spawn(async move { asking.acquire(2).await });
    until(&stage, 3, 1).await;
    let resizer = semaphore(&stage.client().await, &stage, 2);
    let resizing = tokio::spawn(async move { resizer.resize(1).await });
    let error = returns_its_error_when_all_is_gone(&stage, &proxy, acquiring).await;
    assert!(
        matches!(error, SemaphoreError::BadPermits { .. }),
        "{error}"
    );
    assert_eq!(within(resizing).await.unwrap().unwrap(), 2);
    assert_eq!(nodes(&stage, "leases").await.len(), 1);
    drop(held);
}

#[tokio::test]
async fn h48_a_change_of_the_number_that_failed_does_not_let_another_number_pass() {
    let stage = Stage::new("h48c").await;
    drop(take(&stage.client().await, &stage, 5, 1).await);
    let admin = session(&stage.client().await).await;
    let unwritable = Acl::new(
        Perms::READ | Perms::CREATE | Perms::DELETE | Perms::ADMIN,
        "world",
        "anyone",
    );
    within(admin.set_acl(&stage.path, &[unwritable], None))
        .await
        .unwrap();
    let of = semaphore(&stage.client().await, &stage, 2);
    assert!(within(of.resize(3)).await.is_err());
    let error = within(of.acquire(1)).await.unwrap_err();
    assert!(
        matches!(
            error,
            SemaphoreError::MaximumDiffers {
                ours: 2,
                stored: 5,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_change_of_the_number_that_another_followed_is_not_made_again() {
    let stage = Stage::new("follow").await;
    let (client, proxy) = stage.proxied(LONG).await;
    let of = semaphore(&client, &stage, 2);
    drop(within(of.acquire(1)).await.unwrap());
    let cut = proxy
        .on(Match::reply(OpCode::SetData))
        .then(Action::Cut(Variant::Rst));
    let sync = proxy.on(Match::request(OpCode::Sync)).then(Action::Hold);
    let resizing = tokio::spawn(async move { of.resize(3).await });
    within(cut.fired()).await;
    within(sync.fired()).await;
    let admin = Semaphore::open(&stage.client().await, &stage.path).unwrap();
    assert_eq!(within(admin.resize(7)).await.unwrap(), 3);
    sync.release();
    assert!(within(resizing).await.unwrap().is_err());
    assert_eq!(stored(&stage).await, "7");
}

#[tokio::test]
async fn a_child_among_the_leases_that_nobody_can_read_counts_as_one() {
    let stage = Stage::new("unread").await;
    let client = stage.client().await;
    let of = semaphore(&client, &stage, 2);
    drop(within(of.acquire(1)).await.unwrap());
    until(&stage, 0, 0).await;
    let other = session(&stage.client().await).await;
    plant(&other, &format!("{}/leases/something", stage.path)).await;
    assert!(within(of.try_acquire(2)).await.unwrap().is_none());
    let held = within(of.try_acquire(1)).await.unwrap();
    assert!(held.is_some());
}

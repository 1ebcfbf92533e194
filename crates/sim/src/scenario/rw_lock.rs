//! The read/write lock: readers together, a writer alone, and the way from a writer to a reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use baton::RwLock;
use baton::lock::LockError;
use baton::naming::RwDialect;

use super::Scenario;
use super::hold::{granted, hold_in, stay};
use crate::boundary;
use crate::occupancy::Occupancy;
use crate::stage::Stage;

const PATH: &str = "/locks/shared";
/// More than there are readers: a writer holds all of it.
const WHOLE: usize = 8;

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| path == "/locks" || path == PATH;
    vec![
        Scenario::new("rw-lock", 3, |stage| {
            Box::pin(turns(stage, RwDialect::Curator))
        })
        .keeps(keeps),
        Scenario::new("rw-lock-kazoo", 3, |stage| {
            Box::pin(turns(stage, RwDialect::Kazoo))
        })
        .keeps(keeps),
        Scenario::new("rw-lock-host", 3, |stage| {
            Box::pin(turns(stage, RwDialect::Host))
        })
        .keeps(keeps),
        Scenario::new("rw-lock-downgrade", 2, |stage| Box::pin(downgrades(stage))).keeps(keeps),
        Scenario::new("rw-lock-changes", 3, |stage| Box::pin(changes(stage))).keeps(keeps),
    ]
}

async fn turns(stage: Stage, dialect: RwDialect) {
    let room = stage.occupancy("the lock", WHOLE);
    let act = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let Ok(lock) = RwLock::new(stage.client(number), PATH) else {
                return stage.fail("no lock");
            };
            let lock = lock.dialect(dialect);
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                // One writes, one reads, one does both in turn.
                if number == 0 || (number == 2 && round == 1) {
                    let outcome = stage.cancellable(lock.write()).await;
                    if let Some(guard) = granted(&stage, &who, outcome) {
                        let token = guard.token();
                        hold_in(&stage, &who, &[(&room, WHOLE, token)], guard).await;
                    }
                } else {
                    let outcome = stage.cancellable(lock.read()).await;
                    if let Some(guard) = granted(&stage, &who, outcome) {
                        let token = guard.token();
                        hold_in(&stage, &who, &[(&room, 1, token)], guard).await;
                    }
                }
            }
        }
    };
    stage.crew(3, act).await;
}

/// Downgrades: a client that becomes a reader has been the last writer until then.
async fn downgrades(stage: Stage) {
    let room = stage.occupancy("the lock", WHOLE);
    let newest = Arc::new(AtomicU64::new(0));
    let act = |stage: Stage, number: usize| {
        let (room, newest) = (room.clone(), Arc::clone(&newest));
        async move {
            let Ok(lock) = RwLock::new(stage.client(number), PATH) else {
                return stage.fail("no lock");
            };
            let who = format!("client {number}");
            let outcome = stage.cancellable(lock.write()).await;
            let Some(guard) = granted(&stage, &who, outcome) else {
                return;
            };
            let written = guard.token();
            stage.note(|| format!("{who} writes, token {written}"));
            newest.fetch_max(written, SeqCst);
            stage.pause(3).await;
            // Where the write lock is lost on the way, so is what comes of it.
            if let Some(Ok(guard)) = stage.cancellable(guard.downgrade()).await {
                let newest = newest.load(SeqCst);
                stage.expect(guard.check().is_err() || newest == written, || {
                    format!("{who} wrote with token {written} and reads, {newest} wrote between")
                });
                let token = guard.token();
                hold_in(&stage, &who, &[(&room, 1, token)], guard).await;
            }
        }
    };
    stage.crew(2, act).await;
}

/// One becomes a reader each time that it has written, one becomes a writer where it may, one only
/// writes.
async fn changes(stage: Stage) {
    let room = stage.occupancy("the lock", WHOLE);
    let writes = Arc::new(AtomicU64::new(0));
    let act = |stage: Stage, number: usize| {
        let (room, writes) = (room.clone(), Arc::clone(&writes));
        async move {
            let Ok(lock) = RwLock::new(stage.client(number), PATH) else {
                return stage.fail("no lock");
            };
            for round in 0..2 {
                let who = format!("client {number}, round {round}");
                if number == 1 {
                    // In the second round the others are done, where nothing has gone wrong.
                    let thinks = 60 * round;
                    reads_first(&stage, &who, &lock, &room, &writes, thinks).await;
                    continue;
                }
                let outcome = stage.cancellable(lock.write()).await;
                let Some(guard) = granted(&stage, &who, outcome) else {
                    continue;
                };
                let token = guard.token();
                writes.fetch_add(1, SeqCst);
                if number == 2 {
                    hold_in(&stage, &who, &[(&room, WHOLE, token)], guard).await;
                    continue;
                }
                let Some(guard) = stay(&stage, &who, &[(&room, WHOLE, token)], guard, 6).await
                else {
                    return;
                };
                // Where the write lock is lost on the way, so is what comes of it.
                if let Some(Ok(guard)) = stage.cancellable(guard.downgrade()).await {
                    let token = guard.token();
                    hold_in(&stage, &who, &[(&room, 1, token)], guard).await;
                }
            }
        }
    };
    stage.crew(3, act).await;
}

async fn reads_first(
    stage: &Stage,
    who: &str,
    lock: &RwLock,
    room: &Occupancy,
    writes: &AtomicU64,
    thinks_ms: u64,
) {
    let outcome = stage.cancellable(lock.read()).await;
    let Some(guard) = granted(stage, who, outcome) else {
        return;
    };
    let token = guard.token();
    let read = writes.load(SeqCst);
    let Some(guard) = stay(stage, who, &[(room, 1, token)], guard, 6).await else {
        return;
    };
    stage.pause(thinks_ms).await;
    if guard.check().is_err() && !guard.session().state().is_final() {
        stage.mark(boundary::UPGRADE_OF_ENDED);
    }
    match stage.cancellable(guard.upgrade()).await {
        Some(Ok(guard)) => {
            stage.mark(boundary::UPGRADED);
            let now = writes.fetch_add(1, SeqCst);
            stage.expect(guard.check().is_err() || now == read, || {
                format!("{who} writes what it made of {read} writes, and there have been {now}")
            });
            let token = guard.token();
            hold_in(stage, who, &[(room, WHOLE, token)], guard).await;
        }
        // Given up, or somebody else reads or waits: the read lock, if it is still one, is dropped.
        refused => {
            if let Some(Err(refused)) = &refused
                && matches!(refused.source, LockError::WouldDeadlock { .. })
            {
                stage.mark(boundary::UPGRADE_REFUSED);
            }
            stage.note(|| format!("{who} stays a reader: {refused:?}"));
        }
    }
}

//! The mutex, in each dialect: two clients that take turns; one that only tries; one whose time is
//! limited.

use std::time::Duration;

use baton::lock::{LockError, SimpleMutex};
use baton::naming::Dialect;
use baton::{Guard, Mutex};
use baton_client::Client;

use super::Scenario;
use super::hold::{granted, hold, hold_for, stay};
use crate::boundary;
use crate::occupancy::Occupancy;
use crate::stage::Stage;

const PATH: &str = "/locks/one";
/// Three session timeouts.
const STAY_MS: u64 = 12_000;
/// Number of times that each client has the lock that goes round.
const TURNS: usize = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    let keeps = |path: &str| path == "/locks" || path == PATH;
    vec![
        Scenario::new("mutex", 2, |stage| {
            Box::pin(turns(stage, |client| {
                Ok(mutex(client)?.dialect(Dialect::Curator))
            }))
        })
        .keeps(keeps),
        Scenario::new("mutex-requeue", 2, |stage| Box::pin(requeues(stage))).keeps(keeps),
        Scenario::new("mutex-kazoo", 2, |stage| {
            Box::pin(turns(stage, |client| {
                Ok(mutex(client)?.dialect(Dialect::Kazoo))
            }))
        })
        .keeps(keeps),
        Scenario::new("mutex-recipes", 2, |stage| {
            Box::pin(turns(stage, |client| {
                Ok(mutex(client)?.dialect(Dialect::WriteLock))
            }))
        })
        .keeps(keeps),
        Scenario::new("simple-mutex", 2, |stage| Box::pin(turns(stage, simple))).keeps(keeps),
        Scenario::new("simple-mutex-shared", 2, |stage| Box::pin(shares(stage))).keeps(keeps),
        Scenario::new("mutex-try", 2, |stage| Box::pin(tries(stage))).keeps(keeps),
        Scenario::new("mutex-stay", 2, |stage| Box::pin(stays(stage))).keeps(keeps),
        Scenario::new("mutex-timeout", 2, |stage| Box::pin(limited(stage))).keeps(keeps),
    ]
}

/// One client in one of its rounds.
struct Round<L> {
    stage: Stage,
    room: Occupancy,
    who: String,
    lock: L,
}

impl<L> Round<L> {
    /// Holds what an acquire has brought for a while, and releases it.
    async fn hold(&self, outcome: Option<Result<Guard, LockError>>) {
        if let Some(guard) = granted(&self.stage, &self.who, outcome) {
            hold(&self.stage, &self.who, &self.room, guard).await;
        }
    }

    fn fail(&self, error: &LockError) {
        self.stage.fail(&format!("{}: {error}", self.who));
    }
}

/// Two clients that each do `act` so often, with a lock of their own, which one of them may hold at
/// a time.
async fn rounds<L, A>(
    stage: Stage,
    count: usize,
    open: impl Fn(&Client) -> Result<L, LockError> + Copy + Send + 'static,
    act: impl Fn(Round<L>) -> A + Copy + Send + 'static,
) where
    L: Clone + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let room = stage.occupancy("the lock", 1);
    let play = |stage: Stage, number: usize| {
        let room = room.clone();
        async move {
            let opened = Some(open(stage.client(number)));
            let Some(lock) = granted(&stage, "no mutex", opened) else {
                return;
            };
            for round in 0..count {
                let (stage, room, lock) = (stage.clone(), room.clone(), lock.clone());
                let who = format!("client {number}, round {round}");
                act(Round {
                    stage,
                    room,
                    who,
                    lock,
                })
                .await;
            }
        }
    };
    stage.crew(2, play).await;
}

fn mutex(client: &Client) -> Result<Mutex, LockError> {
    Mutex::new(client, PATH)
}

fn simple(client: &Client) -> Result<SimpleMutex, LockError> {
    SimpleMutex::new(client, PATH)
}

/// A lock that can be acquired, however it keeps the others out.
trait Lock: Clone + Send + Sync + 'static {
    fn acquire(&self) -> impl Future<Output = Result<Guard, LockError>> + Send;
}

impl Lock for Mutex {
    fn acquire(&self) -> impl Future<Output = Result<Guard, LockError>> + Send {
        self.acquire()
    }
}

impl Lock for SimpleMutex {
    fn acquire(&self) -> impl Future<Output = Result<Guard, LockError>> + Send {
        self.acquire()
    }
}

async fn turns<L: Lock>(
    stage: Stage,
    open: impl Fn(&Client) -> Result<L, LockError> + Copy + Send + 'static,
) {
    rounds(stage, 2, open, |round| async move {
        let outcome = round.stage.cancellable(round.lock.acquire()).await;
        round.hold(outcome).await;
    })
    .await;
}

/// Each wants it twice at a time, in one session: only the node's data distinguishes the two.
async fn shares(stage: Stage) {
    rounds(stage, 1, simple, |round| async move {
        let Round {
            stage,
            room,
            who,
            lock,
        } = &round;
        let half = async |name: &str| {
            for _ in 0..2 {
                let who = format!("{who}, {name}");
                let outcome = stage.cancellable(lock.acquire()).await;
                if let Some(guard) = granted(stage, &who, outcome) {
                    hold(stage, &who, room, guard).await;
                }
            }
        };
        tokio::join!(biased; half("one"), half("other"));
    })
    .await;
}

/// Each takes turn after turn without leaving the wait queue, and ends with a hold.
async fn requeues(stage: Stage) {
    rounds(stage, 1, mutex, |round| async move {
        let Round { stage, room, .. } = &round;
        let mut turn = stage.cancellable(round.lock.acquire()).await;
        for nth in 1..TURNS {
            let guard = match turn.take() {
                // Given up; or the guard had ended before it could be passed on.
                None | Some(Err(LockError::Lost { .. })) => return,
                Some(Err(error)) => return round.fail(&error),
                Some(Ok(guard)) => guard,
            };
            let (who, token) = (format!("{}, turn {nth}", round.who), guard.token());
            let Some(guard) = stay(stage, &who, &[(room, 1, token)], guard, 15).await else {
                return;
            };
            turn = stage.cancellable(round.lock.requeue(guard)).await;
        }
        if !matches!(turn, Some(Err(LockError::Lost { .. }))) {
            round.hold(turn).await;
        }
    })
    .await;
}

/// Each stays for longer than its session lives without an answer from the server: a guard that
/// outlives its lease meets the next one's.
async fn stays(stage: Stage) {
    rounds(stage, 1, mutex, |round| async move {
        let Round {
            stage,
            room,
            who,
            lock,
        } = &round;
        let outcome = stage.cancellable(lock.acquire()).await;
        if let Some(guard) = granted(stage, who, outcome) {
            let token = guard.token();
            hold_for(stage, who, &[(room, 1, token)], guard, STAY_MS).await;
        }
    })
    .await;
}

async fn tries(stage: Stage) {
    rounds(stage, 3, mutex, |round| async move {
        match round.stage.cancellable(round.lock.try_acquire()).await {
            None | Some(Ok(None)) => round.stage.pause(3).await,
            Some(Ok(Some(guard))) => round.hold(Some(Ok(guard))).await,
            Some(Err(error)) => round.fail(&error),
        }
    })
    .await;
}

async fn limited(stage: Stage) {
    rounds(stage, 2, mutex, |round| async move {
        let limit = Duration::from_millis(12 + 6 * round.stage.below(4));
        let acquire = round.lock.acquire_timeout(limit);
        match round.stage.cancellable(acquire).await {
            None => round.stage.pause(2).await,
            Some(Err(LockError::TimedOut { .. })) => {
                round.stage.mark(boundary::TIMED_OUT);
                round.stage.pause(2).await;
            }
            outcome => round.hold(outcome).await,
        }
    })
    .await;
}

//! `POST /v1/lock/PATH`: a lock that lives as long as its response. Exclusive, for readers, for the
//! writer, or one of several slots.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use baton::lock::WaitProgress;
use baton::{Client, Guard, Mutex, RwLock, Semaphore};
use serde::Deserialize;

use crate::body::LastingRequest;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::events::respond;
use crate::held::Holding;
use crate::openapi::{Field, Kind};
use crate::state::Shared;
use crate::waiting::{waiting, within};

/// Mode of a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Exclusive,
    Read,
    Write,
    /// One of `slots` holders at a time.
    Slot,
}

/// The body of a request for a lock.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LockRequest {
    mode: Mode,
    slots: Option<u32>,
    /// `None`: for ever; 0: do not wait.
    wait_ms: Option<u64>,
    session_timeout_ms: Option<u64>,
    name: Option<String>,
    lock_delay_ms: Option<u64>,
}

/// The fields of [`LockRequest`].
pub(crate) const FIELDS: [Field; 6] = [
    Field::new("mode", Kind::Word(&["exclusive", "read", "write", "slot"])),
    Field::new("slots", Kind::Count),
    Field::new("wait_ms", Kind::Count),
    Field::new("session_timeout_ms", Kind::Count),
    Field::new("name", Kind::Text),
    Field::new("lock_delay_ms", Kind::Count),
];

impl LockRequest {
    pub(crate) fn timeout_ms(&self) -> Option<u64> {
        self.session_timeout_ms
    }
}

pub(crate) async fn hold(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    LastingRequest {
        path,
        params: request,
        mut hold,
    }: LastingRequest<LockRequest>,
) -> Result<Response, ApiError> {
    let client = shared
        .sessions
        .client(&caller, request.session_timeout_ms)?;
    Ok(respond(move |events| async move {
        let progress = WaitProgress::new();
        // Boxed so that the future of a lock that is held stays small.
        let acquiring = Box::pin(acquire(&client, &path, &request, &caller, &progress));
        let held = (path.as_str(), &mut hold);
        let granted = waiting(acquiring, request.wait_ms, &progress, held, &events).await;
        let Some(granted) = granted else {
            return;
        };
        let granted = granted.map(Holding::Lock);
        shared
            .hold(&caller, (&client, &path), granted, hold, events)
            .await;
    })
    .await)
}

/// Acquires the lock that a request describes.
pub(crate) async fn acquire(
    client: &Client,
    path: &str,
    request: &LockRequest,
    caller: &Caller,
    progress: &WaitProgress,
) -> Result<Guard, ApiError> {
    let name = request.name.clone().unwrap_or_else(|| caller.program());
    let pid = caller.shown_pid();
    let wait_ms = request.wait_ms;
    let delay = request.lock_delay_ms.map(Duration::from_millis);
    if delay.is_some() && request.mode != Mode::Exclusive {
        let next = "leave it out, or lock in mode exclusive";
        return Err(ApiError::refused(
            "lock_delay_ms",
            "only an exclusive lock has a delay",
            next,
        ));
    }
    match (request.mode, request.slots) {
        (Mode::Slot, Some(slots)) => {
            let semaphore = Semaphore::new(client, path, slots);
            let semaphore = semaphore.map_err(|error| ApiError::of(path, &error))?;
            let semaphore = semaphore.name(&name).pid(pid).progress(progress);
            let acquired = within(
                wait_ms,
                || semaphore.acquire(1),
                || semaphore.try_acquire(1),
                |limit| semaphore.acquire_timeout(1, limit),
            );
            acquired
                .await
                .map_err(|error| ApiError::of(path, &error))?
                .ok_or_else(|| taken(path))
        }
        (Mode::Slot, None) | (_, Some(_)) => {
            let next = "send both mode \"slot\" and slots, or neither";
            let cause = "a number of slots and the mode \"slot\" belong together";
            Err(ApiError::refused("slots", cause, next))
        }
        (Mode::Exclusive, None) => {
            let refused = |error: baton::lock::LockError| ApiError::of(path, &error);
            let mut mutex = Mutex::new(client, path).map_err(refused)?;
            mutex = mutex.name(&name).pid(pid).progress(progress);
            if let Some(delay) = delay {
                mutex = mutex.lock_delay(delay);
            }
            let acquired = within(
                wait_ms,
                || mutex.acquire(),
                || mutex.try_acquire(),
                |limit| mutex.acquire_timeout(limit),
            );
            acquired.await.map_err(refused)?.ok_or_else(|| taken(path))
        }
        (Mode::Read, None) => {
            let lock = rw_lock(client, path)?;
            let lock = lock.name(&name).pid(pid).progress(progress);
            let acquired = within(
                wait_ms,
                || lock.read(),
                || lock.try_read(),
                |limit| lock.read_timeout(limit),
            );
            let acquired = acquired.await.map_err(|error| ApiError::of(path, &error))?;
            Ok(acquired.ok_or_else(|| taken(path))?.into_guard())
        }
        (Mode::Write, None) => {
            let lock = rw_lock(client, path)?;
            let lock = lock.name(&name).pid(pid).progress(progress);
            let acquired = within(
                wait_ms,
                || lock.write(),
                || lock.try_write(),
                |limit| lock.write_timeout(limit),
            );
            let acquired = acquired.await.map_err(|error| ApiError::of(path, &error))?;
            Ok(acquired.ok_or_else(|| taken(path))?.into_guard())
        }
    }
}

fn rw_lock(client: &Client, path: &str) -> Result<RwLock, ApiError> {
    RwLock::new(client, path).map_err(|error| ApiError::of(path, &error))
}

fn taken(path: &str) -> ApiError {
    let next = "wait with wait_ms, or ask GET /v1/locks who holds it";
    ApiError::new(
        crate::error::Code::NotAcquired,
        path,
        "somebody else holds it",
        next,
    )
}

/// Reads bytes as a body, for a fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn parse(bytes: &[u8]) {
    // Refused or not, it ends.
    let _ = crate::body::parse::<LockRequest>(bytes);
}

//! `POST` and `DELETE /v1/hold/PATH`: a lock that outlives its request, for "take in one process,
//! release in another". It ends with its time to live, unless it is held again with its token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use baton::lock::WaitProgress;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::body::{Params, Rest, ZnodeRequest};
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::hold_table::HoldCommand;
use crate::lock::{LockRequest, acquire};
use crate::state::Shared;

/// The longest time to live.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

/// The body of a request to hold a lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldRequest {
    /// Time for which the lock is held without another request.
    ttl_ms: u64,
    /// Token of a lock that is held already, and goes on being held.
    token: Option<u64>,
    #[serde(default)]
    lock: LockRequest,
}

/// A lock that is held.
#[derive(Debug, Serialize)]
pub(crate) struct Hold {
    path: String,
    token: u64,
    ttl_ms: u64,
}

pub(crate) async fn post(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    ZnodeRequest {
        path,
        params: request,
    }: ZnodeRequest<HoldRequest>,
) -> Result<Json<Hold>, ApiError> {
    let ttl = Duration::from_millis(request.ttl_ms);
    if ttl.is_zero() || ttl > MAX_TTL {
        let cause = format!("it is not between 1 and {} ms", MAX_TTL.as_millis());
        return Err(ApiError::refused("ttl_ms", cause, "send another time"));
    }
    let held = |token| Hold {
        path: path.clone(),
        token,
        ttl_ms: request.ttl_ms,
    };
    if let Some(token) = request.token {
        shared
            .holds
            .ask(&caller, &path, token, HoldCommand::Renew(ttl))?;
        return Ok(Json(held(token)));
    }
    shared.holds.has_room(&caller, &path)?;
    let client = shared.sessions.client(&caller, request.lock.timeout_ms())?;
    let progress = WaitProgress::new();
    let acquired = acquire(&client, &path, &request.lock, &caller, &progress).await;
    let guard = match shared.sessions.note(acquired) {
        Ok(guard) => guard,
        Err(mut error) => {
            error.name_holder(&client, &path).await;
            return Err(error);
        }
    };
    let token = guard.token();
    let holds = Arc::clone(&shared.holds);
    let mut inbox = holds.add(&caller, &path, token, guard.status());
    let held_path = path.clone();
    tokio::spawn(async move {
        // Keeps the session open.
        let _client = client;
        let mut until = Instant::now() + ttl;
        let mut asker = None;
        loop {
            tokio::select! {
                biased;
                _ = guard.lost() => break,
                command = inbox.recv() => match command {
                    Some(HoldCommand::Renew(ttl)) => until = Instant::now() + ttl,
                    Some(HoldCommand::Release(answer)) => {
                        asker = Some(answer);
                        break;
                    }
                    None => break,
                },
                () = tokio::time::sleep_until(until) => break,
            }
        }
        holds.remove(&caller, &held_path, token);
        let released = Box::pin(guard.release().confirmed()).await;
        if let Some(asker) = asker {
            // The asker may have gone.
            let _ = asker.send(released.is_ok());
        }
    });
    Ok(Json(held(token)))
}

/// The query of a request to release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldQuery {
    token: u64,
}

/// The answer to a release.
#[derive(Debug, Serialize)]
pub(crate) struct Released {
    released: bool,
}

pub(crate) async fn delete(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    rest: Rest,
    Params(query): Params<HoldQuery>,
) -> Result<Json<Released>, ApiError> {
    let path = rest.znode_path();
    let (sender, answer) = oneshot::channel();
    let command = HoldCommand::Release(sender);
    shared.holds.ask(&caller, &path, query.token, command)?;
    match answer.await {
        Ok(true) => Ok(Json(Released { released: true })),
        _ => {
            let next = "read GET /v1/locks: the release is repeated until a server confirms it";
            let cause = "no server has confirmed the release";
            Err(ApiError::new(Code::Unknown, path, cause, next))
        }
    }
}

/// Reads bytes as a body, for a fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn parse(bytes: &[u8]) {
    // Refused or not, it ends.
    let _ = crate::body::parse::<HoldRequest>(bytes);
}

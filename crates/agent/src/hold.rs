//! `POST` and `DELETE /v1/hold/PATH`: a lock that outlives its request, for "take in one process,
//! release in another". It ends with its time to live, unless it is held again with its token.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::{Extension, Json};
use baton::guard::GuardStatus;
use baton::lock::WaitProgress;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::body::{self, Params, Rest};
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::lock::{LockRequest, acquire};
use crate::routes::Shared;

/// The longest time to live.
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// Locks of one user that outlive their requests.
const MAX_OF_USER: usize = 1_000;

/// What the owner of a lock is asked.
enum Command {
    /// Holds it this much longer from now on.
    Renew(Duration),
    Release(oneshot::Sender<bool>),
}

#[derive(Debug)]
struct Entry {
    token: u64,
    status: GuardStatus,
    commands: mpsc::UnboundedSender<Command>,
}

/// The locks that outlive their requests, by user and path.
#[derive(Debug, Default)]
pub(crate) struct HoldTable {
    entries: Mutex<HashMap<(u32, String), Entry>>,
}

impl HoldTable {
    pub(crate) fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// Asks the owner of the lock with this token.
    fn ask(
        &self,
        caller: Caller,
        path: &str,
        token: u64,
        command: Command,
    ) -> Result<(), ApiError> {
        let entries = self.entries.lock();
        let entry = entries.get(&(caller.uid, path.to_owned()));
        let is_asked = entry
            .filter(|it| it.token == token && it.status.check().is_ok())
            .is_some_and(|it| it.commands.send(command).is_ok());
        if is_asked {
            return Ok(());
        }
        let cause = format!("it is not held with token {token}");
        Err(ApiError::new(
            Code::Lost,
            path,
            cause,
            "hold it again without a token",
        ))
    }
}

/// The body of a request to hold a lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldRequest {
    /// Until when it is held without being held again.
    ttl_ms: u64,
    /// Of a lock that is held already: it goes on.
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
    rest: Rest,
    body: Body,
) -> Result<Json<Hold>, ApiError> {
    let request: HoldRequest = body::read(body).await?;
    let path = rest.znode_path();
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
            .ask(caller, &path, token, Command::Renew(ttl))?;
        return Ok(Json(held(token)));
    }
    let of_user = || {
        let entries = shared.holds.entries.lock();
        entries.keys().filter(|(uid, _)| *uid == caller.uid).count()
    };
    if of_user() >= MAX_OF_USER {
        let cause = format!("this user holds {MAX_OF_USER} locks like this, the most that one may");
        return Err(ApiError::refused(&path, cause, "release some of them")
            .with_status(axum::http::StatusCode::TOO_MANY_REQUESTS));
    }
    let client = shared.sessions.client(caller, request.lock.timeout_ms())?;
    let progress = WaitProgress::new();
    let acquired = acquire(&client, &path, &request.lock, caller, &progress).await;
    shared.sessions.note(acquired.as_ref().err());
    let guard = acquired?;
    let token = guard.token();
    let (commands, mut inbox) = mpsc::unbounded_channel();
    let key = (caller.uid, path.clone());
    let entry = Entry {
        token,
        status: guard.status(),
        commands,
    };
    shared.holds.entries.lock().insert(key.clone(), entry);
    let holds = std::sync::Arc::clone(&shared.holds);
    tokio::spawn(async move {
        let mut until = Instant::now() + ttl;
        let mut asker = None;
        loop {
            tokio::select! {
                biased;
                _ = guard.lost() => break,
                command = inbox.recv() => match command {
                    Some(Command::Renew(ttl)) => until = Instant::now() + ttl,
                    Some(Command::Release(answer)) => {
                        asker = Some(answer);
                        break;
                    }
                    None => break,
                },
                () = tokio::time::sleep_until(until) => break,
            }
        }
        // A later holder of this user has an entry of its own.
        let is_own = |entry: &mut Entry| entry.token == token;
        {
            let mut entries = holds.entries.lock();
            if entries.get_mut(&key).is_some_and(is_own) {
                entries.remove(&key);
            }
        }
        let released = guard.release().confirmed().await;
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
    let command = Command::Release(sender);
    shared.holds.ask(caller, &path, query.token, command)?;
    match answer.await {
        Ok(true) => Ok(Json(Released { released: true })),
        _ => {
            let next = "read GET /v1/locks: the release is repeated until a server confirms it";
            let cause = "no server has confirmed the release";
            Err(ApiError::new(Code::Unknown, path, cause, next))
        }
    }
}

//! `GET /v1/locks?path=PATH`: who holds a lock and who waits; `?prefix=PATH`: the same of each lock
//! below. `GET /v1/token/PATH/N`: whether N is
//! the token of who holds it now.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use baton::inspect::{Inspector, LockSnapshot, NodeRole, role};
use baton::session;
use baton::tree::path;
use serde::{Deserialize, Serialize};

use crate::body::{Params, Rest};
use crate::caller::Caller;
use crate::error::ApiError;
use crate::state::Shared;

/// Nodes below a prefix whose children are read, at most.
const MAX_FOLDERS: usize = 10_000;
/// Locks of one listing.
const MAX_LOCKS: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockQuery {
    path: Option<String>,
    prefix: Option<String>,
}

/// The locks below a prefix that somebody holds or waits for.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LockList {
    locks: Vec<LockSnapshot>,
    /// Whether all nodes below the prefix were read.
    is_complete: bool,
}

pub(crate) async fn locks(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<LockQuery>,
) -> Result<Response, ApiError> {
    match (query.path, query.prefix) {
        (Some(path), None) => Ok(Json(read(&shared, &caller, &path).await?).into_response()),
        (None, Some(prefix)) => Ok(Json(below(&shared, &caller, &prefix).await?).into_response()),
        _ => {
            let next = "send ?path=PATH for one lock, or ?prefix=PATH for all below";
            let cause = "it has to name either a path or a prefix";
            Err(ApiError::refused("the query", cause, next))
        }
    }
}

/// Reads the locks below a node, as far as this user may read the tree.
async fn below(shared: &Shared, caller: &Caller, prefix: &str) -> Result<LockList, ApiError> {
    let client = shared.sessions.client(caller, None)?;
    let opened = client.session().await;
    let opened = opened.map_err(|error| ApiError::unavailable(prefix, &error));
    let session = shared.sessions.note(opened)?;
    let mut list = LockList {
        is_complete: true,
        ..LockList::default()
    };
    let mut folders = vec![prefix.to_owned()];
    let mut reads = 0;
    while let Some(folder) = folders.pop() {
        if reads == MAX_FOLDERS || list.locks.len() == MAX_LOCKS {
            list.is_complete = false;
            break;
        }
        reads += 1;
        let names = match session.children(&folder).await {
            Ok(children) => children.names,
            // It is gone, or another user's.
            Err(session::Error::Rejected { .. }) => continue,
            Err(error) => return Err(ApiError::unavailable(&folder, &error)),
        };
        let mut is_lock = false;
        for name in names {
            let child = path::join(&folder, &name);
            match role(&child, true) {
                Some(NodeRole::Waiter { .. }) => is_lock = true,
                Some(NodeRole::Permit { semaphore, .. }) => {
                    is_lock = false;
                    list.add(read(shared, caller, semaphore).await?);
                    break;
                }
                _ => folders.push(child),
            }
        }
        if is_lock {
            list.add(read(shared, caller, &folder).await?);
        }
    }
    Ok(list)
}

impl LockList {
    fn add(&mut self, snapshot: LockSnapshot) {
        if snapshot.is_in_use() {
            self.locks.push(snapshot);
        }
    }
}

/// Whether a token is that of the present holder.
#[derive(Debug, Serialize)]
pub(crate) struct TokenState {
    /// Whether it is the newest token that was granted, and its holder holds.
    current: bool,
    /// The newest token of those who hold; `None`: nobody holds.
    newest: Option<u64>,
}

pub(crate) async fn token(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    rest: Rest,
) -> Result<Json<TokenState>, ApiError> {
    let unread = || {
        let next = "write it as /v1/token/PATH/NUMBER";
        ApiError::refused(format!("/v1/token/{}", rest.0), "it names no token", next)
    };
    let (path, number) = rest.split_action().ok_or_else(unread)?;
    let number: u64 = number.parse().map_err(|_| unread())?;
    let snapshot = read(&shared, &caller, &path).await?;
    let newest = snapshot.holders.iter().filter_map(|it| it.token).max();
    Ok(Json(TokenState {
        current: newest == Some(number),
        newest,
    }))
}

async fn read(shared: &Shared, caller: &Caller, path: &str) -> Result<LockSnapshot, ApiError> {
    let client = shared.sessions.client(caller, None)?;
    let read = Inspector::new(&client).lock(path).await;
    shared.sessions.note(read.map_err(|error| match &error {
        baton::inspect::InspectError::Connect(source) => ApiError::unavailable(path, source),
        _ => ApiError::of(path, &error),
    }))
}

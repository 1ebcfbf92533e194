//! `GET /v1/locks?path=PATH`: who holds a lock and who waits. `GET /v1/token/PATH/N`: whether N is
//! the token of who holds it now.

use axum::extract::State;
use axum::{Extension, Json};
use baton::inspect::{Inspector, LockSnapshot};
use serde::{Deserialize, Serialize};

use crate::body::{Params, Rest};
use crate::caller::Caller;
use crate::error::ApiError;
use crate::state::Shared;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockQuery {
    path: String,
}

pub(crate) async fn locks(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<LockQuery>,
) -> Result<Json<LockSnapshot>, ApiError> {
    Ok(Json(read(&shared, caller, &query.path).await?))
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
    let snapshot = read(&shared, caller, &path).await?;
    let newest = snapshot.holders.iter().filter_map(|it| it.token).max();
    Ok(Json(TokenState {
        current: newest == Some(number),
        newest,
    }))
}

async fn read(shared: &Shared, caller: Caller, path: &str) -> Result<LockSnapshot, ApiError> {
    let client = shared.sessions.client(caller, None)?;
    let read = Inspector::new(&client).lock(path).await;
    let read = read.map_err(|error| match &error {
        baton::inspect::InspectError::Connect(source) => ApiError::unavailable(path, source),
        _ => ApiError::of(path, &error),
    });
    shared.sessions.note(read.as_ref().err());
    read
}

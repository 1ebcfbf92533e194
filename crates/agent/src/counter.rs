//! `POST /v1/counter/PATH/add`: a counter.

use axum::body::Body;
use axum::extract::State;
use axum::{Extension, Json};
use baton::Counter;
use serde::{Deserialize, Serialize};

use crate::body::{self, Rest};
use crate::caller::Caller;
use crate::error::ApiError;
use crate::state::Shared;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddRequest {
    #[serde(default = "one")]
    delta: i64,
}

fn one() -> i64 {
    1
}

/// The value of a counter.
#[derive(Debug, Serialize)]
pub(crate) struct CounterValue {
    value: i64,
}

pub(crate) async fn post(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    rest: Rest,
    body: Body,
) -> Result<Json<CounterValue>, ApiError> {
    let Some((path, "add")) = rest.split_action() else {
        let thing = format!("/v1/counter/{}", rest.0);
        let next = "end the path in /add";
        return Err(ApiError::refused(thing, "no such operation", next)
            .with_status(axum::http::StatusCode::NOT_FOUND));
    };
    let request: AddRequest = body::read(body).await?;
    let client = shared.sessions.client(&caller, None)?;
    let counter = Counter::new(&client, &path).map_err(|error| ApiError::of(&path, &error))?;
    let added = counter.add(request.delta).await;
    let added = added.map_err(|error| ApiError::of(&path, &error));
    let value = shared.sessions.note(added)?;
    Ok(Json(CounterValue { value }))
}

pub(crate) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    rest: Rest,
) -> Result<Json<CounterValue>, ApiError> {
    let path = rest.znode_path();
    let client = shared.sessions.client(&caller, None)?;
    let counter = Counter::new(&client, &path).map_err(|error| ApiError::of(&path, &error))?;
    let read = counter.get().await;
    let read = read.map_err(|error| ApiError::of(&path, &error));
    let value = shared.sessions.note(read)?;
    Ok(Json(CounterValue { value }))
}

/// Reads bytes as a body, for a fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn parse(bytes: &[u8]) {
    // Refused or not, it ends.
    let _ = crate::body::parse::<AddRequest>(bytes);
}

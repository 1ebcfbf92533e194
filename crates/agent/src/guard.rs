//! `POST /v1/guard/ID/release`, `renew` and `txn`: what a caller does with the guard that it holds.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;

use crate::body;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::held::Write;
use crate::state::Shared;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TxnRequest {
    writes: Vec<Write>,
}

pub(crate) async fn post(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((id, action)): Path<(String, String)>,
    body: Body,
) -> Result<Response, ApiError> {
    match action.as_str() {
        "release" => Ok(Json(shared.held.release(&caller, &id).await?).into_response()),
        "renew" => {
            let lease_ms = shared.held.renew(&caller, &id)?;
            Ok(Json(json!({ "lease_ms": lease_ms })).into_response())
        }
        "txn" => {
            let request: TxnRequest = body::read(body).await?;
            shared.held.txn(&caller, &id, request.writes).await?;
            Ok(Json(json!({ "applied": true })).into_response())
        }
        _ => {
            let next = "use release, renew or txn";
            let thing = format!("/v1/guard/{id}/{action}");
            Err(ApiError::refused(thing, "no such operation", next)
                .with_status(StatusCode::NOT_FOUND))
        }
    }
}

/// Reads bytes as a body, for a fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn parse(bytes: &[u8]) {
    // Refused or not, it ends.
    let _ = crate::body::parse::<TxnRequest>(bytes);
}

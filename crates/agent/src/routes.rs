//! The interface, version 1: which handler answers which path.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::json;

use crate::body;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::held::Write;
use crate::state::Shared;
use crate::{counter, election, health, hold, listing, lock, member, queue};

/// The interface. Each request needs its [`Caller`] as an extension.
pub(crate) fn router(shared: Shared) -> Router {
    Router::new()
        .route("/v1/lock/{*path}", post(lock::post))
        .route("/v1/guard/{id}/{action}", post(guard))
        .route("/v1/token/{*path}", get(listing::token))
        .route("/v1/hold/{*path}", post(hold::post).delete(hold::delete))
        .route("/v1/elect/{*path}", post(election::post))
        .route("/v1/queue/{*path}", post(queue::post))
        .route("/v1/member/{*path}", post(member::post).get(member::get))
        .route("/v1/counter/{*path}", post(counter::post).get(counter::get))
        .route("/v1/locks", get(listing::locks))
        .route("/v1/health", get(health::get))
        .route("/metrics", get(health::metrics))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TxnRequest {
    writes: Vec<Write>,
}

async fn guard(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((id, action)): Path<(String, String)>,
    body: Body,
) -> Result<Response, ApiError> {
    match action.as_str() {
        "release" => Ok(Json(shared.held.release(caller, &id).await?).into_response()),
        "renew" => {
            let lease_ms = shared.held.renew(caller, &id)?;
            Ok(Json(json!({ "lease_ms": lease_ms })).into_response())
        }
        "txn" => {
            let request: TxnRequest = body::read(body).await?;
            shared.held.txn(caller, &id, request.writes).await?;
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

async fn unknown(request: axum::extract::Request) -> ApiError {
    let next = "use a path of the interface's version 1, such as /v1/lock/PATH";
    let thing = request.uri().path().to_owned();
    ApiError::refused(thing, "no such path", next).with_status(StatusCode::NOT_FOUND)
}

async fn wrong_method(request: axum::extract::Request) -> ApiError {
    let thing = format!("{} {}", request.method(), request.uri().path());
    let next = "use the method that the interface gives for this path";
    ApiError::refused(thing, "this path has no such method", next)
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}

//! HTTP for operators: `/commands` as ZooKeeper's admin server has them, `/metrics` for Prometheus, `/healthz` and
//! `/readyz`. Never hands out a znode's data. What one caller can take is [`crate::http`]'s to bound.

mod commands;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use tokio::net::TcpListener;

use self::commands::Asked;
use super::metrics;
use crate::core::shared::Shared;

/// Bytes of a request's body.
const MAX_BODY_BYTES: usize = 4 << 10;

/// Answers until it is aborted, and its connections with it.
pub(crate) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let router = Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(figures))
        .route("/commands", get(list))
        .route("/commands/", get(list))
        .route("/commands/{name}", any(command))
        .with_state(shared);
    crate::http::serve(router, listener).await;
}

/// The process answers and its core has not ended.
async fn healthy(State(shared): State<Arc<Shared>>) -> Response {
    if shared.inbox.is_closed() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server stops\n").into_response();
    }
    "ok\n".into_response()
}

/// It also takes requests: those that wait are not so many that sockets are not read.
async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let waiting = shared.inbox.queued_bytes();
    if shared.inbox.is_closed() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the server stops\n").into_response();
    }
    if shared.stats.disk_full.load(Relaxed) {
        let text = "the disk is full: writes wait until there is room\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    if waiting >= shared.options.max_queued_bytes {
        let text = format!("{waiting} bytes of requests wait for the disk\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    }
    "ok\n".into_response()
}

async fn figures(State(shared): State<Arc<Shared>>) -> Response {
    let made = tokio::task::spawn_blocking(move || metrics::as_exposition(&shared)).await;
    match made {
        Ok(text) => (
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            text,
        )
            .into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn list() -> Response {
    json(StatusCode::OK, &commands::list())
}

async fn command(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    Extension(peer): Extension<SocketAddr>,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        let answer = commands::failure(&name, "the request's body is too long or broke off");
        return json(StatusCode::PAYLOAD_TOO_LARGE, &answer);
    };
    let authorization = head.headers.get(header::AUTHORIZATION);
    let asked = Asked {
        name,
        peer,
        post: head.method == Method::POST,
        authorization: authorization.map(|value| value.as_bytes().to_vec()),
        query: head.uri.query().unwrap_or_default().to_owned(),
        body: body.to_vec(),
    };
    match tokio::task::spawn_blocking(move || commands::run(&shared, &asked)).await {
        Ok((status, answer)) => json(status, &answer),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn json(status: StatusCode, answer: &serde_json::Value) -> Response {
    let text = format!("{answer:#}\n");
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

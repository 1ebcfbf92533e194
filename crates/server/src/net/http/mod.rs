//! HTTP for operators: `/commands` as ZooKeeper's admin server has them, `/metrics` for Prometheus, `/healthz` and
//! `/readyz`. What one caller can take is bounded: connections, bytes of a request, time of a request and of a connection.
//! Never hands out a znode's data.

mod commands;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::commands::Asked;
use super::metrics;
use crate::core::shared::Shared;

/// Connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 32;
/// Bytes of a request's head, and of its body.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_BODY_BYTES: usize = 4 << 10;
/// How long a head may take to arrive, an answer to be made, and a connection to live.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// How long to wait when the system has no file descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers until it is aborted, and its connections with it.
pub(crate) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let router = Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(figures))
        .route("/commands", get(list))
        .route("/commands/", get(list))
        .route("/commands/{name}", any(command))
        .layer(middleware::from_fn(in_time))
        .with_state(shared);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone().layer(Extension(peer));
                connections.spawn(async move {
                    serve(router, stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection; raise the limit of open files if this goes on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(router: Router, stream: TcpStream) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        tracing::debug!(%error, "an HTTP connection broke");
    }
}

async fn in_time(request: Request, next: Next) -> Result<Response, Infallible> {
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await;
    Ok(answer.unwrap_or_else(|_| {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the answer took too long\n",
        )
            .into_response()
    }))
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

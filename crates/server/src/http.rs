//! A small HTTP listener for whoever watches over a process: the server's own, and those of programs around it.
//!
//! Owns what one caller can take: connections, bytes of a head, time of a request and of a connection. Knows nothing of what is
//! answered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::StartError;

/// Connections at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 32;
/// Bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How long a head may take to arrive, an answer to be made, and a connection to live.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// How long to wait when the system has no file descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens on `HOST:PORT`, and tells the address; port 0 is a free one. Needs a tokio runtime.
///
/// # Errors
/// [`StartError::Listen`] for an address that is none, or is taken.
pub async fn bind(address: &str) -> Result<(TcpListener, SocketAddr), StartError> {
    crate::net::listen::bind(address).await
}

/// Answers with `router` until the future is dropped, and its connections with it. Handlers can extract the peer's
/// [`SocketAddr`] as an extension.
pub async fn serve(router: Router, listener: TcpListener) {
    let router = router.layer(middleware::from_fn(in_time));
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
                    answer(router, stream).await;
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

async fn answer(router: Router, stream: TcpStream) {
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

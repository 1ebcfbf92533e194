//! HTTP for operators: `/commands` as ZooKeeper's admin server has them, `/metrics` for Prometheus,
//! `/healthz` and `/readyz`. Never hands out a znode's data by itself: what shows the tree are the
//! pages that the program around the server adds, which are answered below all other paths. What
//! one caller can take is [`crate::listening::http`]'s to bound. Everybody may ask for `/healthz`
//! and `/readyz`, which supervisors on other machines decide by; who may ask for the rest,
//! `access` says.

pub(crate) mod access;
mod commands;
mod streams;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use baton_tls::ServerTls;
use bytes::Bytes;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use self::access::{Caller, Readers, Refused, RequestKind, Visit};
use self::commands::CommandQuery;
use crate::auth::tokens::Tokens;
use crate::core::start::starting::Starting;
use crate::listening::http::LongAnswer;
use crate::operator::members;
use crate::operator::metrics;
use crate::report::listings::{ListingName, Source};
use crate::state::ServerState;

/// The server that is described: one that starts, then one that serves.
#[derive(Debug)]
pub(crate) struct Site {
    starting: Arc<Starting>,
    state: OnceLock<Arc<ServerState>>,
    tokens: Option<Arc<Tokens>>,
    pages: OnceLock<Router>,
}

impl Site {
    /// `tokens` are those of callers over HTTP.
    pub(crate) fn new(starting: Arc<Starting>, tokens: Option<Arc<Tokens>>) -> Arc<Self> {
        Arc::new(Self {
            starting,
            state: OnceLock::new(),
            tokens,
            pages: OnceLock::new(),
        })
    }

    /// The server has started.
    pub(crate) fn serves(&self, state: &Arc<ServerState>) {
        let first = self.state.set(Arc::clone(state)).is_ok();
        debug_assert!(first, "a server starts once");
    }

    /// Answers by `pages` what is asked for at other paths. `false`: there are pages already.
    pub(crate) fn add_pages(&self, pages: Router) -> bool {
        self.pages.set(pages).is_ok()
    }

    /// Returns the sender of a request as a client of the server, and the server.
    ///
    /// # Errors
    /// Why it is not let in.
    pub(crate) async fn visit(
        &self,
        caller: Option<Caller>,
        kind: RequestKind,
    ) -> Result<(Arc<ServerState>, Visit), Refused> {
        let starts = |stage| (StatusCode::SERVICE_UNAVAILABLE, stage);
        let state = self.state().map_err(starts)?;
        let caller = Arc::new(caller.ok_or_else(unknown_caller)?);
        let visit = caller.visit(&state, self.tokens.as_ref(), kind).await?;
        Ok((state, visit))
    }

    /// The server, or how far its start is.
    pub(crate) fn state(&self) -> Result<Arc<ServerState>, String> {
        let state = self.state.get();
        state.cloned().ok_or_else(|| self.starting.to_string())
    }

    /// Whether the caller may read `what`. While the server starts there is nothing to read but how
    /// far it is.
    async fn may_read(&self, caller: Option<Caller>, what: &str) -> Result<(), Refused> {
        let Ok(state) = self.state() else {
            return Ok(());
        };
        let caller = Arc::new(caller.ok_or_else(unknown_caller)?);
        let tokens = self.tokens.as_ref();
        caller.check(&state, tokens, RequestKind::Read, what).await
    }
}

/// Answers until it is aborted, and its connections with it. With `tls`, over TLS only.
pub(crate) async fn serve(
    site: Arc<Site>,
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    readers: Readers,
) {
    let router = Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposition))
        .route("/commands", get(list_commands))
        .route("/commands/", get(list_commands))
        .route("/commands/{name}", any(command))
        .fallback(page)
        .with_state(site)
        .layer(Extension(readers));
    match tls {
        Some(tls) => crate::listening::http::serve_tls(router, listener, tls).await,
        None => crate::listening::http::serve(router, listener).await,
    }
}

fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

/// The process answers and its core has not ended.
async fn healthy(State(site): State<Arc<Site>>) -> Response {
    match site.state() {
        Ok(state) if state.inbox.is_closed() => unavailable("the server stops"),
        Ok(_) => "ok\n".into_response(),
        Err(stage) => format!("{stage}\n").into_response(),
    }
}

/// It also takes requests: few enough wait that sockets are read.
async fn ready(State(site): State<Arc<Site>>) -> Response {
    let state = match site.state() {
        Ok(state) => state,
        Err(stage) => return unavailable(&stage),
    };
    if state.inbox.is_closed() {
        return unavailable("the server stops");
    }
    if state.stats.disk_full.load(Relaxed) {
        return unavailable("the disk is full: writes wait until there is room");
    }
    if let Some(left) = state.held_for() {
        let seconds = left.as_millis().div_ceil(1000);
        return unavailable(&format!(
            "restored from a backup: sessions are served in {seconds} s, when every lease from before has ended"
        ));
    }
    if let Some(stuck) = state.core_stuck() {
        let seconds = stuck.as_secs();
        return unavailable(&format!(
            "the disk has not answered for {seconds} s: writes wait"
        ));
    }
    if let Some(gap) = members::log_gap(&state) {
        return unavailable(&gap);
    }
    if state.is_read_only() {
        return unavailable("no leader of the ensemble is known: this server is read-only");
    }
    if !members::has_leader(&state) {
        return unavailable("no leader of the ensemble is known: writes wait");
    }
    let waiting = state.inbox.queued_bytes();
    if state.inbox.is_almost_full() {
        return unavailable(&format!("{waiting} bytes of requests wait for the disk"));
    }
    "ok\n".into_response()
}

async fn exposition(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let caller = caller_of(&request);
    if let Err((status, why)) = site.may_read(caller, "/metrics").await {
        return typed(
            status,
            "text/plain; charset=utf-8",
            format!("{why}\n").into(),
        );
    }
    let state = match site.state() {
        Ok(state) => state,
        Err(stage) => return unavailable(&stage),
    };
    let listed = state.list(ListingName::Metrics, Source::Memory, |state| {
        Ok(metrics::as_exposition(state))
    });
    match listed.await {
        Ok(text) => (
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            Bytes::from_owner(text),
        )
            .into_response(),
        Err(refusal) => unavailable(&format!("/metrics is not answered because {refusal}")),
    }
}

async fn list_commands(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let caller = caller_of(&request);
    if let Err((status, why)) = site.may_read(caller, "/commands").await {
        return json(
            status,
            commands::text_of(&commands::failure("commands", &why)),
        );
    }
    json(StatusCode::OK, commands::text_of(&commands::list()))
}

async fn command(
    State(site): State<Arc<Site>>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Response {
    let state = match site.state() {
        Ok(state) => state,
        Err(stage) => {
            let answer = commands::failure(&name, &stage);
            return json(StatusCode::SERVICE_UNAVAILABLE, commands::text_of(&answer));
        }
    };
    let caller = match caller_of(&request) {
        Some(caller) => Arc::new(caller),
        None => {
            let (status, why) = unknown_caller();
            return json(status, commands::text_of(&commands::failure(&name, &why)));
        }
    };
    let (head, body) = request.into_parts();
    let asked = CommandQuery {
        name,
        post: head.method == Method::POST,
        query: head.uri.query().unwrap_or_default().to_owned(),
        long: head.extensions.get::<LongAnswer>().cloned(),
    };
    commands::run(&state, site.tokens.as_ref(), &caller, asked, body).await
}

/// Serves what the program around the server has added.
async fn page(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let Some(pages) = site.pages.get() else {
        return match site.state() {
            Ok(_) => StatusCode::NOT_FOUND.into_response(),
            Err(stage) => unavailable(&stage),
        };
    };
    match TowerToHyperService::new(pages.clone()).call(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

fn caller_of(request: &Request<Body>) -> Option<Caller> {
    Caller::of(request.headers(), request.extensions())
}

fn unknown_caller() -> Refused {
    let text = "the address of the connection is not known; report this".to_owned();
    (StatusCode::INTERNAL_SERVER_ERROR, text)
}

fn json(status: StatusCode, text: Bytes) -> Response {
    typed(status, "application/json", text)
}

fn typed(status: StatusCode, content: &'static str, text: Bytes) -> Response {
    let mut response = (status, [(header::CONTENT_TYPE, content)], text).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let asks = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, asks);
    }
    response
}

//! The page and what it asks for, over HTTP.
//!
//! Owns routes and headers. Who asks, and by which identity the tree is read, is the host's to say
//! ([`Host`]): nothing of the tree is handed out without a [`Seat`]. A page from elsewhere gets
//! nothing: it can neither read an answer nor send the header that an action needs, and a name that
//! somebody else's DNS gives to this machine is refused.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use baton_client::path;
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::actions::{self, Action, ActionError};
use crate::console::{Console, Viewer};
use crate::detail;
use crate::error::SurveyError;
use crate::scene::Scene;
use crate::survey;

/// Messages that wait for one viewer to read them. What changes meanwhile is one message later.
const WAITING_MESSAGES: usize = 4;
/// Between two signs of life to a viewer.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Bytes of an action.
const MAX_ACTION: usize = 16 << 10;

/// The page's files: path, type, bytes.
const FILES: [(&str, &str, &str); 7] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../page/index.html"),
    ),
    (
        "/console/icon.svg",
        "image/svg+xml",
        include_str!("../page/icon.svg"),
    ),
    (
        "/console/page.css",
        "text/css; charset=utf-8",
        include_str!("../page/page.css"),
    ),
    (
        "/console/store.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/store.js"),
    ),
    (
        "/console/dom.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/dom.js"),
    ),
    (
        "/console/views.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/views.js"),
    ),
    (
        "/console/page.js",
        "text/javascript; charset=utf-8",
        include_str!("../page/page.js"),
    ),
];

/// What every answer says to the browser: run and load only what comes from here, show it in no
/// frame, keep nothing.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// What one caller sees.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The survey, by the identity that the caller has.
    pub console: Console,
    /// Whether the caller may change something.
    pub may_act: bool,
    /// Who the caller is, for people.
    pub who: String,
}

/// Why a caller gets nothing.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// What to do about it.
    pub text: String,
}

/// The program around the page: it knows its callers.
pub trait Host: Send + Sync + 'static {
    /// The seat of a caller who has sent this header `Authorization`.
    fn seat(
        &self,
        authorization: Option<&str>,
    ) -> Pin<Box<dyn Future<Output = Result<Seat, Refusal>> + Send + '_>>;
}

/// The routes of the page, at `/` and below `/console/`.
pub fn router(host: Arc<dyn Host>) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in FILES {
        let answer = move || async move { ([(header::CONTENT_TYPE, kind)], text) };
        router = router.route(path, get(answer));
    }
    router
        .route("/console/api/who", get(who))
        .route("/console/api/events", get(events))
        .route("/console/api/recipe", get(recipe))
        .route("/console/api/graph", get(graph))
        .route("/console/api/node", get(node))
        .route("/console/api/act", post(act))
        .with_state(host)
        .layer(middleware::from_fn(guarded))
}

/// Adds the headers, and refuses names that are not this machine's.
async fn guarded(request: Request, next: Next) -> Result<Response, Infallible> {
    let mut response = if is_by_its_own_name(request.headers()) {
        next.run(request).await
    } else {
        let text = "ask for the console by an address, or show who you are: without an identity it is not shown under \
                    other names, which any site could give to this machine\n";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    };
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Whether the request is for an address or for `localhost`, or shows an identity, which no foreign
/// page can make a browser do.
fn is_by_its_own_name(headers: &HeaderMap) -> bool {
    if headers.contains_key(header::AUTHORIZATION) {
        return true;
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    host.is_none_or(|host| {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
    })
}

type Shared = State<Arc<dyn Host>>;

async fn seat(host: &Arc<dyn Host>, headers: &HeaderMap) -> Result<Seat, Response> {
    let authorization = headers.get(header::AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap_or("unreadable"));
    host.seat(authorization).await.map_err(|refusal| {
        let mut response = failed(refusal.status, &refusal.text);
        if refusal.status == StatusCode::UNAUTHORIZED {
            let asks = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, asks);
        }
        response
    })
}

#[derive(Serialize)]
struct Failed<'a> {
    error: &'a str,
}

fn failed(status: StatusCode, error: &str) -> Response {
    let mut response = json(&Failed { error });
    *response.status_mut() = status;
    response
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn unavailable(error: &impl std::fmt::Display) -> Response {
    failed(StatusCode::BAD_GATEWAY, &error.to_string())
}

/// Who the caller is, and whether it may change something.
async fn who(State(host): Shared, headers: HeaderMap) -> Response {
    #[derive(Serialize)]
    struct Who {
        who: String,
        may_act: bool,
        now_ms: i64,
    }
    match seat(&host, &headers).await {
        Ok(Seat { who, may_act, .. }) => json(&Who {
            who,
            may_act,
            now_ms: survey::local_ms(),
        }),
        Err(refused) => refused,
    }
}

/// Every row, then what changes, as server-sent events.
async fn events(State(host): Shared, headers: HeaderMap) -> Response {
    let seat = match seat(&host, &headers).await {
        Ok(seat) => seat,
        Err(refused) => return refused,
    };
    let Some(viewer) = seat.console.view() else {
        let text = "too many pages are open; close one, and reload this one";
        return failed(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    let (sender, receiver) = mpsc::channel(WAITING_MESSAGES);
    tokio::spawn(feed(viewer, sender));
    let body = Body::from_stream(Events(receiver));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// Sends one viewer what changes, until it has gone.
async fn feed(mut viewer: Viewer, to: mpsc::Sender<Bytes>) {
    let mut shown: Option<Scene> = None;
    loop {
        let scene = viewer.scenes.borrow_and_update().clone();
        for message in scene.since(shown.as_ref()) {
            let Ok(text) = serde_json::to_string(&message) else {
                return;
            };
            // JSON has no line ends of its own.
            let event = format!("data: {text}\n\n");
            if to.send(event.into()).await.is_err() {
                return;
            }
        }
        shown = Some(scene);
        tokio::select! {
            changed = viewer.scenes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(SIGN_OF_LIFE) => {
                if to.send(Bytes::from_static(b": still here\n\n")).await.is_err() {
                    return;
                }
            }
            () = to.closed() => return,
        }
    }
}

/// The body of an answer that goes on.
struct Events(mpsc::Receiver<Bytes>);

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|event| event.map(Ok))
    }
}

#[derive(Deserialize)]
struct At {
    path: String,
    #[serde(default)]
    from: usize,
}

impl At {
    /// Why the path is none.
    fn wrong(&self) -> Option<Response> {
        let error = path::validate(&self.path).err()?;
        Some(failed(StatusCode::BAD_REQUEST, &error.to_string()))
    }
}

/// The whole of one recipe, its waiters from a position on.
async fn recipe(State(host): Shared, headers: HeaderMap, Query(at): Query<At>) -> Response {
    let answer = async {
        let seat = seat(&host, &headers).await?;
        if let Some(wrong) = at.wrong() {
            return Err(wrong);
        }
        let found = seat
            .console
            .with(|surveyor| detail::recipe(surveyor, &at.path, at.from))
            .await;
        match found {
            Ok(Some(found)) => {
                Ok(([(header::CONTENT_TYPE, "application/json")], found).into_response())
            }
            Ok(None) => {
                let text = "there is no lock, queue or group at this path any more";
                Err(failed(StatusCode::NOT_FOUND, text))
            }
            Err(error) => Err(unavailable(&error)),
        }
    };
    answer.await.unwrap_or_else(|refused| refused)
}

/// Who waits for whom, by session: the busiest of it.
async fn graph(State(host): Shared, headers: HeaderMap) -> Response {
    let answer = async {
        let seat = seat(&host, &headers).await?;
        match seat.console.with(detail::graph).await {
            Ok(graph) => Ok(json(&graph)),
            Err(error) => Err(unavailable(&error)),
        }
    };
    answer.await.unwrap_or_else(|refused: Response| refused)
}

/// A node of the tree, with its children from a position on.
async fn node(State(host): Shared, headers: HeaderMap, Query(at): Query<At>) -> Response {
    let answer = async {
        let seat = seat(&host, &headers).await?;
        if let Some(wrong) = at.wrong() {
            return Err(wrong);
        }
        match detail::node(seat.console.client(), &at.path, at.from).await {
            Ok(Some(node)) => Ok(json(&node)),
            Ok(None) => Err(failed(StatusCode::NOT_FOUND, "there is no such node")),
            Err(SurveyError::Client(error)) if error.is_no_auth() => {
                Err(failed(StatusCode::FORBIDDEN, &error.to_string()))
            }
            Err(error) => Err(unavailable(&error)),
        }
    };
    answer.await.unwrap_or_else(|refused| refused)
}

#[derive(Deserialize)]
struct Asked {
    /// Whether to do it. Otherwise the answer says what would be done.
    #[serde(default)]
    confirmed: bool,
    what: Action,
}

/// Says what an action would do, or does it.
async fn act(State(host): Shared, headers: HeaderMap, request: Request) -> Response {
    let answer = async {
        let seat = seat(&host, &headers).await?;
        if !seat.may_act {
            let text =
                "to change something, show who you are: this page was opened without an identity";
            return Err(failed(StatusCode::FORBIDDEN, text));
        }
        let refused = |text: &str| failed(StatusCode::BAD_REQUEST, text);
        let body = axum::body::to_bytes(request.into_body(), MAX_ACTION).await;
        let body = body.map_err(|_| refused("the request is too long"))?;
        let asked: Asked =
            serde_json::from_slice(&body).map_err(|error| refused(&error.to_string()))?;
        let client = seat.console.client();
        let outcome = match asked.confirmed {
            false => actions::preview(client, &asked.what).await,
            true => actions::carry_out(client, &asked.what).await,
        };
        outcome
            .map(|answer| json(&answer))
            .map_err(|error| match &error {
                ActionError::Changed(_) => failed(StatusCode::CONFLICT, &error.to_string()),
                ActionError::Failed(_) => unavailable(&error),
            })
    };
    answer.await.unwrap_or_else(|refused: Response| refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_others_can_give_to_this_machine_is_refused_without_an_identity() {
        let asked = |host: &str, identity: bool| {
            let mut headers = HeaderMap::new();
            if let Ok(host) = HeaderValue::from_str(host) {
                headers.insert(header::HOST, host);
            }
            if identity {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
            }
            is_by_its_own_name(&headers)
        };
        for own in [
            "127.0.0.1:80",
            "localhost:9",
            "LOCALHOST",
            "[::1]:80",
            "10.0.0.1",
        ] {
            assert!(asked(own, false), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:80",
            "localhost.evil:1",
            "127.0.0.1.x:1",
            "",
        ] {
            assert!(!asked(foreign, false), "{foreign}");
            assert!(asked(foreign, true), "{foreign}");
        }
    }
}

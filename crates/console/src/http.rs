//! The page and what it asks for, over HTTP.
//!
//! Owns routes and headers. Who asks, and by which identity the tree is read, is the host's to say
//! ([`Host`]): nothing of the tree is handed out without a [`CallerView`], and the page's own files
//! say nothing of it. A page from elsewhere gets nothing: it can neither read an answer nor send
//! the header that an action needs, and a name that somebody else's DNS gives to this machine is
//! refused.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use baton_client::path;
use baton_server::http::LongAnswer;
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::actions::{self, Action, ActionError};
use crate::console::{Console, Viewer};
use crate::detail;
use crate::error::SurveyError;
use crate::metrics::{HoldQuery, PastHold, RecipeMetrics};
use crate::scene::Scene;
use crate::survey;

/// Messages that wait for one viewer to read them. What changes meanwhile is one message later.
const WAITING_MESSAGES: usize = 4;
/// Between two signs of life to a viewer.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Time that a viewer may take to read a message while others wait behind it.
const SLOWEST_READ: Duration = Duration::from_secs(10);
/// Time after which a stream of events ends; the page asks for another one, and shows again who
/// asks.
const VIEW_LIMIT: Duration = Duration::from_secs(600);
/// Bytes of an action.
const MAX_ACTION: usize = 16 << 10;
/// Past holds of one answer.
const MOST_HOLDS: usize = 1_000;

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

/// Headers of every answer: the browser runs and loads only what comes from here, shows it in no
/// frame, keeps nothing.
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

/// The view that one caller gets.
#[derive(Clone, Debug)]
pub struct CallerView {
    /// The survey, by the identity that the caller has.
    pub console: Console,
    /// Whether the caller may change something.
    pub may_act: bool,
    /// Whether the caller has shown something that nobody else can: the name under which it asks
    /// does not matter then. A name and a password that mean nothing to the servers are no proof.
    pub is_proven: bool,
    /// Name of the caller, for people.
    pub who: String,
    /// The past holds, where the page is that of a server.
    pub past: Option<Arc<RecipeMetrics>>,
}

/// Reason why a caller gets nothing.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// The remedy.
    pub text: String,
}

/// The program around the page: it knows its callers.
pub trait Host: Send + Sync + 'static {
    /// The seat of this request's sender.
    fn seat<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<CallerView, Refusal>> + Send + 'a>>;
}

/// The routes of the page, at `/` and below `/console/`.
pub fn router(host: Arc<dyn Host>) -> Router {
    let mut router = Router::new()
        .route("/console/api/who", get(who))
        .route("/console/api/events", get(events))
        .route("/console/api/recipe", get(recipe))
        .route("/console/api/holds", get(holds))
        .route("/console/api/node", get(node))
        .route("/console/api/act", post(act));
    for (path, kind, text) in FILES {
        let answer = move || async move { ([(header::CONTENT_TYPE, kind)], text) };
        router = router.route(path, get(answer));
    }
    router
        .with_state(host)
        .layer(middleware::from_fn(with_headers))
}

/// Adds the headers.
async fn with_headers(request: Request, next: Next) -> Result<Response, Infallible> {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

type Shared = State<Arc<dyn Host>>;

/// The caller's seat, or the answer that refuses it.
async fn seat(host: &Arc<dyn Host>, request: &Parts) -> Result<CallerView, Response> {
    let is_by_own_name = baton_server::http::is_by_own_name(&request.headers);
    let under_foreign_name = || {
        let text = "open the console by an address, or authenticate by something that only you have: without that it is \
                    not shown under other names, which any site could give to this machine";
        failed(StatusCode::MISDIRECTED_REQUEST, text)
    };
    if !is_by_own_name && !request.headers.contains_key(header::AUTHORIZATION) {
        return Err(under_foreign_name());
    }
    match host.seat(request).await {
        Ok(seat) if is_by_own_name || seat.is_proven => Ok(seat),
        Ok(_) => Err(under_foreign_name()),
        Err(refusal) => {
            let mut response = failed(refusal.status, &refusal.text);
            if refusal.status == StatusCode::UNAUTHORIZED {
                let asks = HeaderValue::from_static("Bearer");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, asks);
            }
            Err(response)
        }
    }
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

/// Returns the caller's name, and whether it may change something.
async fn who(State(host): Shared, request: Parts) -> Response {
    #[derive(Serialize)]
    struct CallerReport {
        who: String,
        may_act: bool,
        now_ms: i64,
    }
    match seat(&host, &request).await {
        Ok(CallerView { who, may_act, .. }) => json(&CallerReport {
            who,
            may_act,
            now_ms: survey::local_ms(),
        }),
        Err(refused) => refused,
    }
}

/// Every row, then what changes, as server-sent events.
async fn events(State(host): Shared, request: Parts) -> Response {
    let seat = match seat(&host, &request).await {
        Ok(seat) => seat,
        Err(refused) => return refused,
    };
    let Some(viewer) = seat.console.view() else {
        let text = "too many pages are open; close one, and reload this one";
        return failed(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    if let Some(long) = request.extensions.get::<LongAnswer>() {
        // The stream ends before its connection does.
        long.may_last(VIEW_LIMIT + 2 * SLOWEST_READ);
    }
    let (sender, receiver) = mpsc::channel(WAITING_MESSAGES);
    tokio::spawn(tokio::time::timeout(VIEW_LIMIT, feed(viewer, sender)));
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
            if to.send_timeout(event.into(), SLOWEST_READ).await.is_err() {
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
                let sign = Bytes::from_static(b": still here\n\n");
                if to.send_timeout(sign, SLOWEST_READ).await.is_err() {
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
struct NodeSelector {
    path: String,
    #[serde(default)]
    from: usize,
}

impl NodeSelector {
    /// Answer to a path that is not valid.
    fn wrong(&self) -> Option<Response> {
        let error = path::validate(&self.path).err()?;
        Some(failed(StatusCode::BAD_REQUEST, &error.to_string()))
    }
}

/// Selection of past holds.
#[derive(Deserialize)]
struct HoldsAt {
    path: Option<String>,
    at_ms: Option<i64>,
}

/// Holds of the last hour, the latest first.
async fn holds(State(host): Shared, request: Parts, Query(at): Query<HoldsAt>) -> Response {
    #[derive(Serialize)]
    struct Holds {
        /// Whether the server keeps any.
        is_kept: bool,
        now_ms: i64,
        holds: Vec<PastHold>,
    }
    let seat = match seat(&host, &request).await {
        Ok(seat) => seat,
        Err(refused) => return refused,
    };
    let found = seat.console.with(|surveyor| {
        let now_ms = surveyor.now_ms();
        let query = HoldQuery {
            path: at.path.as_deref(),
            at_ms: at.at_ms,
        };
        // Of a lock that is gone: a user who may list its folder could have seen it. Where the
        // folder is gone, too, the next one above counts, if the node was open to everybody.
        let is_listed = |path: &str, is_open: bool| {
            let mut folder = path::parent(path);
            loop {
                match surveyor.tree().get(folder) {
                    Some(known) => break !known.is_forbidden(),
                    None if is_open && folder != "/" => folder = path::parent(folder),
                    None => break false,
                }
            }
        };
        let is_visible =
            |path: &str, is_open| surveyor.recipes().contains_key(path) || is_listed(path, is_open);
        let past = seat.past.as_ref();
        let holds = past.map(|past| past.holds(query, now_ms, MOST_HOLDS, is_visible));
        Holds {
            is_kept: holds.is_some(),
            now_ms,
            holds: holds.unwrap_or_default(),
        }
    });
    match found.await {
        Ok(found) => json(&found),
        Err(error) => unavailable(&error),
    }
}

/// The whole of one recipe, its waiters from a position on.
async fn recipe(State(host): Shared, request: Parts, Query(at): Query<NodeSelector>) -> Response {
    let answer = async {
        let seat = seat(&host, &request).await?;
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

/// A node of the tree, with its children from a position on.
async fn node(State(host): Shared, request: Parts, Query(at): Query<NodeSelector>) -> Response {
    let answer = async {
        let seat = seat(&host, &request).await?;
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
struct ActionRequest {
    /// Whether to do it. Otherwise the answer says what would be done.
    #[serde(default)]
    confirmed: bool,
    what: Action,
}

/// Says what an action would do, or does it.
async fn act(State(host): Shared, request: Request) -> Response {
    let answer = async {
        let (request, body) = request.into_parts();
        let seat = seat(&host, &request).await?;
        if !seat.may_act {
            let text = "to change something, authenticate: USER:PASSWORD, or a client certificate (https); \
                        each change is recorded under that name";
            return Err(failed(StatusCode::FORBIDDEN, text));
        }
        let refused = |text: &str| failed(StatusCode::BAD_REQUEST, text);
        let body = axum::body::to_bytes(body, MAX_ACTION).await;
        let body = body.map_err(|_| refused("the request is too long"))?;
        let asked: ActionRequest =
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
    use tokio::sync::{Semaphore, watch};

    use super::*;
    use crate::scene::Kind;

    #[tokio::test(start_paused = true)]
    async fn a_viewer_that_does_not_read_loses_its_place() {
        let mut scene = Scene::default();
        for at in 0..5_000 {
            scene.set(Kind::Lock, &format!("/{at}"), &at);
        }
        let scenes = watch::Sender::new(scene);
        let places = std::array::from_fn(|_| Arc::new(Semaphore::new(1)));
        let viewer = Viewer::new(scenes.subscribe(), places.clone()).expect("a place");
        let (sender, mut receiver) = mpsc::channel(WAITING_MESSAGES);
        // Time passes only because nobody reads.
        feed(viewer, sender).await;
        assert!(places.iter().all(|places| places.available_permits() == 1));
        let mut read = 0;
        while receiver.recv().await.is_some() {
            read += 1;
        }
        assert_eq!(read, WAITING_MESSAGES);
    }
}

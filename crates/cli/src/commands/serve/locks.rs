//! The agent's interface at `/v1` of the server's HTTP, for callers without an agent.
//!
//! The interface is `baton_agent`'s, who may be a client is `baton_server::pages`'s to say; here
//! they meet. What a caller holds belongs to the identity that it has shown.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use baton_agent::{Caller, Interface, refusal};
use baton_client::Config;
use baton_server::Server;
use baton_server::http::LongAnswer;
use baton_server::pages::Visitors;

use super::inside::InProcessTransport;

/// The session timeout of callers who ask for none.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests about a guard are short, and are answered however many locks are held.
const SHORT: &str = "/v1/guard/";

/// The interface of one server, with the sessions of its callers.
#[derive(Debug)]
pub(super) struct Locks {
    visitors: Visitors,
    interface: Interface,
}

impl Locks {
    pub(super) fn new(server: &Server, config: Config) -> Self {
        Self {
            visitors: server.visitors(),
            interface: Interface::new(config, SESSION_TIMEOUT),
        }
    }

    pub(super) fn router(locks: &Arc<Self>) -> Router {
        let admitted = middleware::from_fn_with_state(Arc::clone(locks), admit);
        locks.interface.router().layer(admitted)
    }

    pub(super) async fn close(&self) {
        self.interface.close().await;
    }
}

/// Lets a request of an admitted caller through, for as long as the caller wants.
async fn admit(State(locks): State<Arc<Locks>>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let (parts, body) = request.into_parts();
    let visitor = match locks.visitors.admit_client(&parts).await {
        Ok(visitor) => visitor,
        Err(refused) => return refusal(&path, refused.status, &refused.text),
    };
    let long = parts.extensions.get::<LongAnswer>();
    if !path.starts_with(SHORT) && !long.is_some_and(LongAnswer::may_last_on) {
        let next = "the limit on requests that hold something is reached; release some, or ask another server";
        return refusal(&path, StatusCode::SERVICE_UNAVAILABLE, next);
    }
    let identity = visitor.identity();
    let caller = Caller::admitted(
        &identity.key(),
        &identity.text(),
        Arc::new(InProcessTransport(visitor)),
    );
    let mut request = Request::<Body>::from_parts(parts, body);
    request.extensions_mut().insert(caller);
    next.run(request).await
}

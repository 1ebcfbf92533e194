//! The interface for callers whom another program admits, as a server does at its HTTP.

use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use baton::Config;

use crate::error::ApiError;
use crate::routes;
use crate::state::Shared;

/// The interface, and the sessions of its callers.
#[derive(Debug)]
pub struct Interface {
    shared: Shared,
}

impl Interface {
    /// Sessions have these settings; `session_timeout` counts where a caller asks for none.
    #[must_use]
    pub fn new(config: Config, session_timeout: Duration) -> Self {
        Self {
            shared: Shared::new(config, session_timeout),
        }
    }

    /// The routes below `/v1/`. Each request needs its [`Caller`](crate::Caller) as an extension.
    pub fn router(&self) -> Router {
        routes::below_v1(self.shared.clone())
    }

    /// Closes all sessions, and with them what is held.
    pub async fn close(&self) {
        self.shared.sessions.close().await;
    }
}

/// The answer to a caller of `path` that is not admitted.
#[must_use]
pub fn refusal(path: &str, status: StatusCode, next_step: &str) -> Response {
    let refused = ApiError::refused(path, "this caller is not admitted", next_step);
    let mut response = refused.with_status(status).into_response();
    if status == StatusCode::UNAUTHORIZED {
        let asks = HeaderValue::from_static("Bearer");
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, asks);
    }
    response
}

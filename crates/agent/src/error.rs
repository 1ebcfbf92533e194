//! Refusals: what happened, to what, and what to do next, with an HTTP status that a generic client
//! understands.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use baton::Client;
use baton::error::{CommonError, RecipeError};
use baton::inspect::{Inspector, NodeInfo};
use serde::Serialize;

/// The longest that a refusal waits for the holder's name.
const HOLDER_LIMIT: Duration = Duration::from_secs(1);

/// The five kinds of refusal, the same in every client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// Somebody else holds it, and the caller did not want to wait longer.
    NotAcquired,
    /// No server answers.
    Unavailable,
    /// The caller's lock, term or claim has ended.
    Lost,
    /// It is not known whether a change was applied.
    Unknown,
    /// The request cannot be carried out as it is.
    Refused,
}

/// A refusal, as JSON: `{"error", "thing", "cause", "next_step", "code"}`, and what else is known.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ApiError {
    /// All of it on one line.
    error: Box<str>,
    thing: Box<str>,
    cause: Box<str>,
    next_step: Box<str>,
    code: Code,
    /// The name of the holder, or its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_by: Option<Box<str>>,
    /// For how long no server could be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable_for_ms: Option<u64>,
    #[serde(skip)]
    status: StatusCode,
}

impl ApiError {
    pub(crate) fn new(
        code: Code,
        thing: impl Into<String>,
        cause: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        let (thing, cause, next_step) = (thing.into(), cause.into(), next_step.into());
        let status = match code {
            Code::NotAcquired => StatusCode::CONFLICT,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::Lost => StatusCode::GONE,
            Code::Unknown => StatusCode::GATEWAY_TIMEOUT,
            Code::Refused => StatusCode::BAD_REQUEST,
        };
        Self {
            error: format!("{thing}: {cause}; {next_step}").into(),
            thing: thing.into(),
            cause: cause.into(),
            next_step: next_step.into(),
            code,
            held_by: None,
            unavailable_for_ms: None,
            status,
        }
    }

    /// A refusal of the request itself.
    pub(crate) fn refused(
        thing: impl Into<String>,
        cause: impl Into<String>,
        next_step: impl Into<String>,
    ) -> Self {
        Self::new(Code::Refused, thing, cause, next_step)
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The refusal of a recipe's error about `path`.
    pub(crate) fn of(path: &str, error: &(impl RecipeError + ?Sized)) -> Self {
        let text = || one_line(&error.to_string());
        match error.common() {
            Some(CommonError::TimedOut { waited_for, .. }) => {
                let cause = format!("not acquired in time: {waited_for}");
                let next = "wait longer, or ask GET /v1/locks who holds it";
                Self::new(Code::NotAcquired, path, one_line(&cause), next)
            }
            Some(CommonError::Connect { source, .. }) => Self::unavailable(path, source),
            Some(CommonError::OutcomeUnknown { .. }) => {
                let next = "read before you repeat it: it may have been applied";
                Self::new(Code::Unknown, path, text(), next)
            }
            Some(CommonError::Lost { reason, .. }) => {
                Self::new(Code::Lost, path, reason.to_string(), "acquire it again")
            }
            _ => Self::refused(path, text(), "correct the request"),
        }
    }

    /// No server answers.
    pub(crate) fn unavailable(path: &str, cause: &impl std::fmt::Display) -> Self {
        let cause = one_line(&cause.to_string());
        let next = "check that the servers run and that the agent's list names them";
        Self::new(Code::Unavailable, path, cause, next)
    }

    pub(crate) fn unavailable_for(mut self, time: Duration) -> Self {
        self.unavailable_for_ms = Some(milliseconds(time));
        self
    }

    /// Adds to a refusal because of another holder who that is, where a server answers soon.
    pub(crate) async fn name_holder(&mut self, client: &Client, lock: &str) {
        if self.code != Code::NotAcquired {
            return;
        }
        let inspector = Inspector::new(client);
        let read = tokio::time::timeout(HOLDER_LIMIT, inspector.lock(lock));
        if let Ok(Ok(snapshot)) = read.await {
            let holder = snapshot.holders.into_iter().next().map(|it| it.info);
            let name = |it: NodeInfo| it.record.and_then(|it| it.name).unwrap_or(it.path);
            self.held_by = holder.map(|it| name(it).into());
        }
    }

    /// Whether the error is that of servers that cannot be reached.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.code == Code::Unavailable
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // A line of its own: after a request that was not read whole comes a reset.
        let mut text = serde_json::to_vec(&self).unwrap_or_default();
        text.push(b'\n');
        (self.status, [(CONTENT_TYPE, "application/json")], text).into_response()
    }
}

/// A time in whole milliseconds.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The text without what would break a line, or a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(clean).collect()
}

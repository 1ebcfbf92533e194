//! Refusals: what happened, to what, and what to do next, with an HTTP status that a generic client
//! understands.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use baton::error::{CommonError, RecipeError};
use serde::Serialize;

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

/// A refusal, as JSON: `{"error", "thing", "cause", "next_step", "code"}`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ApiError {
    /// All of it on one line.
    error: String,
    thing: String,
    cause: String,
    next_step: String,
    code: Code,
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
            error: format!("{thing}: {cause}; {next_step}"),
            thing,
            cause,
            next_step,
            code,
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

/// The text without what would break a line, or a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(clean).collect()
}

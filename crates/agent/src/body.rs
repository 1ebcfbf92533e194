//! The parameters of a request: the JSON of its body, the rest of its path, its query. Owns the
//! limits on them, that each refusal is one of ours, and how a body says how long something lasts.

use std::error::Error;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::{io, iter};

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::Method;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::events::CallerGone;

/// Bytes of a body, and so of an item's data in base64.
pub(crate) const MAX_BYTES: usize = 2 << 20;

/// Reads a body. An empty one counts as `{}`, so that `curl -X POST` needs none.
pub(crate) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let bytes = to_bytes(body, MAX_BYTES).await;
    parse(&bytes.map_err(|error| unreadable(&error))?)
}

/// The refusal of a body that cannot be read to its end.
fn unreadable(error: &axum::Error) -> ApiError {
    let mut causes = iter::successors(Some(error as &dyn Error), |error| (*error).source());
    match causes.find_map(|cause| cause.downcast_ref::<io::Error>()) {
        Some(cause) if cause.kind() == io::ErrorKind::InvalidData => {
            let next = "send chunks as HTTP/1.1 has them, or a content-length";
            ApiError::refused("the body", cause.to_string(), next)
        }
        Some(_) => {
            let next = "send all of it before you close the connection";
            ApiError::refused("the body", "it is incomplete", next)
        }
        None => too_large(),
    }
}

fn too_large() -> ApiError {
    let cause = format!("it has more than {MAX_BYTES} bytes");
    ApiError::refused("the body", cause, "send less")
        .with_status(axum::http::StatusCode::PAYLOAD_TOO_LARGE)
}

/// Reads the JSON of a body.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = match bytes.trim_ascii() {
        [] => b"{}",
        text => text,
    };
    let refused = |cause: &str| {
        let next = "send one JSON object with the fields of the interface";
        ApiError::refused("the body", crate::error::one_line(cause), next)
    };
    if !text.starts_with(b"{") {
        return Err(refused("it is not a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| refused(&error.to_string()))
}

/// Rest of a URL behind its fixed part, decoded: a znode path without its first slash.
#[derive(Debug)]
pub(crate) struct Rest(pub(crate) String);

impl Rest {
    pub(crate) fn znode_path(&self) -> String {
        format!("/{}", self.0)
    }

    /// The znode path and the last part, as in `jobs/put`.
    pub(crate) fn split_action(&self) -> Option<(String, &str)> {
        let (path, action) = self.0.rsplit_once('/')?;
        Some((format!("/{path}"), action))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Rest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(rest) = path.map_err(|error| {
            let next = "encode the znode path in percent notation, as UTF-8";
            ApiError::refused(parts.uri.path(), error.body_text(), next)
        })?;
        Ok(Self(rest))
    }
}

/// A request about a znode: the path of the URL, and the parameters of its body.
#[derive(Debug)]
pub(crate) struct ZnodeRequest<T> {
    pub(crate) path: String,
    pub(crate) params: T,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ZnodeRequest<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let path = Rest::from_request_parts(&mut parts, state)
            .await?
            .znode_path();
        let params = read(body).await?;
        Ok(Self { path, params })
    }
}

/// A request for something that lasts: with `POST` as long as its response is open, with `PUT` as
/// long as its own body, whose first line has the parameters.
#[derive(Debug)]
pub(crate) struct LastingRequest<T> {
    pub(crate) path: String,
    pub(crate) params: T,
    pub(crate) hold: OpenBody,
}

/// Whether a request for something that lasts does so by its own body.
pub(crate) fn lasts_by_body(method: &Method) -> bool {
    *method == Method::PUT
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for LastingRequest<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if !lasts_by_body(request.method()) {
            let ZnodeRequest { path, params } = ZnodeRequest::from_request(request, state).await?;
            let hold = OpenBody(None);
            return Ok(Self { path, params, hold });
        }
        let (mut parts, mut body) = request.into_parts();
        let path = Rest::from_request_parts(&mut parts, state).await?;
        let mut line = Vec::new();
        while let Some(piece) = next_piece(&mut body).await {
            let piece = piece.map_err(|error| unreadable(&error))?;
            let end = piece.iter().position(|byte| *byte == b'\n');
            // What follows the line means nothing.
            line.extend_from_slice(piece.get(..end.unwrap_or(piece.len())).unwrap_or_default());
            if line.len() > MAX_BYTES {
                return Err(too_large());
            }
            if end.is_some() {
                break;
            }
        }
        Ok(Self {
            path: path.znode_path(),
            params: parse(&line)?,
            hold: OpenBody(Some(body)),
        })
    }
}

/// The body of a request that lasts as long as its caller wants to hold something; none where the
/// response says that.
#[derive(Debug)]
pub(crate) struct OpenBody(Option<Body>);

impl OpenBody {
    /// Waits until the body has ended. An error: the caller has gone before.
    pub(crate) async fn ended(&mut self) -> Result<(), CallerGone> {
        let Some(body) = &mut self.0 else {
            return pending().await;
        };
        while let Some(piece) = next_piece(body).await {
            piece.map_err(|_| CallerGone)?;
        }
        Ok(())
    }

    /// The refusal of a caller that has ended its body before it had what it waits for.
    pub(crate) fn gave_up(path: &str) -> ApiError {
        let cause = "the request's body has ended, and with it the wait";
        let next = "leave the body open for as long as you wait and hold";
        ApiError::new(crate::error::Code::NotAcquired, path, cause, next)
    }
}

async fn next_piece(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(piece)) => return Some(Ok(piece)),
            // Trailers.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// The query of a URL.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        let Query(params) = query.map_err(|error| {
            let next = "send the parameters that the interface gives for this path";
            ApiError::refused(parts.uri.path(), error.body_text(), next)
        })?;
        Ok(Self(params))
    }
}

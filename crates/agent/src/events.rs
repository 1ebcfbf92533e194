//! A response of JSON lines that lasts: each event one object on a line. The response ends with its
//! sender, and the sender notices when the caller has gone.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::error::ApiError;

/// The type of a response of JSON lines.
pub(crate) const JSON_LINES: &str = "application/x-ndjson";
/// Events that wait for a caller that does not read. One that leaves more is treated as gone.
const MAX_WAITING: usize = 64;

/// The agent's end of a response.
#[derive(Debug)]
pub(crate) struct Events {
    sender: mpsc::Sender<Line>,
}

/// One line, or the refusal that ends the response. Boxed, because a channel has room for 32 of
/// them.
type Line = Result<Bytes, Box<ApiError>>;

/// The caller has gone, or does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallerGone;

impl Events {
    /// Sends one event.
    pub(crate) fn send(&self, event: &impl Serialize) -> Result<(), CallerGone> {
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        let sent = self.sender.try_send(Ok(line.into()));
        sent.map_err(|_| CallerGone)
    }

    /// Ends the response with a refusal: with its HTTP status if nothing was sent before, else as
    /// the last line.
    pub(crate) fn refuse(self, error: ApiError) {
        // The caller may have gone.
        let _ = self.sender.try_send(Err(Box::new(error)));
    }

    /// Waits until the caller has gone.
    pub(crate) async fn gone(&self) {
        self.sender.closed().await;
    }
}

/// Answers with the events that `work` sends. The status is that of the first one.
pub(crate) async fn respond<W>(work: impl FnOnce(Events) -> W) -> Response
where
    W: Future<Output = ()> + Send + 'static,
{
    let (sender, mut receiver) = mpsc::channel(MAX_WAITING);
    // Not a part of this response's future: a release goes on when the caller has gone.
    tokio::spawn(work(Events { sender }));
    let first = match receiver.recv().await {
        Some(Ok(first)) => first,
        Some(Err(refusal)) => return refusal.into_response(),
        None => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let lines = Lines {
        first: Some(first),
        receiver,
    };
    let mut response = Response::new(Body::new(lines));
    let kind = HeaderValue::from_static(JSON_LINES);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The body of a response.
struct Lines {
    first: Option<Bytes>,
    receiver: mpsc::Receiver<Line>,
}

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.receiver.poll_recv(cx).map(|event| {
            let line = match event? {
                Ok(line) => line,
                Err(refusal) => {
                    let mut line = serde_json::to_vec(&Failed {
                        event: "error",
                        refusal,
                    })
                    .unwrap_or_default();
                    line.push(b'\n');
                    line.into()
                }
            };
            Some(Ok(Frame::data(line)))
        })
    }
}

/// The last line of a response that fails after it began.
#[derive(Serialize)]
struct Failed {
    event: &'static str,
    #[serde(flatten)]
    refusal: Box<ApiError>,
}

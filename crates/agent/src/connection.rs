//! One connection of a caller: requests of HTTP/1.1 or 1.0, one after another. A response of JSON
//! lines lasts until its end or the caller's; what waits then is small, as a lock is a connection.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::{HeaderValue, Method, Request, Version, header};
use axum::response::{IntoResponse, Response};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::body::{MAX_BYTES, lasts_by_body};
use crate::caller::Caller;
use crate::error::ApiError;
use crate::events::JSON_LINES;
use crate::framing::{Head, Malformed};
use crate::input::{Input, RequestBody, SharedInput};

/// Longest time in which a head may arrive, and what is left of a body after its answer.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Time after which a connection without a request ends. The clients close theirs earlier.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// Answers the requests of a caller until either ends the connection.
pub(crate) async fn serve(stream: UnixStream, caller: Caller, routes: Router) {
    let stream = Arc::new(stream);
    let connection = Connection {
        input: Input::new(Arc::clone(&stream)),
        stream,
        caller,
        routes,
    };
    if let Err(error) = connection.run().await {
        tracing::debug!(%error, "a connection has ended");
    }
}

struct Connection {
    stream: Arc<UnixStream>,
    input: SharedInput,
    caller: Caller,
    routes: Router,
}

/// An answer, as far as it is written.
enum Answer {
    Whole { is_last: bool },
    Lines(Lines),
}

/// Lines that are to be written as they come.
struct Lines {
    head: Vec<u8>,
    body: Body,
    is_chunked: bool,
    is_last: bool,
}

impl Connection {
    async fn run(self) -> io::Result<()> {
        loop {
            // Boxed and dropped here, so that the future of a held lock stays small.
            let is_last = match Box::pin(self.answer()).await? {
                Answer::Whole { is_last } => is_last,
                Answer::Lines(lines) => self.write_lines(lines).await?,
            };
            if is_last || !Box::pin(self.ends_body()).await {
                return Ok(());
            }
        }
    }

    /// Reads a request and answers it, but for lines.
    async fn answer(&self) -> io::Result<Answer> {
        let head = match self.head().await {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Answer::Whole { is_last: true }),
            Err(cause) => {
                let refusal = ApiError::refused("the request", cause, "send HTTP/1.1");
                self.write_whole(refusal.into_response(), true, true)
                    .await?;
                return Ok(Answer::Whole { is_last: true });
            }
        };
        if head.awaits_continue {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let wants_body = head.method != Method::HEAD;
        let ends_with_body = lasts_by_body(&head.method);
        let mut request = Request::new(RequestBody::of(&self.input));
        *request.method_mut() = head.method;
        *request.uri_mut() = head.uri;
        request.extensions_mut().insert(self.caller.clone());
        let mut response = tokio::select! {
            biased;
            response = self.routes.clone().call(request) => {
                response.unwrap_or_else(|never| match never {})
            }
            () = self.gone(Input::poll_gone) => return Ok(Answer::Whole { is_last: true }),
        };
        if !head.is_newest {
            *response.version_mut() = Version::HTTP_10;
        }
        if !wants_body || !is_lines(&response) {
            let is_last = head.is_last;
            self.write_whole(response, wants_body, is_last).await?;
            return Ok(Answer::Whole { is_last });
        }
        // Others end such an answer by closing the connection.
        let is_last = head.is_last || !ends_with_body;
        let mut text = head_of(&response, is_last);
        if head.is_newest {
            text.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        text.extend_from_slice(b"\r\n");
        Ok(Answer::Lines(Lines {
            head: text,
            body: response.into_body(),
            is_chunked: head.is_newest,
            is_last,
        }))
    }

    /// Reads the next head; `None`: there is none.
    async fn head(&self) -> Result<Option<Head>, Malformed> {
        let begun = poll_fn(|cx| self.input.lock().poll_begun(cx));
        if timeout(IDLE_LIMIT, begun).await != Ok(true) {
            return Ok(None);
        }
        let head = poll_fn(|cx| self.input.lock().poll_head(cx));
        timeout(HEAD_LIMIT, head).await.unwrap_or(Ok(None))
    }

    /// Reads what is left of the present body, up to a limit; `false`: it does not end.
    async fn ends_body(&self) -> bool {
        if self.input.lock().is_body_over() {
            return true;
        }
        let ending = async {
            let mut size = 0;
            while let Some(piece) = poll_fn(|cx| self.input.lock().poll_body(cx)).await {
                size += piece.map_or(usize::MAX, |piece| piece.len());
                if size > 2 * MAX_BYTES {
                    return false;
                }
            }
            true
        };
        timeout(HEAD_LIMIT, ending).await.unwrap_or(false)
    }

    /// Waits until the caller has gone, as `poll` notices it.
    async fn gone(&self, poll: fn(&mut Input, &mut Context<'_>) -> Poll<()>) {
        poll_fn(|cx| poll(&mut self.input.lock(), cx)).await;
    }

    /// Writes an answer that does not last.
    async fn write_whole(
        &self,
        response: Response,
        wants_body: bool,
        is_last: bool,
    ) -> io::Result<()> {
        let mut bytes = head_of(&response, is_last);
        let body = to_bytes(response.into_body(), usize::MAX).await;
        let body = body.map_err(io::Error::other)?;
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        if wants_body {
            bytes.extend_from_slice(&body);
        }
        self.write(&bytes).await
    }

    /// Writes lines until their end or the caller's; returns whether the answer is the last one.
    async fn write_lines(&self, lines: Lines) -> io::Result<bool> {
        let Lines {
            head: mut bytes,
            mut body,
            is_chunked,
            is_last,
        } = lines;
        loop {
            let mut line = tokio::select! {
                biased;
                line = next(&mut body) => line,
                () = self.gone(Input::poll_gone_unread), if is_last => return Ok(true),
            };
            // All lines that are there, and the end, in one write.
            while let Some(text) = &line {
                push(&mut bytes, text, is_chunked);
                line = tokio::select! {
                    biased;
                    line = next(&mut body) => line,
                    () = std::future::ready(()) => break,
                };
            }
            let is_over = line.is_none();
            if is_over && is_chunked {
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
            self.write(&bytes).await?;
            if is_over {
                return Ok(is_last);
            }
            bytes = Vec::new();
        }
    }

    async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_lines(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| *kind == HeaderValue::from_static(JSON_LINES))
}

/// Returns the head of an answer, but for its framing.
fn head_of(response: &Response, is_last: bool) -> Vec<u8> {
    let mut head = format!("{:?} {}\r\n", response.version(), response.status()).into_bytes();
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }
    if is_last {
        head.extend_from_slice(b"connection: close\r\n");
    }
    head
}

/// Adds a line to what is to be written.
fn push(bytes: &mut Vec<u8>, line: &[u8], is_chunked: bool) {
    if !is_chunked {
        return bytes.extend_from_slice(line);
    }
    bytes.extend_from_slice(format!("{:x}\r\n", line.len()).as_bytes());
    bytes.extend_from_slice(line);
    bytes.extend_from_slice(b"\r\n");
}

async fn next(lines: &mut Body) -> Option<Bytes> {
    let frame = poll_fn(|cx| Pin::new(&mut *lines).poll_frame(cx)).await;
    frame.and_then(Result::ok)?.into_data().ok()
}

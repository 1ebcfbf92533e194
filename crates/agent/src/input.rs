//! The bytes that a caller sends on one connection: requests, one after another. The connection
//! reads a head from the socket, a handler the body of its request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use bytes::BytesMut;
use http_body::Frame;
use parking_lot::Mutex;
use tokio::net::UnixStream;

use crate::framing::{BodyFraming, Head, Malformed};

/// Most bytes that a caller may send ahead of the answer to a request.
const MAX_AHEAD: usize = 64 << 10;
/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;

/// Shared by a connection and the body of its present request.
pub(crate) type SharedInput = Arc<Mutex<Input>>;

/// The bytes of a caller.
#[derive(Debug)]
pub(crate) struct Input {
    stream: Arc<UnixStream>,
    buffer: BytesMut,
    body: BodyFraming,
    /// Number of the present request, so that nobody reads another one's body.
    request: u64,
}

impl Input {
    pub(crate) fn new(stream: Arc<UnixStream>) -> SharedInput {
        Arc::new(Mutex::new(Self {
            stream,
            buffer: BytesMut::new(),
            body: BodyFraming::Ended,
            request: 0,
        }))
    }

    /// Whether the body of the present request has ended.
    pub(crate) fn is_body_over(&self) -> bool {
        self.body == BodyFraming::Ended
    }

    /// Whether bytes of the next request have arrived.
    pub(crate) fn has_begun(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Reads more bytes; 0: the caller has ended the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.is_empty() {
            // What waits weighs nothing.
            self.buffer = BytesMut::new();
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            self.buffer.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    /// Waits for the first byte of a request; `false`: the caller has ended the connection.
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.has_begun() {
            return Poll::Ready(true);
        }
        self.poll_fill(cx)
            .map(|read| read.is_ok_and(|read| read > 0))
    }

    /// Waits for a head; `None`: the caller has ended the connection.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Head>, Malformed>> {
        loop {
            if let Some(head) = Head::take(&mut self.buffer)? {
                self.body = head.body;
                self.request += 1;
                return Poll::Ready(Ok(Some(head)));
            }
            if !matches!(ready!(self.poll_fill(cx)), Ok(1..)) {
                return Poll::Ready(Ok(None));
            }
        }
    }

    /// Waits for the next piece of the body; `None`: it has ended.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match self.body.take(&mut self.buffer) {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(None) if self.is_body_over() => return Poll::Ready(None),
                Ok(None) => {}
                Err(cause) => {
                    return Poll::Ready(Some(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        cause,
                    ))));
                }
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Some(Err(error)));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Waits until the caller has ended the connection, or has sent more than is kept of what
    /// follows its request. As long as the body lasts, its reader notices the end.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_body_over() {
            return Poll::Pending;
        }
        while self.buffer.len() <= MAX_AHEAD {
            if !matches!(ready!(self.poll_fill(cx)), Ok(1..)) {
                break;
            }
        }
        Poll::Ready(())
    }

    /// The same, for a caller whose further requests are not answered.
    pub(crate) fn poll_gone_unread(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_body_over() {
            return Poll::Pending;
        }
        loop {
            self.buffer.clear();
            if !matches!(ready!(self.poll_fill(cx)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    }
}

/// The body of one request.
pub(crate) struct RequestBody {
    input: SharedInput,
    request: u64,
}

impl RequestBody {
    /// Returns it; an empty one where the request has none.
    pub(crate) fn of(input: &SharedInput) -> Body {
        let now = input.lock();
        if now.is_body_over() {
            return Body::empty();
        }
        Body::new(Self {
            input: Arc::clone(input),
            request: now.request,
        })
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut input = self.input.lock();
        if input.request != self.request {
            return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        let piece = input.poll_body(cx);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

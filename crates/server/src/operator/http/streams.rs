//! Commands that send the whole state: `backup`, as Baton stores it, and ZooKeeper's `snapshot`
//! (protocol.md §7.2). Both send a snapshot that the core has taken for them, at a pace, one at a
//! time. Who may give them is the matter of `access`; what they read, every ACL closes to somebody.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use baton_tree::{Restore, Tree};
use baton_wal::WalError;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::access::Refused;
use super::json as answered;
use crate::core::transfer::Pace;
use crate::listening::http::LongAnswer;
use crate::state::ServerState;
use crate::state::backups::{Fresh, Sent};

/// Bytes that are read at a time, and how many such pieces wait for the client.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_WAITING: usize = 4;
/// Bytes that leave in a second.
const BYTES_PER_SECOND: u64 = 64 << 20;
/// Time that the core may take to write a snapshot.
const MAKING_LIMIT: Duration = Duration::from_secs(3600);
/// Time that an answer may take to be read: this long, and a second for each of the bytes below.
const SENDING_LIMIT: Duration = Duration::from_secs(120);
const LEAST_BYTES_PER_SECOND: u64 = 1 << 20;

/// ZooKeeper's names.
const LAST_ZXID: HeaderName = HeaderName::from_static("last_zxid");
const SNAPSHOT_SIZE: HeaderName = HeaderName::from_static("snapshot_size");

/// Content of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// The file of a snapshot, as it is.
    Backup,
    /// A snapshot as ZooKeeper writes it.
    Snapshot,
}

/// Takes a snapshot, and sends it if it is to be sent.
///
/// # Errors
/// Why there is none.
pub(super) async fn answer(
    state: &Arc<ServerState>,
    stream: Stream,
    is_sent: bool,
    long: Option<&LongAnswer>,
) -> Result<Response, Refused> {
    let refuse = |status, text: String| Err((status, text));
    let Some(place) = state.backups.place() else {
        return refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "another backup is being sent; ask again when it has ended".to_owned(),
        );
    };
    if stream == Stream::Snapshot {
        let interval = state.options.snapshot_interval;
        if let Err(left) = state.backups.snapshot_due(state.time.now(), interval) {
            let seconds = left.as_secs() + 1;
            let text = format!(
                "the last snapshot was taken less than {} s ago (snapshot_interval); ask again in {seconds} s",
                interval.as_secs()
            );
            return refuse(StatusCode::TOO_MANY_REQUESTS, text);
        }
    }
    if let Some(long) = long {
        long.may_last(MAKING_LIMIT);
    }
    let outcome = state.backups.ask();
    state.inbox.nudge();
    let fresh = match outcome.await {
        Ok(Ok(fresh)) => fresh,
        Ok(Err(why)) => {
            state.backups.failed();
            let text = format!("no snapshot could be written: {why}");
            return refuse(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        Err(_) => {
            let text = "the server stops".to_owned();
            return refuse(StatusCode::SERVICE_UNAVAILABLE, text);
        }
    };
    let zxid = fresh.info.meta.zxid;
    if !is_sent {
        let size = fresh.info.file_bytes;
        let answer = json!({"command": "snapshot", "error": null});
        let mut response = answered(StatusCode::OK, format!("{answer:#}\n").into());
        name(&mut response, zxid, size);
        return Ok(response);
    }
    let made = match stream {
        Stream::Backup => send_file(fresh, place).await,
        Stream::Snapshot => send_as_zookeepers(fresh, place).await,
    };
    let (pieces, bytes) = made.map_err(|why| {
        state.backups.failed();
        (StatusCode::INTERNAL_SERVER_ERROR, why)
    })?;
    if let Some(long) = long {
        let reading = Duration::from_secs(bytes / LEAST_BYTES_PER_SECOND);
        long.may_last(SENDING_LIMIT + reading);
    }
    let body = Body::new(Piped {
        pieces,
        left: bytes,
        bytes,
        state: Arc::clone(state),
    });
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    let mut response = (kind, body).into_response();
    name(&mut response, zxid, bytes);
    Ok(response)
}

fn name(response: &mut Response, zxid: i64, bytes: u64) {
    let headers = response.headers_mut();
    if let Ok(zxid) = format!("0x{zxid:x}").parse() {
        headers.insert(LAST_ZXID, zxid);
    }
    headers.insert(SNAPSHOT_SIZE, bytes.into());
}

type Pieces = mpsc::Receiver<io::Result<Bytes>>;

/// The bytes of the snapshot's file.
async fn send_file(
    fresh: Arc<Fresh>,
    place: OwnedSemaphorePermit,
) -> Result<(Pieces, u64), String> {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING);
    let opening = move || -> Result<_, WalError> {
        let reader = fresh.store.raw_reader(&fresh.pin)?;
        Ok((reader, fresh))
    };
    let (reader, fresh) = blocking(opening)
        .await?
        .map_err(|error| error.to_string())?;
    let bytes = reader.id().bytes;
    tokio::task::spawn_blocking(move || {
        let mut out = Paced::new(sender);
        let mut offset = 0;
        while offset < bytes {
            let sent = match reader.read(offset, PIECE_BYTES) {
                Ok(piece) => {
                    offset += piece.len() as u64;
                    out.send(Ok(piece))
                }
                Err(error) => {
                    tracing::warn!("a backup broke off: {error}");
                    let _ = out.send(Err(io::Error::other(error.to_string())));
                    false
                }
            };
            if !sent {
                break;
            }
        }
        drop((fresh, place));
    });
    Ok((pieces, bytes))
}

/// The state as ZooKeeper writes it. ZooKeeper reads parents before their children, and the file
/// has them in no order, so it takes a second tree in memory.
async fn send_as_zookeepers(
    fresh: Arc<Fresh>,
    place: OwnedSemaphorePermit,
) -> Result<(Pieces, u64), String> {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING);
    let making = move || {
        let tree = restored(&fresh)?;
        let mut counted = Counted(0);
        baton_zkdata::write_streamed_snapshot(&tree, &mut counted)
            .map_err(|error| error.to_string())?;
        Ok::<_, String>((tree, counted.0))
    };
    let (tree, bytes) = blocking(making).await??;
    tokio::task::spawn_blocking(move || {
        let mut out = Paced::new(sender);
        // The client has gone, or the connection has lasted too long.
        let _ = baton_zkdata::write_streamed_snapshot(&tree, &mut out);
        drop(place);
    });
    Ok((pieces, bytes))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| "the server failed at it; report this".to_owned())
}

fn restored(fresh: &Fresh) -> Result<Tree, String> {
    let mut reader = fresh
        .store
        .reader(&fresh.info.name)
        .map_err(|error| error.to_string())?;
    let mut restore = Restore::new();
    while let Some(chunk) = reader.next_chunk().map_err(|error| error.to_string())? {
        restore
            .chunk(&chunk.payload)
            .map_err(|error| error.to_string())?;
    }
    restore.finish().map_err(|error| error.to_string())
}

/// Counts what is written to it.
struct Counted(u64);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Hands pieces to a connection, at a pace. Belongs to a thread that may wait.
struct Paced {
    sender: mpsc::Sender<io::Result<Bytes>>,
    pace: Pace,
}

impl Paced {
    fn new(sender: mpsc::Sender<io::Result<Bytes>>) -> Self {
        let pace = Pace::new(BYTES_PER_SECOND);
        Self { sender, pace }
    }

    /// `false`: nobody reads any more.
    fn send(&mut self, piece: io::Result<Bytes>) -> bool {
        let now = Instant::now();
        if let Some(at) = self.pace.wait_until(now) {
            std::thread::sleep(at.saturating_duration_since(now));
        }
        let bytes = piece.as_ref().map_or(0, Bytes::len);
        self.pace.spend(Instant::now(), bytes);
        self.sender.blocking_send(piece).is_ok()
    }
}

impl io::Write for Paced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        match self.send(Ok(Bytes::copy_from_slice(taken))) {
            true => Ok(taken.len()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body of known length whose pieces come from another thread. One that ends early breaks the
/// connection, so that nobody takes it for whole.
#[derive(Debug)]
struct Piped {
    pieces: Pieces,
    left: u64,
    bytes: u64,
    state: Arc<ServerState>,
}

impl Drop for Piped {
    /// It is dropped when it was sent, and when its connection has ended before.
    fn drop(&mut self) {
        let backups = &self.state.backups;
        if self.left > 0 {
            return backups.failed();
        }
        backups.succeeded(Sent {
            at_seconds: u64::try_from(self.state.time.wall_ms() / 1000).unwrap_or(0),
            bytes: self.bytes,
        });
    }
}

impl HttpBody for Piped {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match ready!(self.pieces.poll_recv(cx)) {
            Some(Ok(piece)) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(axum::Error::new(error)))),
            None if self.left == 0 => Poll::Ready(None),
            None => {
                let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                Poll::Ready(Some(Err(axum::Error::new(error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

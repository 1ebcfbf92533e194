//! One connection after its handshake: a reader task and a writer task, until one of them ends, a
//! newer connection takes the place, or the transport stops.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::codec::{Alive, Bye, Frame, FrameError, FrameType, Pieces, Stage, take_frame};
use crate::net::counters::add;
use crate::net::events::{Direction, EndCause, Link};
use crate::net::exchange::Opened;
use crate::net::peer::{Established, Peer};
use crate::net::shared::Shared;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes of frames that are encoded before they are written, about.
const WRITE_BYTES: usize = 1 << 20;
/// Pieces of one write.
const WRITE_PIECES: usize = 64;

/// A task that does not outlive its owner.
struct Task(JoinHandle<EndCause>);

impl Task {
    fn spawn(future: impl Future<Output = EndCause> + Send + 'static) -> Task {
        Task(tokio::spawn(future))
    }

    async fn end(&mut self) -> EndCause {
        match (&mut self.0).await {
            Ok(cause) => cause,
            Err(error) => EndCause::Failed(error.to_string()),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the reader and the writer of one connection share.
struct LinkState {
    shared: Arc<Shared>,
    peer: Arc<Peer>,
    link: Link,
    wake: Arc<Notify>,
    /// The number of the newest sign of life that was not answered; 0 for none.
    to_echo: AtomicU64,
}

/// Runs a connection until it has ended. `is_wanted` is asked once the connection is registered.
pub(crate) async fn run<S>(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    opened: Opened<S>,
    direction: Direction,
    is_wanted: impl Fn() -> bool,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let hello = opened.hello.clone();
    let established = peer.connected(direction, opened.hello, opened.clock_offset_ms);
    let Some(Established { link, end, wake }) = established else {
        return;
    };
    // The membership or the list may have changed during the handshake: whoever changes them ends
    // the connections that are registered.
    let is_admitted = shared.local.lock().still_admits(&hello);
    if !is_admitted || !is_wanted() {
        peer.end_where(Bye::Removed, |other, _| other == link);
    }
    let state = Arc::new(LinkState {
        shared: Arc::clone(shared),
        peer: Arc::clone(peer),
        link,
        wake,
        to_echo: AtomicU64::new(0),
    });
    let (read_half, write_half) = tokio::io::split(opened.stream);
    let (say_bye, bye) = oneshot::channel();
    let mut reader = Task::spawn(read(Arc::clone(&state), read_half, opened.buffer));
    let mut writer = Task::spawn(write(state, write_half, bye));
    let (cause, last_words) = tokio::select! {
        biased;
        cause = reader.end() => {
            let last_words = match &cause {
                EndCause::BadFrame(_) => Some(Bye::BadFrame),
                EndCause::Silent => Some(Bye::Silent),
                EndCause::Superseded => Some(Bye::Superseded),
                _ => None,
            };
            (cause, last_words)
        }
        cause = writer.end() => (cause, None),
        Ok(bye) = end => (EndCause::Ended(bye), Some(bye)),
        () = shared.stopped() => (EndCause::Ended(Bye::Stopping), Some(Bye::Stopping)),
    };
    drop(reader);
    // Only a transport that stops sends what waits.
    let stops = last_words == Some(Bye::Stopping);
    if !stops {
        peer.ended(link, cause.clone());
    }
    if let Some(last_words) = last_words {
        let _ = say_bye.send(last_words);
        let _ = timeout(shared.options.timing.last_words_timeout, writer.end()).await;
    }
    drop(writer);
    if stops {
        peer.ended(link, cause);
    }
}

async fn read<R>(state: Arc<LinkState>, mut reader: R, mut buffer: BytesMut) -> EndCause
where
    R: AsyncRead + Unpin,
{
    let silence = state.shared.options.timing.silence_limit;
    let own_id = state.shared.local.lock().id;
    loop {
        loop {
            let taken = match take_frame(&mut buffer, Stage::Lane(state.link.lane)) {
                Ok(Some((kind, body))) => {
                    let bytes = body.len();
                    Frame::decode(kind, body).map(|frame| Some((frame, bytes)))
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            let outcome = match taken {
                Ok(Some((frame, bytes))) => receive(&state, own_id, frame, bytes).await,
                Ok(None) => break,
                Err(error) => Err(error.into()),
            };
            if let Err(cause) = outcome {
                if matches!(cause, EndCause::BadFrame(_)) {
                    add(&state.peer.counters.bad_frames, 1);
                }
                return cause;
            }
        }
        buffer.reserve(READ_BYTES);
        match timeout(silence, reader.read_buf(&mut buffer)).await {
            Err(_) => return EndCause::Silent,
            Ok(Err(error)) => return error.into(),
            Ok(Ok(0)) => return EndCause::Closed,
            Ok(Ok(count)) => add(&state.peer.counters.bytes_in, count),
        }
    }
}

/// Handles one frame; an error ends the connection.
async fn receive(
    state: &LinkState,
    own_id: u64,
    frame: Frame,
    bytes: usize,
) -> Result<(), EndCause> {
    let kind = frame.kind();
    match frame {
        Frame::Alive(alive) => {
            if alive.stamp != 0 {
                state.to_echo.store(alive.stamp, Relaxed);
                state.wake.notify_one();
            }
            if alive.echo != 0 {
                let passed = state.shared.now_us().saturating_sub(alive.echo);
                let round_trip = &state.peer.counters.round_trip_us;
                round_trip.store(passed.max(1), Relaxed);
            }
            Ok(())
        }
        Frame::Bye(bye) => Err(EndCause::Bye(bye)),
        frame => {
            check(state, own_id, kind, &frame)?;
            let held = state.peer.hold(state.link.lane, bytes).await;
            if state.peer.deliver(state.link, frame, held) {
                Ok(())
            } else {
                Err(EndCause::Superseded)
            }
        }
    }
}

/// What the codec cannot know: who may send frames here, and for whom a message is.
fn check(state: &LinkState, own_id: u64, kind: FrameType, frame: &Frame) -> Result<(), FrameError> {
    if state.link.direction == Direction::Outbound {
        let stage = Stage::Lane(state.link.lane);
        return Err(FrameError::Unexpected { kind, stage });
    }
    match frame {
        Frame::Raft(messages)
            if messages
                .iter()
                .any(|message| message.from != state.link.peer || message.to != own_id) =>
        {
            Err(FrameError::Malformed {
                kind,
                what: "a message names another sender or receiver than those of the connection",
            })
        }
        _ => Ok(()),
    }
}

async fn write<W>(state: Arc<LinkState>, mut writer: W, mut bye: oneshot::Receiver<Bye>) -> EndCause
where
    W: AsyncWrite + Unpin,
{
    let mut alive = interval(state.shared.options.timing.alive_interval);
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pieces = Pieces::new();
    loop {
        // Released when it is dropped, also with the whole task.
        let queued = encode_queued(&state, &mut pieces);
        if pieces.is_empty() {
            tokio::select! {
                biased;
                last_words = &mut bye => {
                    let Ok(last_words) = last_words else {
                        return EndCause::Superseded;
                    };
                    let queued = encode_queued(&state, &mut pieces);
                    encode(&mut pieces, &Frame::Bye(last_words));
                    let outcome = write_all(&state, &mut writer, pieces.take()).await;
                    drop(queued);
                    let _ = writer.shutdown().await;
                    return outcome.err().map_or(EndCause::Ended(last_words), EndCause::from);
                }
                () = state.wake.notified() => continue,
                _ = alive.tick() => {
                    let stamp = state.shared.now_us();
                    encode(&mut pieces, &Frame::Alive(Alive { stamp, echo: 0 }));
                }
            }
        }
        let outcome = write_all(&state, &mut writer, pieces.take()).await;
        drop(queued);
        if let Err(error) = outcome {
            return error.into();
        }
    }
}

/// Bytes of frames that were taken out of a queue and still count for its limit.
struct Queued<'a> {
    state: &'a LinkState,
    bytes: usize,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.state.peer.release(self.state.link.lane, self.bytes);
    }
}

/// Encodes what waits: an answer to a sign of life, and frames.
fn encode_queued<'a>(state: &'a LinkState, pieces: &mut Pieces) -> Queued<'a> {
    let mut queued = Queued { state, bytes: 0 };
    let echo = state.to_echo.swap(0, Relaxed);
    if echo != 0 {
        encode(pieces, &Frame::Alive(Alive { stamp: 0, echo }));
    }
    if state.link.direction == Direction::Inbound {
        return queued;
    }
    let outbound = state.peer.outbound(state.link.lane);
    for (frame, bytes) in outbound.take(state.link.generation, WRITE_BYTES) {
        queued.bytes += bytes;
        if encode(pieces, &frame) {
            add(&state.peer.counters.frames_out, 1);
        } else {
            add(&state.peer.counters.dropped, 1);
        }
    }
    queued
}

/// Whether the frame is within the limits of its type, which was checked when it was queued.
fn encode(pieces: &mut Pieces, frame: &Frame) -> bool {
    frame.encode(pieces).is_ok()
}

async fn write_all<W>(state: &LinkState, writer: &mut W, pieces: Vec<Bytes>) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    let mut pieces = VecDeque::from(pieces);
    while !pieces.is_empty() {
        let slices: Vec<IoSlice<'_>> = pieces
            .iter()
            .take(WRITE_PIECES)
            .map(|piece| IoSlice::new(piece))
            .collect();
        let mut written = writer.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        add(&state.peer.counters.bytes_out, written);
        while written > 0
            && let Some(first) = pieces.front_mut()
        {
            let of_first = written.min(first.len());
            first.advance(of_first);
            written -= of_first;
            if first.is_empty() {
                pieces.pop_front();
            }
        }
    }
    writer.flush().await
}

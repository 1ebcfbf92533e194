//! One connection after its handshake: a reader task and a writer task, until one of them ends, a
//! newer connection takes the place, or the transport stops.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::codec::{CloseReason, Frame, FrameError, FrameType, Stage, take_frame};
use crate::net::counters::add;
use crate::net::events::{Direction, EndCause};
use crate::net::exchange::OpenedStream;
use crate::net::peer::{EstablishedConnection, Peer};
use crate::net::shared::TransportState;
use crate::net::writer::{LinkState, Writer};

/// Bytes that are read at once, at most and at least. What is read shares one piece of memory of
/// the larger size, and keeps it for as long as any of it is held: a piece for each read would cost
/// a log of small entries a multiple of its size.
const READ_BYTES: usize = 64 << 10;
const LEAST_READ_BYTES: usize = 4 << 10;

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

/// Runs a connection until it has ended. `is_wanted` is asked once the connection is registered.
pub(crate) async fn run<S>(
    shared: &Arc<TransportState>,
    peer: &Arc<Peer>,
    opened: OpenedStream<S>,
    direction: Direction,
    is_wanted: impl Fn() -> bool,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let hello = opened.hello.clone();
    let established = peer.connected(direction, opened.hello, opened.clock_offset_ms);
    let Some(EstablishedConnection { link, end, writer }) = established else {
        return;
    };
    // The membership or the list may have changed during the handshake: anyone who changes them
    // ends the connections that are registered.
    let is_admitted = shared.local.lock().still_admits(&hello);
    if !is_admitted || !is_wanted() {
        peer.end_where(CloseReason::Removed, |other, _| other == link);
    }
    let state = Arc::new(LinkState {
        shared: Arc::clone(shared),
        peer: Arc::clone(peer),
        link,
        writer,
        to_echo: Mutex::default(),
    });
    let (read_half, write_half) = tokio::io::split(opened.stream);
    let (say_bye, bye) = oneshot::channel();
    let mut reader = Task::spawn(read(Arc::clone(&state), read_half, opened.buffer));
    let mut writer = Task::spawn(Writer::new(state, write_half).run(bye));
    let (cause, last_words) = tokio::select! {
        biased;
        cause = reader.end() => {
            let last_words = match &cause {
                EndCause::BadFrame(_) => Some(CloseReason::BadFrame),
                EndCause::Silent => Some(CloseReason::Silent),
                EndCause::Superseded => Some(CloseReason::Superseded),
                _ => None,
            };
            (cause, last_words)
        }
        cause = writer.end() => (cause, None),
        Ok(bye) = end => (EndCause::Ended(bye), Some(bye)),
        () = shared.stopped() => (EndCause::Ended(CloseReason::Stopping), Some(CloseReason::Stopping)),
    };
    drop(reader);
    // Only a transport that stops sends what waits.
    let stops = last_words == Some(CloseReason::Stopping);
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
        state.shared.events.frames_arrived();
        if buffer.capacity() - buffer.len() < LEAST_READ_BYTES {
            buffer.reserve(READ_BYTES);
        }
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
            let now = state.shared.now_us();
            if alive.stamp != 0 {
                *state.to_echo.lock() = Some((alive.stamp, now));
            }
            if alive.echo != 0 {
                let passed = now.saturating_sub(alive.echo);
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

/// Checks what the codec cannot know: who may send frames here, and for whom a message is.
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

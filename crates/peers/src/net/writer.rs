//! The writing half of a connection. Its task and the threads that send frames share it: anyone who
//! finds it free writes what waits, so that a small frame needs no change of thread.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;

use crate::codec::{CloseReason, Frame, LivenessFrame, Pieces};
use crate::net::counters::add;
use crate::net::events::{Direction, EndCause, Link};
use crate::net::peer::Peer;
use crate::net::shared::TransportState;
use crate::net::writer_handle::WriterHandle;

/// Bytes of frames that are encoded before they are written, about.
const WRITE_BYTES: usize = 1 << 20;
/// Pieces of one write.
const WRITE_PIECES: usize = 64;

/// State that the reader and the writer of one connection share.
pub(crate) struct LinkState {
    pub(crate) shared: Arc<TransportState>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) link: Link,
    pub(crate) writer: Arc<WriterHandle>,
    /// The number of the newest sign of life that was not answered, and when it came.
    pub(crate) to_echo: Mutex<Option<(u64, u64)>>,
}

impl LinkState {
    /// A sign of life, which goes whatever the other side sends or does not send. It answers the
    /// newest one of that side, and counts how long that has waited for it.
    fn sign_of_life(&self) -> LivenessFrame {
        let now = self.shared.now_us();
        let newest = self.to_echo.lock().take();
        LivenessFrame {
            stamp: now,
            echo: newest.map_or(0, |(stamp, came)| {
                stamp.saturating_add(now.saturating_sub(came))
            }),
        }
    }
}

pub(crate) struct Writer<W> {
    state: Arc<LinkState>,
    half: Mutex<WriteHalf<W>>,
}

struct WriteHalf<W> {
    stream: W,
    pieces: Pieces,
    /// Encoded bytes that the stream has not taken.
    encoded: VecDeque<Bytes>,
    /// Bytes of frames among them, which still count for their queue's limit.
    queued_bytes: usize,
    is_flushed: bool,
}

impl<W> Writer<W>
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// From now on, who sends a small frame writes it.
    pub(crate) fn new(state: Arc<LinkState>, stream: W) -> Arc<Writer<W>> {
        let writer = Arc::new(Writer {
            state,
            half: Mutex::new(WriteHalf {
                stream,
                pieces: Pieces::new(),
                encoded: VecDeque::new(),
                queued_bytes: 0,
                is_flushed: true,
            }),
        });
        let weak = Arc::downgrade(&writer);
        let write_now = move || weak.upgrade().is_some_and(|writer| writer.write_now());
        writer.state.writer.set_write_now(write_now);
        writer
    }

    /// Writes until the connection has ended, or until its last words are written.
    pub(crate) async fn run(self: Arc<Self>, mut bye: oneshot::Receiver<CloseReason>) -> EndCause {
        let mut alive = self.state.shared.alive_ticks();
        loop {
            let written = std::future::poll_fn(|cx| self.half.lock().poll_write(&self.state, cx));
            if let Err(error) = written.await {
                return error.into();
            }
            tokio::select! {
                biased;
                last_words = &mut bye => {
                    let Ok(last_words) = last_words else {
                        return EndCause::Superseded;
                    };
                    return self.end(last_words).await;
                }
                () = self.state.writer.woken() => {}
                _ = alive.tick() => {
                    let alive = Frame::Alive(self.state.sign_of_life());
                    encode(&mut self.half.lock().pieces, &alive);
                }
            }
        }
    }

    /// Writes what waits, then the last words.
    async fn end(&self, last_words: CloseReason) -> EndCause {
        {
            let mut half = self.half.lock();
            half.encode_queued(&self.state);
            encode(&mut half.pieces, &Frame::Bye(last_words));
        }
        let written = std::future::poll_fn(|cx| self.half.lock().poll_write(&self.state, cx));
        let outcome = written.await;
        let _ = std::future::poll_fn(|cx| Pin::new(&mut self.half.lock().stream).poll_shutdown(cx))
            .await;
        outcome
            .err()
            .map_or(EndCause::Ended(last_words), EndCause::from)
    }

    /// Writes what waits as far as the stream takes it at once. `false`: the task has to go on,
    /// because the stream is full or broken, or somebody else writes.
    fn write_now(&self) -> bool {
        let Some(mut half) = self.half.try_lock() else {
            return false;
        };
        // Only the task waits for the stream: a second waker would take the place of its own.
        if !half.is_idle() {
            return false;
        }
        let mut nobody = Context::from_waker(Waker::noop());
        matches!(
            half.poll_write(&self.state, &mut nobody),
            Poll::Ready(Ok(()))
        )
    }
}

impl<W> Drop for Writer<W> {
    fn drop(&mut self) {
        let state = &self.state;
        let queued_bytes = self.half.get_mut().queued_bytes;
        state.peer.release(state.link.lane, queued_bytes);
    }
}

impl<W> WriteHalf<W>
where
    W: AsyncWrite + Unpin,
{
    fn is_idle(&self) -> bool {
        self.encoded.is_empty() && self.is_flushed
    }

    /// Writes and flushes until nothing waits.
    fn poll_write(&mut self, state: &LinkState, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.is_idle() {
                self.encode_queued(state);
                self.encoded.extend(self.pieces.take());
                if self.encoded.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                self.is_flushed = false;
            }
            while !self.encoded.is_empty() {
                let slices: Vec<IoSlice<'_>> = self
                    .encoded
                    .iter()
                    .take(WRITE_PIECES)
                    .map(|piece| IoSlice::new(piece))
                    .collect();
                let stream = Pin::new(&mut self.stream);
                let written = ready!(stream.poll_write_vectored(cx, &slices))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                add(&state.peer.counters.bytes_out, written);
                self.written(written);
            }
            let queued_bytes = std::mem::take(&mut self.queued_bytes);
            state.peer.release(state.link.lane, queued_bytes);
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.is_flushed = true;
        }
    }

    /// The stream has taken this many bytes.
    fn written(&mut self, mut count: usize) {
        while count > 0
            && let Some(first) = self.encoded.front_mut()
        {
            let of_first = count.min(first.len());
            first.advance(of_first);
            count -= of_first;
            if first.is_empty() {
                self.encoded.pop_front();
            }
        }
    }

    /// Encodes the frames that wait.
    fn encode_queued(&mut self, state: &LinkState) {
        if state.link.direction == Direction::Inbound {
            return;
        }
        let outbound = state.peer.outbound(state.link.lane);
        for (frame, bytes) in outbound.take(state.link.generation, WRITE_BYTES) {
            self.queued_bytes += bytes;
            if encode(&mut self.pieces, &frame) {
                add(&state.peer.counters.frames_out, 1);
            } else {
                add(&state.peer.counters.dropped, 1);
            }
        }
    }
}

/// Returns whether the frame is within the limits of its type, which was checked when it was
/// queued.
fn encode(pieces: &mut Pieces, frame: &Frame) -> bool {
    frame.encode(pieces).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio::time::timeout;

    use super::*;
    use crate::codec::{Forward, Lane, Stage, take_frame};
    use crate::handshake::LocalServer;
    use crate::net::events::{PeerEvent, PeerEvents};
    use crate::net::options::{Options, WallClock};

    #[derive(Debug)]
    struct IgnoredEvents;

    impl PeerEvents for IgnoredEvents {
        fn event(&self, _: PeerEvent) {}
    }

    /// The writer of a connection whose stream takes this many bytes, and the other end.
    fn writer(capacity: usize) -> (Arc<Writer<DuplexStream>>, DuplexStream) {
        let options = Options::new(1, WallClock::new(|| 0));
        let local = LocalServer::new(1, 1, 1);
        let shared = Arc::new(TransportState::new(options, local, Arc::new(IgnoredEvents)));
        let peer = shared.peer(2);
        let hello = LocalServer::new(2, 2, 2).hello(1, Lane::Log, 0, 0);
        let established = peer.connected(Direction::Outbound, hello, 0).unwrap();
        let (near, far) = tokio::io::duplex(capacity);
        let state = LinkState {
            shared,
            peer,
            link: established.link,
            writer: established.writer,
            to_echo: Mutex::default(),
        };
        (Writer::new(Arc::new(state), near), far)
    }

    fn send(writer: &Writer<DuplexStream>, first: u64, bytes: usize) {
        let frame = Frame::Forward(Forward {
            run: 1,
            first,
            count: 1,
            body: vec![7; bytes].into(),
        });
        writer.state.peer.send(frame).unwrap();
    }

    /// Reads until this many frames are there; returns the first numbers of their groups.
    async fn receive(far: &mut DuplexStream, count: usize) -> Vec<u64> {
        let (mut buffer, mut firsts) = (BytesMut::new(), Vec::new());
        while firsts.len() < count {
            while let Some((kind, body)) = take_frame(&mut buffer, Stage::Lane(Lane::Log)).unwrap()
            {
                if let Frame::Forward(forward) = Frame::decode(kind, body).unwrap() {
                    firsts.push(forward.first);
                }
            }
            if firsts.len() < count {
                let read = far.read_buf(&mut buffer);
                timeout(Duration::from_secs(60), read)
                    .await
                    .unwrap()
                    .unwrap();
            }
        }
        firsts
    }

    fn queued_bytes(writer: &Writer<DuplexStream>) -> u64 {
        writer.state.peer.counters.queued_bytes.load(Relaxed)
    }

    #[tokio::test]
    async fn a_small_frame_is_written_by_who_sends_it() {
        let (writer, mut far) = writer(1 << 20);
        send(&writer, 1, 100);
        send(&writer, 2, 100);
        assert_eq!(queued_bytes(&writer), 0);
        assert_eq!(receive(&mut far, 2).await, [1, 2]);
    }

    #[tokio::test]
    async fn a_large_frame_and_what_is_behind_it_wait_for_the_task() {
        let (writer, mut far) = writer(1 << 20);
        send(&writer, 1, 9 << 10);
        send(&writer, 2, 100);
        assert!(queued_bytes(&writer) > 9 << 10);
        let (_bye, asked) = oneshot::channel();
        let task = tokio::spawn(Arc::clone(&writer).run(asked));
        assert_eq!(receive(&mut far, 2).await, [1, 2]);
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_full_stream_has_not_taken_is_written_by_the_task_in_order() {
        let (writer, mut far) = writer(64);
        for first in 1..=5 {
            send(&writer, first, 100);
        }
        let waiting = queued_bytes(&writer);
        assert!(waiting > 400, "{waiting}");
        let (_bye, asked) = oneshot::channel();
        let task = tokio::spawn(Arc::clone(&writer).run(asked));
        // The task waits for the stream: anyone who sends now must not take its place there.
        tokio::task::yield_now().await;
        send(&writer, 6, 100);
        assert_eq!(receive(&mut far, 6).await, [1, 2, 3, 4, 5, 6]);
        timeout(Duration::from_secs(60), async {
            while queued_bytes(&writer) > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_breaks_under_the_sender_ends_the_task() {
        let (writer, far) = writer(1 << 20);
        let (_bye, asked) = oneshot::channel();
        let task = tokio::spawn(Arc::clone(&writer).run(asked));
        tokio::task::yield_now().await;
        drop(far);
        send(&writer, 1, 100);
        let cause = timeout(Duration::from_secs(60), task)
            .await
            .unwrap()
            .unwrap();
        assert!(
            matches!(
                cause,
                EndCause::Failed(_) | EndCause::Closed | EndCause::Reset
            ),
            "{cause:?}"
        );
    }

    #[tokio::test]
    async fn what_was_not_written_no_longer_counts_when_the_connection_has_ended() {
        let (writer, _far) = writer(64);
        send(&writer, 1, 100);
        let peer = Arc::clone(&writer.state.peer);
        assert!(peer.counters.queued_bytes.load(Relaxed) > 0);
        drop(writer);
        assert_eq!(peer.counters.queued_bytes.load(Relaxed), 0);
    }
}

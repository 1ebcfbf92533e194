//! The task of one connection: reads what has arrived, has it answered or handed to the core in one
//! batch, writes what is ready with one system call. Never waits for another connection; what it
//! holds in memory has a bound (see [`Options`](crate::Options)).
//!
//! | module | owns |
//! |---|---|
//! | `buffers` | the memory that connections share |
//! | `opening` | the first bytes: a four-letter word, or the frame that asks for a session |
//! | `requests` | each request, by the class of its operation |
//! | `identity` | what a client proves to be |
//! | `costly` | requests that cost more than their bytes |
//! | `exchange` | the states of a connection: what has arrived, what waits, what is needed next |
//! | `replies` | replies that the socket has not taken |
//! | `unanswered` | requests that the core has not answered |

mod buffers;
mod costly;
mod exchange;
mod identity;
mod opening;
mod replies;
mod requests;
#[cfg(test)]
mod tests;
mod unanswered;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use tokio::io::AsyncReadExt;
use tokio::time::Sleep;

use self::exchange::{Exchange, Phase, READ_BYTES, WaitReason};
use crate::connections::conn::{CloseReason, Conn, Outlet};
use crate::connections::outbound::Pressure;
use crate::net::end::{End, LINGER};
use crate::net::frames::missing_bytes;
use crate::net::stream::{Input, Output, Stream};
use crate::net::turn::{Turn, give_way};
use crate::net::word_reply;
use crate::operator::words;
use crate::report::notice::Notice;
use crate::state::ServerState;

/// The task of one connection.
pub(crate) struct Connection {
    exchange: Exchange,
    socket: Input,
    outlet: Arc<Output>,
    /// The delay before credentials are judged.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(crate) fn new(state: Arc<ServerState>, conn: Arc<Conn>, stream: Stream) -> Self {
        let (socket, outlet) = stream.into_halves();
        let outlet = Arc::new(outlet);
        conn.reads_from(&(Arc::clone(&outlet) as Arc<dyn Outlet>));
        Self {
            exchange: Exchange::new(state, conn),
            socket,
            outlet,
            pause: None,
        }
    }

    /// Serves the connection to its end. What was handed to the core is done even when this is
    /// cancelled.
    /// A client that has not named its session at `deadline` is closed.
    pub(crate) async fn serve(&mut self, deadline: tokio::time::Instant) -> End {
        // What is over soon is boxed, so that the future of an open connection stays small.
        let opening = tokio::time::timeout_at(deadline, poll_fn(|cx| self.poll(cx, true)));
        let end = match Box::pin(opening).await {
            Ok(None) => match self.exchange.phase {
                Phase::Word(word, argument) => {
                    return Box::pin(self.answer_word(word, argument)).await;
                }
                _ => poll_fn(|cx| self.poll(cx, false)).await,
            },
            Ok(end) => end,
            Err(_) => Some(self.late()),
        };
        let stats = &self.exchange.state.stats;
        match end {
            Some(End::Closed(CloseReason::TooSlow)) => {
                stats.slow_readers_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(CloseReason::AllTooSlow)) => {
                stats.slow_readers_closed.fetch_add(1, Relaxed);
                stats.all_too_slow_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(CloseReason::Unfinished)) => {
                stats.unfinished_closed.fetch_add(1, Relaxed);
            }
            Some(End::Closed(_)) if self.exchange.state.outbound.pressure() == Pressure::None => {
                Box::pin(self.linger()).await;
            }
            _ => {}
        }
        end.unwrap_or(End::Gone)
    }

    async fn answer_word(&mut self, word: words::Word, argument: i64) -> End {
        let (state, conn) = (&self.exchange.state, &self.exchange.conn);
        word_reply::send(state, conn, &mut self.socket, &self.outlet, word, argument).await
    }

    /// Ends a connection whose handshake timed out: the client has not named its session, or the
    /// log has not taken the session up.
    fn late(&self) -> End {
        let stats = &self.exchange.state.stats;
        if self.exchange.phase != Phase::Attaching {
            stats.handshakes_timed_out.fetch_add(1, Relaxed);
            let what = "it did not open or resume a session in time".to_owned();
            return End::Refused(Notice::NoSession, what);
        }
        stats.handshakes_unanswered.fetch_add(1, Relaxed);
        let waited = self.exchange.state.options.handshake_timeout;
        let cause = self.exchange.state.why_writes_wait();
        End::Refused(
            Notice::NotOpened,
            format!("its session could not be written down within {waited:?}: {cause}"),
        )
    }

    /// Lets the client fetch the last bytes: closing with unread input would make the kernel throw
    /// them away.
    async fn linger(&mut self) {
        let mut sink = [0_u8; 1024];
        let drain = async {
            poll_fn(|cx| self.poll_flush(cx)).await?;
            self.outlet.shutdown()?;
            while self.socket.read(&mut sink).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(LINGER, drain).await;
    }

    /// Ready with `None` once the session is attached or a word has come, if `opening`.
    fn poll(&mut self, cx: &mut Context<'_>, opening: bool) -> Poll<Option<End>> {
        self.exchange.turn = Turn::default();
        self.exchange.take_buffers();
        loop {
            let need = match self.exchange.advance() {
                Ok(need) => need,
                Err(end) => return Poll::Ready(Some(end)),
            };
            if matches!(self.exchange.phase, Phase::Word(..)) {
                return Poll::Ready(None);
            }
            let flushed = self.poll_flush(cx);
            if matches!(flushed, Poll::Ready(Err(_))) {
                return Poll::Ready(Some(End::Gone));
            }
            if let WaitReason::End(reason) = need {
                return Poll::Ready(Some(End::Closed(reason)));
            }
            let is_open = matches!(self.exchange.phase, Phase::Open | Phase::ReadOnly);
            if opening && is_open && flushed.is_ready() {
                return Poll::Ready(None);
            }
            let (unsent, unread) = (self.outlet.unsent_bytes(), self.outlet.unfinished_bytes());
            self.exchange.count_waiting(unsent, unread);
            let progress = match need {
                // The connections that are being ended go first, or those whose turn it is.
                WaitReason::Relief | WaitReason::Turn => return give_way(cx),
                WaitReason::Input => match self.poll_input(cx) {
                    Ok(progress) => progress,
                    Err(end) => return Poll::Ready(Some(end)),
                },
                WaitReason::Queue => !self.exchange.state.inbox.wait_for_room(cx.waker()),
                WaitReason::Room => self.exchange.has_room(),
                WaitReason::Answers | WaitReason::End(_) => false,
            };
            if self.pause_is_over(cx) || progress {
                if self.exchange.turn.is_full() {
                    return give_way(cx);
                }
                continue;
            }
            let is_idle = need == WaitReason::Input && self.exchange.replies.unwritten() == 0;
            let outlet = is_idle.then(|| Arc::clone(&self.outlet) as Arc<dyn Outlet>);
            let is_full = self.exchange.replies.is_full();
            if self.exchange.conn.wait(cx.waker(), is_full, outlet) {
                self.exchange.return_buffers();
                return Poll::Pending;
            }
        }
    }

    /// Reads what has arrived; whether anything has.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let exchange = &mut self.exchange;
        exchange.conn.set_reading(true);
        let wanted = missing_bytes(&exchange.input).unwrap_or(0);
        // What a peer merely claims to send is not reserved for at once.
        let reserved = wanted.clamp(READ_BYTES / 4, 4 * READ_BYTES);
        exchange.input.reserve(reserved);
        let read = pin!(self.socket.read_buf(&mut exchange.input)).poll(cx);
        let outcome = match read {
            Poll::Ready(Ok(0) | Err(_)) => Err(End::Gone),
            Poll::Ready(Ok(bytes)) => {
                let stats = &exchange.conn.stats;
                stats.bytes_in.fetch_add(bytes as u64, Relaxed);
                exchange.received(bytes).map(|()| true)
            }
            Poll::Pending => Ok(false),
        };
        exchange.conn.set_reading(false);
        outcome
    }

    /// Writes what waits. Ready when nothing does.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Exchange {
            state,
            conn,
            replies,
            ..
        } = &mut self.exchange;
        let most = state.options.max_outbound_bytes;
        let written = replies.poll_write(cx, most, |cx, bytes| {
            let written = self.outlet.poll_write(cx, bytes);
            if let Poll::Ready(Ok(bytes)) = &written {
                conn.stats.bytes_out.fetch_add(*bytes as u64, Relaxed);
            }
            written
        });
        match written {
            Poll::Ready(Ok(())) => self.outlet.poll_flush(cx),
            other => other,
        }
    }

    /// Waits for the delay before credentials are judged, if there is one; whether it is over now.
    fn pause_is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(wait) = self.exchange.pause else {
            return false;
        };
        let pause = &mut self.pause;
        let sleep = pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        let is_over = sleep.as_mut().poll(cx).is_ready();
        if is_over {
            *pause = None;
            self.exchange.end_pause();
        }
        is_over
    }
}

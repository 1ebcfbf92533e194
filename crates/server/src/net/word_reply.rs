//! Writes the answer to a four-letter word: the client gets the whole answer, or a connection that
//! breaks. Never keeps an answer for a client that does not read it.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::audit::line::{Ending, Operation};
use crate::audit::record::Principal;
use crate::connections::conn::{CloseReason, Conn};
use crate::net::end::{End, LINGER, closed};
use crate::net::stream::{Input, Output};
use crate::operator::words::{Word, answer};
use crate::report::notice::Notice;
use crate::state::ServerState;

/// Bytes that are written before other connections of the same thread get their turn.
const PART_BYTES: usize = 64 << 10;
/// Least time for a client to take a part: where sessions have to be named sooner, answers may
/// still take their time.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// Answers `word` and closes the connection.
pub(crate) async fn send(
    state: &Arc<ServerState>,
    conn: &Arc<Conn>,
    input: &mut Input,
    outlet: &Output,
    word: Word,
    argument: i64,
) -> End {
    if let Some(name) = word.changes() {
        let ending = match word.is_allowed(&state.options) {
            true => Ending::Success,
            false => Ending::Failure,
        };
        let who = || Principal::of(conn);
        state.record(Operation::Command, ending, who, |fields| {
            fields.word("command", name);
            fields.word("via", "word");
        });
    }
    let mut progress = Progress::default();
    let end = tokio::select! {
        biased;
        reason = closed(conn) => End::Closed(reason),
        end = write(state, conn, outlet, (word, argument), &mut progress) => end,
    };
    if !progress.is_whole() {
        // A plain end would pass for the answer's.
        let _ = outlet.reset();
        return end;
    }
    let patience = if progress.bytes > PART_BYTES {
        state.options.handshake_timeout
    } else {
        LINGER
    };
    // Closing with unread input would make the kernel throw the answer away.
    let drain = async {
        outlet.shutdown()?;
        let mut sink = [0_u8; 1024];
        while input.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::select! {
        biased;
        _ = closed(conn) => {}
        _ = tokio::time::timeout(patience, drain) => {}
    }
    end
}

/// Progress of an answer.
#[derive(Debug, Default)]
struct Progress {
    bytes: usize,
    of: Option<usize>,
}

impl Progress {
    fn is_whole(&self) -> bool {
        self.of == Some(self.bytes)
    }
}

async fn write(
    state: &Arc<ServerState>,
    conn: &Conn,
    outlet: &Output,
    (word, argument): (Word, i64),
    progress: &mut Progress,
) -> End {
    let answer = answer(state, word, argument).await;
    let bytes = answer.as_bytes();
    progress.of = Some(bytes.len());
    let patience = state.options.handshake_timeout.max(LEAST_PATIENCE);
    for part in bytes.chunks(PART_BYTES) {
        match tokio::time::timeout(patience, write_all(outlet, part)).await {
            Ok(Ok(())) => {
                progress.bytes += part.len();
                conn.stats.bytes_out.fetch_add(part.len() as u64, Relaxed);
            }
            Ok(Err(_)) => return End::Gone,
            Err(_) => {
                state.stats.slow_readers_closed.fetch_add(1, Relaxed);
                let what = format!(
                    "it does not read the answer to {word}, which has {} bytes; let it read faster",
                    bytes.len()
                );
                return End::Refused(Notice::SlowReader, what);
            }
        }
        tokio::task::yield_now().await;
    }
    let sent = tokio::time::timeout(patience, poll_fn(|cx| outlet.poll_flush(cx)));
    if !matches!(sent.await, Ok(Ok(()))) {
        progress.of = None;
        return End::Gone;
    }
    End::Closed(CloseReason::SessionClosed)
}

async fn write_all(outlet: &Output, mut bytes: &[u8]) -> io::Result<()> {
    poll_fn(|cx| {
        while !bytes.is_empty() {
            match outlet.poll_write(cx, bytes) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => bytes = bytes.get(written..).unwrap_or_default(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

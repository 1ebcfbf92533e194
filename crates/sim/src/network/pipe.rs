//! A byte stream in memory whose network sits in the middle: what one end writes goes to the
//! [`Network`], which decides what of it the other end may read, and when.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use baton_server::simulation::MemoryOutput;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Wire;
use crate::standstill::Standstill;

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    read: usize,
    /// No byte comes after those that are here.
    finished: bool,
    /// The connection is broken: reading fails after the bytes that are here, writing at once.
    reset: bool,
    waker: Option<Waker>,
}

/// Bytes that one end has yet to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mailbox(Arc<Mutex<State>>);

impl Mailbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn deliver(&self, bytes: &[u8]) {
        self.change(|state| {
            if !state.finished && !state.reset {
                state.bytes.extend_from_slice(bytes);
            }
        });
    }

    pub(crate) fn finish(&self) {
        self.change(|state| state.finished = true);
    }

    pub(crate) fn reset(&self) {
        self.change(|state| state.reset = true);
    }
}

impl AsyncRead for Mailbox {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state();
        let rest = state.bytes.get(state.read..).unwrap_or_default();
        if rest.is_empty() {
            if state.reset {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if state.finished {
                return Poll::Ready(Ok(()));
            }
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = rest.len().min(into.remaining());
        into.put_slice(rest.get(..count).unwrap_or_default());
        state.read += count;
        if state.read == state.bytes.len() {
            state.bytes.clear();
            state.read = 0;
        }
        Poll::Ready(Ok(()))
    }
}

/// Writing end of a connection.
pub(crate) struct OutgoingPipe {
    /// Data from the other direction shows whether the connection is broken.
    incoming: Mailbox,
    wire: Mutex<Wire>,
}

impl OutgoingPipe {
    pub(crate) fn new(incoming: Mailbox, wire: Wire) -> Self {
        Self {
            incoming,
            wire: Mutex::new(wire),
        }
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OutgoingPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").finish_non_exhaustive()
    }
}

impl MemoryOutput for OutgoingPipe {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.incoming.state().reset {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.wire().send(bytes);
        Ok(bytes.len())
    }

    fn shutdown(&self) {
        self.wire().finish();
    }
}

impl Drop for OutgoingPipe {
    fn drop(&mut self) {
        self.wire().finish();
    }
}

/// Both halves, as a client has them.
pub(crate) struct End {
    incoming: Mailbox,
    process: Standstill,
    outgoing: OutgoingPipe,
}

impl End {
    pub(crate) fn new(incoming: Mailbox, wire: Wire, process: Standstill) -> Self {
        Self {
            outgoing: OutgoingPipe::new(incoming.clone(), wire),
            incoming,
            process,
        }
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.process.is_deaf(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.incoming).poll_read(cx, into)
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.outgoing.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.shutdown();
        Poll::Ready(Ok(()))
    }
}

//! Frames that wait for one lane of one peer. The queue belongs to one connection: what it still
//! has when that ends is dropped, so no frame travels on a connection that its sender did not know.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::codec::Frame;
use crate::net::writer_handle::WriterHandle;

/// A frame of at most this size that finds an empty queue is written by the thread that sends it:
/// the change to another thread would take longer. A larger one would keep its sender too long.
const WRITE_AT_ONCE_BYTES: usize = 8 << 10;

/// Reason why a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no connection.
    #[error("not sent: the server is not connected")]
    NotConnected,
    /// Too much waits already.
    #[error("not sent: too much waits for the server already")]
    Full,
    /// The frame exceeds a limit of its type.
    #[error("not sent: the frame exceeds a limit of its type")]
    TooLarge,
}

#[derive(Debug, Default)]
pub(crate) struct Outbound {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The connection that writes the frames: its generation and its writer.
    writer: Option<(u64, Arc<WriterHandle>)>,
    frames: VecDeque<(Frame, usize)>,
}

impl Outbound {
    /// A connection takes over, whose queue is empty.
    pub(crate) fn open(&self, generation: u64, writer: Arc<WriterHandle>) {
        let mut state = self.state.lock();
        state.writer = Some((generation, writer));
    }

    /// The connection has ended. Returns what it has not taken: frames and their bytes.
    pub(crate) fn close(&self, generation: u64) -> (usize, usize) {
        let mut state = self.state.lock();
        if state.writer.as_ref().map(|(open, _)| *open) != Some(generation) {
            return (0, 0);
        }
        state.writer = None;
        let left = std::mem::take(&mut state.frames);
        let bytes = left.iter().map(|(_, bytes)| bytes).sum();
        (left.len(), bytes)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().writer.is_some()
    }

    /// Puts a frame at the end, if `admit` finds room for its bytes.
    pub(crate) fn push(
        &self,
        frame: Frame,
        admit: impl FnOnce(usize) -> bool,
    ) -> Result<(), SendError> {
        let bytes = frame.wire_bytes();
        let mut state = self.state.lock();
        let Some((_, writer)) = &state.writer else {
            return Err(SendError::NotConnected);
        };
        let writer = Arc::clone(writer);
        if !admit(bytes) {
            return Err(SendError::Full);
        }
        let is_small = state.frames.is_empty() && bytes <= WRITE_AT_ONCE_BYTES;
        state.frames.push_back((frame, bytes));
        drop(state);
        if is_small {
            writer.write_now();
        } else {
            writer.wake();
        }
        Ok(())
    }

    /// Takes frames from the front, up to about `most_bytes`, if the connection is still the one.
    pub(crate) fn take(&self, generation: u64, most_bytes: usize) -> Vec<(Frame, usize)> {
        let mut state = self.state.lock();
        if state.writer.as_ref().map(|(open, _)| *open) != Some(generation) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        let mut total = 0;
        while total < most_bytes
            && let Some((frame, bytes)) = state.frames.pop_front()
        {
            total += bytes;
            taken.push((frame, bytes));
        }
        taken
    }
}

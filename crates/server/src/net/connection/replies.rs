//! Replies of one connection that its socket has not taken. Owns their memory, which has a bound: a
//! client that does not read gets no further request taken on.

use std::io;
use std::task::{Context, Poll};

/// Written bytes that are kept in front of the others, so that these need not be moved.
const WRITTEN_BYTES: usize = 64 << 10;

/// Bytes on their way to the client.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    /// Those in front that the socket has taken.
    written: usize,
    /// Those that may wait for the client before a further request is taken on.
    share: usize,
}

impl Replies {
    /// The buffer to which further replies are appended.
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The length of [`Self::out`].
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The length that [`Self::out`] may reach: with one byte more than the share it is full.
    pub(super) fn room(&self) -> usize {
        (self.written + self.share).saturating_add(1)
    }

    /// Sets how much may wait from here on.
    pub(super) fn set_share(&mut self, share: usize) {
        self.share = share;
    }

    /// Bytes that the socket has not taken.
    pub(super) fn unwritten(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether they are at their bound.
    pub(super) fn is_full(&self) -> bool {
        self.unwritten() > self.share
    }

    /// Writes what waits by `write`. Ready when nothing does. Keeps at most `most` written bytes.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        mut write: impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while let Some(rest) = self.bytes.get(self.written..).filter(|it| !it.is_empty()) {
            match write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(bytes)) => self.written += bytes,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.give_memory_back(most);
                    return Poll::Pending;
                }
            }
        }
        self.bytes.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Keeps for a slow reader what it has not read, and not much more.
    fn give_memory_back(&mut self, most: usize) {
        if self.written > most || self.written > (self.bytes.len() / 2).max(WRITTEN_BYTES) {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        if self.bytes.capacity() / 2 > self.bytes.len().max(WRITTEN_BYTES) {
            self.bytes.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A socket that takes this many bytes and then no more.
    fn write(replies: &mut Replies, mut takes: usize, most: usize) -> Poll<io::Result<()>> {
        let mut cx = Context::from_waker(Waker::noop());
        replies.poll_write(&mut cx, most, |_, bytes| {
            let now = takes.min(bytes.len()).min(1000);
            takes -= now;
            match now {
                0 => Poll::Pending,
                now => Poll::Ready(Ok(now)),
            }
        })
    }

    #[test]
    fn a_client_that_does_not_read_fills_its_share() {
        let mut replies = Replies::default();
        replies.set_share(10);
        assert_eq!(replies.room(), 11);
        replies.out().extend([0; 10]);
        assert!(!replies.is_full());
        replies.out().push(0);
        assert!(replies.is_full() && replies.unwritten() == 11);
        assert!(write(&mut replies, 1, 100).is_pending());
        assert!(!replies.is_full() && replies.unwritten() == 10);
        assert_eq!((replies.len(), replies.room()), (11, 12));
        assert!(write(&mut replies, 10, 100).is_ready());
        assert_eq!((replies.len(), replies.unwritten()), (0, 0));
    }

    #[test]
    fn written_bytes_are_kept_up_to_a_bound() {
        let mut replies = Replies::default();
        replies.out().extend([0; 10_000]);
        assert!(write(&mut replies, 3000, 3000).is_pending());
        assert_eq!((replies.len(), replies.unwritten()), (10_000, 7000));
        assert!(write(&mut replies, 1, 3000).is_pending());
        assert_eq!((replies.len(), replies.unwritten()), (6999, 6999));
        replies.out().extend([0; 2 * WRITTEN_BYTES]);
        assert!(write(&mut replies, WRITTEN_BYTES, usize::MAX).is_pending());
        assert_eq!(
            replies.len(),
            6999 + 2 * WRITTEN_BYTES,
            "less than the half"
        );
        assert!(write(&mut replies, 6999, usize::MAX).is_pending());
        assert_eq!(replies.len(), WRITTEN_BYTES);
        assert!(write(&mut replies, WRITTEN_BYTES, usize::MAX).is_ready());
    }

    #[test]
    fn a_socket_that_takes_nothing_is_broken() {
        let mut replies = Replies::default();
        replies.out().push(0);
        let mut cx = Context::from_waker(Waker::noop());
        let outcome = replies.poll_write(&mut cx, 0, |_, _| Poll::Ready(Ok(0)));
        assert!(
            matches!(outcome, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::WriteZero)
        );
    }
}

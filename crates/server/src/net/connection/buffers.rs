//! Buffers of the connections that one thread serves. A connection has them while it is served, and
//! keeps only those in which something waits: an idle one has none.

use std::cell::RefCell;

use bytes::BytesMut;

use super::exchange::{Exchange, READ_BYTES};
use crate::connections::inbox::Work;

/// The most that a buffer keeps for the next connection.
const KEPT_BYTES: usize = 4 * READ_BYTES;

#[derive(Default)]
struct Buffers {
    input: BytesMut,
    replies: Vec<u8>,
    work: Work,
}

thread_local! {
    static SPARE: RefCell<Buffers> = RefCell::default();
}

impl Exchange {
    /// Takes the thread's buffers in place of its own empty ones.
    pub(super) fn take_buffers(&mut self) {
        SPARE.with_borrow_mut(|spare| {
            if self.input.is_empty() {
                self.input = std::mem::take(&mut spare.input);
            }
            if self.replies.len() == 0 {
                *self.replies.out() = std::mem::take(&mut spare.replies);
            }
            if self.work.is_empty() {
                self.work = std::mem::take(&mut spare.work);
            }
        });
    }

    /// Gives its empty buffers to the thread, without what a burst has needed.
    pub(super) fn return_buffers(&mut self) {
        self.unanswered.release();
        SPARE.with_borrow_mut(|spare| {
            if self.input.is_empty() {
                spare.input = std::mem::take(&mut self.input);
            }
            if self.replies.len() == 0 {
                spare.replies = std::mem::take(self.replies.out());
            }
            if self.work.is_empty() {
                spare.work = std::mem::take(&mut self.work);
            }
            if spare.input.capacity() > KEPT_BYTES {
                spare.input = BytesMut::new();
            }
            spare.replies.shrink_to(KEPT_BYTES);
            spare.work.release();
        });
    }
}

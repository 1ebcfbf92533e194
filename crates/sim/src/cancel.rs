//! Dropping a future at a chosen poll.
//!
//! A future is dropped either instead of being polled for the `n`th time (what woke it is never
//! seen), or right after its `n`th poll has left it pending (what that poll has sent is on its
//! way).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::fault::Edge;

/// Drives a future, counts its polls, and drops it at the chosen poll: `None` then.
pub(crate) struct Cancellable<F, C> {
    future: Option<Pin<Box<F>>>,
    at: Option<(usize, Edge)>,
    polls: usize,
    /// Receives the number of each poll before it happens.
    count: C,
}

impl<F: Future, C: FnMut(usize) + Unpin> Cancellable<F, C> {
    pub(crate) fn new(future: F, at: Option<(usize, Edge)>, count: C) -> Self {
        Self {
            future: Some(Box::pin(future)),
            at,
            polls: 0,
            count,
        }
    }
}

impl<F: Future, C: FnMut(usize) + Unpin> Future for Cancellable<F, C> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let poll = this.polls;
        this.polls += 1;
        (this.count)(poll);
        if this.at == Some((poll, Edge::Before)) {
            this.future = None;
        }
        let Some(future) = &mut this.future else {
            return Poll::Ready(None);
        };
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => {
                this.future = None;
                Poll::Ready(Some(output))
            }
            Poll::Pending if this.at == Some((poll, Edge::After)) => {
                this.future = None;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

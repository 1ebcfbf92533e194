//! A paused process: what a stopped virtual machine, a long garbage collection or
//! `SIGSTOP` does to a client.
//!
//! Owns when a client is paused and what waits for its end: its actors are not polled, its
//! timers do not fire, nothing is read. Its clock runs on, and so does everybody else. Must never
//! lose a wake-up: what would have happened happens at the end.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use baton_client::testing::VirtualClock;
use baton_client::{BootInstant, BoxFuture, Clock};
use tokio::time::Instant;

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    /// Nothing is read any more; until then, what was delivered at the beginning is.
    deaf: bool,
    waiting: Vec<Waker>,
}

/// One client's process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standstill(Arc<Mutex<State>>);

impl Standstill {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses the process from now on, for this long.
    pub(crate) fn begin(&self, length: Duration, deaf: bool) {
        let until = Instant::now() + length;
        {
            let mut state = self.state();
            state.until = state.until.max(Some(until));
            state.deaf |= deaf;
        }
        let still = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if still.state().until == Some(until) {
                still.end();
            }
        });
    }

    /// From here on nothing is read either.
    pub(crate) fn deafen(&self) {
        let mut state = self.state();
        state.deaf = state.until.is_some();
    }

    /// Goes on: first what was stopped first.
    pub(crate) fn end(&self) {
        let waiting = {
            let mut state = self.state();
            state.until = None;
            state.deaf = false;
            std::mem::take(&mut state.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }

    /// Whether the process is paused.
    pub(crate) fn stands_still(&self) -> bool {
        self.state().until.is_some()
    }

    fn wait(state: &mut State, cx: &Context<'_>) {
        if !state
            .waiting
            .iter()
            .any(|waker| waker.will_wake(cx.waker()))
        {
            state.waiting.push(cx.waker().clone());
        }
    }

    /// Whether nothing may be read now; `cx` is woken when it may.
    pub(crate) fn is_deaf(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        if state.deaf {
            Self::wait(&mut state, cx);
        }
        state.deaf
    }

    /// `future`, as this process runs it.
    pub(crate) fn run<F: Future>(&self, future: F) -> PausedFuture<F> {
        PausedFuture {
            still: self.clone(),
            future: Box::pin(future),
        }
    }

    /// `clock` with the timers of this process.
    pub(crate) fn clock(&self, clock: VirtualClock) -> Arc<dyn Clock> {
        Arc::new(OwnClock {
            clock,
            still: self.clone(),
        })
    }
}

/// A future that is not polled while its process is paused.
pub(crate) struct PausedFuture<F> {
    still: Standstill,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for PausedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        {
            let mut state = this.still.state();
            if state.until.is_some() {
                Standstill::wait(&mut state, cx);
                return Poll::Pending;
            }
        }
        this.future.as_mut().poll(cx)
    }
}

struct OwnClock {
    clock: VirtualClock,
    still: Standstill,
}

impl Clock for OwnClock {
    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<()> {
        Box::pin(self.still.run(self.clock.sleep_until(deadline)))
    }
}

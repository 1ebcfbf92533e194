//! Tasks and timers of the recipes, on the client's runtime.
//!
//! Owns the only place where a recipe may ask which runtime it was called on, and every timer. What
//! goes on in the background must never run on the caller's runtime, which may end or be busy while
//! a lock is held; that one runs the application's own code alone.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use baton_client::{Client, Session, block_on};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// The owner of a runtime with timers.
pub(crate) trait HasRuntime {
    /// The runtime; `None` where it cannot be started, so that nothing else will succeed either.
    fn handle(&self) -> Option<Handle>;
}

impl HasRuntime for Session {
    fn handle(&self) -> Option<Handle> {
        Some(self.runtime())
    }
}

impl HasRuntime for Client {
    fn handle(&self) -> Option<Handle> {
        self.runtime().ok()
    }
}

/// Resolves after `pause`.
pub(crate) async fn sleep(on: &impl HasRuntime, pause: Duration) {
    // Nobody waits for what is further away than the clock can say.
    match Instant::now().checked_add(pause) {
        Some(at) => sleep_until(on, at).await,
        None => std::future::pending().await,
    }
}

/// Resolves at `at`.
pub(crate) async fn sleep_until(on: &impl HasRuntime, at: Instant) {
    let timer = on.handle().map(|runtime| {
        let _context = runtime.enter();
        tokio::time::sleep_until(at)
    });
    match timer {
        Some(timer) => timer.await,
        None => std::future::pending().await,
    }
}

/// Drives `work` for at most `limit`; `None` when the time was up first.
pub(crate) async fn timeout<F: Future>(
    on: &impl HasRuntime,
    limit: Duration,
    work: F,
) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = work => Some(output),
        () = sleep(on, limit) => None,
    }
}

/// Drives `work` until `at`; `None` when the time was up first.
pub(crate) async fn timeout_at<F: Future>(
    on: &impl HasRuntime,
    at: Instant,
    work: F,
) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = work => Some(output),
        () = sleep_until(on, at) => None,
    }
}

/// Runtime or threads that run the application's own code.
#[derive(Clone, Debug)]
pub(crate) enum Application {
    /// The runtime that the application is on.
    Runtime(Handle),
    /// The application is on none: threads of the client's runtime that are there for work that
    /// blocks.
    Threads(Handle),
}

impl Application {
    /// The application that calls, with `client_runtime` for one that is on no runtime.
    pub(crate) fn calling(client_runtime: Handle) -> Self {
        match Handle::try_current() {
            Ok(runtime) => Self::Runtime(runtime),
            Err(_) => Self::Threads(client_runtime),
        }
    }

    /// Starts a task of the application.
    pub(crate) fn start<F>(&self, work: F) -> ApplicationTask<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mut task = JoinSet::new();
        let (alive, dropped) = oneshot::channel();
        match self {
            Self::Runtime(runtime) => {
                task.spawn_on(async move { Some(work.await) }, runtime);
            }
            Self::Threads(runtime) => {
                let until_dropped = async move {
                    tokio::select! {
                        biased;
                        _ = dropped => None,
                        output = work => Some(output),
                    }
                };
                task.spawn_blocking_on(move || block_on(until_dropped), runtime);
            }
        }
        ApplicationTask {
            task,
            alive: Some(alive),
        }
    }
}

/// A task of the application. Dropping it aborts the task.
#[derive(Debug)]
pub(crate) struct ApplicationTask<T> {
    task: JoinSet<Option<T>>,
    alive: Option<oneshot::Sender<Infallible>>,
}

impl<T: 'static> ApplicationTask<T> {
    /// The task's result; `None` where it was aborted. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> Option<Result<T, JoinError>> {
        match self.task.join_next().await? {
            Ok(output) => output.map(Ok),
            // The runtime has ended.
            Err(error) if error.is_cancelled() => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Aborts the task and waits for its end.
    pub(crate) async fn abort(mut self) {
        self.alive = None;
        self.task.shutdown().await;
    }
}

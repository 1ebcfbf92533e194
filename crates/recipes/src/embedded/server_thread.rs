//! The thread that runs an embedded server's sockets: one runtime, which can be stopped in its
//! tracks and go on, as a process can by signals.
//!
//! Owns the runtime and the stop. Knows nothing of what runs there.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

/// Time that the end of the thread waits for calls that block.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A thread with a runtime of its own. Dropping it ends every task on it and waits for the thread.
#[derive(Debug)]
pub(super) struct ServerThread {
    handle: Handle,
    pause: Arc<Pause>,
    /// Closed to end the thread.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("baton-embedded".to_owned())
            .spawn(move || {
                let _ = runtime.block_on(ended);
                runtime.shutdown_timeout(END_LIMIT);
            })?;
        Ok(Self {
            handle,
            pause: Arc::default(),
            running: Some(running),
            thread: Some(thread),
        })
    }

    /// The runtime, for tasks that are to run on the thread.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops the thread between two steps of its tasks. It has stopped when this returns.
    pub(super) async fn pause(&self) {
        if self.pause.ask() {
            let pause = Arc::clone(&self.pause);
            self.handle.spawn(async move { pause.block() });
        }
        let mut is_stopped = self.pause.is_stopped.subscribe();
        // The sender lives in `self`.
        let _ = is_stopped.wait_for(|is_stopped| *is_stopped).await;
    }

    /// Lets the thread go on.
    pub(super) fn resume(&self) {
        self.pause.end();
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.resume();
        self.running = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether the thread is to stand still, and whether it does.
#[derive(Debug, Default)]
struct Pause {
    is_wanted: Mutex<bool>,
    ended: Condvar,
    /// Written under the lock of `is_wanted`.
    is_stopped: watch::Sender<bool>,
}

impl Pause {
    fn wanted(&self) -> MutexGuard<'_, bool> {
        // A bool is valid whatever panicked beside it.
        self.is_wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the pause. Returns whether a task that blocks the thread has to be started.
    fn ask(&self) -> bool {
        let mut wanted = self.wanted();
        let was_wanted = std::mem::replace(&mut *wanted, true);
        // A task that blocks already sees the wish before it ends its pause.
        !was_wanted && !*self.is_stopped.borrow()
    }

    /// Blocks the calling thread while the pause is wanted.
    fn block(&self) {
        let mut wanted = self.wanted();
        if !*wanted {
            return;
        }
        self.is_stopped.send_replace(true);
        while *wanted {
            wanted = self
                .ended
                .wait(wanted)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.is_stopped.send_replace(false);
    }

    fn end(&self) {
        *self.wanted() = false;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_paused_thread_takes_no_step_until_it_is_resumed() {
        let thread = ServerThread::start().unwrap();
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&steps);
        thread.handle().spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        });
        let now = || steps.load(Ordering::SeqCst);
        for _ in 0..100 {
            thread.pause().await;
            thread.pause().await;
            let before = now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(now(), before);
            thread.resume();
            while now() == before {
                tokio::task::yield_now().await;
            }
        }
        thread.pause().await;
        thread.resume();
        // Perhaps before the thread has gone on.
        thread.pause().await;
        let before = now();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(now(), before);
    }
}

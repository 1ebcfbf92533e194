//! Hand-over of queued frames to the writer of their connection: the sender's thread writes them
//! itself, or wakes the writer's task.

use std::sync::OnceLock;

use tokio::sync::Notify;

/// Writes what waits, without blocking; `false`: the writer's task has to go on.
type WriteNowFn = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
pub(crate) struct WriterHandle {
    waits: Notify,
    write_now: OnceLock<WriteNowFn>,
}

impl std::fmt::Debug for WriterHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterHandle").finish_non_exhaustive()
    }
}

impl WriterHandle {
    /// Names what [`WriterHandle::write_now`] calls. Only the first call counts.
    pub(crate) fn set_write_now(&self, write: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.write_now.set(Box::new(write));
    }

    /// Has the writer's task look at what waits.
    pub(crate) fn wake(&self) {
        self.waits.notify_one();
    }

    /// Writes what waits on the calling thread, as far as that is possible without waiting.
    pub(crate) fn write_now(&self) {
        if !self.write_now.get().is_some_and(|write| write()) {
            self.wake();
        }
    }

    /// Ends when the writer's task has to look at what waits.
    pub(crate) async fn woken(&self) {
        self.waits.notified().await;
    }
}

//! The runtime that sessions run on: by default a thread of the client's own.
//!
//! Owns that thread, and the choice of a runtime. A session must never depend on the runtime that
//! its caller happens to be on: that one may end, or be busy, while a lock is held.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use crate::clock::{BootInstant, BoxFuture, Clock};
use crate::error::ConnectError;

/// Longest time that the drop of a session's last handle waits for the server's confirmation.
pub(crate) const CLOSE_ON_DROP_LIMIT: Duration = Duration::from_millis(250);

/// The thread that runs the sessions of this process. It ends with the process.
struct ClientThread {
    handle: Handle,
    id: ThreadId,
}

static THREAD: Mutex<Option<ClientThread>> = Mutex::new(None);

/// The runtime of the client's thread, which is started by the first call.
pub(crate) fn own() -> Result<Handle, ConnectError> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(thread) = &*thread {
        return Ok(thread.handle.clone());
    }
    match start() {
        Ok(started) => {
            let handle = started.handle.clone();
            *thread = Some(started);
            Ok(handle)
        }
        Err(error) => {
            tracing::warn!(%error, "the client's thread cannot be started");
            Err(ConnectError::NoRuntime)
        }
    }
}

fn start() -> io::Result<ClientThread> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .thread_name("baton-client-io")
        .build()?;
    let handle = runtime.handle().clone();
    let running = thread::Builder::new()
        .name("baton-client".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(ClientThread {
        handle,
        id: running.thread().id(),
    })
}

/// Returns whether the caller is the client's thread, which must not wait for itself.
pub(crate) fn is_own_thread() -> bool {
    let own = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    own.as_ref()
        .is_some_and(|own| own.id == thread::current().id())
}

/// Wakes a thread that waits in [`block_on`].
#[derive(Default)]
struct ThreadWaker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}

impl ThreadWaker {
    fn wait(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = self.changed.wait_while(woken, |woken| !*woken);
        *woken.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// Runs `work` to its end on the calling thread. Needs no runtime: the client's own one drives its
/// timers and sockets.
///
/// Within an async function it blocks the thread, as every blocking call does; never call it on
/// the runtime that [`Config::runtime`](crate::Config::runtime) has named.
pub fn block_on<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    let thread = Arc::new(ThreadWaker::default());
    let waker = Waker::from(Arc::clone(&thread));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = work.as_mut().poll(&mut context) {
            return output;
        }
        thread.wait();
    }
}

/// A clock whose timers run on the session's runtime, whatever thread awaits them.
pub(crate) struct RuntimeClock {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Handle,
}

impl Clock for RuntimeClock {
    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<()> {
        Box::pin(RuntimeFuture {
            timer: self.clock.sleep_until(deadline),
            runtime: self.runtime.clone(),
        })
    }
}

impl fmt::Debug for RuntimeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeClock").finish_non_exhaustive()
    }
}

/// A future that is polled in the context of a runtime.
struct RuntimeFuture {
    timer: BoxFuture<()>,
    runtime: Handle,
}

impl Future for RuntimeFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let _context = this.runtime.enter();
        this.timer.as_mut().poll(cx)
    }
}

//! Blocking calls of the recipes, for programs without an async runtime.
//!
//! [`Blocking::block`] waits for any operation of this library on the calling thread. The recipes,
//! guards and errors are those of the asynchronous face, and there is no runtime to make: sessions,
//! leases and what goes on in the background run on the client's own thread, however long the
//! program computes between two calls.
//!
//! ```no_run
//! use baton::blocking::Blocking;
//!
//! fn main() -> Result<(), baton::Error> {
//!     let client = baton::Client::connect(baton::Config::new("127.0.0.1:2181")?).block()?;
//!     let guard = baton::Mutex::new(&client, "/deploy")?.acquire().block()?;
//!     for step in ["build", "copy", "restart"] {
//!         // Before each side effect:
//!         guard.check()?;
//!         println!("{step} under token {}", guard.token());
//!     }
//!     guard.release().block()?;
//!     Ok(())
//! }
//! ```
//!
//! The guard may also be dropped at the end of `main`, before the client: the client's drop waits a
//! moment for the release. Work that calls nothing of this library for long asks [`Guard::check`],
//! or the [`GuardStatus`] on another thread. The handlers of [`WorkQueue::run`] get a thread each.
//!
//! [`Guard::check`]: crate::Guard::check
//! [`GuardStatus`]: crate::guard::GuardStatus
//! [`WorkQueue::run`]: crate::WorkQueue::run

// Owns the one way to wait for an operation without a runtime.

use std::future::Future;

pub use baton_client::block_on;

/// Waits for an operation on the calling thread.
///
/// ```no_run
/// # fn example(client: baton::Client) -> Result<(), baton::Error> {
/// use baton::blocking::Blocking;
/// use std::time::Duration;
///
/// let jobs = baton::WorkQueue::new(&client, "/jobs")?;
/// jobs.offer("report").block()?;
/// let claim = jobs.take_timeout(Duration::from_secs(5)).block()?;
/// println!("{:?}", claim.payload());
/// claim.ack().block()?;
/// # Ok(())
/// # }
/// ```
pub trait Blocking: Future + Sized {
    /// Waits for the outcome. The thread sleeps meanwhile. In an async function await the
    /// operation instead: this would block the thread for the other tasks on it.
    fn block(self) -> Self::Output {
        block_on(self)
    }
}

impl<F: Future> Blocking for F {}

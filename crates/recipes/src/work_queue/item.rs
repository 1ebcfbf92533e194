//! An item as its producer describes it.
//!
//! Owns the limits of what can be asked for; they are checked before anything is sent.

use std::time::Duration;

use bytes::Bytes;

use super::envelope::{MAX_ID_BYTES, MAX_PAYLOAD_BYTES};
use super::layout::MAX_PRIORITY;

/// A payload and how it is queued.
///
/// ```
/// use std::time::Duration;
/// let item = baton::work_queue::WorkItem::new("resize cat.jpg")
///     .priority(100)
///     .delay(Duration::from_secs(60))
///     .id("cat.jpg")
///     .max_attempts(3);
/// # let _ = item;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkItem {
    pub(super) payload: Bytes,
    pub(super) priority: u16,
    pub(super) delay: Duration,
    pub(super) id: Option<String>,
    pub(super) max_attempts: Option<u32>,
}

/// A century: longer delays are refused, since times in names have a fixed width.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl WorkItem {
    /// The priority of an item that is given none.
    pub const USUAL_PRIORITY: u16 = 500;

    /// An item of usual priority, available at once, with a random id.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: payload.into(),
            priority: Self::USUAL_PRIORITY,
            delay: Duration::ZERO,
            id: None,
            max_attempts: None,
        }
    }

    /// The priority, from 0, the most urgent, to 999. All attempts have it.
    #[must_use]
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// Delay before the item becomes available, by the servers' clock.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// An id of at most 200 bytes that only one item at a time can have. Another item with this id
    /// is refused until this one is acknowledged, or discarded as a dead letter.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the number of times that this item may be claimed. This limit overrides that of the
    /// consumers.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Returns why the item cannot be queued, if it cannot.
    pub(super) fn problem(&self) -> Option<String> {
        if self.priority > MAX_PRIORITY {
            return Some(format!(
                "its priority is {}; use 0 to {MAX_PRIORITY}",
                self.priority
            ));
        }
        if self.payload.len() > MAX_PAYLOAD_BYTES {
            return Some(format!(
                "it has {} bytes; use at most {MAX_PAYLOAD_BYTES}, or store it elsewhere and queue its name",
                self.payload.len()
            ));
        }
        if self.delay > MAX_DELAY {
            return Some("its delay is longer than a century; use a shorter one".to_owned());
        }
        if self.max_attempts == Some(0) {
            return Some("no attempt is allowed; use at least one".to_owned());
        }
        match self.id.as_deref().map(str::len) {
            Some(0) => Some("its id is empty; leave it out, or give one".to_owned()),
            Some(bytes) if bytes > MAX_ID_BYTES => Some(format!(
                "its id has {bytes} bytes; use at most {MAX_ID_BYTES}"
            )),
            _ => None,
        }
    }
}

impl From<&[u8]> for WorkItem {
    fn from(payload: &[u8]) -> Self {
        Self::new(Bytes::copy_from_slice(payload))
    }
}

impl<const N: usize> From<&[u8; N]> for WorkItem {
    fn from(payload: &[u8; N]) -> Self {
        Self::new(Bytes::copy_from_slice(payload))
    }
}

impl From<&str> for WorkItem {
    fn from(payload: &str) -> Self {
        Self::new(Bytes::copy_from_slice(payload.as_bytes()))
    }
}

impl From<Vec<u8>> for WorkItem {
    fn from(payload: Vec<u8>) -> Self {
        Self::new(payload)
    }
}

//! Status of a guard, for other parts of the process.
//!
//! Owns nothing of the guard: it can neither release it nor keep it from ending.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::claim_deadline::ClaimDeadline;
use super::state::GuardState;
use crate::lost_reason::LostReason;

/// Status of a guard, for code that does not own it, like worker threads or a health endpoint.
/// Cheap to clone, wait-free to read; it may outlive the guard.
///
/// ```no_run
/// # async fn example(guard: baton::Guard) {
/// let status = guard.status();
/// std::thread::spawn(move || {
///     while status.check().is_ok() {
///         // One step of the work.
///     }
/// });
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct GuardStatus {
    state: Arc<GuardState>,
    until: Option<Arc<ClaimDeadline>>,
}

/// Whether the guard is held at this instant, on one line.
impl fmt::Display for GuardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.check() {
            Ok(()) => write!(
                f,
                "held, for {:.1?} more if no server answers",
                self.remaining()
            ),
            Err(reason) => write!(f, "lost: {reason}"),
        }
    }
}

/// Whether the guard is held at this instant: `held`, `remaining_ms`, and `reason` once it is lost.
impl Serialize for GuardStatus {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct StatusJson {
            held: bool,
            #[serde(serialize_with = "crate::rendering::milliseconds")]
            remaining_ms: Option<Duration>,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<LostReason>,
        }
        let reason = self.check().err();
        let printed = StatusJson {
            held: reason.is_none(),
            remaining_ms: Some(self.remaining()),
            reason,
        };
        printed.serialize(to)
    }
}

impl GuardStatus {
    pub(crate) fn new(state: &Arc<GuardState>) -> Self {
        Self {
            state: Arc::clone(state),
            until: None,
        }
    }

    pub(super) fn until(mut self, until: &Arc<ClaimDeadline>) -> Self {
        self.until = Some(Arc::clone(until));
        self
    }

    /// [`Guard::check`](crate::Guard::check) of this hold.
    ///
    /// # Errors
    /// How the guard ended.
    pub fn check(&self) -> Result<(), LostReason> {
        self.state.check()?;
        match self.left() {
            Some(left) if left.is_zero() => Err(LostReason::ClaimTimedOut),
            _ => Ok(()),
        }
    }

    /// [`Guard::remaining`](crate::Guard::remaining) of this hold.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let lease = self.state.remaining();
        self.left().map_or(lease, |left| left.min(lease))
    }

    /// Returns the time until others may take over what is held.
    fn left(&self) -> Option<Duration> {
        let until = self.until.as_ref()?;
        until.remaining(self.state.session().clock().now())
    }
}

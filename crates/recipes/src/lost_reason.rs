//! Reasons for the loss of a guard.
//!
//! Owns the reasons only. Who finds one out, and what follows from it, is the business of the
//! guard.

/// Reason why a guard has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// The session's lease ran out by our own clock: no server has answered for too long, or this
    /// process was paused. If the session outlives that, the lock node is deleted as soon as there
    /// is a connection, so that the lock passes on: see
    /// [`Guard::keep_node`](crate::Guard::keep_node).
    LeaseEnded,
    /// Somebody deleted the lock node.
    NodeGone,
    /// The session has expired or was closed.
    SessionLost,
    /// It was released, by us.
    Released,
    /// A claim on an item was not extended in time, so that others may take the item over.
    ClaimTimedOut,
    /// The application did not answer the question whether it is alive: see
    /// [`Guard::with_liveness`](crate::Guard::with_liveness).
    NotAlive,
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LeaseEnded => {
                "the lease ended (no server answered in time, or this process was paused)"
            }
            Self::NodeGone => "its node was deleted by somebody",
            Self::SessionLost => "the session was lost",
            Self::Released => "it was released",
            Self::ClaimTimedOut => "the claim was not extended in time",
            Self::NotAlive => "the application did not say in time that it is alive",
        })
    }
}

impl std::error::Error for LostReason {}

impl LostReason {
    pub(crate) const HELD: u8 = 0;

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::LeaseEnded => 1,
            Self::NodeGone => 2,
            Self::SessionLost => 3,
            Self::Released => 4,
            Self::ClaimTimedOut => 6,
            Self::NotAlive => 7,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::LeaseEnded),
            2 => Some(Self::NodeGone),
            3 => Some(Self::SessionLost),
            4 => Some(Self::Released),
            6 => Some(Self::ClaimTimedOut),
            7 => Some(Self::NotAlive),
            _ => None,
        }
    }
}

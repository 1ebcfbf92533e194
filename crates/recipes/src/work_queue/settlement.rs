//! Ends of a claim by intent: acknowledged, delayed, released or dead-lettered.
//!
//! Owns [`Settlement`], which every way to settle an item goes through, the rule that makes the
//! last failed attempt a dead letter, and [`SettledState`], its outcome. A claim that ends without
//! a settlement is lost: [`LostReason`](crate::LostReason) says how.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// End of a claim by intent: see [`Claim`](super::Claim) and
/// [`WorkQueue::settle`](super::WorkQueue::settle).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The item is done: remove it.
    Ack,
    /// The attempt failed: the item becomes available again after a delay, or becomes a dead letter
    /// if this was its last attempt.
    Nack {
        /// Time that the item waits; `None` for the queue's back-off.
        delay: Option<Duration>,
        /// Reason why the attempt failed; noted in the item.
        reason: String,
    },
    /// Give the item back as it was; the attempt does not count.
    Release,
    /// No attempt will ever succeed: move the item to the dead letters.
    DeadLetter {
        /// Reason why no attempt will succeed; noted in the item.
        reason: String,
    },
}

impl Settlement {
    /// Decides what a failed attempt comes to: a delay by the back-off where none was given, or a
    /// dead letter where no attempt is left. The other settlements stay as they are.
    pub(super) fn decide(self, attempt: u32, max_attempts: u32, backoff: RetryBackoff) -> Self {
        match self {
            Self::Nack { reason, .. } if attempt >= max_attempts => Self::DeadLetter { reason },
            Self::Nack { delay, reason } => Self::Nack {
                delay: Some(delay.unwrap_or_else(|| backoff.after(attempt))),
                reason,
            },
            other => other,
        }
    }

    /// Returns the state of the item afterwards.
    pub(super) fn settled(&self) -> SettledState {
        match self {
            Self::Ack => SettledState::Acked,
            Self::Nack { .. } => SettledState::Nacked,
            Self::Release => SettledState::Released,
            Self::DeadLetter { .. } => SettledState::DeadLettered,
        }
    }
}

/// State of an item after a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SettledState {
    /// The item is done and was removed.
    Acked,
    /// The attempt failed; the item becomes available again later.
    Nacked,
    /// The item is back in its place; the attempt does not count.
    Released,
    /// The item is a dead letter. Its serialized name is `buried`.
    #[serde(rename = "buried")]
    DeadLettered,
}

impl std::fmt::Display for SettledState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Acked => "acknowledged",
            Self::Nacked => "failed, to come back",
            Self::Released => "given back",
            Self::DeadLettered => "moved to the dead letters",
        })
    }
}

/// Delay of an item after a failed attempt: doubles with each attempt, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetryBackoff {
    pub first: Duration,
    pub most: Duration,
}

impl RetryBackoff {
    fn after(self, attempts: u32) -> Duration {
        let doubled = 1_u32
            .checked_shl(attempts.saturating_sub(1))
            .unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_its_limit() {
        let backoff = RetryBackoff {
            first: Duration::from_secs(1),
            most: Duration::from_secs(10),
        };
        let seconds: Vec<u64> = [1, 2, 3, 4, 5, 40, u32::MAX]
            .map(|attempts| backoff.after(attempts).as_secs())
            .to_vec();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10, 10]);
    }

    #[test]
    fn only_the_last_failed_attempt_makes_a_dead_letter_and_names_on_the_tree_stay() {
        let backoff = RetryBackoff {
            first: Duration::from_secs(1),
            most: Duration::from_secs(10),
        };
        let nack = |delay, attempt| {
            let reason = "why".to_owned();
            Settlement::Nack { delay, reason }.decide(attempt, 3, backoff)
        };
        let delayed = |secs| Settlement::Nack {
            delay: Some(Duration::from_secs(secs)),
            reason: "why".to_owned(),
        };
        assert_eq!(nack(None, 2), delayed(2));
        assert_eq!(nack(Some(Duration::from_secs(7)), 2), delayed(7));
        assert_eq!(nack(None, 3).settled(), SettledState::DeadLettered);
        assert_eq!(
            Settlement::Release.decide(3, 3, backoff),
            Settlement::Release
        );
        let names = [
            SettledState::Acked,
            SettledState::Nacked,
            SettledState::Released,
            SettledState::DeadLettered,
        ]
        .map(|settled| serde_json::to_string(&settled).unwrap());
        assert_eq!(
            names,
            ["\"acked\"", "\"nacked\"", "\"released\"", "\"buried\""]
        );
    }
}

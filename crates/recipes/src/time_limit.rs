//! One deadline over a whole wait: over all wake-ups, reconnects and sessions (H50).
//!
//! Owns what becomes of the time that is up, and what was known then. The work must be cancel-safe:
//! it is dropped then.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use baton_client::Client;

use crate::background;

/// An answer that has been outstanding for longer counts as missing.
const SLOW_ANSWER: Duration = Duration::from_secs(1);

/// Within less, a server that is well may not have answered.
const SHORTEST_SILENCE: Duration = Duration::from_millis(100);

/// Reason why a wait had not ended when its time was up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// An act of others. The servers answered.
    Others {
        /// Full path of the node that held what was waited for, where that is known: as of the last
        /// read of the wait queue.
        holder: Option<String>,
    },
    /// A server's answer. Whether anybody holds what was waited for is not known.
    Servers {
        /// For how long none had come.
        silent_for: Duration,
    },
    /// An answer, for which the limit was too short: no server is known to be away.
    Answer,
}

impl WaitReason {
    /// Returns the reason for a wait of this length that ends now. It considers only the state of
    /// the connection, so it names no holder.
    #[must_use]
    pub fn now(client: &Client, limit: Duration) -> Self {
        let silent_for = match client.newest() {
            None => Some(limit),
            Some(session) => {
                let unanswered = session.unanswered_for();
                let patience = SLOW_ANSWER.min(limit / 2);
                (!session.state().is_connected() || unanswered > patience).then_some(unanswered)
            }
        };
        match silent_for {
            Some(silent_for) => Self::unanswered(limit, silent_for),
            None => Self::Others { holder: None },
        }
    }

    /// Returns what a wait of this length lacks that has had no answer for `silent_for`.
    pub(crate) fn unanswered(limit: Duration, silent_for: Duration) -> Self {
        if limit < SHORTEST_SILENCE {
            Self::Answer
        } else {
            Self::Servers { silent_for }
        }
    }

    /// The same, with the holder, where the servers answer.
    pub(crate) fn held_by(self, node: Option<String>) -> Self {
        match self {
            Self::Others { .. } => Self::Others { holder: node },
            unanswered => unanswered,
        }
    }

    /// Returns whether the servers answered, so that other processes were the reason.
    #[must_use]
    pub const fn is_others(&self) -> bool {
        matches!(self, Self::Others { .. })
    }

    /// For people; `others` says what others do, as in "somebody else holds it".
    pub(crate) fn because(&self, others: &'static str) -> WaitReasonText<'_> {
        WaitReasonText {
            waited_for: self,
            others,
        }
    }
}

/// See [`WaitReason::because`].
pub(crate) struct WaitReasonText<'a> {
    waited_for: &'a WaitReason,
    others: &'static str,
}

impl fmt::Display for WaitReasonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.waited_for {
            WaitReason::Others { holder } => {
                f.write_str(self.others)?;
                if let Some(node) = holder {
                    write!(f, " ({node})")?;
                }
                f.write_str("; try again, or allow more time")
            }
            WaitReason::Answer => {
                f.write_str("that is too short for an answer of a server; allow more time")
            }
            WaitReason::Servers { silent_for } => write!(
                f,
                "no server has answered for {silent_for:.1?}; check that the servers run and can be reached, and try again"
            ),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.because("others were first").fmt(f)
    }
}

/// Drives `work` for at most `limit`; then drops it, and fails as `timed_out` says.
pub(crate) async fn at_most<T, E>(
    limit: Duration,
    client: &Client,
    work: impl Future<Output = Result<T, E>>,
    timed_out: impl FnOnce(WaitReason) -> E,
) -> Result<T, E> {
    let mut work = std::pin::pin!(work);
    match background::timeout(client, limit, &mut work).await {
        Some(outcome) => outcome,
        // Before `work` is dropped, which sends requests of its own.
        None => Err(timed_out(WaitReason::now(client, limit))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_too_short_for_an_answer_blames_neither_servers_nor_others() {
        for (limit, blames_servers) in [(0, false), (99, false), (100, true), (5000, true)] {
            let limit = Duration::from_millis(limit);
            let lacking = WaitReason::unanswered(limit, limit);
            let text = lacking.because("somebody else holds it").to_string();
            assert_eq!(text.contains("no server has answered"), blames_servers);
            assert_eq!(text.contains("too short for an answer"), !blames_servers);
            assert!(!text.contains("somebody"), "{text}");
        }
    }
}

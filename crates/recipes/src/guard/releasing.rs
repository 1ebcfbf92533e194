//! The release of a lock, until it is confirmed.
//!
//! Owns the deletes of the guard's nodes from the call of `release` on. Must never delete a node
//! that was gone before (H09).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use baton_client::{CleanupError, Deletion, Error};
use tracing::{Instrument, Span};

use super::state::GuardState;
use crate::common_error::{CommonError, RecipeError};
use crate::lost_reason::LostReason;
use crate::spans;
use crate::wait_queue::WaiterNode;

/// Error of a release: it was not confirmed, or the lock was lost before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The guard had ended before.
    #[error("{node}: not released: {reason} before; check what was done under it since")]
    Lost {
        /// Full path of the lock node.
        node: String,
        /// Cause of the guard's end.
        reason: LostReason,
    },
    /// The delete was not answered.
    #[error(
        "{node}: release not confirmed: {source}; it is repeated in the background as long as the session lives"
    )]
    Unknown {
        /// Full path of the lock node.
        node: String,
        /// Error of the client.
        r#source: Error,
    },
    /// The session ended before a server confirmed the release. The server deletes the node with
    /// the session.
    #[error(
        "{node}: the session ended before the release was confirmed; the server ends the session, and with it the lock, within \
         its timeout"
    )]
    SessionEnded {
        /// Full path of the lock node.
        node: String,
    },
}

impl RecipeError for ReleaseError {
    fn common(&self) -> Option<CommonError<'_>> {
        match self {
            Self::Lost { node, reason } => Some(CommonError::Lost {
                path: node,
                reason: *reason,
            }),
            Self::Unknown { node, source } => {
                Some(CommonError::OutcomeUnknown { path: node, source })
            }
            Self::SessionEnded { .. } => None,
        }
    }
}

/// A queued release. Await it for the first answer, or [`PendingRelease::confirmed`] for certainty.
/// Dropping it does not stop the release.
#[derive(Debug)]
pub struct PendingRelease {
    /// Deletions that are not answered yet.
    deletions: Vec<(String, Deletion)>,
    /// The first error so far.
    error: Option<ReleaseError>,
    span: Span,
}

impl PendingRelease {
    /// Nothing to delete: others hold on to what was held until now, or had ended `before`.
    pub(crate) fn of_none(node: String, before: Result<(), LostReason>) -> Self {
        Self {
            deletions: Vec::new(),
            error: before
                .err()
                .map(|reason| ReleaseError::Lost { node, reason }),
            span: Span::none(),
        }
    }

    /// Queues the deletes of `nodes`, whose guard was held until now or had ended `before`.
    pub(super) fn new(
        nodes: Vec<WaiterNode>,
        before: Result<(), LostReason>,
        state: &GuardState,
    ) -> Self {
        let error = before.err().map(|reason| ReleaseError::Lost {
            node: nodes
                .first()
                .map_or_else(String::new, |node| node.path().to_owned()),
            reason,
        });
        let span = if nodes.is_empty() {
            Span::none()
        } else {
            spans::release(state.path(), state.token())
        };
        let entered = span.enter();
        // A single node that is gone leaves nothing to delete; what is at its path now is not ours
        // (H09). What was given away at the loss is being deleted.
        let gone = before == Err(LostReason::NodeGone) && nodes.len() == 1;
        let gone = !state.take_over_removal() || gone;
        let mut deletions = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            if gone {
                node.disown();
                continue;
            }
            let path = node.path().to_owned();
            let deletion = match before {
                Ok(()) | Err(LostReason::Released) => (path, node.release()),
                Err(_) => (path, node.withdraw()),
            };
            // Of a guard that had ended before, nobody waits for more than that error.
            if before.is_ok() {
                deletions.push(deletion);
            }
        }
        drop(entered);
        Self {
            deletions,
            error,
            span,
        }
    }

    /// Waits until it is certain that the lock is released: over lost answers, reconnects and other
    /// servers. As long as no server can be reached it does not return before the session has
    /// ended; give it a limit where that is too long.
    ///
    /// Dropping the future changes nothing: the release goes on in the background.
    ///
    /// ```no_run
    /// # async fn example(guard: baton::Guard) -> Result<(), Box<dyn std::error::Error>> {
    /// guard.release().confirmed().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] where the guard had ended before; [`ReleaseError::SessionEnded`]
    /// where the session ended first; [`ReleaseError::Unknown`] where the server refuses the delete
    /// for good.
    pub async fn confirmed(mut self) -> Result<(), ReleaseError> {
        let span = std::mem::replace(&mut self.span, Span::none());
        self.all_gone().instrument(span).await
    }

    async fn all_gone(mut self) -> Result<(), ReleaseError> {
        // All at once: each is repeated by itself.
        let deletions = std::mem::take(&mut self.deletions).into_iter();
        let certain: Vec<_> = deletions
            .map(|(node, deletion)| (node, deletion.until_gone()))
            .collect();
        let mut outcome = self.error.map_or(Ok(()), Err);
        for (node, certain) in certain {
            let ended = certain.await.map_err(|error| match error {
                CleanupError::Refused(source) => ReleaseError::Unknown { node, source },
                _ => ReleaseError::SessionEnded { node },
            });
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Future for PendingRelease {
    type Output = Result<(), ReleaseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let span = self.span.clone();
        let _entered = span.enter();
        while let Some((_, deletion)) = self.deletions.last_mut() {
            let answer = ready!(Pin::new(deletion).poll(cx));
            let answered = self.deletions.pop();
            if let (Err(source), Some((node, _)), None) = (answer, answered, &self.error) {
                self.error = Some(ReleaseError::Unknown { node, source });
            }
        }
        Poll::Ready(self.error.take().map_or(Ok(()), Err))
    }
}

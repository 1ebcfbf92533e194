//! A release on its way.
//!
//! Owns the deletes of the guard's nodes from the call of `release` on. Must never delete a node that was gone before (H09).

use super::core::{Core, LostReason};
use crate::line::Contender;
use baton_client::{Deletion, Error};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The release could not be confirmed, or there was nothing left to release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The guard had ended before.
    #[error("{node}: not released: {reason} before; check what was done under it since")]
    Lost {
        /// Full path of the lock node.
        node: String,
        /// How the guard ended.
        reason: LostReason,
    },
    /// The delete was not answered.
    #[error(
        "{node}: release not confirmed: {source}; it is repeated in the background as long as the session lives"
    )]
    Unknown {
        /// Full path of the lock node.
        node: String,
        /// What the client knows.
        source: Error,
    },
}

/// A release that is on its way. Await it for the server's word; dropping it changes nothing, so it need not be used.
#[derive(Debug)]
pub struct Releasing {
    /// What is not answered yet.
    deletions: Vec<(String, Deletion)>,
    /// The first trouble so far.
    trouble: Option<ReleaseError>,
}

impl Releasing {
    /// Nothing to delete: others hold on to what was held until now, or had ended `before`.
    pub(crate) fn of_none(node: String, before: Result<(), LostReason>) -> Self {
        Self {
            deletions: Vec::new(),
            trouble: before
                .err()
                .map(|reason| ReleaseError::Lost { node, reason }),
        }
    }

    /// Queues the deletes of `nodes`, whose guard was held until now or had ended `before`.
    pub(super) fn new(nodes: Vec<Contender>, before: Result<(), LostReason>, core: &Core) -> Self {
        let trouble = before.err().map(|reason| ReleaseError::Lost {
            node: nodes
                .first()
                .map_or_else(String::new, |node| node.path().to_owned()),
            reason,
        });
        // A single node that is gone leaves nothing to delete; what stands at its path now is not ours (H09). What was given away at
        // the loss is being deleted.
        let gone = before == Err(LostReason::NodeGone) && nodes.len() == 1;
        let gone = !core.take_over_removal() || gone;
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
            // Of a guard that had ended before, nobody waits for more than that news.
            if before.is_ok() {
                deletions.push(deletion);
            }
        }
        Self { deletions, trouble }
    }
}

impl Future for Releasing {
    type Output = Result<(), ReleaseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some((_, deletion)) = self.deletions.last_mut() {
            let answer = ready!(Pin::new(deletion).poll(cx));
            let answered = self.deletions.pop();
            if let (Err(source), Some((node, _)), None) = (answer, answered, &self.trouble) {
                self.trouble = Some(ReleaseError::Unknown { node, source });
            }
        }
        Poll::Ready(self.trouble.take().map_or(Ok(()), Err))
    }
}

//! Guarded transactions: changes that the server applies only while the lock is held.
//!
//! Owns the first part of the multi: a check of each own lock node. Its name carries a marker that
//! no other node ever had, so a directory that was removed and made again cannot satisfy it (H09).
//! With the caller's parts travels an update of a receipt, by which the outcome is read back when
//! the answer is lost (`docs/internals/hazards.md` §6.1, rule 3). Must never send anything once the
//! guard has ended, nor send again what may have been applied.

use std::sync::Arc;

use baton_client::{CreateMode, Error, Op, OpResult};
use bytes::Bytes;

use super::state::GuardState;
use crate::lost_reason::LostReason;
use crate::receipt::Outcome;

/// A guarded transaction: all its changes or none are applied, and only while the lock is held. The
/// server decides that at the transaction's position in the order of all changes.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = baton::Mutex::new(&client, "/deploy")?.acquire().await?;
/// guard
///     .txn()
///     .set("/app/state", b"deployed", None)
///     .delete("/app/todo", None)
///     .commit()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent before commit"]
#[derive(Debug)]
pub struct Txn<'g> {
    state: &'g Arc<GuardState>,
    parts: Vec<Op>,
    /// Number of parts, the first ones, that check that what is held is ours.
    own: usize,
}

/// A guarded transaction that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedTxn {
    results: Option<Vec<OpResult>>,
}

impl CommittedTxn {
    /// The first `own` of the results are those of our own checks.
    fn new(results: Option<Vec<OpResult>>, own: usize) -> Self {
        let results = results.map(|results| results.into_iter().skip(own).collect());
        Self { results }
    }

    /// Returns the result of each part, in the order of adding; `None` where the answer was lost,
    /// and it is only known that the transaction was applied.
    #[must_use]
    pub fn results(&self) -> Option<&[OpResult]> {
        self.results.as_deref()
    }
}

/// Error of a guarded transaction: it was not applied, or its outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// The lock was not held any more. Nothing was applied.
    #[error("{node}: not applied: {reason}; acquire the lock again")]
    Lost {
        /// Full path of the lock node.
        node: String,
        /// Cause of the guard's end.
        reason: LostReason,
    },
    /// One part could not be applied, so none was. The lock is held.
    #[error(
        "not applied: part {index} of the transaction: {source}; read the node again, then decide"
    )]
    Conflict {
        /// Number of the part, in the order of adding, from 0.
        index: usize,
        /// Answer of the server to that part: [`Error::Rejected`].
        r#source: Error,
    },
    /// Nothing was applied, for a reason of the client's: not connected, too large, and the like.
    #[error("{node}: not applied: {source}")]
    NotApplied {
        /// Full path of the lock node.
        node: String,
        /// Error of the client.
        r#source: Error,
    },
    /// The session ended before the outcome could be read back. All of it was applied, or none:
    /// read before deciding.
    #[error(
        "{node}: the outcome of the transaction is not known: {source}; read one of its nodes to find out"
    )]
    Unknown {
        /// Full path of the lock node.
        node: String,
        /// Reason why there is no answer.
        r#source: Error,
    },
}

/// The refusal of a whole multi as that of the part at fault, whose position in the multi says
/// nothing to those who have not added the checks of our own.
fn of_part(error: Error) -> Error {
    match error {
        Error::MultiRejected {
            op,
            path,
            code,
            zxid,
            ..
        } => Error::Rejected {
            op,
            path,
            code,
            zxid,
        },
        other => other,
    }
}

impl<'g> Txn<'g> {
    pub(super) fn new(state: &'g Arc<GuardState>) -> Self {
        let own = state.nodes().map(|node| Op::check(node, None));
        Self::under(state, own.collect())
    }

    /// For what is held by more than the names of our own nodes: `own` are the checks that do.
    pub(crate) fn under(state: &'g Arc<GuardState>, own: Vec<Op>) -> Self {
        Self {
            state,
            own: own.len(),
            parts: own,
        }
    }

    /// Adds a change of a node's data, if the node has `version` (`None`: any version).
    pub fn set(mut self, path: &str, data: &[u8], version: Option<i32>) -> Self {
        self.parts
            .push(Op::set_data(path, Bytes::copy_from_slice(data), version));
        self
    }

    /// Creates a node.
    pub fn create(mut self, path: &str, data: &[u8], mode: CreateMode) -> Self {
        self.parts
            .push(Op::create(path, Bytes::copy_from_slice(data), mode));
        self
    }

    /// Adds the deletion of a node, if it has `version` (`None`: any version).
    pub fn delete(mut self, path: &str, version: Option<i32>) -> Self {
        self.parts.push(Op::delete(path, version));
        self
    }

    /// Adds the condition that a node exists, with `version` (`None`: any version).
    pub fn check(mut self, path: &str, version: Option<i32>) -> Self {
        self.parts.push(Op::check(path, version));
        self
    }

    /// Applies the transaction once. A lost answer is resolved: each transaction updates a small
    /// ephemeral node of ours, a receipt, in `<path>-__receipts__` beside the lock, whose version
    /// shows afterwards whether it was applied. What certainly was not, is sent again while the
    /// lock is held.
    ///
    /// Waits for the connection to come back if it must, at the longest until the session is over.
    /// Dropping the future does not take back what is under way.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub async fn commit(self) -> Result<CommittedTxn, TxnError> {
        let session = self.state.session();
        let beside = baton_proto::path::parent(self.state.path());
        loop {
            self.state.check().map_err(|reason| self.lost(reason))?;
            let parts = self.parts.clone();
            let (outcome, results) = self.state.receipts().transact(session, beside, parts).await;
            return match outcome {
                Outcome::Applied => Ok(CommittedTxn::new(results, self.own)),
                Outcome::NotApplied => continue,
                // The receipt is the first part.
                Outcome::Refused(error) => Err(self.refused(error, 1)),
                Outcome::Failed(error) => Err(self.failed(error)),
                Outcome::Unknown(error) => Err(self.unknown(error)),
            };
        }
    }

    /// Applies it, and leaves it to the caller to resolve a lost answer.
    ///
    /// # Errors
    /// See [`TxnError`]. Nothing is tried twice.
    pub(crate) async fn send(self) -> Result<(), TxnError> {
        self.state.check().map_err(|reason| self.lost(reason))?;
        match self.state.session().multi(&self.parts).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_maybe_applied() => Err(self.unknown(error)),
            Err(error) => Err(self.refused(error, 0)),
        }
    }

    /// Interprets the refusal of a part. `before` parts precede the checks of our own nodes.
    fn refused(&self, error: Error, before: usize) -> TxnError {
        let own = before + self.own;
        match error.multi_index() {
            Some(index) if index < own => self.ended(LostReason::NodeGone),
            Some(index) => TxnError::Conflict {
                index: index.saturating_sub(own),
                source: of_part(error),
            },
            None => self.failed(error),
        }
    }

    /// Interprets a failure of the whole without effect.
    fn failed(&self, error: Error) -> TxnError {
        if error.is_session_ended() {
            self.ended(LostReason::SessionLost)
        } else {
            TxnError::NotApplied {
                node: self.state.path().to_owned(),
                source: error,
            }
        }
    }

    fn unknown(&self, source: Error) -> TxnError {
        TxnError::Unknown {
            node: self.state.path().to_owned(),
            source,
        }
    }

    /// The guard has ended, for `reason` or for one before it.
    fn ended(&self, reason: LostReason) -> TxnError {
        self.state.end(reason);
        self.lost(self.state.check().err().unwrap_or(reason))
    }

    fn lost(&self, reason: LostReason) -> TxnError {
        TxnError::Lost {
            node: self.state.path().to_owned(),
            reason,
        }
    }
}

//! Changes to the tree that are applied only while the lock is held.
//!
//! Owns the first part of the multi: a check of each own lock node. Its name carries a marker that no other node ever had, so a
//! directory that was removed and made anew cannot satisfy it (H09). Must never send anything once the guard has ended.

use super::core::{Core, LostReason};
use baton_client::{CreateMode, Error, Op, OpResult};
use bytes::Bytes;
use std::sync::Arc;

/// A set of changes, applied whole or not at all, and only while the lock is held: decided by the server, at its place in
/// the order of all changes, not by a look beforehand.
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
    core: &'g Arc<Core>,
    parts: Vec<Op>,
}

/// A guarded set of changes that was not applied, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TxnError {
    /// The lock was not held any more. Nothing was applied.
    #[error("{node}: not applied: {reason}; acquire the lock again")]
    Lost {
        /// Full path of the lock node.
        node: String,
        /// How the guard ended.
        reason: LostReason,
    },
    /// One part could not be applied, so none was. The lock is held.
    #[error(
        "not applied: part {index} of the transaction: {source}; read the node again and decide anew"
    )]
    Conflict {
        /// Which part, in the order of adding, from 0.
        index: usize,
        /// What the server said.
        source: Error,
    },
    /// Nothing was applied, for a reason of the client's: not connected, too large, and the like.
    #[error("not applied: {0}")]
    NotApplied(Error),
    /// The connection was lost before the answer. All of it was applied, or none: look before deciding.
    #[error("the outcome of the transaction is not known: {0}; read one of its nodes to find out")]
    Unknown(Error),
}

impl<'g> Txn<'g> {
    pub(super) fn new(core: &'g Arc<Core>) -> Self {
        let own = core.nodes().iter().map(|node| Op::check(node, None));
        Self {
            core,
            parts: own.collect(),
        }
    }

    /// Sets a node's data, if it has `version` (`None`: whatever it has).
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

    /// Deletes a node, if it has `version` (`None`: whatever it has).
    pub fn delete(mut self, path: &str, version: Option<i32>) -> Self {
        self.parts.push(Op::delete(path, version));
        self
    }

    /// Demands that a node exists, with `version` (`None`: whatever it has).
    pub fn check(mut self, path: &str, version: Option<i32>) -> Self {
        self.parts.push(Op::check(path, version));
        self
    }

    /// Applies it. Returns the result of each part, in the order of adding. Dropping the future does not take it back once
    /// it has been polled.
    ///
    /// # Errors
    /// See [`TxnError`]. Nothing is tried twice.
    pub async fn commit(self) -> Result<Vec<OpResult>, TxnError> {
        let lost = |reason| TxnError::Lost {
            node: self.core.path().to_owned(),
            reason,
        };
        self.core.check().map_err(lost)?;
        let own = self.core.nodes().len();
        match self.core.session().multi(&self.parts).await {
            Ok(mut results) => {
                results.drain(..results.len().min(own));
                Ok(results)
            }
            Err(error) if error.is_maybe_applied() => Err(TxnError::Unknown(error)),
            Err(error) => match error.multi_index() {
                Some(index) if index < own => {
                    self.core.end(LostReason::NodeGone);
                    Err(lost(
                        self.core.check().err().unwrap_or(LostReason::NodeGone),
                    ))
                }
                Some(index) => Err(TxnError::Conflict {
                    index: index.saturating_sub(own),
                    source: error,
                }),
                None if error.is_session_ended() => {
                    self.core.end(LostReason::SessionLost);
                    Err(lost(
                        self.core.check().err().unwrap_or(LostReason::SessionLost),
                    ))
                }
                None => Err(TxnError::NotApplied(error)),
            },
        }
    }
}

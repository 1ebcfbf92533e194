//! Receipts: how a change whose answer was lost is found to have been applied or not.
//!
//! Owns small ephemeral nodes beside the queue or the value that is changed. Each change is one
//! multi with an update of a receipt of its own, so the version of the receipt shows afterwards
//! whether the multi was applied (`docs/internals/hazards.md` §6.1, rule 3; H65, H66, H77, H78). A
//! receipt serves one change at a time and is then used again. Must never send a change twice.

use std::sync::{Arc, Mutex, PoisonError};

use baton_client::{CreateMode, EndReason, Error, Op, OpCode, OpResult, Reason, Session};
use bytes::Bytes;
use tokio::sync::oneshot;
use tracing::Instrument;
use uuid::Uuid;

use crate::parents::{ParentKind, ensure_parents};
use crate::retry;

/// The receipts of one handle that serve nothing just now.
#[derive(Debug, Default)]
pub(crate) struct Receipts(Mutex<Vec<Receipt>>);

impl Receipts {
    /// A receipt on `session`, used before if there is one. Those of earlier sessions went with
    /// them.
    fn take(&self, session: &Session, beside: &str) -> Receipt {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.retain(|receipt| receipt.session.id() == session.id());
        free.pop().unwrap_or_else(|| Receipt::new(session, beside))
    }

    fn give_back(&self, receipt: Receipt) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(receipt);
    }

    /// Applies `parts` to what is at `path`, whole or not at all, and finds out which even where
    /// the answer is lost.
    ///
    /// To be driven to its end: see [`Receipts::apply`].
    pub(crate) async fn change(&self, session: &Session, path: &str, parts: Vec<Op>) -> Outcome {
        self.change_with_results(session, path, parts).await.0
    }

    async fn change_with_results(
        &self,
        session: &Session,
        path: &str,
        parts: Vec<Op>,
    ) -> (Outcome, Option<Vec<OpResult>>) {
        let mut receipt = self.take(session, path);
        let (outcome, results) = receipt.apply(parts).await;
        if receipt.session().state().is_final() || matches!(outcome, Outcome::Unknown(_)) {
            drop(receipt);
        } else {
            self.give_back(receipt);
        }
        (outcome, results)
    }

    /// [`Receipts::change`] in a task of its own, which goes on if the caller goes away; with the
    /// results of the parts, where an answer brought them.
    pub(crate) async fn transact(
        self: &Arc<Self>,
        session: &Session,
        path: &str,
        parts: Vec<Op>,
    ) -> (Outcome, Option<Vec<OpResult>>) {
        let (receipts, session, beside) = (Arc::clone(self), session.clone(), path.to_owned());
        let (report, reported) = oneshot::channel();
        let runtime = session.runtime();
        let changing = async move {
            let outcome = receipts.change_with_results(&session, &beside, parts).await;
            // A caller that has gone does not want to know.
            let _ = report.send(outcome);
        };
        runtime.spawn(changing.in_current_span());
        reported
            .await
            .unwrap_or_else(|_| (Outcome::Unknown(task_gone(path)), None))
    }

    /// [`Receipts::change`] in a task of its own, which goes on if the caller goes away.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        session: &Session,
        path: &Arc<str>,
        parts: Vec<Op>,
    ) -> Outcome {
        let (receipts, session, beside) = (Arc::clone(self), session.clone(), Arc::clone(path));
        let (report, reported) = oneshot::channel();
        let runtime = session.runtime();
        let changing = async move {
            // A caller that has gone does not want to know.
            let _ = report.send(receipts.change(&session, &beside, parts).await);
        };
        runtime.spawn(changing.in_current_span());
        reported
            .await
            .unwrap_or_else(|_| Outcome::Unknown(task_gone(path)))
    }
}

/// The outcome of a change whose task ended without a result: the client's runtime has ended.
pub(crate) fn task_gone(path: &str) -> Error {
    Error::MaybeApplied {
        op: OpCode::Multi,
        path: path.to_owned(),
        reason: Reason::SessionEnded(EndReason::DriverGone),
    }
}

/// One ephemeral node whose version counts the changes that were applied with it.
#[derive(Debug)]
struct Receipt {
    session: Session,
    dir: String,
    path: String,
    /// Version and czxid of the node, once it exists.
    node: Option<(i32, i64)>,
}

/// End of a change.
#[derive(Debug)]
pub(crate) enum Outcome {
    Applied,
    /// One of the parts was refused, so none was applied.
    Refused(Error),
    /// Certainly not applied, and nothing says that it will not be the next time.
    NotApplied,
    /// Never sent.
    Failed(Error),
    /// The session ended before it could be found out.
    Unknown(Error),
}

/// Suffix of the path of the folder of receipts behind that of its recipe.
pub(crate) const RECEIPTS_SUFFIX: &str = "-__receipts__";

/// Path of the receipts for a path: beside it, so that other libraries do not take them for items.
pub(crate) fn folder_of_receipts(path: &str) -> String {
    format!("{path}{RECEIPTS_SUFFIX}")
}

impl Receipt {
    fn new(session: &Session, beside: &str) -> Self {
        let dir = folder_of_receipts(beside);
        let path = baton_proto::path::join(&dir, &Uuid::new_v4().simple().to_string());
        Self {
            session: session.clone(),
            dir,
            path,
            node: None,
        }
    }

    fn session(&self) -> &Session {
        &self.session
    }

    /// Applies `parts` whole or not at all, and finds out which even where the answer is lost; with
    /// it are lost the results of the parts.
    ///
    /// To be driven to its end: a receipt that is dropped half-way is deleted, but the outcome is
    /// then not known.
    async fn apply(&mut self, parts: Vec<Op>) -> (Outcome, Option<Vec<OpResult>>) {
        let version = match self.prepare().await {
            Ok(version) => version,
            Err(error) => return (Outcome::Failed(error), None),
        };
        let mut ops = vec![Op::set_data(&*self.path, Bytes::new(), Some(version))];
        ops.extend(parts);
        let outcome = match self.session.multi(&ops).await {
            Ok(results) => {
                self.stamped(version);
                let of_parts = results.into_iter().skip(1).collect();
                return (Outcome::Applied, Some(of_parts));
            }
            Err(error) if error.is_maybe_applied() => self.find_out(version, error).await,
            Err(error) => match error.multi_index() {
                // Somebody deleted our receipt or wrote to it: go on with another.
                Some(0) => {
                    *self = Self::successor(self);
                    Outcome::NotApplied
                }
                Some(_) => Outcome::Refused(error),
                None => Outcome::Failed(error),
            },
        };
        (outcome, None)
    }

    /// Makes the node if there is none yet.
    async fn prepare(&mut self) -> Result<i32, Error> {
        loop {
            match self.node {
                // Nobody can ask for this version (H24).
                Some((-1, _)) => *self = Self::successor(self),
                Some((version, _)) => return Ok(version),
                None => {}
            }
            match self
                .session
                .create(&self.path, &[], CreateMode::Ephemeral)
                .await
            {
                Ok(created) => self.node = Some((created.stat.version, created.stat.czxid)),
                Err(error) if error.is_no_node() => {
                    ensure_parents(&self.session, &self.dir, ParentKind::Container).await?;
                }
                // The name is ours alone, so it is our own earlier create.
                Err(error) if error.is_node_exists() || error.is_maybe_applied() => {
                    self.node = self.read(error).await?;
                }
                Err(error) => retry::until_retryable(&self.session, error).await?,
            }
        }
    }

    /// The node as a server that has caught up sees it. `cause` is what the caller reports if the
    /// session has ended.
    async fn read(&self, cause: Error) -> Result<Option<(i32, i64)>, Error> {
        let exists = |session: &Session| session.exists(&self.path);
        let read = || self.session.read_latest(&self.dir, exists);
        let stat = retry::resolve(&self.session, cause, read).await?;
        Ok(stat.map(|stat| (stat.version, stat.czxid)))
    }

    async fn find_out(&mut self, version: i32, cause: Error) -> Outcome {
        match self.read(cause.clone()).await {
            Ok(Some((now, _))) if now == version => Outcome::NotApplied,
            Ok(Some(_)) => {
                self.stamped(version);
                Outcome::Applied
            }
            // Deleted by somebody: what it said is gone with it.
            Ok(None) | Err(_) => Outcome::Unknown(cause),
        }
    }

    fn stamped(&mut self, version: i32) {
        if let Some((now, _)) = &mut self.node {
            *now = version.wrapping_add(1);
        }
    }

    fn successor(spoilt: &Self) -> Self {
        let path = baton_proto::path::join(&spoilt.dir, &Uuid::new_v4().simple().to_string());
        Self {
            session: spoilt.session.clone(),
            dir: spoilt.dir.clone(),
            path,
            node: None,
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some((_, czxid)) = self.node {
            drop(self.session.delete_eventually(&self.path, czxid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_clock::tests::started;

    #[tokio::test(flavor = "multi_thread")]
    async fn h24_a_receipt_that_has_come_to_version_minus_one_is_replaced() {
        let (_server, client) = started().await;
        let session = client.session().await.unwrap();
        let receipts = Receipts::default();
        let change = |path: &str| {
            let part = Op::create(path, Bytes::new(), CreateMode::Persistent);
            receipts.change(&session, "/value", vec![part])
        };
        assert!(matches!(change("/first").await, Outcome::Applied));
        // After four thousand million changes.
        for receipt in receipts.0.lock().unwrap().iter_mut() {
            receipt.stamped(-2);
        }
        assert!(matches!(change("/second").await, Outcome::Applied));
        assert!(matches!(change("/third").await, Outcome::Applied));
    }
}

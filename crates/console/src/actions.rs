//! Actions of an operator: ask a holder to release, break a holder, settle dead letters.
//!
//! Owns the words that say what an action will do, and the check that it meets what its operator
//! has seen. The changes themselves are the library's, each bound to the node that was seen, and
//! made by a session with the operator's identity, so that the servers' audit record names who.

use baton::inspect::{InspectError, Inspector, LockNode, LockSnapshot};
use baton::work_queue::WorkError;
use baton::{Client, WorkQueue};
use serde::{Deserialize, Serialize};

use crate::error::SurveyError;

/// One change that an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Action {
    /// Ask the holder that owns a node to release.
    Ask {
        path: String,
        node: String,
        czxid: i64,
    },
    /// Delete the node of a holder, whose token is given as it was shown.
    Break {
        path: String,
        node: String,
        czxid: i64,
        token: u64,
    },
    /// Put a dead letter back into its queue.
    Requeue { path: String, name: String },
    /// Delete a dead letter.
    Discard { path: String, name: String },
    /// Delete all dead letters of a queue.
    Purge { path: String },
}

/// The effect of an action, before it or after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    /// Sentences for the operator.
    pub(crate) text: String,
    /// Whether something was changed.
    pub(crate) done: bool,
}

/// Reason why nothing was done.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ActionError {
    #[error("{0}; nothing was changed, look again")]
    Changed(String),
    #[error(transparent)]
    Failed(Box<SurveyError>),
}

impl From<InspectError> for ActionError {
    fn from(error: InspectError) -> Self {
        Self::Failed(Box::new(error.into()))
    }
}

impl From<WorkError> for ActionError {
    fn from(error: WorkError) -> Self {
        Self::Failed(Box::new(error.into()))
    }
}

/// Returns the effect that `action` would have on the tree as it is now.
///
/// # Errors
/// [`ActionError`].
pub(crate) async fn preview(client: &Client, action: &Action) -> Result<Answer, ActionError> {
    let text = match action {
        Action::Ask { path, node, czxid } => {
            let lock = Inspector::new(client).lock(path).await?;
            let holder = holder(&lock, node, *czxid)?;
            format!(
                "Writes a request to release into the node of {holder}. Holders of Baton and revocable locks of Curator are \
                 notified and may release; other libraries do not listen. {holder} holds until it releases."
            )
        }
        Action::Break {
            path,
            node,
            czxid,
            token,
        } => {
            let lock = Inspector::new(client).lock(path).await?;
            let holder = with_token(&lock, node, *czxid, *token)?;
            let next = match lock.waiters.first() {
                Some(next) => format!("{next} is granted it next"),
                None => "nobody waits for it".to_owned(),
            };
            format!(
                "Deletes the node of {holder}, which holds with token {token}; {next}. {holder} is notified of the loss, at the \
                 latest when its lease ends if it is Baton's, and may still be working: only a store that checks the token is safe from that. This cannot be undone."
            )
        }
        Action::Requeue { name, .. } => format!(
            "Puts the dead letter {name} back into the queue as a new item, with no attempt counted. A consumer may take it at once."
        ),
        Action::Discard { name, .. } => {
            format!("Deletes the dead letter {name} and its payload. This cannot be undone.")
        }
        Action::Purge { path } => format!(
            "Deletes all dead letters of {path} with their payloads. This cannot be undone."
        ),
    };
    Ok(Answer { text, done: false })
}

/// Does it.
///
/// # Errors
/// [`ActionError`].
pub(crate) async fn carry_out(client: &Client, action: &Action) -> Result<Answer, ActionError> {
    let gone = || ActionError::Changed("the node is gone, or was written to meanwhile".to_owned());
    let text = match action {
        Action::Ask { path, node, czxid } => {
            let inspector = Inspector::new(client);
            let lock = inspector.lock(path).await?;
            let holder = holder(&lock, node, *czxid)?;
            if !inspector.revoke(holder).await? {
                return Err(gone());
            }
            format!("{holder} was asked to release {path}.")
        }
        Action::Break {
            path,
            node,
            czxid,
            token,
        } => {
            let inspector = Inspector::new(client);
            let lock = inspector.lock(path).await?;
            let holder = with_token(&lock, node, *czxid, *token)?;
            if !inspector.break_holder(holder).await? {
                return Err(gone());
            }
            format!("{path} was broken: {holder} holds it no more.")
        }
        Action::Requeue { path, name } => {
            WorkQueue::new(client, path)?.replay(name).await?;
            format!("{name} is in {path} again.")
        }
        Action::Discard { path, name } => {
            WorkQueue::new(client, path)?.discard(name).await?;
            format!("{name} was deleted.")
        }
        Action::Purge { path } => {
            let purged = WorkQueue::new(client, path)?.purge_dead().await?;
            format!("Dead letters of {path}: {purged}.")
        }
    };
    Ok(Answer { text, done: true })
}

fn holder<'a>(lock: &'a LockSnapshot, node: &str, czxid: i64) -> Result<&'a LockNode, ActionError> {
    let found = lock
        .holders
        .iter()
        .find(|holder| (holder.info.path.as_str(), holder.info.czxid) == (node, czxid));
    found.ok_or_else(|| ActionError::Changed(format!("{node} does not hold any more")))
}

fn with_token<'a>(
    lock: &'a LockSnapshot,
    node: &str,
    czxid: i64,
    token: u64,
) -> Result<&'a LockNode, ActionError> {
    let holder = holder(lock, node, czxid)?;
    match holder.token {
        Some(now) if now == token => Ok(holder),
        _ => Err(ActionError::Changed(format!(
            "{node} has another token now"
        ))),
    }
}

//! The claims of callers on items of work queues, by id. Shows a caller no claim of another user.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::caller::{Caller, Owner};
use crate::error::{ApiError, Code};
use crate::held::random_id;

/// Settlement of a claim, or its extension.
pub(crate) enum Settle {
    Ack,
    Nack {
        reason: String,
        delay: Option<Duration>,
    },
    Extend,
}

/// A settlement that is asked for, and where to answer.
type Settling = (Settle, oneshot::Sender<Result<(), ApiError>>);

/// The claims of callers.
#[derive(Debug, Default)]
pub(crate) struct ClaimTable {
    entries: Mutex<HashMap<String, (Owner, mpsc::Sender<Settling>)>>,
}

impl ClaimTable {
    /// Number of claims.
    pub(crate) fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// Adds a claim, and returns the settlements that callers ask of it.
    pub(crate) fn add(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<(ClaimEntry, mpsc::Receiver<Settling>), ApiError> {
        let id = random_id()?;
        let (commands, inbox) = mpsc::channel(1);
        let entry = (caller.owner(), commands);
        self.entries.lock().insert(id.clone(), entry);
        let table = Arc::clone(self);
        Ok((ClaimEntry { table, id }, inbox))
    }

    /// Settles a claim of this user.
    pub(crate) async fn settle(
        &self,
        caller: &Caller,
        id: &str,
        how: Settle,
    ) -> Result<(), ApiError> {
        let unknown = || {
            let cause = "unknown to this agent: it was settled or lost, or is another user's";
            let thing = format!("claim {id}");
            ApiError::new(Code::Lost, thing, cause, "take the next item")
        };
        let commands = {
            let entries = self.entries.lock();
            let entry = entries
                .get(id)
                .filter(|(owner, _)| *owner == caller.owner());
            entry.map(|(_, commands)| commands.clone())
        };
        let (sender, answer) = oneshot::channel();
        let commands = commands.ok_or_else(unknown)?;
        let sent = commands.send((how, sender)).await;
        sent.map_err(|_| unknown())?;
        answer.await.map_err(|_| unknown())?
    }
}

/// A claim in the table, until this is dropped.
#[derive(Debug)]
pub(crate) struct ClaimEntry {
    table: Arc<ClaimTable>,
    id: String,
}

impl ClaimEntry {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for ClaimEntry {
    fn drop(&mut self) {
        self.table.entries.lock().remove(&self.id);
    }
}

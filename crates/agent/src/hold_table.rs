//! The locks that outlive their requests, by user and path. Owns the bound on them.

use std::collections::HashMap;
use std::time::Duration;

use baton::guard::GuardStatus;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::caller::Caller;
use crate::error::{ApiError, Code};

/// Locks of one user that outlive their requests.
const MAX_OF_USER: usize = 1_000;

/// A command to the task that holds such a lock.
pub(crate) enum HoldCommand {
    /// Holds it this much longer from now on.
    Renew(Duration),
    Release(oneshot::Sender<bool>),
}

#[derive(Debug)]
struct Entry {
    token: u64,
    status: GuardStatus,
    commands: mpsc::UnboundedSender<HoldCommand>,
}

/// The locks that outlive their requests.
#[derive(Debug, Default)]
pub(crate) struct HoldTable {
    users: Mutex<HashMap<u32, HashMap<String, Entry>>>,
}

impl HoldTable {
    /// Number of such locks.
    pub(crate) fn count(&self) -> usize {
        self.users.lock().values().map(HashMap::len).sum()
    }

    /// Checks that this user may hold one more.
    pub(crate) fn has_room(&self, caller: Caller, path: &str) -> Result<(), ApiError> {
        let users = self.users.lock();
        if users.get(&caller.uid).map_or(0, HashMap::len) < MAX_OF_USER {
            return Ok(());
        }
        let cause = format!("this user holds {MAX_OF_USER} locks like this, the most that one may");
        Err(ApiError::refused(path, cause, "release some of them")
            .with_status(axum::http::StatusCode::TOO_MANY_REQUESTS))
    }

    /// Adds a lock, and returns the commands to the task that holds it.
    pub(crate) fn add(
        &self,
        caller: Caller,
        path: &str,
        token: u64,
        status: GuardStatus,
    ) -> mpsc::UnboundedReceiver<HoldCommand> {
        let (commands, inbox) = mpsc::unbounded_channel();
        let entry = Entry {
            token,
            status,
            commands,
        };
        let mut users = self.users.lock();
        let entries = users.entry(caller.uid).or_default();
        entries.insert(path.to_owned(), entry);
        inbox
    }

    /// Removes the lock with this token. A later one at the path stays.
    pub(crate) fn remove(&self, caller: Caller, path: &str, token: u64) {
        let mut users = self.users.lock();
        if let Some(entries) = users.get_mut(&caller.uid)
            && entries.get(path).is_some_and(|it| it.token == token)
        {
            entries.remove(path);
        }
    }

    /// Sends a command to the task that holds the lock with this token.
    pub(crate) fn ask(
        &self,
        caller: Caller,
        path: &str,
        token: u64,
        command: HoldCommand,
    ) -> Result<(), ApiError> {
        let users = self.users.lock();
        let entry = users.get(&caller.uid).and_then(|it| it.get(path));
        let is_asked = entry
            .filter(|it| it.token == token && it.status.check().is_ok())
            .is_some_and(|it| it.commands.send(command).is_ok());
        if is_asked {
            return Ok(());
        }
        let cause = format!("it is not held with token {token}");
        let next = "hold it again without a token";
        Err(ApiError::new(Code::Lost, path, cause, next))
    }
}

//! The locks that outlive their requests, by owner and path. Owns the bound on them.

use std::collections::HashMap;
use std::time::Duration;

use baton::guard::GuardStatus;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::caller::{Caller, Owner};
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
    owners: Mutex<HashMap<Owner, HashMap<String, Entry>>>,
}

impl HoldTable {
    /// Number of such locks.
    pub(crate) fn count(&self) -> usize {
        self.owners.lock().values().map(HashMap::len).sum()
    }

    /// Checks that this user may hold one more.
    pub(crate) fn has_room(&self, caller: &Caller, path: &str) -> Result<(), ApiError> {
        let owners = self.owners.lock();
        if owners.get(&caller.owner()).map_or(0, HashMap::len) < MAX_OF_USER {
            return Ok(());
        }
        let cause = format!("this user holds {MAX_OF_USER} such locks, which is the limit");
        Err(ApiError::refused(path, cause, "release some of them")
            .with_status(axum::http::StatusCode::TOO_MANY_REQUESTS))
    }

    /// Adds a lock, and returns the commands to the task that holds it.
    pub(crate) fn add(
        &self,
        caller: &Caller,
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
        let mut owners = self.owners.lock();
        let entries = owners.entry(caller.owner()).or_default();
        entries.insert(path.to_owned(), entry);
        inbox
    }

    /// Removes the lock with this token. A later one at the path stays.
    pub(crate) fn remove(&self, caller: &Caller, path: &str, token: u64) {
        let mut owners = self.owners.lock();
        let owner = caller.owner();
        if let Some(entries) = owners.get_mut(&owner)
            && entries.get(path).is_some_and(|it| it.token == token)
        {
            entries.remove(path);
            if entries.is_empty() {
                owners.remove(&owner);
            }
        }
    }

    /// Sends a command to the task that holds the lock with this token.
    pub(crate) fn ask(
        &self,
        caller: &Caller,
        path: &str,
        token: u64,
        command: HoldCommand,
    ) -> Result<(), ApiError> {
        let owners = self.owners.lock();
        let entry = owners.get(&caller.owner()).and_then(|it| it.get(path));
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

#[cfg(test)]
mod tests {
    use baton::embedded::Embedded;
    use baton::lock::Mutex as Lock;
    use baton::{Client, Config};

    use super::*;

    /// It was lost and acquired again before the task of the first hold has ended.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_end_of_a_hold_ends_no_later_one_of_the_same_path() {
        let server = Embedded::in_memory().await.unwrap();
        let config = Config::new(&server.connect_string()).unwrap();
        let client = Client::connect(config).await.unwrap();
        let guard = Lock::new(&client, "/a").unwrap().acquire().await.unwrap();
        let (holds, caller) = (HoldTable::default(), Caller::process(1, None));
        let renew = |token| {
            let command = HoldCommand::Renew(Duration::from_secs(1));
            holds.ask(&caller, "/a", token, command)
        };
        let _first = holds.add(&caller, "/a", 1, guard.status());
        let mut second = holds.add(&caller, "/a", 2, guard.status());
        holds.remove(&caller, "/a", 1);
        assert_eq!(holds.count(), 1);
        assert!(renew(1).is_err() && renew(2).is_ok());
        assert!(matches!(second.try_recv(), Ok(HoldCommand::Renew(_))));
        holds.remove(&caller, "/a", 2);
        assert_eq!(holds.count(), 0);
    }
}

//! The life of what is held for a caller, from the grant to its end: events of its lease, the end
//! of its caller, release, guarded writes. Owns the table of guards by id. Shows a caller no
//! guard of another owner.

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use baton::guard::{GuardStatus, ReleaseError, TxnError};
use baton::tree::CreateMode;
use baton::{Guard, Leadership, LostReason};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::body::OpenBody;
use crate::caller::{Caller, Owner};
use crate::error::{ApiError, Code};
use crate::events::{CallerGone, Events};
use crate::lease::{self, Lease};

/// Guards of one user at a time.
const MAX_OF_USER: usize = 10_000;
/// The longest that a release is waited for.
const RELEASE_LIMIT: Duration = Duration::from_secs(10);

/// Lock or term that is held for a caller.
#[derive(Debug)]
pub(crate) enum Holding {
    Lock(Guard),
    Term(Leadership),
}

impl Holding {
    fn guard(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Term(leadership) => leadership,
        }
    }

    async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().confirmed().await,
            Self::Term(leadership) => leadership.resign().await,
        }
    }

    /// Gives it away for a caller that has died: a lock delay of the next holder applies.
    fn abandon(self) {
        match self {
            Self::Lock(guard) => drop(guard.abandon()),
            Self::Term(leadership) => drop(leadership),
        }
    }
}

/// One part of a guarded write.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "op", rename_all = "snake_case")]
pub(crate) enum Write {
    Set {
        path: String,
        #[serde(default)]
        data: String,
        data_base64: Option<String>,
        version: Option<i32>,
    },
    Create {
        path: String,
        #[serde(default)]
        data: String,
        data_base64: Option<String>,
    },
    Delete {
        path: String,
        version: Option<i32>,
    },
    Check {
        path: String,
        version: Option<i32>,
    },
}

/// Reads data that is given as text, or in base64 where it is not text.
pub(crate) fn data_of(text: &str, base64: Option<&str>) -> Result<Vec<u8>, ApiError> {
    match base64 {
        None => Ok(text.as_bytes().to_vec()),
        Some(encoded) => STANDARD.decode(encoded).map_err(|error| {
            let next = "encode the bytes in standard base64, or send text in data";
            ApiError::refused("data_base64", error.to_string(), next)
        }),
    }
}

/// Command of a caller about its guard. Small, because a channel has room for 32 of them.
enum Command {
    Release,
    Txn(Box<GuardedWrite>),
}

/// Writes, and where to answer.
type GuardedWrite = (Vec<Write>, oneshot::Sender<Result<(), ApiError>>);

/// Stage of a guard between its grant and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Held,
    Releasing,
    Released,
    Lost(LostReason),
    Failed,
}

#[derive(Debug)]
struct Entry {
    path: String,
    status: GuardStatus,
    commands: mpsc::Sender<Command>,
    stage: watch::Receiver<Stage>,
}

/// Wait for what happens to a guard without its caller: a request to release it, or its end.
type Change = Pin<Box<dyn Future<Output = Result<(), LostReason>> + Send>>;

/// Everything that is held for callers, by owner and id.
#[derive(Debug, Default)]
pub(crate) struct HeldTable {
    owners: Mutex<HashMap<Owner, HashMap<String, Entry>>>,
}

/// An event of something held.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum HeldEvent<'a> {
    Held {
        guard: &'a str,
        path: &'a str,
        token: u64,
        #[serde(flatten)]
        lease: Lease<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        term: Option<u64>,
    },
    Lease(Lease<'a>),
    ReleaseRequested {},
    Lost {
        reason: LostReason,
        next_step: &'static str,
    },
    Released {},
    Unknown {
        next_step: &'static str,
    },
}

const NEXT_AFTER_LOSS: &str = "stop what the lock protects, then acquire it again";
const NEXT_AFTER_UNKNOWN: &str = "the release is repeated until a server confirms it or the session ends; ask again to wait for that";

impl HeldTable {
    /// Number of guards.
    pub(crate) fn count(&self) -> usize {
        self.owners.lock().values().map(HashMap::len).sum()
    }

    fn add(&self, owner: Owner, id: &str, entry: Entry) -> Result<(), ApiError> {
        let mut owners = self.owners.lock();
        let entries = owners.entry(owner).or_default();
        if entries.len() >= MAX_OF_USER {
            let cause = format!("this user holds {MAX_OF_USER} guards, which is the limit");
            return Err(
                ApiError::refused(&entry.path, cause, "release some of them")
                    .with_status(axum::http::StatusCode::TOO_MANY_REQUESTS),
            );
        }
        entries.insert(id.to_owned(), entry);
        Ok(())
    }

    /// Returns what `find` takes from a guard of this caller.
    fn of<T>(
        &self,
        caller: &Caller,
        id: &str,
        find: impl FnOnce(&Entry) -> T,
    ) -> Result<T, ApiError> {
        let owners = self.owners.lock();
        let entry = owners.get(&caller.owner()).and_then(|it| it.get(id));
        entry.map(find).ok_or_else(|| {
            let cause = "unknown to this agent: it was released or lost, or is another user's";
            ApiError::refused(format!("guard {id}"), cause, "acquire the lock again")
                .with_status(axum::http::StatusCode::NOT_FOUND)
        })
    }

    /// Releases a guard, and waits until a server has confirmed it.
    pub(crate) async fn release(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<HeldEvent<'static>, ApiError> {
        let (commands, mut stage) =
            self.of(caller, id, |it| (it.commands.clone(), it.stage.clone()))?;
        // Full or closed: it is being released already, or has ended.
        let _ = commands.try_send(Command::Release);
        let ended = stage.wait_for(|stage| !matches!(stage, Stage::Held | Stage::Releasing));
        let ended = tokio::time::timeout(RELEASE_LIMIT, ended).await;
        Ok(match ended.map(|stage| stage.map(|stage| *stage)) {
            Ok(Ok(Stage::Released)) => HeldEvent::Released {},
            Ok(Ok(Stage::Lost(reason))) => HeldEvent::Lost {
                reason,
                next_step: NEXT_AFTER_LOSS,
            },
            _ => HeldEvent::Unknown {
                next_step: NEXT_AFTER_UNKNOWN,
            },
        })
    }

    /// The milliseconds left of a guard's lease, for a caller that counts from its own request.
    pub(crate) fn renew(&self, caller: &Caller, id: &str) -> Result<u64, ApiError> {
        let (status, path) = self.of(caller, id, |it| (it.status.clone(), it.path.clone()))?;
        if let Err(reason) = status.check() {
            return Err(ApiError::new(
                Code::Lost,
                path,
                reason.to_string(),
                NEXT_AFTER_LOSS,
            ));
        }
        Ok(u64::try_from(status.remaining().as_millis()).unwrap_or(u64::MAX))
    }

    /// Applies a guarded write.
    pub(crate) async fn txn(
        &self,
        caller: &Caller,
        id: &str,
        writes: Vec<Write>,
    ) -> Result<(), ApiError> {
        let commands = self.of(caller, id, |it| it.commands.clone())?;
        let lost = || {
            let cause = "it ended before the write was sent; nothing was applied";
            ApiError::new(Code::Lost, format!("guard {id}"), cause, NEXT_AFTER_LOSS)
        };
        let (sender, answer) = oneshot::channel();
        let sent = commands
            .send(Command::Txn(Box::new((writes, sender))))
            .await;
        sent.map_err(|_| lost())?;
        answer.await.map_err(|_| lost())?
    }
}

/// Holds `holding` for its owner until it is released or lost or the caller goes, with an event for
/// each step.
pub(crate) async fn hold(
    table: &HeldTable,
    owner: Owner,
    boot_id: &str,
    path: &str,
    holding: Holding,
    (mut hold, events): (OpenBody, Events),
) {
    let id = match random_id() {
        Ok(id) => id,
        Err(error) => return events.refuse(error),
    };
    let (commands, mut inbox) = mpsc::channel(8);
    let (stage, stage_of_entry) = watch::channel(Stage::Held);
    let token = holding.guard().token();
    let entry = Entry {
        path: path.to_owned(),
        status: holding.guard().status(),
        commands,
        stage: stage_of_entry,
    };
    if let Err(error) = table.add(owner.clone(), &id, entry) {
        return events.refuse(error);
    }
    let _entry = EntryGuard {
        table,
        owner,
        id: &id,
    };
    let term = match &holding {
        Holding::Lock(_) => None,
        Holding::Term(leadership) => Some(leadership.term().epoch),
    };
    let lease = Lease::of(boot_id, || holding.guard().remaining());
    let held = HeldEvent::Held {
        guard: &id,
        path,
        token,
        lease,
        term,
    };
    if events.send(&held).is_err() {
        return holding.abandon();
    }
    // A request to release, or its end.
    let mut change: Change = Box::pin(holding.guard().on_revoke());
    // Not begun again by what happens meanwhile: the caller writes as often as it likes.
    let mut pause = std::pin::pin!(lease::pause(holding.guard().remaining()));
    loop {
        tokio::select! {
            biased;
            changed = &mut change => match changed {
                Ok(()) => {
                    if events.send(&HeldEvent::ReleaseRequested {}).is_err() {
                        return holding.abandon();
                    }
                    let lost = holding.guard().lost();
                    change = Box::pin(async { Err(lost.await) });
                }
                Err(reason) => {
                    stage.send_replace(Stage::Lost(reason));
                    let next_step = NEXT_AFTER_LOSS;
                    // The caller may have gone.
                    let _ = events.send(&HeldEvent::Lost { reason, next_step });
                    return;
                }
            },
            () = events.gone() => return holding.abandon(),
            ended = hold.ended() => match ended {
                Ok(()) => break,
                Err(CallerGone) => return holding.abandon(),
            },
            command = inbox.recv() => match command {
                Some(Command::Txn(write)) => {
                    let (writes, answer) = *write;
                    // Boxed, as the release is: what is held is small.
                    let applied = Box::pin(apply(holding.guard(), writes)).await;
                    // The asker may have gone.
                    let _ = answer.send(applied);
                }
                Some(Command::Release) | None => break,
            },
            () = &mut pause => {
                let lease = Lease::of(boot_id, || holding.guard().remaining());
                if events.send(&HeldEvent::Lease(lease)).is_err() {
                    return holding.abandon();
                }
                pause.set(lease::pause(holding.guard().remaining()));
            }
        }
    }
    stage.send_replace(Stage::Releasing);
    let mut releasing = Box::pin(holding.release());
    let in_time = tokio::time::timeout(RELEASE_LIMIT, &mut releasing).await;
    let Ok(released) = in_time else {
        let next_step = NEXT_AFTER_UNKNOWN;
        // The caller may have gone.
        let _ = events.send(&HeldEvent::Unknown { next_step });
        // Its response ends; who asks for the guard again waits on.
        drop(events);
        stage.send_replace(outcome(releasing.await).0);
        return;
    };
    let (now, event) = outcome(released);
    stage.send_replace(now);
    // The caller may have gone.
    let _ = events.send(&event);
}

/// Returns how a release has ended.
fn outcome(released: Result<(), ReleaseError>) -> (Stage, HeldEvent<'static>) {
    match released {
        Ok(()) | Err(ReleaseError::SessionEnded { .. }) => {
            (Stage::Released, HeldEvent::Released {})
        }
        Err(ReleaseError::Lost { reason, .. }) => (
            Stage::Lost(reason),
            HeldEvent::Lost {
                reason,
                next_step: NEXT_AFTER_LOSS,
            },
        ),
        Err(_) => (
            Stage::Failed,
            HeldEvent::Unknown {
                next_step: NEXT_AFTER_UNKNOWN,
            },
        ),
    }
}

/// Takes an entry out of the table at its end.
struct EntryGuard<'a> {
    table: &'a HeldTable,
    owner: Owner,
    id: &'a str,
}

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        let mut owners = self.table.owners.lock();
        if let Some(entries) = owners.get_mut(&self.owner) {
            entries.remove(self.id);
            if entries.is_empty() {
                owners.remove(&self.owner);
            }
        }
    }
}

async fn apply(guard: &Guard, writes: Vec<Write>) -> Result<(), ApiError> {
    let mut txn = guard.txn();
    for write in &writes {
        txn = match write {
            Write::Set {
                path,
                data,
                data_base64,
                version,
            } => txn.set(path, &data_of(data, data_base64.as_deref())?, *version),
            Write::Create {
                path,
                data,
                data_base64,
            } => {
                let data = data_of(data, data_base64.as_deref())?;
                txn.create(path, &data, CreateMode::Persistent)
            }
            Write::Delete { path, version } => txn.delete(path, *version),
            Write::Check { path, version } => txn.check(path, *version),
        };
    }
    match txn.commit().await {
        Ok(_) => Ok(()),
        Err(error) => {
            let (code, next) = match &error {
                TxnError::Lost { .. } => (Code::Lost, NEXT_AFTER_LOSS),
                TxnError::Unknown { .. } => (Code::Unknown, "read one of its nodes to find out"),
                _ => (Code::Refused, "read the nodes again and decide again"),
            };
            let cause = crate::error::one_line(&error.to_string());
            Err(ApiError::new(code, "the guarded write", cause, next))
        }
    }
}

/// An id that nobody can guess.
pub(crate) fn random_id() -> Result<String, ApiError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let next = "check that the system has a source of random numbers";
        ApiError::new(Code::Unavailable, "the agent", error.to_string(), next)
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

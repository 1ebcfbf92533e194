//! What the handles of one work queue in one process share.
//!
//! Owns the queue's own node and its form, and the answer to "may this be tried again". Must never
//! write below a node that is no work queue.

use super::error::WorkError;
use super::held_item::Held;
use super::layout::Layout;
use super::scan::Found;
use crate::parents::{Parents, ensure_parents};
use crate::receipt::{Outcome, Receipts, task_gone};
use crate::retry;
use crate::server_clock::ServerClock;
use baton_client::{BootInstant, Client, CreateMode, Error, LeaseHold, Op, Session};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The form of the tree below the queue's node.
const FORM: u32 = 1;

/// What the queue's own node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Terms {
    work_queue: u32,
    pub capacity: Option<u64>,
}

impl Terms {
    pub(super) fn new(capacity: Option<u64>) -> Self {
        Self {
            work_queue: FORM,
            capacity,
        }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        // Numbers always have a JSON form.
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

/// The terms, and the version of the node that they were read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed {
    pub terms: Terms,
    pub version: i32,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub client: Client,
    pub layout: Layout,
    pub receipts: Arc<Receipts>,
    pub clock: ServerClock,
    /// Whose turn it is to claim for all who wait in this process.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether who has the turn has found nothing and waits for news, which may take for ever.
    pub idling: tokio::sync::watch::Sender<bool>,
    /// Told when items were claimed by one who did not wait for the turn.
    pub handed: tokio::sync::Notify,
    pub waiting: AtomicUsize,
    /// The count of a bounded queue as this process wrote it last; also makes its puts go one by
    /// one.
    pub gate: Arc<tokio::sync::Mutex<Option<super::capacity::Count>>>,
    state: Mutex<Local>,
}

/// What this process knows of the queue.
#[derive(Debug, Default)]
pub(super) struct Local {
    pub agreed: Option<Agreed>,
    /// Kept from the first claim on, so that the lease runs when the next one comes.
    pub lease: Option<(i64, LeaseHold)>,
    /// Where to put items of each priority, and how many may go there before it is asked again.
    pub lanes: HashMap<u16, (String, usize)>,
    /// Items read ahead, and when.
    pub ahead: VecDeque<Found>,
    pub ahead_since: Option<BootInstant>,
    /// The version of the queue's own node before they were read.
    pub ahead_terms: i32,
    /// Among how many of the first items to choose: more when others are quicker.
    pub spread: usize,
    /// Claimed ahead, or claimed for callers that had gone by then.
    pub claimed: VecDeque<Held>,
    /// Items that are too large to be claimed or moved, and the version that they had then.
    pub passed_over: HashMap<String, i32>,
}

/// Why a step did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The client's word; it may pass.
    Client(Error),
    /// The folder of items is not there.
    Missing,
    /// It stays.
    Final(WorkError),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<WorkError> for Fault {
    fn from(error: WorkError) -> Self {
        Self::Final(error)
    }
}

impl Inner {
    pub(super) fn new(client: &Client, path: &str) -> Self {
        Self {
            client: client.clone(),
            layout: Layout::new(path),
            receipts: Arc::default(),
            clock: ServerClock::default(),
            turn: Arc::default(),
            idling: tokio::sync::watch::Sender::new(false),
            handed: tokio::sync::Notify::new(),
            waiting: AtomicUsize::new(0),
            gate: Arc::default(),
            state: Mutex::default(),
        }
    }

    pub(super) fn path(&self) -> String {
        self.layout.root.to_string()
    }

    pub(super) fn local(&self) -> MutexGuard<'_, Local> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn session(&self) -> Result<Session, WorkError> {
        self.client
            .session()
            .await
            .map_err(|source| WorkError::Connect {
                path: self.path(),
                source,
            })
    }

    pub(super) async fn now_ms(&self, session: &Session) -> Result<i64, Error> {
        self.clock.now_ms(session, &self.layout.clock).await
    }

    /// Returns once what failed may be tried again, on this session or the next; else says why it
    /// cannot.
    pub(super) async fn after(&self, session: &Session, fault: Fault) -> Result<(), WorkError> {
        let error = match fault {
            Fault::Final(error) => return Err(error),
            Fault::Missing => match self.mend(session).await {
                // Whole by now, or made again.
                Ok(_) => return Ok(()),
                Err(Fault::Client(error)) => error,
                Err(Fault::Final(error)) => return Err(error),
                Err(Fault::Missing) => return Ok(()),
            },
            Fault::Client(error) if error.is_no_node() => match self.mend(session).await {
                Ok(true) => return Ok(()),
                Ok(false) => error,
                Err(Fault::Client(error)) => error,
                Err(Fault::Final(error)) => return Err(error),
                Err(Fault::Missing) => return Ok(()),
            },
            Fault::Client(error) => error,
        };
        if session.state().is_final() || error.is_session_ended() {
            return Ok(());
        }
        match retry::until_retryable(session, error).await {
            Ok(()) => Ok(()),
            Err(_) if session.state().is_final() => Ok(()),
            Err(source) => Err(WorkError::Client {
                path: self.path(),
                source,
            }),
        }
    }

    /// Applies a change, in a task of its own, which goes on if the caller goes away.
    pub(super) async fn apply(&self, session: &Session, parts: Vec<Op>) -> Outcome {
        self.receipts.apply(session, &self.layout.root, parts).await
    }

    /// The terms of the queue, which is made if it does not exist. `asked` is the capacity that the
    /// caller insists on.
    pub(super) async fn agreed(
        &self,
        session: &Session,
        asked: Option<u64>,
    ) -> Result<Agreed, Fault> {
        let known = self.local().agreed;
        let agreed = match known {
            Some(agreed) => agreed,
            None => self.read_or_make(session, asked).await?,
        };
        if asked.is_some() && asked != agreed.terms.capacity {
            return Err(WorkError::CapacityDiffers {
                path: self.path(),
                agreed: agreed.terms.capacity,
                asked,
            }
            .into());
        }
        self.local().agreed = Some(agreed);
        Ok(agreed)
    }

    /// The terms as they are in the tree, or `None` where there is no queue.
    pub(super) async fn read_terms(&self, session: &Session) -> Result<Option<Agreed>, Fault> {
        let read = match session.get_data(&self.layout.root).await {
            Ok(read) => read,
            Err(error) if error.is_no_node() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let version = read.stat.version;
        match serde_json::from_slice::<Terms>(&read.data) {
            Ok(terms) if terms.work_queue == FORM => Ok(Some(Agreed { terms, version })),
            _ if read.data.is_empty() && self.is_bare(session, &read.stat).await? => Ok(None),
            _ => Err(WorkError::NotAWorkQueue {
                path: self.path(),
                found: if read.data.is_empty() {
                    format!(
                        "its children are no work queue's, {} of them",
                        read.stat.num_children
                    )
                } else {
                    let shown = read.data.get(..60).unwrap_or(&read.data);
                    format!("it says {:?}", String::from_utf8_lossy(shown))
                },
            }
            .into()),
        }
    }

    /// Whether a node without data has nothing below it but what consumers make when they wait at a
    /// queue that was deleted.
    async fn is_bare(&self, session: &Session, stat: &baton_proto::Stat) -> Result<bool, Error> {
        let layout = &self.layout;
        let helpers = [&layout.waiters, &layout.verdicts, &layout.clock];
        let at_most = |count: i32| usize::try_from(count).is_ok_and(|n| n <= helpers.len());
        if stat.num_children == 0 || !at_most(stat.num_children) {
            return Ok(stat.num_children == 0);
        }
        match session.children(&layout.root).await {
            Ok(children) => Ok(children.names.iter().all(|name| {
                let path = baton_proto::path::join(&layout.root, name);
                helpers.contains(&&path)
            })),
            Err(error) if error.is_no_node() => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn read_or_make(&self, session: &Session, asked: Option<u64>) -> Result<Agreed, Fault> {
        let layout = &self.layout;
        loop {
            // Before its data, so that data which came in between is not overwritten.
            let bare = session.exists(&layout.root);
            if let Some(agreed) = self.read_terms(session).await? {
                return Ok(agreed);
            }
            let above = baton_proto::path::parent(&layout.root);
            if above != "/" {
                ensure_parents(session, above, Parents::Persistent).await?;
            }
            let bare = bare.await?;
            let make = |path: &str, data: Vec<u8>| Op::create(path, data, CreateMode::Persistent);
            let terms = Terms::new(asked).to_bytes();
            let folders = [&layout.items, &layout.dead, &layout.ids];
            let folders = || {
                folders
                    .iter()
                    .map(|path| make(path, Vec::new()))
                    .chain([make(&layout.gate, super::capacity::Count::empty())])
            };
            let anew: Vec<Op> = std::iter::once(make(&layout.root, terms.clone()))
                .chain(folders())
                .collect();
            // A node that somebody made beforehand, bare, is taken for the queue's.
            let adopt = |version| {
                std::iter::once(Op::set_data(&*layout.root, terms.clone(), Some(version)))
                    .chain(folders())
                    .collect()
            };
            let parts = bare.map_or(anew, |stat| adopt(stat.version));
            match session.multi(&parts).await {
                Ok(_) => {}
                // Nobody can make a queue below a root of the connection's paths that does not
                // exist.
                Err(error) if error.is_no_node() && bare.is_none() && above == "/" => {
                    return Err(error.into());
                }
                // Made by somebody else, or by us without our knowing: what is there now decides,
                // in the next round.
                Err(error)
                    if error.is_node_exists()
                        || error.is_no_node()
                        || error.is_bad_version()
                        || error.is_maybe_applied() => {}
                Err(error) => return Err(error.into()),
            }
            if !retry::until_connected(session).await {
                return Err(Fault::Client(task_gone(&layout.root)));
            }
        }
    }

    /// Keeps the lease of this session renewed from now on.
    pub(super) async fn hold_lease(&self, session: &Session) -> Result<LeaseHold, Fault> {
        if let Some((id, hold)) = &self.local().lease
            && *id == session.id()
        {
            return Ok(hold.clone());
        }
        match session.hold_lease().await {
            Ok(hold) => {
                self.local().lease = Some((session.id(), hold.clone()));
                Ok(hold)
            }
            Err(baton_client::LeaseError::SessionEnded(_)) => {
                Err(Fault::Client(task_gone(&self.layout.root)))
            }
            Err(source) => Err(WorkError::Lease {
                path: self.path(),
                source,
            }
            .into()),
        }
    }
}

/// Whether a part of a refused multi, counted from behind the receipt, is the culprit.
pub(super) fn culprit(error: &Error) -> Option<usize> {
    error.multi_index()?.checked_sub(1)
}

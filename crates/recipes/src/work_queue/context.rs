//! State that the clones of one work queue handle share.
//!
//! Owns the queue's own node and its form, and what this process knows of the queue. Must never
//! write below a node that is not a work queue.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_client::{Client, CreateMode, Error, LeaseHold, Op, Session};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::capacity_counter::CapacityCounter;
use super::error::{StepError, WorkError};
use super::held_item::HeldItem;
use super::layout::Layout;
use super::read_ahead::{ClaimableItem, ReadAhead};
use crate::parents::{ParentKind, ensure_parents};
use crate::receipt::{Outcome, Receipts, task_gone};
use crate::retry;
use crate::server_clock::ServerClock;

/// Number of items that are too large to be claimed or moved and are remembered; with more of them,
/// all are tried again.
const MAX_PASSED_OVER: usize = 1024;

/// The form of the tree below the queue's node.
const FORM: u32 = 1;

/// Content of the queue's own node.
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

    /// Reads the data of a queue's own node; `None` for data of another form.
    pub(super) fn from_bytes(data: &[u8]) -> Option<Self> {
        let terms: Self = serde_json::from_slice(data).ok()?;
        (terms.work_queue == FORM).then_some(terms)
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        // Numbers always have a JSON form.
        serde_json::to_vec(&self).unwrap_or_default()
    }
}

/// The terms, with the version of the queue's own node that they were read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgreedTerms {
    pub terms: Terms,
    pub version: i32,
}

/// State that the clones of one handle share.
#[derive(Debug)]
pub(super) struct QueueContext {
    pub client: Client,
    pub layout: Layout,
    pub receipts: Arc<Receipts>,
    pub clock: ServerClock,
    /// Held by the one task that claims items for all that wait in this process.
    pub turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether the task that has the turn has found no item and waits for one, maybe for ever.
    pub idling: tokio::sync::watch::Sender<bool>,
    /// Notified when a task without the turn has claimed items.
    pub claimed_without_turn: tokio::sync::Notify,
    /// Number of items that the callers of this process wait for.
    pub waiting: AtomicUsize,
    /// The capacity counter of a bounded queue as this process wrote it last. The lock makes the
    /// puts of this process go one after the other.
    pub counter: Arc<tokio::sync::Mutex<Option<CapacityCounter>>>,
    /// The options of this handle that cannot be, with the refusal of each.
    pub bad_options: BTreeMap<&'static str, WorkError>,
    known: Mutex<KnownQueue>,
}

/// Knowledge of this process about the queue.
#[derive(Debug, Default)]
pub(super) struct KnownQueue {
    pub agreed: Option<AgreedTerms>,
    /// The session's id and its lease. Kept from the first claim on, so that the lease is valid
    /// when the next claim comes.
    pub lease: Option<(i64, LeaseHold)>,
    /// The shard for new items of each priority, and how many may go there before its size is
    /// read again.
    pub shards: HashMap<u16, (String, usize)>,
    pub read_ahead: ReadAhead,
    /// Items that were claimed ahead, or for callers that had been cancelled by then.
    pub claimed: VecDeque<HeldItem>,
    /// Paths of items that are too large to be claimed or moved, and the version that they had.
    pub passed_over: HashMap<String, i32>,
}

impl QueueContext {
    pub(super) fn new(client: &Client, path: &str) -> Self {
        Self {
            client: client.clone(),
            layout: Layout::new(path),
            receipts: Arc::default(),
            clock: ServerClock::default(),
            turn: Arc::default(),
            idling: tokio::sync::watch::Sender::new(false),
            claimed_without_turn: tokio::sync::Notify::new(),
            waiting: AtomicUsize::new(0),
            counter: Arc::default(),
            bad_options: BTreeMap::new(),
            known: Mutex::default(),
        }
    }

    /// The context of a handle with these options that cannot be.
    pub(super) fn with_bad_options(self, bad_options: BTreeMap<&'static str, WorkError>) -> Self {
        Self {
            bad_options,
            ..self
        }
    }

    /// The refusal of an option or an argument.
    pub(super) fn bad_option(
        &self,
        option: &'static str,
        value: impl fmt::Debug,
        why: &'static str,
    ) -> WorkError {
        WorkError::BadOption {
            path: self.path(),
            option,
            value: format!("{value:?}"),
            why,
        }
    }

    pub(super) fn path(&self) -> String {
        self.layout.root.to_string()
    }

    pub(super) fn known(&self) -> MutexGuard<'_, KnownQueue> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime for tasks that go on if their caller is cancelled.
    pub(super) fn runtime(&self) -> Result<Handle, WorkError> {
        self.client
            .runtime()
            .map_err(|source| WorkError::connect(&self.path(), source))
    }

    pub(super) async fn session(&self) -> Result<Session, WorkError> {
        if let Some(refusal) = self.bad_options.values().next() {
            return Err(refusal.clone());
        }
        self.client
            .session()
            .await
            .map_err(|source| WorkError::connect(&self.path(), source))
    }

    pub(super) async fn now_ms(&self, session: &Session) -> Result<i64, Error> {
        self.clock.now_ms(session, &self.layout.clock).await
    }

    /// Remembers an item that is too large for the request that would claim or move it, so that it
    /// blocks no other item.
    pub(super) fn pass_over(&self, found: &ClaimableItem) {
        tracing::warn!(
            item = found.entry,
            "too large to be claimed or moved: passed over, left in place"
        );
        let mut known = self.known();
        if known.passed_over.len() >= MAX_PASSED_OVER {
            known.passed_over.clear();
        }
        known.passed_over.insert(found.entry.clone(), found.version);
    }

    /// Applies a change in a task of its own, which goes on if the caller is cancelled.
    pub(super) async fn apply(&self, session: &Session, parts: Vec<Op>) -> Outcome {
        self.receipts.apply(session, &self.layout.root, parts).await
    }

    /// The terms of the queue, which is made if it does not exist.
    ///
    /// # Errors
    /// [`WorkError::CapacityDiffers`] where the caller asks for a capacity that is not the agreed
    /// one.
    pub(super) async fn agreed(
        &self,
        session: &Session,
        asked: Option<u64>,
    ) -> Result<AgreedTerms, StepError> {
        let known = self.known().agreed;
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
        self.known().agreed = Some(agreed);
        Ok(agreed)
    }

    /// Reads the terms from the tree; `None` where there is no queue.
    pub(super) async fn read_terms(
        &self,
        session: &Session,
    ) -> Result<Option<AgreedTerms>, StepError> {
        let read = match session.get_data(&self.layout.root).await {
            Ok(read) => read,
            Err(error) if error.is_no_node() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let version = read.stat.version;
        if let Some(terms) = Terms::from_bytes(&read.data) {
            return Ok(Some(AgreedTerms { terms, version }));
        }
        let found = if read.data.is_empty() {
            let Some(child) = self.other_child(session, &read.stat).await? else {
                return Ok(None);
            };
            let count = read.stat.num_children;
            format!("of its children, {count} in all, {child} is no work queue's")
        } else {
            let shown = read.data.get(..60).unwrap_or(&read.data);
            format!("it says {:?}", String::from_utf8_lossy(shown))
        };
        let path = self.path();
        Err(WorkError::NotAWorkQueue { path, found }.into())
    }

    /// The name of a child of a node without data that is not what consumers make when they wait at
    /// a queue that was deleted.
    async fn other_child(
        &self,
        session: &Session,
        stat: &baton_proto::Stat,
    ) -> Result<Option<String>, Error> {
        if stat.num_children == 0 {
            return Ok(None);
        }
        let layout = &self.layout;
        let helpers = [&layout.waiters, &layout.notices, &layout.clock];
        let is_other = |name: &String| {
            let path = baton_proto::path::join(&layout.root, name);
            !helpers.contains(&&path)
        };
        match session.children(&layout.root).await {
            Ok(children) => Ok(children.names.into_iter().filter(is_other).min()),
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn read_or_make(
        &self,
        session: &Session,
        asked: Option<u64>,
    ) -> Result<AgreedTerms, StepError> {
        let layout = &self.layout;
        loop {
            // Read before the data: data written in between raises the version, and is not
            // overwritten.
            let bare = session.exists(&layout.root);
            if let Some(agreed) = self.read_terms(session).await? {
                return Ok(agreed);
            }
            let above = baton_proto::path::parent(&layout.root);
            if above != "/" {
                ensure_parents(session, above, ParentKind::Persistent).await?;
            }
            let bare = bare.await?;
            let make = |path: &str, data: Vec<u8>| Op::create(path, data, CreateMode::Persistent);
            let terms = Terms::new(asked).to_bytes();
            let folders = [&layout.items, &layout.dead, &layout.ids];
            let folders = || {
                folders
                    .iter()
                    .map(|path| make(path, Vec::new()))
                    .chain([make(&layout.counter, CapacityCounter::empty())])
            };
            let create: Vec<Op> = std::iter::once(make(&layout.root, terms.clone()))
                .chain(folders())
                .collect();
            // An empty node that somebody made beforehand becomes the queue's own.
            let adopt = |version| {
                std::iter::once(Op::set_data(&*layout.root, terms.clone(), Some(version)))
                    .chain(folders())
                    .collect()
            };
            let parts = bare.map_or(create, |stat| adopt(stat.version));
            match session.multi(&parts).await {
                Ok(_) => {}
                // Nobody can make a queue below a root of the connection's paths that does not
                // exist.
                Err(error) if error.is_no_node() && bare.is_none() && above == "/" => {
                    return Err(error.into());
                }
                // Made by another process, or by this one with an unknown outcome: the next round
                // reads what is there.
                Err(error)
                    if error.is_node_exists()
                        || error.is_no_node()
                        || error.is_bad_version()
                        || error.is_maybe_applied() => {}
                Err(error) => return Err(error.into()),
            }
            if !retry::until_connected(session).await {
                return Err(StepError::Client(task_gone(&layout.root)));
            }
        }
    }

    /// Keeps the lease of this session renewed from now on.
    pub(super) async fn hold_lease(&self, session: &Session) -> Result<LeaseHold, StepError> {
        if let Some((id, hold)) = &self.known().lease
            && *id == session.id()
        {
            return Ok(hold.clone());
        }
        match session.hold_lease().await {
            Ok(hold) => {
                self.known().lease = Some((session.id(), hold.clone()));
                Ok(hold)
            }
            Err(baton_client::LeaseError::SessionEnded(_)) => {
                Err(StepError::Client(task_gone(&self.layout.root)))
            }
            Err(source) => Err(WorkError::lease(&self.path(), source).into()),
        }
    }
}

/// Index of the part that made the server refuse a change; the receipt, which is the first part, is
/// not counted.
pub(super) fn refused_part(error: &Error) -> Option<usize> {
    error.multi_index()?.checked_sub(1)
}

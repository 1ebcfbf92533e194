//! A FIFO queue of items, each delivered at most once.
//!
//! Owns the `qn-` layout of zookeeper-recipes' `DistributedQueue`, which Curator's `SimpleDistributedQueue` shares. Must never
//! offer an item twice because an answer was lost (H66), nor drop one that it has deleted (H65).

mod error;
mod receipt;

pub use error::QueueError;

use crate::dialect;
use crate::line::{Parents, ensure_parents};
use crate::link;
use crate::order::{self, Rival};
use baton_client::{Client, CreateMode, EndReason, Error, Op, OpCode, Reason, Session};
use bytes::Bytes;
use receipt::{Outcome, Receipts};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// A queue at a path of the tree: first in, first out, each item taken by one consumer.
///
/// An item is delivered at most once: it leaves the tree when it is taken, so a consumer that crashes with it loses it. Cheap
/// to clone; clones share what a cancelled [`DistributedQueue::take`] brought back.
///
/// The queue's directory is made as a persistent node, and so that the outcome of a change whose answer was lost can be
/// found out, `<path>-__receipts__` beside it holds a small ephemeral node per concurrent operation.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let queue = baton::DistributedQueue::new(&client, "/jobs")?;
/// queue.offer(b"build 17").await?;
/// let item = queue.take().await?;
/// assert_eq!(item, "build 17");
/// assert_eq!(queue.poll().await?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DistributedQueue {
    client: Client,
    path: Arc<str>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    receipts: Receipts,
    local: Mutex<Local>,
    returned: Notify,
}

/// What this process knows of the queue.
#[derive(Debug, Default)]
struct Local {
    /// Items taken from the tree for callers that had gone by then.
    returned: VecDeque<Bytes>,
    /// The head of the queue as last listed. Later items come behind these, whoever offers them.
    heads: VecDeque<String>,
}

impl Shared {
    fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bring_back(&self, item: Bytes) {
        self.local().returned.push_back(item);
        self.returned.notify_one();
    }
}

impl DistributedQueue {
    /// A queue at `path`. Nothing is sent.
    ///
    /// # Errors
    /// [`QueueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, QueueError> {
        let bad = |why: String| QueueError::BadPath {
            path: path.to_owned(),
            why,
        };
        baton_proto::path::validate(path).map_err(|error| bad(error.to_string()))?;
        if path == "/" {
            return Err(bad(
                "the root cannot be a queue; name a node below it".to_owned()
            ));
        }
        Ok(Self {
            client: client.clone(),
            path: Arc::from(path),
            shared: Arc::default(),
        })
    }

    /// The queue's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Puts an item at the end. When this returns `Ok`, the item is in the queue, once.
    ///
    /// Dropping the future does not take back an offer that is under way.
    ///
    /// # Errors
    /// [`QueueError::OfferUnknown`] where the session ended before the outcome was known; else nothing was offered.
    pub async fn offer(&self, item: &[u8]) -> Result<(), QueueError> {
        let name = baton_proto::path::join(&self.path, "qn-");
        loop {
            let session = self.session().await?;
            let parts = vec![Op::create(
                &name,
                Bytes::copy_from_slice(item),
                CreateMode::PersistentSequential,
            )];
            match self.apply(&session, parts).await {
                Outcome::Applied => return Ok(()),
                Outcome::NotApplied => {}
                Outcome::Refused(error) if error.is_no_node() => {
                    self.after(
                        &session,
                        ensure_parents(&session, &self.path, Parents::Persistent).await,
                    )
                    .await?;
                }
                Outcome::Refused(error) => return Err(self.client_error(error)),
                Outcome::Failed(error) => {
                    self.after(&session, Err::<(), _>(error)).await?;
                }
                Outcome::Unknown(source) => {
                    return Err(QueueError::OfferUnknown {
                        path: self.path.to_string(),
                        source,
                    });
                }
            }
        }
    }

    /// The item at the head, left where it is; `None` if the queue is empty.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn peek(&self) -> Result<Option<Bytes>, QueueError> {
        loop {
            if let Some(item) = self.shared.local().returned.front() {
                return Ok(Some(item.clone()));
            }
            let session = self.session().await?;
            let names = match self.list(&session).await {
                Ok(names) if names.is_empty() => return Ok(None),
                listed => match self.after(&session, listed).await? {
                    Some(names) => names,
                    None => continue,
                },
            };
            for name in names {
                let node = baton_proto::path::join(&self.path, &name);
                match session.get_data(&node).await {
                    Ok(read) => return Ok(Some(read.data)),
                    // Taken by another: the next one is the head now.
                    Err(error) if error.is_no_node() => {}
                    Err(error) => {
                        self.after(&session, Err::<(), _>(error)).await?;
                        break;
                    }
                }
            }
        }
    }

    /// Takes the item at the head; `None` if the queue is empty.
    ///
    /// Cancel-safe: an item that was taken for a future dropped meanwhile is kept in this process and given to the next
    /// caller of this handle or a clone of it.
    ///
    /// # Errors
    /// [`QueueError::TakeUnknown`], with the item, where the session ended before the outcome was known; else nothing was
    /// taken.
    pub async fn poll(&self) -> Result<Option<Bytes>, QueueError> {
        loop {
            if let Some(item) = self.shared.local().returned.pop_front() {
                return Ok(Some(item));
            }
            let session = self.session().await?;
            let head = self.shared.local().heads.pop_front();
            let Some(name) = head else {
                let listed = self.list(&session).await;
                match self.after(&session, listed).await? {
                    Some(names) if names.is_empty() => return Ok(None),
                    Some(names) => self.shared.local().heads = names.into(),
                    None => {}
                }
                continue;
            };
            // Whatever ends this attempt early, the next one lists the queue anew, so that no item is passed over.
            let relist = Relist(&self.shared);
            let node = baton_proto::path::join(&self.path, &name);
            let (item, version) = match session.get_data(&node).await {
                Ok(read) => (read.data, read.stat.version),
                Err(error) if error.is_no_node() => {
                    relist.not_needed();
                    continue;
                }
                Err(error) => {
                    self.after(&session, Err::<(), _>(error)).await?;
                    continue;
                }
            };
            match self.claim(&session, node, item, version).await? {
                Claimed::Item(item) => {
                    relist.not_needed();
                    return Ok(Some(item));
                }
                Claimed::TakenByAnother => relist.not_needed(),
                Claimed::Again => {}
            }
        }
    }

    /// Takes the item at the head, and waits for one while the queue is empty. Cancel-safe as [`DistributedQueue::poll`].
    ///
    /// Everyone who waits is woken by each offer: the layout, made for other libraries too, allows no less.
    ///
    /// # Errors
    /// As [`DistributedQueue::poll`].
    pub async fn take(&self) -> Result<Bytes, QueueError> {
        loop {
            if let Some(item) = self.poll().await? {
                return Ok(item);
            }
            let session = self.session().await?;
            let (children, watch) = match session.children_watch(&self.path).await {
                Ok(read) => read,
                Err(error) if error.is_no_node() => {
                    self.after(
                        &session,
                        ensure_parents(&session, &self.path, Parents::Persistent).await,
                    )
                    .await?;
                    continue;
                }
                Err(error) => {
                    self.after(&session, Err::<(), _>(error)).await?;
                    continue;
                }
            };
            if children
                .names
                .iter()
                .any(|child| dialect::queue_number(child).is_some())
            {
                continue;
            }
            tokio::select! {
                // Changed, or the session lost: look again either way.
                _ = watch => {}
                () = self.shared.returned.notified() => {}
            }
        }
    }

    /// Like [`DistributedQueue::peek`], where an empty queue is an error (`element` of the original recipe).
    ///
    /// # Errors
    /// [`QueueError::Empty`]; else as `peek`.
    pub async fn element(&self) -> Result<Bytes, QueueError> {
        self.peek().await?.ok_or_else(|| QueueError::Empty {
            path: self.path.to_string(),
        })
    }

    /// Like [`DistributedQueue::poll`], where an empty queue is an error (`remove` of the original recipe).
    ///
    /// # Errors
    /// [`QueueError::Empty`]; else as `poll`.
    pub async fn remove(&self) -> Result<Bytes, QueueError> {
        self.poll().await?.ok_or_else(|| QueueError::Empty {
            path: self.path.to_string(),
        })
    }

    /// The names of the items in the tree, head first.
    ///
    /// # Errors
    /// [`QueueError`].
    pub async fn names(&self) -> Result<Vec<String>, QueueError> {
        loop {
            let session = self.session().await?;
            let listed = self.list(&session).await;
            if let Some(names) = self.after(&session, listed).await? {
                return Ok(names);
            }
        }
    }

    async fn session(&self) -> Result<Session, QueueError> {
        self.client
            .session()
            .await
            .map_err(|source| QueueError::Connect {
                path: self.path.to_string(),
                source,
            })
    }

    fn client_error(&self, source: Error) -> QueueError {
        QueueError::Client {
            path: self.path.to_string(),
            source,
        }
    }

    /// `Some` result; or `None` once the connection or a new session allows to try again; or the error that stays.
    async fn after<T>(
        &self,
        session: &Session,
        result: Result<T, Error>,
    ) -> Result<Option<T>, QueueError> {
        match result {
            Ok(done) => Ok(Some(done)),
            // The next attempt is made on another session.
            Err(_) if session.state().is_final() => Ok(None),
            Err(error) => match link::restored(session, error).await {
                Ok(()) => Ok(None),
                Err(_) if session.state().is_final() => Ok(None),
                Err(error) => Err(self.client_error(error)),
            },
        }
    }

    /// The items, head first. Other children are skipped with a warning, as in the original recipe.
    async fn list(&self, session: &Session) -> Result<Vec<String>, Error> {
        let children = match session.children(&self.path).await {
            Ok(children) => children.names,
            Err(error) if error.is_no_node() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut items = Vec::with_capacity(children.len());
        for name in children {
            match dialect::queue_number(&name) {
                Some(number) => items.push(Rival {
                    name,
                    number,
                    czxid: None,
                }),
                None => tracing::warn!(queue = &*self.path, child = name, "no queue item: skipped"),
            }
        }
        let items = order::arrange_with(session, &self.path, items).await?;
        Ok(items.into_iter().map(|item| item.name).collect())
    }

    /// Applies a change in a task of its own, which goes on if the caller goes away.
    async fn apply(&self, session: &Session, parts: Vec<Op>) -> Outcome {
        let (shared, session, path) = (
            Arc::clone(&self.shared),
            session.clone(),
            Arc::clone(&self.path),
        );
        let (report, reported) = oneshot::channel();
        tokio::spawn(async move {
            let _ = report.send(shared.apply(&session, &path, parts).await);
        });
        reported
            .await
            .unwrap_or_else(|_| Outcome::Unknown(task_gone(&self.path)))
    }

    /// Deletes an item that was read at `version`, for its data.
    async fn claim(
        &self,
        session: &Session,
        node: String,
        item: Bytes,
        version: i32,
    ) -> Result<Claimed, QueueError> {
        let (shared, session_, path) = (
            Arc::clone(&self.shared),
            session.clone(),
            Arc::clone(&self.path),
        );
        let (report, reported) = oneshot::channel();
        let parts = vec![Op::delete(&node, Some(version))];
        let taken = item.clone();
        tokio::spawn(async move {
            let outcome = shared.apply(&session_, &path, parts).await;
            if let Err((outcome, taken)) = report.send((outcome, taken)) {
                shared.settle_for_nobody(outcome, taken);
            }
        });
        let mut waiting = Waiting {
            shared: &self.shared,
            reported,
        };
        let outcome = match (&mut waiting.reported).await {
            Ok((outcome, _)) => outcome,
            Err(_) => Outcome::Unknown(task_gone(&node)),
        };
        match outcome {
            Outcome::Applied => Ok(Claimed::Item(item)),
            Outcome::Refused(error) if error.is_no_node() => Ok(Claimed::TakenByAnother),
            Outcome::NotApplied => Ok(Claimed::Again),
            Outcome::Refused(error) if error.is_bad_version() => Ok(Claimed::Again),
            Outcome::Refused(error) => Err(self.client_error(error)),
            Outcome::Failed(error) => {
                self.after(session, Err::<(), _>(error)).await?;
                Ok(Claimed::Again)
            }
            Outcome::Unknown(source) => Err(QueueError::TakeUnknown { node, item, source }),
        }
    }
}

impl Shared {
    async fn apply(&self, session: &Session, queue: &str, parts: Vec<Op>) -> Outcome {
        let mut receipt = self.receipts.take(session, queue);
        let outcome = receipt.apply(parts).await;
        if receipt.session().state().is_final() || matches!(outcome, Outcome::Unknown(_)) {
            drop(receipt);
        } else {
            self.receipts.give_back(receipt);
        }
        outcome
    }

    /// The caller of a claim has gone: keeps what was taken for the next one.
    fn settle_for_nobody(&self, outcome: Outcome, item: Bytes) {
        match outcome {
            Outcome::Applied => self.bring_back(item),
            Outcome::Unknown(error) => {
                tracing::error!(%error, bytes = item.len(), "item perhaps taken, and its taker gone");
            }
            _ => {}
        }
    }
}

/// What is known of a change whose task ended without a word: the runtime is shutting down.
fn task_gone(path: &str) -> Error {
    Error::MaybeApplied {
        op: OpCode::Multi,
        path: path.to_owned(),
        reason: Reason::SessionEnded(EndReason::DriverGone),
    }
}

enum Claimed {
    Item(Bytes),
    TakenByAnother,
    Again,
}

/// A caller that waits for the outcome of its claim, and may be dropped after it was sent and before it was read.
struct Waiting<'a> {
    shared: &'a Shared,
    reported: oneshot::Receiver<(Outcome, Bytes)>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.reported.close();
        if let Ok((outcome, item)) = self.reported.try_recv() {
            self.shared.settle_for_nobody(outcome, item);
        }
    }
}

/// Forgets the listed heads when dropped.
struct Relist<'a>(&'a Shared);

impl Relist<'_> {
    fn not_needed(self) {
        std::mem::forget(self);
    }
}

impl Drop for Relist<'_> {
    fn drop(&mut self) {
        self.0.local().heads.clear();
    }
}

//! A simple lock: one node, which all waiters watch.
//!
//! Owns the create of that node and the wait for its end. Must never take a node of the same
//! session for its own by the session alone: two acquires of one session exclude each other, and
//! are distinguished by the node's data (H06, H16).

use std::sync::Arc;
use std::time::Duration;

use baton_client::{Client, CreateMode, Error, Session};
use baton_proto::Stat;
use tokio::sync::oneshot;
use tracing::Instrument;
use uuid::Uuid;

use crate::acquire::{AcquireMode, Acquisition, AttemptError, LockError};
use crate::guard::Guard;
use crate::naming::{Child, Dialect, NamingScheme, Refusal};
use crate::options::acl_option;
use crate::parents::{ParentKind, ensure_parents};
use crate::record::Record;
use crate::retry;
use crate::spans;
use crate::time_limit::{WaitReason, at_most};
use crate::wait_queue::{self, AcquireError, GrantedNode, OwnNodeWatch, WaiterNode, until_gone};

/// The name of the one node.
const NODE: &str = "lock";

/// A lock that is held by the creator of the node `<path>/lock`. All waiters watch that node, and
/// all try again when it is deleted: a herd. For teaching, and to share a path with programs that
/// lock in this way; otherwise use [`Mutex`](crate::Mutex).
///
/// No order of arrival: the quickest caller gets it, so a waiter may wait for ever while others
/// come and go. All else is as for the mutex: the guard, the fencing token, lost connections,
/// cancellation.
///
/// Only [`Guard::txn`] knows less. A server checks a node by its name and by how often it was
/// written, and the next holder's node can have both the same, also where it is another program's;
/// nothing else can be checked instead, because an ephemeral node has no children and this one's
/// name is fixed. So where somebody deletes the node of a holder that lives, a transaction of that
/// holder may be applied under the next one's lock, until the notification has reached it; one
/// whose session has expired can send none.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = baton::lock::SimpleMutex::new(&client, "/demo")?.acquire().await?;
/// guard.check()?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SimpleMutex {
    acquisition: Acquisition,
    node: Arc<str>,
}

impl SimpleMutex {
    /// A lock at `path`, whose node is `<path>/lock`. Nothing is sent.
    ///
    /// # Errors
    /// [`LockError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, LockError> {
        Ok(Self {
            acquisition: Acquisition::new(client, path, Dialect::Curator)?,
            node: Arc::from(baton_proto::path::join(path, NODE)),
        })
    }

    /// Sets the name of this program in the lock node's data, which `baton lock show` and the
    /// console print.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.acquisition.name = Some(Arc::from(name));
        self
    }

    acl_option!(acquisition.client);

    /// The lock's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.acquisition.path
    }

    /// Waits until this process holds the lock. Survives lost connections and sessions; cancel-safe
    /// at every point.
    ///
    /// # Errors
    /// [`LockError`]; nothing of ours stays behind.
    pub async fn acquire(&self) -> Result<Guard, LockError> {
        loop {
            if let Some(guard) = self.run(AcquireMode::Wait).await? {
                return Ok(guard);
            }
        }
    }

    /// Acquires the lock if it is free now, else returns `None`. Waits for the server's answer,
    /// never for a holder.
    ///
    /// # Errors
    /// [`LockError`]; nothing of ours stays behind.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, LockError> {
        self.run(AcquireMode::IfFree).await
    }

    /// Like [`SimpleMutex::acquire`], for at most `limit`: one deadline over all wake-ups,
    /// reconnects and sessions.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] when the time is up; else as `acquire`.
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Guard, LockError> {
        let timed_out = |waited_for: WaitReason| {
            LockError::timed_out(
                self.path(),
                limit,
                waited_for.held_by(Some(self.node.to_string())),
            )
        };
        at_most(limit, &self.acquisition.client, self.acquire(), timed_out).await
    }

    async fn run(&self, mode: AcquireMode) -> Result<Option<Guard>, LockError> {
        let span = spans::acquire(self.path());
        let outcome = self.attempts(mode).instrument(span.clone()).await;
        if let Ok(Some(guard)) = &outcome {
            guard.acquired(&span);
        }
        outcome
    }

    async fn attempts(&self, mode: AcquireMode) -> Result<Option<Guard>, LockError> {
        loop {
            match self.attempt(mode).await {
                Err(AttemptError::Again) => {}
                Err(AttemptError::Failed(error)) => return Err(error),
                Ok(guard) => return Ok(guard),
            }
        }
    }

    async fn attempt(&self, mode: AcquireMode) -> Result<Option<Guard>, AttemptError> {
        let (session, lease) = self.acquisition.enter().await?;
        let attempt_error = |error| self.acquisition.attempt_error(&session, error);
        loop {
            match self.take(&session).await.map_err(attempt_error)? {
                Some(granted) => {
                    let token = granted.waiter.czxid();
                    return self
                        .acquisition
                        .hold(vec![granted], token, lease)
                        .await
                        .map(Some);
                }
                None if mode == AcquireMode::IfFree => return Ok(None),
                None => until_gone(&session, &self.node, || {})
                    .await
                    .map_err(attempt_error)?,
            }
        }
    }

    /// The node, if nobody had it.
    async fn take(&self, session: &Session) -> Result<Option<GrantedNode>, AcquireError> {
        let record = Record::new(self.acquisition.name.as_deref());
        loop {
            let create = send_create(session, &self.acquisition.path, &self.node, &record);
            let Ok(settled) = create.await else {
                return Err(AcquireError::SessionLost);
            };
            match settled {
                Ok(Some(waiter)) => {
                    if let Err(error) = self.alone(self.children(session).await?) {
                        return Err(wait_queue::withdraw_after(waiter, error).await);
                    }
                    let own_node = OwnNodeWatch::watch(&waiter);
                    return Ok(Some(GrantedNode { waiter, own_node }));
                }
                Ok(None) => {}
                Err(error) if error.is_node_exists() => return Ok(None),
                Err(error) if error.is_no_node() => {
                    ensure_parents(session, &self.acquisition.path, ParentKind::Container).await?;
                }
                Err(error) => retry::until_retryable(session, error).await?,
            }
        }
    }

    async fn children(&self, session: &Session) -> Result<Vec<String>, Error> {
        let children = || session.children(&self.acquisition.path);
        Ok(retry::read(session, children).await?.names)
    }

    /// Refuses to hold beside the wait queue of another lock at the same path, which would not wait
    /// for us.
    fn alone(&self, children: Vec<String>) -> Result<(), AcquireError> {
        for child in children.into_iter().filter(|child| child != NODE) {
            match NamingScheme::Exclusive(Dialect::Curator).classify(&child) {
                Child::Bystander => {}
                Child::Refused(why) => return Err(AcquireError::Foreign { child, why }),
                Child::Waiter { .. } => {
                    let why = Refusal::OtherDialect("a Curator or go-zk lock");
                    return Err(AcquireError::Foreign { child, why });
                }
            }
        }
        Ok(())
    }
}

/// Sends the create; its outcome comes by the channel, as our node, or as `None` where it is
/// certain that it was not applied.
///
/// What nobody receives is deleted: the node may not be searched by its name, which a later holder
/// of this session has too.
fn send_create(
    session: &Session,
    dir: &Arc<str>,
    node: &Arc<str>,
    record: &Record,
) -> oneshot::Receiver<Result<Option<WaiterNode>, Error>> {
    let data = record.to_bytes();
    let pending = session.create(node, &data, CreateMode::Ephemeral);
    let (to, outcome) = oneshot::channel();
    let (session, dir, node, id) = (session.clone(), dir.clone(), node.clone(), record.id);
    let runtime = session.runtime();
    runtime.spawn(async move {
        let settled = match pending.await {
            Ok(created) => Ok(Some(created.stat)),
            Err(error) if error.is_maybe_applied() => {
                let resolved = resolve_node(&session, &node, id, error).await;
                if resolved.is_err() {
                    // Nobody will know of the node, if there is one.
                    drop(session.discard_create_at(&node, &data));
                }
                resolved
            }
            Err(error) => Err(error),
        };
        let ours =
            |stat: Stat| WaiterNode::unmarked(&session, &dir, node.as_ref().to_owned(), stat.czxid);
        // Where the acquire was dropped, so is the node.
        drop(to.send(settled.map(|stat| stat.map(ours))));
    });
    outcome
}

/// The Stat of our node, or `None` where the create was not applied: by owner session *and* the id
/// in its data, on a server that has caught up.
async fn resolve_node(
    session: &Session,
    node: &str,
    id: Uuid,
    lost: Error,
) -> Result<Option<Stat>, Error> {
    let read = || async {
        let data = session.read_latest(node, |session| session.get_data(node));
        match data.await {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    };
    let read = retry::resolve(session, lost, read).await?;
    let ours = read.filter(|read| {
        read.stat.ephemeral_owner == session.id()
            && Record::from_bytes(&read.data).is_some_and(|record| record.id == id)
    });
    Ok(ours.map(|read| read.stat))
}

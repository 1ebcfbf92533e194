//! Deletion of nodes that must not stay behind, repeated until it is certain (`hazards.md` G11).
//!
//! Owns the retry loop of a guaranteed delete. It is bound to one session and to one node (by its
//! `czxid`): it must never delete a node that merely has the same path (`H09`, `H18`), and ends
//! with the session, which takes its ephemeral nodes along.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use baton_proto::{ErrorCode, Stat};
use tokio::sync::oneshot;

use crate::error::{Error, SessionLost};
use crate::session::Session;
use crate::session::core::Core;
use crate::session::pending::Pending;
use crate::state::EndReason;
use crate::values::{Op, OpResult};

/// Pause before another try after an operation that could not even be queued.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Error of a cleanup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CleanupError {
    /// The session ended first. Its ephemeral nodes go with it; another node may have stayed.
    #[error(transparent)]
    SessionLost(#[from] SessionLost),
    /// The server refuses the deletion for good (`NoAuth`, `NotEmpty`).
    #[error("cannot be cleaned up: {0}; delete it by hand")]
    Refused(Error),
}

/// A deletion that is repeated until it is certain. Await it for its outcome; dropping it does not
/// stop the deletion.
///
/// [`Session::close`](crate::Session::close) waits for it.
#[must_use = "the cleanup goes on, but only awaiting this yields its outcome"]
pub struct Cleanup {
    outcome: oneshot::Receiver<Result<(), CleanupError>>,
    core: Arc<Core>,
}

impl Future for Cleanup {
    type Output = Result<(), CleanupError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.outcome).poll(cx).map(|outcome| {
            outcome.unwrap_or_else(|_| Err(SessionLost(self.core.end_reason()).into()))
        })
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup").finish_non_exhaustive()
    }
}

/// Counts a running cleanup, so that the close waits for it.
struct RunningCleanup(Arc<Core>);

impl RunningCleanup {
    fn new(core: &Arc<Core>) -> Self {
        core.inner.lock().cleanups += 1;
        Self(Arc::clone(core))
    }
}

impl Drop for RunningCleanup {
    fn drop(&mut self) {
        let idle = {
            let mut inner = self.0.inner.lock();
            inner.cleanups = inner.cleanups.saturating_sub(1);
            inner.cleanups == 0
        };
        if idle {
            self.0.wake_driver();
        }
    }
}

/// Options of [`Session::delete_node`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct DeleteOptions {
    unique_name: bool,
    together_with: Vec<Op>,
}

impl DeleteOptions {
    /// Reads first which node is at the path, so that a later one of the same name is left alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends the delete without a read before it. Only for a path that no other node ever had or
    /// will have, by a random marker in its name.
    pub fn unique_name(mut self) -> Self {
        self.unique_name = true;
        self
    }

    /// Makes the deletion the last part of one change with `ops`, without a read before it: as
    /// [`DeleteOptions::unique_name`], only for a name that is used once. Where the server refuses
    /// one of `ops`, the node is deleted alone.
    pub fn together_with(mut self, ops: impl IntoIterator<Item = Op>) -> Self {
        self.together_with.extend(ops);
        self
    }
}

/// A deletion that is already queued. Await it for the first answer. Without one, or when this is
/// dropped, the deletion is repeated until the node is certainly gone or the session has ended.
#[must_use = "the deletion goes on, but only awaiting this yields its outcome"]
pub struct Deletion {
    session: Session,
    path: String,
    czxid: i64,
    /// The whole change, where the deletion is a part of one: repeated until it is certain.
    multi: Vec<Op>,
    asked: SentRequest,
}

/// Request that was sent and not answered yet.
enum SentRequest {
    Stat(Pending<Option<Stat>>),
    Delete(Pending<()>),
    Multi(Pending<Vec<OpResult>>),
    Nothing,
}

impl Deletion {
    /// Turns this into a future that waits until the node is certainly gone.
    pub fn until_gone(mut self) -> Cleanup {
        self.go_on()
    }

    fn go_on(&mut self) -> Cleanup {
        let asked = std::mem::replace(&mut self.asked, SentRequest::Nothing);
        let (session, czxid) = (self.session.detached(), self.czxid);
        let path = std::mem::take(&mut self.path);
        let multi = std::mem::take(&mut self.multi);
        self.session.clean_up(async move {
            let answer = match asked {
                SentRequest::Delete(asked) => Some(asked.await),
                SentRequest::Multi(asked) => Some(asked.await.map(drop)),
                SentRequest::Stat(_) | SentRequest::Nothing => None,
            };
            match answer {
                Some(Ok(())) => Ok(()),
                Some(Err(e)) if e.is_no_node() => Ok(()),
                _ => delete_until_gone(&session, &path, czxid, &multi).await,
            }
        })
    }
}

impl Future for Deletion {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let answer = match &mut self.asked {
                SentRequest::Nothing => return Poll::Ready(Ok(())),
                SentRequest::Stat(asked) => match ready!(Pin::new(asked).poll(cx)) {
                    Ok(Some(stat)) if stat.czxid == self.czxid => {
                        let asked = delete_as_seen(&self.session, &self.path, &stat);
                        self.asked = SentRequest::Delete(asked);
                        continue;
                    }
                    other => other.map(drop),
                },
                SentRequest::Delete(asked) => match ready!(Pin::new(asked).poll(cx)) {
                    Err(e) if e.is_bad_version() => {
                        self.asked = SentRequest::Stat(self.session.exists(&self.path));
                        continue;
                    }
                    Err(e) if e.is_no_node() => Ok(()),
                    other => other,
                },
                SentRequest::Multi(asked) => match ready!(Pin::new(asked).poll(cx)) {
                    Err(e) if e.is_no_node() => Ok(()),
                    // Where the server refuses another part, the node is still deleted.
                    Err(Error::MultiRejected { .. }) => {
                        self.asked = SentRequest::Delete(self.session.delete(&self.path, None));
                        continue;
                    }
                    other => other.map(drop),
                },
            };
            self.asked = SentRequest::Nothing;
            if answer.is_err() {
                let session = self.session.detached();
                let (path, czxid) = (self.path.clone(), self.czxid);
                let multi = std::mem::take(&mut self.multi);
                drop(self.session.clean_up(async move {
                    delete_until_gone(&session, &path, czxid, &multi).await
                }));
            }
            return Poll::Ready(answer);
        }
    }
}

impl Drop for Deletion {
    fn drop(&mut self) {
        if !matches!(self.asked, SentRequest::Nothing) {
            drop(self.go_on());
        }
    }
}

impl fmt::Debug for Deletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deletion")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Deletes the node at `path` that was created by the change `czxid`, and no other, with a
    /// request that is queued before this returns, so that it is sent together with the next
    /// operation. The first answer can be awaited; where it is lost, the deletion is repeated as by
    /// [`Session::delete_eventually`]. May be called outside a runtime, too.
    pub fn delete_node(&self, path: &str, czxid: i64, options: DeleteOptions) -> Deletion {
        let DeleteOptions {
            unique_name,
            mut together_with,
        } = options;
        let session = self.for_cleanup();
        let asked = if !together_with.is_empty() {
            together_with.push(Op::delete(path, None));
            SentRequest::Multi(session.multi(&together_with))
        } else if unique_name {
            SentRequest::Delete(session.delete(path, None))
        } else {
            SentRequest::Stat(session.exists(path))
        };
        Deletion {
            session,
            path: path.to_owned(),
            czxid,
            multi: together_with,
            asked,
        }
    }

    /// Deletes the node at `path` that was created by the change `czxid`, and no other. The
    /// deletion is repeated after every reconnect until the node is certainly gone or the session
    /// has ended. May be called outside a runtime, too.
    pub fn delete_eventually(&self, path: &str, czxid: i64) -> Cleanup {
        let (session, path) = (self.for_cleanup().detached(), path.to_owned());
        self.clean_up(async move { delete_until_gone(&session, &path, czxid, &[]).await })
    }

    /// Deletes the node of this session that a create with this parent and name prefix has made, or
    /// will still make: for a create whose outcome is unknown and that is no longer wanted.
    ///
    /// The prefix must be one that no other create has used: put a random marker in it.
    pub fn discard_create(&self, parent: &str, prefix: &str) -> Cleanup {
        let (session, parent, prefix) = (
            self.for_cleanup().detached(),
            parent.to_owned(),
            prefix.to_owned(),
        );
        self.clean_up(async move {
            loop {
                match session.recover_create(&parent, &prefix).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(found)) => {
                        return delete_until_gone(&session, &found.path, found.stat.czxid, &[])
                            .await;
                    }
                    Err(e) => retry(&session, e).await?,
                }
            }
        })
    }

    /// [`Session::discard_create`] for the create of an ephemeral node by a name that other creates
    /// use too: the node at `path` is taken for what it left if it belongs to this session and has
    /// `data`, which must hold a random marker.
    ///
    /// Where its data may not be read, that it belongs to this session is enough.
    pub fn discard_create_at(&self, path: &str, data: &[u8]) -> Cleanup {
        let (session, path, data) = (
            self.for_cleanup().detached(),
            path.to_owned(),
            data.to_vec(),
        );
        self.clean_up(async move {
            loop {
                match left_by(&session, &path, &data).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(czxid)) => return delete_until_gone(&session, &path, czxid, &[]).await,
                    Err(e) => retry(&session, e).await?,
                }
            }
        })
    }

    fn clean_up(
        &self,
        work: impl Future<Output = Result<(), CleanupError>> + Send + 'static,
    ) -> Cleanup {
        let (to, outcome) = oneshot::channel();
        let running = RunningCleanup::new(&self.core);
        self.core.runtime.spawn(async move {
            let result = work.await;
            if let Err(CleanupError::Refused(e)) = &result {
                tracing::warn!(error = %e, "node left behind");
            }
            // Nobody may be waiting for the certainty.
            let _gone = to.send(result);
            drop(running);
        });
        Cleanup {
            outcome,
            core: Arc::clone(&self.core),
        }
    }
}

/// The `czxid` of the node that our create with this data has left at `path`, on a server that has
/// caught up (`H02`).
async fn left_by(session: &Session, path: &str, data: &[u8]) -> Result<Option<i64>, Error> {
    let read = session.read_latest(path, |session| session.get_data(path));
    let stat = match read.await {
        Ok(read) => (read.data == data).then_some(read.stat),
        Err(e) if e.is_no_node() => None,
        Err(e) if e.code() == Some(ErrorCode::NoAuth) => record_of(session, path).await?,
        Err(e) => return Err(e),
    };
    let ours = stat.filter(|stat| stat.ephemeral_owner == session.id());
    Ok(ours.map(|stat| stat.czxid))
}

/// A node's record, also where it may not be read, but its permissions may.
async fn record_of(session: &Session, path: &str) -> Result<Option<Stat>, Error> {
    match session.exists(path).await {
        Err(e) if e.code() == Some(ErrorCode::NoAuth) => match session.get_acl(path).await {
            Ok((_, stat)) => Ok(Some(stat)),
            Err(e) if e.is_no_node() => Ok(None),
            Err(e) => Err(e),
        },
        seen => seen,
    }
}

/// The version narrows the gap between look and deletion: a node that took the place meanwhile is
/// most likely not of it.
fn delete_as_seen(session: &Session, path: &str, stat: &Stat) -> Pending<()> {
    session.delete(path, Some(stat.version).filter(|v| *v != -1))
}

/// `multi` is the change that the deletion is a part of, if any; where the server refuses it, the
/// node is deleted alone.
async fn delete_until_gone(
    session: &Session,
    path: &str,
    czxid: i64,
    mut multi: &[Op],
) -> Result<(), CleanupError> {
    loop {
        let stat = match record_of(session, path).await {
            Ok(Some(stat)) if stat.czxid == czxid => stat,
            Ok(_) => return Ok(()),
            Err(e) => {
                retry(session, e).await?;
                continue;
            }
        };
        let deleted = if multi.is_empty() {
            delete_as_seen(session, path, &stat).await
        } else {
            session.multi(multi).await.map(drop)
        };
        match deleted {
            Ok(()) => return Ok(()),
            Err(e) if e.is_no_node() => return Ok(()),
            Err(e) if e.is_bad_version() => {}
            Err(Error::MultiRejected { .. }) => multi = &[],
            Err(e) => retry(session, e).await?,
        }
    }
}

/// Returns when the cleanup should look again; fails when it never can.
async fn retry(session: &Session, error: Error) -> Result<(), CleanupError> {
    if error.is_session_ended() {
        return Err(SessionLost(session.end_reason().unwrap_or(EndReason::DriverGone)).into());
    }
    match error {
        Error::Rejected { .. } | Error::MultiRejected { .. } => Err(CleanupError::Refused(error)),
        Error::NotSent { .. } => {
            let clock = session.clock();
            clock.sleep_until(clock.now() + RETRY_PAUSE).await;
            Ok(())
        }
        Error::MaybeApplied { .. } | Error::Unanswered { .. } => Ok(()),
    }
}

//! Our own waiter node.
//!
//! Owns it from the moment its create is sent: [`PendingCreate`] while the outcome is open,
//! [`WaiterNode`] once the node is known. Both delete what they own when dropped, so a cancelled
//! future can leave nothing behind (H10). Must never send a create again before it is known that
//! the first one failed (H01), and must never take a node for its own by name or data alone (H03,
//! H06).

use std::sync::Arc;

use baton_client::{
    CreateMode, CreatedNode, DeleteOptions, Deletion, Error, Op, OpResult, Pending, Session,
};

use super::AcquireError;
use super::release_marker::{release_marker, signal};
use crate::parents::{ParentKind, ensure_parents};
use crate::retry;

/// Number of times that a lock directory may vanish between its creation and ours in it before we
/// say so.
pub(super) const PARENT_ATTEMPTS: usize = 8;

/// A waiter node of ours. Dropped, it is deleted: now if the server can be reached, else as soon as
/// it can.
#[derive(Debug)]
pub(crate) struct WaiterNode {
    session: Session,
    dir: Arc<str>,
    path: String,
    czxid: i64,
    /// The name carries a marker: no other node ever has it, so it is deleted without a read.
    marked: bool,
    /// Others are likely to wait behind it, and need to know whether it has held.
    has_followers: bool,
    /// Its record asks for a lock delay, so its release must be signalled.
    has_lock_delay: bool,
    /// Observers are notified of a release.
    is_observed: bool,
    ours_to_delete: bool,
}

impl WaiterNode {
    /// `path` must carry a marker of ours: no other node ever has that name, so it is deleted
    /// without a read.
    pub(super) fn new(session: &Session, dir: &Arc<str>, path: String, czxid: i64) -> Self {
        Self {
            session: session.clone(),
            dir: Arc::clone(dir),
            path,
            czxid,
            marked: true,
            has_followers: false,
            has_lock_delay: false,
            is_observed: false,
            ours_to_delete: true,
        }
    }

    /// A node that a change of the caller's has made, under the session, with a name that is ours
    /// alone.
    pub(crate) fn adopt(session: &Session, dir: &Arc<str>, path: String, czxid: i64) -> Self {
        Self::new(session, dir, path, czxid)
    }

    /// A node whose name others use too, one after the other.
    pub(crate) fn unmarked(session: &Session, dir: &Arc<str>, path: String, czxid: i64) -> Self {
        let mut waiter = Self::new(session, dir, path, czxid);
        waiter.marked = false;
        waiter
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn dir(&self) -> &str {
        &self.dir
    }

    /// Full path: never the bare name, which is what orphaned nodes in other libraries (H15).
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns whether no other node ever has this name.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked
    }

    pub(crate) fn name(&self) -> &str {
        baton_proto::path::name(&self.path)
    }

    /// The zxid of its creation: the fencing token of a FIFO mutex.
    pub(crate) fn czxid(&self) -> i64 {
        self.czxid
    }

    /// The node is gone already, or somebody else has taken over deleting it.
    pub(crate) fn disown(&mut self) {
        self.ours_to_delete = false;
    }

    /// Replaces this node by one called `name` with `data`, in one change; `name` must hold a new
    /// marker.
    ///
    /// Cancel-safe: dropping the future leaves neither.
    pub(crate) async fn exchange(mut self, name: &str, data: &[u8]) -> Result<Self, AcquireError> {
        let ops = [
            Op::create(self.beside(name), data.to_vec(), CreateMode::Ephemeral),
            Op::delete(&*self.path, None),
        ];
        loop {
            let asked = self.session.multi(&ops);
            if let Some(successor) = self.succeeded_by(name, asked).await? {
                return Ok(successor);
            }
        }
    }

    /// Releases this node, which was first in its queue, and joins the queue again at its end, in
    /// one change; `prefix` must hold a new marker. Returns what [`join`] does, or `None` where it
    /// is certain that nothing was done: this node is then deleted.
    ///
    /// Cancel-safe: dropping the future leaves neither.
    pub(crate) async fn requeue(
        mut self,
        prefix: &str,
        data: &[u8],
    ) -> Result<Option<(Self, Option<Vec<String>>)>, AcquireError> {
        let mode = CreateMode::EphemeralSequential;
        let mut ops = Vec::new();
        if self.signals_release() {
            ops.extend(signal(release_marker(&self.path)));
        }
        if self.has_lock_delay {
            ops.push(Op::set_data(&*self.path, Vec::new(), None));
        }
        ops.push(Op::delete(&*self.path, None));
        ops.push(Op::create(self.beside(prefix), data.to_vec(), mode));
        let asked = self.session.multi(&ops);
        let listing = self.session.children(&self.dir);
        let Some(successor) = self.succeeded_by(prefix, asked).await? else {
            drop(self.release());
            return Ok(None);
        };
        Ok(Some((
            successor,
            listing.await.ok().map(|listing| listing.names),
        )))
    }

    /// The node that `asked` has replaced this one by, the last that it creates, or `None` where it
    /// is certain that it was not applied and may be tried again.
    async fn succeeded_by(
        &mut self,
        prefix: &str,
        asked: Pending<Vec<OpResult>>,
    ) -> Result<Option<Self>, AcquireError> {
        let (session, dir) = (self.session.clone(), Arc::clone(&self.dir));
        let mut create = PendingCreate {
            session: &session,
            dir: &dir,
            prefix,
            open: true,
        };
        let made = match asked.applied().await {
            Ok(applied) => last_created(applied.value).map(|path| (path, applied.zxid)),
            Err(error) if error.is_maybe_applied() => {
                let found = create.resolve(error).await?;
                found.map(|node| (node.path, node.stat.czxid))
            }
            Err(error) => {
                create.open = false;
                if error.is_no_node() {
                    self.disown();
                    return Err(AcquireError::OwnNodeGone);
                }
                retry::until_retryable(&session, error).await?;
                None
            }
        };
        create.open = false;
        Ok(made.map(|(path, czxid)| {
            self.disown();
            Self::new(&session, &dir, path, czxid)
        }))
    }

    fn beside(&self, name: &str) -> String {
        baton_proto::path::join(&self.dir, name)
    }

    /// It had to wait, in a queue that is served strictly in its order: so may others behind it.
    pub(super) fn note_followers(&mut self) {
        self.has_followers = true;
    }

    /// Its record asks for a lock delay: those who read it are notified of a release.
    pub(crate) fn note_lock_delay(&mut self) {
        self.has_lock_delay = true;
    }

    /// Observers outside the wait queue are notified of a release.
    pub(crate) fn note_observers(&mut self) {
        self.is_observed = true;
    }

    /// Deletes the node without a release marker: the request is queued when this returns.
    pub(crate) fn withdraw(mut self) -> Deletion {
        self.ours_to_delete = false;
        self.delete()
    }

    /// Deletes the node of a holder, which was first in its queue: the request is queued when this
    /// returns.
    pub(crate) fn release(mut self) -> Deletion {
        self.ours_to_delete = false;
        if self.signals_release() {
            let mut options =
                DeleteOptions::new().together_with(signal(release_marker(&self.path)));
            if self.has_lock_delay {
                // Anyone who watches the data is notified of this change before the end, so that a
                // waiter that does not watch for the marker yet can also distinguish a release from
                // a failure.
                options = options.together_with([Op::set_data(&*self.path, Vec::new(), None)]);
            }
            return self.session.delete_node(&self.path, self.czxid, options);
        }
        self.delete()
    }

    /// Has its end look like that of a holder that has failed.
    pub(crate) fn signal_nothing(&mut self) {
        self.has_followers = false;
        self.has_lock_delay = false;
        self.is_observed = false;
    }

    /// Returns whether its release is signalled by a marker.
    fn signals_release(&self) -> bool {
        (self.has_followers || self.has_lock_delay || self.is_observed) && self.marked
    }

    /// Returns the deletion of the node, for others than its owner.
    pub(crate) fn removal(&self) -> NodeDeletion {
        NodeDeletion {
            path: self.path.clone(),
            czxid: self.czxid,
            marked: self.marked,
        }
    }

    fn delete(&self) -> Deletion {
        self.removal().begin(&self.session)
    }
}

/// Deletion of a node of ours, and of no other that may have come to its path.
#[derive(Debug)]
pub(crate) struct NodeDeletion {
    path: String,
    czxid: i64,
    marked: bool,
}

impl NodeDeletion {
    /// Returns the deletion of a node whose name others use too.
    pub(crate) fn unmarked(path: &str, czxid: i64) -> Self {
        Self {
            path: path.to_owned(),
            czxid,
            marked: false,
        }
    }

    /// Full path of the node.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Queues the request.
    pub(crate) fn begin(&self, session: &Session) -> Deletion {
        let options = DeleteOptions::new();
        let options = if self.marked {
            options.unique_name()
        } else {
            options
        };
        session.delete_node(&self.path, self.czxid, options)
    }
}

impl Drop for WaiterNode {
    fn drop(&mut self) {
        if self.ours_to_delete {
            drop(self.delete());
        }
    }
}

/// Joins the wait queue at `dir`, and lists it in the same packet.
///
/// `prefix` is our name without its number, and must hold a marker that no other create has used.
/// Returns our node, and the children seen right after its creation unless that reply was lost.
/// Cancel-safe: dropping the future leaves nothing behind.
pub(crate) async fn join(
    session: &Session,
    dir: &Arc<str>,
    prefix: &str,
    data: &[u8],
) -> Result<(WaiterNode, Option<Vec<String>>), Error> {
    let mut parents_made = 0;
    loop {
        let (create, pending) = PendingCreate::send(session, dir, prefix, data);
        let listing = session.children(dir);
        match create.settle(pending).await {
            Ok(Some(waiter)) => {
                return Ok((waiter, listing.await.ok().map(|listing| listing.names)));
            }
            Ok(None) => {}
            Err(error) if error.is_no_node() && parents_made < PARENT_ATTEMPTS => {
                parents_made += 1;
                ensure_parents(session, dir, ParentKind::Container).await?;
            }
            Err(error) => retry::until_retryable(session, error).await?,
        }
    }
}

/// The path of the last node that a multi has created.
fn last_created(results: Vec<OpResult>) -> Option<String> {
    results.into_iter().rev().find_map(|result| match result {
        OpResult::Created { path, .. } => Some(path),
        _ => None,
    })
}

/// A create under way.
struct PendingCreate<'a> {
    session: &'a Session,
    dir: &'a Arc<str>,
    prefix: &'a str,
    /// Whether the node may exist without anybody owning it.
    open: bool,
}

impl<'a> PendingCreate<'a> {
    /// Queues the create; nothing has been awaited when this returns.
    fn send(
        session: &'a Session,
        dir: &'a Arc<str>,
        prefix: &'a str,
        data: &[u8],
    ) -> (Self, Pending<CreatedNode>) {
        let path = baton_proto::path::join(dir, prefix);
        let pending = session.create(&path, data, CreateMode::EphemeralSequential);
        (
            Self {
                session,
                dir,
                prefix,
                open: true,
            },
            pending,
        )
    }

    /// Our node, or `None` where it is certain that the create was never applied.
    async fn settle(mut self, pending: Pending<CreatedNode>) -> Result<Option<WaiterNode>, Error> {
        let created = match pending.await {
            Ok(created) => Some(created),
            Err(error) if error.is_maybe_applied() => self.resolve(error).await?,
            Err(error) => {
                self.open = false;
                return Err(error);
            }
        };
        self.open = false;
        Ok(created.map(|node| WaiterNode::new(self.session, self.dir, node.path, node.stat.czxid)))
    }

    /// Finds our node by marker *and* owner session, on a server that has caught up (H01–H03).
    async fn resolve(&self, lost: Error) -> Result<Option<CreatedNode>, Error> {
        let recover = || self.session.recover_create(self.dir, self.prefix);
        retry::resolve(self.session, lost, recover).await
    }
}

impl Drop for PendingCreate<'_> {
    /// The caller went away before the outcome was known: the session finds out in the background,
    /// and deletes what there is.
    fn drop(&mut self) {
        if self.open {
            drop(self.session.discard_create(self.dir, self.prefix));
        }
    }
}

//! Requests to a holder to release, and deletion of its node.
//!
//! Owns both changes. Each is bound to the node that was seen: a node that was made at its path
//! since, and a node that was written to since, are left alone (H18).

use baton_client::{Error, Op, Session};
use baton_proto::Stat;

use super::error::InspectError;
use super::inspector::Inspector;
use super::lock_node::LockNode;
use crate::retry;
use crate::wait_queue::RELEASE_REQUEST;

/// The state of a node since it was seen.
enum NodeChange {
    /// It is as it was.
    Same,
    /// It was written to: once, or more often.
    Written { by_one: bool },
    /// It is gone. Another node may stand at its path.
    Gone,
}

impl Inspector {
    /// Asks the holder that owns `node` to release, by replacing the node's data with Curator's
    /// `__REVOKE__`. The holder keeps the lock until it releases it.
    ///
    /// Holders of Baton are notified ([`Guard::on_revoke`](crate::Guard::on_revoke)), and so are
    /// those of Curator whose locks are revocable. Other libraries do not listen. `false`: the node
    /// is gone, or somebody has written to it since it was read; nothing was changed.
    ///
    /// # Errors
    /// [`InspectError`]; asking again is safe.
    pub async fn revoke(&self, node: &LockNode) -> Result<bool, InspectError> {
        self.run(|session| async move { ask(&session, node).await })
            .await
    }

    /// Deletes the node of a holder, of any library: the next waiter is granted the lock, and the
    /// holder is notified of the loss, one of Baton at the latest when its lease ends.
    ///
    /// Deletes only the node that was read: `false` where it is gone, where another was made at its
    /// path, and where somebody has written to it since. Where the holders of a lock share one name
    /// ([`SimpleMutex`](crate::lock::SimpleMutex)), one that takes the lock within the last round
    /// trip loses its node instead. Nothing that the holder began is undone: see the guide on
    /// fencing.
    ///
    /// # Errors
    /// [`InspectError`]; doing it again is safe.
    pub async fn break_holder(&self, node: &LockNode) -> Result<bool, InspectError> {
        self.run(|session| async move { delete(&session, node).await })
            .await
    }
}

async fn ask(session: &Session, node: &LockNode) -> Result<bool, Error> {
    let path = &*node.info.path;
    let mut is_unresolved = false;
    loop {
        match since(session, node).await? {
            NodeChange::Same => {}
            NodeChange::Written { by_one: true } if is_unresolved => {
                return is_asked(session, node).await;
            }
            NodeChange::Written { .. } | NodeChange::Gone => return Ok(false),
        }
        let set = session.set_data(path, RELEASE_REQUEST, Some(node.info.version));
        match set.await {
            Ok(_) => return Ok(true),
            Err(error) if error.is_no_node() || error.is_bad_version() => {}
            Err(error) => {
                is_unresolved |= error.is_maybe_applied();
                retry::until_readable(session, error).await?;
            }
        }
    }
}

async fn delete(session: &Session, node: &LockNode) -> Result<bool, Error> {
    let path = &*node.info.path;
    let mut is_unresolved = false;
    loop {
        match since(session, node).await? {
            NodeChange::Same => {}
            NodeChange::Gone => return Ok(is_unresolved),
            NodeChange::Written { .. } => return Ok(false),
        }
        let delete = session.multi(&[Op::delete(path, Some(node.info.version))]);
        match delete.await {
            Ok(_) => return Ok(true),
            Err(error) if error.is_no_node() || error.is_bad_version() => {}
            Err(error) => {
                is_unresolved |= error.is_maybe_applied();
                retry::until_readable(session, error).await?;
            }
        }
    }
}

/// Returns what has become of a node since it was seen, from a server that has caught up.
async fn since(session: &Session, node: &LockNode) -> Result<NodeChange, Error> {
    let path = &*node.info.path;
    let read = retry::read(session, || {
        session.read_latest(path, |session| session.exists(path))
    });
    Ok(match read.await? {
        Some(Stat { czxid, version, .. }) if czxid == node.info.czxid => {
            match version.wrapping_sub(node.info.version) {
                0 => NodeChange::Same,
                times => NodeChange::Written { by_one: times == 1 },
            }
        }
        _ => NodeChange::Gone,
    })
}

/// Returns whether the node's data asks its holder to release.
async fn is_asked(session: &Session, node: &LockNode) -> Result<bool, Error> {
    let path = &*node.info.path;
    match retry::read(session, || session.get_data(path)).await {
        Ok(read) => Ok(read.data == RELEASE_REQUEST && read.stat.czxid == node.info.czxid),
        Err(error) if error.is_no_node() => Ok(false),
        Err(error) => Err(error),
    }
}

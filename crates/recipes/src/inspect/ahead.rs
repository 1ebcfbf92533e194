//! The part of a wait queue before one node.
//!
//! Owns how a position is read at little cost: the names of a queue, and the data of one holder,
//! however long the queue is.

use baton_client::{Error, Session};
use baton_proto::path::{join, name, parent};
use serde::Serialize;

use super::children::{Candidate, Children, NodeMode};
use super::error::InspectError;
use super::inspector::Inspector;
use super::lock_node::{LockNode, rank, read_in_order};
use crate::semaphore::LEASES;
use crate::wait_queue::order::{self, SequentialChild};

/// The part of a wait queue before one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitersAhead {
    /// The holder, the first of several. `None` for a node that holds itself, and where the holder
    /// could not be read.
    pub holder: Option<LockNode>,
    /// The node's position among those who wait, from 1; 0 where it holds.
    pub position: usize,
    /// Number of waiters.
    pub waiting: usize,
}

impl Inspector {
    /// The part of the wait queue before `node`, the full path of a waiter node at the lock,
    /// semaphore or election `path`. `None` where there is no such node.
    ///
    /// Reads the list of nodes and one holder, whatever their number. Only where the names do not
    /// determine the order, as past the end of the server's counter, is each node read. The list
    /// may be older than the call.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn ahead(
        &self,
        path: &str,
        node: &str,
    ) -> Result<Option<WaitersAhead>, InspectError> {
        self.run(|session| async move { read(&session, path, node).await })
            .await
    }
}

async fn read(session: &Session, path: &str, node: &str) -> Result<Option<WaitersAhead>, Error> {
    let dir = parent(node);
    let is_semaphore = dir != path;
    let leases = join(path, LEASES);
    let permits = is_semaphore.then(|| session.children(&leases));
    let names = match session.children(dir).await {
        Ok(children) => children.names,
        Err(error) if error.is_no_node() => return Ok(None),
        Err(error) => return Err(error),
    };
    let candidates = Children::of_lock(dir, names).candidates;
    let Some(own) = candidates.iter().find(|child| child.path == node) else {
        return Ok(None);
    };
    let scheme = own.scheme;
    let queue: Vec<_> = candidates
        .into_iter()
        .filter(|child| child.scheme == scheme)
        .collect();
    let queue = in_order(session, dir, queue).await?;
    let Some(at) = queue.iter().position(|child| child.name() == name(node)) else {
        return Ok(None);
    };
    if let Some(permits) = permits {
        let names = match permits.await {
            Ok(children) => children.names,
            Err(error) if error.is_no_node() => Vec::new(),
            Err(error) => return Err(error),
        };
        let permits = Children::of_permits(&leases, names).candidates;
        let permits = in_order(session, &leases, permits).await?;
        return Ok(Some(WaitersAhead {
            holder: first(session, permits).await?,
            position: at + 1,
            waiting: queue.len(),
        }));
    }
    let readers = queue
        .iter()
        .take_while(|child| child.mode == NodeMode::Read);
    let holding = readers.count().max(1);
    let position = (at + 1).saturating_sub(holding);
    let waiting = queue.len() - holding;
    let holder = match position {
        0 => None,
        _ => first(session, queue).await?,
    };
    Ok(Some(WaitersAhead {
        holder,
        position,
        waiting,
    }))
}

/// The nodes of one naming scheme, in their order.
async fn in_order(
    session: &Session,
    dir: &str,
    mut queue: Vec<Candidate>,
) -> Result<Vec<Candidate>, Error> {
    let children = queue.iter().map(|child| SequentialChild {
        name: child.name().to_owned(),
        number: child.number,
        czxid: None,
    });
    let children = children.collect();
    let scheme = queue.first().map(|child| child.scheme);
    let kept = |child: &SequentialChild, read: &_| {
        scheme.map_or(0, |scheme| rank(scheme, &child.name, read))
    };
    let order = order::arrange_by(session, dir, children, kept).await?;
    let mut ordered = Vec::with_capacity(queue.len());
    queue.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    for child in order {
        let path = join(dir, &child.name);
        if let Ok(at) = queue.binary_search_by(|candidate| candidate.path.cmp(&path))
            && let Some(candidate) = queue.get(at)
        {
            ordered.push(candidate.clone());
        }
    }
    Ok(ordered)
}

/// The first node of a queue, as a holder's; `None` where it could not be read.
async fn first(session: &Session, queue: Vec<Candidate>) -> Result<Option<LockNode>, Error> {
    let first: Vec<_> = queue.into_iter().take(1).collect();
    let (mut unowned, mut unreadable) = (Vec::new(), Vec::new());
    let read = read_in_order(session, &first, &mut unowned, &mut unreadable).await?;
    Ok(read.into_iter().next().map(LockNode::granted))
}

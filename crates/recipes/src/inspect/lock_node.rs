//! A node of a wait queue as it was read, and the order of several.
//!
//! Owns what a node of a lock says of its holder. The order is the one by which waiters are served
//! (`wait_queue::order`).

use std::collections::HashMap;

use baton_client::{Data, Error, Session};
use serde::Serialize;

use super::children::{Candidate, NodeMode, Scheme};
use super::node_info::{NodeInfo, UnreadableNode, read_all};
use crate::wait_queue::order::{self, SequentialChild};
use crate::wait_queue::{is_release_request, kept_position};

/// A node of a lock: a holder or a waiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockNode {
    /// The node: its path, its owner, since when it has existed.
    #[serde(flatten)]
    pub info: NodeInfo,
    /// Library whose names it has.
    pub scheme: Scheme,
    /// Its part in the lock.
    pub mode: NodeMode,
    /// A holder's fencing token. Exact unless somebody has asked the holder of a read/write lock or
    /// of a permit to release: that change of the node hides the one that was the token. A waiter
    /// has none. A writer of kazoo's read/write lock is read as a holder of kazoo's mutex while no
    /// reader is beside it, with the token of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// Whether somebody has asked the holder to release.
    pub asked: bool,
}

impl LockNode {
    /// The zxid that is the node's fencing token once it holds: of its creation, or of its last
    /// change where grants do not come in the order of creation (read/write locks, permits).
    #[must_use]
    pub fn grant_zxid(&self) -> i64 {
        match self.mode {
            NodeMode::Exclusive => self.info.czxid,
            NodeMode::Read | NodeMode::Write | NodeMode::Permit => self.info.mzxid,
        }
    }

    /// This node as that of a holder.
    pub(super) fn granted(self) -> Self {
        let token = u64::try_from(self.grant_zxid()).ok();
        Self { token, ..self }
    }
}

/// The process that owns the node, on one line.
impl std::fmt::Display for LockNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.info.record.is_none() && self.asked {
            // The request has replaced the data.
            f.write_str("asked to release")
        } else {
            write!(f, "{}", self.info)
        }
    }
}

/// The `czxid` that counts for the order of a node with this name.
pub(super) fn rank(scheme: Scheme, name: &str, read: &Data) -> i64 {
    match scheme.naming() {
        Some(naming) => kept_position(naming, name, read),
        None => read.stat.czxid,
    }
}

/// Reads the nodes, and puts them in order. Nodes that no session owns are added to `unowned`.
pub(super) async fn read_in_order(
    session: &Session,
    candidates: &[Candidate],
    unowned: &mut Vec<NodeInfo>,
    unreadable: &mut Vec<UnreadableNode>,
) -> Result<Vec<LockNode>, Error> {
    let paths: Vec<_> = candidates.iter().map(|child| child.path.clone()).collect();
    let read = read_all(session, &paths, unreadable, |at, data| {
        Some(PlacedNode::new(candidates.get(at)?, data))
    });
    let read = read.await?.into_iter().flatten().collect();
    Ok(PlacedNode::in_order(read, unowned))
}

/// A node of a wait queue, and what its position follows from.
pub(super) struct PlacedNode {
    position: SequentialChild,
    node: LockNode,
}

impl PlacedNode {
    /// The node of `child`, of which `data` was read.
    pub(super) fn new(child: &Candidate, data: &Data) -> Self {
        Self {
            position: SequentialChild {
                name: child.name().to_owned(),
                number: child.number,
                czxid: Some(rank(child.scheme, child.name(), data)),
            },
            node: LockNode {
                info: NodeInfo::new(&child.path, data),
                scheme: child.scheme,
                mode: child.mode,
                token: None,
                asked: is_release_request(&data.data),
            },
        }
    }

    /// The nodes in their order. Those that no session owns are added to `unowned`.
    pub(super) fn in_order(read: Vec<Self>, unowned: &mut Vec<NodeInfo>) -> Vec<LockNode> {
        let mut positions = Vec::with_capacity(read.len());
        let mut nodes = HashMap::with_capacity(read.len());
        for Self { position, node } in read {
            // For example a folder that has the name of a waiter node.
            if node.info.session_id == 0 {
                unowned.push(node.info);
            } else {
                nodes.insert(position.name.clone(), node);
                positions.push(position);
            }
        }
        // Every czxid is known, so the order is.
        let _ = order::arrange(&mut positions);
        positions
            .iter()
            .filter_map(|position| nodes.remove(&position.name))
            .collect()
    }
}

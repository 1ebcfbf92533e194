//! Locks as the verbs print them: a node of a wait queue in JSON, and the error of a reading.
//!
//! Owns the JSON form only: `baton::inspect` reads the tree and decides who holds and in which
//! order the others wait.

use baton::inspect::{InspectError, LockNode};
use baton::record::Record;
use serde::Serialize;

use crate::exit::{self, Failure};

/// One node of a wait queue, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct NodeLine<'a> {
    node: &'a str,
    token: i64,
    session: String,
    since_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a Record>,
    /// The data of another library's node, if it is a short text.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    /// Whether somebody has asked this holder to release.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asked: bool,
}

impl<'a> NodeLine<'a> {
    pub(crate) fn new(node: &'a LockNode) -> Self {
        Self {
            node: &node.info.path,
            token: token(node),
            session: format!("0x{:x}", node.info.session_id),
            since_ms: node.info.since_ms,
            holder: node.info.record.as_ref(),
            data: node.info.text.as_deref().filter(|_| !node.asked),
            asked: node.asked,
        }
    }
}

/// A holder's fencing token. Of a waiter, the zxid by which its node is known.
pub(crate) fn token(node: &LockNode) -> i64 {
    node.token
        .and_then(|token| i64::try_from(token).ok())
        .unwrap_or_else(|| node.grant_zxid())
}

/// The failure of a verb that could not read a lock.
pub(crate) fn failure(error: &InspectError) -> Failure {
    match error {
        InspectError::Connect(_) => Failure::new(exit::BATON, "connection", error.to_string()),
        _ => Failure::baton(error.to_string()),
    }
}

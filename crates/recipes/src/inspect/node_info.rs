//! A node of a recipe as it was read.
//!
//! Owns what is kept of a node, and the pipelined reads of many. Must never keep all of a large
//! node: data comes from anyone who can write to the tree.

use std::time::Duration;

use baton_client::{Data, Error, Pending, Session};
use baton_proto::Stat;
use bytes::Bytes;
use serde::Serialize;

use crate::record::Record;
use crate::rendering::{self, OneLine};
use crate::retry;

/// Reads that are under way at once. What they return is bounded by this, not by the number of
/// nodes.
const READS_AT_ONCE: usize = 128;

/// The number of bytes of a node's data that are kept.
const KEPT_BYTES: usize = 4096;

/// A node of a recipe, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Full path.
    pub path: String,
    /// The session that owns the node; 0 for a node that outlives its session.
    #[serde(rename = "session", serialize_with = "rendering::session_id")]
    pub session_id: i64,
    /// Time at which the node was created: milliseconds since 1970, by the server's clock.
    pub since_ms: i64,
    /// The change that created the node.
    pub czxid: i64,
    /// The change that wrote its data last.
    pub mzxid: i64,
    /// Number of times that its data was written since the node was created.
    pub version: i32,
    /// The length of its data, in bytes.
    pub data_length: i32,
    /// The process that owns the node, where the data is Baton's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// The data of another library, where it is a short text: an address, a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The first 4,096 bytes of the data.
    #[serde(skip)]
    pub data: Bytes,
}

/// A node that this client may not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadableNode {
    /// Full path.
    pub path: String,
    /// The server's refusal.
    #[serde(rename = "error", serialize_with = "rendering::text")]
    pub error: Error,
}

impl NodeInfo {
    /// Returns the summary of a node.
    pub(super) fn new(path: &str, read: &Data) -> Self {
        let record = Record::from_bytes(&read.data);
        let kept = read.data.get(..KEPT_BYTES).unwrap_or(&read.data);
        let text = match &record {
            Some(_) => None,
            None => rendering::short_text(&read.data).map(str::to_owned),
        };
        Self {
            record,
            text,
            // A copy: the whole answer would stay in memory behind a slice of it.
            data: Bytes::copy_from_slice(kept),
            ..Self::of_stat(path, &read.stat)
        }
    }

    /// Returns the summary of a node by its Stat, without its data.
    pub(super) fn of_stat(path: &str, stat: &Stat) -> Self {
        Self {
            path: path.to_owned(),
            session_id: stat.ephemeral_owner,
            since_ms: stat.ctime,
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            version: stat.version,
            data_length: stat.data_length,
            record: None,
            text: None,
            data: Bytes::new(),
        }
    }

    /// The node's name, without its directory.
    #[must_use]
    pub fn name(&self) -> &str {
        baton_proto::path::name(&self.path)
    }

    /// Age of the node at `server_now_ms`, a time of the server's clock: see
    /// [`Inspector::server_now_ms`](super::Inspector::server_now_ms). The clock of this machine may
    /// differ by minutes. Zero where the node is newer.
    #[must_use]
    pub fn age_at(&self, server_now_ms: i64) -> Duration {
        let age = server_now_ms.saturating_sub(self.since_ms);
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }
}

/// The process that owns the node, on one line.
impl std::fmt::Display for NodeInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.record, &self.text) {
            (Some(record), _) => write!(f, "{record}"),
            (None, Some(text)) => write!(f, "another program ({})", OneLine(text)),
            (None, None) => f.write_str("another program"),
        }
    }
}

/// Reads the nodes at `paths`, in pipelined requests, and makes of each what `make` returns. A node
/// that has gone is skipped; one that this client may not read is added to `unreadable`.
pub(super) async fn read_all<T>(
    session: &Session,
    paths: &[String],
    unreadable: &mut Vec<UnreadableNode>,
    make: impl Fn(usize, &Data) -> T,
) -> Result<Vec<T>, Error> {
    let read = |path: &str| session.get_data(path);
    let mut made = Vec::with_capacity(paths.len());
    for (nth, some) in paths.chunks(READS_AT_ONCE).enumerate() {
        let asked: Vec<_> = some.iter().map(|path| (path, read(path))).collect();
        for (at, (path, reply)) in asked.into_iter().enumerate() {
            let reply = answer(session, reply, || read(path)).await;
            if let Some(data) = readable(path, reply, unreadable)? {
                made.push(make(nth * READS_AT_ONCE + at, &data));
            }
        }
    }
    Ok(made)
}

/// The answer to a read that was sent; where the connection was lost, to the same read sent again.
pub(super) async fn answer<T>(
    session: &Session,
    sent: Pending<T>,
    again: impl Fn() -> Pending<T>,
) -> Result<T, Error> {
    match sent.await {
        Ok(value) => Ok(value),
        Err(error) => {
            retry::until_retryable(session, error).await?;
            retry::read(session, again).await
        }
    }
}

/// The result of a read; `None` where the node does not exist, and where it may not be read, which
/// is added to `unreadable`.
pub(super) fn readable<T>(
    path: &str,
    read: Result<T, Error>,
    unreadable: &mut Vec<UnreadableNode>,
) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) if error.is_no_auth() => {
            let path = path.to_owned();
            unreadable.push(UnreadableNode { path, error });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The names of a node's children, not older than this call; `None` where there is no node.
pub(super) async fn children(session: &Session, path: &str) -> Result<Option<Vec<String>>, Error> {
    let listed = latest(session, path, |session| session.children(path)).await?;
    Ok(listed.map(|children| children.names))
}

/// A node's data, not older than this call; `None` where there is no node.
pub(super) async fn data(session: &Session, path: &str) -> Result<Option<Data>, Error> {
    latest(session, path, |session| session.get_data(path)).await
}

async fn latest<T>(
    session: &Session,
    path: &str,
    read: impl Fn(&Session) -> Pending<T>,
) -> Result<Option<T>, Error> {
    match retry::read(session, || session.read_latest(path, &read)).await {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) => Err(error),
    }
}

//! Queues in the layouts of other libraries.
//!
//! Owns what a queue's folder says without an item being taken. The layout is the caller's to name:
//! names of several layouts look alike, and it is never guessed.

use std::collections::HashMap;

use baton_client::{Error, Session};
use baton_proto::path::join;
use serde::Serialize;

use super::error::InspectError;
use super::inspector::Inspector;
use super::node_info::{NodeInfo, UnreadableNode, answer, children, read_all};
use crate::queue::QueueKind;
use crate::wait_queue::order::{self, SequentialChild};

/// Number of items that are asked for at once where the first may be taken meanwhile.
const FIRST: usize = 8;

/// A queue, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueSnapshot {
    /// The path of the folder of items.
    pub path: String,
    /// Number of items, with those that are not due.
    pub depth: usize,
    /// The item that comes first in the queue's order, due or not.
    pub first: Option<NodeInfo>,
    /// The item that has been in the queue for the longest time.
    pub oldest: Option<NodeInfo>,
    /// The names of children that are no items of this layout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

/// A claim on an item of a locking queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ItemClaim {
    /// The item's name.
    pub item: String,
    /// The claim's node: who works on the item, and since when. Its `czxid` is the fencing token.
    #[serde(flatten)]
    pub info: NodeInfo,
}

/// A locking queue, as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockingQueueSnapshot {
    /// The items, with those that are claimed.
    #[serde(flatten)]
    pub items: QueueSnapshot,
    /// The claims on them, the oldest first.
    pub claims: Vec<ItemClaim>,
    /// Claims that this client may not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableNode>,
}

impl Inspector {
    /// The queue at `path`, whose items have the names of `kind`. No items where there is no node.
    ///
    /// Reads the list of items, and the Stat of a few. Only past the end of the server's counter,
    /// where names do not determine the order, is each item read.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn queue(&self, path: &str, kind: QueueKind) -> Result<QueueSnapshot, InspectError> {
        self.run(|session| async move {
            let (snapshot, _) = read(&session, path, kind).await?;
            Ok(snapshot)
        })
        .await
    }

    /// The [`LockingQueue`](crate::queue::LockingQueue) at `path` in the layout of kazoo; with
    /// `lock_path` in that of Curator, whose claims are there.
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn locking_queue(
        &self,
        path: &str,
        lock_path: Option<&str>,
    ) -> Result<LockingQueueSnapshot, InspectError> {
        let (items, claims, format) = match lock_path {
            Some(claims) => (path.to_owned(), claims.to_owned(), QueueKind::Curator),
            None => (join(path, "entries"), join(path, "taken"), QueueKind::Kazoo),
        };
        let (items, claims) = (&*items, &*claims);
        self.run(|session| async move {
            let (items, names) = read(&session, items, format).await?;
            let claimed = children(&session, claims).await?.unwrap_or_default();
            let claimed: Vec<_> = claimed
                .into_iter()
                .filter(|name| names.contains_key(name))
                .map(|name| join(claims, &name))
                .collect();
            let mut unreadable = Vec::new();
            let read = read_all(&session, &claimed, &mut unreadable, |at, data| {
                let info = NodeInfo::new(claimed.get(at)?, data);
                let item = info.name().to_owned();
                Some(ItemClaim { item, info })
            });
            let mut claims: Vec<_> = read.await?.into_iter().flatten().collect();
            claims.sort_by(|one, other| {
                (one.info.czxid, &one.item).cmp(&(other.info.czxid, &other.item))
            });
            Ok(LockingQueueSnapshot {
                items,
                claims,
                unreadable,
            })
        })
        .await
    }
}

/// The queue, and the class of each item by its name.
async fn read(
    session: &Session,
    path: &str,
    format: QueueKind,
) -> Result<(QueueSnapshot, HashMap<String, i64>), Error> {
    let mut others = Vec::new();
    let mut classes = HashMap::new();
    let mut items = Vec::new();
    for name in children(session, path).await?.unwrap_or_default() {
        match format.key(&name) {
            Some(key) => {
                classes.insert(name.clone(), key.class);
                items.push(SequentialChild {
                    name,
                    number: key.number,
                    czxid: None,
                });
            }
            None => others.push(name),
        }
    }
    // The numbers of one folder rise with each item, whatever its class.
    let by_age = order::arrange_with(session, path, items).await?;
    let mut by_class: Vec<_> = by_age.iter().collect();
    by_class.sort_by_key(|item| classes.get(&item.name));
    let oldest = first_of(session, path, by_age.iter());
    let first = first_of(session, path, by_class.into_iter());
    let (oldest, first) = (oldest.await?, first.await?);
    let snapshot = QueueSnapshot {
        path: path.to_owned(),
        depth: by_age.len(),
        first,
        oldest,
        others,
    };
    Ok((snapshot, classes))
}

/// The first of these items that is still there. The requests are sent before the future is first
/// polled.
fn first_of<'a>(
    session: &Session,
    path: &str,
    items: impl Iterator<Item = &'a SequentialChild>,
) -> impl Future<Output = Result<Option<NodeInfo>, Error>> {
    let asked: Vec<_> = items
        .take(FIRST)
        .map(|item| {
            let node = join(path, &item.name);
            let stat = session.exists(&node);
            (node, stat)
        })
        .collect();
    let session = session.clone();
    async move {
        for (node, stat) in asked {
            let stat = match answer(&session, stat, || session.exists(&node)).await {
                Err(error) if error.is_no_auth() => continue,
                stat => stat?,
            };
            if let Some(stat) = stat {
                return Ok(Some(NodeInfo::of_stat(&node, &stat)));
            }
        }
        Ok(None)
    }
}

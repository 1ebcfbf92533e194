//! The wait queue at a lock's path, whichever library made its nodes: who holds, who waits, in
//! order.
//!
//! Owns how a wait queue is read for people. It only reads, and decides nothing about who holds; a
//! node counts only while a session owns it. The order is that of creation (`czxid`), which is the
//! order of the queue in every naming scheme (`hazards.md` §2.1, H21), with one exception: a writer
//! that has become a reader keeps its position (H43).

use baton::record::Record;
use baton_client::{Error, Session};
use baton_proto::path::join;
use serde::Serialize;

use crate::exit::Failure;

/// The one node of a simple lock.
const SIMPLE: &str = "lock";
/// In the name of a reader's node, the text before the number.
const READS: [&str; 3] = ["__READ__", "__rlock__", "-R-"];
/// The same, for a writer among readers.
const WRITES: [&str; 2] = ["__WRIT__", "-W-"];
/// The same, for an exclusive lock. (Kazoo names its writers like its locks.)
const ALONE: [&str; 3] = ["lock-", "latch-", "__lock__"];
/// The same, for a semaphore's permit.
const LEASE: &str = "lease-";
/// The data that is written to a holder's node to ask for the lock: by Curator, and by ZooKeeper's
/// page on recipes.
const REQUESTS: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];
/// The longest text of another library's that is shown as its holder's name.
const LONGEST_NAME: usize = 60;

/// The kind of lock that a wait queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// One at a time: a mutex, an election.
    Lock,
    /// Readers and writers.
    ReadWrite,
    /// One node that all watch.
    Simple,
    /// Permits.
    Semaphore,
}

/// One node of a wait queue.
#[derive(Debug, Serialize)]
pub(crate) struct QueueNode {
    pub(crate) node: String,
    pub(crate) token: i64,
    pub(crate) session: String,
    pub(crate) since_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<Record>,
    /// The data of another library's node, if it is a short text.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    /// Whether somebody has asked this holder to release.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) asked: bool,
    /// The `czxid` that counts for the order.
    #[serde(skip)]
    rank: i64,
    #[serde(skip)]
    reads: bool,
    #[serde(skip)]
    pub(crate) version: i32,
}

impl QueueNode {
    /// The process that owns the node, for people.
    pub(crate) fn who(&self) -> String {
        match (&self.holder, &self.data) {
            (Some(record), _) => shown(record),
            (None, _) if self.asked => "asked to let go".to_owned(),
            (None, Some(text)) => format!("another program ({text})"),
            (None, None) => "another program".to_owned(),
        }
    }
}

/// A process that has written a record of Baton's, for people: host, process id and name.
pub(crate) fn shown(record: &Record) -> String {
    let name = record
        .name
        .as_deref()
        .map(|name| format!(" ({name})"))
        .unwrap_or_default();
    format!("{}:{}{name}", record.host, record.pid)
}

/// All nodes of one wait queue, the holders first.
#[derive(Debug)]
pub(crate) struct LockState {
    pub(crate) kind: Kind,
    pub(crate) nodes: Vec<QueueNode>,
    /// How many of them hold.
    pub(crate) holding: usize,
    /// Of a semaphore, how many permits there are.
    pub(crate) permits: Option<u32>,
}

impl LockState {
    pub(crate) fn holders(&self) -> &[QueueNode] {
        self.nodes.get(..self.holding).unwrap_or_default()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.nodes.len() - self.holding
    }
}

/// The result of reading one path.
#[derive(Debug)]
pub(crate) struct LockReading {
    /// The wait queue, if there is one.
    pub(crate) lock: Option<LockState>,
    /// The names of the children that do not belong to it.
    pub(crate) others: Vec<String>,
    /// The nodes that should have been read and could not be, and why. One of them may come before
    /// all others.
    pub(crate) unreadable: Vec<(String, Error)>,
}

/// Reads the wait queue at `path`, as far as this user may read it.
///
/// # Errors
/// The children of `path` cannot be listed, or the connection was lost.
pub(crate) async fn read(session: &Session, path: &str) -> Result<LockReading, Error> {
    let (own, mut others) = match session.children(path).await {
        Ok(children) => split(children.names),
        Err(error) if error.is_no_node() => Default::default(),
        Err(error) => return Err(error),
    };
    let mut aside = Skipped::default();
    let lock = match permits(session, path, &others, &mut aside).await? {
        Some(semaphore) => semaphore,
        None => {
            let kind = match () {
                () if own.iter().any(|(_, kind)| kind.is_shared()) => Kind::ReadWrite,
                () if own.iter().any(|(name, _)| name == SIMPLE) => Kind::Simple,
                () => Kind::Lock,
            };
            let minted = kind == Kind::ReadWrite;
            let nodes = read_nodes(session, path, own, minted, &mut aside).await?;
            LockState {
                kind,
                holding: holding(&nodes),
                nodes,
                permits: None,
            }
        }
    };
    let bystanders = aside.bystanders.iter();
    others.extend(
        bystanders
            .filter(|node| baton_proto::path::parent(node) == path)
            .map(|node| baton_proto::path::name(node).to_owned()),
    );
    Ok(LockReading {
        lock: Some(lock).filter(|lock| !lock.nodes.is_empty()),
        others,
        unreadable: aside.unreadable,
    })
}

/// Nodes that a read has met and that belong to no wait queue.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    /// Nodes that could not be read, and why.
    unreadable: Vec<(String, Error)>,
    /// Full paths of nodes that have the name of a queue node, and that no session owns.
    bystanders: Vec<String>,
}

/// The result of a read; `None` where the node does not exist, or may not be read, which is noted.
fn readable<T>(
    path: &str,
    read: Result<T, Error>,
    aside: &mut Skipped,
) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) if error.is_no_auth() => {
            aside.unreadable.push((path.to_owned(), error));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The semaphore at `path`, if there is one: whose permits are held, or whose number is known.
async fn permits(
    session: &Session,
    path: &str,
    others: &[String],
    aside: &mut Skipped,
) -> Result<Option<LockState>, Error> {
    let (leases, waiting) = if others.iter().any(|name| name == "leases") {
        // Curator's and ours: permits and waiters have folders of their own.
        let leases = join(path, "leases");
        let permit = |kind| kind == NodeKind::Permit;
        let leases = under(session, &leases, permit, aside).await?;
        (leases, join(path, "locks"))
    } else {
        // kazoo's: permits are children of the path, and who waits has a folder beside it.
        let bare = others.iter().filter(|name| is_bare_marker(name));
        let leases: Vec<_> = bare
            .map(|name| (join(path, name), NodeKind::Permit))
            .collect();
        if leases.is_empty() {
            return Ok(None);
        }
        (leases, format!("{path}-__lock__"))
    };
    let permits = number_at(session, path, aside).await?;
    let mut all = read_nodes(session, path, leases, true, aside).await?;
    // Curator does not store the number; kazoo does, and others name other things by 32 hex digits.
    if permits.is_none() && (all.is_empty() || waiting.ends_with("-__lock__")) {
        return Ok(None);
    }
    let holding = all.len();
    let exclusive = |kind| kind == NodeKind::Exclusive;
    let waiters = under(session, &waiting, exclusive, aside).await?;
    all.extend(read_nodes(session, path, waiters, false, aside).await?);
    Ok(Some(LockState {
        kind: Kind::Semaphore,
        nodes: all,
        holding,
        permits,
    }))
}

/// The kind of a queue node, from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Exclusive,
    Read,
    Write,
    Permit,
}

impl NodeKind {
    fn is_shared(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// The kind that a name says; `None` where it is not the name of a queue node. The server's
    /// number has ten digits or more, perhaps a sign.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if name == SIMPLE {
            return Some(Self::Exclusive);
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if name.len() - stem.len() < 9 {
            return None;
        }
        let unsigned = stem.strip_suffix('-').unwrap_or(stem);
        let ends = |tokens: &[&str]| {
            tokens
                .iter()
                .any(|token| stem.ends_with(token) || unsigned.ends_with(token))
        };
        if ends(&READS) {
            Some(Self::Read)
        } else if ends(&WRITES) {
            Some(Self::Write)
        } else if ends(&[LEASE]) {
            Some(Self::Permit)
        } else if ends(&ALONE) || is_write_lock(stem) || is_election_node(unsigned) {
            Some(Self::Exclusive)
        } else {
            None
        }
    }
}

/// zookeeper-recipes' `WriteLock`: `x-`, the session in decimal or hex, perhaps Baton's marker.
fn is_write_lock(stem: &str) -> bool {
    stem.strip_prefix("x-").is_some_and(|rest| {
        rest.ends_with('-')
            && rest.len() > 1
            && rest.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
    })
}

/// zookeeper-recipes' `LeaderElectionSupport`: `n_`, perhaps Baton's marker, written in zeros of
/// other scripts.
fn is_election_node(stem: &str) -> bool {
    stem.strip_prefix("n_")
        .is_some_and(|marker| marker.chars().all(|c| !c.is_ascii() && c.is_numeric()))
}

/// The 32 hex digits by which kazoo names a semaphore's permit.
fn is_bare_marker(name: &str) -> bool {
    name.len() == 32 && name.chars().all(|c| c.is_ascii_hexdigit())
}

/// The queue nodes among the names, and the rest. A permit's name alone is not one.
fn split(names: Vec<String>) -> (Vec<(String, NodeKind)>, Vec<String>) {
    let mut nodes = Vec::new();
    let mut others = Vec::new();
    for name in names {
        match NodeKind::of(&name) {
            Some(kind) if kind != NodeKind::Permit => nodes.push((name, kind)),
            _ => others.push(name),
        }
    }
    (nodes, others)
}

/// The children of a folder that are of a `wanted` kind, with their full paths.
async fn under(
    session: &Session,
    folder: &str,
    wanted: impl Fn(NodeKind) -> bool,
    aside: &mut Skipped,
) -> Result<Vec<(String, NodeKind)>, Error> {
    let listed = session.children(folder).await;
    let Some(children) = readable(folder, listed, aside)? else {
        return Ok(Vec::new());
    };
    Ok(children
        .names
        .iter()
        .filter_map(|name| Some((join(folder, name), NodeKind::of(name)?)))
        .filter(|(_, kind)| wanted(*kind))
        .collect())
}

/// How many nodes of a queue hold: the first, or all readers up to the first writer.
fn holding(nodes: &[QueueNode]) -> usize {
    let readers = nodes.iter().take_while(|node| node.reads).count();
    readers.max(nodes.len().min(1))
}

/// Reads the nodes, which are named by their full paths or below `path`, and puts them in order.
///
/// With `minted`, a node's token is the zxid of the change by which it was granted; else the zxid
/// of its creation.
pub(crate) async fn read_nodes(
    session: &Session,
    path: &str,
    nodes: Vec<(String, NodeKind)>,
    minted: bool,
    aside: &mut Skipped,
) -> Result<Vec<QueueNode>, Error> {
    let mut queue = Vec::with_capacity(nodes.len());
    for (name, kind) in nodes {
        let node = if name.starts_with('/') {
            name
        } else {
            join(path, &name)
        };
        let read = session.get_data(&node).await;
        let read = match readable(&node, read, aside)? {
            Some(read) if read.stat.ephemeral_owner != 0 => read,
            // No session owns it: for example a folder that is named like a queue node.
            Some(_) => {
                aside.bystanders.push(node);
                continue;
            }
            // It was deleted since.
            None => continue,
        };
        let holder = Record::from_bytes(&read.data);
        let asked = REQUESTS.contains(&&*read.data);
        let czxid = read.stat.czxid;
        let kept = holder.as_ref().and_then(|record| record.kept_position);
        queue.push(QueueNode {
            token: if minted { read.stat.mzxid } else { czxid },
            rank: kept.map_or(czxid, |place| place.min(czxid)),
            reads: kind == NodeKind::Read,
            session: format!("0x{:x}", read.stat.ephemeral_owner),
            since_ms: read.stat.ctime,
            data: (holder.is_none() && !asked)
                .then(|| short_text(&read.data))
                .flatten(),
            holder,
            asked,
            version: read.stat.version,
            node,
        });
    }
    queue.sort_by_key(|node| node.rank);
    Ok(queue)
}

/// The data of another library's node, if it can be shown on one line.
fn short_text(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?.trim();
    let shown = !text.is_empty()
        && text.chars().count() <= LONGEST_NAME
        && !text.chars().any(char::is_control);
    shown.then(|| text.to_owned())
}

async fn number_at(
    session: &Session,
    path: &str,
    aside: &mut Skipped,
) -> Result<Option<u32>, Error> {
    let read = session.get_data(path).await;
    Ok(readable(path, read, aside)?.and_then(|read| {
        let text = std::str::from_utf8(&read.data).ok()?;
        text.trim().parse().ok()
    }))
}

pub(crate) fn failure(error: &Error) -> Failure {
    Failure::baton(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{NodeKind, QueueNode, holding, is_bare_marker};

    #[test]
    fn queue_nodes_are_recognised_by_their_names() {
        for (name, kind) in [
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lock-0000000007",
                NodeKind::Exclusive,
            ),
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-latch-0000000007",
                NodeKind::Exclusive,
            ),
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-__READ__0000000007",
                NodeKind::Read,
            ),
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lease-0000000007",
                NodeKind::Permit,
            ),
            ("0123456789abcdef__lock__0000000012", NodeKind::Exclusive),
            ("0123__rlock__0000000012", NodeKind::Read),
            ("host.0123456789abcdef-W-0000000012", NodeKind::Write),
            ("_c_x-lock--2147483648", NodeKind::Exclusive),
            ("lock", NodeKind::Exclusive),
            ("x-72057594037927936-0000000003", NodeKind::Exclusive),
            ("x--72057594037927936-0000000003", NodeKind::Exclusive),
            (
                "x-12-0123456789abcdef0123456789abcdef-0000000003",
                NodeKind::Exclusive,
            ),
            ("n_0000000003", NodeKind::Exclusive),
            ("n_\u{660}\u{6f0}0000000003", NodeKind::Exclusive),
            ("n_-2147483648", NodeKind::Exclusive),
        ] {
            assert_eq!(NodeKind::of(name), Some(kind), "{name}");
        }
        for other in [
            "deploy",
            "lock-7",
            "order-0000000001",
            "locks",
            "0000000001",
            "x-ray-0000000001",
            "n_odes0000000001",
            "qn-0000000001",
        ] {
            assert_eq!(NodeKind::of(other), None, "{other}");
        }
        assert!(is_bare_marker("0123456789abcdef0123456789abcdef"));
    }

    #[test]
    fn one_holds_or_all_readers_before_the_first_writer() {
        let queue = |kinds: &str| -> Vec<QueueNode> {
            let node = |kind| QueueNode {
                node: String::new(),
                token: 0,
                session: String::new(),
                since_ms: 0,
                holder: None,
                data: None,
                asked: false,
                rank: 0,
                reads: kind == 'R',
                version: 0,
            };
            kinds.chars().map(node).collect()
        };
        for (kinds, expected) in [
            ("", 0),
            ("W", 1),
            ("WW", 1),
            ("RRW", 2),
            ("WRR", 1),
            ("RR", 2),
        ] {
            assert_eq!(holding(&queue(kinds)), expected, "{kinds}");
        }
    }
}

//! Locks, semaphores and elections: holders, and waiters in order.
//!
//! Owns who counts as a holder. Must never count a permit that was asked for and not granted, nor
//! say that a node waits for one of another naming scheme.

use std::collections::HashMap;

use baton_client::{Data, Error, Session};
use baton_proto::path::{join, name, parent};
use serde::Serialize;

use super::children::{Candidate, Children, ForeignChild, NodeMode, Scheme};
use super::error::InspectError;
use super::inspector::Inspector;
use super::lock_node::{LockNode, PlacedNode, read_in_order};
use super::node_info::{NodeInfo, UnreadableNode, answer, children, readable};
use crate::naming::{Refusal, is_kazoo_lease};
use crate::rendering::OneLine;
use crate::semaphore::{LEASES, LOCKS};

/// Suffix that kazoo appends to a semaphore's path for the folder of those who wait.
pub(super) const KAZOO_WAITERS: &str = "-__lock__";

/// Kind of the lock at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LockKind {
    /// One holder at a time: a mutex, an election. Also a path without nodes of a lock.
    Lock,
    /// Readers and writers.
    ReadWrite,
    /// One node that all wait for.
    Simple,
    /// Permits.
    Semaphore,
}

/// The wait queue at a path, as it was read: one list and one read of each node, so not of one
/// instant. A node that was deleted in between is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockSnapshot {
    /// The lock's path.
    pub path: String,
    /// Whether there is a node at the path.
    pub exists: bool,
    /// The kind of lock.
    pub kind: LockKind,
    /// Holders, in order. Each permit of a semaphore is one node: see [`LockSnapshot::permits_of`].
    pub holders: Vec<LockNode>,
    /// Waiters, in the order in which they are served.
    pub waiters: Vec<LockNode>,
    /// Permits that the first waiter of a semaphore has asked for and that are not free yet. That
    /// waiter is among [`waiters`](Self::waiters), too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<LockNode>,
    /// Number of permits of a semaphore, where the tree has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// Nodes with the name of a waiter node that no session owns: a folder that is named like one,
    /// or a node that blocks the lock until somebody deletes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unowned: Vec<NodeInfo>,
    /// Children that look like nodes of a lock and belong to no wait queue here. Baton's recipes
    /// refuse a path with such a child.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<ForeignChild>,
    /// The names of the other children.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// The nodes that this client may not read. One of them may come before all others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableNode>,
}

/// A child of a lock's directory below which there may be other locks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Folder {
    /// Its name, without the directory.
    pub name: String,
    /// Whether its nodes belong to this lock, or to one beside it, and are in that snapshot.
    pub is_part_of_lock: bool,
}

impl LockSnapshot {
    /// A path without nodes of a lock.
    fn empty(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            exists: false,
            kind: LockKind::Lock,
            holders: Vec::new(),
            waiters: Vec::new(),
            pending: Vec::new(),
            permits: None,
            unowned: Vec::new(),
            foreign: Vec::new(),
            others: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// The wait queue that these children of `path` make, by their names and as they were read.
    ///
    /// For callers that keep what they have read, as a survey of a whole tree does;
    /// [`Inspector::lock`] reads the children itself. A child whose data is not known counts with
    /// empty data. Permits of a semaphore are no wait queue: see
    /// [`of_semaphore`](Self::of_semaphore).
    #[must_use]
    pub fn of_children(path: &str, children: &[(&str, Data)]) -> Self {
        let mut snapshot = Self::empty(path);
        snapshot.exists = true;
        let names = children.iter().map(|(name, _)| (*name).to_owned());
        let found = Children::of_lock(path, names.collect());
        let nodes = placed(&found.candidates, children, &mut snapshot.unowned);
        snapshot.set_nodes(nodes);
        snapshot.foreign = found.foreign;
        snapshot.others = found.others;
        snapshot
    }

    /// The semaphore at `path`, from its own data, which may be the number of permits, and the
    /// children of its folders of permits and of waiters, as they were read. `is_kazoo`: in the
    /// layout of kazoo, where permits are children of `path` itself.
    #[must_use]
    pub fn of_semaphore(
        path: &str,
        data: &[u8],
        is_kazoo: bool,
        leases: &[(&str, Data)],
        waiters: &[(&str, Data)],
    ) -> Self {
        let permits = permits_in(data);
        let mut snapshot = Self::empty(path);
        snapshot.exists = true;
        let [folder, queue] = semaphore_folders(path, is_kazoo);
        let names = leases.iter().map(|(name, _)| (*name).to_owned()).collect();
        let (candidates, uncounted) = if is_kazoo {
            let mut found = Children::of_lock(&folder, names);
            (found.take_kazoo_permits(&folder), Vec::new())
        } else {
            let found = Children::of_permits(&folder, names);
            (found.candidates, found.foreign)
        };
        let leased = placed(&candidates, leases, &mut snapshot.unowned);
        let names = waiters.iter().map(|(name, _)| (*name).to_owned()).collect();
        let waiting = exclusive(Children::of_lock(&queue, names).candidates);
        let waiting = placed(&waiting, waiters, &mut snapshot.unowned);
        let bound = permits.filter(|_| !is_kazoo);
        let (holders, pending) = granted_and_pending(leased, bound, uncounted.len());
        Self {
            kind: LockKind::Semaphore,
            permits,
            holders,
            pending,
            waiters: waiting,
            foreign: uncounted,
            ..snapshot
        }
    }

    /// Sets holders, waiters and kind from the nodes of a wait queue, in their order.
    fn set_nodes(&mut self, nodes: Vec<LockNode>) {
        self.kind = kind_of(&nodes);
        (self.holders, self.waiters) = holders_and_waiters(nodes);
    }

    /// Returns whether anybody holds or waits.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.nodes().next().is_some()
    }

    /// Returns whether all nodes could be read. Otherwise an unreadable node may be the holder.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Returns whether there are nodes of several naming schemes, which do not wait for one
    /// another: each scheme has a holder of its own.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        // Those who wait for permits have the names of a mutex.
        let mut schemes = self.nodes().map(|node| node.scheme);
        self.kind != LockKind::Semaphore
            && schemes
                .next()
                .is_some_and(|first| schemes.any(|scheme| scheme != first))
    }

    /// The holders, then the waiters.
    pub fn nodes(&self) -> impl Iterator<Item = &LockNode> {
        self.holders.iter().chain(&self.waiters)
    }

    /// The holder with this fencing token.
    #[must_use]
    pub fn holder_with_token(&self, token: u64) -> Option<&LockNode> {
        self.holders
            .iter()
            .find(|holder| holder.token == Some(token))
    }

    /// Number of a semaphore's permits that were granted together with that of `holder`, itself
    /// included; 1 for a lock.
    #[must_use]
    pub fn permits_of(&self, holder: &LockNode) -> usize {
        let together = |other: &&LockNode| other.info.czxid == holder.info.czxid;
        match holder.mode {
            NodeMode::Permit => self.holders.iter().filter(together).count(),
            _ => 1,
        }
    }

    /// The children below which there may be other locks, sorted by name.
    #[must_use]
    pub fn folders(&self) -> Vec<Folder> {
        let foreign = self.foreign.iter().map(|child| &*child.path);
        let unowned = self.unowned.iter().map(|node| &*node.path);
        let children = foreign.chain(unowned);
        // A semaphore's are in folders of its own, too.
        let children = children.filter(|path| parent(path) == self.path);
        let others = self.others.iter().map(String::as_str);
        let mut names: Vec<&str> = others.chain(children.map(name)).collect();
        names.sort_unstable();
        let is_own = |name: &str| match name.strip_suffix(KAZOO_WAITERS) {
            // Where those wait who want a permit of kazoo's semaphore beside it.
            Some(semaphore) => names.binary_search(&semaphore).is_ok(),
            None => self.kind == LockKind::Semaphore && [LEASES, LOCKS].contains(&name),
        };
        names
            .iter()
            .map(|name| Folder {
                name: (*name).to_owned(),
                is_part_of_lock: is_own(name),
            })
            .collect()
    }
}

/// One line: the path, who holds, how many wait.
impl std::fmt::Display for LockSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", OneLine(&self.path))?;
        match (self.holders.as_slice(), self.permits) {
            ([], _) => f.write_str("free")?,
            ([holder], None) => write!(f, "held by {holder}")?,
            (holders, None) => write!(f, "held by {}", holders.len())?,
            (holders, Some(permits)) => write!(f, "{} of {permits} held", holders.len())?,
        }
        write!(f, ", {} waiting", self.waiters.len())
    }
}

impl Inspector {
    /// The holders and the waiters of the lock, semaphore or election at `path`.
    ///
    /// Reads one list, then each node in pipelined requests; of a semaphore three lists. A path
    /// without a node, or without nodes of a lock, has a snapshot without holders and waiters.
    ///
    /// # Errors
    /// [`InspectError`], also where this client may not list the children of `path`. A single node
    /// that it may not read is in [`LockSnapshot::unreadable`].
    pub async fn lock(&self, path: &str) -> Result<LockSnapshot, InspectError> {
        self.run(|session| async move { read(&session, path).await })
            .await
    }
}

async fn read(session: &Session, path: &str) -> Result<LockSnapshot, Error> {
    let mut snapshot = LockSnapshot::empty(path);
    let listed = children(session, path).await?;
    snapshot.exists = listed.is_some();
    let mut found = Children::of_lock(path, listed.unwrap_or_default());
    if !read_semaphore(session, &mut found, &mut snapshot).await? {
        let (unowned, unreadable) = (&mut snapshot.unowned, &mut snapshot.unreadable);
        let nodes = read_in_order(session, &found.candidates, unowned, unreadable).await?;
        snapshot.set_nodes(nodes);
    }
    snapshot.foreign.extend(found.foreign);
    snapshot.others = found.others;
    Ok(snapshot)
}

/// The nodes of `candidates`, in their order, from the children of one folder as they were read.
fn placed(
    candidates: &[Candidate],
    children: &[(&str, Data)],
    unowned: &mut Vec<NodeInfo>,
) -> Vec<LockNode> {
    let read: HashMap<&str, &Data> = children.iter().map(|(name, data)| (*name, data)).collect();
    let nodes = candidates
        .iter()
        .filter_map(|child| Some(PlacedNode::new(child, read.get(child.name())?)));
    PlacedNode::in_order(nodes.collect(), unowned)
}

/// The folders of a semaphore at `path`: of its permits, and of those who wait.
#[must_use]
pub fn semaphore_folders(path: &str, is_kazoo: bool) -> [String; 2] {
    match is_kazoo {
        // Permits are children of the path, and who waits has a folder beside it.
        true => [path.to_owned(), format!("{path}{KAZOO_WAITERS}")],
        false => [join(path, LEASES), join(path, LOCKS)],
    }
}

/// Number of permits that the data of a semaphore's node names, if it does.
pub(super) fn permits_in(data: &[u8]) -> Option<u32> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}

fn kind_of(nodes: &[LockNode]) -> LockKind {
    let has = |wanted: fn(&LockNode) -> bool| nodes.iter().any(wanted);
    if has(|node| matches!(node.scheme, Scheme::ReadWrite(_))) {
        LockKind::ReadWrite
    } else if has(|node| node.scheme == Scheme::Simple) {
        LockKind::Simple
    } else {
        LockKind::Lock
    }
}

/// Splits the nodes: the first of each naming scheme holds, and with a reader all readers up to the
/// first writer.
fn holders_and_waiters(nodes: Vec<LockNode>) -> (Vec<LockNode>, Vec<LockNode>) {
    // The schemes so far, each with whether all of its nodes so far were readers.
    let mut seen: Vec<(Scheme, bool)> = Vec::new();
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for node in nodes {
        let is_reader = node.mode == NodeMode::Read;
        let holds = match seen.iter_mut().find(|(scheme, _)| *scheme == node.scheme) {
            None => {
                seen.push((node.scheme, is_reader));
                true
            }
            Some((_, only_readers)) => {
                *only_readers &= is_reader;
                *only_readers
            }
        };
        if holds {
            holders.push(node.granted());
        } else {
            waiters.push(node);
        }
    }
    (holders, waiters)
}

/// The permits and their waiters, where there is a semaphore: one whose permits are held, or whose
/// number of permits is known. `false`: there is none.
async fn read_semaphore(
    session: &Session,
    found: &mut Children,
    snapshot: &mut LockSnapshot,
) -> Result<bool, Error> {
    let path = snapshot.path.clone();
    let in_folders = found.others.iter().any(|name| name == LEASES);
    if !in_folders && !found.others.iter().any(|name| is_kazoo_lease(name)) {
        return Ok(false);
    }
    let [leases, waiters] = semaphore_folders(&path, !in_folders);
    let sent = (
        session.get_data(&path),
        session.children(&waiters),
        in_folders.then(|| session.children(&leases)),
    );
    let mut unreadable = Vec::new();
    let number = answer(session, sent.0, || session.get_data(&path)).await;
    let permits = readable(&path, number, &mut unreadable)?.and_then(|read| permits_in(&read.data));
    if permits.is_none() && !in_folders {
        // Curator does not store the number; kazoo does, and others name other things by 32 hex
        // digits.
        snapshot.unreadable = unreadable;
        return Ok(false);
    }
    let waiting = answer(session, sent.1, || session.children(&waiters)).await;
    let waiting = readable(&waiters, waiting, &mut unreadable)?;
    let (leased, uncounted) = match sent.2 {
        Some(listed) => {
            let listed = answer(session, listed, || session.children(&leases)).await;
            let listed = readable(&leases, listed, &mut unreadable)?;
            let names = listed.map_or_else(Vec::new, |children| children.names);
            let permits = Children::of_permits(&leases, names);
            (permits.candidates, permits.foreign)
        }
        None => (found.take_kazoo_permits(&path), Vec::new()),
    };
    let mut unowned = Vec::new();
    let before = unreadable.len();
    let leased = read_in_order(session, &leased, &mut unowned, &mut unreadable).await?;
    let hidden = unreadable.len() - before;
    if permits.is_none() && leased.is_empty() {
        snapshot.unreadable = unreadable;
        return Ok(false);
    }
    let waiting = waiting.map_or_else(Vec::new, |children| children.names);
    let queue = Children::of_lock(&waiters, waiting);
    let queue = exclusive(queue.candidates);
    let queue = read_in_order(session, &queue, &mut unowned, &mut unreadable).await?;
    // kazoo makes a permit only once it is free.
    let bound = permits.filter(|_| in_folders);
    let (holders, pending) = granted_and_pending(leased, bound, uncounted.len() + hidden);
    snapshot.kind = LockKind::Semaphore;
    snapshot.permits = permits;
    snapshot.holders = holders;
    snapshot.pending = pending;
    snapshot.waiters = queue;
    snapshot.unowned = unowned;
    snapshot.unreadable = unreadable;
    snapshot.foreign = uncounted;
    // A lock's nodes beside the folders of a semaphore.
    let beside = std::mem::take(&mut found.candidates).into_iter();
    let why = Refusal::OtherDialect("a node of a lock, at a semaphore's path");
    snapshot.foreign.extend(beside.map(|child| ForeignChild {
        path: child.path,
        why,
    }));
    Ok(true)
}

/// Those who wait for permits do so in a mutex.
fn exclusive(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let is_exclusive = |child: &Candidate| child.mode == NodeMode::Exclusive;
    candidates.into_iter().filter(is_exclusive).collect()
}

/// The permits that count, and those that were only asked for. Permits of one acquisition were
/// created in one change: they count together, once no more than `permits` were created up to the
/// last of them, or once one of them has been written to, which mints their token. `uncounted`
/// children take a permit each, and may come before all others.
fn granted_and_pending(
    leases: Vec<LockNode>,
    permits: Option<u32>,
    uncounted: usize,
) -> (Vec<LockNode>, Vec<LockNode>) {
    let most = permits.map_or(usize::MAX, |permits| {
        usize::try_from(permits).unwrap_or(usize::MAX)
    });
    let (mut granted, mut pending) = (Vec::new(), Vec::new());
    let mut up_to_last = 0;
    for group in leases.chunk_by(|one, next| one.info.czxid == next.info.czxid) {
        up_to_last += group.len();
        let minted = |lease: &LockNode| lease.info.version > i32::from(lease.asked);
        if up_to_last + uncounted <= most || group.iter().any(minted) {
            let newest = group.iter().map(|lease| lease.info.mzxid).max();
            let token = newest.and_then(|token| u64::try_from(token).ok());
            granted.extend(
                group
                    .iter()
                    .cloned()
                    .map(|lease| LockNode { token, ..lease }),
            );
        } else {
            pending.extend_from_slice(group);
        }
    }
    (granted, pending)
}

#[cfg(test)]
mod tests {
    use baton_proto::Stat;

    use super::*;
    use crate::naming::{Dialect, RwDialect};

    fn node(scheme: Scheme, mode: NodeMode, czxid: i64) -> LockNode {
        let stat = Stat {
            czxid,
            mzxid: czxid,
            ephemeral_owner: 1,
            ..Stat::default()
        };
        LockNode {
            info: NodeInfo::of_stat(&format!("/x/{czxid}"), &stat),
            scheme,
            mode,
            token: None,
            asked: false,
        }
    }

    fn holding(kinds: &str) -> usize {
        let nodes = kinds.chars().zip(1..).map(|(kind, czxid)| {
            let (scheme, mode) = match kind {
                'R' => (Scheme::ReadWrite(RwDialect::Curator), NodeMode::Read),
                'W' => (Scheme::ReadWrite(RwDialect::Curator), NodeMode::Write),
                'k' => (Scheme::Mutex(Dialect::Kazoo), NodeMode::Exclusive),
                _ => (Scheme::Mutex(Dialect::Curator), NodeMode::Exclusive),
            };
            node(scheme, mode, czxid)
        });
        holders_and_waiters(nodes.collect()).0.len()
    }

    #[test]
    fn one_holds_or_all_readers_before_the_first_writer_of_each_scheme() {
        for (kinds, expected) in [
            ("", 0),
            ("W", 1),
            ("WW", 1),
            ("RRW", 2),
            ("RRWR", 2),
            ("WRR", 1),
            ("RR", 2),
            ("cckk", 2),
            ("ckRR", 4),
        ] {
            assert_eq!(holding(kinds), expected, "{kinds}");
        }
    }

    #[test]
    fn permits_of_one_acquisition_count_together_and_a_minted_token_counts_for_all() {
        let lease = |czxid, version| {
            let mut lease = node(Scheme::Semaphore, NodeMode::Permit, czxid);
            lease.info.version = version;
            lease
        };
        let count = |leases: &[(i64, i32)], permits, uncounted| {
            let leases = leases
                .iter()
                .map(|(czxid, version)| lease(*czxid, *version));
            let (granted, pending) = granted_and_pending(leases.collect(), permits, uncounted);
            (granted.len(), pending.len())
        };
        assert_eq!(count(&[(1, 0), (2, 0), (2, 0)], Some(3), 0), (3, 0));
        assert_eq!(count(&[(1, 0), (2, 0), (2, 0)], Some(2), 0), (1, 2));
        assert_eq!(count(&[(1, 0), (2, 0)], Some(2), 1), (1, 1));
        assert_eq!(count(&[(1, 0), (2, 0)], None, 1), (2, 0));
        // The number of permits was lowered while these held.
        assert_eq!(count(&[(1, 1), (2, 1), (2, 0), (3, 0)], Some(1), 0), (3, 1));
    }
}

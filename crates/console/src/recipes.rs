//! The recipes of a tree: locks, elections, queues, barriers, members.
//!
//! Owns which nodes of the known tree are handed to which recipe of the library. What names and
//! data mean is decided there ([`baton::inspect`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use baton::election::Term;
use baton::inspect::{
    self, FolderKind, GroupSnapshot, LockKind, LockNode, LockSnapshot, NodeInfo, Scheme,
};
use baton::naming::Dialect;
use baton::work_queue::{ItemNote, WorkFolders, is_claim};
use baton_client::path::{join, name, parent};
use serde::Serialize;

use crate::tree::KnownTree;

/// The subtree in which a server keeps what is its own.
const OF_THE_SERVER: &str = "/zookeeper";

/// Levels of a work queue below its own node: `items`, shard, item, claim.
const DEEPEST_PART: usize = 4;

/// A recipe of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "recipe", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Recipe {
    /// A lock or a semaphore.
    Lock(LockSnapshot),
    /// An election.
    Election(Election),
    /// A queue.
    Queue(Queue),
    /// A gate, a double barrier or a latch.
    Barrier(Barrier),
    /// A group of members.
    Members(GroupSnapshot),
}

/// An election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Election {
    /// The wait queue: its first holder leads, those who wait are candidates.
    #[serde(flatten)]
    pub queue: LockSnapshot,
    /// The newest term that a leader has counted, where the election is Baton's.
    pub term: Option<Term>,
}

/// Somebody who works on an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Claim {
    /// The path of the item.
    pub item: String,
    /// The node of the claim; its `czxid` is the fencing token.
    #[serde(flatten)]
    pub info: NodeInfo,
}

/// A dead letter of a work queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Letter {
    /// The name of its node.
    pub name: String,
    /// When it became one, milliseconds since 1970 by the server's clock.
    pub since_ms: i64,
    /// Text of its node; `None` where that cannot be read.
    pub note: Option<ItemNote>,
}

/// Path of a folder, the change that made it, and the numbers of children ever made and deleted.
pub(crate) type Turnover = (String, i64, [i64; 2]);

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Queue {
    /// Its path.
    pub path: String,
    /// `work`, or the library whose layout it has: `qn`, `curator`, `kazoo`, `kazoo-locking`.
    pub layout: &'static str,
    /// Items, with those that are claimed or not due.
    pub depth: u64,
    /// The most items; `None` for no limit.
    pub capacity: Option<u64>,
    /// The path of the oldest of the items that were read.
    pub oldest: Option<String>,
    /// Since when that one has been in the queue.
    pub oldest_since_ms: Option<i64>,
    /// Claims on the items that were read.
    pub claims: Vec<Claim>,
    /// Number of items read that have been tried before.
    pub retried: u64,
    /// Number of items that were read, the oldest of each folder. Of the others only the number is
    /// known.
    pub read: u64,
    /// Dead letters.
    pub dead: u64,
    /// The oldest dead letters.
    pub letters: Vec<Letter>,
    /// Consumers that wait for an item, as far as they say so.
    pub consumers: u64,
    /// One entry a folder of items: its path and the change that made it, and the numbers of
    /// children ever made and deleted.
    #[serde(skip)]
    pub turnover: Vec<Turnover>,
}

/// A gate, a double barrier or a latch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Barrier {
    /// Its path.
    pub path: String,
    /// `gate`, `double` or `latch`.
    pub kind: &'static str,
    /// Phase: `closed`, `open`, `waiting`, or the phase of the newest round.
    pub phase: &'static str,
    /// Number of participants to come, where the tree has it.
    pub count: Option<u32>,
    /// Number of them that are still to come.
    pub left: Option<u32>,
    /// The newest round.
    pub round: u64,
    /// The participants that have come.
    pub members: Vec<NodeInfo>,
}

/// Its phase, and how many have come: `gathering, 1 of 3 have come`.
impl Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.count, self.left) {
            (Some(count), Some(left)) if left > 0 => {
                let come = count.saturating_sub(left);
                write!(f, "{}, {come} of {count} have come", self.phase)
            }
            _ => f.write_str(self.phase),
        }
    }
}

impl Recipe {
    /// The wait queue, of a lock or an election.
    #[must_use]
    pub fn queue(&self) -> Option<&LockSnapshot> {
        match self {
            Self::Lock(queue) => Some(queue),
            Self::Election(election) => Some(&election.queue),
            Self::Queue(_) | Self::Barrier(_) | Self::Members(_) => None,
        }
    }

    /// The nodes of those who hold, lead, work or have come.
    pub fn holders(&self) -> Box<dyn Iterator<Item = &NodeInfo> + '_> {
        match self {
            Self::Lock(queue) => Box::new(queue.holders.iter().map(|node| &node.info)),
            Self::Election(election) => {
                Box::new(election.queue.holders.iter().map(|node| &node.info))
            }
            Self::Queue(queue) => Box::new(queue.claims.iter().map(|claim| &claim.info)),
            Self::Barrier(barrier) => Box::new(barrier.members.iter()),
            Self::Members(group) => Box::new(group.members.iter().map(|member| &member.info)),
        }
    }

    /// Those who wait, in order.
    #[must_use]
    pub fn waiters(&self) -> &[LockNode] {
        self.queue().map_or(&[], |queue| &queue.waiters)
    }
}

/// Finds the recipes at these paths again, and forgets those that are gone.
pub fn update(
    recipes: &mut BTreeMap<String, Recipe>,
    tree: &KnownTree,
    touched: &BTreeSet<String>,
) -> BTreeSet<String> {
    let beside = touched.iter().filter_map(|path| inspect::beside(path));
    let due: BTreeSet<&str> = touched.iter().map(String::as_str).chain(beside).collect();
    let mut changed = BTreeSet::new();
    for path in due {
        let found = recipe_at(tree, path);
        if recipes.get(path) == found.as_ref() {
            continue;
        }
        changed.insert(path.to_owned());
        match found {
            Some(found) => recipes.insert(path.to_owned(), found),
            None => recipes.remove(path),
        };
    }
    changed
}

/// The recipe whose own node is at `path`.
fn recipe_at(tree: &KnownTree, path: &str) -> Option<Recipe> {
    let node = tree.get(path)?;
    let is_of_server = path == OF_THE_SERVER
        || path
            .strip_prefix(OF_THE_SERVER)
            .is_some_and(|rest| rest.starts_with('/'));
    if is_of_server || node.stat.ephemeral_owner != 0 || is_part(tree, path) {
        return None;
    }
    let children = tree.children(path);
    Some(match inspect::recognise(&node.data, &children)? {
        FolderKind::WaitQueue => {
            let queue = LockSnapshot::of_children(path, &children);
            let term = tree.get(&inspect::term_path(path));
            let is_offer = |node: &LockNode| {
                matches!(
                    node.scheme,
                    Scheme::Mutex(Dialect::CuratorLatch | Dialect::ElectionSupport)
                )
            };
            if term.is_some() || queue.nodes().any(is_offer) {
                let term = term.and_then(|node| inspect::term_in(&node.data));
                Recipe::Election(Election { queue, term })
            } else {
                Recipe::Lock(queue)
            }
        }
        FolderKind::Semaphore => Recipe::Lock(semaphore(tree, path, false)),
        FolderKind::KazooSemaphore => Recipe::Lock(semaphore(tree, path, true)),
        FolderKind::Queue(layout) => Recipe::Queue(plain_queue(tree, path, path, layout.as_str())),
        FolderKind::LockingQueue => Recipe::Queue(locking_queue(tree, path)),
        FolderKind::WorkQueue { capacity } => Recipe::Queue(work_queue(tree, path, capacity)),
        FolderKind::DoubleBarrier => Recipe::Barrier(double_barrier(tree, path)),
        FolderKind::Latch => {
            let (count, left) = inspect::latch_in(&node.data)?;
            Recipe::Barrier(Barrier {
                path: path.to_owned(),
                kind: "latch",
                phase: if left == 0 { "open" } else { "waiting" },
                count: Some(count),
                left: Some(left),
                ..Barrier::default()
            })
        }
        FolderKind::Gate => Recipe::Barrier(Barrier {
            path: path.to_owned(),
            kind: "gate",
            phase: "closed",
            members: vec![NodeInfo::of_read(path, &node.read())],
            ..Barrier::default()
        }),
        FolderKind::Members(layout) => {
            Recipe::Members(GroupSnapshot::of_children(path, layout, &children))
        }
        _ => return None,
    })
}

/// Whether the node at `path` is a part of a recipe above it or beside it.
fn is_part(tree: &KnownTree, path: &str) -> bool {
    if path == "/" {
        return false;
    }
    if inspect::is_receipts(path) {
        return true;
    }
    let shape = |path: &str| {
        let node = tree.get(path)?;
        inspect::recognise(&node.data, &tree.children(path))
    };
    if inspect::beside(path).is_some_and(|base| {
        matches!(
            shape(base),
            Some(FolderKind::KazooSemaphore | FolderKind::WaitQueue)
        )
    }) {
        return true;
    }
    // Names first: to read a shape costs as much as the folder has children.
    let above = parent(path);
    let folders = inspect::semaphore_folders(above, false);
    if folders.iter().any(|folder| folder == path) && shape(above) == Some(FolderKind::Semaphore) {
        return true;
    }
    if inspect::is_part_of_locking_queue(name(path))
        && shape(above) == Some(FolderKind::LockingQueue)
    {
        return true;
    }
    let mut at = path;
    for _ in 0..DEEPEST_PART {
        at = parent(at);
        let Some(node) = tree.get(at) else { break };
        // By its data alone, which costs little.
        match inspect::recognise(&node.data, &[]) {
            Some(FolderKind::WorkQueue { .. } | FolderKind::DoubleBarrier | FolderKind::Latch) => {
                return true;
            }
            _ if at == "/" => break,
            _ => {}
        }
    }
    false
}

fn semaphore(tree: &KnownTree, path: &str, is_kazoo: bool) -> LockSnapshot {
    let [leases, waiters] = inspect::semaphore_folders(path, is_kazoo);
    let (leases, waiters) = (tree.children(&leases), tree.children(&waiters));
    let data = tree.get(path).map_or(&[][..], |node| &node.data);
    LockSnapshot::of_semaphore(path, data, is_kazoo, &leases, &waiters)
}

fn children_of(tree: &KnownTree, path: &str) -> u64 {
    tree.get(path)
        .map_or(0, |node| u64::try_from(node.stat.num_children).unwrap_or(0))
}

/// Numbers of nodes ever made and deleted in the folder of those who hold or wait; of a semaphore,
/// in that of its permits.
pub(crate) fn turnover_of(tree: &KnownTree, queue: &LockSnapshot) -> Option<Turnover> {
    let path = &queue.path;
    if queue.kind == LockKind::Semaphore {
        let [permits, _] = inspect::semaphore_folders(path, false);
        // Without such a folder it is kazoo's, which has them at its own path.
        return turnover(tree, &permits).or_else(|| turnover(tree, path));
    }
    turnover(tree, path)
}

fn turnover(tree: &KnownTree, path: &str) -> Option<Turnover> {
    let stat = tree.get(path)?.stat;
    let (all, now) = (i64::from(stat.cversion), i64::from(stat.num_children));
    let made = (all + now) / 2;
    Some((path.to_owned(), stat.czxid, [made, made - now]))
}

fn plain_queue(tree: &KnownTree, path: &str, items: &str, layout: &'static str) -> Queue {
    let mut queue = Queue {
        path: path.to_owned(),
        layout,
        depth: children_of(tree, items),
        turnover: turnover(tree, items).into_iter().collect(),
        ..Queue::default()
    };
    for (name, read) in tree.children(items) {
        queue.note(join(items, name), read.stat.ctime);
    }
    queue
}

impl Queue {
    fn note(&mut self, item: String, since_ms: i64) {
        self.read += 1;
        if self.oldest_since_ms.is_none_or(|oldest| since_ms < oldest) {
            self.oldest_since_ms = Some(since_ms);
            self.oldest = Some(item);
        }
    }
}

fn locking_queue(tree: &KnownTree, path: &str) -> Queue {
    let [items, taken] = inspect::locking_queue_folders(path);
    let mut queue = plain_queue(tree, path, &items, "kazoo-locking");
    queue.claims = tree
        .children(&taken)
        .into_iter()
        .map(|(name, read)| Claim {
            item: join(&items, name),
            info: NodeInfo::of_read(&join(&taken, name), &read),
        })
        .collect();
    queue
}

fn work_queue(tree: &KnownTree, path: &str, capacity: Option<u64>) -> Queue {
    let folders = WorkFolders::new(path);
    let mut queue = Queue {
        path: path.to_owned(),
        layout: "work",
        capacity,
        dead: children_of(tree, &folders.dead),
        consumers: children_of(tree, &folders.waiters),
        ..Queue::default()
    };
    for (shard, _) in tree.children(&folders.items) {
        let shard = join(&folders.items, shard);
        queue.depth += children_of(tree, &shard);
        queue.turnover.extend(turnover(tree, &shard));
        for (item, read) in tree.children(&shard) {
            let item = join(&shard, item);
            let note = ItemNote::from_bytes(&read.data);
            let noted_ms = note.as_ref().and_then(|note| note.since_ms);
            queue.note(item.clone(), noted_ms.unwrap_or(read.stat.ctime));
            let claims = tree.children(&item);
            let claims: Vec<_> = claims.iter().filter(|(name, _)| is_claim(name)).collect();
            // A claim counts as an attempt when it is made.
            let tried = note.map_or(0, |note| note.attempts);
            queue.retried += u64::from(tried > u32::from(!claims.is_empty()));
            for (name, read) in claims {
                queue.claims.push(Claim {
                    item: item.clone(),
                    info: NodeInfo::of_read(&join(&item, name), read),
                });
            }
        }
    }
    queue.letters = tree
        .children(&folders.dead)
        .into_iter()
        .map(|(name, read)| Letter {
            name: name.to_owned(),
            since_ms: read.stat.ctime,
            note: ItemNote::from_bytes(&read.data),
        })
        .collect();
    queue
}

fn double_barrier(tree: &KnownTree, path: &str) -> Barrier {
    let mut barrier = Barrier {
        path: path.to_owned(),
        kind: "double",
        phase: "waiting",
        ..Barrier::default()
    };
    let data = tree
        .get(path)
        .map(|node| node.data.clone())
        .unwrap_or_default();
    let folder = match inspect::newest_round_in(&data) {
        Some(newest) => {
            barrier.round = newest.number;
            let Some(node) = newest.node else {
                return barrier;
            };
            let folder = join(path, &node);
            let round = tree.get(&folder);
            if let Some((count, phase)) = round.and_then(|node| inspect::round_in(&node.data)) {
                barrier.count = Some(count);
                barrier.phase = phase;
            }
            folder
        }
        None => path.to_owned(),
    };
    for (child, read) in tree.children(&folder) {
        if inspect::is_ready_mark(child) {
            barrier.phase = "entered";
        } else if read.stat.ephemeral_owner != 0 {
            let member = NodeInfo::of_read(&join(&folder, child), &read);
            barrier.members.push(member);
        }
    }
    if barrier.round == 0 && barrier.phase == "waiting" && !barrier.members.is_empty() {
        barrier.phase = "gathering";
    }
    let there = u32::try_from(barrier.members.len()).unwrap_or(u32::MAX);
    barrier.left = barrier.count.map(|count| count.saturating_sub(there));
    barrier
}

/// The name of the process that owns a node, as far as the node says so: `host:pid (name)`.
#[must_use]
pub fn process(info: &NodeInfo) -> Option<String> {
    if let Some(record) = &info.record {
        return Some(record.to_string());
    }
    info.text.clone()
}

//! The known tree, and how it is kept current.
//!
//! Owns which nodes are read, and when again. A node is read again only if its own record says that
//! it changed: its data if `mzxid` did, its children if `pzxid` did. Every bound of the survey is
//! here: nodes, depth, names of one folder, bytes of one node, time of one round. What lies beyond
//! is counted as left out, never taken for absent.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::{Duration, Instant};

use baton::inspect;
use baton_client::path::{join, parent};
use baton_client::{Children, Data, Stat};
use bytes::Bytes;

use crate::error::SurveyError;
use crate::reader::{Ask, Reply, TreeReader};

/// Limits of a survey.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Nodes that are kept.
    pub nodes: usize,
    /// Components of a path.
    pub depth: usize,
    /// Children of one folder that are listed at all: a list of names is one answer of the server.
    pub children: usize,
    /// Items of a queue that are read, the oldest first.
    pub items: usize,
    /// Bytes of a node's data; longer data is not read.
    pub data: usize,
    /// Bytes of all paths and data that are kept.
    pub bytes: usize,
    /// Nodes of sessions that are read again in each round without a sign that they have changed.
    pub refreshed: usize,
    /// Time that one round may take. The next one goes on from there.
    pub round: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            nodes: 100_000,
            depth: 32,
            children: 100_000,
            items: 64,
            data: 4_096,
            bytes: 64 << 20,
            refreshed: 256,
            round: Duration::from_secs(20),
        }
    }
}

/// Reads of one batch, and names that its lists may have.
const BATCH: usize = 256;
const BATCH_NAMES: usize = 100_000;

/// State of a node's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DataState {
    Unread,
    /// Read at this `mzxid`.
    Read(i64),
    TooLong(i64),
    /// It would have exceeded the bytes of all that is kept.
    NoRoom(i64),
    Forbidden(i64),
}

/// State of a node's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    Unlisted,
    /// Listed at this `pzxid`.
    Listed(i64),
    TooMany(i64),
    Forbidden(i64),
}

/// A node of the tree, as it was read last.
#[derive(Clone, Debug)]
pub struct KnownNode {
    /// Its record.
    pub stat: Stat,
    /// Its data; empty where it was not read.
    pub data: Bytes,
    /// The names of those children that are read, sorted.
    pub names: Vec<String>,
    data_state: DataState,
    list_state: ListState,
}

impl KnownNode {
    fn new(stat: Stat) -> Self {
        Self {
            stat,
            data: Bytes::new(),
            names: Vec::new(),
            data_state: DataState::Unread,
            list_state: ListState::Unlisted,
        }
    }

    /// Record and data.
    #[must_use]
    pub fn read(&self) -> Data {
        Data {
            data: self.data.clone(),
            stat: self.stat,
        }
    }

    /// Whether this reader may not read its data or its children.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self.data_state, DataState::Forbidden(_))
            || matches!(self.list_state, ListState::Forbidden(_))
    }
}

/// Results of one round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The paths of nodes that are new, gone or changed.
    pub changed: BTreeSet<String>,
    /// Whether anything was read but the probe that nothing has changed.
    pub walked: bool,
}

/// The nodes that are known.
#[derive(Debug, Default)]
pub struct KnownTree {
    nodes: BTreeMap<String, KnownNode>,
    /// Bytes of their paths and data.
    bytes: usize,
    /// The newest change at the start of the last whole round.
    current_at: Option<i64>,
    /// Paths that the last round had no time for.
    left_over: Vec<String>,
    /// Nodes of sessions, in the order in which they are read again.
    refresh: VecDeque<String>,
    /// Whether a bound has kept something out.
    pub is_partial: bool,
}

impl KnownTree {
    /// The node at `path`.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&KnownNode> {
        self.nodes.get(path)
    }

    /// Number of known nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is known yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every node with its path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &KnownNode)> {
        self.nodes.iter().map(|(path, node)| (&**path, node))
    }

    /// The children of `path` that are known, sorted by name, each with record and data.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<(&str, Data)> {
        let Some(node) = self.nodes.get(path) else {
            return Vec::new();
        };
        node.names
            .iter()
            .filter_map(|name| Some((&**name, self.nodes.get(&join(path, name))?.read())))
            .collect()
    }

    fn forget(&mut self, path: &str) -> Option<KnownNode> {
        let gone = self.nodes.remove(path)?;
        self.bytes -= path.len() + gone.data.len();
        Some(gone)
    }

    /// Reads what has changed since the last round. `watched` are nodes of sessions that are read
    /// again even without a sign, such as those of holders.
    ///
    /// # Errors
    /// [`SurveyError`]; what was read until then is kept, and the next round reads the rest.
    pub async fn round(
        &mut self,
        reader: &impl TreeReader,
        limits: &Limits,
        watched: &HashSet<String>,
    ) -> Result<Round, SurveyError> {
        let began = Instant::now();
        let probe = [Ask::Stat("/".to_owned())];
        reader.read(&probe).await?;
        let at = reader.last_zxid();
        // Any change of any node has a zxid of its own.
        let is_known = at != 0 && self.current_at == Some(at);
        if is_known && self.left_over.is_empty() {
            return Ok(Round::default());
        }
        // Again: the answer may be older than what the reader knows by now.
        let reply = reader.read(&probe).await?;
        let mut walk = Walk {
            tree: self,
            limits,
            watched,
            round: Round {
                walked: true,
                ..Round::default()
            },
            is_partial: false,
        };
        let mut level = std::mem::take(&mut walk.tree.left_over);
        level.extend(walk.settle_stats(&probe, reply));
        walk.tree.current_at = None;
        let mut is_whole = true;
        while !level.is_empty() {
            if began.elapsed() > limits.round {
                walk.tree.left_over = level;
                walk.is_partial = true;
                is_whole = false;
                break;
            }
            level = walk.level(reader, level).await?;
        }
        let stale = walk.refreshed();
        walk.stats(reader, stale).await?;
        let Walk {
            round, is_partial, ..
        } = walk;
        self.is_partial = is_partial;
        if is_whole {
            self.current_at = Some(at);
        }
        Ok(round)
    }
}

/// One round under way.
struct Walk<'a> {
    tree: &'a mut KnownTree,
    limits: &'a Limits,
    watched: &'a HashSet<String>,
    round: Round,
    is_partial: bool,
}

impl Walk<'_> {
    /// Reads what is due of the folders at `paths`, whose records are current, and the records of
    /// their children. Returns those children that may have children themselves.
    async fn level(
        &mut self,
        reader: &impl TreeReader,
        paths: Vec<String>,
    ) -> Result<Vec<String>, SurveyError> {
        self.lists_and_data(reader, &paths).await?;
        let mut due = Vec::new();
        for path in paths {
            let Some(node) = self.tree.nodes.get(&path) else {
                continue;
            };
            if path.matches('/').count() >= self.limits.depth && !node.names.is_empty() {
                self.is_partial = true;
                continue;
            }
            let was_listed = self.round.changed.contains(&path);
            for name in &node.names {
                let child = join(&path, name);
                let is_due = match self.tree.nodes.get(&child) {
                    None => true,
                    // A name that may be used again is read again when the list has changed.
                    Some(known) if known.stat.ephemeral_owner != 0 => {
                        was_listed && inspect::sequence_number(name).is_none()
                            || self.watched.contains(&child)
                    }
                    Some(_) => true,
                };
                if is_due {
                    due.push(child);
                }
            }
        }
        self.stats(reader, due).await
    }

    /// Reads the records of the nodes at `paths`, and what they say is due of their data. Returns
    /// those that may have children.
    async fn stats(
        &mut self,
        reader: &impl TreeReader,
        paths: Vec<String>,
    ) -> Result<Vec<String>, SurveyError> {
        let mut folders = Vec::new();
        for some in paths.chunks(BATCH) {
            let asks: Vec<_> = some.iter().cloned().map(Ask::Stat).collect();
            let reply = reader.read(&asks).await?;
            let owned = self.settle_stats(&asks, reply);
            let mut leaves = Vec::new();
            for path in owned {
                let node = self.tree.nodes.get(&path);
                match node.is_some_and(|node| node.stat.ephemeral_owner != 0) {
                    true => leaves.push(path),
                    false => folders.push(path),
                }
            }
            self.lists_and_data(reader, &leaves).await?;
        }
        Ok(folders)
    }

    /// Takes records in. Returns the paths of nodes that are there.
    fn settle_stats(&mut self, asks: &[Ask], reply: Vec<Reply>) -> Vec<String> {
        let mut there = Vec::with_capacity(asks.len());
        for (ask, reply) in asks.iter().zip(reply) {
            let Ask::Stat(path) = ask else { continue };
            match reply {
                Reply::Stat(stat) => {
                    if self.settle_stat(path, stat) {
                        there.push(path.clone());
                    }
                }
                Reply::Gone | Reply::Forbidden => self.remove(path),
                Reply::Children(_) | Reply::Data(_) => {}
            }
        }
        there
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.tree.bytes.saturating_add(bytes) <= self.limits.bytes
    }

    fn settle_stat(&mut self, path: &str, stat: Stat) -> bool {
        match self.tree.nodes.get_mut(path) {
            Some(node) if node.stat.czxid == stat.czxid => {
                if node.stat.mzxid != stat.mzxid {
                    self.round.changed.insert(path.to_owned());
                }
                node.stat = stat;
                return true;
            }
            // Another node has taken its path.
            Some(_) => self.remove(path),
            None => {}
        }
        if self.tree.nodes.len() >= self.limits.nodes || !self.has_room(path.len()) {
            self.is_partial = true;
            return false;
        }
        if stat.ephemeral_owner != 0 {
            self.tree.refresh.push_back(path.to_owned());
        }
        let node = KnownNode::new(stat);
        self.tree.nodes.insert(path.to_owned(), node);
        self.tree.bytes += path.len();
        self.round.changed.insert(path.to_owned());
        true
    }

    /// Reads lists and data of these nodes, where their records say that they have changed.
    async fn lists_and_data(
        &mut self,
        reader: &impl TreeReader,
        paths: &[String],
    ) -> Result<(), SurveyError> {
        let mut asks = Vec::new();
        let mut names = 0;
        for path in paths {
            let (data, list) = self.due(path);
            if data {
                asks.push(Ask::Data(path.clone()));
            }
            if let Some(count) = list {
                names += count;
                asks.push(Ask::Children(path.clone()));
            }
            if asks.len() >= BATCH || names > BATCH_NAMES {
                self.ask(reader, std::mem::take(&mut asks)).await?;
                names = 0;
            }
        }
        self.ask(reader, asks).await
    }

    /// Whether a node's data is due, and its list with how many names.
    fn due(&mut self, path: &str) -> (bool, Option<usize>) {
        let Some(node) = self.tree.nodes.get_mut(path) else {
            return (false, None);
        };
        let (mzxid, pzxid) = (node.stat.mzxid, node.stat.pzxid);
        let length = usize::try_from(node.stat.data_length).unwrap_or(0);
        let data = match node.data_state {
            DataState::NoRoom(at) if at == mzxid => {
                self.is_partial = true;
                false
            }
            DataState::Read(at) | DataState::TooLong(at) | DataState::Forbidden(at)
                if at == mzxid =>
            {
                false
            }
            _ if length > self.limits.data => {
                self.tree.bytes -= node.data.len();
                node.data = Bytes::new();
                node.data_state = DataState::TooLong(mzxid);
                false
            }
            _ if length == 0 => {
                self.tree.bytes -= node.data.len();
                node.data = Bytes::new();
                node.data_state = DataState::Read(mzxid);
                false
            }
            _ => true,
        };
        if node.stat.ephemeral_owner != 0 {
            return (data, None);
        }
        let count = usize::try_from(node.stat.num_children).unwrap_or(0);
        let list = match node.list_state {
            ListState::Listed(at) | ListState::Forbidden(at) if at == pzxid => None,
            ListState::TooMany(at) if at == pzxid => {
                self.is_partial = true;
                None
            }
            _ if count > self.limits.children => {
                node.list_state = ListState::TooMany(pzxid);
                self.is_partial = true;
                self.round.changed.insert(path.to_owned());
                None
            }
            ListState::Unlisted if count == 0 => {
                node.list_state = ListState::Listed(pzxid);
                None
            }
            _ => Some(count),
        };
        (data, list)
    }

    async fn ask(&mut self, reader: &impl TreeReader, asks: Vec<Ask>) -> Result<(), SurveyError> {
        if asks.is_empty() {
            return Ok(());
        }
        let reply = reader.read(&asks).await?;
        for (ask, reply) in asks.iter().zip(reply) {
            match (ask, reply) {
                (Ask::Data(path), Reply::Data(read)) => self.settle_data(path, read),
                (Ask::Children(path), Reply::Children(listed)) => self.settle_list(path, listed),
                (Ask::Data(path), Reply::Forbidden) => {
                    if let Some(node) = self.tree.nodes.get_mut(path) {
                        node.data_state = DataState::Forbidden(node.stat.mzxid);
                    }
                }
                (Ask::Children(path), Reply::Forbidden) => {
                    if let Some(node) = self.tree.nodes.get_mut(path) {
                        node.list_state = ListState::Forbidden(node.stat.pzxid);
                    }
                }
                (Ask::Data(path) | Ask::Children(path), Reply::Gone) => self.remove(path),
                _ => {}
            }
        }
        Ok(())
    }

    fn settle_data(&mut self, path: &str, read: Data) {
        if self.settle_stat(path, read.stat)
            && let Some(node) = self.tree.nodes.get_mut(path)
        {
            // A copy: the whole answer would stay in memory behind a slice of it.
            let kept = read.data.get(..self.limits.data).unwrap_or(&read.data);
            self.tree.bytes -= node.data.len();
            if self.tree.bytes.saturating_add(kept.len()) <= self.limits.bytes {
                self.tree.bytes += kept.len();
                node.data = Bytes::copy_from_slice(kept);
                node.data_state = DataState::Read(read.stat.mzxid);
            } else {
                node.data = Bytes::new();
                node.data_state = DataState::NoRoom(read.stat.mzxid);
                self.is_partial = true;
            }
            self.round.changed.insert(path.to_owned());
        }
    }

    fn settle_list(&mut self, path: &str, listed: Children) {
        if !self.settle_stat(path, listed.stat) {
            return;
        }
        let mut names = match inspect::oldest_items(&listed.names, self.limits.items) {
            Some(oldest) => oldest,
            None => listed.names,
        };
        names.sort_unstable();
        let Some(node) = self.tree.nodes.get_mut(path) else {
            return;
        };
        node.list_state = ListState::Listed(listed.stat.pzxid);
        let before = std::mem::replace(&mut node.names, names.clone());
        self.round.changed.insert(path.to_owned());
        for name in before {
            if names.binary_search(&name).is_err() {
                self.remove(&join(path, &name));
            }
        }
    }

    /// Forgets a node and all below it.
    fn remove(&mut self, path: &str) {
        let Some(gone) = self.tree.forget(path) else {
            return;
        };
        self.round.changed.insert(path.to_owned());
        let mut below: Vec<_> = gone.names.iter().map(|name| join(path, name)).collect();
        while let Some(path) = below.pop() {
            if let Some(gone) = self.tree.forget(&path) {
                below.extend(gone.names.iter().map(|name| join(&path, name)));
                self.round.changed.insert(path);
            }
        }
    }

    /// The nodes of sessions whose turn it is to be read again: their data may have changed, which
    /// no list shows.
    fn refreshed(&mut self) -> Vec<String> {
        let mut due = Vec::new();
        for _ in 0..self.limits.refreshed.min(self.tree.refresh.len()) {
            let Some(path) = self.tree.refresh.pop_front() else {
                break;
            };
            if self.tree.nodes.contains_key(&path) {
                self.tree.refresh.push_back(path.clone());
                due.push(path);
            }
        }
        due
    }
}

/// The paths whose recipes may have changed with these nodes: their own and those of the folders
/// above, as far up as a recipe's layout goes.
#[must_use]
pub fn touched(changed: &BTreeSet<String>) -> BTreeSet<String> {
    const LEVELS: usize = 4;
    let mut touched = BTreeSet::new();
    for path in changed {
        let mut at = path.as_str();
        for _ in 0..=LEVELS {
            touched.insert(at.to_owned());
            if at == "/" {
                break;
            }
            at = parent(at);
        }
    }
    touched
}

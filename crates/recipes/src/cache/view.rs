//! Views of a cache: nodes, snapshots of all of them, and the steps from one to the next.
//!
//! Owns plain data. A snapshot never changes once it is handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use baton_client::Stat;
use bytes::Bytes;

/// A node as the cache has it: data and record of the same instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedNode {
    /// Its data; empty also for a node without any.
    pub data: Bytes,
    /// Its record.
    pub stat: Stat,
}

/// All nodes of a cache as of one position in the order of changes. Never changes; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(super) nodes: Arc<BTreeMap<Arc<str>, CachedNode>>,
    pub(super) unreadable: Arc<BTreeSet<Arc<str>>>,
    pub(super) as_of: i64,
    pub(super) exact: bool,
}

impl Snapshot {
    /// The zxid up to which every change is in it; 0 before the tree was read first.
    #[must_use]
    pub fn as_of(&self) -> i64 {
        self.as_of
    }

    /// Returns whether this is the tree as it was at one instant. It is not where changes came
    /// without a pause during many rounds of reading: then some nodes are newer than
    /// [`Snapshot::as_of`].
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The node at this full path, if there is one.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&CachedNode> {
        self.nodes.get(path)
    }

    /// All nodes by full path, parents before children.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &CachedNode)> {
        self.nodes.iter().map(|(path, node)| (&**path, node))
    }

    /// The nodes that may not be read, where the cache passes over them:
    /// [`TreeCacheBuilder::pass_over_unreadable`]. They are in none of the other lists, and so is
    /// what is below them. A change of who may read a node is reported to nobody: it shows at the
    /// next change of the node, or of the connection.
    ///
    /// [`TreeCacheBuilder::pass_over_unreadable`]: super::TreeCacheBuilder::pass_over_unreadable
    pub fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.iter().map(|path| &**path)
    }

    /// The names of the children of the node at this full path, sorted.
    pub fn children<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a str> {
        let prefix: Arc<str> = match path {
            "/" => Arc::from("/"),
            _ => Arc::from(format!("{path}/")),
        };
        let below = self.nodes.range(Arc::clone(&prefix)..);
        below
            .map_while(move |(path, _)| path.strip_prefix(&*prefix))
            .filter(|name| !name.is_empty() && !name.contains('/'))
    }

    /// Number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there is no node, not even the root of the subtree.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Change of one node between two states of the view. A node that was deleted and made again is
/// reported as both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It is there now.
    Created {
        /// Full path.
        path: Arc<str>,
        /// The node.
        node: CachedNode,
    },
    /// Its data was written. Values between two states of the view are not reported.
    Changed {
        /// Full path.
        path: Arc<str>,
        /// The node before.
        old: CachedNode,
        /// The node now.
        new: CachedNode,
    },
    /// It is gone.
    Deleted {
        /// Full path.
        path: Arc<str>,
        /// The node before.
        node: CachedNode,
    },
}

impl Change {
    /// The full path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Created { path, .. }
            | Self::Changed { path, .. }
            | Self::Deleted { path, .. } => path,
        }
    }
}

/// One step from a state of the view to the next. Deletions come first, children before parents;
/// then the rest, parents before children.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update {
    /// The zxid up to which every change is in the view after this step.
    pub as_of: i64,
    /// The differences. Never empty.
    pub changes: Vec<Change>,
}

/// Event for a listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum CacheEvent {
    /// The whole view: first of all, and again where the listener was so slow that steps were
    /// dropped.
    Reset(Snapshot),
    /// A step from the event before.
    Update(Arc<Update>),
}

//! The next state of the view, while it is being read.
//!
//! Owns the difference between two states. Must never report a change that the tree did not make,
//! nor miss a deletion because it happened without a connection (H82).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::view::{CachedNode, Change};

pub(super) type Nodes = BTreeMap<Arc<str>, CachedNode>;

/// Nodes that were read since the last state was shown.
#[derive(Debug, Default)]
pub(super) struct ViewDraft {
    /// Nodes by path; `None` for a node that is not there.
    read: BTreeMap<Arc<str>, Option<CachedNode>>,
    /// Those of them that may not be read, and count as not there.
    refused: BTreeSet<Arc<str>>,
    /// Whether the whole subtree was read, so that what is not in `read` is gone.
    whole: bool,
    /// Size of what was read.
    size: Size,
}

/// Nodes, and bytes of their paths and data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub nodes: usize,
    pub bytes: usize,
}

impl Size {
    fn of(path: &str, node: &CachedNode) -> Self {
        Self {
            nodes: 1,
            bytes: path.len() + node.data.len(),
        }
    }

    fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.bytes += other.bytes;
    }

    fn take(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_sub(other.nodes);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

impl ViewDraft {
    /// A draft of the whole subtree, to be read again.
    pub(super) fn whole() -> Self {
        Self {
            whole: true,
            ..Self::default()
        }
    }

    pub(super) fn put(&mut self, path: &Arc<str>, node: Option<CachedNode>) {
        if let Some(node) = &node {
            self.size.add(Size::of(path, node));
        }
        self.refused.remove(path);
        if let Some(Some(before)) = self.read.insert(Arc::clone(path), node) {
            self.size.take(Size::of(path, &before));
        }
    }

    /// Notes a node that may not be read.
    pub(super) fn refuse(&mut self, path: &Arc<str>) {
        self.put(path, None);
        self.refused.insert(Arc::clone(path));
    }

    /// Makes `unreadable` the nodes that may not be read.
    pub(super) fn apply_refused(&mut self, unreadable: &mut BTreeSet<Arc<str>>) {
        if self.whole {
            unreadable.clear();
        } else {
            unreadable.retain(|path| !self.read.contains_key(path));
        }
        unreadable.append(&mut self.refused);
    }

    /// Size that the view would have, `shown` and `nodes` being what it is now.
    pub(super) fn size(&self, nodes: &Nodes, shown: Size) -> Size {
        let mut size = self.size;
        if !self.whole {
            size.add(shown);
            for path in self.read.keys() {
                if let Some(node) = nodes.get(path) {
                    size.take(Size::of(path, node));
                }
            }
        }
        size
    }

    /// Makes `nodes` what was read, and returns the difference.
    pub(super) fn apply(self, nodes: &mut Nodes) -> Vec<Change> {
        let mut deleted = Vec::new();
        let mut rest = Vec::new();
        if self.whole {
            let read = &self.read;
            let is_gone = |path: &Arc<str>| !matches!(read.get(path), Some(Some(_)));
            let gone: Vec<_> = nodes.keys().filter(|path| is_gone(path)).cloned().collect();
            for path in gone {
                if let Some(node) = nodes.remove(&path) {
                    deleted.push(Change::Deleted { path, node });
                }
            }
        }
        for (path, node) in self.read {
            let old = match &node {
                Some(new) => nodes.insert(Arc::clone(&path), new.clone()),
                None => nodes.remove(&path),
            };
            match (old, node) {
                (Some(old), Some(new)) if old.stat.czxid == new.stat.czxid => {
                    if old.stat.mzxid != new.stat.mzxid {
                        rest.push(Change::Changed { path, old, new });
                    }
                }
                (old, new) => {
                    if let Some(node) = old {
                        let path = Arc::clone(&path);
                        deleted.push(Change::Deleted { path, node });
                    }
                    if let Some(node) = new {
                        rest.push(Change::Created { path, node });
                    }
                }
            }
        }
        deleted.sort_by(|a, b| b.path().cmp(a.path()));
        deleted.extend(rest);
        deleted
    }
}

#[cfg(test)]
mod tests {
    use baton_client::Stat;
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn node(czxid: i64, mzxid: i64) -> CachedNode {
        let stat = Stat {
            czxid,
            mzxid,
            ..Stat::default()
        };
        CachedNode {
            data: Bytes::new(),
            stat,
        }
    }

    fn size_of(nodes: &Nodes) -> Size {
        let mut size = Size::default();
        for (path, node) in nodes {
            size.add(Size::of(path, node));
        }
        size
    }

    fn trees() -> impl Strategy<Value = Nodes> {
        let entry = ("/[ab](/[ab])?", 1..4_i64, 0..3_i64);
        prop::collection::vec(entry, 0..6).prop_map(|entries| {
            let entry = |(path, czxid, more): (String, i64, i64)| {
                (Arc::from(path), node(czxid, czxid + more))
            };
            entries.into_iter().map(entry).collect()
        })
    }

    proptest! {
        #[test]
        fn h82_the_difference_leads_from_one_state_to_the_other(before in trees(), after in trees()) {
            for whole in [true, false] {
                let mut draft = if whole { ViewDraft::whole() } else { ViewDraft::default() };
                for path in before.keys().chain(after.keys()) {
                    if !whole || after.contains_key(path) {
                        draft.put(path, after.get(path).cloned());
                    }
                }
                let mut shown = before.clone();
                prop_assert_eq!(draft.size(&shown, size_of(&shown)), size_of(&after));
                let changes = draft.apply(&mut shown);
                prop_assert_eq!(&shown, &after);
                let mut replayed = before.clone();
                for change in changes {
                    match change {
                        Change::Created { path, node } => {
                            prop_assert!(replayed.insert(path, node).is_none());
                        }
                        Change::Changed { path, old, new } => {
                            prop_assert_eq!(replayed.insert(path, new), Some(old));
                        }
                        Change::Deleted { path, node } => {
                            prop_assert_eq!(replayed.remove(&path), Some(node));
                        }
                    }
                }
                let keys = |nodes: &Nodes| nodes.iter().map(|(path, node)| (path.clone(), node.stat.mzxid)).collect::<Vec<_>>();
                prop_assert_eq!(keys(&replayed), keys(&after));
            }
        }
    }
}

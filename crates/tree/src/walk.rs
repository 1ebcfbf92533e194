//! The way through the whole tree: every znode once, with its path. Reads only, and holds one
//! iterator a level.

use crate::arena::{Arena, Node, NodeId, ROOT};

impl Arena {
    /// Shows every znode to `visit`, parents before their children, until it fails.
    pub(crate) fn walk<E>(
        &self,
        mut visit: impl FnMut(&str, NodeId, &Node) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut path = String::new();
        let root = self.node(ROOT);
        visit("/", ROOT, root)?;
        let mut pending = vec![(self.children(root), 0)];
        while let Some((children, parent_len)) = pending.last_mut() {
            let Some((id, node)) = children.next() else {
                pending.pop();
                continue;
            };
            path.truncate(*parent_len);
            path.push('/');
            path.push_str(std::str::from_utf8(node.name()).unwrap_or_default());
            visit(&path, id, node)?;
            if self.family(node).num_children > 0 {
                pending.push((self.children(node), path.len()));
            }
        }
        Ok(())
    }
}

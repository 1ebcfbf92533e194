//! The way through the whole tree: every znode once, with its path. Reads only, and holds one
//! iterator a level.

use crate::arena::{Arena, Node, NodeId, ROOT};

impl Arena {
    /// Shows every znode to `visit`, parents before their children, until it fails.
    pub(crate) fn walk<E>(
        &self,
        mut visit: impl FnMut(&str, NodeId, Node<'_>) -> Result<(), E>,
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
            push_name(&mut path, node);
            visit(&path, id, node)?;
            if self.family(node).num_children > 0 {
                pending.push((self.children(node), path.len()));
            }
        }
        Ok(())
    }
}

/// Paths of znodes. What siblings share is built once where they come together.
#[derive(Debug)]
pub(crate) struct Paths<'a> {
    arena: &'a Arena,
    /// The parent of the znode before, and its path without a slash at the end.
    parent: Option<(NodeId, String)>,
    path: String,
}

impl<'a> Paths<'a> {
    pub(crate) const fn new(arena: &'a Arena) -> Self {
        Self {
            arena,
            parent: None,
            path: String::new(),
        }
    }

    /// The path of a znode.
    pub(crate) fn of(&mut self, id: NodeId) -> &str {
        if id == ROOT {
            return "/";
        }
        let node = self.arena.node(id);
        let parent = match self.parent.take() {
            Some(parent) if parent.0 == node.parent() => parent,
            before => (node.parent(), self.path_behind(before, node.parent())),
        };
        self.path.clear();
        self.path.push_str(&parent.1);
        self.parent = Some(parent);
        push_name(&mut self.path, node);
        &self.path
    }

    /// The path of the parent `id`, longer than that of the one before where it is its child: the
    /// way up from each znode of a long chain would take long.
    fn path_behind(&self, before: Option<(NodeId, String)>, id: NodeId) -> String {
        if id == ROOT {
            return String::new();
        }
        let node = self.arena.node(id);
        match before {
            Some((parent, mut path)) if parent == node.parent() => {
                push_name(&mut path, node);
                path
            }
            _ => self.arena.path_of(id),
        }
    }
}

fn push_name(path: &mut String, node: Node<'_>) {
    path.push('/');
    path.push_str(std::str::from_utf8(node.name()).unwrap_or_default());
}

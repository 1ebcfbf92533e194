//! A tree that begins with more than the initial znodes: for imports, and for tests that have to
//! start where counters end (H19, H24). Owns the way from a list of znodes to a tree; all replicas
//! must begin with the same.

use baton_proto::path;

use crate::acl_table::OPEN;
use crate::arena::NewNode;
use crate::tree::Tree;

/// A znode to begin with: persistent, open to anyone, created at zxid 0 and time 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeedNode<'a> {
    /// Its path. Parents come before their children; `/` may be named to set its counters.
    pub path: &'a str,
    /// Its data; `None` is null.
    pub data: Option<&'a [u8]>,
    /// How often its data has been written.
    pub version: i32,
    /// How many children have ever been created under it: the next sequential child gets this
    /// number.
    pub creates: i64,
}

/// Why a tree cannot begin with these znodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeedError {
    /// Not a legal path.
    #[error("cannot begin with the znode {path:?}: {source}")]
    BadPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        source: path::PathError,
    },
    /// The parent does not come before it.
    #[error("cannot begin with the znode {0:?}: name its parent before it")]
    NoParent(String),
    /// A count below zero.
    #[error("cannot begin with the znode {0:?}: its count of creates is negative")]
    NegativeCount(String),
}

impl Tree {
    /// The tree of [`Tree::new`] with these znodes added, or changed where they exist.
    ///
    /// # Errors
    /// The first znode that cannot be.
    pub fn seeded(nodes: &[SeedNode<'_>]) -> Result<Self, SeedError> {
        let mut tree = Self::new();
        for seed in nodes {
            tree.plant(seed)?;
        }
        Ok(tree)
    }

    fn plant(&mut self, seed: &SeedNode<'_>) -> Result<(), SeedError> {
        let owned = || seed.path.to_owned();
        path::validate(seed.path).map_err(|source| SeedError::BadPath {
            path: owned(),
            source,
        })?;
        if seed.creates < 0 {
            return Err(SeedError::NegativeCount(owned()));
        }
        let id = if let Some(id) = self.arena.lookup(seed.path) {
            self.count_out(seed.path, id);
            self.arena.set_data(id, seed.data);
            id
        } else {
            let parent = self.arena.lookup(path::parent(seed.path));
            let parent = parent.ok_or_else(|| SeedError::NoParent(owned()))?;
            let new = NewNode {
                czxid: 0,
                mzxid: 0,
                ctime: 0,
                mtime: 0,
                owner: 0,
                acl: OPEN,
                version: 0,
                aversion: 0,
                birth: self.arena.len() as u32,
                epoch: 0,
            };
            let name = path::name(seed.path).as_bytes();
            self.arena.insert(new, parent, name, seed.data)
        };
        self.arena.node_mut(id).version = seed.version;
        self.arena.family_mut(id).creates = seed.creates;
        self.count_in(seed.path, id);
        Ok(())
    }
}

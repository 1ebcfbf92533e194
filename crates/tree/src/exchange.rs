//! A whole tree in and out, znode by znode, with everything that is kept of each: for moves from
//! and to other servers. Owns the checks that make a tree of foreign znodes; knows nothing of any
//! file format.

use std::collections::BTreeSet;

use baton_proto::{Acl, PASSWORD_BYTES, path};

use crate::acl_table::{AclTable, OPEN};
use crate::arena::{Arena, NewNode, NodeId, ROOT};
use crate::attachment::Attachment;
use crate::executor::Sequential;
use crate::kind::{Kind, is_session_id};
use crate::restore::{RestoreError, quota_root, take_stock};
use crate::sessions::Sessions;
use crate::tree::{INITIAL_PATHS, Tree};

/// A znode with everything that is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Znode<'a> {
    /// Its path.
    pub path: &'a str,
    /// Its data; `None` is null.
    pub data: Option<&'a [u8]>,
    /// Its ACL; an empty one allows everything to anyone.
    pub acl: &'a [Acl<'static>],
    /// The zxid of its creation.
    pub czxid: i64,
    /// The zxid of the last write of its data.
    pub mzxid: i64,
    /// The zxid of the last change of its children.
    pub pzxid: i64,
    /// Time at which it was created, in milliseconds since 1970.
    pub ctime: i64,
    /// Time at which its data was last written, in milliseconds since 1970.
    pub mtime: i64,
    /// Number of times that its data has been written.
    pub version: i32,
    /// Number of times that its ACL has been written.
    pub aversion: i32,
    /// Number of children ever created under it; ZooKeeper stores this number as `cversion`.
    pub creates: i64,
    /// 0, its session, or the mark of a container or of a TTL, as ZooKeeper stores it.
    pub owner: i64,
}

impl Znode<'_> {
    /// The session that owns it; 0 if none does.
    #[must_use]
    pub fn session(&self) -> i64 {
        Kind::of_owner(self.owner).ephemeral_owner()
    }
}

/// Reason why znodes and sessions do not make a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// Not a legal path.
    #[error("the path of the znode {path:?} is not legal: {source}")]
    BadPath {
        /// The path.
        path: String,
        /// The error.
        r#source: path::PathError,
    },
    /// The parent did not come before it.
    #[error("the znode {0:?} has no parent")]
    NoParent(String),
    /// It came before.
    #[error("the znode {0:?} is there twice")]
    Twice(String),
    /// Its parent is an ephemeral.
    #[error("the znode {0:?} is the child of an ephemeral")]
    ChildOfEphemeral(String),
    /// Its session is not there.
    #[error("the ephemeral {path:?} belongs to session 0x{session:x}, which is not there")]
    NoSession {
        /// The path.
        path: String,
        /// The session.
        session: i64,
    },
    /// A count below zero.
    #[error("the znode {0:?} has a negative count of created children")]
    NegativeCount(String),
    /// An id that stands for no session, or the same one again.
    #[error(
        "0x{0:x} cannot be the id of a session here: it is taken, or it means a container or a TTL"
    )]
    BadSession(i64),
    /// The parts do not fit together.
    #[error("the znodes do not make a tree: {0}")]
    Inconsistent(RestoreError),
}

/// A tree that is put together from foreign znodes and sessions. Sessions come first, parents
/// before children.
///
/// ```
/// use baton_tree::{Assembly, Identity, Znode};
///
/// let mut assembly = Assembly::new();
/// assembly.session(7, [0; 16], 30_000)?;
/// for (path, owner) in [("/", 0), ("/app", 0), ("/app/me", 7)] {
///     assembly.znode(&Znode {
///         path, owner, data: None, acl: &[], czxid: 1, mzxid: 1, pzxid: 1, ctime: 0, mtime: 0,
///         version: 0, aversion: 0, creates: 1,
///     })?;
/// }
/// let tree = assembly.finish(9)?;
/// assert_eq!(tree.exists("/app/me", &Identity::anonymous()).unwrap().ephemeral_owner, 7);
/// # Ok::<(), baton_tree::AssembleError>(())
/// ```
#[derive(Debug)]
pub struct Assembly {
    arena: Arena,
    acls: AclTable,
    sessions: Sessions,
    disordered: BTreeSet<NodeId>,
}

impl Default for Assembly {
    fn default() -> Self {
        Self::new()
    }
}

impl Assembly {
    /// An empty assembly.
    #[must_use]
    pub fn new() -> Self {
        Self {
            arena: Arena::vacant(0),
            acls: AclTable::new(0),
            sessions: Sessions::default(),
            disordered: BTreeSet::new(),
        }
    }

    /// An empty assembly with room for `znodes` znodes.
    #[must_use]
    pub fn with_capacity(znodes: usize) -> Self {
        let mut assembly = Self::new();
        assembly.arena.reserve(znodes);
        assembly
    }

    /// Adds an open session with the password that re-attaches it and its timeout in milliseconds.
    ///
    /// # Errors
    /// [`AssembleError::BadSession`].
    pub fn session(
        &mut self,
        id: i64,
        password: [u8; PASSWORD_BYTES],
        timeout_ms: i32,
    ) -> Result<(), AssembleError> {
        let attachment = Attachment::new(id, None);
        let sessions = &mut self.sessions;
        if !is_session_id(id) || !sessions.open(id, password, timeout_ms, attachment, Vec::new()) {
            return Err(AssembleError::BadSession(id));
        }
        Ok(())
    }

    /// Adds a znode; `/` is the first.
    ///
    /// # Errors
    /// [`AssembleError`]; nothing was added.
    pub fn znode(&mut self, znode: &Znode<'_>) -> Result<(), AssembleError> {
        let owned = || znode.path.to_owned();
        path::validate(znode.path).map_err(|source| AssembleError::BadPath {
            path: owned(),
            source,
        })?;
        if znode.creates < 0 {
            return Err(AssembleError::NegativeCount(owned()));
        }
        let kind = Kind::of_owner(znode.owner);
        if let Kind::Ephemeral(session) = kind
            && self.sessions.get(session).is_none()
        {
            return Err(AssembleError::NoSession {
                path: owned(),
                session,
            });
        }
        let name = path::name(znode.path).as_bytes();
        let parent = self.parent_of(znode.path)?;
        let acl = if znode.acl.is_empty() {
            OPEN
        } else {
            self.acls.acquire(znode.acl.to_vec())
        };
        let new = NewNode {
            czxid: znode.czxid,
            mzxid: znode.mzxid,
            ctime: znode.ctime,
            mtime: znode.mtime,
            owner: znode.owner,
            acl,
            version: znode.version,
            aversion: znode.aversion,
            birth: self.arena.len() as u32,
        };
        let id = match parent {
            Some(parent) => {
                let last = self.arena.last_child(parent);
                if last.is_some_and(|last| last.czxid() > znode.czxid) {
                    self.disordered.insert(parent);
                }
                let id = self.arena.place(new, parent, name, znode.data);
                self.arena.adopt(parent, id);
                id
            }
            None => self.arena.place(new, ROOT, b"", znode.data),
        };
        if znode.creates != 0 || znode.pzxid != znode.czxid {
            let family = self.arena.family_mut(id);
            family.creates = znode.creates;
            family.pzxid = znode.pzxid;
        }
        Ok(())
    }

    /// The parent's number; none for `/`, which must be the first.
    fn parent_of(&self, path: &str) -> Result<Option<NodeId>, AssembleError> {
        if self.arena.len() == 0 {
            return if path == "/" {
                Ok(None)
            } else {
                Err(AssembleError::NoParent(path.to_owned()))
            };
        }
        let parent = self.arena.lookup(path::parent(path));
        let parent = parent.ok_or_else(|| AssembleError::NoParent(path.to_owned()))?;
        if path == "/"
            || self
                .arena
                .child(parent, path::name(path).as_bytes())
                .is_some()
        {
            return Err(AssembleError::Twice(path.to_owned()));
        }
        if let Kind::Ephemeral(_) = Kind::of_owner(self.arena.node(parent).details().owner) {
            return Err(AssembleError::ChildOfEphemeral(path.to_owned()));
        }
        Ok(Some(parent))
    }

    /// The tree, as it is after the command that took this zxid. What every tree has and did not
    /// come is added, and the usage under quotas is counted again.
    ///
    /// # Errors
    /// [`AssembleError::Inconsistent`].
    pub fn finish(mut self, zxid: i64) -> Result<Tree, AssembleError> {
        for path in INITIAL_PATHS {
            if self.arena.len() == 0 || self.arena.lookup(path).is_none() {
                self.add_initial(path)?;
            }
        }
        for parent in std::mem::take(&mut self.disordered) {
            self.arena.sort_children(parent);
        }
        let all = self.arena.complete();
        let quotas = quota_root(&self.arena).map_err(AssembleError::Inconsistent)?;
        let mut tree = Tree::of_parts(self.arena, self.acls, self.sessions, quotas, zxid);
        tree.recount_quotas();
        take_stock(&mut tree, &all, &Sequential).map_err(AssembleError::Inconsistent)?;
        Ok(tree)
    }

    fn add_initial(&mut self, path: &str) -> Result<(), AssembleError> {
        let readable = [Acl::read_unsafe()];
        let config = path.ends_with("/config");
        self.znode(&Znode {
            path,
            data: Some(b""),
            acl: if config { &readable } else { &[] },
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion: if config { -1 } else { 0 },
            creates: 0,
            owner: 0,
        })
    }
}

impl Tree {
    /// Shows every znode to `visit`, parents before their children, until it fails.
    ///
    /// # Errors
    /// What `visit` returned.
    pub fn visit_znodes<E>(
        &self,
        mut visit: impl FnMut(&Znode<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.arena.walk(|path, _, node| {
            let (family, details) = (self.arena.family(node), node.details());
            visit(&Znode {
                path,
                data: node.data(),
                acl: self.acls.get(node.acl()).entries(),
                czxid: node.czxid(),
                mzxid: details.mzxid,
                pzxid: family.pzxid,
                ctime: node.ctime(),
                mtime: details.mtime,
                version: details.version,
                aversion: details.aversion,
                creates: family.creates,
                owner: details.owner,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn znode(path: &str, owner: i64) -> Znode<'_> {
        Znode {
            path,
            data: None,
            acl: &[],
            czxid: 1,
            mzxid: 1,
            pzxid: 1,
            ctime: 0,
            mtime: 0,
            version: 0,
            aversion: 0,
            creates: 1,
            owner,
        }
    }

    #[test]
    fn znodes_that_make_no_tree_are_refused_by_name() {
        let mut assembly = Assembly::new();
        let orphan = assembly.znode(&znode("/a", 0));
        assert_eq!(orphan, Err(AssembleError::NoParent("/a".to_owned())));
        assembly.session(7, [0; 16], 30_000).unwrap();
        for (path, owner) in [("/", 0), ("/a", 0), ("/a/b", 0), ("/a/own", 7)] {
            assembly.znode(&znode(path, owner)).unwrap();
        }
        for path in ["/", "/a", "/a/b", "/a/own"] {
            let twice = assembly.znode(&znode(path, 0));
            assert_eq!(twice, Err(AssembleError::Twice(path.to_owned())));
        }
        let refused = |path: &str| AssembleError::ChildOfEphemeral(path.to_owned());
        let below = assembly.znode(&znode("/a/own/x", 0));
        assert_eq!(below, Err(refused("/a/own/x")));
        let orphan = assembly.znode(&znode("/c/d", 0));
        assert_eq!(orphan, Err(AssembleError::NoParent("/c/d".to_owned())));
    }
}

//! From ZooKeeper's state to Baton's tree. Owns what changes on the way: sessions get the password
//! that ZooKeeper gave them, ephemerals without a session go as they would at ZooKeeper's start,
//! and the list of the old servers goes.

use baton_tree::{Assembly, Tree, Znode};

use crate::database::{Database, OPEN_ACL, session_of};
use crate::error::ZkDataError;
use crate::password::java_password;

const CONFIG: &str = "/zookeeper/config";
const EXTENDED: i64 = 0xff << 56;
const MAX_TTL_MS: i64 = (1 << 40) - 1;
/// The most data that fits into one chunk of Baton's snapshot, with room for the rest of it.
const MAX_DATA_BYTES: usize = 15 << 20;

/// Form in which the owners of TTL znodes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnerForm {
    /// The form since 3.5.4.
    #[default]
    Extended,
    /// The form of 3.5.3, where every negative owner is a TTL (`zookeeper.emulate353TTLNodes`).
    Of353,
}

/// A tree that was made of ZooKeeper's state.
#[derive(Debug)]
pub struct Moved {
    /// The tree.
    pub tree: Tree,
    /// Ephemerals that were left out, because their session is not open.
    pub without_session: usize,
    /// Whether `/zookeeper/config` named servers, which it does not any more.
    pub config_cleared: bool,
}

impl Database {
    /// The tree with the same znodes and sessions, at the same zxid.
    ///
    /// # Errors
    /// [`ZkDataError::NoAcl`] and [`ZkDataError::Tree`]: files are missing, or do not belong
    /// together.
    pub fn into_tree(mut self, form: OwnerForm) -> Result<Moved, ZkDataError> {
        if form == OwnerForm::Of353 {
            self.convert_ttls();
        }
        let orphans: Vec<String> = self
            .ephemerals
            .iter()
            .filter(|(session, _)| !self.sessions.contains_key(session))
            .flat_map(|(_, paths)| paths.iter().cloned())
            .collect();
        for path in &orphans {
            let zxid = self.zxid;
            if let Some(parent) = self.nodes.get_mut(baton_proto::path::parent(path)) {
                parent.stat.pzxid = zxid;
            }
            self.remove(path);
        }
        let nodes = std::mem::take(&mut self.nodes);
        let mut assembly = Assembly::with_capacity(nodes.len());
        for (id, timeout_ms) in &self.sessions {
            assembly.session(*id, java_password(*id), *timeout_ms)?;
        }
        let mut config_cleared = false;
        // Each goes as it comes, so that they are never all there twice.
        for (path, node) in nodes {
            let acl: &[_] = if node.acl == OPEN_ACL {
                &[]
            } else {
                self.acls.get(&node.acl).ok_or_else(|| ZkDataError::NoAcl {
                    path: path.clone(),
                    number: node.acl,
                })?
            };
            let mut data = node.data.as_deref();
            if path == CONFIG && data.is_some_and(|data| !data.is_empty()) {
                data = Some(b"");
                config_cleared = true;
            }
            if let Some(bytes) = data
                .map(<[u8]>::len)
                .filter(|bytes| *bytes > MAX_DATA_BYTES)
            {
                return Err(ZkDataError::TooLarge {
                    path,
                    bytes,
                    limit: MAX_DATA_BYTES,
                });
            }
            let stat = &node.stat;
            assembly.znode(&Znode {
                path: &path,
                data,
                acl,
                czxid: stat.czxid,
                mzxid: stat.mzxid,
                pzxid: stat.pzxid,
                ctime: stat.ctime,
                mtime: stat.mtime,
                version: stat.version,
                aversion: stat.aversion,
                // ZooKeeper's count has 32 bits and turns negative; here it goes on (H19).
                creates: i64::from(stat.cversion as u32),
                owner: stat.owner,
            })?;
        }
        Ok(Moved {
            tree: assembly.finish(self.zxid)?,
            without_session: orphans.len(),
            config_cleared,
        })
    }

    /// Puts TTLs of 3.5.3 into the form of later versions. One too long to be written so becomes
    /// the longest.
    fn convert_ttls(&mut self) {
        for (path, node) in &mut self.nodes {
            let owner = node.stat.owner;
            let Some(session) = session_of(owner).filter(|session| *session < 0) else {
                continue;
            };
            if let Some(paths) = self.ephemerals.get_mut(&session) {
                paths.remove(path);
            }
            node.stat.owner = EXTENDED | (owner & i64::MAX).min(MAX_TTL_MS);
        }
    }
}

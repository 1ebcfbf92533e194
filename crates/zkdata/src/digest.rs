//! ZooKeeper's digest of a tree, version 2: the sum over all znodes of a CRC-32 of path, data and
//! stat; those under `/zookeeper/` do not count. Owns the sum, nothing of where digests are stored.

use crate::database::{Database, Node};

/// The version of the digest that is computed here; others are not compared.
pub(crate) const VERSION: i32 = 2;

impl Database {
    /// The digest of the whole tree. Walks over it.
    pub(crate) fn tree_digest(&self) -> i64 {
        let counted = self
            .nodes
            .iter()
            .filter(|(path, _)| !path.starts_with("/zookeeper/"));
        counted.fold(0_i64, |sum, (path, node)| {
            sum.wrapping_add(i64::from(term(path, node)))
        })
    }
}

fn term(path: &str, node: &Node) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(if path == "/" { b"" } else { path.as_bytes() });
    crc.update(node.data.as_deref().unwrap_or_default());
    let stat = &node.stat;
    for word in [stat.czxid, stat.mzxid, stat.pzxid, stat.ctime, stat.mtime] {
        crc.update(&word.to_be_bytes());
    }
    for word in [stat.version, stat.cversion, stat.aversion] {
        crc.update(&word.to_be_bytes());
    }
    crc.update(&stat.owner.to_be_bytes());
    crc.finalize()
}

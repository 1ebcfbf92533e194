//! The content of a snapshot, in bytes (`docs/internals/format.md`, "Snapshot content"), and how
//! far the snapshot under way has come. [`crate::restore`] reads what is written here.
//!
//! ```text
//! chunk    := kind:u8  record*                    (to the end of the chunk)
//! 1 head   := version:u8  zxid:zigzag  nodes:varint  slots:varint  sessions:varint  digest:u64le
//!             [from version 2 on: level:varint  time_ms:zigzag]
//!             [version 5: n:varint  { newest session id:i64le } × n]
//! 2 session:= id:i64le  password:16 bytes  timeout_ms:zigzag
//!             [from version 2 on: nonce:u64le  last_sequence:varint  is_broken:u8]
//!             [from version 3 on: n:varint  { scheme:string  id:string } × n]
//!             [from version 4 on: n:varint  { scheme:string  id:string } × n]
//! 3 acl    := number:varint  n:varint  { perms:zigzag  scheme:string  id:string } × n
//! 4 node   := number:varint  parent:varint  flags:u8  name:string
//!             czxid:varint  mzxid-czxid:varint  ctime:zigzag  mtime-ctime:zigzag  birth:varint
//!             [flags 1: data:bytes]  [2: owner:i64le]  [4: acl:varint]  [8: version:zigzag]
//!             [16: aversion:zigzag]  [32: creates:varint  pzxid-czxid:varint]
//! 5 end    := (empty)
//! ```

use std::collections::VecDeque;

use crate::acl_table::{AclId, OPEN};
use crate::arena::{Family, Node, NodeId, ROOT};
use crate::varint::{put_bytes, put_i64, put_u64};

/// The newest content format; all since 1 are read. The format level of the tree decides which one
/// is written.
pub const SNAPSHOT_VERSION: u8 = 5;

/// A chunk is handed out as soon as it is as long as this; it is longer only by a part of its last
/// record.
pub const MAX_CHUNK_BYTES: usize = 256 * 1024;

pub(crate) const HEAD: u8 = 1;
pub(crate) const SESSIONS: u8 = 2;
pub(crate) const ACLS: u8 = 3;
pub(crate) const NODES: u8 = 4;
pub(crate) const END: u8 = 5;

pub(crate) const HAS_DATA: u8 = 1;
pub(crate) const HAS_OWNER: u8 = 2;
pub(crate) const HAS_ACL: u8 = 4;
pub(crate) const HAS_VERSION: u8 = 8;
pub(crate) const HAS_AVERSION: u8 = 16;
pub(crate) const HAS_FAMILY: u8 = 32;
pub(crate) const ALL_FLAGS: u8 = 63;

/// A snapshot under way.
#[derive(Debug)]
pub(crate) struct SnapshotWalk {
    pub(crate) next: NodeId,
    pub(crate) end: NodeId,
    /// A bit for each number below `end`: set if the walk passes over it, because its record is
    /// written already or was made after the beginning.
    pub(crate) passed_over: Vec<u64>,
    pub(crate) next_acl: AclId,
    pub(crate) end_acl: AclId,
    pub(crate) ready: VecDeque<Vec<u8>>,
    /// Records of znodes on their way into a chunk.
    pub(crate) nodes: Vec<u8>,
    pub(crate) finished: bool,
}

impl SnapshotWalk {
    /// Returns whether the walk passes over this number, as over all behind its end.
    pub(crate) fn passes_over(&self, id: NodeId) -> bool {
        let word = self.passed_over.get((id / u64::BITS) as usize);
        word.is_none_or(|word| word >> (id % u64::BITS) & 1 == 1)
    }

    pub(crate) fn pass_over(&mut self, id: NodeId) {
        if let Some(word) = self.passed_over.get_mut((id / u64::BITS) as usize) {
            *word |= 1 << (id % u64::BITS);
        }
    }

    pub(crate) fn save(&mut self, id: NodeId, node: Node<'_>, family: &Family) {
        if self.nodes.is_empty() {
            self.nodes.push(NODES);
        }
        put_node(&mut self.nodes, id, node, family);
        if self.nodes.len() >= MAX_CHUNK_BYTES {
            self.ready.push_back(std::mem::take(&mut self.nodes));
        }
    }
}

fn put_node(out: &mut Vec<u8>, id: NodeId, node: Node<'_>, family: &Family) {
    let (data, details) = (node.data(), node.details());
    let has_family = family.creates != 0 || family.pzxid != node.czxid();
    let mut flags = 0;
    for (flag, set) in [
        (HAS_DATA, data.is_some()),
        (HAS_OWNER, details.owner != 0),
        (HAS_ACL, node.acl() != OPEN),
        (HAS_VERSION, details.version != 0),
        (HAS_AVERSION, details.aversion != 0),
        (HAS_FAMILY, has_family),
    ] {
        if set {
            flags |= flag;
        }
    }
    put_u64(out, id.into());
    put_u64(out, if id == ROOT { 0 } else { node.parent().into() });
    out.push(flags);
    put_bytes(out, node.name());
    put_u64(out, node.czxid() as u64);
    put_u64(out, details.mzxid.wrapping_sub(node.czxid()) as u64);
    put_i64(out, node.ctime());
    put_i64(out, details.mtime.wrapping_sub(node.ctime()));
    put_u64(out, details.birth.into());
    if let Some(data) = data {
        put_bytes(out, data);
    }
    if details.owner != 0 {
        out.extend_from_slice(&details.owner.to_le_bytes());
    }
    if node.acl() != OPEN {
        put_u64(out, node.acl().into());
    }
    if details.version != 0 {
        put_i64(out, details.version.into());
    }
    if details.aversion != 0 {
        put_i64(out, details.aversion.into());
    }
    if has_family {
        put_u64(out, family.creates as u64);
        put_u64(out, family.pzxid.wrapping_sub(node.czxid()) as u64);
    }
}

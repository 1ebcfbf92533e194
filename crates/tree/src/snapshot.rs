//! A snapshot exactly at one zxid, taken while writes go on (bytes: `docs/internals/format.md`,
//! "Snapshot content"). Owns the walk and the content's bytes; files, checksums and compression are
//! the log's.
//!
//! The walker goes over the slab from its beginning to where that ended when the snapshot began. A
//! write that is about to change a znode which the walker has not reached writes that znode's
//! record out first; records carry their numbers, so their order does not matter, and no copy has
//! to be kept. What is waiting to be handed out is then at most the znodes that were written since.
//!
//! ```text
//! chunk    := kind:u8  record*                    (to the end of the chunk)
//! 1 head   := version:u8=1  zxid:zigzag  nodes:varint  slots:varint  sessions:varint  digest:u64le
//! 2 session:= id:i64le  password:16 bytes  timeout_ms:zigzag
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
use crate::tree::Tree;
use crate::varint::{put_bytes, put_i64, put_u64};

/// The content format that this version writes, and the only one that it reads.
pub const SNAPSHOT_VERSION: u8 = 1;

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

/// A snapshot is under way already; finish or abandon it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a snapshot of the tree is under way: finish or abandon it before another one begins")]
pub struct SnapshotBusy;

/// A snapshot under way.
#[derive(Debug)]
pub(crate) struct Walk {
    next: NodeId,
    end: NodeId,
    next_acl: AclId,
    end_acl: AclId,
    ready: VecDeque<Vec<u8>>,
    /// Records of znodes on their way into a chunk.
    nodes: Vec<u8>,
    finished: bool,
}

impl Walk {
    fn save(&mut self, id: NodeId, node: &Node, family: &Family) {
        if self.nodes.is_empty() {
            self.nodes.push(NODES);
        }
        put_node(&mut self.nodes, id, node, family);
        if self.nodes.len() >= MAX_CHUNK_BYTES {
            self.ready.push_back(std::mem::take(&mut self.nodes));
        }
    }
}

impl Tree {
    /// Begins a snapshot of the state as it is now. Sessions are copied at once, all else in
    /// slices: call [`Tree::snapshot_slice`] between batches until it returns `None`.
    ///
    /// # Errors
    /// [`SnapshotBusy`].
    pub fn begin_snapshot(&mut self) -> Result<(), SnapshotBusy> {
        if self.walk.is_some() {
            return Err(SnapshotBusy);
        }
        self.epoch += 1;
        let mut head = vec![HEAD, SNAPSHOT_VERSION];
        put_i64(&mut head, self.zxid);
        put_u64(&mut head, self.arena.len() as u64);
        put_u64(&mut head, self.arena.slots().into());
        put_u64(&mut head, self.sessions.iter().len() as u64);
        head.extend_from_slice(&self.digest().to_le_bytes());
        let mut walk = Walk {
            next: ROOT + 1,
            end: self.arena.slots(),
            next_acl: OPEN + 1,
            end_acl: self.acls.hold(),
            ready: VecDeque::from([head]),
            nodes: Vec::new(),
            finished: false,
        };
        let mut chunk = vec![SESSIONS];
        for (id, session) in self.sessions.iter() {
            chunk.extend_from_slice(&id.to_le_bytes());
            chunk.extend_from_slice(&session.password);
            put_i64(&mut chunk, session.timeout_ms.into());
            if chunk.len() >= MAX_CHUNK_BYTES {
                walk.ready
                    .push_back(std::mem::replace(&mut chunk, vec![SESSIONS]));
            }
        }
        if chunk.len() > 1 {
            walk.ready.push_back(chunk);
        }
        let root = self.arena.node(ROOT);
        walk.save(ROOT, root, &self.arena.family(root));
        self.walk = Some(walk);
        Ok(())
    }

    /// The next chunk of the snapshot, or `None` when there is no more and the snapshot has ended.
    /// Does an amount of work that is bounded by `max_bytes` (at most [`MAX_CHUNK_BYTES`]); only a
    /// chunk whose last record is a large znode is longer.
    pub fn snapshot_slice(&mut self, max_bytes: usize) -> Option<Vec<u8>> {
        let max_bytes = max_bytes.clamp(1, MAX_CHUNK_BYTES);
        let walk = self.walk.as_mut()?;
        if let Some(chunk) = walk.ready.pop_front() {
            return Some(chunk);
        }
        // Passing over a free number counts as a byte, so that a long gap is bounded work too.
        if walk.next_acl < walk.end_acl {
            let mut chunk = vec![ACLS];
            let mut gap_bytes = 0;
            while walk.next_acl < walk.end_acl && chunk.len() + gap_bytes <= max_bytes {
                if let Some(list) = self.acls.find(walk.next_acl) {
                    put_u64(&mut chunk, walk.next_acl.into());
                    put_u64(&mut chunk, list.entries().len() as u64);
                    for entry in list.entries() {
                        put_i64(&mut chunk, entry.perms.0.into());
                        put_bytes(&mut chunk, entry.scheme.as_bytes());
                        put_bytes(&mut chunk, entry.id.as_bytes());
                    }
                } else {
                    gap_bytes += 1;
                }
                walk.next_acl += 1;
            }
            return Some(chunk);
        }
        let mut gap_bytes = 0;
        while walk.next < walk.end && walk.nodes.len() + gap_bytes < max_bytes {
            match self.arena.find(walk.next) {
                Some(node) if node.epoch != self.epoch => {
                    walk.save(walk.next, node, &self.arena.family(node));
                }
                _ => gap_bytes += 1,
            }
            walk.next += 1;
            if !walk.ready.is_empty() {
                break;
            }
        }
        if let Some(chunk) = walk.ready.pop_front() {
            return Some(chunk);
        }
        if walk.next < walk.end || !walk.nodes.is_empty() {
            let chunk = std::mem::take(&mut walk.nodes);
            return Some(if chunk.is_empty() { vec![NODES] } else { chunk });
        }
        if walk.finished {
            self.abandon_snapshot();
            return None;
        }
        walk.finished = true;
        Some(vec![END])
    }

    /// Ends the snapshot before its time; what was handed out of it is worthless. Does nothing if
    /// none is under way.
    pub fn abandon_snapshot(&mut self) {
        if self.walk.take().is_some() {
            self.acls.let_go();
        }
    }

    /// Whether a snapshot is under way.
    #[must_use]
    pub const fn snapshot_in_progress(&self) -> bool {
        self.walk.is_some()
    }

    /// Before a znode is written or deleted: a snapshot that has not come to it gets it as it is.
    pub(crate) fn save(&mut self, id: NodeId) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        let node = self.arena.node(id);
        if node.epoch == self.epoch {
            return;
        }
        if id >= walk.next {
            walk.save(id, node, &self.arena.family(node));
        }
        self.arena.node_mut(id).epoch = self.epoch;
    }
}

fn put_node(out: &mut Vec<u8>, id: NodeId, node: &Node, family: &Family) {
    let data = node.data();
    let has_family = family.creates != 0 || family.pzxid != node.czxid;
    let mut flags = 0;
    for (flag, set) in [
        (HAS_DATA, data.is_some()),
        (HAS_OWNER, node.owner != 0),
        (HAS_ACL, node.acl != OPEN),
        (HAS_VERSION, node.version != 0),
        (HAS_AVERSION, node.aversion != 0),
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
    put_u64(out, node.czxid as u64);
    put_u64(out, node.mzxid.wrapping_sub(node.czxid) as u64);
    put_i64(out, node.ctime);
    put_i64(out, node.mtime.wrapping_sub(node.ctime));
    put_u64(out, node.birth.into());
    if let Some(data) = data {
        put_bytes(out, data);
    }
    if node.owner != 0 {
        out.extend_from_slice(&node.owner.to_le_bytes());
    }
    if node.acl != OPEN {
        put_u64(out, node.acl.into());
    }
    if node.version != 0 {
        put_i64(out, node.version.into());
    }
    if node.aversion != 0 {
        put_i64(out, node.aversion.into());
    }
    if has_family {
        put_u64(out, family.creates as u64);
        put_u64(out, family.pzxid.wrapping_sub(node.czxid) as u64);
    }
}

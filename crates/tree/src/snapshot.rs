//! A snapshot exactly at one zxid, taken while writes go on (bytes: `docs/internals/format.md`,
//! "Snapshot content"). Owns the walk over the tree; the bytes are in [`crate::snapshot_content`],
//! files, checksums and compression in the log's crate.
//!
//! The walker goes over the slab from its beginning to where that ended when the snapshot began. A
//! write that is about to change a znode which the walker has not reached writes that znode's
//! record out first; records carry their numbers, so their order does not matter, and no copy has
//! to be kept. What is waiting to be handed out is then at most the znodes that were written since.

use std::collections::VecDeque;

use crate::acl_table::OPEN;
use crate::arena::{NodeId, ROOT};
use crate::identity::{Identity, put_ids};
use crate::level::FormatLevel;
use crate::snapshot_content::{ACLS, END, HEAD, MAX_CHUNK_BYTES, NODES, SESSIONS, SnapshotWalk};
use crate::tree::Tree;
use crate::varint::{put_bytes, put_i64, put_u64};

/// A snapshot is under way already; finish or abandon it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a snapshot of the tree is under way: finish or abandon it before another one begins")]
pub struct SnapshotBusy;

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
        let has_attachments = self.level >= FormatLevel::Attachments;
        let mut head = vec![HEAD, self.level.snapshot_version()];
        put_i64(&mut head, self.zxid);
        put_u64(&mut head, self.arena.len() as u64);
        put_u64(&mut head, self.arena.slots().into());
        put_u64(&mut head, self.sessions.iter().len() as u64);
        head.extend_from_slice(&self.digest().to_le_bytes());
        if has_attachments {
            put_u64(&mut head, self.level.number());
            put_i64(&mut head, self.time_ms);
        }
        if self.level >= FormatLevel::UniqueSessionIds {
            let newest = self.sessions.newest();
            put_u64(&mut head, newest.len() as u64);
            newest.for_each(|id| head.extend_from_slice(&id.to_le_bytes()));
        }
        let mut walk = SnapshotWalk {
            next: ROOT + 1,
            end: self.arena.slots(),
            passed_over: vec![0; self.arena.slots().div_ceil(u64::BITS) as usize],
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
            if has_attachments {
                let attachment = &session.attachment;
                chunk.extend_from_slice(&attachment.nonce().to_le_bytes());
                put_u64(&mut chunk, attachment.last_sequence());
                chunk.push(attachment.is_broken().into());
            }
            if self.level >= FormatLevel::BoundSessions {
                put_u64(&mut chunk, session.bound_to.len() as u64);
                put_ids(&mut chunk, session.bound_to.iter());
            }
            if self.level >= FormatLevel::SessionIdentities {
                let identity = session.identity.as_deref();
                let ids = identity.map(Identity::ids).into_iter().flatten();
                put_u64(&mut chunk, ids.clone().count() as u64);
                put_ids(&mut chunk, ids);
            }
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
                Some(node) if !walk.passes_over(walk.next) => {
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

    /// Before a znode is written or deleted: a snapshot that has not come to it gets it as it is.
    pub(crate) fn save(&mut self, id: NodeId) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        if id >= walk.next && !walk.passes_over(id) {
            let node = self.arena.node(id);
            walk.save(id, node, &self.arena.family(node));
            walk.pass_over(id);
        }
    }

    /// After a znode got its number: a snapshot that began before does not have it.
    pub(crate) fn pass_over(&mut self, id: NodeId) {
        if let Some(walk) = &mut self.walk {
            walk.pass_over(id);
        }
    }
}

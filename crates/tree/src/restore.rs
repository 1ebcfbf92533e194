//! Builds a tree from the chunks of a snapshot (content: [`crate::snapshot_content`],
//! `docs/internals/format.md`). Owns every check that the content is whole and consistent: what it
//! hands out is exactly the tree that was written, or an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use baton_proto::{Acl, Perms};

use crate::acl_table::{AclId, AclTable, OPEN};
use crate::arena::{Arena, NewNode, NodeId, ROOT};
use crate::attachment::Attachment;
use crate::digest::{self, Digest};
use crate::executor::{Executor, Piece, Sequential};
use crate::identity::AuthId;
use crate::kind::{Kind, is_session_id};
use crate::level::FormatLevel;
use crate::quota::QUOTA_PATH;
use crate::sessions::Sessions;
use crate::snapshot_content::{
    ACLS, ALL_FLAGS, END, HAS_ACL, HAS_AVERSION, HAS_DATA, HAS_FAMILY, HAS_OWNER, HAS_VERSION,
    HEAD, NODES, SESSIONS, SNAPSHOT_VERSION,
};
use crate::tree::Tree;
use crate::varint::{ReadError, Reader};
use crate::walk::Paths;

/// More slots than any process has had.
const MAX_SLOTS: u64 = 1 << 30;

/// Reason why chunks are not a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// A format of another version of Baton.
    #[error(
        "the snapshot has content format {0}, this version reads formats up to {SNAPSHOT_VERSION}: start the version of Baton that wrote it"
    )]
    UnknownVersion(u8),
    /// A format level of a newer version of Baton.
    #[error(
        "the snapshot has format level {0}, this version knows levels up to {newest}: start a newer version of Baton",
        newest = FormatLevel::NEWEST.number()
    )]
    UnknownLevel(u64),
    /// The chunk does not say what it should.
    #[error(
        "chunk {chunk} of the snapshot is broken at byte {offset}: remove this snapshot and start from an older one"
    )]
    Broken {
        /// Number of the chunk, from 0.
        chunk: usize,
        /// Position in it.
        offset: usize,
    },
    /// Chunks are missing.
    #[error("the snapshot ends before its last chunk: remove it and start from an older one")]
    Unfinished,
    /// The parts do not fit together.
    #[error("the snapshot contradicts itself ({0}): remove it and start from an older one")]
    Inconsistent(&'static str),
    /// All is there, but it is not what was written.
    #[error(
        "the snapshot's content has digest {found:016x} but was written with {expected:016x}: remove it and start from an older one"
    )]
    DigestMismatch {
        /// Value as written.
        expected: u64,
        /// Value as read.
        found: u64,
    },
}

#[derive(Debug)]
struct Head {
    zxid: i64,
    nodes: u64,
    sessions: u64,
    digest: u64,
    level: FormatLevel,
    time_ms: i64,
}

/// A tree in the making. Feed it the chunks in the order in which they were handed out, then finish
/// it.
#[derive(Debug)]
pub struct Restore {
    head: Option<Head>,
    chunk: usize,
    ended: bool,
    arena: Arena,
    /// Old number of a znode → new number plus one.
    renumbered: Vec<u32>,
    acls: AclTable,
    acl_numbers: BTreeMap<AclId, AclId>,
    sessions: Sessions,
}

impl Default for Restore {
    fn default() -> Self {
        Self::new()
    }
}

impl Restore {
    /// A restore that has no chunk yet.
    #[must_use]
    pub fn new() -> Self {
        Self::seeded(0)
    }

    /// The same as [`Restore::new`], of a tree with this seed; see [`Tree::seeded`].
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            head: None,
            chunk: 0,
            ended: false,
            arena: Arena::vacant(seed),
            renumbered: Vec::new(),
            acls: AclTable::new(seed),
            acl_numbers: BTreeMap::from([(OPEN, OPEN)]),
            sessions: Sessions::default(),
        }
    }

    /// Takes the next chunk. An empty one says nothing and is passed over.
    ///
    /// # Errors
    /// The chunk is not one, or does not belong here. The restore cannot go on after that.
    pub fn chunk(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        let mut from = Reader::new(bytes);
        let result = if bytes.is_empty() {
            Ok(())
        } else {
            self.read_chunk(&mut from)
        };
        let chunk = self.chunk;
        self.chunk += 1;
        result.map_err(|error| match error {
            ChunkError::Read(ReadError::Truncated(offset) | ReadError::Invalid(offset)) => {
                RestoreError::Broken { chunk, offset }
            }
            ChunkError::Other(error) => error,
        })
    }

    fn read_chunk(&mut self, from: &mut Reader<'_>) -> Result<(), ChunkError> {
        let kind = from.u8()?;
        if self.ended {
            return Err(inconsistent("there are chunks after the last"));
        }
        if (kind == HEAD) != self.head.is_none() {
            return Err(inconsistent("the head is not the first chunk"));
        }
        match kind {
            HEAD => self.read_head(from)?,
            SESSIONS => {
                while from.remaining() > 0 {
                    self.read_session(from)?;
                }
            }
            ACLS => {
                while from.remaining() > 0 {
                    self.read_acl(from)?;
                }
            }
            NODES => {
                while from.remaining() > 0 {
                    self.read_node(from)?;
                }
            }
            END => self.ended = true,
            _ => return Err(ReadError::Invalid(0).into()),
        }
        if from.remaining() > 0 {
            return Err(ReadError::Invalid(from.offset()).into());
        }
        Ok(())
    }

    fn read_head(&mut self, from: &mut Reader<'_>) -> Result<(), ChunkError> {
        let version = from.u8()?;
        if !(1..=SNAPSHOT_VERSION).contains(&version) {
            return Err(ChunkError::Other(RestoreError::UnknownVersion(version)));
        }
        let zxid = from.i64()?;
        let offset = from.offset();
        let nodes = from.u64()?;
        let slots = from.u64()?;
        if nodes > slots || slots > MAX_SLOTS {
            return Err(ReadError::Invalid(offset).into());
        }
        let sessions = from.u64()?;
        let digest = u64::from_le_bytes(from.array()?);
        let (level, time_ms) = match version {
            1 => (FormatLevel::Initial, 0),
            _ => (read_level(from, version)?, from.i64()?),
        };
        if level >= FormatLevel::UniqueSessionIds {
            self.read_newest_ids(from)?;
        }
        self.renumbered = vec![0; slots as usize];
        // A head that lies about the count costs no more than this.
        self.arena.reserve((nodes as usize).min(1 << 24));
        self.head = Some(Head {
            zxid,
            nodes,
            sessions,
            digest,
            level,
            time_ms,
        });
        Ok(())
    }

    /// The newest session ids, one of each server, in their order.
    fn read_newest_ids(&mut self, from: &mut Reader<'_>) -> Result<(), ReadError> {
        for _ in 0..from.u64()? {
            let offset = from.offset();
            let id = from.fixed_i64()?;
            let is_next = self.sessions.newest().next_back().is_none_or(|it| it < id);
            let is_first = self.sessions.newest_like(id).is_none();
            if !is_session_id(id) || !is_next || !is_first {
                return Err(ReadError::Invalid(offset));
            }
            self.sessions.note_opened(id);
        }
        Ok(())
    }

    fn read_session(&mut self, from: &mut Reader<'_>) -> Result<(), ChunkError> {
        let offset = from.offset();
        let id = from.fixed_i64()?;
        let password = from.array()?;
        let timeout_ms = from.i32()?;
        let attachment = self.read_attachment(from, id)?;
        let attachment = attachment.ok_or(ReadError::Invalid(offset))?;
        let bound_to = self.read_ids(from, FormatLevel::BoundSessions)?;
        let identity = self.read_ids(from, FormatLevel::SessionIdentities)?;
        let newest = self.sessions.newest_like(id);
        if !is_session_id(id)
            || self.keeps_newest_ids() && newest.is_none_or(|newest| newest < id)
            || !self
                .sessions
                .open(id, password, timeout_ms, attachment, bound_to)
        {
            return Err(ReadError::Invalid(offset).into());
        }
        if let Some(session) = self.sessions.get_mut(id).filter(|_| !identity.is_empty()) {
            session.identity = Some(Arc::new(identity.into_iter().collect()));
        }
        Ok(())
    }

    fn keeps_newest_ids(&self) -> bool {
        let level = self.head.as_ref().map(|head| head.level);
        level.is_some_and(|level| level >= FormatLevel::UniqueSessionIds)
    }

    /// Identities that a session has from this level on.
    fn read_ids(
        &self,
        from: &mut Reader<'_>,
        since: FormatLevel,
    ) -> Result<Vec<AuthId>, ReadError> {
        let level = self.head.as_ref().map(|head| head.level);
        let mut ids = Vec::new();
        if level.is_some_and(|level| level >= since) {
            for _ in 0..from.u64()? {
                let (scheme, id) = (from.str()?.to_owned(), from.str()?.to_owned());
                ids.push(AuthId { scheme, id });
            }
        }
        Ok(ids)
    }

    /// The attachment of session `id`; `None` if it contradicts itself.
    fn read_attachment(
        &self,
        from: &mut Reader<'_>,
        id: i64,
    ) -> Result<Option<Attachment>, ReadError> {
        let level = self.head.as_ref().map(|head| head.level);
        if level.is_none_or(|level| level < FormatLevel::Attachments) {
            return Ok(Some(Attachment::new(id, None)));
        }
        let nonce = u64::from_le_bytes(from.array()?);
        let last_sequence = from.u64()?;
        let is_broken = match from.u8()? {
            0 => false,
            1 => true,
            _ => return Ok(None),
        };
        Ok(Attachment::restored(id, nonce, last_sequence, is_broken))
    }

    fn read_acl(&mut self, from: &mut Reader<'_>) -> Result<(), ChunkError> {
        let offset = from.offset();
        let number = from.u32()?;
        let mut entries = Vec::new();
        for _ in 0..from.count()? {
            let perms = Perms(from.i32()?);
            let scheme = from.str()?.to_owned();
            entries.push(Acl::new(perms, scheme, from.str()?.to_owned()));
        }
        // Held by this table of numbers until the end.
        let id = self.acls.acquire(entries);
        if self.acl_numbers.insert(number, id).is_some() {
            return Err(ReadError::Invalid(offset).into());
        }
        Ok(())
    }

    fn read_node(&mut self, from: &mut Reader<'_>) -> Result<(), ChunkError> {
        let offset = from.offset();
        let number = from.u32()?;
        let parent = from.u32()?;
        let flags = from.u8()?;
        let name = from.str()?;
        let has = |flag| flags & flag != 0;
        let czxid = from.u64()? as i64;
        let mzxid = czxid.wrapping_add(from.u64()? as i64);
        let ctime = from.i64()?;
        let mtime = ctime.wrapping_add(from.i64()?);
        let birth = from.u32()?;
        let data = has(HAS_DATA).then(|| from.bytes()).transpose()?;
        let owner = if has(HAS_OWNER) { from.fixed_i64()? } else { 0 };
        let acl = if has(HAS_ACL) { from.u32()? } else { OPEN };
        let version = if has(HAS_VERSION) { from.i32()? } else { 0 };
        let aversion = if has(HAS_AVERSION) { from.i32()? } else { 0 };
        let family = if has(HAS_FAMILY) {
            Some((from.u64()? as i64, czxid.wrapping_add(from.u64()? as i64)))
        } else {
            None
        };
        let is_root = number == ROOT;
        let place = self.renumbered.get_mut(number as usize);
        let Some(place) = place.filter(|place| **place == 0) else {
            return Err(ReadError::Invalid(offset).into());
        };
        if flags & !ALL_FLAGS != 0
            || is_root != (self.arena.len() == 0)
            || is_root != name.is_empty()
            || name.contains('/')
        {
            return Err(ReadError::Invalid(offset).into());
        }
        let new = NewNode {
            czxid,
            mzxid,
            ctime,
            mtime,
            owner,
            acl,
            version,
            aversion,
            birth,
        };
        let id = self.arena.place(new, parent, name.as_bytes(), data);
        *place = id + 1;
        if let Some((creates, pzxid)) = family {
            let family = self.arena.family_mut(id);
            family.creates = creates;
            family.pzxid = pzxid;
        }
        Ok(())
    }

    /// The tree, once all chunks are in.
    ///
    /// # Errors
    /// Something is missing, does not fit together, or is not what was written.
    pub fn finish(self) -> Result<Tree, RestoreError> {
        self.finish_on(&Sequential)
    }

    /// Does [`Restore::finish`] on the threads of an executor.
    ///
    /// # Errors
    /// Those of [`Restore::finish`].
    pub fn finish_on(mut self, executor: &dyn Executor) -> Result<Tree, RestoreError> {
        let head = self.head.take().filter(|_| self.ended);
        let head = head.ok_or(RestoreError::Unfinished)?;
        if self.arena.len() as u64 != head.nodes || head.nodes == 0 {
            return Err(RestoreError::Inconsistent("not all znodes are there"));
        }
        if self.sessions.iter().len() as u64 != head.sessions {
            return Err(RestoreError::Inconsistent("not all sessions are there"));
        }
        self.link_children(executor)?;
        let reached = self.arena.complete();
        self.renumber_acls()?;
        let quotas = quota_root(&self.arena)?;
        let mut tree = Tree::of_parts(self.arena, self.acls, self.sessions, quotas, head.zxid);
        tree.level = head.level;
        tree.time_ms = head.time_ms;
        take_stock(&mut tree, &reached, executor)?;
        if reached.len() as u64 != head.nodes {
            return Err(RestoreError::Inconsistent("a znode hangs below itself"));
        }
        let found = tree.digest();
        if found != head.digest {
            return Err(RestoreError::DigestMismatch {
                expected: head.digest,
                found,
            });
        }
        Ok(tree)
    }

    fn link_children(&mut self, executor: &dyn Executor) -> Result<(), RestoreError> {
        for id in ROOT + 1..self.arena.slots() {
            let parent = self.arena.node(id).parent();
            let parent = self.renumbered.get(parent as usize);
            let parent = parent
                .and_then(|parent| parent.checked_sub(1))
                .filter(|parent| *parent != id)
                .ok_or(RestoreError::Inconsistent("a znode has no parent"))?;
            self.arena.set_parent(id, parent);
        }
        if !self.arena.enter_all(executor) {
            return Err(RestoreError::Inconsistent("two znodes have one path"));
        }
        let mut disordered = BTreeSet::new();
        for id in ROOT + 1..self.arena.slots() {
            let node = self.arena.node(id);
            let (parent, key) = (node.parent(), (node.czxid(), node.details().birth));
            if let Some(last) = self.arena.last_child(parent)
                && (last.czxid(), last.details().birth) > key
            {
                disordered.insert(parent);
            }
            self.arena.link(parent, id);
        }
        for parent in disordered {
            self.arena.sort_children(parent);
        }
        Ok(())
    }

    fn renumber_acls(&mut self) -> Result<(), RestoreError> {
        for id in 0..self.arena.slots() {
            let number = self.arena.node(id).acl();
            if number == OPEN {
                continue;
            }
            let acl = self.acl_numbers.get(&number).copied();
            let acl = acl.ok_or(RestoreError::Inconsistent("a znode's ACL is missing"))?;
            self.acls.share(acl);
            self.arena.replace_acl(id, acl);
        }
        for acl in self.acl_numbers.values() {
            self.acls.release(*acl);
        }
        Ok(())
    }
}

/// The znode above all quotas, which every tree has.
pub(crate) fn quota_root(arena: &Arena) -> Result<NodeId, RestoreError> {
    arena
        .lookup(QUOTA_PATH)
        .ok_or(RestoreError::Inconsistent("/zookeeper/quota is missing"))
}

/// The share that some of the znodes have in the state of a tree.
#[derive(Debug, Default)]
struct Stock {
    sum: Digest,
    /// Znodes that are not persistent.
    kinds: Vec<(Kind, NodeId)>,
}

impl Stock {
    fn of(tree: &Tree, ids: &[NodeId]) -> Self {
        let mut stock = Self::default();
        let mut paths = Paths::new(&tree.arena);
        for id in ids {
            let node = tree.arena.node(*id);
            let hash = digest::hash_path(paths.of(*id));
            stock.sum.add(digest::data_term(hash, node));
            stock.sum.add(tree.family_term(hash, node));
            let kind = Kind::of_owner(node.details().owner);
            if kind != Kind::Persistent {
                stock.kinds.push((kind, *id));
            }
        }
        stock
    }
}

/// Looks at these znodes, which are all, as [`Arena::complete`] orders them: digest, ephemerals of
/// sessions, containers.
pub(crate) fn take_stock(
    tree: &mut Tree,
    ids: &[NodeId],
    executor: &dyn Executor,
) -> Result<(), RestoreError> {
    let shares = ids.chunks(ids.len().div_ceil(executor.width().max(1)).max(1));
    let mut stocks: Vec<Stock> = Vec::new();
    stocks.resize_with(shares.len(), Stock::default);
    let whole = &*tree;
    let pieces = shares
        .zip(&mut stocks)
        .map(|(ids, stock)| -> Piece<'_> { Box::new(move || *stock = Stock::of(whole, ids)) });
    executor.run(pieces.collect());
    let mut sum = Digest::default();
    for stock in &stocks {
        sum.merge(stock.sum);
    }
    for (kind, id) in stocks.into_iter().flat_map(|stock| stock.kinds) {
        if let Kind::Ephemeral(session) = kind
            && tree.sessions.get(session).is_none()
            && tree.level < FormatLevel::BoundedCommands
        {
            return Err(RestoreError::Inconsistent("an ephemeral has no session"));
        }
        tree.note_kind(kind, id);
    }
    for (id, session) in tree.sessions.iter() {
        sum.add(session.digest_term(id, tree.level));
    }
    if tree.level >= FormatLevel::UniqueSessionIds {
        let newest = tree.sessions.newest();
        newest.for_each(|id| sum.add(digest::newest_id_term(id)));
    }
    tree.digest = sum;
    Ok(())
}

/// The level in a head of this version, which is that of a tree written in it.
fn read_level(from: &mut Reader<'_>, version: u8) -> Result<FormatLevel, ChunkError> {
    let offset = from.offset();
    let number = from.u64()?;
    let level = FormatLevel::from_number(number)
        .ok_or(ChunkError::Other(RestoreError::UnknownLevel(number)))?;
    if level.snapshot_version() != version {
        return Err(ReadError::Invalid(offset).into());
    }
    Ok(level)
}

enum ChunkError {
    Read(ReadError),
    Other(RestoreError),
}

impl From<ReadError> for ChunkError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

fn inconsistent(what: &'static str) -> ChunkError {
    ChunkError::Other(RestoreError::Inconsistent(what))
}

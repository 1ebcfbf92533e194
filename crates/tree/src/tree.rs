//! The state machine itself: takes one command after the other and is, after each, in a state that
//! depends on nothing but the commands. Owns the znodes, the sessions and the zxid. No clock, no
//! I/O, no chance: the only time is the batch's, the only order is the log's.

use baton_proto::{Acl, ErrorCode, Limits, OpCode, Perms, Request, Response, Stat};

use crate::acl_table::{AclTable, OPEN};
use crate::arena::{Arena, NewNode, Node, NodeId, ROOT};
use crate::batch::{Batch, CloseReason, Command};
use crate::digest::{self, Digest};
use crate::effects::{Effects, Outcome};
use crate::identity::Identity;
use crate::kind::{Kind, is_session_id};
use crate::sessions::Sessions;
use crate::snapshot::Walk;
use crate::write::{Context, Direct};
use std::collections::BTreeSet;

/// Paths that exist from the beginning and that nobody deletes.
pub(crate) const INITIAL_PATHS: [&str; 4] =
    ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// Bounds for bodies that are in the log already. How large a request may be is decided where it
/// comes in; a replica with other settings must not decide otherwise.
const APPLY_LIMITS: Limits = Limits::with_max_frame_bytes(i32::MAX as usize);

/// The replicated tree of znodes with its sessions.
#[derive(Debug)]
pub struct Tree {
    pub(crate) arena: Arena,
    pub(crate) acls: AclTable,
    pub(crate) sessions: Sessions,
    /// Containers and TTL znodes.
    pub(crate) reaped: BTreeSet<NodeId>,
    /// The znode above all quotas.
    pub(crate) quotas: NodeId,
    pub(crate) zxid: i64,
    pub(crate) digest: Digest,
    /// Counts snapshots: a znode with an older epoch is as it was when the current snapshot began.
    pub(crate) epoch: u32,
    pub(crate) walk: Option<Walk>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// The tree before the first write: `/`, `/zookeeper`, `/zookeeper/quota` and
    /// `/zookeeper/config`, and no session.
    #[must_use]
    pub fn new() -> Self {
        let mut acls = AclTable::new();
        let readable = acls.acquire(vec![Acl::read_unsafe()]);
        let initial = |birth, acl, aversion| NewNode {
            czxid: 0,
            mzxid: 0,
            ctime: 0,
            mtime: 0,
            owner: 0,
            acl,
            version: 0,
            aversion,
            birth,
            epoch: 0,
        };
        let mut arena = Arena::new(initial(0, OPEN, 0), Some(b""));
        let system = arena.insert(initial(1, OPEN, 0), ROOT, b"zookeeper", Some(b""));
        let quotas = arena.insert(initial(2, OPEN, 0), system, b"quota", Some(b""));
        arena.insert(initial(3, readable, -1), system, b"config", Some(b""));
        let mut tree = Self {
            arena,
            acls,
            sessions: Sessions::default(),
            reaped: BTreeSet::new(),
            quotas,
            zxid: 0,
            digest: Digest::default(),
            epoch: 0,
            walk: None,
        };
        for path in INITIAL_PATHS {
            if let Some(id) = tree.arena.lookup(path) {
                tree.count_in(path, id);
            }
        }
        tree
    }

    /// Applies one command.
    ///
    /// Every command but a re-attachment takes one zxid, failed or not. `time_ms` is the batch's.
    /// `session` gave the command, 0 for the server itself; `identity` is who its connection is.
    /// Changes go to `effects` when the command has succeeded, before this returns.
    pub fn apply(
        &mut self,
        time_ms: i64,
        session: i64,
        identity: &Identity,
        command: Command<'_>,
        effects: &mut impl Effects,
    ) -> Outcome {
        if !matches!(command, Command::ReattachSession { .. }) {
            self.zxid += 1;
        }
        let context = Context {
            time_ms,
            zxid: self.zxid,
            session,
            identity,
            birth: 0,
        };
        let result = match command {
            Command::OpenSession {
                session_id,
                password,
                timeout_ms,
            } => self.open_session(session_id, password, timeout_ms),
            Command::ReattachSession {
                session_id,
                password,
                timeout_ms,
            } => self.reattach_session(session_id, &password, timeout_ms),
            Command::CloseSession {
                session_id,
                reason: CloseReason::Client | CloseReason::Expired,
            } => self.close_session(&context, session_id, effects),
            Command::Write { op, body } => self.write(&context, op, body, effects),
            Command::DeleteContainer { path, czxid } => {
                self.reap(&context, path, czxid, &mut Direct(effects))
            }
        };
        Outcome {
            zxid: self.zxid,
            result,
        }
    }

    /// Applies all commands of a batch in order; `outcome` gets the place and the outcome of each.
    pub fn apply_batch(
        &mut self,
        batch: &Batch<'_>,
        effects: &mut impl Effects,
        mut outcome: impl FnMut(usize, Outcome),
    ) {
        for (place, (item, identity)) in batch.iter().enumerate() {
            let command = item.command;
            let applied = self.apply(batch.time_ms(), item.session, identity, command, effects);
            outcome(place, applied);
        }
    }

    fn open_session(
        &mut self,
        id: i64,
        password: [u8; 16],
        timeout_ms: i32,
    ) -> Result<Response, ErrorCode> {
        if !is_session_id(id) || !self.sessions.open(id, password, timeout_ms) {
            return Err(ErrorCode::BadArguments);
        }
        self.digest
            .add(digest::session_term(id, &password, timeout_ms));
        Ok(Response::Empty)
    }

    fn reattach_session(
        &mut self,
        id: i64,
        password: &[u8; 16],
        timeout_ms: i32,
    ) -> Result<Response, ErrorCode> {
        let session = self
            .sessions
            .get_mut(id)
            .filter(|session| session.password == *password)
            .ok_or(ErrorCode::SessionExpired)?;
        let before = std::mem::replace(&mut session.timeout_ms, timeout_ms);
        self.digest
            .remove(digest::session_term(id, password, before));
        self.digest
            .add(digest::session_term(id, password, timeout_ms));
        Ok(Response::Empty)
    }

    fn close_session(
        &mut self,
        context: &Context<'_>,
        id: i64,
        effects: &mut impl Effects,
    ) -> Result<Response, ErrorCode> {
        let session = self.sessions.close(id).ok_or(ErrorCode::SessionExpired)?;
        self.digest.remove(digest::session_term(
            id,
            &session.password,
            session.timeout_ms,
        ));
        let mut doomed: Vec<(String, NodeId)> = session
            .ephemerals
            .iter()
            .map(|node| (self.arena.path_of(*node), *node))
            .collect();
        doomed.sort_unstable();
        for (path, node) in doomed {
            self.remove(context, &path, node, &mut Direct(effects));
        }
        Ok(Response::Empty)
    }

    fn write(
        &mut self,
        context: &Context<'_>,
        op: OpCode,
        body: &[u8],
        effects: &mut impl Effects,
    ) -> Result<Response, ErrorCode> {
        if self.sessions.get(context.session).is_none() {
            return Err(ErrorCode::SessionExpired);
        }
        let request =
            Request::decode(op, body, &APPLY_LIMITS).map_err(|_| ErrorCode::MarshallingError)?;
        let recorder = &mut Direct(effects);
        match request {
            Request::Create(create) => {
                let (path, stat) = self.create(context, &create, recorder)?;
                Ok(if op == OpCode::Create {
                    Response::Path(path)
                } else {
                    Response::PathStat(path, stat)
                })
            }
            Request::Delete { path, version } => {
                self.delete(context, path, version, recorder)?;
                Ok(Response::Empty)
            }
            Request::SetData {
                path,
                data,
                version,
            } => self
                .set_data(context, path, data, version, recorder)
                .map(Response::Stat),
            Request::SetAcl { path, acl, version } => self
                .set_acl(context, path, acl.as_deref(), version)
                .map(Response::Stat),
            Request::Multi(ops) => Ok(Response::Multi(self.multi(context, &ops, effects))),
            // As ZooKeeper while `reconfigEnabled` is false: the write takes its zxid.
            Request::Reconfig { .. } => Err(ErrorCode::ReconfigDisabled),
            _ => Err(ErrorCode::Unimplemented),
        }
    }

    /// The zxid of the last command.
    #[must_use]
    pub const fn zxid(&self) -> i64 {
        self.zxid
    }

    /// A digest of the whole state, equal on replicas that have applied the same commands. Takes no
    /// time.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.value(self.zxid)
    }

    /// Adds a new znode's terms to the digest.
    pub(crate) fn count_in(&mut self, path: &str, id: NodeId) {
        let hash = digest::hash_path(path);
        let node = self.arena.node(id);
        self.digest.add(digest::data_term(hash, node));
        self.digest.add(self.family_term(hash, node));
    }

    /// Takes a znode's terms out of the digest.
    pub(crate) fn count_out(&mut self, path: &str, id: NodeId) {
        let hash = digest::hash_path(path);
        let node = self.arena.node(id);
        self.digest.remove(digest::data_term(hash, node));
        self.digest.remove(self.family_term(hash, node));
    }

    pub(crate) fn family_term(&self, path_hash: u64, node: &Node) -> u64 {
        let family = self.arena.family(node);
        let acl_hash = self.acls.get(node.acl).content_hash();
        digest::family_term(path_hash, node, &family, acl_hash)
    }

    /// Whether `identity` has some permission of `wanted` on this znode.
    pub(crate) fn permits(&self, node: &Node, identity: &Identity, wanted: Perms) -> bool {
        node.acl == OPEN || self.acls.get(node.acl).permits(identity, wanted)
    }

    /// The stat as clients see it (protocol.md §1.6).
    pub(crate) fn stat_of(&self, node: &Node) -> Stat {
        let family = self.arena.family(node);
        let num_children = family.num_children as i32;
        Stat {
            czxid: node.czxid,
            mzxid: node.mzxid,
            ctime: node.ctime,
            mtime: node.mtime,
            version: node.version,
            cversion: family
                .creates
                .wrapping_mul(2)
                .wrapping_sub(num_children.into()) as i32,
            aversion: node.aversion,
            ephemeral_owner: Kind::of_owner(node.owner).ephemeral_owner(),
            data_length: node.data_len() as i32,
            num_children,
            pzxid: family.pzxid,
        }
    }
}

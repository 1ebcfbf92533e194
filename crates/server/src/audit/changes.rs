//! Changes of committed entries, as lines of the audit record. Owns which server records a change:
//! the one whose client asked for it, and of what no client asked for the one that proposed the
//! entry. Works on the core's thread, so that it only formats, and hands whole pages over.

use std::net::IpAddr;
use std::sync::Arc;

use baton_proto::{
    CONFIG_PATH, Create, CreateMode, ErrorCode, Limits, MultiOp, MultiResult, OpCode, Request,
    Response,
};
use baton_tree::{BatchItem, CloseReason, Command, Identity, Outcome};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::line::{Ending, Fields, Operation, Prefix, Stamp, write_line};
use super::queue::Page;
use super::record::{Audit, Principal};
use crate::connections::conn::Conn;
use crate::connections::inbox::Group;

/// Bytes of lines that are handed over at once.
const PAGE_BYTES: usize = 64 << 10;

/// Limits that every entry of the log has passed already.
const LIMITS: Limits = Limits::with_max_frame_bytes(i32::MAX as usize);

/// A command that was applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Applied<'a> {
    pub(crate) item: &'a BatchItem<'a>,
    /// The client of this server that gave it.
    pub(crate) client: Option<&'a Group>,
    /// Whether this server has given it by itself.
    pub(crate) is_own: bool,
    pub(crate) outcome: &'a Outcome,
    /// The znodes that were deleted with their session.
    pub(crate) deleted: &'a [String],
}

/// The changes of one server's clients, and its own.
#[derive(Debug)]
pub(crate) struct Changes {
    audit: Arc<Audit>,
    page: Page,
    stamp: Stamp,
    /// Actor that `prefix` is about; `None`: nobody.
    actor: Option<Actor>,
    prefix: Prefix,
    /// Origins of the sessions of this server's clients.
    homes: HashMap<i64, ClientOrigin, RandomState>,
}

/// Actor of the command before.
#[derive(Debug)]
struct Actor {
    conn: u32,
    session: i64,
    identity: Arc<Identity>,
}

/// Origin of a client: what it shows of itself when it connects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClientOrigin {
    address: Option<IpAddr>,
    subject: Option<String>,
}

impl ClientOrigin {
    fn of(conn: &Conn, identity: &Identity) -> Self {
        let mut ids = identity.ids();
        let subject = ids.find(|id| id.scheme == "x509");
        Self {
            address: conn.peer.ip(),
            subject: subject.map(|id| id.id.clone()),
        }
    }
}

impl Changes {
    pub(crate) fn new(audit: Arc<Audit>) -> Self {
        Self {
            audit,
            page: Page::default(),
            stamp: Stamp::at(0),
            actor: None,
            prefix: Prefix::default(),
            homes: HashMap::default(),
        }
    }

    /// The time of the lines that follow.
    pub(crate) fn begin(&mut self, unix_ms: i64) {
        self.stamp.advance(unix_ms);
    }

    /// Hands over what was recorded.
    pub(crate) fn finish(&mut self) {
        self.audit.add_changes(&mut self.page);
    }

    /// Records a command.
    pub(crate) fn applied(&mut self, applied: &Applied<'_>) {
        let Applied {
            item,
            client,
            is_own,
            outcome,
            deleted,
        } = *applied;
        match item.command {
            Command::Write { op, body } => {
                if let Some(client) = client {
                    self.by_client(client, item.session);
                    self.write(op, body, outcome);
                }
            }
            Command::Reconfigure { body, .. } => match client {
                Some(client) => self.reconfigured(client, body, outcome),
                None if is_own && item.session == 0 => {
                    self.by_server(None);
                    self.reconfigure(body, outcome);
                }
                None => {}
            },
            Command::DeleteContainer { path, .. } if is_own && outcome.result.is_ok() => {
                self.by_server(None);
                self.znode(Operation::Delete, path, outcome.zxid, None);
            }
            Command::CloseSession { session_id, reason } => {
                self.homes.remove(&session_id);
                match client {
                    Some(client) => self.by_client(client, session_id),
                    None if is_own && reason == CloseReason::Expired => {
                        self.by_server(Some(session_id));
                    }
                    None => return,
                }
                for path in deleted {
                    self.znode(Operation::EphemeralDeletion, path, outcome.zxid, None);
                }
            }
            Command::OpenSession { session_id, .. } => {
                if let Some(client) = client.filter(|_| outcome.result.is_ok()) {
                    let home = ClientOrigin::of(&client.conn, &client.identity);
                    self.homes.insert(session_id, home);
                }
            }
            Command::ReattachSession { session_id, .. } => {
                self.reattached(session_id, client, outcome);
            }
            Command::DeleteContainer { .. } | Command::SetLevel(_) | Command::ResetTime { .. } => {}
        }
    }

    /// Records the change of members that a client has asked for.
    pub(crate) fn reconfigured(&mut self, client: &Group, body: &[u8], outcome: &Outcome) {
        self.by_client(client, client.conn.session());
        self.reconfigure(body, outcome);
    }

    /// A session goes on over another connection: a line, unless everything is as it was.
    fn reattached(&mut self, session: i64, client: Option<&Group>, outcome: &Outcome) {
        let Some(client) = client else {
            if outcome.result.is_ok() {
                // At another server: a client that brings it back is new here.
                self.homes.remove(&session);
            }
            return;
        };
        let error = outcome.result.as_ref().err().copied();
        let mut before = None;
        if error.is_none() {
            let home = ClientOrigin::of(&client.conn, &client.identity);
            before = self.homes.insert(session, home.clone());
            if before.as_ref() == Some(&home) {
                return;
            }
        }
        self.by_client(client, session);
        self.line(Operation::SessionReattach, None, error, |fields| {
            if let Some(before) = &before {
                fields.address("before", before.address);
            }
        });
    }

    fn write(&mut self, op: OpCode, body: &[u8], outcome: &Outcome) {
        let zxid = outcome.zxid;
        let error = outcome.result.as_ref().err().copied();
        let Ok(request) = Request::decode(op, body, &LIMITS) else {
            let operation = match op {
                OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
                    Operation::Create
                }
                OpCode::Delete => Operation::Delete,
                OpCode::SetData => Operation::SetData,
                OpCode::SetAcl => Operation::SetAcl,
                OpCode::Multi => Operation::Multi,
                OpCode::Reconfig => Operation::Reconfig,
                _ => return,
            };
            return self.line(operation, Some(zxid), error, |_| {});
        };
        match request {
            Request::Create(create) => {
                let created = match &outcome.result {
                    Ok(Response::Path(path) | Response::PathStat(path, _)) => path,
                    _ => create.path,
                };
                self.create(&create, created, zxid, error);
            }
            Request::Delete { path, .. } => self.znode(Operation::Delete, path, zxid, error),
            Request::SetData { path, .. } => self.znode(Operation::SetData, path, zxid, error),
            Request::SetAcl { path, acl, .. } => {
                self.line(Operation::SetAcl, Some(zxid), error, |fields| {
                    fields.text("znode", path);
                    fields.acl(acl.as_deref().unwrap_or_default());
                });
            }
            Request::Multi(ops) => match &outcome.result {
                Ok(Response::Multi(parts)) => self.multi(&ops, parts, zxid),
                _ => self.line(Operation::Multi, Some(zxid), error, |_| {}),
            },
            Request::Reconfig { .. } => self.reconfigure(body, outcome),
            _ => {}
        }
    }

    fn create(&mut self, create: &Create<'_>, path: &str, zxid: i64, error: Option<ErrorCode>) {
        self.line(Operation::Create, Some(zxid), error, |fields| {
            fields.text("znode", path);
            if let Ok(mode) = create.mode() {
                fields.word("znode_type", type_of(mode));
            }
            fields.acl(create.acl.as_deref().unwrap_or_default());
        });
    }

    /// Each part that changes something; and that it failed, if it did.
    fn multi(&mut self, ops: &[MultiOp<'_>], parts: &[MultiResult], zxid: i64) {
        let culprit = parts.iter().enumerate().find_map(|(place, part)| {
            let is_consequence =
                |code| matches!(code, ErrorCode::Ok | ErrorCode::RuntimeInconsistency);
            let code = part.error().filter(|code| !is_consequence(*code))?;
            Some((place, code))
        });
        for (place, (op, part)) in ops.iter().zip(parts).enumerate() {
            let error = culprit.map(|(failed, code)| match place == failed {
                true => code,
                false => ErrorCode::RuntimeInconsistency,
            });
            match op {
                MultiOp::Create(create) => {
                    let path = match part {
                        MultiResult::Create { path } | MultiResult::Create2 { path, .. } => path,
                        _ => create.path,
                    };
                    self.create(create, path, zxid, error);
                }
                MultiOp::Delete { path, .. } => self.znode(Operation::Delete, path, zxid, error),
                MultiOp::SetData { path, .. } => self.znode(Operation::SetData, path, zxid, error),
                _ => {}
            }
        }
        if let Some((place, code)) = culprit {
            self.line(Operation::Multi, Some(zxid), Some(code), |fields| {
                if let Some(op) = ops.get(place) {
                    fields.text("znode", op.path());
                }
            });
        }
    }

    fn reconfigure(&mut self, body: &[u8], outcome: &Outcome) {
        let error = outcome.result.as_ref().err().copied();
        let request = Request::decode(OpCode::Reconfig, body, &LIMITS);
        self.line(Operation::Reconfig, Some(outcome.zxid), error, |fields| {
            fields.text("znode", CONFIG_PATH);
            if let Ok(Request::Reconfig {
                joining,
                leaving,
                new_members,
                ..
            }) = request
            {
                for (name, servers) in [
                    ("joining", joining),
                    ("leaving", leaving),
                    ("members", new_members),
                ] {
                    if let Some(servers) = servers {
                        fields.text(name, servers);
                    }
                }
            }
        });
    }

    fn znode(&mut self, operation: Operation, path: &str, zxid: i64, error: Option<ErrorCode>) {
        self.line(operation, Some(zxid), error, |fields| {
            fields.text("znode", path)
        });
    }

    /// The lines that follow are about this client.
    fn by_client(&mut self, client: &Group, session: i64) {
        let is_same = |actor: &Actor| {
            actor.conn == client.conn.id
                && actor.session == session
                && Arc::ptr_eq(&actor.identity, &client.identity)
        };
        if self.actor.as_ref().is_some_and(is_same) {
            return;
        }
        let who = Principal::of(&client.conn)
            .known_as(&client.identity)
            .in_session(session);
        self.prefix
            .set(self.audit.format(), |fields| who.write(fields));
        self.actor = Some(Actor {
            conn: client.conn.id,
            session,
            identity: Arc::clone(&client.identity),
        });
    }

    /// The lines that follow are about the server itself, which has ended this session.
    fn by_server(&mut self, session: Option<i64>) {
        let who = match session {
            Some(session) => Principal::server().in_session(session),
            None => Principal::server(),
        };
        self.prefix
            .set(self.audit.format(), |fields| who.write(fields));
        self.actor = None;
    }

    fn line(
        &mut self,
        operation: Operation,
        zxid: Option<i64>,
        error: Option<ErrorCode>,
        more: impl FnOnce(&mut Fields<'_>),
    ) {
        let (prefix, page) = (&self.prefix, &mut self.page);
        write_line(
            &mut page.bytes,
            self.audit.format(),
            &self.stamp,
            |fields| {
                fields.prefix(prefix);
                fields.operation(operation);
                more(fields);
                fields.ending(match error {
                    None => Ending::Success,
                    Some(_) => Ending::Failure,
                });
                if let Some(error) = error {
                    fields.error(error);
                }
                if let Some(zxid) = zxid {
                    fields.hex("zxid", zxid);
                }
            },
        );
        page.lines += 1;
        if page.bytes.len() >= PAGE_BYTES {
            self.finish();
        }
    }
}

/// The kind of a znode, in ZooKeeper's words.
const fn type_of(mode: CreateMode) -> &'static str {
    match mode {
        CreateMode::Persistent => "persistent",
        CreateMode::PersistentSequential => "persistent_sequential",
        CreateMode::Ephemeral => "ephemeral",
        CreateMode::EphemeralSequential => "ephemeral_sequential",
        CreateMode::Container => "container",
        CreateMode::PersistentTtl { .. } => "persistent_with_ttl",
        CreateMode::PersistentSequentialTtl { .. } => "persistent_sequential_with_ttl",
    }
}

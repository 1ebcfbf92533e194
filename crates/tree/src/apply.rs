//! Applies the commands of the log. Owns what each does to sessions, to the zxid, to time and to
//! the format level. Every command takes one zxid, failed or not, except a re-attachment, a sync, a
//! change of the level, and what is not applied at all because of its stamp. A write is decided
//! here, against the state that it finds.

use std::sync::Arc;

use baton_proto::{ErrorCode, Limits, OpCode, Request, Response};

use crate::acl_rules::AclAllowance;
use crate::arena::NodeId;
use crate::attachment::{Admission, Attachment, Stamp, Unapplied};
use crate::batch::{Batch, BatchItem, CloseReason, Command};
use crate::digest;
use crate::effects::{Effects, Outcome};
use crate::identity::{AuthId, Identity};
use crate::kind::is_session_id;
use crate::level::{FormatLevel, MOST_DELETED_AT_ONCE, MOST_DELETED_BYTES};
use crate::multi::MultiBounds;
use crate::recorder::{Context, UnloggedRecorder};
use crate::server_list::{ListChange, ServerList};
use crate::sessions::{CERTIFICATE, SASL};
use crate::tree::Tree;

/// Bounds for bodies that are in the log already. How large a request may be is decided where it
/// comes in; a replica with other settings must not decide otherwise.
const APPLY_LIMITS: Limits = Limits::with_max_frame_bytes(i32::MAX as usize);

impl Tree {
    /// Applies one command, whatever attachment the session has.
    ///
    /// Every command but a re-attachment, a sync and a change of the level takes one zxid, failed
    /// or not. `time_ms` is the batch's. `session` gave the command, 0 for the server itself;
    /// `identity` is who its connection is. Changes go to `effects` when the command has succeeded,
    /// before this returns.
    pub fn apply(
        &mut self,
        time_ms: i64,
        session: i64,
        identity: &Identity,
        command: Command<'_>,
        effects: &mut impl Effects,
    ) -> Outcome {
        let item = BatchItem {
            session,
            cxid: 0,
            identity: Some(0),
            stores_identity: false,
            stamp: None,
            command,
        };
        let is_open = self.sessions.get(session).is_some();
        self.execute(time_ms, &item, identity, is_open, effects)
    }

    /// Applies one command of a batch, as [`Tree::apply`] does, if its stamp permits that. A
    /// command whose batch does not list its identity has the one that its session stores.
    ///
    /// # Errors
    /// [`Unapplied`]: nothing has changed, except that a gap breaks the attachment.
    pub fn apply_item(
        &mut self,
        time_ms: i64,
        item: &BatchItem<'_>,
        identity: &Identity,
        effects: &mut impl Effects,
    ) -> Result<Outcome, Unapplied> {
        let stored = match item.identity {
            Some(_) => None,
            None => self.sessions.get(item.session),
        };
        let stored = stored.and_then(|session| session.identity.clone());
        let identity = stored.as_deref().unwrap_or(identity);
        let is_open = match item.command {
            Command::Write { .. }
            | Command::Reconfigure { .. }
            | Command::CloseSession {
                reason: CloseReason::Client,
                ..
            } if self.level >= FormatLevel::Attachments => self.admit(item, identity)?,
            _ => self.sessions.get(item.session).is_some(),
        };
        Ok(self.execute(time_ms, item, identity, is_open, effects))
    }

    /// Counts a client's command, and returns whether the session is open. If it is not, the
    /// command fails for that.
    fn admit(&mut self, item: &BatchItem<'_>, identity: &Identity) -> Result<bool, Unapplied> {
        let (id, level) = (item.session, self.level);
        let Some(session) = self.sessions.get_mut(id) else {
            return Ok(false);
        };
        match session.attachment.admission(item.stamp) {
            Admission::Next => {
                self.digest.add(session.attachment.advance());
                if item.stores_identity && level >= FormatLevel::SessionIdentities {
                    self.digest.remove(session.digest_term(id, level));
                    // A snapshot has no empty one.
                    let is_known = identity.ids().len() > 0;
                    session.identity = is_known.then(|| Arc::new(identity.clone()));
                    self.digest.add(session.digest_term(id, level));
                }
                Ok(true)
            }
            Admission::Unstamped => Ok(true),
            Admission::Gap => {
                self.digest.remove(session.digest_term(id, level));
                session.attachment.break_off();
                self.digest.add(session.digest_term(id, level));
                Err(Unapplied::AfterGap)
            }
            Admission::Refused(why) => Err(why),
        }
    }

    fn execute(
        &mut self,
        time_ms: i64,
        item: &BatchItem<'_>,
        identity: &Identity,
        is_open: bool,
        effects: &mut impl Effects,
    ) -> Outcome {
        let time_ms = self.advance_time(time_ms);
        let command = item.command;
        let takes_zxid = match command {
            Command::ReattachSession { .. }
            | Command::SetLevel(_)
            | Command::Write {
                op: OpCode::Sync, ..
            } => false,
            Command::Write {
                op: OpCode::Sasl, ..
            } => self.level < FormatLevel::BoundSessions,
            _ => true,
        };
        if takes_zxid {
            self.zxid += 1;
        }
        let context = Context {
            time_ms,
            zxid: self.zxid,
            session: item.session,
            identity,
            acls: &AclAllowance::at(self.level),
            birth: 0,
        };
        let result = match command {
            Command::OpenSession {
                session_id,
                password,
                timeout_ms,
            } => {
                let attachment = self.attachment(session_id, item.stamp);
                self.open_session(session_id, password, timeout_ms, attachment, identity)
            }
            Command::ReattachSession {
                session_id,
                password,
                timeout_ms,
            } => {
                let attachment = self.attachment(session_id, item.stamp);
                self.reattach_session(session_id, &password, timeout_ms, attachment, identity)
            }
            Command::CloseSession {
                session_id,
                reason: CloseReason::Client | CloseReason::Expired,
            } => self.close_session(&context, session_id, effects),
            Command::Write { .. } if !is_open => Err(ErrorCode::SessionExpired),
            Command::Write { op, body } => self.write(&context, op, body, effects),
            Command::DeleteContainer { path, czxid } => {
                self.reap(&context, path, czxid, &mut UnloggedRecorder(effects))
            }
            Command::SetLevel(level) => self.set_level(&context, level),
            Command::ResetTime { to_ms } if self.level >= FormatLevel::SessionIdentities => {
                self.reset_time(to_ms);
                Ok(Response::Empty)
            }
            Command::ResetTime { .. } => Err(ErrorCode::BadArguments),
            Command::Reconfigure { .. } if item.session != 0 && !is_open => {
                Err(ErrorCode::SessionExpired)
            }
            Command::Reconfigure { refusal, body } => {
                self.reconfigure(&context, refusal, body, effects)
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
        mut outcome: impl FnMut(usize, Result<Outcome, Unapplied>),
    ) {
        for (place, (item, identity)) in batch.iter().enumerate() {
            let applied = self.apply_item(batch.time_ms(), item, identity, effects);
            outcome(place, applied);
        }
    }

    /// The time of a command of a batch of `time_ms`: never earlier than the one before, whatever
    /// the clocks of successive leaders read (R39).
    fn advance_time(&mut self, time_ms: i64) -> i64 {
        if self.level == FormatLevel::Initial {
            return time_ms;
        }
        self.time_ms = self.time_ms.max(time_ms);
        self.time_ms
    }

    fn set_level(
        &mut self,
        context: &Context<'_>,
        level: FormatLevel,
    ) -> Result<Response, ErrorCode> {
        if level < self.level {
            return Err(ErrorCode::BadArguments);
        }
        if level > self.level {
            for (id, session) in self.sessions.iter() {
                self.digest.remove(session.digest_term(id, self.level));
                self.digest.add(session.digest_term(id, level));
            }
            if self.level < FormatLevel::UniqueSessionIds && level >= FormatLevel::UniqueSessionIds
            {
                self.sessions.forget_unknown_ids();
                let newest = self.sessions.newest();
                newest.for_each(|id| self.digest.add(digest::newest_id_term(id)));
            }
            self.level = level;
            self.time_ms = context.time_ms;
        }
        Ok(Response::Empty)
    }

    /// The attachment that a command of this stamp gives the session.
    fn attachment(&self, session: i64, stamp: Option<Stamp>) -> Attachment {
        let stamp = stamp.filter(|_| self.level >= FormatLevel::Attachments);
        Attachment::new(session, stamp.map(|stamp| stamp.nonce))
    }

    fn open_session(
        &mut self,
        id: i64,
        password: [u8; 16],
        timeout_ms: i32,
        attachment: Attachment,
        identity: &Identity,
    ) -> Result<Response, ErrorCode> {
        let bound_to = self.ids_of(CERTIFICATE, identity);
        if !is_session_id(id) || self.is_session_id_used(id) {
            return Err(ErrorCode::BadArguments);
        }
        let before = self.sessions.newest_like(id);
        let sessions = &mut self.sessions;
        if !sessions.open(id, password, timeout_ms, attachment, bound_to) {
            return Err(ErrorCode::BadArguments);
        }
        if self.level >= FormatLevel::UniqueSessionIds {
            self.digest.remove(before.map_or(0, digest::newest_id_term));
            self.digest.add(digest::newest_id_term(id));
        }
        if let Some(session) = self.sessions.get(id) {
            self.digest.add(session.digest_term(id, self.level));
        }
        Ok(Response::Empty)
    }

    fn reattach_session(
        &mut self,
        id: i64,
        password: &[u8; 16],
        timeout_ms: i32,
        attachment: Attachment,
        identity: &Identity,
    ) -> Result<Response, ErrorCode> {
        let level = self.level;
        let session = self
            .sessions
            .get_mut(id)
            .filter(|session| session.admits(password, identity))
            .ok_or(ErrorCode::SessionExpired)?;
        self.digest.remove(session.digest_term(id, level));
        session.timeout_ms = timeout_ms;
        session.attachment = attachment;
        session.identity = None;
        self.digest.add(session.digest_term(id, level));
        Ok(Response::Empty)
    }

    /// The identities of this scheme, to which a session is bound from now on.
    fn ids_of(&self, scheme: &str, identity: &Identity) -> Vec<AuthId> {
        let ids = identity.ids();
        let ids = ids.filter(|id| id.scheme == scheme && self.level >= FormatLevel::BoundSessions);
        ids.cloned().collect()
    }

    /// Binds the session to what its client has just proved by SASL, unless it is bound already.
    fn bind_session(&mut self, context: &Context<'_>) {
        let (id, level) = (context.session, self.level);
        let bound_to = self.ids_of(SASL, context.identity);
        if let Some(session) = self.sessions.get_mut(id)
            && session.bound_to.iter().all(|id| id.scheme != SASL)
        {
            self.digest.remove(session.digest_term(id, level));
            session.bound_to.extend(bound_to);
            self.digest.add(session.digest_term(id, level));
        }
    }

    fn close_session(
        &mut self,
        context: &Context<'_>,
        id: i64,
        effects: &mut impl Effects,
    ) -> Result<Response, ErrorCode> {
        if !self.sessions.is_ending(id) {
            let session = self.sessions.end(id).ok_or(ErrorCode::SessionExpired)?;
            self.digest.remove(session.digest_term(id, self.level));
        }
        let (most, most_bytes) = match self.level >= FormatLevel::BoundedCommands {
            true => (MOST_DELETED_AT_ONCE, MOST_DELETED_BYTES),
            false => (usize::MAX, usize::MAX),
        };
        let mut bytes = 0;
        let mut doomed: Vec<(String, NodeId)> = Vec::new();
        for node in self.sessions.doomed(id).take(most) {
            if bytes >= most_bytes {
                break;
            }
            let path = self.arena.path_of(node);
            bytes += path.len();
            doomed.push((path, node));
        }
        doomed.sort_unstable();
        for (path, node) in doomed {
            self.remove(context, &path, node, &mut UnloggedRecorder(effects));
        }
        Ok(Response::Empty)
    }

    /// A change of the servers. The leader has looked at what the tree does not know; everything
    /// else is decided here, in ZooKeeper's order (protocol.md §1.13).
    fn reconfigure(
        &mut self,
        context: &Context<'_>,
        refusal: i32,
        body: &[u8],
        effects: &mut impl Effects,
    ) -> Result<Response, ErrorCode> {
        if refusal != 0 {
            return Err(ErrorCode::from_code(refusal));
        }
        let next = self.list_after(body, context.session == 0)?;
        let is_permitted = context.session == 0 || self.may_reconfigure(context.identity);
        if self.level < FormatLevel::Members {
            return Err(ErrorCode::ReconfigDisabled);
        }
        if !is_permitted {
            return Err(ErrorCode::NoAuth);
        }
        let list = ServerList {
            version: context.zxid,
            ..next
        };
        let text = list.to_string();
        let stat = self.store_list(context, text.as_bytes(), &mut UnloggedRecorder(effects))?;
        Ok(Response::Data {
            data: Some(text.into()),
            stat,
        })
    }

    /// The change of the servers that a `reconfig` with this body asks for.
    ///
    /// # Errors
    /// [`ErrorCode::MarshallingError`]: it is not one.
    pub fn list_change<'a>(&self, body: &'a [u8]) -> Result<ListChange<'a>, ErrorCode> {
        match Request::decode(OpCode::Reconfig, body, &APPLY_LIMITS) {
            Ok(Request::Reconfig {
                joining,
                leaving,
                new_members,
                config_id,
            }) => Ok(ListChange {
                joining,
                leaving,
                new_members,
                config_id,
                takes_bare_ids: self.level >= FormatLevel::SessionIdentities,
                is_bounded: self.level >= FormatLevel::BoundedMultis,
            }),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    /// The list of servers after a `reconfig` with this body, with the version of before. `first`:
    /// it is to be the first list.
    ///
    /// # Errors
    /// [`ErrorCode`], as the change is answered with where nothing else forbids it before.
    pub fn list_after(&self, body: &[u8], first: bool) -> Result<ServerList, ErrorCode> {
        let change = self.list_change(body)?;
        match (self.servers(), first) {
            (Some(_), true) => Err(ErrorCode::BadVersion),
            (None, true) => ServerList::default().after(&change),
            (Some(list), false) => list.after(&change),
            (None, false) => Err(ErrorCode::ReconfigDisabled),
        }
    }

    fn write(
        &mut self,
        context: &Context<'_>,
        op: OpCode,
        body: &[u8],
        effects: &mut impl Effects,
    ) -> Result<Response, ErrorCode> {
        let request =
            Request::decode(op, body, &APPLY_LIMITS).map_err(|_| ErrorCode::MarshallingError)?;
        let recorder = &mut UnloggedRecorder(effects);
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
            Request::Multi(ops)
                if self.level >= FormatLevel::BoundedMultis
                    && !MultiBounds::admit(ops.len(), context.identity) =>
            {
                Err(ErrorCode::BadArguments)
            }
            Request::Multi(ops) => Ok(Response::Multi(self.multi(context, &ops, effects))),
            // Its place in the log is all that a sync asks for.
            Request::Sync { path } => Ok(Response::Path(path.to_owned())),
            // The server has judged it: this is how all servers know.
            Request::Sasl { token } if self.level >= FormatLevel::BoundSessions => {
                self.bind_session(context);
                Ok(Response::Sasl(token.map(|token| token.to_vec().into())))
            }
            // As ZooKeeper while `reconfigEnabled` is false: the write takes its zxid. A leader
            // that permits it has made a command of it.
            Request::Reconfig { .. } => Err(ErrorCode::ReconfigDisabled),
            _ => Err(ErrorCode::Unimplemented),
        }
    }
}

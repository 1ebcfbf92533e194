//! Applies the commands of the log. Owns what each does to sessions and the zxid, and that every
//! command but a re-attachment takes one zxid, failed or not. A write is decided here, against the
//! state that it finds.

use baton_proto::{ErrorCode, Limits, OpCode, Request, Response};

use crate::arena::NodeId;
use crate::batch::{Batch, CloseReason, Command};
use crate::digest;
use crate::effects::{Effects, Outcome};
use crate::identity::Identity;
use crate::kind::is_session_id;
use crate::recorder::{Context, Direct};
use crate::tree::Tree;

/// Bounds for bodies that are in the log already. How large a request may be is decided where it
/// comes in; a replica with other settings must not decide otherwise.
const APPLY_LIMITS: Limits = Limits::with_max_frame_bytes(i32::MAX as usize);

impl Tree {
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
}

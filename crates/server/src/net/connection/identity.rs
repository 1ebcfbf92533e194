//! Authentication in the task of a connection: auth packets, SASL exchanges, and the refusal of
//! clients that have to authenticate first.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use baton_proto::{
    DecodeError, Decoder, ErrorCode, OpCode, ReplyHeader, Request, RequestHeader, Response, frame,
};
use baton_sasl::SaslError;
use baton_tree::{AuthId, FormatLevel, Identity};

use super::exchange::{Exchange, Phase};
use crate::audit::line::{Ending, Fields, Operation};
use crate::audit::record::Principal;
use crate::auth::attempts::{Account, Claim, Judgement};
use crate::auth::credentials::{self, Refusal};
use crate::connections::inbox::Kind;
use crate::net::class;
use crate::report::escaped::EscapedText;
use crate::report::notice::Notice;

/// Refused proof: the code of the answer, and the cause for the log.
type Refused = (ErrorCode, String);

impl Exchange {
    /// Takes note of whom the session is bound to, once the connection is attached to it. What a
    /// certificate proves was asked for before that; what SASL proves comes after it.
    pub(super) fn learn_binding(&mut self) {
        if let Some(attached) = self.conn.attached() {
            let tree = self.state.tree.read();
            self.bound_to = tree.bound_to(attached.session).into();
        }
    }

    /// Whether the client has proved everything to which its session is bound.
    fn owns_session(&self, identity: &Identity) -> bool {
        self.bound_to.iter().all(|id| identity.contains(id))
    }

    /// Whether the client has to prove first who it is: by a scheme that the settings require, or
    /// that the session which it has taken over is its own.
    pub(super) fn must_authenticate(&self, op: i32, identity: &Identity) -> bool {
        let required = &self.state.options.required_schemes;
        let lacks_scheme =
            !required.is_empty() && !required.iter().any(|scheme| identity.has(scheme));
        (lacks_scheme || !self.owns_session(identity)) && class::proof(op).is_none()
    }

    /// Answers a client that has to prove first who it is, and closes its connection. How many
    /// replies that was at once.
    pub(super) fn refuse_unauthenticated(
        &mut self,
        header: &RequestHeader,
        identity: &Arc<Identity>,
    ) -> u64 {
        let state = &self.state;
        state.stats.auth_failed.fetch_add(1, Relaxed);
        let (proved, missing) = if self.owns_session(identity) {
            let schemes = state.options.required_schemes.join(" or ");
            (
                format!("authenticated by {schemes}"),
                format!("it did not authenticate by {schemes}"),
            )
        } else {
            (
                "proved to be the user to whom its session is bound".to_owned(),
                "it did not prove to be the user to whom its session is bound".to_owned(),
            )
        };
        state.notice(
            Notice::BadCredentials,
            Some(&self.conn.peer),
            format_args!(
                "connection closed: it asked for op {} before it {proved}",
                header.op
            ),
        );
        self.record(Operation::Connect, Ending::Failure, identity, |fields| {
            fields.sentence("reason", &missing);
        });
        let code = ErrorCode::SessionClosedRequireSaslAuth;
        self.in_turn(header.xid, 0, code, true, identity)
    }

    /// The claim of a request of this operation, where its credentials could be a guess.
    pub(super) fn claim_of(&self, proof: OpCode, body: &[u8]) -> Option<Claim> {
        let state = &self.state;
        match Request::decode(proof, body, &state.limits) {
            Ok(Request::Auth(packet)) => state.superuser_claim(&self.conn.peer, &packet),
            Ok(Request::Sasl { token }) => {
                let user = self.sasl.claimed_user(token.unwrap_or_default())?;
                let attempts = &state.password_attempts;
                let owns = |id: &AuthId| id.scheme == "sasl" && id.id == user;
                Some(match self.bound_to.iter().any(owns) {
                    true => attempts.of_owner(self.conn.session()),
                    false => attempts.of_user(&self.conn.peer, Account::Sasl(&user)),
                })
            }
            _ => None,
        }
    }

    /// Returns the time before the claim is judged, or asks again; `None`: it is judged
    /// now.
    pub(super) fn wait_before_judging(&mut self, claim: Claim) -> Option<Duration> {
        if std::mem::take(&mut self.judge_now) {
            return None;
        }
        let attempts = &self.state.password_attempts;
        let judgement = attempts.turn(claim, self.state.time.uptime_ms());
        self.has_turn = matches!(judgement, Judgement::After(_));
        match judgement {
            Judgement::Now => None,
            Judgement::After(wait) | Judgement::AskAfter(wait) => Some(wait),
        }
    }

    /// Answers an auth packet. How many replies that was at once.
    pub(super) fn auth_step(
        &mut self,
        xid: i32,
        body: &[u8],
        claim: Option<Claim>,
        identity: &mut Arc<Identity>,
    ) -> u64 {
        let state = Arc::clone(&self.state);
        let (scheme, outcome) = match Request::decode(OpCode::Auth, body, &state.limits) {
            Ok(Request::Auth(packet)) => {
                let more = credentials::add(identity, &packet, &state.options);
                let outcome = more.map(|more| match more {
                    Cow::Owned(more) => Some(more),
                    Cow::Borrowed(_) => None,
                });
                if let Some(claim) = claim {
                    state.judge_superuser(&self.conn.peer, claim, &packet);
                }
                (packet.scheme, outcome.map_err(refused))
            }
            other => ("(none)", Err(undecodable(other.err()))),
        };
        let code = match outcome {
            Ok(more) => {
                if let Some(more) = more {
                    self.identify(more, identity);
                }
                self.record_login(Ending::Success, scheme, None, identity);
                ErrorCode::Ok
            }
            Err((code, why)) => {
                self.report_refused_credentials(scheme, &why);
                self.record_login(Ending::Failure, scheme, Some(&why), identity);
                code
            }
        };
        self.in_turn(xid, 0, code, code != ErrorCode::Ok, identity)
    }

    /// Answers a step of a SASL exchange. How many replies that was at once.
    pub(super) fn sasl_step(
        &mut self,
        xid: i32,
        body: &[u8],
        claim: Option<Claim>,
        identity: &mut Arc<Identity>,
    ) -> u64 {
        let state = Arc::clone(&self.state);
        let answer = match Request::decode(OpCode::Sasl, body, &state.limits) {
            Ok(Request::Sasl { token }) => {
                let options = &state.options;
                let answer = self.sasl.step(token.unwrap_or_default(), identity, options);
                if answer == Err(Refusal::Sasl(SaslError::Credentials)) {
                    state.password_attempts.failed(state.time.uptime_ms());
                }
                answer.map_err(refused)
            }
            other => Err(undecodable(other.err())),
        };
        match answer {
            Ok(answer) => {
                let token = answer.token.into_bytes();
                if let Some(more) = answer.identity {
                    if let Some(claim) = claim {
                        state.password_attempts.succeeded(claim);
                    }
                    self.identify(more, identity);
                    self.record_login(Ending::Success, "sasl", None, identity);
                    if self.must_be_bound() {
                        // All servers have to know before the client does.
                        let mut body = Vec::new();
                        let token = Some(token.as_slice());
                        Request::Sasl { token }.encode(&mut body);
                        self.queue(xid, Kind::Write(OpCode::Sasl), &body, identity);
                        return 0;
                    }
                }
                let header = ReplyHeader {
                    xid,
                    zxid: 0,
                    err: 0,
                };
                let token = Response::Sasl(Some(token.into()));
                let mut frame = Vec::new();
                frame::write_reply(&mut frame, header, Some(&token));
                self.frame_in_turn(xid, &frame, false, identity)
            }
            Err((code, why)) => {
                self.report_refused_credentials("sasl", &why);
                self.record_login(Ending::Failure, "sasl", Some(&why), identity);
                self.in_turn(xid, state.zxid(), code, true, identity)
            }
        }
    }

    /// Whether the servers have yet to write down to whom the session is bound, now that the client
    /// has proved who it is by SASL. In read-only mode nobody can.
    fn must_be_bound(&self) -> bool {
        if self.phase == Phase::ReadOnly {
            return false;
        }
        let tree = self.state.tree.read();
        let bound_to = tree.bound_to(self.conn.session());
        tree.level() >= FormatLevel::BoundSessions && bound_to.iter().all(|id| id.scheme != "sasl")
    }

    /// From now on the connection is `more`; what was queued before keeps the identity that it came
    /// with.
    fn identify(&mut self, more: Identity, identity: &mut Arc<Identity>) {
        self.submit();
        *identity = Arc::new(more);
        self.conn.set_identity(Arc::clone(identity));
    }

    /// Records a read of the superuser, to whom no ACL is closed.
    pub(super) fn record_read(&self, op: OpCode, body: &[u8], identity: &Arc<Identity>) {
        let name = match op {
            OpCode::GetData => "getData",
            OpCode::GetAcl => "getAcl",
            OpCode::GetChildren | OpCode::GetChildren2 => "getChildren",
            OpCode::GetAllChildrenNumber => "getAllChildrenNumber",
            OpCode::GetEphemerals => "getEphemerals",
            OpCode::MultiRead => "multiRead",
            _ => return,
        };
        let limits = &self.state.limits;
        if let (OpCode::MultiRead, Ok(Request::MultiRead(ops))) =
            (op, Request::decode(op, body, limits))
        {
            for read in &ops {
                self.record_read_of(name, read.path(), identity);
            }
        } else if let Ok(path) = Decoder::new(body, limits).string("path") {
            self.record_read_of(name, path, identity);
        }
    }

    fn record_read_of(&self, name: &'static str, path: &str, identity: &Arc<Identity>) {
        self.record(Operation::Read, Ending::Invoked, identity, |fields| {
            fields.word("request", name);
            fields.text("znode", path);
        });
    }

    fn record_login(
        &self,
        ending: Ending,
        scheme: &str,
        why: Option<&str>,
        identity: &Arc<Identity>,
    ) {
        if ending == Ending::Success && scheme == "ip" {
            // It adds nothing.
            return;
        }
        self.record(Operation::Login, ending, identity, |fields| {
            fields.text("scheme", scheme);
            if let Some(why) = why {
                fields.sentence("reason", why);
            }
        });
    }

    /// Adds a line about this client to the audit record.
    fn record(
        &self,
        operation: Operation,
        ending: Ending,
        identity: &Arc<Identity>,
        more: impl FnOnce(&mut Fields<'_>),
    ) {
        let who = || Principal::of(&self.conn).known_as(identity);
        self.state.record(operation, ending, who, more);
    }

    /// Counts and reports an ACL that does not go into the log.
    pub(super) fn report_large_acl(&self, op: OpCode) {
        self.state.stats.large_requests.fetch_add(1, Relaxed);
        self.state.notice(
            Notice::LargeRequest,
            Some(&self.conn.peer),
            format_args!(
                "refused the ACL of a request ({op}): with the client's names in place of 'auth' it has over 4096 entries or 256 KiB, or all of its multi have over 16384 or 1 MiB; use fewer entries or fewer names"
            ),
        );
    }

    fn report_refused_credentials(&self, scheme: &str, why: &str) {
        self.state.stats.auth_failed.fetch_add(1, Relaxed);
        let scheme = EscapedText(scheme);
        self.state.notice(
            Notice::BadCredentials,
            Some(&self.conn.peer),
            format_args!("connection closed: credentials of scheme '{scheme}' are refused: {why}"),
        );
    }
}

fn refused(why: Refusal) -> Refused {
    (ErrorCode::AuthFailed, why.to_string())
}

fn undecodable(why: Option<DecodeError>) -> Refused {
    let why = why.map_or_else(String::new, |why| why.to_string());
    (ErrorCode::MarshallingError, why)
}

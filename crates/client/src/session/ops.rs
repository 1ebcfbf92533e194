//! The operations of a session.
//!
//! Owns the translation from a call to a request. It must never retry: an operation is sent once,
//! and its outcome reported as it is.

use std::borrow::Cow;
use std::sync::Arc;

use baton_proto::{
    Acl, AddWatchMode, AuthPacket, CONFIG_PATH, ClientInfo, Create, CreateMode, EnsembleConfig,
    ErrorCode, OpCode, Request, Response, Stat, path, xid,
};
use tokio::sync::oneshot;

use crate::config::AuthInfo;
use crate::error::{Error, Reason};
use crate::session::Session;
use crate::session::core::{Credential, Phase, Submission};
use crate::session::decode::{
    children, created, data, ensemble_config, exists, multi, stat, watch,
};
use crate::session::entry::{AnswerReceiver, ResendRequest};
use crate::session::event_queue::EventQueue;
use crate::session::outcome::{UnansweredOperation, UnansweredOutcome};
use crate::session::pending::{
    Decode, DecodeContext, Pending, ReplyFault, body, local_path, unexpected,
};
use crate::session::watch::{LocalWatch, PersistentWatch, Watch};
use crate::session::watches::{Class, OneShotSender, Ticket, WatchArming};
use crate::values::{Children, CreatedNode, Data, MembershipChange, Op, OpResult};

/// Rule by which a path is checked before it is sent.
#[derive(Clone, Copy)]
enum PathRule {
    Whole,
    /// A number will be appended.
    Sequential,
}

/// Makes the watch that a reply arms.
type Arm = fn(OneShotSender) -> WatchArming;

/// Everything about one call but its request.
struct Call<'a> {
    /// Path as the user wrote it.
    path: &'a str,
    /// Error of the arguments, found before anything was sent.
    bad: Option<Reason>,
    resend: Option<ResendRequest>,
    ticket: Option<Ticket>,
    luggage: DecodeContext,
}

impl<'a> Call<'a> {
    fn write(path: &'a str, version: Option<i32>) -> Self {
        let bad = check(path, PathRule::Whole, version);
        Self {
            path,
            bad,
            resend: None,
            ticket: None,
            luggage: DecodeContext::default(),
        }
    }

    fn read(path: &'a str, resend: ResendRequest) -> Self {
        Self {
            resend: Some(resend),
            ..Self::write(path, None)
        }
    }
}

impl Session {
    /// Creates a node with the ACL of this handle ([`Session::with_acl`]), which is open to
    /// everybody unless set: see [`Session::create_with_acl`].
    pub fn create(&self, path: &str, data: &[u8], mode: CreateMode) -> Pending<CreatedNode> {
        self.create_with_acl(path, data, mode, self.acl())
    }

    /// Creates a node. A sequential mode appends ten digits that the server counts up per parent.
    ///
    /// # Errors
    /// `NodeExists`, `NoNode` (of the parent), `NoChildrenForEphemerals`, `NoAuth`, `InvalidAcl`, …
    /// as [`Error::Rejected`](crate::Error::Rejected).
    pub fn create_with_acl(
        &self,
        path: &str,
        data: &[u8],
        mode: CreateMode,
        acl: &[Acl<'_>],
    ) -> Pending<CreatedNode> {
        let shape = if mode.is_sequential() {
            PathRule::Sequential
        } else {
            PathRule::Whole
        };
        let full = self.server_path(path);
        let request = Request::Create(Create::new(&full, Some(data), acl.to_vec(), mode));
        let call = Call {
            bad: check(path, shape, None),
            ..Call::write(path, None)
        };
        self.submit(call, &request, |reply, _, chroot| created(reply, chroot))
    }

    /// Deletes a node that has no children; for `Some(version)` only if it has that version.
    ///
    /// # Errors
    /// `NoNode`, `BadVersion`, `NotEmpty`, `NoAuth` as [`Error::Rejected`](crate::Error::Rejected).
    pub fn delete(&self, path: &str, version: Option<i32>) -> Pending<()> {
        let full = self.server_path(path);
        let request = Request::Delete {
            path: &full,
            version: version.unwrap_or(-1),
        };
        self.submit(Call::write(path, version), &request, |reply, _, _| {
            body(reply, OpCode::Delete).map(drop)
        })
    }

    /// Replaces a node's data; for `Some(version)` only if it has that version. Returns its new
    /// record.
    ///
    /// # Errors
    /// `NoNode`, `BadVersion`, `NoAuth` as [`Error::Rejected`](crate::Error::Rejected).
    pub fn set_data(&self, path: &str, data: &[u8], version: Option<i32>) -> Pending<Stat> {
        let full = self.server_path(path);
        let request = Request::SetData {
            path: &full,
            data: Some(data),
            version: version.unwrap_or(-1),
        };
        self.submit(Call::write(path, version), &request, |reply, _, _| {
            stat(reply, OpCode::SetData)
        })
    }

    /// A node's data.
    ///
    /// # Errors
    /// `NoNode`, `NoAuth` as [`Error::Rejected`](crate::Error::Rejected).
    pub fn get_data(&self, path: &str) -> Pending<Data> {
        let request = ResendRequest::GetData { watch: false };
        self.read(path, request, |reply, _, _| data(reply))
    }

    /// Returns a node's data, and a watch for its next change or deletion.
    ///
    /// # Errors
    /// As [`Session::get_data`]; no watch is left behind then.
    pub fn get_data_watch(&self, path: &str) -> Pending<(Data, Watch)> {
        let request = ResendRequest::GetData { watch: true };
        let arm = (Class::Data, WatchArming::Data as Arm);
        self.read_watching(path, arm, request, |reply, luggage, _| {
            Ok((data(reply)?, watch(luggage)?))
        })
    }

    /// Returns a node's record, or `None` where there is no node.
    ///
    /// # Errors
    /// `NoAuth` as [`Error::Rejected`](crate::Error::Rejected).
    pub fn exists(&self, path: &str) -> Pending<Option<Stat>> {
        let request = ResendRequest::Exists { watch: false };
        self.read(path, request, |reply, _, _| exists(reply))
    }

    /// Returns a node's record, or `None`, and a watch for its next change, deletion or creation.
    ///
    /// A watch on a node that never comes stays on the server until it is dropped: prefer
    /// [`Session::get_data_watch`] for a node that should be there.
    ///
    /// # Errors
    /// As [`Session::exists`].
    pub fn exists_watch(&self, path: &str) -> Pending<(Option<Stat>, Watch)> {
        let request = ResendRequest::Exists { watch: true };
        let arm = (Class::Data, WatchArming::Exists as Arm);
        self.read_watching(path, arm, request, |reply, luggage, _| {
            Ok((exists(reply)?, watch(luggage)?))
        })
    }

    /// Returns the names of a node's children, in no particular order.
    ///
    /// # Errors
    /// `NoNode`, `NoAuth` as [`Error::Rejected`](crate::Error::Rejected).
    pub fn children(&self, path: &str) -> Pending<Children> {
        let request = ResendRequest::GetChildren2 { watch: false };
        self.read(path, request, |reply, _, _| children(reply))
    }

    /// Returns a node's children, and a watch for the next created or deleted child, or the node's
    /// deletion.
    ///
    /// # Errors
    /// As [`Session::children`]; no watch is left behind then.
    pub fn children_watch(&self, path: &str) -> Pending<(Children, Watch)> {
        let request = ResendRequest::GetChildren2 { watch: true };
        let arm = (Class::Child, WatchArming::Child as Arm);
        self.read_watching(path, arm, request, |reply, luggage, _| {
            Ok((children(reply)?, watch(luggage)?))
        })
    }

    /// Sets a persistent watch: on one node and its list of children, or (recursive) on the whole
    /// subtree. The node need not exist.
    ///
    /// # Errors
    /// `Unimplemented` from servers before 3.6, as [`Error::Rejected`](crate::Error::Rejected).
    pub fn watch_persistent(&self, path: &str, mode: AddWatchMode) -> Pending<PersistentWatch> {
        let queue = Arc::new(EventQueue::default());
        let recursive = mode == AddWatchMode::PersistentRecursive;
        let full = self.server_path(path);
        let (ticket, interest) = self.ticket(
            &full,
            Class::Stream,
            WatchArming::Stream {
                queue: Arc::clone(&queue),
                recursive,
            },
        );
        let luggage = DecodeContext {
            stream: Some(PersistentWatch { queue, interest }),
            ..DecodeContext::default()
        };
        let request = ResendRequest::AddWatch(mode);
        let call = Call {
            ticket: Some(ticket),
            luggage,
            ..Call::read(path, request)
        };
        self.submit(
            call,
            &request.request(&full),
            |reply, luggage, _| match reply.err {
                ErrorCode::Ok => luggage
                    .stream
                    .take()
                    .ok_or_else(|| ReplyFault::Garbled("answered twice".to_owned())),
                code => Err(ReplyFault::Refused(code)),
            },
        )
    }

    /// A node's ACL and record.
    ///
    /// # Errors
    /// `NoNode`, `NoAuth` as [`Error::Rejected`](crate::Error::Rejected).
    pub fn get_acl(&self, path: &str) -> Pending<(Vec<Acl<'static>>, Stat)> {
        self.read(path, ResendRequest::GetAcl, |reply, _, _| {
            match body(reply, OpCode::GetAcl)? {
                Response::Acl { acl, stat } => Ok((acl, stat)),
                _ => unexpected(OpCode::GetAcl),
            }
        })
    }

    /// Replaces a node's ACL; for `Some(version)` only if its ACL has that version. Returns its new
    /// record.
    ///
    /// # Errors
    /// `NoNode`, `BadVersion`, `InvalidAcl`, `NoAuth` as
    /// [`Error::Rejected`](crate::Error::Rejected).
    pub fn set_acl(&self, path: &str, acl: &[Acl<'_>], version: Option<i32>) -> Pending<Stat> {
        let full = self.server_path(path);
        let request = Request::SetAcl {
            path: &full,
            acl: Some(acl.to_vec()),
            version: version.unwrap_or(-1),
        };
        self.submit(Call::write(path, version), &request, |reply, _, _| {
            stat(reply, OpCode::SetAcl)
        })
    }

    /// Waits until the connected server has applied everything that was committed when this was
    /// called, so that later reads are not older. On Baton's server it is a linearization point.
    ///
    /// # Errors
    /// Those of the connection only.
    pub fn sync(&self, path: &str) -> Pending<()> {
        self.read(path, ResendRequest::Sync, |reply, _, _| {
            body(reply, OpCode::Sync).map(drop)
        })
    }

    /// Reads with `read` after a [`Session::sync`] at `path`: the answer is not older than what was
    /// committed when this was called. Both requests are sent together.
    ///
    /// ```no_run
    /// # async fn example(session: baton_client::Session) -> Result<(), baton_client::Error> {
    /// let stat = session.read_latest("/config", |session| session.exists("/config")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of the sync and of the read.
    pub async fn read_latest<T>(
        &self,
        path: &str,
        read: impl FnOnce(&Self) -> Pending<T>,
    ) -> Result<T, Error> {
        let sync = self.sync(path);
        let read = read(self);
        sync.await?;
        read.await
    }

    /// Applies all parts or none, at one position in the order of all changes.
    ///
    /// # Errors
    /// [`Error::MultiRejected`](crate::Error::MultiRejected) names the part that failed, and why.
    pub fn multi(&self, ops: &[Op]) -> Pending<Vec<OpResult>> {
        let chroot = &self.core.config.chroot;
        let parts: Vec<(OpCode, String)> = ops
            .iter()
            .map(|op| (op.kind(), op.path().to_owned()))
            .collect();
        let bad = ops.iter().find_map(|op| {
            let shape = if op.is_sequential() {
                PathRule::Sequential
            } else {
                PathRule::Whole
            };
            let bad = check(op.path(), shape, op.version())?;
            Some((op.path(), bad))
        });
        let paths: Vec<_> = ops
            .iter()
            .map(|op| path::prepend_chroot(chroot, op.path()))
            .collect();
        let request = Request::Multi(
            ops.iter()
                .zip(&paths)
                .map(|(op, path)| op.wire(path, self.acl()))
                .collect(),
        );
        let luggage = DecodeContext {
            parts,
            ..DecodeContext::default()
        };
        // A transaction has no path of its own; one that is not sent names the part at fault.
        let (path, bad) = bad.map_or(("", None), |(path, bad)| (path, Some(bad)));
        let call = Call {
            path,
            bad,
            luggage,
            ..Call::write("/", None)
        };
        self.submit(call, &request, |reply, _, chroot| multi(reply, chroot))
    }

    /// Returns the members of the ensemble, from `/zookeeper/config`; none where a server runs
    /// alone. A chroot has no effect.
    ///
    /// # Errors
    /// As [`Session::get_data`].
    pub fn ensemble_config(&self) -> Pending<EnsembleConfig> {
        let request = ResendRequest::GetData { watch: false };
        self.submit(
            Call::read(CONFIG_PATH, request),
            &request.request(CONFIG_PATH),
            |reply, _, _| ensemble_config(reply, OpCode::GetData),
        )
    }

    /// Requests a change of the ensemble's members, and returns the new ones; with `Some(version)`
    /// only if the members have this version. [`Session::change_members`] also resolves a lost
    /// answer and names the refusals.
    ///
    /// # Errors
    /// `ReconfigDisabled`, `ReconfigInProgress`, `BadVersion`, `BadArguments`, `NewConfigNoQuorum`,
    /// `NoAuth`; `Unimplemented` from a server that stands alone, as
    /// [`Error::Rejected`](crate::Error::Rejected).
    pub fn reconfig(
        &self,
        change: &MembershipChange,
        version: Option<i64>,
    ) -> Pending<EnsembleConfig> {
        let mut call = Call::write(CONFIG_PATH, None);
        if version == Some(-1) {
            call.bad = Some(any_version());
        }
        let texts = change.texts();
        self.submit(
            call,
            &texts.request(version.unwrap_or(-1)),
            |reply, _, _| ensemble_config(reply, OpCode::Reconfig),
        )
    }

    /// Returns the paths of this session's own ephemeral nodes below `prefix` (which is compared as
    /// text).
    ///
    /// # Errors
    /// `Unimplemented` from servers before 3.6, as [`Error::Rejected`](crate::Error::Rejected).
    pub fn ephemerals(&self, prefix: &str) -> Pending<Vec<String>> {
        let full = self.server_path(prefix);
        let call = Call::write(prefix, None);
        self.submit(
            call,
            &Request::GetEphemerals { prefix: &full },
            |reply, _, chroot| match body(reply, OpCode::GetEphemerals)? {
                Response::Strings(paths) => {
                    Ok(paths.into_iter().map(|p| local_path(chroot, p)).collect())
                }
                _ => unexpected(OpCode::GetEphemerals),
            },
        )
    }

    /// Counts the nodes below a node, at all depths.
    ///
    /// # Errors
    /// `NoNode`, `NoAuth`; `Unimplemented` from servers before 3.6, as
    /// [`Error::Rejected`](crate::Error::Rejected).
    pub fn count_descendants(&self, path: &str) -> Pending<usize> {
        let full = self.server_path(path);
        let call = Call::write(path, None);
        self.submit(
            call,
            &Request::GetAllChildrenNumber { path: &full },
            |reply, _, _| match body(reply, OpCode::GetAllChildrenNumber)? {
                Response::Count(n) => Ok(usize::try_from(n).unwrap_or(0)),
                _ => unexpected(OpCode::GetAllChildrenNumber),
            },
        )
    }

    /// Returns the identities that the server assigns to this connection.
    ///
    /// # Errors
    /// `Unimplemented` from servers before 3.7, as [`Error::Rejected`](crate::Error::Rejected).
    pub fn who_am_i(&self) -> Pending<Vec<ClientInfo>> {
        self.submit(
            Call {
                path: "",
                ..Call::write("/", None)
            },
            &Request::WhoAmI,
            |reply, _, _| match body(reply, OpCode::WhoAmI)? {
                Response::WhoAmI(infos) => Ok(infos),
                _ => unexpected(OpCode::WhoAmI),
            },
        )
    }

    /// Adds credentials, on this connection and on every later one of the session.
    ///
    /// # Errors
    /// `AuthFailed` as [`Error::Rejected`](crate::Error::Rejected); the session has ended then.
    pub fn add_auth(&self, scheme: &str, secret: &[u8]) -> Pending<()> {
        let (to, answer) = oneshot::channel();
        let now = self.core.now();
        let (submitted, waker) = {
            let mut inner = self.core.inner.lock();
            if let Phase::Ended(reason) = inner.phase {
                let reason = Reason::SessionEnded(reason);
                (
                    Err(UnansweredOperation {
                        fate: UnansweredOutcome::NotSent,
                        reason,
                    }),
                    None,
                )
            } else {
                let info = AuthInfo {
                    scheme: scheme.to_owned(),
                    data: secret.to_owned(),
                };
                let index = inner.credentials.len();
                inner.credentials.push(Credential {
                    info,
                    waiter: Some(to),
                });
                if inner.phase == Phase::Attached {
                    let packet = AuthPacket {
                        kind: 0,
                        scheme,
                        auth: Some(secret),
                    };
                    inner.send_control(xid::AUTH, &Request::Auth(packet), now);
                    inner.credentials_in_flight.push_back(index);
                }
                (Ok(0), inner.waker.take())
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        let decode: Decode<()> = |reply, _, _| match reply.err {
            ErrorCode::Ok => Ok(()),
            code => Err(ReplyFault::Refused(code)),
        };
        let core = Arc::clone(&self.core);
        Pending::new(
            core,
            OpCode::Auth,
            scheme.to_owned(),
            submitted,
            answer,
            None,
            decode,
            DecodeContext::default(),
        )
    }

    fn server_path<'p>(&self, path: &'p str) -> Cow<'p, str> {
        path::prepend_chroot(&self.core.config.chroot, path)
    }

    fn ticket(&self, full: &str, class: Class, arm: WatchArming) -> (Ticket, LocalWatch) {
        let path: Arc<str> = Arc::from(full);
        let id = self.core.inner.lock().watches.new_id();
        let interest = LocalWatch {
            core: Arc::clone(&self.core),
            path: Arc::clone(&path),
            class,
            id,
        };
        (
            Ticket {
                id,
                path,
                arm,
                covered: false,
            },
            interest,
        )
    }

    /// Submits a read, which may be sent again.
    fn read<T>(&self, path: &str, request: ResendRequest, decode: Decode<T>) -> Pending<T> {
        let full = self.server_path(path);
        self.submit(Call::read(path, request), &request.request(&full), decode)
    }

    /// Submits a read that sets a watch.
    fn read_watching<T>(
        &self,
        path: &str,
        (class, arm): (Class, Arm),
        request: ResendRequest,
        decode: Decode<T>,
    ) -> Pending<T> {
        let full = self.server_path(path);
        let (to, events) = oneshot::channel();
        let (ticket, interest) = self.ticket(&full, class, arm(to));
        let luggage = DecodeContext {
            watch: Some(Watch::new(events, interest)),
            ..DecodeContext::default()
        };
        let call = Call {
            ticket: Some(ticket),
            luggage,
            ..Call::read(path, request)
        };
        self.submit(call, &request.request(&full), decode)
    }

    fn submit<T>(&self, call: Call<'_>, request: &Request<'_>, decode: Decode<T>) -> Pending<T> {
        let Call {
            path,
            bad,
            resend,
            ticket,
            luggage,
        } = call;
        let (to, answer) = oneshot::channel();
        let server_path = match &ticket {
            Some(ticket) => Arc::clone(&ticket.path),
            None if resend.is_some() => Arc::from(request.path().unwrap_or("/")),
            None => Arc::default(),
        };
        let submitted = match bad {
            Some(reason) => Err(UnansweredOperation {
                fate: UnansweredOutcome::NotSent,
                reason,
            }),
            None => self.core.submit(Submission {
                request,
                path: server_path,
                resend,
                done: AnswerReceiver::User(to),
                watch: ticket,
                policy: self.policy,
                trace: None,
            }),
        };
        let clock = &self.core.config.clock;
        let timer = self
            .policy
            .limit
            .map(|limit| clock.sleep_until(clock.now() + limit));
        Pending::new(
            Arc::clone(&self.core),
            request.op(),
            path.to_owned(),
            submitted,
            answer,
            timer,
            decode,
            luggage,
        )
    }
}

/// Returns the error of a path or a version, if there is one.
///
/// −1 means "any" on the wire, so as an expected version it would make the write unconditional
/// (`H24`).
fn check(path: &str, shape: PathRule, version: Option<i32>) -> Option<Reason> {
    let checked = match shape {
        PathRule::Whole => path::validate(path),
        PathRule::Sequential => path::validate_sequential(path),
    };
    if let Err(e) = checked {
        return Some(Reason::BadPath(e.to_string()));
    }
    (version == Some(-1)).then(any_version)
}

fn any_version() -> Reason {
    Reason::BadArgument("version -1 means any on the wire; pass None for any".to_owned())
}

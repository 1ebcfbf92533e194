//! The errors of the crate: how an operation, a connect, a close or a lease failed.
//!
//! Owns the distinction that recipes rely on: not sent, maybe applied, rejected (`hazards.md` G3).
//! It must never merge two of them: what was not sent may be tried again blindly, what was maybe
//! applied never.

use std::time::Duration;

use baton_proto::{EnsembleConfig, ErrorCode, OpCode};
#[cfg(feature = "tls")]
use baton_tls::TlsFailure;

use crate::state::EndReason;

/// Reason why an operation had no answer, or was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// No connection just now, and the operation's policy is to fail fast.
    #[error(
        "no server is connected; wait for the session to reconnect, or use a deadline instead of failing fast"
    )]
    Disconnected,
    /// The connection broke before the answer.
    #[error("the connection was lost before the answer; read the tree before deciding")]
    ConnectionLost,
    /// The operation's deadline passed.
    #[error("its deadline passed; allow more time")]
    DeadlinePassed,
    /// The session has ended.
    #[error("{}", .0.with_remedy())]
    SessionEnded(EndReason),
    /// [`Session::close`](crate::Session::close) has begun.
    #[error("the session is being closed; open a new session")]
    Closing,
    /// Too many operations, or bytes of them, are queued or unanswered.
    #[error(
        "{pending} operations wait already, the most allowed; send fewer, or raise max_pending"
    )]
    QueueFull {
        /// Number of operations that wait.
        pending: usize,
    },
    /// The request is larger than servers accept.
    #[error(
        "the request has {bytes} bytes, more than the {limit} a server accepts; store less in one node"
    )]
    TooLarge {
        /// Size of the request.
        bytes: usize,
        /// The limit: [`Config::max_request_bytes`](crate::Config::max_request_bytes).
        limit: usize,
    },
    /// The answer is larger than what is read.
    #[error(
        "the answer has {bytes} bytes, more than the {limit} that are read; raise max_reply_bytes, or keep less below one node"
    )]
    ReplyTooLarge {
        /// Size of the answer.
        bytes: usize,
        /// The limit: [`Config::max_reply_bytes`](crate::Config::max_reply_bytes).
        limit: usize,
    },
    /// The path breaks the rules of paths.
    #[error("not a legal path: {0}; correct it")]
    BadPath(String),
    /// An argument cannot be encoded.
    #[error("{0}; correct the argument")]
    BadArgument(String),
    /// The server's answer makes no sense.
    #[error("the answer could not be read ({0}); read the tree before deciding")]
    BadReply(String),
}

/// Error of an operation, with what is known about its effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused it. It had no effect.
    #[error("{}: refused by the server: {code}{}", attempt(*.op, .path), missing(*.op, .path, *.code))]
    Rejected {
        /// The operation.
        op: OpCode,
        /// The path of the node.
        path: String,
        /// The server's reason.
        code: ErrorCode,
        /// Its position in the order of all changes (the newest change the server had applied, for
        /// a read).
        zxid: i64,
    },
    /// The server refused a multi because of one of its parts. None of it had an effect.
    #[error(
        "transaction: refused by the server: part {index} ({}): {code}{}; nothing was applied",
        attempt(*.op, .path), missing(*.op, .path, *.code)
    )]
    MultiRejected {
        /// Number of the part that failed, from 0.
        index: usize,
        /// The operation of that part.
        op: OpCode,
        /// The path of the node.
        path: String,
        /// The server's reason.
        code: ErrorCode,
        /// The multi's position in the order of all changes.
        zxid: i64,
    },
    /// No server saw it, or will. It had no effect, and may be tried again as it is.
    #[error("{}: not sent: {reason}", attempt(*.op, .path))]
    NotSent {
        /// The operation.
        op: OpCode,
        /// The path of the node.
        path: String,
        /// The reason.
        reason: Reason,
    },
    /// It was sent and not answered: it may or may not have been applied, or may yet be. Never try
    /// it again without reading the tree first.
    #[error("{}: maybe applied: {reason}", attempt(*.op, .path))]
    MaybeApplied {
        /// The operation.
        op: OpCode,
        /// The path of the node.
        path: String,
        /// Reason why there is no answer.
        reason: Reason,
    },
    /// A read that was sent and not answered. It changed nothing, and may be tried again as it is.
    #[error("{}: no answer: {reason}", attempt(*.op, .path))]
    Unanswered {
        /// The operation.
        op: OpCode,
        /// The path of the node.
        path: String,
        /// Reason why there is no answer.
        reason: Reason,
    },
}

/// The operation and its node, for people.
fn attempt(op: OpCode, path: &str) -> String {
    let action = op.action();
    if path.is_empty() {
        action.to_owned()
    } else {
        format!("{action} {path}")
    }
}

/// The permission that the operation lacks, or what is wrong with its ACL, for people.
fn missing(op: OpCode, path: &str, code: ErrorCode) -> String {
    if code == ErrorCode::InvalidAcl {
        return "; an entry names an unknown scheme, an impossible id, or the creator, who has presented no credentials"
            .to_owned();
    }
    if code != ErrorCode::NoAuth {
        return String::new();
    }
    let parent = baton_proto::path::parent(path);
    let (permission, on) = match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            ("create", parent)
        }
        OpCode::Delete | OpCode::DeleteContainer => ("delete", parent),
        OpCode::SetData => ("write", path),
        OpCode::SetAcl => ("admin", path),
        OpCode::GetAcl => ("read or admin", path),
        OpCode::GetData
        | OpCode::GetChildren
        | OpCode::GetChildren2
        | OpCode::GetAllChildrenNumber
        | OpCode::Check => ("read", path),
        _ => return String::new(),
    };
    format!("; missing: permission {permission} on {on}")
}

impl Error {
    /// Returns the server's error code, if the server refused the operation.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Rejected { code, .. } | Self::MultiRejected { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns the zxid of the refusal, if the server refused the operation.
    #[must_use]
    pub const fn zxid(&self) -> Option<i64> {
        match self {
            Self::Rejected { zxid, .. } | Self::MultiRejected { zxid, .. } => Some(*zxid),
            _ => None,
        }
    }

    /// Returns the reason for the missing answer, if there was no answer.
    #[must_use]
    pub const fn reason(&self) -> Option<&Reason> {
        match self {
            Self::NotSent { reason, .. }
            | Self::MaybeApplied { reason, .. }
            | Self::Unanswered { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Returns whether the request exceeded the size limit, and so was not sent.
    #[must_use]
    pub const fn is_too_large(&self) -> bool {
        matches!(self.reason(), Some(Reason::TooLarge { .. }))
    }

    /// Returns the path of the operation, or of the failed part of a multi; empty where the multi
    /// failed as a whole.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Rejected { path, .. }
            | Self::MultiRejected { path, .. }
            | Self::NotSent { path, .. }
            | Self::MaybeApplied { path, .. }
            | Self::Unanswered { path, .. } => path,
        }
    }

    /// Returns the number of the part of a multi that failed, from 0.
    #[must_use]
    pub const fn multi_index(&self) -> Option<usize> {
        match self {
            Self::MultiRejected { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// Returns whether the operation certainly had no effect.
    #[must_use]
    pub const fn had_no_effect(&self) -> bool {
        !self.is_maybe_applied()
    }

    /// Returns whether the operation may have been applied although no answer came.
    #[must_use]
    pub const fn is_maybe_applied(&self) -> bool {
        matches!(self, Self::MaybeApplied { .. })
    }

    /// Returns whether the session has ended, so that further operations on it fail.
    #[must_use]
    pub const fn is_session_ended(&self) -> bool {
        matches!(self.reason(), Some(Reason::SessionEnded(_)))
            || matches!(self.code(), Some(ErrorCode::SessionExpired))
    }

    /// Returns whether the session had no connection for the operation, or lost it before the
    /// answer. The session may get another connection.
    #[must_use]
    pub const fn is_connection_lost(&self) -> bool {
        matches!(
            self.reason(),
            Some(Reason::Disconnected | Reason::ConnectionLost)
        )
    }

    /// Returns whether the operation's own deadline passed.
    #[must_use]
    pub const fn is_deadline_passed(&self) -> bool {
        matches!(self.reason(), Some(Reason::DeadlinePassed))
    }

    /// Returns whether the server answered that the node does not exist.
    #[must_use]
    pub const fn is_no_node(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NoNode))
    }

    /// Returns whether the server answered that the node's ACL does not allow the operation.
    #[must_use]
    pub const fn is_no_auth(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NoAuth))
    }

    /// Returns whether the server answered that the node exists already.
    #[must_use]
    pub const fn is_node_exists(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NodeExists))
    }

    /// Returns whether the server answered that the node has another version.
    #[must_use]
    pub const fn is_bad_version(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::BadVersion))
    }

    /// Returns whether the server answered that the node has children.
    #[must_use]
    pub const fn is_not_empty(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::NotEmpty))
    }
}

/// Error of a future whose session has ended, so that its event will not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("session lost: {}", .0.with_remedy())]
pub struct SessionLost(pub EndReason);

/// Error of [`Session::connect`](crate::Session::connect) and
/// [`Session::resume`](crate::Session::resume).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server could be reached in time.
    #[error(
        "no server of {servers} answered within {waited:.1?}; last attempt: {last}; check that one is running there"
    )]
    Unreachable {
        /// The server list.
        servers: String,
        /// Time of the attempts.
        waited: Duration,
        /// Error of the last attempt.
        last: String,
    },
    /// A server was reached, and no connection with TLS could be made to it, or none without: the
    /// failure of the last attempt.
    #[cfg(feature = "tls")]
    #[error("no server of {servers} could be used within {waited:.1?}; {server}: {failure}")]
    Tls {
        /// The server list.
        servers: String,
        /// Time of the attempts.
        waited: Duration,
        /// The server of the last such attempt.
        server: String,
        /// Reason why that one failed. Boxed so that other errors stay small.
        failure: Box<TlsFailure>,
    },
    /// An option cannot be. No server was asked.
    #[error(transparent)]
    BadConfig(ConfigError),
    /// The server list says `tls://`, and [`Config::tls`](crate::Config::tls) was not called.
    #[error("{servers} asks for TLS, and {}", crate::tls::NOT_CONFIGURED)]
    TlsNotConfigured {
        /// The server list.
        servers: String,
    },
    /// A server refused the credentials.
    #[error("{servers} refused the credentials; correct the scheme or the secret")]
    AuthFailed {
        /// The server list.
        servers: String,
    },
    /// The servers serve nobody who has not authenticated, and closed the session.
    #[error(
        "{servers} requires authentication; give it credentials that it knows (Config::sasl, --auth-file)"
    )]
    AuthRequired {
        /// The server list.
        servers: String,
    },
    /// SASL failed on a server: see [`Config::sasl`](crate::Config::sasl).
    #[error("{server}: {failure}")]
    Sasl {
        /// The server list.
        servers: String,
        /// The server.
        server: String,
        /// The reason. Boxed so that other errors stay small.
        failure: Box<SaslFailure>,
    },
    /// The session to resume is not alive any more.
    #[error("session 0x{id:x} has expired on {servers}; open a new one")]
    Expired {
        /// The session's id.
        id: i64,
        /// The server list.
        servers: String,
    },
    /// The part of the connect string behind the servers names a znode that does not exist.
    #[error(
        "{servers} has no znode {chroot}, the chroot that the server list asks for; {}", chroot_remedy(.chroot)
    )]
    NoChroot {
        /// The server list.
        servers: String,
        /// The missing znode.
        chroot: String,
    },
    /// The client's thread cannot be started, or the runtime that
    /// [`Config::runtime`](crate::Config::runtime) names has ended.
    #[error(
        "no runtime to run the session on: the client's thread could not be started, or the runtime of Config::runtime has ended; free threads or memory, or keep that runtime"
    )]
    NoRuntime,
    /// The supervisor has been closed.
    #[error("the client is closed; make a new one")]
    Closed,
}

fn chroot_remedy(chroot: &str) -> &'static str {
    match chroot.contains([',', ':']) {
        true => "write the chroot once, behind the last server: HOST:PORT,HOST:PORT/chroot",
        false => "create it, or correct the list",
    }
}

/// Error in a connect string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No host in the list.
    #[error(
        "server list `{0}` names no server: write HOST:PORT[,HOST:PORT...][/chroot] or unix:/path/to.sock"
    )]
    NoHosts(String),
    /// One entry is not `HOST`, `HOST:PORT`, `[IPV6]:PORT` or `unix:/path`.
    #[error("server `{0}` is not HOST, HOST:PORT, [IPV6]:PORT or unix:/path: correct it")]
    BadHost(String),
    /// `tls://` stands before an entry, and not before the first TCP entry of the list.
    #[error(
        "`{0}` asks for TLS, the server before it does not: write tls:// before the first server, where it counts for all"
    )]
    TlsNotFirst(String),
    /// An option cannot be zero.
    #[error("{option} cannot be zero: {why}")]
    BadOption {
        /// The method of [`Config`](crate::Config).
        option: &'static str,
        /// The consequence.
        why: &'static str,
    },
    /// The part from the first `/` on is not a legal path.
    #[error("chroot `{path}` is not a legal path ({why}): correct it or leave it out")]
    BadChroot {
        /// The chroot as given.
        path: String,
        /// The error.
        why: String,
    },
}

/// Reason why SASL failed on a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaslFailure {
    /// The server begins no exchange: it has no users, or another mechanism.
    #[error(
        "it does not authenticate by SASL DIGEST-MD5; give the server users (sasl_users, in a ZooKeeper a JAAS file), or \
         use other credentials"
    )]
    NotOffered,
    /// The server does not know the user, or knows another password.
    #[error("it refused the user or the password of SASL; correct them")]
    WrongPassword,
    /// The server refused the exchange for another reason.
    #[error("it refused SASL: {0}; its log says why")]
    Refused(ErrorCode),
    /// The server's challenge cannot be answered.
    #[error("its challenge cannot be answered: {0}; check that it is a ZooKeeper with DIGEST-MD5")]
    BadChallenge(String),
    /// The server let us in without proof that it knows the password too.
    #[error(
        "it does not prove that it knows the password: it is not the server it claims to be, or does not know the user and \
         lets everybody in (allowSaslFailedClients); correct the server list or the user"
    )]
    ServerUnproven,
}

/// Error of [`Session::close`](crate::Session::close): the server has not confirmed the close.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// No acknowledgement in time: the server will end the session when its timeout has run out.
    #[error(
        "close of session 0x{id:x} was not acknowledged within {waited:?}; its ephemeral nodes go when its timeout of {timeout:?} has run out"
    )]
    Unconfirmed {
        /// The session's id.
        id: i64,
        /// Time of the wait.
        waited: Duration,
        /// The session's timeout.
        timeout: Duration,
    },
}

/// Error of [`Session::change_members`](crate::Session::change_members).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconfigError {
    /// The servers' settings do not allow it.
    #[error(
        "the servers do not accept changes of members; set ensemble.reconfig (in a zoo.cfg reconfigEnabled) on each of them"
    )]
    Disabled,
    /// A change that somebody asked for before is not done yet.
    #[error("another change of members is in progress; try again when it has ended")]
    InProgress,
    /// Too few of the servers that would vote are connected to the leader and have caught up.
    #[error(
        "too few of the servers that would vote are connected to the leader and have caught up; start those that do not run, wait, and try again"
    )]
    NoQuorum,
    /// The members are not those of the expected version.
    #[error("the members have been changed meanwhile; read them again")]
    BadVersion,
    /// The servers cannot make this change: a line that they cannot read, an address that another
    /// server has, an id that is not a member's, too many servers, or no server that votes.
    #[error(
        "the servers refuse this change of members: BadArguments; check its ids and addresses, and that one of the voters stays (the leader's log has the reason)"
    )]
    BadArguments,
    /// This session may not write `/zookeeper/config`.
    #[error(
        "this session may not change the members: the ACL of /zookeeper/config does not allow it; add credentials of the superuser, or of a user whom that ACL names"
    )]
    NotAllowed,
    /// The server has no others.
    #[error(
        "this server runs alone and has no members to change; start it as a member of an ensemble"
    )]
    StandsAlone,
    /// The answer was lost, and the members, which were read after that, are not as asked for.
    #[error(
        "the change of members was not applied, or was changed back; read the members and try again"
    )]
    NotApplied(EnsembleConfig),
    /// The answer was lost and the members could not be read: they may have changed.
    #[error("{0}; the members may have changed: read them before another change")]
    Unknown(Error),
    /// Any other failure. The members have not changed.
    #[error(transparent)]
    Other(Error),
}

/// Error of options with which no sound lease is possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The session timeout is too short for the ensemble's timing.
    #[error(
        "a session timeout of {timeout:?} is too short for a sound lease on servers with a tick of {tick:?}: use at least {smallest:?}, or state the ensemble's real tick in LeaseOptions"
    )]
    TimeoutTooShort {
        /// The timeout that the server granted.
        timeout: Duration,
        /// The tick that was stated or assumed.
        tick: Duration,
        /// The smallest timeout that would do.
        smallest: Duration,
    },
    /// [`LeaseMode::Ping`](crate::LeaseMode::Ping) on a server that is not Baton's, without the
    /// ensemble's timing.
    #[error(
        "leases by ping need the ensemble's tickTime and syncLimit: state both in LeaseOptions, or use LeaseMode::Auto"
    )]
    TimingNotStated,
    /// The session has ended.
    #[error("session lost: {}", .0.with_remedy())]
    SessionEnded(EndReason),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_want_of_a_permission_names_it_and_its_node() {
        let refused = |op, code| Error::Rejected {
            op,
            path: "/locks/report".to_owned(),
            code,
            zxid: 1,
        };
        for (op, missing) in [
            (OpCode::Create2, "permission create on /locks"),
            (OpCode::Delete, "permission delete on /locks"),
            (OpCode::SetData, "permission write on /locks/report"),
            (OpCode::GetData, "permission read on /locks/report"),
            (OpCode::SetAcl, "permission admin on /locks/report"),
        ] {
            let text = refused(op, ErrorCode::NoAuth).to_string();
            assert!(text.ends_with(&format!("; missing: {missing}")), "{text}");
            let text = refused(op, ErrorCode::NoNode).to_string();
            assert!(!text.contains("missing"), "{text}");
        }
    }

    #[test]
    fn a_chroot_behind_each_server_is_not_advised_to_be_created() {
        let text = |chroot: &str| {
            let error = ConnectError::NoChroot {
                servers: "h1:2181".to_owned(),
                chroot: chroot.to_owned(),
            };
            error.to_string()
        };
        assert!(text("/app").ends_with("create it, or correct the list"));
        let twice = text("/app,h2:2181/app");
        assert!(twice.contains("once, behind the last server") && !twice.contains("create"));
    }
}

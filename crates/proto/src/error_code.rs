//! Error codes (protocol.md §1.5) and what each means to the one who reads it. Owns the numbers and
//! the words; which layer may retry what is the client's decision.

use std::fmt;

/// Error code of a reply.
///
/// Displays as the protocol's name and an explanation, on one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// 0: no error.
    Ok,
    /// -1: the server failed; try another server, and look at its log.
    SystemError,
    /// -2: not tried, because another operation of the multi failed.
    RuntimeInconsistency,
    /// -3: the server found its own data inconsistent; look at its log.
    DataInconsistency,
    /// -4: the connection was lost and the outcome is not known.
    ConnectionLoss,
    /// -5: the server could not decode the request.
    MarshallingError,
    /// -6: the server does not know or does not allow this operation.
    Unimplemented,
    /// -7: the operation took too long and the outcome is not known.
    OperationTimeout,
    /// -8: an argument breaks the protocol's rules; most often the path.
    BadArguments,
    /// -12: the server does not know the session.
    UnknownSession,
    /// -13: no quorum of the new configuration is connected and in sync.
    NewConfigNoQuorum,
    /// -14: another reconfiguration is in progress; try again when it has ended.
    ReconfigInProgress,
    /// -100: an error of the operation itself.
    ApiError,
    /// -101: the znode does not exist.
    NoNode,
    /// -102: the ACL does not allow this to the connection's identities.
    NoAuth,
    /// -103: the znode's version is not the expected one.
    BadVersion,
    /// -108: an ephemeral cannot have children.
    NoChildrenForEphemerals,
    /// -110: the znode exists already.
    NodeExists,
    /// -111: the znode has children; delete them first.
    NotEmpty,
    /// -112: the session has expired and its ephemerals are gone; open a new one.
    SessionExpired,
    /// -113: a callback of the wrong kind was given.
    InvalidCallback,
    /// -114: the ACL is empty or has an entry that is not valid for its scheme.
    InvalidAcl,
    /// -115: the credentials were refused; they will not become valid by a retry.
    AuthFailed,
    /// -118: the session has moved to another server; use the newer connection.
    SessionMoved,
    /// -119: the server is cut off from its ensemble and serves reads only.
    NotReadOnly,
    /// -120: a local session cannot own ephemerals.
    EphemeralOnLocalSession,
    /// -121: this connection has no such watch.
    NoWatcher,
    /// -122: the request took too long and the outcome is not known.
    RequestTimeout,
    /// -123: reconfiguration is disabled on the server.
    ReconfigDisabled,
    /// -124: the server requires authentication before anything else.
    SessionClosedRequireSaslAuth,
    /// -125: the subtree's quota does not allow this; raise it or delete something.
    QuotaExceeded,
    /// -127: the server is overloaded and did not take the operation; try again later.
    ThrottledOp,
    /// A code that this version does not know, as it came.
    Unknown(i32),
}

impl ErrorCode {
    /// Every known code.
    pub const ALL: [Self; 32] = [
        Self::Ok,
        Self::SystemError,
        Self::RuntimeInconsistency,
        Self::DataInconsistency,
        Self::ConnectionLoss,
        Self::MarshallingError,
        Self::Unimplemented,
        Self::OperationTimeout,
        Self::BadArguments,
        Self::UnknownSession,
        Self::NewConfigNoQuorum,
        Self::ReconfigInProgress,
        Self::ApiError,
        Self::NoNode,
        Self::NoAuth,
        Self::BadVersion,
        Self::NoChildrenForEphemerals,
        Self::NodeExists,
        Self::NotEmpty,
        Self::SessionExpired,
        Self::InvalidCallback,
        Self::InvalidAcl,
        Self::AuthFailed,
        Self::SessionMoved,
        Self::NotReadOnly,
        Self::EphemeralOnLocalSession,
        Self::NoWatcher,
        Self::RequestTimeout,
        Self::ReconfigDisabled,
        Self::SessionClosedRequireSaslAuth,
        Self::QuotaExceeded,
        Self::ThrottledOp,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::SystemError => -1,
            Self::RuntimeInconsistency => -2,
            Self::DataInconsistency => -3,
            Self::ConnectionLoss => -4,
            Self::MarshallingError => -5,
            Self::Unimplemented => -6,
            Self::OperationTimeout => -7,
            Self::BadArguments => -8,
            Self::UnknownSession => -12,
            Self::NewConfigNoQuorum => -13,
            Self::ReconfigInProgress => -14,
            Self::ApiError => -100,
            Self::NoNode => -101,
            Self::NoAuth => -102,
            Self::BadVersion => -103,
            Self::NoChildrenForEphemerals => -108,
            Self::NodeExists => -110,
            Self::NotEmpty => -111,
            Self::SessionExpired => -112,
            Self::InvalidCallback => -113,
            Self::InvalidAcl => -114,
            Self::AuthFailed => -115,
            Self::SessionMoved => -118,
            Self::NotReadOnly => -119,
            Self::EphemeralOnLocalSession => -120,
            Self::NoWatcher => -121,
            Self::RequestTimeout => -122,
            Self::ReconfigDisabled => -123,
            Self::SessionClosedRequireSaslAuth => -124,
            Self::QuotaExceeded => -125,
            Self::ThrottledOp => -127,
            Self::Unknown(code) => code,
        }
    }

    /// The code that a number stands for.
    #[must_use]
    pub const fn from_code(code: i32) -> Self {
        match code {
            0 => Self::Ok,
            -1 => Self::SystemError,
            -2 => Self::RuntimeInconsistency,
            -3 => Self::DataInconsistency,
            -4 => Self::ConnectionLoss,
            -5 => Self::MarshallingError,
            -6 => Self::Unimplemented,
            -7 => Self::OperationTimeout,
            -8 => Self::BadArguments,
            -12 => Self::UnknownSession,
            -13 => Self::NewConfigNoQuorum,
            -14 => Self::ReconfigInProgress,
            -100 => Self::ApiError,
            -101 => Self::NoNode,
            -102 => Self::NoAuth,
            -103 => Self::BadVersion,
            -108 => Self::NoChildrenForEphemerals,
            -110 => Self::NodeExists,
            -111 => Self::NotEmpty,
            -112 => Self::SessionExpired,
            -113 => Self::InvalidCallback,
            -114 => Self::InvalidAcl,
            -115 => Self::AuthFailed,
            -118 => Self::SessionMoved,
            -119 => Self::NotReadOnly,
            -120 => Self::EphemeralOnLocalSession,
            -121 => Self::NoWatcher,
            -122 => Self::RequestTimeout,
            -123 => Self::ReconfigDisabled,
            -124 => Self::SessionClosedRequireSaslAuth,
            -125 => Self::QuotaExceeded,
            -127 => Self::ThrottledOp,
            unknown => Self::Unknown(unknown),
        }
    }

    /// The protocol's name, such as `NoNode`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "Ok",
            Self::SystemError => "SystemError",
            Self::RuntimeInconsistency => "RuntimeInconsistency",
            Self::DataInconsistency => "DataInconsistency",
            Self::ConnectionLoss => "ConnectionLoss",
            Self::MarshallingError => "MarshallingError",
            Self::Unimplemented => "Unimplemented",
            Self::OperationTimeout => "OperationTimeout",
            Self::BadArguments => "BadArguments",
            Self::UnknownSession => "UnknownSession",
            Self::NewConfigNoQuorum => "NewConfigNoQuorum",
            Self::ReconfigInProgress => "ReconfigInProgress",
            Self::ApiError => "APIError",
            Self::NoNode => "NoNode",
            Self::NoAuth => "NoAuth",
            Self::BadVersion => "BadVersion",
            Self::NoChildrenForEphemerals => "NoChildrenForEphemerals",
            Self::NodeExists => "NodeExists",
            Self::NotEmpty => "NotEmpty",
            Self::SessionExpired => "SessionExpired",
            Self::InvalidCallback => "InvalidCallback",
            Self::InvalidAcl => "InvalidACL",
            Self::AuthFailed => "AuthFailed",
            Self::SessionMoved => "SessionMoved",
            Self::NotReadOnly => "NotReadOnly",
            Self::EphemeralOnLocalSession => "EphemeralOnLocalSession",
            Self::NoWatcher => "NoWatcher",
            Self::RequestTimeout => "RequestTimeout",
            Self::ReconfigDisabled => "ReconfigDisabled",
            Self::SessionClosedRequireSaslAuth => "SessionClosedRequireSaslAuth",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::ThrottledOp => "ThrottledOp",
            Self::Unknown(_) => "Unknown",
        }
    }

    /// Meaning of the code and, where it helps, what to do.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Ok => "no error",
            Self::SystemError => "the server failed; try another server, and look at its log",
            Self::RuntimeInconsistency => {
                "not tried, because another part of the transaction failed"
            }
            Self::DataInconsistency => {
                "the server found its own data inconsistent; look at its log"
            }
            Self::ConnectionLoss => "the connection was lost and the outcome is not known",
            Self::MarshallingError => "the server could not decode the request",
            Self::Unimplemented => "the server does not know or does not allow this operation",
            Self::OperationTimeout => "the operation took too long and the outcome is not known",
            Self::BadArguments => "an argument breaks the protocol's rules; most often the path",
            Self::UnknownSession => "the server does not know the session",
            Self::NewConfigNoQuorum => {
                "no quorum of the new configuration is connected and in sync"
            }
            Self::ReconfigInProgress => {
                "another reconfiguration is in progress; try again when it has ended"
            }
            Self::ApiError => "an error of the operation itself",
            Self::NoNode => "the znode does not exist",
            Self::NoAuth => {
                "the ACL does not allow this to the connection's identities; authenticate, or change the ACL"
            }
            Self::BadVersion => "the znode's version is not the expected one",
            Self::NoChildrenForEphemerals => "an ephemeral cannot have children",
            Self::NodeExists => "the znode exists already",
            Self::NotEmpty => "the znode has children; delete them first",
            Self::SessionExpired => {
                "the session has expired and its ephemerals are gone; open a new one"
            }
            Self::InvalidCallback => "a callback of the wrong kind was given",
            Self::InvalidAcl => "the ACL is empty or has an entry that is not valid for its scheme",
            Self::AuthFailed => {
                "the credentials were refused; they will not become valid by a retry"
            }
            Self::SessionMoved => {
                "the session has moved to another server; use the newer connection"
            }
            Self::NotReadOnly => "the server is cut off from its ensemble and serves reads only",
            Self::EphemeralOnLocalSession => "a local session cannot own ephemerals",
            Self::NoWatcher => "this connection has no such watch",
            Self::RequestTimeout => "the request took too long and the outcome is not known",
            Self::ReconfigDisabled => "reconfiguration is disabled on the server",
            Self::SessionClosedRequireSaslAuth => {
                "the server requires authentication before anything else"
            }
            Self::QuotaExceeded => {
                "the subtree's quota does not allow this; raise it or delete something"
            }
            Self::ThrottledOp => {
                "the server is overloaded and did not take the operation; try again later"
            }
            Self::Unknown(_) => "a code that this version does not know",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(code) => write!(f, "Unknown({code}): {}", self.explanation()),
            known => write!(f, "{}: {}", known.name(), known.explanation()),
        }
    }
}

impl std::error::Error for ErrorCode {}

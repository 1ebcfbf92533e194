//! Requests (protocol.md §1.4): one variant an operation, borrowed from the frame it came in.
//! Bodies only; the header goes before it. Never judges a request: paths, versions and permissions
//! are the tree's matter.

use bytes::BufMut;

use crate::fields::Field;
use crate::{
    Acl, Create, CreateOp, DecodeError, DecodeErrorKind, Decoder, Limits, MultiOp, OpCode,
};

/// Credentials that a client adds to its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthPacket<'a> {
    /// 0.
    pub kind: i32,
    /// Such as `digest`.
    pub scheme: &'a str,
    /// Credentials of the scheme; for `digest`, `user:password`. Null is not the same as empty.
    pub auth: Option<&'a [u8]>,
}

/// Declares the requests whose bodies are their fields in this order: each field with its name on
/// the wire, for errors. The body of the others is written and read by their own types.
macro_rules! requests {
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$doc:meta])* $field:ident: $kind:ty = $wire:literal,)* },
    )*) => {
        /// A request's body.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Request<'a> {
            /// Create a znode (ops 1, 15, 19, 21).
            Create(Create<'a>),
            /// Keep the session alive.
            Ping,
            /// Several writes, all or none.
            Multi(Vec<MultiOp<'a>>),
            /// Several reads, each with its own outcome.
            MultiRead(Vec<MultiOp<'a>>),
            /// Add credentials.
            Auth(AuthPacket<'a>),
            /// List the identities of this connection.
            WhoAmI,
            /// Close the session.
            CloseSession,
            $($(#[$about])* $name { $($(#[$doc])* $field: $kind,)* },)*
        }

        impl<'a> Request<'a> {
            /// The op code for the header.
            #[must_use]
            pub const fn op(&self) -> OpCode {
                match self {
                    Self::Create(create) => create.op.op(),
                    Self::Ping => OpCode::Ping,
                    Self::Multi(_) => OpCode::Multi,
                    Self::MultiRead(_) => OpCode::MultiRead,
                    Self::Auth(_) => OpCode::Auth,
                    Self::WhoAmI => OpCode::WhoAmI,
                    Self::CloseSession => OpCode::CloseSession,
                    $(Self::$name { .. } => OpCode::$name,)*
                }
            }

            /// Writes the body.
            pub fn encode(&self, out: &mut impl BufMut) {
                match self {
                    Self::Create(create) => create.encode(out),
                    Self::Multi(ops) | Self::MultiRead(ops) => MultiOp::encode_chain(ops, out),
                    Self::Auth(packet) => {
                        packet.kind.put(out);
                        packet.scheme.put(out);
                        packet.auth.put(out);
                    }
                    Self::Ping | Self::WhoAmI | Self::CloseSession => {}
                    $(Self::$name { $($field),* } => { $($field.put(out);)* })*
                }
            }

            /// Reads the body of an operation, which may be one of a chain.
            fn decode_from(op: OpCode, from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
                Ok(match op {
                    OpCode::Notification => {
                        let kind = DecodeErrorKind::UnknownValue(op.code());
                        return Err(from.error("RequestHeader.type", kind));
                    }
                    OpCode::Create => Self::Create(Create::decode(CreateOp::Create, from)?),
                    OpCode::Create2 => Self::Create(Create::decode(CreateOp::Create2, from)?),
                    OpCode::CreateContainer => {
                        Self::Create(Create::decode(CreateOp::Container, from)?)
                    }
                    OpCode::CreateTtl => Self::Create(Create::decode(CreateOp::Ttl, from)?),
                    OpCode::Ping => Self::Ping,
                    OpCode::Multi => Self::Multi(Self::decode_chain(op, from)?),
                    OpCode::MultiRead => Self::MultiRead(Self::decode_chain(op, from)?),
                    OpCode::Auth => Self::Auth(AuthPacket {
                        kind: from.i32("AuthPacket.type")?,
                        scheme: from.string("AuthPacket.scheme")?,
                        auth: from.buffer("AuthPacket.auth")?,
                    }),
                    OpCode::WhoAmI => Self::WhoAmI,
                    OpCode::CloseSession => Self::CloseSession,
                    $(OpCode::$name => Self::$name { $($field: Field::take(from, $wire)?,)* },)*
                })
            }
        }
    };
}

requests! {
    /// Delete a znode.
    Delete {
        /// Path of the znode.
        path: &'a str = "DeleteRequest.path",
        /// The expected version, -1 for any.
        version: i32 = "DeleteRequest.version",
    },
    /// Stat of a znode.
    Exists {
        /// Path of the znode.
        path: &'a str = "ExistsRequest.path",
        /// Whether to set a data watch, also if there is no such znode.
        watch: bool = "ExistsRequest.watch",
    },
    /// Data and stat.
    GetData {
        /// Path of the znode.
        path: &'a str = "GetDataRequest.path",
        /// Whether to set a data watch.
        watch: bool = "GetDataRequest.watch",
    },
    /// Write data.
    SetData {
        /// Path of the znode.
        path: &'a str = "SetDataRequest.path",
        /// The data; `None` is null.
        data: Option<&'a [u8]> = "SetDataRequest.data",
        /// The expected version, -1 for any.
        version: i32 = "SetDataRequest.version",
    },
    /// ACL and stat.
    GetAcl {
        /// Path of the znode.
        path: &'a str = "GetACLRequest.path",
    },
    /// Write the ACL.
    SetAcl {
        /// Path of the znode.
        path: &'a str = "SetACLRequest.path",
        /// The new list; null and empty are refused by servers.
        acl: Option<Vec<Acl<'a>>> = "SetACLRequest.acl",
        /// The expected ACL version, -1 for any.
        version: i32 = "SetACLRequest.version",
    },
    /// Names of the children.
    GetChildren {
        /// Path of the znode.
        path: &'a str = "GetChildrenRequest.path",
        /// Whether to set a child watch.
        watch: bool = "GetChildrenRequest.watch",
    },
    /// Names of the children, and stat.
    GetChildren2 {
        /// Path of the znode.
        path: &'a str = "GetChildren2Request.path",
        /// Whether to set a child watch.
        watch: bool = "GetChildren2Request.watch",
    },
    /// Catch up with the leader.
    Sync {
        /// Echoed in the reply.
        path: &'a str = "SyncRequest.path",
    },
    /// Check a version; servers refuse it outside a multi.
    Check {
        /// Path of the znode.
        path: &'a str = "CheckVersionRequest.path",
        /// The expected version, -1 for any.
        version: i32 = "CheckVersionRequest.version",
    },
    /// Change the ensemble's membership.
    Reconfig {
        /// Servers to add.
        joining: Option<&'a str> = "ReconfigRequest.joiningServers",
        /// Ids of servers to remove.
        leaving: Option<&'a str> = "ReconfigRequest.leavingServers",
        /// The whole new membership.
        new_members: Option<&'a str> = "ReconfigRequest.newMembers",
        /// The version the current configuration must have, -1 for any.
        config_id: i64 = "ReconfigRequest.curConfigId",
    },
    /// Whether this connection has such a watch.
    CheckWatches {
        /// On which path.
        path: &'a str = "CheckWatchesRequest.path",
        /// A [`crate::WatcherKind`], as sent.
        kind: i32 = "CheckWatchesRequest.type",
    },
    /// Remove watches of this connection.
    RemoveWatches {
        /// On which path.
        path: &'a str = "RemoveWatchesRequest.path",
        /// A [`crate::WatcherKind`], as sent.
        kind: i32 = "RemoveWatchesRequest.type",
    },
    /// Delete an empty container; servers refuse it from clients.
    DeleteContainer {
        /// Path of the znode.
        path: &'a str = "DeleteContainerRequest.path",
    },
    /// Arm one-shot watches again.
    SetWatches {
        /// The last zxid that the client saw before the connection was lost.
        relative_zxid: i64 = "SetWatches.relativeZxid",
        /// Paths of data watches.
        data: Vec<&'a str> = "SetWatches.dataWatches",
        /// Paths of exists watches on znodes that were missing.
        exist: Vec<&'a str> = "SetWatches.existWatches",
        /// Paths of child watches.
        child: Vec<&'a str> = "SetWatches.childWatches",
    },
    /// Arm all watches again.
    SetWatches2 {
        /// The last zxid that the client saw before the connection was lost.
        relative_zxid: i64 = "SetWatches2.relativeZxid",
        /// Paths of data watches.
        data: Vec<&'a str> = "SetWatches2.dataWatches",
        /// Paths of exists watches on znodes that were missing.
        exist: Vec<&'a str> = "SetWatches2.existWatches",
        /// Paths of child watches.
        child: Vec<&'a str> = "SetWatches2.childWatches",
        /// Paths of persistent watches.
        persistent: Vec<&'a str> = "SetWatches2.persistentWatches",
        /// Paths of persistent recursive watches.
        persistent_recursive: Vec<&'a str> = "SetWatches2.persistentRecursiveWatches",
    },
    /// One step of a SASL exchange.
    Sasl {
        /// The mechanism's token; `None` is null.
        token: Option<&'a [u8]> = "GetSASLRequest.token",
    },
    /// Paths of this session's ephemerals.
    GetEphemerals {
        /// Only those whose path begins with these characters.
        prefix: &'a str = "GetEphemeralsRequest.prefixPath",
    },
    /// Number of all descendants.
    GetAllChildrenNumber {
        /// Path of the znode.
        path: &'a str = "GetAllChildrenNumberRequest.path",
    },
    /// Add a persistent watch.
    AddWatch {
        /// On which path.
        path: &'a str = "AddWatchRequest.path",
        /// An [`crate::AddWatchMode`], as sent.
        mode: i32 = "AddWatchRequest.mode",
    },
    /// Open a session; internal to servers, refused from clients.
    CreateSession {
        /// The session timeout in milliseconds.
        timeout_ms: i32 = "CreateSessionTxn.timeOut",
    },
}

impl<'a> Request<'a> {
    /// The path that the request is about, where it is about one.
    #[must_use]
    pub fn path(&self) -> Option<&'a str> {
        match self {
            Self::Create(create) => Some(create.path),
            Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::GetData { path, .. }
            | Self::SetData { path, .. }
            | Self::GetAcl { path }
            | Self::SetAcl { path, .. }
            | Self::GetChildren { path, .. }
            | Self::GetChildren2 { path, .. }
            | Self::Sync { path }
            | Self::Check { path, .. }
            | Self::CheckWatches { path, .. }
            | Self::RemoveWatches { path, .. }
            | Self::DeleteContainer { path }
            | Self::GetAllChildrenNumber { path }
            | Self::AddWatch { path, .. }
            | Self::GetEphemerals { prefix: path } => Some(path),
            _ => None,
        }
    }

    /// Reads the body of an operation. Bytes after it are ignored (protocol.md §1.1).
    ///
    /// # Errors
    /// The bytes are not such a body, or `op` is one that only servers send.
    pub fn decode(op: OpCode, body: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        Self::decode_from(op, &mut Decoder::new(body, limits))
    }

    /// Reads the chain of a `multi` or a `multiRead`.
    fn decode_chain(
        chain: OpCode,
        from: &mut Decoder<'a>,
    ) -> Result<Vec<MultiOp<'a>>, DecodeError> {
        MultiOp::decode_chain(chain, from, |op, from| {
            Ok(Self::decode_from(op, from)?.into_multi_op())
        })
    }

    /// The request as an operation of a chain; `None` if it cannot be one.
    fn into_multi_op(self) -> Option<MultiOp<'a>> {
        Some(match self {
            Self::Create(create) => MultiOp::Create(create),
            Self::Delete { path, version } => MultiOp::Delete { path, version },
            Self::SetData {
                path,
                data,
                version,
            } => MultiOp::SetData {
                path,
                data,
                version,
            },
            Self::Check { path, version } => MultiOp::Check { path, version },
            Self::GetData { path, watch } => MultiOp::GetData { path, watch },
            Self::GetChildren { path, watch } => MultiOp::GetChildren { path, watch },
            _ => return None,
        })
    }
}

//! Requests (protocol.md §1.4): one variant an operation, borrowed from the frame it came in.
//! Bodies only; the header goes before it. Never judges a request: paths, versions and permissions
//! are the tree's matter.

use bytes::BufMut;

use crate::fields::{put_path_and_version, put_path_and_watch, put_set_data};
use crate::wire::{put_buffer, put_optional_string, put_string, put_strings};
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

/// A request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// Create a znode (ops 1, 15, 19, 21).
    Create(Create<'a>),
    /// Delete a znode.
    Delete {
        /// Path of the znode.
        path: &'a str,
        /// The expected version, -1 for any.
        version: i32,
    },
    /// Stat of a znode.
    Exists {
        /// Path of the znode.
        path: &'a str,
        /// Whether to set a data watch, also if there is no such znode.
        watch: bool,
    },
    /// Data and stat.
    GetData {
        /// Path of the znode.
        path: &'a str,
        /// Whether to set a data watch.
        watch: bool,
    },
    /// Write data.
    SetData {
        /// Path of the znode.
        path: &'a str,
        /// The data; `None` is null.
        data: Option<&'a [u8]>,
        /// The expected version, -1 for any.
        version: i32,
    },
    /// ACL and stat.
    GetAcl {
        /// Path of the znode.
        path: &'a str,
    },
    /// Write the ACL.
    SetAcl {
        /// Path of the znode.
        path: &'a str,
        /// The new list; null and empty are refused by servers.
        acl: Option<Vec<Acl<'a>>>,
        /// The expected ACL version, -1 for any.
        version: i32,
    },
    /// Names of the children.
    GetChildren {
        /// Path of the znode.
        path: &'a str,
        /// Whether to set a child watch.
        watch: bool,
    },
    /// Names of the children, and stat.
    GetChildren2 {
        /// Path of the znode.
        path: &'a str,
        /// Whether to set a child watch.
        watch: bool,
    },
    /// Catch up with the leader.
    Sync {
        /// Echoed in the reply.
        path: &'a str,
    },
    /// Keep the session alive.
    Ping,
    /// Check a version; servers refuse it outside a multi.
    Check {
        /// Path of the znode.
        path: &'a str,
        /// The expected version, -1 for any.
        version: i32,
    },
    /// Several writes, all or none.
    Multi(Vec<MultiOp<'a>>),
    /// Several reads, each with its own outcome.
    MultiRead(Vec<MultiOp<'a>>),
    /// Change the ensemble's membership.
    Reconfig {
        /// Servers to add.
        joining: Option<&'a str>,
        /// Ids of servers to remove.
        leaving: Option<&'a str>,
        /// The whole new membership.
        new_members: Option<&'a str>,
        /// The version the current configuration must have, -1 for any.
        config_id: i64,
    },
    /// Whether this connection has such a watch.
    CheckWatches {
        /// On which path.
        path: &'a str,
        /// A [`crate::WatcherKind`], as sent.
        kind: i32,
    },
    /// Remove watches of this connection.
    RemoveWatches {
        /// On which path.
        path: &'a str,
        /// A [`crate::WatcherKind`], as sent.
        kind: i32,
    },
    /// Delete an empty container; servers refuse it from clients.
    DeleteContainer {
        /// Path of the znode.
        path: &'a str,
    },
    /// Add credentials.
    Auth(AuthPacket<'a>),
    /// Arm one-shot watches again.
    SetWatches {
        /// The last zxid that the client saw before the connection was lost.
        relative_zxid: i64,
        /// Paths of data watches.
        data: Vec<&'a str>,
        /// Paths of exists watches on znodes that were missing.
        exist: Vec<&'a str>,
        /// Paths of child watches.
        child: Vec<&'a str>,
    },
    /// Arm all watches again.
    SetWatches2 {
        /// The last zxid that the client saw before the connection was lost.
        relative_zxid: i64,
        /// Paths of data watches.
        data: Vec<&'a str>,
        /// Paths of exists watches on znodes that were missing.
        exist: Vec<&'a str>,
        /// Paths of child watches.
        child: Vec<&'a str>,
        /// Paths of persistent watches.
        persistent: Vec<&'a str>,
        /// Paths of persistent recursive watches.
        persistent_recursive: Vec<&'a str>,
    },
    /// One step of a SASL exchange.
    Sasl {
        /// The mechanism's token; `None` is null.
        token: Option<&'a [u8]>,
    },
    /// Paths of this session's ephemerals.
    GetEphemerals {
        /// Only those whose path begins with these characters.
        prefix: &'a str,
    },
    /// Number of all descendants.
    GetAllChildrenNumber {
        /// Path of the znode.
        path: &'a str,
    },
    /// Add a persistent watch.
    AddWatch {
        /// On which path.
        path: &'a str,
        /// An [`crate::AddWatchMode`], as sent.
        mode: i32,
    },
    /// List the identities of this connection.
    WhoAmI,
    /// Open a session; internal to servers, refused from clients.
    CreateSession {
        /// The session timeout in milliseconds.
        timeout_ms: i32,
    },
    /// Close the session.
    CloseSession,
}

impl<'a> Request<'a> {
    /// The op code for the header.
    #[must_use]
    pub const fn op(&self) -> OpCode {
        match self {
            Self::Create(create) => create.op.op(),
            Self::Delete { .. } => OpCode::Delete,
            Self::Exists { .. } => OpCode::Exists,
            Self::GetData { .. } => OpCode::GetData,
            Self::SetData { .. } => OpCode::SetData,
            Self::GetAcl { .. } => OpCode::GetAcl,
            Self::SetAcl { .. } => OpCode::SetAcl,
            Self::GetChildren { .. } => OpCode::GetChildren,
            Self::GetChildren2 { .. } => OpCode::GetChildren2,
            Self::Sync { .. } => OpCode::Sync,
            Self::Ping => OpCode::Ping,
            Self::Check { .. } => OpCode::Check,
            Self::Multi(_) => OpCode::Multi,
            Self::MultiRead(_) => OpCode::MultiRead,
            Self::Reconfig { .. } => OpCode::Reconfig,
            Self::CheckWatches { .. } => OpCode::CheckWatches,
            Self::RemoveWatches { .. } => OpCode::RemoveWatches,
            Self::DeleteContainer { .. } => OpCode::DeleteContainer,
            Self::Auth(_) => OpCode::Auth,
            Self::SetWatches { .. } => OpCode::SetWatches,
            Self::SetWatches2 { .. } => OpCode::SetWatches2,
            Self::Sasl { .. } => OpCode::Sasl,
            Self::GetEphemerals { .. } => OpCode::GetEphemerals,
            Self::GetAllChildrenNumber { .. } => OpCode::GetAllChildrenNumber,
            Self::AddWatch { .. } => OpCode::AddWatch,
            Self::WhoAmI => OpCode::WhoAmI,
            Self::CreateSession { .. } => OpCode::CreateSession,
            Self::CloseSession => OpCode::CloseSession,
        }
    }

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

    /// Writes the body.
    pub fn encode(&self, out: &mut impl BufMut) {
        match self {
            Self::Create(create) => create.encode(out),
            Self::Delete { path, version } | Self::Check { path, version } => {
                put_path_and_version(out, path, *version);
            }
            Self::Exists { path, watch }
            | Self::GetData { path, watch }
            | Self::GetChildren { path, watch }
            | Self::GetChildren2 { path, watch } => put_path_and_watch(out, path, *watch),
            Self::SetData {
                path,
                data,
                version,
            } => put_set_data(out, path, *data, *version),
            Self::SetAcl { path, acl, version } => {
                put_string(out, path);
                Acl::encode_list(acl.as_deref(), out);
                out.put_i32(*version);
            }
            Self::GetAcl { path }
            | Self::Sync { path }
            | Self::DeleteContainer { path }
            | Self::GetAllChildrenNumber { path }
            | Self::GetEphemerals { prefix: path } => put_string(out, path),
            Self::Multi(ops) | Self::MultiRead(ops) => MultiOp::encode_chain(ops, out),
            Self::Reconfig {
                joining,
                leaving,
                new_members,
                config_id,
            } => {
                put_optional_string(out, *joining);
                put_optional_string(out, *leaving);
                put_optional_string(out, *new_members);
                out.put_i64(*config_id);
            }
            Self::CheckWatches { path, kind }
            | Self::RemoveWatches { path, kind }
            | Self::AddWatch { path, mode: kind } => {
                put_string(out, path);
                out.put_i32(*kind);
            }
            Self::Auth(packet) => {
                out.put_i32(packet.kind);
                put_string(out, packet.scheme);
                put_buffer(out, packet.auth);
            }
            Self::SetWatches {
                relative_zxid,
                data,
                exist,
                child,
            } => {
                out.put_i64(*relative_zxid);
                for paths in [data, exist, child] {
                    put_strings(out, paths.iter().copied());
                }
            }
            Self::SetWatches2 {
                relative_zxid,
                data,
                exist,
                child,
                persistent,
                persistent_recursive,
            } => {
                out.put_i64(*relative_zxid);
                for paths in [data, exist, child, persistent, persistent_recursive] {
                    put_strings(out, paths.iter().copied());
                }
            }
            Self::Sasl { token } => put_buffer(out, *token),
            Self::CreateSession { timeout_ms } => out.put_i32(*timeout_ms),
            Self::Ping | Self::WhoAmI | Self::CloseSession => {}
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

    /// Reads the body of an operation, which may be one of a chain.
    fn decode_from(op: OpCode, from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(match op {
            OpCode::Notification => {
                return Err(from.error(
                    "RequestHeader.type",
                    DecodeErrorKind::UnknownValue(op.code()),
                ));
            }
            OpCode::Create => Self::Create(Create::decode(CreateOp::Create, from)?),
            OpCode::Create2 => Self::Create(Create::decode(CreateOp::Create2, from)?),
            OpCode::CreateContainer => Self::Create(Create::decode(CreateOp::Container, from)?),
            OpCode::CreateTtl => Self::Create(Create::decode(CreateOp::Ttl, from)?),
            OpCode::Delete => Self::Delete {
                path: from.string("DeleteRequest.path")?,
                version: from.i32("DeleteRequest.version")?,
            },
            OpCode::Exists => Self::Exists {
                path: from.string("ExistsRequest.path")?,
                watch: from.bool("ExistsRequest.watch")?,
            },
            OpCode::GetData => Self::GetData {
                path: from.string("GetDataRequest.path")?,
                watch: from.bool("GetDataRequest.watch")?,
            },
            OpCode::SetData => Self::SetData {
                path: from.string("SetDataRequest.path")?,
                data: from.buffer("SetDataRequest.data")?,
                version: from.i32("SetDataRequest.version")?,
            },
            OpCode::GetAcl => Self::GetAcl {
                path: from.string("GetACLRequest.path")?,
            },
            OpCode::SetAcl => Self::SetAcl {
                path: from.string("SetACLRequest.path")?,
                acl: Acl::decode_list(from, "SetACLRequest.acl")?,
                version: from.i32("SetACLRequest.version")?,
            },
            OpCode::GetChildren => Self::GetChildren {
                path: from.string("GetChildrenRequest.path")?,
                watch: from.bool("GetChildrenRequest.watch")?,
            },
            OpCode::GetChildren2 => Self::GetChildren2 {
                path: from.string("GetChildren2Request.path")?,
                watch: from.bool("GetChildren2Request.watch")?,
            },
            OpCode::Sync => Self::Sync {
                path: from.string("SyncRequest.path")?,
            },
            OpCode::Ping => Self::Ping,
            OpCode::Check => Self::Check {
                path: from.string("CheckVersionRequest.path")?,
                version: from.i32("CheckVersionRequest.version")?,
            },
            OpCode::Multi => Self::Multi(Self::decode_chain(op, from)?),
            OpCode::MultiRead => Self::MultiRead(Self::decode_chain(op, from)?),
            OpCode::Reconfig => Self::Reconfig {
                joining: from.optional_string("ReconfigRequest.joiningServers")?,
                leaving: from.optional_string("ReconfigRequest.leavingServers")?,
                new_members: from.optional_string("ReconfigRequest.newMembers")?,
                config_id: from.i64("ReconfigRequest.curConfigId")?,
            },
            OpCode::CheckWatches => Self::CheckWatches {
                path: from.string("CheckWatchesRequest.path")?,
                kind: from.i32("CheckWatchesRequest.type")?,
            },
            OpCode::RemoveWatches => Self::RemoveWatches {
                path: from.string("RemoveWatchesRequest.path")?,
                kind: from.i32("RemoveWatchesRequest.type")?,
            },
            OpCode::DeleteContainer => Self::DeleteContainer {
                path: from.string("DeleteContainerRequest.path")?,
            },
            OpCode::Auth => Self::Auth(AuthPacket {
                kind: from.i32("AuthPacket.type")?,
                scheme: from.string("AuthPacket.scheme")?,
                auth: from.buffer("AuthPacket.auth")?,
            }),
            OpCode::SetWatches => Self::SetWatches {
                relative_zxid: from.i64("SetWatches.relativeZxid")?,
                data: from.strings("SetWatches.dataWatches")?,
                exist: from.strings("SetWatches.existWatches")?,
                child: from.strings("SetWatches.childWatches")?,
            },
            OpCode::SetWatches2 => Self::SetWatches2 {
                relative_zxid: from.i64("SetWatches2.relativeZxid")?,
                data: from.strings("SetWatches2.dataWatches")?,
                exist: from.strings("SetWatches2.existWatches")?,
                child: from.strings("SetWatches2.childWatches")?,
                persistent: from.strings("SetWatches2.persistentWatches")?,
                persistent_recursive: from.strings("SetWatches2.persistentRecursiveWatches")?,
            },
            OpCode::Sasl => Self::Sasl {
                token: from.buffer("GetSASLRequest.token")?,
            },
            OpCode::GetEphemerals => Self::GetEphemerals {
                prefix: from.string("GetEphemeralsRequest.prefixPath")?,
            },
            OpCode::GetAllChildrenNumber => Self::GetAllChildrenNumber {
                path: from.string("GetAllChildrenNumberRequest.path")?,
            },
            OpCode::AddWatch => Self::AddWatch {
                path: from.string("AddWatchRequest.path")?,
                mode: from.i32("AddWatchRequest.mode")?,
            },
            OpCode::WhoAmI => Self::WhoAmI,
            OpCode::CreateSession => Self::CreateSession {
                timeout_ms: from.i32("CreateSessionTxn.timeOut")?,
            },
            OpCode::CloseSession => Self::CloseSession,
        })
    }
}

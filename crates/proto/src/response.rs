//! Replies' bodies (protocol.md §1.4). Owned, since a reply outlives the frame it came in; data
//! shares the frame's memory. The header, which carries xid, zxid and error, goes before it.

use bytes::{BufMut, Bytes};

use crate::fields::{decode_bytes, owned_strings};
use crate::wire::{put_buffer, put_count, put_string, put_strings};
use crate::{Acl, DecodeError, DecodeErrorKind, Decoder, Limits, MultiResult, OpCode, Stat};

/// One identity of a connection, as `whoAmI` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientInfo {
    /// Such as `ip` or `digest`.
    pub scheme: String,
    /// The identity, in the scheme's terms, without secrets.
    pub user: String,
}

/// The body of a reply without error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// No body: delete, ping, auth, setWatches, removeWatches, closeSession.
    Empty,
    /// A path: create (with its number) and sync.
    Path(String),
    /// The new znode's path and stat: create2, createContainer, createTTL.
    PathStat(String, Stat),
    /// The znode's stat: exists, setData, setACL.
    Stat(Stat),
    /// Data and stat: getData, reconfig.
    Data {
        /// The data; `None` is null.
        data: Option<Bytes>,
        /// The znode's stat.
        stat: Stat,
    },
    /// ACL and stat: getACL.
    Acl {
        /// The list.
        acl: Vec<Acl<'static>>,
        /// The znode's stat.
        stat: Stat,
    },
    /// Names of children, in no order: getChildren.
    Children(Vec<String>),
    /// Names of children, in no order, and stat: getChildren2.
    Children2 {
        /// The names.
        children: Vec<String>,
        /// The parent's stat.
        stat: Stat,
    },
    /// A number: getAllChildrenNumber.
    Count(i32),
    /// Paths: getEphemerals.
    Strings(Vec<String>),
    /// An outcome for each operation: multi, multiRead.
    Multi(Vec<MultiResult>),
    /// addWatch. The body is an `ErrorResponse` of 0; clients read it and fail without it.
    WatchAdded,
    /// The identities of the connection: whoAmI.
    WhoAmI(Vec<ClientInfo>),
    /// The next token of a SASL exchange; `None` is null.
    Sasl(Option<Bytes>),
}

impl Response {
    /// Writes the body.
    pub fn encode(&self, out: &mut impl BufMut) {
        match self {
            Self::Empty => {}
            Self::Path(path) => put_string(out, path),
            Self::PathStat(path, stat) => {
                put_string(out, path);
                stat.encode(out);
            }
            Self::Stat(stat) => stat.encode(out),
            Self::Data { data, stat } => {
                put_buffer(out, data.as_deref());
                stat.encode(out);
            }
            Self::Acl { acl, stat } => {
                Acl::encode_list(Some(acl), out);
                stat.encode(out);
            }
            Self::Children(names) | Self::Strings(names) => {
                put_strings(out, names.iter().map(String::as_str));
            }
            Self::Children2 { children, stat } => {
                put_strings(out, children.iter().map(String::as_str));
                stat.encode(out);
            }
            Self::Count(count) => out.put_i32(*count),
            Self::Multi(results) => MultiResult::encode_chain(results, out),
            Self::WatchAdded => out.put_i32(0),
            Self::WhoAmI(infos) => {
                put_count(out, infos.len());
                for info in infos {
                    put_string(out, &info.scheme);
                    put_string(out, &info.user);
                }
            }
            Self::Sasl(token) => put_buffer(out, token.as_deref()),
        }
    }

    /// Reads the body of the reply to `op`, whose header had no error. Bytes after it are ignored
    /// (protocol.md §1.1).
    ///
    /// # Errors
    /// The bytes are not such a body.
    pub fn decode(op: OpCode, body: &Bytes, limits: &Limits) -> Result<Self, DecodeError> {
        let from = &mut Decoder::new(body, limits);
        Ok(match op {
            OpCode::Create => Self::Path(from.string("CreateResponse.path")?.to_owned()),
            OpCode::Sync => Self::Path(from.string("SyncResponse.path")?.to_owned()),
            OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => Self::PathStat(
                from.string("Create2Response.path")?.to_owned(),
                Stat::decode(from)?,
            ),
            OpCode::Exists | OpCode::SetData | OpCode::SetAcl => Self::Stat(Stat::decode(from)?),
            OpCode::GetData | OpCode::Reconfig => Self::Data {
                data: decode_bytes(body, from, "GetDataResponse.data")?,
                stat: Stat::decode(from)?,
            },
            OpCode::GetAcl => {
                let acl = Acl::decode_list(from, "GetACLResponse.acl")?.unwrap_or_default();
                Self::Acl {
                    acl: acl.into_iter().map(Acl::into_owned).collect(),
                    stat: Stat::decode(from)?,
                }
            }
            OpCode::GetChildren => {
                Self::Children(owned_strings(from, "GetChildrenResponse.children")?)
            }
            OpCode::GetChildren2 => Self::Children2 {
                children: owned_strings(from, "GetChildren2Response.children")?,
                stat: Stat::decode(from)?,
            },
            OpCode::GetEphemerals => {
                Self::Strings(owned_strings(from, "GetEphemeralsResponse.ephemerals")?)
            }
            OpCode::GetAllChildrenNumber => {
                Self::Count(from.i32("GetAllChildrenNumberResponse.totalNumber")?)
            }
            OpCode::Multi | OpCode::MultiRead => {
                Self::Multi(MultiResult::decode_chain(body, from)?)
            }
            OpCode::AddWatch => match from.i32("ErrorResponse.err")? {
                0 => Self::WatchAdded,
                code => {
                    return Err(
                        from.error("ErrorResponse.err", DecodeErrorKind::UnknownValue(code))
                    );
                }
            },
            OpCode::WhoAmI => {
                let field = "WhoAmIResponse.clientInfo";
                let count = from.optional_count(8, field)?.unwrap_or(0);
                let mut infos = Vec::with_capacity(count);
                for _ in 0..count {
                    infos.push(ClientInfo {
                        scheme: from.string("ClientInfo.authScheme")?.to_owned(),
                        user: from
                            .optional_string("ClientInfo.user")?
                            .unwrap_or_default()
                            .to_owned(),
                    });
                }
                Self::WhoAmI(infos)
            }
            OpCode::Sasl => Self::Sasl(decode_bytes(body, from, "SetSASLResponse.token")?),
            OpCode::Notification
            | OpCode::Delete
            | OpCode::Ping
            | OpCode::Check
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::DeleteContainer
            | OpCode::Auth
            | OpCode::SetWatches
            | OpCode::SetWatches2
            | OpCode::CreateSession
            | OpCode::CloseSession => Self::Empty,
        })
    }
}

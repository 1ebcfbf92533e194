//! The four create requests and the kinds of znode they can make (protocol.md §1.4, §1.11). Turns
//! the kind into op code, flags and time to live, and back; whether the znode may be created is the
//! tree's decision.

use bytes::BufMut;

use crate::wire::{put_buffer, put_string};
use crate::{Acl, DecodeError, Decoder, ErrorCode, OpCode};

/// Longest time to live of a znode, in milliseconds: what fits in 40 bits.
pub const MAX_TTL_MS: i64 = (1 << 40) - 1;

/// Kind of znode that a create makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Stays until deleted.
    Persistent,
    /// Stays until deleted; the server appends a number to the name.
    PersistentSequential,
    /// Ends with the session.
    Ephemeral,
    /// Ends with the session; the server appends a number to the name.
    EphemeralSequential,
    /// The server deletes it some time after its last child has gone.
    Container,
    /// The server deletes it when it has no children and was not written for this time.
    PersistentTtl {
        /// Time to live in milliseconds, 1 to [`MAX_TTL_MS`].
        ttl_ms: i64,
    },
    /// [`CreateMode::PersistentTtl`] with a number that the server appends to the name.
    PersistentSequentialTtl {
        /// Time to live in milliseconds, 1 to [`MAX_TTL_MS`].
        ttl_ms: i64,
    },
}

impl CreateMode {
    /// The flags on the wire.
    #[must_use]
    pub const fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::PersistentSequential => 2,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
            Self::PersistentTtl { .. } => 5,
            Self::PersistentSequentialTtl { .. } => 6,
        }
    }

    /// Returns whether the znode ends with the session.
    #[must_use]
    pub const fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// Returns whether the server appends a number to the name.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential
                | Self::EphemeralSequential
                | Self::PersistentSequentialTtl { .. }
        )
    }

    /// Returns whether the znode is a container.
    #[must_use]
    pub const fn is_container(self) -> bool {
        matches!(self, Self::Container)
    }

    /// The time to live in milliseconds, if the kind has one.
    #[must_use]
    pub const fn ttl_ms(self) -> Option<i64> {
        match self {
            Self::PersistentTtl { ttl_ms } | Self::PersistentSequentialTtl { ttl_ms } => {
                Some(ttl_ms)
            }
            _ => None,
        }
    }
}

/// The create operation of a request: it decides the record's layout and the reply's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CreateOp {
    /// Op 1; the reply is the path.
    Create,
    /// Op 15; the reply is path and stat.
    Create2,
    /// Op 19.
    Container,
    /// Op 21; the record has a time to live.
    Ttl,
}

impl CreateOp {
    /// The op code.
    #[must_use]
    pub const fn op(self) -> OpCode {
        match self {
            Self::Create => OpCode::Create,
            Self::Create2 => OpCode::Create2,
            Self::Container => OpCode::CreateContainer,
            Self::Ttl => OpCode::CreateTtl,
        }
    }
}

/// A create request, as sent: what it asks for may still be refused, see [`Create::mode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create<'a> {
    /// The operation.
    pub op: CreateOp,
    /// The path; for a sequential znode without its number.
    pub path: &'a str,
    /// The data; `None` is null, which is stored as such.
    pub data: Option<&'a [u8]>,
    /// The ACL; null and empty are refused by servers.
    pub acl: Option<Vec<Acl<'a>>>,
    /// The kind of znode, as sent.
    pub flags: i32,
    /// Time to live in milliseconds; on the wire only with [`CreateOp::Ttl`], otherwise -1.
    pub ttl_ms: i64,
}

impl<'a> Create<'a> {
    /// A request for a znode of this kind whose reply carries the stat (op 15, 19 or 21, as the
    /// kind needs).
    #[must_use]
    pub fn new(path: &'a str, data: Option<&'a [u8]>, acl: Vec<Acl<'a>>, mode: CreateMode) -> Self {
        let op = match mode {
            CreateMode::Container => CreateOp::Container,
            CreateMode::PersistentTtl { .. } | CreateMode::PersistentSequentialTtl { .. } => {
                CreateOp::Ttl
            }
            _ => CreateOp::Create2,
        };
        Self {
            op,
            path,
            data,
            acl: Some(acl),
            flags: mode.flags(),
            ttl_ms: mode.ttl_ms().unwrap_or(-1),
        }
    }

    /// The kind of znode that is asked for. A container comes from the op code alone: flag 4 with
    /// op 1 or 15 makes a persistent znode, as it does in ZooKeeper.
    ///
    /// # Errors
    /// [`ErrorCode::BadArguments`]: flags that the operation does not have, or a time to live out
    /// of range.
    pub fn mode(&self) -> Result<CreateMode, ErrorCode> {
        let ttl_ms = self.ttl_ms;
        match (self.op, self.flags) {
            (CreateOp::Create | CreateOp::Create2, 0 | 4) => Ok(CreateMode::Persistent),
            (CreateOp::Create | CreateOp::Create2, 1) => Ok(CreateMode::Ephemeral),
            (CreateOp::Create | CreateOp::Create2, 2) => Ok(CreateMode::PersistentSequential),
            (CreateOp::Create | CreateOp::Create2, 3) => Ok(CreateMode::EphemeralSequential),
            (CreateOp::Container, 0 | 4) => Ok(CreateMode::Container),
            (CreateOp::Ttl, 5) if (1..=MAX_TTL_MS).contains(&ttl_ms) => {
                Ok(CreateMode::PersistentTtl { ttl_ms })
            }
            (CreateOp::Ttl, 6) if (1..=MAX_TTL_MS).contains(&ttl_ms) => {
                Ok(CreateMode::PersistentSequentialTtl { ttl_ms })
            }
            _ => Err(ErrorCode::BadArguments),
        }
    }

    /// Writes the record.
    pub fn encode(&self, out: &mut impl BufMut) {
        put_string(out, self.path);
        put_buffer(out, self.data);
        Acl::encode_list(self.acl.as_deref(), out);
        out.put_i32(self.flags);
        if self.op == CreateOp::Ttl {
            out.put_i64(self.ttl_ms);
        }
    }

    /// Reads the record of this operation.
    ///
    /// # Errors
    /// The bytes are not such a record.
    pub fn decode(op: CreateOp, from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            op,
            path: from.string("CreateRequest.path")?,
            data: from.buffer("CreateRequest.data")?,
            acl: Acl::decode_list(from, "CreateRequest.acl")?,
            flags: from.i32("CreateRequest.flags")?,
            ttl_ms: if op == CreateOp::Ttl {
                from.i64("CreateTTLRequest.ttl")?
            } else {
                -1
            },
        })
    }
}

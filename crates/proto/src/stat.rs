//! The 68-byte record that describes a znode (protocol.md §1.6). Layout only; the tree decides the
//! values.

use std::fmt;

use bytes::BufMut;

use crate::{DecodeError, Decoder};

/// Metadata of a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stat {
    /// zxid of the write that created the znode.
    pub czxid: i64,
    /// zxid of the last write to its data.
    pub mzxid: i64,
    /// Time at which it was created, milliseconds since the Unix epoch by the leader's clock.
    pub ctime: i64,
    /// Time at which its data was last written, milliseconds since the Unix epoch by the leader's
    /// clock.
    pub mtime: i64,
    /// Number of writes to the data.
    pub version: i32,
    /// Number of changes to the set of children.
    pub cversion: i32,
    /// Number of changes to the ACL.
    pub aversion: i32,
    /// The session that owns an ephemeral; 0 for every other kind of znode.
    pub ephemeral_owner: i64,
    /// Length of the data in bytes; 0 for null.
    pub data_length: i32,
    /// Number of children.
    pub num_children: i32,
    /// zxid of the last write that added or removed a child.
    pub pzxid: i64,
}

/// One line: the version, the sizes, the zxids, and the owner of an ephemeral.
impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "version {}, {} bytes, {} children, czxid 0x{:x}, mzxid 0x{:x}",
            self.version, self.data_length, self.num_children, self.czxid, self.mzxid
        )?;
        if self.is_ephemeral() {
            write!(f, ", of session 0x{:x}", self.ephemeral_owner)?;
        }
        Ok(())
    }
}

impl Stat {
    /// Size on the wire.
    pub const BYTES: usize = 68;

    /// Returns whether the znode belongs to a session.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.ephemeral_owner != 0
    }

    /// Writes the record.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_i64(self.czxid);
        out.put_i64(self.mzxid);
        out.put_i64(self.ctime);
        out.put_i64(self.mtime);
        out.put_i32(self.version);
        out.put_i32(self.cversion);
        out.put_i32(self.aversion);
        out.put_i64(self.ephemeral_owner);
        out.put_i32(self.data_length);
        out.put_i32(self.num_children);
        out.put_i64(self.pzxid);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// The bytes end before the record does.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            czxid: from.i64("Stat.czxid")?,
            mzxid: from.i64("Stat.mzxid")?,
            ctime: from.i64("Stat.ctime")?,
            mtime: from.i64("Stat.mtime")?,
            version: from.i32("Stat.version")?,
            cversion: from.i32("Stat.cversion")?,
            aversion: from.i32("Stat.aversion")?,
            ephemeral_owner: from.i64("Stat.ephemeralOwner")?,
            data_length: from.i32("Stat.dataLength")?,
            num_children: from.i32("Stat.numChildren")?,
            pzxid: from.i64("Stat.pzxid")?,
        })
    }
}

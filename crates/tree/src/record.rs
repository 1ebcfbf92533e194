//! The stored parts of a znode. Owns their layout: which fields every znode has, and which only
//! those that need them.

use crate::acl_table::AclId;
use crate::payloads::PayloadId;

/// The number of a znode.
pub(crate) type NodeId = u32;

/// No znode, no details, no family.
pub(crate) const NONE: u32 = u32::MAX;

/// Length of data that is null rather than empty.
const NULL_DATA: u32 = u32::MAX;

/// Name and data of a znode: where they lie, one behind the other, and how long they are.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) id: PayloadId,
    pub(crate) name_len: u32,
    data_len: u32,
}

impl Payload {
    /// This name and this data, which lie there.
    pub(crate) fn new(id: PayloadId, name: &[u8], data: Option<&[u8]>) -> Self {
        let mut payload = Self {
            id,
            name_len: name.len() as u32,
            data_len: NULL_DATA,
        };
        payload.set_data(data);
        payload
    }

    /// Notes that this data lies there.
    pub(crate) fn set_data(&mut self, data: Option<&[u8]>) {
        self.data_len = data.map_or(NULL_DATA, |data| data.len() as u32);
    }

    pub(crate) const fn has_data(&self) -> bool {
        self.data_len != NULL_DATA
    }

    pub(crate) const fn data_len(&self) -> usize {
        if self.has_data() {
            self.data_len as usize
        } else {
            0
        }
    }

    /// Bytes of name and data.
    pub(crate) const fn len(&self) -> usize {
        self.name_len as usize + self.data_len()
    }
}

/// Stored part of every znode.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) czxid: i64,
    pub(crate) ctime: i64,
    pub(crate) payload: Payload,
    pub(crate) parent: NodeId,
    pub(crate) next: NodeId,
    pub(crate) prev: NodeId,
    pub(crate) acl: AclId,
    pub(crate) details: u32,
}

/// Stored part of a znode that is not as most are: created by a command alone, persistent, never
/// written since, and without children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Details {
    pub(crate) mzxid: i64,
    pub(crate) mtime: i64,
    pub(crate) owner: i64,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    pub(crate) birth: u32,
    pub(crate) family: u32,
}

/// The part of a znode that a write of its data changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastWrite {
    pub(crate) mzxid: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
}

/// State of a znode that has or had children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) first: NodeId,
    pub(crate) last: NodeId,
    pub(crate) num_children: u32,
    /// Children ever created: ZooKeeper's internal cversion, in 64 bits.
    pub(crate) creates: i64,
    pub(crate) pzxid: i64,
    /// All descendants.
    pub(crate) below: Total,
}

/// A number of znodes, and the bytes of their data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) nodes: u64,
    pub(crate) bytes: u64,
}

impl Total {
    pub(crate) const fn of(record: &Record) -> Self {
        Self {
            nodes: 1,
            bytes: record.payload.data_len() as u64,
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.wrapping_add(other.nodes),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    pub(crate) const fn minus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.wrapping_sub(other.nodes),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}

/// A znode before it has a place.
pub(crate) struct NewNode {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) owner: i64,
    pub(crate) acl: AclId,
    pub(crate) version: i32,
    pub(crate) aversion: i32,
    /// Number of the operation in its command that created it: with `czxid` the order among
    /// siblings.
    pub(crate) birth: u32,
}

impl Record {
    pub(crate) const fn parent(&self) -> NodeId {
        self.parent
    }

    pub(crate) const fn acl(&self) -> AclId {
        self.acl
    }
}

impl Details {
    /// The details of a znode for which none are stored.
    pub(crate) const fn of(record: &Record) -> Self {
        Self {
            mzxid: record.czxid,
            mtime: record.ctime,
            owner: 0,
            version: 0,
            aversion: 0,
            birth: 0,
            family: NONE,
        }
    }
}

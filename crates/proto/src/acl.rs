//! Access-control entries (protocol.md §1.6). Layout and the usual lists; whether an entry admits
//! somebody is the tree's decision.

use std::borrow::Cow;
use std::ops::BitOr;

use bytes::BufMut;

use crate::wire::{put_count, put_string};
use crate::{DecodeError, Decoder};

/// A set of permissions, as the bits on the wire. Unknown bits are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Perms(pub i32);

impl Perms {
    /// Read the data, list the children.
    pub const READ: Self = Self(1);
    /// Write the data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Set the ACL.
    pub const ADMIN: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Returns whether every permission of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether some permission of `other` is in this set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Perms {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One entry: who (scheme and id) may do what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Acl<'a> {
    /// The allowed operations.
    pub perms: Perms,
    /// Scheme that gives the id its meaning: `world`, `auth`, `digest`, `ip`, `x509`, `sasl`.
    pub scheme: Cow<'a, str>,
    /// The identity, in the scheme's terms.
    pub id: Cow<'a, str>,
}

impl<'a> Acl<'a> {
    /// Fewest bytes that an entry takes on the wire.
    pub const MIN_BYTES: usize = 12;

    /// An entry from its parts.
    pub fn new(perms: Perms, scheme: impl Into<Cow<'a, str>>, id: impl Into<Cow<'a, str>>) -> Self {
        Self {
            perms,
            scheme: scheme.into(),
            id: id.into(),
        }
    }

    /// The same entry with its own strings.
    #[must_use]
    pub fn into_owned(self) -> Acl<'static> {
        Acl {
            perms: self.perms,
            scheme: Cow::Owned(self.scheme.into_owned()),
            id: Cow::Owned(self.id.into_owned()),
        }
    }

    /// Writes the entry.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(self.perms.0);
        put_string(out, &self.scheme);
        put_string(out, &self.id);
    }

    /// Reads the entry; a null scheme or id is the empty string, which no check accepts.
    ///
    /// # Errors
    /// The bytes end before the entry does, or a string is not UTF-8.
    pub fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            perms: Perms(from.i32("ACL.perms")?),
            scheme: Cow::Borrowed(from.optional_string("ACL.scheme")?.unwrap_or_default()),
            id: Cow::Borrowed(from.optional_string("ACL.id")?.unwrap_or_default()),
        })
    }

    /// Writes a list of entries; `None` is null.
    pub fn encode_list(list: Option<&[Self]>, out: &mut impl BufMut) {
        match list {
            Some(list) => {
                put_count(out, list.len());
                for entry in list {
                    entry.encode(out);
                }
            }
            None => out.put_i32(-1),
        }
    }

    /// Reads a list of entries; `None` is null.
    ///
    /// # Errors
    /// As [`Acl::decode`], or a count that the bytes left cannot hold.
    pub fn decode_list(
        from: &mut Decoder<'a>,
        field: &'static str,
    ) -> Result<Option<Vec<Self>>, DecodeError> {
        let Some(count) = from.optional_count(Self::MIN_BYTES, field)? else {
            return Ok(None);
        };
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(Self::decode(from)?);
        }
        Ok(Some(list))
    }
}

impl Acl<'static> {
    /// Anyone may do anything: ZooKeeper's `OPEN_ACL_UNSAFE`.
    #[must_use]
    pub const fn open_unsafe() -> Self {
        Self {
            perms: Perms::ALL,
            scheme: Cow::Borrowed("world"),
            id: Cow::Borrowed("anyone"),
        }
    }

    /// The znode's creator may do anything: `CREATOR_ALL_ACL`. Needs an authenticated connection.
    #[must_use]
    pub fn creator_all() -> Self {
        Self {
            perms: Perms::ALL,
            scheme: Cow::Borrowed("auth"),
            id: Cow::Borrowed(""),
        }
    }

    /// Anyone may read: `READ_ACL_UNSAFE`.
    #[must_use]
    pub fn read_unsafe() -> Self {
        Self {
            perms: Perms::READ,
            scheme: Cow::Borrowed("world"),
            id: Cow::Borrowed("anyone"),
        }
    }
}

//! Forms of a counter's number in the tree.
//!
//! Owns the forms of each library, both ways.

use std::fmt;

use bytes::Bytes;

/// Form of a counter's number in the tree. A node without data is 0 in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CounterLayout {
    /// Decimal text, as kazoo's `Counter` has it. 64 bits.
    #[default]
    Decimal,
    /// Four bytes, big-endian: Curator's `SharedCount` and `DistributedAtomicInteger`, kazoo's
    /// `Counter` with `support_curator`.
    Int32,
    /// Eight bytes, big-endian: Curator's `DistributedAtomicLong`.
    Int64,
}

impl fmt::Display for CounterLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decimal => "decimal text",
            Self::Int32 => "a 32-bit integer",
            Self::Int64 => "a 64-bit integer",
        })
    }
}

impl CounterLayout {
    pub(super) fn decode(self, data: &[u8]) -> Option<i64> {
        if data.is_empty() {
            return Some(0);
        }
        match self {
            Self::Decimal => std::str::from_utf8(data).ok()?.parse().ok(),
            Self::Int32 => data.try_into().ok().map(i32::from_be_bytes).map(i64::from),
            Self::Int64 => data.try_into().ok().map(i64::from_be_bytes),
        }
    }

    pub(super) fn encode(self, value: i64) -> Option<Bytes> {
        Some(match self {
            Self::Decimal => Bytes::from(value.to_string()),
            Self::Int32 => Bytes::copy_from_slice(&i32::try_from(value).ok()?.to_be_bytes()),
            Self::Int64 => Bytes::copy_from_slice(&value.to_be_bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stored_as_the_other_libraries_store_them() {
        for (layout, value, bytes) in [
            (CounterLayout::Decimal, -12, &b"-12"[..]),
            (CounterLayout::Int32, -2, &[0xff, 0xff, 0xff, 0xfe]),
            (CounterLayout::Int64, 258, &[0, 0, 0, 0, 0, 0, 1, 2]),
        ] {
            assert_eq!(layout.encode(value).as_deref(), Some(bytes));
            assert_eq!(layout.decode(bytes), Some(value));
            assert_eq!(layout.decode(b""), Some(0));
            assert_eq!(layout.decode(b"1.5xx"), None);
        }
        assert_eq!(CounterLayout::Int32.encode(1 << 31), None);
        assert_eq!(
            CounterLayout::Decimal.decode(b"3.0"),
            None,
            "kazoo's float counter"
        );
    }
}

//! Reading jute's primitive types from bytes that a peer sent. Owns bounds checks and the error
//! that says what was wrong and where; never panics, and never reserves memory by a count the peer
//! merely claims.

use crate::Limits;

/// Error in a record, with the field and the byte of the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot decode {field} at byte {offset}: {kind}")]
pub struct DecodeError {
    /// The record and field, as `Record.field`.
    pub field: &'static str,
    /// Offset from the start of the bytes given to the decoder.
    pub offset: usize,
    /// Kind of the error.
    pub kind: DecodeErrorKind,
}

/// The ways in which bytes can fail to be a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The bytes end before the field does.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the field needs at least.
        needed: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// A length or count below -1 (-1 means null).
    #[error("length {0} is negative")]
    NegativeLength(i32),
    /// A string or buffer longer than [`Limits::max_field_bytes`].
    #[error("length {length} exceeds the limit of {max} bytes")]
    TooLong {
        /// The claimed length in bytes.
        length: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A string that is not UTF-8.
    #[error("the string is not UTF-8")]
    InvalidUtf8,
    /// A null where the protocol needs a value.
    #[error("null where a value is required")]
    Null,
    /// A buffer of fixed size with another size.
    #[error("{actual} bytes where exactly {expected} are required")]
    WrongSize {
        /// The size that the protocol fixes, in bytes.
        expected: usize,
        /// The size that was sent, in bytes.
        actual: usize,
    },
    /// A number that names no known kind, type or operation here.
    #[error("{0} is not a known value")]
    UnknownValue(i32),
}

/// A cursor over one record's bytes.
///
/// Each method reads one value, advances, and on failure returns an error naming `field`. A failed
/// decoder stays where it was; callers give up on the record.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
    max_field_bytes: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8], limits: &Limits) -> Self {
        Self {
            bytes,
            offset: 0,
            max_field_bytes: limits.max_field_bytes(),
        }
    }

    /// The bytes not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of bytes read.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns whether every byte has been read. Trailing bytes are legal and ignored (protocol.md
    /// §1.1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// An error of this kind at the place the decoder stands.
    #[must_use]
    pub fn error(&self, field: &'static str, kind: DecodeErrorKind) -> DecodeError {
        DecodeError {
            field,
            offset: self.offset,
            kind,
        }
    }

    fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        match self.bytes.split_at_checked(len) {
            Some((head, tail)) => {
                self.bytes = tail;
                self.offset += len;
                Ok(head)
            }
            None => Err(self.error(
                field,
                DecodeErrorKind::Truncated {
                    needed: len,
                    left: self.bytes.len(),
                },
            )),
        }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.bytes = tail;
                self.offset += N;
                Ok(*head)
            }
            None => Err(self.error(
                field,
                DecodeErrorKind::Truncated {
                    needed: N,
                    left: self.bytes.len(),
                },
            )),
        }
    }

    /// A big-endian 32-bit integer.
    ///
    /// # Errors
    /// Fewer than 4 bytes are left.
    pub fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.array(field).map(i32::from_be_bytes)
    }

    /// A big-endian 64-bit integer.
    ///
    /// # Errors
    /// Fewer than 8 bytes are left.
    pub fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// A one-byte boolean; any byte but 0 is true, as in ZooKeeper.
    ///
    /// # Errors
    /// No byte is left.
    pub fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte != 0)
    }

    /// A length-prefixed buffer; -1 is null.
    ///
    /// # Errors
    /// The length is below -1, over the limit, or over what is left.
    pub fn buffer(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, DecodeError> {
        let before = self.clone();
        let result = self.buffer_inner(field);
        if result.is_err() {
            *self = before;
        }
        result
    }

    fn buffer_inner(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, DecodeError> {
        let claimed = self.i32(field)?;
        if claimed == -1 {
            return Ok(None);
        }
        let length = usize::try_from(claimed)
            .map_err(|_| self.error(field, DecodeErrorKind::NegativeLength(claimed)))?;
        if length > self.max_field_bytes {
            return Err(self.error(
                field,
                DecodeErrorKind::TooLong {
                    length,
                    max: self.max_field_bytes,
                },
            ));
        }
        self.take(length, field).map(Some)
    }

    /// A length-prefixed UTF-8 string; -1 is null.
    ///
    /// # Errors
    /// As [`Decoder::buffer`], or the bytes are not UTF-8.
    pub fn optional_string(&mut self, field: &'static str) -> Result<Option<&'a str>, DecodeError> {
        let before = self.clone();
        let Some(bytes) = self.buffer(field)? else {
            return Ok(None);
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => {
                let error = self.error(field, DecodeErrorKind::InvalidUtf8);
                *self = before;
                Err(error)
            }
        }
    }

    /// A length-prefixed UTF-8 string that may not be null.
    ///
    /// # Errors
    /// As [`Decoder::optional_string`], or the string is null.
    pub fn string(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let before = self.clone();
        self.optional_string(field)?.ok_or_else(|| {
            *self = before;
            self.error(field, DecodeErrorKind::Null)
        })
    }

    /// The count of a vector whose items take at least `min_item_bytes` each; -1 is null.
    ///
    /// # Errors
    /// The count is below -1, or more items are claimed than can follow in the bytes left. The
    /// caller may therefore reserve room for the count.
    pub fn optional_count(
        &mut self,
        min_item_bytes: usize,
        field: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let claimed = self.i32(field)?;
        if claimed == -1 {
            return Ok(None);
        }
        let count = usize::try_from(claimed)
            .map_err(|_| self.error(field, DecodeErrorKind::NegativeLength(claimed)))?;
        let needed = count.saturating_mul(min_item_bytes.max(1));
        if needed > self.bytes.len() {
            return Err(self.error(
                field,
                DecodeErrorKind::Truncated {
                    needed,
                    left: self.bytes.len(),
                },
            ));
        }
        Ok(Some(count))
    }

    /// A vector of strings; null is the empty vector.
    ///
    /// # Errors
    /// As [`Decoder::optional_count`] and [`Decoder::string`].
    pub fn strings(&mut self, field: &'static str) -> Result<Vec<&'a str>, DecodeError> {
        let count = self.optional_count(4, field)?.unwrap_or(0);
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.string(field)?);
        }
        Ok(items)
    }
}

//! The integers and byte strings inside log entries and snapshots: LEB128 varints, zigzag for
//! signed ones. Owns these few rules and nothing of either format; the reader is total and never
//! allocates.

/// Reason why bytes could not be read; the formats wrap it in their own errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The bytes end inside a value that begins here.
    Truncated(usize),
    /// A value that its type cannot hold, or that is not legal, begins here.
    Invalid(usize),
}

pub(crate) fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    put_u64(out, ((value << 1) ^ (value >> 63)) as u64);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A cursor over untrusted bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    whole_len: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            whole_len: bytes.len(),
        }
    }

    pub(crate) const fn offset(&self) -> usize {
        self.whole_len - self.rest.len()
    }

    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next byte, which stays.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    pub(crate) fn u8(&mut self) -> Result<u8, ReadError> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or(ReadError::Truncated(self.offset()))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ReadError> {
        let start = self.offset();
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8().map_err(|_| ReadError::Truncated(start))?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ReadError::Invalid(start))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, ReadError> {
        let raw = self.u64()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ReadError> {
        let start = self.offset();
        u32::try_from(self.u64()?).map_err(|_| ReadError::Invalid(start))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ReadError> {
        let start = self.offset();
        i32::try_from(self.i64()?).map_err(|_| ReadError::Invalid(start))
    }

    /// A number of things of at least one byte each: never more than there are bytes left.
    pub(crate) fn count(&mut self) -> Result<usize, ReadError> {
        let start = self.offset();
        let count = usize::try_from(self.u64()?).map_err(|_| ReadError::Invalid(start))?;
        if count > self.remaining() {
            return Err(ReadError::Truncated(start));
        }
        Ok(count)
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(ReadError::Truncated(self.offset()))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(ReadError::Truncated(self.offset()))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn fixed_i64(&mut self) -> Result<i64, ReadError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], ReadError> {
        let len = self.count()?;
        self.take(len)
    }

    pub(crate) fn str(&mut self) -> Result<&'a str, ReadError> {
        let start = self.offset();
        std::str::from_utf8(self.bytes()?).map_err(|_| ReadError::Invalid(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_width_round_trip() {
        let mut out = Vec::new();
        let values = [0, 1, -1, 63, 64, -64, -65, i64::MAX, i64::MIN, 1 << 40];
        for value in values {
            put_i64(&mut out, value);
        }
        put_u64(&mut out, u64::MAX);
        let mut reader = Reader::new(&out);
        for value in values {
            assert_eq!(reader.i64(), Ok(value));
        }
        assert_eq!(reader.u64(), Ok(u64::MAX));
        assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn integers_too_wide_are_refused() {
        assert_eq!(Reader::new(&[0xff; 11]).u64(), Err(ReadError::Invalid(0)));
        assert_eq!(Reader::new(&[0x80]).u64(), Err(ReadError::Truncated(0)));
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x7f]).u32(),
            Err(ReadError::Invalid(0))
        );
        assert_eq!(Reader::new(&[5, 1]).count(), Err(ReadError::Truncated(0)));
    }
}

//! A file as it is read: a window over the bytes that come, never wider than a record needs. Owns
//! where in the file each byte lies and the checksum over what was taken; a length that a file
//! claims reserves nothing, it only bounds what is read on.

use std::io::{self, Read};

use baton_proto::{DecodeError, DecodeErrorKind, Decoder, Limits};
use simd_adler32::Adler32;

use crate::error::ZkDataError;

/// The longest znode or transaction that is read; ZooKeeper's default limit is 1 MiB.
pub(crate) const MAX_RECORD_BYTES: usize = 256 << 20;
/// The same for one field of it.
pub(crate) const LIMITS: Limits = Limits::with_max_frame_bytes(MAX_RECORD_BYTES / 2);
/// The number of bytes read at once.
const STEP_BYTES: usize = 256 << 10;
/// The number of bytes kept before the window's begin, so that the end of a file is known.
const KEPT_BYTES: usize = 8;

pub(crate) struct Input<'r> {
    file: &'r str,
    /// Next step about a record that cannot be read.
    remedy: &'static str,
    from: Box<dyn Read + 'r>,
    window: Vec<u8>,
    /// Number of bytes of the window that have been taken.
    taken: usize,
    /// Number of these that are in `sum`.
    summed: usize,
    sum: Adler32,
    /// Begin of the window in the file.
    begin: u64,
    ended: bool,
}

impl<'r> Input<'r> {
    pub(crate) fn new(file: &'r str, remedy: &'static str, from: Box<dyn Read + 'r>) -> Self {
        Self {
            file,
            remedy,
            from,
            window: Vec::new(),
            taken: 0,
            summed: 0,
            sum: Adler32::new(),
            begin: 0,
            ended: false,
        }
    }

    /// Offset of the next byte in the file; in the decompressed bytes, if it is compressed.
    pub(crate) fn at(&self) -> u64 {
        self.begin + self.taken as u64
    }

    /// Bytes that have been read and not been taken.
    pub(crate) fn rest(&self) -> &[u8] {
        self.window.get(self.taken..).unwrap_or_default()
    }

    /// Reads on until `bytes` bytes can be taken. Returns whether they can.
    pub(crate) fn has(&mut self, bytes: usize) -> Result<bool, ZkDataError> {
        let there = self.rest().len();
        if there >= bytes || self.ended {
            return Ok(there >= bytes);
        }
        self.move_window();
        let wanted = bytes.max(STEP_BYTES) - there;
        // Grows with what comes, not with what is wanted.
        let read = (&mut self.from)
            .take(wanted as u64)
            .read_to_end(&mut self.window);
        self.ended = read.map_err(|error| self.unreadable(&error))? < wanted;
        Ok(self.rest().len() >= bytes)
    }

    /// Returns whether nothing follows.
    pub(crate) fn is_at_end(&mut self) -> Result<bool, ZkDataError> {
        self.has(1).map(|more| !more)
    }

    pub(crate) fn take(&mut self, bytes: usize) {
        self.taken = (self.taken + bytes).min(self.window.len());
    }

    /// Takes what `read` decodes, reading on for as long as it asks for more.
    pub(crate) fn record<T>(
        &mut self,
        read: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, ZkDataError> {
        loop {
            let mut from = Decoder::new(self.rest(), &LIMITS);
            let error = match read(&mut from) {
                Ok(value) => {
                    let bytes = from.offset();
                    self.take(bytes);
                    return Ok(value);
                }
                Err(error) => error,
            };
            let DecodeErrorKind::Truncated { needed, left } = error.kind else {
                return Err(self.damaged(&error));
            };
            let there = self.rest().len();
            let wanted = (there + needed).saturating_sub(left);
            if wanted > MAX_RECORD_BYTES || !self.has(wanted.max(there + 1))? {
                return Err(self.damaged(&error));
            }
        }
    }

    /// The checksum over all that was taken.
    pub(crate) fn checksum(&mut self) -> u64 {
        let new = self.window.get(self.summed..self.taken);
        self.sum.write(new.unwrap_or_default());
        self.summed = self.taken;
        self.sum.finish().into()
    }

    /// Reads to the end; whether the file ends with `mark`, which has at most eight bytes.
    pub(crate) fn ends_with(&mut self, mark: &[u8]) -> Result<bool, ZkDataError> {
        while !self.ended {
            let there = self.rest().len();
            self.take(there);
            self.has(1)?;
        }
        Ok(self.window.ends_with(mark))
    }

    /// Reads to the end; where the first byte lies that is not zero.
    pub(crate) fn first_not_zero(&mut self) -> Result<Option<u64>, ZkDataError> {
        loop {
            if let Some(place) = self.rest().iter().position(|byte| *byte != 0) {
                return Ok(Some(self.at() + place as u64));
            }
            let there = self.rest().len();
            self.take(there);
            if self.is_at_end()? {
                return Ok(None);
            }
        }
    }

    /// Error at the byte `ahead` of the next one.
    pub(crate) fn bad(&self, ahead: usize, reason: impl Into<String>) -> ZkDataError {
        ZkDataError::Record {
            file: self.file.to_owned(),
            offset: self.at() + ahead as u64,
            reason: reason.into(),
            remedy: self.remedy,
        }
    }

    /// A record that cannot be decoded; it begins at the next byte.
    fn damaged(&self, error: &DecodeError) -> ZkDataError {
        self.bad(error.offset, format!("{}: {}", error.field, error.kind))
    }

    fn move_window(&mut self) {
        self.checksum();
        let gone = self.taken.saturating_sub(KEPT_BYTES);
        self.window.drain(..gone);
        self.taken -= gone;
        self.summed -= gone;
        self.begin += gone as u64;
        if self.window.len() < STEP_BYTES {
            self.window.shrink_to(2 * STEP_BYTES);
        }
    }

    fn unreadable(&self, error: &io::Error) -> ZkDataError {
        let file = self.file.to_owned();
        let reason = error.to_string();
        match error.kind() {
            io::ErrorKind::UnexpectedEof => ZkDataError::Unfinished { file },
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                ZkDataError::Decompress { file, reason }
            }
            _ => ZkDataError::Unreadable { file, reason },
        }
    }
}

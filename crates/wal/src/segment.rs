//! One segment file: its header, its name, and the scan that finds where it ends.
//!
//! The scan decides what a bad record means. Each record carries the offset at which the write that
//! brought it began; everything before that offset had been synced. So when a valid record follows
//! a bad one, its `write_start` distinguishes the two cases: behind the bad record, and
//! acknowledged bytes are damaged; at or before it, and both came with one write that a crash tore.

use bytes::Bytes;

use crate::FORMAT_VERSION;
use crate::bytes_at::{all_zero, put, u32_at, u64_at};
use crate::error::{RESTORE_LOG, WalError, check_version};
use crate::file_names::segment_sequence;
use crate::record::{DecodedRecord, Record, RecordPosition, decode};
use crate::storage::Storage;
use crate::whole_file;

/// Bytes before the first record.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"BATONLOG";

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub cluster_id: u64,
    /// 1 for the first segment ever; each next one is one more.
    pub sequence: u64,
    /// The index that the next new entry had when the segment was begun.
    pub first_index: u64,
    /// The running checksum over all records of the segment before; 0 for the first.
    pub previous_chain: u32,
    /// The file grows in steps of this many bytes, each durable no later than the first record
    /// behind it.
    pub extend_bytes: u32,
}

impl SegmentHeader {
    /// The header's bytes and their checksum.
    pub(crate) fn encode(&self) -> ([u8; SEGMENT_HEADER_BYTES], u32) {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.cluster_id.to_le_bytes());
        put(&mut bytes, 24, &self.sequence.to_le_bytes());
        put(&mut bytes, 32, &self.first_index.to_le_bytes());
        put(&mut bytes, 40, &self.previous_chain.to_le_bytes());
        put(&mut bytes, 44, &self.extend_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        put(&mut bytes, 12, &crc.to_le_bytes());
        (bytes, crc)
    }

    /// Reads a header; the checksum that its records build on comes with it.
    pub(crate) fn decode(location: &str, bytes: &[u8]) -> Result<(SegmentHeader, u32), WalError> {
        let damaged = |offset, what: &str| WalError::corrupt(location, offset, what, RESTORE_LOG);
        if bytes.get(..8) != Some(MAGIC) {
            return Err(damaged(0, "it does not begin as a log segment"));
        }
        check_version(location, u32_at(bytes, 8))?;
        let header = SegmentHeader {
            cluster_id: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            first_index: u64_at(bytes, 32),
            previous_chain: u32_at(bytes, 40),
            extend_bytes: u32_at(bytes, 44),
        };
        let (expected, crc) = header.encode();
        if bytes.get(..SEGMENT_HEADER_BYTES) != Some(&expected) {
            return Err(damaged(
                12,
                "the segment header does not match its checksum",
            ));
        }
        Ok((header, crc))
    }
}

/// A segment in memory, ready to be walked. A clone shares its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub location: String,
    pub header: SegmentHeader,
    pub content: Bytes,
    header_crc: u32,
}

/// State of the bytes behind the last valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentTail {
    /// Nothing but zeros.
    Clean,
    /// Bytes of a write that nothing here shows to have been acknowledged.
    Torn,
    /// Acknowledged bytes are damaged: a record at `witness` was written after they had been
    /// synced.
    Damaged { witness: u32 },
}

impl Segment {
    /// Reads a segment and its header.
    pub(crate) fn load(storage: &dyn Storage, name: &str) -> Result<Segment, WalError> {
        let location = storage.location(name);
        let content = whole_file::read_all(storage, name)?;
        let (header, header_crc) = SegmentHeader::decode(&location, &content)?;
        if segment_sequence(name) != Some(header.sequence) {
            return Err(WalError::corrupt(
                &location,
                24,
                format!("it says it is segment {}", header.sequence),
                "give the file back its own name",
            ));
        }
        Ok(Segment {
            location,
            header,
            content,
            header_crc,
        })
    }

    /// The valid records from the first on; ends at the first offset without one.
    pub(crate) fn records(&self) -> Records {
        Records {
            segment: self.clone(),
            offset: SEGMENT_HEADER_BYTES as u32,
            chain: self.header_crc,
            last_write: SEGMENT_HEADER_BYTES as u32,
        }
    }

    /// Judges the end of the segment once all its valid records are walked; `next_chain` is what
    /// the next segment says of this one, `None` when this is the last. Gives whether a torn write
    /// is at the end.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] when anything acknowledged is missing or damaged.
    pub(crate) fn check_end(
        &self,
        walked: &Records,
        next_chain: Option<u32>,
    ) -> Result<bool, WalError> {
        let damaged = |offset: u64, what: String| {
            Err(WalError::corrupt(&self.location, offset, what, RESTORE_LOG))
        };
        let end = walked.offset;
        let tail = self.tail(end);
        if let SegmentTail::Damaged { witness } = tail {
            return damaged(
                u64::from(end),
                format!(
                    "the record does not match its checksum, and the record at byte {witness} was written after it had been synced"
                ),
            );
        }
        match next_chain {
            // All records that the next segment vouches for are here; only the seal may be torn.
            Some(chain) if chain == walked.chain => Ok(false),
            Some(_) => damaged(
                u64::from(end),
                "the records up to here are not those that the next segment was begun after"
                    .to_owned(),
            ),
            None if self.is_cut_short(walked.last_write) => damaged(
                self.content.len() as u64,
                "the file is shorter than it was when its last record was written".to_owned(),
            ),
            None => Ok(tail == SegmentTail::Torn),
        }
    }

    /// Returns whether the file is shorter than it was when the write that began at `last_write`
    /// was made: everything before that was durable then, and so was the step that the file had
    /// grown by to hold it.
    fn is_cut_short(&self, last_write: u32) -> bool {
        let step = u64::from(self.header.extend_bytes.max(1));
        last_write as usize > SEGMENT_HEADER_BYTES
            && (self.content.len() as u64) < u64::from(last_write).next_multiple_of(step)
    }

    /// The checksum that records of this segment build on.
    pub(crate) fn header_crc(&self) -> u32 {
        self.header_crc
    }

    /// Examines the bytes from `end`, where the valid records stop, to the end of the file.
    pub(crate) fn tail(&self, end: u32) -> SegmentTail {
        let rest = self.content.get(end as usize..).unwrap_or_default();
        if all_zero(rest) {
            return SegmentTail::Clean;
        }
        let mut offset = end;
        while (offset as usize) < self.content.len() {
            if let Some(found) = self.decode_at(offset)
                && found.write_start > end
            {
                return SegmentTail::Damaged { witness: offset };
            }
            let Some(next) = offset.checked_add(8) else {
                break;
            };
            offset = next;
        }
        SegmentTail::Torn
    }

    fn decode_at(&self, offset: u32) -> Option<DecodedRecord> {
        let place = RecordPosition {
            segment_crc: self.header_crc,
            offset,
        };
        decode(&self.content, place).filter(|found| found.write_start <= offset)
    }
}

/// Walks the valid records of a segment.
#[derive(Debug)]
pub(crate) struct Records {
    segment: Segment,
    /// Begin of the next record, or end of the log.
    pub offset: u32,
    /// The running checksum over the records so far, without the seal.
    pub chain: u32,
    /// Begin of the write that brought the last record.
    pub last_write: u32,
}

impl Records {
    /// The running checksum, if the records so far end at `offset`.
    pub(crate) fn chain_at(&self, offset: u32) -> Option<u32> {
        (self.offset == offset).then_some(self.chain)
    }
}

impl Iterator for Records {
    type Item = (u32, DecodedRecord);

    fn next(&mut self) -> Option<(u32, DecodedRecord)> {
        let found = self.segment.decode_at(self.offset)?;
        let offset = self.offset;
        self.offset = u32::try_from(offset as usize + found.bytes).ok()?;
        self.last_write = found.write_start;
        if !matches!(found.record, Record::Sealed { .. }) {
            self.chain = extend_chain(self.chain, found.crc);
        }
        Some((offset, found))
    }
}

/// The running checksum with one more record.
pub(crate) fn extend_chain(chain: u32, record_crc: u32) -> u32 {
    crc32c::crc32c_append(chain, &record_crc.to_le_bytes())
}

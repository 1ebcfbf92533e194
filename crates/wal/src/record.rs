//! One record of a segment: what it can be, and its bytes (`docs/internals/format.md`, "Record").
//!
//! Decoding never trusts a length before the checksum over it has been seen to fit.

use bytes::Bytes;

use crate::bytes_at::{all_zero, padded, put, u32_at, u64_at};

/// The most bytes that one entry may carry: 64 MiB.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;

/// Bytes before a record's payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;

const TYPE_ENTRY: u8 = 1;
const TYPE_HARD_STATE: u8 = 2;
const TYPE_COMMIT: u8 = 3;
const TYPE_SNAPSHOT: u8 = 4;
const TYPE_TRUNCATE: u8 = 5;
const TYPE_SEALED: u8 = 6;

/// One entry of the replicated log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log; the first entry ever is 1.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// Kind of its payload: 0 a leader's no-op, 1 a batch of commands; the log itself does not
    /// look.
    pub kind: u8,
    /// The bytes, at most [`MAX_PAYLOAD_BYTES`].
    pub payload: Bytes,
}

/// The vote and the term that a node must not forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardState {
    /// The newest term seen.
    pub term: u64,
    /// The node that this one voted for in it; 0 for none.
    pub vote: u64,
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An entry; its index is the last one plus one.
    Entry(Entry),
    /// Term and vote from here on.
    HardState(HardState),
    /// Everything up to this index was known to be committed.
    Commit {
        /// The index.
        index: u64,
    },
    /// A snapshot up to this entry is durable. Where the log is shorter, it goes on after that
    /// entry.
    Snapshot {
        /// The last entry in the snapshot.
        index: u64,
        /// That entry's term.
        term: u64,
    },
    /// This entry and all after it no longer count.
    Truncate {
        /// The first entry that no longer counts.
        from: u64,
    },
    /// The segment ends here for ever: the next one is durable. Written by the log itself.
    Sealed {
        /// The sequence of the next segment.
        next: u64,
    },
}

/// Input of a record's checksum besides its own bytes: the same bytes elsewhere are not a
/// record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordPosition {
    /// The checksum of the segment's header.
    pub segment_crc: u32,
    /// Begin of the record in the segment.
    pub offset: u32,
}

impl RecordPosition {
    fn seed(self) -> u32 {
        let mut bytes = [0; 8];
        put(&mut bytes, 0, &self.segment_crc.to_le_bytes());
        put(&mut bytes, 4, &self.offset.to_le_bytes());
        crc32c::crc32c(&bytes)
    }
}

/// A record that was read, and what surrounds it.
#[derive(Debug, Clone)]
pub(crate) struct DecodedRecord {
    pub record: Record,
    /// Everything in the segment before this offset was synced when the record was written.
    pub write_start: u32,
    pub crc: u32,
    /// Bytes from the record's begin to the next one's.
    pub bytes: usize,
}

/// Puts `record` at the end of `out` and gives its checksum.
pub(crate) fn encode(
    record: &Record,
    place: RecordPosition,
    write_start: u32,
    out: &mut Vec<u8>,
) -> u32 {
    let (kind, entry_kind, term, index, payload): (u8, u8, u64, u64, &[u8]) = match record {
        Record::Entry(entry) => (
            TYPE_ENTRY,
            entry.kind,
            entry.term,
            entry.index,
            &entry.payload,
        ),
        Record::HardState(state) => (TYPE_HARD_STATE, 0, state.term, state.vote, &[]),
        Record::Commit { index } => (TYPE_COMMIT, 0, 0, *index, &[]),
        Record::Snapshot { index, term } => (TYPE_SNAPSHOT, 0, *term, *index, &[]),
        Record::Truncate { from } => (TYPE_TRUNCATE, 0, 0, *from, &[]),
        Record::Sealed { next } => (TYPE_SEALED, 0, 0, *next, &[]),
    };
    let mut header = [0; RECORD_HEADER_BYTES];
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    put(&mut header, 0, &length.to_le_bytes());
    put(&mut header, 4, &write_start.to_le_bytes());
    put(&mut header, 8, &term.to_le_bytes());
    put(&mut header, 16, &index.to_le_bytes());
    put(&mut header, 24, &[kind, entry_kind]);
    let padding = padded(payload.len()) - payload.len();
    let zeros = [0_u8; 8];
    let zeros = zeros.get(..padding).unwrap_or_default();
    let crc = crc32c::crc32c_append(place.seed(), header.get(..28).unwrap_or_default());
    let crc = crc32c::crc32c_append(crc, payload);
    let crc = crc32c::crc32c_append(crc, zeros);
    put(&mut header, 28, &crc.to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(payload);
    out.extend_from_slice(zeros);
    crc
}

/// Reads the record that begins at `place` in `segment`; `None` when there is no valid one.
pub(crate) fn decode(segment: &Bytes, place: RecordPosition) -> Option<DecodedRecord> {
    let at = place.offset as usize;
    let rest = segment.get(at..)?;
    let header = rest.get(..RECORD_HEADER_BYTES)?;
    let &[kind, entry_kind, 0, 0] = header.get(24..28)? else {
        return None;
    };
    if !(TYPE_ENTRY..=TYPE_SEALED).contains(&kind) {
        return None;
    }
    let length = u32_at(header, 0) as usize;
    if length > MAX_PAYLOAD_BYTES || (kind != TYPE_ENTRY && (length != 0 || entry_kind != 0)) {
        return None;
    }
    let end = RECORD_HEADER_BYTES + padded(length);
    let body = rest.get(RECORD_HEADER_BYTES..end)?;
    let crc = crc32c::crc32c_append(place.seed(), header.get(..28)?);
    let crc = crc32c::crc32c_append(crc, body);
    if crc != u32_at(header, 28) || !all_zero(body.get(length..)?) {
        return None;
    }
    let term = u64_at(header, 8);
    let index = u64_at(header, 16);
    let record = match kind {
        TYPE_ENTRY => Record::Entry(Entry {
            index,
            term,
            kind: entry_kind,
            payload: segment.slice(at + RECORD_HEADER_BYTES..at + RECORD_HEADER_BYTES + length),
        }),
        TYPE_HARD_STATE => Record::HardState(HardState { term, vote: index }),
        TYPE_COMMIT => Record::Commit { index },
        TYPE_SNAPSHOT => Record::Snapshot { index, term },
        TYPE_TRUNCATE => Record::Truncate { from: index },
        _ => Record::Sealed { next: index },
    };
    Some(DecodedRecord {
        record,
        write_start: u32_at(header, 4),
        crc,
        bytes: end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with these bytes in its header, and a checksum that fits.
    fn with_header(length: u32, kind: u8, entry_kind: u8) -> Bytes {
        let mut bytes = vec![0; RECORD_HEADER_BYTES + padded(length as usize)];
        put(&mut bytes, 0, &length.to_le_bytes());
        put(&mut bytes, 24, &[kind, entry_kind]);
        let crc = crc32c::crc32c_append(PLACE.seed(), &bytes[..28]);
        let crc = crc32c::crc32c_append(crc, &bytes[RECORD_HEADER_BYTES..]);
        put(&mut bytes, 28, &crc.to_le_bytes());
        Bytes::from(bytes)
    }

    const PLACE: RecordPosition = RecordPosition {
        segment_crc: 7,
        offset: 0,
    };

    #[test]
    fn only_an_entry_has_a_payload_and_a_kind_of_its_own() {
        assert!(decode(&with_header(8, TYPE_ENTRY, 3), PLACE).is_some());
        assert!(decode(&with_header(0, TYPE_COMMIT, 0), PLACE).is_some());
        for kind in TYPE_HARD_STATE..=TYPE_SEALED {
            assert!(decode(&with_header(8, kind, 0), PLACE).is_none(), "{kind}");
            assert!(decode(&with_header(0, kind, 3), PLACE).is_none(), "{kind}");
        }
        assert!(decode(&with_header(0, TYPE_SEALED + 1, 0), PLACE).is_none());
    }
}

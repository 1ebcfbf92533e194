//! Recovery of a data folder at start: which snapshot, which entries, and whether they may be
//! trusted.
//!
//! Nothing here writes. It drops only what was never acknowledged: the torn end of the last write.
//! For anything else that is not as it was written it refuses (`docs/internals/format.md`,
//! "Recovery").

use std::collections::BTreeSet;
use std::thread;

use bytes::Bytes;

use crate::end_mark;
use crate::error::{RESTORE_LOG, WalError};
use crate::file_names::{
    END_MARK_FILE, received_point, segment_name, segment_sequence, snapshot_point,
};
use crate::record::{Entry, HardState, Record};
use crate::segment::{Records, SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use crate::snapshot::{self, SnapshotInfo, SnapshotReader};
use crate::storage::{Access, Storage};

/// Content of a data folder at start. The state machine is restored from `snapshot`, then entries
/// follow.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// The cluster that the folder belongs to.
    pub cluster_id: u64,
    /// The newest snapshot that is whole.
    pub snapshot: Option<SnapshotInfo>,
    /// The newest term and vote.
    pub hard_state: HardState,
    /// The newest commit index that was stored, at least the snapshot's; 0 when there is neither.
    pub commit: u64,
    /// Every entry after the snapshot, in order, without a gap. They share the memory of whole
    /// segments.
    pub entries: Vec<Entry>,
    /// Tolerated findings, for the server's log.
    pub notes: Vec<RecoveryNote>,
}

/// Something that recovery passed over, or could not decide, without loss of anything that is known
/// to have been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryNote {
    /// The end of the last write is torn. Nothing shows that it was ever acknowledged: no later
    /// record, no end mark.
    TornTail {
        /// The segment.
        file: String,
        /// Begin of the torn bytes.
        offset: u64,
        /// Number of torn bytes, up to the last one that is not zero.
        bytes: u64,
    },
    /// The server before was not stopped in good order, and the log's end is vouched for only up to
    /// its last end mark: had acknowledged writes behind that been cut off or zeroed, they would
    /// look as if they had never been.
    NotClosed {
        /// The last segment.
        file: String,
        /// End of the log, in bytes.
        offset: u64,
        /// Number of these bytes that lie behind the end mark.
        unmarked_bytes: u64,
    },
    /// There is no end mark: an earlier version made the folder, or the file was lost. Had the log
    /// lost its end, nothing would show it.
    NoEndMark {
        /// The file that is missing.
        file: String,
    },
    /// One of two end marks is torn or damaged; the other one was used, which may be older.
    TornEndMark {
        /// The file of marks.
        file: String,
    },
    /// A newer snapshot is damaged; an older one and the log hold everything.
    DamagedSnapshot {
        /// The snapshot.
        file: String,
        /// The reason.
        reason: String,
    },
}

impl std::fmt::Display for RecoveryNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecoveryNote::TornTail {
                file,
                offset,
                bytes,
            } => write!(
                f,
                "{file} ends in a torn write of {bytes} bytes at byte {offset}, which is dropped: no later record and no end mark shows that it was ever acknowledged"
            ),
            RecoveryNote::NotClosed {
                file,
                offset,
                unmarked_bytes,
            } => write!(
                f,
                "the log was not closed in good order: {file} ends at byte {offset}, {unmarked_bytes} bytes behind its last end mark; a loss of acknowledged writes in these bytes could not be detected"
            ),
            RecoveryNote::NoEndMark { file } => write!(
                f,
                "there is no {file} (an earlier version made the folder, or the file was lost): a loss of acknowledged writes at the end of the log could not be detected"
            ),
            RecoveryNote::TornEndMark { file } => write!(
                f,
                "one of the two end marks in {file} is torn or damaged; the other one is used"
            ),
            RecoveryNote::DamagedSnapshot { file, reason } => write!(
                f,
                "snapshot {file} is damaged and passed over, an older one is used: {reason}"
            ),
        }
    }
}

/// End of the log, where writing continues.
#[derive(Debug)]
pub(crate) struct LogEnd {
    pub segment_name: String,
    pub segment_crc: u32,
    /// The file grows in steps of this many bytes; at least 1.
    pub segment_step: u32,
    pub segment_bytes: u64,
    /// Position of the next record.
    pub offset: u32,
    pub chain: u32,
    /// The bytes of the last write, and where it began.
    pub last_write: (u32, Bytes),
    /// Whether the last segment has no record yet.
    pub segment_is_empty: bool,
    pub last_index: u64,
    /// Every segment: its sequence and first index, oldest first.
    pub segments: Vec<(u64, u64)>,
    /// The newest end mark.
    pub mark: Option<end_mark::FoundMark>,
}

/// Reads everything that the folder's names promise.
pub(crate) fn recover(
    storage: &dyn Storage,
    cluster_id: u64,
) -> Result<(Recovered, LogEnd), WalError> {
    // Before the log: a server that runs meanwhile marks only what it has written already.
    let found = end_mark::newest(storage)?;
    let mark = found.map(|found| found.mark);
    let headers = read_headers(storage, cluster_id)?;
    let mut notes = Vec::new();
    match &found {
        Some(found) => {
            end_mark::check_cluster(storage, &found.mark, cluster_id)?;
            check_last_segment(storage, &headers, found.mark.sequence)?;
            if found.other_is_torn {
                notes.push(RecoveryNote::TornEndMark {
                    file: storage.location(END_MARK_FILE),
                });
            }
        }
        None => notes.push(RecoveryNote::NoEndMark {
            file: storage.location(END_MARK_FILE),
        }),
    }
    let marked_offset = mark.map_or(0, |mark| mark.offset);
    let read_from = |base| -> Result<_, WalError> {
        let start = first_to_read(storage, &headers, base)?;
        let rest = headers.get(start..).unwrap_or_default();
        Ok((start, walk(storage, rest, marked_offset)?))
    };
    // Most often the newest snapshot is whole, so the log behind it is read while it is verified.
    let likely = newest_snapshot(storage)?;
    let choose = || choose_snapshot(storage, cluster_id, &headers);
    let (chosen, ahead) = match storage.readers() {
        0 | 1 => (choose(), read_from(likely)),
        _ => thread::scope(|scope| {
            let chosen = scope.spawn(choose);
            let ahead = read_from(likely);
            (joined(chosen), ahead)
        }),
    };
    let (snapshot, damaged) = chosen?;
    notes.extend(damaged);
    let base = snapshot.as_ref().map_or(0, |info| info.meta.index);
    let (start, walked) = match base == likely {
        true => ahead?,
        false => {
            drop(ahead);
            read_from(base)?
        }
    };

    let mut replay = Replay::new(base);
    let mut end = None;
    for (at, (header, walked)) in headers.iter().skip(start).zip(walked).enumerate() {
        let at = start + at;
        let name = segment_name(header.sequence);
        let WalkedSegment {
            segment,
            records: read,
            end: records,
            marked_chain,
        } = walked;
        replay.begin_segment(&segment)?;
        for (offset, record) in read {
            replay.record(&segment.location, offset, record)?;
        }
        let next_chain = headers.get(at + 1).map(|next| next.previous_chain);
        if segment.check_end(&records, next_chain)? {
            notes.push(RecoveryNote::TornTail {
                file: segment.location.clone(),
                offset: u64::from(records.offset),
                bytes: bytes_behind(&segment.content, records.offset),
            });
        }
        if next_chain.is_none() {
            if let Some(missing) = replay.sealed_before {
                return Err(WalError::SegmentGap {
                    before: segment.location,
                    missing,
                });
            }
            if let Some(mark) = &mark {
                mark.check(&segment, &records, marked_chain)?;
                let here = mark.sequence == header.sequence;
                let marked = if here { mark.offset } else { 0 };
                if !(here && mark.is_closed && marked == records.offset) {
                    notes.push(RecoveryNote::NotClosed {
                        file: segment.location.clone(),
                        offset: u64::from(records.offset),
                        unmarked_bytes: u64::from(records.offset.saturating_sub(marked)),
                    });
                }
            }
            end = Some(LogEnd {
                segment_name: name,
                segment_crc: segment.header_crc(),
                segment_step: header.extend_bytes.max(1),
                segment_bytes: segment.content.len() as u64,
                offset: records.offset,
                chain: records.chain,
                last_write: (
                    records.last_write,
                    segment
                        .content
                        .slice(records.last_write as usize..records.offset as usize),
                ),
                segment_is_empty: records.offset as usize == SEGMENT_HEADER_BYTES,
                last_index: replay.last_index,
                segments: headers
                    .iter()
                    .map(|h| (h.sequence, h.first_index))
                    .collect(),
                mark: found,
            });
        }
    }
    let end = end.ok_or_else(|| WalError::MissingLog {
        folder: storage.location(""),
    })?;
    if let Some(info) = snapshot
        .as_ref()
        .filter(|info| info.meta.index > end.last_index)
    {
        return Err(WalError::LogBehindSnapshot {
            log_ends: end.last_index,
            snapshot_index: info.meta.index,
            snapshot: storage.location(&info.name),
        });
    }
    if let Some(info) = &snapshot
        && let Some(term) = replay.base_term.filter(|term| *term != info.meta.term)
    {
        return Err(WalError::corrupt(
            &storage.location(&info.name),
            32,
            format!(
                "its last entry has term {}, the log has term {term} there",
                info.meta.term
            ),
            "do not mix files of different data folders",
        ));
    }
    let kept = replay.entries.len() as u64;
    if base + kept != end.last_index {
        return Err(WalError::MissingSnapshot {
            folder: storage.location(""),
            log_begins: end.last_index - kept + 1,
            needed: end.last_index - kept,
            damaged: notes.iter().map(ToString::to_string).collect(),
        });
    }
    if replay.commit > end.last_index {
        return Err(WalError::corrupt(
            &storage.location(&end.segment_name),
            u64::from(end.offset),
            format!(
                "entry {} was committed, but the log ends at entry {}",
                replay.commit, end.last_index
            ),
            RESTORE_LOG,
        ));
    }
    let recovered = Recovered {
        cluster_id,
        snapshot,
        hard_state: replay.hard_state,
        commit: replay.commit.max(base),
        entries: replay.entries,
        notes,
    };
    Ok((recovered, end))
}

/// Refuses a log whose last segments are missing: an end mark names one that is not there.
fn check_last_segment(
    storage: &dyn Storage,
    headers: &[SegmentHeader],
    marked: u64,
) -> Result<(), WalError> {
    match headers.last() {
        Some(last) if last.sequence < marked => Err(WalError::SegmentGap {
            before: storage.location(&segment_name(last.sequence)),
            missing: last.sequence + 1,
        }),
        _ => Ok(()),
    }
}

/// The header of every segment, oldest first, without a gap.
fn read_headers(storage: &dyn Storage, cluster_id: u64) -> Result<Vec<SegmentHeader>, WalError> {
    let mut headers: Vec<SegmentHeader> = Vec::new();
    for sequence in sequences(storage)? {
        if let Some(before) = headers.last()
            && before.sequence + 1 != sequence
        {
            return Err(WalError::SegmentGap {
                before: storage.location(&segment_name(before.sequence)),
                missing: before.sequence + 1,
            });
        }
        let header = read_header(storage, sequence)?;
        if header.cluster_id != cluster_id {
            return Err(WalError::WrongCluster {
                file: storage.location(&segment_name(sequence)),
                found: header.cluster_id,
                expected: cluster_id,
            });
        }
        headers.push(header);
    }
    Ok(headers)
}

/// The header of one segment.
pub(crate) fn read_header(storage: &dyn Storage, sequence: u64) -> Result<SegmentHeader, WalError> {
    let name = segment_name(sequence);
    let location = storage.location(&name);
    let file = storage
        .open(&name, Access::Read)
        .map_err(|error| WalError::io("open", location.clone(), error))?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let count = file
        .read_at(0, &mut bytes)
        .map_err(|error| WalError::io("read", location.clone(), error))?;
    let (header, _) = SegmentHeader::decode(&location, bytes.get(..count).unwrap_or_default())?;
    if header.sequence != sequence {
        return Err(WalError::corrupt(
            &location,
            24,
            format!("it says it is segment {}", header.sequence),
            "give the file back its own name",
        ));
    }
    Ok(header)
}

/// The sequence of every segment file, ascending.
pub(crate) fn sequences(storage: &dyn Storage) -> Result<Vec<u64>, WalError> {
    let names = storage
        .list()
        .map_err(|error| WalError::io("list", storage.location(""), error))?;
    let mut sequences: Vec<u64> = names
        .iter()
        .filter_map(|name| segment_sequence(name))
        .collect();
    sequences.sort_unstable();
    Ok(sequences)
}

/// The newest whole snapshot that the log still reaches back to.
fn choose_snapshot(
    storage: &dyn Storage,
    cluster_id: u64,
    headers: &[SegmentHeader],
) -> Result<(Option<SnapshotInfo>, Vec<RecoveryNote>), WalError> {
    let mut notes = Vec::new();
    let log_begins = headers.first().map_or(1, |header| header.first_index);
    let mut damaged = Vec::new();
    let mut found = None;
    let mut names = snapshot::names(storage)?;
    names.extend(marked_received(storage, headers)?);
    names.sort_by_key(|name| {
        std::cmp::Reverse(snapshot_point(name).or_else(|| received_point(name)))
    });
    for name in names {
        match SnapshotReader::open(storage, &name, Some(cluster_id))
            .and_then(SnapshotReader::verify)
        {
            Ok(info) => {
                found = Some(info);
                break;
            }
            Err(error @ WalError::Corrupt { .. }) => {
                notes.push(RecoveryNote::DamagedSnapshot {
                    file: storage.location(&name),
                    reason: error.to_string(),
                });
                damaged.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    let reaches = found.as_ref().map_or(0, |info| info.meta.index);
    if log_begins > reaches + 1 {
        return Err(WalError::MissingSnapshot {
            folder: storage.location(""),
            log_begins,
            needed: log_begins - 1,
            damaged,
        });
    }
    Ok((found, notes))
}

/// The index of the newest snapshot by its name; 0 without one.
fn newest_snapshot(storage: &dyn Storage) -> Result<u64, WalError> {
    let names = snapshot::names(storage)?;
    let newest = names.first().and_then(|name| snapshot_point(name));
    Ok(newest.map_or(0, |(index, _)| index))
}

/// A segment and its records.
struct WalkedSegment {
    segment: Segment,
    records: Vec<(u32, Record)>,
    /// End of the valid records.
    end: Records,
    /// The running checksum at the end mark, if a record ends there.
    marked_chain: Option<u32>,
}

impl WalkedSegment {
    fn read(storage: &dyn Storage, sequence: u64, marked_offset: u32) -> Result<Self, WalError> {
        let segment = Segment::load(storage, &segment_name(sequence))?;
        let mut end = segment.records();
        let mut marked_chain = end.chain_at(marked_offset);
        let mut records = Vec::new();
        while let Some((offset, found)) = end.next() {
            records.push((offset, found.record));
            marked_chain = marked_chain.or_else(|| end.chain_at(marked_offset));
        }
        Ok(Self {
            segment,
            records,
            end,
            marked_chain,
        })
    }
}

/// Reads segments with all readers of the storage.
fn walk(
    storage: &dyn Storage,
    headers: &[SegmentHeader],
    marked_offset: u32,
) -> Result<Vec<WalkedSegment>, WalError> {
    let share = headers.len().div_ceil(storage.readers().max(1)).max(1);
    let read = |headers: &[SegmentHeader]| -> Result<Vec<WalkedSegment>, WalError> {
        let read =
            |header: &SegmentHeader| WalkedSegment::read(storage, header.sequence, marked_offset);
        headers.iter().map(read).collect()
    };
    let mut shares = headers.chunks(share);
    let first = shares.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = shares
            .map(|share| scope.spawn(move || read(share)))
            .collect();
        let mut walked = read(first)?;
        for other in others {
            walked.extend(joined(other)?);
        }
        Ok(walked)
    })
}

/// Joins a thread; a panic of it goes on here.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Received snapshots whose mark is in the log: they took its place, and lack only their name.
fn marked_received(
    storage: &dyn Storage,
    headers: &[SegmentHeader],
) -> Result<Vec<String>, WalError> {
    let mut received = snapshot::received_names(storage)?;
    if received.is_empty() {
        return Ok(received);
    }
    let mut marked = BTreeSet::new();
    for header in headers {
        let segment = Segment::load(storage, &segment_name(header.sequence))?;
        for (_, found) in segment.records() {
            if let Record::Snapshot { index, term } = found.record {
                marked.insert((index, term));
            }
        }
    }
    received.retain(|name| received_point(name).is_some_and(|point| marked.contains(&point)));
    Ok(received)
}

/// The place of the first segment that recovery has to read: all entries after `base` are in it or
/// later.
fn first_to_read(
    storage: &dyn Storage,
    headers: &[SegmentHeader],
    base: u64,
) -> Result<usize, WalError> {
    let reaching = headers
        .iter()
        .rposition(|header| header.first_index <= base + 1)
        .unwrap_or(0);
    // A segment without a record does not repeat the hard state yet; the one before it has it.
    let is_last = reaching + 1 == headers.len();
    if is_last && reaching > 0 {
        let Some(header) = headers.get(reaching) else {
            return Ok(reaching);
        };
        let segment = Segment::load(storage, &segment_name(header.sequence))?;
        if segment.records().next().is_none() {
            return Ok(reaching - 1);
        }
    }
    Ok(reaching)
}

/// The state that the records build up.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    base: u64,
    started: bool,
    pub last_index: u64,
    pub hard_state: HardState,
    pub commit: u64,
    pub entries: Vec<Entry>,
    /// The segment that was begun after the last one read.
    pub sealed_before: Option<u64>,
    /// The term of entry `base`, where the log still has it.
    pub base_term: Option<u64>,
}

impl Replay {
    pub(crate) fn new(base: u64) -> Replay {
        Replay {
            base,
            ..Replay::default()
        }
    }

    pub(crate) fn begin_segment(&mut self, segment: &Segment) -> Result<(), WalError> {
        let first_index = segment.header.first_index;
        self.sealed_before = None;
        if !self.started {
            self.started = true;
            self.last_index = first_index.saturating_sub(1);
        }
        if first_index != self.last_index + 1 {
            return Err(WalError::corrupt(
                &segment.location,
                32,
                format!(
                    "it begins at entry {first_index}, but the log before it ends at entry {}",
                    self.last_index
                ),
                RESTORE_LOG,
            ));
        }
        Ok(())
    }

    pub(crate) fn record(
        &mut self,
        location: &str,
        offset: u32,
        record: Record,
    ) -> Result<(), WalError> {
        let wrong = |what: String| {
            Err(WalError::corrupt(
                location,
                u64::from(offset),
                what,
                RESTORE_LOG,
            ))
        };
        match record {
            Record::Entry(entry) => {
                if entry.index != self.last_index + 1 {
                    return wrong(format!(
                        "entry {} follows entry {}",
                        entry.index, self.last_index
                    ));
                }
                self.last_index = entry.index;
                if entry.index == self.base {
                    self.base_term = Some(entry.term);
                }
                if entry.index > self.base {
                    self.entries.push(entry);
                }
            }
            Record::HardState(state) => self.hard_state = state,
            Record::Commit { index } => self.commit = index,
            Record::Sealed { next } => self.sealed_before = Some(next),
            Record::Snapshot { index, .. } => {
                if index > self.last_index {
                    self.entries.clear();
                    self.last_index = index;
                }
            }
            Record::Truncate { from } => {
                // It may reach below `base`: the snapshot there can be of entries that came in
                // place of the removed ones.
                if from == 0 || from > self.last_index {
                    return wrong(format!(
                        "it removes entries from {from} on, of a log that ends at {}",
                        self.last_index
                    ));
                }
                self.last_index = from - 1;
                if from <= self.base {
                    self.base_term = None;
                }
                self.entries.retain(|entry| entry.index < from);
            }
        }
        Ok(())
    }
}

/// Returns the number of bytes of a segment behind `offset`, without the zeros at its end.
fn bytes_behind(content: &[u8], offset: u32) -> u64 {
    let mut behind = content.iter().skip(offset as usize);
    let last = behind.rposition(|byte| *byte != 0);
    last.map_or(0, |at| at as u64 + 1)
}

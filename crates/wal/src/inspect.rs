//! Looks at a data folder without taking or changing it: every record and chunk with its file and
//! offset, and a report on each file. What `baton wal dump` and `baton wal verify` print.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::end_mark::{self, EndMark, MARK_BYTES};
use crate::error::{RESTORE_LOG, WalError};
use crate::file_names::{END_MARK_FILE, MARKER_FILE, MEMBER_FILE, segment_name, snapshot_point};
use crate::identity::{self, Identity};
use crate::marker;
use crate::record::{HardState, Record};
use crate::recover::{self, Recovered, Replay};
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentTail};
use crate::snapshot::{self, SnapshotInfo, SnapshotMeta, SnapshotReader};
use crate::storage::{Access, Storage};
use crate::superseded;

/// Content of a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeaderInfo {
    /// The cluster it belongs to.
    pub cluster_id: u64,
    /// Its number; each next one is one more.
    pub sequence: u64,
    /// The index that the next new entry had when it was begun.
    pub first_index: u64,
    /// The running checksum over the segment before it.
    pub previous_chain: u32,
}

/// One thing in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpItem {
    /// Identity of the folder in a cluster of several servers.
    Identity(Identity),
    /// The newest end mark.
    EndMark(EndMark),
    /// The header of a segment.
    SegmentHeader(SegmentHeaderInfo),
    /// A record of a segment.
    Record(Record),
    /// Zeros behind the last record, made ahead.
    Unused,
    /// Bytes of a write that a crash tore, or that a running server is just writing.
    Torn,
    /// The header of a snapshot.
    SnapshotHeader(SnapshotMeta),
    /// A chunk of a snapshot.
    Chunk {
        /// Its kind, as the state machine writes it.
        kind: u8,
        /// Number of bytes of its payload.
        payload_bytes: u64,
    },
}

/// One thing and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpRecord {
    /// The file's name in the data folder.
    pub file: String,
    /// Its begin, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// The item.
    pub item: DumpItem,
}

/// Walks everything in a data folder: its identity, the newest end mark, snapshots oldest first,
/// then segments. A damaged file gives one error at the damage, then the next file follows.
#[derive(Debug)]
pub struct Dump {
    storage: Arc<dyn Storage>,
    files: VecDeque<String>,
    ready: VecDeque<Result<DumpRecord, WalError>>,
    snapshot: Option<(String, SnapshotReader)>,
}

/// Everything in the folder, in order. The folder is not locked: a running server may be writing.
///
/// # Errors
/// [`WalError`] when the folder cannot be listed or is not a data folder of this format version.
pub fn dump(storage: Arc<dyn Storage>) -> Result<Dump, WalError> {
    let mut ready = VecDeque::new();
    match identity::read(storage.as_ref()) {
        Ok(Some(identity)) => ready.push_back(Ok(DumpRecord {
            file: MEMBER_FILE.to_owned(),
            offset: 0,
            bytes: file_bytes(storage.as_ref(), MEMBER_FILE)?,
            item: DumpItem::Identity(identity),
        })),
        Ok(None) => {}
        Err(error) => ready.push_back(Err(error)),
    }
    if ready.is_empty() {
        check_marker(storage.as_ref())?;
    }
    match end_mark::newest(storage.as_ref()) {
        Ok(Some(found)) => ready.push_back(Ok(DumpRecord {
            file: END_MARK_FILE.to_owned(),
            offset: found.offset(),
            bytes: MARK_BYTES as u64,
            item: DumpItem::EndMark(found.mark),
        })),
        Ok(None) => {}
        Err(error) => ready.push_back(Err(error)),
    }
    let mut files: VecDeque<String> = snapshot::names(storage.as_ref())?
        .into_iter()
        .rev()
        .collect();
    files.extend(
        recover::sequences(storage.as_ref())?
            .into_iter()
            .map(segment_name),
    );
    Ok(Dump {
        storage,
        files,
        ready,
        snapshot: None,
    })
}

impl Iterator for Dump {
    type Item = Result<DumpRecord, WalError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if let Some((name, mut reader)) = self.snapshot.take() {
                match reader.next_chunk() {
                    Ok(Some(chunk)) => {
                        let payload_bytes = chunk.payload.len() as u64;
                        self.ready.push_back(Ok(DumpRecord {
                            file: name.clone(),
                            offset: chunk.offset,
                            bytes: reader.offset() - chunk.offset,
                            item: DumpItem::Chunk {
                                kind: chunk.kind,
                                payload_bytes,
                            },
                        }));
                        self.snapshot = Some((name, reader));
                    }
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                }
                continue;
            }
            let name = self.files.pop_front()?;
            if snapshot_point(&name).is_some() {
                match SnapshotReader::open(self.storage.as_ref(), &name, None) {
                    Ok(reader) => {
                        self.ready.push_back(Ok(DumpRecord {
                            file: name.clone(),
                            offset: 0,
                            bytes: reader.offset(),
                            item: DumpItem::SnapshotHeader(reader.meta().clone()),
                        }));
                        self.snapshot = Some((name, reader));
                    }
                    Err(error) => return Some(Err(error)),
                }
            } else {
                match Segment::load(self.storage.as_ref(), &name) {
                    Ok(segment) => dump_segment(&name, &segment, &mut self.ready),
                    Err(error) => return Some(Err(error)),
                }
            }
        }
    }
}

fn dump_segment(name: &str, segment: &Segment, out: &mut VecDeque<Result<DumpRecord, WalError>>) {
    let mut put = |offset: u64, bytes: u64, item| {
        out.push_back(Ok(DumpRecord {
            file: name.to_owned(),
            offset,
            bytes,
            item,
        }));
    };
    let header = segment.header;
    put(
        0,
        SEGMENT_HEADER_BYTES as u64,
        DumpItem::SegmentHeader(SegmentHeaderInfo {
            cluster_id: header.cluster_id,
            sequence: header.sequence,
            first_index: header.first_index,
            previous_chain: header.previous_chain,
        }),
    );
    let mut records = segment.records();
    for (offset, found) in records.by_ref() {
        put(
            u64::from(offset),
            found.bytes as u64,
            DumpItem::Record(found.record),
        );
    }
    let end = u64::from(records.offset);
    let rest = (segment.content.len() as u64).saturating_sub(end);
    match segment.tail(records.offset) {
        SegmentTail::Clean if rest == 0 => {}
        SegmentTail::Clean => put(end, rest, DumpItem::Unused),
        SegmentTail::Torn => put(end, rest, DumpItem::Torn),
        SegmentTail::Damaged { witness } => {
            out.push_back(Err(damage(segment, records.offset, witness)))
        }
    }
}

fn damage(segment: &Segment, offset: u32, witness: u32) -> WalError {
    WalError::corrupt(
        &segment.location,
        u64::from(offset),
        format!(
            "acknowledged bytes do not match their checksum; the record at byte {witness} was written after they had been synced"
        ),
        RESTORE_LOG,
    )
}

/// The report on one file.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileReport {
    /// Identity of the folder in a cluster of several servers.
    Identity {
        /// Its name.
        file: String,
        /// The identity.
        identity: Identity,
    },
    /// A segment whose records are all as they were written.
    Segment {
        /// Its name.
        file: String,
        /// Number of records.
        records: u64,
        /// Number of entries among them.
        entries: u64,
        /// Bytes up to the end of the last record.
        used_bytes: u64,
        /// Bytes of the file.
        file_bytes: u64,
        /// Whether it ends in a torn write, of which nothing shows that it was ever acknowledged.
        torn: bool,
    },
    /// A snapshot that is whole.
    Snapshot(SnapshotInfo),
    /// The file of end marks, and the newest of them. What it says of the log counts in that
    /// segment's report.
    EndMark {
        /// Its name.
        file: String,
        /// The newest mark.
        mark: EndMark,
    },
    /// A file that is not as it was written.
    Damaged {
        /// Its name.
        file: String,
        /// The error.
        error: WalError,
    },
}

/// Outcome of [`verify`].
#[derive(Debug)]
pub struct VerifyReport {
    /// The cluster that the folder belongs to; 0: none yet.
    pub cluster_id: u64,
    /// Each file: the identity, the end marks, snapshots oldest first, then segments.
    pub files: Vec<FileReport>,
    /// Outcome of a start now: the recovered state, or the refusal.
    pub start: Result<Recovered, WalError>,
}

impl VerifyReport {
    /// Returns whether every file is as it was written and a start would succeed.
    pub fn is_sound(&self) -> bool {
        self.start.is_ok()
            && !self
                .files
                .iter()
                .any(|file| matches!(file, FileReport::Damaged { .. }))
    }
}

/// Reads every byte of every file of the folder, also those that a start would not need. The folder
/// is neither locked nor changed.
///
/// # Errors
/// [`WalError`] when the folder cannot be listed or is not a data folder of this format version;
/// damage is not an error here but part of the report.
pub fn verify(storage: &dyn Storage) -> Result<VerifyReport, WalError> {
    let mut files = Vec::new();
    let found = identity::read(storage);
    let cluster_id = match (&found, marker::read(storage)?) {
        (_, Some(cluster_id)) => cluster_id,
        (Ok(Some(identity)), None) => identity.cluster,
        (Err(_), None) => 0,
        (Ok(None), None) => check_marker(storage)?,
    };
    match found {
        Ok(None) => {}
        Ok(Some(identity)) => files.push(FileReport::Identity {
            file: MEMBER_FILE.to_owned(),
            identity,
        }),
        Err(error) => files.push(FileReport::Damaged {
            file: MEMBER_FILE.to_owned(),
            error,
        }),
    }
    // Before the log: a server that runs meanwhile marks only what it has written already.
    let mut newest = None;
    let marked = end_mark::newest(storage).and_then(|found| {
        let mark = found.map(|found| found.mark);
        mark.map_or(Ok(()), |mark| {
            end_mark::check_cluster(storage, &mark, cluster_id)
        })?;
        Ok(mark)
    });
    match marked {
        Ok(None) => {}
        Ok(Some(mark)) => {
            newest = Some(mark);
            files.push(FileReport::EndMark {
                file: END_MARK_FILE.to_owned(),
                mark,
            });
        }
        Err(error) => files.push(FileReport::Damaged {
            file: END_MARK_FILE.to_owned(),
            error,
        }),
    }
    for name in snapshot::names(storage)?.into_iter().rev() {
        files.push(
            match SnapshotReader::open(storage, &name, Some(cluster_id))
                .and_then(SnapshotReader::verify)
            {
                Ok(info) => FileReport::Snapshot(info),
                Err(error) => FileReport::Damaged { file: name, error },
            },
        );
    }
    let sequences = recover::sequences(storage)?;
    for (at, sequence) in sequences.iter().enumerate() {
        let next = sequences.get(at + 1).copied();
        files.push(
            verify_segment(storage, *sequence, next, newest).unwrap_or_else(|error| {
                FileReport::Damaged {
                    file: segment_name(*sequence),
                    error,
                }
            }),
        );
    }
    Ok(VerifyReport {
        cluster_id,
        files,
        start: start(storage, cluster_id),
    })
}

/// Returns what a start would recover.
fn start(storage: &dyn Storage, cluster_id: u64) -> Result<Recovered, WalError> {
    superseded::refuse_superseded(storage)?;
    let Some(identity) = identity::read(storage)? else {
        return recover::recover(storage, cluster_id).map(|(recovered, _)| recovered);
    };
    identity::check_log(storage, Some(&identity))?;
    if marker::read(storage)?.is_none() {
        // A member that has no log yet; the start makes it of the first membership.
        return Ok(Recovered {
            cluster_id,
            snapshot: None,
            hard_state: HardState::default(),
            commit: 0,
            entries: Vec::new(),
            notes: Vec::new(),
        });
    }
    let (recovered, _) = recover::recover(storage, identity.cluster)?;
    if identity.is_founded && recovered.snapshot.is_none() {
        return Err(identity.log_lost(storage));
    }
    Ok(recovered)
}

fn file_bytes(storage: &dyn Storage, name: &str) -> Result<u64, WalError> {
    let failed = |action| move |error| WalError::io(action, storage.location(name), error);
    let file = storage.open(name, Access::Read).map_err(failed("open"))?;
    file.len().map_err(failed("measure"))
}

fn verify_segment(
    storage: &dyn Storage,
    sequence: u64,
    next: Option<u64>,
    mark: Option<EndMark>,
) -> Result<FileReport, WalError> {
    let name = segment_name(sequence);
    let segment = Segment::load(storage, &name)?;
    let mut replay = Replay::new(0);
    replay.begin_segment(&segment)?;
    let mut entries = 0;
    let mut count = 0;
    let mut records = segment.records();
    let marked_offset = mark.map_or(0, |mark| mark.offset);
    let mut marked_chain = records.chain_at(marked_offset);
    while let Some((offset, found)) = records.next() {
        count += 1;
        entries += u64::from(matches!(found.record, Record::Entry(_)));
        replay.record(&segment.location, offset, found.record)?;
        marked_chain = marked_chain.or_else(|| records.chain_at(marked_offset));
    }
    // Where the next header is unreadable, that file's own report says so.
    let next_chain = next.map(|next| {
        recover::read_header(storage, next).map_or(records.chain, |header| header.previous_chain)
    });
    let torn = segment.check_end(&records, next_chain)?;
    if let Some(mark) = mark {
        mark.check(&segment, &records, marked_chain)?;
    }
    Ok(FileReport::Segment {
        file: name,
        records: count,
        entries,
        used_bytes: u64::from(records.offset),
        file_bytes: segment.content.len() as u64,
        torn,
    })
}

fn check_marker(storage: &dyn Storage) -> Result<u64, WalError> {
    marker::read(storage)?.ok_or_else(|| WalError::MissingMarker {
        folder: storage.location(""),
        marker: MARKER_FILE,
    })
}

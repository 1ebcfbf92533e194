//! The log that is being written: buffer, one write, one sync, and the segment it goes to.
//!
//! Owns the order of everything that touches the disk. After a failed write or sync it never writes
//! again: what is on the disk is then known only to the next start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acknowledged::{self, Acknowledged};
use crate::end_mark::{EndMark, EndMarks, MARK_BYTES};
use crate::error::{WalError, is_no_room};
use crate::file_names::{END_MARK_FILE, segment_name, snapshot_name, snapshot_point};
use crate::folder;
use crate::identity;
use crate::options::{WalOptions, check_options};
use crate::outdated::Outdated;
use crate::record::{
    HardState, MAX_PAYLOAD_BYTES, RECORD_HEADER_BYTES, Record, RecordPosition, encode,
};
use crate::recover::{self, Recovered};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, extend_chain};
use crate::snapshot::{self, Pins, SnapshotInfo, SnapshotStore};
use crate::storage::{LockError, LockGuard, Storage, StorageFile};
use crate::whole_file;

/// A sync that takes this long is worth a line in the server's log.
const SLOW_SYNC: Duration = Duration::from_secs(1);

/// Outcome of one [`Wal::sync`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncReport {
    /// Bytes that are durable now and were not before.
    pub bytes: u64,
    /// Records in them.
    pub records: u64,
    /// Duration of the sync itself, without the write.
    pub sync_time: Duration,
}

/// Takes a folder for this process.
pub(crate) fn lock(storage: &dyn Storage) -> Result<LockGuard, WalError> {
    storage.lock().map_err(|error| match error {
        LockError::InUse { pid } => WalError::InUse {
            folder: storage.location(""),
            pid,
        },
        LockError::Io(error) => WalError::io("lock", storage.location(""), error),
    })
}

/// The log of one data folder, open for writing. One thread owns it.
#[derive(Debug)]
pub struct Wal {
    storage: Arc<dyn Storage>,
    options: WalOptions,
    cluster_id: u64,
    file: Box<dyn StorageFile>,
    segment_crc: u32,
    segment_step: u32,
    /// Everything before this offset of the current segment is durable.
    synced: u32,
    allocated: u64,
    chain: u32,
    segment_is_empty: bool,
    segments: Vec<(u64, u64)>,
    /// Encoded records from `synced` on.
    buffer: Vec<u8>,
    buffered_records: u64,
    buffered_chain: u32,
    last_index: u64,
    /// The last entry that is durable.
    synced_index: u64,
    hard_state: HardState,
    commit: u64,
    marks: EndMarks,
    /// Sequence and offset in the newest end mark of this process; `None` before the first, and
    /// once closed.
    marked: Option<(u64, u32)>,
    poisoned: Option<(&'static str, String, String)>,
    /// Snapshots that must stay, with the log after them.
    pins: Pins,
    _lock: LockGuard,
}

impl Wal {
    /// Takes the folder of a server that stands alone, begins a log in it where there is none, and
    /// reads back everything that is durable.
    ///
    /// # Errors
    /// [`WalError`]: in use, a member's folder, another format version, another cluster, or
    /// anything that is not as it was written. The folder is then unchanged, except that unfinished
    /// files may have been removed.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: WalOptions,
    ) -> Result<(Wal, Recovered), WalError> {
        let lock = lock(storage.as_ref())?;
        identity::refuse_member(storage.as_ref())?;
        Wal::open_locked(storage, options, lock)
    }

    /// [`open`](Wal::open) of a folder that is locked and whose identity was read.
    pub(crate) fn open_locked(
        storage: Arc<dyn Storage>,
        options: WalOptions,
        lock: LockGuard,
    ) -> Result<(Wal, Recovered), WalError> {
        check_options(&options)?;
        let cluster_id = folder::open(storage.as_ref(), &options)?;
        let (mut recovered, end) = recover::recover(storage.as_ref(), cluster_id)?;
        folder::remove_unfinished(storage.as_ref())?;
        let (file, allocated) = folder::continue_segment(storage.as_ref(), &end)?;
        folder::settle_received(storage.as_ref(), recovered.snapshot.as_mut())?;
        let wal = Wal {
            storage,
            options,
            cluster_id,
            file,
            segment_crc: end.segment_crc,
            segment_step: end.segment_step,
            synced: end.offset,
            allocated,
            chain: end.chain,
            segment_is_empty: end.segment_is_empty,
            segments: end.segments,
            buffer: Vec::new(),
            buffered_records: 0,
            buffered_chain: end.chain,
            last_index: end.last_index,
            synced_index: end.last_index,
            hard_state: recovered.hard_state,
            commit: recovered.commit,
            marks: EndMarks::new(end.mark),
            marked: None,
            poisoned: None,
            pins: Pins::default(),
            _lock: lock,
        };
        Ok((wal, recovered))
    }

    /// Adds records to the buffer. Nothing is durable before [`sync`](Wal::sync). An entry whose
    /// index is already there replaces it together with all after it. Begins a new segment when the
    /// last one is full, which writes to the disk.
    ///
    /// # Errors
    /// [`WalError::OutOfOrder`] and [`WalError::TooLarge`] leave out the record that was refused
    /// and all after it; [`WalError::Poisoned`] and [`WalError::NoSpace`] as for `sync`.
    pub fn append(&mut self, records: &[Record]) -> Result<(), WalError> {
        self.check_usable()?;
        if self.buffer.is_empty() && !records.is_empty() {
            if u64::from(self.synced) >= self.options.segment_bytes {
                self.begin_segment()?;
            }
            if self.segment_is_empty {
                self.put(&Record::HardState(self.hard_state))?;
                self.put(&Record::Commit { index: self.commit })?;
            }
        }
        for record in records {
            match record {
                Record::Entry(entry) => {
                    if entry.payload.len() > MAX_PAYLOAD_BYTES {
                        return Err(WalError::TooLarge {
                            what: "log entry",
                            bytes: entry.payload.len() as u64,
                            limit_bytes: MAX_PAYLOAD_BYTES as u64,
                        });
                    }
                    if entry.index > self.last_index + 1 || entry.index <= self.commit {
                        return Err(WalError::OutOfOrder {
                            last: self.last_index,
                            found: entry.index,
                        });
                    }
                    if entry.index <= self.last_index {
                        self.put(&Record::Truncate { from: entry.index })?;
                    }
                    self.put(record)?;
                    self.last_index = entry.index;
                }
                Record::HardState(state) => {
                    self.put(record)?;
                    self.hard_state = *state;
                }
                Record::Commit { index } => {
                    if *index > self.last_index || *index < self.commit {
                        return Err(WalError::OutOfOrder {
                            last: self.last_index,
                            found: *index,
                        });
                    }
                    self.put(record)?;
                    self.commit = *index;
                }
                Record::Snapshot { index, .. } => {
                    self.put(record)?;
                    self.last_index = self.last_index.max(*index);
                }
                Record::Sealed { .. } => {}
                Record::Truncate { from } => {
                    if *from > self.last_index || *from <= self.commit {
                        return Err(WalError::OutOfOrder {
                            last: self.last_index,
                            found: *from,
                        });
                    }
                    self.put(record)?;
                    self.last_index = from - 1;
                }
            }
        }
        Ok(())
    }

    /// Makes everything that was appended durable: one write, one sync. Does nothing when nothing
    /// waits.
    ///
    /// # Errors
    /// [`WalError::NoSpace`] with `retryable` when the segment cannot grow or take the bytes: the
    /// records still wait and `sync` may be called again. Any other failure of a write or a sync
    /// makes the log unusable for ever; nothing of this batch may be acknowledged.
    pub fn sync(&mut self) -> Result<SyncReport, WalError> {
        self.check_usable()?;
        let mut report = SyncReport {
            bytes: 0,
            records: 0,
            sync_time: Duration::ZERO,
        };
        if self.buffer.is_empty() {
            return Ok(report);
        }
        if self.marked.is_none() {
            // The mark on the disk may say that the log was closed, which ends here.
            self.mark(false)?;
        }
        let before = self.allocated;
        let end = u64::from(self.synced) + self.buffer.len() as u64;
        self.make_room(end)?;
        if let Err(error) = self.file.write_at(u64::from(self.synced), &self.buffer) {
            return Err(self.write_failed(self.buffer.len() as u64, error));
        }
        let started = Instant::now();
        if let Err(error) = self.file.sync_data() {
            return Err(self.poison("sync", error));
        }
        report.sync_time = started.elapsed();
        if report.sync_time >= SLOW_SYNC {
            tracing::warn!(
                "a sync of {} took {} ms: the disk is slow or busy, and every write waits for it",
                self.current_location(),
                report.sync_time.as_millis()
            );
        }
        report.bytes = self.buffer.len() as u64;
        report.records = self.buffered_records;
        // `put` keeps the end within u32.
        self.synced = u32::try_from(end).unwrap_or(u32::MAX);
        self.chain = self.buffered_chain;
        self.synced_index = self.last_index;
        self.segment_is_empty = false;
        self.buffered_records = 0;
        self.buffer.clear();
        self.buffer.shrink_to(4 << 20);
        if self.allocated != before {
            match self.mark(false) {
                // The mark before still holds; `mark_end` tries again.
                Ok(()) | Err(WalError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// Returns whether the newest end mark reaches to the end of what was synced.
    pub fn is_end_marked(&self) -> bool {
        self.marked.is_none() || self.marked == Some((self.current_sequence(), self.synced))
    }

    /// Records durably how far the log was synced, so that the loss of its end cannot go unseen
    /// from here on. To be called when the log comes to rest, and now and then while it does not;
    /// when the file grows, the log does so by itself. Does nothing where the newest mark reaches
    /// as far.
    ///
    /// # Errors
    /// [`WalError::NoSpace`], after which the log is as usable as before; any other failure makes
    /// it unusable for ever, as in [`sync`](Wal::sync).
    pub fn mark_end(&mut self) -> Result<(), WalError> {
        self.check_usable()?;
        if self.is_end_marked() {
            return Ok(());
        }
        self.mark(false)
    }

    /// The folder's record of entries that members of its cluster have acknowledged.
    ///
    /// # Errors
    /// [`WalError`] when the file cannot be read or is damaged.
    pub fn acknowledged(&self) -> Result<Acknowledged, WalError> {
        acknowledged::read(self.storage.as_ref())
    }

    /// Stores that durably. A failure leaves the log as usable as before.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses.
    pub fn store_acknowledged(&self, acknowledged: &Acknowledged) -> Result<(), WalError> {
        acknowledged::write(self.storage.as_ref(), acknowledged)
    }

    /// Ends the log in good order: what waits is made durable, a last record vouches for all before
    /// it, so that damage to the last batch cannot be taken for a torn write, and a last end mark
    /// says that nothing follows. Where there is no room for that record, the mark alone vouches.
    ///
    /// # Errors
    /// As [`sync`](Wal::sync).
    pub fn close(mut self) -> Result<(), WalError> {
        self.mark_closed()
    }

    /// [`close`](Wal::close) for an owner who keeps the folder. What is written afterwards opens
    /// the log again.
    ///
    /// # Errors
    /// As [`sync`](Wal::sync).
    pub fn mark_closed(&mut self) -> Result<(), WalError> {
        self.sync()?;
        let vouched = self
            .append(&[Record::Commit { index: self.commit }])
            .and_then(|()| self.sync());
        match vouched {
            Ok(_) | Err(WalError::NoSpace { .. }) => {}
            Err(error) => return Err(error),
        }
        self.check_usable()?;
        self.mark(true)?;
        self.marked = None;
        Ok(())
    }

    /// Takes note of a durable snapshot, and removes what it makes needless. The removals come
    /// first: they need no room, and may make what the mark needs.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses; what should have gone may then still be there, which
    /// does no harm.
    pub fn snapshot_saved(&mut self, saved: &SnapshotInfo) -> Result<(), WalError> {
        self.outdated()?.remove()?;
        self.mark_snapshot(saved)
    }

    /// Adds the mark of a durable snapshot to the records that wait.
    ///
    /// # Errors
    /// Those of [`append`](Wal::append).
    pub fn mark_snapshot(&mut self, saved: &SnapshotInfo) -> Result<(), WalError> {
        self.append(&[Record::Snapshot {
            index: saved.meta.index,
            term: saved.meta.term,
        }])
    }

    /// Puts a received snapshot in the place of the log, which goes on after it. An entry at its
    /// index must be another one than the snapshot's last: it no longer counts, with all after it.
    /// Durable with the next [`sync`](Wal::sync); then call
    /// [`finish_received`](Wal::finish_received).
    ///
    /// # Errors
    /// [`WalError::OutOfOrder`] for a snapshot of what is committed here already; otherwise as
    /// [`append`](Wal::append).
    pub fn append_received(&mut self, received: &SnapshotInfo) -> Result<(), WalError> {
        let (index, term) = (received.meta.index, received.meta.term);
        if index <= self.commit {
            return Err(WalError::OutOfOrder {
                last: self.commit,
                found: index,
            });
        }
        let mark = Record::Snapshot { index, term };
        let commit = Record::Commit { index };
        if self.last_index >= index {
            // Only what the snapshot contradicts: a torn write may keep this record alone, and
            // entries before it can be committed.
            let replaced = Record::Truncate { from: index };
            return self.append(&[replaced, mark, commit]);
        }
        self.append(&[mark, commit])
    }

    /// Gives a received snapshot its own name, once its mark is durable, and removes what it makes
    /// needless. A start does the same where a crash has come between.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses.
    pub fn finish_received(&mut self, received: &SnapshotInfo) -> Result<SnapshotInfo, WalError> {
        let name = snapshot_name(received.meta.index, received.meta.term);
        folder::name_received(self.storage.as_ref(), &received.name, &name)?;
        self.outdated()?.remove()?;
        Ok(SnapshotInfo {
            name,
            ..received.clone()
        })
    }

    /// Returns the files that newer snapshots make needless: snapshots beyond those to keep, unless
    /// they are pinned (R22), and every segment whose entries the oldest kept one holds. The log
    /// counts on none of them any more, so that another thread may remove them, which takes long.
    ///
    /// # Errors
    /// [`WalError`] when the folder cannot be listed, or the log is unusable.
    pub fn outdated(&mut self) -> Result<Outdated, WalError> {
        let mut names = snapshot::names(self.storage.as_ref())?;
        // While fewer are there than may be kept, the log reaches back to its begin all the same.
        let may_purge = names.len() >= self.options.keep_snapshots;
        let (mut at, mut oldest) = (0, None);
        names.retain(|name| {
            let point = snapshot_point(name);
            let stays =
                at < self.options.keep_snapshots || point.is_some_and(|at| self.pins.is_held(at));
            at += 1;
            if stays {
                oldest = point.map(|(index, _)| index);
            }
            !stays
        });
        let segments_before = match oldest {
            Some(index) if may_purge => self.forget_segments(index)?,
            _ => 0,
        };
        Ok(Outdated {
            storage: Arc::clone(&self.storage),
            snapshots: names,
            segments_before,
        })
    }

    /// Removes every segment all of whose entries are at or below `index`. The current one always
    /// stays.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses.
    pub fn purge(&mut self, index: u64) -> Result<(), WalError> {
        let segments_before = self.forget_segments(index)?;
        Outdated {
            storage: Arc::clone(&self.storage),
            snapshots: Vec::new(),
            segments_before,
        }
        .remove()
    }

    /// Counts no more on segments all of whose entries are at or below `index`; returns the
    /// sequence of the first one that stays.
    fn forget_segments(&mut self, index: u64) -> Result<u64, WalError> {
        self.check_usable()?;
        // A current segment without a record relies on the one before it for the hard state.
        let keep = if self.segment_is_empty { 2 } else { 1 };
        let is_needless = |next: Option<&(u64, u64)>| {
            next.is_some_and(|(_, next_first)| *next_first <= index.saturating_add(1))
        };
        let removable = self.segments.len().saturating_sub(keep);
        let needless = (0..removable)
            .take_while(|at| is_needless(self.segments.get(at + 1)))
            .count();
        self.segments.drain(..needless);
        Ok(self.segments.first().map_or(0, |(sequence, _)| *sequence))
    }

    /// The snapshots of this folder.
    pub fn snapshots(&self) -> SnapshotStore {
        SnapshotStore::new(
            Arc::clone(&self.storage),
            self.cluster_id,
            self.pins.clone(),
        )
    }

    /// The cluster that the folder belongs to.
    pub fn cluster_id(&self) -> u64 {
        self.cluster_id
    }

    /// The last entry, durable or not.
    pub fn last_index(&self) -> u64 {
        self.last_index
    }

    /// The first entry that a segment may still hold; what is before it was purged.
    pub fn first_index(&self) -> u64 {
        self.segments
            .iter()
            .map(|(_, first)| *first)
            .min()
            .unwrap_or(1)
    }

    fn put(&mut self, record: &Record) -> Result<(), WalError> {
        let payload = match record {
            Record::Entry(entry) => entry.payload.len(),
            _ => 0,
        };
        let offset = self.synced as usize + self.buffer.len();
        // Offsets in a segment are 32 bits wide.
        let limit = u32::MAX as usize - MAX_PAYLOAD_BYTES;
        if offset + payload > limit {
            return Err(WalError::TooLarge {
                what: "batch between two syncs",
                bytes: (self.buffer.len() + payload) as u64,
                limit_bytes: (limit - self.synced as usize) as u64,
            });
        }
        let place = RecordPosition {
            segment_crc: self.segment_crc,
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
        };
        let crc = encode(record, place, self.synced, &mut self.buffer);
        self.buffered_chain = extend_chain(self.buffered_chain, crc);
        self.buffered_records += 1;
        Ok(())
    }

    /// The current segment is wholly synced here: the buffer is empty.
    fn begin_segment(&mut self) -> Result<(), WalError> {
        // The seal's room first: a segment whose successor is there must be sealed.
        self.make_room(u64::from(self.synced) + RECORD_HEADER_BYTES as u64)?;
        let sequence = self.segments.last().map_or(1, |(sequence, _)| sequence + 1);
        let header = SegmentHeader {
            cluster_id: self.cluster_id,
            sequence,
            first_index: self.last_index + 1,
            previous_chain: self.chain,
            extend_bytes: self.extend_step(),
        };
        let (bytes, crc) = header.encode();
        let file = match whole_file::write_atomically(
            self.storage.as_ref(),
            &segment_name(sequence),
            &bytes,
        ) {
            Ok(file) => file,
            Err(WalError::NoSpace { file, .. }) => {
                return Err(WalError::NoSpace {
                    file,
                    needed_bytes: SEGMENT_HEADER_BYTES as u64,
                    retryable: true,
                });
            }
            Err(error) => return Err(self.poison_on_io(error)),
        };
        self.seal(sequence)?;
        self.file = file;
        self.segment_crc = crc;
        self.segment_step = header.extend_bytes;
        self.synced = SEGMENT_HEADER_BYTES as u32;
        self.allocated = SEGMENT_HEADER_BYTES as u64;
        self.chain = crc;
        self.buffered_chain = crc;
        self.segment_is_empty = true;
        self.segments.push((sequence, header.first_index));
        Ok(())
    }

    /// Says in the segment that ends that another follows, so that the loss of that one cannot go
    /// unseen.
    fn seal(&mut self, next: u64) -> Result<(), WalError> {
        let place = RecordPosition {
            segment_crc: self.segment_crc,
            offset: self.synced,
        };
        let mut bytes = Vec::new();
        encode(&Record::Sealed { next }, place, self.synced, &mut bytes);
        if let Err(error) = self.file.write_at(u64::from(self.synced), &bytes) {
            return Err(self.write_failed(bytes.len() as u64, error));
        }
        if let Err(error) = self.file.sync_data() {
            return Err(self.poison("sync", error));
        }
        Ok(())
    }

    /// Writes an end mark. Everything up to `synced`, and the file's length, is durable here.
    fn mark(&mut self, is_closed: bool) -> Result<(), WalError> {
        let sequence = self.current_sequence();
        let mark = EndMark {
            cluster_id: self.cluster_id,
            number: 0,
            sequence,
            offset: self.synced,
            chain: self.chain,
            last_index: self.synced_index,
            file_bytes: self.allocated,
            is_closed,
        };
        match self.marks.write(self.storage.as_ref(), mark) {
            Ok(()) => {
                self.marked = Some((sequence, self.synced));
                Ok(())
            }
            Err(WalError::NoSpace { .. }) => Err(WalError::NoSpace {
                file: self.storage.location(END_MARK_FILE),
                needed_bytes: MARK_BYTES as u64,
                retryable: true,
            }),
            Err(error) => Err(self.poison_on_io(error)),
        }
    }

    fn extend_step(&self) -> u32 {
        u32::try_from(self.options.extend_bytes).unwrap_or(u32::MAX)
    }

    fn current_sequence(&self) -> u64 {
        self.segments.last().map_or(1, |(sequence, _)| *sequence)
    }

    fn current_location(&self) -> String {
        self.storage
            .location(&segment_name(self.current_sequence()))
    }

    /// Grows the current segment to hold bytes up to `end`.
    fn make_room(&mut self, end: u64) -> Result<(), WalError> {
        if end <= self.allocated {
            return Ok(());
        }
        let wanted = end.next_multiple_of(u64::from(self.segment_step));
        if let Err(error) = self.file.allocate(wanted) {
            if is_no_room(&error) {
                return Err(self.no_room(wanted - self.allocated));
            }
            return Err(self.poison("growth", error));
        }
        self.allocated = wanted;
        Ok(())
    }

    /// A write that found no room can be repeated: nothing was synced since, and the same bytes go
    /// to the same place again.
    fn write_failed(&mut self, needed_bytes: u64, error: std::io::Error) -> WalError {
        if is_no_room(&error) {
            return self.no_room(needed_bytes);
        }
        self.poison("write", error)
    }

    fn no_room(&self, needed_bytes: u64) -> WalError {
        WalError::NoSpace {
            file: self.current_location(),
            needed_bytes,
            retryable: true,
        }
    }

    fn poison(&mut self, action: &'static str, error: std::io::Error) -> WalError {
        let file = self.current_location();
        self.poisoned = Some((action, file.clone(), error.to_string()));
        if is_no_room(&error) {
            return WalError::NoSpace {
                file,
                needed_bytes: self.buffer.len() as u64,
                retryable: false,
            };
        }
        WalError::Poisoned {
            action,
            file,
            reason: error.to_string(),
        }
    }

    /// An error of the device while a whole file was written ends the log, too; others are returned
    /// as they are.
    fn poison_on_io(&mut self, error: WalError) -> WalError {
        let WalError::Io {
            action,
            file,
            source,
        } = error
        else {
            return error;
        };
        let reason = source.to_string();
        self.poisoned = Some((action, file.clone(), reason.clone()));
        WalError::Poisoned {
            action,
            file,
            reason,
        }
    }

    fn check_usable(&self) -> Result<(), WalError> {
        match &self.poisoned {
            None => Ok(()),
            Some((action, file, reason)) => Err(WalError::Poisoned {
                action,
                file: file.clone(),
                reason: reason.clone(),
            }),
        }
    }
}

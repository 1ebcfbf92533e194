//! End marks: how far the log was synced, recorded in a second place (`docs/internals/format.md`,
//! "End mark"). The records alone cannot tell a log whose end was cut off or zeroed from one that
//! was never longer; a mark can.
//!
//! Owns the file `SYNCED`, its two slots and what they are held against. A mark is written after
//! the sync that it records, never before, into the slot that does not hold the newest one: a
//! torn write leaves that one whole.

use crate::FORMAT_VERSION;
use crate::bytes_at::{all_zero, put, u32_at, u64_at};
use crate::error::{WalError, check_version};
use crate::file_names::END_MARK_FILE;
use crate::segment::{Records, SEGMENT_HEADER_BYTES, Segment};
use crate::storage::{Access, Storage, StorageFile};
use crate::whole_file;

/// Bytes of a mark; the rest of its slot is zero.
pub(crate) const MARK_BYTES: usize = 128;
/// Each slot is a page of its own, so that no write touches both.
const SLOT_BYTES: usize = 4096;
const SLOTS: usize = 2;
const MAGIC: &[u8; 8] = b"BATONEND";
const CLOSED: u32 = 1;

/// The remedy for a log that ends before its mark.
const RESTORE_END: &str = "acknowledged data is missing, so nothing was changed; restore the file from a copy, or move SYNCED away to start with what is left";
/// The remedy for a file of marks that has none.
const RESTORE_MARKS: &str =
    "restore it from a copy, or move it away if `baton wal verify` finds the log whole without it";

/// Synced end of the log at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndMark {
    /// The cluster that the folder belongs to.
    pub cluster_id: u64,
    /// Marks are numbered; the highest number is the newest.
    pub number: u64,
    /// The last segment.
    pub sequence: u64,
    /// The segment was synced up to this offset, at which a record ends.
    pub offset: u32,
    /// The running checksum over the segment's records up to there.
    pub chain: u32,
    /// The last entry up to there.
    pub last_index: u64,
    /// The length of the segment's file, durable too.
    pub file_bytes: u64,
    /// Whether the log was closed in good order: nothing was written after the mark.
    pub is_closed: bool,
}

impl EndMark {
    /// The mark of a new folder, whose first segment has only its header.
    pub(crate) fn of_new(cluster_id: u64, header_crc: u32) -> EndMark {
        EndMark {
            cluster_id,
            number: 1,
            sequence: 1,
            offset: SEGMENT_HEADER_BYTES as u32,
            chain: header_crc,
            last_index: 0,
            file_bytes: SEGMENT_HEADER_BYTES as u64,
            is_closed: true,
        }
    }

    fn encode(&self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 16, &self.cluster_id.to_le_bytes());
        put(&mut bytes, 24, &self.number.to_le_bytes());
        put(&mut bytes, 32, &self.sequence.to_le_bytes());
        put(&mut bytes, 40, &self.offset.to_le_bytes());
        put(&mut bytes, 44, &self.chain.to_le_bytes());
        put(&mut bytes, 48, &self.last_index.to_le_bytes());
        put(&mut bytes, 56, &self.file_bytes.to_le_bytes());
        let flags = if self.is_closed { CLOSED } else { 0 };
        put(&mut bytes, 64, &flags.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        put(&mut bytes, 12, &crc.to_le_bytes());
        bytes
    }

    /// `None` for anything that is not a whole mark.
    fn decode(location: &str, bytes: &[u8]) -> Result<Option<EndMark>, WalError> {
        if bytes.get(..8) != Some(MAGIC) {
            return Ok(None);
        }
        check_version(location, u32_at(bytes, 8))?;
        let mark = EndMark {
            cluster_id: u64_at(bytes, 16),
            number: u64_at(bytes, 24),
            sequence: u64_at(bytes, 32),
            offset: u32_at(bytes, 40),
            chain: u32_at(bytes, 44),
            last_index: u64_at(bytes, 48),
            file_bytes: u64_at(bytes, 56),
            is_closed: u32_at(bytes, 64) == CLOSED,
        };
        Ok((bytes == mark.encode()).then_some(mark))
    }

    /// Holds the last segment against this mark, once all its valid records are walked. `chain` is
    /// the running checksum at the mark's offset, `None` where no record ends there.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] when anything that the mark covers is missing or different.
    pub(crate) fn check(
        &self,
        segment: &Segment,
        walked: &Records,
        chain: Option<u32>,
    ) -> Result<(), WalError> {
        if segment.header.sequence != self.sequence {
            return Ok(());
        }
        let file_bytes = segment.content.len() as u64;
        let what = if walked.offset < self.offset {
            format!(
                "the log ends here, but {END_MARK_FILE} says that it was synced up to byte {} and entry {}",
                self.offset, self.last_index
            )
        } else if chain != Some(self.chain) {
            format!(
                "the records up to byte {} are not those that were synced, as {END_MARK_FILE} has it",
                self.offset
            )
        } else if file_bytes < self.file_bytes {
            format!(
                "the file ends here, but {END_MARK_FILE} says that it had {} bytes",
                self.file_bytes
            )
        } else {
            return Ok(());
        };
        let at = u64::from(walked.offset.min(self.offset)).min(file_bytes);
        Err(WalError::corrupt(&segment.location, at, what, RESTORE_END))
    }
}

/// A mark that was read, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundMark {
    pub mark: EndMark,
    pub slot: usize,
    /// Whether the other slot holds something that is not a mark: a write that a crash tore, or
    /// damage.
    pub other_is_torn: bool,
}

impl FoundMark {
    /// Offset of the mark in the file.
    pub(crate) fn offset(&self) -> u64 {
        slot_offset(self.slot)
    }
}

/// The newest mark; `None` when there is no file of marks.
pub(crate) fn newest(storage: &dyn Storage) -> Result<Option<FoundMark>, WalError> {
    let location = storage.location(END_MARK_FILE);
    let most = SLOT_BYTES * SLOTS;
    let Some(mut content) = whole_file::read_beginning(storage, END_MARK_FILE, most)? else {
        return Ok(None);
    };
    let length = content.len();
    content.resize(most, 0);
    let mut newest: Option<FoundMark> = None;
    let mut is_torn = false;
    for slot in 0..SLOTS {
        let from = slot * SLOT_BYTES;
        let bytes = content.get(from..from + MARK_BYTES).unwrap_or_default();
        let is_there = length >= from + MARK_BYTES;
        match EndMark::decode(&location, bytes)? {
            Some(mark) if is_there => {
                if newest.is_none_or(|found| found.mark.number < mark.number) {
                    newest = Some(FoundMark {
                        mark,
                        slot,
                        other_is_torn: false,
                    });
                }
            }
            _ => is_torn |= !is_there || !all_zero(bytes),
        }
    }
    let Some(found) = newest else {
        return Err(WalError::corrupt(
            &location,
            0,
            "it holds no mark of how far the log was synced",
            RESTORE_MARKS,
        ));
    };
    Ok(Some(FoundMark {
        other_is_torn: is_torn,
        ..found
    }))
}

/// Refuses a mark of another folder.
pub(crate) fn check_cluster(
    storage: &dyn Storage,
    mark: &EndMark,
    cluster_id: u64,
) -> Result<(), WalError> {
    if mark.cluster_id == cluster_id {
        return Ok(());
    }
    Err(WalError::WrongCluster {
        file: storage.location(END_MARK_FILE),
        found: mark.cluster_id,
        expected: cluster_id,
    })
}

/// Makes the file again with one mark in it, whole and durable.
pub(crate) fn create(
    storage: &dyn Storage,
    mark: &EndMark,
) -> Result<Box<dyn StorageFile>, WalError> {
    let mut content = vec![0; SLOT_BYTES * SLOTS];
    put(&mut content, 0, &mark.encode());
    whole_file::write_atomically(storage, END_MARK_FILE, &content)
}

fn slot_offset(slot: usize) -> u64 {
    (slot * SLOT_BYTES) as u64
}

/// The marks of a log that is being written.
#[derive(Debug)]
pub(crate) struct EndMarks {
    found: Option<FoundMark>,
    /// Open once the mark that was found is known to be durable.
    file: Option<Box<dyn StorageFile>>,
}

impl EndMarks {
    /// Goes on after what a start has read. Nothing is written yet.
    pub(crate) fn new(found: Option<FoundMark>) -> EndMarks {
        EndMarks { found, file: None }
    }

    /// Records durably what `mark` says; its number is set here.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses. The mark before is then still there.
    pub(crate) fn write(&mut self, storage: &dyn Storage, mark: EndMark) -> Result<(), WalError> {
        let failed =
            |action| move |error| WalError::io(action, storage.location(END_MARK_FILE), error);
        let Some(found) = self.found else {
            let mark = EndMark { number: 1, ..mark };
            self.file = Some(create(storage, &mark)?);
            self.found = Some(FoundMark {
                mark,
                slot: 0,
                other_is_torn: false,
            });
            return Ok(());
        };
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = storage
                    .open(END_MARK_FILE, Access::Write)
                    .map_err(failed("open"))?;
                // The process before may have been killed between the write and its sync: only now
                // the other slot may be given up.
                file.write_at(slot_offset(found.slot), &found.mark.encode())
                    .map_err(failed("write"))?;
                file.sync_data().map_err(failed("sync"))?;
                none.insert(file)
            }
        };
        let next = FoundMark {
            mark: EndMark {
                number: found.mark.number.saturating_add(1),
                ..mark
            },
            slot: (found.slot + 1) % SLOTS,
            other_is_torn: false,
        };
        file.write_at(slot_offset(next.slot), &next.mark.encode())
            .map_err(failed("write"))?;
        file.sync_data().map_err(failed("sync"))?;
        self.found = Some(next);
        Ok(())
    }
}

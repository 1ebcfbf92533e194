//! Reading a transaction log. Owns the framing: the checksum of each transaction, the zeros after
//! the last one, and the torn write that a crash may leave at the very end.

use std::io::Read;

use baton_proto::DecodeErrorKind;
use simd_adler32::adler32;

use crate::database::{Database, StoredDigest};
use crate::digest;
use crate::error::ZkDataError;
use crate::input::{Input, MAX_RECORD_BYTES};
use crate::txn::{self, Record};

/// "ZKLG", version 2.
const HEADER: [u8; 8] = *b"ZKLG\0\0\0\x02";
const HEADER_BYTES: usize = 16;
/// Checksum and length.
const FRAME_BYTES: usize = 12;
/// The byte after each transaction.
const END: u8 = b'B';
/// ZooKeeper fills the file with zeros ahead of the transactions: this many at the end mean that it
/// was not cut off.
const PADDING_BYTES: usize = 64;
const REMEDY: &str = "restore the file from a copy; only if this was the last write before a crash, cut the file off there (truncate -s)";

/// Outcome of replaying a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayReport {
    /// Transactions that were replayed.
    pub transactions: u64,
    /// Position at which the file was cut off inside a transaction, in bytes from its begin; that
    /// one was dropped.
    pub torn_at: Option<u64>,
    /// Whether there is nothing in the file: ZooKeeper made it, and never wrote to it.
    pub empty: bool,
    /// The zxids on both sides of the first gap, which a missing file leaves.
    pub gap: Option<(i64, i64)>,
}

/// Replays the transactions of the log that `file` names, read from its begin to its end, that come
/// after what is in `database`. One transaction at a time is kept in memory.
///
/// # Errors
/// [`ZkDataError`] names the first transaction that is not as ZooKeeper wrote it, or does not
/// follow.
pub fn replay_log(
    database: &mut Database,
    file: &str,
    from: impl Read,
) -> Result<ReplayReport, ZkDataError> {
    let mut applied = ReplayReport::default();
    let mut from = Input::new(file, REMEDY, Box::new(from));
    if !from.has(HEADER_BYTES)? || !from.rest().starts_with(&HEADER) {
        // A log of nothing was begun and never written to.
        return match from.first_not_zero()? {
            None => {
                applied.empty = true;
                Ok(applied)
            }
            Some(_) => Err(ZkDataError::NotOne {
                file: file.to_owned(),
                what: "transaction log",
            }),
        };
    }
    from.take(HEADER_BYTES);
    let mut last = i64::MIN;
    loop {
        let offset = from.at();
        let length = match next_frame(file, &mut from)? {
            Frame::Whole { length } => length,
            Frame::End => return Ok(applied),
            Frame::Torn => {
                applied.torn_at = Some(offset);
                return Ok(applied);
            }
        };
        let bytes = frame_body(&from, length);
        let record = Record::decode(bytes).map_err(|error| match error.kind {
            DecodeErrorKind::UnknownValue(kind) if error.field == txn::TYPE => {
                let file = file.to_owned();
                ZkDataError::UnknownTransaction { file, offset, kind }
            }
            _ => from.bad(
                FRAME_BYTES + error.offset,
                format!("{}: {}", error.field, error.kind),
            ),
        })?;
        let zxid = record.header.zxid;
        if zxid <= last {
            return Err(ZkDataError::OutOfOrder {
                file: file.to_owned(),
                offset,
                zxid,
                after: last,
            });
        }
        last = zxid;
        if zxid > database.zxid {
            if applied.gap.is_none() && !follows(database.zxid, zxid) {
                applied.gap = Some((database.zxid, zxid));
            }
            database.replay(file, record)?;
            applied.transactions += 1;
        }
        from.take(FRAME_BYTES + length + 1);
    }
}

/// Within an epoch zxids count up by one; the low 32 bits begin again with an epoch.
const fn follows(last: i64, next: i64) -> bool {
    next == last + 1 || (next >> 32 > last >> 32 && next & 0xffff_ffff <= 1)
}

enum Frame {
    /// It is in the window, with this many bytes between its head and its end mark.
    Whole {
        length: usize,
    },
    End,
    Torn,
}

fn frame_body<'i>(from: &'i Input<'_>, length: usize) -> &'i [u8] {
    let frame = from.rest().get(FRAME_BYTES..FRAME_BYTES + length);
    frame.unwrap_or_default()
}

fn next_frame(file: &str, from: &mut Input<'_>) -> Result<Frame, ZkDataError> {
    let offset = from.at();
    let whole_head = from.has(FRAME_BYTES)?;
    // Of the remaining zeros there may be fewer than a frame takes.
    if from.rest().iter().take(FRAME_BYTES).all(|byte| *byte == 0) {
        return match from.first_not_zero()? {
            None => Ok(Frame::End),
            Some(offset) => Err(ZkDataError::Record {
                file: file.to_owned(),
                offset,
                reason: "there are bytes after the last transaction".to_owned(),
                remedy: REMEDY,
            }),
        };
    }
    if !whole_head {
        return Ok(Frame::Torn);
    }
    let (stored, length) = head(from.rest());
    let length = match usize::try_from(length) {
        Ok(length) if (1..=MAX_RECORD_BYTES).contains(&length) => length,
        _ => return Err(from.bad(8, "the transaction has an impossible length")),
    };
    if !from.has(FRAME_BYTES + length + 1)? {
        let rest = from.rest();
        let padding = rest.iter().rev().take_while(|byte| **byte == 0).count();
        return if padding >= PADDING_BYTES {
            Err(from.bad(8, "the transaction is longer than the file"))
        } else {
            Ok(Frame::Torn)
        };
    }
    let computed = u64::from(adler32(&frame_body(from, length)));
    let end = FRAME_BYTES + length;
    let mark = from.rest().get(end).copied();
    if mark == Some(END) && stored == computed {
        return Ok(Frame::Whole { length });
    }
    // Its mark is written last: ZooKeeper, too, takes what has none for one that was never
    // finished.
    from.take(end);
    if mark == Some(0) && from.first_not_zero()?.is_none() {
        return Ok(Frame::Torn);
    }
    let file = file.to_owned();
    if stored == computed {
        return Err(ZkDataError::Record {
            file,
            offset: offset + end as u64,
            reason: "the transaction does not end with its mark".to_owned(),
            remedy: REMEDY,
        });
    }
    Err(ZkDataError::Checksum {
        file,
        offset,
        stored,
        computed,
        remedy: REMEDY,
    })
}

/// Checksum and length, of the bytes at the begin.
fn head(bytes: &[u8]) -> (u64, i32) {
    match bytes.first_chunk::<FRAME_BYTES>() {
        Some([a, b, c, d, e, f, g, h, i, j, k, l]) => (
            u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            i32::from_be_bytes([*i, *j, *k, *l]),
        ),
        None => (0, 0),
    }
}

impl Database {
    fn replay(&mut self, file: &str, record: Record<'_>) -> Result<(), ZkDataError> {
        let zxid = record.header.zxid;
        self.apply(&record.header, record.txn);
        self.zxid = zxid;
        if self
            .awaited
            .as_ref()
            .is_some_and(|digest| digest.zxid == zxid)
        {
            self.check_awaited_digest()?;
        }
        self.newest = record
            .digest
            .filter(|(version, _)| *version == digest::VERSION)
            .map(|(_, value)| StoredDigest {
                zxid,
                value,
                file: file.to_owned(),
            });
        Ok(())
    }

    fn check_awaited_digest(&mut self) -> Result<(), ZkDataError> {
        match self.awaited.take() {
            Some(stored) if !self.digests_ignored => self.hold_against(&stored),
            _ => Ok(()),
        }
    }

    /// Compares the tree with the digest that ZooKeeper stored for it last: of the newest
    /// transaction, or of the snapshot if there was none after it. Returns whether there was one to
    /// compare with.
    ///
    /// # Errors
    /// [`ZkDataError::Digest`], and [`ZkDataError::LogMissing`] when the snapshot was finished
    /// after transactions that no log brought.
    pub fn check_digest(&self) -> Result<bool, ZkDataError> {
        if self.digests_ignored {
            return Ok(false);
        }
        if let Some(awaited) = &self.awaited
            && awaited.zxid > self.zxid
        {
            return Err(ZkDataError::LogMissing {
                snapshot: awaited.file.clone(),
                zxid: awaited.zxid,
                last: self.zxid,
            });
        }
        let stored = self.awaited.iter().chain(&self.newest);
        let mut proved = false;
        for stored in stored.filter(|digest| digest.zxid == self.zxid) {
            self.hold_against(stored)?;
            proved = true;
        }
        Ok(proved)
    }

    fn hold_against(&self, stored: &StoredDigest) -> Result<(), ZkDataError> {
        let computed = self.tree_digest();
        if computed == stored.value {
            return Ok(());
        }
        Err(ZkDataError::Digest {
            zxid: stored.zxid,
            stored: stored.value as u64,
            computed: computed as u64,
            source_file: stored.file.clone(),
        })
    }
}

//! Reading a transaction log. Owns the framing: the checksum of each transaction, the zeros after the last one, and the
//! torn write that a crash may leave at the very end.

use simd_adler32::adler32;

use crate::database::{Database, StoredDigest};
use crate::digest;
use crate::error::ZkDataError;
use crate::txn::Record;

/// "ZKLG", version 2.
const HEADER: [u8; 8] = *b"ZKLG\0\0\0\x02";
const HEADER_BYTES: usize = 16;
/// Checksum and length.
const FRAME_BYTES: usize = 12;
/// What follows each transaction.
const END: u8 = b'B';
/// ZooKeeper fills the file with zeros ahead of the transactions: so many at the end mean that it was not cut off.
const PADDING_BYTES: usize = 64;
const REMEDY: &str = "restore the file from a copy; only if this was the last write before a crash, cut the file off there (truncate -s)";

/// What a log did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    /// Transactions that were replayed.
    pub transactions: u64,
    /// Where the file was cut off inside a transaction, in bytes from its begin; that one was dropped.
    pub torn_at: Option<u64>,
    /// The zxids on both sides of the first gap, which a missing file leaves.
    pub gap: Option<(i64, i64)>,
}

/// Replays the transactions of `file`, whose bytes are `content`, that come after what is in `database`.
///
/// # Errors
/// [`ZkDataError`] names the first transaction that is not as ZooKeeper wrote it, or does not follow.
pub fn replay_log(
    database: &mut Database,
    file: &str,
    content: &[u8],
) -> Result<Applied, ZkDataError> {
    let mut applied = Applied::default();
    // A log that ends here was begun and never written to.
    if content.iter().all(|byte| *byte == 0) {
        return Ok(applied);
    }
    if !content.starts_with(&HEADER) || content.len() < HEADER_BYTES {
        return Err(ZkDataError::NotOne {
            file: file.to_owned(),
            what: "transaction log",
        });
    }
    let mut at = HEADER_BYTES;
    let mut last = i64::MIN;
    loop {
        let (bytes, next) = match frame(file, content, at)? {
            Frame::Whole { bytes, next } => (bytes, next),
            Frame::End => return Ok(applied),
            Frame::Torn => {
                applied.torn_at = Some(at as u64);
                return Ok(applied);
            }
        };
        let record = Record::decode(bytes)
            .map_err(|error| ZkDataError::record(file, at + FRAME_BYTES, &error))?;
        let zxid = record.header.zxid;
        if zxid <= last {
            return Err(ZkDataError::OutOfOrder {
                file: file.to_owned(),
                offset: at as u64,
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
        at = next;
    }
}

/// Within an epoch zxids count up by one; the low 32 bits begin anew with an epoch.
const fn follows(last: i64, next: i64) -> bool {
    next == last + 1 || (next >> 32 > last >> 32 && next & 0xffff_ffff <= 1)
}

enum Frame<'a> {
    Whole { bytes: &'a [u8], next: usize },
    End,
    Torn,
}

fn frame<'a>(file: &str, content: &'a [u8], at: usize) -> Result<Frame<'a>, ZkDataError> {
    let rest = content.get(at..).unwrap_or_default();
    let bad = |offset: usize, reason: &str| ZkDataError::Record {
        file: file.to_owned(),
        offset: offset as u64,
        reason: reason.to_owned(),
    };
    // Of the remaining zeros there may be fewer than a frame takes.
    if rest.iter().take(FRAME_BYTES).all(|byte| *byte == 0) {
        return match rest.iter().position(|byte| *byte != 0) {
            None => Ok(Frame::End),
            Some(place) => Err(bad(
                at + place,
                "there are bytes after the last transaction",
            )),
        };
    }
    let Some((head, body)) = rest.split_first_chunk::<FRAME_BYTES>() else {
        return Ok(Frame::Torn);
    };
    let (sum, length) = head.split_at(8);
    let stored = sum
        .iter()
        .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let length = length
        .iter()
        .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    if length == 0 || i32::try_from(length).is_err() {
        return Err(bad(at + 8, "the transaction has an impossible length"));
    }
    let Some((bytes, after)) = body.split_at_checked(length as usize) else {
        let padding = rest.iter().rev().take_while(|byte| **byte == 0).count();
        return if padding >= PADDING_BYTES {
            Err(bad(at + 8, "the transaction is longer than the file"))
        } else {
            Ok(Frame::Torn)
        };
    };
    let computed = u64::from(adler32(&bytes));
    if stored != computed {
        return Err(ZkDataError::Checksum {
            file: file.to_owned(),
            offset: at as u64,
            stored,
            computed,
            remedy: REMEDY,
        });
    }
    let next = at + FRAME_BYTES + bytes.len() + 1;
    match after.first() {
        Some(&END) => Ok(Frame::Whole { bytes, next }),
        // ZooKeeper takes a transaction without its end for one that was never finished, too.
        None => Ok(Frame::Torn),
        Some(0) if after.iter().all(|byte| *byte == 0) => Ok(Frame::Torn),
        Some(_) => Err(bad(next - 1, "the transaction does not end with its mark")),
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

    /// Compares the tree with the digest that ZooKeeper stored for it last: of the newest transaction, or of the
    /// snapshot if there was none after it.
    ///
    /// # Errors
    /// [`ZkDataError::Digest`].
    pub fn check_digest(&self) -> Result<(), ZkDataError> {
        if self.digests_ignored {
            return Ok(());
        }
        let awaited = self
            .awaited
            .iter()
            .filter(|digest| digest.zxid == self.zxid);
        let newest = self.newest.iter().filter(|digest| digest.zxid == self.zxid);
        awaited
            .chain(newest)
            .try_for_each(|stored| self.hold_against(stored))
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

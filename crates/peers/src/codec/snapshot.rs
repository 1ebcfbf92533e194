//! A snapshot in chunks. The consensus message of the snapshot follows on the same lane, after the
//! [`SnapshotAck`] of the whole size, so the receiver has the verified file when it sees that
//! message.

use bytes::Bytes;

use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;

/// The most bytes of one chunk.
pub const MAX_CHUNK_BYTES: usize = 1 << 20;
/// The most bytes that a sender may have on their way without an acknowledgement.
pub const MAX_UNACKED_BYTES: usize = 4 << 20;

/// A snapshot is to be sent. The receiver answers with the offset from which it wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotOffer {
    /// The number of the transfer, which its other frames repeat.
    pub transfer: u64,
    /// The last entry that the snapshot contains.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// CRC-32C of the file.
    pub crc: u32,
}

/// A part of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotChunk {
    /// The transfer.
    pub transfer: u64,
    /// Begin of the part in the file.
    pub offset: u64,
    /// The part; at least 1 byte, at most [`MAX_CHUNK_BYTES`].
    pub data: Bytes,
}

/// The receiver has stored everything before an offset. The whole size is acknowledged only when
/// the file is verified and durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotAck {
    /// The transfer.
    pub transfer: u64,
    /// The offset.
    pub offset: u64,
}

/// All parts were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotDone {
    /// The transfer.
    pub transfer: u64,
}

/// The receiver does not take the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotReject {
    /// The transfer.
    pub transfer: u64,
    /// The reason.
    pub reason: SnapshotRejectReason,
}

/// Reason why a snapshot is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SnapshotRejectReason {
    /// The receiver has a newer state.
    Outdated,
    /// The whole file does not have the size or the checksum that was offered.
    Damaged,
    /// A part begins where the receiver does not expect it.
    Gap,
    /// The disk has no room.
    NoRoom,
    /// Another snapshot is being received.
    Busy,
    /// The members in the snapshot do not include the receiver.
    NotMember,
    /// The receiver cannot write or read the file.
    DiskFailed,
    /// A reason that this version does not know.
    Other(u8),
}

impl SnapshotRejectReason {
    /// The byte on the wire.
    pub fn code(self) -> u8 {
        match self {
            SnapshotRejectReason::Outdated => 1,
            SnapshotRejectReason::Damaged => 2,
            SnapshotRejectReason::Gap => 3,
            SnapshotRejectReason::NoRoom => 4,
            SnapshotRejectReason::Busy => 5,
            SnapshotRejectReason::NotMember => 6,
            SnapshotRejectReason::DiskFailed => 7,
            SnapshotRejectReason::Other(code) => code,
        }
    }

    /// The reason that a byte stands for.
    pub fn from_code(code: u8) -> SnapshotRejectReason {
        match code {
            1 => SnapshotRejectReason::Outdated,
            2 => SnapshotRejectReason::Damaged,
            3 => SnapshotRejectReason::Gap,
            4 => SnapshotRejectReason::NoRoom,
            5 => SnapshotRejectReason::Busy,
            6 => SnapshotRejectReason::NotMember,
            7 => SnapshotRejectReason::DiskFailed,
            other => SnapshotRejectReason::Other(other),
        }
    }
}

impl std::fmt::Display for SnapshotRejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SnapshotRejectReason::Outdated => f.write_str("the receiver has a newer state"),
            SnapshotRejectReason::Damaged => f.write_str("the file was changed on the way"),
            SnapshotRejectReason::Gap => f.write_str("a part is missing"),
            SnapshotRejectReason::NoRoom => f.write_str("the receiver's disk is full"),
            SnapshotRejectReason::Busy => f.write_str("the receiver takes another snapshot"),
            SnapshotRejectReason::NotMember => {
                f.write_str("the members in the snapshot do not include the receiver")
            }
            SnapshotRejectReason::DiskFailed => f.write_str("the receiver's disk has failed"),
            SnapshotRejectReason::Other(code) => {
                write!(f, "reason {code}, which a later version knows")
            }
        }
    }
}

impl SnapshotOffer {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.transfer);
        out.u64(self.index);
        out.u64(self.term);
        out.u64(self.bytes);
        out.u32(self.crc);
        out.zeros(4);
    }

    pub(crate) fn read(input: &mut Input) -> Result<SnapshotOffer, Malformed> {
        let offer = SnapshotOffer {
            transfer: input.u64()?,
            index: input.u64()?,
            term: input.u64()?,
            bytes: input.u64()?,
            crc: input.u32()?,
        };
        input.zeros(4)?;
        Ok(offer)
    }
}

impl SnapshotChunk {
    pub(crate) const FIXED_BYTES: usize = 16;

    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.transfer);
        out.u64(self.offset);
        out.payload(&self.data);
    }

    pub(crate) fn read(input: &mut Input) -> Result<SnapshotChunk, Malformed> {
        let chunk = SnapshotChunk {
            transfer: input.u64()?,
            offset: input.u64()?,
            data: input.rest(),
        };
        if chunk.data.is_empty() || chunk.data.len() > MAX_CHUNK_BYTES {
            return Err("its part is empty or too large");
        }
        Ok(chunk)
    }
}

impl SnapshotAck {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.transfer);
        out.u64(self.offset);
    }

    pub(crate) fn read(input: &mut Input) -> Result<SnapshotAck, Malformed> {
        Ok(SnapshotAck {
            transfer: input.u64()?,
            offset: input.u64()?,
        })
    }
}

impl SnapshotDone {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.transfer);
    }

    pub(crate) fn read(input: &mut Input) -> Result<SnapshotDone, Malformed> {
        Ok(SnapshotDone {
            transfer: input.u64()?,
        })
    }
}

impl SnapshotReject {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.transfer);
        out.u8(self.reason.code());
        out.zeros(7);
    }

    pub(crate) fn read(input: &mut Input) -> Result<SnapshotReject, Malformed> {
        let reject = SnapshotReject {
            transfer: input.u64()?,
            reason: SnapshotRejectReason::from_code(input.u8()?),
        };
        input.zeros(7)?;
        Ok(reject)
    }
}

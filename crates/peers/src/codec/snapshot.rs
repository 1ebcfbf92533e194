//! A snapshot in chunks. The consensus message of the snapshot follows on the same lane, after the
//! [`SnapshotAck`] of the whole size, so the receiver has the verified file when it sees that
//! message.

use bytes::Bytes;

use crate::codec::fields::{fields, reasons};
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

reasons! {
    /// Reason why a snapshot is not taken.
    SnapshotRejectReason {
        /// The receiver has a newer state.
        Outdated = 1: "the receiver has a newer state",
        /// The whole file does not have the size or the checksum that was offered.
        Damaged = 2: "the file was changed on the way",
        /// A part begins where the receiver does not expect it.
        Gap = 3: "a part is missing",
        /// The disk has no room.
        NoRoom = 4: "the receiver's disk is full",
        /// Another snapshot is being received.
        Busy = 5: "the receiver takes another snapshot",
        /// The members in the snapshot do not include the receiver.
        NotMember = 6: "the members in the snapshot do not include the receiver",
        /// The receiver cannot write or read the file.
        DiskFailed = 7: "the receiver's disk has failed",
    }
}

fields!(SnapshotOffer { transfer, index, term, bytes, crc } zeros 4);

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

fields!(SnapshotAck { transfer, offset });
fields!(SnapshotDone { transfer });
fields!(SnapshotReject { transfer, reason } zeros 7);

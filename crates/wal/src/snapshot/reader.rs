//! Reads one snapshot, chunk by chunk, and holds every byte against its checksum before it is
//! handed out.

use bytes::{Bytes, BytesMut};

use super::{
    CHUNK_HEADER_BYTES, FIXED_BYTES, FOOTER_BYTES, FOOTER_KIND, Footer, SnapshotInfo, SnapshotMeta,
    check_origin, chunk_crc, decode_chunk_header, decode_header, header_length,
};
use crate::bytes_at::{all_zero, padded, u32_at, u64_at};
use crate::error::{RESTORE_SNAPSHOT, WalError};
use crate::file_names::{received_point, snapshot_point};
use crate::storage::{Access, Storage, StorageFile};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// One chunk of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The writer's own kind.
    pub kind: u8,
    /// Bytes of the chunk, as written.
    pub payload: Bytes,
    /// Begin of the chunk in the file, in bytes.
    pub offset: u64,
}

/// A snapshot that is being read.
#[derive(Debug)]
pub struct SnapshotReader {
    file: Box<dyn StorageFile>,
    name: String,
    location: String,
    meta: SnapshotMeta,
    header_crc: u32,
    length: u64,
    /// Read from the file, not consumed yet.
    ahead: BytesMut,
    /// Begin of `ahead` in the file.
    offset: u64,
    file_crc: u32,
    chunks: u32,
    content_bytes: u64,
    ended: bool,
}

impl SnapshotReader {
    /// Opens the snapshot of this name. With a `cluster_id`, it has to be one of that cluster.
    ///
    /// # Errors
    /// [`WalError`] when it is not there, damaged, or of another version or cluster.
    pub fn open(
        storage: &dyn Storage,
        name: &str,
        cluster_id: Option<u64>,
    ) -> Result<SnapshotReader, WalError> {
        let point = snapshot_point(name).or_else(|| received_point(name));
        Self::open_as(storage, name, point, cluster_id)
    }

    /// Opens a file that is to be the snapshot of an index and a term, whatever its name.
    pub(super) fn open_as(
        storage: &dyn Storage,
        name: &str,
        point: Option<(u64, u64)>,
        cluster_id: Option<u64>,
    ) -> Result<SnapshotReader, WalError> {
        let (reader, found) = Self::open_any(storage, name)?;
        check_origin(&reader.location, (found, &reader.meta), cluster_id, point)?;
        Ok(reader)
    }

    /// Opens a snapshot of any cluster, index and term, whatever its name. Returns its cluster too.
    pub(crate) fn open_any(
        storage: &dyn Storage,
        name: &str,
    ) -> Result<(SnapshotReader, u64), WalError> {
        let location = storage.location(name);
        let file = storage
            .open(name, Access::Read)
            .map_err(|error| WalError::io("open", location.clone(), error))?;
        let length = file
            .len()
            .map_err(|error| WalError::io("measure", location.clone(), error))?;
        let mut reader = SnapshotReader {
            file,
            name: name.to_owned(),
            location,
            meta: SnapshotMeta {
                index: 0,
                term: 0,
                zxid: 0,
                time_ms: 0,
                membership: Bytes::new(),
            },
            header_crc: 0,
            length,
            ahead: BytesMut::new(),
            offset: 0,
            file_crc: 0,
            chunks: 0,
            content_bytes: 0,
            ended: false,
        };
        reader.fill(FIXED_BYTES)?;
        let header_bytes = header_length(&reader.location, &reader.ahead)?;
        let header = reader.take(header_bytes)?;
        let found;
        (found, reader.meta, reader.header_crc) = decode_header(&reader.location, &header)?;
        reader.file_crc = crc32c::crc32c(&header);
        Ok((reader, found))
    }

    /// The file, its location, its header and the header's checksum.
    pub(super) fn into_parts(self) -> (Box<dyn StorageFile>, String, SnapshotMeta, u32) {
        (self.file, self.location, self.meta, self.header_crc)
    }

    /// The header of the snapshot.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// Number of bytes of the file that have been read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next chunk; `None` once the footer has been read and found right.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] when a byte is not as it was written or the end is missing.
    pub fn next_chunk(&mut self) -> Result<Option<Chunk>, WalError> {
        if self.ended {
            return Ok(None);
        }
        let offset = self.offset;
        let header = self.take(CHUNK_HEADER_BYTES)?;
        let (length, kind, sequence) = decode_chunk_header(&header)
            .ok_or_else(|| self.damaged(offset, "the chunk header is impossible"))?;
        let body = self.take(padded(length))?;
        let payload = body.slice(..length);
        if chunk_crc(self.header_crc, &header, &payload) != u32_at(&header, 12)
            || !all_zero(body.get(length..).unwrap_or_default())
        {
            return Err(self.damaged(offset, "the chunk does not match its checksum"));
        }
        if sequence != self.chunks {
            return Err(self.damaged(
                offset,
                format!("it is chunk {sequence} where chunk {} belongs", self.chunks),
            ));
        }
        if kind == FOOTER_KIND {
            self.check_footer(offset, &payload)?;
            self.ended = true;
            return Ok(None);
        }
        self.file_crc = crc32c::crc32c_append(self.file_crc, &header);
        self.file_crc = crc32c::crc32c_append(self.file_crc, &body);
        self.chunks += 1;
        self.content_bytes += length as u64;
        Ok(Some(Chunk {
            kind,
            payload,
            offset,
        }))
    }

    /// Reads on to the end.
    ///
    /// # Errors
    /// As [`next_chunk`](SnapshotReader::next_chunk).
    pub fn verify(mut self) -> Result<SnapshotInfo, WalError> {
        while self.next_chunk()?.is_some() {}
        Ok(SnapshotInfo {
            name: self.name,
            meta: self.meta,
            chunks: u64::from(self.chunks),
            content_bytes: self.content_bytes,
            file_bytes: self.length,
        })
    }

    fn check_footer(&self, offset: u64, payload: &[u8]) -> Result<(), WalError> {
        let footer = Footer {
            chunks: u64_at(payload, 0),
            content_bytes: u64_at(payload, 8),
            file_crc: u32_at(payload, 16),
        };
        let expected = Footer {
            chunks: u64::from(self.chunks),
            content_bytes: self.content_bytes,
            file_crc: self.file_crc,
        };
        if payload.len() != FOOTER_BYTES || footer != expected {
            return Err(self.damaged(offset, "the footer does not match what came before it"));
        }
        if self.offset != self.length {
            return Err(self.damaged(self.offset, "bytes follow the footer"));
        }
        Ok(())
    }

    /// Reads ahead until `wanted` bytes are there or the file ends.
    fn fill(&mut self, wanted: usize) -> Result<(), WalError> {
        if self.ahead.len() >= wanted {
            return Ok(());
        }
        let had = self.ahead.len();
        self.ahead.resize(wanted.max(READ_BYTES), 0);
        let count = self
            .file
            .read_at(
                self.offset + had as u64,
                self.ahead.get_mut(had..).unwrap_or_default(),
            )
            .map_err(|error| WalError::io("read", self.location.clone(), error))?;
        self.ahead.truncate(had + count);
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<Bytes, WalError> {
        self.fill(count)?;
        if self.ahead.len() < count {
            return Err(self.damaged(self.length, "the file ends in the middle of a chunk"));
        }
        self.offset += count as u64;
        Ok(self.ahead.split_to(count).freeze())
    }

    fn damaged(&self, offset: u64, what: impl Into<String>) -> WalError {
        WalError::corrupt(&self.location, offset, what, RESTORE_SNAPSHOT)
    }
}

//! Writes one snapshot, chunk by chunk, beside the log. Nothing is visible before
//! [`SnapshotWriter::finish`].

use std::sync::Arc;

use super::{
    FOOTER_KIND, Footer, MAX_CHUNK_BYTES, MAX_MEMBERSHIP_BYTES, SnapshotInfo, SnapshotMeta,
    create_file, encode_chunk_header, encode_header,
};
use crate::bytes_at::padded;
use crate::error::WalError;
use crate::storage::Storage;
use crate::unfinished_file::UnfinishedFile;

/// Bytes buffered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// A snapshot that is being written.
#[derive(Debug)]
pub struct SnapshotWriter {
    file: UnfinishedFile,
    meta: SnapshotMeta,
    header_crc: u32,
    buffer: Vec<u8>,
    file_crc: u32,
    chunks: u32,
    content_bytes: u64,
}

impl SnapshotWriter {
    pub(super) fn begin(
        storage: Arc<dyn Storage>,
        cluster_id: u64,
        meta: SnapshotMeta,
        name: String,
    ) -> Result<SnapshotWriter, WalError> {
        if meta.membership.len() > MAX_MEMBERSHIP_BYTES {
            return Err(WalError::TooLarge {
                what: "membership record",
                bytes: meta.membership.len() as u64,
                limit_bytes: MAX_MEMBERSHIP_BYTES as u64,
            });
        }
        let file = create_file(storage, name, None)?;
        let (header, header_crc) = encode_header(cluster_id, &meta);
        Ok(SnapshotWriter {
            file,
            meta,
            header_crc,
            buffer: header,
            file_crc: 0,
            chunks: 0,
            content_bytes: 0,
        })
    }

    /// Adds a chunk. `kind` is the writer's own, 0 to 254; the log does not look.
    ///
    /// # Errors
    /// [`WalError`] when the chunk is too large, `kind` is 255, or the disk refuses; the snapshot
    /// is then lost.
    pub fn chunk(&mut self, kind: u8, payload: &[u8]) -> Result<(), WalError> {
        if kind == FOOTER_KIND {
            return Err(WalError::Option {
                name: "chunk kind",
                value: u64::from(kind),
                accepted: "0 to 254",
            });
        }
        if payload.len() > MAX_CHUNK_BYTES {
            return Err(WalError::TooLarge {
                what: "snapshot chunk",
                bytes: payload.len() as u64,
                limit_bytes: MAX_CHUNK_BYTES as u64,
            });
        }
        self.put(kind, payload);
        self.chunks += 1;
        self.content_bytes += payload.len() as u64;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Ends the snapshot and makes it durable under its name.
    ///
    /// # Errors
    /// [`WalError`] when the disk refuses; there is then no new snapshot, and the log is as it was.
    pub fn finish(mut self) -> Result<SnapshotInfo, WalError> {
        self.flush()?;
        let footer = Footer {
            chunks: u64::from(self.chunks),
            content_bytes: self.content_bytes,
            file_crc: self.file_crc,
        };
        self.put(FOOTER_KIND, &footer.encode());
        self.flush()?;
        self.file.sync()?;
        self.file.publish()?;
        Ok(SnapshotInfo {
            name: std::mem::take(&mut self.file.name),
            meta: self.meta.clone(),
            chunks: footer.chunks,
            content_bytes: footer.content_bytes,
            file_bytes: self.file.written,
        })
    }

    fn put(&mut self, kind: u8, payload: &[u8]) {
        let header = encode_chunk_header(self.header_crc, self.chunks, kind, payload);
        self.buffer.extend_from_slice(&header);
        self.buffer.extend_from_slice(payload);
        let padding = padded(payload.len()) - payload.len();
        self.buffer.resize(self.buffer.len() + padding, 0);
    }

    fn flush(&mut self) -> Result<(), WalError> {
        self.file.write_and_sync(&self.buffer)?;
        self.file_crc = crc32c::crc32c_append(self.file_crc, &self.buffer);
        self.buffer.clear();
        Ok(())
    }
}

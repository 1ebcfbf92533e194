//! Writes one snapshot, chunk by chunk, beside the log. Nothing is visible before
//! [`SnapshotWriter::finish`]; a writer that fails or is dropped removes its unfinished file at
//! once: on a full disk, that room is the log's.

use std::sync::Arc;

use super::{
    FOOTER_KIND, Footer, MAX_CHUNK_BYTES, MAX_MEMBERSHIP_BYTES, SnapshotInfo, SnapshotMeta,
    encode_chunk_header, encode_header,
};
use crate::bytes_at::padded;
use crate::error::{WalError, is_no_room};
use crate::file_names::UNFINISHED_SUFFIX;
use crate::storage::{Storage, StorageFile};
use crate::whole_file::{discard, remove_if_there};

/// Bytes buffered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// A snapshot that is being written.
#[derive(Debug)]
pub struct SnapshotWriter {
    storage: Arc<dyn Storage>,
    file: Box<dyn StorageFile>,
    name: String,
    unfinished: String,
    meta: SnapshotMeta,
    header_crc: u32,
    buffer: Vec<u8>,
    written: u64,
    file_crc: u32,
    chunks: u32,
    content_bytes: u64,
    /// Whether the file has its final name.
    is_named: bool,
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
        let unfinished = format!("{name}{UNFINISHED_SUFFIX}");
        let location = storage.location(&unfinished);
        remove_if_there(storage.as_ref(), &unfinished)
            .map_err(|error| WalError::io("remove", location.clone(), error))?;
        let file = storage
            .create(&unfinished)
            .map_err(|error| failure("create", location, 0, error))?;
        let (header, header_crc) = encode_header(cluster_id, &meta);
        Ok(SnapshotWriter {
            storage,
            file,
            name,
            unfinished,
            meta,
            header_crc,
            buffer: header,
            written: 0,
            file_crc: 0,
            chunks: 0,
            content_bytes: 0,
            is_named: false,
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
        self.file.sync_data().map_err(self.failed("sync"))?;
        self.storage
            .rename(&self.unfinished, &self.name)
            .map_err(self.failed("rename"))?;
        self.is_named = true;
        self.storage
            .sync_dir()
            .map_err(|error| failure("sync", self.storage.location(""), 0, error))?;
        Ok(SnapshotInfo {
            name: std::mem::take(&mut self.name),
            meta: self.meta.clone(),
            chunks: footer.chunks,
            content_bytes: footer.content_bytes,
            file_bytes: self.written,
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
        self.file
            .write_at(self.written, &self.buffer)
            .map_err(self.failed("write"))?;
        self.written += self.buffer.len() as u64;
        self.file_crc = crc32c::crc32c_append(self.file_crc, &self.buffer);
        self.buffer.clear();
        Ok(())
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> WalError + use<> {
        let location = self.storage.location(&self.unfinished);
        // The file goes, so another attempt needs at least as much as this one had.
        let needed_bytes = self.written + self.buffer.len() as u64;
        move |error| failure(action, location, needed_bytes, error)
    }
}

/// The log is usable whatever becomes of a snapshot: where there is no room, another one can be
/// tried later.
pub(crate) fn failure(
    action: &'static str,
    file: String,
    needed_bytes: u64,
    error: std::io::Error,
) -> WalError {
    if is_no_room(&error) {
        return WalError::NoSpace {
            file,
            needed_bytes,
            retryable: true,
        };
    }
    WalError::io(action, file, error)
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if !self.is_named {
            discard(self.storage.as_ref(), &self.unfinished);
        }
    }
}

//! Writes the bytes of a snapshot's file as they come from another server. The file gets the name
//! of a received snapshot only whole, verified and durable.

use std::sync::Arc;

use super::{
    Chunk, FIXED_BYTES, MAX_MEMBERSHIP_BYTES, SnapshotFileId, SnapshotInfo, SnapshotMeta,
    check_origin, create_file, decode_header, header_length,
};
use crate::error::WalError;
use crate::file_names::received_name;
use crate::snapshot::reader::SnapshotReader;
use crate::storage::Storage;
use crate::unfinished_file::UnfinishedFile;

/// The remedy for bytes that are not what was announced.
const SEND_AGAIN: &str = "the unfinished file is removed, and the snapshot has to be sent again";

/// A snapshot's file that comes from another server.
#[derive(Debug)]
pub struct RawSnapshotWriter {
    file: UnfinishedFile,
    cluster_id: u64,
    id: SnapshotFileId,
    /// Bytes of the header, until it is whole.
    head: Vec<u8>,
    meta: Option<SnapshotMeta>,
    crc: u32,
}

impl RawSnapshotWriter {
    pub(super) fn begin(
        storage: Arc<dyn Storage>,
        cluster_id: u64,
        id: SnapshotFileId,
    ) -> Result<RawSnapshotWriter, WalError> {
        let name = received_name(id.index, id.term);
        let file = create_file(storage, name, Some(id.bytes))?;
        Ok(RawSnapshotWriter {
            file,
            cluster_id,
            id,
            head: Vec::new(),
            meta: None,
            crc: 0,
        })
    }

    /// Bytes that were written so far: the offset of the next ones.
    pub fn written(&self) -> u64 {
        self.file.written
    }

    /// The header, once its bytes have come.
    pub fn meta(&self) -> Option<&SnapshotMeta> {
        self.meta.as_ref()
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] for more bytes than were announced, or a header that is not that of
    /// the announced snapshot; [`WalError`] when the disk refuses. The snapshot is then lost.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        let end = self.file.written.saturating_add(bytes.len() as u64);
        if end > self.id.bytes {
            return Err(self.unlike("more bytes have come than were announced"));
        }
        self.read_head(bytes)?;
        self.file.write_and_sync(bytes)?;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        Ok(())
    }

    /// Verifies the whole file, gives each of its chunks to `on_chunk`, and then makes it a
    /// received snapshot, durably. It counts for nothing until
    /// [`Wal::append_received`](crate::Wal::append_received) has put its mark into the log.
    ///
    /// # Errors
    /// [`WalError::Corrupt`] when size, checksum or format are not what was announced;
    /// [`WalError`] when the disk refuses; whatever `on_chunk` returns.
    pub fn finish<E: From<WalError>>(
        mut self,
        mut on_chunk: impl FnMut(&Chunk) -> Result<(), E>,
    ) -> Result<SnapshotInfo, E> {
        if self.file.written != self.id.bytes || self.crc != self.id.crc {
            return Err(self
                .unlike("its size or its checksum is not the announced one")
                .into());
        }
        self.file.sync()?;
        let mut reader = SnapshotReader::open_as(
            self.file.storage.as_ref(),
            &self.file.unfinished,
            Some((self.id.index, self.id.term)),
            Some(self.cluster_id),
        )?;
        while let Some(chunk) = reader.next_chunk()? {
            on_chunk(&chunk)?;
        }
        let mut info = reader.verify()?;
        self.file.publish()?;
        info.name = std::mem::take(&mut self.file.name);
        Ok(info)
    }

    /// Checks the header as soon as it is whole: a file of another cluster is not received to its
    /// end.
    fn read_head(&mut self, bytes: &[u8]) -> Result<(), WalError> {
        if self.meta.is_some() {
            return Ok(());
        }
        let room = (FIXED_BYTES + MAX_MEMBERSHIP_BYTES).saturating_sub(self.head.len());
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.head.extend_from_slice(taken);
        if self.head.len() < FIXED_BYTES {
            return Ok(());
        }
        let location = self.file.location();
        let length = header_length(&location, &self.head)?;
        let Some(header) = self.head.get(..length) else {
            return Ok(());
        };
        let (found, meta, _) = decode_header(&location, header)?;
        let point = Some((self.id.index, self.id.term));
        check_origin(&location, (found, &meta), Some(self.cluster_id), point)?;
        self.meta = Some(meta);
        self.head = Vec::new();
        Ok(())
    }

    fn unlike(&self, what: &str) -> WalError {
        let location = self.file.location();
        WalError::corrupt(&location, self.file.written, what, SEND_AGAIN)
    }
}

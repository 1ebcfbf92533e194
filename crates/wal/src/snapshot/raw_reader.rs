//! Reads the bytes of a snapshot's file as they are, to send them to another server.

use bytes::Bytes;

use super::{
    CHUNK_HEADER_BYTES, FOOTER_BYTES, FOOTER_KIND, Footer, SnapshotFileId, chunk_crc,
    decode_chunk_header,
};
use crate::bytes_at::{u32_at, u64_at};
use crate::error::{RESTORE_SNAPSHOT, WalError};
use crate::snapshot::reader::SnapshotReader;
use crate::storage::{Storage, StorageFile};

/// A snapshot's file that is read in pieces of any size.
#[derive(Debug)]
pub struct RawSnapshotReader {
    file: Box<dyn StorageFile>,
    location: String,
    id: SnapshotFileId,
}

impl RawSnapshotReader {
    /// Reads header and footer. The footer's checksum of all bytes before it gives the checksum of
    /// the whole file, which is not read for that.
    pub(super) fn open(
        storage: &dyn Storage,
        name: &str,
        cluster_id: u64,
    ) -> Result<RawSnapshotReader, WalError> {
        let (file, location, meta, header_crc) =
            SnapshotReader::open(storage, name, Some(cluster_id))?.into_parts();
        let failed = |action| {
            let location = location.clone();
            move |error| WalError::io(action, location, error)
        };
        let bytes = file.len().map_err(failed("measure"))?;
        let mut last = [0; CHUNK_HEADER_BYTES + FOOTER_BYTES];
        let at = bytes.saturating_sub(last.len() as u64);
        let count = file.read_at(at, &mut last).map_err(failed("read"))?;
        let (header, payload) = last.split_at(CHUNK_HEADER_BYTES);
        let fields = decode_chunk_header(header);
        let is_footer = matches!(fields, Some((FOOTER_BYTES, FOOTER_KIND, _)))
            && count == last.len()
            && chunk_crc(header_crc, header, payload) == u32_at(header, 12);
        if !is_footer {
            return Err(WalError::corrupt(
                &location,
                at,
                "the file does not end with a footer",
                RESTORE_SNAPSHOT,
            ));
        }
        let footer = Footer {
            chunks: u64_at(payload, 0),
            content_bytes: u64_at(payload, 8),
            file_crc: u32_at(payload, 16),
        };
        let id = SnapshotFileId {
            index: meta.index,
            term: meta.term,
            bytes,
            crc: crc32c::crc32c_append(footer.file_crc, &last),
        };
        Ok(RawSnapshotReader { file, location, id })
    }

    /// Identity that a receiver needs before the first byte.
    pub fn id(&self) -> SnapshotFileId {
        self.id
    }

    /// The bytes from `offset` on, up to `most_bytes` of them; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`WalError`] when the file cannot be read or has become shorter.
    pub fn read(&self, offset: u64, most_bytes: usize) -> Result<Bytes, WalError> {
        let left = self.id.bytes.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(most_bytes);
        let mut piece = vec![0; wanted];
        let count = self
            .file
            .read_at(offset, &mut piece)
            .map_err(|error| WalError::io("read", self.location.clone(), error))?;
        if count < wanted {
            return Err(WalError::corrupt(
                &self.location,
                offset,
                "the file has become shorter",
                RESTORE_SNAPSHOT,
            ));
        }
        Ok(Bytes::from(piece))
    }
}

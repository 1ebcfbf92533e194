//! Snapshot files: what their first bytes say, and where they are kept.
//!
//! A snapshot is written under another name and becomes one only whole and durable. This module
//! never looks into a chunk; the tree's own format is in there (`docs/internals/format.md`,
//! "Snapshot content").

mod pins;
mod raw_reader;
mod raw_writer;
mod reader;
mod writer;

use std::sync::Arc;

use bytes::Bytes;

use crate::FORMAT_VERSION;
use crate::bytes_at::{all_zero, padded, put, u32_at, u64_at};
use crate::error::{RESTORE_SNAPSHOT, WalError, check_version};
use crate::file_names::{
    UNFINISHED_SUFFIX, received_name, received_point, snapshot_name, snapshot_point,
};
use crate::storage::Storage;
use crate::unfinished_file::{UnfinishedFile, storage_failure};
use crate::whole_file;

pub(crate) use pins::Pins;
pub use pins::SnapshotPin;
pub use raw_reader::RawSnapshotReader;
pub use raw_writer::RawSnapshotWriter;
pub use reader::{Chunk, SnapshotReader};
pub use writer::SnapshotWriter;

/// The most bytes of one chunk: 16 MiB.
pub const MAX_CHUNK_BYTES: usize = 16 << 20;

const MAGIC: &[u8; 8] = b"BATONSNP";
const FIXED_BYTES: usize = 64;
const MAX_MEMBERSHIP_BYTES: usize = 64 << 10;
const CHUNK_HEADER_BYTES: usize = 16;
/// The kind of the chunk that ends a snapshot.
const FOOTER_KIND: u8 = 255;
const FOOTER_BYTES: usize = 24;

/// Header of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last entry in it.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// The last zxid in it; carried for people, not used by the log.
    pub zxid: i64,
    /// The time when it was begun, in milliseconds since 1970; carried for people.
    pub time_ms: i64,
    /// Members, as the consensus layer writes them.
    pub membership: Bytes,
}

/// A snapshot file that was read to its end and found whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The file's name in the data folder.
    pub name: String,
    /// Its header.
    pub meta: SnapshotMeta,
    /// Number of chunks, without the footer.
    pub chunks: u64,
    /// Number of bytes that its chunks carry.
    pub content_bytes: u64,
    /// Length of the file, in bytes.
    pub file_bytes: u64,
}

/// Identity of a snapshot's file, to its last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotFileId {
    /// The last entry in the snapshot.
    pub index: u64,
    /// That entry's term.
    pub term: u64,
    /// Length of the file, in bytes.
    pub bytes: u64,
    /// CRC-32C of the file.
    pub crc: u32,
}

/// The snapshots of one data folder. Clones are handles on the same files, so that another thread
/// can write a snapshot while the log goes on.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    storage: Arc<dyn Storage>,
    cluster_id: u64,
    pins: Pins,
}

impl SnapshotStore {
    pub(crate) fn new(storage: Arc<dyn Storage>, cluster_id: u64, pins: Pins) -> SnapshotStore {
        SnapshotStore {
            storage,
            cluster_id,
            pins,
        }
    }

    /// Begins a snapshot; it is not there before [`SnapshotWriter::finish`].
    ///
    /// # Errors
    /// [`WalError`] when the file cannot be made.
    pub fn writer(&self, meta: SnapshotMeta) -> Result<SnapshotWriter, WalError> {
        let name = snapshot_name(meta.index, meta.term);
        SnapshotWriter::begin(Arc::clone(&self.storage), self.cluster_id, meta, name)
    }

    /// Begins a snapshot that comes from another server. Once finished it is durable, and counts
    /// for nothing until [`Wal::append_received`](crate::Wal::append_received) has put its mark
    /// into the log; a start discards it without that mark.
    ///
    /// # Errors
    /// [`WalError`] when the file cannot be made.
    pub fn receiver(&self, meta: SnapshotMeta) -> Result<SnapshotWriter, WalError> {
        let name = received_name(meta.index, meta.term);
        SnapshotWriter::begin(Arc::clone(&self.storage), self.cluster_id, meta, name)
    }

    /// [`receiver`](SnapshotStore::receiver) for the bytes of the other server's file. What an
    /// earlier writer of this snapshot has left is removed.
    ///
    /// # Errors
    /// [`WalError`] when the file cannot be made.
    pub fn raw_writer(&self, id: SnapshotFileId) -> Result<RawSnapshotWriter, WalError> {
        RawSnapshotWriter::begin(Arc::clone(&self.storage), self.cluster_id, id)
    }

    /// Keeps the snapshot of this index and term, and the log after it, while the pin lives. Does
    /// no I/O, so the snapshot may be missing: [`raw_reader`](SnapshotStore::raw_reader) says so.
    pub fn pin(&self, index: u64, term: u64) -> SnapshotPin {
        self.pins.hold(index, term)
    }

    /// Opens a pinned snapshot to read its bytes as they are.
    ///
    /// # Errors
    /// [`WalError`] when it is not there, its header or footer is damaged, or it is of another
    /// version or cluster.
    pub fn raw_reader(&self, pin: &SnapshotPin) -> Result<RawSnapshotReader, WalError> {
        let name = snapshot_name(pin.index(), pin.term());
        RawSnapshotReader::open(self.storage.as_ref(), &name, self.cluster_id)
    }

    /// Reads a pinned snapshot to its end.
    ///
    /// # Errors
    /// As [`verify`](SnapshotStore::verify).
    pub fn verify_pinned(&self, pin: &SnapshotPin) -> Result<SnapshotInfo, WalError> {
        self.verify(&snapshot_name(pin.index(), pin.term()))
    }

    /// Removes a received snapshot that is not needed after all.
    ///
    /// # Errors
    /// [`WalError::Io`] when the file cannot be removed.
    pub fn discard_received(&self, received: &SnapshotInfo) -> Result<(), WalError> {
        let name = received_name(received.meta.index, received.meta.term);
        whole_file::remove_if_there(self.storage.as_ref(), &name)
            .map_err(|error| WalError::io("remove", self.storage.location(&name), error))
    }

    /// Opens a snapshot to read its chunks; each is checked as it comes.
    ///
    /// # Errors
    /// [`WalError`] when it is not there, damaged, or of another version or cluster.
    pub fn reader(&self, name: &str) -> Result<SnapshotReader, WalError> {
        SnapshotReader::open(self.storage.as_ref(), name, Some(self.cluster_id))
    }

    /// The names of all snapshots, newest first; none of them is opened.
    ///
    /// # Errors
    /// [`WalError::Io`] when the folder cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, WalError> {
        names(self.storage.as_ref())
    }

    /// Reads a snapshot to its end.
    ///
    /// # Errors
    /// [`WalError`] when any byte of it is not as it was written.
    pub fn verify(&self, name: &str) -> Result<SnapshotInfo, WalError> {
        self.reader(name)?.verify()
    }
}

/// The names of all snapshots, newest first.
pub(crate) fn names(storage: &dyn Storage) -> Result<Vec<String>, WalError> {
    names_with(storage, snapshot_point)
}

/// The names of all received snapshots, newest first.
pub(crate) fn received_names(storage: &dyn Storage) -> Result<Vec<String>, WalError> {
    names_with(storage, received_point)
}

fn names_with(
    storage: &dyn Storage,
    point_in: impl Fn(&str) -> Option<(u64, u64)>,
) -> Result<Vec<String>, WalError> {
    let mut names = storage
        .list()
        .map_err(|error| WalError::io("list", storage.location(""), error))?;
    names.retain(|name| point_in(name).is_some());
    names.sort_by_key(|name| std::cmp::Reverse(point_in(name)));
    Ok(names)
}

/// Creates the file of a snapshot called `name`, in place of an unfinished one.
fn create_file(
    storage: Arc<dyn Storage>,
    name: String,
    expected_bytes: Option<u64>,
) -> Result<UnfinishedFile, WalError> {
    let unfinished = format!("{name}{UNFINISHED_SUFFIX}");
    let location = storage.location(&unfinished);
    whole_file::remove_if_there(storage.as_ref(), &unfinished)
        .map_err(|error| WalError::io("remove", location.clone(), error))?;
    UnfinishedFile::create(storage, name, unfinished, expected_bytes)
        .map_err(|error| storage_failure("create", location, 0, error))
}

/// The header's bytes and their checksum.
fn encode_header(cluster_id: u64, meta: &SnapshotMeta) -> (Vec<u8>, u32) {
    let mut bytes = vec![0; FIXED_BYTES + padded(meta.membership.len())];
    put(&mut bytes, 0, MAGIC);
    put(&mut bytes, 8, &FORMAT_VERSION.to_le_bytes());
    put(&mut bytes, 16, &cluster_id.to_le_bytes());
    put(&mut bytes, 24, &meta.index.to_le_bytes());
    put(&mut bytes, 32, &meta.term.to_le_bytes());
    put(&mut bytes, 40, &meta.zxid.to_le_bytes());
    put(&mut bytes, 48, &meta.time_ms.to_le_bytes());
    let length = u32::try_from(meta.membership.len()).unwrap_or(u32::MAX);
    put(&mut bytes, 56, &length.to_le_bytes());
    put(&mut bytes, FIXED_BYTES, &meta.membership);
    let crc = crc32c::crc32c(&bytes);
    put(&mut bytes, 12, &crc.to_le_bytes());
    (bytes, crc)
}

/// Length of the header; read from the fixed part, which the checksum has not been held against
/// yet.
fn header_length(location: &str, fixed: &[u8]) -> Result<usize, WalError> {
    if fixed.get(..8) != Some(MAGIC) {
        return Err(WalError::corrupt(
            location,
            0,
            "it does not begin as a snapshot",
            RESTORE_SNAPSHOT,
        ));
    }
    if fixed.len() < FIXED_BYTES {
        return Err(WalError::corrupt(
            location,
            fixed.len() as u64,
            "it ends in the middle of its header",
            RESTORE_SNAPSHOT,
        ));
    }
    check_version(location, u32_at(fixed, 8))?;
    let membership = u32_at(fixed, 56) as usize;
    if membership > MAX_MEMBERSHIP_BYTES {
        return Err(WalError::corrupt(
            location,
            56,
            "the membership field has an impossible length",
            RESTORE_SNAPSHOT,
        ));
    }
    Ok(FIXED_BYTES + padded(membership))
}

/// Reads a whole header: cluster, meta, and the checksum that the chunks build on.
fn decode_header(location: &str, bytes: &[u8]) -> Result<(u64, SnapshotMeta, u32), WalError> {
    let cluster_id = u64_at(bytes, 16);
    let length = u32_at(bytes, 56) as usize;
    let meta = SnapshotMeta {
        index: u64_at(bytes, 24),
        term: u64_at(bytes, 32),
        zxid: u64_at(bytes, 40).cast_signed(),
        time_ms: u64_at(bytes, 48).cast_signed(),
        membership: Bytes::copy_from_slice(
            bytes
                .get(FIXED_BYTES..FIXED_BYTES + length)
                .unwrap_or_default(),
        ),
    };
    let (expected, crc) = encode_header(cluster_id, &meta);
    if bytes != expected {
        return Err(WalError::corrupt(
            location,
            12,
            "the snapshot header does not match its checksum",
            RESTORE_SNAPSHOT,
        ));
    }
    Ok((cluster_id, meta, crc))
}

/// Refuses the header of a snapshot of another cluster, where one is expected, or of another index
/// and term.
fn check_origin(
    location: &str,
    (found, meta): (u64, &SnapshotMeta),
    cluster_id: Option<u64>,
    point: Option<(u64, u64)>,
) -> Result<(), WalError> {
    if let Some(expected) = cluster_id.filter(|expected| *expected != found) {
        return Err(WalError::WrongCluster {
            file: location.to_owned(),
            found,
            expected,
        });
    }
    if point != Some((meta.index, meta.term)) {
        return Err(WalError::corrupt(
            location,
            24,
            format!(
                "it says it is of entry {} in term {}",
                meta.index, meta.term
            ),
            "give the file back its own name",
        ));
    }
    Ok(())
}

/// A chunk's header with its checksum; `payload` is what follows, without padding.
fn encode_chunk_header(
    header_crc: u32,
    sequence: u32,
    kind: u8,
    payload: &[u8],
) -> [u8; CHUNK_HEADER_BYTES] {
    let mut header = [0; CHUNK_HEADER_BYTES];
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    put(&mut header, 0, &length.to_le_bytes());
    put(&mut header, 4, &[kind]);
    put(&mut header, 8, &sequence.to_le_bytes());
    let crc = chunk_crc(header_crc, &header, payload);
    put(&mut header, 12, &crc.to_le_bytes());
    header
}

fn chunk_crc(header_crc: u32, header: &[u8], payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&header_crc.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, header.get(..12).unwrap_or_default());
    crc32c::crc32c_append(crc, payload)
}

/// Length, kind and sequence of a chunk; `None` when its fixed fields are impossible.
fn decode_chunk_header(header: &[u8]) -> Option<(usize, u8, u32)> {
    let length = u32_at(header, 0) as usize;
    let kind = *header.get(4)?;
    (length <= MAX_CHUNK_BYTES && all_zero(header.get(5..8)?)).then_some((
        length,
        kind,
        u32_at(header, 8),
    ))
}

/// Footer of a snapshot: counts, and the checksum over every byte before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Footer {
    chunks: u64,
    content_bytes: u64,
    file_crc: u32,
}

impl Footer {
    fn encode(self) -> [u8; FOOTER_BYTES] {
        let mut bytes = [0; FOOTER_BYTES];
        put(&mut bytes, 0, &self.chunks.to_le_bytes());
        put(&mut bytes, 8, &self.content_bytes.to_le_bytes());
        put(&mut bytes, 16, &self.file_crc.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FaultStorage;

    #[test]
    fn a_chunk_header_that_no_writer_makes_is_refused() {
        let header = |length: usize, unused: u8| {
            let mut header = [0; CHUNK_HEADER_BYTES];
            put(
                &mut header,
                0,
                &u32::try_from(length).unwrap().to_le_bytes(),
            );
            put(&mut header, 4, &[9, 0, 0, unused]);
            put(&mut header, 8, &3_u32.to_le_bytes());
            decode_chunk_header(&header)
        };
        assert_eq!(header(MAX_CHUNK_BYTES, 0), Some((MAX_CHUNK_BYTES, 9, 3)));
        assert_eq!(header(MAX_CHUNK_BYTES + 1, 0), None);
        assert_eq!(header(1, 1), None);
    }

    #[test]
    fn a_footer_that_does_not_fit_what_came_before_it_or_is_not_the_end_is_refused() {
        let disk = FaultStorage::new();
        let store = SnapshotStore::new(Arc::new(disk.clone()), 7, Pins::default());
        let meta = SnapshotMeta {
            index: 5,
            term: 1,
            zxid: 5,
            time_ms: 6,
            membership: Bytes::new(),
        };
        let (_, header_crc) = encode_header(7, &meta);
        let mut writer = store.writer(meta).unwrap();
        writer.chunk(1, b"payload").unwrap();
        let name = writer.finish().unwrap().name;
        let written = disk.content(&name).unwrap();
        let (before, _) = written.split_at(written.len() - CHUNK_HEADER_BYTES - FOOTER_BYTES);
        let right = Footer {
            chunks: 1,
            content_bytes: 7,
            file_crc: crc32c::crc32c(before),
        };
        // Each footer is whole, with a checksum of its own.
        let with = |footer: Footer, behind: &[u8]| {
            let footer = footer.encode();
            let header = encode_chunk_header(header_crc, 1, FOOTER_KIND, &footer);
            disk.put(&name, &[before, &header, &footer, behind].concat());
            store.verify(&name)
        };
        with(right, b"").unwrap();
        assert_eq!(disk.content(&name).unwrap(), written);
        let (chunks, content_bytes, file_crc) = (2, 8, !right.file_crc);
        for footer in [
            Footer { chunks, ..right },
            Footer {
                content_bytes,
                ..right
            },
            Footer { file_crc, ..right },
        ] {
            let refused = with(footer, b"").unwrap_err().to_string();
            assert!(refused.contains("does not match what came"), "{refused}");
        }
        let refused = with(right, &[0; 8]).unwrap_err().to_string();
        assert!(refused.contains("bytes follow the footer"), "{refused}");
    }
}

//! Reading a snapshot file. Owns its layout, from the header to the seals, and the check of each seal against every
//! byte before it.

use std::io::Read;

use baton_proto::{Acl, DecodeError, Decoder, Limits};
use simd_adler32::Adler32;

use crate::database::{Database, Node, OPEN_ACL, Persisted, StoredDigest};
use crate::digest;
use crate::error::ZkDataError;

/// "ZKSN", version 2.
pub(crate) const HEADER: [u8; 8] = *b"ZKSN\0\0\0\x02";
/// The file header's length: magic, version, and a number without meaning.
pub(crate) const HEADER_BYTES: usize = 16;
/// What ends a seal, and so a snapshot.
pub(crate) const END: [u8; 5] = *b"\0\0\0\x01/";
/// A checksum and the string that follows it.
const SEAL_BYTES: usize = 13;
/// A section with a last zxid alone, and its seal.
const LAST_ZXID_BYTES: usize = 8 + SEAL_BYTES;
/// The most that a compressed snapshot may grow to.
const MAX_DECOMPRESSED_BYTES: u64 = 64 << 30;
const REMEDY: &str = "restore it from a copy, or move it away to use an older snapshot";
pub(crate) const LIMITS: Limits = Limits::with_max_frame_bytes(i32::MAX as usize);

/// Reads the snapshot that `file` names and `content` holds, compressed if the name says so; `zxid` is that of the name.
///
/// # Errors
/// [`ZkDataError::Unfinished`] when ZooKeeper never finished it, others when it is not as ZooKeeper wrote it.
pub fn read_snapshot(file: &str, zxid: i64, content: Vec<u8>) -> Result<Database, ZkDataError> {
    if file.ends_with(".snappy") {
        return Err(ZkDataError::Snappy {
            file: file.to_owned(),
        });
    }
    let content = if file.ends_with(".gz") {
        decompress(file, &content)?
    } else {
        content
    };
    let unfinished = || ZkDataError::Unfinished {
        file: file.to_owned(),
    };
    if content.len() < HEADER_BYTES + SEAL_BYTES {
        return Err(unfinished());
    }
    if !content.starts_with(&HEADER) {
        return Err(ZkDataError::NotOne {
            file: file.to_owned(),
            what: "snapshot",
        });
    }
    if !content.ends_with(&END) {
        return Err(unfinished());
    }
    let mut reader = Snapshot {
        file,
        content: &content,
        from: Decoder::new(content.get(HEADER_BYTES..).unwrap_or_default(), &LIMITS),
        sum: Adler32::new(),
        summed: 0,
    };
    let mut database = Database {
        zxid,
        ..Database::default()
    };
    reader
        .sessions(&mut database)
        .map_err(|error| reader.failed(&error))?;
    reader
        .acls(&mut database)
        .map_err(|error| reader.failed(&error))?;
    reader.nodes(&mut database)?;
    reader.seal()?;
    reader.sections(&mut database)?;
    Ok(database)
}

fn decompress(file: &str, content: &[u8]) -> Result<Vec<u8>, ZkDataError> {
    let mut out = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(content)
        .take(MAX_DECOMPRESSED_BYTES)
        .read_to_end(&mut out);
    match read {
        Ok(_) => Ok(out),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(ZkDataError::Unfinished {
                file: file.to_owned(),
            })
        }
        Err(error) => Err(ZkDataError::Gzip {
            file: file.to_owned(),
            reason: error.to_string(),
        }),
    }
}

struct Snapshot<'a> {
    file: &'a str,
    content: &'a [u8],
    from: Decoder<'a>,
    sum: Adler32,
    /// How many bytes are in `sum`.
    summed: usize,
}

impl Snapshot<'_> {
    fn failed(&self, error: &DecodeError) -> ZkDataError {
        ZkDataError::record(self.file, HEADER_BYTES, error)
    }

    fn bad(&self, reason: impl Into<String>) -> ZkDataError {
        ZkDataError::Record {
            file: self.file.to_owned(),
            offset: self.at() as u64,
            reason: reason.into(),
        }
    }

    fn at(&self) -> usize {
        HEADER_BYTES + self.from.offset()
    }

    fn sessions(&mut self, database: &mut Database) -> Result<(), DecodeError> {
        for _ in 0..self
            .from
            .optional_count(12, "count of sessions")?
            .unwrap_or(0)
        {
            let id = self.from.i64("session id")?;
            database
                .sessions
                .insert(id, self.from.i32("session timeout")?);
        }
        Ok(())
    }

    fn acls(&mut self, database: &mut Database) -> Result<(), DecodeError> {
        for _ in 0..self.from.optional_count(12, "count of ACLs")?.unwrap_or(0) {
            let number = self.from.i64("ACL number")?;
            let acl = Acl::decode_list(&mut self.from, "ACL")?.unwrap_or_default();
            database.set_acl_number(number, acl.into_iter().map(Acl::into_owned).collect());
        }
        Ok(())
    }

    fn nodes(&mut self, database: &mut Database) -> Result<(), ZkDataError> {
        loop {
            let path = self
                .from
                .string("path")
                .map_err(|error| self.failed(&error))?;
            let path = match path {
                "/" => break,
                "" => "/",
                path => path,
            };
            let node = self.node().map_err(|error| self.failed(&error))?;
            if path != "/" && !path.starts_with('/') {
                return Err(self.bad(format!("the znode {path:?} has no absolute path")));
            }
            let parent = baton_proto::path::parent(path);
            if path != "/" && !database.nodes.contains_key(parent) {
                return Err(self.bad(format!("the znode {path:?} comes before its parent")));
            }
            if database.nodes.contains_key(path) {
                return Err(self.bad(format!("the znode {path:?} is there twice")));
            }
            database.insert(path, node);
        }
        if database.nodes.is_empty() {
            return Err(self.bad("there is no root znode"));
        }
        Ok(())
    }

    fn node(&mut self) -> Result<Node, DecodeError> {
        let from = &mut self.from;
        Ok(Node {
            data: from.buffer("data")?.map(Box::from),
            acl: match from.i64("ACL number")? {
                number if number < 0 => OPEN_ACL,
                number => number,
            },
            stat: Persisted {
                czxid: from.i64("czxid")?,
                mzxid: from.i64("mzxid")?,
                ctime: from.i64("ctime")?,
                mtime: from.i64("mtime")?,
                version: from.i32("version")?,
                cversion: from.i32("cversion")?,
                aversion: from.i32("aversion")?,
                owner: from.i64("ephemeralOwner")?,
                pzxid: from.i64("pzxid")?,
            },
        })
    }

    /// A checksum over all bytes of the file before it.
    fn seal(&mut self) -> Result<(), ZkDataError> {
        let at = self.at();
        self.sum
            .write(self.content.get(self.summed..at).unwrap_or_default());
        self.summed = at;
        let computed = u64::from(self.sum.finish());
        let stored = self
            .from
            .i64("checksum")
            .map_err(|error| self.failed(&error))? as u64;
        if stored != computed {
            return Err(ZkDataError::Checksum {
                file: self.file.to_owned(),
                offset: at as u64,
                stored,
                computed,
                remedy: REMEDY,
            });
        }
        match self
            .from
            .string("end mark")
            .map_err(|error| self.failed(&error))?
        {
            "/" => Ok(()),
            _ => Err(self.bad("the end mark is another")),
        }
    }

    /// What later versions put after the tree: the digest, then the last zxid, each with a seal of its own.
    fn sections(&mut self, database: &mut Database) -> Result<(), ZkDataError> {
        let rest = self.from.rest().len();
        if rest > 0 && rest != LAST_ZXID_BYTES {
            let (zxid, value) = self.stored_digest().map_err(|error| self.failed(&error))?;
            self.seal()?;
            if let Some(value) = value.filter(|_| zxid > 0 && zxid >= database.zxid) {
                let file = self.file.to_owned();
                database.awaited = Some(StoredDigest { zxid, value, file });
            }
        }
        if !self.from.is_empty() {
            // Only tells what the transactions after the file name's zxid tell again.
            self.from
                .i64("last zxid")
                .map_err(|error| self.failed(&error))?;
            self.seal()?;
        }
        if self.from.is_empty() {
            Ok(())
        } else {
            Err(self.bad("there are bytes after the end"))
        }
    }

    fn stored_digest(&mut self) -> Result<(i64, Option<i64>), DecodeError> {
        let zxid = self.from.i64("digest zxid")?;
        let version = self.from.i32("digest version")?;
        if version < 2 {
            self.from.optional_string("digest")?;
            return Ok((zxid, None));
        }
        let value = self.from.i64("digest")?;
        Ok((zxid, (version == digest::VERSION).then_some(value)))
    }
}

//! Reading a snapshot file. Owns its layout, from the header to the seals, and the check of each
//! seal against every byte before it.

use std::io::Read;

use baton_proto::{Acl, DecodeError, Decoder};

use crate::compressed::decompressed;
use crate::database::{Database, Node, OPEN_ACL, PersistedStat, StoredDigest};
use crate::digest;
use crate::error::ZkDataError;
use crate::input::Input;

/// "ZKSN", version 2.
pub(crate) const HEADER: [u8; 8] = *b"ZKSN\0\0\0\x02";
/// The file header's length: magic, version, and a number without meaning.
const HEADER_BYTES: usize = 16;
/// Last bytes of a seal, and so of a snapshot.
pub(crate) const END: [u8; 5] = *b"\0\0\0\x01/";
/// A checksum and the string that follows it.
const SEAL_BYTES: usize = 13;
/// A section with a last zxid alone, and its seal.
const LAST_ZXID_BYTES: usize = 8 + SEAL_BYTES;
const REMEDY: &str = "restore it from a copy, or move it away: an older snapshot with the logs since then has the same data";

/// Reads the snapshot that `file` names, from its begin to its end, decompressing it if the name
/// says that it is compressed (`.gz`, `.snappy`); `zxid` is that of the name. What is kept in
/// memory is the znodes.
///
/// # Errors
/// [`ZkDataError::Unfinished`] when ZooKeeper never finished it, [`ZkDataError::Unreadable`] when
/// `from` fails, others when it is not as ZooKeeper wrote it.
pub fn read_snapshot(file: &str, zxid: i64, from: impl Read) -> Result<Database, ZkDataError> {
    let mut reader = Snapshot {
        file,
        from: Input::new(file, REMEDY, decompressed(file, from)),
    };
    reader.database(zxid).or_else(|error| match error {
        ZkDataError::Record { .. } | ZkDataError::Checksum { .. }
            if !reader.from.ends_with(&END)? =>
        {
            Err(reader.unfinished())
        }
        error => Err(error),
    })
}

/// Returns whether a file that begins with these bytes is a snapshot of ZooKeeper's, as far as they
/// show.
#[must_use]
pub fn is_snapshot(head: &[u8]) -> bool {
    head.starts_with(&HEADER)
}

/// [`read_snapshot`] of the form that the admin command `snapshot` of ZooKeeper 3.9 sends: its last
/// zxid is inside, whatever the file is called.
///
/// # Errors
/// [`ZkDataError::NoLastZxid`] when there is none; otherwise as [`read_snapshot`].
pub fn read_streamed_snapshot(file: &str, from: impl Read) -> Result<Database, ZkDataError> {
    let mut database = read_snapshot(file, 0, from)?;
    database.zxid = database.last_zxid.ok_or_else(|| ZkDataError::NoLastZxid {
        file: file.to_owned(),
    })?;
    // It was read from a server that went on meanwhile, and no log behind it is replayed.
    database.awaited = None;
    Ok(database)
}

struct Snapshot<'a> {
    file: &'a str,
    from: Input<'a>,
}

impl Snapshot<'_> {
    fn unfinished(&self) -> ZkDataError {
        ZkDataError::Unfinished {
            file: self.file.to_owned(),
        }
    }

    fn database(&mut self, zxid: i64) -> Result<Database, ZkDataError> {
        if !self.from.has(HEADER_BYTES + SEAL_BYTES)? {
            return Err(self.unfinished());
        }
        if !self.from.rest().starts_with(&HEADER) {
            return Err(ZkDataError::NotOne {
                file: self.file.to_owned(),
                what: "snapshot",
            });
        }
        self.from.take(HEADER_BYTES);
        let mut database = Database {
            zxid,
            ..Database::default()
        };
        self.sessions(&mut database)?;
        self.acls(&mut database)?;
        self.nodes(&mut database)?;
        self.seal()?;
        self.sections(&mut database)?;
        Ok(database)
    }

    fn count(&mut self, field: &'static str) -> Result<i32, ZkDataError> {
        self.from.record(|from| from.i32(field))
    }

    fn sessions(&mut self, database: &mut Database) -> Result<(), ZkDataError> {
        for _ in 0..self.count("count of sessions")? {
            let (id, timeout_ms) = self
                .from
                .record(|from| Ok((from.i64("session id")?, from.i32("session timeout")?)))?;
            database.sessions.insert(id, timeout_ms);
        }
        Ok(())
    }

    fn acls(&mut self, database: &mut Database) -> Result<(), ZkDataError> {
        for _ in 0..self.count("count of ACLs")? {
            let (number, acl) = self.from.record(|from| {
                let number = from.i64("ACL number")?;
                let acl = Acl::decode_list(from, "ACL")?.unwrap_or_default();
                Ok((number, acl.into_iter().map(Acl::into_owned).collect()))
            })?;
            database.set_acl_number(number, acl);
        }
        Ok(())
    }

    fn nodes(&mut self, database: &mut Database) -> Result<(), ZkDataError> {
        while let Some((path, node)) = self.from.record(path_and_node)? {
            if path != "/" && !path.starts_with('/') {
                return Err(self
                    .from
                    .bad(0, format!("the znode {path:?} has no absolute path")));
            }
            let parent = baton_proto::path::parent(&path);
            if path != "/" && !database.nodes.contains_key(parent) {
                return Err(self
                    .from
                    .bad(0, format!("the znode {path:?} comes before its parent")));
            }
            if database.nodes.contains_key(&path) {
                return Err(self
                    .from
                    .bad(0, format!("the znode {path:?} is there twice")));
            }
            database.insert(path, node);
        }
        if database.nodes.is_empty() {
            return Err(self.from.bad(0, "there is no root znode"));
        }
        Ok(())
    }

    /// A checksum over all bytes of the file before it.
    fn seal(&mut self) -> Result<(), ZkDataError> {
        let offset = self.from.at();
        let computed = self.from.checksum();
        let stored = self.from.record(|from| from.i64("checksum"))? as u64;
        if stored != computed {
            return Err(ZkDataError::Checksum {
                file: self.file.to_owned(),
                offset,
                stored,
                computed,
                remedy: REMEDY,
            });
        }
        if self
            .from
            .record(|from| Ok(from.string("end mark")? == "/"))?
        {
            Ok(())
        } else {
            Err(self.from.bad(0, "the end mark is another"))
        }
    }

    /// Reads what later versions put after the tree: the digest, then the last zxid, each with a
    /// seal of its own.
    fn sections(&mut self, database: &mut Database) -> Result<(), ZkDataError> {
        self.from.has(LAST_ZXID_BYTES + 1)?;
        let rest = self.from.rest().len();
        if rest > 0 && rest != LAST_ZXID_BYTES {
            let (zxid, value) = self.from.record(stored_digest)?;
            self.seal()?;
            if let Some(value) = value.filter(|_| zxid > 0 && zxid >= database.zxid) {
                let file = self.file.to_owned();
                database.awaited = Some(StoredDigest { zxid, value, file });
            }
        }
        if !self.from.is_at_end()? {
            // Repeats what the transactions after the file name's zxid contain.
            let last = self.from.record(|from| from.i64("last zxid"))?;
            database.last_zxid = Some(last);
            self.seal()?;
        }
        if self.from.is_at_end()? {
            Ok(())
        } else {
            Err(self.from.bad(0, "there are bytes after the end"))
        }
    }
}

/// None at the path `/`, which ends the znodes; the root's is empty.
fn path_and_node(from: &mut Decoder<'_>) -> Result<Option<(String, Node)>, DecodeError> {
    let path = match from.string("path")? {
        "/" => return Ok(None),
        "" => "/",
        path => path,
    };
    let node = Node {
        data: from.buffer("data")?.map(Box::from),
        acl: match from.i64("ACL number")? {
            number if number < 0 => OPEN_ACL,
            number => number,
        },
        stat: PersistedStat {
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
    };
    Ok(Some((path.to_owned(), node)))
}

fn stored_digest(from: &mut Decoder<'_>) -> Result<(i64, Option<i64>), DecodeError> {
    let zxid = from.i64("digest zxid")?;
    let version = from.i32("digest version")?;
    if version < 2 {
        from.optional_string("digest")?;
        return Ok((zxid, None));
    }
    let value = from.i64("digest")?;
    Ok((zxid, (version == digest::VERSION).then_some(value)))
}

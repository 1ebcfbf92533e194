//! Writing a snapshot that ZooKeeper loads. Owns the bytes; where they go is the caller's.

use std::collections::BTreeMap;
use std::io::{self, Write};

use baton_proto::wire::{put_buffer, put_count, put_string};
use baton_proto::{Acl, Perms};
use baton_tree::{Tree, Znode};
use simd_adler32::Adler32;

use crate::database::OPEN_ACL;
use crate::digest::VERSION;
use crate::password::java_password;
use crate::snapshot::{END, HEADER};

/// The number of bytes written at once.
const CHUNK_BYTES: usize = 1 << 20;
const CONTAINER: i64 = i64::MIN;
const EXTENDED: i64 = 0xff << 56;

/// Reason why a tree cannot become a ZooKeeper snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// More children were created than ZooKeeper can count.
    #[error(
        "{creates} children were created under {path:?}, ZooKeeper counts to {}: delete it and create it again, then export",
        i32::MAX
    )]
    TooManyCreates {
        /// The parent.
        path: String,
        /// Number of creates.
        creates: i64,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Outcome of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportReport {
    /// Znodes.
    pub znodes: u64,
    /// Open sessions.
    pub sessions: u64,
    /// Sessions among them that Baton's server opened: ZooKeeper does not know their passwords, so
    /// they cannot be gone on with and end with their timeout.
    pub sessions_of_baton: u64,
    /// Znodes with a TTL, which ZooKeeper reads only with `zookeeper.extendedTypesEnabled=true`.
    pub ttls: u64,
}

/// Writes `tree` as the content of a file `snapshot.<zxid>`; the caller makes it durable.
///
/// # Errors
/// [`ExportError`]: what was written so far is worthless.
pub fn write_snapshot(tree: &Tree, out: &mut impl Write) -> Result<ExportReport, ExportError> {
    write(tree, out, false)
}

/// [`write_snapshot`] with the last zxid inside, in the form that ZooKeeper's admin command
/// `snapshot` sends and `restore` takes (3.9): there, the file's name says nothing.
///
/// # Errors
/// As [`write_snapshot`].
pub fn write_streamed_snapshot(
    tree: &Tree,
    out: &mut impl Write,
) -> Result<ExportReport, ExportError> {
    write(tree, out, true)
}

fn write(
    tree: &Tree,
    out: &mut impl Write,
    is_streamed: bool,
) -> Result<ExportReport, ExportError> {
    let mut exported = ExportReport::default();
    let mut to = ChecksumWriter {
        out,
        sum: Adler32::new(),
        waiting: Vec::new(),
    };
    to.waiting.extend_from_slice(&HEADER);
    put_i64(&mut to.waiting, -1);
    let sessions = tree.sessions();
    put_count(&mut to.waiting, sessions.len());
    for session in sessions {
        put_i64(&mut to.waiting, session.id);
        to.waiting
            .extend_from_slice(&session.timeout_ms.to_be_bytes());
        exported.sessions += 1;
        exported.sessions_of_baton += u64::from(session.password != java_password(session.id));
    }
    let acls = number_acls(tree);
    put_count(&mut to.waiting, acls.len());
    for (acl, number) in &acls {
        put_i64(&mut to.waiting, *number);
        to.waiting.extend_from_slice(acl);
    }
    tree.visit_znodes(|znode| {
        exported.znodes += 1;
        exported.ttls += u64::from(znode.owner != CONTAINER && znode.owner & EXTENDED == EXTENDED);
        put_node(&mut to.waiting, znode, &acls)?;
        to.flush_full()
    })?;
    put_string(&mut to.waiting, "/");
    to.seal()?;
    if is_streamed {
        // An empty digest: ZooKeeper compares nothing with it, and expects the zxid behind it.
        put_i64(&mut to.waiting, 0);
        to.waiting.extend_from_slice(&VERSION.to_be_bytes());
        put_i64(&mut to.waiting, 0);
        to.seal()?;
        put_i64(&mut to.waiting, tree.zxid());
        to.seal()?;
    }
    Ok(exported)
}

/// Every distinct ACL but the open one, encoded, with a number from 1.
fn number_acls(tree: &Tree) -> BTreeMap<Vec<u8>, i64> {
    let mut numbers = BTreeMap::new();
    let _ = tree.visit_znodes(|znode| {
        if !is_open(znode.acl) {
            let next = numbers.len() as i64 + 1;
            numbers.entry(encoded(znode.acl)).or_insert(next);
        }
        Ok::<(), std::convert::Infallible>(())
    });
    numbers
}

fn is_open(acl: &[Acl<'static>]) -> bool {
    match acl {
        [] => true,
        [only] => only.perms == Perms::ALL && only.scheme == "world" && only.id == "anyone",
        _ => false,
    }
}

fn encoded(acl: &[Acl<'static>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Acl::encode_list(Some(acl), &mut bytes);
    bytes
}

fn put_node(
    out: &mut Vec<u8>,
    znode: &Znode<'_>,
    acls: &BTreeMap<Vec<u8>, i64>,
) -> Result<(), ExportError> {
    let acl = if is_open(znode.acl) {
        OPEN_ACL
    } else {
        acls.get(&encoded(znode.acl)).copied().unwrap_or(OPEN_ACL)
    };
    let creates = i32::try_from(znode.creates).map_err(|_| ExportError::TooManyCreates {
        path: znode.path.to_owned(),
        creates: znode.creates,
    })?;
    put_string(out, if znode.path == "/" { "" } else { znode.path });
    put_buffer(out, znode.data);
    for word in [acl, znode.czxid, znode.mzxid, znode.ctime, znode.mtime] {
        put_i64(out, word);
    }
    for word in [znode.version, creates, znode.aversion] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    put_i64(out, znode.owner);
    put_i64(out, znode.pzxid);
    Ok(())
}

fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Bytes on their way, with the checksum of all of them.
struct ChecksumWriter<'w, W> {
    out: &'w mut W,
    sum: Adler32,
    waiting: Vec<u8>,
}

impl<W: Write> ChecksumWriter<'_, W> {
    fn flush_full(&mut self) -> Result<(), ExportError> {
        if self.waiting.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        self.sum.write(&self.waiting);
        self.out.write_all(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }

    fn seal(&mut self) -> Result<(), ExportError> {
        self.flush()?;
        put_i64(&mut self.waiting, self.sum.finish().into());
        self.waiting.extend_from_slice(&END);
        self.flush()
    }
}

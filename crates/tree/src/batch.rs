//! The payload of one log entry: what the leader decided to do, in order, and when
//! (`docs/internals/format.md`, "Log entry payload"). Owns the bytes; the reader is total, refuses
//! what it does not know, and checks the whole payload before anything of it is applied, so that no
//! replica stops in the middle of an entry. A tree of format level 1 gets version 1, any other
//! version 2; both are read.
//!
//! ```text
//! payload    := version:u8  time_ms:zigzag  identities  n:varint  record × n
//! identities := n:varint  { m:varint  { scheme:string  id:string } × m } × n
//! version 1
//!   record   := kind:u8  session:i64le  cxid:zigzag  identity:varint  body
//! version 2
//!   record   := origin | command | group | storing | stored
//!   origin   := kind:u8=8  server:varint  run:u64le  number:varint     (first, at most once)
//!   command  := kind:u8  cxid:zigzag  body              (of the group before it)
//!   group    := kind:u8=7  session:i64le  identity:varint  nonce:u64le
//!               [nonce != 0: sequence:varint]           (of the group's first command)
//!   storing  := kind:u8=10, then as a group with a nonce (from level 6 on: the first command
//!               stores the identity with its session)
//!   stored   := kind:u8=11  session:i64le  nonce:u64le  sequence:varint
//!               (from level 6 on: a group of the identity that its session stores)
//! body 1 open      := session_id:i64le  password:16 bytes  timeout_ms:zigzag
//! body 2 re-attach := as open
//! body 3 close     := session_id:i64le  reason:u8 (0 client, 1 expired)
//! body 4 write     := op:zigzag  request:bytes    (the request's body as the client sent it)
//! body 5 reap      := path:string  czxid:i64le
//! body 6 set level := level:varint                (version 2)
//! body 9 reconfigure := error:zigzag  request:bytes  (version 2, from level 3 on; error 0: none)
//! body 12 reset time := to_ms:zigzag              (version 2, from level 6 on)
//! string, bytes := len:varint  len × byte
//! ```

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use baton_proto::{OpCode, PASSWORD_BYTES};
use bytes::Bytes;

use crate::attachment::Stamp;
use crate::identity::{Identity, put_ids};
use crate::level::FormatLevel;
use crate::varint::{ReadError, Reader, put_bytes, put_i64, put_u64};

/// The newest format; all since 1 are read.
pub const BATCH_VERSION: u8 = 2;

const OPEN: u8 = 1;
const REATTACH: u8 = 2;
const CLOSE: u8 = 3;
const WRITE: u8 = 4;
const REAP: u8 = 5;
const SET_LEVEL: u8 = 6;
const GROUP: u8 = 7;
const ORIGIN: u8 = 8;
const RECONFIGURE: u8 = 9;
const GROUP_STORING: u8 = 10;
const GROUP_STORED: u8 = 11;
const RESET_TIME: u8 = 12;

/// The identity of commands whose batch lists none.
static NOBODY: Identity = Identity::anonymous();

/// Fewest bytes of a record of version 1 and of version 2.
const MIN_RECORD_BYTES: [usize; 2] = [12, 3];
/// Most bytes of an integer.
const MAX_VARINT_BYTES: usize = 10;
/// Bytes of a short write. Room is reserved for no more commands than the payload has of these.
const SHORT_WRITE_BYTES: usize = 12;

/// Server of an ensemble that made a batch, and the batch's number. That server answers the
/// commands when the entry is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The server's id.
    pub server: u64,
    /// Drawn when the server's process started.
    pub run: u64,
    /// Counts the batches of the run. A batch that was sent twice has the same number twice.
    pub number: u64,
}

/// Reason why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The client closed it.
    Client,
    /// The leader received nothing from it for its timeout.
    Expired,
}

/// One thing to do to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// A new session. Its id must not be in use, nor 0, nor `i64::MIN`, nor have the top byte 0xff:
    /// those mark other kinds of owners.
    OpenSession {
        /// The id, which the leader has chosen.
        session_id: i64,
        /// Password that a client has to present to re-attach.
        password: [u8; PASSWORD_BYTES],
        /// The negotiated timeout in milliseconds.
        timeout_ms: i32,
    },
    /// A client comes back to its session. Takes no zxid.
    ReattachSession {
        /// The session.
        session_id: i64,
        /// Password that the client presents.
        password: [u8; PASSWORD_BYTES],
        /// The timeout negotiated this time, in milliseconds.
        timeout_ms: i32,
    },
    /// The end of a session and of its ephemerals.
    CloseSession {
        /// The session.
        session_id: i64,
        /// The reason.
        reason: CloseReason,
    },
    /// A client's write.
    Write {
        /// The operation.
        op: OpCode,
        /// The body of the request, as it came.
        body: &'a [u8],
    },
    /// The server's deletion of a container or TTL znode that has become due
    /// ([`crate::Tree::reap_candidates`]).
    DeleteContainer {
        /// Path of the znode.
        path: &'a str,
        /// The zxid of its creation: a later znode of the same name is left alone.
        czxid: i64,
    },
    /// A client's `reconfig`, once the leader has looked at it. Of the server itself, the first
    /// list of the servers, which takes effect only where there is none yet.
    Reconfigure {
        /// Reason why the leader refuses, for reasons that are not in the tree: the number of an
        /// [`ErrorCode`](baton_proto::ErrorCode); 0 where it does not.
        refusal: i32,
        /// The body of the request, as it came.
        body: &'a [u8],
    },
    /// Sets the time of the tree back where it is ahead of this, with the dates of all znodes that
    /// are later. Only the server itself gives it, for an operator. Refused below level 6.
    ResetTime {
        /// Milliseconds since the Unix epoch.
        to_ms: i64,
    },
    /// Raises the format level of the tree. Refused if the tree is at a higher one. Takes no zxid.
    SetLevel(FormatLevel),
}

/// A command and who gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchItem<'a> {
    /// The session that gave the command; 0 for the server itself.
    pub session: i64,
    /// The client's number for the request (the `xid` of its header), by which the reply is
    /// addressed.
    pub cxid: i32,
    /// The place of the connection's identity in [`Batch::identities`]. `None`: it is the one that
    /// the session stores.
    pub identity: Option<u32>,
    /// Whether the session stores the identity from here on, until another connection takes it
    /// over.
    pub stores_identity: bool,
    /// The attachment that the command comes from; for an opening or a re-attachment the one that
    /// it begins. `None` for the server itself, and in batches of version 1.
    pub stamp: Option<Stamp>,
    /// The command.
    pub command: Command<'a>,
}

/// Reason why a payload is not a batch. Nothing of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A format of another version of Baton.
    #[error(
        "the log entry has payload format {0}, this version reads formats up to {BATCH_VERSION}: start the version of Baton that wrote it"
    )]
    UnknownVersion(u8),
    /// The entry raises the format level to one of a newer version of Baton.
    #[error(
        "the log entry raises the format level to {0}, this version knows levels up to {newest}: start a newer version of Baton",
        newest = FormatLevel::NEWEST.number()
    )]
    UnknownLevel(u64),
    /// The payload ends too early.
    #[error(
        "the log entry's payload ends inside the value at byte {offset}: verify the log with `baton wal verify`"
    )]
    Truncated {
        /// Begin of the unfinished value.
        offset: usize,
    },
    /// A value that is not legal.
    #[error(
        "the log entry's payload has an illegal value at byte {offset}: verify the log with `baton wal verify`"
    )]
    Invalid {
        /// Begin of the value.
        offset: usize,
    },
    /// Bytes after the last command.
    #[error(
        "the log entry's payload goes on after its last command at byte {offset}: verify the log with `baton wal verify`"
    )]
    TrailingBytes {
        /// Their begin.
        offset: usize,
    },
}

impl From<ReadError> for BatchError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Truncated(offset) => Self::Truncated { offset },
            ReadError::Invalid(offset) => Self::Invalid { offset },
        }
    }
}

/// The decoded payload of one log entry; commands borrow from its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<'a> {
    time_ms: i64,
    origin: Option<Origin>,
    identities: Vec<Identity>,
    items: Vec<BatchItem<'a>>,
}

impl<'a> Batch<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// [`BatchError`]: the bytes are not a whole batch of a known version, and nothing else.
    pub fn decode(payload: &'a [u8]) -> Result<Self, BatchError> {
        let mut from = Reader::new(payload);
        let version = from.u8()?;
        let min_record_bytes = usize::from(version)
            .checked_sub(1)
            .and_then(|known| MIN_RECORD_BYTES.get(known))
            .ok_or(BatchError::UnknownVersion(version))?;
        let time_ms = from.i64()?;
        let count = from.count()?;
        let mut identities = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            identities.push(read_identity(&mut from)?);
        }
        let start = from.offset();
        let count = from.count()?;
        if count > from.remaining() / min_record_bytes {
            return Err(BatchError::Truncated { offset: start });
        }
        let likely = count.min(from.remaining() / SHORT_WRITE_BYTES);
        let mut items = Vec::with_capacity(likely);
        let mut group = None;
        let mut origin = None;
        for record in 0..count {
            if version == 1 {
                items.push(read_item(&mut from, identities.len())?);
            } else if record == 0 && from.peek() == Some(ORIGIN) {
                origin = Some(read_origin(&mut from)?);
            } else if let Some(item) = read_record(&mut from, identities.len(), &mut group)? {
                items.push(item);
            }
        }
        if from.remaining() > 0 {
            return Err(BatchError::TrailingBytes {
                offset: from.offset(),
            });
        }
        Ok(Self {
            time_ms,
            origin,
            identities,
            items,
        })
    }

    /// The payload with another time: a leader gives its own to what other servers have made.
    ///
    /// # Errors
    /// [`BatchError`]: it does not begin as a batch does.
    pub fn stamped(payload: &Bytes, time_ms: i64) -> Result<Bytes, BatchError> {
        let mut from = Reader::new(payload);
        let version = from.u8()?;
        if from.i64()? == time_ms {
            return Ok(payload.clone());
        }
        let behind = payload.get(from.offset()..).unwrap_or_default();
        let mut out = Vec::with_capacity(payload.len() + MAX_VARINT_BYTES);
        out.push(version);
        put_i64(&mut out, time_ms);
        out.extend_from_slice(behind);
        Ok(out.into())
    }

    /// The server that made the batch; `None` where a server stands alone, and in batches that a
    /// leader makes by itself.
    #[must_use]
    pub const fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// The time that the leader has given to the batch, in milliseconds since the Unix epoch: the
    /// only one that the tree knows.
    #[must_use]
    pub const fn time_ms(&self) -> i64 {
        self.time_ms
    }

    /// The commands, in the order in which they are to be applied.
    #[must_use]
    pub fn items(&self) -> &[BatchItem<'a>] {
        &self.items
    }

    /// The number of znodes that the batch adds to the tree at most, less those that it deletes;
    /// what is in a multi is not counted.
    #[must_use]
    pub fn growth(&self) -> i64 {
        let growth = |item: &BatchItem<'_>| match item.command {
            Command::Write { op, .. } => match op {
                OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => 1,
                OpCode::Delete | OpCode::DeleteContainer => -1,
                _ => 0,
            },
            _ => 0,
        };
        self.items.iter().map(growth).sum()
    }

    /// The distinct identities of the batch.
    #[must_use]
    pub fn identities(&self) -> &[Identity] {
        &self.identities
    }

    /// The commands with the identities that gave them, in order; the anonymous one where the
    /// session stores the identity.
    #[allow(clippy::expect_used, reason = "decode refuses indices out of range")]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&BatchItem<'a>, &Identity)> {
        self.items.iter().map(|item| {
            let place = item.identity.map(|place| place as usize);
            let identity = place.map(|place| self.identities.get(place));
            let identity = identity.map(|listed| listed.expect("checked when decoded"));
            (item, identity.unwrap_or(&NOBODY))
        })
    }
}

fn read_identity(from: &mut Reader<'_>) -> Result<Identity, BatchError> {
    let mut identity = Identity::anonymous();
    for _ in 0..from.count()? {
        let scheme = from.str()?;
        let id = from.str()?;
        identity.add(scheme, id);
    }
    Ok(identity)
}

/// The record that says who made the batch.
fn read_origin(from: &mut Reader<'_>) -> Result<Origin, BatchError> {
    from.u8()?;
    Ok(Origin {
        server: from.u64()?,
        run: u64::from_le_bytes(from.array()?),
        number: from.u64()?,
    })
}

/// A record of version 1.
fn read_item<'a>(from: &mut Reader<'a>, identities: usize) -> Result<BatchItem<'a>, BatchError> {
    let kind_at = from.offset();
    let kind = from.u8()?;
    if kind >= SET_LEVEL {
        return Err(BatchError::Invalid { offset: kind_at });
    }
    let session = from.fixed_i64()?;
    let cxid = from.i32()?;
    let identity = read_place(from, identities)?;
    Ok(BatchItem {
        session,
        cxid,
        identity: Some(identity),
        stores_identity: false,
        stamp: None,
        command: read_body(from, kind, kind_at)?,
    })
}

/// Common part of the commands of a group, and the number of its next one.
struct Group {
    session: i64,
    identity: Option<u32>,
    /// Whether the next command stores it.
    stores_identity: bool,
    nonce: Option<NonZeroU64>,
    sequence: u64,
}

/// A record of version 2; `None` if it begins a group, which is then `group`.
fn read_record<'a>(
    from: &mut Reader<'a>,
    identities: usize,
    group: &mut Option<Group>,
) -> Result<Option<BatchItem<'a>>, BatchError> {
    let kind_at = from.offset();
    let kind = from.u8()?;
    if matches!(kind, GROUP | GROUP_STORING | GROUP_STORED) {
        let session = from.fixed_i64()?;
        let identity = match kind {
            GROUP_STORED => None,
            _ => Some(read_place(from, identities)?),
        };
        let nonce_at = from.offset();
        let nonce = NonZeroU64::new(u64::from_le_bytes(from.array()?));
        if nonce.is_none() && kind != GROUP {
            return Err(BatchError::Invalid { offset: nonce_at });
        }
        let sequence = nonce.map_or(Ok(0), |_| from.u64())?;
        *group = Some(Group {
            session,
            identity,
            stores_identity: kind == GROUP_STORING,
            nonce,
            sequence,
        });
        return Ok(None);
    }
    let Some(group) = group else {
        return Err(BatchError::Invalid { offset: kind_at });
    };
    let sequence = group.sequence;
    group.sequence = sequence
        .checked_add(1)
        .ok_or(BatchError::Invalid { offset: kind_at })?;
    Ok(Some(BatchItem {
        session: group.session,
        cxid: from.i32()?,
        identity: group.identity,
        stores_identity: std::mem::take(&mut group.stores_identity),
        stamp: group.nonce.map(|nonce| Stamp { nonce, sequence }),
        command: read_body(from, kind, kind_at)?,
    }))
}

/// The place of an identity among `identities` ones.
fn read_place(from: &mut Reader<'_>, identities: usize) -> Result<u32, BatchError> {
    let offset = from.offset();
    let place = from.u32()?;
    if place as usize >= identities {
        return Err(BatchError::Invalid { offset });
    }
    Ok(place)
}

fn read_body<'a>(
    from: &mut Reader<'a>,
    kind: u8,
    kind_at: usize,
) -> Result<Command<'a>, BatchError> {
    let offset = from.offset();
    Ok(match kind {
        OPEN => Command::OpenSession {
            session_id: from.fixed_i64()?,
            password: from.array()?,
            timeout_ms: from.i32()?,
        },
        REATTACH => Command::ReattachSession {
            session_id: from.fixed_i64()?,
            password: from.array()?,
            timeout_ms: from.i32()?,
        },
        CLOSE => Command::CloseSession {
            session_id: from.fixed_i64()?,
            reason: match from.u8()? {
                0 => CloseReason::Client,
                1 => CloseReason::Expired,
                _ => return Err(BatchError::Invalid { offset: offset + 8 }),
            },
        },
        WRITE => Command::Write {
            op: OpCode::try_from(from.i32()?).map_err(|_| BatchError::Invalid { offset })?,
            body: from.bytes()?,
        },
        REAP => Command::DeleteContainer {
            path: from.str()?,
            czxid: from.fixed_i64()?,
        },
        SET_LEVEL => {
            let number = from.u64()?;
            let level = FormatLevel::from_number(number);
            Command::SetLevel(level.ok_or(BatchError::UnknownLevel(number))?)
        }
        RESET_TIME => Command::ResetTime { to_ms: from.i64()? },
        RECONFIGURE => Command::Reconfigure {
            refusal: from.i32()?,
            body: from.bytes()?,
        },
        _ => return Err(BatchError::Invalid { offset: kind_at }),
    })
}

/// Collects the commands of one log entry, in groups of one session each.
#[derive(Debug)]
pub struct BatchBuilder {
    level: FormatLevel,
    time_ms: i64,
    identities: BTreeMap<Identity, u32>,
    identity_bytes: Vec<u8>,
    last_identity: Option<(Identity, u32)>,
    /// Session and place of the identity of the present group; `None` before the first.
    group: Option<(i64, u32)>,
    record_bytes: Vec<u8>,
    records: usize,
    len: usize,
}

impl BatchBuilder {
    /// An empty batch for a tree of this level, made at this time by the leader's wall clock, in
    /// milliseconds since the Unix epoch.
    #[must_use]
    pub const fn new(level: FormatLevel, time_ms: i64) -> Self {
        Self {
            level,
            time_ms,
            identities: BTreeMap::new(),
            identity_bytes: Vec::new(),
            last_identity: None,
            group: None,
            record_bytes: Vec::new(),
            records: 0,
            len: 0,
        }
    }

    /// Level of the tree for which it is made.
    #[must_use]
    pub const fn level(&self) -> FormatLevel {
        self.level
    }

    /// Says which server makes the batch: the first thing to be said. A tree of level 1 does not
    /// store it.
    pub fn set_origin(&mut self, origin: Origin) {
        if self.level >= FormatLevel::Attachments && self.records == 0 {
            let out = &mut self.record_bytes;
            out.push(ORIGIN);
            put_u64(out, origin.server);
            out.extend_from_slice(&origin.run.to_le_bytes());
            put_u64(out, origin.number);
            self.records += 1;
        }
    }

    /// A batch that raises the level of a tree to `level`, and is written in the format of that
    /// level: a version of Baton that does not know the level does not read the batch either.
    #[must_use]
    pub fn raising(level: FormatLevel, time_ms: i64) -> Self {
        let mut builder = Self::new(level, time_ms);
        builder.push(0, Command::SetLevel(level));
        builder
    }

    /// Begins a group: the commands pushed next are given by `session`, through a connection of
    /// this identity. `first` is the stamp of the first of them, and each next one has the next
    /// number; `None` for what the server does by itself. A tree of level 1 stores no stamps.
    pub fn begin(&mut self, session: i64, identity: &Identity, first: Option<Stamp>) {
        let identity = self.intern(identity);
        self.group = Some((session, identity));
        if self.level >= FormatLevel::Attachments {
            self.put_group(GROUP, session, Some(identity), first);
        }
    }

    /// Begins a group as [`BatchBuilder::begin`] does, of a connection whose identity its session
    /// stores: with the first command of the group if `identity` is given, else since an earlier
    /// one of the same attachment. Only for a tree of [`FormatLevel::SessionIdentities`] or later.
    pub fn begin_stored(&mut self, session: i64, identity: Option<&Identity>, first: Stamp) {
        let listed = identity.map(|identity| self.intern(identity));
        self.group = Some((session, 0));
        let kind = match listed {
            Some(_) => GROUP_STORING,
            None => GROUP_STORED,
        };
        self.put_group(kind, session, listed, Some(first));
    }

    fn put_group(&mut self, kind: u8, session: i64, listed: Option<u32>, first: Option<Stamp>) {
        let out = &mut self.record_bytes;
        out.push(kind);
        out.extend_from_slice(&session.to_le_bytes());
        if let Some(place) = listed {
            put_u64(out, place.into());
        }
        let nonce = first.map_or(0, |first| first.nonce.get());
        out.extend_from_slice(&nonce.to_le_bytes());
        if let Some(first) = first {
            put_u64(out, first.sequence);
        }
        self.records += 1;
    }

    /// Adds a command to the present group, with the client's number for it. Without a group, it is
    /// the server's own.
    pub fn push(&mut self, cxid: i32, command: Command<'_>) {
        let (session, identity) = match self.group {
            Some(group) => group,
            None => {
                self.begin(0, &Identity::anonymous(), None);
                (0, 0)
            }
        };
        let out = &mut self.record_bytes;
        out.push(match command {
            Command::OpenSession { .. } => OPEN,
            Command::ReattachSession { .. } => REATTACH,
            Command::CloseSession { .. } => CLOSE,
            Command::Write { .. } => WRITE,
            Command::DeleteContainer { .. } => REAP,
            Command::SetLevel(_) => SET_LEVEL,
            Command::Reconfigure { .. } => RECONFIGURE,
            Command::ResetTime { .. } => RESET_TIME,
        });
        if self.level == FormatLevel::Initial {
            out.extend_from_slice(&session.to_le_bytes());
            put_i64(out, cxid.into());
            put_u64(out, identity.into());
        } else {
            put_i64(out, cxid.into());
        }
        put_body(out, command);
        self.records += 1;
        self.len += 1;
    }

    fn intern(&mut self, identity: &Identity) -> u32 {
        if let Some((last, index)) = &self.last_identity
            && last == identity
        {
            return *index;
        }
        let next = self.identities.len() as u32;
        let index = *self.identities.entry(identity.clone()).or_insert(next);
        if index == next {
            let out = &mut self.identity_bytes;
            put_u64(out, identity.ids().len() as u64);
            put_ids(out, identity.ids());
        }
        self.last_identity = Some((identity.clone(), index));
        index
    }

    /// Commands so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is nothing to do yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the records and identities so far, in bytes: nearly that of the payload.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.record_bytes.len() + self.identity_bytes.len()
    }

    /// The payload.
    #[must_use]
    pub fn finish(self) -> Bytes {
        let size = self.identity_bytes.len() + self.record_bytes.len() + 32;
        let mut out = Vec::with_capacity(size);
        out.push(self.level.batch_version());
        put_i64(&mut out, self.time_ms);
        put_u64(&mut out, self.identities.len() as u64);
        out.extend_from_slice(&self.identity_bytes);
        put_u64(&mut out, self.records as u64);
        out.extend_from_slice(&self.record_bytes);
        out.into()
    }
}

fn put_body(out: &mut Vec<u8>, command: Command<'_>) {
    match command {
        Command::OpenSession {
            session_id,
            password,
            timeout_ms,
        }
        | Command::ReattachSession {
            session_id,
            password,
            timeout_ms,
        } => {
            out.extend_from_slice(&session_id.to_le_bytes());
            out.extend_from_slice(&password);
            put_i64(out, timeout_ms.into());
        }
        Command::CloseSession { session_id, reason } => {
            out.extend_from_slice(&session_id.to_le_bytes());
            out.push(match reason {
                CloseReason::Client => 0,
                CloseReason::Expired => 1,
            });
        }
        Command::Write { op, body } => {
            put_i64(out, op.code().into());
            put_bytes(out, body);
        }
        Command::DeleteContainer { path, czxid } => {
            put_bytes(out, path.as_bytes());
            out.extend_from_slice(&czxid.to_le_bytes());
        }
        Command::SetLevel(level) => put_u64(out, level.number()),
        Command::ResetTime { to_ms } => put_i64(out, to_ms),
        Command::Reconfigure { refusal, body } => {
            put_i64(out, refusal.into());
            put_bytes(out, body);
        }
    }
}

//! Reads that may cost far more than the request that asks for them: `multiRead`, `getEphemerals`,
//! `setWatches`. They are answered in slices of a bounded number of steps, each under the tree's
//! lock, with the turns of other connections in between. Each part of a `multiRead` shows one
//! moment; those of one slice show the same one. Owns how much a slice does.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::wire::{put_count, put_string};
use baton_proto::{ErrorCode, EventKind, MultiOp, MultiResult, ReplyHeader, Request, Stat, frame};
use baton_tree::{ChildListing, EphemeralCursor, Identity, Tree};
use bytes::BufMut;

use crate::connections::conn::Conn;
use crate::report::notice::Notice;
use crate::state::ServerState;
use crate::watch::access::WatchAccess;
use crate::watch::table::{Kinds, TooManyWatches, WatchTable};

/// Steps of a slice: parts, names of paths and of children, entries of ACLs. One part may exceed
/// it.
const STEPS: usize = 4096;

/// Bytes that a slice adds to the answer, and one part.
const BYTES: usize = 256 << 10;

/// Bytes of a path that are copied in one step.
const BYTES_PER_STEP: usize = 64;

/// Data that a slice reads. The tree is locked.
pub(crate) struct SliceSource<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) state: &'a ServerState,
    pub(crate) conn: &'a Arc<Conn>,
    pub(crate) identity: &'a Identity,
}

/// Progress of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SliceOutcome {
    /// More slices follow.
    More,
    /// The reply is among the output.
    Whole,
    /// The same, and the connection is to be closed behind it.
    Close,
}

/// Work on a path.
#[derive(Debug, Clone, Copy)]
enum Part {
    ReadData,
    ReadChildren,
    WatchData,
    WatchExistence,
    WatchChildren,
    WatchAlways(Kinds),
}

/// The paths of a request, in one text.
#[derive(Debug, Default)]
struct Parts {
    text: String,
    /// End of each path, and the work on it.
    ends: Vec<(usize, Part)>,
    next: usize,
}

impl Parts {
    fn push(&mut self, path: &str, part: Part) {
        self.text.push_str(path);
        self.ends.push((self.text.len(), part));
    }

    fn push_all(&mut self, paths: &[&str], part: Part) {
        for path in paths {
            self.push(path, part);
        }
    }

    /// Takes the next path.
    fn take(&mut self) -> Option<(&str, Part)> {
        let (end, part) = *self.ends.get(self.next)?;
        let before = self.next.checked_sub(1).and_then(|at| self.ends.get(at));
        let start = before.map_or(0, |(end, _)| *end);
        self.next += 1;
        Some((self.text.get(start..end).unwrap_or_default(), part))
    }
}

/// The work that is left.
#[derive(Debug)]
enum RemainingWork {
    Reads {
        parts: Parts,
        /// The rest of the children of the last part.
        listing: Option<ChildListing>,
    },
    Ephemerals {
        prefix: String,
        cursor: EphemeralCursor,
        found: usize,
    },
    Watches {
        parts: Parts,
        relative_zxid: i64,
    },
}

/// Reasons for which an answer ends before its end.
enum Refusal {
    /// It has more bytes than an answer may have.
    TooLong,
    Watches(TooManyWatches),
}

/// A read of which some slices may have been made.
#[derive(Debug)]
pub(crate) struct SlicedRead {
    xid: i32,
    /// The reply so far.
    reply: Vec<u8>,
    /// Bytes of data and names in it.
    bytes: usize,
    left: RemainingWork,
}

/// Place of the count before the paths of ephemerals.
const COUNT_AT: usize = frame::LENGTH_BYTES + ReplyHeader::BYTES;

impl SlicedRead {
    /// Nothing of it is done yet.
    pub(crate) fn new(xid: i32, request: &Request<'_>) -> Self {
        let mut reply = vec![0; COUNT_AT];
        let mut parts = Parts::default();
        let mut relative = 0;
        match request {
            Request::MultiRead(ops) => {
                for op in ops {
                    match op {
                        MultiOp::GetData { path, .. } => parts.push(path, Part::ReadData),
                        _ => parts.push(op.path(), Part::ReadChildren),
                    }
                }
            }
            Request::SetWatches {
                relative_zxid,
                data,
                exist,
                child,
            } => {
                relative = *relative_zxid;
                parts.push_all(data, Part::WatchData);
                parts.push_all(exist, Part::WatchExistence);
                parts.push_all(child, Part::WatchChildren);
            }
            Request::SetWatches2 {
                relative_zxid,
                data,
                exist,
                child,
                persistent,
                persistent_recursive,
            } => {
                relative = *relative_zxid;
                parts.push_all(data, Part::WatchData);
                parts.push_all(exist, Part::WatchExistence);
                parts.push_all(child, Part::WatchChildren);
                parts.push_all(persistent, Part::WatchAlways(Kinds::PERSISTENT));
                parts.push_all(persistent_recursive, Part::WatchAlways(Kinds::RECURSIVE));
            }
            _ => put_count(&mut reply, 0),
        }
        let left = match request {
            Request::MultiRead(_) => RemainingWork::Reads {
                parts,
                listing: None,
            },
            Request::GetEphemerals { prefix } => RemainingWork::Ephemerals {
                prefix: (*prefix).to_owned(),
                cursor: EphemeralCursor::default(),
                found: 0,
            },
            _ => RemainingWork::Watches {
                parts,
                relative_zxid: relative,
            },
        };
        Self {
            xid,
            reply,
            bytes: 0,
            left,
        }
    }

    /// Does the next slice. Appends the reply if it is the last one, and of `setWatches` the events
    /// that are due. Returns the steps that it took, too.
    pub(crate) fn slice(
        &mut self,
        source: &SliceSource<'_>,
        watches: &mut WatchAccess<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, SliceOutcome) {
        let mut steps = 0;
        let state = source.state;
        let max_bytes = state.outbound.too_slow_bytes();
        let mut slice = Slice {
            source,
            steps: &mut steps,
            reply: &mut self.reply,
            bytes: &mut self.bytes,
            max_bytes,
        };
        let outcome = match &mut self.left {
            RemainingWork::Reads { parts, listing } => slice.reads(parts, listing),
            RemainingWork::Ephemerals {
                prefix,
                cursor,
                found,
            } => slice.ephemerals(prefix, cursor, found),
            RemainingWork::Watches {
                parts,
                relative_zxid,
            } => watches.with(|table| slice.watches(parts, *relative_zxid, table, out)),
        };
        let header = |code: ErrorCode| ReplyHeader {
            xid: self.xid,
            zxid: source.tree.zxid(),
            err: code.code(),
        };
        let progress = match outcome {
            Ok(true) => SliceOutcome::More,
            Ok(false) => {
                self.end(header(ErrorCode::Ok), out);
                SliceOutcome::Whole
            }
            Err(why) => {
                let closes = matches!(why, Refusal::Watches(_));
                self.refused(source, why, max_bytes);
                frame::write_reply(out, header(ErrorCode::BadArguments), None);
                match closes {
                    true => SliceOutcome::Close,
                    false => SliceOutcome::Whole,
                }
            }
        };
        (steps, progress)
    }

    /// Appends the reply, which is whole.
    fn end(&mut self, header: ReplyHeader, out: &mut Vec<u8>) {
        let body = self.reply.len() - frame::LENGTH_BYTES;
        let length = i32::try_from(body).unwrap_or(i32::MAX);
        if let Some(mut head) = self.reply.get_mut(..COUNT_AT) {
            head.put_i32(length);
            header.encode(&mut head);
        }
        if let RemainingWork::Ephemerals { found, .. } = &self.left
            && let Some(mut count) = self.reply.get_mut(COUNT_AT..)
        {
            put_count(&mut count, *found);
        }
        match out.is_empty() {
            true => std::mem::swap(out, &mut self.reply),
            false => out.append(&mut self.reply),
        }
    }

    fn refused(&self, source: &SliceSource<'_>, why: Refusal, max_bytes: usize) {
        let (state, peer) = (source.state, Some(&source.conn.peer));
        let stats = &state.stats;
        match why {
            Refusal::TooLong => {
                stats.large_answers_refused.fetch_add(1, Relaxed);
                let what = match self.left {
                    RemainingWork::Reads { .. } => "multiRead",
                    _ => "getEphemerals",
                };
                let what = format_args!(
                    "refused {what}: its answer would have over {max_bytes} bytes; ask for less at a time"
                );
                state.notice(Notice::LargeRequest, peer, what);
            }
            // A client does not look at what setWatches is answered with, and would wait for events
            // that never come.
            Refusal::Watches(why) => {
                stats.watches_refused.fetch_add(1, Relaxed);
                let what =
                    format_args!("connection closed: its watches cannot be set again: {why}");
                state.notice(Notice::Watches, peer, what);
            }
        }
    }
}

/// One slice under way. Its work returns whether more is left.
struct Slice<'a> {
    source: &'a SliceSource<'a>,
    steps: &'a mut usize,
    reply: &'a mut Vec<u8>,
    /// Bytes of data and names of the whole answer.
    bytes: &'a mut usize,
    max_bytes: usize,
}

impl Slice<'_> {
    fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        *self.bytes = self.bytes.saturating_add(bytes);
        match *self.bytes > self.max_bytes {
            true => Err(Refusal::TooLong),
            false => Ok(()),
        }
    }

    /// Counts the steps that looking a path up takes.
    fn look_up(&mut self, path: &str) {
        let SliceSource { tree, identity, .. } = *self.source;
        *self.steps += 1 + tree.read_steps(path, identity);
    }

    fn reads(
        &mut self,
        parts: &mut Parts,
        listing: &mut Option<ChildListing>,
    ) -> Result<bool, Refusal> {
        let SliceSource { tree, identity, .. } = *self.source;
        let begun = self.reply.len();
        while *self.steps < STEPS && self.reply.len() - begun < BYTES {
            if let Some(names) = listing {
                *self.steps += 1;
                if !names.next_name(|name| put_string(self.reply, name)) {
                    *listing = None;
                }
                continue;
            }
            let Some((path, part)) = parts.take() else {
                MultiResult::end_chain(self.reply);
                return Ok(false);
            };
            self.look_up(path);
            let read = match part {
                Part::ReadData => match tree.get_data(path, identity) {
                    Ok((data, stat)) => {
                        self.count(data.map_or(0, <[u8]>::len))?;
                        MultiResult::put_data(self.reply, data, &stat);
                        Ok(())
                    }
                    Err(code) => Err(code),
                },
                _ => match tree.get_children(path, identity) {
                    Ok((names, _)) => {
                        MultiResult::begin_children(self.reply, names.len());
                        *listing = tree.listing(path);
                        match listing {
                            Some(many) => {
                                *self.steps += many.blocks() / BYTES_PER_STEP;
                                self.count(size_of::<i32>() * many.names() + many.bytes())?;
                            }
                            None => {
                                for name in names {
                                    *self.steps += 1;
                                    // Each has its length before it.
                                    self.count(size_of::<i32>() + name.len())?;
                                    put_string(self.reply, name);
                                }
                            }
                        }
                        Ok(())
                    }
                    Err(code) => Err(code),
                },
            };
            if let Err(code) = read {
                MultiResult::Error(code).encode(self.reply);
            }
        }
        Ok(true)
    }

    fn ephemerals(
        &mut self,
        prefix: &str,
        cursor: &mut EphemeralCursor,
        found: &mut usize,
    ) -> Result<bool, Refusal> {
        let SliceSource { tree, conn, .. } = *self.source;
        let begun = self.reply.len();
        let mut counted = Ok(());
        let is_more = tree.ephemerals_after(conn.session(), cursor, |path| {
            *self.steps += 1 + path.len() / BYTES_PER_STEP;
            if path.starts_with(prefix) {
                *found += 1;
                put_string(self.reply, path);
                counted = self.count(size_of::<i32>() + path.len());
            }
            counted.is_ok() && *self.steps < STEPS && self.reply.len() - begun < BYTES
        });
        counted.map(|()| is_more)
    }

    fn watches(
        &mut self,
        parts: &mut Parts,
        relative_zxid: i64,
        table: &mut WatchTable,
        out: &mut Vec<u8>,
    ) -> Result<bool, Refusal> {
        let SliceSource {
            tree,
            conn,
            identity,
            ..
        } = *self.source;
        // A client gets no event of what it may not read (protocol.md §10, no. 3).
        let missed = |path: &str, changed, zxid: fn(&Stat) -> i64| match tree.exists(path, identity)
        {
            Err(ErrorCode::NoNode) => Some(EventKind::NodeDeleted),
            Ok(stat) if zxid(&stat) > relative_zxid => Some(changed),
            _ => None,
        };
        while *self.steps < STEPS {
            let Some((path, part)) = parts.take() else {
                return Ok(false);
            };
            self.look_up(path);
            let (event, kinds) = match part {
                Part::WatchData => {
                    let changed = EventKind::NodeDataChanged;
                    (missed(path, changed, |stat| stat.mzxid), Kinds::DATA)
                }
                Part::WatchExistence => {
                    let exists = tree.exists(path, identity).is_ok();
                    (exists.then_some(EventKind::NodeCreated), Kinds::DATA)
                }
                Part::WatchAlways(kinds) => (None, kinds),
                _ => {
                    let changed = EventKind::NodeChildrenChanged;
                    (missed(path, changed, |stat| stat.pzxid), Kinds::CHILD)
                }
            };
            match event {
                Some(kind) => {
                    frame::write_event(out, -1, kind, path);
                }
                None => table.add(conn, path, kinds).map_err(Refusal::Watches)?,
            }
        }
        Ok(true)
    }
}

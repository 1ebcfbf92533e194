//! Answers reads from the tree, straight into the bytes that go out, and sets the watches that they
//! ask for under the same lock. Runs on the socket's task, or in the core when the read's place is
//! behind a write of its own session. Never waits, never writes the tree.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::wire::{put_buffer, put_strings};
use baton_proto::{
    AddWatchMode, ClientInfo, ErrorCode, EventKind, OpCode, ReplyHeader, Request, Response, Stat,
    WatcherKind, frame,
};
use baton_tree::{Identity, Tree};
use parking_lot::Mutex;

use crate::connections::conn::Conn;
use crate::read::baton_node::{self, Counted};
use crate::report::notice::Notice;
use crate::report::shown::Shown;
#[cfg(feature = "simulation")]
use crate::simulated::Mistake;
use crate::state::ServerState;
use crate::watch::table::{Kinds, TooManyWatches, WatchTable};

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// Close it once the reply is written (protocol.md §1.4).
    Close,
}

/// The watch table, which the core has locked and a socket has not.
pub(crate) enum WatchAccess<'a> {
    Lock(&'a Mutex<WatchTable>),
    Held(&'a mut WatchTable),
}

impl WatchAccess<'_> {
    fn with<R>(&mut self, change: impl FnOnce(&mut WatchTable) -> R) -> R {
        match self {
            WatchAccess::Lock(table) => change(&mut table.lock()),
            WatchAccess::Held(table) => change(table),
        }
    }
}

/// A read.
pub(crate) struct Asked<'a> {
    pub(crate) conn: &'a Arc<Conn>,
    pub(crate) identity: &'a Identity,
    pub(crate) op: OpCode,
    pub(crate) xid: i32,
    pub(crate) body: &'a [u8],
}

/// Appends the reply, and before it the events that `setWatches` owes.
pub(crate) fn answer_read(
    tree: &Tree,
    state: &ServerState,
    mut watches: WatchAccess<'_>,
    asked: &Asked<'_>,
    out: &mut Vec<u8>,
) -> Flow {
    let zxid = tree.zxid();
    let header = ReplyHeader {
        xid: asked.xid,
        zxid,
        err: 0,
    };
    let request = match Request::decode(asked.op, asked.body, &state.limits) {
        Ok(request) => request,
        Err(error) => {
            let what = format_args!("refused {}: {error}", asked.op);
            state.notice(Notice::BadRecord, Some(&asked.conn.peer), what);
            refuse(out, header, ErrorCode::MarshallingError);
            return Flow::Continue;
        }
    };
    let identity = asked.identity;
    let outcome = match &request {
        Request::GetData {
            path: baton_node::PATH,
            ..
        } => {
            let counted = counted(state, asked.conn);
            frame_with(out, header, |out| {
                let data = baton_node::data(counted, state.options.tracer.is_some());
                put_buffer(out, Some(data.as_bytes()));
                baton_node::stat(counted, state.options.tracer.is_some()).encode(out);
            });
            return Flow::Continue;
        }
        Request::GetData { path, watch } => match tree.get_data(path, identity) {
            Ok((data, stat)) => {
                if *watch && !set_watch(state, &mut watches, asked, path, Kinds::DATA) {
                    refuse(out, header, ErrorCode::BadArguments);
                    return Flow::Continue;
                }
                frame_with(out, header, |out| {
                    put_buffer(out, data);
                    stat.encode(out);
                });
                return Flow::Continue;
            }
            Err(code) => Err(code),
        },
        Request::Exists { path, watch } => {
            let found = if *path == baton_node::PATH {
                let is_traced = state.options.tracer.is_some();
                Ok(baton_node::stat(counted(state, asked.conn), is_traced))
            } else {
                tree.exists(path, identity)
            };
            if *watch
                && matches!(found, Ok(_) | Err(ErrorCode::NoNode))
                && !set_watch(state, &mut watches, asked, path, Kinds::DATA)
            {
                refuse(out, header, ErrorCode::BadArguments);
                return Flow::Continue;
            }
            found.map(Response::Stat)
        }
        Request::GetChildren { path, watch } | Request::GetChildren2 { path, watch } => {
            match tree.get_children(path, identity) {
                Ok((children, stat)) => {
                    if *watch && !set_watch(state, &mut watches, asked, path, Kinds::CHILD) {
                        refuse(out, header, ErrorCode::BadArguments);
                        return Flow::Continue;
                    }
                    frame_with(out, header, |out| {
                        put_strings(out, children);
                        if asked.op == OpCode::GetChildren2 {
                            stat.encode(out);
                        }
                    });
                    return Flow::Continue;
                }
                Err(code) => Err(code),
            }
        }
        Request::GetAcl { path } => tree
            .get_acl(path, identity)
            .map(|(acl, stat)| Response::Acl { acl, stat }),
        Request::Sync { path } => Ok(Response::Path((*path).to_owned())),
        Request::MultiRead(ops) => {
            let max_bytes = state.outbound.too_slow_bytes();
            let results = tree.multi_read(ops, identity, max_bytes);
            if results.is_none() {
                let stats = &state.stats;
                stats.large_answers_refused.fetch_add(1, Relaxed);
                let what = format_args!(
                    "refused multiRead of {} parts: its answer would have over {max_bytes} bytes; ask for less at a time",
                    ops.len()
                );
                state.notice(Notice::LargeRequest, Some(&asked.conn.peer), what);
            }
            results.map(Response::Multi).ok_or(ErrorCode::BadArguments)
        }
        Request::GetEphemerals { prefix } => Ok(Response::Strings(
            tree.ephemerals(asked.conn.session(), prefix),
        )),
        Request::GetAllChildrenNumber { path } => {
            tree.count_descendants(path, identity).map(Response::Count)
        }
        Request::WhoAmI => Ok(Response::WhoAmI(who(identity))),
        Request::AddWatch { path, mode } => match AddWatchMode::try_from(*mode) {
            Ok(mode) => {
                let kinds = match mode {
                    AddWatchMode::Persistent => Kinds::PERSISTENT,
                    AddWatchMode::PersistentRecursive => Kinds::RECURSIVE,
                };
                let is_set = baton_proto::path::validate(path).is_ok()
                    && set_watch(state, &mut watches, asked, path, kinds);
                if is_set {
                    Ok(Response::WatchAdded)
                } else {
                    Err(ErrorCode::BadArguments)
                }
            }
            Err(_) => Err(ErrorCode::MarshallingError),
        },
        Request::CheckWatches { path, kind } => watcher_kind(*kind).and_then(|kinds| {
            let has = watches.with(|table| table.has(asked.conn.id, path, kinds));
            if has {
                Ok(Response::Empty)
            } else {
                Err(ErrorCode::NoWatcher)
            }
        }),
        Request::RemoveWatches { path, kind } => watcher_kind(*kind).and_then(|kinds| {
            let had = watches.with(|table| table.remove(asked.conn.id, path, kinds));
            if had {
                Ok(Response::Empty)
            } else {
                Err(ErrorCode::NoWatcher)
            }
        }),
        Request::SetWatches {
            relative_zxid,
            data,
            exist,
            child,
        } => {
            let all_set = watches.with(|table| {
                let mut again = SetAgain::new(tree, table, asked, *relative_zxid, out);
                again.one_shot(data, exist, child);
                again.outcome
            });
            if let Err(why) = all_set {
                return not_set_again(state, asked, why, header, out);
            }
            Ok(Response::Empty)
        }
        Request::SetWatches2 {
            relative_zxid,
            data,
            exist,
            child,
            persistent,
            persistent_recursive,
        } => {
            let all_set = watches.with(|table| {
                let mut again = SetAgain::new(tree, table, asked, *relative_zxid, out);
                again.one_shot(data, exist, child);
                again.lasting(persistent, Kinds::PERSISTENT);
                again.lasting(persistent_recursive, Kinds::RECURSIVE);
                again.outcome
            });
            if let Err(why) = all_set {
                return not_set_again(state, asked, why, header, out);
            }
            Ok(Response::Empty)
        }
        _ => {
            refuse(
                out,
                ReplyHeader { zxid: -1, ..header },
                ErrorCode::Unimplemented,
            );
            return Flow::Close;
        }
    };
    match outcome {
        Ok(response) => {
            frame::write_reply(out, header, Some(&response));
        }
        Err(code) => {
            state.refused(asked.conn, &asked.op, asked.body, code);
            refuse(out, header, code);
        }
    }
    Flow::Continue
}

/// Which answers to this client mean that the leader has counted the request.
fn counted(state: &ServerState, conn: &Conn) -> Counted {
    #[cfg(feature = "simulation")]
    if state.simulated.makes(Mistake::AnnouncesThatReadsCount) {
        return Counted::All;
    }
    if state.ensemble.is_none() {
        Counted::All
    } else if conn.is_read_only() {
        Counted::Nothing
    } else {
        Counted::Some
    }
}

/// Sets a watch, or says in the log why it is refused: `false`.
fn set_watch(
    state: &ServerState,
    watches: &mut WatchAccess<'_>,
    asked: &Asked<'_>,
    path: &str,
    kinds: Kinds,
) -> bool {
    let outcome = watches.with(|table| table.add(asked.conn, path, kinds));
    if let Err(why) = outcome {
        state.stats.watches_refused.fetch_add(1, Relaxed);
        let what = format_args!("refused a watch on {}: {why}", Shown(path));
        state.notice(Notice::Watches, Some(&asked.conn.peer), what);
    }
    outcome.is_ok()
}

/// Ends the connection: a client does not look at what setWatches is answered with, and would wait
/// for events that never come.
fn not_set_again(
    state: &ServerState,
    asked: &Asked<'_>,
    why: TooManyWatches,
    header: ReplyHeader,
    out: &mut Vec<u8>,
) -> Flow {
    state.stats.watches_refused.fetch_add(1, Relaxed);
    let what = format_args!("connection closed: its watches cannot be set again: {why}");
    state.notice(Notice::Watches, Some(&asked.conn.peer), what);
    refuse(out, header, ErrorCode::BadArguments);
    Flow::Close
}

fn refuse(out: &mut Vec<u8>, header: ReplyHeader, code: ErrorCode) {
    frame::write_reply(
        out,
        ReplyHeader {
            err: code.code(),
            ..header
        },
        None,
    );
}

/// Writes a reply in place, without building a [`Response`] first.
pub(crate) fn frame_with(out: &mut Vec<u8>, header: ReplyHeader, body: impl FnOnce(&mut Vec<u8>)) {
    let start = frame::begin(out);
    header.encode(out);
    body(out);
    frame::finish(out, start);
}

/// Writes a watch event.
pub(crate) fn event(out: &mut Vec<u8>, zxid: i64, kind: EventKind, path: &str) {
    frame::write_event(out, zxid, kind, path);
}

fn watcher_kind(kind: i32) -> Result<Kinds, ErrorCode> {
    WatcherKind::try_from(kind)
        .map(Kinds::of)
        .map_err(|_| ErrorCode::MarshallingError)
}

fn who(identity: &Identity) -> Vec<ClientInfo> {
    identity
        .ids()
        .map(|id| ClientInfo {
            scheme: id.scheme.clone(),
            // A digest's hash is a secret: only the user's name is sent.
            user: id
                .id
                .split(':')
                .next()
                .filter(|_| id.scheme == "digest")
                .unwrap_or(&id.id)
                .to_owned(),
        })
        .collect()
}

/// Sets watches again after a reconnect (protocol.md §1.8).
struct SetAgain<'a> {
    tree: &'a Tree,
    table: &'a mut WatchTable,
    asked: &'a Asked<'a>,
    relative_zxid: i64,
    out: &'a mut Vec<u8>,
    /// The first refusal.
    outcome: Result<(), TooManyWatches>,
}

impl<'a> SetAgain<'a> {
    fn new(
        tree: &'a Tree,
        table: &'a mut WatchTable,
        asked: &'a Asked<'a>,
        relative_zxid: i64,
        out: &'a mut Vec<u8>,
    ) -> Self {
        Self {
            tree,
            table,
            asked,
            relative_zxid,
            out,
            outcome: Ok(()),
        }
    }

    fn set(&mut self, path: &str, kinds: Kinds) {
        if self.outcome.is_ok() {
            self.outcome = self.table.add(self.asked.conn, path, kinds);
        }
    }

    fn lasting(&mut self, paths: &[&str], kinds: Kinds) {
        for path in paths {
            self.set(path, kinds);
        }
    }

    fn one_shot(&mut self, data: &[&str], exist: &[&str], child: &[&str]) {
        for path in data {
            let missed = self.missed(path, EventKind::NodeDataChanged, |stat| stat.mzxid);
            self.fire_or_set(path, missed, Kinds::DATA);
        }
        for path in exist {
            let exists = self.tree.exists(path, self.asked.identity).is_ok();
            self.fire_or_set(path, exists.then_some(EventKind::NodeCreated), Kinds::DATA);
        }
        for path in child {
            let missed = self.missed(path, EventKind::NodeChildrenChanged, |stat| stat.pzxid);
            self.fire_or_set(path, missed, Kinds::CHILD);
        }
    }

    fn missed(
        &self,
        path: &str,
        changed: EventKind,
        zxid: impl Fn(&Stat) -> i64,
    ) -> Option<EventKind> {
        match self.tree.exists(path, self.asked.identity) {
            Err(ErrorCode::NoNode) => Some(EventKind::NodeDeleted),
            Ok(stat) if zxid(&stat) > self.relative_zxid => Some(changed),
            // A client gets no event of what it may not read (protocol.md §10, no. 3).
            _ => None,
        }
    }

    fn fire_or_set(&mut self, path: &str, missed: Option<EventKind>, kinds: Kinds) {
        match missed {
            Some(kind) => event(self.out, -1, kind, path),
            None => self.set(path, kinds),
        }
    }
}

//! Answers reads from the tree, straight into the bytes that go out, and sets the watches that they
//! ask for under the same lock. Runs on the socket's task, or in the core when the read's place is
//! behind a write of its own session. Never waits, never writes the tree.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::wire::{put_buffer, put_strings};
use baton_proto::{
    AddWatchMode, ClientInfo, ErrorCode, EventKind, OpCode, ReplyHeader, Request, Response,
    WatcherKind, frame,
};
use baton_tree::{Identity, Tree};

use crate::connections::conn::Conn;
use crate::connections::listing_reply::ListingReply;
use crate::read::baton_node::{self, Counted};
use crate::read::sliced::SlicedRead;
use crate::report::escaped::EscapedText;
use crate::report::notice::Notice;
use crate::state::ServerState;
#[cfg(feature = "simulation")]
use crate::state::simulated::ServerBug;
use crate::watch::access::WatchAccess;
use crate::watch::table::Kinds;

/// The connection's next step.
#[derive(Debug)]
pub(crate) enum Flow {
    Continue,
    /// Close it once the reply is written (protocol.md §1.4).
    Close,
    /// The reply is this one, which is encoded as the client reads it.
    Listing(Box<ListingReply>),
    /// The reply is made in slices, of which none is made yet.
    Sliced(Box<SlicedRead>),
}

/// A read.
pub(crate) struct ReadRequest<'a> {
    pub(crate) conn: &'a Arc<Conn>,
    pub(crate) identity: &'a Identity,
    pub(crate) op: OpCode,
    pub(crate) xid: i32,
    pub(crate) body: &'a [u8],
}

/// Appends the reply, unless it is a long one.
pub(crate) fn answer_read(
    tree: &Tree,
    state: &ServerState,
    mut watches: WatchAccess<'_>,
    asked: &ReadRequest<'_>,
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
                    if let Some(listing) = tree.listing(path) {
                        state.stats.steps_under_lock(listing.blocks());
                        let stat = (asked.op == OpCode::GetChildren2).then_some(&stat);
                        return Flow::Listing(Box::new(ListingReply::new(header, listing, stat)));
                    }
                    state.stats.steps_under_lock(children.len());
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
        Request::MultiRead(_)
        | Request::GetEphemerals { .. }
        | Request::SetWatches { .. }
        | Request::SetWatches2 { .. } => {
            return Flow::Sliced(Box::new(SlicedRead::new(asked.xid, &request)));
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

/// Returns which answers to this client mean that the leader has counted the request.
fn counted(state: &ServerState, conn: &Conn) -> Counted {
    #[cfg(feature = "simulation")]
    if state.simulated.makes(ServerBug::AnnouncesThatReadsCount) {
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
    asked: &ReadRequest<'_>,
    path: &str,
    kinds: Kinds,
) -> bool {
    let outcome = watches.with(|table| table.add(asked.conn, path, kinds));
    if let Err(why) = outcome {
        state.stats.watches_refused.fetch_add(1, Relaxed);
        let what = format_args!("refused a watch on {}: {why}", EscapedText(path));
        state.notice(Notice::Watches, Some(&asked.conn.peer), what);
    }
    outcome.is_ok()
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

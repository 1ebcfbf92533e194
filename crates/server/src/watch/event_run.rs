//! Events that the same connections receive, one after the other. They are encoded once and handed
//! over together: a session's end that deletes many znodes costs a connection that watches all of
//! them one step, and long runs are not copied for each connection.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::Perms;
use baton_tree::AclList;
use bytes::Bytes;

use crate::connections::conn::Conn;
use crate::stats::counters::Stats;
use crate::watch::table::{Fired, WatchTable};

/// A run of more bytes than this is handed over.
const MOST_BYTES: usize = 64 << 10;
/// From this length on, connections share a run.
const SHARED_BYTES: usize = 4 << 10;

/// The events of one command that are not handed over yet.
#[derive(Debug, Default)]
pub(crate) struct EventRun {
    frames: Vec<u8>,
    /// The connections that receive them.
    conns: Vec<u32>,
    /// The ACL by which `conns` were selected: its address, which stays that of one ACL while a
    /// command is applied, since the events of a command that gives ACLs back and takes others
    /// precede that. 0 for none.
    acl: usize,
    /// Connections that were asked for their permission or received a run.
    work: usize,
}

impl EventRun {
    /// Adds an event, which `encode` writes, for the connections that `watches` has just found.
    pub(crate) fn add(
        &mut self,
        (watches, fired): (&WatchTable, Fired),
        acl: &AclList,
        encode: impl FnOnce(&mut Vec<u8>),
        (stats, wake): (&Stats, &mut Vec<Arc<Conn>>),
    ) {
        let acl_address = std::ptr::from_ref(acl).addr();
        if fired == Fired::Others || self.acl != acl_address {
            self.hand_over(watches, stats, wake);
            self.acl = acl_address;
            self.work += watches.hits().len();
            // A client that may not read the znode gets no event of it (protocol.md §1.7).
            let may_read = |id: &u32| {
                let conn = watches.conn(*id);
                conn.is_some_and(|conn| acl.permits(&conn.identity(), Perms::READ))
            };
            let hits = watches.hits().iter().copied();
            self.conns.clear();
            self.conns.extend(hits.filter(may_read));
        }
        if self.conns.is_empty() {
            return;
        }
        encode(&mut self.frames);
        if self.frames.len() > MOST_BYTES {
            self.hand_over(watches, stats, wake);
        }
    }

    /// Hands all events over and forgets who received them: the command is applied.
    pub(crate) fn end(&mut self, watches: &WatchTable, stats: &Stats, wake: &mut Vec<Arc<Conn>>) {
        self.hand_over(watches, stats, wake);
        self.acl = 0;
    }

    fn hand_over(&mut self, watches: &WatchTable, stats: &Stats, wake: &mut Vec<Arc<Conn>>) {
        if self.frames.is_empty() {
            return;
        }
        let conns = self.conns.iter().filter_map(|id| watches.conn(*id));
        if self.frames.len() < SHARED_BYTES || self.conns.len() < 2 {
            for conn in conns {
                conn.push(0, wake, |out| out.extend_from_slice(&self.frames));
            }
        } else {
            let frames = Bytes::copy_from_slice(&self.frames);
            for conn in conns {
                conn.push_shared(&frames, wake);
            }
        }
        let sent = self.frames.len() * self.conns.len();
        stats.watch_bytes.fetch_add(sent as u64, Relaxed);
        self.work += self.conns.len();
        self.frames.clear();
    }

    /// Connections that were asked or received something since [`EventRun::take_work`].
    pub(crate) const fn work(&self) -> usize {
        self.work
    }

    /// Returns the connections that were asked or received something since the last call.
    pub(crate) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
    }
}

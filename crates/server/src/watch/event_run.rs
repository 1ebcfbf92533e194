//! Events on their way to the connections that watch them. Those that the same connections
//! receive, one after the other, are encoded once: a session's end that deletes many znodes costs
//! a connection that watches all of them one step, and long runs are not copied for each
//! connection. What one connection receives of a command is gathered, so that its outbox is locked
//! a few times and not for each event.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::Perms;
use baton_tree::{AclList, Identity};
use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::connections::conn::Conn;
use crate::stats::counters::Stats;
use crate::watch::table::{Fired, WatchTable};

/// A run of more bytes than this is handed over.
const MOST_BYTES: usize = 64 << 10;
/// From this length on, connections share a run.
const SHARED_BYTES: usize = 4 << 10;
/// Receivers for which room is kept from one command to the next.
const KEPT_RECEIVERS: usize = 64;

/// A connection that receives events of the command.
#[derive(Debug)]
struct Receiver {
    conn: Arc<Conn>,
    identity: Arc<Identity>,
    /// Events that it is to receive, behind what its outbox has: fewer bytes than [`SHARED_BYTES`].
    frames: Vec<u8>,
}

impl Receiver {
    fn new(conn: &Arc<Conn>) -> Self {
        Self {
            conn: Arc::clone(conn),
            identity: conn.identity(),
            frames: Vec::new(),
        }
    }

    fn flush(&mut self, wake: &mut Vec<Arc<Conn>>) {
        if !self.frames.is_empty() {
            self.conn
                .push(0, wake, |out| out.extend_from_slice(&self.frames));
            self.frames.clear();
        }
    }
}

/// The events of one command that are not handed over yet.
#[derive(Debug, Default)]
pub(crate) struct EventRun {
    frames: Vec<u8>,
    /// The receivers that get them, by their place.
    selected: Vec<usize>,
    /// All that have received something of the command, or were asked, as they were found.
    receivers: Vec<Receiver>,
    /// The place of each connection in `receivers`.
    places: HashMap<u32, usize, RandomState>,
    /// The ACL by which `selected` were chosen: its address, which stays that of one ACL while a
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
            self.hand_over(false, stats, wake);
            self.acl = acl_address;
            self.work += watches.hits().len();
            self.selected.clear();
            for id in watches.hits() {
                let place = match self.places.get(id) {
                    Some(place) => *place,
                    None => {
                        let Some(conn) = watches.conn(*id) else {
                            continue;
                        };
                        self.receivers.push(Receiver::new(conn));
                        self.places.insert(*id, self.receivers.len() - 1);
                        self.receivers.len() - 1
                    }
                };
                // A client that may not read the znode gets no event of it (protocol.md §1.7).
                let receiver = self.receivers.get(place);
                if receiver.is_some_and(|receiver| acl.permits(&receiver.identity, Perms::READ)) {
                    self.selected.push(place);
                }
            }
        }
        if self.selected.is_empty() {
            return;
        }
        encode(&mut self.frames);
        if self.frames.len() > MOST_BYTES {
            self.hand_over(false, stats, wake);
        }
    }

    /// Hands all events over and forgets who received them: the command is applied.
    pub(crate) fn end(&mut self, stats: &Stats, wake: &mut Vec<Arc<Conn>>) {
        self.hand_over(true, stats, wake);
        self.acl = 0;
        if self.receivers.is_empty() {
            return;
        }
        for mut receiver in self.receivers.drain(..) {
            receiver.flush(wake);
        }
        self.receivers.shrink_to(KEPT_RECEIVERS);
        self.places.clear();
        self.places.shrink_to(KEPT_RECEIVERS);
    }

    /// Gives the run to its receivers. Of the last one of a command nothing is gathered for those
    /// who receive nothing else: most commands have one event.
    fn hand_over(&mut self, is_last: bool, stats: &Stats, wake: &mut Vec<Arc<Conn>>) {
        if self.frames.is_empty() {
            return;
        }
        let is_shared = self.frames.len() >= SHARED_BYTES && self.selected.len() > 1;
        let shared = is_shared.then(|| Bytes::copy_from_slice(&self.frames));
        for place in &self.selected {
            let Some(receiver) = self.receivers.get_mut(*place) else {
                continue;
            };
            if let Some(frames) = &shared {
                receiver.flush(wake);
                receiver.conn.push_shared(frames, wake);
            } else if is_last && receiver.frames.is_empty() {
                receiver
                    .conn
                    .push(0, wake, |out| out.extend_from_slice(&self.frames));
            } else {
                receiver.frames.extend_from_slice(&self.frames);
                if receiver.frames.len() >= SHARED_BYTES {
                    receiver.flush(wake);
                }
            }
        }
        let sent = self.frames.len() * self.selected.len();
        stats.watch_bytes.fetch_add(sent as u64, Relaxed);
        self.work += self.selected.len();
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

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
use crate::watch::table::{EventWatchers, WatchTable};

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

    /// Keeps events for later, unless that makes many bytes.
    fn gather(&mut self, frames: &[u8], wake: &mut Vec<Arc<Conn>>) {
        self.frames.extend_from_slice(frames);
        if self.frames.len() >= SHARED_BYTES {
            self.push(&[], wake);
        }
    }

    /// Gives the connection what is gathered, and these events behind it.
    fn push(&mut self, frames: &[u8], wake: &mut Vec<Arc<Conn>>) {
        if self.frames.is_empty() && frames.is_empty() {
            return;
        }
        self.conn.push(0, wake, |out| {
            out.extend_from_slice(&self.frames);
            out.extend_from_slice(frames);
        });
        self.frames.clear();
    }
}

/// Method by which a receiver gets a run that it does not share.
type Give = fn(&mut Receiver, &[u8], &mut Vec<Arc<Conn>>);

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
        (watches, fired): (&WatchTable, EventWatchers),
        acl: &AclList,
        encode: impl FnOnce(&mut Vec<u8>),
        (stats, wake): (&Stats, &mut Vec<Arc<Conn>>),
    ) {
        let acl_address = std::ptr::from_ref(acl).addr();
        if fired == EventWatchers::Others || self.acl != acl_address {
            self.hand_over(Receiver::gather, stats, wake);
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
            self.hand_over(Receiver::gather, stats, wake);
        }
    }

    /// Hands all events over and forgets who received them: the command is applied.
    pub(crate) fn end(&mut self, stats: &Stats, wake: &mut Vec<Arc<Conn>>) {
        self.hand_over(Receiver::push, stats, wake);
        self.acl = 0;
        if self.receivers.is_empty() {
            return;
        }
        for mut receiver in self.receivers.drain(..) {
            receiver.push(&[], wake);
        }
        self.receivers.shrink_to(KEPT_RECEIVERS);
        self.places.clear();
        self.places.shrink_to(KEPT_RECEIVERS);
    }

    /// Gives the run to its receivers. The last one of a command is not gathered: most commands
    /// have one event.
    fn hand_over(&mut self, give: Give, stats: &Stats, wake: &mut Vec<Arc<Conn>>) {
        if self.frames.is_empty() {
            return;
        }
        let is_shared = self.frames.len() >= SHARED_BYTES && self.selected.len() > 1;
        let shared = is_shared.then(|| Bytes::copy_from_slice(&self.frames));
        for place in &self.selected {
            let Some(receiver) = self.receivers.get_mut(*place) else {
                continue;
            };
            match &shared {
                Some(frames) => {
                    receiver.push(&[], wake);
                    receiver.conn.push_shared(frames, wake);
                }
                None => give(receiver, &self.frames, wake),
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

#[cfg(test)]
mod tests {
    use baton_proto::EventKind;
    use baton_tree::Tree;

    use super::*;
    use crate::connections::conn::tests::outbound;
    use crate::connections::peer::Peer;
    use crate::options::Options;
    use crate::watch::table::{Kinds, WatchBounds};

    /// Connections with persistent watches on the znodes that have their letters in their names.
    struct Watched {
        conns: Vec<(char, Arc<Conn>)>,
        watches: WatchTable,
        tree: Tree,
        stats: Stats,
        run: EventRun,
        wake: Vec<Arc<Conn>>,
    }

    impl Watched {
        fn new(names: &[&str]) -> Self {
            let outbound = outbound(16 << 20);
            let conn = |id| Conn::new(id, Peer::Local, Identity::default(), 0, &outbound);
            let numbered = (1..).zip('a'..='d');
            let conns: Vec<_> = numbered.map(|(id, letter)| (letter, conn(id))).collect();
            let mut watches = WatchTable::new(WatchBounds::new(&Options::default()));
            for name in names {
                for (letter, conn) in &conns {
                    if name.contains(*letter) {
                        watches
                            .add(conn, &format!("/{name}"), Kinds::PERSISTENT)
                            .unwrap();
                    }
                }
            }
            Self {
                conns,
                watches,
                tree: Tree::new(),
                stats: Stats::new(),
                run: EventRun::default(),
                wake: Vec::new(),
            }
        }

        fn event(&mut self, name: &str, frames: &[u8]) {
            let fired = self
                .watches
                .fire(EventKind::NodeDataChanged, &format!("/{name}"));
            let (_, acl) = self.tree.peek("/").unwrap();
            self.run.add(
                (&self.watches, fired),
                acl,
                |run| run.extend_from_slice(frames),
                (&self.stats, &mut self.wake),
            );
        }

        /// Returns what the connection with this letter has been given.
        fn taken(&self, letter: char) -> Vec<u8> {
            let mut out = Vec::new();
            let (_, conn) = self.conns.iter().find(|(own, _)| *own == letter).unwrap();
            conn.take(&mut out, usize::MAX);
            out
        }
    }

    #[test]
    fn each_receiver_gets_its_events_in_order_whatever_their_lengths() {
        let names = ["a", "b", "ab", "abc", "ac", "bcd"];
        let lengths = [1, 40, SHARED_BYTES - 40, SHARED_BYTES, MOST_BYTES, 3];
        for seed in 0..36_usize {
            let mut it = Watched::new(&names);
            let mut expected = [const { Vec::new() }; 4];
            for number in 0..12_usize {
                let name = names[(seed + number * (1 + seed / 6)) % names.len()];
                let length = lengths[(number * (1 + seed % 6) + seed / 6) % lengths.len()];
                let frames = vec![u8::try_from(number).unwrap(); length];
                it.event(name, &frames);
                for (expected, letter) in expected.iter_mut().zip('a'..='d') {
                    if name.contains(letter) {
                        expected.extend_from_slice(&frames);
                    }
                }
            }
            it.run.end(&it.stats, &mut it.wake);
            for (expected, letter) in expected.iter().zip('a'..='d') {
                assert!(it.taken(letter) == *expected, "{letter}, seed {seed}");
            }
            let sent: usize = expected.iter().map(Vec::len).sum();
            assert_eq!(it.stats.watch_bytes.load(Relaxed), sent as u64);
            let receivers = expected.iter().filter(|expected| !expected.is_empty());
            assert_eq!(
                it.wake.len(),
                receivers.count(),
                "who gets nothing is not woken"
            );
        }
    }

    #[test]
    fn less_than_a_shared_run_is_gathered_and_nothing_kept_beyond_the_command() {
        let mut it = Watched::new(&["a", "b"]);
        it.event("a", &[1; SHARED_BYTES - 1]);
        it.event("b", &[2]);
        assert!(it.taken('a').is_empty());
        it.event("a", &[3]);
        it.event("b", &[4]);
        assert_eq!(it.taken('a').len(), SHARED_BYTES);
        assert!(it.taken('b').is_empty());
        it.run.end(&it.stats, &mut it.wake);
        assert_eq!(it.taken('b'), [2, 4]);
        assert!(it.run.receivers.is_empty() && it.run.places.is_empty());
        assert_eq!(
            it.run.take_work(),
            8,
            "each was asked, and received a run, four times"
        );
    }
}

//! The session's table of watches: what the server watches for this session, and who waits for it.
//!
//! Owns the match from an event to its listeners, and the lists that a reconnect sends
//! (`protocol.md` §1.8). It must never let an event reach a watch whose own read has not been
//! answered: that read sees the change itself (`H31`).

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_proto::{EventKind, Request, WatcherKind, path};
use tokio::sync::oneshot;

use crate::error::SessionLost;
use crate::session::event_queue::{EventQueue, PersistentEvent, WatchEvent};

/// Table of the server that a watch is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Data,
    Child,
    Stream,
}

impl Class {
    const ALL: [Self; 3] = [Self::Data, Self::Child, Self::Stream];

    /// This class's element of a triple.
    const fn of<T>(self, [data, child, stream]: &mut [T; 3]) -> &mut T {
        match self {
            Self::Data => data,
            Self::Child => child,
            Self::Stream => stream,
        }
    }
}

/// Watch that a request will arm once it is answered.
pub(crate) struct Ticket {
    pub(crate) id: u64,
    /// Path as the server knows it.
    pub(crate) path: Arc<str>,
    pub(crate) arm: WatchArming,
    /// A persistent watch on the same path reports what this one waits for: the request goes out
    /// without its watch flag.
    pub(crate) covered: bool,
}

pub(crate) enum WatchArming {
    /// `getData`: armed by success.
    Data(OneShotSender),
    /// `exists`: armed by success, and by "no node" too.
    Exists(OneShotSender),
    /// `getChildren`: armed by success.
    Child(OneShotSender),
    /// `addWatch`: armed by success.
    Stream {
        queue: Arc<EventQueue>,
        recursive: bool,
    },
}

impl WatchArming {
    const fn is_persistent(&self) -> bool {
        matches!(
            self,
            Self::Stream {
                recursive: false,
                ..
            }
        )
    }

    const fn class(&self) -> Class {
        match self {
            Self::Data(_) | Self::Exists(_) => Class::Data,
            Self::Child(_) => Class::Child,
            Self::Stream { .. } => Class::Stream,
        }
    }
}

pub(crate) type OneShotSender = oneshot::Sender<Result<WatchEvent, SessionLost>>;

struct OneShot {
    id: u64,
    to: OneShotSender,
}

struct Stream {
    id: u64,
    queue: Arc<EventQueue>,
    recursive: bool,
}

/// An event on its way to a listener, delivered after the lock is released.
pub(crate) enum WatchNotification {
    Once(OneShotSender, Result<WatchEvent, SessionLost>),
    Stream(Arc<EventQueue>, PersistentEvent, usize),
    End(Arc<EventQueue>, SessionLost),
}

impl WatchNotification {
    pub(crate) fn deliver(self) {
        match self {
            Self::Once(to, event) => {
                // A watch that was dropped meanwhile needs no event.
                let _gone = to.send(event);
            }
            Self::Stream(queue, event, capacity) => queue.push(event, capacity),
            Self::End(queue, lost) => queue.end(lost),
        }
    }
}

/// Everything local about one path.
#[derive(Default)]
struct PathWatches {
    /// Set by `getData`, or by `exists` on a node that was there.
    data: Vec<OneShot>,
    /// Set by `exists` on a node that was not there.
    exist: Vec<OneShot>,
    child: Vec<OneShot>,
    streams: Vec<Stream>,
    /// Requests in flight that will arm a watch: while there are any, the server's watch must stay.
    asked: [u32; 3],
    /// Those of them that will arm a persistent watch that is not recursive.
    asked_persistent: u32,
    /// Tables in which the server has us, on this connection.
    set: [bool; 3],
    /// Grows with every path that is added.
    order: u64,
}

impl PathWatches {
    fn is_unused(&self, class: Class) -> bool {
        let armed = match class {
            Class::Data => !self.data.is_empty() || !self.exist.is_empty(),
            Class::Child => !self.child.is_empty(),
            Class::Stream => !self.streams.is_empty(),
        };
        let mut asked = self.asked;
        !armed && *class.of(&mut asked) == 0
    }

    fn is_empty(&self) -> bool {
        Class::ALL.into_iter().all(|class| self.is_unused(class))
    }

    /// Returns what to remove at the server now that `class` may have lost its last interest.
    ///
    /// A persistent watch shares the server's tables with the one-shot ones, and servers before 3.9
    /// cannot remove it alone; so it goes together with the path's last one.
    fn removable(&mut self, class: Class) -> Option<WatcherKind> {
        if self.is_empty() {
            return match std::mem::take(&mut self.set) {
                [false, false, false] => None,
                [true, false, false] => Some(WatcherKind::Data),
                [false, true, false] => Some(WatcherKind::Children),
                _ => Some(WatcherKind::Any),
            };
        }
        let unused = self.is_unused(class);
        let [data, child, stream] = &mut self.set;
        match class {
            Class::Data if unused && !*stream => std::mem::take(data).then_some(WatcherKind::Data),
            Class::Child if unused && !*stream => {
                std::mem::take(child).then_some(WatcherKind::Children)
            }
            _ => None,
        }
    }
}

/// `paths` in the order in which they were added. Paths hold random markers, so their own order
/// would differ between two runs of one simulated plan.
fn in_order<T>(
    paths: impl IntoIterator<Item = T>,
    on: impl Fn(&T) -> &PathWatches,
) -> impl Iterator<Item = T> {
    let mut paths: Vec<T> = paths.into_iter().collect();
    paths.sort_unstable_by_key(|item| on(item).order);
    paths.into_iter()
}

/// All watches of one session.
#[derive(Default)]
pub(crate) struct WatchTable {
    paths: BTreeMap<Arc<str>, PathWatches>,
    /// Number of paths ever added.
    added: u64,
    next_id: u64,
    recursive: usize,
    /// The server has refused to remove watches: do not ask again.
    pub(crate) cannot_remove: bool,
}

impl WatchTable {
    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn entry(&mut self, path: &Arc<str>) -> &mut PathWatches {
        self.paths.entry(Arc::clone(path)).or_insert_with(|| {
            self.added += 1;
            PathWatches {
                order: self.added,
                ..PathWatches::default()
            }
        })
    }

    /// Returns whether a persistent watch on the ticket's path reports all that the ticket waits
    /// for.
    ///
    /// Servers before 3.9 keep one mode per path and client: a one-shot watch would turn a
    /// persistent one into a one-shot watch, silently. So it is served from the persistent one's
    /// events instead.
    pub(crate) fn covers(&self, ticket: &Ticket) -> bool {
        let Some(on) = self.paths.get(&ticket.path) else {
            return false;
        };
        match ticket.arm.class() {
            Class::Data => !on.is_unused(Class::Stream) || on.set[2],
            Class::Child => {
                on.asked_persistent > 0 || on.streams.iter().any(|stream| !stream.recursive)
            }
            Class::Stream => false,
        }
    }

    /// A request that will arm `ticket` has been submitted.
    pub(crate) fn ask(&mut self, ticket: &Ticket) {
        let on = self.entry(&ticket.path);
        *ticket.arm.class().of(&mut on.asked) += 1;
        on.asked_persistent += u32::from(ticket.arm.is_persistent());
    }

    /// That request will not be answered, or was refused. Returns what to remove at the server.
    #[must_use]
    pub(crate) fn withdraw(&mut self, ticket: &Ticket) -> Option<WatcherKind> {
        let class = ticket.arm.class();
        self.answered(&ticket.path, &ticket.arm);
        self.disarm(&ticket.path, class)
    }

    fn answered(&mut self, path: &Arc<str>, arm: &WatchArming) {
        if let Some(on) = self.paths.get_mut(path) {
            let asked = arm.class().of(&mut on.asked);
            *asked = asked.saturating_sub(1);
            on.asked_persistent = on
                .asked_persistent
                .saturating_sub(u32::from(arm.is_persistent()));
        }
    }

    /// The request was answered: the server watches. `exists` says whether the node existed.
    ///
    /// Returns what to remove at the server when nobody waits for the watch any more.
    #[must_use]
    pub(crate) fn arm(&mut self, ticket: Ticket, exists: bool) -> Option<WatcherKind> {
        let Ticket {
            id,
            path,
            arm,
            covered,
        } = ticket;
        let class = arm.class();
        self.answered(&path, &arm);
        let on = self.entry(&path);
        *class.of(&mut on.set) |= !covered;
        match arm {
            WatchArming::Data(to) | WatchArming::Exists(to) | WatchArming::Child(to)
                if to.is_closed() =>
            {
                return self.disarm(&path, class);
            }
            WatchArming::Stream { ref queue, .. } if Arc::strong_count(queue) == 1 => {
                return self.disarm(&path, class);
            }
            WatchArming::Data(to) => on.data.push(OneShot { id, to }),
            WatchArming::Exists(to) if exists => on.data.push(OneShot { id, to }),
            WatchArming::Exists(to) => on.exist.push(OneShot { id, to }),
            WatchArming::Child(to) => on.child.push(OneShot { id, to }),
            WatchArming::Stream { queue, recursive } => {
                on.streams.push(Stream {
                    id,
                    queue,
                    recursive,
                });
                self.recursive += usize::from(recursive);
            }
        }
        None
    }

    /// A local watch was dropped. Returns what to remove at the server when it was the last.
    #[must_use]
    pub(crate) fn drop_interest(
        &mut self,
        path: &Arc<str>,
        class: Class,
        id: u64,
    ) -> Option<WatcherKind> {
        let on = self.paths.get_mut(path)?;
        match class {
            Class::Data => {
                on.data.retain(|w| w.id != id);
                on.exist.retain(|w| w.id != id);
            }
            Class::Child => on.child.retain(|w| w.id != id),
            Class::Stream => {
                self.recursive -= on
                    .streams
                    .iter()
                    .filter(|s| s.id == id && s.recursive)
                    .count();
                on.streams.retain(|w| w.id != id);
            }
        }
        self.disarm(path, class)
    }

    fn disarm(&mut self, path: &Arc<str>, class: Class) -> Option<WatcherKind> {
        let kind = self.paths.get_mut(path)?.removable(class);
        self.collect(path);
        kind.filter(|_| !self.cannot_remove)
    }

    fn collect(&mut self, path: &Arc<str>) {
        if self.paths.get(path).is_some_and(PathWatches::is_empty) {
            self.paths.remove(path);
        }
    }

    /// An event came in. `local` is its path as users know it.
    pub(crate) fn fire(
        &mut self,
        kind: EventKind,
        server_path: &str,
        local: &str,
        zxid: Option<i64>,
        capacity: usize,
        fired: &mut Vec<WatchNotification>,
    ) {
        let event = || WatchEvent {
            kind,
            path: local.to_owned(),
            zxid,
        };
        let key = self
            .paths
            .get_key_value(server_path)
            .map(|(key, _)| Arc::clone(key));
        if let Some((key, on)) =
            key.and_then(|key| self.paths.get_mut(&*key).map(|on| (Arc::clone(&key), on)))
        {
            let (data, child) = match kind {
                EventKind::NodeCreated | EventKind::NodeDataChanged => (true, false),
                EventKind::NodeDeleted => (true, true),
                EventKind::NodeChildrenChanged => (false, true),
                _ => (false, false),
            };
            let mut once = Vec::new();
            if data {
                once.append(&mut on.data);
                once.append(&mut on.exist);
                on.set[0] = false;
            }
            if child {
                once.append(&mut on.child);
                on.set[1] = false;
            }
            fired.extend(
                once.into_iter()
                    .map(|w| WatchNotification::Once(w.to, Ok(event()))),
            );
            for stream in &on.streams {
                if !(stream.recursive && kind == EventKind::NodeChildrenChanged) {
                    let change = PersistentEvent::Change(event());
                    fired.push(WatchNotification::Stream(
                        Arc::clone(&stream.queue),
                        change,
                        capacity,
                    ));
                }
            }
            self.collect(&key);
        }
        if self.recursive > 0 && kind != EventKind::NodeChildrenChanged {
            let mut at = server_path;
            while at != "/" {
                at = path::parent(at);
                let above = self
                    .paths
                    .get(at)
                    .map(|on| on.streams.as_slice())
                    .unwrap_or_default();
                for stream in above.iter().filter(|s| s.recursive) {
                    let change = PersistentEvent::Change(event());
                    fired.push(WatchNotification::Stream(
                        Arc::clone(&stream.queue),
                        change,
                        capacity,
                    ));
                }
            }
        }
    }

    /// Notifies every persistent watch that changes may have been missed.
    pub(crate) fn resync(&self, fired: &mut Vec<WatchNotification>) {
        for stream in in_order(&self.paths, |(_, on)| on).flat_map(|(_, on)| &on.streams) {
            fired.push(WatchNotification::Stream(
                Arc::clone(&stream.queue),
                PersistentEvent::Resync,
                1,
            ));
        }
    }

    /// Ends every watch.
    pub(crate) fn end(&mut self, lost: SessionLost, fired: &mut Vec<WatchNotification>) {
        self.recursive = 0;
        for (_, on) in in_order(std::mem::take(&mut self.paths), |(_, on)| on) {
            let once = on.data.into_iter().chain(on.exist).chain(on.child);
            fired.extend(once.map(|w| WatchNotification::Once(w.to, Err(lost))));
            fired.extend(
                on.streams
                    .into_iter()
                    .map(|s| WatchNotification::End(s.queue, lost)),
            );
        }
    }

    /// Cuts all armed watches into requests of at most `max_bytes` of path text each, and passes
    /// each to `send`.
    pub(crate) fn rearm(
        &mut self,
        relative_zxid: i64,
        max_bytes: usize,
        mut send: impl FnMut(Request<'_>),
    ) {
        let any_stream = self.paths.values().any(|on| !on.streams.is_empty());
        let mut batch: [Vec<&str>; 5] = Default::default();
        let mut bytes = 0;
        let mut flush = |batch: &mut [Vec<&str>; 5]| {
            let [data, exist, child, persistent, persistent_recursive] = std::mem::take(batch);
            send(if any_stream {
                Request::SetWatches2 {
                    relative_zxid,
                    data,
                    exist,
                    child,
                    persistent,
                    persistent_recursive,
                }
            } else {
                Request::SetWatches {
                    relative_zxid,
                    data,
                    exist,
                    child,
                }
            });
        };
        for (path, on) in in_order(&mut self.paths, |(_, on)| on) {
            on.set = [
                !on.data.is_empty() || !on.exist.is_empty(),
                !on.child.is_empty(),
                !on.streams.is_empty(),
            ];
            let wanted = [
                !on.data.is_empty(),
                !on.exist.is_empty(),
                !on.child.is_empty(),
                on.streams.iter().any(|s| !s.recursive),
                on.streams.iter().any(|s| s.recursive),
            ];
            let more = wanted.iter().filter(|wanted| **wanted).count() * (path.len() + 4);
            if bytes > 0 && bytes + more > max_bytes {
                flush(&mut batch);
                bytes = 0;
            }
            bytes += more;
            for (list, wanted) in batch.iter_mut().zip(wanted) {
                if wanted {
                    list.push(path);
                }
            }
        }
        if bytes > 0 {
            flush(&mut batch);
        }
    }
}

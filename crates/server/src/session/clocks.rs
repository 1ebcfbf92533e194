//! When sessions end: touches from sockets, buckets for the core. Owns the rule that no session
//! ends early. Never ends a session itself: the core writes a log entry for each that is due
//! (protocol.md §2).

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::connections::conn::Conn;
use crate::connections::touch::{ENDING, Touch};

/// State of a session in the core, besides what the tree stores.
#[derive(Debug)]
pub(crate) struct Clocked {
    pub(crate) timeout_ms: u32,
    pub(crate) touch: Arc<Touch>,
    /// The connection that owns the session; a write from any other is refused (protocol.md
    /// §2, session move).
    pub(crate) conn: Option<Arc<Conn>>,
    /// The bucket that counts; its places in others are skipped when those come due.
    bucket: u64,
}

impl Clocked {
    /// Whether the client has sent something that has not been read, or not been counted yet. To be
    /// asked after [`Touch::last_ms`] was read: what was counted since then shows there.
    fn has_unread_bytes(&self) -> bool {
        self.conn
            .as_ref()
            .is_some_and(|conn| conn.has_unread_bytes())
    }
}

/// Outcome of [`SessionClocks::due`].
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Sessions that are to be ended.
    pub(crate) ended: Vec<i64>,
    /// How many sessions were spared because bytes of theirs wait.
    pub(crate) put_off: u64,
}

/// The first tick after `last_ms + timeout_ms`: strictly after, since a touch is rounded down to a
/// millisecond.
fn bucket(tick_ms: u64, last_ms: u64, timeout_ms: u32) -> u64 {
    let due = last_ms.saturating_add(u64::from(timeout_ms));
    (due / tick_ms + 1).saturating_mul(tick_ms)
}

/// All sessions, in buckets of one tick.
#[derive(Debug)]
pub(crate) struct SessionClocks {
    tick_ms: u64,
    sessions: HashMap<i64, Clocked, RandomState>,
    buckets: BTreeMap<u64, Vec<i64>>,
}

impl SessionClocks {
    pub(crate) fn new(tick_ms: u64) -> Self {
        Self {
            tick_ms: tick_ms.max(1),
            sessions: HashMap::default(),
            buckets: BTreeMap::new(),
        }
    }

    /// A session begins, or has a full timeout again after a restart or a re-attach.
    pub(crate) fn start(
        &mut self,
        session: i64,
        timeout_ms: u32,
        now_ms: u64,
        conn: Option<Arc<Conn>>,
    ) -> Arc<Touch> {
        let touch = Touch::new(now_ms);
        let bucket = bucket(self.tick_ms, now_ms, timeout_ms);
        let clocked = Clocked {
            timeout_ms,
            touch: Arc::clone(&touch),
            conn,
            bucket,
        };
        let before = self.sessions.insert(session, clocked);
        if before.is_none_or(|before| before.bucket != bucket) {
            self.buckets.entry(bucket).or_default().push(session);
        }
        touch
    }

    pub(crate) fn get(&self, session: i64) -> Option<&Clocked> {
        self.sessions.get(&session)
    }

    pub(crate) fn get_mut(&mut self, session: i64) -> Option<&mut Clocked> {
        self.sessions.get_mut(&session)
    }

    /// A session has ended; its place in a bucket is skipped when that comes due.
    pub(crate) fn end(&mut self, session: i64) -> Option<Clocked> {
        self.sessions.remove(&session)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// When [`SessionClocks::due`] is to be called next.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.buckets.keys().next().copied()
    }

    /// Marks as ending, and returns in order of id, the sessions whose time is over. The others
    /// move to the bucket that their last touch gives. A session of whose bytes some wait on its
    /// socket, unread, is put off from tick to tick, for one more timeout at most: a client that is
    /// gone may have left bytes that cannot be answered.
    pub(crate) fn due(&mut self, now_ms: u64) -> Due {
        let mut due = Due::default();
        let next_tick_ms = (now_ms / self.tick_ms + 1).saturating_mul(self.tick_ms);
        while let Some(entry) = self.buckets.first_entry() {
            if *entry.key() > now_ms {
                break;
            }
            let (this, sessions) = entry.remove_entry();
            for session in sessions {
                let Some(clocked) = self.sessions.get_mut(&session) else {
                    continue;
                };
                let last_ms = clocked.touch.last_ms();
                if clocked.bucket != this || last_ms == ENDING {
                    continue;
                }
                let timeout_ms = clocked.timeout_ms;
                let bucket = bucket(self.tick_ms, last_ms, timeout_ms);
                let may_wait = now_ms.saturating_sub(last_ms) <= 2 * u64::from(timeout_ms);
                if bucket > now_ms {
                    clocked.bucket = bucket;
                } else if may_wait && clocked.has_unread_bytes() {
                    due.put_off += 1;
                    clocked.bucket = next_tick_ms;
                } else if clocked.touch.end(last_ms) {
                    due.ended.push(session);
                    continue;
                } else {
                    // It was touched just now.
                    clocked.bucket = next_tick_ms;
                }
                let places = self.buckets.entry(clocked.bucket).or_default();
                places.push(session);
            }
        }
        due.ended.sort_unstable();
        due
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::connections::conn::Outlet;
    use crate::connections::conn::tests::conn;

    #[test]
    fn a_session_ends_within_one_tick_after_its_timeout_and_never_before() {
        for touched_at in [0, 1, 199, 200, 201, 399] {
            let mut clocks = SessionClocks::new(200);
            let touch = clocks.start(7, 1000, 0, None);
            assert!(touch.touch(touched_at));
            let mut ended_at = None;
            for now in 0..3000 {
                if !clocks.due(now).ended.is_empty() {
                    ended_at = Some(now);
                    break;
                }
            }
            let ended_at = ended_at.unwrap();
            assert!(ended_at > touched_at + 1000, "{touched_at} {ended_at}");
            assert!(ended_at <= touched_at + 1200, "{touched_at} {ended_at}");
        }
    }

    #[test]
    fn a_packet_that_comes_after_the_decision_is_not_counted() {
        let mut clocks = SessionClocks::new(10);
        let touch = clocks.start(7, 100, 0, None);
        assert_eq!(clocks.due(110).ended, [7]);
        assert!(!touch.touch(111));
    }

    #[test]
    fn a_session_whose_bytes_wait_unread_is_put_off_for_one_more_timeout_at_most() {
        for (touched_at, ends_at) in [(1150, 3200), (1200, 3300)] {
            let mut clocks = SessionClocks::new(100);
            let owner = conn(1);
            let socket: Arc<dyn Outlet> = Arc::new(Unread);
            owner.reads_from(&socket);
            let touch = clocks.start(7, 1000, 0, Some(Arc::clone(&owner)));
            let put_off = clocks.due(1100);
            assert_eq!((put_off.ended, put_off.put_off), (vec![], 1));
            assert!(touch.touch(touched_at), "it has not ended");
            let ended_at = (touched_at..5000).find(|now| clocks.due(*now).ended == [7]);
            assert_eq!(ended_at, Some(ends_at));
            clocks.start(8, 1000, 0, Some(owner));
            drop(socket);
            assert_eq!(clocks.due(1100).ended, [8], "whose socket is gone");
        }
    }

    /// A socket on which bytes wait.
    struct Unread;

    impl Outlet for Unread {
        fn try_write(&self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::WouldBlock.into())
        }

        fn unread_bytes(&self) -> u64 {
            1
        }
    }

    /// A socket whose task counts a packet when it is asked for unread bytes the first time, just
    /// before the session ends.
    #[derive(Default)]
    struct JustInTime {
        touch: Mutex<Option<Arc<Touch>>>,
        at_ms: u64,
    }

    impl Outlet for JustInTime {
        fn try_write(&self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::WouldBlock.into())
        }

        fn unread_bytes(&self) -> u64 {
            if let Some(touch) = self.touch.lock().take() {
                assert!(touch.touch(self.at_ms));
            }
            0
        }
    }

    #[test]
    fn a_packet_that_comes_while_the_core_decides_keeps_the_session_for_a_full_timeout() {
        let mut clocks = SessionClocks::new(100);
        let owner = conn(1);
        let socket = Arc::new(JustInTime {
            at_ms: 1099,
            ..JustInTime::default()
        });
        owner.reads_from(&(Arc::clone(&socket) as Arc<dyn Outlet>));
        let touch = clocks.start(7, 1000, 0, Some(owner));
        *socket.touch.lock() = Some(touch);
        let ended_at = (0..5000).find(|now| clocks.due(*now).ended == [7]);
        assert_eq!(ended_at, Some(2100));
    }

    #[test]
    fn an_ended_session_is_not_due_and_a_restarted_one_has_a_full_timeout() {
        let mut clocks = SessionClocks::new(10);
        clocks.start(7, 100, 0, None);
        assert!(clocks.end(7).is_some());
        clocks.start(8, 100, 0, None);
        clocks.start(8, 100, 90, None);
        assert!(clocks.due(120).ended.is_empty());
        assert_eq!(clocks.due(200).ended, [8]);
    }

    #[test]
    fn a_session_that_is_attached_again_and_again_waits_in_one_place() {
        let mut clocks = SessionClocks::new(10);
        for _ in 0..1000 {
            clocks.end(7);
            clocks.start(7, 100, 0, None);
        }
        assert!(clocks.get(7).unwrap().touch.touch(50));
        assert!(clocks.due(110).ended.is_empty());
        assert_eq!(clocks.buckets.values().map(Vec::len).sum::<usize>(), 1);
        assert_eq!(clocks.due(160).ended, [7]);
    }

    #[test]
    fn sessions_come_due_in_order_of_id() {
        let mut clocks = SessionClocks::new(10);
        for id in [5, 3, 9, 1] {
            clocks.start(id, 100, 0, None);
        }
        assert_eq!(clocks.due(1000).ended, [1, 3, 5, 9]);
    }
}

//! When sessions end: touches from sockets, buckets for the core. Owns the rule that no session
//! ends early. Never ends a session itself: the core writes a log entry for each that is due
//! (protocol.md §2).
//!
//! In an ensemble only the leader's clocks end sessions. Those of every other server find out which
//! of its clients were heard of, for the leader: [`SessionClocks::follow`] and
//! [`SessionClocks::collect_touched`] in place of [`SessionClocks::lead`] and
//! [`SessionClocks::due`].

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::connections::conn::Conn;
use crate::connections::counts::ClientCounts;
use crate::connections::peer::PeerGroup;
use crate::connections::touch::{ENDING, Touch};

/// State of a session in the core, besides what the tree stores.
#[derive(Debug)]
pub(crate) struct Clocked {
    pub(crate) timeout_ms: u32,
    pub(crate) touch: Arc<Touch>,
    /// The connection that owns the session; a write from any other is refused (protocol.md
    /// §2, session move).
    pub(crate) conn: Option<Arc<Conn>>,
    /// Address of the client that opened the session at this server, or came back with it here.
    client: PeerGroup,
    /// The bucket that counts; its places in others are skipped when those come due.
    bucket: u64,
    /// The server of an ensemble that the client is connected to, where that is known.
    server: Option<u64>,
    /// The newest touch that was collected for the leader.
    collected_ms: u64,
    /// Once its time is over: when its client was last heard of.
    pub(crate) silent_since_ms: Option<u64>,
}

impl Clocked {
    /// The client's address, if it was connected to this server.
    pub(crate) fn peer(&self) -> String {
        match &self.conn {
            Some(conn) => conn.peer.to_string(),
            None => self.client.to_string(),
        }
    }

    /// Returns the group of addresses under which limits count the client.
    pub(crate) fn group(&self) -> PeerGroup {
        match &self.conn {
            Some(conn) => PeerGroup::of(Some(&conn.peer)),
            None => self.client,
        }
    }

    /// The server of the ensemble that the client was connected to, where that is known and it is
    /// not this one.
    pub(crate) fn other_server(&self) -> Option<u64> {
        self.server.filter(|_| self.conn.is_none())
    }

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
    /// Number of sessions that were spared because bytes of theirs wait.
    pub(crate) put_off: u64,
}

/// The first tick after `last_ms + timeout_ms`: strictly after, since a touch is rounded down to a
/// millisecond.
fn bucket(tick_ms: u64, last_ms: u64, timeout_ms: u32) -> u64 {
    let due = last_ms.saturating_add(u64::from(timeout_ms));
    (due / tick_ms + 1).saturating_mul(tick_ms)
}

/// The tick at which a follower collects what was touched. Twice in a quarter of the timeout, so
/// that the leader knows of a client that only reads well before the session's time is over; pings
/// do not wait for this.
fn look(tick_ms: u64, now_ms: u64, timeout_ms: u32) -> u64 {
    let next = now_ms.saturating_add(u64::from(timeout_ms / 8));
    (next / tick_ms + 1).saturating_mul(tick_ms)
}

/// All sessions, in buckets of one tick.
#[derive(Debug)]
pub(crate) struct SessionClocks {
    tick_ms: u64,
    /// Whether another server decides which sessions end.
    follows: bool,
    sessions: HashMap<i64, Clocked, RandomState>,
    counts: ClientCounts,
    buckets: BTreeMap<u64, Vec<i64>>,
}

impl SessionClocks {
    pub(crate) fn new(tick_ms: u64) -> Self {
        Self {
            tick_ms: tick_ms.max(1),
            follows: false,
            sessions: HashMap::default(),
            counts: ClientCounts::default(),
            buckets: BTreeMap::new(),
        }
    }

    /// Returns the length of a bucket.
    pub(crate) fn tick_ms(&self) -> u64 {
        self.tick_ms
    }

    /// Whether another server decides which sessions end.
    #[cfg(feature = "simulation")]
    pub(crate) fn follows(&self) -> bool {
        self.follows
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
        let bucket = if self.follows {
            look(self.tick_ms, now_ms, timeout_ms)
        } else {
            bucket(self.tick_ms, now_ms, timeout_ms)
        };
        let client = PeerGroup::of(conn.as_ref().map(|conn| &conn.peer));
        let clocked = Clocked {
            timeout_ms,
            touch: Arc::clone(&touch),
            conn,
            client,
            bucket,
            server: None,
            collected_ms: now_ms,
            silent_since_ms: None,
        };
        self.counts.add(client);
        let before = self.sessions.insert(session, clocked);
        if let Some(before) = &before {
            self.counts.remove(before.client);
        }
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
        let ended = self.sessions.remove(&session)?;
        self.counts.remove(ended.client);
        Some(ended)
    }

    /// Returns the number of open sessions of this client, with a connection or without.
    pub(crate) fn of_client(&self, client: PeerGroup) -> usize {
        self.counts.of(client)
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }
}

impl SessionClocks {
    /// The client of the session is connected to `server` now. Until this is called after
    /// [`SessionClocks::start`], touches of the session count from every server.
    pub(crate) fn connected_to(&mut self, session: i64, server: u64) {
        if let Some(clocked) = self.sessions.get_mut(&session) {
            clocked.server = Some(server);
        }
    }

    /// Counts that `server` heard of the session at `at_ms`. `false`: the session is not known, is
    /// being ended, or its client is connected to another server.
    pub(crate) fn touch(&self, session: i64, server: u64, at_ms: u64) -> bool {
        self.sessions.get(&session).is_some_and(|clocked| {
            clocked.server.is_none_or(|owner| owner == server) && clocked.touch.touch(at_ms)
        })
    }

    /// Counts that a write of the session has come, from whichever server: which one has the client
    /// is decided where the write is applied.
    pub(crate) fn heard_of(&self, session: i64, at_ms: u64) {
        if let Some(clocked) = self.sessions.get(&session) {
            clocked.touch.touch(at_ms);
        }
    }

    /// The connection of this id, if it owns the session.
    pub(crate) fn owner(&self, session: i64, conn: u32) -> Option<&Arc<Conn>> {
        let owner = self.sessions.get(&session)?.conn.as_ref();
        owner.filter(|owner| owner.id == conn)
    }

    /// From here on this server decides which sessions end. Each has a full timeout from `now_ms`,
    /// whatever the leader before had counted (R35).
    pub(crate) fn lead(&mut self, now_ms: u64) {
        self.follows = false;
        self.buckets.clear();
        for (session, clocked) in &mut self.sessions {
            clocked.touch.revive(now_ms);
            clocked.touch.touch(now_ms);
            clocked.bucket = bucket(self.tick_ms, now_ms, clocked.timeout_ms);
            let places = self.buckets.entry(clocked.bucket).or_default();
            places.push(*session);
        }
    }

    /// The sessions that are being ended, in order.
    #[cfg(feature = "simulation")]
    pub(crate) fn ending(&self) -> Vec<i64> {
        let sessions = self.sessions.iter();
        let is_ending = |(_, clocked): &(&i64, &Clocked)| clocked.touch.last_ms() == ENDING;
        let mut ending: Vec<i64> = sessions.filter(is_ending).map(|(id, _)| *id).collect();
        ending.sort_unstable();
        ending
    }

    /// From here on another server decides which sessions end, or none. What this one had decided
    /// and not committed is void (R36); if it is committed all the same, that ends the session.
    pub(crate) fn follow(&mut self, now_ms: u64) {
        self.follows = true;
        self.buckets.clear();
        for (session, clocked) in &mut self.sessions {
            clocked.touch.revive(now_ms);
            clocked.collected_ms = clocked.touch.last_ms();
            clocked.bucket = look(self.tick_ms, now_ms, clocked.timeout_ms);
            let places = self.buckets.entry(clocked.bucket).or_default();
            places.push(*session);
        }
    }

    /// Reports the sessions of this server's clients that were touched since they were reported
    /// last, in no order. A session of whose bytes some wait on its socket, unread, counts as
    /// touched for one timeout at most (R37): as in [`SessionClocks::due`].
    pub(crate) fn collect_touched(&mut self, now_ms: u64, mut report: impl FnMut(i64)) {
        while let Some(entry) = self.buckets.first_entry() {
            if *entry.key() > now_ms {
                break;
            }
            let (this, sessions) = entry.remove_entry();
            for session in sessions {
                let Some(clocked) = self.sessions.get_mut(&session) else {
                    continue;
                };
                if clocked.bucket != this {
                    continue;
                }
                let last_ms = clocked.touch.last_ms();
                let silent_ms = now_ms.saturating_sub(last_ms);
                let timeout_ms = u64::from(clocked.timeout_ms);
                // The socket is asked only where a ping is overdue.
                let may_be_blocked = silent_ms > timeout_ms / 2 && silent_ms <= timeout_ms;
                if last_ms > clocked.collected_ms || (may_be_blocked && clocked.has_unread_bytes())
                {
                    clocked.collected_ms = last_ms;
                    if clocked.conn.is_some() {
                        report(session);
                    }
                }
                clocked.bucket = look(self.tick_ms, now_ms, clocked.timeout_ms);
                let places = self.buckets.entry(clocked.bucket).or_default();
                places.push(session);
            }
        }
    }
}

impl SessionClocks {
    /// When [`SessionClocks::due`] or [`SessionClocks::collect_touched`] is to be called next.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.buckets.keys().next().copied()
    }

    /// Marks as ending, and returns in order of id, the sessions whose time is over. The others
    /// move to the bucket that their last touch gives. A session of whose bytes some wait on its
    /// socket, unread, is put off from tick to tick, for one more timeout at most: a client that is
    /// gone may have left bytes that cannot be answered. Asks `has_room` before it ends a session;
    /// what has no room stays due.
    pub(crate) fn due(&mut self, now_ms: u64, mut has_room: impl FnMut(i64) -> bool) -> Due {
        let mut due = Due::default();
        let next_tick_ms = (now_ms / self.tick_ms + 1).saturating_mul(self.tick_ms);
        while let Some(entry) = self.buckets.first_entry() {
            if *entry.key() > now_ms {
                break;
            }
            let (this, mut sessions) = entry.remove_entry();
            while let Some(session) = sessions.pop() {
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
                } else if !has_room(session) {
                    sessions.push(session);
                    self.buckets.insert(this, sessions);
                    due.ended.sort_unstable();
                    return due;
                } else if clocked.touch.end(last_ms) {
                    clocked.silent_since_ms = Some(last_ms);
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
    use baton_tree::Identity;
    use parking_lot::Mutex;

    use super::*;
    use crate::connections::conn::Outlet;
    use crate::connections::conn::tests::{conn, outbound};
    use crate::connections::peer::Peer;

    #[test]
    fn a_session_ends_within_one_tick_after_its_timeout_and_never_before() {
        for touched_at in [0, 1, 199, 200, 201, 399] {
            let mut clocks = SessionClocks::new(200);
            let touch = clocks.start(7, 1000, 0, None);
            assert!(touch.touch(touched_at));
            let mut ended_at = None;
            for now in 0..3000 {
                if !clocks.due(now, |_| true).ended.is_empty() {
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
    fn a26_a_session_counts_for_the_client_that_came_with_it_last() {
        let peer = Peer::Tcp(([192, 0, 2, 1], 1).into());
        let owner = Conn::new(1, peer, Identity::default(), 0, &outbound(4));
        let client = PeerGroup::of(Some(&owner.peer));
        assert!(client.is_counted());
        let mut clocks = SessionClocks::new(10);
        clocks.start(7, 100, 0, Some(Arc::clone(&owner)));
        clocks.start(8, 100, 0, None);
        assert_eq!(clocks.of_client(client), 1);
        clocks.get_mut(7).unwrap().conn = None;
        assert_eq!(clocks.of_client(client), 1, "without a connection, too");
        clocks.start(8, 100, 0, Some(owner));
        assert_eq!(clocks.of_client(client), 2);
        clocks.start(7, 100, 0, None);
        assert_eq!(clocks.of_client(client), 1, "it went on at another server");
        clocks.end(8);
        clocks.end(8);
        assert_eq!(clocks.of_client(client), 0);
        clocks.end(7);
        assert_eq!(clocks.len(), 0);
    }

    #[test]
    fn a_packet_that_comes_after_the_decision_is_not_counted() {
        let mut clocks = SessionClocks::new(10);
        let touch = clocks.start(7, 100, 0, None);
        assert_eq!(clocks.due(110, |_| true).ended, [7]);
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
            let put_off = clocks.due(1100, |_| true);
            assert_eq!((put_off.ended, put_off.put_off), (vec![], 1));
            assert!(touch.touch(touched_at), "it has not ended");
            let ended_at = (touched_at..5000).find(|now| clocks.due(*now, |_| true).ended == [7]);
            assert_eq!(ended_at, Some(ends_at));
            clocks.start(8, 1000, 0, Some(owner));
            drop(socket);
            assert_eq!(
                clocks.due(1100, |_| true).ended,
                [8],
                "whose socket is gone"
            );
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
        let ended_at = (0..5000).find(|now| clocks.due(*now, |_| true).ended == [7]);
        assert_eq!(ended_at, Some(2100));
    }

    #[test]
    fn an_ended_session_is_not_due_and_a_restarted_one_has_a_full_timeout() {
        let mut clocks = SessionClocks::new(10);
        clocks.start(7, 100, 0, None);
        assert!(clocks.end(7).is_some());
        clocks.start(8, 100, 0, None);
        clocks.start(8, 100, 90, None);
        assert!(clocks.due(120, |_| true).ended.is_empty());
        assert_eq!(clocks.due(200, |_| true).ended, [8]);
    }

    #[test]
    fn a_session_that_is_attached_again_and_again_waits_in_one_place() {
        let mut clocks = SessionClocks::new(10);
        for _ in 0..1000 {
            clocks.end(7);
            clocks.start(7, 100, 0, None);
        }
        assert!(clocks.get(7).unwrap().touch.touch(50));
        assert!(clocks.due(110, |_| true).ended.is_empty());
        assert_eq!(clocks.buckets.values().map(Vec::len).sum::<usize>(), 1);
        assert_eq!(clocks.due(160, |_| true).ended, [7]);
    }

    /// Returns the reports of a follower at each of these instants.
    fn reported(clocks: &mut SessionClocks, instants: std::ops::Range<u64>) -> Vec<(u64, i64)> {
        let mut all = Vec::new();
        for now in instants {
            clocks.collect_touched(now, |session| all.push((now, session)));
        }
        all
    }

    #[test]
    fn r35_a_new_leader_gives_each_session_a_full_timeout_whatever_it_knew() {
        let mut clocks = SessionClocks::new(10);
        clocks.start(7, 100, 0, None);
        let touch = clocks.start(8, 100, 0, None);
        clocks.follow(0);
        assert!(reported(&mut clocks, 0..5000).is_empty());
        // One of them was to end when this server led before.
        assert!(touch.end(touch.last_ms()));
        clocks.lead(5000);
        assert!(touch.touch(5000));
        assert_eq!(clocks.next_due_ms(), Some(5110));
        assert!((0..=5109).all(|now| clocks.due(now, |_| true).ended.is_empty()));
        assert_eq!(clocks.due(5110, |_| true).ended, [7, 8]);
    }

    #[test]
    fn r36_what_a_deposed_leader_had_decided_is_void() {
        let mut clocks = SessionClocks::new(10);
        let touch = clocks.start(7, 100, 0, None);
        assert_eq!(clocks.due(110, |_| true).ended, [7]);
        assert!(!touch.touch(111) && !clocks.touch(7, 1, 111));
        clocks.follow(120);
        assert!(touch.touch(121) && clocks.touch(7, 1, 121));
        assert!(reported(&mut clocks, 120..1000).is_empty());
        clocks.lead(1000);
        assert_eq!(clocks.due(1110, |_| true).ended, [7], "decided again");
    }

    #[test]
    fn r36_a_follower_s_clocks_end_no_session_and_each_waits_in_one_place() {
        let mut clocks = SessionClocks::new(10);
        clocks.follow(0);
        for session in 0..100 {
            clocks.start(session, 100, 0, None);
        }
        for now in 0..3000 {
            clocks.collect_touched(now, |_| panic!("none of them is a client of this server"));
            assert_eq!(clocks.buckets.values().map(Vec::len).sum::<usize>(), 100);
        }
        assert!((0..100).all(|session| clocks.touch(session, 1, 3000)));
    }

    #[test]
    fn r37_a_client_that_only_reads_on_a_follower_is_reported_while_it_does() {
        let mut clocks = SessionClocks::new(10);
        clocks.follow(0);
        let touch = clocks.start(7, 800, 0, Some(conn(1)));
        clocks.start(8, 800, 0, Some(conn(2)));
        assert!(reported(&mut clocks, 0..300).is_empty(), "nothing was read");
        assert!(touch.touch(250));
        assert_eq!(reported(&mut clocks, 300..2000), [(330, 7)], "and once");
        assert!(touch.touch(2000));
        let next = reported(&mut clocks, 2000..3000);
        assert!(
            next.len() == 1 && next[0].0 <= 2000 + 800 / 8 + 2 * 10,
            "{next:?}"
        );
    }

    #[test]
    fn r37_a_socket_that_is_not_read_counts_as_heard_for_one_timeout() {
        let mut clocks = SessionClocks::new(10);
        clocks.follow(0);
        let owner = conn(1);
        let socket: Arc<dyn Outlet> = Arc::new(Unread);
        owner.reads_from(&socket);
        clocks.start(7, 800, 0, Some(owner));
        let reports = reported(&mut clocks, 0..5000);
        assert!(reports.iter().all(|(at, _)| (401..=800).contains(at)));
        let last = reports.last().map(|(at, _)| *at);
        assert!(
            last.is_some_and(|at| at > 800 - 800 / 8 - 2 * 10),
            "{reports:?}"
        );
    }

    #[test]
    fn r37_a_touch_counts_from_the_server_that_has_the_client() {
        let mut clocks = SessionClocks::new(10);
        assert!(!clocks.touch(7, 1, 5), "not known");
        clocks.start(7, 100, 0, None);
        assert!(clocks.touch(7, 1, 5) && clocks.touch(7, 2, 10));
        clocks.connected_to(7, 2);
        assert!(!clocks.touch(7, 1, 50) && clocks.touch(7, 2, 60));
        assert!(clocks.due(160, |_| true).ended.is_empty());
        assert_eq!(clocks.due(170, |_| true).ended, [7]);
    }

    #[test]
    fn r37_a_write_counts_whichever_server_sends_it_and_revives_no_session() {
        let mut clocks = SessionClocks::new(10);
        clocks.start(7, 100, 0, None);
        clocks.connected_to(7, 2);
        // This server has not applied the re-attachment yet that the write comes behind.
        clocks.heard_of(7, 60);
        clocks.heard_of(8, 60);
        assert!(clocks.due(160, |_| true).ended.is_empty());
        assert_eq!(clocks.due(170, |_| true).ended, [7]);
        clocks.heard_of(7, 180);
        assert!(!clocks.touch(7, 2, 180));
    }

    #[test]
    fn a_session_s_connection_is_found_by_its_id_while_it_owns_the_session() {
        let mut clocks = SessionClocks::new(10);
        clocks.start(7, 100, 0, Some(conn(1)));
        assert_eq!(clocks.owner(7, 1).map(|conn| conn.id), Some(1));
        assert!(clocks.owner(7, 2).is_none() && clocks.owner(8, 1).is_none());
    }

    #[test]
    fn sessions_come_due_in_order_of_id() {
        let mut clocks = SessionClocks::new(10);
        for id in [5, 3, 9, 1] {
            clocks.start(id, 100, 0, None);
        }
        assert_eq!(clocks.due(1000, |_| true).ended, [1, 3, 5, 9]);
    }
}

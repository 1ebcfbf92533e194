//! Requests that wait for a log entry. Owns the turns: where more waits than one entry takes,
//! connections take turns, so that one that hands in much delays others by no more than the entries
//! that are on their way already. Requests of one connection keep their order; handshakes go first,
//! because no session may end while its re-attachment waits here.
//!
//! The turns are those of a deficit round robin by bytes and requests. A connection of which little
//! waited before comes ahead of those of which much waits, for one turn. So a bystander's write is
//! in the next entry whatever the number of bulk writers.

use std::collections::{HashMap, VecDeque};

use crate::connections::inbox::Work;

/// Bytes of one entry, where a request counts [`REQUEST_BYTES`] more than it has. One request of a
/// connection of which much waits may exceed it: one that is larger could never go otherwise.
pub(crate) const ENTRY_BYTES: usize = 1 << 20;
/// Bytes that a request counts besides its body: applying it takes time, too.
const REQUEST_BYTES: usize = 256;
/// Bytes that a connection may add to an entry in one turn.
const TURN_BYTES: usize = 64 << 10;
/// Bytes of an entry that are kept for connections of which much waits.
const BULK_BYTES: isize = ENTRY_BYTES.cast_signed() / 4;

/// Requests that wait for an entry, of all connections.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Requests in order of arrival, which no turn has come to yet.
    arrived: Work,
    /// Whether any of them asks for a session.
    has_arrived_handshakes: bool,
    /// Those that ask for a session.
    handshakes: VecDeque<Work>,
    queues: HashMap<u32, Queue>,
    /// Connections that had nothing in `queues` before, and then those that had, in order of their
    /// turns.
    fresh: VecDeque<u32>,
    bulk: VecDeque<u32>,
}

/// One group, and how many of its requests were taken.
type Part = (Work, usize);

/// Requests of one connection.
#[derive(Debug, Default)]
struct Queue {
    /// Oldest first.
    groups: VecDeque<Part>,
    /// Bytes that it may still take, or has taken beyond its turns where negative.
    credit: isize,
}

impl Queue {
    /// Takes requests while the connection's turn lasts and `left` does. The first one may exceed
    /// it if `may_exceed`. Returns the bytes of the next one where that does not fit.
    fn take_turn(
        &mut self,
        into: &mut Work,
        left: &mut isize,
        mut may_exceed: bool,
    ) -> Option<usize> {
        while self.credit > 0
            && *left > 0
            && let Some((front, taken)) = self.groups.front_mut()
        {
            let bytes = front
                .requests
                .get(*taken)
                .map_or(0, |next| front.body(next).len());
            let cost = bytes + REQUEST_BYTES;
            if left.saturating_sub_unsigned(cost) < 0 && !std::mem::take(&mut may_exceed) {
                return Some(cost);
            }
            front.copy_requests(0, *taken..*taken + 1, into);
            may_exceed = false;
            *taken += 1;
            if *taken >= front.len() {
                self.groups.pop_front();
            }
            *left = left.saturating_sub_unsigned(cost);
            self.credit = self.credit.saturating_sub_unsigned(cost);
        }
        None
    }
}

impl Backlog {
    /// Adds requests, and empties `work`.
    pub(crate) fn add(&mut self, work: &mut Work) {
        self.has_arrived_handshakes |= work.has_handshakes();
        match self.arrived.is_empty() {
            true => std::mem::swap(&mut self.arrived, work),
            false => self.arrived.append(work),
        }
    }

    /// Adds requests that were taken too early, before all others of their connections.
    pub(crate) fn put_back(&mut self, work: &mut Work) {
        self.queue_arrived();
        let mut groups = Vec::with_capacity(work.groups.len());
        work.split_groups(|group| groups.push(group));
        for group in groups.into_iter().rev() {
            self.queue(group, VecDeque::push_front);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.handshakes.is_empty() && self.queues.is_empty()
    }

    /// Whether requests for a session wait.
    pub(crate) fn has_handshakes(&self) -> bool {
        !self.handshakes.is_empty() || self.has_arrived_handshakes
    }

    /// Moves the requests of the next entry into `work`, which is empty.
    pub(crate) fn take(&mut self, work: &mut Work) {
        let is_alone = self.handshakes.is_empty() && self.queues.is_empty();
        if is_alone && cost(&self.arrived) <= ENTRY_BYTES {
            std::mem::swap(work, &mut self.arrived);
            self.has_arrived_handshakes = false;
            return;
        }
        self.queue_arrived();
        let mut left = ENTRY_BYTES.cast_signed();
        while left > 0
            && let Some(mut handshake) = self.handshakes.pop_front()
        {
            left = left.saturating_sub_unsigned(cost(&handshake));
            work.append(&mut handshake);
        }
        left -= BULK_BYTES;
        self.take_fresh(work, &mut left);
        left += BULK_BYTES;
        self.take_bulk(work, &mut left);
        self.take_fresh(work, &mut left);
    }

    /// Takes everything, in the order of each connection.
    pub(crate) fn take_all(&mut self) -> Work {
        let mut all = Work::default();
        while !self.is_empty() {
            let mut next = Work::default();
            self.take(&mut next);
            all.append(&mut next);
        }
        all
    }

    /// Gives connections of which little waited their turns.
    fn take_fresh(&mut self, work: &mut Work, left: &mut isize) {
        while *left > 0
            && let Some(id) = self.fresh.pop_front()
        {
            match self.turn(id, work, left, false) {
                // It goes on in the next entry, before those that have come after it.
                Some(cost) if cost <= TURN_BYTES => {
                    self.bulk.pop_front();
                    self.fresh.push_front(id);
                    return;
                }
                _ => {}
            }
        }
    }

    /// Gives the other connections their turns, again and again.
    fn take_bulk(&mut self, work: &mut Work, left: &mut isize) {
        let all = *left;
        while *left > 0
            && let Some(id) = self.bulk.pop_front()
        {
            let is_first = *left == all;
            if self.turn(id, work, left, is_first).is_some() {
                return;
            }
        }
    }

    /// Gives a connection its turn. What it leaves waits for the next one, unless the entry ended
    /// the turn early: then the turn goes on in the next entry. Returns the bytes of its next
    /// request where that does not fit.
    fn turn(
        &mut self,
        id: u32,
        work: &mut Work,
        left: &mut isize,
        may_exceed: bool,
    ) -> Option<usize> {
        let queue = self.queues.get_mut(&id)?;
        let too_large = queue.take_turn(work, left, may_exceed);
        if queue.groups.is_empty() {
            self.queues.remove(&id);
        } else if queue.credit > 0 {
            self.bulk.push_front(id);
        } else {
            queue.credit = queue.credit.saturating_add_unsigned(TURN_BYTES);
            self.bulk.push_back(id);
        }
        too_large
    }

    /// Hands what has arrived to the queues of its connections.
    fn queue_arrived(&mut self) {
        self.has_arrived_handshakes = false;
        let mut arrived = std::mem::take(&mut self.arrived);
        arrived.split_groups(|group| self.queue(group, VecDeque::push_back));
    }

    /// Adds a group to the queue of its connection, by `push`.
    fn queue(&mut self, group: Work, push: fn(&mut VecDeque<Part>, Part)) {
        if group.has_handshakes() {
            self.handshakes.push_back(group);
            return;
        }
        let Some(id) = group.groups.first().map(|group| group.conn.id) else {
            return;
        };
        let is_large = cost(&group) > TURN_BYTES;
        let queue = self.queues.entry(id).or_insert_with(|| {
            match is_large {
                true => self.bulk.push_back(id),
                false => self.fresh.push_back(id),
            }
            Queue {
                credit: TURN_BYTES.cast_signed(),
                ..Queue::default()
            }
        });
        push(&mut queue.groups, (group, 0));
    }
}

/// Bytes that these requests count.
fn cost(work: &Work) -> usize {
    work.data.len() + work.len() * REQUEST_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use baton_proto::OpCode;

    use super::*;
    use crate::connections::conn::Conn;
    use crate::connections::conn::tests::conn;
    use crate::connections::inbox::Kind;

    const WRITE: Kind = Kind::Write(OpCode::SetData);

    fn submit(backlog: &mut Backlog, conn: &Arc<Conn>, kind: Kind, xids: &[i32], bytes: usize) {
        let mut work = Work::default();
        work.begin(conn, &conn.identity(), Instant::now());
        for xid in xids {
            work.push(*xid, kind, &vec![7; bytes]);
        }
        backlog.add(&mut work);
        assert!(work.is_empty());
    }

    /// The next entry: connection and xid of each request.
    fn next(backlog: &mut Backlog) -> Vec<(u32, i32)> {
        let mut work = Work::default();
        backlog.take(&mut work);
        let each = work.each();
        each.map(|(group, own)| (group.conn.id, own.xid)).collect()
    }

    #[test]
    fn what_fits_into_an_entry_goes_as_it_came() {
        let mut backlog = Backlog::default();
        let (first, second) = (conn(1), conn(2));
        submit(&mut backlog, &first, WRITE, &[1, 2], 10);
        submit(&mut backlog, &second, WRITE, &[1], 10);
        submit(&mut backlog, &first, WRITE, &[3], 10);
        assert_eq!(next(&mut backlog), [(1, 1), (1, 2), (2, 1), (1, 3)]);
        assert!(backlog.is_empty());
        assert_eq!(next(&mut backlog), []);
    }

    #[test]
    fn a_bystander_is_in_the_next_entry_whatever_the_number_of_bulk_writers() {
        let mut backlog = Backlog::default();
        let writers: Vec<_> = (1..=20).map(conn).collect();
        let bystander = conn(99);
        for xid in 0..10 {
            for writer in &writers {
                submit(&mut backlog, writer, WRITE, &[xid], 1_000_000);
            }
        }
        let mut bulk = Vec::new();
        for xid in 0..200 {
            submit(&mut backlog, &bystander, WRITE, &[xid], 10);
            let mut entry = next(&mut backlog);
            assert_eq!(entry.remove(0), (99, xid));
            // It takes nothing from the others: an entry has room for one of their writes.
            assert_eq!(entry.len(), 1, "{entry:?}");
            bulk.extend(entry);
        }
        assert!(backlog.is_empty());
        for writer in &writers {
            let xids: Vec<_> = bulk.iter().filter(|it| it.0 == writer.id).collect();
            assert!(xids.iter().map(|it| it.1).eq(0..10), "in order");
        }
        // Nobody is a turn ahead of another.
        for round in bulk.chunks(20) {
            assert!(round.iter().all(|it| it.1 == round[0].1), "{round:?}");
        }
    }

    #[test]
    fn an_entry_has_a_bound_in_bytes_and_in_requests() {
        let mut backlog = Backlog::default();
        let writer = conn(1);
        let xids: Vec<i32> = (0..10_000).collect();
        submit(&mut backlog, &writer, WRITE, &xids, 0);
        submit(&mut backlog, &writer, WRITE, &xids, 1000);
        let mut seen = Vec::new();
        while !backlog.is_empty() {
            let mut work = Work::default();
            backlog.take(&mut work);
            assert!(cost(&work) <= ENTRY_BYTES);
            assert!(work.groups.len() <= 2, "parts of a group stay one");
            seen.extend(work.requests.iter().map(|own| own.xid));
        }
        assert!(seen.iter().eq(xids.iter().chain(&xids)));
    }

    #[test]
    fn connections_share_an_entry_by_bytes() {
        let mut backlog = Backlog::default();
        let (small, large) = (conn(1), conn(2));
        let xids: Vec<i32> = (0..4000).collect();
        submit(&mut backlog, &small, WRITE, &xids, 1000);
        submit(&mut backlog, &large, WRITE, &xids[..400], 10_000);
        let mut bytes = HashMap::<u32, usize>::new();
        for _ in 0..3 {
            let mut work = Work::default();
            backlog.take(&mut work);
            for (group, own) in work.each() {
                *bytes.entry(group.conn.id).or_default() += work.body(own).len() + REQUEST_BYTES;
            }
        }
        let apart = bytes[&1].abs_diff(bytes[&2]);
        assert!(apart <= 2 * TURN_BYTES, "{bytes:?}");
    }

    #[test]
    fn many_small_writers_leave_room_for_a_bulk_writer() {
        let mut backlog = Backlog::default();
        let bulk = conn(1);
        let xids: Vec<i32> = (0..100).collect();
        submit(&mut backlog, &bulk, WRITE, &xids, 50_000);
        let others: Vec<_> = (2..6000).map(conn).collect();
        let mut taken = 0;
        for round in 0..10 {
            for other in &others {
                submit(&mut backlog, other, WRITE, &[round], 0);
            }
            let entry = next(&mut backlog);
            taken += entry.iter().filter(|it| it.0 == 1).count();
        }
        assert!(
            taken >= 10 * (BULK_BYTES.cast_unsigned() / 51_000),
            "{taken}"
        );
    }

    #[test]
    fn a_large_request_behind_small_ones_keeps_no_one_waiting() {
        let mut backlog = Backlog::default();
        let (first, second) = (conn(1), conn(2));
        submit(&mut backlog, &first, WRITE, &[1], 10);
        for xid in 2..4 {
            submit(&mut backlog, &first, WRITE, &[xid], 2 << 20);
        }
        submit(&mut backlog, &second, WRITE, &[1], 10);
        assert_eq!(next(&mut backlog), [(1, 1), (2, 1), (1, 2)]);
        assert_eq!(next(&mut backlog), [(1, 3)]);
        assert!(backlog.is_empty());
    }

    #[test]
    fn handshakes_go_first() {
        let mut backlog = Backlog::default();
        let writer = conn(1);
        for xid in 0..5 {
            submit(&mut backlog, &writer, WRITE, &[xid], 1_000_000);
        }
        assert!(!backlog.has_handshakes());
        let new = conn(2);
        let open = Kind::OpenSession {
            timeout_ms: 1000,
            mirror_read_only: false,
        };
        submit(&mut backlog, &new, open, &[7], 16);
        assert!(backlog.has_handshakes());
        assert_eq!(next(&mut backlog), [(2, 7), (1, 0)]);
        assert!(!backlog.has_handshakes());
    }

    #[test]
    fn what_is_put_back_comes_before_what_came_later() {
        let mut backlog = Backlog::default();
        let (first, second) = (conn(1), conn(2));
        submit(&mut backlog, &first, WRITE, &[1], 10);
        submit(&mut backlog, &first, WRITE, &[2], 10);
        let mut taken = Work::default();
        backlog.take(&mut taken);
        submit(&mut backlog, &second, WRITE, &[1], 10);
        submit(&mut backlog, &first, WRITE, &[3], 10);
        backlog.put_back(&mut taken);
        assert!(taken.is_empty());
        let mut all: Vec<_> = next(&mut backlog);
        all.retain(|it| it.0 == 1);
        assert_eq!(all, [(1, 1), (1, 2), (1, 3)]);
        assert!(backlog.is_empty());
    }
}

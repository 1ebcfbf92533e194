//! Requests of this server's clients that the cluster has not applied yet, in order. Owns which of
//! them have been sent to the leader, and which are sent again after a leader or a connection was
//! lost (R27).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::connections::conn::Conn;
use crate::core::batches::backlog::ENTRY_BYTES;
use crate::core::batches::in_flight::Requested;
use crate::observers::traces::WriteStep;

/// Batches that may be on their way. Clients' requests that come meanwhile make larger batches.
const MOST_BATCHES: usize = 4;
/// Batches that may be on their way where they have more than [`SMALL_BYTES`]: what is handed in
/// now waits for them.
const LARGE_BATCHES: usize = 2;
const SMALL_BYTES: usize = ENTRY_BYTES / 4;

/// Content of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Openings and re-attachments of sessions. They are not sent twice: the second one would take
    /// the session from a connection that came later.
    Handshakes,
    /// Both in their order, where nothing is sent to another server.
    Everything,
    /// Requests of attached connections. The stamp of each command says whether it was applied.
    Requests,
    /// One `reconfig`, which may take long. Nothing else waits for it but what its own connection
    /// asks for next.
    Reconfigure,
}

impl Content {
    /// Whether such a batch has requests of a connection that asks for a session, or of one that
    /// does not.
    pub(crate) fn takes(self, asks_for_session: bool) -> bool {
        match self {
            Self::Handshakes => asks_for_session,
            Self::Requests => !asks_for_session,
            Self::Everything => true,
            Self::Reconfigure => false,
        }
    }
}

#[derive(Debug)]
struct Item {
    /// The number of the batch; `None` for reads, which wait until all batches before them are
    /// applied.
    batch: Option<(u64, Bytes, Content)>,
    requested: Requested,
}

/// The batches of this server that are not applied yet, oldest first.
#[derive(Debug)]
pub(crate) struct Outstanding {
    items: VecDeque<Item>,
    /// Items at the front that were sent.
    sent: usize,
    batches: usize,
    /// Bytes of the batches among `items`.
    bytes: usize,
    next_number: u64,
    /// Those that nothing waits for.
    apart: Vec<DetachedBatch>,
}

/// A batch that nothing waits for.
#[derive(Debug)]
struct DetachedBatch {
    number: u64,
    payload: Bytes,
    requested: Requested,
    is_sent: bool,
    /// When it was first looked at.
    since: Option<Instant>,
}

impl Default for Outstanding {
    fn default() -> Self {
        Self {
            items: VecDeque::new(),
            sent: 0,
            batches: 0,
            bytes: 0,
            next_number: 1,
            apart: Vec::new(),
        }
    }
}

impl Outstanding {
    /// The number of the batch that is pushed next.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Returns the number of batches that are not applied.
    pub(crate) fn batches(&self) -> usize {
        self.batches
    }

    /// Whether another batch may be made.
    pub(crate) fn has_room(&self) -> bool {
        self.batches < LARGE_BATCHES || (self.batches < MOST_BATCHES && self.bytes < SMALL_BYTES)
    }

    /// Adds a batch, which has the next number.
    pub(crate) fn push(&mut self, payload: Bytes, content: Content, requested: Requested) {
        if content == Content::Reconfigure {
            self.apart.push(DetachedBatch {
                number: self.next_number,
                payload,
                requested,
                is_sent: false,
                since: None,
            });
            self.next_number += 1;
            return;
        }
        self.bytes += payload.len();
        self.items.push_back(Item {
            batch: Some((self.next_number, payload, content)),
            requested,
        });
        self.next_number += 1;
        self.batches += 1;
    }

    /// Adds reads whose turn comes after everything before them. Gives them back where their turn
    /// has come.
    pub(crate) fn push_reads(&mut self, requested: Requested) -> Option<Requested> {
        if self.items.is_empty() {
            return Some(requested);
        }
        self.items.push_back(Item {
            batch: None,
            requested,
        });
        None
    }

    /// Takes out the batch of this number, which has been applied. `None`: it is not here, because
    /// it was applied before.
    pub(crate) fn take(&mut self, number: u64) -> Option<Requested> {
        let is_it = |item: &Item| matches!(&item.batch, Some((this, _, _)) if *this == number);
        let place = match self.items.front() {
            Some(front) if is_it(front) => 0,
            _ => match self.items.iter().position(is_it) {
                Some(place) => place,
                None => {
                    let place = self.apart.iter().position(|it| it.number == number)?;
                    return Some(self.apart.remove(place).requested);
                }
            },
        };
        let item = self.items.remove(place)?;
        self.removed(&item);
        if place < self.sent {
            self.sent -= 1;
        }
        Some(item.requested)
    }

    /// An item has been taken out.
    fn removed(&mut self, item: &Item) {
        if let Some((_, payload, _)) = &item.batch {
            self.batches -= 1;
            self.bytes -= payload.len();
        }
    }

    /// Takes out reads whose turn has come.
    pub(crate) fn take_reads(&mut self) -> Option<Requested> {
        if self.items.front()?.batch.is_some() {
            return None;
        }
        self.sent = self.sent.saturating_sub(1);
        self.items.pop_front().map(|item| item.requested)
    }

    /// The oldest batch that was not sent, with its number.
    pub(crate) fn first_unsent(&mut self) -> Option<(u64, Bytes)> {
        loop {
            match &self.items.get(self.sent)?.batch {
                Some((number, payload, _)) => return Some((*number, payload.clone())),
                None => self.sent += 1,
            }
        }
    }

    /// That batch has been sent: to another server, if `forwarded` says when.
    pub(crate) fn mark_sent(&mut self, forwarded: Option<Instant>) {
        if let (Some(now), Some(item)) = (forwarded, self.items.get(self.sent)) {
            item.requested.mark(WriteStep::Forwarded, now);
        }
        self.sent += 1;
    }

    /// The oldest batch of those that nothing waits for that was not sent, which counts as sent
    /// from here on.
    pub(crate) fn send_apart(&mut self) -> Option<(u64, Bytes)> {
        let unsent = self.apart.iter_mut().find(|it| !it.is_sent)?;
        unsent.is_sent = true;
        Some((unsent.number, unsent.payload.clone()))
    }

    /// That batch could not be sent.
    pub(crate) fn not_sent(&mut self, number: u64) {
        let mut apart = self.apart.iter_mut();
        if let Some(it) = apart.find(|it| it.number == number) {
            it.is_sent = false;
        }
    }

    /// Takes out those that nothing waits for and that were not applied within `limit`. Whether
    /// they will be is not known.
    pub(crate) fn take_overdue(&mut self, limit: Duration, now: Instant) -> Vec<Requested> {
        let is_overdue = |it: &mut DetachedBatch| {
            let since = *it.since.get_or_insert(now);
            now.saturating_duration_since(since) >= limit
        };
        let overdue = self.apart.extract_if(.., is_overdue);
        overdue.map(|it| it.requested).collect()
    }

    /// Whether there are batches that nothing waits for.
    pub(crate) fn has_apart(&self) -> bool {
        !self.apart.is_empty()
    }

    /// The connections that have asked for something that is set apart: what they ask for next has
    /// to wait.
    pub(crate) fn set_apart(&self) -> impl Iterator<Item = u32> {
        self.apart.iter().flat_map(|it| it.requested.connections())
    }

    /// The connections of which anything is not applied.
    pub(crate) fn connections(&self) -> BTreeSet<u32> {
        let requested = self.items.iter().map(|it| &it.requested);
        requested.flat_map(Requested::connections).collect()
    }

    /// Forgets everything: the state that the requests were about is gone.
    pub(crate) fn clear(&mut self) -> Vec<Requested> {
        self.sent = 0;
        (self.batches, self.bytes) = (0, 0);
        let items = self.items.drain(..).map(|item| item.requested);
        items
            .chain(self.apart.drain(..).map(|it| it.requested))
            .collect()
    }

    /// Notes that what was sent may be lost. Requests are sent again; handshakes are taken out,
    /// with the connections that made them.
    pub(crate) fn lost(&mut self) -> Vec<(Requested, Vec<Arc<Conn>>)> {
        for apart in &mut self.apart {
            apart.is_sent = false;
        }
        let mut kept = VecDeque::with_capacity(self.items.len());
        let mut ended = Vec::new();
        for item in std::mem::take(&mut self.items) {
            if !matches!(item.batch, Some((_, _, Content::Handshakes))) {
                kept.push_back(item);
                continue;
            }
            self.removed(&item);
            let work = &item.requested.work;
            let steps = item.requested.steps.iter();
            let connections = steps
                .filter_map(|step| work.groups.get(step.group?))
                .map(|group| Arc::clone(&group.conn))
                .collect();
            ended.push((item.requested, connections));
        }
        self.items = kept;
        self.sent = 0;
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::conn::tests::conn;
    use crate::connections::inbox::{Kind, Work};
    use crate::core::batches::in_flight::Step;

    fn requested(id: u32) -> Requested {
        let mut work = Work::default();
        let conn = conn(id);
        work.begin(&conn, &conn.identity(), std::time::Instant::now());
        work.push(1, Kind::CloseSession, b"");
        Requested {
            work: Arc::new(work),
            steps: vec![Step {
                group: Some(0),
                request: 0,
                is_command: true,
            }],
        }
    }

    fn id(requested: &Requested) -> u32 {
        requested.work.groups[0].conn.id
    }

    fn payload(byte: u8) -> Bytes {
        Bytes::copy_from_slice(&[byte])
    }

    #[test]
    fn r27_what_is_not_applied_is_sent_again_in_order_and_handshakes_are_not() {
        let mut outstanding = Outstanding::default();
        outstanding.push(payload(1), Content::Requests, requested(1));
        outstanding.push(payload(2), Content::Handshakes, requested(2));
        outstanding.push(payload(3), Content::Requests, requested(3));
        outstanding.push(payload(4), Content::Handshakes, requested(4));
        for number in 1..=3 {
            assert_eq!(outstanding.first_unsent().unwrap().0, number);
            outstanding.mark_sent(None);
        }
        let ended = outstanding.lost();
        let closed: Vec<u32> = ended.iter().map(|(_, conns)| conns[0].id).collect();
        assert_eq!(closed, [2, 4], "whether it was sent or not");
        let mut again = Vec::new();
        while let Some((number, body)) = outstanding.first_unsent() {
            again.push((number, body[0]));
            outstanding.mark_sent(None);
        }
        assert_eq!(again, [(1, 1), (3, 3)]);
        // The first copy is applied, then the second: only one of them answers.
        assert_eq!(id(&outstanding.take(1).unwrap()), 1);
        assert!(outstanding.take(1).is_none());
        assert_eq!(outstanding.batches(), 1);
        assert!(outstanding.first_unsent().is_none(), "it was sent");
    }

    #[test]
    fn reads_wait_for_what_was_asked_for_before_them() {
        let mut outstanding = Outstanding::default();
        assert!(outstanding.push_reads(requested(9)).is_some());
        outstanding.push(payload(1), Content::Requests, requested(1));
        assert!(outstanding.push_reads(requested(2)).is_none());
        outstanding.push(payload(3), Content::Requests, requested(3));
        assert_eq!(outstanding.first_unsent().unwrap().0, 1);
        outstanding.mark_sent(None);
        assert_eq!(outstanding.first_unsent().unwrap().0, 2);
        outstanding.mark_sent(None);
        assert!(outstanding.take_reads().is_none());
        outstanding.take(1).unwrap();
        assert_eq!(id(&outstanding.take_reads().unwrap()), 2);
        assert!(outstanding.take_reads().is_none());
        assert!(outstanding.first_unsent().is_none());
        outstanding.push(payload(4), Content::Requests, requested(4));
        assert_eq!(outstanding.first_unsent().unwrap().0, 3);
    }

    #[test]
    fn a_change_of_the_members_that_is_not_applied_is_given_up_and_nothing_else_is() {
        let limit = Duration::from_secs(60);
        let start = Instant::now();
        let mut outstanding = Outstanding::default();
        outstanding.push(payload(1), Content::Requests, requested(1));
        outstanding.push(payload(2), Content::Reconfigure, requested(2));
        assert!(outstanding.take_overdue(limit, start).is_empty());
        outstanding.push(payload(3), Content::Reconfigure, requested(3));
        let soon = start + Duration::from_secs(59);
        assert!(outstanding.take_overdue(limit, soon).is_empty());
        // It is sent to the next leader too; its time does not begin again.
        let numbers = |it: &mut Outstanding| -> Vec<u64> {
            std::iter::from_fn(|| Some(it.send_apart()?.0)).collect()
        };
        assert_eq!(numbers(&mut outstanding), [2, 3]);
        assert!(outstanding.lost().is_empty());
        assert_eq!(numbers(&mut outstanding), [2, 3]);
        let overdue = outstanding.take_overdue(limit, start + limit);
        assert_eq!(overdue.iter().map(id).collect::<Vec<u32>>(), [2]);
        assert!(outstanding.take(2).is_none());
        assert_eq!(outstanding.set_apart().collect::<Vec<_>>(), [3]);
        assert!(outstanding.connections().contains(&1));
    }

    #[test]
    fn reads_behind_a_handshake_that_is_lost_have_their_turn() {
        let mut outstanding = Outstanding::default();
        outstanding.push(payload(1), Content::Handshakes, requested(1));
        assert!(outstanding.push_reads(requested(2)).is_none());
        assert!(outstanding.first_unsent().is_some());
        outstanding.mark_sent(None);
        assert_eq!(outstanding.lost().len(), 1);
        assert_eq!(id(&outstanding.take_reads().unwrap()), 2);
    }
}

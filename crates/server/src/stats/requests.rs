//! Numbers of requests of each kind, and sizes of the answers. A socket counts in a tally of its
//! own and adds it up once for all requests that it found, so that counting costs no request
//! anything.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use baton_proto::OpCode;

use crate::stats::sizes::{Sizes, SizesSeen};

/// The kinds that ZooKeeper counts, by the names it gives them, each with its operations.
pub(crate) const COUNTED: &[(&str, &[OpCode])] = &[
    ("op_count_add_watch", &[OpCode::AddWatch]),
    ("op_count_check_watches", &[OpCode::CheckWatches]),
    ("op_count_close_session", &[OpCode::CloseSession]),
    (
        "op_count_create",
        &[
            OpCode::Create,
            OpCode::Create2,
            OpCode::CreateContainer,
            OpCode::CreateTtl,
        ],
    ),
    ("op_count_create_session", &[OpCode::CreateSession]),
    ("op_count_delete", &[OpCode::Delete]),
    ("op_count_exists", &[OpCode::Exists]),
    ("op_count_get_acl", &[OpCode::GetAcl]),
    (
        "op_count_get_all_children_number",
        &[OpCode::GetAllChildrenNumber],
    ),
    (
        "op_count_get_children",
        &[OpCode::GetChildren, OpCode::GetChildren2],
    ),
    ("op_count_get_data", &[OpCode::GetData]),
    ("op_count_get_ephemerals", &[OpCode::GetEphemerals]),
    ("op_count_multi", &[OpCode::Multi]),
    ("op_count_multi_read", &[OpCode::MultiRead]),
    ("op_count_ping", &[OpCode::Ping]),
    ("op_count_reconfig", &[OpCode::Reconfig]),
    ("op_count_remove_watches", &[OpCode::RemoveWatches]),
    ("op_count_set_acl", &[OpCode::SetAcl]),
    ("op_count_set_data", &[OpCode::SetData]),
    (
        "op_count_set_watches",
        &[OpCode::SetWatches, OpCode::SetWatches2],
    ),
    ("op_count_sync", &[OpCode::Sync]),
    ("op_count_who_am_i", &[OpCode::WhoAmI]),
];

/// A place for each operation: those of clients by their numbers, the two of sessions behind them.
const PLACES: usize = 110;

fn place(op: i32) -> Option<usize> {
    match op {
        -10 => Some(108),
        -11 => Some(109),
        op => usize::try_from(op).ok().filter(|place| *place < 108),
    }
}

/// Counters of the whole server.
#[derive(Debug)]
pub(crate) struct RequestCounts {
    by_place: [AtomicU64; PLACES],
    /// Sizes of answers.
    pub(crate) sizes: Sizes,
}

impl Default for RequestCounts {
    fn default() -> Self {
        Self {
            by_place: std::array::from_fn(|_| AtomicU64::new(0)),
            sizes: Sizes::default(),
        }
    }
}

impl RequestCounts {
    /// Counts one request.
    pub(crate) fn count(&self, op: OpCode) {
        if let Some(counter) = place(op.code()).and_then(|place| self.by_place.get(place)) {
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Requests of these kinds, so far.
    pub(crate) fn of(&self, ops: &[OpCode]) -> u64 {
        let counters = ops.iter().filter_map(|op| place(op.code()));
        let counters = counters.filter_map(|place| self.by_place.get(place));
        counters.map(|counter| counter.load(Relaxed)).sum()
    }

    /// Requests of all counted kinds.
    pub(crate) fn total(&self) -> u64 {
        COUNTED.iter().map(|(_, ops)| self.of(ops)).sum()
    }

    /// Adds a tally.
    pub(crate) fn add(&self, tally: &Tally) {
        let (place, run) = tally.run;
        if let Some(counter) = self.by_place.get(place).filter(|_| run > 0) {
            counter.fetch_add(run, Relaxed);
        }
        if let Some(seen) = tally.sizes {
            self.sizes.record(seen);
        }
    }
}

/// Counts of one socket, or of one entry, not added yet. Consecutive requests are most often of one
/// kind.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// A place, and how many requests in a row were of that kind.
    run: (usize, u64),
    sizes: Option<SizesSeen>,
}

impl Tally {
    /// Counts a request; one of no known operation is not counted.
    pub(crate) fn request(&mut self, op: i32, counts: &RequestCounts) {
        let Some(place) = place(op) else {
            return;
        };
        if self.run.0 != place && self.run.1 > 0 {
            if let Some(counter) = counts.by_place.get(self.run.0) {
                counter.fetch_add(self.run.1, Relaxed);
            }
            self.run.1 = 0;
        }
        self.run = (place, self.run.1 + 1);
    }

    /// Counts an answer of `bytes` bytes.
    pub(crate) fn answer(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.sizes = Some(match self.sizes {
            None => SizesSeen::one(bytes),
            Some(seen) => seen.and(bytes),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_counted_once_under_its_kind() {
        let counts = RequestCounts::default();
        let mut tally = Tally::default();
        let asked = [4, 4, 4, 5, 1, 15, 4, -11, 12345, -3, i32::MIN, 107];
        for op in asked {
            tally.request(op, &counts);
        }
        tally.answer(20);
        tally.answer(7);
        tally.answer(9);
        counts.add(&tally);
        counts.count(OpCode::CreateSession);
        assert_eq!(counts.of(&[OpCode::GetData]), 4);
        assert_eq!(counts.of(&[OpCode::Create, OpCode::Create2]), 2);
        assert_eq!(counts.of(&[OpCode::CloseSession, OpCode::CreateSession]), 2);
        assert_eq!(counts.total(), 10);
        let seen = counts.sizes.seen().unwrap();
        assert_eq!((seen.last, seen.min, seen.max), (9, 7, 20));
        counts.sizes.reset();
        assert_eq!(counts.sizes.seen(), None);
    }

    #[test]
    fn what_a_client_may_ask_is_counted_under_one_name() {
        for op in OpCode::ALL {
            let names = COUNTED.iter().filter(|(_, ops)| ops.contains(&op));
            let uncounted = matches!(
                op,
                OpCode::Notification
                    | OpCode::Check
                    | OpCode::DeleteContainer
                    | OpCode::Auth
                    | OpCode::Sasl
            );
            assert_eq!(names.count(), usize::from(!uncounted), "{op}");
            assert!(place(op.code()).is_some(), "{op}");
        }
    }
}

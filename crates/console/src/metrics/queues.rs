//! Queues and work queues: how many items they have and how old the oldest is, and what is counted
//! when items, claims and dead letters come and go.
//!
//! Owns what the changes of one multi come to together: an item that goes while another one comes
//! is the same item, put back; one that goes while a dead letter comes has become that.

use baton::inspect::{NodeRole, role};
use baton::work_queue::{WorkFolders, available_since_ms};
use baton_server::{ChangedBy, ObservedChange, ObservedTree};

use super::paths::{Entry, Live, Paths, Selection};

/// Queues whose oldest item is looked for at one reading.
const MOST_AGES: usize = 1_000;

/// Nodes that are read for the ages of all queues at one reading.
const MOST_READS: usize = 20_000;

/// Children of a folder that are no items and came before its first one.
const MOST_BYSTANDERS: usize = 16;

const MINUTE_MS: i64 = 60_000;

/// A node of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Item,
    Claim,
    DeadLetter,
    Unknown,
}

/// End of a claim on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimEnd {
    Done,
    Returned,
    Requeued,
    DeadLettered,
    TimedOut,
    SessionClosed,
    SessionExpired,
}

impl ClaimEnd {
    pub(super) const ALL: [Self; 7] = [
        Self::Done,
        Self::Returned,
        Self::Requeued,
        Self::DeadLettered,
        Self::TimedOut,
        Self::SessionClosed,
        Self::SessionExpired,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Returned => "returned",
            Self::Requeued => "requeued",
            Self::DeadLettered => "dead_lettered",
            Self::TimedOut => "timed_out",
            Self::SessionClosed => "session_closed",
            Self::SessionExpired => "session_expired",
        }
    }
}

/// Counters of one queue, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueSeries {
    pub(super) offered: u64,
    pub(super) removed: u64,
    pub(super) requeued: u64,
    pub(super) dead_lettered: u64,
    pub(super) replayed: u64,
    pub(super) claims: u64,
    /// Counts by [`ClaimEnd`].
    pub(super) claim_ends: [u64; ClaimEnd::ALL.len()],
}

impl QueueSeries {
    fn end_claims(&mut self, end: ClaimEnd, count: u64) {
        if let Some(ended) = self.claim_ends.get_mut(end as usize) {
            *ended += count;
        }
    }
}

/// One queue.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    is_work: bool,
    items: u64,
    claims: u64,
    dead: u64,
}

impl Queue {
    fn count(&mut self, part: Part) -> Option<&mut u64> {
        match part {
            Part::Item => Some(&mut self.items),
            Part::Claim => Some(&mut self.claims),
            Part::DeadLetter => Some(&mut self.dead),
            Part::Unknown => None,
        }
    }
}

impl Live for Queue {
    fn is_live(&self) -> bool {
        self.items + self.claims + self.dead > 0
    }

    fn may_have_series(&self) -> bool {
        true
    }
}

/// Effects of one change of the log on one queue so far.
#[derive(Debug, Default)]
struct QueueChange {
    zxid: i64,
    /// Empty: nothing is kept.
    queue: String,
    now_ms: i64,
    items_made: u64,
    items_gone: u64,
    dead_made: u64,
    dead_gone: u64,
    claims_made: u64,
    /// Claims that a client deleted.
    claims_deleted: u64,
    claims_closed: u64,
    claims_expired: u64,
}

impl QueueChange {
    fn add(&mut self, part: Part, is_created: bool, by: ChangedBy) {
        let count = match (part, is_created) {
            (Part::Item, true) => &mut self.items_made,
            (Part::Item, false) => &mut self.items_gone,
            (Part::DeadLetter, true) => &mut self.dead_made,
            (Part::DeadLetter, false) => &mut self.dead_gone,
            (Part::Claim, true) => &mut self.claims_made,
            (Part::Claim, false) => match by {
                ChangedBy::ClosedSession => &mut self.claims_closed,
                ChangedBy::ExpiredSession => &mut self.claims_expired,
                ChangedBy::Client(_) | ChangedBy::Server => &mut self.claims_deleted,
            },
            (Part::Unknown, _) => return,
        };
        *count += 1;
    }

    fn count_in(&self, series: &mut QueueSeries) {
        let dead = self.dead_made.min(self.items_gone);
        let requeued = self.items_made.min(self.items_gone - dead);
        let removed = self.items_gone - dead - requeued;
        let replayed = self.dead_gone.min(self.items_made - requeued);
        series.offered += self.items_made - requeued - replayed;
        series.removed += removed;
        series.requeued += requeued;
        series.replayed += replayed;
        series.dead_lettered += self.dead_made;
        series.claims += self.claims_made;
        series.end_claims(ClaimEnd::SessionClosed, self.claims_closed);
        series.end_claims(ClaimEnd::SessionExpired, self.claims_expired);
        let mut left = self.claims_deleted;
        for (end, most) in [
            (ClaimEnd::Done, removed),
            (ClaimEnd::DeadLettered, dead),
            (ClaimEnd::Requeued, requeued),
            // The next consumer deletes a claim whose visibility timeout is over.
            (ClaimEnd::TimedOut, self.claims_made),
            (ClaimEnd::Returned, u64::MAX),
        ] {
            let count = left.min(most);
            series.end_claims(end, count);
            left -= count;
        }
    }
}

/// One queue, or all others of a kind, as a page shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueRow {
    /// `None`: all paths without series of their own.
    pub(super) path: Option<String>,
    pub(super) is_work: bool,
    pub(super) series: QueueSeries,
    pub(super) items: u64,
    pub(super) delayed: u64,
    pub(super) oldest_ms: i64,
    pub(super) claims: u64,
    pub(super) dead: u64,
    pub(super) consumers: u64,
}

/// All queues.
#[derive(Debug)]
pub(super) struct Queues {
    paths: Paths<Queue, QueueSeries>,
    /// Plain queues, work queues.
    others: [QueueSeries; 2],
    together: QueueChange,
    unfollowed: u64,
}

impl Queues {
    pub(super) fn new(selection: Selection) -> Self {
        Self {
            paths: Paths::new(selection),
            others: Default::default(),
            together: QueueChange::default(),
            unfollowed: 0,
        }
    }

    /// Changes that were not followed because there are too many queues.
    pub(super) fn unfollowed(&self) -> u64 {
        self.unfollowed
    }

    /// A node of a queue came or went.
    pub(super) fn changed(
        &mut self,
        queue: &str,
        part: Part,
        is_work: bool,
        change: &ObservedChange<'_>,
        now_ms: i64,
    ) {
        if self.together.zxid != change.zxid || self.together.queue != queue {
            self.settle();
            self.together.zxid = change.zxid;
            self.together.queue.push_str(queue);
            self.together.now_ms = now_ms;
        }
        let make = || Queue {
            is_work,
            ..Queue::default()
        };
        let Some(entry) = self.paths.change(queue, now_ms, make) else {
            self.unfollowed += 1;
            return;
        };
        if !entry.body.is_live() {
            entry.body.is_work = is_work;
        }
        if let Some(count) = entry.body.count(part) {
            *count = if change.is_created {
                count.saturating_add(1)
            } else {
                count.saturating_sub(1)
            };
        }
        self.together.add(part, change.is_created, change.by);
    }

    /// Counts what belonged together.
    fn settle(&mut self) {
        if self.together.queue.is_empty() {
            return;
        }
        // The text keeps its memory.
        let mut queue = std::mem::take(&mut self.together.queue);
        let together = std::mem::take(&mut self.together);
        if let Some(entry) = self.paths.get_mut(&queue) {
            together.count_in(series_of(entry, &mut self.others));
        }
        self.paths.settle(&queue, together.now_ms);
        queue.clear();
        self.together.queue = queue;
    }

    /// Forgets all nodes, because the tree is another one.
    pub(super) fn forget_nodes(&mut self) {
        self.settle();
        self.paths.reset(|queue| {
            *queue = Queue {
                is_work: queue.is_work,
                ..Queue::default()
            };
        });
    }

    /// A node that was there before.
    pub(super) fn restore(&mut self, queue: &str, part: Part, is_work: bool, created_ms: i64) {
        let make = || Queue {
            is_work,
            ..Queue::default()
        };
        let Some(entry) = self.paths.restore(queue, created_ms, make) else {
            self.unfollowed += 1;
            return;
        };
        if let Some(count) = entry.body.count(part) {
            *count = count.saturating_add(1);
        }
    }

    /// The queues with series of their own, by path, and then all others by kind.
    pub(super) fn rows(
        &mut self,
        tree: &ObservedTree<'_>,
        now_ms: i64,
        consumers_of: impl Fn(&str) -> u64,
    ) -> Vec<QueueRow> {
        self.settle();
        self.paths.forget_unused(now_ms);
        let mut others = [false, true].map(|is_work| QueueRow {
            is_work,
            ..QueueRow::default()
        });
        for (row, series) in others.iter_mut().zip(&self.others) {
            row.series = series.clone();
        }
        let mut rows = Vec::new();
        let mut unlisted = Vec::new();
        for (path, entry) in self.paths.iter() {
            let Queue {
                is_work,
                items,
                claims,
                dead,
            } = entry.body;
            let row = QueueRow {
                path: Some(path.to_owned()),
                is_work,
                series: QueueSeries::default(),
                items,
                delayed: 0,
                oldest_ms: 0,
                claims,
                dead,
                consumers: if is_work { consumers_of(path) } else { 0 },
            };
            match &entry.series {
                Some(series) => rows.push(QueueRow {
                    series: QueueSeries::clone(series),
                    ..row
                }),
                None => {
                    if let Some(other) = others.get_mut(usize::from(is_work)) {
                        other.items += items;
                        other.claims += claims;
                        other.dead += dead;
                        other.consumers += row.consumers;
                    }
                    if unlisted.len() < MOST_AGES {
                        unlisted.push((path, is_work));
                    }
                }
            }
        }
        rows.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let mut reads = MOST_READS;
        for row in &mut rows {
            let path = row.path.as_deref().unwrap_or_default();
            let ages = Ages::read(tree, path, row.is_work, now_ms, &mut reads);
            (row.oldest_ms, row.delayed) = (ages.oldest_ms, ages.delayed);
        }
        for (path, is_work) in unlisted {
            let ages = Ages::read(tree, path, is_work, now_ms, &mut reads);
            if let Some(other) = others.get_mut(usize::from(is_work)) {
                other.oldest_ms = other.oldest_ms.max(ages.oldest_ms);
                other.delayed += ages.delayed;
            }
        }
        rows.extend(others);
        rows
    }

    #[cfg(test)]
    pub(super) fn followed(&self) -> usize {
        self.paths.len()
    }
}

fn series_of<'a>(
    entry: &'a mut Entry<Queue, QueueSeries>,
    others: &'a mut [QueueSeries; 2],
) -> &'a mut QueueSeries {
    let [plain, work] = others;
    let others = if entry.body.is_work { work } else { plain };
    entry.series.as_deref_mut().unwrap_or(others)
}

/// Times for which the items of a queue have been available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ages {
    /// Time for which the oldest one has been available; 0 where there is none.
    oldest_ms: i64,
    /// Items that are not available yet.
    delayed: u64,
}

impl Ages {
    /// Reads as many nodes as `reads` allows.
    fn read(
        tree: &ObservedTree<'_>,
        path: &str,
        is_work: bool,
        now_ms: i64,
        reads: &mut usize,
    ) -> Self {
        if is_work {
            return Self::of_work(tree, path, now_ms, reads);
        }
        let mut ages = Self::default();
        // Children come in the order of their creation.
        for child in tree.children(path).take(MOST_BYSTANDERS.min(*reads)) {
            *reads = reads.saturating_sub(1);
            let item = format!("{path}/{}", child.name);
            if matches!(role(&item, false), Some(NodeRole::QueueItem { .. })) {
                ages.oldest_ms = now_ms.saturating_sub(child.ctime).max(0);
                break;
            }
        }
        ages
    }

    fn of_work(tree: &ObservedTree<'_>, path: &str, now_ms: i64, reads: &mut usize) -> Self {
        let mut ages = Self::default();
        let folder = WorkFolders::new(path).items;
        for shard in tree.children(&folder) {
            if shard.num_children == 0 {
                continue;
            }
            let shard_path = format!("{folder}/{}", shard.name);
            let mut is_first = true;
            for item in tree.children(&shard_path) {
                if *reads == 0 {
                    return ages;
                }
                *reads -= 1;
                let Some(since_ms) = available_since_ms(shard.name, item.name, item.ctime) else {
                    continue;
                };
                let age_ms = now_ms.saturating_sub(since_ms);
                ages.oldest_ms = ages.oldest_ms.max(age_ms);
                // Ready items come in the order of their creation. Delayed ones of one shard fall
                // due within one minute, so that each has to be read around that minute alone.
                let is_one_of_all = since_ms == item.ctime || age_ms.abs() >= MINUTE_MS;
                if is_first && is_one_of_all {
                    if age_ms < 0 {
                        ages.delayed += u64::from(shard.num_children);
                    }
                    break;
                }
                is_first = false;
                ages.delayed += u64::from(age_ms < 0);
            }
        }
        ages
    }
}

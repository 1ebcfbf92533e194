//! Entries that other servers have acknowledged, and those that this server's folder lacks (R19).
//! Owns when that is stored and what operators see of it. Whether this server votes, the consensus
//! decides.

use std::time::{Duration, Instant};

use baton_consensus::LogGap;
use baton_peers::handshake::KnownMember;
use baton_wal::Acknowledged;

/// Shortest time between two stores of what the others have acknowledged; each takes two syncs.
const STORE_INTERVAL: Duration = Duration::from_secs(10);

/// Entries that others have acknowledged, and those that are lost here.
#[derive(Debug)]
pub(crate) struct LostEntries {
    /// Entries that members have acknowledged, those of them that are stored, and when that may be
    /// done again.
    newest: Acknowledged,
    stored: Acknowledged,
    /// The disk has refused the last one.
    is_refused: bool,
    may_store_at: Instant,
    /// The lack of entries, as operators see it.
    gap: Option<String>,
    count: u64,
}

impl LostEntries {
    /// Goes on with what the folder says of acknowledged entries.
    pub(crate) fn new(stored: Acknowledged, now: Instant) -> Self {
        Self {
            newest: stored.clone(),
            stored,
            is_refused: false,
            may_store_at: now,
            gap: None,
            count: 0,
        }
    }

    /// Notes what this server has lost, and what others have acknowledged to it.
    pub(crate) fn acknowledged(&mut self, newest: Acknowledged) {
        self.newest = newest;
    }

    /// Returns what is to be stored now: at once what this server has lost, and what others have
    /// now and then, so that a start knows who was rolled back.
    pub(crate) fn take_unstored(&mut self, now: Instant) -> Option<Acknowledged> {
        let is_new = self.is_refused || self.newest != self.stored;
        if !is_new || (self.newest.lost == self.stored.lost && now < self.may_store_at) {
            return None;
        }
        self.is_refused = false;
        self.may_store_at = now + STORE_INTERVAL;
        self.stored.clone_from(&self.newest);
        Some(self.newest.clone())
    }

    /// The disk has refused what was to be stored last, which becomes due again.
    pub(crate) fn refused(&mut self) {
        self.is_refused = true;
    }

    /// Server `id` lacks `count` entries, for this reason. A line of the log says so when it begins
    /// and ends. Whether operators see anything else than before.
    pub(crate) fn update(&mut self, gap: Option<LogGap>, count: u64, id: u64) -> bool {
        let gap = gap.map(|gap| text_of(gap, id));
        match (&self.gap, &gap) {
            (None, Some(reason)) => tracing::error!(%reason, "entries of the log are missing"),
            (Some(_), None) => tracing::info!("no entries of the log are missing any more"),
            _ => {}
        }
        let is_new = self.gap != gap || self.count != count;
        (self.gap, self.count) = (gap, count);
        is_new
    }

    /// The reason why entries are missing, if any are.
    pub(crate) fn gap(&self) -> Option<&String> {
        self.gap.as_ref()
    }
}

/// Returns what other members have acknowledged to this server, by its handshakes.
pub(crate) fn acknowledged_by(members: &[KnownMember]) -> Vec<(u64, u128, u64)> {
    let known = members
        .iter()
        .filter(|member| member.acknowledged_index > 0);
    known
        .map(|member| (member.id, member.incarnation, member.acknowledged_index))
        .collect()
}

/// Text for operators, with the next step. It never names a folder to be emptied that
/// has entries which others lack.
fn text_of(gap: LogGap, id: u64) -> String {
    match gap {
        LogGap::RolledBack { acknowledged, last } => format!(
            "the data folder of server {id} was rolled back: its log ends at entry {last}, but it has acknowledged entry \
             {acknowledged}. It neither votes nor leads until a leader has sent it the rest: start the other servers. \
             Where too few of them are left to elect a leader, keep the folder of the server with the newest entries, and \
             make a new cluster of that one with `baton server recover`"
        ),
        LogGap::Lacks { node, commit } => format!(
            "server {node} has committed entry {}, which the log of server {id} lacks: server {id} does not lead, and \
             waits for server {node} or another one that has the entry. Keep the folder of server {node}",
            commit.index
        ),
        LogGap::LeaderLacks {
            leader,
            term,
            index,
        } => format!(
            "server {leader}, which leads term {term}, lacks entry {index} that server {id} has committed: the folders of \
             a majority were rolled back. Server {id} does not follow it. Keep the folder of server {id}; stop the others, \
             and make a new cluster of that folder with `baton server recover`, or of theirs if its entries may be lost"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(lost: u64, index: u64) -> Acknowledged {
        Acknowledged {
            lost,
            members: vec![(2, 20, index)],
        }
    }

    #[test]
    fn r19_what_the_disk_has_refused_is_stored_again_and_what_is_lost_at_once() {
        let begun = Instant::now();
        let mut it = LostEntries::new(Acknowledged::default(), begun);
        let mut stores = |newest: Acknowledged, now| {
            it.acknowledged(newest.clone());
            let unstored = it.take_unstored(now);
            assert!(unstored.as_ref().is_none_or(|it| *it == newest));
            unstored.is_some()
        };
        assert!(stores(acknowledged(0, 5), begun));
        let later = begun + STORE_INTERVAL;
        assert!(!stores(acknowledged(0, 5), later), "it is stored");
        assert!(!stores(
            acknowledged(0, 6),
            later - Duration::from_millis(1)
        ));
        assert!(stores(acknowledged(9, 6), begun));
        it.refused();
        let mut stores = |now| it.take_unstored(now).is_some();
        assert!(!stores(begun), "not in each turn");
        assert!(stores(later));
        assert!(!stores(later + STORE_INTERVAL));
    }

    #[test]
    fn operators_see_each_change_and_no_repetition() {
        let mut it = LostEntries::new(Acknowledged::default(), Instant::now());
        assert!(!it.update(None, 0, 1) && it.gap().is_none());
        let gap = |acknowledged| LogGap::RolledBack {
            acknowledged,
            last: 4,
        };
        assert!(it.update(Some(gap(9)), 5, 1));
        assert!(it.gap().unwrap().contains("has acknowledged entry 9"));
        assert!(!it.update(Some(gap(9)), 5, 1));
        assert!(it.update(Some(gap(9)), 4, 1));
        assert!(it.update(Some(gap(10)), 4, 1));
        assert!(it.update(None, 4, 1) && it.gap().is_none());
    }
}

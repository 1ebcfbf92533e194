//! Deletions that the leader makes by itself: the ephemerals of ended sessions, and the containers
//! and TTL znodes that are due (protocol.md §1.11). Each entry deletes a bounded number of znodes,
//! and the next one is made when it is applied, so that the writes of clients come in between.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use baton_tree::{Command, MOST_DELETED_AT_ONCE, ReapCursor};

use super::CoreDriver;
use crate::error::ServerError;
use crate::state::ServerState;

/// Progress of the leader's own deletions.
#[derive(Debug)]
pub(crate) struct OwnDeletions {
    /// When to look for containers and TTL znodes. `None`: never.
    next_reap: Option<Instant>,
    /// The walk over them that is not complete.
    walk: Option<ReapCursor>,
    /// The term in which the newest entry was proposed, while it may not be applied.
    proposed_in: Option<u64>,
}

impl OwnDeletions {
    pub(crate) fn new(state: &ServerState) -> Self {
        let interval = state.options.reap_interval;
        Self {
            next_reap: (!interval.is_zero()).then(|| state.time.now() + interval),
            walk: None,
            proposed_in: None,
        }
    }

    /// Whether the newest entry is on its way. One that another leader's term has overtaken may
    /// never come.
    fn waits(&mut self, term: u64, has_deleted: bool) -> bool {
        self.proposed_in.take_if(|it| has_deleted || *it != term);
        self.proposed_in.is_some()
    }
}

impl CoreDriver {
    /// When there is something to delete, if this server leads.
    pub(crate) fn next_deletion(&self, now: Instant) -> Option<Instant> {
        let own = &self.own_deletions;
        // A later entry than the one that is on its way wakes the core by being applied.
        let waits = own.proposed_in.is_some() && !self.applier.has_deleted;
        let has_more = self.applier.unfinished_end.is_some() || own.walk.is_some();
        if has_more && !waits {
            return Some(now);
        }
        own.next_reap
    }

    /// Proposes the next deletions, unless the last ones are on their way.
    pub(crate) fn delete_own(&mut self, now: Instant) -> Result<(), ServerError> {
        let term = self.consensus.status().term;
        let own = &mut self.own_deletions;
        if own.waits(term, std::mem::take(&mut self.applier.has_deleted)) {
            return Ok(());
        }
        let is_due = own.next_reap.is_some_and(|due| now >= due);
        if is_due && own.walk.is_none() {
            own.walk = Some(ReapCursor::default());
            own.next_reap = Some(now + self.state.options.reap_interval);
        }
        if own.walk.is_none() && self.applier.unfinished_end.is_none() {
            return Ok(());
        }
        let mut builder = self.new_batch();
        if let Some(session_id) = self.applier.unfinished_end {
            let reason = self.applier.ends.reason(session_id);
            builder.begin(session_id, &self.nobody, None);
            builder.push(0, Command::CloseSession { session_id, reason });
        }
        let now_ms = self.entry_ms;
        if let Some(cursor) = &mut self.own_deletions.walk {
            let grace_ms = self.state.options.container_grace.as_millis();
            let grace_ms = i64::try_from(grace_ms).unwrap_or(i64::MAX);
            let tree = self.state.tree.read();
            let due = tree.reap_candidates(now_ms, grace_ms, cursor, MOST_DELETED_AT_ONCE);
            drop(tree);
            if cursor.is_at_end() {
                self.own_deletions.walk = None;
            }
            self.state.stats.reaped.fetch_add(due.len() as u64, Relaxed);
            for candidate in &due {
                let command = Command::DeleteContainer {
                    path: &candidate.path,
                    czxid: candidate.czxid,
                };
                builder.begin(0, &self.nobody, None);
                builder.push(0, command);
            }
        }
        if !builder.is_empty() {
            self.own_deletions.proposed_in = Some(term);
        }
        self.commit_for_nobody(builder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_deletions_wait_for_the_last_ones_of_the_same_term_alone() {
        let mut own = OwnDeletions {
            next_reap: None,
            walk: None,
            proposed_in: Some(5),
        };
        assert!(own.waits(5, false) && own.waits(5, false));
        assert!(!own.waits(5, true), "applied");
        own.proposed_in = Some(5);
        assert!(
            !own.waits(6, false),
            "it may have been lost with the leader"
        );
        own.proposed_in = Some(6);
        assert!(own.waits(6, false));
    }
}

//! When entries were proposed, synced and committed, and how long this server looked for a leader:
//! for metrics and traces. Decides nothing.
//!
//! | module | owns |
//! |---|---|
//! | `phases` | since when this server looks for a leader or serves no writes |
//! | `proposed` | when a leader has proposed its newest entries |
//! | `synced` | when the log has synced its newest entries |

pub(crate) mod phases;
mod proposed;
mod synced;

use std::time::Instant;

use baton_consensus::{PersistToken, RoleChange};

use self::phases::{Part, Phases};
use self::proposed::Proposed;
use self::synced::Synced;
use crate::stats::replication::ReplicationStats;

/// The times of one server.
#[derive(Debug)]
pub(crate) struct Timings {
    phases: Phases,
    proposed: Proposed,
    /// Kept if writes may have a tracer.
    synced: Option<Synced>,
}

impl Timings {
    /// Times of a server that starts at `now`, whose writes have a tracer if `is_traced`.
    pub(crate) fn new(is_traced: bool, now: Instant, stats: &ReplicationStats) -> Self {
        Self {
            phases: Phases::new(now, stats),
            proposed: Proposed::default(),
            synced: is_traced.then(Synced::default),
        }
    }

    /// Another leader, or another term: the entries behind an index may be others from here on.
    pub(crate) fn role_changed(
        &mut self,
        role: RoleChange,
        now: Instant,
        stats: &ReplicationStats,
    ) {
        self.phases.role_changed(role, now, stats);
        self.proposed = Proposed::default();
        if let Some(synced) = &mut self.synced {
            *synced = Synced::default();
        }
    }

    /// Everything that was committed before the present leader is applied.
    pub(crate) fn caught_up(&mut self, part: Part, now: Instant, stats: &ReplicationStats) {
        self.phases.caught_up(part, now, stats);
    }

    /// An entry has been proposed by this leader.
    pub(crate) fn proposed(&mut self, index: u64, now: Instant) {
        self.proposed.push(index, now);
    }

    /// Everything that this leader has proposed up to `commit` is committed.
    pub(crate) fn committed(&mut self, commit: u64, now: Instant, stats: &ReplicationStats) {
        self.proposed.committed(commit, now, stats);
    }

    /// Another server says to this leader that it has everything up to `index`.
    pub(crate) fn acknowledged(
        &mut self,
        server: u64,
        index: u64,
        now: Instant,
        stats: &ReplicationStats,
    ) {
        self.proposed.acknowledged(server, index, now, stats);
    }

    /// Entries up to this index were handed to the log.
    pub(crate) fn written(&mut self, token: PersistToken, last: u64) {
        if let Some(synced) = &mut self.synced {
            synced.written(token, last);
        }
    }

    /// Everything up to this token is durable.
    pub(crate) fn durable(&mut self, newest: PersistToken, now: Instant) {
        if let Some(synced) = &mut self.synced {
            synced.durable(newest, now);
        }
    }

    /// When the log was synced that has the entry of this index, where that is known.
    pub(crate) fn synced_at(&self, index: u64) -> Option<Instant> {
        self.synced.as_ref()?.at(index)
    }
}

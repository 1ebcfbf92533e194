//! Committed entries on their way to the tree, and what follows when one is applied.

use std::sync::Arc;

use baton_consensus::{Entry, EntryKind};
use baton_tree::Batch;
use bytes::Bytes;

use super::CoreDriver;
use crate::core::apply;
use crate::core::batches::in_flight::Requested;
use crate::error::ServerError;
use crate::observers::traces::WriteStep;
use crate::time::micros;

impl CoreDriver {
    /// Entries that are committed: they are applied now, or behind the snapshot that is being
    /// installed.
    pub(crate) fn apply_committed(&mut self, entries: Vec<Entry>) -> Result<(), ServerError> {
        for entry in self.transfers.hold_behind(entries) {
            self.apply(&entry)?;
            self.entry_applied(entry.index, entry.term);
        }
        Ok(())
    }

    /// Applies a committed entry, wherever it came from, and answers those who asked for it.
    fn apply(&mut self, entry: &Entry) -> Result<(), ServerError> {
        match entry.kind {
            EntryKind::Noop => {}
            EntryKind::Command => self.apply_payload(entry, &entry.payload, true)?,
            EntryKind::Configuration => self.apply_change(entry)?,
        }
        self.consensus.applied(entry.index)?;
        if let Some(replay) = &self.applier.replay {
            replay.add(1);
        }
        Ok(())
    }

    /// Applies the batch that an entry carries. `answers`: the clients that asked are answered.
    pub(crate) fn apply_payload(
        &mut self,
        entry: &Entry,
        payload: &Bytes,
        answers: bool,
    ) -> Result<(), ServerError> {
        let batch = Batch::decode(payload).map_err(|source| ServerError::Entry {
            index: entry.index,
            source,
        })?;
        let commands = batch.items().len();
        self.applier.is_own = self.leadership.has_led(entry.term);
        let origin = batch.origin().filter(|_| answers);
        let requested = match self.take(origin) {
            Some(requested) => requested,
            None => self.in_flight.unasked(commands),
        };
        let begun = self.state.time.now();
        if let Some(synced) = self.timings.synced_at(entry.index) {
            requested.mark(WriteStep::Synced, synced);
        }
        requested.mark(WriteStep::Committed, begun);
        let is_recovering = self.applier.is_recovering();
        if !is_recovering {
            let uptime_ms = self.state.time.uptime_ms_at(begun);
            self.state.progress.step(uptime_ms);
        }
        self.applier
            .run(&self.state, &mut self.clocks, &requested, Some(&batch));
        self.finish(requested);
        self.batch_applied(batch.origin());
        if !is_recovering {
            let now = self.state.time.now();
            let took = micros(now.saturating_duration_since(begun));
            self.state.stats.apply_time.record(took);
            if !self.leadership.is_alone() {
                // Clocks of servers differ, so it may seem to be applied before it was made.
                let millis = self.state.time.wall_ms().saturating_sub(batch.time_ms());
                let latency = u64::try_from(millis).unwrap_or(0).saturating_mul(1000);
                let stats = &self.state.stats.replication;
                stats
                    .propagation_latency
                    .record_all(commands as u64, latency);
            }
            self.group_commit
                .entry_applied(self.applier.notified, self.last_sync, now);
        }
        Ok(())
    }

    /// Keeps the buffers of requests that are answered. The last batch that was made of a work
    /// counts its requests as answered.
    pub(crate) fn finish(&mut self, requested: Requested) {
        let Requested { work, steps } = requested;
        if let Some(mut work) = Arc::into_inner(work) {
            apply::count_answers(&self.state, &work);
            self.state.inbox.done(&mut work);
            self.in_flight.recycle_work(work);
        }
        self.in_flight.recycle_steps(steps);
    }
}

//! The consensus of a member: ticks, what it hands out, and what follows from another role, term or
//! leader.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use baton_consensus::{Effects, MessageKind, PeerMessage, PeerProgress, Role, RoleChange};
use baton_tree::BatchBuilder;
use baton_wal::{Record, Wal};

use super::CoreDriver;
use crate::core::leadership::lateness::{CAUTION, Caution};
use crate::core::log::{CompletedJob, Job};
use crate::core::member_changes::successor;
use crate::core::timings::phases::Part;
use crate::error::ServerError;
#[cfg(feature = "simulation")]
use crate::state::simulated::ServerBug;
use crate::time::micros;

/// Bytes that may wait for a disk whose server answers heartbeats nevertheless. Each answer has the
/// leader send more.
const MOST_PENDING_BYTES: usize = 64 << 20;
/// Ticks that an idle core sleeps through at most: what operators see stays as fresh.
const MOST_IDLE_TICKS: u32 = 16;

impl CoreDriver {
    /// Hands over to a server that keeps up where this leader's disk hangs or is full. Where the
    /// disks of a majority do not keep up, nobody could be elected: reads and sessions would end,
    /// too.
    pub(crate) fn hand_over_when_disk_hangs(&mut self, now: Instant) {
        let standstill = self.log.standstill(now);
        let waits = standstill.map(|(stands, _)| stands);
        let is_full = self.state.stats.disk_full.load(Relaxed);
        let others_are_ahead = || self.consensus.majority_is_ahead_of_own_disk();
        if !self
            .leadership
            .must_hand_over(standstill, is_full, others_are_ahead, now)
        {
            return;
        }
        // Disks may have filled up since: a server that stores one more entry has room for a vote.
        let Some(asked) = self.leadership.hand_over_entry() else {
            let batch = BatchBuilder::raising(self.applier.level, self.entry_ms);
            let proposed = self.consensus.propose(batch.finish());
            let last = self.consensus.last_index();
            let asked = proposed.map_or(last, |at| at.index);
            self.leadership.set_hand_over_entry(asked);
            return;
        };
        let progress = self.consensus.progress();
        let may_lead = |peer: &PeerProgress| peer.active && peer.matched >= asked;
        if self.consensus.majority_has(asked)
            && let Some(to) = successor(self.consensus.membership(), &progress, may_lead)
        {
            self.leadership.handed_over(now);
            tracing::warn!(
                to,
                ?waits,
                is_full,
                "the disk does not answer: leadership is handed over"
            );
            self.consensus.transfer_leader(to);
        }
    }

    /// The voter that is nearest to leading, as far as this leader knows.
    pub(super) fn best_successor(&self) -> Option<u64> {
        let progress = self.consensus.progress();
        successor(self.consensus.membership(), &progress, |peer| peer.active)
    }

    /// Takes what the log has done.
    pub(crate) fn take_synced(&mut self) -> Result<(), ServerError> {
        let mut newest = None;
        let now = self.state.time.now();
        while let Some(done) = self.log.take(now) {
            match done {
                CompletedJob::Persisted(token, took) => {
                    newest = Some(token);
                    self.last_sync = took;
                }
                CompletedJob::AcknowledgedRefused => self.lost_entries.refused(),
                CompletedJob::Failed(error) => return Err(error.into()),
                CompletedJob::Closed => {}
            }
        }
        let Some(newest) = newest else {
            return Ok(());
        };
        self.timings.durable(newest, self.state.time.now());
        self.consensus.persisted(newest);
        self.install_when_durable(newest)
    }

    /// Ticks that the core sleeps through: nobody waits for what comes of them, and nothing else is
    /// awaited that is looked at with each tick.
    pub(crate) fn idle_ticks(&self) -> u32 {
        let is_quiet = !self.log.is_busy()
            && self.outstanding.batches() == 0
            && self.members.is_quiet()
            && !self.transfers.is_installing()
            && !self.leadership.is_about_to_campaign()
            && !self.members.is_removed();
        match is_quiet {
            true => self.consensus.idle_ticks().min(MOST_IDLE_TICKS),
            false => 0,
        }
    }

    /// Makes the ticks that the core has slept through, before any message is handled: a timeout
    /// begins again with a message, and not before it came.
    pub(crate) fn make_idle_ticks(&mut self, now: Instant) {
        let idle = self.idle_ticks();
        for _ in 0..self.leadership.slept_through(idle, now) {
            self.consensus.tick();
        }
    }

    /// Makes the ticks that are due, and campaigns where the leader is gone.
    pub(crate) fn make_ticks(&mut self, now: Instant) {
        if self.leadership.takes_campaign(now)
            && !self.members.is_removed()
            && let Err(error) = self.consensus.campaign()
        {
            tracing::debug!("no campaign: {error}");
        }
        let Some(ticks) = self.leadership.due_ticks(now) else {
            return;
        };
        let late = ticks.late;
        self.state
            .stats
            .replication
            .tick_lateness
            .record(micros(late));
        if let Some(caution) = ticks.caution {
            let is_cautious = caution == Caution::Begins;
            self.consensus.double_campaign_ticks(is_cautious);
            let shown = &self.state.stats.replication.is_cautious;
            shown.store(is_cautious, Relaxed);
            if is_cautious {
                tracing::warn!(
                    ?late,
                    lasts = ?CAUTION,
                    "the steps of this server's elections were late three times: it waits twice as long for a leader \
                     before it campaigns"
                );
            }
        }
        self.is_status_due = true;
        // A server that does not vote starts no election, so only this ends its trust in a leader
        // that is silent, and sends its clients elsewhere.
        if self
            .leadership
            .leader()
            .is_some_and(|leader| leader != self.links.id && !self.peers.hears(leader, now))
            && !self.consensus.membership().votes(self.links.id)
        {
            self.consensus.forget_leader();
        }
        if self.members.is_removed() && !self.leadership.leads() {
            // It would only ask for votes that nobody may give (R16). It answers what others ask:
            // one that was restarted may need it until it has the change again.
            return;
        }
        for _ in 0..ticks.count {
            self.consensus.tick();
        }
    }

    /// Does what the consensus hands out, until it has nothing more. Where the core writes the log,
    /// what was handed out is stored and applied when this returns.
    pub(crate) fn settle(&mut self) -> Result<(), ServerError> {
        loop {
            while let Some(effects) = self.consensus.drain() {
                self.handle_effects(effects)?;
            }
            let (snapshots, state) = (&mut self.snapshots, &self.state);
            // Slices of a snapshot are taken by this thread, which waits for room.
            let mut on_full = |wal: &mut Wal| snapshots.give_way(state, wal);
            if !self.log.work(&mut on_full) {
                return Ok(());
            }
            self.take_synced()?;
        }
    }

    pub(crate) fn handle_effects(&mut self, mut effects: Effects) -> Result<(), ServerError> {
        #[cfg(feature = "simulation")]
        self.state.simulated.hands_out(&mut effects);
        if let Some(role) = effects.role {
            self.role_changed(role);
        }
        self.count_effects(&effects);
        self.commit_hint = effects.commit.or(self.commit_hint);
        let hard_state = effects.hard_state.map(|state| {
            Record::HardState(baton_wal::HardState {
                term: state.term,
                vote: state.vote,
            })
        });
        let received = match &effects.snapshot {
            Some(point) => {
                // Its message was admitted because it is here.
                let received = self.transfers.install(point, effects.token);
                Some(received.ok_or(ServerError::Defect)?)
            }
            None => None,
        };
        for _ in &effects.wants_snapshot {
            self.snapshots.request();
        }
        if let Some(last) = effects.append.last() {
            self.timings.written(effects.token, last.index);
        }
        let mut records = Vec::with_capacity(effects.append.len() + 1);
        for entry in &effects.append {
            self.snapshots.logged(entry.payload.len());
            records.push(Record::Entry(baton_wal::Entry {
                index: entry.index,
                term: entry.term,
                kind: entry.kind.as_byte(),
                payload: entry.payload.clone(),
            }));
        }
        if effects.must_sync || self.log.is_busy() {
            if !records.is_empty()
                && let Some(index) = self.commit_hint.take()
            {
                records.push(Record::Commit { index });
            }
            let mut then = effects.send_after_sync;
            if self.log.pending_bytes() > MOST_PENDING_BYTES {
                let is_answer =
                    |message: &mut PeerMessage| message.kind == MessageKind::HeartbeatResponse;
                then.extend(effects.send_now.extract_if(.., is_answer));
            }
            // Before the others are sent it, so that all disks work at the same time.
            self.log.submit(
                Job::Write {
                    hard_state,
                    received,
                    records,
                    must_sync: effects.must_sync,
                    token: effects.token,
                    then,
                },
                self.state.time.now(),
            );
            #[cfg(feature = "simulation")]
            if self
                .state
                .simulated
                .counts_itself(self.leadership.role().role)
            {
                self.consensus.persisted(effects.token);
            }
            self.send_raft(effects.send_now);
        } else {
            // Nothing has to become durable first.
            self.send_raft(effects.send_now);
            self.consensus.persisted(effects.token);
            self.send_raft(effects.send_after_sync);
        }
        self.apply_committed(effects.committed)?;
        for read in effects.reads {
            self.touches.confirmed(read.id, read.index);
        }
        self.answer_touches();
        Ok(())
    }

    /// Counts entries that came and entries that are committed.
    fn count_effects(&mut self, effects: &Effects) {
        let stats = &self.state.stats.replication;
        if !self.leadership.leads() {
            let (received, committed) = (effects.append.len(), effects.committed.len());
            stats.entries_received.fetch_add(received as u64, Relaxed);
            stats.commits_received.fetch_add(committed as u64, Relaxed);
            return;
        }
        if let Some(commit) = effects.commit {
            let now = self.state.time.now();
            self.timings.committed(commit, now, stats);
            self.proposals.committed(commit);
        }
    }

    /// Sends messages of the consensus, and has it know which were not sent.
    pub(crate) fn send_raft(&mut self, mut messages: Vec<PeerMessage>) {
        if messages.is_empty() {
            return;
        }
        let is_snapshot = |message: &mut PeerMessage| message.kind == MessageKind::Snapshot;
        let mut has_snapshot = false;
        for message in messages.extract_if(.., is_snapshot) {
            // Its file goes first.
            self.transfers.begin(message, self.state.time.now());
            has_snapshot = true;
        }
        if has_snapshot {
            let progress = self.consensus.progress().into_iter();
            let in_flight = progress.filter(|peer| peer.snapshot > 0).count();
            let stats = &self.state.stats.replication;
            stats.snapshots_in_flight.record(in_flight as u64);
        }
        for unsent in self.links.wire.send_raft(messages) {
            self.consensus.report_unreachable(unsent.to);
        }
    }

    pub(crate) fn entry_applied(&mut self, index: u64, term: u64) {
        self.run_due_reads();
        self.note_digest(index);
        self.members.entry_applied(index);
        if !self.leadership.entry_applied(term) {
            return;
        }
        self.note_caught_up();
        if self.leadership.acts_as_leader() {
            tracing::info!(term, index, "this server leads");
            // Whatever earlier leaders counted, no session ends before its full timeout from here
            // on (R35).
            let now_ms = self.state.time.now_ms();
            #[cfg(feature = "simulation")]
            let now_ms = match self.state.simulated.makes(ServerBug::KeepsOldClocks) {
                true => 0,
                false => now_ms,
            };
            self.clocks.lead(now_ms);
        }
    }

    /// For metrics: whether this server has applied everything that was committed before the
    /// present leader.
    fn note_caught_up(&mut self) {
        if self.leadership.settled_leader().is_none() {
            return;
        }
        let part = match self.leadership.role().role {
            Role::Leader => Part::Leader,
            _ if self.consensus.membership().votes(self.links.id) => Part::Follower,
            _ => Part::Observer,
        };
        let (now, stats) = (self.state.time.now(), &self.state.stats.replication);
        self.timings.caught_up(part, now, stats);
    }

    /// Another role, term or leader.
    pub(crate) fn role_changed(&mut self, role: RoleChange) {
        if role.leader.is_some() {
            self.end_read_only_mode();
        }
        self.is_status_due = true;
        let (now, stats) = (self.state.time.now(), &self.state.stats.replication);
        let Some(before) = self.leadership.change(role, now) else {
            return;
        };
        if before.leader != role.leader {
            if let Some(leader) = role.leader {
                self.peers.heard(leader, now);
            }
            tracing::info!(
                term = role.term,
                leader = role.leader,
                before = before.leader,
                "the leader has changed"
            );
        }
        self.timings.role_changed(role, now, stats);
        self.proposals.clear();
        self.members.role_changed(now);
        if role.role == Role::Leader {
            self.peers.lead(now);
        }
        #[cfg(feature = "simulation")]
        {
            let ending = match before.role {
                Role::Leader => self.clocks.ending(),
                _ => Vec::new(),
            };
            let pings = self.touches.pings_on_their_way();
            self.state.simulated.leader_changed(&ending, pings);
        }
        self.touches.role_changed();
        self.digests.role_changed();
        if before.role == Role::Leader {
            // What it was about to end, the next leader decides again (R36).
            self.clocks.follow(self.state.time.now_ms());
            self.transfers.abandon();
        }
        self.note_caught_up();
        self.sent_is_lost();
    }
}

//! The consensus of a member: ticks, what it hands out, and what follows from another role, term or
//! leader.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_consensus::{Effects, MessageKind, PeerMessage, Role, RoleChange};
use baton_wal::{Record, Wal};

use super::CoreDriver;
use super::member::{MOST_IDLE_TICKS, MOST_TICKS, TERMS_KEPT};
use crate::core::leadership::lateness::{CAUTION, Caution};
use crate::core::log::{Done, Job};
use crate::core::timings::phases::Part;
use crate::error::ServerError;
#[cfg(feature = "simulation")]
use crate::state::simulated::Mistake;
use crate::time::micros;

/// Time for which a leader's disk may make nothing durable before leadership moves; the bytes it
/// has to write in a second besides.
const SLOW_DISK: Duration = Duration::from_millis(500);
const SLOW_DISK_BYTES: u64 = 2 << 20;
/// Bytes that may wait for a disk whose server answers heartbeats nevertheless. Each answer has the
/// leader send more.
const MOST_PENDING_BYTES: usize = 64 << 20;
/// Time for which leadership stays after it was handed over.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(10);

/// Whether a disk that made nothing durable for `stands` hangs, and is not just busy with `bytes`.
fn hangs((stands, bytes): (Duration, usize), stretched: impl Fn(Duration) -> Duration) -> bool {
    let millis = (bytes as u64).saturating_mul(1000) / SLOW_DISK_BYTES;
    stands > stretched(SLOW_DISK + Duration::from_millis(millis))
}

impl CoreDriver {
    /// A leader whose disk hangs or is full goes on with its heartbeats, so nobody else would lead
    /// and no write would proceed (R04): it hands over to a server that keeps up. Where the disks
    /// of a majority do not keep up, nobody could be elected: reads and sessions would end, too.
    pub(crate) fn hand_over_when_disk_hangs(&mut self, now: Instant) {
        let member = &mut self.member;
        let standstill = self.log.standstill(now);
        let waits = standstill.map(|(stands, _)| stands);
        let is_full = self.state.stats.disk_full.load(Relaxed);
        let is_due = member.may_hand_over_at.is_none_or(|at| now >= at);
        if member.role.role != Role::Leader
            || !is_due
            || !(is_full || standstill.is_some_and(|it| hangs(it, |time| member.stretched(time))))
            || !self.consensus.majority_is_ahead_of_own_disk()
        {
            return;
        }
        if let Some(to) = self.best_successor() {
            self.member.may_hand_over_at = Some(now + HAND_OVER_PAUSE);
            tracing::warn!(
                to,
                ?waits,
                is_full,
                "the disk does not answer: leadership is handed over"
            );
            self.consensus.transfer_leader(to);
        }
    }

    /// Takes what the log has done.
    pub(crate) fn take_synced(&mut self) -> Result<(), ServerError> {
        let mut newest = None;
        let now = self.state.time.now();
        while let Some(done) = self.log.take(now) {
            match done {
                Done::Persisted(token, took) => {
                    newest = Some(token);
                    self.last_sync = took;
                }
                Done::AcknowledgedRefused => self.member.acknowledged.refused(),
                Done::Failed(error) => return Err(error.into()),
                Done::Closed => {}
            }
        }
        let Some(newest) = newest else {
            return Ok(());
        };
        if let Some(synced) = &mut self.member.synced {
            synced.durable(newest, self.state.time.now());
        }
        self.consensus.persisted(newest);
        self.install_when_durable(newest)
    }

    /// Ticks that the core sleeps through: nothing comes of them, and nothing else is awaited that
    /// is looked at with each tick.
    pub(crate) fn idle_ticks(&self) -> u32 {
        let member = &self.member;
        let is_quiet = !self.log.is_busy()
            && member.outstanding.batches() == 0
            && member.members.is_quiet()
            && !member.is_installing()
            && member.campaign_at.is_none()
            && !member.members.is_removed();
        match is_quiet {
            true => self.consensus.idle_ticks().min(MOST_IDLE_TICKS),
            false => 0,
        }
    }

    /// Makes the ticks that the core has slept through, before any message is handled: a timeout
    /// begins anew with a message, and not before it came.
    pub(crate) fn make_idle_ticks(&mut self, now: Instant) {
        let idle = self.idle_ticks();
        let member = &mut self.member;
        let Some(next_tick) = member.next_tick else {
            return;
        };
        for number in 0..idle {
            let due = next_tick + member.tick * number;
            if now < due {
                break;
            }
            member.next_tick = Some(due + member.tick);
            self.consensus.tick();
        }
    }

    pub(crate) fn make_ticks(&mut self, now: Instant) -> Result<(), ServerError> {
        let member = &mut self.member;
        if member.campaign_at.is_some_and(|at| now >= at) {
            member.campaign_at = None;
            if !member.members.is_removed()
                && member.role.leader.is_none()
                && let Err(error) = self.consensus.campaign()
            {
                tracing::debug!("no campaign: {error}");
            }
        }
        let Some(next_tick) = member.next_tick else {
            return Ok(());
        };
        let Some(late) = now.checked_duration_since(next_tick) else {
            return Ok(());
        };
        self.state
            .stats
            .replication
            .tick_lateness
            .record(micros(late));
        let caution = member.lateness.note(late, member.tick, now);
        if let Some(caution) = caution {
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
        let missed = late.as_nanos() / member.tick.as_nanos().max(1);
        let due = u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1);
        member.next_tick = Some(match due <= MOST_TICKS {
            true => next_tick + member.tick * due,
            false => now + member.tick,
        });
        member.is_status_due = true;
        // Whoever does not vote starts no election, so only this ends its trust in a leader that is
        // silent, and sends its clients elsewhere.
        if member
            .role
            .leader
            .is_some_and(|leader| leader != member.id && !member.hears(leader, now))
            && !self.consensus.membership().votes(member.id)
        {
            self.consensus.forget_leader();
        }
        if member.members.is_removed() && member.role.role != Role::Leader {
            // It would only ask for votes that nobody may give (R16). It answers what others ask:
            // one that was restarted may need it until it has the change again.
            return Ok(());
        }
        for _ in 0..due.min(MOST_TICKS) {
            self.consensus.tick();
        }
        Ok(())
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
        if let Some(role) = effects.role {
            self.role_changed(role);
        }
        self.count_effects(&effects);
        let member = &mut self.member;
        member.commit_hint = effects.commit.or(member.commit_hint);
        let hard_state = effects.hard_state.map(|state| {
            Record::HardState(baton_wal::HardState {
                term: state.term,
                vote: state.vote,
            })
        });
        let received = match &effects.snapshot {
            Some(point) => Some(self.begin_install(point, effects.token)?),
            None => None,
        };
        for _ in &effects.wants_snapshot {
            self.snapshots.request();
        }
        let member = &mut self.member;
        if let (Some(synced), Some(last)) = (&mut member.synced, effects.append.last()) {
            synced.written(effects.token, last.index);
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
                && let Some(index) = member.commit_hint.take()
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
            self.send_raft(effects.send_now);
        } else {
            // Nothing has to become durable first.
            self.send_raft(effects.send_now);
            self.consensus.persisted(effects.token);
            self.send_raft(effects.send_after_sync);
        }
        self.apply_committed(effects.committed)?;
        for read in effects.reads {
            self.member.touches.confirmed(read.id, read.index);
        }
        self.answer_touches();
        Ok(())
    }

    /// Counts entries that came and entries that are committed.
    fn count_effects(&mut self, effects: &Effects) {
        let member = &mut self.member;
        let stats = &self.state.stats.replication;
        if member.role.role != Role::Leader {
            let (received, committed) = (effects.append.len(), effects.committed.len());
            stats.entries_received.fetch_add(received as u64, Relaxed);
            stats.commits_received.fetch_add(committed as u64, Relaxed);
            return;
        }
        if let Some(commit) = effects.commit {
            let now = self.state.time.now();
            member.proposed.committed(commit, now, stats);
            member.proposals.committed(commit);
        }
    }

    /// Sends messages of the consensus, and has it know which were not sent.
    pub(crate) fn send_raft(&mut self, mut messages: Vec<PeerMessage>) {
        let member = &mut self.member;
        if messages.is_empty() {
            return;
        }
        let is_snapshot = |message: &mut PeerMessage| message.kind == MessageKind::Snapshot;
        let mut has_snapshot = false;
        for message in messages.extract_if(.., is_snapshot) {
            // Its file goes first.
            member.outgoing.begin(message, self.state.time.now());
            has_snapshot = true;
        }
        if has_snapshot {
            let progress = self.consensus.progress().into_iter();
            let in_flight = progress.filter(|peer| peer.snapshot > 0).count();
            let stats = &self.state.stats.replication;
            stats.snapshots_in_flight.record(in_flight as u64);
        }
        for unsent in member.links.wire.send_raft(messages) {
            self.consensus.report_unreachable(unsent.to);
        }
    }

    pub(crate) fn entry_applied(&mut self, index: u64, term: u64) {
        self.run_due_reads();
        self.note_digest(index);
        let member = &mut self.member;
        member.members.entry_applied(index);
        if member.applied_term == term {
            return;
        }
        member.applied_term = term;
        self.note_caught_up();
        let member = &mut self.member;
        if member.acts_as_leader() {
            tracing::info!(term, index, "this server leads");
            // Whatever earlier leaders counted, no session ends before its full timeout from here
            // on (R35).
            let now_ms = self.state.time.now_ms();
            #[cfg(feature = "simulation")]
            let now_ms = match self.state.simulated.makes(Mistake::KeepsOldClocks) {
                true => 0,
                false => now_ms,
            };
            self.clocks.lead(now_ms);
        }
    }

    /// For metrics: whether this server has applied everything that was committed before the
    /// present leader.
    fn note_caught_up(&mut self) {
        let member = &mut self.member;
        if member.settled_leader().is_none() {
            return;
        }
        let part = match member.role.role {
            Role::Leader => Part::Leader,
            _ if self.consensus.membership().votes(member.id) => Part::Follower,
            _ => Part::Observer,
        };
        let (now, stats) = (self.state.time.now(), &self.state.stats.replication);
        member.phases.caught_up(part, now, stats);
    }

    /// Another role, term or leader.
    pub(crate) fn role_changed(&mut self, role: RoleChange) {
        if role.leader.is_some() {
            self.end_read_only_mode();
        }
        let member = &mut self.member;
        let before = std::mem::replace(&mut member.role, role);
        member.is_status_due = true;
        member.leaderless_since = match role.leader {
            Some(_) => None,
            None => member
                .leaderless_since
                .or_else(|| Some(self.state.time.now())),
        };
        if (before.leader, before.term) == (role.leader, role.term) {
            return;
        }
        if before.leader != role.leader {
            if let Some(leader) = role.leader {
                member.heard_at.insert(leader, self.state.time.now());
            }
            tracing::info!(
                term = role.term,
                leader = role.leader,
                before = before.leader,
                "the leader has changed"
            );
        }
        if role.leader.is_some() {
            member.campaign_at = None;
        }
        let (now, stats) = (self.state.time.now(), &self.state.stats.replication);
        member.phases.role_changed(role, now, stats);
        member.proposed.clear();
        if let Some(synced) = &mut member.synced {
            synced.clear();
        }
        member.proposals.clear();
        member.members.role_changed(now);
        if role.role == Role::Leader {
            if member.led_terms.len() == TERMS_KEPT {
                member.led_terms.pop_front();
            }
            member.led_terms.push_back(role.term);
            // Until now, only the leader before has heard of them.
            let now = self.state.time.now();
            let heard = member.connected.iter().map(|id| (*id, now));
            member.heard_at.extend(heard);
        }
        #[cfg(feature = "simulation")]
        {
            let ending = match before.role {
                Role::Leader => self.clocks.ending(),
                _ => Vec::new(),
            };
            let pings = member.touches.pings_on_their_way();
            self.state.simulated.leader_changed(&ending, pings);
        }
        member.touches.role_changed();
        member.digests.role_changed();
        if before.role == Role::Leader {
            // What it was about to end, the next leader decides anew (R36).
            self.clocks.follow(self.state.time.now_ms());
            self.abandon_transfers();
        }
        self.note_caught_up();
        self.sent_is_lost();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_busy_with_much_does_not_hang() {
        let hangs = |millis, bytes| hangs((Duration::from_millis(millis), bytes), |time| time);
        assert!(hangs(501, 0) && !hangs(500, 0));
        assert!(!hangs(1500, 2 << 20) && hangs(1501, 2 << 20));
    }
}

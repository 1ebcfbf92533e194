//! The core: one thread that owns consensus and every change of the tree. It takes all requests
//! that wait, makes batches of them, has the log store them, and applies each entry once it is
//! committed. It answers nothing that is not on disk. A server that stands alone is a member
//! without peers: it takes the same turns, and writes its log on this thread.
//!
//! | module | owns |
//! |---|---|
//! | `peer_events` | what the other servers send |
//! | `replication` | ticks, effects of the consensus, another role, term or leader |
//! | `leaderless` | what clients get while no leader is known; read-only mode |
//! | `batches` | requests on their way into the log, and what is sent again |
//! | `touches` | which clients are alive; when a ping is answered |
//! | `digests` | whether the servers have the same state |
//! | `clocks` | how far the servers' wall clocks are apart |
//! | `own_deletions` | what the leader deletes by itself, a bounded number in each entry |
//! | `member` | one turn; what a server knows of its ensemble, and of its part in it |
//! | `membership` | changes of the members: `reconfig`, and what follows when one is applied |
//! | `transfers` | snapshots to and from other servers |
//! | `rollback` | entries that others have and this server's folder has lost |

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_consensus::{Consensus, Entry, EntryKind};
use baton_proto::{OpCode, PASSWORD_BYTES};
use baton_tree::{
    Batch, BatchBuilder, CloseReason as SessionEnd, Command, Identity, MOST_DELETED_AT_ONCE, Stamp,
};
use bytes::Bytes;

use crate::connections::conn::{Attached, CloseReason};
use crate::connections::counts::ClientCounts;
use crate::connections::inbox::{Kind, Woken, Work};
use crate::connections::peer::PeerGroup;
use crate::core::apply::{self, Applier};
use crate::core::batches::backlog::Backlog;
use crate::core::batches::group_commit::GroupCommit;
use crate::core::batches::in_flight::{InFlight, Requested, Step};
use crate::core::links::Links;
use crate::core::log::Log;
use crate::core::snapshots::{SnapshotLog as _, Snapshots};
use crate::core::start::starting::Starting;
#[cfg(feature = "simulation")]
use crate::core::transfer::InlineWorker;
use crate::core::transfer::{DiskWorker, ThreadWorker};
use crate::error::ServerError;
use crate::observers::traces::WriteStep;
use crate::session::clocks::SessionClocks;
use crate::session::ids::{Nonces, SessionIds};
use crate::session::rounds::Round;
use crate::state::ServerState;
use crate::time::micros;

mod batches;
mod clocks;
mod digests;
mod leaderless;
mod member;
mod membership;
mod own_deletions;
mod peer_events;
mod replication;
mod rollback;
mod touches;
mod transfers;

use member::Member;
use own_deletions::OwnDeletions;

/// How far the reading of all sockets is, which comes before any session expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketRound {
    /// No session is due to expire.
    Idle,
    /// The sockets' tasks have been asked for a round.
    Asked(Round),
    /// They have made it. What they handed in by then is in the inbox, and the core takes it before
    /// a session expires: it may re-attach the session through another connection.
    Made,
}

/// The core of a server. [`CoreDriver::run`] is its thread.
#[derive(Debug)]
pub(crate) struct CoreDriver {
    state: Arc<ServerState>,
    consensus: Consensus,
    log: Log,
    member: Member,
    clocks: SessionClocks,
    socket_round: SocketRound,
    ids: SessionIds,
    nonces: Nonces,
    applier: Applier,
    /// Requests that no entry has been made of.
    backlog: Backlog,
    in_flight: InFlight,
    /// Steps of the entry that is being made.
    steps: Vec<Step>,
    /// Sessions that the entry which is being made opens.
    opening: usize,
    opening_of: ClientCounts,
    snapshots: Snapshots,
    group_commit: GroupCommit,
    last_sync: Duration,
    /// Whether writes may have a tracer.
    is_traced: bool,
    own_deletions: OwnDeletions,
    nobody: Identity,
    /// The time of entries that are made in this turn.
    entry_ms: i64,
}

impl CoreDriver {
    /// A core that continues from the state that [`recover`](crate::core::start::recover) has
    /// built, and reaches the other servers by `links`.
    pub(crate) fn new(
        state: Arc<ServerState>,
        consensus: Consensus,
        mut log: Log,
        snapshots: Snapshots,
        links: Links,
        starting: &Starting,
    ) -> Result<Self, ServerError> {
        let is_new = consensus.last_index() == 0;
        let acknowledged = log.take_acknowledged()?;
        let mut core = Self::of(state, consensus, log, snapshots, links);
        core.begin_with_acknowledged(acknowledged);
        core.hold_votes();
        if core.is_alone() {
            core.consensus.campaign()?;
        }
        starting.replay(core.consensus.last_index() - core.consensus.applied_index());
        core.applier.replay = Some(starting.progress());
        core.settle()?;
        if core.member.acts_as_leader() {
            if !is_new {
                core.applier.replay = None;
            }
            // Before a client is served: nobody else has to read what this server writes.
            core.raise_level_as_leader();
            core.propose_waiting();
            core.settle()?;
        }
        core.applier.replay = None;
        core.state.show_restored();
        core.start_clocks();
        Ok(core)
    }

    fn of(
        state: Arc<ServerState>,
        consensus: Consensus,
        log: Log,
        snapshots: Snapshots,
        links: Links,
    ) -> Self {
        let nudged = Arc::clone(&state);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || nudged.inbox.nudge());
        #[cfg(feature = "simulation")]
        let is_simulated = state.time.is_simulated();
        let worker = |name| -> Box<dyn DiskWorker> {
            #[cfg(feature = "simulation")]
            if is_simulated {
                return Box::new(InlineWorker);
            }
            Box::new(ThreadWorker::new(name, Arc::clone(&wake)))
        };
        let nonces = Nonces::after(links.run);
        let member = Member::new(&state, &consensus, links, &log.snapshots(), worker);
        let tick_ms = u64::try_from(state.options.tick.as_millis()).unwrap_or(u64::MAX);
        let ids = SessionIds::new(
            state.options.server_id,
            state.time.wall_ms(),
            &state.tree.read(),
        );
        let level = state.tree.read().level();
        Self {
            clocks: SessionClocks::new(tick_ms),
            socket_round: SocketRound::Idle,
            ids,
            nonces,
            consensus,
            log,
            member,
            applier: Applier::new(level, &state),
            backlog: Backlog::default(),
            in_flight: InFlight::default(),
            steps: Vec::new(),
            opening: 0,
            opening_of: ClientCounts::default(),
            snapshots,
            group_commit: GroupCommit::default(),
            last_sync: Duration::ZERO,
            is_traced: state.options.tracer.is_some(),
            own_deletions: OwnDeletions::new(&state),
            nobody: Identity::anonymous(),
            entry_ms: state.time.wall_ms(),
            state,
        }
    }

    /// Whether there is no other server: elections take no time, and nothing is lost on the way to
    /// the log.
    fn is_alone(&self) -> bool {
        self.member.next_tick.is_none()
    }

    /// How far this server is.
    #[cfg(feature = "simulation")]
    pub(crate) fn progress(&self) -> crate::state::simulated::MemberProgress {
        crate::state::simulated::MemberProgress {
            role: self.consensus.status(),
            applied: self.consensus.applied_index(),
            digest: self.state.tree.read().digest(),
            members: (!self.member.is_installing())
                .then(|| crate::state::simulated::checksum(&self.consensus.membership().encode())),
            is_read_only: self.state.is_read_only(),
            acts_as_leader: self.member.acts_as_leader(),
            ends_sessions: !self.clocks.follows(),
            unapplied: self.state.simulated.unapplied(),
            changes: self.state.simulated.changes(),
        }
    }

    /// The members of the cluster.
    #[cfg(feature = "simulation")]
    pub(crate) fn membership(&self) -> &baton_consensus::Membership {
        self.consensus.membership()
    }

    /// A batch for an entry that is about to be made.
    fn new_batch(&self) -> BatchBuilder {
        BatchBuilder::new(self.applier.level, self.entry_ms)
    }

    /// Sets the tree's time back to that of the clocks, where an operator has asked for it.
    fn reset_time(&mut self) -> Result<(), ServerError> {
        if !self.state.inbox.take_reset_time() {
            return Ok(());
        }
        let to_ms = self.entry_ms;
        let ahead_ms = self.state.tree.read().time_ms().saturating_sub(to_ms);
        tracing::warn!(
            ahead_ms,
            "time is set back to the clocks, as an operator asked"
        );
        let mut builder = self.new_batch();
        builder.push(0, Command::ResetTime { to_ms });
        self.commit_for_nobody(builder)
    }

    /// The time of an entry that is made now: one that a majority's clocks agree with.
    fn entry_time_ms(&self) -> i64 {
        let voters = &self.consensus.membership().voters;
        self.member.entry_time_ms(voters, self.state.time.moment())
    }

    /// Gives every recovered session a full timeout (protocol.md §2).
    fn start_clocks(&mut self) {
        let now_ms = self.state.time.now_ms();
        self.clocks = SessionClocks::new(self.clocks.tick_ms());
        let tree = self.state.tree.read();
        for session in tree.sessions() {
            let timeout = u32::try_from(session.timeout_ms).unwrap_or(0);
            self.clocks.start(session.id, timeout, now_ms, None);
        }
        self.state.set_sessions(self.clocks.len());
        if !self.member.acts_as_leader() {
            self.clocks.follow(now_ms);
        }
    }

    /// Works until it is asked to stop, or until the log fails.
    ///
    /// # Errors
    /// [`ServerError`]; nothing that was not acknowledged before will be.
    pub(crate) fn run(&mut self) -> Result<(), ServerError> {
        self.log.wait_for_room();
        let mut work = Work::default();
        loop {
            self.state.progress.idle();
            if self.log.is_inline()
                && self.backlog.is_empty()
                && let Some(until) = self.group_commit.spin_until()
            {
                let came = self.state.inbox.spin_until(until);
                self.group_commit.record_spin(came);
            }
            let mark = self.state.time.mark();
            let deadline = self.deadline();
            let woken = self.state.inbox.take(&mut work, deadline);
            let now = self.state.time.now();
            self.state.progress.step(self.state.time.uptime_ms_at(now));
            let tick = self.state.options.tick;
            self.state.time.forgive_late(mark, deadline, tick);
            if self.state.inbox.is_aborted() {
                return Ok(());
            }
            if let Some(error) = self.state.inbox.take_failure() {
                return Err(error);
            }
            if self.log.is_inline()
                && self.backlog.is_empty()
                && let Some((groups, until)) =
                    self.group_commit
                        .window(work.groups.len(), work.requests.len(), now)
            {
                let before = work.groups.len();
                let came =
                    self.state
                        .inbox
                        .wait_for_groups(&mut work, groups, until, &self.state.time);
                self.group_commit.record_window(before, came, groups);
            }
            self.turn(&mut work, now)?;
            if woken == Woken::Stop {
                return self.stop();
            }
        }
    }

    /// When there is something to do even if nothing comes in.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let now = self.state.time.now();
        let acts = self.member.acts_as_leader();
        let clock = match self.socket_round {
            // No session ends while handshakes wait for an entry, which nudges the core.
            _ if !acts || self.backlog.has_handshakes() => None,
            SocketRound::Idle => self.clocks.next_due_ms().map(|due_ms| {
                now + Duration::from_millis(due_ms.saturating_sub(self.state.time.at_ms(now)))
            }),
            // The inbox is nudged when the round has been made.
            SocketRound::Asked(_) => None,
            SocketRound::Made => Some(now),
        };
        // What came due during a long sync is due now and not earlier, or the core would count the
        // difference as time in which it stood still.
        let end_mark = self.log.mark_due().map(|due| due.max(now));
        let snapshot = self.snapshots.next_look(now);
        let deletion = self.next_deletion(now).filter(|_| acts);
        // Where a thread writes the log, what it has done makes room for the next batch.
        let next_batch = (self.log.is_inline() && self.may_plan()).then_some(now);
        [
            next_batch,
            clock,
            deletion,
            snapshot,
            end_mark,
            self.member_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Adds the steps of one group; returns where the next group's requests begin.
    fn plan(
        &mut self,
        work: &Work,
        place: usize,
        first: usize,
        builder: &mut BatchBuilder,
    ) -> usize {
        let Some(group) = work.groups.get(place) else {
            return first;
        };
        let next = first + group.len;
        let session = group.conn.session();
        // Only the connection that owns the session may write for it (hazards.md H02). Apply
        // decides that. A connection that has lost the session never gets it back, so what it sends
        // need not go into the log.
        let is_owner = self.clocks.get(session).is_none_or(|clocked| {
            clocked
                .conn
                .as_ref()
                .is_some_and(|conn| conn.id == group.conn.id)
        });
        if session != 0 && !is_owner {
            group
                .conn
                .close(CloseReason::SessionMoved, &mut self.applier.wake);
            return next;
        }
        let attached = group.conn.attached();
        // The leader of an ensemble judges its identity before it is in the log.
        let is_reconfigure = work
            .requests
            .get(first)
            .is_some_and(|request| request.kind == Kind::Write(OpCode::Reconfig));
        let mut has_begun = false;
        let mut begin = |builder: &mut BatchBuilder| {
            let stamp = attached.and_then(Attached::next_stamp);
            if !std::mem::replace(&mut has_begun, true) {
                match attached.filter(|_| !is_reconfigure) {
                    Some(attached) => attached.begin_group(builder, &group.identity, stamp),
                    None => builder.begin(session, &group.identity, stamp),
                }
            }
        };
        for (offset, request) in work
            .requests
            .get(first..next)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            let mut step = Step {
                group: Some(place),
                request: first + offset,
                is_command: true,
            };
            let body = work.body(request);
            let password = || <[u8; PASSWORD_BYTES]>::try_from(body).ok();
            match request.kind {
                Kind::Write(op) => {
                    begin(builder);
                    builder.push(request.xid, Command::Write { op, body });
                }
                Kind::CloseSession => {
                    let command = Command::CloseSession {
                        session_id: session,
                        reason: SessionEnd::Client,
                    };
                    begin(builder);
                    builder.push(request.xid, command);
                }
                Kind::OpenSession { timeout_ms, .. } => {
                    let client = PeerGroup::of(Some(&group.conn.peer));
                    if let Some(reason) = self.refusal_of_session(client) {
                        let stats = &self.state.stats;
                        stats.sessions_refused.fetch_add(1, Relaxed);
                        group.conn.close(reason, &mut self.applier.wake);
                        return next;
                    }
                    self.opening += 1;
                    self.opening_of.add(client);
                    let session_id = self.ids.next();
                    let password = password().unwrap_or_default();
                    let command = Command::OpenSession {
                        session_id,
                        password,
                        timeout_ms,
                    };
                    let stamp = Some(self.first_stamp());
                    builder.begin(session_id, &group.identity, stamp);
                    builder.push(0, command);
                }
                Kind::Reattach {
                    session: session_id,
                    timeout_ms,
                    mirror_read_only,
                } => {
                    let Some(password) = password() else {
                        let read_only = mirror_read_only.then_some(false);
                        apply::refuse_session(&group.conn, read_only, &mut self.applier.wake);
                        continue;
                    };
                    let command = Command::ReattachSession {
                        session_id,
                        password,
                        timeout_ms,
                    };
                    let stamp = Some(self.first_stamp());
                    builder.begin(session_id, &group.identity, stamp);
                    builder.push(0, command);
                }
                Kind::Read(_) | Kind::Ready { .. } => step.is_command = false,
                // Counted when it came.
                Kind::Ping => continue,
            }
            self.steps.push(step);
        }
        next
    }

    /// The stamp of a command that attaches a connection to its session.
    fn first_stamp(&mut self) -> Stamp {
        Stamp {
            nonce: self.nonces.draw(),
            sequence: 0,
        }
    }

    /// Why this client may not open another session, if it may not.
    fn refusal_of_session(&self, client: PeerGroup) -> Option<CloseReason> {
        let options = &self.state.options;
        let is_full = |count: usize, most: usize| most > 0 && count >= most;
        let of_client = self.clocks.of_client(client) + self.opening_of.of(client);
        if is_full(self.clocks.len() + self.opening, options.max_sessions) {
            Some(CloseReason::TooManySessions)
        } else if is_full(of_client, options.max_sessions_per_address) {
            Some(CloseReason::TooManySessionsOfAddress)
        } else {
            None
        }
    }

    /// The entry is made: its sessions count in the clocks as soon as it is applied.
    fn nothing_opens(&mut self) {
        self.opening = 0;
        self.opening_of.clear();
    }

    /// Expires the sessions that are due, each by a command of its own.
    fn expire(&mut self) -> Result<(), ServerError> {
        let now_ms = self.state.time.now_ms();
        if self
            .clocks
            .next_due_ms()
            .is_none_or(|due_ms| due_ms > now_ms)
        {
            self.socket_round = SocketRound::Idle;
            return Ok(());
        }
        // One of them may re-attach a session that is due.
        if self.backlog.has_handshakes() || !self.sockets_are_read() {
            return Ok(());
        }
        // The end of one session may cost what the whole entry may. The others stay due.
        let tree = self.state.tree.read();
        let mut left = MOST_DELETED_AT_ONCE;
        let due = self.clocks.due(now_ms, |session| {
            let ephemerals = tree.session(session).map_or(0, |info| info.ephemerals);
            let has_room = left > 0;
            left = left.saturating_sub(1 + ephemerals);
            has_room
        });
        drop(tree);
        let stats = &self.state.stats;
        stats.session_ends_put_off.fetch_add(due.put_off, Relaxed);
        let mut builder = self.new_batch();
        for session_id in due.ended {
            self.push_expiry(session_id, &mut builder);
        }
        self.commit_for_nobody(builder)
    }

    /// Expires the sessions that the owner of the server asked for, at once and whether or not
    /// their clients are there.
    fn expire_requested(&mut self) -> Result<(), ServerError> {
        let requested = self.state.inbox.take_expirations();
        if requested.is_empty() {
            return Ok(());
        }
        let mut builder = self.new_batch();
        for expiration in &requested {
            let Some(clocked) = self.clocks.get(expiration.session) else {
                continue;
            };
            // First, so that its client receives none of the events that the end causes: neither
            // would a client that was silent.
            if let Some(conn) = &clocked.conn {
                conn.close(CloseReason::SessionExpired, &mut self.applier.wake);
            }
            self.push_expiry(expiration.session, &mut builder);
        }
        self.commit_for_nobody(builder)?;
        for expiration in requested {
            self.applier
                .ends
                .notify(expiration.session, expiration.applied);
        }
        Ok(())
    }

    /// Adds the command that expires a session.
    fn push_expiry(&mut self, session_id: i64, builder: &mut BatchBuilder) {
        let command = Command::CloseSession {
            session_id,
            reason: SessionEnd::Expired,
        };
        builder.begin(session_id, &self.nobody, None);
        builder.push(0, command);
    }

    /// Whether all sockets have been read since the first session became due, and what they handed
    /// in has been processed. Otherwise asks for that.
    fn sockets_are_read(&mut self) -> bool {
        match self.socket_round {
            SocketRound::Idle => {
                let round = self.state.rounds.ask();
                self.socket_round = round.map_or(SocketRound::Idle, SocketRound::Asked);
                round.is_none()
            }
            SocketRound::Asked(round) => {
                if self.state.rounds.is_made(round) {
                    self.socket_round = SocketRound::Made;
                }
                false
            }
            SocketRound::Made => {
                self.socket_round = SocketRound::Idle;
                true
            }
        }
    }

    /// Proposes what the server does by itself, as the leader. Where nothing waits for other
    /// servers, it is applied when this returns.
    fn commit_for_nobody(&mut self, builder: BatchBuilder) -> Result<(), ServerError> {
        if builder.is_empty() {
            return Ok(());
        }
        self.member.proposals.push_own(builder.finish());
        self.propose_waiting();
        self.settle()
    }

    /// Counts a batch of `bytes` bytes that is on its way.
    fn count_batch(&self, bytes: usize, requested: &Requested) {
        let steps = &requested.steps;
        let commands = steps.iter().filter(|step| step.is_command).count() as u64;
        let stats = &self.state.stats;
        let group = |step: &Step| requested.work.groups.get(step.group?);
        if let Some(oldest) = steps.first().and_then(group) {
            let waited = self.state.time.micros_since(oldest.received);
            stats.queue_time.record(waited);
        }
        stats.commands.fetch_add(commands, Relaxed);
        stats.batch_requests.record(commands);
        stats.batch_bytes.record(bytes as u64);
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

    /// Applies the batch that an entry carries. `answers`: whoever asked for it is answered.
    fn apply_payload(
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
        self.applier.is_own = self.member.has_led(entry.term);
        let origin = batch.origin().filter(|_| answers);
        let requested = match self.member.take(origin) {
            Some(requested) => requested,
            None => self.in_flight.unasked(commands),
        };
        let begun = self.state.time.now();
        if let Some(synced) = self.member.synced_at(entry.index) {
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
            if !self.is_alone() {
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
    fn finish(&mut self, requested: Requested) {
        let Requested { work, steps } = requested;
        if let Some(mut work) = Arc::into_inner(work) {
            apply::count_answers(&self.state, &work);
            self.state.inbox.done(&mut work);
            self.in_flight.recycle_work(work);
        }
        self.in_flight.recycle_steps(steps);
    }
}

#[cfg(test)]
mod tests;

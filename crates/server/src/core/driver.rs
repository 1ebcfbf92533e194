//! One turn of the core, which owns consensus and every change of the tree. It takes all requests
//! that wait, makes batches of them, has the log store them, and applies each entry once it is
//! committed. It answers nothing that is not on disk. A server that stands alone is a member
//! without peers: it takes the same turns, and writes its log within them.
//!
//! | module | owns |
//! |---|---|
//! | `peer_events` | what the other servers send |
//! | `replication` | ticks, effects of the consensus, another role, term or leader |
//! | `leaderless` | what clients get while no leader is known; read-only mode |
//! | `planning` | batches made of the requests that wait |
//! | `batches` | batches on their way into the log, and what is sent again |
//! | `applying` | committed entries on their way to the tree |
//! | `expiry` | ends of sessions |
//! | `own_deletions` | what the leader deletes by itself, a bounded number in each entry |
//! | `touches` | which clients are alive; when a ping is answered |
//! | `digests` | whether the servers have the same state |
//! | `status` | this server as operators and other servers see it |
//! | `membership` | changes of the members: `reconfig`, and what follows when one is applied |
//! | `transfers` | snapshots to and from other servers |
//! | `rollback` | entries that others have and this server's folder has lost |

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_consensus::Consensus;
use baton_tree::{BatchBuilder, Command, FormatLevel, Identity};
use baton_wal::Acknowledged;

use self::expiry::SocketRound;
use self::own_deletions::OwnDeletions;
use self::status::Announcement;
use crate::connections::counts::ClientCounts;
use crate::connections::inbox::Work;
use crate::core::apply::Applier;
use crate::core::batches::backlog::Backlog;
use crate::core::batches::group_commit::GroupCommit;
use crate::core::batches::in_flight::{InFlight, Step};
use crate::core::batches::outstanding::Outstanding;
use crate::core::batches::proposals::Proposals;
use crate::core::digests::Digests;
#[cfg(feature = "simulation")]
use crate::core::disk_worker::InlineWorker;
use crate::core::disk_worker::{DiskWorker, ThreadWorker};
use crate::core::leadership::Leadership;
use crate::core::links::Links;
use crate::core::log::Log;
use crate::core::lost_entries::LostEntries;
use crate::core::membership::Members;
use crate::core::peer_states::PeerStates;
use crate::core::snapshots::{SnapshotLog as _, Snapshots};
use crate::core::start::starting::Starting;
use crate::core::timings::Timings;
use crate::core::transfer::Transfers;
use crate::core::wall_clocks::PeerClocks;
use crate::error::ServerError;
use crate::session::clocks::SessionClocks;
use crate::session::ids::{Nonces, SessionIds};
use crate::session::touch_rounds::TouchRounds;
use crate::state::ServerState;

mod applying;
mod batches;
mod digests;
mod expiry;
mod leaderless;
mod membership;
mod own_deletions;
mod peer_events;
mod planning;
mod replication;
mod rollback;
mod status;
mod touches;
mod transfers;

/// Time for which a server that stops gracefully waits for another leader and for the last answers,
/// and the pause between two looks.
const STOP_LIMIT: Duration = Duration::from_millis(500);
const STOP_STEP: Duration = Duration::from_millis(1);

/// The core of a server. [`CoreTurns`](crate::core::turns::CoreTurns) has it take its turns.
#[derive(Debug)]
pub(crate) struct CoreDriver {
    state: Arc<ServerState>,
    consensus: Consensus,
    log: Log,
    links: Links,
    leadership: Leadership,
    peers: PeerStates,
    members: Members,
    transfers: Transfers,
    touches: TouchRounds,
    digests: Digests,
    wall_clocks: PeerClocks,
    lost_entries: LostEntries,
    timings: Timings,
    /// Whether operators see something old.
    is_status_due: bool,
    next_announcement: Instant,
    announced: Announcement,
    /// A commit index that the log does not have.
    commit_hint: Option<u64>,
    /// The format level that this leader has proposed, and the term in which it did.
    raising: (u64, FormatLevel),
    clocks: SessionClocks,
    socket_round: SocketRound,
    ids: SessionIds,
    nonces: Nonces,
    applier: Applier,
    /// Requests that no entry has been made of.
    backlog: Backlog,
    /// Batches of this server's clients.
    outstanding: Outstanding,
    /// Work that connections sent behind a `reconfig` that is not applied.
    held: Work,
    /// Batches that this leader is about to propose.
    proposals: Proposals,
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
        if core.leadership.is_alone() {
            core.consensus.campaign()?;
        }
        starting.replay(core.consensus.last_index() - core.consensus.applied_index());
        core.applier.replay = Some(starting.progress());
        core.settle()?;
        if core.leadership.acts_as_leader() {
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
        let nudged = Arc::clone(&state);
        links
            .events
            .notify(Box::new(move |may_take_turn| match may_take_turn {
                true => nudged.inbox.turn_or_nudge(),
                false => nudged.inbox.nudge(),
            }));
        let now = state.time.now();
        let tick = state.options.ensemble.as_ref().map(|it| it.tick);
        let applied_term = consensus.snapshot_point().term;
        let leadership = Leadership::new(links.id, consensus.status(), applied_term, tick, now);
        let is_traced = state.options.tracer.is_some();
        let tick_ms = u64::try_from(state.options.tick.as_millis()).unwrap_or(u64::MAX);
        let ids = SessionIds::new(state.options.server_id, state.time.wall_ms());
        let level = state.tree.read().level();
        Self {
            clocks: SessionClocks::new(tick_ms),
            socket_round: SocketRound::Idle,
            ids,
            nonces,
            consensus,
            peers: PeerStates::new(leadership.tick()),
            members: Members::default(),
            transfers: Transfers::new(links.id, &log.snapshots(), worker),
            touches: TouchRounds::new(links.run),
            digests: Digests::new(now),
            wall_clocks: PeerClocks::default(),
            log,
            lost_entries: LostEntries::new(Acknowledged::default(), now),
            timings: Timings::new(is_traced, now, &state.stats.replication),
            is_status_due: true,
            next_announcement: now,
            announced: Announcement::default(),
            commit_hint: None,
            raising: (0, FormatLevel::Initial),
            leadership,
            links,
            applier: Applier::new(level, &state),
            backlog: Backlog::default(),
            outstanding: Outstanding::default(),
            held: Work::default(),
            proposals: Proposals::default(),
            in_flight: InFlight::default(),
            steps: Vec::new(),
            opening: 0,
            opening_of: ClientCounts::default(),
            snapshots,
            group_commit: GroupCommit::default(),
            last_sync: Duration::ZERO,
            is_traced,
            own_deletions: OwnDeletions::new(&state),
            nobody: Identity::anonymous(),
            entry_ms: state.time.wall_ms(),
            state,
        }
    }

    /// Returns the progress of this server.
    #[cfg(feature = "simulation")]
    pub(crate) fn progress(&self) -> crate::state::simulated::MemberProgress {
        crate::state::simulated::MemberProgress {
            role: self.consensus.status(),
            applied: self.consensus.applied_index(),
            commit: self.consensus.commit_index(),
            last: self.consensus.last_index(),
            lost: self.consensus.lost_acknowledgement(),
            digest: self.state.tree.read().digest(),
            time_ms: self.state.tree.read().time_ms(),
            members: (!self.transfers.is_installing())
                .then(|| crate::state::simulated::checksum(&self.consensus.membership().encode())),
            is_read_only: self.state.is_read_only(),
            acts_as_leader: self.leadership.acts_as_leader(),
            ends_sessions: !self.clocks.follows(),
            unapplied: self.state.simulated.unapplied(),
            changes: self.state.simulated.changes(),
        }
    }

    /// The cluster as this server sees it.
    #[cfg(feature = "simulation")]
    pub(crate) fn view(&self) -> crate::state::simulated::MemberView {
        let progress = self.consensus.progress().into_iter();
        crate::state::simulated::MemberView {
            membership: self.consensus.membership().clone(),
            matched: progress.map(|peer| (peer.id, peer.matched)).collect(),
            shows_gap: self.consensus.log_gap().is_some(),
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
        let now = self.state.time.moment();
        self.wall_clocks.entry_ms(self.links.id, voters, now)
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
        if !self.leadership.acts_as_leader() {
            self.clocks.follow(now_ms);
        }
    }

    /// Has writes wait for room on a full disk from here on.
    pub(crate) fn wait_for_room(&mut self) {
        self.log.wait_for_room();
    }

    /// Spins for a moment where a client that was just answered may write next.
    pub(crate) fn spin_for_reaction(&mut self) {
        if self.log.is_inline()
            && self.backlog.is_empty()
            && let Some(until) = self.group_commit.spin_until()
        {
            let came = self.state.inbox.spin_until(until);
            self.group_commit.record_spin(came);
        }
    }

    /// Adds to the work of a turn what other clients that were just answered write next.
    pub(crate) fn wait_for_reactions(&mut self, work: &mut Work, now: Instant) {
        if self.log.is_inline()
            && self.backlog.is_empty()
            && let Some((groups, until)) =
                self.group_commit
                    .window(work.groups.len(), work.requests.len(), now)
        {
            let before = work.groups.len();
            let (inbox, time) = (&self.state.inbox, &self.state.time);
            let came = inbox.wait_for_groups(work, groups, until, time);
            self.group_commit.record_window(before, came, groups);
        }
    }

    /// When there is something to do even if nothing comes in.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let now = self.state.time.now();
        let acts = self.leadership.acts_as_leader();
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
            self.leadership.deadline(self.idle_ticks()),
            self.transfers.next_poll(now),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Handles the requests that wait, and what is due at `now`.
    pub(crate) fn turn(&mut self, work: &mut Work, now: Instant) -> Result<(), ServerError> {
        self.take_pings(work);
        self.backlog.add(work);
        self.make_idle_ticks(now);
        self.take_peer_events(now)?;
        self.take_synced()?;
        self.make_ticks(now);
        self.hand_over_when_disk_hangs(now);
        if let Some(to) = self.state.inbox.take_hand_over() {
            tracing::info!(to, "leadership is handed over, as an operator asked");
            self.consensus.transfer_leader(to);
        }
        self.settle()?;
        self.entry_ms = self.entry_time_ms();
        self.plan_waiting();
        self.send_outstanding();
        if self.leadership.acts_as_leader() {
            self.propose_waiting();
            self.settle()?;
            self.raise_level_as_leader();
            self.reset_time()?;
            self.expire_requested()?;
            self.expire()?;
            self.delete_own(now)?;
        } else {
            // Only the leader ends sessions.
            drop(self.state.inbox.take_expirations());
            self.state.inbox.take_reset_time();
        }
        self.give_up_changes(now);
        self.change_members(now);
        self.propose_waiting();
        self.send_touches();
        self.poll_transfers(now);
        self.settle()?;
        self.serve_leaderless(now);
        if self.state.client_log.due_ms() != u64::MAX {
            let now_ms = self.state.time.now_ms();
            self.state.client_log.report_suppressed(now_ms);
        }
        if self.state.stats.disk_full.load(Relaxed) {
            self.snapshots.give_way(&self.state, &mut self.log);
            self.transfers.give_way();
        } else if !self.transfers.is_installing() {
            let saved = self
                .snapshots
                .step(&self.state, &self.consensus, &mut self.log);
            if let Some(point) = saved {
                self.consensus.snapshot_saved(point);
            }
        }
        self.announce(now);
        self.send_digest(now);
        self.send_clock(now);
        self.show_log_gap(now);
        self.show_status();
        self.wake_all();
        if !self.applier.again.is_empty() {
            // Refused only where the server stops, and then nobody is answered any more.
            let _ = self.state.inbox.submit(&mut self.applier.again);
        }
        self.settle()?;
        Ok(self.log.mark_end()?)
    }

    /// Stops gracefully: does what clients have asked for, as far as this server can do it alone.
    /// Hands leadership over first, so that the others need not find out, and waits a moment for
    /// what has been sent.
    pub(crate) fn stop(&mut self) -> Result<(), ServerError> {
        let until = self.state.time.now() + STOP_LIMIT;
        let mut work = Work::default();
        loop {
            let now = self.state.time.now();
            if self.leadership.is_alone() {
                if !self.may_plan() {
                    break;
                }
            } else {
                let is_due = self.leadership.leads() || self.outstanding.batches() > 0;
                if !is_due || now >= until {
                    break;
                }
                if let Some(best) = self.best_successor() {
                    self.consensus.transfer_leader(best);
                }
                std::thread::sleep(STOP_STEP);
            }
            self.turn(&mut work, now)?;
        }
        Ok(self.log.close()?)
    }

    /// Wakes the connections to which something was pushed outside of an entry.
    pub(super) fn wake_all(&mut self) {
        for conn in self.applier.wake.drain(..) {
            conn.wake(false);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! One turn of the core: it takes what the other servers sent, what the log has synced, the ticks
//! of the consensus and what clients ask for, and does what follows: messages to other servers,
//! records for the log, committed entries for the tree.
//!
//! What clients of this server ask for becomes batches that have this server's name on them
//! ([`Origin`]). The leader puts them into the log, whichever server they come from, and each
//! server applies them; the one that made a batch answers it. Where a thread of its own writes the
//! log, nothing here waits for the disk (R05).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_consensus::{Consensus, Role, RoleChange};
use baton_peers::codec::LogProof;
use baton_tree::{FormatLevel, Origin};
use baton_wal::SnapshotStore;

use super::CoreDriver;
use super::membership::Members;
use super::rollback::{StoredAcknowledged, acknowledged_by};
use super::transfers::Installing;
use crate::connections::inbox::{Kind, Work};
use crate::core::batches::in_flight::Requested;
use crate::core::batches::outstanding::Outstanding;
use crate::core::batches::proposals::Proposals;
use crate::core::digests::Digests;
use crate::core::leadership::lateness::Lateness;
use crate::core::links::Links;
use crate::core::log::Job;
use crate::core::member_changes::successor;
use crate::core::start::join::describe_members;
use crate::core::timings::phases::Phases;
use crate::core::timings::proposed::Proposed;
use crate::core::timings::synced::Synced;
use crate::core::transfer::{DiskWorker, Incoming, Outgoing, TransferLimits};
use crate::core::wall_clocks::PeerClocks;
use crate::error::ServerError;
use crate::options::stretched;
use crate::session::touch_rounds::TouchRounds;
use crate::state::ServerState;
#[cfg(feature = "simulation")]
use crate::state::simulated::Mistake;
use crate::time::Moment;

/// Ticks that are made up for after the core was late. The others are left out: messages that have
/// come meanwhile are handled first (R10).
pub(crate) const MOST_TICKS: u32 = 2;
/// Ticks that an idle core sleeps through at most: what operators see stays as fresh.
pub(crate) const MOST_IDLE_TICKS: u32 = 6;
/// After this many ticks without a message of another server it counts as out of reach.
const SILENT_TICKS: u32 = 28;
/// Ticks after which an election counts as one that nobody wins.
const ELECTION_TICKS: u32 = 60;
/// How many terms in which it led a server keeps in mind: more than have entries on their way.
pub(crate) const TERMS_KEPT: usize = 16;
/// How often the other servers' handshakes are given the newest state.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);
/// How often a server says to the leader what its state is.
pub(crate) const DIGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a server sends each other one a reading of its wall clock.
pub(crate) const CLOCK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a server that stops gracefully waits for another leader and for the last answers, and
/// how often it looks.
const STOP_LIMIT: Duration = Duration::from_millis(500);
const STOP_STEP: Duration = Duration::from_millis(1);

/// What a server knows of its ensemble, and of its part in it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) id: u64,
    /// Drawn at the start, so that batches of an earlier process are not taken for this one's.
    pub(super) run: u64,
    pub(super) links: Links,
    pub(super) tick: Duration,
    /// When the next tick is due; `None` where there is no other server.
    pub(super) next_tick: Option<Instant>,
    pub(super) lateness: Lateness,
    pub(super) phases: Phases,
    pub(super) next_announcement: Instant,
    pub(super) role: RoleChange,
    /// The newest terms in which this server led, the last one last.
    pub(super) led_terms: VecDeque<u64>,
    /// The term of the newest applied entry. Once it is the present one, what is not answered is
    /// not in the log of an earlier leader either.
    pub(super) applied_term: u64,
    /// Batches of this server's clients.
    pub(super) outstanding: Outstanding,
    /// What connections asked for behind a `reconfig` that is not applied.
    pub(super) held: Work,
    pub(super) members: Members,
    /// Batches that this leader is about to propose.
    pub(super) proposals: Proposals,
    pub(super) proposed: Proposed,
    /// Where writes may have a tracer.
    pub(super) synced: Option<Synced>,
    /// When the leader was last known; `None` while one is.
    pub(super) leaderless_since: Option<Instant>,
    /// When each other server last sent a message of the consensus.
    pub(super) heard_at: BTreeMap<u64, Instant>,
    /// When this server campaigns because the leader is gone.
    pub(super) campaign_at: Option<Instant>,
    /// A commit index that the log does not have.
    pub(super) commit_hint: Option<u64>,
    pub(super) connected: BTreeSet<u64>,
    /// The process as which each other server was last heard.
    pub(super) peer_runs: BTreeMap<u64, u64>,
    pub(super) acknowledged: StoredAcknowledged,
    /// Entries that this server's log lacks, as operators see it.
    pub(super) log_gap: Option<String>,
    pub(super) lost_entries: u64,
    /// Snapshots to other servers, and from them.
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    pub(super) installing: Option<Installing>,
    pub(super) touches: TouchRounds,
    pub(super) digests: Digests,
    pub(super) next_digest: Instant,
    /// The others' wall clocks, and the servers that can read a frame with this one's.
    pub(super) clocks: PeerClocks,
    pub(super) clock_readers: BTreeSet<u64>,
    pub(super) next_clock: Instant,
    /// The format level that each other server has said that it can read.
    pub(super) levels: BTreeMap<u64, u32>,
    /// Whether operators see something old.
    pub(super) is_status_due: bool,
    /// The format level that this leader has proposed, and the term in which it did.
    pub(super) raising: (u64, FormatLevel),
    /// When leadership may be handed over again because the disk hangs.
    pub(super) may_hand_over_at: Option<Instant>,
}

impl Member {
    /// A member of the ensemble, with what it has recovered. Events nudge the core from here on.
    pub(crate) fn new(
        state: &Arc<ServerState>,
        consensus: &Consensus,
        links: Links,
        store: &SnapshotStore,
        mut worker: impl FnMut(&'static str) -> Box<dyn DiskWorker>,
    ) -> Self {
        let run = links.run;
        let nudged = Arc::clone(state);
        links.events.notify(Box::new(move || nudged.inbox.nudge()));
        let tick = state
            .options
            .ensemble
            .as_ref()
            .map_or(Duration::from_millis(25), |ensemble| ensemble.tick);
        let now = state.time.now();
        let id = links.id;
        let limits = TransferLimits::default();
        let outgoing = Outgoing::new(store.clone(), limits.clone(), worker("baton-send"));
        let incoming = Incoming::new(id, store.clone(), limits, worker("baton-receive"));
        Self {
            id,
            outgoing,
            incoming,
            installing: None,
            run,
            links,
            tick,
            next_tick: state.options.ensemble.as_ref().map(|_| now + tick),
            lateness: Lateness::default(),
            phases: Phases::new(now, &state.stats.replication),
            next_announcement: now,
            role: consensus.status(),
            led_terms: VecDeque::new(),
            applied_term: consensus.snapshot_point().term,
            outstanding: Outstanding::default(),
            held: Work::default(),
            members: Members::default(),
            proposals: Proposals::default(),
            proposed: Proposed::default(),
            synced: state.options.tracer.is_some().then(Synced::default),
            leaderless_since: Some(now),
            heard_at: BTreeMap::new(),
            campaign_at: None,
            commit_hint: None,
            connected: BTreeSet::new(),
            peer_runs: BTreeMap::new(),
            acknowledged: StoredAcknowledged::new(now),
            log_gap: None,
            lost_entries: 0,
            touches: TouchRounds::new(run),
            digests: Digests::default(),
            next_digest: now + DIGEST_INTERVAL,
            clocks: PeerClocks::default(),
            clock_readers: BTreeSet::new(),
            next_clock: now,
            levels: BTreeMap::new(),
            is_status_due: true,
            raising: (0, FormatLevel::Initial),
            may_hand_over_at: None,
        }
    }

    /// Whether this server leads and has applied an entry of its own term: it knows everything that
    /// was committed before.
    pub(crate) fn acts_as_leader(&self) -> bool {
        self.role.role == Role::Leader && self.applied_term == self.role.term
    }

    /// Whether this server led in this term, and so has proposed its entries.
    pub(crate) fn has_led(&self, term: u64) -> bool {
        self.led_terms.contains(&term)
    }

    /// Whether a snapshot takes the place of the state as soon as it is durable.
    pub(crate) const fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// Whether this server is connected, and has sent something lately: a leader hears of each
    /// other server every 4 ticks.
    pub(super) fn hears(&self, id: u64, now: Instant) -> bool {
        let heard = self.heard_at.get(&id);
        let is_silent =
            heard.is_none_or(|at| now.saturating_duration_since(*at) > self.tick * SILENT_TICKS);
        self.connected.contains(&id) && !is_silent
    }

    /// The time of an entry that this server proposes as the leader.
    pub(crate) fn entry_time_ms(&self, voters: &[u64], now: Moment) -> i64 {
        self.clocks.entry_ms(self.id, voters, now)
    }

    /// A time between servers, longer where the steps of elections are.
    pub(super) fn stretched(&self, time: Duration) -> Duration {
        stretched(time, self.tick)
    }

    /// The leader, once everything that earlier leaders have committed is applied here.
    pub(super) fn settled_leader(&self) -> Option<u64> {
        self.role
            .leader
            .filter(|_| self.applied_term == self.role.term)
    }

    /// When the log was synced that has the entry of this index, where that is known.
    pub(crate) fn synced_at(&self, index: u64) -> Option<Instant> {
        self.synced.as_ref()?.at(index)
    }

    /// Whether no leader has been known for longer than an election takes. It stays so until one is
    /// known: the time counts anew whenever clients are disconnected.
    pub(super) fn is_long_without_leader(&self, now: Instant) -> bool {
        let limit = self.tick * ELECTION_TICKS;
        self.leaderless_since.is_some_and(|since| {
            self.log_gap.is_some() || now.saturating_duration_since(since) > limit
        })
    }

    /// The name of the next batch of this server's clients.
    pub(super) fn next_origin(&self) -> Origin {
        Origin {
            server: self.id,
            run: self.run,
            number: self.outstanding.next_number(),
        }
    }

    /// The requests that a batch answers here; `None` if it was made elsewhere, or applied before.
    pub(crate) fn take(&mut self, origin: Option<Origin>) -> Option<Requested> {
        let origin = origin.filter(|origin| origin.server == self.id && origin.run == self.run)?;
        self.outstanding.take(origin.number)
    }
}

impl CoreDriver {
    /// Handles the requests that wait, and what is due at `now`.
    pub(crate) fn turn(&mut self, work: &mut Work, now: Instant) -> Result<(), ServerError> {
        self.take_pings(work);
        self.backlog.add(work);
        self.make_idle_ticks(now);
        self.take_peer_events(now)?;
        self.take_synced()?;
        self.make_ticks(now)?;
        self.hand_over_when_disk_hangs(now);
        if let Some(to) = self.state.inbox.take_hand_over() {
            tracing::info!(to, "leadership is handed over, as an operator asked");
            self.consensus.transfer_leader(to);
        }
        self.settle()?;
        self.entry_ms = self.entry_time_ms();
        self.plan_waiting();
        self.send_outstanding();
        if self.member.acts_as_leader() {
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
            self.member.incoming.give_way();
        } else if self.member.installing.is_none() {
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

    /// Counts pings when they come, and not behind writes: a session lives on while the disk is
    /// slow.
    fn take_pings(&mut self, work: &Work) {
        let touches = &mut self.member.touches;
        for (group, request) in work.each() {
            if request.kind == Kind::Ping {
                #[cfg(feature = "simulation")]
                if self.state.simulated.makes(Mistake::AnswersPingsAlone) {
                    let wake = &mut self.applier.wake;
                    group.conn.push_pongs(1, self.state.zxid(), wake);
                    touches.touched(group.conn.session());
                    continue;
                }
                touches.ping(group.conn.session(), group.conn.id);
            }
        }
    }

    /// Keeps what operators see current.
    fn show_status(&mut self) {
        let member = &mut self.member;
        let Some(shown) = &self.state.ensemble else {
            return;
        };
        if !std::mem::take(&mut member.is_status_due) {
            return;
        }
        let mut shown = shown.lock();
        if shown.role != member.role.role {
            let leads = member.role.role == Role::Leader;
            shown.has_led_since = leads.then(|| self.state.time.now());
        }
        shown.role = member.role.role;
        shown.leader = member.role.leader;
        shown.term = member.role.term;
        shown.commit = self.consensus.commit_index();
        shown.applied = self.consensus.applied_index();
        shown.progress = self.consensus.progress();
        shown.connected.clone_from(&member.connected);
        if let Some(list) = self.state.tree.read().servers() {
            let servers = list.servers.iter();
            shown.servers = servers
                .map(|(id, server)| (*id, server.address.clone()))
                .collect();
            shown.list = Some(list);
        }
        let membership = self.consensus.membership();
        let moment = self.state.time.moment();
        let majority_ms = member
            .clocks
            .majority_ms(member.id, &membership.voters, moment);
        shown.clock_offset_ms = majority_ms.map(|at| moment.wall_ms.saturating_sub(at));
        shown.clock_offsets_ms = member.clocks.offsets_ms(moment);
        shown.levels.clone_from(&member.levels);
        shown.voters.clone_from(&membership.voters);
        shown.learners.clone_from(&membership.learners);
    }

    /// When there is something to do for a member even if nothing comes in.
    pub(crate) fn member_deadline(&self) -> Option<Instant> {
        let member = &self.member;
        let transfer = self.next_transfer(self.state.time.now());
        let next_tick = member
            .next_tick
            .map(|at| at + member.tick * self.idle_ticks());
        [next_tick, member.campaign_at, transfer]
            .into_iter()
            .flatten()
            .min()
    }

    /// Gives the handshakes with other servers the newest state of this one.
    fn announce(&mut self, now: Instant) {
        let member = &mut self.member;
        if now < member.next_announcement || member.next_tick.is_none() {
            return;
        }
        member.next_announcement = now + ANNOUNCE_INTERVAL;
        if !self.log.is_busy()
            && let Some(index) = member.commit_hint.take()
        {
            // A start shows the others what it knows to be committed (R19).
            self.log.submit(Job::Commit(index), now);
        }
        let progress = self.consensus.progress();
        member.outgoing.release_matched(&progress);
        let commit = self.consensus.commit_index();
        let last = self.consensus.last_index();
        let progress: BTreeMap<u64, u64> = progress
            .into_iter()
            .map(|peer| (peer.id, peer.matched.min(commit)))
            .collect();
        let membership = self.consensus.membership();
        let term = member.role.term;
        let applied = self.consensus.applied_index();
        let committed = self.consensus.commit_position();
        let proof = LogProof {
            commit_index: committed.index,
            commit_term: committed.term,
            acknowledged_index: self.consensus.lost_acknowledgement().unwrap_or(0),
        };
        let mut acknowledged = Vec::new();
        member.links.wire.update_local(&mut |local| {
            local.proof = proof;
            local.term = term;
            // Of two servers, the one that has applied more judges by its membership.
            local.membership_index = local.membership_index.max(applied);
            local.last_index = last;
            describe_members(local, membership);
            for known in &mut local.members {
                let matched = progress.get(&known.id).copied().unwrap_or(0);
                known.acknowledged_index = known.acknowledged_index.max(matched);
            }
            acknowledged = acknowledged_by(&local.members);
        });
        let lost = proof.acknowledged_index;
        self.store_acknowledged(lost, acknowledged, now);
    }

    /// Wakes the connections to which something was pushed outside of an entry.
    pub(super) fn wake_all(&mut self) {
        for conn in self.applier.wake.drain(..) {
            conn.wake(false);
        }
    }

    /// The voter that is nearest to leading, as far as this leader knows.
    pub(super) fn best_successor(&self) -> Option<u64> {
        let progress = self.consensus.progress();
        successor(self.consensus.membership(), &progress, |peer| peer.active)
    }

    /// Stops gracefully: does what clients have asked for, as far as this server can do it alone.
    /// Hands leadership over first, so that the others need not find out, and waits a moment for
    /// what has been sent.
    pub(crate) fn stop(&mut self) -> Result<(), ServerError> {
        let until = self.state.time.now() + STOP_LIMIT;
        let mut work = Work::default();
        loop {
            let now = self.state.time.now();
            let member = &self.member;
            if self.is_alone() {
                if !self.may_plan() {
                    break;
                }
            } else {
                let is_due = member.role.role == Role::Leader || member.outstanding.batches() > 0;
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
}

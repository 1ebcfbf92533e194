//! One turn of the core: it takes what the other servers sent, what the log has synced, the ticks
//! of the consensus and what clients ask for, and does what follows: messages to other servers,
//! records for the log, committed entries for the tree.
//!
//! What clients of this server ask for becomes batches that have this server's name on them
//! ([`Origin`]). The leader puts them into the log, whichever server they come from, and each
//! server applies them; the one that made a batch answers it. Where a thread of its own writes the
//! log, nothing here waits for the disk (R05).
//!
//! | module | owns |
//! |---|---|
//! | `peer_events` | what the other servers send |
//! | `replication` | ticks, effects of the consensus, another role, term or leader |
//! | `leaderless` | what clients get while no leader is known; read-only mode |
//! | `membership` | changes of the members: `reconfig`, and what follows when one is applied |
//! | `batches` | requests on their way into the log, and what is sent again |
//! | `touches` | which clients are alive; when a ping is answered |
//! | `digests` | whether the servers have the same state |
//! | `clocks` | how far the servers' wall clocks are apart |
//! | `transfers` | snapshots to and from other servers |
//! | `rollback` | entries that others have and this server's folder has lost |
//! | `lateness` | how late ticks are made, and when this server campaigns later for that |
//! | `phases` | since when this server looks for a leader or serves no writes, for metrics |
//! | `proposals` | what a leader is about to propose, and whose turn it is |
//! | `proposed` | when a leader has proposed its newest entries, for metrics |
//! | `synced` | when the log has synced its newest entries, for traces |

mod batches;
mod clocks;
mod digests;
mod lateness;
mod leaderless;
mod membership;
mod peer_events;
mod phases;
mod proposals;
mod proposed;
mod replication;
mod rollback;
mod synced;
mod touches;
mod transfers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_consensus::{Consensus, Role, RoleChange};
use baton_peers::codec::LogProof;
use baton_tree::{FormatLevel, Origin};
use baton_wal::{Acknowledged, SnapshotStore};

use self::lateness::Lateness;
use self::membership::Members;
use self::phases::Phases;
use self::proposals::Proposals;
use self::proposed::Proposed;
use self::rollback::acknowledged_by;
use self::synced::Synced;
use self::transfers::Installing;
use super::CommitPipeline;
use crate::commit::in_flight::Requested;
use crate::commit::join::describe_members;
use crate::commit::log::Job;
use crate::commit::member_changes::successor;
use crate::commit::outstanding::Outstanding;
use crate::connections::inbox::{Kind, Work};
use crate::ensemble::Links;
use crate::ensemble::clocks::PeerClocks;
use crate::ensemble::digests::Digests;
use crate::ensemble::transfer::{DiskWorker, Incoming, Outgoing, TransferLimits};
use crate::error::ServerError;
use crate::options::stretched;
use crate::session::touch_rounds::TouchRounds;
#[cfg(feature = "simulation")]
use crate::simulated::Mistake;
use crate::state::ServerState;
use crate::time::Moment;

/// Ticks that are made up for after the core was late. The others are left out: messages that have
/// come meanwhile are handled first (R10).
const MOST_TICKS: u32 = 2;
/// After this many ticks without a message of another server it counts as out of reach.
const SILENT_TICKS: u32 = 28;
/// How many terms in which it led a server keeps in mind: more than have entries on their way.
const TERMS_KEPT: usize = 16;
/// How often the other servers' handshakes are given the newest state.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);
/// How often a server says to the leader what its state is.
const DIGEST_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a server sends each other one a reading of its wall clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a server that stops gracefully waits for another leader and for the last answers, and
/// how often it looks.
const STOP_LIMIT: Duration = Duration::from_millis(500);
const STOP_STEP: Duration = Duration::from_millis(1);

/// What a server knows of its ensemble, and of its part in it.
#[derive(Debug)]
pub(crate) struct Member {
    id: u64,
    /// Drawn at the start, so that batches of an earlier process are not taken for this one's.
    run: u64,
    links: Links,
    tick: Duration,
    /// When the next tick is due; `None` where there is no other server.
    pub(crate) next_tick: Option<Instant>,
    lateness: Lateness,
    phases: Phases,
    next_announcement: Instant,
    role: RoleChange,
    /// The newest terms in which this server led, the last one last.
    led_terms: VecDeque<u64>,
    /// The term of the newest applied entry. Once it is the present one, what is not answered is
    /// not in the log of an earlier leader either.
    applied_term: u64,
    /// Batches of this server's clients.
    outstanding: Outstanding,
    /// What connections asked for behind a `reconfig` that is not applied.
    held: Work,
    members: Members,
    /// Batches that this leader is about to propose.
    pub(crate) proposals: Proposals,
    proposed: Proposed,
    /// Where writes may have a tracer.
    synced: Option<Synced>,
    /// When the leader was last known; `None` while one is.
    leaderless_since: Option<Instant>,
    /// When each other server last sent a message of the consensus.
    heard_at: BTreeMap<u64, Instant>,
    /// When this server campaigns because the leader is gone.
    campaign_at: Option<Instant>,
    /// A commit index that the log does not have.
    commit_hint: Option<u64>,
    connected: BTreeSet<u64>,
    /// The process as which each other server was last heard.
    peer_runs: BTreeMap<u64, u64>,
    /// Entries that members have acknowledged, as far as that is stored, and when it may be stored
    /// again.
    acknowledged: Acknowledged,
    may_store_acknowledged_at: Instant,
    /// Entries that this server's log lacks, as operators see it.
    log_gap: Option<String>,
    lost_entries: u64,
    /// Snapshots to other servers, and from them.
    outgoing: Outgoing,
    incoming: Incoming,
    installing: Option<Installing>,
    touches: TouchRounds,
    digests: Digests,
    next_digest: Instant,
    /// The others' wall clocks, and the servers that can read a frame with this one's.
    clocks: PeerClocks,
    clock_readers: BTreeSet<u64>,
    next_clock: Instant,
    /// The format level that each other server has said that it can read.
    levels: BTreeMap<u64, u32>,
    /// Whether operators see something old.
    is_status_due: bool,
    /// The format level that this leader has proposed, and the term in which it did.
    raising: (u64, FormatLevel),
    /// When leadership may be handed over again because the disk hangs.
    may_hand_over_at: Option<Instant>,
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
            acknowledged: Acknowledged::default(),
            may_store_acknowledged_at: now,
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
    #[cfg(feature = "simulation")]
    pub(crate) const fn is_installing(&self) -> bool {
        self.installing.is_some()
    }

    /// Whether this server is connected, and has sent something lately: a leader hears of each
    /// other server every 2 ticks.
    fn hears(&self, id: u64, now: Instant) -> bool {
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
    fn stretched(&self, time: Duration) -> Duration {
        stretched(time, self.tick)
    }

    /// The leader, once everything that earlier leaders have committed is applied here.
    fn settled_leader(&self) -> Option<u64> {
        self.role
            .leader
            .filter(|_| self.applied_term == self.role.term)
    }

    /// When the log was synced that has the entry of this index, where that is known.
    pub(crate) fn synced_at(&self, index: u64) -> Option<Instant> {
        self.synced.as_ref()?.at(index)
    }

    /// The name of the next batch of this server's clients.
    fn next_origin(&self) -> Origin {
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

impl CommitPipeline {
    /// Handles the requests that wait, and what is due at `now`.
    pub(crate) fn turn(&mut self, work: &mut Work, now: Instant) -> Result<(), ServerError> {
        self.take_pings(work);
        self.backlog.add(work);
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
        [member.next_tick, member.campaign_at, transfer]
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
    fn wake_all(&mut self) {
        for conn in self.applier.wake.drain(..) {
            conn.wake(false);
        }
    }

    /// The voter that is nearest to leading, as far as this leader knows.
    fn best_successor(&self) -> Option<u64> {
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

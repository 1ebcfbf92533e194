//! Changes of the members: what clients ask for with `reconfig`, in which steps a leader does it,
//! and who waits for the answer. Owns which change is under way; proposes nothing itself.
//!
//! A new voter is a learner until it has caught up. The list of `/zookeeper/config` and the voters
//! change with one entry, at which every server decides alike whether the change is accepted; that
//! answers the client. The leader at that time leaves the joint configuration. Servers of the list
//! that were away then join later, one after the other.

mod decision;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use baton_consensus::{Change, Member as ClusterMember};
use baton_peers::codec::Hello;
use baton_peers::net::FramePermit;
use baton_proto::ErrorCode;
use baton_tree::{FormatLevel, Origin, Outcome, Unapplied};
use bytes::Bytes;

use self::decision::Step;
pub(crate) use self::decision::View;
use crate::core::batches::in_flight::Requested;

/// For how long a server counts as waiting to be admitted after its last attempt to connect; it
/// makes one each second at least.
const WAITS_FOR: Duration = Duration::from_secs(5);
/// Time for which a new voter may stay where it is while it catches up, and a change may wait for a
/// first list of servers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the leader compares learners with the list.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Changes that may wait for the one that is in the log.
const MOST_NEXT: usize = 16;
/// Time for which a learner that is not listed stays: its change may be asked for again.
const UNLISTED_LIMIT: Duration = Duration::from_secs(30);
/// Interval at which a leader that is to leave asks another server to lead.
const HAND_OVER_INTERVAL: Duration = Duration::from_secs(1);

/// A change that a client has asked for, with what holds the transport's memory.
type AskedChange = (Origin, Bytes, Option<FramePermit>);

/// The answer to a change, and since when it waits.
type KeptAnswer = (Requested, Result<Outcome, Unapplied>, Instant);

/// Changes of the members, as one server knows them.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Servers that want to connect and are no members, or not with this data folder.
    waiting: BTreeMap<u64, WaitingServer>,
    /// Members whose processes have certainly ended.
    gone: BTreeSet<u64>,
    /// When this server or another one became the leader.
    led_since: Option<Instant>,
    /// Whether this server has applied its own removal.
    has_left: bool,
    /// The change that a client has asked for.
    running: Option<RunningChange>,
    /// Changes that were asked for when that one was in the log already.
    next: VecDeque<AskedChange>,
    /// The term in which this leader has proposed the first list.
    listed_in: u64,
    next_look: Option<Instant>,
    /// Since when there has been a learner that is not listed.
    unlisted_since: Option<Instant>,
    /// Answers that wait until the changed members are in force.
    answers: Vec<KeptAnswer>,
    /// The index of the membership, of another server, that lacks this one.
    removed_by: Option<u64>,
}

/// A server that has said this when it tried to connect.
#[derive(Debug, Clone, Copy)]
struct WaitingServer {
    incarnation: u128,
    level: u32,
    at: Instant,
}

/// A change that this leader carries out.
#[derive(Debug)]
struct RunningChange {
    origin: Origin,
    /// The batch with the request, as its server made it.
    payload: Bytes,
    /// Counts the payload against the transport's bounds.
    _held: Option<FramePermit>,
    since: Instant,
    /// Whether the entry with the change is in the log.
    is_proposed: bool,
    /// The entry that the new voters have to have, and a majority of those who will vote.
    target: Option<u64>,
    /// The entries that those were known to have, all together, and when that changed, or when one
    /// of them was last receiving a snapshot.
    reached: u64,
    advanced_at: Instant,
    next_hand_over: Option<Instant>,
}

/// A step that the leader is to take about the members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Propose this request, which gives the log its first list of servers.
    List(Vec<u8>),
    /// Answer the change of this batch with an error.
    Refuse(Bytes, ErrorCode, Cow<'static, str>),
    /// Have new servers receive the log before they vote.
    AddLearners(Vec<ClusterMember>),
    /// Remove a learner whose data folder is gone.
    RemoveLearner(u64),
    /// Have this server lead: the present leader is to leave.
    HandOver(u64),
    /// Propose the change of this batch, with these parts.
    Propose(Bytes, Vec<Change>),
    /// Have the members follow the list.
    Follow(Change),
}

impl Members {
    /// A server that is not a member, or has another data folder than the member, wants to connect.
    pub(crate) fn refused(&mut self, hello: &Hello, now: Instant) {
        self.await_return(hello.from, hello.incarnation, hello.level, now);
    }

    /// This server may be admitted with that data folder: it has asked for that, or is about to.
    pub(crate) fn await_return(&mut self, id: u64, incarnation: u128, level: u32, at: Instant) {
        let waiting = WaitingServer {
            incarnation,
            level,
            at,
        };
        self.waiting.insert(id, waiting);
    }

    /// A member is connected.
    pub(crate) fn connected(&mut self, hello: &Hello) {
        self.waiting.remove(&hello.from);
        self.gone.remove(&hello.from);
        if hello.to_incarnation != 0 {
            // It is admitted again, if it was removed.
            self.removed_by
                .take_if(|index| hello.membership_index >= *index);
        }
    }

    /// The process of a member has certainly ended.
    pub(crate) fn gone(&mut self, id: u64) {
        self.gone.insert(id);
    }

    fn is_gone(&self, id: u64) -> bool {
        self.gone.contains(&id)
    }

    const fn led_since(&self) -> Option<Instant> {
        self.led_since
    }

    /// The incarnation of a server that waits to be admitted and reads what this cluster writes.
    fn waiting(&self, id: u64, level: FormatLevel, now: Instant) -> Option<u128> {
        let waiting = self.waiting.get(&id)?;
        let is_here = now.saturating_duration_since(waiting.at) < WAITS_FOR;
        let reads = u64::from(waiting.level) >= level.number();
        (is_here && reads).then_some(waiting.incarnation)
    }

    /// Another leader or term: the server of a change sends it to the next leader.
    pub(crate) fn role_changed(&mut self, now: Instant) {
        self.running = None;
        self.next.clear();
        self.led_since = Some(now);
    }

    /// Takes on a change that a client asks the leader for. Gives the batch back if it is to be
    /// refused, for another change is under way.
    pub(crate) fn ask(
        &mut self,
        origin: Origin,
        payload: Bytes,
        held: Option<FramePermit>,
        now: Instant,
    ) -> Option<Bytes> {
        match &self.running {
            // It was sent again.
            Some(running) if running.origin == origin => None,
            // Its own server may have applied it before this one, and answered it.
            Some(running) if running.is_proposed && self.next.len() < MOST_NEXT => {
                if !self.next.iter().any(|next| next.0 == origin) {
                    self.next.push_back((origin, payload, held));
                }
                None
            }
            Some(_) => Some(payload),
            None => {
                self.running = Some(RunningChange {
                    origin,
                    payload,
                    _held: held,
                    since: now,
                    is_proposed: false,
                    target: None,
                    reached: 0,
                    advanced_at: now,
                    next_hand_over: None,
                });
                None
            }
        }
    }

    /// Whether [`Self::next`] has anything to decide at `now`.
    pub(crate) fn is_due(&self, term: u64, level: FormatLevel, now: Instant) -> bool {
        let lists = level >= FormatLevel::Members && self.listed_in != term;
        let acts = match &self.running {
            Some(running) => !running.is_proposed,
            None => !self.next.is_empty() || self.next_look.is_none_or(|due| now >= due),
        };
        lists || acts
    }

    /// Decides what the leader of this term is to do next.
    pub(crate) fn next(&mut self, term: u64, view: &View<'_>) -> Vec<Action> {
        if self.running.is_none()
            && let Some((origin, payload, held)) = self.next.pop_front()
        {
            self.ask(origin, payload, held, view.now);
        }
        let mut actions = Vec::new();
        if view.level >= FormatLevel::Members && self.listed_in != term {
            self.listed_in = term;
            actions.extend(view.first_list().map(Action::List));
        }
        let next = match self.running.take() {
            None => self.follow(view).map(Action::Follow),
            Some(running) if running.is_proposed => {
                self.running = Some(running);
                None
            }
            Some(mut running) => {
                let step = view.step(&mut running, self);
                let step = running.limited(step, view.now);
                let payload = running.payload.clone();
                self.running = Some(running);
                step.map(|step| self.action(step, payload))
            }
        };
        actions.extend(next);
        actions
    }

    fn action(&mut self, step: Step, payload: Bytes) -> Action {
        match step {
            Step::Refuse(code, why) => {
                self.running = None;
                Action::Refuse(payload, code, why)
            }
            Step::AddLearners(new) => Action::AddLearners(new),
            Step::RemoveLearner(server) => Action::RemoveLearner(server),
            Step::HandOver(to) => Action::HandOver(to),
            Step::Propose(parts) => Action::Propose(payload, parts),
        }
    }

    /// The change that has the members follow the list, looked for now and then.
    fn follow(&mut self, view: &View<'_>) -> Option<Change> {
        if self.next_look.is_some_and(|due| view.now < due) {
            return None;
        }
        self.next_look = Some(view.now + LOOK_INTERVAL);
        if view.membership.is_joint() || view.level < FormatLevel::Members {
            return None;
        }
        let list = view.tree.servers()?;
        let is_unlisted = |id: &&u64| !list.servers.contains_key(id);
        let unlisted = view.membership.learners.iter().find(is_unlisted).copied();
        let since = unlisted.map(|_| *self.unlisted_since.get_or_insert(view.now));
        self.unlisted_since = since;
        let is_long = |since| view.now.saturating_duration_since(since) > UNLISTED_LIMIT;
        let unlisted = unlisted.filter(|_| since.is_some_and(is_long));
        view.follow(&list, unlisted, self)
    }

    /// The new learners of the change that is under way are proposed.
    pub(crate) fn learners_added(&mut self, now: Instant) {
        if let Some(running) = &mut self.running {
            running.advanced_at = now;
        }
    }

    /// The change that is under way is in the log.
    pub(crate) fn proposed(&mut self) {
        if let Some(running) = &mut self.running {
            running.is_proposed = true;
        }
    }

    /// The change that is under way is not taken by the consensus: its batch, which is to be
    /// refused.
    pub(crate) fn give_up(&mut self) -> Option<Bytes> {
        self.running.take().map(|running| running.payload)
    }

    /// The batch of this server is applied.
    pub(crate) fn applied(&mut self, origin: Option<Origin>) {
        self.running
            .take_if(|running| Some(running.origin) == origin);
    }

    /// Keeps the answer to a change until the changed members are in force.
    pub(crate) fn keep_answer(
        &mut self,
        requested: Requested,
        outcome: Result<Outcome, Unapplied>,
        now: Instant,
    ) {
        self.answers.push((requested, outcome, now));
    }

    /// The connections that wait for a change of the members.
    pub(crate) fn awaited_by(&self) -> impl Iterator<Item = u32> {
        let answers = self.answers.iter();
        answers.flat_map(|(requested, ..)| requested.connections())
    }

    /// Whether any connection waits for one.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether no change is asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.running.is_none() && self.next.is_empty() && self.answers.is_empty()
    }

    /// Takes the answers that are kept.
    pub(crate) fn take_answers(&mut self) -> Vec<KeptAnswer> {
        std::mem::take(&mut self.answers)
    }

    /// Takes out the requests whose answers have been kept for `limit`.
    pub(crate) fn take_overdue(
        &mut self,
        limit: Duration,
        now: Instant,
    ) -> impl Iterator<Item = Requested> {
        let is_overdue = move |it: &mut KeptAnswer| now.saturating_duration_since(it.2) >= limit;
        let overdue = self.answers.extract_if(.., is_overdue);
        overdue.map(|(requested, ..)| requested)
    }

    /// Another server knows a membership without this one, by the entry of this index; whether that
    /// is new.
    pub(crate) fn removed_by(&mut self, index: u64) -> bool {
        let is_new = self.removed_by.is_none();
        self.removed_by.get_or_insert(index);
        is_new
    }

    /// This server has applied this entry. From there on its own membership says whether it is a
    /// member: it may have been added again before a refusal came in.
    pub(crate) fn entry_applied(&mut self, index: u64) {
        self.removed_by.take_if(|removed_by| index >= *removed_by);
    }

    /// Whether the cluster goes on without this server, though its log does not say so.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed_by.is_some()
    }

    /// This server's own log says whether it is a member; whether it has just left.
    pub(crate) fn set_left(&mut self, has_left: bool) -> bool {
        !std::mem::replace(&mut self.has_left, has_left) && has_left
    }

    /// Whether this server serves no clients, since it is a member no more.
    pub(crate) fn serves_nobody(&self) -> bool {
        self.has_left || self.is_removed()
    }
}

impl RunningChange {
    /// Leaves out a hand-over that was asked for a moment ago.
    fn limited(&mut self, step: Option<Step>, now: Instant) -> Option<Step> {
        if let Some(Step::HandOver(_)) = step {
            if self.next_hand_over.is_some_and(|due| now < due) {
                return None;
            }
            self.next_hand_over = Some(now + HAND_OVER_INTERVAL);
        }
        step
    }
}

#[cfg(test)]
mod tests;

//! Changes of the members: what a client asks for with `reconfig`, the steps in which the leader
//! does it, and what every server does when one is applied.
//!
//! A new voter is a learner until it has caught up. The list of `/zookeeper/config` and the voters
//! change with one entry, at which every server decides alike whether the change is accepted; that
//! answers the client. Whoever leads then leaves the joint configuration. Servers of the list that
//! were away then join later, one after the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use baton_consensus::{
    Change, ChangeError, Entry, Member as ClusterMember, MembershipChange, PeerProgress,
};
use baton_peers::codec::{Hello, Refusal};
use baton_peers::net::Held;
use baton_proto::{ErrorCode, Request};
use baton_tree::{
    Batch, Command, FormatLevel, ListChange, ListedServer, Origin, Outcome, ServerList, Unapplied,
};
use bytes::Bytes;

use super::CoreDriver;
use crate::connections::conn::CloseReason;
use crate::core::batches::in_flight::Requested;
use crate::core::member_changes::{MemberChanges, member_changes, successor, voters};
use crate::error::ServerError;
use crate::options::host_and_port;
use crate::report::shown::Shown;

/// For how long a server counts as waiting to be admitted after its last attempt to connect; it
/// makes one each second at least.
const WAITS_FOR: Duration = Duration::from_secs(5);
/// How long a new voter may stay where it is while it catches up, and a change may wait for a first
/// list of servers.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a change waits for a new voter that nobody has met: it may be starting.
const START_LIMIT: Duration = Duration::from_secs(2);
/// Longest time that a client waits for the answer to its change, whichever server leads.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// How often the leader compares learners with the list.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Changes that may wait for the one that is in the log.
const MOST_NEXT: usize = 16;
/// How long a learner that is not listed stays: its change may be asked for again.
const UNLISTED_LIMIT: Duration = Duration::from_secs(30);
/// How often a leader that is to leave asks another server to lead.
const HAND_OVER_INTERVAL: Duration = Duration::from_secs(1);

/// What a server knows of changes of the members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Servers that want to connect and are no members, or not with this data folder.
    waiting: BTreeMap<u64, Waiting>,
    /// Members whose processes have certainly ended.
    gone: BTreeSet<u64>,
    /// When this server or another one became the leader.
    led_since: Option<Instant>,
    /// Whether this server has applied its own removal.
    has_left: bool,
    /// The change that a client has asked for.
    underway: Option<Underway>,
    /// Changes that were asked for when that one was in the log already, with their batches.
    next: VecDeque<(Origin, Bytes, Option<Held>)>,
    /// The term in which this leader has proposed the first list.
    listed_in: u64,
    next_look: Option<Instant>,
    /// Since when there has been a learner that is not listed.
    unlisted_since: Option<Instant>,
    /// Answers that wait until the changed members are in force.
    answers: Vec<(Requested, Result<Outcome, Unapplied>, Instant)>,
    /// The index of the membership, of another server, that lacks this one.
    removed_by: Option<u64>,
}

/// A server that has said this when it tried to connect.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    incarnation: u128,
    level: u32,
    at: Instant,
}

/// A change that this leader carries out.
#[derive(Debug)]
struct Underway {
    origin: Origin,
    /// The batch with the request, as its server made it.
    payload: Bytes,
    /// Counts the payload against the transport's bounds.
    _held: Option<Held>,
    since: Instant,
    /// Whether the entry with the change is in the log.
    is_proposed: bool,
    /// The entry that the new voters have to have, and a majority of those who will vote.
    target: Option<u64>,
    /// How far those were known to be, all together, and when that changed, or when one of them was
    /// last receiving a snapshot.
    reached: u64,
    advanced_at: Instant,
    next_hand_over: Option<Instant>,
}

/// What the leader does next about a change.
enum Step {
    Wait,
    Refuse(ErrorCode, Cow<'static, str>),
    AddLearners(Vec<ClusterMember>),
    /// Nobody comes with this learner's data folder.
    RemoveLearner(u64),
    HandOver(u64),
    Propose(Vec<Change>),
}

impl Members {
    /// A server that is no member, or not with this data folder, wants to connect.
    pub(crate) fn refused(&mut self, hello: &Hello, now: Instant) {
        self.waiting.insert(
            hello.from,
            Waiting {
                incarnation: hello.incarnation,
                level: hello.level,
                at: now,
            },
        );
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

    /// The incarnation of a server that waits to be admitted and reads what this cluster writes.
    fn waiting(&self, id: u64, level: FormatLevel, now: Instant) -> Option<u128> {
        let waiting = self.waiting.get(&id)?;
        let is_here = now.saturating_duration_since(waiting.at) < WAITS_FOR;
        let reads = u64::from(waiting.level) >= level.number();
        (is_here && reads).then_some(waiting.incarnation)
    }

    /// Another leader or term: the server of a change sends it to the next leader.
    pub(crate) fn role_changed(&mut self, now: Instant) {
        self.underway = None;
        self.next.clear();
        self.led_since = Some(now);
    }

    /// The connections that wait for a change of the members.
    pub(crate) fn awaited_by(&self) -> impl Iterator<Item = u32> {
        let answers = self.answers.iter();
        answers.flat_map(|(requested, ..)| requested.connections())
    }

    /// Whether no change is asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.underway.is_none() && self.next.is_empty() && self.answers.is_empty()
    }

    /// Whether any connection waits for one.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Forgets the answers: the connections are gone.
    pub(crate) fn forget_answers(&mut self) -> impl Iterator<Item = Requested> + use<> {
        let answers = std::mem::take(&mut self.answers).into_iter();
        answers.map(|(requested, ..)| requested)
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

    /// Whether this server serves no clients, since it is a member no more.
    pub(crate) fn serves_nobody(&self) -> bool {
        self.has_left || self.is_removed()
    }

    /// The batch of this server is applied.
    fn applied(&mut self, origin: Option<Origin>) {
        self.underway
            .take_if(|underway| Some(underway.origin) == origin);
    }
}

impl CoreDriver {
    /// Another server refuses this one. Where it knows a newer membership without this server, the
    /// cluster goes on without it: it does not campaign any more (R16).
    pub(crate) fn refused_by_member(&mut self, refusal: &Refusal) {
        let applied = self.consensus.applied_index();
        if let Refusal::NotAMember {
            id,
            membership_index,
            ..
        } = refusal
            && *id == self.links.id
            && *membership_index > applied
            && !self.leadership.leads()
            && self.consensus.membership().contains(self.links.id)
            && self.members.removed_by.is_none()
        {
            self.members.removed_by = Some(*membership_index);
            tracing::warn!(
                server = id,
                entry = membership_index,
                "this server was removed from its ensemble: it serves no clients; stop it, or add it again"
            );
            self.consensus.forget_leader();
        }
    }

    /// As the leader, a `reconfig` of a client of the server that made this batch.
    pub(crate) fn take_reconfigure(&mut self, payload: Bytes, held: Option<Held>) {
        let now = self.state.time.now();
        let Some(origin) = Batch::decode(&payload).ok().and_then(|it| it.origin()) else {
            return;
        };
        match &self.members.underway {
            // It was sent again.
            Some(underway) if underway.origin == origin => {}
            // Its own server may have applied it before this one, and answered it.
            Some(underway) if underway.is_proposed && self.members.next.len() < MOST_NEXT => {
                if !self.members.next.iter().any(|next| next.0 == origin) {
                    self.members.next.push_back((origin, payload, held));
                }
            }
            Some(_) => self.refuse_reconfigure(
                &payload,
                ErrorCode::ReconfigInProgress,
                "another change of the members is under way: try again when it is done",
            ),
            None => {
                self.members.underway = Some(Underway {
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
            }
        }
    }

    /// As the leader, takes the next step in changing the members.
    pub(crate) fn change_members(&mut self, now: Instant) {
        if !self.leadership.acts_as_leader() {
            // A follower may have applied this leader's first entry, and sent a change, before this
            // leader's own disk has that entry.
            return;
        }
        if self.members.underway.is_none()
            && let Some((_, payload, held)) = self.members.next.pop_front()
        {
            self.take_reconfigure(payload, held);
        }
        self.list_servers();
        match self.members.underway.take() {
            None => self.follow_list(now),
            Some(mut underway) => {
                if self.is_under_way(&mut underway, now) {
                    self.members.underway = Some(underway);
                }
            }
        }
    }

    /// Takes the next step of a change; `false`: it is refused.
    fn is_under_way(&mut self, underway: &mut Underway, now: Instant) -> bool {
        if underway.is_proposed {
            return true;
        }
        match self.next_step(underway, now) {
            Step::Wait => true,
            Step::Refuse(code, why) => {
                self.refuse_reconfigure(&underway.payload, code, &why);
                false
            }
            Step::AddLearners(new) => {
                let servers: Vec<u64> = new.iter().map(|member| member.id).collect();
                let changes = new.into_iter().map(Change::AddLearner).collect();
                match self.propose_members(changes, Bytes::new()) {
                    Ok(()) => {
                        tracing::info!(?servers, "new servers receive the log before they vote");
                        underway.advanced_at = now;
                        true
                    }
                    Err(error) => self.may_change_later(&error, &underway.payload),
                }
            }
            Step::RemoveLearner(server) => {
                match self.propose_members(vec![Change::Remove(server)], Bytes::new()) {
                    Ok(()) => {
                        tracing::info!(
                            server,
                            "a new server comes with another data folder than before: it is admitted with that one"
                        );
                        true
                    }
                    Err(error) => self.may_change_later(&error, &underway.payload),
                }
            }
            Step::HandOver(to) => {
                if underway.next_hand_over.is_none_or(|due| now >= due) {
                    underway.next_hand_over = Some(now + HAND_OVER_INTERVAL);
                    tracing::info!(to, "this server is to leave: leadership is handed over");
                    self.consensus.transfer_leader(to);
                }
                true
            }
            Step::Propose(parts) => {
                let Some(batch) = self.reconfigure_batch(&underway.payload, 0) else {
                    return false;
                };
                if parts.is_empty() {
                    self.proposals.push_own(batch);
                    underway.is_proposed = true;
                    return true;
                }
                match self.propose_members(parts, batch) {
                    Ok(()) => {
                        underway.is_proposed = true;
                        true
                    }
                    Err(error) => self.may_change_later(&error, &underway.payload),
                }
            }
        }
    }

    /// What becomes of a change that consensus has not taken: it is tried again, or refused where
    /// consensus would never take it.
    fn may_change_later(&mut self, error: &ChangeError, payload: &Bytes) -> bool {
        let passes = matches!(
            error,
            ChangeError::TooEarly | ChangeError::InProgress | ChangeError::Propose(_)
        );
        if !passes {
            tracing::warn!("the members cannot change like this: {error}");
            let why = "the consensus refuses it";
            self.refuse_reconfigure(payload, ErrorCode::BadArguments, why);
        }
        passes
    }

    fn propose_members(&mut self, changes: Vec<Change>, context: Bytes) -> Result<(), ChangeError> {
        let change = MembershipChange { changes, context };
        self.consensus.propose_change(&change).map(|_| ())
    }

    /// The checks of a change in ZooKeeper's order, then what is to be done first of what it takes.
    fn next_step(&self, underway: &mut Underway, now: Instant) -> Step {
        let refuse = |code, why: &'static str| Step::Refuse(code, why.into());
        let Some(ensemble) = &self.state.options.ensemble else {
            return Step::Wait;
        };
        if !ensemble.reconfig {
            return refuse(ErrorCode::ReconfigDisabled, "the settings do not permit it");
        }
        let membership = self.consensus.membership();
        if membership.is_joint() {
            return Step::Wait;
        }
        let Ok(batch) = Batch::decode(&underway.payload) else {
            return Step::Wait;
        };
        let Some((item, identity)) = batch.iter().next() else {
            return Step::Wait;
        };
        let Command::Write { body, .. } = item.command else {
            return Step::Wait;
        };
        let tree = self.state.tree.read();
        if tree.servers().is_none() {
            if now.saturating_duration_since(underway.since) < PATIENCE {
                return Step::Wait;
            }
            let why = "a member has not connected yet, or runs a version that cannot do it";
            return refuse(ErrorCode::NewConfigNoQuorum, why);
        }
        let next = match tree.list_after(body, false) {
            Ok(next) => next,
            Err(code) => {
                let change = tree.list_change(body).ok();
                let bad = change.as_ref().and_then(ListChange::unreadable_line);
                let why = match bad {
                    Some((line, error)) => format!("the line '{}': {error}", Shown(line)).into(),
                    None => "it is for another version of the list, or the list would have no voter, or two servers \
                             with one id or address"
                        .into(),
                };
                return Step::Refuse(code, why);
            }
        };
        if tree
            .list_change(body)
            .is_ok_and(|change| change.names_one_twice())
        {
            let why = "one server joins twice: name each server once";
            return refuse(ErrorCode::BadArguments, why);
        }
        let is_permitted = tree.may_reconfigure(identity);
        let timeout_ms = tree.session(item.session).map_or(0, |it| it.timeout_ms);
        drop(tree);
        let level = self.applier.level;
        let waiting = |id| self.members.waiting(id, level, now);
        let changes = member_changes(membership, &next, waiting);
        // A voter that has lost its folder does not count, though it waits.
        let joins = |id: u64| waiting(id).is_some() && !membership.votes(id);
        let is_here = |id: u64| id == self.links.id || self.peers.hears(id, now) || joins(id);
        // A member that has just been lost may be back before its client gives up.
        let limit = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let lasts = |since: Instant| now.saturating_duration_since(since) < limit;
        let returns = |id: u64| {
            let heard = self.peers.heard_at(id);
            membership.contains(id)
                && !self.members.gone.contains(&id)
                && heard.max(self.members.led_since).is_some_and(lasts)
        };
        let moved = changes.as_ref().map_or(&[][..], |it| &it.moved);
        let is_majority = |count: usize| count * 2 > voters(&next).count();
        let here = voters(&next).filter(|id| is_here(*id)).count();
        if !is_majority(here) {
            let comes = voters(&next).filter(|id| is_here(*id) || returns(*id));
            if is_permitted && lasts(underway.since) && is_majority(comes.count()) {
                return Step::Wait;
            }
            let why = "most of those who would vote are out of reach: start the new servers with empty folders and \
                       the list of the members";
            return refuse(ErrorCode::NewConfigNoQuorum, why);
        }
        // Nobody knows yet whether a server is reached at its new address.
        let stay = voters(&next).filter(|id| is_here(*id) && !moved.contains(id));
        if !is_majority(stay.count()) {
            let why = "without the servers that move, too few voters are in reach: move fewer at a time, or \
                       add a voter first";
            return refuse(ErrorCode::NewConfigNoQuorum, why);
        }
        if !is_permitted {
            let why = "its client may not write /zookeeper/config";
            return refuse(ErrorCode::NoAuth, why);
        }
        let changes = match changes {
            Ok(changes) => changes,
            Err(why) => return refuse(ErrorCode::BadArguments, why),
        };
        if !changes.unknown_voters.is_empty()
            && now.saturating_duration_since(underway.since) < START_LIMIT
        {
            return Step::Wait;
        }
        self.carry_out(underway, changes, &next, now)
    }

    /// What is to be done first of a change that nothing forbids.
    fn carry_out(
        &self,
        underway: &mut Underway,
        mut changes: MemberChanges,
        next: &ServerList,
        now: Instant,
    ) -> Step {
        if !changes.learners_first.is_empty() {
            return Step::AddLearners(changes.learners_first);
        }
        if let Some(gone) = self.learner_without_folder(changes.promoted.iter().copied(), now) {
            return Step::RemoveLearner(gone);
        }
        let commit = self.consensus.commit_index();
        let target = *underway.target.get_or_insert(commit);
        let progress = self.consensus.progress();
        let matched = |id: u64| {
            let known = progress.iter().find(|peer| peer.id == id);
            known.map_or(0, |peer| peer.matched)
        };
        let has = |id: u64| id == self.links.id || matched(id) >= target;
        let is_up = |id: &u64| {
            let is_heard = *id == self.links.id || self.peers.hears(*id, now);
            is_heard && has(*id) && !changes.moved.contains(id)
        };
        let up = voters(next).filter(is_up).count();
        // Once the joint configuration is in force, nothing goes on without a majority of these.
        let is_majority_up = up * 2 > voters(next).count();
        if !is_majority_up || !changes.promoted.iter().all(|id| has(*id)) {
            let reached = voters(next).map(|id| matched(id).min(target)).sum();
            // A transfer has limits of its own.
            let receives = progress.iter().any(|peer| {
                peer.snapshot != 0
                    && voters(next).any(|id| id == peer.id)
                    && self.peers.is_connected(peer.id)
            });
            if receives || reached > underway.reached {
                underway.reached = reached;
                underway.advanced_at = now;
            }
            if now.saturating_duration_since(underway.advanced_at) <= PATIENCE {
                return Step::Wait;
            }
            if !is_majority_up {
                let why = "most of those who would vote did not catch up: they are out of reach, or their disks \
                           hang";
                return Step::Refuse(ErrorCode::NewConfigNoQuorum, why.into());
            }
            // They are listed, and vote once they have caught up.
            let lags = |id: u64| changes.promoted.contains(&id) && !has(id);
            changes.parts.retain(|part| !lags(part.id()));
        }
        if voters(next).any(|id| id == self.links.id) {
            return Step::Propose(changes.parts);
        }
        // Whoever leads afterwards carries it out: a leader that is no member could not (R16).
        let stays = |peer: &PeerProgress| {
            peer.id != self.links.id
                && is_up(&peer.id)
                && voters(next).any(|voter| voter == peer.id)
        };
        match successor(self.consensus.membership(), &progress, stays) {
            Some(best) => Step::HandOver(best),
            None => Step::Refuse(
                ErrorCode::NewConfigNoQuorum,
                "no other voter is in reach that could lead".into(),
            ),
        }
    }

    /// Answers a `reconfig` with an error, by an entry: its place among the session's requests is
    /// in the log.
    fn refuse_reconfigure(&mut self, payload: &Bytes, code: ErrorCode, why: &str) {
        tracing::warn!(%code, "a change of the members is refused: {why}");
        if let Some(batch) = self.reconfigure_batch(payload, code.code()) {
            self.proposals.push_own(batch);
        }
    }

    /// The request of a batch, as the log has it: with what the leader says of it.
    fn reconfigure_batch(&self, payload: &Bytes, refusal: i32) -> Option<Bytes> {
        let batch = Batch::decode(payload).ok()?;
        let (item, identity) = batch.iter().next()?;
        let Command::Write { body, .. } = item.command else {
            return None;
        };
        if self.applier.level < FormatLevel::Members {
            // As it came, it is answered with "disabled".
            return Batch::stamped(payload, self.entry_ms).ok();
        }
        let mut builder = self.new_batch();
        builder.set_origin(batch.origin()?);
        builder.begin(item.session, identity, item.stamp);
        builder.push(item.cxid, Command::Reconfigure { refusal, body });
        Some(builder.finish())
    }

    /// Has the log list the servers of the settings, where it does not yet.
    fn list_servers(&mut self) {
        let Some(ensemble) = &self.state.options.ensemble else {
            return;
        };
        let term = self.leadership.term();
        if self.applier.level < FormatLevel::Members || self.members.listed_in == term {
            return;
        }
        self.members.listed_in = term;
        let membership = self.consensus.membership();
        let listed = |id: u64, address: &str, is_observer| ListedServer {
            address: address.to_owned(),
            election_port: ensemble
                .election_ports
                .get(&id)
                .copied()
                .unwrap_or_else(|| host_and_port(address).map_or(0, |(_, port)| port)),
            is_observer,
            client: ensemble.clients.get(&id).and_then(|at| at.parse().ok()),
        };
        let voters = membership.members.iter();
        let voters = voters.filter(|member| membership.voters.contains(&member.id));
        let mut list = ServerList::default();
        for member in voters {
            let server = listed(member.id, &member.address, false);
            list.servers.insert(member.id, server);
        }
        for id in &ensemble.observers {
            if let Some(address) = ensemble.servers.get(id)
                && !membership.voters.contains(id)
            {
                list.servers.insert(*id, listed(*id, address, true));
            }
        }
        let text = list.to_string();
        let request = Request::Reconfig {
            joining: None,
            leaving: None,
            new_members: Some(&text),
            config_id: -1,
        };
        let mut body = Vec::new();
        request.encode(&mut body);
        let is_first = self.state.tree.read().list_after(&body, true).is_ok();
        if is_first {
            let mut builder = self.new_batch();
            builder.begin(0, &self.nobody, None);
            let command = Command::Reconfigure {
                refusal: 0,
                body: &body,
            };
            builder.push(0, command);
            self.proposals.push_own(builder.finish());
        }
    }

    /// The first of these learners whose data folder was lost after it had asked to be admitted: a
    /// server with its id waits with another one (R17).
    fn learner_without_folder(
        &self,
        learners: impl IntoIterator<Item = u64>,
        now: Instant,
    ) -> Option<u64> {
        let (level, members) = (self.applier.level, &self.consensus.membership().members);
        learners.into_iter().find(|id| {
            let waiting = self.members.waiting(*id, level, now);
            let known = members.iter().find(|known| known.id == *id);
            known.is_some_and(|known| waiting.is_some_and(|new| new != known.incarnation))
                && !self.peers.is_connected(*id)
        })
    }

    /// Has the members follow the list: a server becomes a learner when it is there, votes by the
    /// list once it has caught up, and stays for a while only where it is not listed.
    fn follow_list(&mut self, now: Instant) {
        let level = self.applier.level;
        let members = &mut self.members;
        if members.next_look.is_some_and(|due| now < due) {
            return;
        }
        members.next_look = Some(now + LOOK_INTERVAL);
        let membership = self.consensus.membership();
        if membership.is_joint() || level < FormatLevel::Members {
            return;
        }
        let Some(list) = self.state.tree.read().servers() else {
            return;
        };
        let is_unlisted = |id: &&u64| !list.servers.contains_key(id);
        let unlisted = membership.learners.iter().find(is_unlisted).copied();
        let since = unlisted.map(|_| *members.unlisted_since.get_or_insert(now));
        members.unlisted_since = since;
        let mut new = list.servers.iter().filter_map(|(id, listed)| {
            let incarnation = members.waiting(*id, level, now)?;
            (!membership.contains(*id)).then(|| ClusterMember {
                id: *id,
                incarnation,
                address: listed.address.clone(),
            })
        });
        let change = if let Some(new) = new.next() {
            Change::AddLearner(new)
        } else if let (Some(id), Some(since)) = (unlisted, since)
            && now.saturating_duration_since(since) > UNLISTED_LIMIT
        {
            Change::Remove(id)
        } else if let Some(change) = self.promotion(&list, now) {
            change
        } else {
            return;
        };
        let id = change.id();
        match self.propose_members(vec![change], Bytes::new()) {
            Ok(()) => tracing::info!(server = id, "the members follow the list of servers"),
            Err(error) => tracing::debug!(server = id, "not proposed yet: {error}"),
        }
    }

    /// The change for a learner that votes by the list, and was away when it was listed.
    fn promotion(&self, list: &ServerList, now: Instant) -> Option<Change> {
        let membership = self.consensus.membership();
        let learners = || {
            let listed = voters(list);
            listed.filter(|id| membership.learners.contains(id))
        };
        if let Some(gone) = self.learner_without_folder(learners(), now) {
            return Some(Change::Remove(gone));
        }
        let commit = self.consensus.commit_index();
        let progress = self.consensus.progress();
        let is_up = |id: u64| {
            let mut progress = progress.iter();
            let has_all = progress.any(|peer| peer.id == id && peer.matched >= commit);
            id == self.links.id || (self.peers.hears(id, now) && has_all)
        };
        let new = learners().find(|id| is_up(*id))?;
        let count = membership.voters.len() + 1;
        let up = membership.voters.iter().filter(|id| is_up(**id)).count() + 1;
        let known = membership.members.iter().find(|known| known.id == new)?;
        let address = list.servers.get(&new)?.address.clone();
        (up * 2 > count).then(|| {
            Change::AddVoter(ClusterMember {
                address,
                ..known.clone()
            })
        })
    }

    /// A configuration entry is applied: who belongs to the cluster changes, if its batch is
    /// accepted.
    pub(crate) fn apply_change(&mut self, entry: &Entry) -> Result<(), ServerError> {
        let change = MembershipChange::decode(&entry.payload)?;
        let is_accepted = if change.context.is_empty() {
            true
        } else {
            self.apply_payload(entry, &change.context, false)?;
            let outcome = self.applier.reconfigured.take();
            let is_done = matches!(&outcome, Some(Ok(outcome)) if outcome.result.is_ok());
            self.keep_answer(&change.context, outcome);
            is_done
        };
        if is_accepted {
            self.await_return(&change);
        }
        self.consensus
            .apply_change(entry.index, &change, is_accepted)?;
        if is_accepted {
            let membership = self.consensus.membership();
            tracing::info!(
                entry = entry.index,
                voters = ?membership.voters,
                outgoing = ?membership.outgoing,
                learners = ?membership.learners,
                "the members have changed"
            );
            self.members_changed();
        }
        self.answer_when_in_force();
        Ok(())
    }

    /// Keeps in mind servers that are connected and leave: they may be added again before they have
    /// asked for that.
    fn await_return(&mut self, change: &MembershipChange) {
        let now = self.state.time.now();
        let membership = self.consensus.membership();
        for part in &change.changes {
            let known = membership.members.iter().find(|it| it.id == part.id());
            if let (Change::Remove(id), Some(known)) = (part, known)
                && self.peers.is_connected(*id)
            {
                let waiting = Waiting {
                    incarnation: known.incarnation,
                    level: self.peers.levels().get(id).copied().unwrap_or(0),
                    at: now,
                };
                self.members.waiting.insert(*id, waiting);
            }
        }
    }

    /// Keeps the answer to a change that a client of this server has asked for.
    fn keep_answer(&mut self, batch: &[u8], outcome: Option<Result<Outcome, Unapplied>>) {
        let origin = Batch::decode(batch).ok().and_then(|batch| batch.origin());
        if let Some(requested) = self.take(origin)
            && let Some(outcome) = outcome
        {
            let now = self.state.time.now();
            self.members.answers.push((requested, outcome, now));
        }
    }

    /// Gives up changes of the members whose clients have waited for long: where one leader after
    /// the other ends, none of them may come to it. Whether the change is made is not known, so the
    /// connections are closed, as after any lost answer.
    pub(crate) fn give_up_changes(&mut self, now: Instant) {
        let mut overdue = self.outstanding.take_overdue(ANSWER_LIMIT, now);
        let is_overdue = |(_, _, since): &mut (_, _, Instant)| {
            now.saturating_duration_since(*since) >= ANSWER_LIMIT
        };
        let answers = self.members.answers.extract_if(.., is_overdue);
        overdue.extend(answers.map(|(requested, ..)| requested));
        for requested in overdue {
            tracing::warn!(
                limit = ?ANSWER_LIMIT,
                "a change of the members is not answered in time: its client is disconnected, and whether the change \
                 is made is not known; look at the list of the servers, and ask again"
            );
            for group in &requested.work.groups {
                group
                    .conn
                    .close(CloseReason::RequestLost, &mut self.applier.wake);
            }
            self.finish(requested);
        }
    }

    /// Answers changes of the members once no joint configuration is left: only then the failures
    /// are tolerated that the new members tolerate. A server that leaves does not hear of that, and
    /// answers before.
    fn answer_when_in_force(&mut self) {
        let membership = self.consensus.membership();
        if membership.is_joint() && membership.keeps(self.links.id) {
            return;
        }
        for (requested, outcome, _) in std::mem::take(&mut self.members.answers) {
            self.applier
                .answer_reconfigure(&self.state, &requested, &outcome);
            self.finish(requested);
        }
    }

    /// Connects to the members of now, and has handshakes know them.
    pub(crate) fn members_changed(&mut self) {
        let now = self.state.time.now();
        let membership = self.consensus.membership();
        let addresses = self.links.addresses.of(membership);
        self.links.wire.set_addresses(&addresses);
        self.next_announcement = now;
        self.is_status_due = true;
        let had_left = self.members.has_left;
        self.members.has_left = !membership.keeps(self.links.id)
            && !self.applier.is_recovering()
            && !self.leadership.leads();
        if self.members.has_left && !had_left {
            tracing::warn!(
                server = self.links.id,
                "this server is no member of its ensemble: it serves no clients; stop it, or add it again"
            );
        }
        if self.members.has_left && !membership.contains(self.links.id) {
            self.consensus.forget_leader();
        }
    }

    /// A batch of this server's clients is applied, or was refused.
    pub(crate) fn batch_applied(&mut self, origin: Option<Origin>) {
        if self.applier.reconfigured.is_some() {
            self.members.applied(origin);
            self.is_status_due = true;
        }
    }
}

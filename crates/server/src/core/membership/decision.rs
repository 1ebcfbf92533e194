//! A leader's next step about the members: the checks of a change that a client asks for, and
//! what makes the members follow the list of servers. Pure: decides by what it is shown.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use baton_consensus::{Change, Member as ClusterMember, Membership, PeerProgress};
use baton_proto::{ErrorCode, Request};
use baton_tree::{Batch, Command, FormatLevel, ListChange, ListedServer, ServerList, Tree};

use super::{Members, PATIENCE, RunningChange};
use crate::core::member_changes::{MemberChanges, member_changes, successor, voters};
use crate::core::peer_states::PeerStates;
use crate::options::{EnsembleOptions, host_and_port};
use crate::report::escaped::EscapedText;

/// Time for which a change waits for a new voter that nobody has met: it may be starting.
const START_LIMIT: Duration = Duration::from_secs(2);

/// Everything that the leader looks at when it decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// The leader.
    pub(crate) id: u64,
    pub(crate) now: Instant,
    pub(crate) membership: &'a Membership,
    pub(crate) progress: &'a [PeerProgress],
    pub(crate) commit: u64,
    pub(crate) tree: &'a Tree,
    /// The format that the log is written in.
    pub(crate) level: FormatLevel,
    pub(crate) ensemble: &'a EnsembleOptions,
    pub(crate) peers: &'a PeerStates,
}

/// The next step of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Refuse(ErrorCode, Cow<'static, str>),
    AddLearners(Vec<ClusterMember>),
    /// Nobody comes with this learner's data folder.
    RemoveLearner(u64),
    HandOver(u64),
    Propose(Vec<Change>),
}

impl View<'_> {
    /// The checks of a change in ZooKeeper's order, then what is to be done first of what it takes.
    pub(super) fn step(&self, change: &mut RunningChange, members: &Members) -> Option<Step> {
        let now = self.now;
        let refuse = |code, why: &'static str| Some(Step::Refuse(code, why.into()));
        if !self.ensemble.reconfig {
            return refuse(ErrorCode::ReconfigDisabled, "the settings do not permit it");
        }
        let membership = self.membership;
        if membership.is_joint() {
            return None;
        }
        let batch = Batch::decode(&change.payload).ok()?;
        let (item, identity) = batch.iter().next()?;
        let Command::Write { body, .. } = item.command else {
            return None;
        };
        let tree = self.tree;
        if tree.servers().is_none() {
            if now.saturating_duration_since(change.since) < PATIENCE {
                return None;
            }
            let why = "a member has not connected yet, or runs a version that cannot do it";
            return refuse(ErrorCode::NewConfigNoQuorum, why);
        }
        let next = match tree.list_after(body, false) {
            Ok(next) => next,
            Err(code) => {
                let asked = tree.list_change(body).ok();
                let bad = asked.as_ref().and_then(ListChange::unreadable_line);
                let why = match bad {
                    Some((line, error)) => format!("the line '{}': {error}", EscapedText(line)).into(),
                    None => "it is for another version of the list, or the list would have no voter, or two servers \
                             with one id or address"
                        .into(),
                };
                return Some(Step::Refuse(code, why));
            }
        };
        if tree
            .list_change(body)
            .is_ok_and(|asked| asked.names_one_twice())
        {
            let why = "one server joins twice: name each server once";
            return refuse(ErrorCode::BadArguments, why);
        }
        let is_permitted = tree.may_reconfigure(identity);
        let timeout_ms = tree.session(item.session).map_or(0, |it| it.timeout_ms);
        let level = self.level;
        let waiting = |id| members.waiting(id, level, now);
        let changes = member_changes(membership, &next, waiting);
        // A voter that has lost its folder does not count, though it waits.
        let joins = |id: u64| waiting(id).is_some() && !membership.votes(id);
        let is_here = |id: u64| id == self.id || self.peers.hears(id, now) || joins(id);
        // A member that has just been lost may be back before its client gives up.
        let limit = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let lasts = |since: Instant| now.saturating_duration_since(since) < limit;
        let returns = |id: u64| {
            let heard = self.peers.heard_at(id);
            membership.contains(id)
                && !members.is_gone(id)
                && heard.max(members.led_since()).is_some_and(lasts)
        };
        let moved = changes.as_ref().map_or(&[][..], |it| &it.moved);
        let is_majority = |count: usize| count * 2 > voters(&next).count();
        let here = voters(&next).filter(|id| is_here(*id)).count();
        if !is_majority(here) {
            let comes = voters(&next).filter(|id| is_here(*id) || returns(*id));
            if is_permitted && lasts(change.since) && is_majority(comes.count()) {
                return None;
            }
            let why = "most of the future voters cannot be reached: start the new servers with empty folders and \
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
            && now.saturating_duration_since(change.since) < START_LIMIT
        {
            return None;
        }
        self.carry_out(change, changes, &next, members)
    }

    /// Returns what is to be done first of a change that nothing forbids.
    fn carry_out(
        &self,
        change: &mut RunningChange,
        mut changes: MemberChanges,
        next: &ServerList,
        members: &Members,
    ) -> Option<Step> {
        let now = self.now;
        if !changes.learners_first.is_empty() {
            return Some(Step::AddLearners(changes.learners_first));
        }
        if let Some(gone) = self.learner_without_folder(changes.promoted.iter().copied(), members) {
            return Some(Step::RemoveLearner(gone));
        }
        let commit = self.commit;
        let target = *change.target.get_or_insert(commit);
        let progress = self.progress;
        let matched = |id: u64| {
            let known = progress.iter().find(|peer| peer.id == id);
            known.map_or(0, |peer| peer.matched)
        };
        let has = |id: u64| id == self.id || matched(id) >= target;
        let is_up = |id: &u64| {
            let is_heard = *id == self.id || self.peers.hears(*id, now);
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
            if receives || reached > change.reached {
                change.reached = reached;
                change.advanced_at = now;
            }
            if now.saturating_duration_since(change.advanced_at) <= PATIENCE {
                return None;
            }
            if !is_majority_up {
                let why = "most of the future voters did not catch up: they cannot be reached, or their disks hang";
                return Some(Step::Refuse(ErrorCode::NewConfigNoQuorum, why.into()));
            }
            // They are listed, and vote once they have caught up.
            let lags = |id: u64| changes.promoted.contains(&id) && !has(id);
            changes.parts.retain(|part| !lags(part.id()));
        }
        if voters(next).any(|id| id == self.id) {
            return Some(Step::Propose(changes.parts));
        }
        // The next leader carries it out: one that is not a member could not (R16).
        let stays = |peer: &PeerProgress| {
            peer.id != self.id && is_up(&peer.id) && voters(next).any(|voter| voter == peer.id)
        };
        Some(match successor(self.membership, progress, stays) {
            Some(best) => Step::HandOver(best),
            None => Step::Refuse(
                ErrorCode::NewConfigNoQuorum,
                "no other voter is in reach that could lead".into(),
            ),
        })
    }

    /// The first of these learners whose data folder was lost after it had asked to be admitted: a
    /// server with its id waits with another one (R17).
    fn learner_without_folder(
        &self,
        learners: impl IntoIterator<Item = u64>,
        members: &Members,
    ) -> Option<u64> {
        let known = &self.membership.members;
        learners.into_iter().find(|id| {
            let waiting = members.waiting(*id, self.level, self.now);
            let known = known.iter().find(|known| known.id == *id);
            known.is_some_and(|known| waiting.is_some_and(|new| new != known.incarnation))
                && !self.peers.is_connected(*id)
        })
    }

    /// The first list, of the servers of the settings, as a request. `None`: there is one already.
    pub(super) fn first_list(&self) -> Option<Vec<u8>> {
        let membership = self.membership;
        let listed = |id: u64, address: &str, is_observer| ListedServer {
            address: address.to_owned(),
            election_port: self
                .ensemble
                .election_ports
                .get(&id)
                .copied()
                .unwrap_or_else(|| host_and_port(address).map_or(0, |(_, port)| port)),
            is_observer,
            client: self
                .ensemble
                .clients
                .get(&id)
                .and_then(|at| at.parse().ok()),
        };
        let voters = membership.members.iter();
        let voters = voters.filter(|member| membership.voters.contains(&member.id));
        let mut list = ServerList::default();
        for member in voters {
            let server = listed(member.id, &member.address, false);
            list.servers.insert(member.id, server);
        }
        for id in &self.ensemble.observers {
            if let Some(address) = self.ensemble.servers.get(id)
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
        let is_first = self.tree.list_after(&body, true).is_ok();
        is_first.then_some(body)
    }

    /// The change that has the members follow the list: a server becomes a learner when it is
    /// there, votes by the list once it has caught up, and goes when it is not listed, if
    /// `unlisted` says which one has been so for long.
    pub(super) fn follow(
        &self,
        list: &ServerList,
        unlisted: Option<u64>,
        members: &Members,
    ) -> Option<Change> {
        let mut new = list.servers.iter().filter_map(|(id, listed)| {
            let incarnation = members.waiting(*id, self.level, self.now)?;
            (!self.membership.contains(*id)).then(|| ClusterMember {
                id: *id,
                incarnation,
                address: listed.address.clone(),
            })
        });
        let added = new.next().map(Change::AddLearner);
        let change = added.or(unlisted.map(Change::Remove));
        change.or_else(|| self.promotion(list, members))
    }

    /// The change for a learner that votes by the list, and was away when it was listed.
    fn promotion(&self, list: &ServerList, members: &Members) -> Option<Change> {
        let now = self.now;
        let membership = self.membership;
        let learners = || {
            let listed = voters(list);
            listed.filter(|id| membership.learners.contains(id))
        };
        if let Some(gone) = self.learner_without_folder(learners(), members) {
            return Some(Change::Remove(gone));
        }
        let commit = self.commit;
        let progress = self.progress;
        let is_up = |id: u64| {
            let mut progress = progress.iter();
            let has_all = progress.any(|peer| peer.id == id && peer.matched >= commit);
            id == self.id || (self.peers.hears(id, now) && has_all)
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
}

//! This server as others see it: operators, and the other servers, by its handshakes and by the
//! readings of its wall clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use baton_consensus::Role;
use baton_peers::codec::{Clock, Frame, LogProof};
use baton_wal::Acknowledged;

use super::CoreDriver;
use crate::core::log::Job;
use crate::core::lost_entries::acknowledged_by;
use crate::core::start::join::describe_members;

/// Interval at which the other servers' handshakes are given the newest state.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);

/// State that the handshakes with other servers are given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Announcement {
    term: u64,
    applied: u64,
    last: u64,
    proof: LogProof,
    /// The newest committed entry that each other server has acknowledged, as this leader knows.
    acknowledged: BTreeMap<u64, u64>,
}

impl CoreDriver {
    /// Keeps what operators see current.
    pub(crate) fn show_status(&mut self) {
        let Some(shown) = &self.state.ensemble else {
            return;
        };
        if !std::mem::take(&mut self.is_status_due) {
            return;
        }
        let role = self.leadership.role();
        let mut shown = shown.lock();
        if shown.role != role.role {
            let leads = role.role == Role::Leader;
            shown.has_led_since = leads.then(|| self.state.time.now());
        }
        shown.role = role.role;
        shown.leader = role.leader;
        shown.term = role.term;
        shown.commit = self.consensus.commit_index();
        shown.progress = self.consensus.progress();
        shown.connected.clone_from(self.peers.all_connected());
        let applied = self.consensus.applied_index();
        // Only an entry changes the list.
        if std::mem::replace(&mut shown.applied, applied) != applied
            && let Some(list) = self.state.tree.read().servers()
        {
            let servers = list.servers.iter();
            shown.servers = servers
                .map(|(id, server)| (*id, server.address.clone()))
                .collect();
            shown.list = Some(list);
        }
        let membership = self.consensus.membership();
        let moment = self.state.time.moment();
        let majority_ms = self
            .wall_clocks
            .majority_ms(self.links.id, &membership.voters, moment);
        shown.clock_offset_ms = majority_ms.map(|at| moment.wall_ms.saturating_sub(at));
        shown.clock_offsets_ms = self.wall_clocks.offsets_ms(moment);
        shown.levels.clone_from(self.peers.levels());
        shown.voters.clone_from(&membership.voters);
        shown.learners.clone_from(&membership.learners);
    }

    /// Gives the handshakes with other servers the newest state of this one.
    pub(crate) fn announce(&mut self, now: Instant) {
        if now < self.next_announcement || self.leadership.is_alone() {
            return;
        }
        self.next_announcement = now + ANNOUNCE_INTERVAL;
        if !self.log.is_busy()
            && let Some(index) = self.commit_hint.take()
        {
            // A start shows the others what it knows to be committed (R19).
            self.log.submit(Job::Commit(index), now);
        }
        let progress = self.consensus.progress();
        let last = self.consensus.last_index();
        self.transfers.release_matched(&progress, last, now);
        let committed = self.consensus.commit_position();
        let acknowledged = progress
            .into_iter()
            .map(|peer| (peer.id, peer.matched.min(committed.index)));
        let announcement = Announcement {
            term: self.leadership.term(),
            applied: self.consensus.applied_index(),
            last,
            proof: LogProof {
                commit_index: committed.index,
                commit_term: committed.term,
                acknowledged_index: self.consensus.lost_acknowledgement().unwrap_or(0),
            },
            acknowledged: acknowledged.collect(),
        };
        // An idle server has nothing new to say.
        if announcement != self.announced {
            self.describe(&announcement);
            self.announced = announcement;
        }
        if let Some(newest) = self.lost_entries.take_unstored(now) {
            self.log.submit(Job::Acknowledged(newest), now);
        }
    }

    fn describe(&mut self, new: &Announcement) {
        let membership = self.consensus.membership();
        let mut members = Vec::new();
        self.links.wire.update_local(&mut |local| {
            local.proof = new.proof;
            local.term = new.term;
            // Of two servers, the one that has applied more judges by its membership.
            local.membership_index = local.membership_index.max(new.applied);
            local.last_index = new.last;
            describe_members(local, membership);
            for known in &mut local.members {
                let acknowledged = new.acknowledged.get(&known.id).copied().unwrap_or(0);
                known.acknowledged_index = known.acknowledged_index.max(acknowledged);
            }
            members = acknowledged_by(&local.members);
        });
        self.lost_entries.acknowledged(Acknowledged {
            lost: new.proof.acknowledged_index,
            members,
        });
    }

    /// Says to the other servers what this one's wall clock shows.
    pub(crate) fn send_clock(&mut self, now: Instant) {
        if !self.wall_clocks.is_due(now) {
            return;
        }
        let wall_ms = self.state.time.wall_ms();
        for to in self.peers.clock_readers() {
            // The next one comes in a moment.
            let _ = self.links.wire.send(to, Frame::Clock(Clock { wall_ms }));
        }
        let members = &self.consensus.membership().members;
        let is_member = |id| members.iter().any(|member| member.id == id);
        self.wall_clocks.retain(is_member);
    }

    /// Another server has said what its wall clock shows.
    pub(crate) fn clock_read(&mut self, from: u64, clock: Clock) {
        let uptime_ms = self.state.time.moment().uptime_ms;
        self.wall_clocks.heard(from, clock.wall_ms, uptime_ms);
    }
}

//! Folders that were rolled back (R19): each node shows and remembers what was committed and
//! acknowledged, by the rules of a server (`core/driver/rollback.rs` there). Judges who
//! votes and who is elected meanwhile, and what becomes of the entries where nobody could know.

use baton_consensus::{Consensus, MessageKind, PeerMessage};
use baton_wal::{Acknowledged, Wal, WalError};

use super::bug::SeededBug;
use super::mark::Mark;
use super::network::Hello;
use super::node::{Batch, Node, Process};
use super::proofs::{CastVote, NodeProofs};
use super::timeline::SECOND_US;
use super::world::World;

/// Ticks for which a node that has started waits for all voters before it votes.
const HOLD_TICKS: u32 = 120;
/// Ticks between two announcements of a node to its connections.
const ANNOUNCE_TICKS: u64 = 4;
/// Shortest time between two stores of what others have acknowledged. A server takes longer, and
/// runs longer than nodes do here.
const STORE_US: u64 = 2 * SECOND_US;
/// How long the nodes go on once rolled-back folders have elected a leader.
const FORKED_US: u64 = 10 * SECOND_US;

impl World {
    /// A process begins with what its folder says of acknowledged entries.
    pub(crate) fn begin_with_acknowledged(
        &self,
        id: u64,
        consensus: &mut Consensus,
        wal: &Wal,
    ) -> Result<NodeProofs, WalError> {
        if self.has_bug(SeededBug::B21) {
            return Ok(NodeProofs::default());
        }
        let stored = wal.acknowledged()?;
        consensus.note_acknowledged(stored.lost);
        consensus.hold_votes(HOLD_TICKS);
        let known = stored.members.iter();
        let proofs = NodeProofs {
            acknowledged: known.map(|(id, of, index)| ((*id, *of), *index)).collect(),
            stored,
            ..NodeProofs::default()
        };
        release_votes_when_all_are_heard(id, consensus, &proofs);
        Ok(proofs)
    }

    /// The entry that the sender of a hello has acknowledged to this node, where its log ends
    /// before that and it does not know so.
    pub(crate) fn unmet_acknowledgement(&self, id: u64, hello: &Hello) -> Option<u64> {
        if self.has_bug(SeededBug::B21) {
            return None;
        }
        let process = self.nodes.get(&id)?.process.as_ref()?;
        let key = (hello.id, hello.incarnation);
        let known = process.proofs.acknowledged.get(&key).copied()?;
        (hello.last.max(hello.lost) < known).then_some(known)
    }

    /// Another node refuses this one: it has acknowledged entries that its log does not have.
    pub(crate) fn refused_as_older_copy(&mut self, id: u64, acknowledged: u64) {
        self.mark(Mark::OldCopyRefused);
        self.note(|_| format!("{id}: is refused as older than entry {acknowledged}"));
        if !self.node(id).was_rolled_back {
            self.broken(format!(
                "the folder of node {id} was never rolled back, and is refused as an older copy"
            ));
        }
        if let Some(process) = self.process(id) {
            process.proofs.named = process.proofs.named.max(acknowledged);
            if acknowledged > process.consensus.last_index() {
                process.consensus.note_acknowledged(acknowledged);
            }
            self.settle(id);
        }
    }

    /// Another node has said this of itself.
    pub(crate) fn hear_hello(&mut self, id: u64, hello: &Hello) {
        let is_heeded = !self.has_bug(SeededBug::B21);
        let Some(process) = self.process(id) else {
            return;
        };
        let Process {
            consensus, proofs, ..
        } = process;
        if let Some(before) = proofs.peer_runs.insert(hello.id, hello.run)
            && before != hello.run
        {
            consensus.log_restarted(hello.id, hello.last);
        }
        proofs.shown = proofs.shown.max(hello.commit.index);
        proofs.shown_term = proofs.shown_term.max(hello.term);
        if is_heeded {
            consensus.note_term(hello.term);
            if hello.commit.index != 0 {
                consensus.note_commit(hello.id, hello.commit);
            }
            release_votes_when_all_are_heard(id, consensus, proofs);
        }
        self.settle(id);
    }

    /// Now and then a node stores what it knows: up to which entry it has committed, what others
    /// have acknowledged to it, and at once what its own folder has lost.
    pub(crate) fn announce_when_due(&mut self, id: u64) {
        let now_us = self.timeline.now_us();
        let is_heeded = !self.has_bug(SeededBug::B21);
        let Some(process) = self.process(id) else {
            return;
        };
        process.proofs.ticks += 1;
        if !process.proofs.ticks.is_multiple_of(ANNOUNCE_TICKS) || !is_heeded {
            return;
        }
        if process.queue.is_empty()
            && process.in_flight.is_empty()
            && let Some(index) = process.commit_hint.take()
        {
            process.queue.push_back(Batch::of_commit(index));
        }
        let commit = process.consensus.commit_index();
        let members = &process.consensus.membership().members;
        for peer in process.consensus.progress() {
            if let Some(member) = members.iter().find(|it| it.id == peer.id && it.id != id) {
                let key = (member.id, member.incarnation);
                let known = process.proofs.acknowledged.entry(key).or_insert(0);
                *known = (*known).max(peer.matched.min(commit));
            }
        }
        let newest = Acknowledged {
            lost: process.consensus.lost_acknowledgement().unwrap_or(0),
            members: process.proofs.members(),
        };
        let is_due =
            newest.lost != process.proofs.stored.lost || now_us >= process.proofs.may_store_at_us;
        if is_due
            && newest != process.proofs.stored
            // The log is usable whatever becomes of the file.
            && process.wal.store_acknowledged(&newest).is_ok()
        {
            process.proofs.stored = newest;
            process.proofs.may_store_at_us = now_us + STORE_US;
        }
    }

    /// Votes that a node has just given.
    pub(crate) fn note_votes(&mut self, id: u64, messages: &[PeerMessage]) {
        for vote in messages {
            if vote.kind != MessageKind::VoteResponse || vote.reject {
                continue;
            }
            let node = self.node(id);
            let is_forgetful = node.forgets(vote.term);
            let Some(process) = node.process.as_ref() else {
                return;
            };
            let named = process.proofs.named;
            let knows = process.consensus.lost_acknowledgement().is_some()
                || process.consensus.commit_index() < named;
            let cast = process.proofs.vote(is_forgetful);
            let cast_votes = self.votes.entry((vote.term, vote.to)).or_default();
            cast_votes.push(cast);
            if knows {
                self.broken(format!(
                    "node {id} votes for node {} in term {}, and knows that its folder was rolled back behind {named}",
                    vote.to, vote.term
                ));
            }
        }
    }

    /// A node leads though it lacks a committed entry, or beside another one (`index` is 0 then).
    /// A rule is broken, unless folders that were rolled back have elected it, and neither it nor
    /// whoever voted for it had been shown the entry.
    pub(crate) fn elected_wrongly(&mut self, id: u64, term: u64, index: u64, what: String) {
        let own = |node: &Node| {
            let process = node.process.as_ref()?;
            Some(process.proofs.vote(node.forgets(term)))
        };
        let own = self.nodes.get(&id).and_then(own);
        let given = self.votes.range((term, 0)..=(term, u64::MAX));
        let given = given.filter(|((_, to), _)| index == 0 || *to == id);
        let given = given.flat_map(|(_, votes)| votes).copied();
        let knew = given.chain(own).any(|vote| match index {
            0 => vote.is_forgetful && vote.shown_term >= term,
            _ => vote.shown >= index,
        });
        // A leader before this one may have been elected so, and this one has its log.
        let since = match self.truth.committed(index) {
            // Terms are forgotten, too.
            Some((since, _)) => term.min(since + 1),
            None => term,
        };
        let votes = self.votes.range((since, 0)..=(term, u64::MAX));
        let mut votes = votes.flat_map(|(_, votes)| votes).copied().chain(own);
        if knew || !votes.any(|vote| vote.is_forgetful) {
            self.broken(what);
        } else if self.violation.is_none() {
            self.mark(Mark::OldCopyLetIn);
            self.note(|_| format!("nobody could know: {what}"));
            self.is_beyond = true;
        }
    }

    /// A rolled-back folder that has received everything again is one as any other.
    pub(crate) fn end_rollback_when_filled(&mut self, id: u64) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let (Some(forgotten), Some(process)) = (node.forgotten, node.process.as_ref()) else {
            return;
        };
        let commit = process.compared;
        let has_committed = commit >= forgotten.min(self.truth.commit());
        // A leader of before may still count on what was acknowledged and not committed.
        let is_newer = process.log.term_at(commit) > Some(node.forgotten_term);
        if has_committed && (commit >= forgotten || is_newer || self.is_calm) {
            self.node(id).forgotten = None;
            self.mark(Mark::OldCopyFilled);
            self.note(|_| format!("{id}: has received what its folder had lost"));
        }
    }

    /// Without a leader, whoever was shown a committed entry that it lacks says so.
    pub(crate) fn check_gaps_are_shown(&mut self) {
        if self.leader().is_some() {
            return;
        }
        let is_silent = |node: &&Node| {
            node.process.as_ref().is_some_and(|process| {
                let known = process.proofs.shown.max(process.proofs.named);
                process.consensus.last_index() < known && process.consensus.log_gap().is_none()
            })
        };
        if let Some(id) = self.nodes.values().find(is_silent).map(|node| node.id) {
            self.broken(format!(
                "node {id} lacks entries that another node has committed, and does not say so"
            ));
        }
    }

    /// Rolled-back folders have elected a leader. Once all hear each other, whoever has committed
    /// an entry keeps it, and the difference is shown.
    pub(crate) fn follow_fork(&mut self) {
        let kept: Vec<_> = self.nodes.values().filter_map(committed_by).collect();
        self.is_calm = true;
        self.network.heal_all();
        self.release();
        for id in self.ids() {
            self.mend(id);
        }
        let end_us = self.timeline.now_us() + FORKED_US;
        while let Some(event) = self.timeline.next(end_us) {
            self.handle(event);
        }
        for (id, life, (index, term)) in kept {
            let Some(process) = self.alive(id, life) else {
                continue;
            };
            if process.consensus.commit_index() < index || !process.log.has(index, term) {
                self.violation = Some(format!(
                    "node {id} had committed entry {index} of term {term}, and follows a leader that lacks it"
                ));
            }
        }
    }
}

/// A node with its process and the newest entry that this has committed: index and term.
fn committed_by(node: &Node) -> Option<(u64, u64, (u64, u64))> {
    let process = node.process.as_ref()?;
    let index = process.consensus.commit_index();
    Some((node.id, node.life, (index, process.log.term_at(index)?)))
}

fn release_votes_when_all_are_heard(own: u64, consensus: &mut Consensus, proofs: &NodeProofs) {
    let membership = consensus.membership();
    let mut voters = membership
        .members
        .iter()
        .filter(|it| membership.votes(it.id));
    if voters.all(|it| it.id == own || proofs.peer_runs.contains_key(&it.id)) {
        consensus.release_votes();
    }
}

impl NodeProofs {
    fn vote(&self, is_forgetful: bool) -> CastVote {
        CastVote {
            shown: self.shown,
            shown_term: self.shown_term,
            is_forgetful,
        }
    }

    fn members(&self) -> Vec<(u64, u128, u64)> {
        let known = self.acknowledged.iter().filter(|(_, index)| **index > 0);
        known.map(|((id, of), index)| (*id, *of, *index)).collect()
    }
}

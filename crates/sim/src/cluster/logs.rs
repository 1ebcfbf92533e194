//! Duties of each server's log: entries that its core has handed out, entries on its disk, promises
//! to others. Compared with what is known of the whole cluster.

use baton_consensus::{
    Effects, EntryKind, Membership, MembershipChange, MessageKind, PeerMessage, Role,
};
use baton_server::simulation::{MemberProgress, MemberView};
use baton_wal::{Entry, Recovered};

use super::bug::SeededBug;
use super::image::{LogImage, Written, content_of};
use super::server_log::CastVote;
use super::state::{ServerSlot, SharedState, State};
use super::{mark, members};

type Holds = Result<(), String>;

impl State {
    /// A start has found this in a folder. Returns up to which entry it takes members over by
    /// mistake.
    pub(super) fn recovered(&mut self, id: u64, found: &mut Recovered) -> Result<u64, String> {
        let bug = self.setup.bug;
        let Some(seat) = self.seats.get_mut(&id) else {
            return Ok(0);
        };
        let server = &mut seat.log;
        let base = found
            .snapshot
            .as_ref()
            .map_or((0, 0), |info| (info.meta.index, info.meta.term));
        let state = (found.hard_state.term, found.hard_state.vote);
        let fits = |image: &&LogImage| image.is_found(base, &found.entries, state);
        let candidates = std::iter::once(&server.image).chain(&server.candidates);
        let Some(image) = candidates.into_iter().find(fits).cloned() else {
            return Err(format!(
                "server {id} finds another log than it has synced: it ends at {} of term {}, synced was {:?} of term {}",
                base.0 + found.entries.len() as u64,
                state.0,
                server.image.position(),
                server.image.term,
            ));
        };
        server.image = image;
        server.candidates.clear();
        server.kept_promises(id)?;
        if bug == Some(SeededBug::B20) {
            let next = |found: &Recovered| base.0 + found.entries.len() as u64 + 1;
            while let Some(back) = server.replaced.get(&next(found)) {
                found.entries.push(back.clone());
            }
        }
        if server.belief.as_ref().is_some_and(|(_, at)| *at <= base.0) {
            server.belief = None;
        }
        let known = self.oracle.memberships(0..=found.commit).next_back();
        if let Some(known) = known.cloned() {
            server.take_over(found, bug, &known);
        }
        let taken_over = server.belief.as_ref().map_or(0, |(_, index)| *index);
        server.log = server.image.clone();
        server.pending.clear();
        server.compared = base.0;
        server.news = 0;
        (server.shown, server.next_shown) = Default::default();
        let mut before = base.1;
        for entry in &found.entries {
            let content = content_of(entry.kind, &entry.payload);
            let (index, term) = (entry.index, entry.term);
            if index > server.log.last() {
                server.log.write(&Written::Entry {
                    index,
                    term,
                    content,
                });
            }
            self.oracle.appended(id, (index, term), content, before)?;
            before = term;
        }
        Ok(taken_over)
    }

    /// The core of a server hands this out, before any of it is stored or sent.
    pub(super) fn handed_out(&mut self, id: u64, effects: &Effects, shared: &SharedState) -> Holds {
        self.note_votes(id, &effects.send_after_sync)?;
        let bug = self.setup.bug;
        let Some(seat) = self.seats.get_mut(&id) else {
            return Ok(());
        };
        let server = &mut seat.log;
        for step in server.log.steps(effects) {
            match step {
                // Its tail contradicted the snapshot: no leader counts on it any more.
                Written::Installed { index, .. } => {
                    server.acknowledged.split_off(&(index + 1));
                    server.entries.clear();
                }
                Written::Truncated { from } => {
                    server.acknowledged.split_off(&from);
                    server.replaced = server.entries.split_off(&from);
                    shared.recorder.mark(mark::OLDER_TERM_REPLACED);
                }
                Written::Entry { index, .. } if server.log.term_at(index - 1).is_none() => {
                    return Err(format!("server {id} appends entry {index} behind a gap"));
                }
                Written::Entry { .. } | Written::HardState { .. } => {}
            }
            server.log.write(&step);
            server.pending.push(step);
        }
        let is_change = |entry: &&baton_consensus::Entry| entry.kind == EntryKind::Configuration;
        if let Some(change) = effects.append.iter().rfind(is_change) {
            server.news = change.index;
        }
        if bug == Some(SeededBug::B20) {
            let stored = effects.append.iter().map(|entry| Entry {
                index: entry.index,
                term: entry.term,
                kind: entry.kind.as_byte(),
                payload: entry.payload.clone(),
            });
            server
                .entries
                .extend(stored.map(|entry| (entry.index, entry)));
        }
        Ok(())
    }

    /// Everything that was handed out is on the disk of a server. Returns whether it is to restart,
    /// by mistake: with a change of the members that is not committed.
    pub(super) fn stored(&mut self, id: u64, shared: &SharedState) -> Result<bool, String> {
        let bug = self.setup.bug;
        let mut written = Vec::new();
        let Some(seat) = self.seats.get_mut(&id) else {
            return Ok(false);
        };
        let server = &mut seat.log;
        for step in std::mem::take(&mut server.pending) {
            server.image.write(&step);
            if let Written::Entry {
                index,
                term,
                content,
            } = step
            {
                let before = server.image.term_at(index - 1).unwrap_or(0);
                written.push(((index, term), content, before));
            }
        }
        let news = std::mem::take(&mut server.news);
        let restarts = bug == Some(SeededBug::B17) && news > server.compared;
        for (position, content, before) in written {
            self.appended(id, position, content, before, shared)?;
        }
        Ok(restarts)
    }

    /// Log matching, which two leaders of one term may break whom rolled-back folders have elected.
    fn appended(
        &mut self,
        id: u64,
        position: (u64, u64),
        content: u32,
        before: u64,
        shared: &SharedState,
    ) -> Holds {
        match self.oracle.appended(id, position, content, before) {
            Err(what) => self.elected_wrongly(id, position.1, 0, what, shared),
            Ok(()) => Ok(()),
        }
    }

    /// A message leaves. What it promises is kept in mind, whatever becomes of the process.
    pub(super) fn promised(
        &mut self,
        id: u64,
        message: &PeerMessage,
        shared: &SharedState,
    ) -> Holds {
        let mut before = message.log_term;
        for entry in &message.entries {
            let content = content_of(entry.kind.as_byte(), &entry.payload);
            let position = (entry.index, entry.term);
            self.appended(id, position, content, before, shared)?;
            before = entry.term;
        }
        let Some(seat) = self.seats.get_mut(&id) else {
            return Ok(());
        };
        let server = &mut seat.log;
        match message.kind {
            MessageKind::VoteResponse if !message.reject => {
                server.promised = (message.term, message.to);
            }
            MessageKind::AppendResponse if !message.reject => {
                let known = server.acknowledged.last_key_value();
                let known = known.map_or(0, |(index, _)| *index);
                for index in known + 1..=message.index {
                    // What a newer leader has replaced since, only an older one counts on.
                    if let Some((term, _)) = server.log.entry(index)
                        && term <= message.term
                    {
                        server.acknowledged.insert(index, term);
                    }
                }
            }
            MessageKind::PreVote | MessageKind::PreVoteResponse => {}
            _ if message.term > server.promised.0 => server.promised = (message.term, 0),
            _ => {}
        }
        Ok(())
    }

    /// Holds the log of a server against what is known of all, after a turn of it that began with
    /// `applied` entries. Returns whether it is to restart, by mistake.
    pub(super) fn check_log(
        &mut self,
        id: u64,
        at: &MemberProgress,
        view: MemberView,
        applied: u64,
        shared: &SharedState,
    ) -> Result<bool, String> {
        let bug = self.setup.bug;
        let Some(seat) = self.seats.get_mut(&id) else {
            return Ok(false);
        };
        let before = std::mem::replace(&mut seat.log.view, view.clone());
        let server = &mut seat.log;
        let believed = server.belief.as_ref().map_or(0, |(_, index)| *index);
        let mut restarts = false;
        if at.members.is_some() && believed <= at.applied {
            self.oracle.membership(id, at.applied, &view.membership)?;
            if bug == Some(SeededBug::B18) && view.membership.is_joint() {
                let next = members::after(&view.membership, &MembershipChange::leave_joint());
                server.belief = Some((next, at.applied));
                restarts = true;
            }
        }
        if at.role.role == Role::Leader {
            self.check_leader(id, at.role.term, shared)?;
        }
        let mut possible = vec![before.membership, view.membership.clone()];
        possible.extend(self.oracle.memberships(applied..=at.applied).cloned());
        possible.retain(|membership| !membership.voters.is_empty());
        let Some(seat) = self.seats.get_mut(&id) else {
            return Ok(false);
        };
        let log = &seat.log.log;
        let mut commit = at.commit.min(log.last());
        if bug == Some(SeededBug::B03) && at.role.role == Role::Leader {
            let own = seat.log.image.last();
            let has = |node: u64, index: u64| {
                let mut matched = view.matched.iter();
                let known = matched.find(|(peer, _)| *peer == node);
                index <= known.map_or(if node == id { own } else { 0 }, |(_, index)| *index)
            };
            while commit < log.last()
                && members::is_quorum(&view.membership, |node| has(node, commit + 1))
            {
                commit += 1;
            }
        }
        let (compared, base) = (seat.log.compared, log.base);
        let entries: Vec<_> = (compared + 1..=commit)
            .map(|index| (index, log.entry(index)))
            .collect();
        seat.log.compared = compared.max(commit);
        for (index, entry) in entries {
            match entry {
                Some(entry) => {
                    self.check_committed(id, index, entry, at.role.term, &possible, shared)?;
                }
                None if index <= base && index <= self.oracle.commit() => {}
                None => {
                    return Err(format!(
                        "server {id} counts entry {index} as committed and has none"
                    ));
                }
            }
        }
        self.end_rollback_when_filled(id, shared);
        Ok(restarts)
    }

    fn check_leader(&mut self, id: u64, term: u64, shared: &SharedState) -> Holds {
        let Some(seat) = self.seats.get(&id) else {
            return Ok(());
        };
        if !seat.log.has_stored(term) {
            // A sole voter leads by its own vote before that is durable, and nobody hears of it
            // until then (R02): a crash makes it as if it had not led.
            return Ok(());
        }
        match self.oracle.leads(term, id, seat.life) {
            Err(what) => return self.elected_wrongly(id, term, 0, what, shared),
            Ok(false) => return Ok(()),
            Ok(true) => {}
        }
        shared
            .recorder
            .note(|| format!("s{id} leads in term {term}"));
        let log = &seat.log.log;
        let lacking = (log.base + 1..=self.oracle.commit()).find(|index| {
            let owed = self.oracle.owed_to(*index, term);
            owed.is_some_and(|of| !log.has(*index, of))
        });
        if let Some(index) = lacking {
            let what = format!("server {id} leads term {term} without committed entry {index}");
            self.elected_wrongly(id, term, index, what, shared)?;
        }
        if self
            .oracle
            .leader_before(term)
            .is_some_and(|before| before != id)
        {
            shared.recorder.mark(mark::LEADER_CHANGED);
        }
        let leads_too = |(other, seat): (&u64, &ServerSlot)| {
            let is_leader = seat.progress.is_some_and(|at| at.role.role == Role::Leader);
            *other != id && seat.server.is_some() && is_leader
        };
        if self.seats.iter().any(leads_too) {
            shared.recorder.mark(mark::TWO_LEADERS);
        }
        Ok(())
    }

    /// An entry that a server counts as committed: the same as everywhere; when it is news, on the
    /// disks of a majority, and in the log of every newer leader.
    fn check_committed(
        &mut self,
        id: u64,
        index: u64,
        entry: (u64, u32),
        term: u64,
        possible: &[Membership],
        shared: &SharedState,
    ) -> Holds {
        if let Err(what) = self.oracle.agrees(id, index, entry) {
            self.elected_wrongly(id, term, index, what, shared)?;
        }
        if index <= self.oracle.commit() || self.is_beyond() {
            return Ok(());
        }
        let has = |id: u64| {
            let seat = self.seats.get(&id);
            seat.is_some_and(|seat| seat.log.is_durable(index, entry.0))
        };
        let mut memberships = possible.iter();
        if !memberships.any(|membership| members::is_quorum(membership, has)) {
            return Err(format!(
                "server {id} counts entry {index} of term {} as committed, which is not on the disks of a majority of {:?}",
                entry.0,
                possible.last().map(|last| &last.voters)
            ));
        }
        if entry.0 < term {
            shared.recorder.mark(mark::OLDER_TERM_COMMITTED);
        }
        let lacks = |(_, seat): &(&u64, &ServerSlot)| {
            let at = seat.progress.filter(|_| seat.server.is_some());
            at.is_some_and(|at| {
                at.role.role == Role::Leader
                    && at.role.term > term
                    && !seat.log.log.has(index, entry.0)
            })
        };
        if let Some((leader, seat)) = self.seats.iter().find(lacks) {
            let (leader, newer) = (*leader, seat.progress.map_or(0, |at| at.role.term));
            let what = format!(
                "server {id} counts entry {index} as committed, which server {leader}, a newer leader, lacks"
            );
            self.elected_wrongly(leader, newer, index, what, shared)?;
        }
        self.oracle.commit_next(entry, term);
        Ok(())
    }

    /// Returns the vote of a server in a term.
    pub(super) fn vote_of(&self, id: u64, term: u64) -> Option<CastVote> {
        let log = &self.seats.get(&id)?.log;
        Some(CastVote {
            shown: log.shown,
            is_forgetful: log.forgets(term),
        })
    }
}

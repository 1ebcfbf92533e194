//! Folders that are rolled back (R19): copies that are taken at any moment and put back later, of
//! one server, of several, or of all. Judges who votes and who is elected meanwhile, and what
//! becomes of the entries where nobody could know.

use baton_consensus::{Membership, MessageKind, PeerMessage};
use baton_wal::testing::Loss;

use super::life::StopCause;
use super::server_log::{FolderCopy, KeptCommit, ShownPosition};
use super::state::{Cluster, SharedState, State};
use super::{mark, members};

impl Cluster {
    /// Copies the folder of a server as its disk has it now.
    pub(crate) fn copy_folder(&self, id: u64) {
        let mut state = self.state();
        let Some(seat) = state.seats.get_mut(&id) else {
            return;
        };
        // What a stopped process left half-written is known only to its next start.
        if seat.server.is_some() && !seat.disk_breaks {
            seat.log.copy = Some(FolderCopy {
                disk: seat.disk.crash(Loss::Everything),
                image: seat.log.image.clone(),
                incarnation: seat.incarnation,
            });
        }
    }

    /// Puts copies in the place of the folders: of one server, if the others can go on without it,
    /// of two, or of all. Returns whose they are; those do not run now.
    pub(crate) fn put_copies_back(&self) -> Vec<u64> {
        let ids = {
            let mut state = self.state();
            let has_copy = |(_, seat): &(&u64, &super::state::ServerSlot)| {
                let copy = seat.log.copy.as_ref();
                copy.is_some_and(|it| it.incarnation == seat.incarnation)
            };
            let seats = state.seats.iter().filter(has_copy);
            let mut ids: Vec<u64> = seats.map(|(id, _)| *id).collect();
            state.rng.shuffle(&mut ids);
            ids.truncate(match state.rng.u8(..3) {
                0 => 1,
                1 => 2,
                _ => usize::MAX,
            });
            match ids[..] {
                [id] if !state.can_decide(|other| other != id) => return Vec::new(),
                [] | [_] => {}
                _ => self.0.recorder.mark(mark::SEVERAL_OLD_COPIES),
            }
            ids
        };
        // A machine's snapshot takes all of them down before any starts again.
        for id in &ids {
            self.end(*id, StopCause::Fails);
            self.state().put_copy_back(*id, &self.0);
        }
        ids
    }

    /// Rolled-back folders have elected a leader, and nobody there could know: from here on a run
    /// is not judged as others are.
    pub(crate) async fn beyond(&self) {
        self.0.beyond.notified().await;
    }

    /// Whether servers that can decide nothing stay so, because most have lost what they had
    /// acknowledged: then nobody leads, and a server that lacks what it was shown says so.
    pub(crate) fn is_undecidable(&self) -> bool {
        let silent = {
            let state = self.state();
            if state.can_decide(|_| true) || self.leader_of(&state).is_some() {
                return false;
            }
            let is_silent = |seat: &&super::state::ServerSlot| {
                let at = seat.progress.filter(|_| seat.server.is_some());
                at.is_some_and(|at| at.last < seat.log.shown.index && !seat.log.view.shows_gap)
            };
            let mut seats = state.seats.iter();
            seats.find(|(_, seat)| is_silent(seat)).map(|(id, _)| *id)
        };
        if let Some(id) = silent {
            self.0.recorder.fail(&format!(
                "server {id} lacks entries that another one has committed, and does not say so"
            ));
        }
        self.0.recorder.mark(mark::UNDECIDABLE);
        true
    }

    /// Checks that a server keeps every entry that it had committed when rolled-back folders
    /// elected a leader without it.
    pub(crate) fn check_fork(&self) {
        let lost = {
            let state = self.state();
            let has_lost = |kept: &&KeptCommit| {
                state.seats.get(&kept.id).is_some_and(|seat| {
                    let at = seat.progress.filter(|_| seat.server.is_some());
                    let at = at.filter(|_| seat.life == kept.life);
                    at.is_some_and(|at| {
                        at.commit < kept.index || !seat.log.log.has(kept.index, kept.term)
                    })
                })
            };
            let mut kept = state.kept.iter().flatten();
            kept.find(has_lost).map(|kept| (kept.id, kept.index))
        };
        if let Some((id, index)) = lost {
            self.0.recorder.fail_at_last(&format!(
                "server {id} had committed entry {index}, and follows a leader that lacks it"
            ));
        }
    }
}

impl State {
    /// Puts the copy of a folder in its place; its server does not run.
    pub(super) fn put_copy_back(&mut self, id: u64, shared: &SharedState) {
        let Some(seat) = self.seats.get_mut(&id) else {
            return;
        };
        let server = &mut seat.log;
        let Some(copy) = server.copy.take() else {
            return;
        };
        // A write that was cut off may have reached the disk that is gone.
        let is_same = !server.may_be_torn() && copy.image == server.image;
        let former = std::mem::replace(&mut server.image, copy.image);
        server.was_rolled_back = true;
        server.ended(false);
        seat.disk = copy.disk;
        if is_same {
            shared.recorder.mark(mark::OLD_COPY_HARMLESS);
        } else {
            let (term, last) = former.position();
            if !server.image.has(last, term) || server.image.last() < last {
                server.forgotten = server.forgotten.max(Some(last));
            }
            server.forgotten_term = server.forgotten_term.max(former.term);
            server.acknowledged.clear();
            server.promised = (0, 0);
        }
        server.lost.push(former);
        let forgotten = server.forgotten;
        shared.recorder.mark(mark::ROLLED_BACK);
        shared.recorder.note(|| {
            format!("the folder of s{id} is an older copy, which lacks entries up to {forgotten:?}")
        });
    }

    /// A handshake has shown a server this, which it finds out by its next turn.
    pub(super) fn shown_by(&mut self, id: u64, by: ShownPosition) {
        if let Some(seat) = self.seats.get_mut(&id) {
            let shown = &mut seat.log.next_shown;
            shown.index = shown.index.max(by.index);
            shown.term = shown.term.max(by.term);
        }
    }

    /// Another server has refused this one, which has acknowledged an entry that it lacks.
    pub(super) fn refused_as_older_copy(
        &mut self,
        id: u64,
        acknowledged: u64,
    ) -> Result<(), String> {
        match self.seats.get(&id) {
            Some(seat) if !seat.log.was_rolled_back && seat.log.image.last() < acknowledged => {
                Err(format!(
                    "the folder of server {id} was never rolled back, and is refused as an older copy"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Votes that a server has just given.
    pub(super) fn note_votes(&mut self, id: u64, messages: &[PeerMessage]) -> Result<(), String> {
        let is_vote = |it: &&PeerMessage| it.kind == MessageKind::VoteResponse && !it.reject;
        for vote in messages.iter().filter(is_vote) {
            let Some(cast) = self.vote_of(id, vote.term) else {
                return Ok(());
            };
            let votes = self.votes.entry((vote.term, vote.to)).or_default();
            votes.push(cast);
            let seat = self.seats.get(&id);
            if let Some(lost) = seat.and_then(|seat| seat.progress?.lost) {
                return Err(format!(
                    "server {id} votes for server {} in term {}, and knows that its folder was rolled back behind {lost}",
                    vote.to, vote.term
                ));
            }
        }
        Ok(())
    }

    /// A server leads though it lacks a committed entry, or beside another one (`index` is 0 then).
    /// A rule is broken, unless folders that were rolled back have elected it, and neither it nor
    /// those that voted for it had been shown the entry.
    pub(super) fn elected_wrongly(
        &mut self,
        id: u64,
        term: u64,
        index: u64,
        what: String,
        shared: &SharedState,
    ) -> Result<(), String> {
        let own = self.vote_of(id, term);
        let given = self.votes.range((term, 0)..=(term, u64::MAX));
        let given = given.filter(|((_, to), _)| index == 0 || *to == id);
        let given = given.flat_map(|(_, votes)| votes).copied();
        let knew = given.chain(own).any(|vote| match index {
            0 => vote.is_forgetful && vote.shown.term >= term,
            _ => vote.shown.index >= index,
        });
        // A leader before this one may have been elected so, and this one has its log.
        let since = match self.oracle.committed(index) {
            // Terms are forgotten, too.
            Some((since, _)) => term.min(since + 1),
            None => term,
        };
        let votes = self.votes.range((since, 0)..=(term, u64::MAX));
        let mut votes = votes.flat_map(|(_, votes)| votes).copied().chain(own);
        // An earlier leader may still lead those who have forgotten the term of the entry.
        let is_earlier = |of: u64| {
            let mut seats = self.seats.values();
            of > term && seats.any(|seat| seat.log.forgets(of))
        };
        let committed = self.oracle.committed(index);
        let is_forgotten = committed.is_some_and(|(of, _)| is_earlier(of));
        if knew || !is_forgotten && !votes.any(|vote| vote.is_forgetful) {
            return Err(what);
        }
        if !self.is_beyond() {
            shared.recorder.mark(mark::OLD_COPY_LET_IN);
            shared
                .recorder
                .note(|| format!("nobody could know: {what}"));
            shared.recorder.stop_judging();
            let kept = self.seats.iter().filter_map(|(id, seat)| {
                let at = seat.progress.filter(|_| seat.server.is_some())?;
                Some(KeptCommit {
                    id: *id,
                    life: seat.life,
                    index: at.commit,
                    term: seat.log.log.term_at(at.commit)?,
                })
            });
            self.kept = Some(kept.collect());
            shared.beyond.notify_one();
        }
        Ok(())
    }

    /// Whether the run is not judged any more.
    pub(super) fn is_beyond(&self) -> bool {
        self.kept.is_some()
    }

    /// A rolled-back folder that has received everything again is one as any other.
    pub(super) fn end_rollback_when_filled(&mut self, id: u64, shared: &SharedState) {
        let known = self.oracle.commit();
        let is_calm = self.is_calm;
        let Some(server) = self.seats.get_mut(&id).map(|seat| &mut seat.log) else {
            return;
        };
        let Some(forgotten) = server.forgotten else {
            return;
        };
        let commit = server.compared;
        let has_committed = commit >= forgotten.min(known);
        // A leader of before may still count on what was acknowledged and not committed.
        let is_newer = server.log.term_at(commit) > Some(server.forgotten_term);
        if has_committed && (commit >= forgotten || is_newer || is_calm) {
            server.forgotten = None;
            shared.recorder.mark(mark::OLD_COPY_FILLED);
            shared
                .recorder
                .note(|| format!("s{id} has received what its folder had lost"));
        }
    }

    /// Whether the servers that `counts` names, as far as their folders are whole, can decide in
    /// each membership that one of them has.
    pub(super) fn can_decide(&self, counts: impl Fn(u64) -> bool) -> bool {
        let is_intact = |id: u64| {
            let seat = self.seats.get(&id);
            counts(id) && seat.is_some_and(|seat| !seat.is_empty && seat.log.forgotten.is_none())
        };
        let memberships = self.seats.values().map(|seat| &seat.log.view.membership);
        let mut memberships = memberships.filter(|it: &&Membership| !it.voters.is_empty());
        memberships.all(|membership| members::is_quorum(membership, is_intact))
    }
}

//! Changes of the members, in the core's turn: what a leader proposes, and what every server does
//! when one is applied.

use std::time::{Duration, Instant};

use baton_consensus::{Change, ChangeError, Entry, MembershipChange};
use baton_peers::codec::Refusal;
use baton_peers::net::FramePermit;
use baton_proto::ErrorCode;
use baton_tree::{Batch, Command, FormatLevel, Origin, Outcome, Unapplied};
use bytes::Bytes;

use super::CoreDriver;
use crate::connections::conn::CloseReason;
use crate::core::membership::{Action, View};
use crate::error::ServerError;

/// Longest time that a client waits for the answer to its change, whichever server leads.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

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
            && self.members.removed_by(*membership_index)
        {
            tracing::warn!(
                server = id,
                entry = membership_index,
                "this server was removed from its ensemble: it serves no clients; stop it, or add it again"
            );
            self.consensus.forget_leader();
        }
    }

    /// On the leader: takes a `reconfig` of a client of the server that made this batch.
    pub(crate) fn take_reconfigure(&mut self, payload: Bytes, held: Option<FramePermit>) {
        let Some(origin) = Batch::decode(&payload).ok().and_then(|it| it.origin()) else {
            return;
        };
        let now = self.state.time.now();
        if let Some(refused) = self.members.ask(origin, payload, held, now) {
            self.refuse_reconfigure(
                &refused,
                ErrorCode::ReconfigInProgress,
                "another change of the members is under way: try again when it is done",
            );
        }
    }

    /// On the leader: takes the next step in changing the members.
    pub(crate) fn change_members(&mut self, now: Instant) {
        let (term, level) = (self.leadership.term(), self.applier.level);
        // A follower may have applied this leader's first entry, and sent a change, before this
        // leader's own disk has that entry.
        if !self.leadership.acts_as_leader() || !self.members.is_due(term, level, now) {
            return;
        }
        let Some(ensemble) = &self.state.options.ensemble else {
            return;
        };
        let tree = self.state.tree.read();
        let actions = self.members.next(
            term,
            &View {
                id: self.links.id,
                now,
                membership: self.consensus.membership(),
                progress: &self.consensus.progress(),
                commit: self.consensus.commit_index(),
                tree: &tree,
                level,
                ensemble,
                peers: &self.peers,
            },
        );
        drop(tree);
        for action in actions {
            self.change(action, now);
        }
    }

    fn change(&mut self, action: Action, now: Instant) {
        match action {
            Action::List(body) => {
                let mut builder = self.new_batch();
                builder.begin(0, &self.nobody, None);
                let command = Command::Reconfigure {
                    refusal: 0,
                    body: &body,
                };
                builder.push(0, command);
                self.proposals.push_own(builder.finish());
            }
            Action::Refuse(payload, code, why) => self.refuse_reconfigure(&payload, code, &why),
            Action::AddLearners(new) => {
                let servers: Vec<u64> = new.iter().map(|member| member.id).collect();
                let changes = new.into_iter().map(Change::AddLearner).collect();
                if self.propose_step(changes, Bytes::new()) {
                    tracing::info!(?servers, "new servers receive the log before they vote");
                    self.members.learners_added(now);
                }
            }
            Action::RemoveLearner(server) => {
                if self.propose_step(vec![Change::Remove(server)], Bytes::new()) {
                    tracing::info!(
                        server,
                        "a new server comes with another data folder than before: it is admitted with that one"
                    );
                }
            }
            Action::HandOver(to) => {
                tracing::info!(to, "this server is to leave: leadership is handed over");
                self.consensus.transfer_leader(to);
            }
            Action::Propose(payload, parts) => {
                let Some(batch) = self.reconfigure_batch(&payload, 0) else {
                    self.members.give_up();
                    return;
                };
                if parts.is_empty() {
                    self.proposals.push_own(batch);
                    self.members.proposed();
                } else if self.propose_step(parts, batch) {
                    self.members.proposed();
                }
            }
            Action::Follow(change) => {
                let id = change.id();
                match self.propose_members(vec![change], Bytes::new()) {
                    Ok(()) => tracing::info!(server = id, "the members follow the list of servers"),
                    Err(error) => tracing::debug!(server = id, "not proposed yet: {error}"),
                }
            }
        }
    }

    /// Proposes a step of the change that is under way; whether the consensus has taken it. It is
    /// tried again where that passes, and the change is refused where it does not.
    fn propose_step(&mut self, changes: Vec<Change>, context: Bytes) -> bool {
        let Err(error) = self.propose_members(changes, context) else {
            return true;
        };
        let passes = matches!(
            error,
            ChangeError::TooEarly | ChangeError::InProgress | ChangeError::Propose(_)
        );
        if !passes && let Some(payload) = self.members.give_up() {
            tracing::warn!("the members cannot change like this: {error}");
            let why = "the consensus refuses it";
            self.refuse_reconfigure(&payload, ErrorCode::BadArguments, why);
        }
        false
    }

    fn propose_members(&mut self, changes: Vec<Change>, context: Bytes) -> Result<(), ChangeError> {
        let change = MembershipChange { changes, context };
        self.consensus.propose_change(&change).map(|_| ())
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
        #[cfg(feature = "simulation")]
        let is_accepted = is_accepted && !self.state.simulated.has_taken_over(entry.index);
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
                let level = self.peers.levels().get(id).copied().unwrap_or(0);
                self.members
                    .await_return(*id, known.incarnation, level, now);
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
            self.members.keep_answer(requested, outcome, now);
        }
    }

    /// Gives up changes of the members whose clients have waited for long: where one leader after
    /// the other ends, none of them may come to it. Whether the change is made is not known, so the
    /// connections are closed, as after any lost answer.
    pub(crate) fn give_up_changes(&mut self, now: Instant) {
        let mut overdue = self.outstanding.take_overdue(ANSWER_LIMIT, now);
        overdue.extend(self.members.take_overdue(ANSWER_LIMIT, now));
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
        for (requested, outcome, _) in self.members.take_answers() {
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
        let has_left = !membership.keeps(self.links.id)
            && !self.applier.is_recovering()
            && !self.leadership.leads();
        if self.members.set_left(has_left) {
            tracing::warn!(
                server = self.links.id,
                "this server is not a member of its ensemble: it serves no clients; stop it, or add it again"
            );
        }
        if has_left && !membership.contains(self.links.id) {
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

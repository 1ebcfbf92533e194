//! Data folders that were rolled back (R19): what other servers show of entries that this server's
//! log lacks, what follows for its vote, and what operators see of it.

use std::time::{Duration, Instant};

use baton_consensus::{LogGap, Position};
use baton_peers::codec::{Hello, Refusal};
use baton_peers::handshake::KnownMember;
use baton_wal::Acknowledged;

use super::CoreDriver;
use crate::core::log::Job;

/// Ticks for which a server that has started waits for the handshakes of all voters before it
/// votes: 3 s with the usual ticks.
const HOLD_TICKS: u32 = 120;

/// Shortest time between two stores of what the others have acknowledged; each takes two syncs.
const STORE_INTERVAL: Duration = Duration::from_secs(10);

/// Returns what other members have acknowledged to this server, by its handshakes.
pub(crate) fn acknowledged_by(members: &[KnownMember]) -> Vec<(u64, u128, u64)> {
    let known = members
        .iter()
        .filter(|member| member.acknowledged_index > 0);
    known
        .map(|member| (member.id, member.incarnation, member.acknowledged_index))
        .collect()
}

/// What the folder has of acknowledged entries, and when it may be stored again: at once what this
/// server has lost, and what others have now and then, so that a start knows who was rolled back.
#[derive(Debug)]
pub(crate) struct StoredAcknowledged {
    stored: Acknowledged,
    is_refused: bool,
    may_store_at: Instant,
}

impl StoredAcknowledged {
    /// Nothing is stored.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            stored: Acknowledged::default(),
            is_refused: false,
            may_store_at: now,
        }
    }

    /// Whether `newest` is to be stored now. It counts as stored from here on.
    fn is_due(&mut self, newest: &Acknowledged, now: Instant) -> bool {
        let is_new = self.is_refused || *newest != self.stored;
        let is_due = is_new && (newest.lost != self.stored.lost || now >= self.may_store_at);
        if is_due {
            self.stored.clone_from(newest);
            self.is_refused = false;
            self.may_store_at = now + STORE_INTERVAL;
        }
        is_due
    }

    /// The disk has refused the last one, which becomes due again.
    pub(crate) fn refused(&mut self) {
        self.is_refused = true;
    }
}

impl CoreDriver {
    /// Goes on with what the folder says of acknowledged entries.
    pub(crate) fn begin_with_acknowledged(&mut self, stored: Acknowledged) {
        let member = &mut self.member;
        self.consensus.note_acknowledged(stored.lost);
        member.links.wire.update_local(&mut |local| {
            for known in &mut local.members {
                let is_it = |it: &&(u64, u128, u64)| (it.0, it.1) == (known.id, known.incarnation);
                if let Some((_, _, index)) = stored.members.iter().find(is_it) {
                    known.acknowledged_index = known.acknowledged_index.max(*index);
                }
            }
        });
        member.acknowledged.stored = stored;
    }

    /// Has the log's thread store which entries members have acknowledged, where that is due.
    pub(crate) fn store_acknowledged(
        &mut self,
        lost: u64,
        members: Vec<(u64, u128, u64)>,
        now: Instant,
    ) {
        let newest = Acknowledged { lost, members };
        if self.member.acknowledged.is_due(&newest, now) {
            self.log.submit(Job::Acknowledged(newest), now);
        }
    }

    /// A server that has just started may lack what others have committed: it votes when it has
    /// heard of every voter, or when that has taken too long.
    pub(crate) fn hold_votes(&mut self) {
        self.consensus.hold_votes(HOLD_TICKS);
        self.release_votes_when_all_are_heard();
    }

    fn release_votes_when_all_are_heard(&mut self) {
        let member = &self.member;
        let membership = self.consensus.membership();
        let mut voters = membership.members.iter().map(|it| it.id);
        if voters.all(|id| {
            id == member.id || !membership.votes(id) || member.peer_runs.contains_key(&id)
        }) {
            self.consensus.release_votes();
        }
    }

    /// Another server has said this of itself.
    pub(crate) fn heard_hello(&mut self, hello: &Hello) {
        let member = &mut self.member;
        if let Some(before) = member.peer_runs.insert(hello.from, hello.run)
            && before != hello.run
        {
            self.consensus.log_restarted(hello.from, hello.last_index);
        }
        if hello.cluster != 0 {
            self.consensus.note_term(hello.term);
        }
        if hello.cluster != 0 && hello.proof.commit_index != 0 {
            let commit = Position {
                index: hello.proof.commit_index,
                term: hello.proof.commit_term,
            };
            self.consensus.note_commit(hello.from, commit);
        }
        if self.consensus.holds_votes() {
            self.release_votes_when_all_are_heard();
        }
    }

    /// Another server refuses this one because of entries that it has acknowledged and does not
    /// have.
    pub(crate) fn refused_as_older_copy(&mut self, refusal: &Refusal) {
        let member = &mut self.member;
        let Refusal::OlderCopy {
            id, acknowledged, ..
        } = *refusal
        else {
            return;
        };
        // The handshake may have said of the log what it was a moment ago.
        if id == member.id && acknowledged > self.consensus.last_index() {
            self.consensus.note_acknowledged(acknowledged);
        }
        member.next_announcement = self.state.time.now();
    }

    /// Has operators see which entries are missing, and a line of the log at each change.
    pub(crate) fn show_log_gap(&mut self, now: Instant) {
        let gap = self.consensus.log_gap();
        let lost = self.consensus.lost_acknowledgement().unwrap_or(0);
        let lost_entries = lost.saturating_sub(self.consensus.commit_index());
        let member = &mut self.member;
        // A server that lags behind its leader receives what it lacks.
        let gap = gap.filter(|gap| {
            !matches!(gap, LogGap::Lacks { .. }) || member.is_long_without_leader(now)
        });
        let text = gap.map(|gap| text_of(gap, member.id));
        if member.lost_entries != lost_entries {
            member.lost_entries = lost_entries;
            if let Some(shown) = &self.state.ensemble {
                shown.lock().lost_entries = lost_entries;
            }
        }
        if member.log_gap == text {
            return;
        }
        let is_known = |before: &Option<String>| before.is_some() == text.is_some();
        match &text {
            Some(reason) if !is_known(&member.log_gap) => {
                tracing::error!(%reason, "entries of the log are missing");
            }
            Some(_) => {}
            None => tracing::info!("no entries of the log are missing any more"),
        }
        member.log_gap.clone_from(&text);
        if let Some(shown) = &self.state.ensemble {
            shown.lock().log_gap = text;
        }
    }
}

/// Text for operators, with the next step. It never names a folder to be emptied that
/// has entries which others lack.
fn text_of(gap: LogGap, id: u64) -> String {
    match gap {
        LogGap::RolledBack { acknowledged, last } => format!(
            "the data folder of server {id} was rolled back: its log ends at entry {last}, but it has acknowledged entry \
             {acknowledged}. It neither votes nor leads until a leader has sent it the rest: start the other servers. \
             Where too few of them are left to elect a leader, keep the folder of the server with the newest entries, and \
             make a new cluster of that one with `baton server recover`"
        ),
        LogGap::Lacks { node, commit } => format!(
            "server {node} has committed entry {}, which the log of server {id} lacks: server {id} does not lead, and \
             waits for server {node} or another one that has the entry. Keep the folder of server {node}",
            commit.index
        ),
        LogGap::LeaderLacks {
            leader,
            term,
            index,
        } => format!(
            "server {leader}, which leads term {term}, lacks entry {index} that server {id} has committed: the folders of \
             a majority were rolled back. Server {id} does not follow it. Keep the folder of server {id}; stop the others, \
             and make a new cluster of that folder with `baton server recover`, or of theirs if its entries may be lost"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r19_what_the_disk_has_refused_is_stored_again_and_what_is_lost_at_once() {
        let begun = Instant::now();
        let mut acknowledged = StoredAcknowledged::new(begun);
        let of = |lost, index| Acknowledged {
            lost,
            members: vec![(2, 1, index)],
        };
        assert!(acknowledged.is_due(&of(0, 5), begun));
        let later = begun + STORE_INTERVAL;
        assert!(!acknowledged.is_due(&of(0, 5), later), "it is stored");
        assert!(!acknowledged.is_due(&of(0, 6), later - Duration::from_millis(1)));
        assert!(acknowledged.is_due(&of(9, 6), begun));
        acknowledged.refused();
        assert!(!acknowledged.is_due(&of(9, 6), begun), "not in each turn");
        assert!(acknowledged.is_due(&of(9, 6), later));
        assert!(!acknowledged.is_due(&of(9, 6), later + STORE_INTERVAL));
    }
}

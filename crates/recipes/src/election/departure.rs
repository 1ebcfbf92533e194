//! Why a leader went, as far as those who watch can know it.
//!
//! Owns the watches on what tells of it. A leader that resigns, and whoever deposes one, makes and
//! deletes a node beside the offer in the very change that deletes the offer; nobody sees that node
//! but by a watch for it. Must never guess: where such a word could have been missed, or is none of
//! the leader's habit, the answer is [`Departure::Unknown`].

use super::Leader;
use crate::wait_queue::{release_marker, signal};
use baton_client::{Error, EventKind, Op, Session, State, Watch};

/// Why a leader went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Departure {
    /// It resigned: it gave leadership up while it still had it, and has said so.
    Resigned,
    /// Somebody deposed it: [`LeaderElection::depose`](crate::LeaderElection::depose).
    Removed,
    /// It went without a word, and would have said one: its session expired or was closed, or its
    /// process had lost leadership by its own clock before, or somebody has deleted its offer by
    /// hand. (So does a participant that withdraws just as it comes first.)
    Failed,
    /// It cannot be known: other libraries' leaders and those with data of their own say nothing of
    /// a failure, and what was said while we were not connected is lost.
    Unknown,
}

/// Where whoever deposes the leader with this offer tells of it.
fn removal(node: &str) -> String {
    format!("{node}.removed")
}

/// The change that deletes an offer of this version, and tells that its leader did not do it.
pub(super) fn removal_of(node: &str, version: i32) -> Vec<Op> {
    signal(removal(node))
        .into_iter()
        .chain([Op::delete(node, Some(version))])
        .collect()
}

/// The watches for the word of one leader's end.
#[derive(Debug)]
pub(super) struct DepartureWatches {
    session: Session,
    /// Fencing token and offer of the leader.
    of: (u64, String),
    /// The connection that both were set on.
    connection: State,
    resigned: Watch,
    removed: Watch,
    /// Whether it would tell, as far as its record says, or has said before somebody wrote to its
    /// offer.
    announces: bool,
}

impl DepartureWatches {
    /// Watches for the word of `leader`, whose offer is to be read again behind that. `before`:
    /// what served for it until now.
    pub(super) async fn of(
        session: &Session,
        leader: &Leader,
        before: Option<&Self>,
    ) -> Result<Self, Error> {
        // An answer must not have waited for another connection.
        let asking = session.fail_fast();
        let connection = session.state();
        let (resigned, removed) = (
            asking.exists_watch(&release_marker(&leader.node)),
            asking.exists_watch(&removal(&leader.node)),
        );
        let ((_, resigned), (_, removed)) = (resigned.await?, removed.await?);
        let mut departure_watches = Self {
            session: session.clone(),
            of: (leader.token, leader.node.clone()),
            connection,
            resigned,
            removed,
            announces: before.is_some_and(|before| before.announces),
        };
        departure_watches.note(leader);
        Ok(departure_watches)
    }

    /// Whether these are for this leader.
    pub(super) fn are_of(&self, leader: Option<&Leader>) -> bool {
        leader.is_some_and(|leader| (leader.token, &leader.node) == (self.of.0, &self.of.1))
    }

    /// Whether they stand on the connection that there is: then all since they were set was on it.
    pub(super) fn stand(&self) -> bool {
        self.connection == self.session.state() && self.connection.is_connected()
    }

    /// Takes note of what the offer holds.
    pub(super) fn note(&mut self, leader: &Leader) {
        self.announces |= leader
            .record
            .as_ref()
            .is_some_and(|record| record.announces);
    }

    /// Resolves when the connection that they were set on is over, and there is another or none
    /// will be. Cancel-safe.
    pub(super) async fn outdated(&self) {
        let mut states = self.session.states();
        let mut state = states.current();
        while state == self.connection || state == State::Suspended {
            match states.next().await {
                Some(next) => state = next,
                None => return,
            }
        }
    }

    /// Why the leader went, now that its offer was seen to be gone; `end` is the number of the
    /// change that it went by, where the server has told it.
    ///
    /// On one connection news come in order: what was said before the end, or with it, is here by
    /// now. A node that somebody else has made in the word's place is told from it by the number of
    /// the change; Apache ZooKeeper before 3.9 does not tell that.
    pub(super) fn departure(mut self, end: Option<i64>) -> Departure {
        let (resigned, removed) = (self.resigned.try_event(), self.removed.try_event());
        if !self.stand() {
            return Departure::Unknown;
        }
        let (said, word) = match (resigned, removed) {
            (None, None) if self.announces => return Departure::Failed,
            (Some(Ok(word)), None) => (Departure::Resigned, word),
            (None, Some(Ok(word))) => (Departure::Removed, word),
            _ => return Departure::Unknown,
        };
        let others = word.zxid.zip(end).is_some_and(|(word, end)| word != end);
        if others || word.kind != EventKind::NodeCreated {
            Departure::Unknown
        } else {
            said
        }
    }
}

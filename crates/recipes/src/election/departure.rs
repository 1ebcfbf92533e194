//! Reason why a leader left, as far as observers can know it.
//!
//! Owns the watches for its markers. A leader that resigns, and a process that deposes one, creates
//! and deletes a marker node beside the offer in the very change that deletes the offer; nobody
//! sees that node but by a watch for it. Must never guess: where a marker could have been missed,
//! or the leader makes none, the answer is [`Departure::Unknown`].

use baton_client::{Error, EventKind, Op, Session, State, Watch};

use super::Leader;
use crate::wait_queue::{release_marker, signal};

/// Reason why a leader left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// It resigned: it gave leadership up while it still had it, and has signalled that.
    Resigned,
    /// Somebody deposed it: [`LeaderElection::depose`](crate::LeaderElection::depose).
    Removed,
    /// It went without a signal, and would have given one: its session expired or was closed, or
    /// its process had lost leadership by its own clock before, or somebody has deleted its offer
    /// by hand. (The same is reported of a participant that withdraws just as it comes first.)
    Failed,
    /// It cannot be known: other libraries' leaders and those with data of their own give no
    /// signal, and one that was given while we were not connected is lost.
    Unknown,
}

impl std::fmt::Display for Departure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Resigned => "resigned",
            Self::Removed => "deposed",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        })
    }
}

/// The path of the marker that shows that the leader with this offer was deposed.
fn removal(node: &str) -> String {
    format!("{node}.removed")
}

/// The change that deposes a leader: deletes its offer of this version, with the marker for that.
pub(super) fn removal_of(node: &str, version: i32) -> Vec<Op> {
    signal(removal(node))
        .into_iter()
        .chain([Op::delete(node, Some(version))])
        .collect()
}

/// The watches for the markers of one leader's departure.
#[derive(Debug)]
pub(super) struct DepartureWatches {
    session: Session,
    /// Fencing token and offer of the leader.
    of: (u64, String),
    /// The connection that both were set on.
    connection: State,
    resigned: Watch,
    removed: Watch,
    /// Whether it signals its resignation, as its record states, or has stated before somebody
    /// wrote to its offer.
    announces: bool,
}

impl DepartureWatches {
    /// Watches for the markers of `leader`, whose offer has to be read again behind that. `before`:
    /// the watches for it until now.
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

    /// Returns whether these are for this leader.
    pub(super) fn are_of(&self, leader: Option<&Leader>) -> bool {
        leader.is_some_and(|leader| (leader.token, &leader.node) == (self.of.0, &self.of.1))
    }

    /// Returns whether they were set on the present connection, so that nothing was missed since.
    pub(super) fn is_current(&self) -> bool {
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

    /// Returns why the leader went, now that its offer was seen to be gone; `end` is the number of
    /// the change that it went by, where the server has reported it.
    ///
    /// On one connection notifications come in order: a marker made before the end, or with it, has
    /// been reported by now. A node that somebody else has made at the marker's path is
    /// distinguished by the number of the change, which Apache ZooKeeper before 3.9 does not
    /// report.
    pub(super) fn departure(mut self, end: Option<i64>) -> Departure {
        let (resigned, removed) = (self.resigned.try_event(), self.removed.try_event());
        if !self.is_current() {
            return Departure::Unknown;
        }
        let (said, marker) = match (resigned, removed) {
            (None, None) if self.announces => return Departure::Failed,
            (Some(Ok(marker)), None) => (Departure::Resigned, marker),
            (None, Some(Ok(marker))) => (Departure::Removed, marker),
            _ => return Departure::Unknown,
        };
        let others = marker
            .zxid
            .zip(end)
            .is_some_and(|(marker, end)| marker != end);
        if others || marker.kind != EventKind::NodeCreated {
            Departure::Unknown
        } else {
            said
        }
    }
}

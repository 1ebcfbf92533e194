//! The stages of an election, as an ordered stream.
//!
//! Owns the stage names, which are those of zookeeper-recipes' `LeaderElectionSupport`. Each
//! listener has its own cursor, so a slow one never drops a stage for itself or delays another.

use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;

use super::term::Term;

/// Stage of a participant in an election.
///
/// A run is `Start`, `OfferStart`, `OfferComplete`, `DetermineStart`, `DetermineComplete`, then
/// either the `Elected` pair, or the `Ready` pair and, each time the one before us goes, the
/// `Determine` pair again. Losing the own node or the session leads back to `OfferStart`. It ends
/// with the `Stop` pair, or with `Failed`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// The participant enters the election.
    Start,
    /// It is about to create its offer, a waiter node.
    OfferStart,
    /// Its offer has been created.
    OfferComplete {
        /// Full path of the offer.
        node: String,
    },
    /// It is about to find out who leads.
    DetermineStart,
    /// It knows its position: 0 leads.
    DetermineComplete {
        /// The number of offers before this one.
        position: usize,
    },
    /// It is first and about to take its term.
    ElectedStart,
    /// It leads.
    ElectedComplete {
        /// The term it leads in.
        term: Term,
    },
    /// It is not first, and about to wait as a follower.
    ReadyStart,
    /// It waits, and will be notified when the offer before it goes.
    ReadyComplete {
        /// Full path of the offer that it follows.
        following: String,
    },
    /// The election cannot go on for this participant.
    Failed {
        /// Reason why, on one line.
        reason: String,
    },
    /// It is about to withdraw. If it led, it stops taking itself for the leader before its offer
    /// is deleted.
    StopStart,
    /// Its offer is gone, or will be as soon as the server can be reached.
    StopComplete,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start => f.write_str("entering the election"),
            Self::OfferStart => f.write_str("creating its offer"),
            Self::OfferComplete { node } => write!(f, "its offer is {node}"),
            Self::DetermineStart => f.write_str("reading who leads"),
            Self::DetermineComplete { position } => {
                write!(f, "{position} candidates before this one")
            }
            Self::ElectedStart => f.write_str("first; taking its term"),
            Self::ElectedComplete { term } => write!(f, "leading: {term}"),
            Self::ReadyStart => f.write_str("not first; following"),
            Self::ReadyComplete { following } => write!(f, "following {following}"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
            Self::StopStart => f.write_str("withdrawing its offer"),
            Self::StopComplete => f.write_str("withdrawn"),
        }
    }
}

/// The stages of one participant, in order, from the moment of subscription. Dropping it
/// unsubscribes.
#[derive(Debug)]
pub struct StageStream(mpsc::UnboundedReceiver<Stage>);

impl StageStream {
    /// Returns the next stage, or `None` once the election object is gone. Cancel-safe: no stage is
    /// lost.
    pub async fn next(&mut self) -> Option<Stage> {
        self.0.recv().await
    }

    /// Returns the next stage, if it has been reached.
    pub fn try_next(&mut self) -> Option<Stage> {
        self.0.try_recv().ok()
    }
}

/// Notifies every listener, in order.
#[derive(Debug, Default)]
pub(super) struct Announcer(Mutex<Vec<mpsc::UnboundedSender<Stage>>>);

impl Announcer {
    pub(super) fn subscribe(&self) -> StageStream {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.listeners().push(sender);
        StageStream(receiver)
    }

    pub(super) fn announce(&self, stage: &Stage) {
        tracing::debug!(?stage, "election");
        self.listeners()
            .retain(|listener| listener.send(stage.clone()).is_ok());
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, Vec<mpsc::UnboundedSender<Stage>>> {
        // A poisoned list is still a list: announcing never stops half-way in a bad state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listener_gets_every_stage_in_order_however_slow() {
        let announcer = Announcer::default();
        let (mut one, mut other) = (announcer.subscribe(), announcer.subscribe());
        for position in 0..1000 {
            announcer.announce(&Stage::DetermineComplete { position });
        }
        drop(announcer);
        for stream in [&mut one, &mut other] {
            for position in 0..1000 {
                assert_eq!(
                    stream.try_next(),
                    Some(Stage::DetermineComplete { position })
                );
            }
            assert_eq!(stream.try_next(), None);
        }
    }
}

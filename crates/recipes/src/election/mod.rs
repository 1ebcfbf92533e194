//! Leader election: one leader at a time, numbered terms, reported stages.
//!
//! - [`LeaderElection`]: takes part; it has an example. [`LeaderElection::lead`] runs the leader's
//!   work and stops it before another process can lead; [`LeaderElection::lead_forever`] does so
//!   again and again, and reports each [`TermEnd`].
//! - [`Leadership`]: the proof of leading. [`Term`]: which term, with its fencing token.
//! - [`Observer`]: who leads, without taking part.

// Owns a participant's way through an election. Whether a term still holds is the guard's
// business; this module never keeps a flag of its own for it.
//
// | module | owns |
// |---|---|
// | `term_end` | leading again and again, and how each term ends |
// | `observer` | who leads, without competing |
// | `resignation` | making a leader step down from outside |
// | `leadership` | the guard of a term |
// | `departure` | why a leader went |
// | `stage` | the stages of an election, as a stream |
// | `leader` | the leader that an observer sees |
// | `error` | why an election did not go on |
// | `term` | the numbered term, and its record |

mod departure;
mod error;
mod leader;
mod leadership;
mod observer;
mod resignation;
mod stage;
mod term;
mod term_end;

pub use departure::Departure;
pub use error::ElectionError;
pub use leader::Leader;
pub use leadership::Leadership;
pub use observer::Observer;
pub use stage::{Stage, StageStream};
pub use term::Term;
pub use term_end::TermEnd;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton_client::{Client, CreateMode};
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use crate::acquire::{AcquireMode, Acquisition, Grant, Report, acquisition_options};
use crate::background;
use crate::guard::{Guard, TxnError};
use crate::naming::{Dialect, NamingScheme};
use crate::retry;
use crate::spans;
use crate::time_limit::at_most;
use crate::wait_queue::Step;
use stage::Announcer;
use term::TermRecord;
pub(crate) use term::{TERM_SUFFIX, term_in, term_node};

/// An election on a path of the tree.
///
/// An offer is a waiter node, like those of a [`Mutex`](crate::Mutex); the first leads, the others
/// follow the one before them. Cheap to clone; clones share stage listeners and the rejoin delay.
/// The terms are counted in a persistent node beside the path, `<path>-__term__`.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let election = baton::LeaderElection::new(&client, "/leader")?.name("web-1");
/// // Waits for its turn, then runs; the work is dropped before another may lead.
/// let served = election
///     .lead(async |term| {
///         println!("leading, term {}, fencing token {}", term.epoch, term.token);
///         42
///     })
///     .await?;
/// assert_eq!(served, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LeaderElection {
    acquisition: Acquisition,
    rejoin_delay: Duration,
    participant: Arc<Participant>,
}

#[derive(Debug, Default)]
pub(crate) struct Participant {
    announcer: Announcer,
    stepped_down: Mutex<Option<Instant>>,
}

impl Participant {
    fn stepped_down(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.stepped_down
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaderElection {
    /// An election at `path`, with the names of Curator's `LeaderLatch`. Nothing is sent.
    ///
    /// # Errors
    /// [`LockError::BadPath`](crate::lock::LockError::BadPath), as [`ElectionError::Lock`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ElectionError> {
        let mut acquisition = Acquisition::new(client, path, Dialect::CuratorLatch)?;
        acquisition.announces = true;
        Ok(Self {
            acquisition,
            rejoin_delay: Duration::ZERO,
            participant: Arc::default(),
        })
    }

    /// Uses other names: [`Dialect::Curator`] to compete with Curator's `LeaderSelector`,
    /// [`Dialect::Kazoo`] with kazoo's `Election`, [`Dialect::ElectionSupport`] with
    /// zookeeper-recipes' `LeaderElectionSupport`.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.acquisition.naming = NamingScheme::Exclusive(dialect);
        self
    }

    acquisition_options!(acquisition);

    /// Sets the data of the candidate's node, in place of Baton's own record: other libraries show
    /// it as the participant's id (Curator), its identifier (kazoo), or its host
    /// (`LeaderElectionSupport`, for which it is this machine's name unless set). Observers get it
    /// as [`Leader::data`].
    #[must_use]
    pub fn data(mut self, data: &[u8]) -> Self {
        self.acquisition.data = Some(Arc::from(data));
        self
    }

    /// Sets the time for which this participant does not stand for election after a term of its own
    /// has ended, so that a failing participant is not elected over and over. Default: zero.
    #[must_use]
    pub fn rejoin_delay(mut self, delay: Duration) -> Self {
        self.rejoin_delay = delay;
        self
    }

    /// Returns a stream of every stage from now on, in order.
    #[must_use]
    pub fn stages(&self) -> StageStream {
        self.participant.announcer.subscribe()
    }

    /// Stands for election, and waits until elected. Follows through lost connections and sessions.
    /// Cancel-safe: dropping the future withdraws the candidacy.
    ///
    /// # Errors
    /// [`ElectionError`]; the offer is withdrawn.
    pub async fn campaign(&self) -> Result<Leadership, ElectionError> {
        if let Some(until) = self.sits_out() {
            background::sleep_until(&self.acquisition.client, until).await;
        }
        loop {
            if let Some(leadership) = self.run(AcquireMode::Wait).await? {
                return Ok(leadership);
            }
        }
    }

    /// Becomes the leader if there is no other candidate now; else returns `None`, also during the
    /// [`LeaderElection::rejoin_delay`]. Waits for the server's answers, never for a leader.
    /// Cancel-safe as `campaign`.
    ///
    /// # Errors
    /// As [`LeaderElection::campaign`].
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, ElectionError> {
        match self.sits_out() {
            Some(until) if until > Instant::now() => Ok(None),
            _ => self.run(AcquireMode::IfFree).await,
        }
    }

    /// Like [`LeaderElection::campaign`], for at most `limit`: one deadline over the rejoin delay,
    /// wake-ups, reconnects and sessions.
    ///
    /// # Errors
    /// [`ElectionError::TimedOut`] when the time is up; else as `campaign`.
    pub async fn campaign_timeout(&self, limit: Duration) -> Result<Leadership, ElectionError> {
        let (acquisition, progress) = self.acquisition.observed();
        let election = Self {
            acquisition,
            ..self.clone()
        };
        let timed_out = |waited_for| {
            ElectionError::timed_out(self.path(), limit, progress.waited_for(waited_for, limit))
        };
        at_most(
            limit,
            &self.acquisition.client,
            election.campaign(),
            timed_out,
        )
        .await
    }

    /// `None` where somebody else leads and that is not waited for.
    async fn run(&self, mode: AcquireMode) -> Result<Option<Leadership>, ElectionError> {
        let entered = AnnounceEndOnDrop::new(&self.participant);
        let span = spans::campaign(self.path());
        match self.elect(mode).instrument(span.clone()).await {
            Ok(Some((guard, term))) => {
                spans::granted(&span, term.token);
                spans::elected(&span, term.epoch);
                entered.left();
                self.announce(&Stage::ElectedComplete { term });
                let leadership = Leadership::new(guard, term, Arc::clone(&self.participant));
                Ok(Some(leadership))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                entered.left();
                self.announce(&Stage::Failed {
                    reason: error.to_string(),
                });
                Err(error)
            }
        }
    }

    /// Stands for election and, once elected, drives `work`; resigns when it is done. When the term
    /// ends first, `work` is dropped before anyone else can lead: that is the stop point. What it
    /// has spawned elsewhere goes on, so let it spawn nothing, or stop what it spawned in a
    /// destructor.
    ///
    /// # Errors
    /// [`ElectionError::TermEnded`] or [`ElectionError::AskedToResign`] where the work was stopped;
    /// else as [`LeaderElection::campaign`].
    pub async fn lead<T, F, Fut>(&self, work: F) -> Result<T, ElectionError>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = T>,
    {
        let leadership = self.campaign().await?;
        let term = leadership.term();
        let asked = leadership.on_revoke();
        let worked = tokio::select! {
            biased;
            worked = leadership.run(work(term)) => worked,
            Ok(()) = asked => {
                // The work is dropped by now; only then may another lead.
                if let Err(error) = leadership.resign().await {
                    tracing::warn!(%error, "resigned as asked");
                }
                let path = self.path().to_owned();
                return Err(ElectionError::AskedToResign { path, term });
            }
        };
        match worked {
            Ok(done) => {
                if let Err(error) = leadership.resign().await {
                    tracing::warn!(%error, "resigned after the work was done");
                }
                Ok(done)
            }
            Err(reason) => Err(ElectionError::TermEnded {
                path: self.path().to_owned(),
                term,
                reason,
            }),
        }
    }

    /// Observes the leader, without competing: with one watch, on the leader's node.
    /// [`Observer::with_reasons`] also reports why a leader left.
    #[must_use]
    pub fn leaders(&self) -> Observer {
        Observer::new(self.acquisition.clone())
    }

    /// Returns the participant that leads now, or is about to; `None` where nobody stands for
    /// election.
    ///
    /// # Errors
    /// [`ElectionError`] where it cannot be found out.
    pub async fn leader(&self) -> Result<Option<Leader>, ElectionError> {
        self.leaders().next().await
    }

    /// Returns the time until which the rejoin delay keeps this participant out.
    fn sits_out(&self) -> Option<Instant> {
        let stepped_down = *self.participant.stepped_down();
        stepped_down.map(|since| since + self.rejoin_delay)
    }

    async fn elect(&self, mode: AcquireMode) -> Result<Option<(Guard, Term)>, ElectionError> {
        loop {
            let announcer = &self.participant.announcer;
            let mut report = |report: Report<'_>| {
                let stage = match report {
                    Report::Offering => Stage::OfferStart,
                    Report::Offered(node) => Stage::OfferComplete {
                        node: node.to_owned(),
                    },
                    Report::Step(Step::Reading) => Stage::DetermineStart,
                    Report::Step(Step::Positioned(position)) => {
                        Stage::DetermineComplete { position }
                    }
                    Report::Step(Step::Following { .. }) => Stage::ReadyStart,
                    Report::Step(Step::Waiting { predecessor }) => Stage::ReadyComplete {
                        following: predecessor.to_owned(),
                    },
                };
                announcer.announce(&stage);
            };
            let grant = self.acquisition.run(mode, &mut report).await?;
            let Some(Grant { guard, id: offer }) = grant else {
                return Ok(None);
            };
            self.announce(&Stage::ElectedStart);
            match self.take_term(&guard, offer).await? {
                Some(term) => return Ok(Some((guard, term))),
                None => tracing::info!(
                    path = self.path(),
                    "elected, but lost before the term began"
                ),
            }
        }
    }

    /// Numbers the term, in one multi with a check of our own offer; `None` where leadership was
    /// lost before.
    async fn take_term(&self, guard: &Guard, offer: Uuid) -> Result<Option<Term>, ElectionError> {
        let node = term::term_node(self.path());
        let client = |source| ElectionError::client(self.path(), source);
        let token = guard.token();
        loop {
            let newest = match guard.session().get_data(&node).await {
                Ok(read) => match TermRecord::from_bytes(&read.data) {
                    Some(record) => Some((record, read.stat.version)),
                    None => return Err(ElectionError::TermNode { node }),
                },
                Err(error) if error.is_no_node() => None,
                Err(error) if error.is_session_ended() => return Ok(None),
                Err(error) => {
                    retry::until_retryable(guard.session(), error)
                        .await
                        .map_err(client)?;
                    continue;
                }
            };
            let record = TermRecord::after(newest.as_ref().map(|(r, _)| r), token, offer);
            let epoch = match &newest {
                // An earlier multi of ours whose answer was lost.
                Some((record, _)) if record.offer == offer => {
                    return Ok(Some(Term {
                        epoch: record.epoch,
                        token,
                    }));
                }
                _ => record.epoch,
            };
            let txn = match newest {
                Some((_, version)) => guard.txn().set(&node, &record.to_bytes(), Some(version)),
                None => guard
                    .txn()
                    .create(&node, &record.to_bytes(), CreateMode::Persistent),
            };
            // A lost answer is resolved here, by the record itself.
            match txn.send().await {
                Ok(_) => return Ok(Some(Term { epoch, token })),
                Err(TxnError::Lost { .. }) => return Ok(None),
                Err(TxnError::Conflict { source, .. })
                    if source.is_bad_version()
                        || source.is_node_exists()
                        || source.is_no_node() => {}
                Err(TxnError::Unknown { source, .. }) if source.is_session_ended() => {
                    return Ok(None);
                }
                Err(TxnError::Unknown { .. }) => {
                    let _ = retry::until_connected(guard.session()).await;
                }
                Err(TxnError::Conflict { source, .. }) => return Err(client(source)),
                Err(TxnError::NotApplied { source, .. }) => {
                    retry::until_retryable(guard.session(), source)
                        .await
                        .map_err(client)?;
                }
            }
        }
    }

    fn announce(&self, stage: &Stage) {
        self.participant.announcer.announce(stage);
    }
}

/// A campaign under way: announces its end if it is dropped.
struct AnnounceEndOnDrop<'a>(Option<&'a Participant>);

impl<'a> AnnounceEndOnDrop<'a> {
    fn new(participant: &'a Participant) -> Self {
        participant.announcer.announce(&Stage::Start);
        Self(Some(participant))
    }

    fn left(mut self) {
        self.0 = None;
    }
}

impl Drop for AnnounceEndOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(participant) = self.0 {
            participant.announcer.announce(&Stage::StopStart);
            participant.announcer.announce(&Stage::StopComplete);
        }
    }
}

//! Semaphore: a number of permits, several holders at a time.
//!
//! [`Semaphore`] has an example. A holder acquires one permit or several, all of them or none, and
//! gets one [`Guard`] over all.

// Owns the way from "wants permits" to a `Guard` over as many leases. Only the first waiter
// watches the leases; the others wait in the queue of a mutex, so a release wakes one waiter and
// they are served in order. Permits are taken all at once or not at all (H42). Must never count a
// lease before the tree shows that it is within the maximum.

mod error;
mod leases;
mod maximum;

pub use error::SemaphoreError;

use std::sync::Arc;
use std::time::Duration;

use baton_client::{Client, Error, Op, Session};
use tracing::Instrument;
use uuid::Uuid;

use crate::acquire::{AcquireMode, Acquisition, AttemptError, LockError, acquisition_options};
use crate::guard::{Guard, LostReason};
use crate::naming::Dialect;
use crate::record::Record;
use crate::retry;
use crate::spans;
use crate::time_limit::{WaitReason, at_most};
use crate::wait_queue::{self, AcquireError, GrantedNode, NewNode, OwnNodeWatch, Step, WaiterNode};
pub(crate) use leases::LOCKS;
use leases::LeaseStatus;

pub(crate) use crate::kind::LEASES;
use maximum::{AgreedMaximum, Maximum};

/// The most permits that one acquire can have: each is a node, and all are created in one multi.
const MOST_AT_ONCE: u32 = 500;

/// A number of permits at a path of the tree; each holder has one or several of them, or waits.
///
/// How many there are is stored in the tree, once for all participants: one that was made with
/// another number is refused, also where two make the semaphore at the same instant. Each acquire
/// counts for itself, also within one process. Cheap to clone; clones share what they know of the
/// number.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let licences = baton::Semaphore::new(&client, "/licences", 10)?;
/// let guard = licences.acquire(1).await?;
/// println!("held, with fencing token {}", guard.token());
/// guard.release().await?;
/// // A heavy job takes four at once, or none.
/// let guard = licences.acquire_timeout(4, Duration::from_secs(30)).await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    base: Acquisition,
    locks: Arc<str>,
    leases: Arc<str>,
    maximum: Arc<Maximum>,
}

/// An attempt that led to no grant.
type AttemptEnd = AttemptError<SemaphoreError>;

impl From<AttemptError> for AttemptEnd {
    fn from(attempt: AttemptError) -> Self {
        match attempt {
            AttemptError::Again => Self::Again,
            AttemptError::Failed(error) => Self::Failed(error.into()),
        }
    }
}

/// Leases that were created, and whether they count yet.
struct CreatedLeases {
    leases: Vec<WaiterNode>,
    data: Vec<u8>,
    granted: bool,
    /// Whether nobody waited when they were created.
    nobody_waits: bool,
}

impl Semaphore {
    /// A semaphore at `path` of `permits` permits. Nothing is sent.
    ///
    /// The first acquire stores that number if there is none yet, and refuses to go on if there is
    /// another. Once they have been the same, this handle follows every later
    /// [`Semaphore::resize`], by anyone.
    ///
    /// # Errors
    /// [`LockError::BadPath`] as [`SemaphoreError::Lock`]; [`SemaphoreError::BadMaximum`] for no
    /// permits.
    pub fn new(client: &Client, path: &str, permits: u32) -> Result<Self, SemaphoreError> {
        if permits == 0 {
            return Err(SemaphoreError::BadMaximum {
                path: path.to_owned(),
            });
        }
        Self::with(client, path, Some(permits))
    }

    /// The semaphore that is at `path`, with the number of permits that the tree has. Nothing is
    /// sent.
    ///
    /// # Errors
    /// [`LockError::BadPath`] as [`SemaphoreError::Lock`]. Where there is no semaphore, acquiring
    /// says so.
    pub fn open(client: &Client, path: &str) -> Result<Self, SemaphoreError> {
        Self::with(client, path, None)
    }

    fn with(client: &Client, path: &str, permits: Option<u32>) -> Result<Self, SemaphoreError> {
        let base = Acquisition::new(client, path, Dialect::Curator)?;
        Ok(Self {
            locks: Arc::from(format!("{path}/{LOCKS}")),
            leases: Arc::from(format!("{path}/{LEASES}")),
            maximum: Arc::new(Maximum::new(&base.path, permits)),
            base,
        })
    }

    acquisition_options!(base);

    /// Waits until this process holds `permits` permits, acquired all at once.
    ///
    /// Survives lost connections, and lost sessions too, at the price of a new position in the wait
    /// queue. Cancel-safe at every point: dropping the future leaves nothing behind, in the
    /// background where need be.
    ///
    /// # Errors
    /// [`SemaphoreError`]; no lease of ours stays behind.
    pub async fn acquire(&self, permits: u32) -> Result<Guard, SemaphoreError> {
        self.run(permits, AcquireMode::Wait).await?.ok_or_else(|| {
            self.timed_out(permits, Duration::ZERO, WaitReason::Others { holder: None })
        })
    }

    /// Acquires `permits` permits if they are free now, else returns `None`. Waits for the server's
    /// answers, never for a holder.
    ///
    /// It may get permits that the first waiter does not wait for, before those behind that one.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Guard>, SemaphoreError> {
        self.run(permits, AcquireMode::IfFree).await
    }

    /// Like [`Semaphore::acquire`], for at most `limit`: one deadline over all wake-ups, reconnects
    /// and sessions.
    ///
    /// # Errors
    /// [`SemaphoreError::TimedOut`] when the time is up; else as `acquire`.
    pub async fn acquire_timeout(
        &self,
        permits: u32,
        limit: Duration,
    ) -> Result<Guard, SemaphoreError> {
        let (base, progress) = self.base.observed();
        let semaphore = Self {
            base,
            ..self.clone()
        };
        let timed_out = |waited_for| {
            // The holders are several: none of them is named.
            let waited_for = progress.waited_for(waited_for, limit).held_by(None);
            self.timed_out(permits, limit, waited_for)
        };
        at_most(
            limit,
            &self.base.client,
            semaphore.acquire(permits),
            timed_out,
        )
        .await
    }

    /// Returns the number of permits, as the tree has it now.
    ///
    /// # Errors
    /// [`SemaphoreError::NoMaximum`], [`SemaphoreError::ForeignData`], or what the connection fails
    /// with.
    pub async fn maximum(&self) -> Result<u32, SemaphoreError> {
        let session = self.base.session().await?;
        let path = || self.path().to_owned();
        let node = match session.get_data(self.path()).await {
            Ok(node) if node.data.is_empty() => {
                return Err(SemaphoreError::NoMaximum { path: path() });
            }
            Ok(node) => node,
            Err(error) if error.is_no_node() => {
                return Err(SemaphoreError::NoMaximum { path: path() });
            }
            Err(source) => {
                return Err(LockError::client(&path(), source).into());
            }
        };
        Maximum::new(&self.base.path, None)
            .read(&node)
            .map(|agreed| agreed.permits)
    }

    /// Changes the number of permits, for all participants, and returns the former number.
    ///
    /// More of them let waiters in at once. Fewer take nothing away from those who hold some:
    /// nobody gets more until enough has been released. Dropping the future does not take the
    /// change back once it is sent.
    ///
    /// # Errors
    /// [`SemaphoreError::BadMaximum`] for none. Where no answer came and the number was changed
    /// again meanwhile, what the client knows, as [`LockError::Client`]: read it before deciding.
    pub async fn resize(&self, permits: u32) -> Result<u32, SemaphoreError> {
        if permits == 0 {
            return Err(SemaphoreError::BadMaximum {
                path: self.path().to_owned(),
            });
        }
        self.maximum
            .change(&self.base.session().await?, permits)
            .await
    }

    fn timed_out(&self, permits: u32, limit: Duration, waited_for: WaitReason) -> SemaphoreError {
        SemaphoreError::TimedOut {
            path: self.path().to_owned(),
            permits,
            limit,
            waited_for,
        }
    }

    async fn run(&self, permits: u32, mode: AcquireMode) -> Result<Option<Guard>, SemaphoreError> {
        let span = spans::acquire(self.path());
        let outcome = self.attempts(permits, mode).instrument(span.clone()).await;
        if let Ok(Some(guard)) = &outcome {
            guard.acquired(&span);
        }
        outcome
    }

    async fn attempts(
        &self,
        permits: u32,
        mode: AcquireMode,
    ) -> Result<Option<Guard>, SemaphoreError> {
        loop {
            match self.attempt(permits, mode).await {
                Ok(outcome) => return Ok(outcome),
                Err(AttemptEnd::Again) => {}
                Err(AttemptEnd::Failed(error)) => return Err(error),
            }
        }
    }

    async fn attempt(&self, permits: u32, mode: AcquireMode) -> Result<Option<Guard>, AttemptEnd> {
        let (session, lease) = self.base.enter().await?;
        let asked = self.ask(&session, permits).await?;
        if asked.granted && (mode == AcquireMode::IfFree || asked.nobody_waits) {
            let (granted, token) = self.grant(&session, asked).await?;
            return Ok(Some(self.base.hold(granted, token, lease).await?));
        }
        // The leases go again: they would count before those of the first waiter.
        drop(asked);
        if mode == AcquireMode::IfFree {
            return Ok(None);
        }
        let mut turn = self.wait_for_turn(&session).await?;
        let asked = match self.ask_and_wait(&session, permits, &mut turn).await {
            Ok(asked) => asked,
            Err(stop) => return Err(stop.leaving([turn.waiter]).await),
        };
        let (granted, token) = self.grant(&session, asked).await?;
        // Not before the token is minted: the next one's must be greater.
        drop(turn);
        Ok(Some(self.base.hold(granted, token, lease).await?))
    }

    /// Asks for leases that count, as the first waiter.
    async fn ask_and_wait(
        &self,
        session: &Session,
        permits: u32,
        turn: &mut GrantedNode,
    ) -> Result<CreatedLeases, AttemptEnd> {
        let mut asked = self.ask(session, permits).await?;
        if !asked.granted
            && let Err(stop) = self.wait(session, &mut asked, turn).await
        {
            return Err(stop.leaving(asked.leases).await);
        }
        Ok(asked)
    }

    /// Puts leases into the tree, under the number of permits that the tree has at that instant,
    /// and reads whether they count.
    async fn ask(&self, session: &Session, permits: u32) -> Result<CreatedLeases, AttemptEnd> {
        let failed = |error: Error| self.failed(session, error);
        let data = Record::new(self.base.name.as_deref()).to_bytes();
        loop {
            let agreed = self
                .maximum
                .agree(session)
                .await
                .map_err(|error| self.over(session, error))?;
            self.fits(permits, agreed)?;
            let condition = [Op::check(self.path(), Some(agreed.version))];
            let new_leases = || (0..permits).map(|_| self.new_lease()).collect();
            let dirs = [&*self.leases, self.path(), &*self.locks];
            let joined = wait_queue::join_all(session, &condition, &new_leases, &data, &dirs).await;
            let group = match joined {
                Ok(group) => group,
                Err(error) if error.multi_index() == Some(0) => {
                    self.maximum.forget();
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            let mut listings = group.listings.into_iter();
            let (Some(leases), Some(above), Some(queue)) =
                (listings.next(), listings.next(), listings.next())
            else {
                return Err(AttemptEnd::Again);
            };
            let mut asked = CreatedLeases {
                leases: group.waiters,
                data,
                granted: false,
                nobody_waits: match queue {
                    Ok(queue) => queue.names.is_empty(),
                    Err(error) => error.is_no_node(),
                },
            };
            let (leases, above) = match (leases, above) {
                (Ok(leases), Ok(above)) => (leases, above),
                (Err(error), _) | (_, Err(error)) => {
                    return Err(self.restored(session, error).await);
                }
            };
            if let Some((child, whose)) = leases::foreign(&above.names) {
                let refusal = SemaphoreError::Foreign {
                    path: self.path().to_owned(),
                    child: child.to_owned(),
                    whose,
                };
                return Err(AttemptEnd::from(refusal).leaving(asked.leases).await);
            }
            if !agreed.is_that_of(&above.stat) {
                self.maximum.forget();
                return Err(AttemptEnd::Again);
            }
            let status = self.lease_status(session, leases.names, &asked.leases, agreed);
            asked.granted = match status.await {
                Ok(LeaseStatus::Gone) => return Err(AttemptEnd::Again),
                Ok(status) => status == LeaseStatus::Granted,
                Err(error) => return Err(self.restored(session, error).await),
            };
            return Ok(asked);
        }
    }

    fn new_lease(&self) -> NewNode {
        NewNode {
            dir: Arc::clone(&self.leases),
            prefix: format!("_c_{}-lease-", Uuid::new_v4().hyphenated()),
        }
    }

    async fn lease_status(
        &self,
        session: &Session,
        names: Vec<String>,
        mine: &[WaiterNode],
        agreed: AgreedMaximum,
    ) -> Result<LeaseStatus, Error> {
        leases::status(session, &self.leases, names, mine, agreed.permits).await
    }

    /// Waits in the mutex's queue until first.
    async fn wait_for_turn(&self, session: &Session) -> Result<GrantedNode, AttemptEnd> {
        let record = Record::new(self.base.name.as_deref());
        let prefix = self.base.own_prefix(&record.id, session);
        let (waiter, listing) = wait_queue::join(session, &self.locks, &prefix, &record.to_bytes())
            .await
            .map_err(|error| self.failed(session, error))?;
        let progress = self.base.progress.as_ref();
        if let Some(progress) = progress {
            progress.queued(waiter.path());
        }
        let report = |step: Step<'_>| {
            if let Some(progress) = progress {
                progress.step(&step);
            }
        };
        wait_queue::wait_for_turn(waiter, listing, self.base.contention(), report)
            .await
            .map_err(|error| self.base.attempt_error(session, error).into())
    }

    /// Waits until the leases count, as the first waiter. One watch on the leases, one on the
    /// number of permits.
    async fn wait(
        &self,
        session: &Session,
        asked: &mut CreatedLeases,
        turn: &mut GrantedNode,
    ) -> Result<(), AttemptEnd> {
        let permits = u32::try_from(asked.leases.len()).unwrap_or(u32::MAX);
        let mut kept;
        loop {
            // The leases first: those before ours only get fewer, so what is seen there still holds
            // when the number is read.
            let listing = session.children_watch(&self.leases);
            let number = session.get_data_watch(self.path());
            let (listing, number) = match (listing.await, number.await) {
                (Ok(listing), Ok(number)) => (listing, number),
                (Err(error), _) | (_, Err(error)) if error.is_no_node() => {
                    self.maximum.forget();
                    return Err(AttemptEnd::Again);
                }
                (Err(error), _) | (_, Err(error)) => {
                    let passed = retry::until_retryable(session, error).await;
                    passed.map_err(|error| self.failed(session, error))?;
                    continue;
                }
            };
            let ((leases, freed), (number, resized)) = (listing, number);
            let agreed = self.maximum.read(&number)?;
            self.fits(permits, agreed)?;
            let status = self.lease_status(session, leases.names, &asked.leases, agreed);
            match status.await {
                Ok(LeaseStatus::Granted) => return Ok(()),
                Ok(LeaseStatus::Waiting) => {}
                Ok(LeaseStatus::Gone) => return Err(AttemptEnd::Again),
                Err(error) => {
                    let passed = retry::until_retryable(session, error).await;
                    passed.map_err(|error| self.failed(session, error))?;
                    continue;
                }
            }
            // Kept into the next round, so that the watch need not be taken from the server and set
            // again.
            kept = resized;
            tokio::select! {
                biased;
                reason = turn.own_node.gone() => {
                    if reason == LostReason::NodeGone {
                        turn.waiter.disown();
                    }
                    return Err(AttemptEnd::Again);
                }
                _ = freed => {}
                _ = &mut kept => {}
            }
        }
    }

    /// Mints the token of leases that count.
    async fn grant(
        &self,
        session: &Session,
        asked: CreatedLeases,
    ) -> Result<(Vec<GrantedNode>, i64), AttemptEnd> {
        let leases = asked.leases.into_iter();
        let granted: Vec<_> = leases
            .map(|waiter| GrantedNode {
                own_node: OwnNodeWatch::watch(&waiter),
                waiter,
            })
            .collect();
        let Some(first) = granted.first().map(|lease| &lease.waiter) else {
            return Err(AttemptEnd::Again);
        };
        let token = wait_queue::mint_token(first, &asked.data)
            .await
            .map_err(|error| self.base.attempt_error(session, error))?;
        Ok((granted, token))
    }

    fn fits(&self, permits: u32, agreed: AgreedMaximum) -> Result<(), SemaphoreError> {
        let most = agreed.permits.min(MOST_AT_ONCE);
        if (1..=most).contains(&permits) {
            return Ok(());
        }
        Err(SemaphoreError::BadPermits {
            path: self.path().to_owned(),
            asked: permits,
            most,
        })
    }

    /// After a read that came to nothing: to be begun again once it can be repeated.
    async fn restored(&self, session: &Session, error: Error) -> AttemptEnd {
        match retry::until_retryable(session, error).await {
            Ok(()) => AttemptEnd::Again,
            Err(error) => self.failed(session, error),
        }
    }

    fn failed(&self, session: &Session, error: Error) -> AttemptEnd {
        self.base
            .attempt_error(session, AcquireError::from(error))
            .into()
    }

    /// With the session over, whatever went wrong comes down to that.
    fn over(&self, session: &Session, error: SemaphoreError) -> AttemptEnd {
        if session.state().is_final() {
            AttemptEnd::Again
        } else {
            error.into()
        }
    }
}

//! The acquisition that locks, semaphores and elections have in common.
//!
//! Owns the attempts over sessions and waiter nodes, and the grant rule: a guard is made only of a
//! node that is first, owned by our live session, under a lease that runs
//! (`docs/internals/hazards.md` §6.1). Must never carry a node or a marker from one session to the
//! next (H04).

use std::sync::Arc;
use std::time::Duration;

use baton_client::{Client, LeaseError, LeaseHold, Session};
use tracing::Instrument;
use uuid::Uuid;

use super::{LockError, WaitProgress};
use crate::background;
use crate::guard::Guard;
use crate::naming::{Dialect, LockMode, NamingScheme};
use crate::recipe_path;
use crate::record::{self, LONGEST_LOCK_DELAY, Record};
use crate::spans;
use crate::wait_queue::{
    self, AcquireError, Contention, DelayedUntil, GrantedNode, OwnNodeWatch, Position, Step,
    WaiterNode,
};

/// Pause between two checks of a lease that is not established yet.
const LEASE_PAUSE: Duration = Duration::from_millis(5);

/// Parameters of one lock acquisition.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    pub client: Client,
    pub path: Arc<str>,
    pub naming: NamingScheme,
    pub lock_mode: LockMode,
    pub name: Option<Arc<str>>,
    /// The process that the record shows; `None`: this one.
    pub pid: Option<u32>,
    /// The waiter node's data, in place of the record.
    pub data: Option<Arc<[u8]>>,
    /// Time that the next waiter leaves the lock alone if this process fails while it holds.
    pub lock_delay: Duration,
    /// Whether a release leaves a marker for observers.
    pub announces: bool,
    /// Shows the position in the wait queue.
    pub progress: Option<WaitProgress>,
}

/// The part of the waiter node's record that stays the same from its creation on.
#[derive(Clone, Copy)]
struct WaiterIdentity {
    id: Uuid,
    since_ms: u64,
}

/// Whether an acquisition waits for other holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcquireMode {
    /// Waits in the queue until first.
    Wait,
    /// Withdraws unless first at once.
    IfFree,
}

/// Way of an attempt's waiter node into the wait queue: always at its end.
enum JoinMode<'a> {
    /// It is created.
    Create,
    /// It is created, and does not wait for the node of this name, which is held as well.
    Beside(&'a str),
    /// It is created in the change that releases this node, which was first. Boxed so that the
    /// long-lived acquire future stays small.
    Requeue(Box<WaiterNode>),
}

/// A lock that was acquired.
pub(crate) struct Grant {
    pub guard: Guard,
    /// The id in the waiter node's record.
    pub id: Uuid,
}

/// Progress of an acquisition, for its caller.
pub(crate) enum Report<'a> {
    Offering,
    Offered(&'a str),
    Step(Step<'a>),
}

impl Acquisition {
    /// An exclusive lock at `path`.
    pub(crate) fn new(client: &Client, path: &str, dialect: Dialect) -> Result<Self, LockError> {
        Self::of(
            client,
            path,
            NamingScheme::Exclusive(dialect),
            LockMode::Exclusive,
        )
    }

    pub(crate) fn of(
        client: &Client,
        path: &str,
        naming: NamingScheme,
        lock_mode: LockMode,
    ) -> Result<Self, LockError> {
        recipe_path::check(path, "cannot be a wait queue")
            .map_err(|why| LockError::bad_path(path, why))?;
        Ok(Self {
            client: client.clone(),
            path: Arc::from(path),
            naming,
            lock_mode,
            name: None,
            pid: None,
            data: None,
            lock_delay: Duration::ZERO,
            announces: false,
            progress: None,
        })
    }

    /// The same acquisition, with a place to read the position from.
    pub(crate) fn observed(&self) -> (Self, WaitProgress) {
        let progress = self.progress.clone().unwrap_or_default();
        progress.outside();
        let acquisition = Self {
            progress: Some(progress.clone()),
            ..self.clone()
        };
        (acquisition, progress)
    }

    /// Acquires the lock, waiting for all who came before.
    pub(crate) async fn acquire(
        &self,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Grant, LockError> {
        loop {
            if let Some(grant) = self.run(AcquireMode::Wait, report).await? {
                return Ok(grant);
            }
        }
    }

    /// Acquires the lock; `None` only with [`AcquireMode::IfFree`], where others hold it or wait.
    pub(crate) async fn run(
        &self,
        mode: AcquireMode,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Option<Grant>, LockError> {
        let span = spans::acquire(&self.path);
        let outcome = self
            .run_held_off(mode, DelayedUntil::default(), report)
            .instrument(span.clone())
            .await;
        if let Ok(Some(grant)) = &outcome {
            grant.guard.acquired(&span);
        }
        outcome
    }

    async fn run_held_off(
        &self,
        mode: AcquireMode,
        mut held_off: DelayedUntil,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Option<Grant>, LockError> {
        loop {
            let attempt = async {
                let (session, lease) = Box::pin(self.enter()).await?;
                self.attempt(
                    session,
                    lease,
                    mode,
                    JoinMode::Create,
                    &mut held_off,
                    report,
                )
                .await
            };
            match attempt.await {
                // Out of the wait queue through no fault of the caller's: back to its end.
                Err(AttemptError::Again) => {}
                Err(AttemptError::Failed(error)) => return Err(error),
                Ok(grant) => return Ok(grant),
            }
        }
    }

    /// Releases `held` and acquires the lock again, behind all who wait now: in one change where
    /// `held` is one node of this wait queue.
    pub(crate) async fn acquire_again(
        &self,
        held: Guard,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Grant, LockError> {
        let span = spans::acquire(&self.path);
        let outcome = self.requeue(held, report).instrument(span.clone()).await;
        if let Ok(grant) = &outcome {
            grant.guard.acquired(&span);
        }
        outcome
    }

    async fn requeue(
        &self,
        held: Guard,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Grant, LockError> {
        let (session, lease) = (held.session().clone(), held.lease().clone());
        let node = held.surrender().map_err(|reason| LockError::Lost {
            path: self.path.to_string(),
            reason,
        })?;
        let (mode, mut held_off) = (AcquireMode::Wait, DelayedUntil::default());
        match node {
            Some(node) if node.is_marked() && node.dir() == &*self.path => {
                let start = JoinMode::Requeue(Box::new(node));
                let attempt = self.attempt(session, lease, mode, start, &mut held_off, report);
                match attempt.await {
                    Ok(Some(grant)) => return Ok(grant),
                    Ok(None) | Err(AttemptError::Again) => {}
                    Err(AttemptError::Failed(error)) => return Err(error),
                }
            }
            // Of another wait queue, or with a name that others use.
            Some(node) => drop(node.release()),
            None => {}
        }
        loop {
            if let Some(grant) = self.run_held_off(mode, held_off, report).await? {
                return Ok(grant);
            }
        }
    }

    /// Naming scheme and lock mode of this waiter.
    pub(crate) fn contention(&self) -> Contention<'static> {
        Contention {
            naming: self.naming,
            mode: self.lock_mode,
            beside: None,
        }
    }

    /// Name of the waiter node, without its number.
    pub(crate) fn own_prefix(&self, marker: &Uuid, session: &Session) -> String {
        self.naming.own_prefix(self.lock_mode, marker, session.id())
    }

    /// Returns the data of our node: the caller's choice, else the record, but for participants
    /// that take it for a host's name.
    fn own_data(&self, record: &Record) -> Vec<u8> {
        match &self.data {
            Some(data) => data.to_vec(),
            None if self.naming == NamingScheme::Exclusive(Dialect::ElectionSupport) => {
                record.host.clone().into_bytes()
            }
            None => record.to_bytes(),
        }
    }

    /// Acquires the lock if nobody but `held` holds it or waits, without waiting, in the same
    /// session.
    pub(crate) async fn try_beside(&self, held: &Guard) -> Result<Option<Grant>, LockError> {
        let beside = baton_proto::path::name(held.node());
        loop {
            held.check().map_err(|reason| LockError::Lost {
                path: self.path.to_string(),
                reason,
            })?;
            let attempt = async {
                let session = held.session().clone();
                let lease = self.lease(&session).await?;
                let (mode, start) = (AcquireMode::IfFree, JoinMode::Beside(beside));
                let mut held_off = DelayedUntil::default();
                self.attempt(session, lease, mode, start, &mut held_off, &mut |_| {})
                    .await
            };
            match attempt.await {
                // The node that is held may be what is gone, before its guard has heard of it.
                Err(AttemptError::Again) => {
                    if let Ok(None) = held.session().exists(held.node()).await {
                        held.node_gone();
                    }
                }
                Err(AttemptError::Failed(error)) => return Err(error),
                Ok(grant) => return Ok(grant),
            }
        }
    }

    async fn attempt(
        &self,
        session: Session,
        lease: LeaseHold,
        mode: AcquireMode,
        start: JoinMode<'_>,
        held_off: &mut DelayedUntil,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Option<Grant>, AttemptError> {
        let (beside, node) = match start {
            JoinMode::Create => (None, None),
            JoinMode::Beside(name) => (Some(name), None),
            JoinMode::Requeue(node) => (None, Some(node)),
        };
        let contention = Contention {
            beside,
            ..self.contention()
        };
        let report = &mut |what: Report<'_>| {
            if let Some(progress) = &self.progress {
                match &what {
                    Report::Offering => progress.outside(),
                    Report::Offered(node) => progress.queued(node),
                    Report::Step(step) => progress.step(step),
                }
            }
            report(what);
        };
        report(Report::Offering);
        let identity = WaiterIdentity {
            id: Uuid::new_v4(),
            since_ms: record::now_ms(),
        };
        // Boxed so that the long-lived acquire future stays small.
        let (waiter, listing) = Box::pin(self.join(&session, identity, node)).await?;
        report(Report::Offered(waiter.path()));
        let granted = if mode == AcquireMode::IfFree {
            match Box::pin(wait_queue::position_or_withdraw(
                waiter, listing, contention,
            ))
            .await
            {
                Ok((waiter, Position::First)) => {
                    let own_node = OwnNodeWatch::watch(&waiter);
                    Ok(GrantedNode { waiter, own_node })
                }
                Ok((_, Position::Behind { .. })) => return Ok(None),
                Err(error) => Err(error),
            }
        } else {
            let step = |step: Step<'_>| report(Report::Step(step));
            wait_queue::wait_for_turn_delayed(waiter, listing, contention, held_off, step).await
        };
        let granted = granted.map_err(|error| self.attempt_error(&session, error))?;
        let token = if self.naming.mints_tokens() {
            let data = self.own_data(&self.record(identity));
            Box::pin(wait_queue::mint_token(&granted.waiter, &data))
                .await
                .map_err(|error| self.attempt_error(&session, error))?
        } else {
            granted.waiter.czxid()
        };
        let guard = Box::pin(self.hold(vec![granted], token, lease)).await?;
        Ok(Some(Grant {
            guard,
            id: identity.id,
        }))
    }

    fn record(&self, identity: WaiterIdentity) -> Record {
        Record {
            id: identity.id,
            since_ms: identity.since_ms,
            lock_delay_ms: (!self.lock_delay.is_zero())
                .then(|| u64::try_from(self.lock_delay.as_millis()).unwrap_or(u64::MAX)),
            announces: self.announces,
            ..Record::of(self.name.as_deref(), self.pid)
        }
    }

    /// Our node, where need be in the step that releases `node`, and the children seen right after
    /// its creation unless that reply was lost.
    async fn join(
        &self,
        session: &Session,
        identity: WaiterIdentity,
        node: Option<Box<WaiterNode>>,
    ) -> Result<(WaiterNode, Option<Vec<String>>), AttemptError> {
        let prefix = self.own_prefix(&identity.id, session);
        let data = self.own_data(&self.record(identity));
        let joined = match node {
            Some(node) => node.requeue(&prefix, &data).await,
            None => wait_queue::join(session, &self.path, &prefix, &data)
                .await
                .map(Some)
                .map_err(AcquireError::from),
        };
        let (mut waiter, listing) = joined
            .map_err(|error| self.attempt_error(session, error))?
            .ok_or(AttemptError::Again)?;
        if !self.lock_delay.is_zero() {
            waiter.note_lock_delay();
        }
        if self.announces {
            waiter.note_observers();
        }
        Ok((waiter, listing))
    }

    /// A live session, and a hold on its lease.
    pub(crate) async fn enter(&self) -> Result<(Session, LeaseHold), AttemptError> {
        let session = self.session().await?;
        let lease = self.lease(&session).await?;
        Ok((session, lease))
    }

    /// The client's live session.
    pub(crate) async fn session(&self) -> Result<Session, LockError> {
        if self.lock_delay > LONGEST_LOCK_DELAY {
            return Err(LockError::LockDelay {
                path: self.path.to_string(),
                asked: self.lock_delay,
                longest: LONGEST_LOCK_DELAY,
            });
        }
        let session = self.client.session().await;
        session.map_err(|source| LockError::connect(&self.path, source))
    }

    /// A hold on the lease: from here on, not from the grant on, for a lease that runs already
    /// makes a hand-over one watch event long.
    async fn lease(&self, session: &Session) -> Result<LeaseHold, AttemptError> {
        match session.hold_lease().await {
            Ok(lease) => Ok(lease),
            Err(LeaseError::SessionEnded(_)) => Err(AttemptError::Again),
            Err(source) => {
                let path = self.path.to_string();
                Err(LockError::Lease { path, source }.into())
            }
        }
    }

    /// The guard of what was granted on one session, once a lease runs: see [`Guard::new`].
    pub(crate) async fn hold(
        &self,
        granted: Vec<GrantedNode>,
        token: i64,
        lease: LeaseHold,
    ) -> Result<Guard, AttemptError> {
        let waiters: Vec<_> = granted.iter().map(|one| &one.waiter).collect();
        for waiter in waiters {
            let session = waiter.session();
            if needs_renewal(session) {
                renew(session, waiter)
                    .await
                    .map_err(|error| self.attempt_error(session, error))?;
            }
        }
        let mut granted = granted.into_iter();
        let Some(first) = granted.next() else {
            return Err(AttemptError::Again);
        };
        let guard = Guard::new(first, granted.collect(), token, lease);
        match guard.check() {
            Ok(()) => Ok(guard),
            Err(_) => Err(AttemptError::Again),
        }
    }

    pub(crate) fn attempt_error(&self, session: &Session, error: AcquireError) -> AttemptError {
        // Whatever went wrong, with the session over it comes down to that.
        if session.state().is_final() {
            return AttemptError::Again;
        }
        let path = self.path.to_string();
        match error {
            AcquireError::OwnNodeGone | AcquireError::SessionLost => AttemptError::Again,
            AcquireError::Foreign { child, why } => LockError::Foreign {
                path,
                child,
                dialect: self.naming.as_str(),
                why,
            }
            .into(),
            AcquireError::Client(source) => LockError::Client { path, source }.into(),
        }
    }
}

/// An attempt that led to no grant.
pub(crate) enum AttemptError<E = LockError> {
    /// Out of the wait queue through no fault of the caller's: to be begun again.
    Again,
    Failed(E),
}

impl<E> From<E> for AttemptError<E> {
    fn from(error: E) -> Self {
        Self::Failed(error)
    }
}

impl<E> AttemptError<E> {
    /// Withdraws `nodes`. A refusal is returned once they are gone, so that a caller that tries
    /// again at once does not meet them.
    pub(crate) async fn leaving(self, nodes: impl IntoIterator<Item = WaiterNode>) -> Self {
        if let Self::Failed(_) = self {
            wait_queue::withdraw_all(nodes).await;
        }
        self
    }
}

/// Returns whether the lease is too short to begin with: run out (H29), or less than what a held
/// lease always has while servers answer. A session that was idle has such a lease until its second
/// write is acknowledged.
pub(crate) fn needs_renewal(session: &Session) -> bool {
    session.lease().remaining() < session.timeout() / 3
}

/// Asks the server whether node and session are still ours, and waits for a lease that rests on
/// later answers. A lease that runs but does not get longer in time is taken as it is: the servers
/// are slow.
pub(crate) async fn renew(session: &Session, waiter: &WaiterNode) -> Result<(), AcquireError> {
    let patience = session.timeout() / 8;
    let mut pause = LEASE_PAUSE;
    loop {
        wait_queue::read_own(waiter).await?;
        let some = !session.lease().remaining().is_zero();
        if some && (pause > patience || !needs_renewal(session)) {
            return Ok(());
        }
        background::sleep(session, pause).await;
        pause = (pause * 2).min(patience * 2);
    }
}

//! The context of all barriers: a path, a client, and what to do after a failure.
//!
//! Owns the distinction between "read again" and "give up". It may say "read again" after a change
//! that was perhaps applied, because every loop here reads the tree before it changes it.

use std::sync::Arc;
use std::time::Duration;

use baton_client::{Client, Data, Error, Session};
use tokio::time::Instant;

use super::BarrierError;
use crate::background;
use crate::recipe_path;
use crate::retry;
use crate::time_limit::{WaitReason, at_most};
use crate::wait_queue::AcquireError;

#[derive(Clone, Debug)]
pub(super) struct BarrierContext {
    pub client: Client,
    pub path: Arc<str>,
}

/// Reason why an attempt did not come to its end.
#[derive(Debug)]
pub(super) enum AttemptFailure {
    /// Through no fault of the caller's: begin again, perhaps with another session.
    Again,
    Failed(BarrierError),
}

impl From<BarrierError> for AttemptFailure {
    fn from(error: BarrierError) -> Self {
        Self::Failed(error)
    }
}

/// Deadline and the limit that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    at: Instant,
    asked: Duration,
}

impl Limit {
    pub(super) fn of(asked: Duration) -> Option<Self> {
        let at = Instant::now().checked_add(asked)?;
        Some(Self { at, asked })
    }
}

impl BarrierContext {
    pub(super) fn new(client: &Client, path: &str) -> Result<Self, BarrierError> {
        recipe_path::check(path, "cannot be one")
            .map_err(|why| BarrierError::bad_path(path, why))?;
        Ok(Self {
            client: client.clone(),
            path: Arc::from(path),
        })
    }

    /// Returns when the time is up; never without a limit.
    pub(super) async fn passed(&self, limit: Option<Limit>) {
        match limit {
            Some(limit) => background::sleep_until(&self.client, limit.at).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn child(&self, name: &str) -> String {
        baton_proto::path::join(&self.path, name)
    }

    pub(super) async fn session(&self) -> Result<Session, BarrierError> {
        self.client
            .session()
            .await
            .map_err(|source| BarrierError::connect(&self.path, source))
    }

    /// Refuses to wait for none, or for more than `most`.
    pub(super) fn fits(&self, count: u32, most: u32) -> Result<(), BarrierError> {
        if (1..=most).contains(&count) {
            return Ok(());
        }
        Err(BarrierError::BadCount {
            path: self.path.to_string(),
            count,
            most,
        })
    }

    /// Attempts with one session after the other until one comes to an end.
    pub(super) async fn run<T, F>(&self, attempt: impl Fn(Session) -> F) -> Result<T, BarrierError>
    where
        F: Future<Output = Result<T, AttemptFailure>>,
    {
        loop {
            let session = self.session().await?;
            match attempt(session).await {
                Ok(done) => return Ok(done),
                Err(AttemptFailure::Again) => {}
                Err(AttemptFailure::Failed(error)) => return Err(error),
            }
        }
    }

    pub(super) fn foreign(&self, what: &str) -> BarrierError {
        BarrierError::Foreign {
            node: self.path.to_string(),
            what: what.to_owned(),
        }
    }

    /// Drives a wait for at most `limit`.
    pub(super) async fn at_most<T>(
        &self,
        limit: Duration,
        wait: impl Future<Output = Result<T, BarrierError>>,
    ) -> Result<T, BarrierError> {
        let timed_out = |waited_for| self.timed_out_after(limit, waited_for);
        at_most(limit, &self.client, wait, timed_out).await
    }

    /// Error that ends an attempt whose limit has passed.
    pub(super) fn timed_out(&self, limit: Option<Limit>) -> AttemptFailure {
        limit.map_or(AttemptFailure::Again, |Limit { asked, .. }| {
            let waited_for = WaitReason::now(&self.client, asked);
            self.timed_out_after(asked, waited_for).into()
        })
    }

    fn timed_out_after(&self, limit: Duration, waited_for: WaitReason) -> BarrierError {
        BarrierError::timed_out(&self.path, limit, waited_for)
    }

    /// After `error`: returns once the tree may be read again on this session.
    pub(super) async fn after(
        &self,
        session: &Session,
        error: Error,
    ) -> Result<(), AttemptFailure> {
        match retry::until_readable(session, error).await {
            Ok(()) => Ok(()),
            Err(_) if session.state().is_final() => Err(AttemptFailure::Again),
            Err(source) => Err(BarrierError::client(&self.path, source).into()),
        }
    }

    /// After an attempt to change a round's node: returns once the node may be read again, which
    /// shows who has decided, or that a member has gone.
    pub(super) async fn settled(
        &self,
        session: &Session,
        outcome: Result<(), Error>,
    ) -> Result<(), AttemptFailure> {
        match outcome {
            Ok(()) => Ok(()),
            Err(error) if error.is_bad_version() || error.is_no_node() => {
                // Behind the change that was in the way, so that the next read shows it.
                drop(session.sync(&self.path));
                Ok(())
            }
            Err(error) => self.after(session, error).await,
        }
    }

    /// [`BarrierContext::after`] for a wait for another node.
    pub(super) async fn after_acquire_error(
        &self,
        session: &Session,
        error: AcquireError,
    ) -> Result<(), AttemptFailure> {
        match error {
            AcquireError::Client(error) => self.after(session, error).await,
            _ => Err(AttemptFailure::Again),
        }
    }

    /// A node's data, not older than what was committed when this was called; `None` where there is
    /// no node.
    pub(super) async fn read(
        &self,
        session: &Session,
        node: &str,
    ) -> Result<Option<Data>, AttemptFailure> {
        loop {
            match session
                .read_latest(node, |session| session.get_data(node))
                .await
            {
                Ok(data) => return Ok(Some(data)),
                Err(error) if error.is_no_node() => return Ok(None),
                Err(error) => self.after(session, error).await?,
            }
        }
    }

    /// The names of a node's children; none where there is no node.
    pub(super) async fn children(
        &self,
        session: &Session,
        node: &str,
    ) -> Result<Vec<String>, AttemptFailure> {
        loop {
            match session.children(node).await {
                Ok(children) => return Ok(children.names),
                Err(error) if error.is_no_node() => return Ok(Vec::new()),
                Err(error) => self.after(session, error).await?,
            }
        }
    }
}

//! From "wants it" to a [`Guard`]: what the mutex and the election do alike.
//!
//! Owns the loop over sessions and places in line, and the grant rule: a guard is made only of a node that is first, owned by
//! our live session, under a lease that runs (`docs/hazards.md` §6.1). Must never carry a node or a marker from one session to
//! the next (H04).

use crate::dialect::Dialect;
use crate::guard::Guard;
use crate::line::{self, Contender, Granted, OwnNode, Place, Step, Trouble};
use crate::lock::LockError;
use crate::record::Record;
use baton_client::{Client, LeaseError, LeaseHold, Session};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Pause between two looks at a lease that is not established yet.
const LEASE_PAUSE: Duration = Duration::from_millis(5);

/// Who wants what, under which names.
#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    pub client: Client,
    pub path: Arc<str>,
    pub dialect: Dialect,
    pub name: Option<Arc<str>>,
}

pub(crate) enum Grant {
    Held(Guard, Uuid),
    Busy,
}

/// What happens on the way.
pub(crate) enum Report<'a> {
    Offering,
    Offered(&'a str),
    Step(Step<'a>),
}

impl Campaign {
    pub(crate) fn new(client: &Client, path: &str, dialect: Dialect) -> Result<Self, LockError> {
        let bad = |why: String| LockError::BadPath {
            path: path.to_owned(),
            why,
        };
        baton_proto::path::validate(path).map_err(|error| bad(error.to_string()))?;
        if path == "/" {
            return Err(bad(
                "the root cannot be a line; name a node below it".to_owned()
            ));
        }
        Ok(Self {
            client: client.clone(),
            path: Arc::from(path),
            dialect,
            name: None,
        })
    }

    /// Stands in line until first, or, with `only_if_free`, leaves again at once if not first.
    pub(crate) async fn run(
        &self,
        only_if_free: bool,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Grant, LockError> {
        loop {
            match self.attempt(only_if_free, report).await {
                // Out of the line for no fault of the caller's: back to its end.
                Err(Attempt::Again) => {}
                Err(Attempt::Failed(error)) => return Err(error),
                Ok(grant) => return Ok(grant),
            }
        }
    }

    /// Our name in the line, without its number.
    pub(crate) fn own_prefix(&self, marker: &Uuid, session: &Session) -> Result<String, LockError> {
        self.dialect
            .own_prefix(marker, session.id())
            .ok_or_else(|| LockError::ReadOnlyDialect {
                path: self.path.to_string(),
                dialect: self.dialect,
            })
    }

    async fn attempt(
        &self,
        only_if_free: bool,
        report: &mut (dyn FnMut(Report<'_>) + Send),
    ) -> Result<Grant, Attempt> {
        let (session, lease) = self.enter().await?;
        let record = Record::new(self.name.as_deref());
        let prefix = self.own_prefix(&record.id, &session)?;
        report(Report::Offering);
        let (contender, listing) = line::join(&session, &self.path, &prefix, &record.to_bytes())
            .await
            .map_err(|error| self.trouble(&session, error.into()))?;
        report(Report::Offered(contender.path()));
        let granted = if only_if_free {
            match line::look(&contender, listing, self.dialect).await {
                Ok(Place::First) => {
                    let own_node = OwnNode::watch(&contender);
                    Ok(Granted {
                        contender,
                        own_node,
                    })
                }
                Ok(Place::Behind { .. }) => return Ok(Grant::Busy),
                Err(trouble) => Err(trouble),
            }
        } else {
            let step = |step: Step<'_>| report(Report::Step(step));
            line::stand(contender, listing, self.dialect, step).await
        };
        let granted = granted.map_err(|trouble| self.trouble(&session, trouble))?;
        let token = granted.contender.czxid();
        let guard = self.hold(vec![granted], token, lease).await?;
        Ok(Grant::Held(guard, record.id))
    }

    /// A live session, and a hold on its lease.
    pub(crate) async fn enter(&self) -> Result<(Session, LeaseHold), Attempt> {
        let path = || self.path.to_string();
        let session = self
            .client
            .session()
            .await
            .map_err(|source| LockError::Connect {
                path: path(),
                source,
            })?;
        // From here on, not from the grant on: a lease that runs already makes a hand-over one watch event long.
        match session.hold_lease().await {
            Ok(lease) => Ok((session, lease)),
            Err(LeaseError::SessionEnded(_)) => Err(Attempt::Again),
            Err(source) => {
                let path = path();
                Err(LockError::Lease { path, source }.into())
            }
        }
    }

    /// The guard of what was granted on one session, once a lease runs: see [`Guard::new`].
    pub(crate) async fn hold(
        &self,
        granted: Vec<Granted>,
        token: i64,
        lease: LeaseHold,
    ) -> Result<Guard, Attempt> {
        let contenders: Vec<_> = granted.iter().map(|one| &one.contender).collect();
        for contender in contenders {
            let session = contender.session();
            if session.lease().remaining().is_zero() {
                renew(session, contender)
                    .await
                    .map_err(|trouble| self.trouble(session, trouble))?;
            }
        }
        let mut granted = granted.into_iter();
        let Some(first) = granted.next() else {
            return Err(Attempt::Again);
        };
        let guard = Guard::new(first, granted.collect(), token, lease);
        match guard.check() {
            Ok(()) => Ok(guard),
            Err(_) => Err(Attempt::Again),
        }
    }

    pub(crate) fn trouble(&self, session: &Session, trouble: Trouble) -> Attempt {
        // Whatever went wrong, with the session over it comes down to that.
        if session.state().is_final() {
            return Attempt::Again;
        }
        let path = self.path.to_string();
        match trouble {
            Trouble::OwnNodeGone | Trouble::SessionLost => Attempt::Again,
            Trouble::Foreign { child, why } => LockError::Foreign {
                path,
                child,
                dialect: self.dialect,
                why,
            }
            .into(),
            Trouble::Client(source) => LockError::Client { path, source }.into(),
        }
    }
}

/// An attempt that led to no grant.
pub(crate) enum Attempt {
    /// Out of the line for no fault of the caller's: to be begun anew.
    Again,
    Failed(LockError),
}

impl From<LockError> for Attempt {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}

/// The news "you are first" came after the lease had run out (H29): asks the server whether node and session are still ours,
/// and waits for a lease that rests on its answer.
async fn renew(session: &Session, contender: &Contender) -> Result<(), Trouble> {
    loop {
        line::read_own(contender).await?;
        if !session.lease().remaining().is_zero() {
            return Ok(());
        }
        tokio::time::sleep(LEASE_PAUSE).await;
    }
}

//! Observation of the leader, without competing.
//!
//! Owns one watch at a time, on the first of the wait queue, so that a hundred observers cost the
//! server a hundred watches and a change of leader wakes each of them once, while followers that
//! come and go wake none. Who asks for reasons has two more, beside it.

use baton_client::{Data, EventKind, Session, Watch};

use super::departure::{Departure, DepartureWatches};
use super::{ElectionError, Leader};
use crate::acquire::{Acquisition, LockError};
use crate::record::Record;
use crate::retry;
use crate::wait_queue::{self, AcquireError};

/// Stream of the leaders of an election. Dropping it removes its watch.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let election = baton::LeaderElection::new(&client, "/primary")?;
/// let mut observer = election.leaders().with_reasons();
/// loop {
///     let leader = observer.next().await?;
///     println!("{leader:?} leads; the one before: {:?}", observer.departure());
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Observer {
    acquisition: Acquisition,
    reported: Option<Option<(u64, String)>>,
    watch: Option<Watch>,
    reasons: bool,
    /// For the markers of the leader that was seen last.
    departure_watches: Option<DepartureWatches>,
    /// The change that its offer went by, where the watch has reported that.
    end: Option<i64>,
    /// Reason why the leader reported last has gone, as soon as that is known.
    gone: Option<Departure>,
    departure: Option<Departure>,
}

/// The leader, and the watch for a change; `None` where what was seen has changed already.
type HeadRead = Option<(Option<Leader>, Watch)>;

impl Observer {
    pub(super) fn new(acquisition: Acquisition) -> Self {
        Self {
            acquisition,
            reported: None,
            watch: None,
            reasons: false,
            departure_watches: None,
            end: None,
            gone: None,
            departure: None,
        }
    }

    /// Also finds out why leaders leave: see [`Observer::departure`]. Costs two more watches, and
    /// the requests that set them.
    #[must_use]
    pub fn with_reasons(mut self) -> Self {
        self.reasons = true;
        self
    }

    /// Returns why the leader before the last reported one left. `None` without a former leader, or
    /// without [`Observer::with_reasons`].
    #[must_use]
    pub fn departure(&self) -> Option<Departure> {
        self.departure
    }

    /// Returns the present leader at first, and later each change: the next leader, or `None` when
    /// there is no candidate any more. Leaders that came and went between two reads are skipped.
    /// Cancel-safe.
    ///
    /// # Errors
    /// [`ElectionError`] where it cannot be found out; asking again is allowed.
    pub async fn next(&mut self) -> Result<Option<Leader>, ElectionError> {
        let path = self.acquisition.path.to_string();
        loop {
            if let Some(watch) = &mut self.watch {
                let outdated = async {
                    match &self.departure_watches {
                        Some(departure_watches) => departure_watches.outdated().await,
                        None => std::future::pending().await,
                    }
                };
                // Changed or lost: either way, read again.
                self.end = tokio::select! {
                    biased;
                    event = watch => event
                        .ok()
                        .filter(|event| event.kind == EventKind::NodeDeleted)
                        .and_then(|event| event.zxid),
                    () = outdated => None,
                };
                self.watch = None;
            }
            let session = self.acquisition.session().await?;
            let (leader, watch) = match self.read_head(&session).await {
                Ok(Some((leader, watch))) => (leader, watch),
                Ok(None) | Err(AcquireError::SessionLost | AcquireError::OwnNodeGone) => continue,
                Err(AcquireError::Foreign { child, why }) => {
                    let dialect = self.acquisition.naming.as_str();
                    return Err(LockError::Foreign {
                        path,
                        child,
                        dialect,
                        why,
                    }
                    .into());
                }
                Err(AcquireError::Client(error)) => {
                    retry::until_retryable(&session, error)
                        .await
                        .map_err(|source| ElectionError::client(&path, source))?;
                    continue;
                }
            };
            let seen = leader
                .as_ref()
                .map(|leader| (leader.token, leader.node.clone()));
            if self.reasons && !self.listen(&session, leader.as_ref()).await? {
                continue;
            }
            self.watch = Some(watch);
            if self.reported.as_ref() != Some(&seen) {
                self.reported = Some(seen);
                self.departure = self.gone.take();
                return Ok(leader);
            }
        }
    }

    /// Notes why the leader before has gone, if it has, and watches for the markers of this one.
    /// `false`: its offer is to be read again, behind the watches for that.
    async fn listen(
        &mut self,
        session: &Session,
        leader: Option<&Leader>,
    ) -> Result<bool, ElectionError> {
        if let Some(departure_watches) = self
            .departure_watches
            .take_if(|departure_watches| !departure_watches.are_of(leader))
        {
            // Of a leader that was seen and not yet reported, nobody asks.
            self.gone
                .get_or_insert(departure_watches.departure(self.end));
        }
        let Some(leader) = leader else {
            return Ok(true);
        };
        if let Some(departure_watches) = &mut self.departure_watches
            && departure_watches.is_current()
        {
            departure_watches.note(leader);
            return Ok(true);
        }
        match DepartureWatches::of(session, leader, self.departure_watches.as_ref()).await {
            Ok(departure_watches) => self.departure_watches = Some(departure_watches),
            Err(_) if session.state().is_final() => {}
            Err(error) => {
                retry::until_retryable(session, error)
                    .await
                    .map_err(|source| ElectionError::client(&self.acquisition.path, source))?;
            }
        }
        Ok(false)
    }

    async fn read_head(&self, session: &Session) -> Result<HeadRead, AcquireError> {
        let dir = &*self.acquisition.path;
        let children = match session.children(dir).await {
            Ok(children) => children.names,
            Err(error) if error.is_no_node() => {
                let (stat, watch) = session.exists_watch(dir).await?;
                return Ok(if stat.is_some() {
                    None
                } else {
                    Some((None, watch))
                });
            }
            Err(error) => return Err(error.into()),
        };
        let waiters = wait_queue::arranged(session, dir, children, self.acquisition.naming).await?;
        let Some(head) = waiters.first() else {
            let (children, watch) = match session.children_watch(dir).await {
                Ok(read) => read,
                Err(error) if error.is_no_node() => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let waiters =
                wait_queue::arranged(session, dir, children.names, self.acquisition.naming).await?;
            return Ok(if waiters.is_empty() {
                Some((None, watch))
            } else {
                None
            });
        };
        let node = baton_proto::path::join(dir, &head.name);
        match session.get_data_watch(&node).await {
            Ok((Data { data, stat }, watch)) => {
                let leader = Leader {
                    node,
                    token: u64::try_from(stat.czxid).unwrap_or_default(),
                    session_id: stat.ephemeral_owner,
                    since_ms: stat.ctime,
                    record: Record::from_bytes(&data),
                    data: data.to_vec(),
                };
                Ok(Some((Some(leader), watch)))
            }
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

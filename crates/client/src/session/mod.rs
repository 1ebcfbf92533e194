//! Handle of one session with the servers.
//!
//! Owns what users see of a session. It must never hand out another session's identity: when this
//! one is over, it stays over, and its user makes a new one explicitly (`hazards.md` G7).
//!
//! | module | owns |
//! |---|---|
//! | `driver` | connect, run, reconnect until the session is over |
//! | `handshake` | the first frames of a connection: TLS, the session, SASL |
//! | `connection` | one connection's bytes and timers |
//! | `replies` | strict matching of replies to operations; what a lost connection means |
//! | `membership` | the members of the ensemble, changed while it runs |
//! | `cleanup` | deletes that go on until it is certain |
//! | `protected` | creates that can be found again |
//! | `ops`, `decode` | the operations; from a reply's bytes to a value |
//! | `pending`, `watch` | what users hold: an operation on its way, a watch |
//! | `core` | what handles and driver share: queues, counters, the lease, behind one lock |
//! | `entry` | one operation between its submission and its end |
//! | `outcome` | how an operation ended; what is delivered after the lock is released |
//! | `watches` | what the server watches, and who waits for it |
//! | `event_queue` | the queue of a persistent watch |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use baton_proto::Acl;
use tokio::sync::oneshot;

use crate::clock::{BootInstant, Clock};
use crate::config::Config;
use crate::error::{CloseError, ConnectError, LeaseError};
use crate::session::core::{Core, Identity, Phase, Policy};
use crate::state::{EndReason, State, StateStream};
use crate::values::SessionExport;

mod cleanup;
mod connection;
mod core;
mod decode;
mod driver;
mod entry;
mod event_queue;
mod handshake;
mod membership;
mod ops;
mod outcome;
mod pending;
mod protected;
mod replies;
mod watch;
mod watches;

pub use cleanup::{Cleanup, CleanupError, DeleteOptions, Deletion};
pub use event_queue::{PersistentEvent, WatchEvent};
pub use pending::{Pending, PendingApplied, WithZxid};
pub use watch::{PersistentWatch, Watch};

/// Handle of one session with the servers, cheap to clone. It never changes to another session.
///
/// It reconnects by itself for as long as the session lives; when it is over, it stays over.
/// Operations are submitted at the call, in order, whatever task calls; see
/// [`Pending`](crate::Pending). It runs on a thread of the client's own, so it does not matter
/// which runtime, if any, its user is on ([`Config::runtime`] chooses another).
///
/// When the last handle is dropped the session is closed. While a server is connected the drop
/// waits for the server's confirmation, a quarter of a second at most, so that a program may end
/// at once without leaving a lock behind. [`Session::close`] waits longer, and without blocking the
/// thread.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use baton_client::{Config, CreateMode, Session};
///
/// let session = Session::connect(Config::new("127.0.0.1:2181")?).await?;
/// // Both go to the server in one write; the answers come in order.
/// let created = session.create("/greeting", b"hello", CreateMode::Ephemeral);
/// let read = session.get_data("/greeting");
/// created.await?;
/// assert_eq!(&read.await?.data[..], b"hello");
/// session.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    pub(crate) core: Arc<Core>,
    /// `None` in a handle that does not keep the session open.
    _handles: Option<Arc<Handles>>,
    policy: Policy,
    /// The ACL of the nodes that this handle creates; `None`: open to everybody.
    acl: Option<Arc<[Acl<'static>]>>,
}

/// The ACL of nodes whose creator has not asked for another.
static OPEN: [Acl<'static>; 1] = [Acl::open_unsafe()];

/// Dropped with the last handle.
struct Handles(Arc<Core>);

impl Drop for Handles {
    fn drop(&mut self) {
        self.0.begin_close();
        self.0.await_close();
    }
}

/// The instant until which a session is known to live, by this machine's clock. Until then the
/// servers cannot have granted its locks to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Time at which it ends; [`BootInstant::ZERO`] when there is none, or no more.
    pub deadline: BootInstant,
    now: BootInstant,
}

impl Lease {
    /// Returns the time that was left when the lease was read; zero when it had ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(self.now)
    }

    /// Returns whether the lease had not ended when it was read.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.now < self.deadline
    }
}

/// Token that keeps the lease renewed while it exists: see [`Session::hold_lease`].
#[must_use = "the lease is only renewed while this exists"]
pub struct LeaseHold {
    core: Arc<Core>,
}

impl Clone for LeaseHold {
    fn clone(&self) -> Self {
        self.core.inner.lock().lease_holds += 1;
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        let mut inner = self.core.inner.lock();
        inner.lease_holds = inner.lease_holds.saturating_sub(1);
    }
}

impl fmt::Debug for LeaseHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHold").finish_non_exhaustive()
    }
}

/// The ACL in a form that handles share.
pub(crate) fn shared_acl(acl: &[Acl<'_>]) -> Arc<[Acl<'static>]> {
    acl.iter().cloned().map(Acl::into_owned).collect()
}

impl Session {
    /// Opens a new session, trying the servers in random order until one accepts.
    ///
    /// Cancellation: a session that the server has opened by then is closed in the background.
    ///
    /// # Errors
    /// [`ConnectError::Unreachable`] after [`Config::connect_within`], [`ConnectError::AuthFailed`]
    /// when the configured credentials are refused, [`ConnectError::Sasl`] when SASL fails,
    /// [`ConnectError::NoChroot`] where the configured chroot does not exist,
    /// [`ConnectError::NoRuntime`] where the client's thread cannot be started.
    pub async fn connect(config: Config) -> Result<Self, ConnectError> {
        let session = Self::start(
            config,
            Identity {
                id: 0,
                password: [0; 16],
            },
            0,
        )
        .await?;
        session.check_chroot().await?;
        Ok(session)
    }

    /// Without this check, each create would fail because a parent is missing, for a path whose
    /// parent is `/`.
    async fn check_chroot(&self) -> Result<(), ConnectError> {
        let config = &self.core.config;
        if config.chroot.is_empty() {
            return Ok(());
        }
        let asking = self.with_deadline(config.connect_within);
        let mut found = asking.exists("/").await;
        if let Ok(None) = found {
            // It may be younger than what this server has seen.
            let caught_up = asking.sync("/");
            found = asking.exists("/").await;
            if caught_up.await.is_err() {
                return Ok(());
            }
        }
        match found {
            Ok(None) => Err(ConnectError::NoChroot {
                servers: config.servers(),
                chroot: config.chroot.clone(),
            }),
            // Without an answer, the user's first operation reports the failure.
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    /// Resumes a session that this or another process has exported. The session moves here: the
    /// servers close its connection elsewhere.
    ///
    /// # Errors
    /// [`ConnectError::Expired`] when the session is over, else as [`Session::connect`].
    pub async fn resume(config: Config, session: &SessionExport) -> Result<Self, ConnectError> {
        let identity = Identity {
            id: session.id,
            password: session.password,
        };
        Self::start(config, identity, session.last_zxid).await
    }

    async fn start(
        config: Config,
        identity: Identity,
        last_zxid: i64,
    ) -> Result<Self, ConnectError> {
        if let Some(problem) = config.problem() {
            return Err(ConnectError::BadConfig(problem));
        }
        if config.lacks_tls() {
            return Err(ConnectError::TlsNotConfigured {
                servers: config.servers(),
            });
        }
        let runtime = config.chosen_runtime()?;
        let core = Arc::new(Core::new(config, identity, last_zxid, runtime));
        let (to, first) = oneshot::channel();
        core.runtime.spawn(driver::drive(Arc::clone(&core), to));
        // From here on: the caller may go away between the driver's answer and this task's next
        // turn.
        let handles = Arc::new(Handles(Arc::clone(&core)));
        first.await.map_err(|_| ConnectError::NoRuntime)??;
        core.wait_credentials().await?;
        Ok(Self {
            core,
            _handles: Some(handles),
            policy: Policy::default(),
            acl: None,
        })
    }

    /// The id by which the servers know the session, and which its ephemeral nodes carry as their
    /// owner.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.core.inner.lock().identity.id
    }

    /// Returns the runtime of the session's task: the client's own thread, or the one of
    /// [`Config::runtime`]. While it is blocked, the lease is not renewed.
    #[must_use]
    pub fn runtime(&self) -> tokio::runtime::Handle {
        self.core.runtime.clone()
    }

    /// Returns the secret with which another process can resume the session.
    #[must_use]
    pub fn password(&self) -> [u8; 16] {
        self.core.inner.lock().identity.password
    }

    /// The session timeout that the server granted.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.core.inner.lock().timeout
    }

    /// Number of connections that the session has had.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.core.inner.lock().epoch
    }

    /// Returns the zxid of the newest change that an answer to this session has shown.
    #[must_use]
    pub fn last_zxid(&self) -> i64 {
        self.core.inner.lock().last_zxid
    }

    /// Returns the present state. A final state stays; a session whose timeout has passed is
    /// reported as expired even if its task has not run since.
    #[must_use]
    pub fn state(&self) -> State {
        self.core.state()
    }

    /// Returns why the session ended, or `None` while it lives.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        if !self.state().is_final() {
            return None;
        }
        Some(self.core.end_reason())
    }

    /// Returns a stream of every state change from now on, in order.
    #[must_use]
    pub fn states(&self) -> StateStream {
        self.core.states.listen()
    }

    /// Resolves when the session is over, with the reason.
    pub async fn ended(&self) -> EndReason {
        self.core.wait_ended().await;
        self.core.end_reason()
    }

    /// Returns the lease. Wait-free: one atomic load and one reading of the clock.
    #[must_use]
    pub fn lease(&self) -> Lease {
        Lease {
            deadline: self.core.lease_deadline(),
            now: self.core.now(),
        }
    }

    /// Returns the time for which no server has answered: since the oldest unanswered request was
    /// sent or, without a connection, since the newest answered one was sent. Zero while connected
    /// with nothing unanswered.
    #[must_use]
    pub fn unanswered_for(&self) -> Duration {
        let inner = self.core.inner.lock();
        let since = match inner.phase {
            Phase::Attached => inner.oldest_unacknowledged(),
            Phase::Detached | Phase::Ended(_) => Some(inner.last_acked),
        };
        let now = self.core.now();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Resolves when the lease has ended; at once when there is none.
    ///
    /// It wakes at the deadline that it has seen last, and sleeps on if that has moved meanwhile.
    pub async fn lease_ended(&self) {
        loop {
            let deadline = self.core.lease_deadline();
            if self.core.now() >= deadline {
                return;
            }
            tokio::select! {
                biased;
                () = self.core.wait_ended() => return,
                () = self.core.config.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// Keeps the lease renewed for as long as the token lives. On Baton's server four pings in each
    /// session timeout do that; on any other, two small quorum writes each quarter of the timeout
    /// and a ping each sixteenth, per session, however many tokens there are.
    /// [`LeaseMode`](crate::LeaseMode) has the choice.
    ///
    /// # Errors
    /// [`LeaseError::TimeoutTooShort`] when no sound lease can be kept with the session's timeout;
    /// it names the smallest that would do. [`LeaseError::TimingNotStated`] for
    /// [`LeaseMode::Ping`](crate::LeaseMode::Ping) without the ensemble's timing.
    pub async fn hold_lease(&self) -> Result<LeaseHold, LeaseError> {
        loop {
            let changed = self.core.changed.notified();
            {
                let mut inner = self.core.inner.lock();
                if let Phase::Ended(reason) = inner.phase {
                    return Err(LeaseError::SessionEnded(reason));
                }
                match inner.lease.check() {
                    Ok(()) => {
                        inner.lease_holds += 1;
                        let waker = inner.waker.take();
                        drop(inner);
                        if let Some(waker) = waker {
                            waker.wake();
                        }
                        return Ok(LeaseHold {
                            core: Arc::clone(&self.core),
                        });
                    }
                    // Whether the server is Baton's decides it, and that is not known yet.
                    Err(_) if !inner.probe_answered => {}
                    Err(e) => return Err(e),
                }
            }
            changed.await;
        }
    }

    /// Returns a handle of this session whose operations fail at once while there is no connection.
    #[must_use]
    pub fn fail_fast(&self) -> Self {
        let policy = Policy {
            fail_fast: true,
            ..self.policy
        };
        Self {
            policy,
            ..self.clone()
        }
    }

    /// Returns a handle of this session whose operations end at the latest `limit` after their
    /// call. Without a limit they wait for a connection until the session has ended.
    #[must_use]
    pub fn with_deadline(&self, limit: Duration) -> Self {
        let policy = Policy {
            limit: Some(limit),
            ..self.policy
        };
        Self {
            policy,
            ..self.clone()
        }
    }

    /// Returns a handle of this session that creates nodes with this ACL instead of one that is
    /// open to everybody: [`Session::create`], and the parts of [`Session::multi`] that name no ACL
    /// of their own. Nothing is sent; the server refuses an ACL that is empty or not valid when a
    /// node is created.
    ///
    /// ```no_run
    /// # async fn example(client: baton_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use baton_client::{Acl, CreateMode};
    ///
    /// // Only those who have authenticated as this session has.
    /// let session = client.session().await?.with_acl(&[Acl::creator_all()]);
    /// session.create("/secret", b"42", CreateMode::Persistent).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_acl(&self, acl: &[Acl<'_>]) -> Self {
        self.with_shared_acl(Some(shared_acl(acl)))
    }

    pub(crate) fn with_shared_acl(&self, acl: Option<Arc<[Acl<'static>]>>) -> Self {
        Self {
            acl,
            ..self.clone()
        }
    }

    /// The ACL of the nodes that this handle creates: see [`Session::with_acl`].
    #[must_use]
    pub fn acl(&self) -> &[Acl<'static>] {
        self.acl.as_deref().unwrap_or(&OPEN)
    }

    pub(crate) fn for_cleanup(&self) -> Self {
        let policy = Policy {
            cleanup: true,
            ..Policy::default()
        };
        Self {
            policy,
            ..self.clone()
        }
    }

    /// Returns a handle of this session that does not keep it open: for background tasks that must
    /// not keep the session alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            _handles: None,
            ..self.clone()
        }
    }

    /// Returns the clock of the session's lease. Its timers run on the session's runtime, so they
    /// may be awaited anywhere.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.core.config.clock)
    }

    /// Returns the credentials with which another process can [`Session::resume`] the session if
    /// this process dies. While this one lives it would take the session back: see
    /// [`Session::hand_over`].
    #[must_use]
    pub fn export(&self) -> SessionExport {
        let inner = self.core.inner.lock();
        SessionExport {
            id: inner.identity.id,
            password: inner.identity.password,
            last_zxid: inner.last_zxid,
        }
    }

    /// Hands the session over, for another process to [`Session::resume`] it. Operations in flight
    /// count as lost, the handles as closed; the nodes stay.
    #[must_use = "without it nobody can take the session up, and its nodes stay until its timeout has run out"]
    pub fn hand_over(&self) -> SessionExport {
        let export = self.export();
        self.core.end(EndReason::Closed);
        export
    }

    /// Ends the session: finishes its pending cleanup, sends what is queued, and waits for the
    /// server's confirmation that its ephemeral nodes are gone. New operations, through any handle,
    /// are refused from now on.
    ///
    /// `Ok` also when the session had ended before. Cancellation: the close goes on in the
    /// background.
    ///
    /// # Errors
    /// [`CloseError::Unconfirmed`] when that took longer than the session's timeout; the session
    /// counts as closed here, and the servers end it when its timeout has run out.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.close_timeout(self.timeout()).await
    }

    /// Like [`Session::close`], for at most `limit`.
    ///
    /// # Errors
    /// As [`Session::close`], after `limit`.
    pub async fn close_timeout(&self, limit: Duration) -> Result<(), CloseError> {
        self.core.begin_close();
        let clock = &self.core.config.clock;
        let (id, timeout) = {
            let inner = self.core.inner.lock();
            (inner.identity.id, inner.timeout)
        };
        tokio::select! {
            biased;
            () = self.core.wait_ended() => {}
            () = clock.sleep_until(clock.now() + limit) => {
                self.core.end(EndReason::Closed);
                return Err(CloseError::Unconfirmed { id, waited: limit, timeout });
            }
        }
        Ok(())
    }

    /// Returns whether both are handles of one session.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &format_args!("0x{:x}", self.id()))
            .field("state", &self.core.states.current())
            .finish_non_exhaustive()
    }
}

//! A command under a guard: the part that `lock` and `sem` share.
//!
//! Owns the way from the options to the guard, and from the guard to the exit code. The command has
//! ended and was reaped before the guard is released (`hazards.md` H85); how it is run and stopped
//! is decided by `tenure`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton::lock::{LockError, ReadGuard, WaitProgress, WriteGuard};
use baton::semaphore::SemaphoreError;
use baton::{Client, Guard, LostReason, Mutex, RwLock, Semaphore};

use crate::connection::Connection;
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::run::lease;
use crate::run::nested::{self, LockRequest};
use crate::run::options::RunOptions;
use crate::run::stop::Stop;
use crate::run::supervise::{Command, SessionTicket};
use crate::run::tenure::{self, Tenure};
use crate::signals::{self, Signals};
use crate::waiting::{AwaitedEvent, Role};

/// Options of the wait for a lock.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitOptions {
    /// Wait at most this long, else exit with 124.
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Do not wait at all.
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
    /// The exit code for "not acquired in time".
    #[arg(hide_short_help = true, short = 'E', long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
}

impl WaitOptions {
    /// Whether the wait has no limit.
    fn is_endless(&self) -> bool {
        !self.no_wait && self.wait.is_none()
    }
}

/// The lock or permits to acquire.
pub(crate) enum LockTarget {
    /// The lock itself.
    Lock(Mutex),
    /// A read lock, shared with other readers.
    Read(RwLock),
    /// A write lock.
    Write(RwLock),
    /// This number of permits.
    Permits(Semaphore, u32),
}

/// This number of permits of the semaphore at `path`, under the name to show to others.
pub(crate) fn permits(
    client: &Client,
    path: &str,
    slots: Option<u32>,
    permits: u32,
    name: &str,
) -> Result<LockTarget, Failure> {
    if let Some(slots) = slots.filter(|slots| *slots < permits) {
        return Err(Failure::usage(format!(
            "--permits {permits} of --slots {slots} can never be acquired; ask for fewer"
        )));
    }
    let semaphore = match slots {
        Some(slots) => Semaphore::new(client, path, slots),
        None => Semaphore::open(client, path),
    };
    let semaphore = semaphore.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(LockTarget::Permits(semaphore.name(name), permits))
}

/// Connects, acquires what `want` makes of the client, runs the command of the options under it,
/// and releases it.
pub(crate) async fn acquire_and_run(
    context: &Context,
    options: &RunOptions,
    wait: &WaitOptions,
    want: impl FnOnce(&Client) -> Result<LockTarget, Failure>,
) -> Result<u8, Failure> {
    let (connection, mut signals) = match options.open(context).await? {
        ControlFlow::Continue(opened) => opened,
        ControlFlow::Break(code) => return Ok(code),
    };
    let outcome = match want(&connection.client) {
        Ok(wanted) => hold(context, options, wait, wanted, &connection, &mut signals).await,
        Err(failure) => Err(failure),
    };
    connection.close().await;
    outcome
}

async fn hold(
    context: &Context,
    options: &RunOptions,
    wait: &WaitOptions,
    wanted: LockTarget,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let progress = WaitProgress::new();
    let wanted = wanted.progress(&progress);
    let path = wanted.path();
    let awaited = AwaitedEvent::Turn {
        path,
        role: wanted.role(),
        progress,
    };
    let acquiring = async {
        // With a limit the wait ends.
        if wait.is_endless() {
            nested::refuse(connection, path, wanted.asked()).await?;
        }
        wanted.acquire(wait).await
    };
    let waiting = Instant::now();
    let guard = tokio::select! {
        guard = connection.wait(&awaited, acquiring) => guard?,
        number = signals.stop() => return Ok(signals::ended_by(number)),
    };
    context.output.verbose(|| {
        format!(
            "{path} acquired after {}, token {}",
            duration::show(waiting.elapsed()),
            guard.token()
        )
    });
    let what = (path, wanted.what());
    let outcome = under(context, options, what, &guard, connection, signals).await;
    tenure::conclude(
        context,
        outcome,
        options.on_lost,
        path,
        guard.release().confirmed(),
    )
    .await
}

/// Runs the command under the guard, or holds it without one.
async fn under(
    context: &Context,
    options: &RunOptions,
    (path, what): (&str, &'static str),
    guard: &Guard,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let session = guard.session();
    let holding = HeldGuard { guard, what };
    let acquired_at_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
    let (node, token) = (guard.node(), guard.token());
    let session_id = format!("0x{:x}", session.id());
    let words = options.words();
    if words.is_empty() {
        let text = format!("held {path} token {token} node {node} session {session_id}");
        let held = record! { path, node, token, session: session_id, acquired_at_ms };
        context.output.result(&held, text);
        let holding = tenure::hold(&holding, signals);
        return match connection.wait(&AwaitedEvent::News { path }, holding).await {
            Ok(number) => Ok(signals::lasted_until(number)),
            Err(stop) => Err(stop.failure(path)),
        };
    }
    // The command ends before its lock does, also where the lease ends first and the session lives
    // on.
    if let Err(reason) = guard.keep_node() {
        return Err(Stop::Lost(reason).failure(path));
    }
    let timeout = session.timeout();
    let command = Command {
        words,
        environment: vec![
            ("BATON_PATH", path.to_owned()),
            ("BATON_NODE", node.to_owned()),
            ("BATON_TOKEN", token.to_string()),
            ("BATON_SESSION", session_id.clone()),
            ("BATON_ACQUIRED_AT", acquired_at_ms.to_string()),
            nested::variable(&session_id, node),
        ],
        on_lost: options.on_lost,
        kill_after: options.notice(timeout)?,
        json: context.output.json(),
        input: None,
        session: SessionTicket::of(connection, session),
    };
    let health = options.health()?;
    let outcome = tenure::run_while_held(
        context,
        &holding,
        &command,
        health.as_ref(),
        timeout,
        signals,
    )
    .await?;
    tenure::exit_code(&outcome, options.on_lost, path)
}

/// A guard, and the name of what it holds.
struct HeldGuard<'a> {
    guard: &'a Guard,
    what: &'static str,
}

impl Tenure for HeldGuard<'_> {
    fn what(&self) -> &'static str {
        self.what
    }
    fn remaining(&self) -> Duration {
        self.guard.remaining()
    }
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.guard.lost()
    }
    fn asked(&self) -> impl Future<Output = ()> + Send + 'static {
        asked(self.guard.on_revoke())
    }
}

/// Resolves when somebody asks the holder to release. Never resolves if the guard ends first, which
/// [`Tenure::lost`] reports.
pub(crate) async fn asked(asking: impl Future<Output = Result<(), LostReason>>) {
    if asking.await.is_err() {
        std::future::pending().await
    }
}

impl LockTarget {
    fn what(&self) -> &'static str {
        match self {
            Self::Lock(_) => "the lock",
            Self::Read(_) => "the shared lock",
            Self::Write(_) => "the exclusive lock",
            Self::Permits(..) => "the semaphore's permit",
        }
    }

    /// The same, with its position in the wait queue reported in `progress`.
    fn progress(self, progress: &WaitProgress) -> Self {
        match self {
            Self::Lock(mutex) => Self::Lock(mutex.progress(progress)),
            Self::Read(lock) => Self::Read(lock.progress(progress)),
            Self::Write(lock) => Self::Write(lock.progress(progress)),
            Self::Permits(semaphore, permits) => {
                Self::Permits(semaphore.progress(progress), permits)
            }
        }
    }

    fn asked(&self) -> LockRequest {
        match self {
            Self::Lock(_) | Self::Write(_) => LockRequest::Exclusive,
            Self::Read(_) => LockRequest::Shared,
            Self::Permits(_, permits) => LockRequest::Permits(*permits),
        }
    }

    fn role(&self) -> Role {
        match self {
            Self::Lock(_) | Self::Read(_) | Self::Write(_) => Role::Holder,
            Self::Permits(..) => Role::PermitHolder,
        }
    }

    fn path(&self) -> &str {
        match self {
            Self::Lock(mutex) => mutex.path(),
            Self::Read(lock) | Self::Write(lock) => lock.path(),
            Self::Permits(semaphore, _) => semaphore.path(),
        }
    }

    async fn acquire(&self, wait: &WaitOptions) -> Result<Guard, Failure> {
        let acquired = match self {
            Self::Lock(mutex) => acquire_lock(mutex, wait).await,
            Self::Read(lock) => acquire_to_read(lock, wait).await,
            Self::Write(lock) => acquire_to_write(lock, wait).await,
            Self::Permits(semaphore, permits) => acquire_permits(semaphore, *permits, wait).await,
        };
        acquired?.ok_or_else(|| self.busy(wait))
    }

    fn busy(&self, wait: &WaitOptions) -> Failure {
        let path = self.path();
        let waited = wait.wait.map_or_else(String::new, |limit| {
            format!(" within {}", duration::show(limit))
        });
        let why = match self {
            Self::Lock(_) | Self::Read(_) | Self::Write(_) => {
                format!(
                    "{path} not acquired{waited}: somebody else holds it; see who: baton lock show {path}"
                )
            }
            Self::Permits(_, permits) => format!(
                "{path}: {permits} permit(s) not acquired{waited}: others hold them; see who: baton lock show {path}"
            ),
        };
        Failure::new(wait.conflict_exit_code, "not_acquired", why)
    }
}

/// The guard, or `None` where the time was up.
async fn acquire_lock(mutex: &Mutex, wait: &WaitOptions) -> Result<Option<Guard>, Failure> {
    let outcome = match (wait.no_wait, wait.wait) {
        (true, _) => mutex.try_acquire().await,
        (false, Some(limit)) => mutex.acquire_timeout(limit).await.map(Some),
        (false, None) => mutex.acquire().await.map(Some),
    };
    in_time(outcome)
}

/// The guard, or `None` where the time was up.
async fn acquire_to_read(lock: &RwLock, wait: &WaitOptions) -> Result<Option<Guard>, Failure> {
    let outcome = match (wait.no_wait, wait.wait) {
        (true, _) => lock.try_read().await,
        (false, Some(limit)) => lock.read_timeout(limit).await.map(Some),
        (false, None) => lock.read().await.map(Some),
    };
    in_time(outcome.map(|held| held.map(ReadGuard::into_guard)))
}

/// The guard, or `None` where the time was up.
async fn acquire_to_write(lock: &RwLock, wait: &WaitOptions) -> Result<Option<Guard>, Failure> {
    let outcome = match (wait.no_wait, wait.wait) {
        (true, _) => lock.try_write().await,
        (false, Some(limit)) => lock.write_timeout(limit).await.map(Some),
        (false, None) => lock.write().await.map(Some),
    };
    in_time(outcome.map(|held| held.map(WriteGuard::into_guard)))
}

fn in_time(outcome: Result<Option<Guard>, LockError>) -> Result<Option<Guard>, Failure> {
    match outcome {
        Err(LockError::TimedOut { waited_for, .. }) if waited_for.is_others() => Ok(None),
        Err(LockError::Foreign {
            path, child, why, ..
        }) => Err(Failure::baton(format!(
            "{path}: refused, because of its child {child:?}: {why}; one path has either plain locks, or locks with -s and -x, or permits"
        ))),
        Err(error) => Err(lease::not_acquired(&error)),
        Ok(guard) => Ok(guard),
    }
}

/// The guard, or `None` where the time was up.
async fn acquire_permits(
    semaphore: &Semaphore,
    permits: u32,
    wait: &WaitOptions,
) -> Result<Option<Guard>, Failure> {
    let outcome = match (wait.no_wait, wait.wait) {
        (true, _) => semaphore.try_acquire(permits).await,
        (false, Some(limit)) => semaphore.acquire_timeout(permits, limit).await.map(Some),
        (false, None) => semaphore.acquire(permits).await.map(Some),
    };
    match outcome {
        Err(SemaphoreError::TimedOut { waited_for, .. }) if waited_for.is_others() => Ok(None),
        Err(SemaphoreError::Lock(error)) => Err(lease::not_acquired(&error)),
        Err(error @ SemaphoreError::TimedOut { .. }) => {
            Err(Failure::new(exit::BATON, "connection", error.to_string()))
        }
        Err(error @ SemaphoreError::NoMaximum { .. }) => {
            Err(Failure::baton(format!("{error}: --slots K")))
        }
        Err(error) => Err(Failure::baton(error.to_string())),
        Ok(guard) => Ok(guard),
    }
}

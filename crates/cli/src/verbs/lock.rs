//! `baton lock`: a command under a lock, and the looks at locks that go with it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton::{Guard, LockError, Mutex, ReleaseError};
use serde::Serialize;

use crate::args::Context;
use crate::connect::Connection;
use crate::duration;
use crate::exit::{self, Failure};
use crate::signals::{self, Signals};
use crate::supervise::Command;
use crate::tenure::{self, RunOptions};
use crate::verbs::lines;

/// Run a command while holding a lock that one process at a time can hold, on any machine.
///
/// Waits in line until the lock is free, runs CMD, and releases the lock when CMD has ended. If the lock is being lost
/// (the servers cannot be reached, say), CMD is stopped before anyone else can get it. If this baton is killed, CMD is
/// killed too. Without CMD the lock is held until a signal comes; the first line of output says that it is held.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "ls|show|break",
    override_usage = "baton lock [OPTIONS] PATH [-- CMD...]\n       baton lock ls [PREFIX]\n       baton lock show PATH\n       baton lock break PATH --token N",
    after_help = "Examples:
  baton lock /deploy -- ./deploy.sh            wait as long as it takes
  baton lock -n /nightly -- backup             only if it is free now, else exit 124
  baton lock -w 30s /deploy -c 'make && make install'
  baton lock /deploy                           hold it until Ctrl-C
  baton lock show /deploy                      who holds it, who waits

CMD finds in its environment:
  BATON_PATH         the lock's path         BATON_SESSION      the session's id
  BATON_NODE         our node under it       BATON_ACQUIRED_AT  when, in ms since 1970
  BATON_TOKEN        the fencing token: grows with every grant. Pass it on to what CMD writes to,
                     and have a smaller one refused there than was seen before.

Exit codes:  CMD's own   128+N CMD died of signal N   113 the lock was lost and CMD stopped
             124 not acquired in time (-E changes it)   125 baton failed   2 usage
             126 CMD cannot be run   127 CMD not found
Signals:     INT TERM HUP QUIT USR1 USR2 are passed on to CMD's process group."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    admin: Option<Admin>,
    /// The lock: a path like /deploy, the same for all who contend.
    #[arg(required = true, value_name = "PATH")]
    path: Option<String>,
    /// Wait for the lock at most this long, then exit 124 [default: for ever].
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Do not wait at all.
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,
    /// The exit code for "not acquired in time".
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, clap::Subcommand)]
enum Admin {
    /// List the locks that are held, with holders and numbers of waiters.
    Ls {
        /// Only below this path.
        #[arg(value_name = "PREFIX", default_value = "/")]
        prefix: String,
    },
    /// Show who holds a lock and who waits, in order. Exits with 1 if nobody does.
    Show {
        /// The lock's path.
        path: String,
    },
    /// Take a lock away from its holder: it is told, and stops. Exits with 1 if the holder has changed.
    Break {
        /// The lock's path.
        path: String,
        /// The holder's token, as `lock show` tells it: whoever holds it with another token is left alone.
        #[arg(long, value_name = "N")]
        token: u64,
    },
}

/// What is said of a lock that was acquired without a command.
#[derive(Serialize)]
struct Held<'a> {
    path: &'a str,
    node: &'a str,
    token: u64,
    session: String,
    acquired_at_ms: u64,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(async {
        match (&args.admin, &args.path) {
            (Some(Admin::Ls { prefix }), _) => lines::list(context, prefix).await,
            (Some(Admin::Show { path }), _) => lines::show(context, path).await,
            (Some(Admin::Break { path, token }), _) => {
                lines::break_holder(context, path, *token).await
            }
            (None, Some(path)) => lock(args, path, context).await,
            (None, None) => Err(Failure::usage(
                "a lock needs a path, like /deploy; see baton lock --help",
            )),
        }
    })?
}

async fn lock(args: &Args, path: &str, context: &Context) -> Result<u8, Failure> {
    let options = &args.run;
    // Before anything is asked of a server: what can be refused without one.
    options.notice(options.session_timeout)?;
    let mut signals = Signals::new()?;
    let connecting = Connection::open(context, options.session());
    let connection = tokio::select! {
        connection = connecting => connection?,
        number = signals.stop() => return Ok(signals::exit_code(number)),
    };
    let outcome = hold(args, path, context, &connection, &mut signals).await;
    connection.close().await;
    outcome
}

async fn hold(
    args: &Args,
    path: &str,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let options = &args.run;
    let mutex = Mutex::new(&connection.client, path)
        .map_err(|error| Failure::usage(error.to_string()))?
        .name(&options.shown_name());
    let waiting = Instant::now();
    let guard = tokio::select! {
        guard = acquire(&mutex, args) => guard?,
        number = signals.stop() => return Ok(signals::exit_code(number)),
    };
    context.output.verbose(|| {
        format!(
            "{path} acquired after {}, token {}",
            duration::show(waiting.elapsed()),
            guard.token()
        )
    });
    let outcome = under(args, path, context, &guard, signals).await;
    // The command has ended and was reaped: now, and not before, the lock may pass on.
    match tokio::time::timeout(Duration::from_secs(3), guard.release()).await {
        Ok(Ok(())) => outcome,
        Ok(Err(ReleaseError::Lost { reason, .. }))
            if outcome.is_ok() && args.run.on_lost != crate::supervise::OnLost::Ignore =>
        {
            Err(Failure::new(
                exit::LOST,
                "lost",
                format!("{path} was lost as the command ended ({reason}); check what it did last"),
            ))
        }
        Ok(Err(error)) => {
            context.output.verbose(|| error.to_string());
            outcome
        }
        Err(_) => {
            context.output.note(format!(
                "{path}: no server confirmed the release; the lock passes on at the latest when the session times out"
            ));
            outcome
        }
    }
}

/// Runs the command under the lock, or holds it without one.
async fn under(
    args: &Args,
    path: &str,
    context: &Context,
    guard: &Guard,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let options = &args.run;
    let session = guard.session();
    let acquired_at_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
    let held = Held {
        path,
        node: guard.node(),
        token: guard.token(),
        session: format!("0x{:x}", session.id()),
        acquired_at_ms,
    };
    let words = options.words();
    if words.is_empty() {
        let text = format!(
            "held {path} token {} node {} session {}",
            held.token, held.node, held.session
        );
        context.output.result(&held, text);
        return match tenure::hold(guard, signals).await {
            Ok(_) => Ok(exit::OK),
            Err(reason) => Err(Failure::new(
                exit::LOST,
                "lost",
                format!("{path} was lost: {reason}; run it again to wait in line"),
            )),
        };
    }
    let timeout = session.timeout();
    let command = Command {
        words,
        environment: vec![
            ("BATON_PATH", path.to_owned()),
            ("BATON_NODE", held.node.to_owned()),
            ("BATON_TOKEN", held.token.to_string()),
            ("BATON_SESSION", held.session.clone()),
            ("BATON_ACQUIRED_AT", acquired_at_ms.to_string()),
        ],
        on_lost: options.on_lost,
        kill_after: options.notice(timeout)?,
        json: context.output.json(),
    };
    let outcome = tenure::run(context, guard, &command, timeout, signals).await?;
    tenure::verdict(&outcome, options.on_lost, path)
}

async fn acquire(mutex: &Mutex, args: &Args) -> Result<Guard, Failure> {
    let path = mutex.path();
    let busy = |waited: String| {
        Failure::new(
            args.conflict_exit_code,
            "not_acquired",
            format!(
                "{path} not acquired{waited}: somebody else holds it; see who: baton lock show {path}"
            ),
        )
    };
    let failed = |error: LockError| match error {
        LockError::TimedOut { limit, .. } => busy(format!(" within {}", duration::show(limit))),
        error => tenure::not_acquired(&error),
    };
    match (args.no_wait, args.wait) {
        (true, _) => mutex
            .try_acquire()
            .await
            .map_err(failed)?
            .ok_or_else(|| busy(String::new())),
        (false, Some(limit)) => mutex.acquire_timeout(limit).await.map_err(failed),
        (false, None) => mutex.acquire().await.map_err(failed),
    }
}

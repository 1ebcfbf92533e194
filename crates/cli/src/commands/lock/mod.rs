//! `baton lock`: a command under a lock; below it, the verbs that list and end locks.

pub(super) mod admin;

use std::time::Duration;

use baton::{Client, Mutex, RwLock};

use crate::context::Context;
use crate::duration;
use crate::exit::Failure;
use crate::paths::{self, Prefix};
use crate::run::guard::{self, LockTarget, WaitOptions};
use crate::run::options::RunOptions;

/// Run a command while holding a lock that one process on any machine can hold.
///
/// Waits until the lock is free, runs CMD, and releases it when CMD has ended. If the lock is being
/// lost, CMD is stopped before another process can acquire it, and killed if this process is.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "ls|show|revoke|break",
    override_usage = "baton lock [OPTIONS] PATH [-- CMD...]\n       baton lock ls [PREFIX]\n       baton lock show PATH\n       baton lock revoke PATH [--token N]\n       baton lock break PATH --token N",
    after_help = "Examples:
  baton lock /deploy -- ./deploy.sh            wait as long as it takes
  baton lock -n /nightly -- backup             only if it is free; else 124
  baton lock -w 30s /deploy -c 'make && ./x'
  baton lock /deploy                           hold it until Ctrl-C
  baton lock show /deploy                      who holds it, who waits
  baton lock -s /prices -- ./read-it           beside others who use -s
  baton lock -x /prices -- ./change-it         alone

CMD's environment has BATON_PATH, BATON_NODE, BATON_SESSION, BATON_ACQUIRED_AT
(ms since 1970) and BATON_TOKEN, the fencing token, which grows with each grant:
a store should refuse a smaller token than it has seen.

Exit codes:  CMD's own   128+N CMD died of signal N
             113 the lock was lost or revoked; CMD was stopped
             124 not acquired in time (-E changes it)   125 baton failed
             2 usage   126 CMD cannot be run   127 CMD not found
Signals are passed on to CMD's process group.
The lease on ZooKeeper ensembles: baton help lease."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    admin: Option<Admin>,
    /// The lock: a path like /deploy, the same for all.
    #[arg(required = true, value_name = "PATH", value_parser = paths::recipe)]
    path: Option<String>,
    /// Acquire the read lock, shared with other readers.
    #[arg(short, long, conflicts_with = "slots")]
    shared: bool,
    /// Acquire the write lock, where others use --shared.
    #[arg(short = 'x', long, conflicts_with_all = ["slots", "shared"])]
    exclusive: bool,
    /// Let K processes hold it, as `baton sem` does.
    #[arg(hide_short_help = true, short = 'N', long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Time that the next waiter waits longer if this process fails; at most 1m.
    ///
    /// That gives requests which the failed holder has sent elsewhere time to arrive. After a
    /// release nobody waits longer. It binds only those who wait already: give it to all who use
    /// the lock.
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = lock_delay, conflicts_with_all = ["slots", "shared", "exclusive"])]
    lock_delay: Option<Duration>,
    #[command(flatten)]
    wait: WaitOptions,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, clap::Subcommand)]
enum Admin {
    /// List the locks that are held.
    Ls(Prefix),
    /// Show who holds a lock and who waits.
    Show {
        /// The lock's path.
        #[arg(value_parser = paths::legal)]
        path: String,
    },
    /// Ask the holder to release: `baton lock` stops its command first.
    Revoke {
        /// The lock's path.
        #[arg(value_parser = paths::legal)]
        path: String,
        /// Only the holder with this token, as `lock show` prints it.
        #[arg(long, value_name = "N")]
        token: Option<u64>,
    },
    /// Take the lock from the holder with this token.
    Break {
        /// The lock's path.
        #[arg(value_parser = paths::legal)]
        path: String,
        /// The holder's token, as `lock show` prints it: a holder with another token is left
        /// alone.
        #[arg(long, value_name = "N")]
        token: u64,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(async {
        match (&args.admin, &args.path) {
            (Some(Admin::Ls(Prefix { prefix })), _) => admin::list(context, prefix).await,
            (Some(Admin::Show { path }), _) => admin::show(context, path).await,
            (Some(Admin::Revoke { path, token }), _) => admin::revoke(context, path, *token).await,
            (Some(Admin::Break { path, token }), _) => {
                admin::break_holder(context, path, *token).await
            }
            (None, Some(path)) => {
                let want = |client: &Client| wanted(client, path, args);
                guard::acquire_and_run(context, &args.run, &args.wait, want).await
            }
            (None, None) => Err(Failure::usage(
                "a lock needs a path, like /deploy; see baton lock --help",
            )),
        }
    })?
}

fn wanted(client: &Client, path: &str, args: &Args) -> Result<LockTarget, Failure> {
    let name = args.run.shown_name();
    if args.slots.is_some() {
        return guard::permits(client, path, args.slots, 1, &name);
    }
    if args.shared || args.exclusive {
        let lock = RwLock::new(client, path).map_err(|error| Failure::usage(error.to_string()))?;
        let lock = lock.name(&name);
        return Ok(if args.shared {
            LockTarget::Read(lock)
        } else {
            LockTarget::Write(lock)
        });
    }
    let delay = args.lock_delay.unwrap_or_default();
    let mutex = Mutex::new(client, path).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(LockTarget::Lock(mutex.lock_delay(delay).name(&name)))
}

/// A duration that a lock can be left alone for.
fn lock_delay(text: &str) -> Result<Duration, String> {
    let delay = duration::parse(text)?;
    let longest = Mutex::LONGEST_LOCK_DELAY;
    if delay > longest {
        return Err(format!(
            "a lock delay of {text} is too long; ask for {} or less",
            duration::show(longest)
        ));
    }
    Ok(delay)
}

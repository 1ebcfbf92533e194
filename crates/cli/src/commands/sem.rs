//! `baton sem`: a command under a permit of a semaphore.

use baton::semaphore::SemaphoreError;
use baton::{Client, Semaphore};

use super::{listing, lock};
use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::paths::{self, Prefix};
use crate::run::guard::{self, WaitOptions};
use crate::run::options::RunOptions;

/// Run a command while holding one of K permits: at most K run at once.
///
/// Like `baton lock`, but for up to K holders on all machines together. The first process stores K
/// in the tree, and a different K is refused. Several permits are acquired all at once or not at
/// all.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "ls|show|resize",
    override_usage = "baton sem [OPTIONS] PATH --slots K [-- CMD...]\n       baton sem ls [PREFIX]\n       baton sem show PATH\n       baton sem resize PATH K",
    after_help = "Examples:
  baton sem /licences --slots 10 -- simulate       at most 10 at once
  baton sem /disk --slots 8 --permits 4 -- reindex  a heavy one counts as 4
  baton sem -n /crawl --slots 3 -- crawl            only if one is free; 124
  baton sem /licences -- simulate                   K as stored in the tree
  baton sem resize /licences 12

CMD's environment, exit codes and signals are those of baton lock; see baton
lock --help."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    admin: Option<Admin>,
    /// The semaphore: a path like /licences, the same for all who use it.
    #[arg(required = true, value_name = "PATH", value_parser = paths::recipe)]
    path: Option<String>,
    /// Number of permits in all [default: the number in the tree].
    #[arg(short = 'N', long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Number of permits that CMD needs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    permits: u32,
    #[command(flatten)]
    wait: WaitOptions,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, clap::Subcommand)]
enum Admin {
    /// List the semaphores.
    Ls(Prefix),
    /// Show who holds permits and who waits.
    Show {
        /// The semaphore's path.
        #[arg(value_parser = paths::legal)]
        path: String,
    },
    /// Change the number of permits. Holders keep theirs; waiters get new ones at once.
    Resize {
        /// The semaphore's path.
        #[arg(value_parser = paths::recipe)]
        path: String,
        /// The new number of permits.
        #[arg(value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
        slots: u32,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(async {
        match (&args.admin, &args.path) {
            (Some(Admin::Ls(Prefix { prefix })), _) => listing::semaphores(context, prefix).await,
            (Some(Admin::Show { path }), _) => lock::admin::show(context, path).await,
            (Some(Admin::Resize { path, slots }), _) => resize(context, path, *slots).await,
            (None, Some(path)) => {
                let want = |client: &Client| {
                    let name = args.run.shown_name();
                    guard::permits(client, path, args.slots, args.permits, &name)
                };
                guard::acquire_and_run(context, &args.run, &args.wait, want).await
            }
            (None, None) => Err(Failure::usage(
                "a semaphore needs a path, like /licences; see baton sem --help",
            )),
        }
    })?
}

async fn resize(context: &Context, path: &str, slots: u32) -> Result<u8, Failure> {
    let resizing = Connection::during(context, BRIEF, async |connection: &Connection| {
        let resize = async {
            Semaphore::open(&connection.client, path)?
                .resize(slots)
                .await
        };
        Ok(resize.await)
    });
    match resizing.await? {
        Ok(before) => {
            let text = format!("{path} has {slots} permits; before {before}");
            let resized = record! { path, before, slots };
            context.output.result(&resized, text);
            Ok(exit::OK)
        }
        Err(error @ SemaphoreError::NoMaximum { .. }) => {
            Err(Failure::new(exit::NOTHING, "not_found", error.to_string()))
        }
        Err(error @ SemaphoreError::Lock(baton::lock::LockError::BadPath { .. })) => {
            Err(Failure::usage(error.to_string()))
        }
        Err(error) => Err(Failure::baton(error.to_string())),
    }
}

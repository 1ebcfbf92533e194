//! `baton queue work`: a command for each item of a work queue; below it, the verbs that put, claim
//! and settle items, and those that show and mend a queue.
//!
//! | module | owns |
//! |---|---|
//! | `worker` | the loop of a worker: claim, run, settle |
//! | `take` | an item in the hands of a script: `take`, `ack`, `nack` |
//! | `admin` | what is in a queue; dead letters; purge and repair |
//! | `handle` | the queue that the command line names, and what its errors come to |

mod admin;
mod handle;
mod take;
mod worker;

use std::num::NonZeroUsize;
use std::time::Duration;

use baton::work_queue::WorkItem;
use clap::Subcommand;

use self::admin::AdminVerb;
use self::handle::{QueuePath, failure};
use self::take::{Ack, Nack, Take};
use self::worker::WorkerOptions;
use super::input::Input;
use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::paths;

/// Run a command for each item of a work queue, with the item on its standard input.
///
/// Removes the item when CMD has exited with 0. After any other code the item comes back after a
/// pause, doubled each time, and after --max-attempts it is a dead letter. If the claim is being
/// lost, CMD is stopped before another worker can get the item, and killed if this process is.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "put|take|ack|nack|depth|claims|dead|replay|discard|purge|repair",
    override_usage = "baton queue work [OPTIONS] PATH -- CMD...\n       baton queue work put|take|ack|nack PATH\n       baton queue work depth|claims|dead|replay|discard|purge|repair PATH",
    after_help = "Examples:
  baton queue work put /thumbs cat.jpg dog.jpg
  baton queue work /thumbs -j 4 -- ./resize        for ever, four at a time
  baton queue work /thumbs --until-empty -c 'read f; convert $f small/$f'
  baton queue work take /thumbs                    for a script
  baton queue work dead /thumbs                    what failed, and why
  baton queue work replay /thumbs --all

CMD's environment has, besides what baton lock gives, BATON_ITEM_ID, the same at
every attempt, and BATON_ATTEMPT, from 1.

Exit codes:  0 the queue is empty (--until-empty)
             128+N ended by signal N, its items settled or given back
             1 no such item   125 baton failed   2 usage
             126, 127 CMD cannot be run, not found"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    admin: Option<Admin>,
    /// The queue's path.
    #[arg(required = true, value_name = "PATH", value_parser = paths::recipe)]
    path: Option<String>,
    #[command(flatten)]
    worker: WorkerOptions,
}

#[derive(Debug, Subcommand)]
enum Admin {
    /// Put items: arguments, or else standard input.
    Put(Put),
    /// Claim the first item, and print it.
    Take(Take),
    /// Acknowledge a claimed item, which removes it.
    Ack(Ack),
    /// Give a claimed item back: the attempt failed.
    Nack(Nack),
    #[command(flatten)]
    Other(AdminVerb),
}

#[derive(Debug, clap::Args)]
struct Put {
    #[command(flatten)]
    queue: QueuePath,
    /// The items, each one an argument.
    #[arg(value_name = "ITEM")]
    items: Vec<String>,
    #[command(flatten)]
    input: Input,
    /// From 0, the most urgent, to 999.
    #[arg(long, value_name = "N", default_value_t = WorkItem::USUAL_PRIORITY)]
    priority: u16,
    /// Delay before the item becomes available.
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    delay: Option<Duration>,
    /// The item's id: refused with exit code 1 while another item has it.
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
    /// Number of attempts that these items get, whatever the workers' setting.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    /// The most items that the queue takes, set when it is created; exits with 1 when it is
    /// full.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    capacity: Option<u64>,
    /// The number of items that are put in one change, all or none.
    #[arg(long, value_name = "N", default_value = "1")]
    batch: NonZeroUsize,
}

/// Runs the verb.
pub(crate) async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match (&args.admin, &args.path) {
        (None, Some(path)) => worker::work(&args.worker, path, context).await,
        (None, None) => Err(Failure::usage(
            "a queue needs a path, like /jobs; see baton queue work --help",
        )),
        (Some(Admin::Take(take)), _) => take.run(context).await,
        (Some(Admin::Ack(ack)), _) => ack.run(context).await,
        (Some(Admin::Nack(nack)), _) => nack.run(context).await,
        (Some(Admin::Other(verb)), _) => {
            Connection::during(context, BRIEF, async |connection: &Connection| {
                admin::run(verb, context, connection).await
            })
            .await
        }
        (Some(Admin::Put(args)), _) => {
            Connection::during(context, BRIEF, async |connection: &Connection| {
                put(args, context, connection).await
            })
            .await
        }
    }
}

async fn put(args: &Put, context: &Context, connection: &Connection) -> Result<u8, Failure> {
    let mut queue = args.queue.open(connection)?;
    if let Some(capacity) = args.capacity {
        queue = queue.capacity(capacity);
    }
    let given = args.input.items(&args.items, context)?;
    if args.id.is_some() && given.len() != 1 {
        return Err(Failure::usage(format!(
            "--id is for one item, and there are {}; put them one by one",
            given.len()
        )));
    }
    let of = |payload: &Vec<u8>| {
        let mut item = WorkItem::new(payload.clone())
            .priority(args.priority)
            .delay(args.delay.unwrap_or_default());
        if let Some(id) = &args.id {
            item = item.id(id);
        }
        if let Some(attempts) = args.max_attempts {
            item = item.max_attempts(attempts);
        }
        item
    };
    for some in given.chunks(args.batch.get()) {
        queue
            .offer_all(some.iter().map(of))
            .await
            .map_err(failure)?;
    }
    Ok(exit::OK)
}

//! `baton queue`: items in order, each to one consumer.

mod input;
mod layout;
mod work;

use std::cell::Cell;
use std::time::Duration;

use baton::error::WaitReason;
use baton::queue::{IdQueue, QueueError};
use serde::Serialize;

use self::input::Input;
use self::layout::{Form, PutOptions, QueueSelector};
use super::listing;
use crate::connection::{BRIEF, Connection, LASTING};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::bytes;
use crate::output::record::record;
use crate::paths;
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;

/// A queue longer than this is slow to list for everybody.
const MANY: usize = 10_000;

/// Put items into a queue and take them out, in order, each once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton queue put /mail hello                  one item
  find . -name '*.jpg' | baton queue put /files --lines
  baton queue take /mail                       waits for an item, prints it
  baton queue take -n /mail || echo empty      exits with 1 when there is none
  baton queue put /calls --priority -5 urgent  the lowest number comes first
  baton queue put /teas --delay 3m ready       available in three minutes
  baton queue take /calls --layout priority    the layout that put used
  baton queue put /mails --id 17 hello         can be removed:
  baton queue remove /mails 17
  baton queue depth /mail

An item leaves the queue when it is taken: if its consumer dies, it is lost.
For items that return to the queue then, see baton queue work --help
Exit codes: 0 done   1 the queue is empty, or its items have another layout
            124 no item within --wait   125 baton failed   2 usage")]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    #[command(flatten)]
    Plain(Act),
    Work(Box<work::Args>),
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Put items at the end: ITEM, or else standard input.
    Put {
        #[command(flatten)]
        which: QueueSelector,
        #[command(flatten)]
        how: PutOptions,
        /// The items, each one an argument.
        #[arg(value_name = "ITEM")]
        items: Vec<String>,
        #[command(flatten)]
        input: Input,
    },
    /// Take the first item and print it; wait for one if there is none.
    Take {
        #[command(flatten)]
        which: QueueSelector,
        /// Wait at most this long, then exit 124.
        #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
        wait: Option<Duration>,
        /// Do not wait: exit 1 if there is none.
        #[arg(short, long, conflicts_with = "wait")]
        no_wait: bool,
    },
    /// Print the first item and leave it there.
    Peek {
        #[command(flatten)]
        which: QueueSelector,
    },
    /// Remove all items with these ids, and print their number. Exits with 1 if there were none.
    Remove {
        /// The path of a queue whose items were put with --id.
        #[arg(value_parser = paths::recipe)]
        path: String,
        /// The ids.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// List the queues; with the path of a queue, list its items' names, first to last.
    Ls {
        /// The queue's path [default: all queues].
        #[arg(value_parser = paths::recipe)]
        path: Option<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Print the number of items.
    Depth {
        #[command(flatten)]
        which: QueueSelector,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(async {
        match &args.kind {
            Kind::Work(args) => work::run(args, context).await,
            Kind::Plain(Act::Ls { path: None, .. }) => listing::queues(context).await,
            Kind::Plain(plain) => {
                let session = match plain {
                    Act::Take { .. } => LASTING,
                    _ => BRIEF,
                };
                Connection::during(context, session, async |connection: &Connection| {
                    act(plain, context, connection).await
                })
                .await
            }
        }
    })?
}

impl Act {
    fn path(&self) -> &str {
        match self {
            Self::Put { which, .. }
            | Self::Take { which, .. }
            | Self::Peek { which }
            | Self::Depth { which } => &which.path,
            Self::Ls { path, .. } => path.as_deref().unwrap_or("/"),
            Self::Remove { path, .. } => path,
        }
    }
}

/// The items of a work queue lie elsewhere: what is put beside them no worker would ever see.
async fn refuse_work_queue(connection: &Connection, path: &str) -> Result<(), Failure> {
    let session = connection.session().await?;
    match session.get_data(path).await {
        Ok(read) if read.data.starts_with(br#"{"work_queue":"#) => Err(Failure::baton(format!(
            "{path}: there is a work queue; use baton queue work, or another path"
        ))),
        // A failure of this read will also fail the verb, which reports it.
        _ => Ok(()),
    }
}

async fn act(act: &Act, context: &Context, connection: &Connection) -> Result<u8, Failure> {
    refuse_work_queue(connection, act.path()).await?;
    match act {
        Act::Put {
            which,
            how,
            items,
            input,
        } => {
            let queue = which.open_for(&connection.client, how)?;
            which.refuse_unseen(connection, how).await?;
            for item in input.items(items, context)? {
                queue.put(&item, which, how).await.map_err(failure)?;
            }
            Ok(exit::OK)
        }
        Act::Take {
            which,
            wait,
            no_wait,
        } => {
            let queue = which.open(&connection.client)?;
            let path = &which.path;
            let mut signals = Signals::new()?;
            let show = |item: &[u8]| print_item(context, path, item);
            let waited_for = Cell::new(None);
            let taking = async {
                match (no_wait, wait) {
                    (true, _) => queue.poll(show).await,
                    (false, None) => queue.take(show).await.map(|()| true),
                    (false, Some(limit)) => {
                        match tokio::time::timeout(*limit, queue.take(show)).await {
                            Ok(taken) => taken.map(|()| true),
                            Err(_) => {
                                waited_for.set(Some(WaitReason::now(&connection.client, *limit)));
                                queue.recover(show).await
                            }
                        }
                    }
                }
            };
            let awaited = AwaitedEvent::Item { path };
            let (taken, stopped) = tokio::select! {
                taken = connection.wait(&awaited, taking) => (taken, None),
                number = signals.stop() => (queue.recover(show).await, Some(number)),
            };
            match (taken, stopped) {
                (Ok(_), Some(number)) => Ok(signals::ended_by(number)),
                (Ok(true), None) => Ok(exit::OK),
                (Ok(false), None) if *no_wait => Ok(exit::NOTHING),
                (Ok(false), None) => {
                    let waited = duration::show(wait.unwrap_or_default());
                    Err(match waited_for.take() {
                        Some(servers @ WaitReason::Servers { .. }) => Failure::new(
                            exit::BATON,
                            "connection",
                            format!("{path}: no item within {waited}: {servers}"),
                        ),
                        _ => Failure::no_item(path, &waited),
                    })
                }
                // The item is not to be lost for the doubt about who else gets it.
                (Err(QueueError::TakeUnknown { node, item, source }), _) => {
                    print_item(context, path, &item);
                    Err(failure(QueueError::TakeUnknown { node, item, source }))
                }
                (Err(error), _) => Err(failure(error)),
            }
        }
        Act::Peek { which } => {
            let queue = which.open(&connection.client)?;
            match queue.peek().await.map_err(failure)? {
                Some(item) => {
                    print_item(context, &which.path, &item);
                    Ok(exit::OK)
                }
                None => Ok(exit::NOTHING),
            }
        }
        Act::Remove { path, ids } => {
            let queue = IdQueue::new(&connection.client, path);
            let queue = queue.map_err(|error| Failure::usage(error.to_string()))?;
            let mut removed = 0;
            for id in ids {
                removed += queue.remove(id).await.map_err(failure)?;
            }
            context
                .output
                .result(&record! { path, removed }, removed.to_string());
            Ok(if removed == 0 {
                exit::NOTHING
            } else {
                exit::OK
            })
        }
        Act::Ls { form, .. } => {
            let which = QueueSelector::new(act.path(), form);
            let queue = which.open(&connection.client)?;
            for name in queue.names().await.map_err(failure)? {
                context.output.result(&record! { name: &name }, &name);
            }
            Ok(exit::OK)
        }
        Act::Depth { which } => {
            let queue = which.open(&connection.client)?;
            let depth = queue.depth().await.map_err(failure)?;
            let path = &which.path;
            context
                .output
                .result(&record! { path, depth }, depth.to_string());
            if depth > MANY {
                context.output.note(format!(
                    "{path}: more than {MANY} items: each listing costs all who take; add consumers, or use several queues"
                ));
            }
            Ok(exit::OK)
        }
    }
}

fn print_item(context: &Context, path: &str, item: &[u8]) {
    #[derive(Serialize)]
    struct Item<'a> {
        path: &'a str,
        #[serde(flatten)]
        data: bytes::DataField<'a>,
    }
    bytes::print(
        &context.output,
        &Item {
            path,
            data: bytes::DataField::new(item),
        },
        item,
    );
}

fn failure(error: QueueError) -> Failure {
    match error {
        QueueError::BadArgument { .. } | QueueError::BadPath { .. } => {
            Failure::usage(error.to_string())
        }
        error => Failure::baton(error.to_string()),
    }
}

//! `baton counter`: a number that many processes share.

use baton::Counter;
use baton::value::{CounterLayout, ValueError};

use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::paths;
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;

/// Read and change a counter that many processes share.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton counter add /tickets              add 1 and print the sum: no two get
                                          the same
  baton counter add /tickets -- -5
  baton counter get /tickets
  baton counter watch /tickets --json     one line for each change

An absent counter is 0. An addition whose outcome is unknown, because the
session ended first, is not retried: the exit code is 125, and the message
says so.
Exit codes: 0 done   1 the node holds no number, or the sum does not fit
            125 baton failed   2 usage")]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    /// Format of the number in its znode, to share the counter with another library.
    #[arg(
        long,
        value_enum,
        default_value = "decimal",
        value_name = "LAYOUT",
        global = true
    )]
    layout: Layout,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Layout {
    /// Text, as kazoo's Counter has it.
    Decimal,
    /// Four bytes, as Curator's SharedCount has it.
    Int32,
    /// Eight bytes, as Curator's DistributedAtomicLong has it.
    Int64,
}

#[derive(Debug, clap::Args)]
struct CounterPath {
    /// The counter's path.
    #[arg(value_parser = paths::recipe)]
    path: String,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Print the number.
    Get(CounterPath),
    /// Add to the number and print the sum.
    Add {
        #[command(flatten)]
        counter: CounterPath,
        /// Number to add; a negative number counts down.
        #[arg(value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
        delta: i64,
    },
    /// Set the counter to a number, whatever its value.
    Set {
        #[command(flatten)]
        counter: CounterPath,
        /// The number.
        #[arg(value_name = "N", allow_negative_numbers = true)]
        value: i64,
    },
    /// Print the number, and again at each change, until a signal comes.
    Watch(CounterPath),
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(Connection::during(
        context,
        BRIEF,
        async |connection: &Connection| act(args, context, connection).await,
    ))?
}

async fn act(args: &Args, context: &Context, connection: &Connection) -> Result<u8, Failure> {
    let (Act::Get(counter)
    | Act::Watch(counter)
    | Act::Add { counter, .. }
    | Act::Set { counter, .. }) = &args.act;
    let path = &counter.path;
    let layout = match args.layout {
        Layout::Decimal => CounterLayout::Decimal,
        Layout::Int32 => CounterLayout::Int32,
        Layout::Int64 => CounterLayout::Int64,
    };
    let counter = Counter::new(&connection.client, path)
        .map_err(|error| failure(&error))?
        .layout(layout);
    let value = match &args.act {
        Act::Get(_) => counter.get().await,
        Act::Add { delta, .. } => counter.add(*delta).await,
        Act::Set { value, .. } => counter.set(*value).await.map(|()| *value),
        Act::Watch(_) => return watch(&counter, context, connection).await,
    };
    print_value(context, path, value.map_err(|error| failure(&error))?);
    Ok(exit::OK)
}

async fn watch(
    counter: &Counter,
    context: &Context,
    connection: &Connection,
) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    let mut numbers = counter.values().map_err(|error| failure(&error))?;
    let watching = async {
        loop {
            match numbers.next().await {
                Ok(number) => print_value(context, counter.path(), number),
                Err(error @ ValueError::NotANumber { .. }) => {
                    context.output.note(error.to_string());
                }
                Err(error) => break failure(&error),
            }
        }
    };
    let awaited = AwaitedEvent::News {
        path: counter.path(),
    };
    tokio::select! {
        failure = connection.wait(&awaited, watching) => Err(failure),
        number = signals.stop() => Ok(signals::ended_by(number)),
    }
}

fn print_value(context: &Context, path: &str, value: i64) {
    context
        .output
        .result(&record! { path, value }, value.to_string());
}

fn failure(error: &ValueError) -> Failure {
    let text = error.to_string();
    match error {
        ValueError::NotANumber { .. } | ValueError::OutOfRange { .. } => {
            Failure::new(exit::NOTHING, "refused", text)
        }
        ValueError::Unknown { .. } => Failure::new(exit::BATON, "unknown", text),
        ValueError::BadPath { .. } => Failure::usage(text),
        _ => Failure::baton(text),
    }
}

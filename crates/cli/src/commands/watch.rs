//! `baton watch`: each change of a znode, over lost connections and sessions.

use baton_client::{AddWatchMode, PersistentEvent};

use crate::connection::{Connection, LASTING};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::paths;
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;
use crate::znode::failure;

/// Print each change of a znode and its children, until a signal comes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  baton watch -r / --json")]
pub(crate) struct Args {
    /// The znode; it need not exist.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
    /// Also print changes of all descendants.
    #[arg(short, long)]
    recursive: bool,
    /// End after this many changes.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let mode = if args.recursive {
        AddWatchMode::PersistentRecursive
    } else {
        AddWatchMode::Persistent
    };
    let show = |event: PersistentEvent| match event {
        PersistentEvent::Change(change) => {
            let event = format!("{:?}", change.kind);
            let text = format!("{event} {}", change.path);
            let path = &change.path;
            let zxid = change.zxid;
            let record = record! { event: &event, path, ?zxid };
            context.output.result(&record, text);
        }
        // A Resync, or what a later version reports.
        _ => {
            let path = &args.path;
            let text = format!("Resync {path} (changes may have been missed: read it again)");
            let record = record! { event: "Resync", path };
            context.output.result(&record, text);
        }
    };
    context.block_on(async {
        let mut signals = Signals::new()?;
        let connection = tokio::select! {
            connection = Connection::open(context, LASTING) => connection?,
            number = signals.stop() => return Ok(signals::lasted_until(number)),
        };
        let watching = async {
            let mut seen = 0;
            // Of the session that was watched on before, if any.
            let mut is_lost = false;
            loop {
                let session = connection.session().await?;
                let mut events = match session.watch_persistent(&args.path, mode).await {
                    Ok(events) => events,
                    Err(error) if session.state().is_final() || error.is_connection_lost() => {
                        continue;
                    }
                    Err(error) => return Err(failure(error)),
                };
                context.output.verbose(|| format!("watching {}", args.path));
                if is_lost {
                    show(PersistentEvent::Resync);
                }
                loop {
                    if args.count.is_some_and(|count| seen >= count) {
                        return Ok(exit::OK);
                    }
                    let Ok(event) = events.next().await else {
                        break;
                    };
                    seen += u64::from(matches!(event, PersistentEvent::Change(_)));
                    show(event);
                }
                is_lost = true;
            }
        };
        let awaited = AwaitedEvent::News { path: &args.path };
        let outcome = tokio::select! {
            outcome = connection.wait(&awaited, watching) => outcome,
            number = signals.stop() => Ok(signals::lasted_until(number)),
        };
        connection.close().await;
        outcome
    })?
}

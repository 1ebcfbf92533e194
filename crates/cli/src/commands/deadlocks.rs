//! `baton deadlocks`: sessions that wait for each other.

use baton_console::{Deadlock, Step};
use baton_proto::OneLine;

use super::listing;
use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::exit::{self, Failure};

/// Print the deadlocks: sessions that wait for each other.
///
/// Each deadlock is read twice, so all its waits existed at one instant. Covers locks, read/write
/// locks, elections and semaphores of Baton, Curator, kazoo and zookeeper-recipes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton deadlocks
  baton deadlocks --json | jq .steps[].lock
  baton deadlocks --quiet || notify-operators

For each deadlock: who waits for whom, and whom to ask to release. A process
that does several things at once under one session may end its wait by itself.
Exit codes: 0 none   1 one or more   125 baton failed   2 usage")]
pub(crate) struct Args {}

/// Runs the verb.
pub(crate) fn run(_: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(Connection::during(
        context,
        BRIEF,
        async |connection: &Connection| find(context, connection).await,
    ))?
}

async fn find(context: &Context, connection: &Connection) -> Result<u8, Failure> {
    let surveyor = listing::survey(context, connection).await?;
    for deadlock in surveyor.deadlocks() {
        // Names of others in it are escaped.
        context.output.paragraph(deadlock, text(deadlock));
    }
    let found = surveyor.deadlocks().len();
    if found == 0 {
        context
            .output
            .verbose(|| format!("no deadlock among {} recipes", surveyor.recipes().len()));
        return Ok(exit::OK);
    }
    Ok(exit::NOTHING)
}

fn who(node: &baton_console::WaitNode) -> String {
    match &node.process {
        Some(process) => format!("{} (session 0x{:x})", OneLine(process), node.session),
        None => format!("session 0x{:x}", node.session),
    }
}

fn text(deadlock: &Deadlock) -> String {
    let mut lines = vec![format!(
        "deadlock of {}: {} sessions wait for each other",
        deadlock.id(),
        deadlock.steps.len()
    )];
    let step = |step: &Step| {
        let how = if step.holds {
            "held by"
        } else {
            "where before it waits"
        };
        format!(
            "  {} waits for {}, {how} {}",
            who(&step.waiter),
            OneLine(&step.lock),
            who(&step.blocker)
        )
    };
    lines.extend(deadlock.steps.iter().map(step));
    if let Some(step) = deadlock.steps.get(deadlock.ask) {
        let path = OneLine(&step.lock);
        lines.push(format!(
            "  shortest way out: ask {} to release {path}: see baton lock revoke --help",
            who(&step.blocker)
        ));
    }
    lines.join("\n")
}

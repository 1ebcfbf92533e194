//! `baton create`: makes a znode, and its parents if that was asked for. It never repeats a write.

use baton_client::{CreateMode, Session};

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::paths;
use crate::znode::{PathLine, failure, with_session};

/// Create a znode, and print its path.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  baton create -p /config/limits 25\n  baton create -p --sequential /orders/order- ''"
)]
pub(crate) struct Args {
    /// The znode.
    #[arg(value_name = "PATH")]
    path: String,
    /// Its data.
    #[arg(value_name = "DATA", default_value = "")]
    data: String,
    /// Have the server append a number.
    #[arg(long)]
    sequential: bool,
    /// Make it a container: deleted some time after its last child.
    #[arg(long, conflicts_with = "sequential")]
    container: bool,
    /// Make missing parents, too.
    #[arg(short, long)]
    parents: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.sequential {
        paths::legal_with_number(&args.path)
    } else {
        paths::legal(&args.path)
    }
    .map_err(Failure::usage)?;
    let mode = match (args.sequential, args.container) {
        (true, _) => CreateMode::PersistentSequential,
        (false, true) => CreateMode::Container,
        (false, false) => CreateMode::Persistent,
    };
    with_session(context, async |session| {
        if args.parents {
            make_parents(session, &args.path).await?;
        }
        let made = session
            .create(&args.path, args.data.as_bytes(), mode)
            .await
            .map_err(failure)?;
        context
            .output
            .result(&PathLine { path: &made.path }, &made.path);
        Ok(exit::OK)
    })
}

async fn make_parents(session: &Session, path: &str) -> Result<(), Failure> {
    let slashes: Vec<usize> = path
        .match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > 0)
        .collect();
    for at in slashes {
        let parent = path.split_at(at).0;
        match session.create(parent, b"", CreateMode::Persistent).await {
            Ok(_) => {}
            Err(error) if error.is_node_exists() => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(())
}

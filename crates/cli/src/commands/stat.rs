//! `baton stat`: the record of a znode: versions, times, owner.

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::paths;
use crate::znode::{StatLine, failure, with_session};

/// Print a znode's record: versions, times, owner.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    with_session(context, async |session| {
        match session.exists(&args.path).await.map_err(failure)? {
            Some(stat) => {
                let line = StatLine::new(&args.path, &stat);
                context.output.paragraph(&line, line.text());
                Ok(exit::OK)
            }
            None => Err(Failure::new(
                exit::NOTHING,
                "no_node",
                format!(
                    "{}: no such znode; see baton ls for what is there",
                    args.path
                ),
            )),
        }
    })
}

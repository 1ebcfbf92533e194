//! `baton get`: the data of a znode.

use serde::Serialize;

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::bytes;
use crate::paths;
use crate::znode::{StatLine, failure, with_session};

/// Print a znode's data.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  baton get /config/limits --json")]
pub(crate) struct Args {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct NodeContent<'a> {
        #[serde(flatten)]
        data: bytes::DataField<'a>,
        #[serde(flatten)]
        stat: StatLine<'a>,
    }
    with_session(context, async |session| {
        let read = session.get_data(&args.path).await.map_err(failure)?;
        let got = NodeContent {
            data: bytes::DataField::new(&read.data),
            stat: StatLine::new(&args.path, &read.stat),
        };
        bytes::print(&context.output, &got, &read.data);
        Ok(exit::OK)
    })
}

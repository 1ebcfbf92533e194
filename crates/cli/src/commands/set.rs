//! `baton set`: replaces the data of a znode.

use std::io::Read;

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::paths;
use crate::znode::{StatLine, failure, with_session};

/// Replace a znode's data.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  baton set /config/limits 25\n  baton set /config/limits --if-version 3 < limits.json"
)]
pub(crate) struct Args {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
    /// The new data [default: standard input].
    #[arg(value_name = "DATA")]
    data: Option<String>,
    /// Only if the data has this version.
    #[arg(long, value_name = "N")]
    if_version: Option<i32>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let data = match &args.data {
        Some(data) => data.clone().into_bytes(),
        None => {
            let mut data = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut data)
                .map_err(|error| {
                    Failure::usage(format!(
                        "standard input cannot be read: {error}; give the data as an argument"
                    ))
                })?;
            data
        }
    };
    with_session(context, async |session| {
        let stat = session
            .set_data(&args.path, &data, args.if_version)
            .await
            .map_err(failure)?;
        context.output.result(
            &StatLine::new(&args.path, &stat),
            format!("version {}", stat.version),
        );
        Ok(exit::OK)
    })
}

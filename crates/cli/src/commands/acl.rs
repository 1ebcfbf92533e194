//! `baton acl`: who may do what with a znode.

use serde::Serialize;

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::paths;
use crate::znode::{failure, with_session};

/// Print who may do what with a znode.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Entry<'a> {
        perms: &'a str,
        scheme: &'a str,
        id: &'a str,
    }
    with_session(context, async |session| {
        let (entries, _) = session.get_acl(&args.path).await.map_err(failure)?;
        for entry in &entries {
            let bits = entry.perms.0;
            let perms: String = "rwcda"
                .chars()
                .enumerate()
                .filter(|(at, _)| bits & (1 << at) != 0)
                .map(|(_, letter)| letter)
                .collect();
            let text = format!("{perms} {} {}", entry.scheme, entry.id);
            context.output.result(
                &Entry {
                    perms: &perms,
                    scheme: &entry.scheme,
                    id: &entry.id,
                },
                text,
            );
        }
        Ok(exit::OK)
    })
}

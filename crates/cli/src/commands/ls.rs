//! `baton ls`: the children of a znode, or all znodes below it.

use baton_proto::path::join;

use crate::context::Context;
use crate::exit::Failure;
use crate::output::passed_over::PassedOver;
use crate::paths;
use crate::walk::Walk;
use crate::znode::{PathLine, failure, with_session};

/// List a znode's children.
///
/// With -r, a znode whose ACL forbids to list its children is printed, and reported on standard
/// error; the exit code is then 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  baton ls -r /deploy")]
pub(crate) struct Args {
    /// The znode.
    #[arg(value_name = "PATH", default_value = "/", value_parser = paths::legal)]
    path: String,
    /// List all descendants, as full paths.
    #[arg(short, long)]
    recursive: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    with_session(context, async |session| {
        let mut passed_over = PassedOver::default();
        let mut walk = Walk::at(args.path.clone());
        let read = |path: String| session.children(&path);
        while let Some((path, listed)) = walk.next(read).await {
            let mut names = match listed {
                Ok(children) => children.names,
                Err(error) if path == args.path => return Err(failure(error)),
                // Deleted since its parent was listed.
                Err(error) if error.is_no_node() => continue,
                Err(error) if error.is_no_auth() => {
                    passed_over.add(&context.output, &path, &error);
                    Vec::new()
                }
                Err(error) => return Err(failure(error)),
            };
            names.sort_unstable();
            if args.recursive {
                context.output.result(&PathLine { path: &path }, &path);
                walk.descend(names.iter().map(|name| join(&path, name)));
                continue;
            }
            for name in names {
                context.output.result(
                    &PathLine {
                        path: &join(&path, &name),
                    },
                    &name,
                );
            }
        }
        Ok(passed_over.exit_code())
    })
}

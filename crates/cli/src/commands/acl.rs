//! `baton acl`: who may do what with a znode, read and set.

use baton_client::Acl;

use crate::acl_words::{AclEntry, shown_letters};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::paths;
use crate::znode::{failure, with_session};

/// Print or set a znode's ACL.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  baton acl /app\n  baton acl set /app creator=all everyone=read"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Option<Act>,
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal, required = true)]
    path: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    Set(SetArgs),
}

/// Replace a znode's ACL. Its children keep theirs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "WHO is everyone; creator, the user of this command's credentials; or\n\
                  SCHEME:ID, like sasl:bob, digest:bob:HASH, ip:10.0.0.0/8 or\n\
                  x509:CN=bob,O=Example. PERMISSIONS are read, write, create (children),\n\
                  delete (children) and admin (set the ACL), with + between, or all.\n\
                  ZooKeeper's form, like sasl:bob:cdrwa, is accepted too.\n\n\
                  Examples:\n  baton acl set /app creator=all everyone=read\n  baton acl set /app sasl:bob=read+write sasl:eve=all"
)]
struct SetArgs {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
    /// An entry of the new ACL.
    #[arg(value_name = "WHO=PERMISSIONS", required = true)]
    entries: Vec<AclEntry>,
    /// Only if the ACL has this version (aversion, as stat prints it).
    #[arg(long, value_name = "N")]
    if_version: Option<i32>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.act {
        Some(Act::Set(args)) => set(args, context),
        None => print(args.path.as_deref().unwrap_or_default(), context),
    }
}

fn print(path: &str, context: &Context) -> Result<u8, Failure> {
    with_session(context, async |session| {
        let (entries, _) = session.get_acl(path).await.map_err(failure)?;
        for Acl { perms, scheme, id } in &entries {
            let perms = shown_letters(*perms);
            let text = format!("{perms} {scheme} {id}");
            let perms = &perms;
            context.output.result(&record! { perms, scheme, id }, text);
        }
        Ok(exit::OK)
    })
}

fn set(args: &SetArgs, context: &Context) -> Result<u8, Failure> {
    let acl: Vec<_> = args.entries.iter().map(|entry| entry.0.clone()).collect();
    with_session(context, async |session| {
        let stat = session
            .set_acl(&args.path, &acl, args.if_version)
            .await
            .map_err(failure)?;
        let aversion = stat.aversion;
        let text = format!("version {aversion}");
        context.output.result(&record! { aversion }, text);
        Ok(exit::OK)
    })
}

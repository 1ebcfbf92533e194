//! `baton server recover`: the data folder of a new cluster of one server, made from that of a
//! server that stands alone or of a member whose cluster is lost. No server is asked.

use std::path::PathBuf;

use baton_server::offline::{NewCluster, found_cluster};

use super::peer_address;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;

/// The file that the folder of a member has.
const MEMBER_FILE: &str = "MEMBER";

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "baton server recover --from DIR --into DIR --server-id ID\n           --address HOST:PORT [--majority-lost]"
)]
pub(super) struct Args {
    /// The existing data folder, of a single server or of a member. No server may run on it, and
    /// none starts on it afterwards.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The new data folder, which must not exist or be empty.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// The id of the only server of the new cluster, 1 to 127.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u8).range(1..=127))]
    server_id: u8,
    /// Address at which other servers will reach it.
    #[arg(long, value_name = "HOST:PORT", value_parser = peer_address)]
    address: String,
    /// The folder is of a member whose ensemble has lost its majority for good. Writes that only
    /// the other members have are lost.
    #[arg(long)]
    majority_lost: bool,
}

/// Makes the folder.
pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let from = args.from.display();
    if args.from.join(MEMBER_FILE).is_file() && !args.majority_lost {
        return Err(Failure::usage(format!(
            "{from} is the folder of a member: while a majority of its cluster is left, use baton \
             server replace there; if it is lost for good, give --majority-lost"
        )));
    }
    let new = NewCluster {
        server_id: args.server_id,
        address: args.address.clone(),
        may_lack_writes: args.majority_lost,
    };
    let zxid = found_cluster(&args.from, &args.into, &new)
        .map_err(|error| Failure::new(exit::BATON, "offline", error.to_string()))?;
    let (id, into) = (args.server_id, args.into.display());
    if args.majority_lost {
        context.output.note(
            "a new cluster begins: writes that only the other members had are lost, and former \
             members are refused; empty their folders before they join",
        );
    }
    let zxid = format!("0x{zxid:x}");
    let line = format!(
        "{into}: a cluster of server {id} alone, from zxid {zxid}; start it with a list of itself alone \
         and --reconfig, then baton server add the others"
    );
    let address = &args.address;
    let made = record! { data_dir: into.to_string(), server: id, address, zxid };
    context.output.result(&made, line);
    Ok(exit::OK)
}

//! `baton restore`: a backup becomes a data folder, or is read and rebuilt to check it. No server
//! is asked. What becomes of its sessions and zxids is decided in `baton_server::restoring`.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use baton_server::offline::{self, FirstServer, OfflineError};
use baton_server::restoring::{self, ClockTrust, UnreadableBackup};
use baton_server::{Progress, Unit};
use baton_wal::{BackupReader, DirStorage, Hold, WalError};
use baton_zkdata::{OwnerForm, Tree, ZkDataError};

use crate::commands::server::peer_address;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::progress::{CountedIo, ShownProgress};
use crate::output::record::record;
use crate::unfinished::{heed_stops, removed_when_stopped};

/// Bytes of a file that show what it is.
const HEAD_BYTES: usize = 8;

/// Make a data folder from a backup.
///
/// Reads a file of `baton backup`, or a snapshot that the admin command of Apache ZooKeeper 3.9 or
/// of Baton has sent. All sessions end: their ephemerals are not in the new folder, and clients get
/// new sessions. Zxids, and with them fencing tokens, continue far above those of the backup. The
/// server that starts on the folder serves no session before the leases of all earlier ones have
/// ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton restore --verify today.backup               reads and rebuilds it all
  baton restore today.backup --data-dir /var/lib/baton-new
  baton restore today.backup --data-dir NEW --server-id 1 --address zk1:2888

First stop all former servers, and never start them on their folders again.
With --server-id and --address, the folder is that of the only member of a new
ensemble: start it with a list of itself alone and --reconfig, then add the
others, with empty folders, by baton server add.
The server waits for its longest session timeout (max_session_timeout) before
it serves sessions: so long, a client that has not noticed the stop may rely on
a lock that it held.
Exit codes: 0 done   1 the backup is damaged   2 usage
            125 no backup of this version, the folder is not empty, the clock is
            wrong, or no permission")]
pub(crate) struct Args {
    /// The backup.
    #[arg(value_name = "FILE")]
    backup: PathBuf,
    /// Only check the backup: verify every checksum and rebuild its state. No folder is made.
    #[arg(long, conflicts_with_all = ["server_id", "address", "above", "no_hold"])]
    verify: bool,
    /// The id of the only server of a new ensemble, 1 to 127.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u8).range(1..=127), requires = "address")]
    server_id: Option<u8>,
    /// Address at which other servers are to reach it.
    #[arg(long, value_name = "HOST:PORT", value_parser = peer_address, requires = "server_id")]
    address: Option<String>,
    /// Begin above this zxid (0x… or decimal). For a backup of a ZooKeeper ensemble that ran on for
    /// long: the highest `Zxid` that its servers have shown.
    #[arg(long, value_name = "ZXID", value_parser = zxid)]
    above: Option<i64>,
    /// Trust this machine's clock where those of the servers were ahead: changes with a future time
    /// get the current time.
    #[arg(long)]
    clock_is_right: bool,
    /// Serve sessions at once: only safe if all former servers have been stopped for longer than
    /// the longest session timeout.
    #[arg(long)]
    no_hold: bool,
}

/// A backup that was read.
struct Backup {
    tree: Tree,
    /// When it was taken, in milliseconds since 1970, where it says so.
    taken_ms: Option<i64>,
    form: &'static str,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let folder = match (args.verify, context.globals.data_dir.as_deref()) {
        (true, _) => None,
        (false, Some(folder)) => {
            // Before the work, not after it.
            offline::refuse_used(folder).map_err(offline_failure)?;
            Some(folder)
        }
        (false, None) => {
            return Err(Failure::usage(
                "restore needs the folder to make: give --data-dir NEW, or --verify to only check the backup",
            ));
        }
    };
    heed_stops(&context.output)?;
    let progress = Arc::new(Progress::default());
    let shown = ShownProgress::on_status(&context.output, &progress);
    let mut backup = read(&args.backup, &progress)?;
    let zxid = format!("0x{:x}", backup.tree.zxid());
    let (znodes, sessions) = (backup.tree.node_count(), backup.tree.sessions().len());
    let ephemerals = backup.tree.ephemeral_count();
    let taken = backup.taken_ms.map(restoring::timestamp);
    let form = backup.form;
    let Some(folder) = folder else {
        drop(shown);
        let when = taken.as_deref().unwrap_or("at an unknown time");
        let text = format!(
            "{}: whole; {znodes} znodes, {sessions} sessions with {ephemerals} ephemerals, up to zxid {zxid}, taken {when}",
            args.backup.display(),
        );
        let report = record! { znodes, sessions, ephemerals, zxid, ?taken, form };
        context.output.result(&report, text);
        return Ok(exit::OK);
    };
    let now_ms = now_ms();
    let above = args.above.unwrap_or(0);
    let taken_ms = backup.taken_ms.unwrap_or(0);
    let trust = match args.clock_is_right {
        true => ClockTrust::ThisMachine,
        false => ClockTrust::Unknown,
    };
    let restored = restoring::begin_new_cluster(&mut backup.tree, taken_ms, now_ms, above, trust)
        .map_err(|error| Failure::new(exit::BATON, "clock", error.to_string()))?;
    let first = args.server_id.zip(args.address.clone());
    let first = first.map(|(id, address)| FirstServer { id, address });
    let hold = (!args.no_hold).then_some(Hold {
        longest_timeout_ms: restored.longest_timeout_ms,
        made_ms: now_ms,
    });
    let unfinished = offline::unfinished_folder(folder).map_err(offline_failure)?;
    let tree = &mut backup.tree;
    let make = || offline::restore_folder(folder, tree, first.as_ref(), hold, now_ms, &progress);
    removed_when_stopped(&context.output, &unfinished, make)?.map_err(offline_failure)?;
    drop(shown);
    context.output.note(
        "never start a server on the former folders again: it would issue the same fencing tokens again",
    );
    let text = format!(
        "{}: {} znodes of zxid {}, goes on beyond 0x{:x}; {} sessions have ended, with {} ephemerals",
        folder.display(),
        backup.tree.node_count(),
        zxid,
        restored.zxid,
        restored.sessions,
        restored.ephemerals
    );
    let report = record! {
        data_dir: folder.display().to_string(),
        znodes,
        sessions,
        ephemerals,
        zxid,
        begins_at: format!("0x{:x}", restored.zxid),
        ?taken,
        form,
    };
    context.output.result(&report, text);
    Ok(exit::OK)
}

fn now_ms() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |time| {
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    })
}

fn offline_failure(error: OfflineError) -> Failure {
    Failure::baton(error.to_string())
}

/// Reads a whole backup, Baton's or ZooKeeper's, by its first bytes.
fn read(path: &Path, progress: &Progress) -> Result<Backup, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::baton(format!(
            "cannot read {}: {error}; name a backup that this user may read",
            path.display()
        ))
    };
    let mut head = [0; HEAD_BYTES];
    let mut file = File::open(path).map_err(cannot)?;
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    progress.begin("reading the backup", Unit::Bytes, length);
    let mut filled = 0;
    while let Some(rest) = head.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest).map_err(cannot)? {
            0 => break,
            count => filled += count,
        }
    }
    if baton_zkdata::is_snapshot(&head) {
        return read_zookeepers(path, progress);
    }
    let (folder, name) = match (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) {
        (Some(folder), Some(name)) if !folder.as_os_str().is_empty() => (folder, name),
        (_, Some(name)) => (Path::new("."), name),
        (_, None) => return Err(cannot(std::io::ErrorKind::InvalidInput.into())),
    };
    let storage = DirStorage::open(folder).map_err(cannot)?;
    let mut reader = BackupReader::open(&storage, name).map_err(unreadable)?;
    let tree = restoring::rebuild(&mut reader, progress).map_err(|error| match error {
        UnreadableBackup::File(error) => unreadable(error),
        error => damaged(format!("{}: {error}", path.display())),
    })?;
    let taken_ms = reader.meta().time_ms;
    reader.verify().map_err(unreadable)?;
    Ok(Backup {
        tree,
        taken_ms: Some(taken_ms),
        form: "baton",
    })
}

fn read_zookeepers(path: &Path, progress: &Progress) -> Result<Backup, Failure> {
    let shown = path.display().to_string();
    let refused = |error: &ZkDataError| match error {
        ZkDataError::Unreadable { .. } => Failure::baton(error.to_string()),
        error => damaged(error.to_string()),
    };
    let file = File::open(path)
        .map_err(|error| Failure::baton(format!("cannot read {shown}: {error}")))?;
    let database = baton_zkdata::read_streamed_snapshot(
        &shown,
        BufReader::new(CountedIo {
            inner: file,
            progress,
        }),
    )
    .map_err(|error| refused(&error))?;
    let moved = database
        .into_tree(OwnerForm::Extended)
        .map_err(|error| refused(&error))?;
    Ok(Backup {
        tree: moved.tree,
        taken_ms: None,
        form: "zookeeper",
    })
}

fn damaged(text: String) -> Failure {
    Failure::new(exit::NOTHING, "damaged", text)
}

fn unreadable(error: WalError) -> Failure {
    match error {
        WalError::Corrupt { .. } => damaged(error.to_string()),
        error => Failure::baton(error.to_string()),
    }
}

/// Reads a zxid, as `srvr` shows it or in decimal.
fn zxid(text: &str) -> Result<i64, String> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let read = read.ok().filter(|zxid| *zxid >= 0);
    read.ok_or_else(|| format!("'{text}' is not a zxid; write 0x and hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zxid_is_read_as_it_is_shown() {
        assert_eq!(zxid("0x1f"), Ok(31));
        assert_eq!(zxid("31"), Ok(31));
        for text in ["", "0x", "-1", "0x-1", "x", "0x8000000000000000"] {
            assert!(zxid(text).is_err(), "{text}");
        }
    }
}

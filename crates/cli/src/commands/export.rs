//! `baton export`: the tree of a data folder becomes a snapshot that Apache ZooKeeper loads. Takes
//! the folder as a server would, so none may run on it; what the bytes mean is `baton_zkdata`'s.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_server::{Progress, Unit, offline};
use baton_wal::{Access, DirStorage, Storage};
use baton_zkdata::{ExportError, ExportReport, Tree};

use crate::commands::import::VERSION_2;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::progress::{CountedIo, ShownProgress};
use crate::output::record::record;
use crate::unfinished::{heed_stops, removed_when_stopped};

/// The folder's name while it is written; ZooKeeper does not read it.
const UNFINISHED: &str = "version-2.unfinished";
/// The files that a member of an ensemble has besides.
const EPOCHS: [&str; 2] = ["currentEpoch", "acceptedEpoch"];

/// Make a ZooKeeper data folder from a Baton data folder.
///
/// Writes what `baton import` reads: znodes with all counters and times, ACLs, sessions with their
/// ephemerals.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton export --data-dir /var/lib/baton --zookeeper-data /var/lib/zookeeper

Stop Baton's server first. In a ZooKeeper ensemble, start the server with this
folder first, then the others with empty folders.
Exit codes: 0 done   1 the data folder is damaged
            125 no data folder, or it is in use; the target is not empty; or
            no permission")]
pub(crate) struct Args {
    /// The dataDir to make.
    #[arg(long, value_name = "DIR")]
    zookeeper_data: PathBuf,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let Some(folder) = context.globals.data_dir.as_deref() else {
        return Err(Failure::usage(
            "export needs the folder to read: give --data-dir DIR",
        ));
    };
    let target = args.zookeeper_data.join(VERSION_2);
    let unfinished = args.zookeeper_data.join(UNFINISHED);
    refuse_used(&target)?;
    heed_stops(&context.output)?;
    let progress = Arc::new(Progress::default());
    let shown = ShownProgress::on_status(&context.output, &progress);
    let (tree, doubts) =
        offline::read_data_folder(folder, &progress).map_err(|error| match error {
            offline::OfflineError::Content(_) => {
                Failure::new(exit::NOTHING, "damaged", error.to_string())
            }
            error => Failure::baton(error.to_string()),
        })?;
    let cannot = |path: &Path, error: &std::io::Error| {
        Failure::baton(format!(
            "cannot write {}: {error}; check that this user may, and that the disk has room",
            path.display()
        ))
    };
    // What ACLs protect is in the files: they are for this user only.
    let mut folders = DirBuilder::new();
    folders.mode(0o700);
    folders
        .recursive(true)
        .create(&args.zookeeper_data)
        .map_err(|error| cannot(&args.zookeeper_data, &error))?;
    let snapshot = format!("snapshot.{:x}", tree.zxid());
    let make = || {
        match folders.recursive(false).create(&unfinished) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(Failure::baton(format!(
                    "{} is there: another export is under way, or one was cut off; remove it, then start again",
                    unfinished.display()
                )));
            }
            made => made.map_err(|error| cannot(&unfinished, &error))?,
        }
        let made = write(&args.zookeeper_data, &snapshot, &tree, &progress);
        if made.is_err() {
            let _ = std::fs::remove_dir_all(&unfinished);
        }
        made.map_err(|error| match error {
            ExportError::Io(error) => cannot(&target.join(&snapshot), &error),
            error => Failure::baton(error.to_string()),
        })
    };
    let exported = removed_when_stopped(&context.output, &unfinished, make)??;
    drop(shown);
    let mut notes: Vec<String> = doubts.iter().map(ToString::to_string).collect();
    notes.extend(notes_on(&exported));
    for note in &notes {
        context.output.note(note);
    }
    let (znodes, sessions) = (exported.znodes, exported.sessions);
    let zxid = format!("0x{:x}", tree.zxid());
    let snapshot = target.join(&snapshot).display().to_string();
    let text = format!("{snapshot}: {znodes} znodes, {sessions} sessions, up to zxid {zxid}");
    let report = record! { znodes, sessions, zxid, snapshot, notes };
    context.output.result(&report, text);
    Ok(exit::OK)
}

/// Another snapshot or log beside ours would be read with it.
fn refuse_used(folder: &Path) -> Result<(), Failure> {
    match std::fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::baton(format!(
                "{} is not empty: name a folder that is not there yet",
                folder.display()
            ))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::baton(format!(
            "cannot read {}: {error}; name a folder that this user may make",
            folder.display()
        ))),
    }
}

/// Under its own name only when all of it is whole and durable.
fn write(
    data: &Path,
    snapshot: &str,
    tree: &Tree,
    progress: &Progress,
) -> Result<ExportReport, ExportError> {
    let folder = data.join(UNFINISHED);
    let create = |name: &str| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(folder.join(name))
    };
    progress.begin("writing the snapshot", Unit::Bytes, 0);
    let mut file = CountedIo {
        inner: create(snapshot)?,
        progress,
    };
    let exported = baton_zkdata::write_snapshot(tree, &mut file)?;
    progress.begin("syncing the snapshot", Unit::Bytes, 0);
    // A member of an ensemble wants to know that it has seen the epoch of its last zxid.
    let epoch = (tree.zxid() >> 32).to_string();
    for name in EPOCHS {
        create(name)?.write_all(epoch.as_bytes())?;
    }
    let storage = DirStorage::open(&folder)?;
    for name in EPOCHS.into_iter().chain([snapshot]) {
        storage.open(name, Access::Write)?.sync_data()?;
    }
    storage.sync_dir()?;
    let above = DirStorage::open(data)?;
    above.rename(UNFINISHED, VERSION_2)?;
    above.sync_dir()?;
    Ok(exported)
}

fn notes_on(exported: &ExportReport) -> Vec<String> {
    let mut notes = Vec::new();
    if exported.ttls > 0 {
        notes.push(format!(
            "znodes with a TTL: {}; ZooKeeper keeps them only with -Dzookeeper.extendedTypesEnabled=true, otherwise it removes them when it starts",
            exported.ttls
        ));
    }
    if exported.sessions_of_baton > 0 {
        notes.push(format!(
            "sessions opened by Baton: {}; ZooKeeper does not know their passwords, so their clients get new ones and their ephemerals go with the timeout",
            exported.sessions_of_baton
        ));
    }
    notes
}

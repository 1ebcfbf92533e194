//! `baton import`: a ZooKeeper server's data becomes a data folder of Baton's. Only reads the old
//! folder; the new one is there only when it is whole. What the bytes mean is `baton_zkdata`'s.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use baton_server::{Progress, Unit, offline};
use baton_zkdata::{Database, OwnerForm, ZkDataError};

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::progress::{CountedIo, ShownProgress};
use crate::output::record::record;
use crate::unfinished::{heed_stops, removed_when_stopped};

/// The folder in ZooKeeper's folders that has the files.
pub(crate) const VERSION_2: &str = "version-2";

/// Make a data folder from a ZooKeeper server's data.
///
/// Imports znodes with all counters and times, ACLs, sessions with their ephemerals, containers and
/// TTLs. Zxids continue where ZooKeeper stopped. Clients keep their sessions and their locks if
/// they reconnect within the session timeout.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton import --zookeeper-data /var/lib/zookeeper --data-dir /var/lib/baton
  baton serve --data-dir /var/lib/baton --listen 0.0.0.0:2181 --insecure

Stop ZooKeeper first: what it writes afterwards is not imported. Of an ensemble,
choose the server that led last, or the one with the highest `Zxid` in `srvr`.
Every checksum is verified, and so is ZooKeeper's digest of the whole tree,
where it wrote one.
Exit codes: 0 done   1 a file is damaged
            125 no ZooKeeper data there, the new folder is not empty, or no
            permission")]
pub(crate) struct Args {
    /// ZooKeeper's dataDir: the folder with version-2 in it.
    #[arg(long, value_name = "DIR")]
    zookeeper_data: PathBuf,
    /// ZooKeeper's dataLogDir, if it has one of its own; a dataDir without any log needs it.
    #[arg(long, value_name = "DIR")]
    zookeeper_log: Option<PathBuf>,
    /// Read negative owners as TTLs, as a server with zookeeper.emulate353TTLNodes does.
    #[arg(long)]
    ttl_of_353: bool,
    /// Import although ZooKeeper's own digest of the tree differs.
    #[arg(long)]
    allow_digest_mismatch: bool,
    /// Import although transactions seem to be missing, and no digest proves that none are.
    #[arg(long)]
    allow_gap: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let Some(folder) = context.globals.data_dir.as_deref() else {
        return Err(Failure::usage(
            "import needs the folder to make: give --data-dir NEW",
        ));
    };
    // Before the work, not after it.
    offline::refuse_used(folder).map_err(|error| Failure::baton(error.to_string()))?;
    let snapshots = Source::open(&args.zookeeper_data)?;
    let logs = match &args.zookeeper_log {
        Some(folder) => Source::open(folder)?,
        None => snapshots.clone(),
    };
    let mut notes = Vec::new();
    heed_stops(&context.output)?;
    let progress = Arc::new(Progress::default());
    let shown = ShownProgress::on_status(&context.output, &progress);
    let (mut database, snapshot) = newest_snapshot(&snapshots, &logs, &progress, &mut notes)?;
    if args.allow_digest_mismatch {
        database.ignore_digests();
    }
    if args.zookeeper_log.is_none() && !logs.has_log() {
        return Err(Failure::baton(format!(
            "{} has no log, and what ZooKeeper wrote after {snapshot} is in one: name its dataLogDir with --zookeeper-log, or this folder again if it had none",
            logs.folder.display()
        )));
    }
    let ReplaySummary { transactions, gap } = replay(&mut database, &logs, &progress, &mut notes)?;
    progress.begin("checking the digest", Unit::Bytes, 0);
    let proved = database.check_digest().map_err(|error| refused(&error))?;
    if let Some(gap) = gap {
        if !proved && !args.allow_gap {
            return Err(Failure::new(
                exit::NOTHING,
                "damaged",
                format!(
                    "{gap}, and no digest proves that nothing is missing: put the missing log back, or import it as it is with --allow-gap"
                ),
            ));
        }
        notes.push(if proved {
            format!("{gap}; by ZooKeeper's digest nothing of the tree is missing")
        } else {
            gap
        });
    }
    let form = if args.ttl_of_353 {
        OwnerForm::Of353
    } else {
        OwnerForm::Extended
    };
    progress.begin("making the tree", Unit::Bytes, 0);
    let mut moved = database.into_tree(form).map_err(|error| refused(&error))?;
    if moved.without_session > 0 {
        notes.push(format!(
            "ephemerals without a session, left out: {}, as ZooKeeper does when it starts; if they are TTL znodes of 3.5.3, use --ttl-of-353",
            moved.without_session
        ));
    }
    if moved.config_cleared {
        notes.push("/zookeeper/config named the old servers and is empty now".to_owned());
    }
    let time_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| {
            i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
        });
    let failed = |error: offline::OfflineError| Failure::baton(error.to_string());
    let unfinished = offline::unfinished_folder(folder).map_err(failed)?;
    let make = || offline::make_data_folder(folder, &mut moved.tree, time_ms, &progress);
    let bytes = removed_when_stopped(&context.output, &unfinished, make)?.map_err(failed)?;
    drop(shown);
    for note in &notes {
        context.output.note(note);
    }
    let (znodes, sessions) = (moved.tree.node_count(), moved.tree.sessions().len());
    let ephemerals = moved.tree.ephemeral_count();
    let zxid = format!("0x{:x}", moved.tree.zxid());
    let data_dir = folder.display().to_string();
    let text = format!(
        "{data_dir}: {znodes} znodes, {sessions} sessions with {ephemerals} ephemerals, up to zxid {zxid} \
         ({snapshot} and {transactions} transactions after it)"
    );
    let report = record! {
        znodes, sessions, ephemerals, zxid, snapshot, transactions, bytes, data_dir, notes,
    };
    context.output.result(&report, text);
    Ok(exit::OK)
}

fn refused(error: &ZkDataError) -> Failure {
    match error {
        ZkDataError::Unreadable { .. } => Failure::baton(error.to_string()),
        _ => Failure::new(exit::NOTHING, "damaged", error.to_string()),
    }
}

/// A folder of ZooKeeper's files.
#[derive(Clone)]
struct Source {
    folder: PathBuf,
    names: Vec<String>,
}

impl Source {
    /// `folder`, or `version-2` in it.
    fn open(folder: &Path) -> Result<Self, Failure> {
        let below = folder.join(VERSION_2);
        let folder = if below.is_dir() { &below } else { folder };
        let cannot = |error: std::io::Error| {
            Failure::baton(format!(
                "cannot read ZooKeeper's folder {}: {error}; name the dataDir of its zoo.cfg",
                folder.display()
            ))
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            names.extend(name.into_string().ok());
        }
        Ok(Self {
            folder: folder.to_owned(),
            names,
        })
    }

    fn has_log(&self) -> bool {
        let mut names = self.names.iter();
        names.any(|name| baton_zkdata::log_file_zxid(name).is_some())
    }

    /// Bytes of a file; 0 if that is not known.
    fn length(&self, name: &str) -> u64 {
        File::open(self.folder.join(name)).map_or(0, |file| length(&file))
    }

    /// A file, and its path as it is shown.
    fn file(&self, name: &str) -> Result<(String, File), Failure> {
        let path = self.folder.join(name);
        let shown = path.display().to_string();
        match File::open(&path) {
            Ok(file) => Ok((shown, file)),
            Err(error) => Err(Failure::baton(format!(
                "cannot read {shown}: {error}; run this as the user that ZooKeeper runs as"
            ))),
        }
    }
}

fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}

/// The newest snapshot that ZooKeeper finished, and its file. One that is finished but damaged is
/// not passed over: what it holds may be nowhere else.
fn newest_snapshot(
    source: &Source,
    logs: &Source,
    progress: &Progress,
    notes: &mut Vec<String>,
) -> Result<(Database, String), Failure> {
    for (zxid, name) in baton_zkdata::snapshots_newest_first(&source.names) {
        let (shown, file) = source.file(&name)?;
        progress.begin("reading the snapshot", Unit::Bytes, length(&file));
        let file = CountedIo {
            inner: file,
            progress,
        };
        match baton_zkdata::read_snapshot(&shown, zxid, file) {
            Ok(database) => return Ok((database, name)),
            Err(ZkDataError::Unfinished { .. }) => notes.push(format!(
                "{shown} was never finished; an older snapshot and the logs after it are used, as ZooKeeper does"
            )),
            Err(error) => return Err(refused(&error)),
        }
    }
    let folder = source.folder.display();
    let what = if baton_zkdata::logs_to_read(&logs.names, 0).is_empty() {
        "no snapshot and no log of ZooKeeper's"
    } else {
        "no finished snapshot of ZooKeeper's: logs alone do not say what was before them"
    };
    Err(Failure::baton(format!(
        "{folder} has {what}; name the dataDir of its zoo.cfg, and with --zookeeper-log its dataLogDir"
    )))
}

/// The result of the replay.
struct ReplaySummary {
    transactions: u64,
    /// Between which transactions others are missing, if any are.
    gap: Option<String>,
}

/// Replays every log after the snapshot.
fn replay(
    database: &mut Database,
    source: &Source,
    progress: &Progress,
    notes: &mut Vec<String>,
) -> Result<ReplaySummary, Failure> {
    let mut replayed = ReplaySummary {
        transactions: 0,
        gap: None,
    };
    let logs = baton_zkdata::logs_to_read(&source.names, database.zxid());
    let total = logs.iter().map(|(_, name)| source.length(name)).sum();
    progress.begin("replaying the logs", Unit::Bytes, total);
    for (_, name) in logs {
        let (shown, file) = source.file(&name)?;
        let file = CountedIo {
            inner: file,
            progress,
        };
        let applied =
            baton_zkdata::replay_log(database, &shown, file).map_err(|error| refused(&error))?;
        replayed.transactions += applied.transactions;
        if applied.empty {
            notes.push(format!(
                "{shown} has nothing in it, as if ZooKeeper was stopped when it had just made it"
            ));
        }
        if let Some(offset) = applied.torn_at {
            notes.push(format!(
                "{shown} was cut off inside a transaction at byte {offset}; that transaction, which ZooKeeper acknowledged to nobody, is left out"
            ));
        }
        if let (Some((before, after)), None) = (applied.gap, &replayed.gap) {
            replayed.gap = Some(format!(
                "{shown} goes on with transaction 0x{after:x} after 0x{before:x}"
            ));
        }
    }
    Ok(replayed)
}

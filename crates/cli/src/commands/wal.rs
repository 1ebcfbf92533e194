//! `baton wal`: prints or checks a server's data folder. It only reads, also while a server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_server::offline;
use baton_wal::{
    DirStorage, DumpItem, EndMark, FileReport, Identity, Record, RecoveryNote, WalError,
};
use serde::Serialize;

use crate::context::Context;
use crate::exit::{self, Failure};

/// Print or check a server's data folder: its log and its snapshots.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton wal verify /var/lib/baton              checks every byte; exits with 1
                                               if something is damaged
  baton wal dump /var/lib/baton --json | jq .

Both only read, and may be used while a server runs. If the server was not
stopped in order (a crash, kill -9), a line on standard error says how many
bytes at the log's end cannot be checked for missing records.
Exit codes: 0 sound   1 damaged, or this version refuses to start on it
            125 no data folder of this format version, or it cannot be read")]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Print every record of the log and every chunk of the snapshots, with file and offset.
    Dump {
        /// The data folder.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Check the checksums of every file, and whether a server could start on the folder.
    Verify {
        /// The data folder.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.act {
        Act::Dump { folder } => dump(folder, context),
        Act::Verify { folder } => verify(folder, context),
    }
}

fn open(folder: &Path) -> Result<DirStorage, Failure> {
    DirStorage::open(folder).map_err(|error| {
        Failure::baton(format!("cannot open the data folder {}: {error}; name the folder given to baton serve --data-dir", folder.display()))
    })
}

fn failure(error: &WalError) -> Failure {
    Failure::new(exit::BATON, "wal", error.to_string())
}

fn dump(folder: &Path, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Line {
        file: String,
        offset: u64,
        bytes: u64,
        kind: &'static str,
        detail: String,
    }
    let mut damaged = None;
    for item in baton_wal::dump(Arc::new(open(folder)?)).map_err(|error| failure(&error))? {
        match item {
            Ok(found) => {
                let (kind, detail) = describe(&found.item);
                let text = format!(
                    "{} {:>10} {:>8}  {kind:<10} {detail}",
                    found.file, found.offset, found.bytes
                );
                context.output.result(
                    &Line {
                        file: found.file,
                        offset: found.offset,
                        bytes: found.bytes,
                        kind,
                        detail,
                    },
                    text,
                );
            }
            Err(error) => {
                let text = format!("damaged: {error}");
                let line = Line {
                    file: String::new(),
                    offset: 0,
                    bytes: 0,
                    kind: "damaged",
                    detail: error.to_string(),
                };
                context.output.result(&line, text);
                damaged = Some(error);
            }
        }
    }
    match damaged {
        Some(error) => Err(Failure::new(exit::NOTHING, "damaged", error.to_string())),
        None => Ok(exit::OK),
    }
}

/// The kind of an item, and its details.
fn describe(item: &DumpItem) -> (&'static str, String) {
    match item {
        DumpItem::SegmentHeader(header) => (
            "segment",
            format!(
                "number {} from entry {} cluster {:016x}",
                header.sequence, header.first_index, header.cluster_id
            ),
        ),
        DumpItem::Record(record) => match record {
            Record::Entry(entry) => (
                "entry",
                format!(
                    "index {} term {} kind {} payload {} bytes",
                    entry.index,
                    entry.term,
                    entry.kind,
                    entry.payload.len()
                ),
            ),
            Record::HardState(state) => {
                ("vote", format!("term {} vote {}", state.term, state.vote))
            }
            Record::Commit { index } => ("commit", format!("up to entry {index}")),
            Record::Snapshot { index, term } => (
                "snapshot",
                format!("up to entry {index} term {term} is durable"),
            ),
            Record::Truncate { from } => {
                ("truncate", format!("entries from {from} on do not count"))
            }
            Record::Sealed { next } => ("sealed", format!("segment {next} follows")),
        },
        DumpItem::Identity(identity) => ("identity", identity_text(identity)),
        DumpItem::EndMark(mark) => (
            "end-mark",
            format!(
                "number {}: segment {} was synced up to byte {} of {}, entry {}{}",
                mark.number,
                mark.sequence,
                mark.offset,
                mark.file_bytes,
                mark.last_index,
                closed_text(mark)
            ),
        ),
        DumpItem::Unused => ("unused", "made ahead".to_owned()),
        DumpItem::Torn => (
            "torn",
            "a write with no sign that it was acknowledged".to_owned(),
        ),
        DumpItem::SnapshotHeader(meta) => ("snapshot", format!("{meta:?}")),
        DumpItem::Chunk {
            kind,
            payload_bytes,
        } => (
            "chunk",
            format!("kind {kind} payload {payload_bytes} bytes"),
        ),
        _ => ("other", String::new()),
    }
}

fn identity_text(identity: &Identity) -> String {
    let membership = match (identity.cluster, identity.is_founded) {
        (0, _) if identity.promise == 0 => "in no cluster yet".to_owned(),
        (0, _) => format!(
            "in no cluster yet, waits for the one that incarnation {} starts",
            short(identity.promise)
        ),
        (cluster, true) => format!("member of cluster {cluster:016x}"),
        (cluster, false) => format!("member of cluster {cluster:016x}, has no log yet"),
    };
    format!(
        "server {} incarnation {}: {membership}",
        identity.server,
        short(identity.incarnation)
    )
}

/// The beginning of an incarnation, as in what servers say of each other.
fn short(incarnation: u128) -> String {
    format!("{:08x}…", incarnation >> 96)
}

fn closed_text(mark: &EndMark) -> &'static str {
    if mark.is_closed {
        ", and closed in good order"
    } else {
        ", and more may have followed"
    }
}

fn verify(folder: &Path, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Line {
        file: String,
        sound: bool,
        detail: String,
    }
    let storage = open(folder)?;
    let report = baton_wal::verify(&storage).map_err(|error| failure(&error))?;
    for file in &report.files {
        let (name, sound, detail) = match file {
            FileReport::Segment {
                file,
                records,
                entries,
                used_bytes,
                file_bytes,
                torn,
            } => (
                file.clone(),
                true,
                format!(
                    "{records} records, {entries} entries, {used_bytes} of {file_bytes} bytes used{}",
                    if *torn {
                        ", ends in a torn write, with no sign that it was acknowledged"
                    } else {
                        ""
                    }
                ),
            ),
            FileReport::Identity { file, identity } => {
                (file.clone(), true, identity_text(identity))
            }
            FileReport::EndMark { file, mark } => (
                file.clone(),
                true,
                format!(
                    "segment {} was synced up to byte {}, entry {}{}",
                    mark.sequence,
                    mark.offset,
                    mark.last_index,
                    closed_text(mark)
                ),
            ),
            FileReport::Snapshot(info) => (
                info.name.clone(),
                true,
                format!("up to entry {}", info.meta.index),
            ),
            FileReport::Damaged { file, error } => (file.clone(), false, error.to_string()),
            _ => continue,
        };
        let condition = if sound { "sound" } else { "DAMAGED" };
        context.output.result(
            &Line {
                file: name.clone(),
                sound,
                detail: detail.clone(),
            },
            format!("{name}  {condition}  {detail}"),
        );
    }
    if let Ok(found) = &report.start {
        for note in &found.notes {
            let text = match note {
                RecoveryNote::NotClosed { .. } => {
                    format!("unless a server runs on it now, {note}")
                }
                note => note.to_string(),
            };
            context.output.note(text);
        }
    }
    // What a start asks last: whole files may be those of a later version.
    let content = match &report.start {
        Ok(found) => offline::check_content(&storage, found),
        Err(_) => Ok(()),
    };
    if let Err(refusal) = content {
        return Err(Failure::new(
            exit::NOTHING,
            "refused",
            format!(
                "{}: this version cannot start from it: {refusal}",
                folder.display()
            ),
        ));
    }
    if report.is_sound() {
        context.output.note(format!(
            "{}: sound, a server can start from it",
            folder.display()
        ));
        return Ok(exit::OK);
    }
    let why = match &report.start {
        Err(error) => format!("a server cannot start from it: {error}"),
        Ok(_) => {
            "a server can start from it, but keep a copy: see the files marked DAMAGED".to_owned()
        }
    };
    Err(Failure::new(
        exit::NOTHING,
        "damaged",
        format!("{}: {why}", folder.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_a_member_is_shown_at_each_step() {
        let mut identity = Identity {
            server: 3,
            incarnation: 0xdead_beef << 96,
            promise: 0,
            cluster: 0,
            birth: Default::default(),
            is_founded: false,
        };
        let mut shown = |change: fn(&mut Identity)| {
            change(&mut identity);
            identity_text(&identity)
        };
        let begin = "server 3 incarnation deadbeef…: ";
        assert_eq!(shown(|_| {}), format!("{begin}in no cluster yet"));
        assert_eq!(
            shown(|identity| identity.promise = 0x0bad_cafe << 96),
            format!(
                "{begin}in no cluster yet, waits for the one that incarnation 0badcafe… starts"
            )
        );
        assert_eq!(
            shown(|identity| identity.cluster = 0xc1),
            format!("{begin}member of cluster 00000000000000c1, has no log yet")
        );
        assert_eq!(
            shown(|identity| identity.is_founded = true),
            format!("{begin}member of cluster 00000000000000c1")
        );
    }
}

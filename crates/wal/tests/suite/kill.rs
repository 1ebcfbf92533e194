//! A real process on a real folder, killed with SIGKILL in mid-run, again and again: what it
//! reported as durable is there. The child is this test's own program, started again with the
//! folder in its environment.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use baton_wal::{DirStorage, Entry, Record, SnapshotMeta, Wal, WalOptions, verify};
use bytes::Bytes;

const FOLDER: &str = "BATON_WAL_KILL_TEST_FOLDER";

fn options() -> WalOptions {
    WalOptions {
        segment_bytes: 32 << 10,
        extend_bytes: 8 << 10,
        keep_snapshots: 2,
        ..WalOptions::default()
    }
}

fn entry(index: u64) -> Entry {
    Entry {
        index,
        term: 1,
        kind: 1,
        payload: Bytes::from(vec![index as u8; (index as usize * 37) % 900]),
    }
}

/// Writes for ever, and prints each index once it is durable.
fn child(folder: &Path) {
    let storage = Arc::new(DirStorage::create(folder).unwrap());
    let (mut wal, found) = Wal::open(storage, options()).unwrap();
    let mut next = found
        .entries
        .last()
        .map_or(found.snapshot.map_or(0, |info| info.meta.index), |entry| {
            entry.index
        })
        + 1;
    let mut out = std::io::stdout();
    loop {
        for _ in 0..=next % 5 {
            wal.append(&[Record::Entry(entry(next))]).unwrap();
            next += 1;
        }
        wal.sync().unwrap();
        if writeln!(out, "durable {}", next - 1).is_err() {
            return;
        }
        wal.append(&[Record::Commit { index: next - 1 }]).unwrap();
        if next % 40 == 0 {
            let meta = SnapshotMeta {
                index: next - 1,
                term: 1,
                zxid: 0,
                time_ms: 0,
                membership: Bytes::new(),
            };
            let mut writer = wal.snapshots().writer(meta).unwrap();
            writer.chunk(1, &[7; 5000]).unwrap();
            let info = writer.finish().unwrap();
            wal.snapshot_saved(&info).unwrap();
        }
    }
}

#[test]
fn a_process_killed_at_any_time_loses_nothing_it_called_durable() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        child(Path::new(&folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(u64::from(std::process::id()));
    let mut durable = 0_u64;
    for life in 0..15 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "kill::a_process_killed_at_any_time_loses_nothing_it_called_durable",
            ])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = rng.u64(..60);
        for line in lines {
            let line = line.unwrap();
            if let Some((_, index)) = line.split_once("durable ") {
                durable = index.parse().unwrap();
                if left == 0 {
                    // The rest of what it managed to say is read to the end: it all counts.
                    child.kill().unwrap();
                }
                left = left.wrapping_sub(1);
            }
        }
        child.wait().unwrap();

        let storage = Arc::new(DirStorage::open(folder.path()).unwrap());
        assert!(verify(storage.as_ref()).unwrap().is_sound(), "life {life}");
        let (wal, found) = Wal::open(storage, options()).unwrap();
        let base = found.snapshot.map_or(0, |info| info.meta.index);
        for (at, found) in found.entries.iter().enumerate() {
            assert_eq!(*found, entry(base + 1 + at as u64), "life {life}");
        }
        assert!(
            wal.last_index() >= durable && durable > 0,
            "life {life}: the log ends at {}, {durable} was called durable",
            wal.last_index()
        );
    }
}

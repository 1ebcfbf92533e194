//! Starts again and again from snapshots taken at every entry: what is replayed is exactly what the
//! snapshot lacks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use baton_proto::{Request, Response};
use baton_server::offline::read_data_folder;
use baton_server::{Builder, Server};

use crate::support::{PATIENCE, Wire};

const SEQUENTIAL: i32 = 2;

fn on(folder: &Path, snapshot_every_entries: u64) -> Builder {
    Server::builder()
        .data_dir(folder)
        .listen("127.0.0.1:0")
        .with(|options| options.snapshot_every_entries = snapshot_every_entries)
}

/// The names of snapshots, oldest first.
fn snapshots(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("snap-") && !name.ends_with(".tmp"))
        .collect();
    names.sort();
    names
}

/// Waits until the folder has a snapshot of a later entry than `newest`.
async fn newer_snapshot(folder: &Path, newest: Option<&String>) {
    let there = async {
        while snapshots(folder).last() <= newest {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.unwrap();
}

/// Zxid and digest of what `folder` holds when only its oldest `kept` snapshots are there.
fn state_from(folder: &Path, kept: usize) -> (i64, u64) {
    let copy = tempfile::tempdir().unwrap();
    let left_out = &snapshots(folder)[kept..];
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !left_out.contains(&name) {
            std::fs::copy(entry.path(), copy.path().join(name)).unwrap();
        }
    }
    let (tree, _) = read_data_folder(copy.path(), &Arc::default()).unwrap();
    (tree.zxid(), tree.digest())
}

async fn listed(wire: &mut Wire, path: &str) -> Vec<String> {
    let list = Request::GetChildren { path, watch: false };
    let Response::Children(mut children) = wire.call(list).await.unwrap() else {
        panic!("a list of children is due");
    };
    children.sort();
    children
}

#[tokio::test]
async fn a_start_from_any_snapshot_repeats_no_entry_and_leaves_none_out() {
    for every in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut zxid = 0;
        let mut created = Vec::new();
        for round in 0..4 {
            let server = on(folder, every).start().await.unwrap();
            assert_eq!(server.last_zxid(), zxid, "a start makes no write up");
            let mut wire = Wire::open(&server.connect_string()).await;
            if round == 0 {
                wire.create("/queue", b"", 0).await.unwrap();
            }
            assert_eq!(listed(&mut wire, "/queue").await, created);
            for _ in 0..4 {
                let before = snapshots(folder);
                let Response::Path(path) = wire.create("/queue/n-", b"", SEQUENTIAL).await.unwrap()
                else {
                    panic!("a path is due");
                };
                let expected = format!("n-{:010}", created.len());
                assert_eq!(path, format!("/queue/{expected}"));
                created.push(expected);
                if every == 1 {
                    newer_snapshot(folder, before.last()).await;
                }
            }
            newer_snapshot(folder, None).await;
            zxid = server.last_zxid();
            if round % 2 == 0 {
                server.shutdown().await.unwrap();
            } else {
                drop(server);
            }
            // Nothing was purged, so the log alone shows what each snapshot has to lead to.
            let from_the_log = state_from(folder, 0);
            assert_eq!(from_the_log.0, zxid);
            for kept in 1..=snapshots(folder).len() {
                let found = state_from(folder, kept);
                assert_eq!(found, from_the_log, "{:?}", &snapshots(folder)[..kept]);
            }
        }
    }
}

#[tokio::test]
async fn entries_of_earlier_runs_count_towards_the_next_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Each run adds the session and three writes.
    for round in 0..3 {
        let server = on(folder, 9).start().await.unwrap();
        let mut wire = Wire::open(&server.connect_string()).await;
        for n in 0..3 {
            wire.create(&format!("/n{round}-{n}"), b"", 0)
                .await
                .unwrap();
        }
        if round == 2 {
            newer_snapshot(folder, None).await;
        }
        drop(server);
    }
}

#[tokio::test]
async fn the_size_of_the_data_folder_counts_snapshots_and_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = on(folder.path(), 1)
        .with(|options| options.four_letter_words = vec!["dirs".to_owned()])
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/a", &[7; 5_000], 0).await.unwrap();
    newer_snapshot(folder.path(), None).await;
    let dirs = crate::support::word(&to, "dirs").await;
    let sizes: Vec<u64> = dirs
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(sizes.len(), 2, "{dirs}");
    assert!(sizes.iter().all(|bytes| *bytes > 0), "{dirs}");
}

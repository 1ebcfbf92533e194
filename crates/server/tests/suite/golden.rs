//! A data folder and a backup of an earlier build, byte by byte as it wrote them. They are kept in
//! `golden/`, a folder for each build at which a format changed, and are never edited: this build
//! starts from them and loses nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_proto::Response;
use baton_server::{Progress, Server, restoring};
use baton_wal::testing::FaultStorage;
use baton_wal::{BackupReader, DirStorage};

use crate::support::{Wire, get, in_memory};

/// Size of a segment of the log, of which the zeros at the end are not kept.
const SEGMENT_BYTES: usize = 1 << 20;

fn folder(build: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(build)
}

fn kept(build: &str) -> FaultStorage {
    let disk = FaultStorage::new();
    for item in std::fs::read_dir(folder(build)).unwrap() {
        let path = item.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        if name == "backup" {
            continue;
        }
        if name.starts_with("log-") {
            bytes.resize(SEGMENT_BYTES, 0);
        }
        disk.put(name, &bytes);
    }
    disk
}

#[tokio::test]
async fn the_folder_of_an_earlier_build_is_served() {
    let options = in_memory().options().clone();
    let disk = kept("7e0eac3");
    let server = Server::start_with(options, Arc::new(disk)).await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    for (path, data) in [
        ("/app", "changed"),
        ("/app/seq-0000000000", "a"),
        ("/app/box/in", "b"),
        ("/app/n6", "v6"),
        ("/app/after-the-snapshot", "v"),
    ] {
        let Ok(Response::Data { data: found, .. }) = wire.call(get(path)).await else {
            panic!("{path} is lost");
        };
        assert_eq!(found.as_deref(), Some(data.as_bytes()), "{path}");
    }
    server.shutdown().await.unwrap();
}

#[test]
fn the_backup_of_an_earlier_build_is_rebuilt() {
    let storage = DirStorage::open(folder("7e0eac3")).unwrap();
    let mut reader = BackupReader::open(&storage, "backup").unwrap();
    let tree = restoring::rebuild(&mut reader, &Progress::default()).unwrap();
    assert_eq!((tree.node_count(), tree.zxid()), (16, 0x28));
}

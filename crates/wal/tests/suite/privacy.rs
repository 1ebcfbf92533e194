//! Readers of a data folder: nobody else. The files hold the passwords of sessions and what ACLs
//! protect.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use baton_wal::{DirStorage, Entry, FolderError, Record, SnapshotMeta, Storage, Wal, WalOptions};
use bytes::Bytes;

const FOLDER: &str = "BATON_WAL_PRIVACY_FOLDER";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn options() -> WalOptions {
    WalOptions {
        segment_bytes: 4096,
        extend_bytes: 4096,
        ..WalOptions::default()
    }
}

/// Makes everything that a data folder can hold; calls `inspect` whenever something was made.
fn fill(folder: &Path, inspect: impl Fn()) {
    let storage = Arc::new(DirStorage::create(folder).unwrap());
    let (mut wal, _) = Wal::open(storage, options()).unwrap();
    for index in 1..=8 {
        wal.append(&[Record::Entry(Entry {
            index,
            term: 1,
            kind: 1,
            payload: Bytes::from(vec![7; 900]),
        })])
        .unwrap();
        wal.sync().unwrap();
        inspect();
    }
    let mut writer = wal
        .snapshots()
        .writer(SnapshotMeta {
            index: 8,
            term: 1,
            zxid: 0,
            time_ms: 0,
            membership: Bytes::new(),
        })
        .unwrap();
    inspect();
    writer.chunk(1, &[7; 300_000]).unwrap();
    inspect();
    let info = writer.finish().unwrap();
    wal.snapshot_saved(&info).unwrap();
    wal.close().unwrap();
    inspect();
}

fn assert_private(folder: &Path) {
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a25_every_file_is_for_its_user_only_whatever_the_umask() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let folder = Path::new(&folder);
        fill(folder, || assert_private(folder));
        println!("filled");
        return;
    }
    for umask in ["0", "022", "0266"] {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("data");
        let script = format!(
            r#"umask {umask}; exec "$0" --exact --nocapture privacy::a25_every_file_is_for_its_user_only_whatever_the_umask"#
        );
        let outcome = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .env(FOLDER, &folder)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned()
            + &String::from_utf8_lossy(&outcome.stderr);
        assert!(
            outcome.status.success() && said.contains("filled"),
            "umask {umask}: {said}"
        );
        assert!(fs::read_dir(&folder).unwrap().count() > 4);
        assert_eq!(mode(&folder) & 0o077, 0);
    }
}

#[test]
fn a25_a_folder_that_others_may_only_read_is_closed_with_its_files() {
    for (open, closed) in [
        (0o755, 0o700),
        (0o711, 0o700),
        (0o2750, 0o2700),
        (0o700, 0o700),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fill(folder, || {});
        fs::write(folder.join("notes"), "of the owner").unwrap();
        for item in fs::read_dir(folder).unwrap() {
            set_mode(&item.unwrap().path(), 0o644);
        }
        set_mode(folder, open);
        DirStorage::create(folder).unwrap();
        assert_eq!(mode(folder), closed);
        assert_eq!(
            mode(&folder.join("notes")),
            0o644,
            "files of others stay as they are"
        );
        fs::remove_file(folder.join("notes")).unwrap();
        assert_private(folder);
    }
}

#[test]
fn a_new_folder_of_a_supervisor_or_a_volume_is_closed() {
    for made in [None, Some("lost+found")] {
        let folder = tempfile::tempdir().unwrap();
        if let Some(name) = made {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        set_mode(folder.path(), 0o755);
        DirStorage::create(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
    }
}

/// A home directory, say, that was named by mistake.
#[test]
fn a_folder_that_is_shared_with_other_files_is_refused_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("index.html"), "for all").unwrap();
    set_mode(folder.path(), 0o755);
    let error = DirStorage::create(folder.path()).unwrap_err();
    assert!(
        matches!(&error, FolderError::OthersRead { other, .. } if other == "index.html"),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains(&format!("chmod 700 {}", folder.path().display())) && !text.contains('\n'),
        "{text}"
    );
    assert_eq!(mode(folder.path()), 0o755);
    // A folder below it is the other remedy.
    let below = folder.path().join("a/b");
    DirStorage::create(&below).unwrap();
    assert_eq!(
        (mode(&below), mode(&folder.path().join("a"))),
        (0o700, 0o700)
    );
}

#[test]
fn a25_a_folder_that_others_may_write_to_is_refused_as_it_is() {
    for open in [0o777, 0o775, 0o1777, 0o720, 0o702] {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), || {});
        set_mode(folder.path(), open);
        let error = DirStorage::create(folder.path()).unwrap_err();
        assert!(
            matches!(error, FolderError::OthersWrite { mode, .. } if mode == open),
            "{error}"
        );
        assert!(error.to_string().contains("chmod 700"), "{error}");
        assert_eq!(mode(folder.path()), open);
    }
}

#[test]
fn a25_a_folder_of_another_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let user = fs::metadata(folder.path()).unwrap().uid();
    let foreign = if user == 0 {
        std::os::unix::fs::chown(folder.path(), Some(65_534), None).unwrap();
        folder.path().to_owned()
    } else {
        Path::new("/").to_owned()
    };
    let owner = fs::metadata(&foreign).unwrap().uid();
    let error = DirStorage::create(&foreign).unwrap_err();
    assert!(
        matches!(error, FolderError::ForeignOwner { owner: found, user: runs, .. } if found == owner && runs == user),
        "{error}"
    );
    assert!(error.to_string().contains("chown"), "{error}");
}

#[test]
fn an_inspection_of_a_folder_changes_no_permissions() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), || {});
    let first = folder.path().join("log-0000000000000001");
    set_mode(&first, 0o640);
    set_mode(folder.path(), 0o755);
    let storage = DirStorage::open(folder.path()).unwrap();
    assert!(baton_wal::verify(&storage).unwrap().is_sound());
    assert!(storage.list().unwrap().len() > 4);
    assert_eq!((mode(&first), mode(folder.path())), (0o640, 0o755));
}

//! `baton import` and `baton export`: what moves, and what each refuses on one line without leaving
//! anything behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::{CommandHome, Ran, RunningCommand, processes, until};

/// A ZooKeeper's dataDir: what an Apache ZooKeeper 3.8.0 wrote, without the files that `without`
/// names.
fn zookeeper(home: &CommandHome, without: &[&str]) -> PathBuf {
    let folder = home.path("zookeeper");
    fs::create_dir_all(folder.join("version-2")).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zkdata/tests/golden");
    for name in ["snapshot.0", "log.1", "snapshot.23.gz"] {
        if !without.contains(&name) {
            fs::copy(golden.join(name), folder.join("version-2").join(name)).unwrap();
        }
    }
    folder
}

fn import(home: &CommandHome, more: &[&str]) -> Ran {
    let mut args = vec![
        "import",
        "--zookeeper-data",
        "zookeeper",
        "--data-dir",
        "new",
    ];
    args.extend(more);
    home.run(&args)
}

fn refused(ran: &Ran, code: i32, says: &str) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.err.contains(says), "{ran:?}");
    assert_eq!(ran.err.trim_end().lines().count(), 1, "{ran:?}");
    assert_eq!(ran.out, "");
}

#[test]
fn a_zookeepers_data_moves_here_and_back() {
    let home = CommandHome::new();
    zookeeper(&home, &["snapshot.23.gz"]);
    let ran = import(&home, &["--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for part in [
        "\"znodes\":25",
        "\"ephemerals\":3",
        "\"snapshot\":\"snapshot.0\"",
    ] {
        assert!(ran.out.contains(part), "{part} in {ran:?}");
    }
    assert_eq!(home.run(&["wal", "verify", "new"]).code, 0);

    // A server starts from it, and goes on where ZooKeeper stopped.
    let mut server = home.spawn(&["serve", "--data-dir", "new"]);
    server.line();
    let ran = home.run(&["--data-dir", "new", "get", "/plain"]);
    assert_eq!((ran.code, ran.out.trim_end()), (0, "data4"), "{ran:?}");
    let ran = home.run(&[
        "--data-dir",
        "new",
        "create",
        "--sequential",
        "/jobs/job-",
        "x",
    ]);
    assert_eq!(ran.out.trim(), "/jobs/job-0000000006", "{ran:?}");
    let ran = home.run(&["--data-dir", "new", "stat", "/locks/lock-0000000000"]);
    assert!(ran.out.contains("10000f2e3960000"), "{ran:?}");

    // Not while it runs.
    let ran = home.run(&["export", "--data-dir", "new", "--zookeeper-data", "back"]);
    refused(&ran, 125, "in use");
    assert!(!home.path("back").exists());
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
    let ran = home.run(&["export", "--data-dir", "new", "--zookeeper-data", "back"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("26 znodes"), "{ran:?}");
    assert!(ran.err.contains("extendedTypesEnabled"), "{ran:?}");
    // Nobody else reads what ACLs protect.
    for folder in ["new", "back/version-2"] {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&home.path(folder)), 0o700, "{folder}");
        for file in fs::read_dir(home.path(folder)).unwrap() {
            let file = file.unwrap().path();
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
    assert_eq!(
        fs::read_to_string(home.path("back/version-2/currentEpoch")).unwrap(),
        "0"
    );

    // A snapshot alone may be all there is, or half of it.
    let mut args = vec!["import", "--zookeeper-data", "back", "--data-dir", "again"];
    refused(&home.run(&args), 125, "name its dataLogDir");
    args.extend(["--zookeeper-log", "back"]);
    let ran = home.run(&args);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("26 znodes"), "{ran:?}");
    let ran = home.run(&["export", "--data-dir", "again", "--zookeeper-data", "back"]);
    refused(&ran, 125, "is not empty");
}

#[test]
fn a_newer_snapshot_needs_fewer_transactions() {
    let home = CommandHome::new();
    zookeeper(&home, &[]);
    let ran = import(&home, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("snapshot.23.gz"), "{ran:?}");
    // Logs in a folder of their own.
    let home = CommandHome::new();
    let folder = zookeeper(&home, &["snapshot.23.gz"]);
    fs::create_dir_all(home.path("logs/version-2")).unwrap();
    fs::rename(
        folder.join("version-2/log.1"),
        home.path("logs/version-2/log.1"),
    )
    .unwrap();
    let ran = import(&home, &["--zookeeper-log", "logs"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("25 znodes"), "{ran:?}");
}

#[test]
fn what_is_damaged_is_refused_and_nothing_is_made() {
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage, &str); 4] = [
        ("log.1", |bytes| bytes[200] ^= 1, "log.1 at byte"),
        ("snapshot.0", |bytes| bytes[100] ^= 1, "snapshot.0 at byte"),
        (
            "snapshot.0",
            |bytes| bytes.truncate(300),
            "no finished snapshot",
        ),
        (
            "log.1",
            |bytes| bytes[0] = 0,
            "not a ZooKeeper transaction log",
        ),
    ];
    for (name, damage, says) in cases {
        let home = CommandHome::new();
        let path = zookeeper(&home, &["snapshot.23.gz"])
            .join("version-2")
            .join(name);
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let ran = import(&home, &[]);
        assert!(ran.code == 1 || ran.code == 125, "{ran:?}");
        let last = ran.err.trim_end().lines().next_back().unwrap_or_default();
        assert!(last.contains(says), "{says} in {ran:?}");
        assert!(!home.path("new").exists() && !home.path("new.unfinished").exists());
    }
}

#[test]
fn a_torn_last_transaction_is_left_out_and_named() {
    let home = CommandHome::new();
    let path = zookeeper(&home, &["snapshot.23.gz"]).join("version-2/log.1");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 80]).unwrap();
    let ran = import(&home, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("cut off inside a transaction"), "{ran:?}");
}

#[test]
fn missing_files_are_refused_unless_asked_for() {
    // The folder of snapshots alone; with it named as the folder of logs, the snapshot is all there
    // is.
    let home = CommandHome::new();
    zookeeper(&home, &["log.1"]);
    refused(&import(&home, &[]), 125, "--zookeeper-log");
    assert!(!home.path("new").exists());
    let ran = import(&home, &["--zookeeper-log", "zookeeper"]);
    assert_eq!(ran.code, 0, "{ran:?}");

    // A snapshot that was finished after more than the logs have.
    let home = CommandHome::new();
    let folder = zookeeper(&home, &["snapshot.0"]).join("version-2");
    fs::rename(folder.join("snapshot.23.gz"), folder.join("snapshot.10.gz")).unwrap();
    let log = fs::read(folder.join("log.1")).unwrap();
    fs::write(folder.join("log.1"), &log[..1000]).unwrap();
    let ran = import(&home, &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("a log is missing; name"), "{ran:?}");
    assert!(!home.path("new").exists());

    // Transactions are missing between snapshot and log: 1 to 3 of those in the log.
    let home = CommandHome::new();
    let path = zookeeper(&home, &["snapshot.23.gz"]).join("version-2/log.1");
    let mut at = 16;
    for _ in 0..3 {
        let length = u32::from_be_bytes(log[at + 8..at + 12].try_into().unwrap());
        at += 12 + length as usize + 1;
    }
    fs::write(&path, [&log[..16], &log[at..]].concat()).unwrap();
    refused(&import(&home, &[]), 1, "a file is missing");
    assert!(!home.path("new").exists());
    let ran = import(&home, &["--allow-digest-mismatch"]);
    refused(&ran, 1, "goes on with transaction 0x4 after 0x0");
    assert!(ran.err.contains("--allow-gap"), "{ran:?}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    for name in ["log.1", "snapshot.0"] {
        let home = CommandHome::new();
        let path = zookeeper(&home, &["snapshot.23.gz"])
            .join("version-2")
            .join(name);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let ran = import(&home, &[]);
        refused(&ran, 125, "as the user that ZooKeeper runs as");
        assert!(ran.err.contains(name), "{ran:?}");
        assert!(!home.path("new").exists());
    }
}

/// A limit on the size of files stands for a disk that is full.
#[test]
fn a_write_that_fails_leaves_nothing() {
    let home = CommandHome::new();
    zookeeper(&home, &[]);
    let limited = |args: &str| {
        let baton = env!("CARGO_BIN_EXE_baton");
        let script = format!("trap '' XFSZ; ulimit -f 1; exec '{baton}' {args}");
        let ran = std::process::Command::new("bash")
            .args(["-c", &script])
            .current_dir(home.path("."))
            .output()
            .unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(125), "{err}");
        assert!(err.contains("new") || err.contains("back"), "{err}");
    };
    let names = || {
        let entries = fs::read_dir(home.path(".")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let before = names();
    limited("import --zookeeper-data zookeeper --data-dir new");
    assert_eq!(names(), before);
    assert_eq!(import(&home, &[]).code, 0);
    limited("export --data-dir new --zookeeper-data back");
    assert!(!home.path("back/version-2").exists());
    assert!(!home.path("back/version-2.unfinished").exists());
    // After an export that was cut off, the error says what to do.
    fs::create_dir_all(home.path("back/version-2.unfinished")).unwrap();
    let ran = home.run(&["export", "--data-dir", "new", "--zookeeper-data", "back"]);
    refused(&ran, 125, "remove it");
}

#[test]
fn wrong_folders_are_refused() {
    let home = CommandHome::new();
    refused(&import(&home, &[]), 125, "cannot read ZooKeeper's folder");
    fs::create_dir(home.path("zookeeper")).unwrap();
    refused(&import(&home, &[]), 125, "no snapshot and no log");
    let ran = home.run(&["import", "--zookeeper-data", "zookeeper"]);
    refused(&ran, 2, "--data-dir");

    zookeeper(&home, &[]);
    fs::create_dir(home.path("new")).unwrap();
    fs::write(home.path("new/mine"), "x").unwrap();
    refused(&import(&home, &[]), 125, "is not empty");
    fs::remove_file(home.path("new/mine")).unwrap();
    fs::create_dir(home.path("new.unfinished")).unwrap();
    refused(&import(&home, &[]), 125, "was cut off");
    fs::remove_dir(home.path("new.unfinished")).unwrap();
    let ran = home.run(&["export", "--data-dir", "new", "--zookeeper-data", "back"]);
    refused(&ran, 125, "not a data folder");
    // An empty folder will do.
    assert_eq!(import(&home, &[]).code, 0);
}

/// Ctrl-C, or a supervisor that has no more time.
#[test]
fn an_import_or_export_that_is_stopped_leaves_nothing() {
    let home = CommandHome::new();
    let item = [vec![b'x'; 900_000], vec![b'\n']].concat();
    fs::write(home.path("items"), item.repeat(30)).unwrap();
    let mut put = home.baton(&["--data-dir", "old", "queue", "put", "/q", "--lines"]);
    put.stdin(fs::File::open(home.path("items")).unwrap());
    assert_eq!(RunningCommand::new(put).end().code, 0);
    // Its socket goes first: it has the folder until its process ends.
    let old = home.path("old").to_string_lossy().into_owned();
    until("the local server has ended itself", || {
        processes(&["serve", &old]).is_empty()
    });
    let export = ["export", "--data-dir", "old", "--zookeeper-data", "back"];
    let import = [
        "import",
        "--zookeeper-data",
        "back",
        "--zookeeper-log",
        "back",
        "--data-dir",
        "new",
    ];
    let cases: [(&[&str], &str, &str); 2] = [
        (&export, "back/version-2", "back/version-2.unfinished"),
        (&import, "new", "new.unfinished"),
    ];
    for (args, made, unfinished) in cases {
        let (made, unfinished) = (home.path(made), home.path(unfinished));
        // Now and then it is done before the signal comes.
        let was_stopped = (0..20).any(|_| {
            let running = home.spawn(args);
            until("it writes", || unfinished.exists() || made.exists());
            running.signal("TERM");
            let ended = running.end();
            assert!(!unfinished.exists(), "{ended:?}");
            let stopped = !made.exists();
            let _ = fs::remove_dir_all(&made);
            if stopped {
                assert_eq!((ended.code, ended.err.as_str()), (143, ""), "{ended:?}");
            }
            stopped
        });
        assert!(was_stopped, "{args:?} was never stopped in the middle");
        let ran = home.run(args);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(made.exists());
    }
}

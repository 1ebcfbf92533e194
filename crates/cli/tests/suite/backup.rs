//! `baton backup` and `baton restore`: what comes back, what does not, and what each refuses
//! without leaving anything behind.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::common::{CommandHome, Ran, RunningCommand, free_port, until};

const TOKEN: &str = "0123456789abcdef";

/// A server with HTTP, and a token for it.
struct Served {
    home: CommandHome,
    clients: String,
    http: String,
    running: RunningCommand,
}

impl Served {
    fn new() -> Self {
        let home = CommandHome::new();
        home.write_secret("token", &format!("{TOKEN}\n"));
        let clients = format!("127.0.0.1:{}", free_port());
        let http = format!("127.0.0.1:{}", free_port());
        let mut served = Self {
            running: start(&home, &clients, &http, "data"),
            home,
            clients,
            http,
        };
        served.running.line();
        served
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.home.baton(args);
        command.env("BATON_SERVERS", &self.clients);
        Ran::from(command.output().unwrap())
    }

    fn back_up(&self, more: &[&str]) -> Ran {
        let with = ["backup", "--http", &self.http, "--http-token-file", "token"];
        self.run(&[&with, more].concat())
    }

    /// Stops the server and starts one on another folder.
    fn move_to(&mut self, folder: &str) {
        self.running.signal("TERM");
        let next = start(&self.home, &self.clients, &self.http, folder);
        let before = std::mem::replace(&mut self.running, next);
        assert_eq!(before.end().code, 0);
    }
}

fn start(home: &CommandHome, clients: &str, http: &str, folder: &str) -> RunningCommand {
    let listen = format!("--listen={clients}");
    let http = format!("--http={http}");
    let data = format!("--data-dir={folder}");
    let more = ["--http-token-file=token", "--max-session-timeout=2s"];
    home.spawn(&[&["serve", &data, &listen, &http], &more[..]].concat())
}

fn refused(ran: &Ran, code: i32, says: &str) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.complaint().contains(says), "{ran:?}");
    assert_eq!(ran.out, "");
}

fn names(home: &CommandHome, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(home.path(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The token of a lock, which is free.
fn token(served: &Served) -> u64 {
    let shown = ["lock", "/lock", "--", "sh", "-c", "echo $BATON_TOKEN"];
    let ran = served.run(&[&shown[..], &[]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.out.trim().parse().unwrap()
}

#[test]
fn r42_a_backup_comes_back_without_its_sessions_and_tokens_go_on_above_all_before() {
    let mut served = Served::new();
    assert_eq!(served.run(&["create", "/kept", "of before"]).code, 0);
    let mut holder = served.home.baton(&["lock", "/lock", "--", "sleep", "600"]);
    holder.env("BATON_SERVERS", &served.clients);
    let holder = RunningCommand::new(holder);
    until("the lock is held", || {
        served.run(&["lock", "show", "/lock"]).out.contains("holds")
    });
    fs::create_dir(served.home.path("backups")).unwrap();
    let ran = served.back_up(&["backups", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let file = report["file"].as_str().unwrap().to_owned();
    assert!(
        file.starts_with("backups/baton-20") && file.ends_with("Z.backup"),
        "{file}"
    );
    let mode = fs::metadata(served.home.path(&file))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(report["sessions"].as_u64() >= Some(1), "{report}");

    // What comes after it is gone later, but for the tokens.
    assert_eq!(served.run(&["set", "/kept", "of later"]).code, 0);
    drop(holder);
    assert_eq!(served.run(&["rm", "/lock", "--recursive", "--yes"]).code, 0);
    let before = token(&served);

    let ran = served.run(&["restore", "--verify", &file, "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let verified: Value = serde_json::from_str(&ran.out).unwrap();
    for field in ["znodes", "sessions", "zxid", "taken"] {
        assert_eq!(verified[field], report[field], "{field}");
    }
    assert!(verified["ephemerals"].as_u64() >= Some(1), "{verified}");
    let mut last = before;
    // The same backup a second time, after the first one has given tokens.
    for folder in ["new", "newer"] {
        let ran = served.run(&["restore", &file, "--data-dir", folder]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.err.contains("never start a server"), "{ran:?}");
        assert_eq!(served.run(&["wal", "verify", folder]).code, 0);
        assert!(names(&served.home, folder).contains(&"RESTORED".to_owned()));
        served.move_to(folder);
        // The first session is served once every lease of before has ended.
        let read = served.run(&["get", "/kept", "--connect-timeout", "60s"]);
        assert_eq!(
            (read.code, read.out.trim_end()),
            (0, "of before"),
            "{read:?}"
        );
        let now = token(&served);
        assert!(now > last, "{now} after {last}");
        last = now;
        until("the wait is over for good", || {
            !names(&served.home, folder).contains(&"RESTORED".to_owned())
        });
    }
    let ran = served.run(&["restore", &file, "--data-dir", "new"]);
    refused(&ran, 125, "is not empty");
    let ran = served.run(&[
        "restore",
        &file,
        "--data-dir",
        "third",
        "--above",
        "0x7ffffffffffffffe",
    ]);
    refused(&ran, 125, "name a lower zxid");
    assert!(!served.home.path("third").exists());
}

#[test]
fn a30_a_backup_takes_nobodys_place_and_goes_to_nobody_without_an_identity() {
    let served = Served::new();
    let home = &served.home;
    fs::write(home.path("taken"), "mine").unwrap();
    refused(&served.back_up(&["taken"]), 125, "is there already");
    assert_eq!(fs::read_to_string(home.path("taken")).unwrap(), "mine");
    // A link that leads elsewhere, to a file or to nothing.
    for to in ["taken", "nothing"] {
        let link = home.path("link");
        std::os::unix::fs::symlink(home.path(to), &link).unwrap();
        refused(&served.back_up(&["link"]), 125, "is there already");
        std::os::unix::fs::symlink(home.path(to), home.path("x.unfinished")).unwrap();
        refused(&served.back_up(&["x"]), 125, "another backup is under way");
        fs::remove_file(link).unwrap();
        fs::remove_file(home.path("x.unfinished")).unwrap();
    }
    assert!(!home.path("nothing").exists());
    refused(
        &served.back_up(&["missing/x"]),
        125,
        "name a folder that is there",
    );
    let ran = served.run(&["backup", "--http", &served.http, "x"]);
    refused(
        &ran,
        1,
        "refused by the server: this command changes something",
    );
    home.write_secret("other", "fedcba9876543210\n");
    let args = [
        "backup",
        "--http",
        &served.http,
        "--http-token-file",
        "other",
        "x",
    ];
    refused(&served.run(&args), 1, "these credentials are not enough");
    // Not a port of HTTP, and none at all.
    let ran = served.run(&["backup", "--http", &served.clients, "x"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    let ran = served.run(&["backup", "--http", "127.0.0.1:1", "x"]);
    refused(&ran, 125, "in its setting http");
    assert!(names(home, ".").iter().all(|name| !name.starts_with('x')));
    // Without a server that has such a port.
    let ran = home.run(&["backup", "x"]);
    refused(&ran, 2, "name it with --http");
}

/// Server that answers a backup's request with this head and these bytes, and then waits or closes.
fn fake(
    head: &'static str,
    body: &'static [u8],
    closes: bool,
) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        if !closes {
            // Until the other side ends.
            let _ = stream.read(&mut request);
        }
    });
    (address, answering)
}

#[test]
fn a30_a_server_that_breaks_off_or_lies_leaves_no_file() {
    let home = CommandHome::new();
    for (head, body, says) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
            &b"BATONSNP"[..],
            "ended after 8 of 1000",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
            b"BATONSN",
            "not a whole backup",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"",
            "not a whole backup",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            b"abc",
            "longer than it says",
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", b"abc", "no length"),
        ("SSH-2.0-OpenSSH\r\n\r\n", b"", "not that of a server"),
        ("", b"", "ended before an answer"),
    ] {
        let (address, answering) = fake(head, body, true);
        let ran = home.run(&["backup", "--http", &address, "x"]);
        refused(&ran, 125, says);
        answering.join().unwrap();
        assert!(names(&home, ".").iter().all(|name| !name.starts_with('x')));
    }
}

#[test]
fn a_backup_that_is_stopped_leaves_no_file() {
    let home = CommandHome::new();
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    let (address, answering) = fake(head, b"BATONSNP", false);
    let taking = home.spawn(&["backup", "--http", &address, "x"]);
    until("it writes", || {
        fs::read(home.path("x.unfinished")).is_ok_and(|bytes| !bytes.is_empty())
    });
    taking.signal("TERM");
    assert_eq!(taking.end().code, 143);
    answering.join().unwrap();
    assert!(names(&home, ".").iter().all(|name| !name.starts_with('x')));
}

#[test]
fn a30_a_restore_refuses_what_is_no_whole_backup_and_leaves_nothing() {
    let served = Served::new();
    assert_eq!(served.run(&["create", "/kept", "x"]).code, 0);
    assert_eq!(served.back_up(&["good"]).code, 0);
    let home = &served.home;
    let good = fs::read(home.path("good")).unwrap();
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../zkdata/tests/golden");
    for (bytes, code, says) in [
        (
            good[..good.len() - 1].to_vec(),
            1,
            "ends in the middle of a chunk",
        ),
        (Vec::new(), 1, "does not begin as a snapshot"),
        (
            b"PK\x03\x04 a zip of somebody".to_vec(),
            1,
            "does not begin as a snapshot",
        ),
        (changed(good.len() / 2), 1, "is damaged at byte"),
        (changed(8), 125, "format version"),
        (
            fs::read(golden.join("snapshot.0")).unwrap(),
            1,
            "use baton import",
        ),
        (
            fs::read(golden.join("log.1")).unwrap(),
            1,
            "does not begin as a snapshot",
        ),
    ] {
        fs::write(home.path("bad"), bytes).unwrap();
        refused(
            &served.run(&["restore", "bad", "--data-dir", "new"]),
            code,
            says,
        );
        refused(&served.run(&["restore", "--verify", "bad"]), code, says);
        let left = names(home, ".");
        assert!(left.iter().all(|name| !name.starts_with("new")), "{left:?}");
    }
    refused(
        &served.run(&["restore", "missing", "--data-dir", "new"]),
        125,
        "cannot read missing",
    );
    refused(
        &served.run(&["restore", "data", "--data-dir", "new"]),
        125,
        "cannot read data",
    );
    refused(&served.run(&["restore", "good"]), 2, "give --data-dir NEW");
    // No folder can be renamed to the name of a link, whatever it leads to.
    fs::create_dir(home.path("elsewhere")).unwrap();
    for target in ["elsewhere", "missing"] {
        std::os::unix::fs::symlink(target, home.path("link")).unwrap();
        let ran = served.run(&["restore", "good", "--data-dir", "link"]);
        refused(&ran, 125, "name a folder in it that is not there yet");
        fs::remove_file(home.path("link")).unwrap();
    }
    // Of two to one folder, or after a kill.
    fs::create_dir(home.path("new.unfinished")).unwrap();
    let ran = served.run(&["restore", "good", "--data-dir", "new"]);
    refused(&ran, 125, "another import or restore is under way");
}

#[test]
fn a_snapshot_in_zookeepers_format_is_restored_too() {
    let mut served = Served::new();
    assert_eq!(served.run(&["create", "/kept", "x"]).code, 0);
    let mut stream = std::net::TcpStream::connect(&served.http).unwrap();
    let request = format!(
        "GET /commands/snapshot?streaming=true HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    fs::write(served.home.path("zk"), &answer[end.unwrap() + 4..]).unwrap();
    let ran = served.run(&["restore", "zk", "--data-dir", "new", "--no-hold", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("\"form\":\"zookeeper\""), "{ran:?}");
    assert!(!names(&served.home, "new").contains(&"RESTORED".to_owned()));
    served.move_to("new");
    let read = served.run(&["get", "/kept", "--connect-timeout", "60s"]);
    assert_eq!((read.code, read.out.trim_end()), (0, "x"), "{read:?}");
}

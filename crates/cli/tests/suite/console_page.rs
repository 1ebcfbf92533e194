//! The console's page at `/` of a server's HTTP: each identity sees what it may read, changes are
//! recorded under it, and nobody takes all of the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use baton_client::{Acl, Client, Config, CreateMode, Perms};
use serde_json::Value;

use crate::common::{CommandHome, RunningCommand, signal, until};

const OWNER: &str = "digest owner:secret";
const EVE: &str = "digest eve:guess";

/// A server with HTTP and an audit record.
struct Site {
    home: CommandHome,
    server: RunningCommand,
    address: String,
    http: String,
    record: PathBuf,
}

impl Site {
    fn new(args: &[&str]) -> Self {
        let home = CommandHome::new();
        let serve = ["serve", "--ephemeral", "--json", "--audit", "./audit.log"];
        let http = ["--http", "127.0.0.1:0"];
        let mut server = home.spawn(&[&serve[..], &http, args].concat());
        let said: Value = serde_json::from_str(&server.line()).unwrap();
        let address = said["serving"][0].as_str().unwrap_or_default().to_owned();
        Self {
            record: home.path("audit.log"),
            http: said["http"].as_str().unwrap().to_owned(),
            address,
            server,
            home,
        }
    }

    fn open() -> Self {
        Self::new(&["--listen", "127.0.0.1:0"])
    }

    /// Sends a request as the user whom this header names.
    fn send(&self, line: &str, authorization: Option<&str>, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.http).unwrap();
        let shown = authorization.map(|shown| format!("Authorization: {shown}\r\n"));
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n{body}",
            self.http,
            body.len(),
            shown.unwrap_or_default()
        );
        socket.write_all(head.as_bytes()).unwrap();
        socket
    }

    /// Status and body.
    fn answer(&self, line: &str, authorization: Option<&str>, body: &str) -> (u16, String) {
        let mut text = String::new();
        let mut socket = self.send(line, authorization, body);
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    fn get(&self, path: &str, authorization: Option<&str>) -> (u16, String) {
        self.answer(&format!("GET /console/api/{path}"), authorization, "")
    }

    fn act(&self, authorization: Option<&str>, what: &str) -> (u16, String) {
        let body = format!(r#"{{"confirmed":true,"what":{what}}}"#);
        self.answer("POST /console/api/act", authorization, &body)
    }

    /// The status of a page that was opened, and what comes to it.
    fn view(&self, authorization: Option<&str>) -> (u16, BufReader<TcpStream>) {
        let socket = self.send("GET /console/api/events", authorization, "");
        let mut events = BufReader::new(socket);
        let mut line = String::new();
        events.read_line(&mut line).unwrap();
        (line.split(' ').nth(1).unwrap().parse().unwrap(), events)
    }

    /// All that a page gets until this is in it.
    fn seen(&self, authorization: Option<&str>, wanted: &str) -> String {
        let (status, mut events) = self.view(authorization);
        assert_eq!(status, 200);
        let mut seen = String::new();
        while !seen.contains(wanted) {
            assert_ne!(events.read_line(&mut seen).unwrap(), 0, "{wanted}: {seen}");
        }
        seen
    }

    fn record(&self) -> String {
        std::fs::read_to_string(&self.record).unwrap()
    }

    /// A client of the server that shows this `USER:PASSWORD`.
    async fn client(&self, digest: &[u8]) -> Client {
        let config = Config::new(&self.address).unwrap();
        Client::connect(config.auth("digest", digest))
            .await
            .unwrap()
    }
}

/// A lock that only its owner may read, below a folder that only its owner may list, and one that
/// everybody sees: the node of the holder, and its `czxid`.
async fn vault(site: &Site) -> (Client, String, i64) {
    let client = site.client(b"owner:secret").await;
    let session = client.session().await.unwrap();
    let own = [Acl::new(Perms::ALL, "auth", "")];
    for path in ["/private", "/private/vault"] {
        let made = session.create_with_acl(path, b"", CreateMode::Persistent, &own);
        made.await.unwrap();
    }
    let name = "_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-lock-";
    let mode = CreateMode::EphemeralSequential;
    let node = format!("/private/vault/{name}");
    let made = session.create_with_acl(&node, b"combination", mode, &own);
    let made = made.await.unwrap();
    session
        .create("/open", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let open = session.create(&format!("/open/{name}"), b"", mode);
    open.await.unwrap();
    (client, made.path, made.stat.czxid)
}

#[tokio::test(flavor = "multi_thread")]
async fn a24_each_identity_sees_what_it_may_read_and_nothing_says_more() {
    let site = Site::open();
    let (_client, node, czxid) = vault(&site).await;
    assert!(
        site.answer("GET /", None, "")
            .1
            .contains("<title>Baton console</title>")
    );
    assert!(site.answer("GET /nothing", None, "").0 == 404);
    let owners = site.seen(Some(OWNER), "/private/vault");
    assert!(owners.contains(r#""lock":{"#), "{owners}");
    let (status, shown) = site.get("recipe?path=/private/vault", Some(OWNER));
    assert_eq!(status, 200, "{shown}");
    for other in [None, Some(EVE)] {
        let mut all = site.seen(other, r#""/open""#);
        for path in ["recipe?path=/private/vault", "recipe?path=/private"] {
            let (status, text) = site.get(path, other);
            assert_eq!(status, 404, "{text}");
            all.push_str(&text);
        }
        let (status, holds) = site.get("holds", other);
        assert_eq!(status, 200, "{holds}");
        all.push_str(&holds);
        assert!(!all.contains("vault"), "{other:?}: {all}");
        for path in ["/private", "/private/vault", &node] {
            let (_, text) = site.get(&format!("node?path={path}"), other);
            assert!(!text.contains("combination"), "{text}");
            let below = text.replace(path, "");
            assert!(
                !below.contains("lock-") && !below.contains("vault"),
                "{text}"
            );
        }
        // An action says no more than that it is not allowed.
        let what = format!(
            r#"{{"action":"break","path":"/private/vault","node":"{node}","czxid":{czxid},"token":{czxid}}}"#
        );
        let (status, text) = site.act(other, &what);
        assert_ne!(status, 200, "{text}");
        assert!(!text.contains("combination"), "{text}");
    }
    assert_eq!(site.get("recipe?path=/private/vault", Some(OWNER)).0, 200);
    assert!(site.get("holds", Some(OWNER)).1.contains("/private/vault"));
}

/// The server keeps who held what, also while nobody looks.
#[test]
fn who_held_a_lock_is_known_afterwards() {
    let site = Site::open();
    let run = |args: &[&str]| {
        site.home
            .run(&[args, &["--servers", &site.address]].concat())
    };
    assert_eq!(
        run(&["lock", "/deploy", "--name", "one", "-c", "true"]).code,
        0
    );
    let args = [
        "lock",
        "/deploy",
        "--name",
        "two",
        "--servers",
        &site.address,
    ];
    let mut broken = site.home.spawn(&args);
    let line = broken.line();
    let token = line.split("token ").nth(1).unwrap();
    let token = token.split_whitespace().next().unwrap();
    assert_eq!(run(&["lock", "break", "/deploy", "--token", token]).code, 0);
    broken.end();
    let mut now = site.home.spawn(&[
        "lock",
        "/deploy",
        "--name",
        "three",
        "--servers",
        &site.address,
    ]);
    now.line();
    let holds = |query: &str| -> Vec<Value> {
        let (status, text) = site.get(&format!("holds{query}"), None);
        assert_eq!(status, 200, "{text}");
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["is_kept"], true, "{found}");
        found["holds"].as_array().unwrap().clone()
    };
    let all = holds("?path=/deploy");
    let word = |hold: &Value, key: &str| hold[key].as_str().unwrap_or("-").to_owned();
    let ends: Vec<_> = all.iter().map(|hold| word(hold, "end")).collect();
    assert_eq!(ends, ["-", "broken", "released"], "{all:?}");
    for (hold, name) in all.iter().zip(["(three)", "(two)", "(one)"]) {
        assert!(word(hold, "process").ends_with(name), "{hold}");
        assert_eq!(hold["path"], "/deploy");
    }
    // Who held it then? The second one, at its last moment; and one that came at the same one.
    let then = all[1]["until_ms"].as_i64().unwrap();
    let found = holds(&format!("?path=/deploy&at_ms={then}"));
    assert!(found.contains(&all[1]), "{found:?}");
    assert_eq!(holds("?path=/deploy&at_ms=1"), [0; 0]);
    assert_eq!(holds("?path=/other"), [0; 0]);
    drop(now);
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_a_change_has_an_author_and_is_recorded_under_that_name() {
    let site = Site::open();
    let (_client, node, czxid) = vault(&site).await;
    let what = format!(
        r#"{{"action":"break","path":"/private/vault","node":"{node}","czxid":{czxid},"token":{czxid}}}"#
    );
    let (status, text) = site.act(None, &what);
    assert_eq!(status, 403, "{text}");
    assert!(text.contains("authenticate"), "{text}");
    // A foreign page has a browser send what it likes but the header that names somebody.
    let (status, _) = site.get("who", None);
    assert_eq!(status, 200);
    let (status, text) = site.get("who", Some(OWNER));
    assert_eq!(status, 200);
    assert!(
        text.contains(r#""who":"digest:owner at 127.0.0.1""#),
        "{text}"
    );
    assert!(text.contains(r#""may_act":true"#), "{text}");
    let (status, text) = site.act(Some(OWNER), &what);
    assert_eq!(status, 200, "{text}");
    let line = format!("operation=delete\tznode={node}\tresult=success");
    until("the change is recorded", || site.record().contains(&line));
    let record = site.record();
    let find = |part: &str| {
        let line = record.lines().rev().find(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("{part}: {record}"))
            .to_owned()
    };
    assert!(
        find(&line).contains("\tuser=127.0.0.1,digest:owner\tip=127.0.0.1\t"),
        "{record}"
    );
    assert!(find("operation=login").contains("digest:owner"), "{record}");
    // Who guesses is recorded, too, and gets nothing.
    assert_eq!(site.get("who", Some("Bearer guess")).0, 403);
    until("the guess is recorded", || {
        site.record()
            .contains("operation=login\tscheme=bearer\treason=")
    });
    assert!(!site.record().contains("guess"));
}

#[test]
fn viewers_and_identities_are_bounded_and_others_still_get_answers() {
    let site = Site::open();
    let mut open = Vec::new();
    let fill = |shown: Option<&str>, open: &mut Vec<_>| {
        let mut count = 0;
        loop {
            let (status, events) = site.view(shown);
            if status == 503 {
                return count;
            }
            assert_eq!(status, 200);
            open.push(events);
            count += 1;
            assert!(count < 40);
        }
    };
    assert_eq!(fill(None, &mut open), 8);
    // Others have places left, and so has who asks for something else.
    assert_eq!(fill(Some(EVE), &mut open), 8);
    assert_eq!(fill(Some(OWNER), &mut open), 0);
    assert_eq!(site.answer("GET /metrics", None, "").0, 200);
    open.clear();
    // One page each: as many identities as there may be.
    let names: Vec<_> = (0..20).map(|at| format!("digest user{at}:x")).collect();
    let kept: Vec<_> = names.iter().map(|name| site.view(Some(name))).collect();
    let accepted = kept.iter().filter(|(status, _)| *status == 200).count();
    assert!((1..=8).contains(&accepted), "{accepted}");
    drop(kept);
    until("places are given back", || site.view(None).0 == 200);
}

#[test]
fn a_server_that_only_its_owner_reaches_shows_its_page_to_nobody_else() {
    let home = CommandHome::new();
    let data = home.path("data").display().to_string();
    let serve = [
        "serve",
        "--data-dir",
        &data,
        "--http",
        "127.0.0.1:0",
        "--json",
    ];
    let mut server = home.spawn(&serve);
    let said: Value = serde_json::from_str(&server.line()).unwrap();
    let http = said["http"].as_str().unwrap();
    let mut socket = TcpStream::connect(http).unwrap();
    write!(
        socket,
        "GET /console/api/node?path=/ HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(answer.contains("authenticate"), "{answer}");
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_open_does_not_hold_the_stop_up_and_its_session_ends() {
    let site = Site::open();
    let client = site.client(b"anybody:x").await;
    let session = client.session().await.unwrap();
    session
        .create("/a", b"", CreateMode::Persistent)
        .await
        .unwrap();
    let (status, _events) = site.view(Some(EVE));
    assert_eq!(status, 200);
    until("its session is there", || {
        site.record().contains("digest:eve")
    });
    let Site { home, server, .. } = site;
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    // A page is no news of the server.
    assert!(ended.err.contains("stopping"), "{ended:?}");
    assert!(!ended.err.contains("session state"), "{ended:?}");
    drop(home);
}

#[test]
fn a_server_without_a_majority_still_shows_which_others_it_misses() {
    let home = CommandHome::new();
    let mut command = home.baton(&["dev", "--servers", "3", "--json"]);
    command.env("TMPDIR", home.dir.path());
    let mut dev = RunningCommand::new(command);
    dev.line();
    let servers = [(); 3].map(|()| serde_json::from_str::<Value>(&dev.line()).unwrap());
    let text = |server: &Value, key: &str| server[key].as_str().unwrap().to_owned();
    let [own, others @ ..] = &servers;
    let http = text(own, "http");
    let mut socket = TcpStream::connect(&http).unwrap();
    write!(
        socket,
        "GET /console/api/events HTTP/1.1\r\nHost: {http}\r\n\r\n"
    )
    .unwrap();
    let mut events = BufReader::new(socket);
    let mut seen = String::new();
    let mut until = |done: &dyn Fn(&str) -> bool| {
        seen.clear();
        while !done(&seen) {
            assert_ne!(events.read_line(&mut seen).unwrap(), 0, "{seen}");
        }
        assert!(!seen.contains(r#""gone":{"server""#), "{seen}");
    };
    until(&|seen| {
        servers
            .iter()
            .all(|server| seen.contains(&text(server, "address")))
    });
    for other in others {
        signal(
            i32::try_from(other["pid"].as_i64().unwrap()).unwrap(),
            "KILL",
        );
    }
    // It has lost its session, and each of the others does not answer.
    until(&|seen| {
        let is_down = |other: &Value| {
            let row = format!(r#""{}":{{"address""#, text(other, "address"));
            let row = seen
                .rsplit_once(&row)
                .map(|(_, row)| row.split("}").nth(1).unwrap_or(row));
            row.is_some_and(|end| end.contains(r#""error":""#))
        };
        seen.contains("no server") && others.iter().all(is_down)
    });
}

//! The audit record as operators read it: who did what, once, at the server of the client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use baton_proto::{
    Acl, AuthPacket, Create, CreateMode, ErrorCode, MultiOp, Perms, Request, Response,
};
use baton_server::{AuditFormat, AuditTo, Builder, ClientAuth, Server};
use tempfile::TempDir;

use crate::support::ensemble::{Ensemble, be_superuser, sync};
use crate::support::http::ask;
use crate::support::tls::{Fleet, connect, open};
use crate::support::{Wire, create, in_memory, set, word};

/// A folder with the record of one server.
struct Record(TempDir);

impl Record {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("audit.log")
    }

    fn of(&self, builder: Builder) -> Builder {
        let to = AuditTo::File(self.file());
        builder.with(|options| options.audit.to = to)
    }

    async fn start(&self) -> Server {
        self.of(in_memory()).start().await.unwrap()
    }

    /// All lines, once the server has stopped, without their times and zxids.
    async fn lines(&self, server: Server) -> Vec<String> {
        server.shutdown().await.unwrap();
        lines(&self.file())
    }
}

/// The lines of a file, without their times and zxids.
fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    let lines = text.lines().map(|line| {
        let (time, rest) = line.split_once('\t').unwrap();
        assert!(time.starts_with("time=2") && time.ends_with('Z'), "{line}");
        let end = rest.find("\tzxid=0x").unwrap_or(rest.len());
        rest[..end].to_owned()
    });
    lines.collect()
}

/// The fields of a line.
fn fields(line: &str) -> BTreeMap<&str, &str> {
    let fields = line.split('\t').map(|field| field.split_once('=').unwrap());
    fields.collect()
}

const START: &str = "user=server\toperation=serverStart\tresult=success";
const STOP: &str = "user=server\toperation=serverStop\tresult=invoked";

fn session(wire: &Wire) -> String {
    format!("session=0x{:x}", wire.session.session_id)
}

/// Between the start and the stop of the server.
fn between(lines: &[String]) -> &[String] {
    assert_eq!(lines.first().unwrap(), START);
    assert_eq!(lines.last().unwrap(), STOP);
    &lines[1..lines.len() - 1]
}

#[tokio::test]
async fn each_change_is_a_line_and_a_read_is_none() {
    let record = Record::new();
    let server = record.start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let who = format!("{}\tuser=127.0.0.1\tip=127.0.0.1\t", session(&wire));
    wire.create("/a", b"1", 0).await.unwrap();
    wire.create("/a/s-", b"", 3).await.unwrap();
    wire.call(set("/a", b"secret data")).await.unwrap();
    wire.get("/a").await.unwrap();
    let refused = wire.call(set("/none", b"")).await;
    assert_eq!(refused, Err(ErrorCode::NoNode));
    let acl = vec![
        Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone"),
        Acl::new(Perms::ALL, "digest", "carol:aGFzaA=="),
    ];
    wire.call(Request::SetAcl {
        path: "/a",
        acl: Some(acl),
        version: -1,
    })
    .await
    .unwrap();
    let delete = |path| Request::Delete { path, version: -1 };
    wire.call(delete("/a/s-0000000000")).await.unwrap_err();
    wire.create("/b c", b"", 0).await.unwrap();
    wire.call(delete("/b c")).await.unwrap();
    let lines = record.lines(server).await;
    let open = "acl=world:anyone:cdrwa";
    let expected: Vec<String> = [
        format!("operation=create\tznode=/a\tznode_type=persistent\t{open}\tresult=success"),
        format!(
            "operation=create\tznode=/a/s-0000000000\tznode_type=ephemeral_sequential\t{open}\tresult=success"
        ),
        "operation=setData\tznode=/a\tresult=success".to_owned(),
        "operation=setData\tznode=/none\tresult=failure\terror=NoNode".to_owned(),
        "operation=setAcl\tznode=/a\tacl=world:anyone:ra,digest:carol:cdrwa\tresult=success"
            .to_owned(),
        "operation=delete\tznode=/a/s-0000000000\tresult=failure\terror=NoAuth".to_owned(),
        format!("operation=create\tznode=/b%20c\tznode_type=persistent\t{open}\tresult=success"),
        "operation=delete\tznode=/b%20c\tresult=success".to_owned(),
    ]
    .into_iter()
    .map(|rest| format!("{who}{rest}"))
    .collect();
    assert_eq!(between(&lines), expected);
    let text = std::fs::read_to_string(record.file()).unwrap();
    assert!(
        !text.contains("secret") && !text.contains("aGFzaA"),
        "{text}"
    );
}

/// The record keeps the beginning of a line between the changes of one client, which must not
/// outlive the identity that it shows.
#[tokio::test]
async fn a_login_shows_in_the_lines_of_the_same_connection_from_then_on() {
    let record = Record::new();
    let server = record.start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let login = |auth| {
        Request::Auth(AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(auth),
        })
    };
    // All in one packet, so that several of the changes share an entry.
    wire.send(&[
        create("/before", b"", 0),
        login(b"alice:secret"),
        create("/alice", b"", 0),
        login(b"bob:secret"),
        create("/both", b"", 0),
    ])
    .await;
    for _ in 0..5 {
        assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    }
    let lines = record.lines(server).await;
    let users: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| fields(line))
        .filter(|fields| fields["operation"] == "create")
        .map(|fields| (fields["znode"], fields["user"]))
        .collect();
    assert_eq!(
        users,
        [
            ("/before", "127.0.0.1"),
            ("/alice", "127.0.0.1,digest:alice"),
            ("/both", "127.0.0.1,digest:alice,digest:bob"),
        ]
    );
}

#[tokio::test]
async fn a_line_has_the_zxid_of_its_change() {
    let record = Record::new();
    let server = record.start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.send(&[create("/a", b"", 0)]).await;
    let (header, _) = wire.reply().await;
    server.shutdown().await.unwrap();
    let text = std::fs::read_to_string(record.file()).unwrap();
    let zxid = format!("\tresult=success\tzxid=0x{:x}\n", header.zxid);
    assert!(text.contains(&zxid), "{text}");
}

#[tokio::test]
async fn a_multi_has_a_line_for_each_part_and_one_more_if_it_fails() {
    let record = Record::new();
    let server = record.start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let acl = || vec![Acl::open_unsafe()];
    let node = |path, mode| MultiOp::Create(Create::new(path, None, acl(), mode));
    let set = |path| MultiOp::SetData {
        path,
        data: None,
        version: -1,
    };
    let check = |path| MultiOp::Check { path, version: -1 };
    let delete = |path| MultiOp::Delete { path, version: -1 };
    wire.call(Request::Multi(vec![
        node("/a", CreateMode::Persistent),
        node("/a/n", CreateMode::PersistentSequential),
        check("/a"),
        set("/a"),
    ]))
    .await
    .unwrap();
    wire.call(Request::Multi(vec![
        set("/a"),
        check("/none"),
        delete("/a/n0000000000"),
    ]))
    .await
    .unwrap();
    let lines = record.lines(server).await;
    let found: Vec<_> = between(&lines)
        .iter()
        .map(|line| {
            let fields = fields(line);
            let of = |name| fields.get(name).copied().unwrap_or("-");
            (of("operation"), of("znode"), of("result"), of("error"))
        })
        .collect();
    assert_eq!(
        found,
        [
            ("create", "/a", "success", "-"),
            ("create", "/a/n0000000000", "success", "-"),
            ("setData", "/a", "success", "-"),
            ("setData", "/a", "failure", "RuntimeInconsistency"),
            (
                "delete",
                "/a/n0000000000",
                "failure",
                "RuntimeInconsistency"
            ),
            ("multiOperation", "/none", "failure", "NoNode"),
        ]
    );
}

#[tokio::test]
async fn ephemerals_that_end_with_their_session_are_named_with_who_ended_it() {
    let record = Record::new();
    let server = record.start().await;
    let to = server.connect_string();
    let (mut closing, mut dying) = (Wire::open(&to).await, Wire::open(&to).await);
    closing.create("/closing", b"", 1).await.unwrap();
    closing.create("/stays", b"", 0).await.unwrap();
    dying.create("/dying-2", b"", 1).await.unwrap();
    dying.create("/dying-1", b"", 1).await.unwrap();
    let (closed, died) = (session(&closing), session(&dying));
    closing.call(Request::CloseSession).await.unwrap();
    assert!(server.expire_session(dying.session.session_id).await);
    let lines = record.lines(server).await;
    let operation = "operation=ephemeralZNodeDeletionOnSessionCloseOrExpire";
    let ended: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains(operation))
        .collect();
    let expected = [
        format!(
            "{closed}\tuser=127.0.0.1\tip=127.0.0.1\t{operation}\tznode=/closing\tresult=success"
        ),
        format!("{died}\tuser=server\t{operation}\tznode=/dying-1\tresult=success"),
        format!("{died}\tuser=server\t{operation}\tznode=/dying-2\tresult=success"),
    ];
    assert_eq!(ended, expected.iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_session_that_goes_on_from_elsewhere_is_recorded_and_a_wrong_password_too() {
    let record = Record::new();
    let socket = record.0.path().join("socket");
    let server = record
        .of(in_memory().unix_socket(&socket))
        .start()
        .await
        .unwrap();
    let (tcp, unix) = (
        server.connect_string(),
        format!("unix:{}", socket.display()),
    );
    let wire = Wire::open(&tcp).await;
    let old = wire.session;
    // From the same address: nothing is new.
    Wire::resume(&tcp, &old, 0).await.unwrap();
    let elsewhere = Wire::resume(&unix, &old, 0).await.unwrap();
    assert_eq!(elsewhere.session.session_id, old.session_id);
    let mut guess = old;
    guess.password[0] ^= 1;
    let refused = Wire::resume(&tcp, &guess, 0).await.unwrap();
    assert_eq!(refused.session.timeout_ms, 0);
    let lines = record.lines(server).await;
    let session = session(&wire);
    let reattach = "operation=sessionReattach";
    assert_eq!(
        between(&lines),
        [
            format!(
                "{session}\tuser=127.0.0.1\tip=unix\t{reattach}\tbefore=127.0.0.1\tresult=success"
            ),
            format!(
                "{session}\tuser=127.0.0.1\tip=127.0.0.1\t{reattach}\tresult=failure\terror=SessionExpired"
            ),
        ]
    );
}

#[tokio::test]
async fn json_has_the_same_and_a_restart_goes_on_in_the_same_file() {
    let record = Record::new();
    for turn in 0..2 {
        let server = record
            .of(in_memory())
            .with(|options| options.audit.format = AuditFormat::Json)
            .start()
            .await
            .unwrap();
        let mut wire = Wire::open(&server.connect_string()).await;
        wire.create(&format!("/a{turn}"), b"", 0).await.unwrap();
        server.shutdown().await.unwrap();
    }
    let text = std::fs::read_to_string(record.file()).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let operations: Vec<_> = lines
        .iter()
        .map(|line| line["operation"].as_str().unwrap())
        .collect();
    let one = ["serverStart", "create", "serverStop"];
    assert_eq!(operations, [one, one].concat());
    assert_eq!(lines[4]["znode"], "/a1");
    assert_eq!(lines[4]["user"][0], "127.0.0.1");
    assert_eq!(lines[4]["acl"][0]["perms"], "cdrwa");
}

#[tokio::test]
async fn a16_the_record_is_private_and_a_file_that_is_none_stops_the_start() {
    use std::os::unix::fs::PermissionsExt;

    let record = Record::new();
    let server = record.start().await;
    let mode = std::fs::metadata(record.file())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    let refused = record
        .of(in_memory())
        .start()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("give each server a file of its own"),
        "{refused}"
    );
    server.shutdown().await.unwrap();
    std::fs::remove_file(record.file()).unwrap();
    std::fs::create_dir(record.file()).unwrap();
    let refused = record
        .of(in_memory())
        .start()
        .await
        .unwrap_err()
        .to_string();
    let expected = format!(
        "cannot write the audit record to {}: ",
        record.file().display()
    );
    assert!(refused.starts_with(&expected), "{refused}");
}

#[tokio::test]
async fn a_server_that_does_not_start_says_so_in_the_record() {
    let record = Record::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let builder = Server::builder()
        .in_memory()
        .listen(taken.local_addr().unwrap().to_string());
    record.of(builder).start().await.unwrap_err();
    let lines = lines(&record.file());
    assert_eq!(lines.len(), 1);
    let fields = fields(&lines[0]);
    assert_eq!(
        (fields["operation"], fields["result"]),
        ("serverStart", "failure")
    );
    assert!(fields["reason"].contains("cannot listen on"), "{lines:?}");
}

#[tokio::test]
async fn a15_a_hostile_client_makes_no_lines_of_its_own() {
    let record = Record::new();
    let server = record.start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let forged =
        "x\ntime=2026-01-01T00:00:00.000Z\tuser=server\toperation=serverStop\tresult=invoked";
    let user = format!("{forged}:password");
    let packet = AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(user.as_bytes()),
    };
    wire.send(&[Request::Auth(packet)]).await;
    assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    let path = format!("/{forged}");
    let spaces = "/a operation=delete result=failure \"quoted\" \u{202e}";
    let acl = vec![
        Acl::new(Perms::ALL, "auth", forged),
        Acl::new(Perms::ALL, "digest", &*user),
    ];
    wire.create(&path, b"", 0).await.unwrap_err();
    wire.create(spaces, b"", 0).await.unwrap();
    wire.call(Request::SetAcl {
        path: spaces,
        acl: Some(acl),
        version: -1,
    })
    .await
    .unwrap_err();
    let lines = record.lines(server).await;
    let operations: Vec<&str> = lines.iter().map(|line| fields(line)["operation"]).collect();
    assert_eq!(
        operations,
        [
            "serverStart",
            "login",
            "create",
            "create",
            "setAcl",
            "serverStop"
        ]
    );
    for line in between(&lines) {
        assert!(line.is_ascii() && !line.contains(['"', ' ']), "{line}");
        let names: Vec<&str> = line
            .split('\t')
            .map(|field| field.split_once('=').unwrap().0)
            .collect();
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), different.len(), "{line}");
        let user = fields(line)["user"];
        assert_eq!(user.split(',').count(), 2, "{line}");
        assert!(user.starts_with("127.0.0.1,digest:x%0Atime%3D"), "{line}");
    }
    assert!(
        lines[3].contains(
            "znode=/a%20operation%3Ddelete%20result%3Dfailure%20%22quoted%22%20%E2%80%AE\t"
        )
    );
}

/// Returns the parts of lines about identities: the operation, its author, its object, and its
/// result.
fn acts(lines: &[String]) -> Vec<String> {
    let acts = between(lines).iter().map(|line| {
        let fields = fields(line);
        let of = |name| fields.get(name).copied().unwrap_or("-");
        let what = match fields.contains_key("znode") {
            true => of("znode"),
            false => of("scheme"),
        };
        format!("{} {} {what} {}", of("operation"), of("user"), of("result"))
    });
    acts.collect()
}

async fn authenticate(wire: &mut Wire, scheme: &str, auth: &[u8]) -> ErrorCode {
    let auth = Some(auth);
    let kind = 0;
    wire.send(&[Request::Auth(AuthPacket { kind, scheme, auth })])
        .await;
    wire.reply().await.0.error()
}

#[tokio::test]
async fn logins_their_failures_and_what_the_superuser_reads_are_recorded() {
    let record = Record::new();
    let server = in_memory()
        .with(|options| options.super_digest = Some(baton_tree::digest_id(b"super:secret")));
    let server = record.of(server).start().await.unwrap();
    let to = server.connect_string();
    let mut alice = Wire::open(&to).await;
    assert_eq!(
        authenticate(&mut alice, "digest", b"alice:hers").await,
        ErrorCode::Ok
    );
    alice.create("/a", b"", 0).await.unwrap();
    alice.get("/a").await.unwrap();
    let mut wrong = Wire::open(&to).await;
    assert_eq!(
        authenticate(&mut wrong, "digest", b"super:guess").await,
        ErrorCode::Ok
    );
    let refused = authenticate(&mut wrong, "kerberos=x y", b"ticket").await;
    assert_eq!(refused, ErrorCode::AuthFailed);
    let mut root = Wire::open(&to).await;
    assert_eq!(
        authenticate(&mut root, "digest", b"super:secret").await,
        ErrorCode::Ok
    );
    assert_eq!(authenticate(&mut root, "ip", b"").await, ErrorCode::Ok);
    root.get("/a").await.unwrap();
    let read = |path| MultiOp::GetData { path, watch: false };
    root.call(Request::MultiRead(vec![read("/a"), read("/b")]))
        .await
        .unwrap();
    root.exists("/a").await;
    root.call(set("/a", b"x")).await.unwrap();
    let lines = record.lines(server).await;
    let (alice, wrong) = ("127.0.0.1,digest:alice", "127.0.0.1,digest:super");
    let root = "127.0.0.1,super,digest:super";
    assert_eq!(
        acts(&lines),
        [
            format!("login {alice} digest success"),
            format!("create {alice} /a success"),
            "login - super failure".to_owned(),
            format!("login {wrong} digest success"),
            format!("login {wrong} kerberos%3Dx%20y failure"),
            format!("login {root} digest success"),
            format!("read {root} /a invoked"),
            format!("read {root} /a invoked"),
            format!("read {root} /b invoked"),
            format!("setData {root} /a success"),
        ]
    );
    let text = std::fs::read_to_string(record.file()).unwrap();
    for secret in ["hers", "guess", "secret", "ticket"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_show_who_it_is_is_recorded_as_refused() {
    let record = Record::new();
    let server = in_memory().with(|options| options.required_schemes = vec!["digest".to_owned()]);
    let server = record.of(server).start().await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.call(set("/a", b"")).await.unwrap_err();
    let lines = record.lines(server).await;
    assert_eq!(
        between(&lines),
        [format!(
            "{}\tuser=127.0.0.1\tip=127.0.0.1\toperation=connect\t\
             reason=it did not authenticate by digest\tresult=failure",
            session(&wire)
        )]
    );
}

#[tokio::test]
async fn words_and_commands_that_change_something_are_recorded() {
    let record = Record::new();
    let server = in_memory().http("127.0.0.1:0").with(|options| {
        options.four_letter_words = vec!["srst".to_owned(), "ruok".to_owned()];
        options.super_digest = Some(baton_tree::digest_id(b"super:secret"));
    });
    let server = record.of(server).start().await.unwrap();
    let (to, http) = (server.connect_string(), server.http_addr().unwrap());
    for name in ["ruok", "srst", "crst"] {
        word(&to, name).await;
    }
    for (command, header) in [
        ("ruok", ""),
        ("srst", ""),
        ("srst", "Authorization: digest super:wrong\r\n"),
        ("crst", "Authorization: digest super:secret\r\n"),
    ] {
        ask(http, "GET", &format!("/commands/{command}"), header, "").await;
    }
    let lines = record.lines(server).await;
    let line = |user: &str, name: &str, via: &str, result: &str| {
        format!(
            "user=127.0.0.1{user}\tip=127.0.0.1\toperation=command\tcommand={name}\tvia={via}\tresult={result}"
        )
    };
    assert_eq!(
        between(&lines),
        [
            line("", "srst", "word", "success"),
            line("", "crst", "word", "failure"),
            line("", "stat_reset", "http", "failure"),
            line(",digest:super", "stat_reset", "http", "failure"),
            line(
                ",super,digest:super",
                "connection_stat_reset",
                "http",
                "success"
            ),
        ]
    );
}

#[tokio::test]
async fn a15_a_certificate_is_a_login_and_its_subject_one_name() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let record = Record::new();
    let server = record.of(fleet.server(ClientAuth::Required));
    let server = server.start().await.unwrap();
    let to = server.secure_addrs()[0];
    let forged = fleet.issue("eve,super\toperation=delete, CN=alice");
    let mut eve = open(to, &fleet.client(Some(&forged))).await;
    eve.create("/a", b"", 0).await.unwrap();
    // With TLS 1.3 the client sees the refusal when it reads.
    if let Ok(stream) = connect(to, &fleet.client(Some(&other.issue("eve")))).await {
        assert!(Wire::open_on(stream).await.is_none());
    }
    let lines = record.lines(server).await;
    let [login, create, refused] = between(&lines) else {
        panic!("{lines:?}");
    };
    let user = fields(login)["user"];
    assert!(user.starts_with("127.0.0.1,x509:CN%3Deve"), "{login}");
    assert_eq!(user.split(',').count(), 2, "{login}");
    assert_eq!(
        (fields(login)["operation"], fields(login)["scheme"]),
        ("login", "x509")
    );
    assert_eq!(
        (fields(create)["operation"], fields(create)["user"]),
        ("create", user)
    );
    assert!(
        refused.starts_with("ip=127.0.0.1\toperation=connect\treason=")
            && refused.ends_with("\tresult=failure"),
        "{refused}"
    );
}

/// The record of each server of an ensemble.
fn records(ensemble: &Ensemble) -> BTreeMap<u64, Vec<String>> {
    (1..=3)
        .map(|id| (id, lines(&ensemble.audit_file(id))))
        .collect()
}

#[tokio::test]
async fn in_an_ensemble_each_change_is_recorded_once_by_the_server_of_its_client() {
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.audit = true;
    ensemble.start_every().await;
    let mut wires = Vec::new();
    for id in 1..=3 {
        let mut wire = ensemble.open(id).await;
        for n in 0..20 {
            wire.create(&format!("/of-{id}-{n}"), b"", n % 2)
                .await
                .unwrap();
        }
        wires.push(wire);
    }
    // One closes its session, one expires; the leader decides that.
    let mut closing = wires.remove(0);
    closing.call(Request::CloseSession).await.unwrap();
    let dying = wires.remove(0).session.session_id;
    let leader = ensemble.leader().await;
    assert!(ensemble.server(leader).expire_session(dying).await);
    let mut admin = ensemble.open(3).await;
    be_superuser(&mut admin).await;
    sync(&mut admin).await;
    let leaving = Request::Reconfig {
        joining: None,
        leaving: Some("9"),
        new_members: None,
        config_id: -1,
    };
    let _: Result<Response, ErrorCode> = admin.call(leaving).await;
    for id in 1..=3 {
        ensemble.stop(id).await;
    }
    let records = records(&ensemble);
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (id, lines) in &records {
        for line in between(lines) {
            let fields = fields(line);
            let what = match fields.get("znode") {
                Some(znode) => format!("{} {znode}", fields["operation"]),
                None => fields["operation"].to_owned(),
            };
            seen.entry(what).or_default().push(*id);
        }
    }
    for id in 1..=3 {
        for n in 0..20 {
            let created = format!("create /of-{id}-{n}");
            assert_eq!(seen.remove(&created), Some(vec![id]), "{created}");
        }
    }
    for n in (1..20).step_by(2) {
        let of = |id| format!("ephemeralZNodeDeletionOnSessionCloseOrExpire /of-{id}-{n}");
        assert_eq!(seen.remove(&of(1)), Some(vec![1]), "its client closed it");
        assert_eq!(
            seen.remove(&of(2)),
            Some(vec![leader]),
            "the leader ended it"
        );
    }
    assert_eq!(
        seen.remove("reconfig /zookeeper/config")
            .map(|ids| ids.len()),
        Some(2),
        "{seen:?}"
    );
    assert_eq!(seen.remove("login"), Some(vec![3]));
    assert_eq!(seen, BTreeMap::new());
}

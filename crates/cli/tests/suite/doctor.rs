//! `baton doctor` on servers that run: healthy ones give no finding, damaged and hostile ones
//! theirs, and none makes it hang. What needs no server is tested beside the judgements.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Instant;

use baton_client::{Config, CreateMode, Op, Session};
use baton_testkit::{ServerOptions, Target, TestServer, zookeeper_or_skip};
use serde_json::Value;

use crate::common::{CommandHome, Ran, RunningCommand, ServedHome, free_port};

/// A session timeout and a comparison of clocks that take little time.
const QUICK: [&str; 4] = ["--session-timeout", "4s", "--clock-for", "300ms"];

/// The findings of `baton doctor --json`, without the sum.
fn findings(ran: &Ran) -> Vec<Value> {
    let lines = ran.out.lines();
    let all = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut all: Vec<Value> = all.collect();
    let sum = all.pop().unwrap_or_else(|| panic!("{ran:?}"));
    assert_eq!(sum["checks"], all.len(), "{ran:?}");
    for finding in &all {
        for key in ["cause", "consequence", "remedy"] {
            let is_told = finding[key].as_str().is_some_and(|text| !text.is_empty());
            assert_eq!(is_told, finding["severity"] != "ok", "{finding}");
        }
    }
    all
}

fn doctor(home: &CommandHome, servers: &str, args: &[&str]) -> Ran {
    let base = ["doctor", "--json", "--servers", servers];
    home.run(&[&base[..], &QUICK, args].concat())
}

/// The findings of this severity, each `check place: finding`.
fn with(ran: &Ran, severity: &str) -> Vec<String> {
    let found = findings(ran).into_iter();
    let found = found.filter(|finding| finding["severity"] == severity);
    let text = |finding: Value| {
        let part = |key: &str| finding[key].as_str().unwrap().to_owned();
        format!("{} {}: {}", part("check"), part("place"), part("finding"))
    };
    found.map(text).collect()
}

/// That there is a finding that begins and goes on like this.
fn assert_found(ran: &Ran, severity: &str, begins: &str, part: &str) {
    let found = with(ran, severity);
    let is_it = |text: &String| text.starts_with(begins) && text.contains(part);
    assert!(
        found.iter().any(is_it),
        "{severity} {begins} … {part}: {found:#?}"
    );
}

/// A load of the machine may make answers slow or late; nothing else is forgiven.
fn assert_healthy(ran: &Ran) {
    let mut bad = with(ran, "error");
    bad.extend(with(ran, "warning"));
    let by_load = ["session ", "reach ", "disk ", "lease ", "room ", "load "];
    bad.retain(|text| !by_load.iter().any(|check| text.starts_with(check)));
    assert!(bad.is_empty(), "{bad:#?}");
}

fn serve(home: &CommandHome, args: &[&str]) -> (RunningCommand, String) {
    let base = ["serve", "--ephemeral", "--listen", "127.0.0.1:0"];
    let mut server = home.spawn(&[&base[..], args].concat());
    let line = server.line();
    let address = line.split_whitespace().nth(3).unwrap();
    let address = address.trim_end_matches(';').to_owned();
    (server, address)
}

#[test]
fn nothing_is_found_on_a_healthy_server_whatever_is_on_its_tree() {
    let home = CommandHome::new();
    let (_server, address) = serve(&home, &[]);
    let run = |args: &[&str]| {
        let ran = home.run(&[args, &["--servers", &address]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    };
    run(&["queue", "put", "/q/plain", "a"]);
    run(&["queue", "put", "/q/late", "a", "--delay", "1h"]);
    run(&["queue", "put", "/q/curator", "a", "--layout", "curator"]);
    run(&["queue", "put", "/q/kazoo", "a", "--layout", "kazoo"]);
    run(&["queue", "work", "put", "/work", "a", "--capacity", "5"]);
    run(&["queue", "work", "put", "/free", "a", "--id", "7"]);
    run(&["counter", "add", "/count", "3"]);
    let mut held = Vec::new();
    for args in [
        &["lock", "/l/plain"][..],
        &["lock", "-s", "/l/read"],
        &["sem", "/l/sem", "--slots", "3"],
        &["elect", "/l/elect"],
        &["member", "join", "/l/group"],
        &["queue", "work", "take", "/work"],
    ] {
        let command = ["--", "sh", "-c", "echo here; exec cat"];
        let takes_command = args[0] != "queue";
        let command = if takes_command { &command[..] } else { &[] };
        let mut running = home.baton(&[args, &["--servers", &address], command].concat());
        running.stdin(std::process::Stdio::piped());
        let mut running = RunningCommand::new(running);
        let line = running.line();
        assert!(!line.is_empty(), "{args:?}");
        held.push(running);
    }
    let ran = doctor(&home, &address, &[]);
    assert_healthy(&ran);
    assert_eq!(with(&ran, "unknown"), [""; 0]);
    let fine = with(&ran, "ok");
    for check in [
        "reach", "mode", "session", "lease", "clock", "disk", "files", "watches", "load", "leader",
        "queue", "lock", "numbers", "children", "skew", "tree", "open", "version",
    ] {
        let is_it = |text: &String| text.starts_with(&format!("{check} "));
        assert!(
            fine.iter().any(is_it) || with(&ran, "warning").iter().any(is_it),
            "{check}: {fine:#?}"
        );
    }
    // For people: a table, and nothing but the sum where nothing is found.
    let table = home.run(&[&["doctor", "--all", "--servers", &address][..], &QUICK].concat());
    assert!(
        table.out.contains("CHECK") && table.out.contains(" checks: "),
        "{table:?}"
    );
    assert!(
        !table.out.contains('\u{1b}'),
        "no colour in a pipe: {table:?}"
    );
}

#[test]
fn three_servers_that_are_one_are_healthy_and_a_short_list_or_a_lost_server_is_found() {
    let home = CommandHome::new();
    let mut command = home.baton(&["dev", "--json", "--servers", "3"]);
    command.env("TMPDIR", home.dir.path());
    let mut dev = RunningCommand::new(command);
    let serving: Value = serde_json::from_str(&dev.line()).unwrap();
    let servers = serving["servers"].as_str().unwrap();
    let ran = doctor(&home, servers, &[]);
    // A leader that is elected just now, on a busy machine, is reported as such.
    let by_election = |text: &String| text.starts_with("term ") || text.starts_with("leader ");
    let mut bad = with(&ran, "warning");
    bad.retain(|text| text.starts_with("members ") || text.starts_with("settings "));
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(with(&ran, "ok").iter().any(by_election), "{ran:?}");

    let two: Vec<_> = servers.split(',').take(2).collect();
    let ran = doctor(&home, &two.join(","), &[]);
    assert_found(&ran, "warning", "members all", "lacks server 3");
    let lost = format!("{servers},127.0.0.1:1");
    let ran = doctor(&home, &lost, &["--connect-timeout", "2s"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_found(&ran, "error", "reach 127.0.0.1:1", "no connection");
    dev.signal("TERM");
    assert_eq!(dev.end().code, 0);
}

#[test]
fn servers_of_one_list_that_each_stand_alone_are_an_error() {
    let home = CommandHome::new();
    let (_one, first) = serve(&home, &[]);
    let (_two, second) = serve(&home, &["--tick", "100ms"]);
    let ran = doctor(&home, &format!("{first},{second}"), &[]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_found(&ran, "error", "leader all", "each stand alone");
    assert_found(&ran, "warning", "settings all", "tickTime");
    let said = home.run(
        &[
            &["doctor", "--servers", &format!("{first},{second}")][..],
            &QUICK,
        ]
        .concat(),
    );
    for part in ["cause", "consequence", "remedy", "baton server ls"] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
}

async fn session(address: &str) -> Session {
    Session::connect(Config::new(address).unwrap())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_layouts_are_found_and_healed_ones_are_not() {
    let served = ServedHome::with(ServerOptions::default()).await;
    let session = session(&served.servers).await;
    let run = |args: &[&str]| {
        let ran = served.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    };
    run(&["queue", "work", "put", "/work", "a"]);
    run(&["queue", "work", "put", "/limited", "a", "--capacity", "3"]);
    session.delete("/work/dead", None).await.unwrap();
    session.delete("/limited/gate", None).await.unwrap();
    let make = async |path: &str, mode| {
        session.create(path, b"", mode).await.unwrap();
    };
    for folder in ["/foreign", "/orphan", "/mixed", "/high", "/zwide"] {
        make(folder, CreateMode::Persistent).await;
    }
    make("/foreign/ab__lock__0000000001", CreateMode::Ephemeral).await;
    make("/foreign/job-0000000002", CreateMode::Persistent).await;
    make("/orphan/ab__lock__0000000001", CreateMode::Ephemeral).await;
    make("/orphan/cd__lock__0000000000", CreateMode::Persistent).await;
    make("/mixed/ab__lock__0000000001", CreateMode::Ephemeral).await;
    let curator = "/mixed/_c_11111111-2222-3333-4444-555555555555-lock-0000000002";
    make(curator, CreateMode::Ephemeral).await;
    make("/high/lock-2147483000", CreateMode::Persistent).await;
    for hundred in 0..101 {
        let names = (0..100).map(|one| format!("/zwide/n{hundred}-{one}"));
        let ops: Vec<Op> = names
            .map(|path| Op::create(path, "", CreateMode::Persistent))
            .collect();
        session.multi(&ops).await.unwrap();
    }
    let ran = doctor(&served.home, &served.servers, &["--znodes", "20000"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_found(&ran, "error", "queue /work", "lacks dead");
    assert_found(&ran, "error", "queue /limited", "lacks gate");
    assert_found(&ran, "error", "lock /foreign", "/foreign/job-0000000002");
    assert_found(
        &ran,
        "error",
        "lock /orphan",
        "/orphan/cd__lock__0000000000",
    );
    assert_found(&ran, "error", "lock /mixed", "several naming schemes");
    assert_found(&ran, "warning", "numbers /high", "2147483000");
    assert_found(&ran, "warning", "children /zwide", "10100 children");
    // Part of the tree, and no more than is allowed.
    let part = doctor(&served.home, &served.servers, &["/orphan"]);
    assert_eq!(with(&part, "error").len(), 1, "{part:?}");
    let few = doctor(&served.home, &served.servers, &["--znodes", "3"]);
    assert_found(&few, "unknown", "tree tree", "the limit was reached");
    // The remedies are remedies.
    run(&["queue", "work", "repair", "/work"]);
    run(&["queue", "work", "repair", "/limited"]);
    for path in ["/foreign", "/orphan", "/mixed", "/high", "/zwide"] {
        run(&["rm", "-r", "--yes", path]);
    }
    assert_healthy(&doctor(&served.home, &served.servers, &[]));
    session
        .close_timeout(std::time::Duration::from_secs(5))
        .await
        .unwrap();
}

#[test]
fn what_may_not_be_read_is_not_passed_over_in_silence() {
    let home = CommandHome::new();
    let (_server, address) = serve(&home, &[]);
    home.write_secret("auth", "digest:me:secret\n");
    let mine = [
        "--servers",
        &address,
        "--auth-file",
        "auth",
        "--acl",
        "creator",
    ];
    let made = home.run(&[&["create", "/mine"][..], &mine].concat());
    assert_eq!(made.code, 0, "{made:?}");
    let ran = doctor(&home, &address, &[]);
    assert_found(&ran, "unknown", "tree tree", "may not be read");
    let ran = doctor(&home, &address, &["--auth-file", "auth"]);
    assert_eq!(with(&ran, "unknown"), [""; 0]);
    assert_found(&ran, "ok", "open tree", "everyone may change");
}

#[test]
fn certificates_are_judged_and_a_wrong_authority_is_an_error() {
    let home = CommandHome::new();
    let made = home.run(&["cert", "init", "tls", "--days", "12"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(home.run(&["cert", "init", "other"]).code, 0);
    let serve = [
        "serve",
        "--ephemeral",
        "--secure-listen=127.0.0.1:0",
        "--tls-cert=tls/server.pem",
        "--tls-key=tls/server.key",
    ];
    let mut server = home.spawn(&serve);
    let line = server.line();
    let port = line.split("tls://127.0.0.1:").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let servers = format!("tls://localhost:{port}");
    let own = [
        "--tls-cert",
        "tls/client.pem",
        "--tls-key",
        "tls/client.key",
    ];
    let ca = ["--tls-ca", "tls/ca.pem"];
    let ran = doctor(&home, &servers, &[&ca[..], &own].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_found(&ran, "warning", &format!("certificate {servers}"), "days");
    assert_found(&ran, "warning", "certificate own", "days");
    assert_found(&ran, "ok", "mode tls://", "standalone");
    let ran = doctor(&home, &servers, &["--tls-ca", "other/ca.pem"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_found(&ran, "error", "reach tls://", "TLS failed");
    let ran = doctor(&home, &format!("tls://127.0.0.2:{port}"), &ca);
    assert_eq!(ran.code, 3, "{ran:?}");
}

/// An ensemble of three servers that accept clients over TLS only, with a certificate.
fn three_with_certificates(home: &CommandHome) -> (Vec<RunningCommand>, String) {
    let made = home.run(&["cert", "init", "tls"]);
    assert_eq!(made.code, 0, "{made:?}");
    let places: Vec<_> = (1..=3).map(|id| (id, free_port(), free_port())).collect();
    let list = |name: &str, port: fn(&(u8, u16, u16)) -> u16| {
        let lines = places
            .iter()
            .map(|place| format!("{} = \"127.0.0.1:{}\"\n", place.0, port(place)));
        format!("[ensemble.{name}]\n{}", lines.collect::<String>())
    };
    let lists = [
        list("servers", |place| place.2),
        list("clients", |place| place.1),
    ]
    .concat();
    let tls =
        ["tls_cert", "tls_key", "tls_ca"]
            .into_iter()
            .zip(["server.pem", "server.key", "ca.pem"]);
    let tls = tls.map(|(key, file)| {
        let path = home.path("tls").join(file);
        format!("{key} = \"{}\"\n", path.display())
    });
    let tls: String = tls.collect();
    let mut servers = Vec::new();
    for (id, port, _) in &places {
        let data = home.path(&format!("data{id}"));
        let text = format!(
            "data_dir = \"{}\"\nserver_id = {id}\nsecure_listen = \"127.0.0.1:{port}\"\n{tls}{lists}",
            data.display()
        );
        let file = format!("{id}.toml");
        std::fs::write(home.path(&file), text).unwrap();
        servers.push(home.spawn(&["serve", "--config", &file]));
    }
    // A line of each: they wait for each other.
    for server in &mut servers {
        let line = server.line();
        assert!(line.contains("tls://"), "{line}");
    }
    let addresses = places
        .iter()
        .map(|(_, port, _)| format!("127.0.0.1:{port}"));
    let addresses: Vec<_> = addresses.collect();
    (servers, format!("tls://{}", addresses.join(",")))
}

#[test]
fn three_servers_that_ask_for_certificates_are_healthy_with_one_and_without_that_is_what_is_wrong()
{
    let home = CommandHome::new();
    let (_servers, servers) = three_with_certificates(&home);
    let ca = ["--tls-ca", "tls/ca.pem"];
    let own = [
        "--tls-cert",
        "tls/client.pem",
        "--tls-key",
        "tls/client.key",
    ];
    // Each has found its leader.
    for server in servers.split(',') {
        let server = format!("tls://{}", server.trim_start_matches("tls://"));
        let ls = [&["ls", "/", "--servers", &server][..], &ca, &own].concat();
        let ran = home.run(&ls);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = doctor(&home, &servers, &[&ca[..], &own].concat());
    let mut bad = with(&ran, "error");
    bad.extend(with(&ran, "warning"));
    let by_load = [
        "session ", "reach ", "disk ", "lease ", "room ", "load ", "term ", "leader ",
    ];
    bad.retain(|text| !by_load.iter().any(|check| text.starts_with(check)));
    assert!(bad.is_empty(), "{bad:#?}");
    assert_found(&ran, "ok", "members all", "all 3 members");
    let fine = with(&ran, "ok");
    let of = |check: &str| fine.iter().filter(|text| text.starts_with(check)).count();
    assert_eq!(
        (of("certificate tls://"), of("mode tls://")),
        (3, 3),
        "{fine:#?}"
    );

    let ran = doctor(
        &home,
        &servers,
        &[&ca[..], &["--connect-timeout", "2s"]].concat(),
    );
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_found(&ran, "error", "reach tls://", "asks for a certificate");
    let all = findings(&ran);
    let reach = all.iter().find(|finding| finding["check"] == "reach");
    let remedy = reach.unwrap()["remedy"].as_str().unwrap();
    assert!(remedy.contains("--tls-cert"), "{remedy}");
    // Nothing follows from it that is not so.
    assert!(
        !all.iter().any(|finding| finding["check"] == "mode"),
        "{all:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_clients_authenticate_by_sasl_is_healthy_with_credentials_and_named_without()
{
    let options = ServerOptions {
        sasl_users: vec![("bob".to_owned(), "secret".to_owned())],
        requires_sasl: true,
        ..ServerOptions::default()
    };
    let served = ServedHome::with(options).await;
    let home = &served.home;
    home.write_secret("bob", "sasl:bob:secret\n");
    home.write_secret("eve", "sasl:bob:guess\n");
    let ran = doctor(home, &served.servers, &["--auth-file", "bob"]);
    assert_healthy(&ran);
    assert_found(&ran, "ok", "mode", "standalone");
    for (args, part) in [
        (&["--connect-timeout", "2s"][..], "requires authentication"),
        (&["--connect-timeout", "2s", "--auth-file", "eve"], "SASL"),
    ] {
        let ran = doctor(home, &served.servers, args);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert_found(&ran, "error", "session", part);
        // A word needs no credentials, so the rest is known.
        assert_found(&ran, "ok", "mode", "standalone");
        let all = findings(&ran);
        let session = all.iter().find(|finding| finding["check"] == "session");
        let remedy = session.unwrap()["remedy"].as_str().unwrap();
        assert!(remedy.contains("credentials"), "{remedy}");
    }
}

#[test]
fn a_clock_that_runs_fast_or_slow_is_an_error_and_one_that_is_right_is_not() {
    let home = CommandHome::new();
    // A server whose clock runs at this multiple of ours; it opens no session.
    let ticking = |rate: f64| {
        let began = Instant::now();
        impostor(move |stream| {
            let mut word = [0; 4];
            if stream.read_exact(&mut word).is_err() {
                return;
            }
            let uptime = began.elapsed().as_secs_f64() * 1000.0 * rate;
            let answer = match &word {
                b"srvr" => {
                    "Zookeeper version: 3.9.3, built\nZxid: 0x5\nMode: standalone\n".to_owned()
                }
                b"mntr" => format!("zk_version\t3.9.3\nzk_uptime\t{uptime:.0}\n"),
                _ => String::new(),
            };
            let _ = stream.write_all(answer.as_bytes());
        })
    };
    let [fast, slow, right] = [3.0, 0.2, 1.0].map(ticking);
    let list = [fast, slow, right]
        .map(|address| address.to_string())
        .join(",");
    let ran = doctor(&home, &list, &["--connect-timeout", "1s"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let place = |address: SocketAddr| format!("clock {address}");
    assert_found(&ran, "error", &place(fast), "+");
    assert_found(&ran, "error", &place(slow), "-");
    assert_found(&ran, "ok", &place(right), "against this machine's");
    let all = findings(&ran);
    let clock = all
        .iter()
        .find(|finding| finding["check"] == "clock" && finding["severity"] == "error");
    let clock = clock.unwrap();
    assert!(
        clock["consequence"]
            .as_str()
            .unwrap()
            .contains("two may hold"),
        "{clock}"
    );
    assert!(
        clock["remedy"]
            .as_str()
            .unwrap()
            .contains("which clock is wrong"),
        "{clock}"
    );
}

/// A listener that is not a server: it does this with each connection.
fn impostor(with: impl Fn(&mut std::net::TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, with) = (stream.unwrap(), with.clone());
            thread::spawn(move || with(&mut stream));
        }
    });
    address
}

/// Reads until the other side goes.
fn drain(stream: &mut std::net::TcpStream) {
    let _ = std::io::copy(stream, &mut std::io::sink());
}

#[test]
fn what_is_no_server_is_named_and_cannot_hold_the_doctor_up_or_fill_its_memory() {
    let home = CommandHome::new();
    let rubbish = impostor(|stream| {
        let _ = stream.read_exact(&mut [0; 4]);
        let _ = stream.write_all(b"SSH-2.0-\x1b[2J\xff\xfe evil\r\n");
    });
    let silent = impostor(drain);
    let closing = impostor(|stream| {
        let _ = stream.read_exact(&mut [0; 4]);
    });
    let endless = impostor(|stream| {
        // Far more than anybody should keep.
        let block = vec![b'x'; 1 << 20];
        for _ in 0..1024 {
            if stream.write_all(&block).is_err() {
                return;
            }
        }
    });
    // Says that it is one, and that it has endless file descriptors.
    let liar = impostor(|stream| {
        let _ = stream.read_exact(&mut [0; 4]);
        let _ = stream.write_all(
            b"Zookeeper version: \x1b]0;x\x07, built\nMode: leader\nZxid: 0xffffffffffffffff\nzk_version\t1\n\
              zk_open_file_descriptor_count\t1e308\nzk_max_file_descriptor_count\t-inf\nzk_uptime\tNaN\n\
              zk_watch_count\t-5\nclientPort=99999999999999999999\nserverId=-1\ndataDir=/\x1b[2J\n",
        );
    });
    let places = [rubbish, silent, closing, endless, liar];
    let list = places.map(|address| address.to_string()).join(",");
    // A limit on memory that a server's gigabyte would break.
    let limited = format!(
        "ulimit -v 2000000; exec \"$0\" doctor --json --servers {list} --connect-timeout 1s --clock-for 100ms"
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_baton")]);
    command
        .env("HOME", home.dir.path())
        .current_dir(home.dir.path());
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 3, "{ran:?}");
    let place = |check: &str, address: SocketAddr| format!("{check} {address}");
    assert_found(
        &ran,
        "error",
        &place("mode", rubbish),
        "not one of a server: SSH-2.0",
    );
    assert_found(
        &ran,
        "error",
        &place("mode", silent),
        "does not answer in time",
    );
    assert_found(&ran, "error", &place("mode", closing), "without an answer");
    assert_found(&ran, "error", &place("mode", endless), "mode");
    assert_found(&ran, "error", &place("session", liar), "no session");
    let table = home.run(&[
        "doctor",
        "--all",
        "--servers",
        &list,
        "--connect-timeout",
        "1s",
        "--clock-for",
        "100ms",
    ]);
    assert_eq!(table.code, 3, "{table:?}");
    let controls = |text: &str| text.chars().any(|one| one.is_control() && one != '\n');
    assert!(!controls(&table.out) && !controls(&table.err), "{table:?}");
}

#[test]
fn no_server_at_all_is_a_failure_that_starts_none() {
    let home = CommandHome::new();
    let ran = home.run(&["doctor"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.complaint().contains("does not run"), "{ran:?}");
    assert!(!home.state().exists());
    // One that runs is looked at.
    assert_eq!(home.run(&["ls", "/"]).code, 0);
    let ran = home.run(&[&["doctor", "--json"][..], &QUICK].concat());
    assert_healthy(&ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apache_zookeeper_is_healthy_and_what_it_does_not_say_is_not_checked() {
    if !zookeeper_or_skip() {
        return;
    }
    let server = TestServer::start(Target::ZooKeeper).await.unwrap();
    let home = CommandHome::new();
    let servers = server.connect_string();
    let ran = tokio::task::spawn_blocking(move || doctor(&home, &servers, &[]))
        .await
        .unwrap();
    assert_healthy(&ran);
    assert_found(&ran, "ok", "mode", "standalone");
    assert!(
        with(&ran, "ok")
            .iter()
            .any(|text| text.contains("small writes")),
        "{ran:?}"
    );
}

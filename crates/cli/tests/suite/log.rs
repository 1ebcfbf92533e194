//! The server's log: what it shows, how a line looks, what it says of a start and of a lost
//! session, and that nobody waits for its reader.

use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::Value;

use crate::common::{CommandHome, Ran, RunningCommand, until};

const SERVE: [&str; 4] = ["serve", "--ephemeral", "--listen", "127.0.0.1:0"];

/// The address in the line with which a server says that it serves.
fn address(line: &str) -> String {
    let (_, rest) = line.split_once("serving on ").unwrap();
    let end = rest.find([';', ' ']).unwrap();
    rest[..end].to_owned()
}

/// A server that serves, its address, and the log that it has at its end.
struct Served {
    server: RunningCommand,
    address: String,
}

impl Served {
    fn start(mut command: Command, args: &[&str]) -> Self {
        command.args(args);
        let mut server = RunningCommand::new(command);
        let address = address(&server.line());
        Self { server, address }
    }

    fn stop(self) -> Ran {
        self.server.signal("TERM");
        let ended = self.server.end();
        assert_eq!(ended.code, 0, "{ended:?}");
        ended
    }
}

fn objects(text: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
    text.lines().map(read).collect()
}

fn line<'a>(log: &'a [Value], message: &str) -> &'a Value {
    let found = log.iter().find(|line| line["message"] == message);
    found.unwrap_or_else(|| panic!("no {message:?} in {log:#?}"))
}

#[test]
fn the_flag_outweighs_the_variable_and_this_one_the_file() {
    let home = CommandHome::new();
    std::fs::write(home.path("baton.toml"), "log = \"error\"\n").unwrap();
    let printed = |variable: &str, flags: &[&str]| {
        let mut command = home.baton(&["serve", "--config", "baton.toml", "--print-config"]);
        command.args(flags).env("BATON_LOG", variable);
        let ran = Ran::from(command.output().unwrap());
        let shown = ran.out.lines().find(|line| line.starts_with("log ="));
        shown
            .map(str::to_owned)
            .unwrap_or_else(|| panic!("{ran:?}"))
    };
    assert!(printed("", &[]).starts_with("log = \"error\"  # baton.toml"));
    let of_variable = printed("info,baton_server::net=debug", &[]);
    let wanted = "log = \"info,baton_server::net=debug\"  # BATON_LOG in the environment";
    assert_eq!(of_variable, wanted);
    let of_flag = printed("debug", &["--log", "warn"]);
    assert_eq!(of_flag, "log = \"warn\"  # --log");
}

#[test]
fn a_filter_shows_one_part_of_the_server_only() {
    let home = CommandHome::new();
    let filter = "off,baton_server::server::start_line=info";
    let served = Served::start(home.baton(&SERVE), &["--log", filter]);
    let ended = served.stop();
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    assert!(
        ended.err.contains(" INFO the server serves version="),
        "{ended:?}"
    );
}

#[test]
fn the_log_is_json_where_it_is_asked_for_whatever_the_results_are() {
    let home = CommandHome::new();
    let served = Served::start(home.baton(&SERVE), &["--log-format", "json"]);
    let lines = objects(&served.stop().err);
    assert_eq!(line(&lines, "the server serves")["level"], "info");
    // And text with --json, if somebody wants that. The failure of a start has the log's form.
    let mut command = home.baton(&["--json"]);
    command.args(SERVE).args(["--log-format", "text"]);
    let mut server = RunningCommand::new(command);
    let ready: Value = serde_json::from_str(&server.line()).unwrap();
    let taken = ready["serving"][0].as_str().unwrap().to_owned();
    let args = [
        "serve",
        "--ephemeral",
        "--listen",
        &taken,
        "--log-format",
        "json",
    ];
    let second = home.run(&args);
    assert_eq!(second.code, 125, "{second:?}");
    let failed = objects(&second.err);
    assert!(
        failed.iter().any(|line| line["error"].is_string()),
        "{second:?}"
    );
    server.signal("TERM");
    let ended = server.end();
    assert!(
        ended.err.contains(" INFO the server serves version="),
        "{ended:?}"
    );
}

#[test]
fn the_start_line_says_what_serves_and_what_was_recovered() {
    let home = CommandHome::new();
    let args = ["serve", "--data-dir", "data", "--listen", "127.0.0.1:0"];
    let json = ["--log-format", "json"];
    let served = Served::start(home.baton(&args), &json);
    let made = home.run(&["create", "/kept", "--servers", &served.address]);
    assert_eq!(made.code, 0, "{made:?}");
    served.stop();
    let served = Served::start(home.baton(&args), &json);
    let (pid, address) = (served.server.pid(), served.address.clone());
    let log = objects(&served.stop().err);
    let start = line(&log, "the server serves");
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(start["pid"], pid);
    assert_eq!(start["data"], home.path("data").to_str().unwrap());
    assert_eq!(start["role"], "alone");
    assert_eq!(start["snapshot_index"], 0);
    assert!(start["log_entries"].as_u64().unwrap() > 1, "{start}");
    assert_eq!(start["torn_bytes"], 0);
    let listen = start["listen"].as_str().unwrap();
    let socket = home.path("data/baton.sock");
    assert_eq!(listen, format!("{address},unix:{}", socket.display()));
    let open_files = start["open_files"].as_u64().unwrap();
    let fitting = open_files.saturating_sub(256).min(110_000);
    assert_eq!(start["max_connections"], fitting);
}

#[test]
fn too_few_open_files_are_a_warning_with_the_remedy() {
    let home = CommandHome::new();
    let mut command = Command::new("sh");
    let baton = home.baton(&[]);
    command.envs(
        baton
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let script = "ulimit -n 400 && exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_baton")]);
    command.args(SERVE).current_dir(home.dir.path());
    let ended = Served::start(command, &["--log-format", "json"]).stop();
    let log = objects(&ended.err);
    let warning = log.iter().find(|line| line["level"] == "warn").unwrap();
    assert_eq!(warning["open_files"], 400);
    assert_eq!(warning["asked"], 110_000);
    assert_eq!(warning["max_connections"], 144);
    assert_eq!(line(&log, "the server serves")["max_connections"], 144);
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("LimitNOFILE="), "{message}");
}

/// The first question after a loss: who held what, and since when nobody has heard of it.
#[test]
fn an_expired_session_has_a_line_with_its_client_and_what_it_held() {
    let home = CommandHome::new();
    let args = ["--log-format", "json", "--min-session-timeout", "200ms"];
    let mut command = home.baton(&SERVE);
    command.args(["--tick", "50ms"]);
    let served = Served::start(command, &args);
    let of_server = ["--servers", &served.address];
    let lock = ["lock", "/report", "--session-timeout", "300ms"];
    let mut holder = home.spawn(&[&lock[..], &of_server, &["--", "echo", "held"]].concat());
    assert_eq!(holder.line(), "held");
    drop(holder.end());
    // One that stands still holds until its session expires; of one that is killed the guardian
    // ends the session.
    let shell = ["--", "sh", "-c", "echo held; exec sleep 60"];
    let mut holder = home.spawn(&[&lock[..], &of_server, &shell].concat());
    assert_eq!(holder.line(), "held");
    holder.signal("STOP");
    let shown = [&["lock", "/report"][..], &of_server, &["--", "true"]].concat();
    assert_eq!(home.run(&shown).code, 0, "the lock passes on");
    drop(holder);
    let log = objects(&served.stop().err);
    let expired: Vec<_> = log
        .iter()
        .filter(|line| line["message"] == "session expired")
        .collect();
    assert_eq!(expired.len(), 1, "{log:#?}");
    let expired = expired[0];
    assert_eq!(expired["level"], "info");
    assert!(expired["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(expired["timeout_ms"], 300);
    assert!(expired["silent_ms"].as_u64().unwrap() >= 300, "{expired}");
    assert_eq!(expired["ephemerals"], 1);
    let paths = expired["paths"].as_str().unwrap();
    assert!(paths.starts_with("/report/"), "{expired}");
    assert_eq!(expired["reason"], "no request within its timeout");
}

/// An operator finds it on one server: the leader, which has decided it.
#[test]
fn one_server_of_an_ensemble_says_that_a_session_expired() {
    let home = CommandHome::new();
    let mut dev = home.spawn(&["dev", "--json", "--servers", "3", "--data-dir", "dev"]);
    let event = |dev: &mut RunningCommand| -> Value { serde_json::from_str(&dev.line()).unwrap() };
    assert_eq!(event(&mut dev)["event"], "serving");
    let servers: Vec<Value> = (0..3).map(|_| event(&mut dev)).collect();
    let follower = servers.iter().find(|server| server["mode"] == "follower");
    let follower = follower.unwrap();
    let lock = ["lock", "/report", "--session-timeout", "1s", "--servers"];
    let lock = [&lock[..], &[follower["address"].as_str().unwrap(), "--"]].concat();
    let shell = ["sh", "-c", "echo held; exec sleep 60"];
    let mut holder = home.spawn(&[&lock[..], &shell].concat());
    assert_eq!(holder.line(), "held");
    holder.signal("STOP");
    assert_eq!(home.run(&[&lock[..], &["true"]].concat()).code, 0);
    dev.signal("TERM");
    assert_eq!(dev.end().code, 0);
    let log = |server: &Value| {
        let folder = server["data_dir"].as_str().unwrap();
        std::fs::read_to_string(format!("{folder}/server.log")).unwrap()
    };
    let logs: Vec<String> = servers.iter().map(log).collect();
    let lines: Vec<&str> = logs
        .iter()
        .flat_map(|log| log.lines())
        .filter(|line| line.contains("session expired"))
        .collect();
    assert_eq!(lines.len(), 1, "{logs:#?}");
    let server = format!(" server={} ", follower["server"]);
    assert!(lines[0].contains(&server), "{lines:?}");
    assert!(
        lines[0].contains(" ephemerals=1 paths=/report/"),
        "{lines:?}"
    );
    let serves = |log: &String| log.matches(" INFO the server serves ").count();
    assert!(logs.iter().all(|log| serves(log) == 1), "{logs:#?}");
}

/// A pipe without room: a process that writes to it waits.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    for piece in [4096, 1] {
        while rustix::io::write(writer.as_fd(), &vec![b'\n'; piece]).is_ok() {}
    }
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn a_log_reader_that_does_not_read_neither_stops_the_server_nor_its_end() {
    let home = CommandHome::new();
    let (mut reader, writer) = full_pipe();
    let mut command = home.baton(&SERVE);
    let args = ["--tick", "50ms", "--min-session-timeout", "200ms"];
    let mut server = command
        .args(args)
        .args(["--audit", "log"])
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    drop(command);
    let mut first = String::new();
    let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut first).unwrap();
    let servers = address(&first);
    // The core itself logs that a session has expired, before the next one holds the lock.
    let lock = ["lock", "/report", "--servers", &servers];
    let shell = [
        "--session-timeout",
        "300ms",
        "--",
        "sh",
        "-c",
        "echo held; exec sleep 60",
    ];
    let mut holder = home.spawn(&[&lock[..], &shell].concat());
    assert_eq!(holder.line(), "held");
    holder.signal("KILL");
    assert_eq!(home.run(&[&lock[..], &["--", "true"]].concat()).code, 0);
    crate::common::signal(i32::try_from(server.id()).unwrap(), "TERM");
    let mut ended = None;
    until("it stops", || {
        ended = server.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "{ended:?}");
    // Nothing of its log was written in place of what nobody had read.
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text.trim(), "");
}

#[test]
fn a_full_disk_and_a_closed_pipe_cost_the_log_only() {
    let home = CommandHome::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for stderr in [Stdio::from(full.unwrap()), Stdio::from(closed)] {
        let mut command = home.baton(&SERVE);
        command.args(["--http", "127.0.0.1:0", "--json"]);
        let mut server = command
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut first).unwrap();
        let ready: Value = serde_json::from_str(&first).unwrap();
        let http = ready["http"].as_str().unwrap();
        until("the loss is counted", || {
            let lost = metric(http, "baton_log_lines_lost");
            lost.is_some_and(|lines| lines > 0)
        });
        crate::common::signal(i32::try_from(server.id()).unwrap(), "TERM");
        assert!(server.wait().unwrap().success());
    }
}

/// The value of a metric.
fn metric(http: &str, name: &str) -> Option<u64> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(http).unwrap();
    write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")))?;
    line.split(' ').nth(1)?.parse().ok()
}

#[test]
fn the_file_of_a_log_that_was_truncated_goes_on_at_its_beginning() {
    let home = CommandHome::new();
    let file = home.path("server.log");
    let mut options = std::fs::OpenOptions::new();
    let log = options.create(true).append(true).open(&file).unwrap();
    let mut command = home.baton(&SERVE);
    let mut server = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let text = || std::fs::read_to_string(&file).unwrap();
    until("it has begun its log", || {
        text().contains("the server serves")
    });
    std::fs::copy(&file, home.path("server.log.1")).unwrap();
    std::fs::File::create(&file).unwrap();
    crate::common::signal(i32::try_from(server.id()).unwrap(), "TERM");
    assert!(server.wait().unwrap().success());
    let lines = text();
    assert_eq!(lines.lines().count(), 1, "{lines:?}");
    assert!(
        lines.starts_with("20") && lines.contains("stopping"),
        "{lines:?}"
    );
}

#[test]
fn another_verb_has_a_log_where_the_variable_asks_for_one() {
    let home = CommandHome::new();
    let served = Served::start(home.baton(&SERVE), &[]);
    let ls = |filter: &str, more: &[&str]| {
        let args = [&["ls", "/", "--servers", &served.address][..], more].concat();
        let mut command = home.baton(&args);
        Ran::from(command.env("BATON_LOG", filter).output().unwrap())
    };
    let plain = ls("", &[]);
    assert_eq!((plain.code, &*plain.err), (0, ""));
    let logged = ls("baton_client=info", &[]);
    assert_eq!(logged.out, plain.out);
    assert!(
        logged
            .err
            .contains(" INFO session state changed session=0x"),
        "{logged:?}"
    );
    let json = ls("baton_client=info", &["--json"]);
    let lines = objects(&json.err);
    assert_eq!(
        line(&lines, "session state changed")["target"],
        "baton_client::session::outcome"
    );
    let wrong = ls("baton_clinet=info", &[]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    let why = wrong.complaint();
    assert!(
        why.contains("BATON_LOG") && why.contains("baton_clinet=info"),
        "{why}"
    );
    served.stop();
}

#[test]
fn the_targets_that_a_filter_may_name_are_those_of_the_crates() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap();
    let home = CommandHome::new();
    for entry in std::fs::read_dir(crates).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        if name == "cli" || manifest.contains("publish = false") {
            continue;
        }
        let target = match &*name {
            "recipes" => "baton".to_owned(),
            name => format!("baton_{name}"),
        };
        let flags = [
            "serve",
            "--print-config",
            "--log",
            &format!("{target}=debug"),
        ];
        let ran = home.run(&flags);
        assert_eq!(ran.code, 0, "{target}: {ran:?}");
    }
}

#[test]
fn version_says_what_the_command_was_built_from() {
    let home = CommandHome::new();
    let json = home.run(&["version", "--json"]);
    let build: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
    assert!(build["target"].as_str().unwrap().contains('-'), "{build}");
    assert!(
        build["rustc"].as_str().unwrap().starts_with("rustc "),
        "{build}"
    );
    assert!(build["features"].is_array(), "{build}");
    let levels: Vec<u64> = serde_json::from_value(build["format_levels"].clone()).unwrap();
    assert!(levels[0] <= levels[1], "{build}");
    let line = home.run(&["--version"]).out;
    assert_eq!(line.lines().count(), 1, "{line}");
    let text = home.run(&["version"]).out;
    // Where it was built from a repository or a package, all three have the commit.
    if let Some(commit) = build["commit"].as_str() {
        assert!(
            line.contains(commit) && text.contains(commit),
            "{line}{text}"
        );
    }
    assert!(
        line.starts_with(&format!("baton {}", env!("CARGO_PKG_VERSION"))),
        "{line}"
    );
}

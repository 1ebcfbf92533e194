//! `baton server`: what it prints, what it refuses before it asks, and what it asks. The servers of
//! these tests do what the test says.

use std::collections::VecDeque;
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use baton_proto::{
    ConnectResponse, Decoder, EnsembleConfig, EnsembleMember, ErrorCode, Limits, OpCode,
    ReplyHeader, Request, RequestHeader, Response, Stat, frame,
};
use serde_json::Value;

use crate::common::{CommandHome, Ran, free_port};

/// State that the servers of a test share.
struct State {
    config: EnsembleConfig,
    leader: u64,
    /// Refusals of the next changes; `Ok`: one is not refused.
    refusals: VecDeque<ErrorCode>,
    /// Each change that was asked for: who joins, who leaves.
    changes: Vec<String>,
    /// Each secret that was shown.
    secrets: Vec<String>,
    /// Each request at the HTTP port: its first line, and its line of credentials.
    asked: Vec<String>,
}

/// Servers that say what an ensemble's do.
struct Servers {
    home: CommandHome,
    state: Arc<Mutex<State>>,
    addresses: Vec<SocketAddr>,
    /// Held, so that a client that connects waits.
    silent: Option<TcpListener>,
}

impl Servers {
    /// Servers 1 to `count`, and server 1 leads.
    fn new(count: u64) -> Self {
        let state = Arc::new(Mutex::new(State {
            config: EnsembleConfig::default(),
            leader: 1,
            refusals: VecDeque::new(),
            changes: Vec::new(),
            secrets: Vec::new(),
            asked: Vec::new(),
        }));
        let mut servers = Self {
            home: CommandHome::new(),
            state,
            addresses: Vec::new(),
            silent: None,
        };
        for id in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            servers.addresses.push(address);
            servers.list(&line(id, address));
            let state = Arc::clone(&servers.state);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = Arc::clone(&state);
                    thread::spawn(move || talk(stream, id, &state));
                }
            });
        }
        servers
    }

    /// Makes a server a member.
    fn list(&self, line: &str) {
        let mut state = self.state.lock().unwrap();
        state.config.members.push(line.parse().unwrap());
        state.config.version += 1;
    }

    /// A member of this id that takes connections and says nothing.
    fn list_silent(&mut self, id: u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.list(&line(id, listener.local_addr().unwrap()));
        self.silent = Some(listener);
    }

    /// A member of this id where nobody listens.
    fn list_dead(&mut self, id: u64) {
        let address = (Ipv4Addr::LOCALHOST, free_port());
        self.list(&line(id, address.into()));
    }

    fn refuse(&self, codes: &[ErrorCode]) {
        self.state.lock().unwrap().refusals.extend(codes);
    }

    fn run(&self, args: &[&str]) -> Ran {
        let servers: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        let mut command = self.home.baton(&[&["server"], args].concat());
        command
            .env("BATON_SERVERS", servers.join(","))
            .env_remove("BATON_AUTH");
        Ran::from(command.output().unwrap())
    }

    fn changes(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().changes)
    }

    fn ids(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap();
        state
            .config
            .members
            .iter()
            .map(|member| member.id)
            .collect()
    }
}

/// A member that other servers reach on a port of its own number.
fn line(id: u64, client: SocketAddr) -> String {
    format!("server.{id}=127.0.0.1:{}:{};{client}", 2000 + id, 3000 + id)
}

/// One connection, until it ends.
fn talk(mut stream: TcpStream, id: u64, state: &Mutex<State>) {
    let mut session = || -> io::Result<()> {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        match &head {
            b"srvr" => {
                let leads = state.lock().unwrap().leader == id;
                let mode = if leads { "leader" } else { "follower" };
                return write!(
                    stream,
                    "Zookeeper version: 3.8.0-abc, built on some day\nZxid: 0x2a\nMode: {mode}\n"
                );
            }
            b"conf" => return write!(stream, "clientPort=1\nserverId={id}\n"),
            _ => drop(frame_of(&mut stream, head)?),
        }
        let mut out = Vec::new();
        frame::write_connect_response(
            &mut out,
            &ConnectResponse {
                protocol_version: 0,
                timeout_ms: 10_000,
                session_id: 0x77,
                password: [7; 16],
                read_only: Some(false),
            },
        );
        stream.write_all(&out)?;
        loop {
            let mut head = [0; 4];
            stream.read_exact(&mut head)?;
            let body = frame_of(&mut stream, head)?;
            let limits = Limits::default();
            let mut from = Decoder::new(&body, &limits);
            let header = RequestHeader::decode(&mut from).unwrap();
            let op = OpCode::try_from(header.op).unwrap();
            let request = Request::decode(op, from.rest(), &limits).unwrap();
            let answer = answer(&request, state);
            let reply = ReplyHeader {
                xid: header.xid,
                zxid: 0x2a,
                err: answer.as_ref().err().map_or(0, |code| code.code()),
            };
            let mut out = Vec::new();
            frame::write_reply(&mut out, reply, answer.ok().as_ref());
            stream.write_all(&out)?;
        }
    };
    // The client ends it.
    let _ = session();
}

fn frame_of(stream: &mut TcpStream, head: [u8; 4]) -> io::Result<Vec<u8>> {
    let mut body = vec![0; u32::from_be_bytes(head) as usize];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn answer(request: &Request<'_>, state: &Mutex<State>) -> Result<Response, ErrorCode> {
    let mut state = state.lock().unwrap();
    let holds = |config: &EnsembleConfig| {
        Ok(Response::Data {
            data: Some(config.to_string().into_bytes().into()),
            stat: Stat::default(),
        })
    };
    match request {
        Request::GetData { path, .. } if *path == "/zookeeper/config" => holds(&state.config),
        Request::GetData { .. } => Err(ErrorCode::NoNode),
        Request::Sync { path } => Ok(Response::Path((*path).to_owned())),
        Request::Auth(packet) => {
            let secret = String::from_utf8_lossy(packet.auth.unwrap_or_default());
            let secret = format!("{} {secret}", packet.scheme);
            state.secrets.push(secret);
            Ok(Response::Empty)
        }
        Request::Reconfig {
            joining,
            leaving,
            config_id,
            ..
        } => {
            let (joining, leaving) = (joining.unwrap_or("-"), leaving.unwrap_or("-"));
            state.changes.push(format!("+{joining} -{leaving}"));
            assert_eq!(*config_id, state.config.version);
            match state.refusals.pop_front() {
                None | Some(ErrorCode::Ok) => {}
                Some(code) => return Err(code),
            }
            let members = &mut state.config.members;
            for id in leaving.split(',').filter_map(|id| id.parse::<u64>().ok()) {
                members.retain(|member| member.id != id);
            }
            let joining = joining.split(',').filter_map(|line| line.parse().ok());
            for member in joining.collect::<Vec<EnsembleMember>>() {
                members.retain(|known| known.id != member.id);
                members.push(member);
            }
            state.config.version += 1;
            holds(&state.config)
        }
        _ => Ok(Response::Empty),
    }
}

#[test]
fn ls_shows_each_member_and_says_1_if_one_does_not_answer() {
    let mut servers = Servers::new(2);
    let whole = servers.run(&["ls"]);
    assert_eq!((whole.code, whole.err.as_str()), (0, ""), "{whole:?}");
    let lines: Vec<_> = whole.out.lines().collect();
    assert!(lines[0].starts_with("ID  ROLE         MODE"), "{whole:?}");
    for (line, mode) in lines[1..].iter().zip(["leader", "follower"]) {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[1..5], ["participant", mode, "0x2a", "3.8.0-abc"]);
    }
    servers.list_dead(9);
    let part = servers.run(&["ls", "--json"]);
    assert_eq!(part.code, 1, "{part:?}");
    let shown: Vec<Value> = part
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(shown.len(), 3);
    assert_eq!(
        (&shown[0]["id"], &shown[0]["mode"]),
        (&1.into(), &"leader".into())
    );
    assert_eq!(shown[0]["client"], servers.addresses[0].to_string());
    assert_eq!(shown[1]["address"], "127.0.0.1:2002:3002");
    assert_eq!(
        (&shown[2]["answers"], &shown[2]["mode"]),
        (&false.into(), &Value::Null)
    );
    assert_eq!(shown[2]["members_version"], "0x3");
}

#[test]
fn ls_shows_servers_that_stand_alone_and_finds_members_without_a_client_address() {
    let servers = Servers::new(2);
    servers.state.lock().unwrap().config = EnsembleConfig::default();
    let alone = servers.run(&["ls"]);
    assert_eq!((alone.code, alone.out.lines().count()), (0, 3), "{alone:?}");
    for id in [2, 1] {
        servers.list(&format!("server.{id}=127.0.0.1:{id}:1"));
    }
    let found = servers.run(&["ls", "--json"]);
    assert_eq!(found.code, 0, "{found:?}");
    let first: Value = serde_json::from_str(found.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["id"], 2);
    assert_eq!(first["client"], servers.addresses[1].to_string());
}

#[test]
fn add_goes_on_until_the_server_has_caught_up() {
    let servers = Servers::new(3);
    servers.refuse(&[
        ErrorCode::NewConfigNoQuorum,
        ErrorCode::ReconfigInProgress,
        ErrorCode::BadVersion,
    ]);
    let ran = servers.run(&["add", "4=127.0.0.1:2004:3004"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out, "server 4 added; voters: 1, 2, 3, 4\n");
    assert!(ran.err.contains("not caught up; trying"), "{ran:?}");
    assert!(ran.err.contains("an odd number is better"), "{ran:?}");
    let wanted = "+server.4=127.0.0.1:2004:3004:participant --";
    assert_eq!(servers.changes(), [wanted; 4]);
    // It is there, and nobody is asked again.
    let again = servers.run(&["add", "4=127.0.0.1:2004:3004", "--json"]);
    assert_eq!(again.code, 0, "{again:?}");
    let shown: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(shown["voters"], serde_json::json!([1, 2, 3, 4]));
    assert_eq!(servers.changes(), [""; 0]);
    // Its part may change, and its place may not.
    let observer = servers.run(&["add", "4=127.0.0.1:2004:3004:observer"]);
    assert_eq!(observer.code, 0, "{observer:?}");
    assert!(observer.out.ends_with("; observers: 4\n"), "{observer:?}");
    let moved = servers.run(&["add", "4=127.0.0.1:2005:3004"]);
    assert_eq!(moved.code, 1, "{moved:?}");
    assert!(moved.complaint().contains("baton server move"), "{moved:?}");
    assert_eq!(servers.changes().len(), 1);
    let moved = servers.run(&["move", "4=127.0.0.1:2005:3004"]);
    assert_eq!(moved.code, 0, "{moved:?}");
    assert_eq!(moved.out, "server 4 moved; voters: 1, 2, 3; observers: 4\n");
    assert!(moved.err.contains("move its folder"), "{moved:?}");
    let wanted = "+server.4=127.0.0.1:2005:3004:observer --";
    assert_eq!(servers.changes(), [wanted]);
    let taken = servers.run(&["add", "5=127.0.0.1:2001:3005"]);
    assert_eq!(taken.code, 1, "{taken:?}");
    assert!(
        taken.complaint().contains("server 1 has the address"),
        "{taken:?}"
    );
}

#[test]
fn several_servers_come_and_go_with_one_change() {
    let mut servers = Servers::new(3);
    let four = "4=127.0.0.1:2004:3004";
    let five = "5=127.0.0.1:2005:3005";
    let added = servers.run(&["add", four, five, "--json"]);
    assert_eq!(added.code, 0, "{added:?}");
    let shown: Value = serde_json::from_str(&added.out).unwrap();
    assert_eq!(shown["servers"], serde_json::json!([4, 5]));
    assert_eq!(shown.get("server"), None);
    assert_eq!(servers.ids(), [1, 2, 3, 4, 5]);
    assert_eq!(servers.changes().len(), 1);
    // Those who are members already are not named to the servers.
    let six = "6=127.0.0.1:2006:3006";
    let added = servers.run(&["add", four, six]);
    assert_eq!(
        added.out, "servers 4, 6 added; voters: 1, 2, 3, 4, 5, 6\n",
        "{added:?}"
    );
    assert!(added.err.contains("server 4 is a member already"));
    assert_eq!(
        servers.changes(),
        ["+server.6=127.0.0.1:2006:3006:participant --"]
    );
    for twice in [&["add", four, four][..], &["remove", "4", "4"]] {
        let ran = servers.run(twice);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.complaint().contains("named twice"), "{ran:?}");
    }
    let shared = ["add", "7=127.0.0.1:2007:1", "8=127.0.0.1:2007:2"];
    let ran = servers.run(&shared);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.complaint().contains("server 8 has the address"),
        "{ran:?}"
    );
    // Three of those that would stay do not serve.
    for id in [7, 8, 9] {
        servers.list_dead(id);
    }
    let ran = servers.run(&["remove", "1", "2", "3"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.complaint().contains(
            "without servers 1, 2, 3, at least 4 of the servers 4, 5, 6, 7, 8, 9 must serve"
        ),
        "{ran:?}"
    );
    let ran = servers.run(&["remove", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert!(ran.complaint().contains("are all the voters"), "{ran:?}");
    assert_eq!(servers.changes(), [""; 0]);
    let removed = servers.run(&["remove", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(
        removed.out, "servers 4, 5, 6, 7, 8, 9 removed; voters: 1, 2, 3\n",
        "{removed:?}"
    );
    assert_eq!(servers.changes(), ["+- -4,5,6,7,8,9"]);
}

#[test]
fn what_the_servers_refuse_has_a_kind_and_a_remedy() {
    let servers = Servers::new(3);
    let add = ["add", "4=127.0.0.1:2004:3004", "--json", "--wait", "0"];
    for (code, kind, remedy) in [
        (ErrorCode::ReconfigDisabled, "disabled", "reconfigEnabled"),
        (ErrorCode::NoAuth, "not_allowed", "superuser"),
        (
            ErrorCode::BadArguments,
            "rejected",
            "one of the voters stays",
        ),
        (ErrorCode::NewConfigNoQuorum, "no_quorum", "start those"),
        (ErrorCode::ReconfigInProgress, "in_progress", "try again"),
    ] {
        servers.refuse(&[code]);
        let ran = servers.run(&add);
        assert_eq!(ran.code, 1, "{ran:?}");
        let error: Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
        assert_eq!(error["kind"], kind);
        assert!(error["error"].as_str().unwrap().contains(remedy), "{error}");
    }
    assert_eq!(servers.ids(), [1, 2, 3]);
}

#[test]
fn remove_refuses_what_would_lose_the_majority_before_it_asks() {
    let mut servers = Servers::new(3);
    let unknown = servers.run(&["remove", "7"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(
        unknown.complaint().contains("members are 1, 2, 3"),
        "{unknown:?}"
    );
    servers.list_dead(4);
    servers.list_dead(5);
    let ran = servers.run(&["remove", "1"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.complaint()
            .contains("3 of the servers 2, 3, 4, 5 must serve"),
        "{ran:?}"
    );
    assert!(ran.err.contains("(4, 5)"), "{ran:?}");
    assert_eq!(servers.changes(), [""; 0]);
    let ran = servers.run(&["remove", "5", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(servers.changes(), ["+- -5"]);
    assert_eq!(servers.ids(), [1, 2, 3, 4]);
    let last = Servers::new(1);
    let ran = last.run(&["remove", "1"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.complaint().contains("the last voter"), "{ran:?}");
}

#[test]
fn replace_takes_only_a_server_that_waits_for_one_that_has_lost_its_data() {
    let mut servers = Servers::new(2);
    let ran = servers.run(&["replace", "2"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.complaint().contains("server 2 has its data"), "{ran:?}");
    servers.list_dead(3);
    let ran = servers.run(&["replace", "3", "-q", "--wait", "0"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.complaint().contains("no server waits at"), "{ran:?}");
    assert_eq!(servers.changes(), [""; 0]);
    servers.state.lock().unwrap().config.members.pop();
    servers.list_silent(3);
    servers.refuse(&[ErrorCode::ReconfigInProgress]);
    let ran = servers.run(&["replace", "3"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.out, "server 3 replaced; voters: 1, 2, 3\n");
    let changes = servers.changes();
    assert_eq!(changes[..2], ["+- -3", "+- -3"]);
    assert!(changes[2].starts_with("+server.3=127.0.0.1:2003:3003:participant;"));
}

#[test]
fn a_replacement_that_does_not_join_is_reported_with_what_to_do_then() {
    let mut servers = Servers::new(2);
    servers.list_silent(3);
    // The removal is done, the addition refused.
    servers.refuse(&[ErrorCode::Ok, ErrorCode::NewConfigNoQuorum]);
    let ran = servers.run(&["replace", "3", "-q", "--wait", "0"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let complaint = ran.complaint();
    assert!(
        complaint.contains("server 3 is removed and not yet back"),
        "{ran:?}"
    );
    assert!(
        complaint.contains("baton server add 'server.3=127.0.0.1:2003"),
        "{ran:?}"
    );
    assert_eq!(servers.ids(), [1, 2]);
}

#[test]
fn transfer_asks_the_leader_at_its_http_port() {
    let servers = Servers::new(3);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = listener.local_addr().unwrap().to_string();
    let state = Arc::clone(&servers.state);
    let wants_token = Arc::new(AtomicBool::new(false));
    let is_wanted = Arc::clone(&wants_token);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            if is_wanted.load(Relaxed) && !head.contains("Authorization: Bearer ") {
                let body = "{\"error\": \"authenticate\"}";
                let _ = write!(stream, "HTTP/1.1 401 Unauthorized\r\n\r\n{body}");
                continue;
            }
            let mut state = state.lock().unwrap();
            let body = if head.starts_with("GET /commands/leader ") {
                format!("{{\"is_leader\": {}, \"error\": null}}", state.leader == 1)
            } else {
                let credentials = head.lines().find(|line| line.starts_with("Authorization"));
                let first = head.lines().next().unwrap();
                state
                    .asked
                    .push(format!("{first} {}", credentials.unwrap_or("-")));
                let id = first
                    .split("to=")
                    .nth(1)
                    .unwrap()
                    .split(' ')
                    .next()
                    .unwrap();
                state.leader = id.parse().unwrap();
                "{\"command\": \"transfer\", \"error\": null}".to_owned()
            };
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}");
        }
    });
    let leads = servers.run(&["transfer", "1"]);
    assert_eq!(
        (leads.code, leads.out.as_str()),
        (0, "server 1 leads\n"),
        "{leads:?}"
    );
    servers.home.write_secret("auth", "digest:super:secret\n");
    let ran = servers.run(&["transfer", "3", "--http", &http, "--auth-file", "auth"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "server 3 leads\n"),
        "{ran:?}"
    );
    let state = servers.state.lock().unwrap();
    assert_eq!(
        state.asked,
        ["POST /commands/transfer?to=3 HTTP/1.1 Authorization: digest super:secret"]
    );
    assert_eq!(state.secrets, ["digest super:secret"]);
    drop(state);
    // Where reading needs an identity, too.
    wants_token.store(true, Relaxed);
    servers.state.lock().unwrap().leader = 1;
    let ran = servers.run(&["transfer", "2", "--http", &http]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.complaint().contains("authenticate"), "{ran:?}");
    let token = servers
        .home
        .write_secret("token", "# ours\n0123456789abcdef\n");
    let with_token = [
        "transfer",
        "2",
        "--http",
        &http,
        "--http-token-file",
        "token",
    ];
    let ran = servers.run(&with_token);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(
        servers.state.lock().unwrap().asked[1],
        "POST /commands/transfer?to=2 HTTP/1.1 Authorization: Bearer 0123456789abcdef"
    );
    std::fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
    let ran = servers.run(&with_token);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("chmod 600"), "{ran:?}");
    wants_token.store(false, Relaxed);
    servers.state.lock().unwrap().leader = 3;
    // It leads no more.
    let ran = servers.run(&["transfer", "2", "--http", &http]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.complaint().contains("it does not lead"), "{ran:?}");
    servers.list("server.8=127.0.0.1:2008:3008:observer");
    let ran = servers.run(&["transfer", "8", "--http", &http]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.complaint().contains("cannot lead"), "{ran:?}");
}

#[test]
fn command_lines_that_make_no_sense_are_refused_in_one_line() {
    let home = CommandHome::new();
    for args in [
        &["server", "add"][..],
        &["server", "add", "4"],
        &["server", "remove"],
        &["server", "move", "4"],
        &["server", "add", "4=zk4:2888"],
        &["server", "add", "0=zk4:2888:3888"],
        &["server", "remove", "x"],
        &["server", "replace", "3=zk3"],
        &["server", "transfer"],
        &["server", "ls", "--auth-file", "nowhere"],
    ] {
        let ran = home.run(args);
        assert_eq!(ran.code, 2, "{ran:?}");
        ran.complaint();
    }
}

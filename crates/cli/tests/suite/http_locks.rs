//! The agent's interface at a server's HTTP: who may hold what, and what one caller can take.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use baton_client::{Acl, Client, Config, CreateMode, Perms};
use serde_json::{Value, json};

use crate::common::{CommandHome, RunningCommand, until};

const OWNER: &str = "Authorization: digest owner:secret\r\n";
const EVE: &str = "Authorization: digest eve:guess\r\n";

struct Site {
    server: RunningCommand,
    _home: CommandHome,
    address: String,
    http: String,
}

/// A response that is being read. Dropping it closes the connection.
struct Answer {
    status: u16,
    lines: BufReader<TcpStream>,
}

impl Answer {
    /// The next event of that kind.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the response has ended without {kind}");
            if let Ok(event) = serde_json::from_str::<Value>(&line)
                && event["event"] == kind
            {
                return event;
            }
        }
    }
}

impl Site {
    fn new() -> Self {
        let home = CommandHome::new();
        let serve = ["serve", "--ephemeral", "--json", "--listen", "127.0.0.1:0"];
        let mut server = home.spawn(&[&serve[..], &["--http", "127.0.0.1:0"]].concat());
        let said: Value = serde_json::from_str(&server.line()).unwrap();
        Self {
            address: said["serving"][0].as_str().unwrap().to_owned(),
            http: said["http"].as_str().unwrap().to_owned(),
            server,
            _home: home,
        }
    }

    /// Sends a request, and reads the head of its response.
    fn open(&self, line: &str, headers: &str, body: &str) -> Answer {
        let mut socket = TcpStream::connect(&self.http).unwrap();
        let host = if headers.contains("Host:") {
            ""
        } else {
            "Host: localhost\r\n"
        };
        let length = body.len();
        let head = format!("{line} HTTP/1.1\r\n{host}{headers}Connection: close\r\n");
        write!(socket, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut lines = BufReader::new(socket);
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line.trim() != "" {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        Answer { status, lines }
    }

    /// Status and JSON of a whole answer.
    fn ask(&self, line: &str, headers: &str, body: &str) -> (u16, Value) {
        let mut answer = self.open(line, headers, body);
        let mut text = String::new();
        answer.lines.read_to_string(&mut text).unwrap();
        (answer.status, serde_json::from_str(&text).unwrap())
    }

    fn lock(&self, path: &str, headers: &str) -> (Answer, Value) {
        let mut answer = self.open(&format!("POST /v1/lock{path}"), headers, "");
        assert_eq!(answer.status, 200, "{path}");
        let held = answer.until("held");
        (answer, held)
    }
}

#[test]
fn a_lock_at_a_servers_http_lives_as_long_as_its_response() {
    let site = Site::new();
    let (answer, held) = site.lock("/deploy", "");
    let (status, refused) = site.ask("POST /v1/lock/deploy", "", r#"{"wait_ms": 0}"#);
    assert_eq!((status, &refused["code"]), (409, &json!("not_acquired")));
    let guard = held["guard"].as_str().unwrap();
    let (status, renewed) = site.ask(&format!("POST /v1/guard/{guard}/renew"), "", "");
    assert_eq!(status, 200, "{renewed}");
    assert!(renewed["lease_ms"].as_u64().unwrap() > 0, "{renewed}");
    let (_, listed) = site.ask("GET /v1/locks?path=/deploy", "", "");
    assert_eq!(listed["holders"].as_array().unwrap().len(), 1, "{listed}");
    drop(answer);
    let (mut answer, next) = site.lock("/deploy", "");
    assert!(next["token"].as_u64() > held["token"].as_u64());
    let guard = next["guard"].as_str().unwrap();
    let (status, released) = site.ask(&format!("POST /v1/guard/{guard}/release"), "", "");
    assert_eq!((status, &released["event"]), (200, &json!("released")));
    answer.until("released");
    let (status, document) = site.ask("GET /v1/openapi.json", "", "");
    assert_eq!(status, 200);
    assert!(document["paths"]["/v1/lock/{path}"]["post"].is_object());
    let (status, unknown) = site.ask("POST /v1/nothing", "", "");
    assert_eq!((status, &unknown["code"]), (404, &json!("refused")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a74_an_identity_holds_what_its_acls_permit_and_touches_nobody_elses_guard() {
    let site = Site::new();
    let config = Config::new(&site.address).unwrap();
    let client = Client::connect(config.auth("digest", b"owner:secret"));
    let session = client.await.unwrap().session().await.unwrap();
    let own = [Acl::new(Perms::ALL, "auth", "")];
    let made = session.create_with_acl("/private", b"", CreateMode::Persistent, &own);
    made.await.unwrap();
    let (_answer, held) = site.lock("/private", OWNER);
    for other in ["", EVE] {
        let (status, refused) = site.ask("POST /v1/lock/private", other, "");
        assert_eq!((status, &refused["code"]), (400, &json!("refused")));
        assert!(
            refused["cause"].as_str().unwrap().contains("ACL"),
            "{refused}"
        );
    }
    let guard = held["guard"].as_str().unwrap();
    for action in ["renew", "release", "txn"] {
        let line = format!("POST /v1/guard/{guard}/{action}");
        for other in ["", EVE] {
            let (status, refused) = site.ask(&line, other, r#"{"writes": []}"#);
            assert_eq!(
                (status, &refused["code"]),
                (404, &json!("refused")),
                "{action}"
            );
        }
    }
    let (status, _) = site.ask(&format!("POST /v1/guard/{guard}/renew"), OWNER, "");
    assert_eq!(status, 200);
}

#[test]
fn a74_a_page_of_a_browser_and_a_foreign_name_hold_nothing() {
    let site = Site::new();
    let (page, foreign) = ("Origin: https://evil.example\r\n", "Host: evil.example\r\n");
    for (headers, wanted) in [
        (page.to_owned(), 403),
        (foreign.to_owned(), 421),
        (format!("{foreign}{EVE}"), 403),
        ("Authorization: Bearer guess\r\n".to_owned(), 403),
        (format!("{page}{EVE}"), 200),
    ] {
        let (status, answer) = site.ask("POST /v1/counter/hits/add", &headers, "");
        assert_eq!(status, wanted, "{headers}: {answer}");
        assert!(status == 200 || answer["next_step"].is_string(), "{answer}");
    }
    let (status, counted) = site.ask("GET /v1/counter/hits", "", "");
    assert_eq!((status, &counted["value"]), (200, &json!(1)));
}

#[test]
fn a75_locks_that_are_held_leave_room_for_other_requests() {
    let site = Site::new();
    let held: Vec<_> = (0..60).map(|at| site.lock(&format!("/{at}"), "")).collect();
    assert_eq!(site.open("GET /metrics", "", "").status, 200);
    for (_, event) in &held {
        let guard = event["guard"].as_str().unwrap();
        let (status, _) = site.ask(&format!("POST /v1/guard/{guard}/renew"), "", "");
        assert_eq!(status, 200);
    }
    drop(held);
    until("all are released", || {
        site.ask("GET /v1/health", "", "").1["guards"] == 0
    });
}

#[test]
fn a75_mutated_requests_harm_no_holder() {
    let site = Site::new();
    let (_answer, held) = site.lock("/mine", "");
    let request = b"POST /v1/lock/a%2Fb HTTP/1.1\r\nHost: localhost\r\nContent-Length: 36\r\n\r\n{\"wait_ms\": 0, \"mode\": \"exclusive\"}";
    let mut random = fastrand::Rng::with_seed(75);
    for _ in 0..300 {
        let mut bytes = request.to_vec();
        for _ in 0..=random.usize(..6) {
            let at = random.usize(..bytes.len());
            match random.usize(..3) {
                0 => bytes[at] = random.u8(..),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\r\n{}\"%/0\xff "[random.usize(..10)]),
            }
        }
        let mut socket = TcpStream::connect(&site.http).unwrap();
        // The server may close before it has read all.
        let _ = socket.write_all(&bytes);
    }
    until("what some of them have got is gone", || {
        site.ask("GET /v1/health", "", "").1["guards"] == 1
    });
    let guard = held["guard"].as_str().unwrap();
    let (status, _) = site.ask(&format!("POST /v1/guard/{guard}/renew"), "", "");
    assert_eq!(status, 200);
}

#[test]
fn a_lock_that_is_held_does_not_hold_the_stop_up_and_its_response_ends() {
    let site = Site::new();
    let (mut answer, _) = site.lock("/deploy", "");
    site.server.signal("TERM");
    let mut rest = String::new();
    answer.lines.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("released"), "{rest}");
    assert_eq!(site.server.end().code, 0);
}

//! `elect --http`: it names the true leader. On Baton's server, or with
//! BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use baton_testkit::Proxy;

use crate::common::{ServedHome, signal, until};

/// A candidate with an endpoint. Killed if the test ends before it.
struct Candidate {
    child: Child,
    address: String,
}

impl Candidate {
    fn start(served: &ServedHome, servers: &str, name: &str) -> Self {
        let mut command = served.baton(&[
            "elect",
            "/e",
            "--name",
            name,
            "--http",
            "127.0.0.1:0",
            "--session-timeout",
            "4s",
            "--ensemble-tick",
            "200ms",
        ]);
        command
            .env("BATON_SERVERS", servers)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let (_, address) = line.trim().split_once("http://").unwrap();
        let address = address.trim_end_matches('/').to_owned();
        Self { child, address }
    }

    /// The status, and what is said.
    fn ask(&self) -> (u16, serde_json::Value) {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(
            socket,
            "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn names(&self, name: &str) -> bool {
        self.ask().1["name"]
            .as_str()
            .is_some_and(|shown| shown.contains(name))
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_says_200_and_the_others_name_it() {
    let served = ServedHome::new().await;
    let first = Candidate::start(&served, &served.servers, "one");
    until("leading", || first.ask().0 == 200);
    let (_, status_page) = first.ask();
    assert_eq!(status_page["leading"], true);
    assert_eq!(status_page["term"], 1);
    assert!(
        status_page["lease_ms"].as_u64().unwrap() > 0,
        "{status_page}"
    );
    let second = Candidate::start(&served, &served.servers, "two");
    until("one is named", || second.names("(one)"));
    let (status, status_page) = second.ask();
    assert_eq!(
        (status, &status_page["leading"]),
        (503, &false.into()),
        "{status_page}"
    );
    assert!(
        status_page["age_ms"].as_u64().unwrap() < 4000,
        "{status_page}"
    );
    signal(i32::try_from(first.child.id()).unwrap(), "TERM");
    until("two leads", || second.ask().0 == 200);
    until("two is named", || second.names("(two)"));
    assert_eq!(second.ask().1["term"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_is_cut_off_names_no_leader() {
    let served = ServedHome::new().await;
    let proxy = Proxy::start(served.server.addr()).await.unwrap();
    let leader = Candidate::start(&served, &served.servers, "one");
    until("leading", || leader.ask().0 == 200);
    let other = Candidate::start(&served, &proxy.connect_string(), "two");
    until("named", || other.names("(one)"));
    proxy.partition();
    until("nobody is named", || other.ask().1["name"].is_null());
    let (status, status_page) = other.ask();
    assert_eq!(
        (status, &status_page["age_ms"]),
        (503, &serde_json::Value::Null)
    );
    proxy.heal();
    until("named again", || other.names("(one)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_or_taken_address_is_refused_before_the_candidate_joins() {
    let served = ServedHome::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, code) in [(&*taken, 125), ("127.0.0.1:99999", 2), ("nonsense", 2)] {
        let refused = served.run(&["elect", "/e", "--http", address, "--", "true"]);
        assert_eq!(refused.code, code, "{refused:?}");
        assert!(refused.complaint().contains("--http: "), "{refused:?}");
    }
    assert_eq!(served.run(&["elect", "show", "/e"]).code, 1);
}

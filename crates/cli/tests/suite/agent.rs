//! The agent as a process of its own: what a program that holds through it looks like to others.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use crate::common::ServedHome;

#[tokio::test(flavor = "multi_thread")]
async fn others_see_the_program_that_holds_through_the_agent_and_not_the_agent() {
    let served = ServedHome::new().await;
    let socket = served.home.path("sock");
    let mut agent = served.spawn(&["agent", "--socket", socket.to_str().unwrap()]);
    assert!(agent.line().starts_with("agent of "));
    let mut stream = UnixStream::connect(&socket).unwrap();
    let request = "POST /v1/lock/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines();
    lines
        .find(|line| line.as_ref().unwrap().contains("\"held\""))
        .unwrap()
        .unwrap();
    let shown = served.run(&["lock", "show", "/a", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    let holder = &shown["holder"];
    assert_eq!(holder["pid"], std::process::id(), "{shown}");
}

//! The agent as a process of its own: what a program that holds through it looks like to others.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::common::{Ran, ServedHome, processes, runs, signal, until};

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

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_the_background_is_started_once_and_outlives_its_starter() {
    let served = ServedHome::new().await;
    let socket = served.home.path("agent.sock");
    let text = socket.to_str().unwrap().to_owned();
    let start = || {
        let mut command = served.baton(&["agent", "--background", "--socket", &text]);
        command
            .env("BATON_IDLE", "60s")
            .env("SECRET", "of one program");
        Ran::from(command.output().unwrap())
    };
    let other = served.home.path("agent.log");
    std::fs::write(&other, "of another program").unwrap();
    std::thread::scope(|scope| {
        for started in [scope.spawn(start), scope.spawn(start)] {
            let ran = started.join().unwrap();
            assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        }
    });
    UnixStream::connect(&socket).unwrap();
    let agents = processes(&["agent", "--exit-when-idle", "60000ms", &text]);
    assert_eq!(agents.len(), 1);
    let environment = std::fs::read(format!("/proc/{}/environ", agents[0])).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    assert!(environment.contains("BATON_") && !environment.contains("SECRET"));
    let folder = std::fs::read_link(format!("/proc/{}/cwd", agents[0])).unwrap();
    assert_eq!(folder, Path::new("/"));
    let start_for = |list: &str| {
        let options = [
            "--servers",
            list,
            "agent",
            "--background",
            "--socket",
            &text,
        ];
        Ran::from(served.home.baton(&options).output().unwrap())
    };
    assert_eq!(start_for(&served.servers).code, 0);
    let refused = start_for("127.0.0.1:9");
    assert_eq!(refused.code, 2);
    for list in [&*served.servers, "127.0.0.1:9"] {
        assert!(refused.complaint().contains(list), "{}", refused.err);
    }
    assert_eq!(
        std::fs::read_to_string(other).unwrap(),
        "of another program"
    );
    signal(agents[0], "TERM");
    until("the agent has ended", || !runs(agents[0]));
    std::fs::create_dir(&socket).unwrap();
    let refused = start();
    assert_eq!(refused.code, 125);
    assert!(refused.complaint().contains("no agent was started: "));
}

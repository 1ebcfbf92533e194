//! `baton-bench` against a server: every workload gives measurements and leaves nothing behind; a
//! run that cannot start says why in one line.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use assert_cmd::Command;
use baton_client::{Client, Config};
use baton_server::Server;
use serde_json::Value;

fn bench(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("baton-bench").unwrap();
    command.args(args);
    command
}

/// The report of a run of one workload.
async fn report(workload: &'static str, servers: &str, options: &'static [&str]) -> Value {
    let servers = servers.to_owned();
    let run = move || {
        let mut command = bench(&[workload, "--servers", &servers, "--warm-up", "0"]);
        let output = command
            .args(options)
            .assert()
            .success()
            .get_output()
            .clone();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn server() -> Server {
    let server = Server::builder().in_memory().listen("127.0.0.1:0");
    server.start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workload_gives_measurements_and_leaves_nothing_behind() {
    let server = server().await;
    let servers = server.connect_string();
    let raw = "set get create churn mixed latest".split(' ');
    let recipes = "lock handoff replace election queue locking-queue".split(' ');
    for workload in raw.chain(recipes) {
        let options = &["--ops", "200", "--connections", "2", "--nodes", "10"];
        let report = report(workload, &servers, options).await;
        assert_eq!(report["workload"], workload);
        assert!(report["ops"].as_u64().unwrap() >= 200, "{report}");
        let p50 = report["latency_us"]["p50"].as_f64().unwrap();
        assert!(p50 > 0.0, "{report}");
        assert!(report["server"].is_null(), "{report}");
    }
    let config = Config::new(&servers).unwrap();
    let client = Client::connect(config).await.unwrap();
    let session = client.session().await.unwrap();
    assert_eq!(session.children("/").await.unwrap().names, ["zookeeper"]);
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_works_on_what_an_earlier_one_has_loaded_once() {
    let server = server().await;
    let servers = server.connect_string();
    let options = &["--run=r", "--nodes=1000", "--keep"];
    let loaded = report("load", &servers, options).await;
    assert_eq!(loaded["ops"], 1000, "{loaded}");
    let options = &[
        "--run=r",
        "--nodes=1000",
        "--ops=200",
        "--zipf",
        "--reads=50",
    ];
    report("mixed", &servers, options).await;
    let refused = bench(&["load", "--servers", &servers]).assert().failure();
    let text = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    assert!(text.contains("--keep"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_process_is_measured() {
    let server = server().await;
    let servers = server.connect_string();
    let pid: &'static str = std::process::id().to_string().leak();
    let options = vec!["--seconds", "0.2", "--pid", pid].leak();
    let report = report("get", &servers, options).await;
    assert!(
        report["server"]["resident_bytes"].as_u64().unwrap() > 0,
        "{report}"
    );
    server.shutdown().await.unwrap();
}

#[test]
fn a_run_that_cannot_start_says_why_in_one_line() {
    for (args, code, word) in [
        (&["set", "--servers", "127.0.0.1:1"][..], 1, "127.0.0.1:1"),
        (&["set", "--servers", ","], 1, "connect"),
        (&["lock", "--servers", "127.0.0.1"], 1, "127.0.0.1"),
    ] {
        let output = bench(args).assert().code(code).get_output().stderr.clone();
        let text = String::from_utf8(output).unwrap();
        assert!(text.lines().count() == 1 && text.contains(word), "{text}");
    }
}

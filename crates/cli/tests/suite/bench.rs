//! `baton bench` against a server: every workload gives measurements and leaves nothing behind; a
//! bench that cannot start says why in one line.

use assert_cmd::Command;
use baton_client::{Client, Config};
use baton_server::Server;

fn bench(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("baton").unwrap();
    command.arg("bench").args(args).env_remove("BATON_SERVERS");
    command
}

async fn server() -> Server {
    Server::builder()
        .in_memory()
        .listen("127.0.0.1:0")
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workload_gives_measurements_and_leaves_nothing_behind() {
    let server = server().await;
    let servers = server.connect_string();
    for workload in [
        "set", "get", "create", "churn", "mixed", "lock", "handoff", "queue",
    ] {
        let servers = servers.clone();
        let report: serde_json::Value = tokio::task::spawn_blocking(move || {
            let mut command = bench(&[workload, "--json", "--servers", &servers]);
            command.args([
                "--ops",
                "200",
                "--warm-up",
                "0",
                "--connections",
                "2",
                "--nodes",
                "10",
            ]);
            let output = command.assert().success().get_output().stdout.clone();
            serde_json::from_slice(&output).unwrap()
        })
        .await
        .unwrap();
        assert_eq!(report["workload"], workload);
        assert!(report["ops"].as_u64().unwrap() >= 200, "{report}");
        assert!(
            report["latency_us"]["p50"].as_f64().unwrap() > 0.0,
            "{report}"
        );
    }
    let client = Client::connect(Config::new(&servers).unwrap())
        .await
        .unwrap();
    let left = client
        .session()
        .await
        .unwrap()
        .children("/")
        .await
        .unwrap()
        .names;
    assert_eq!(left, ["zookeeper"]);
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_process_is_measured() {
    let server = server().await;
    let servers = server.connect_string();
    let text = tokio::task::spawn_blocking(move || {
        let pid = std::process::id().to_string();
        let mut command = bench(&["get", "--servers", &servers, "--pid", &pid]);
        let output = command
            .args(["--duration", "200ms", "--warm-up", "0"])
            .assert()
            .success()
            .get_output()
            .stdout
            .clone();
        String::from_utf8(output).unwrap()
    })
    .await
    .unwrap();
    let words = ["get on ", "op/s", "p50", "MB resident", "generator"];
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), words.len(), "{text}");
    for (line, word) in lines.iter().zip(words) {
        assert!(line.contains(word), "{text}");
    }
    server.shutdown().await.unwrap();
}

#[test]
fn a_bench_that_cannot_start_says_why_in_one_line() {
    for (args, code, word) in [
        (&["set"][..], 2, "--servers"),
        (&["set", "--servers", "127.0.0.1:1"], 125, "127.0.0.1:1"),
        (&["set", "--servers", ","], 125, "','"),
        (&["dance", "--servers", "127.0.0.1:1"], 2, "dance"),
    ] {
        let output = bench(args).assert().code(code).get_output().stderr.clone();
        let text = String::from_utf8(output).unwrap();
        assert!(text.lines().count() == 1 && text.contains(word), "{text}");
    }
}

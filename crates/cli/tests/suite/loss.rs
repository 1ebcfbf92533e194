//! H85: whatever happens to the network or to `baton`, the command is dead before the server can
//! give the lock to anyone else. On Baton's server, or with BATON_TEST_TARGET=zookeeper on Apache
//! ZooKeeper.

use std::time::Duration;

use baton_testkit::{Ensemble, Proxy, ServerOptions, Target, TestServer, Variant, inspect};

use crate::common::{CommandHome, number_in, runs, signal, until};

/// Long enough for a sound lease on ZooKeeper with stock ticks, short enough to wait for.
const SESSION: &str = "6s";

/// Runs as long as it may: notes its pid, and its end if it is asked to end.
const WORK: &str =
    "trap 'echo asked > asked; exit 0' TERM; echo $$ > worker; while :; do sleep 0.02; done";
/// The same, deaf to requests.
const DEAF: &str = "trap '' TERM USR1; echo $$ > worker; while :; do sleep 0.02; done";
/// Runs until there is a file `done`, and ends with 5.
const UNTIL_DONE: &str = "echo $$ > worker; until [ -e done ]; do sleep 0.02; done; exit 5";
/// Script of a successor: notes whether it found the worker alive.
const SUCCEED: &str =
    "if kill -0 $(cat worker) 2>/dev/null; then echo overlap; else echo alone; fi";

async fn server() -> TestServer {
    let options = ServerOptions {
        max_session_timeout: Duration::from_secs(60),
        ..ServerOptions::default()
    };
    TestServer::start_process(Target::from_env().unwrap(), options)
        .await
        .unwrap()
}

/// A holder behind the proxy that runs `work`; its worker's pid.
fn holder(
    home: &CommandHome,
    proxy: &Proxy,
    work: &str,
    more: &[&str],
) -> (crate::common::RunningCommand, i32) {
    let servers = proxy.connect_string();
    let mut args = vec![
        "lock",
        "/x",
        "--servers",
        &servers,
        "--session-timeout",
        SESSION,
    ];
    args.extend(more);
    args.extend(["--", "sh", "-c", work]);
    let running = home.spawn(&args);
    (running, number_in(&home.path("worker")))
}

/// Result of a command, once it has ended.
async fn ended(running: crate::common::RunningCommand) -> crate::common::Ran {
    tokio::task::spawn_blocking(move || running.end())
        .await
        .unwrap()
}

/// The next holder, straight to the server.
fn successor(home: &CommandHome, server: &TestServer) -> crate::common::RunningCommand {
    let servers = server.connect_string();
    home.spawn(&[
        "lock",
        "/x",
        "--servers",
        &servers,
        "--session-timeout",
        SESSION,
        "--",
        "sh",
        "-c",
        SUCCEED,
    ])
}

async fn cut_off(variant: Variant, work: &str, more: &[&str], asked: bool) {
    let home = CommandHome::new();
    let server = server().await;
    let proxy = Proxy::start(server.addr()).await.unwrap();
    let (holder, worker) = holder(&home, &proxy, work, more);
    let next = successor(&home, &server);
    proxy.refuse();
    if variant == Variant::BlackHole {
        proxy.partition();
    } else {
        proxy.cut_all(variant);
    }
    let (next, held) = tokio::task::spawn_blocking(move || (next.end(), holder.end()))
        .await
        .unwrap();
    assert_eq!(next.out, "alone\n", "{next:?}");
    assert!(!runs(worker));
    assert_eq!(held.code, 113, "{held:?}");
    assert_eq!(home.path("asked").exists(), asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_a_black_hole_ends_the_command_before_the_lock_passes_on() {
    cut_off(Variant::BlackHole, WORK, &[], true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_a_reset_with_no_way_back_ends_the_command_before_the_lock_passes_on() {
    cut_off(Variant::Rst, WORK, &[], true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_a_close_with_no_way_back_ends_the_command_before_the_lock_passes_on() {
    cut_off(Variant::Fin, WORK, &[], true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_a_command_deaf_to_notice_is_killed_before_the_lock_passes_on() {
    cut_off(Variant::BlackHole, DEAF, &[], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_on_lost_usr1_kills_in_time_as_well() {
    cut_off(Variant::BlackHole, DEAF, &["--on-lost", "usr1"], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_on_lost_kill_gives_no_notice() {
    cut_off(Variant::BlackHole, WORK, &["--on-lost", "kill"], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_a_stopped_baton_cannot_keep_its_command_running_past_the_lease() {
    let home = CommandHome::new();
    let server = server().await;
    let proxy = Proxy::start(server.addr()).await.unwrap();
    let (holder, worker) = holder(&home, &proxy, WORK, &[]);
    let next = successor(&home, &server);
    holder.signal("STOP");
    let next = ended(next).await;
    assert_eq!(next.out, "alone\n", "{next:?}");
    assert!(!runs(worker));
    holder.signal("CONT");
    let held = ended(holder).await;
    assert_eq!(held.code, 113, "{held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_back_in_time_nothing_has_happened() {
    let home = CommandHome::new();
    let server = server().await;
    let proxy = Proxy::start(server.addr()).await.unwrap();
    let (holder, worker) = holder(&home, &proxy, UNTIL_DONE, &[]);
    for variant in [Variant::Rst, Variant::Fin] {
        let before = proxy.accepted();
        proxy.cut_all(variant);
        proxy.wait_accepted(before + 1).await;
    }
    assert!(runs(worker));
    std::fs::write(home.path("done"), "").unwrap();
    let held = ended(holder).await;
    assert_eq!(held.code, 5, "{held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h85_on_lost_ignore_lets_the_command_finish() {
    let home = CommandHome::new();
    let server = server().await;
    let proxy = Proxy::start(server.addr()).await.unwrap();
    let (holder, worker) = holder(&home, &proxy, UNTIL_DONE, &["--on-lost", "ignore"]);
    let next = successor(&home, &server);
    proxy.partition();
    let next = ended(next).await;
    assert_eq!(next.out, "overlap\n", "that is what the option is for");
    assert!(runs(worker));
    std::fs::write(home.path("done"), "").unwrap();
    let held = ended(holder).await;
    assert_eq!(held.code, 5, "{held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h87_after_kill_9_of_the_holder_the_next_waiter_finds_no_worker() {
    let home = CommandHome::new();
    let server = server().await;
    let proxy = Proxy::start(server.addr()).await.unwrap();
    let (holder, worker) = holder(&home, &proxy, DEAF, &[]);
    let next = successor(&home, &server);
    holder.signal("KILL");
    let next = ended(next).await;
    assert_eq!(next.out, "alone\n", "{next:?}");
    assert!(!runs(worker));
}

/// A holder whose session would last for a minute; its worker's pid.
fn lasting_holder(
    home: &CommandHome,
    server: &TestServer,
    work: &str,
    more: &[&str],
) -> (crate::common::RunningCommand, i32) {
    let servers = server.connect_string();
    let lock = ["lock", "/x", "--servers", &servers];
    let args = [&lock, &["--session-timeout", "60s"][..], more];
    let running = home.spawn(&[&args.concat()[..], &["--", "sh", "-c", work]].concat());
    (running, number_in(&home.path("worker")))
}

/// Sessions that the server has ended because it heard nothing of them.
async fn expired(server: &TestServer) -> Option<u64> {
    let expired = inspect::metric(server.addr(), "stale_sessions_expired");
    expired.await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_of_the_holder_its_session_is_closed_and_not_before_the_command_is_gone() {
    let home = CommandHome::new();
    let server = server().await;
    // Deaf to notice, so that it outlives `baton` for as long as the guardian lets it.
    let (holder, worker) = lasting_holder(&home, &server, DEAF, &["--kill-after", "300ms"]);
    let next = successor(&home, &server);
    holder.signal("KILL");
    let next = ended(next).await;
    assert_eq!(next.out, "alone\n", "{next:?}");
    assert!(!runs(worker));
    assert_eq!(expired(&server).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guardian_that_ends_a_session_leaves_no_release_marker_so_a_lock_delay_applies() {
    let home = CommandHome::new();
    let server = server().await;
    let servers = server.connect_string();
    let (holder, _) = lasting_holder(&home, &server, WORK, &["--lock-delay", "1m"]);
    let watcher = baton_client::Session::connect(baton_client::Config::new(&servers).unwrap());
    let watcher = watcher.await.unwrap();
    let children = watcher.children("/x").await.unwrap();
    let node = format!("/x/{}", children.names[0]);
    let marker = format!("{node}.released");
    let (_, mut released) = watcher.exists_watch(&marker).await.unwrap();
    let (_, gone) = watcher.exists_watch(&node).await.unwrap();
    holder.signal("KILL");
    gone.await.unwrap();
    // Had there been a marker, its event would have come before.
    assert!(released.try_event().is_none());
    assert_eq!(expired(&server).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_in_mid_run_and_started_again_costs_no_lock() {
    let home = CommandHome::new();
    let mut server = server().await;
    let servers = server.connect_string();
    let holder = home.spawn(&[
        "lock",
        "/x",
        "--servers",
        &servers,
        "--session-timeout",
        "20s",
        "--",
        "sh",
        "-c",
        UNTIL_DONE,
    ]);
    let worker = number_in(&home.path("worker"));
    server.kill();
    server.restart().await.unwrap();
    let busy = home.run(&[
        "lock",
        "-n",
        "/x",
        "--servers",
        &server.connect_string(),
        "--",
        "true",
    ]);
    assert_eq!(busy.code, 124, "{busy:?}");
    assert!(runs(worker));
    std::fs::write(home.path("done"), "").unwrap();
    assert_eq!(ended(holder).await.code, 5);
}

#[test]
fn h85_the_local_server_killed_under_a_holder_is_started_again() {
    let home = CommandHome::new();
    let holder = home.spawn(&["lock", "/x", "--", "sh", "-c", UNTIL_DONE]);
    let worker = number_in(&home.path("worker"));
    let folder = home.state().to_string_lossy().into_owned();
    let killed = crate::common::processes(&["serve", &folder]);
    for pid in &killed {
        signal(*pid, "KILL");
    }
    until("another server runs", || {
        crate::common::processes(&["serve", &folder])
            .iter()
            .any(|pid| !killed.contains(pid))
    });
    assert_eq!(home.run(&["lock", "-n", "/x", "--", "true"]).code, 124);
    assert!(runs(worker));
    std::fs::write(home.path("done"), "").unwrap();
    assert_eq!(holder.end().code, 5);
}

/// One of three, as an index after the leader's, is killed in mid-run.
async fn cost_no_lock(after_the_leader: usize) {
    let home = CommandHome::new();
    let target = Target::from_env().unwrap();
    let mut ensemble = Ensemble::start_processes(target, 3, ServerOptions::default())
        .await
        .unwrap();
    let servers = ensemble.connect_string();
    let holder = home.spawn(&[
        "lock",
        "/x",
        "--servers",
        &servers,
        "--session-timeout",
        "20s",
        "--",
        "sh",
        "-c",
        UNTIL_DONE,
    ]);
    let worker = number_in(&home.path("worker"));
    let leader = ensemble.wait_leader().await.unwrap();
    ensemble.servers_mut()[(leader + after_the_leader) % 3].kill();
    let busy = home.run(&[
        "lock",
        "-n",
        "/x",
        "--servers",
        &servers,
        "--connect-timeout",
        "30s",
        "--",
        "true",
    ]);
    assert_eq!(busy.code, 124, "{busy:?}");
    assert!(runs(worker));
    std::fs::write(home.path("done"), "").unwrap();
    let held = ended(holder).await;
    assert_eq!(held.code, 5, "{held:?}");
    let free = home.run(&[
        "lock",
        "-w",
        "30s",
        "/x",
        "--servers",
        &servers,
        "--",
        "true",
    ]);
    assert_eq!(free.code, 0, "{free:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_of_three_killed_in_mid_run_costs_no_lock() {
    cost_no_lock(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_three_killed_in_mid_run_costs_no_lock() {
    cost_no_lock(0).await;
}

/// Loses what is held while `baton` is stopped and its command ends by itself: the exit code must
/// report the loss.
async fn lost_as_the_command_ends(verb: &str) {
    let home = CommandHome::new();
    let server = server().await;
    let servers = server.connect_string();
    let work = "echo $$ > worker; while ! test -e go; do sleep 0.02; done; exit 0";
    let holder = home.spawn(&[
        verb,
        "/x",
        "--servers",
        &servers,
        "--session-timeout",
        "4s",
        "--",
        "sh",
        "-c",
        work,
    ]);
    let worker = number_in(&home.path("worker"));
    holder.signal("STOP");
    std::fs::write(home.path("go"), "").unwrap();
    until("the command has ended", || !runs(worker));
    tokio::time::timeout(crate::common::PATIENCE, async {
        while !inspect::children(server.addr(), "/x")
            .await
            .unwrap()
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    holder.signal("CONT");
    let held = ended(holder).await;
    assert_eq!(held.code, 113, "{verb}: {held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h86_a_lock_lost_just_as_the_command_ended_is_reported_by_the_exit_code() {
    lost_as_the_command_ends("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h86_leadership_lost_just_as_the_command_ended_is_reported_by_the_exit_code() {
    lost_as_the_command_ends("elect").await;
}

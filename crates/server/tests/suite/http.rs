//! An operator's HTTP: ZooKeeper's admin commands, metrics for Prometheus, health; and its
//! refusals.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_proto::{Acl, ConnectRequest, ErrorCode, Perms, Request};
use baton_server::{Options, Server, StartError};
use baton_tree::{BatchBuilder, FormatLevel};
use baton_wal::testing::FaultStorage;
use baton_wal::{Entry, HardState, Record, Storage, Wal, WalOptions};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::http::{ask, get};
use crate::support::{PATIENCE, Wire, in_memory, no_session, set, word};

async fn serving() -> (Server, SocketAddr) {
    let server = in_memory()
        .http("127.0.0.1:0")
        .with(|options| options.super_digest = Some(baton_tree::digest_id(b"super:secret")))
        .start()
        .await
        .unwrap();
    let to = server.http_addr().unwrap();
    (server, to)
}

async fn command(to: SocketAddr, name: &str) -> Value {
    let (status, body) = get(to, &format!("/commands/{name}")).await;
    assert_eq!(status, 200, "{name}: {body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn every_command_answers_under_its_name_and_its_aliases_with_zookeepers_fields() {
    let (server, to) = serving().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/eph", b"", 1).await.unwrap();
    wire.call(Request::GetData {
        path: "/eph",
        watch: true,
    })
    .await
    .unwrap();
    let session = wire.session.session_id;
    for (names, fields) in [
        (
            "configuration conf config",
            "client_port data_dir data_log_dir tick_time max_client_cnxns min_session_timeout max_session_timeout server_id client_port_listen_backlog",
        ),
        ("connections cons", "connections secure_connections"),
        ("dirs", "datadir_size logdir_size"),
        (
            "dump",
            "expiry_time_to_session_ids session_id_to_ephemeral_paths",
        ),
        (
            "environment env envi",
            "zookeeper.version host.name os.name os.arch os.version",
        ),
        ("get_trace_mask gtmk", "tracemask"),
        ("hash", "digests"),
        ("initial_configuration icfg", "initial_configuration"),
        ("is_read_only isro", "read_only"),
        ("last_snapshot lsnp", "zxid timestamp"),
        ("leader lead", "is_leader leader_id leader_ip"),
        (
            "monitor mntr",
            "version server_state avg_latency znode_count cnt_fsynctime",
        ),
        ("observers obsr", "synced_observers observers"),
        ("ruok", ""),
        (
            "server_stats srvr",
            "version read_only server_stats node_count",
        ),
        (
            "stats stat",
            "version read_only server_stats node_count connections secure_connections",
        ),
        ("system_properties sysp", ""),
        ("voting_view", "current_config"),
        ("watches wchc", "session_id_to_watched_paths"),
        ("watches_by_path wchp", "path_to_session_ids"),
        (
            "watch_summary wchs",
            "num_connections num_paths num_total_watches",
        ),
        ("zabstate", "myid is_leader voting last_zxid zabstate"),
    ] {
        let first = names.split(' ').next().unwrap();
        for name in names.split(' ') {
            let shown = command(to, name).await;
            assert_eq!(shown["command"], first, "{name}");
            assert!(shown["error"].is_null(), "{name}");
            for field in fields.split(' ').filter(|field| !field.is_empty()) {
                assert!(shown.get(field).is_some(), "{name}: {field} in {shown}");
            }
        }
    }
    let cons = command(to, "cons").await;
    assert_eq!(cons["connections"][0]["session_id"], session);
    assert_eq!(cons["connections"][0]["last_operation"], "GETD");
    let dump = command(to, "dump").await;
    assert_eq!(
        dump["session_id_to_ephemeral_paths"][session.to_string()][0],
        "/eph"
    );
    let watches = command(to, "wchp").await;
    assert_eq!(watches["path_to_session_ids"]["/eph"][0], session);
    assert_eq!(command(to, "wchs").await["num_total_watches"], 1);
    let (status, list) = get(to, "/commands").await;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(
        (status, &list["commands"]["watches"][0]),
        (200, &"wchc".into())
    );
}

#[tokio::test]
async fn mntr_monitor_and_metrics_show_the_same_measurements() {
    let (server, to) = serving().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"data", 0).await.unwrap();
    for (path, text) in [
        ("", ""),
        ("/zookeeper_limits", "count=9,bytes=-1=;byteHardLimit=6"),
        ("/zookeeper_stats", "count=0,bytes=0"),
    ] {
        let path = format!("/zookeeper/quota/a{path}");
        wire.create(&path, text.as_bytes(), 0).await.unwrap();
    }
    let too_much = wire.call(set("/a", b"sevenchars")).await;
    assert_eq!(too_much, Err(ErrorCode::QuotaExceeded));
    let (status, text) = get(to, "/metrics").await;
    assert_eq!(status, 200);
    let mut families = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(
                families.insert((name.to_owned(), kind.to_owned())),
                "{line}"
            );
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{line}");
            value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        }
    }
    let mut expected = BTreeSet::new();
    for (name, kind) in &families {
        if name.ends_with("_info") {
            // What it says is in its labels, which words do not have.
        } else if name.ends_with("_per_namespace") {
            expected.insert(format!("a_{name}"));
        } else if kind == "gauge" || kind == "counter" {
            expected.insert(name.clone());
        } else {
            for part in [
                "avg", "min", "max", "cnt", "sum", "p50", "p95", "p99", "p999",
            ] {
                expected.insert(format!("{part}_{name}"));
            }
        }
    }
    let monitor = command(to, "monitor").await;
    let keys = monitor.as_object().unwrap().keys();
    let besides = ["command", "error", "version", "server_state"];
    let shown: BTreeSet<String> = keys
        .filter(|key| !besides.contains(&key.as_str()))
        .cloned()
        .collect();
    assert_eq!(shown, expected);
    let mntr = word(&server.connect_string(), "mntr").await;
    let lines = mntr.lines().map(|line| {
        let (key, _) = line.split_once('\t').unwrap();
        key.strip_prefix("zk_").unwrap().to_owned()
    });
    let shown: BTreeSet<String> = lines
        .filter(|key| !besides.contains(&key.as_str()))
        .collect();
    assert_eq!(shown, expected);
    for (name, value) in [
        ("znode_count", 9),
        // The session's opening, four znodes, and the write that was refused.
        ("commit_count", 6),
        ("sum_sync_processor_batch_size", 6),
        ("op_count_create_session", 1),
        ("op_count_create", 4),
        ("op_count_set_data", 1),
        ("op_count_total", 6),
        ("last_client_response_size", 20),
        ("min_client_response_size", 20),
        ("a_quota_count_limit_per_namespace", 9),
        ("a_quota_bytes_limit_per_namespace", 6),
        ("a_quota_count_usage_per_namespace", 1),
        ("a_quota_bytes_usage_per_namespace", 4),
        ("a_quota_exceeded_error_per_namespace", 1),
        ("cnt_baton_apply_seconds", 6),
        ("cnt_baton_queue_seconds", 6),
    ] {
        assert_eq!(monitor[name], value, "{name}");
    }
    let labelled = "\nquota_bytes_limit_per_namespace{key=\"a\"} 6\n";
    assert!(text.contains(labelled), "{text}");
    assert!(
        text.contains("\nbaton_sync_seconds_bucket{le=\"+Inf\"} "),
        "{text}"
    );
    assert!(text.contains("\nfsynctime{quantile=\"0.5\"} "), "{text}");
}

#[tokio::test]
async fn a_session_that_is_lost_with_what_it_held_is_reported() {
    let server = in_memory()
        .http("127.0.0.1:0")
        .tick(Duration::from_millis(20))
        .min_session_timeout(Duration::from_millis(100))
        .start()
        .await
        .unwrap();
    let to = server.http_addr().unwrap();
    for held in [false, true] {
        let request = ConnectRequest {
            timeout_ms: 100,
            ..no_session()
        };
        let mut wire = Wire::open_with(&server.connect_string(), &request)
            .await
            .unwrap();
        if held {
            wire.create("/held", b"", 1).await.unwrap();
        }
        let left = command(to, "monitor").await["baton_session_time_left_min_seconds"].clone();
        let left = left.as_f64().unwrap();
        // In seconds; what the server was late is added to a session's time.
        assert!((0.0..5.0).contains(&left), "{left}");
    }
    let lost = async {
        loop {
            let monitor = command(to, "monitor").await;
            // A connection ends after its session, in a task of its own.
            if monitor["stale_sessions_expired"] == 2 && monitor["connection_drop_count"] == 2 {
                break monitor;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let monitor = tokio::time::timeout(PATIENCE, lost).await.unwrap();
    assert_eq!(monitor["baton_sessions_expired_holding"], 1);
    assert_eq!(monitor["baton_session_time_left_min_seconds"], 0.0);
}

#[tokio::test]
async fn what_changes_something_needs_credentials_and_what_is_not_offered_says_so() {
    let (server, to) = serving().await;
    let root = "Authorization: digest super:secret\r\n";
    for (name, body) in [
        ("crst", ""),
        ("srst", ""),
        ("orst", ""),
        ("stmk?traceMask=7", ""),
        ("shed", "{\"percentage\": 100}"),
    ] {
        let path = format!("/commands/{name}");
        for (credentials, wanted) in [
            ("", 401),
            ("Authorization: digest super:guess\r\n", 403),
            ("Authorization: Basic c3VwZXI6c2VjcmV0\r\n", 403),
            (root, 200),
        ] {
            let (status, shown) = ask(to, "POST", &path, credentials, body).await;
            assert_eq!(status, wanted, "{name} {credentials}: {shown}");
            let shown: Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(shown["error"].is_null(), wanted == 200, "{shown}");
        }
    }
    assert_eq!(command(to, "gtmk").await["tracemask"], 7);
    let (status, _) = ask(to, "GET", "/commands/shed", root, "").await;
    assert_eq!(status, 405);
    let (status, shown) = ask(to, "POST", "/commands/shed", root, "{\"percentage\": 101}").await;
    assert_eq!(status, 400, "{shown}");
    let (status, shown) = ask(to, "POST", "/commands/restore", root, "").await;
    assert_eq!(status, 501, "{shown}");
    assert!(shown.contains("baton restore"), "{shown}");
    for (name, wanted) in [("restore", 401), ("snapshot", 401), ("nosuch", 404)] {
        let (status, shown) = get(to, &format!("/commands/{name}")).await;
        assert_eq!(status, wanted, "{shown}");
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["command"], name);
        assert!(shown["error"].is_string());
    }
    // Everybody may do everything at `/` here, so that being somebody is not a proof of trust.
    let user = "Authorization: digest user:password\r\n";
    assert_eq!(ask(to, "POST", "/commands/srst", user, "").await.0, 403);
    drop(server);
}

#[tokio::test]
async fn shed_connections_are_closed_and_their_sessions_live() {
    let (server, to) = serving().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/eph", b"", 1).await.unwrap();
    let root = "Authorization: digest super:secret\r\n";
    let (status, shown) = ask(to, "POST", "/commands/shed", root, "{\"percentage\": 50}").await;
    assert_eq!(status, 200, "{shown}");
    assert!(wire.is_closed().await);
    let monitor = command(to, "monitor").await;
    assert_eq!(monitor["baton_connections_shed"], 1);
    assert_eq!(monitor["global_sessions"], 1);
    assert_eq!(monitor["baton_sessions_with_ephemerals"], 1);
}

#[tokio::test]
async fn health_is_reported_and_a_stopped_server_reports_nothing() {
    let (server, to) = serving().await;
    assert_eq!(get(to, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(to, "/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(to, "/").await.0, 404);
    server.shutdown().await.unwrap();
    assert!(tokio::net::TcpStream::connect(to).await.is_err());
}

#[tokio::test]
async fn bad_http_is_refused_and_others_go_on() {
    let (server, to) = serving().await;
    let long = "x".repeat(5000);
    assert_eq!(ask(to, "POST", "/commands/ruok", "", &long).await.0, 413);
    let mut garbage = tokio::net::TcpStream::connect(to).await.unwrap();
    garbage
        .write_all(b"\0\0\0\x2cnot http at all\r\n\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, garbage.read_to_end(&mut rest));
    let _ = closed.await.unwrap();
    assert_eq!(
        ask(
            to,
            "GET",
            "/healthz",
            &format!("X: {}\r\n", "y".repeat(20_000)),
            ""
        )
        .await
        .0,
        431
    );
    assert_eq!(get(to, "/healthz").await.0, 200);
    drop(server);
}

/// An address of this machine that is not loopback's: where there is one, its callers come from
/// elsewhere.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// Skipped on a machine without another address; the tests in `operator/http/access.rs` remain.
#[tokio::test]
async fn a18_callers_from_elsewhere_show_who_they_are_and_supervisors_need_not() {
    let Some(own) = own_address() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "0123456789abcdef\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&tokens, mode).unwrap();
    let builder = in_memory().http(format!("{own}:0")).http("127.0.0.1:0");
    let builder = builder.with(|options| options.http_token_file = Some(tokens));
    let server = builder.start().await.unwrap();
    let [elsewhere, here] = *server.http_addrs() else {
        panic!("two ports");
    };
    let mut wire = Wire::open(&server.connect_string()).await;
    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    let reader = "Authorization: digest reader:secret\r\n";
    for path in [
        "/metrics",
        "/commands",
        "/commands/dump",
        "/commands/nosuch",
    ] {
        let (status, shown) = get(elsewhere, path).await;
        assert_eq!(status, 401, "{path}: {shown}");
        assert!(shown.contains("have to authenticate"), "{shown}");
        assert_ne!(ask(elsewhere, "GET", path, token, "").await.0, 401);
        assert_ne!(get(here, path).await.0, 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(elsewhere, path).await.0, 200, "{path}");
    }
    assert_eq!(ask(elsewhere, "GET", "/metrics", token, "").await.0, 200);
    assert_eq!(
        ask(elsewhere, "POST", "/commands/srst", token, "").await.0,
        200
    );
    assert_eq!(ask(elsewhere, "GET", "/metrics", reader, "").await.0, 403);
    name_at_root(&mut wire).await;
    assert_eq!(ask(elsewhere, "GET", "/metrics", reader, "").await.0, 200);
    assert_eq!(
        ask(elsewhere, "POST", "/commands/srst", reader, "").await.0,
        403
    );
}

/// Gives `/` an ACL that names `reader`, who may read, and `admin`, who may do everything.
async fn name_at_root(wire: &mut Wire) {
    let acl = |perms, user: &str| {
        let id = baton_tree::digest_id(format!("{user}:secret").as_bytes());
        Acl::new(perms, "digest", id)
    };
    let acl = Some(vec![
        Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone"),
        acl(Perms::READ, "reader"),
        acl(Perms::ALL, "admin"),
    ]);
    let path = "/";
    let version = -1;
    wire.call(Request::SetAcl { path, acl, version })
        .await
        .unwrap();
}

/// Apache ZooKeeper 3.9.3 took one permission for all of them (CVE-2025-58457).
#[tokio::test]
async fn a18_a_command_takes_every_permission_and_not_one_of_them() {
    let (server, to) = serving().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    name_at_root(&mut wire).await;
    for (user, wanted) in [("reader", 403), ("admin", 200), ("nobody", 403)] {
        let header = format!("Authorization: digest {user}:secret\r\n");
        let (status, shown) = ask(to, "POST", "/commands/srst", &header, "").await;
        assert_eq!(status, wanted, "{user}: {shown}");
    }
}

#[tokio::test]
async fn a18_ports_that_are_open_to_strangers_stop_the_start() {
    for change in [
        (|options| options.listen = vec!["0.0.0.0:0".to_owned()]) as fn(&mut Options),
        |options| options.http = vec!["0.0.0.0:0".to_owned()],
    ] {
        let error = in_memory().with(change).start().await.unwrap_err();
        assert!(matches!(error, StartError::Setting { .. }), "{error:?}");
        assert!(error.to_string().contains("--insecure"), "{error}");
    }
    let missing = |options: &mut Options| options.http_token_file = Some("missing".into());
    let error = in_memory().with(missing).start().await.unwrap_err();
    assert!(
        error.to_string().starts_with("http_token_file: missing: "),
        "{error}"
    );
}

/// A log whose newest change was made while the clock was ten years ahead.
fn log_from_the_future() -> FaultStorage {
    let disk = FaultStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let (mut wal, _) = Wal::open(storage, WalOptions::default()).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ahead_ms = i64::try_from(now.as_millis()).unwrap() + 315_360_000_000;
    let batch = BatchBuilder::raising(FormatLevel::NEWEST, ahead_ms);
    let entry = Entry {
        index: 1,
        term: 1,
        kind: 1,
        payload: batch.finish(),
    };
    let state = HardState { term: 1, vote: 1 };
    let records = [
        Record::HardState(state),
        Record::Entry(entry),
        Record::Commit { index: 1 },
    ];
    wal.append(&records).unwrap();
    wal.sync().unwrap();
    wal.close().unwrap();
    disk
}

#[tokio::test]
async fn an_operator_sets_a_time_that_is_ahead_back_to_the_clocks() {
    let options = in_memory()
        .http("127.0.0.1:0")
        .with(|options| options.super_digest = Some(baton_tree::digest_id(b"super:secret")));
    let options = options.options().clone();
    let server = Server::start_with(options, Arc::new(log_from_the_future()));
    let server = server.await.unwrap();
    let to = server.http_addr().unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/stands", b"", 0).await.unwrap();
    let ahead = async || {
        let monitor = command(to, "monitor").await;
        monitor["baton_time_ahead_seconds"].as_f64().unwrap()
    };
    assert!(ahead().await > 300_000_000.0);
    let path = "/commands/reset_time";
    assert_eq!(ask(to, "POST", path, "", "").await.0, 401);
    let root = "Authorization: digest super:secret\r\n";
    assert_eq!(ask(to, "GET", path, root, "").await.0, 405);
    let (status, shown) = ask(to, "POST", path, root, "").await;
    assert_eq!(status, 200, "{shown}");
    let back = async {
        while ahead().await > 10.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    drop(server);
}

//! An operator's view: four-letter words, unix sockets, containers that go by themselves, the
//! server's own znode.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use baton_proto::{
    Create, CreateOp, ErrorCode, EventKind, MultiOp, MultiResult, Request, Response,
};
use baton_server::{Server, StartError};

use crate::support::{PATIENCE, Wire, in_memory, set, start, with_words, word};

#[tokio::test]
async fn four_letter_words_are_answered_in_their_shapes() {
    let server = with_words().start().await.unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/eph", b"", 1).await.unwrap();
    wire.call(Request::GetData {
        path: "/eph",
        watch: true,
    })
    .await
    .unwrap();
    let session = format!("0x{:x}", wire.session.session_id);

    assert_eq!(word(&to, "ruok").await, "imok");
    assert_eq!(word(&to, "isro").await, "rw");
    let srvr = word(&to, "srvr").await;
    for part in [
        "Zookeeper version: ",
        "Latency min/avg/max: ",
        "\nConnections: 2\n",
        "Zxid: 0x2",
        "Mode: standalone",
        "Node count: 6",
    ] {
        assert!(srvr.contains(part), "{part}: {srvr}");
    }
    let mntr = word(&to, "mntr").await;
    for line in mntr.lines() {
        let (key, value) = line.split_once('\t').unwrap();
        assert!(key.starts_with("zk_") && !value.is_empty(), "{line}");
    }
    for line in [
        "zk_znode_count\t6",
        "zk_ephemerals_count\t1",
        "zk_watch_count\t1",
        "zk_server_state\tstandalone",
    ] {
        assert!(mntr.lines().any(|there| there == line), "{line}: {mntr}");
    }
    assert!(word(&to, "stat").await.contains("Clients:\n /127.0.0.1:"));
    assert!(
        word(&to, "cons")
            .await
            .contains(&format!("sid={session},lop=GETD,est="))
    );
    assert!(word(&to, "conf").await.contains("tickTime=200\n"));
    assert!(
        word(&to, "envi")
            .await
            .starts_with("Environment:\nzookeeper.version=3.")
    );
    assert!(word(&to, "dump").await.contains(&format!(
        "Sessions with Ephemerals (1):\n{session}:\n\t/eph\n"
    )));
    assert_eq!(
        word(&to, "wchs").await,
        "1 connections watching 1 paths\nTotal watches:1\n"
    );
    assert_eq!(word(&to, "wchc").await, format!("{session}\n\t/eph\n\n"));
    assert_eq!(word(&to, "wchp").await, format!("/eph\n\t{session}\n\n"));
    assert_eq!(word(&to, "dirs").await, "datadir_size: 0\nlogdir_size: 0\n");
    assert_eq!(word(&to, "srst").await, "Server stats reset.\n");
    assert_eq!(word(&to, "crst").await, "Connection stats reset.\n");
    let server = in_memory()
        .with(|options| options.four_letter_words = Vec::new())
        .start()
        .await
        .unwrap();
    assert!(
        word(&server.connect_string(), "ruok")
            .await
            .contains("not in the whitelist")
    );
}

#[tokio::test]
async fn a_unix_socket_is_its_owners_only_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("baton.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Server::builder().unix_socket(&path).start().await.unwrap();
    assert_eq!(server.connect_string(), format!("unix:{}", path.display()));
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"", 0).await.unwrap();
    assert_eq!(word(&server.connect_string(), "ruok").await, "imok");
    let second = Server::builder()
        .unix_socket(&path)
        .start()
        .await
        .unwrap_err();
    assert!(matches!(second, StartError::UnixSocket { .. }), "{second}");
    assert!(
        wire.exists("/a").await,
        "the running server is not disturbed"
    );
    server.shutdown().await.unwrap();
    tokio::time::timeout(PATIENCE, async {
        while path.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

/// The system takes no more than 107 bytes, and the name under which the socket is made first must
/// not be longer.
#[tokio::test]
async fn a_unix_socket_may_have_the_longest_path_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let room = 107 - folder.path().as_os_str().len() - 1;
    let path = folder.path().join("s".repeat(room));
    let server = Server::builder()
        .unix_socket(&path)
        .with(|options| options.unix_socket_mode = 0o660)
        .start()
        .await
        .unwrap();
    let about = std::fs::metadata(&path).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o660);
    assert_eq!(word(&server.connect_string(), "ruok").await, "imok");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_server_says_that_it_is_baton_without_showing_it_in_a_listing() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let shown = String::from_utf8(wire.get("/zookeeper/baton").await.unwrap()).unwrap();
    assert!(
        shown.starts_with("{\"version\":\"") && shown.contains("\"ping_lease\":true"),
        "{shown}"
    );
    assert!(wire.exists("/zookeeper/baton").await);
    let listed = wire
        .call(Request::GetChildren {
            path: "/zookeeper",
            watch: false,
        })
        .await
        .unwrap();
    assert_eq!(
        listed,
        Response::Children(vec!["quota".to_owned(), "config".to_owned()])
    );
}

#[tokio::test]
async fn containers_and_outlived_znodes_go_by_themselves() {
    let server = in_memory()
        .with(|options| options.reap_interval = Duration::from_millis(20))
        .start()
        .await
        .unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    let of = |op, path, flags, ttl_ms| {
        Request::Create(Create {
            op,
            path,
            data: None,
            acl: Some(vec![baton_proto::Acl::open_unsafe()]),
            flags,
            ttl_ms,
        })
    };
    wire.call(of(CreateOp::Container, "/unused", 4, 0))
        .await
        .unwrap();
    wire.call(of(CreateOp::Container, "/used", 4, 0))
        .await
        .unwrap();
    wire.create("/used/child", b"", 0).await.unwrap();
    wire.call(of(CreateOp::Ttl, "/ttl", 5, 30)).await.unwrap();
    wire.call(Request::AddWatch { path: "/", mode: 1 })
        .await
        .unwrap();
    assert_eq!(wire.event().await.path, "/ttl");
    assert!(wire.exists("/used").await && wire.exists("/unused").await);
    wire.send(&[Request::Delete {
        path: "/used/child",
        version: -1,
    }])
    .await;
    assert_eq!(wire.event().await.path, "/used/child");
    wire.reply().await;
    let event = wire.event().await;
    assert_eq!(
        (event.kind, event.path.as_str()),
        (EventKind::NodeDeleted, "/used")
    );
    assert!(
        wire.exists("/unused").await,
        "a container is kept for its grace"
    );
}

#[tokio::test]
async fn a_multi_is_all_or_nothing_and_fires_its_watches_after_success_only() {
    let server = start().await;
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    let mut watcher = Wire::open(&to).await;
    wire.create("/a", b"", 0).await.unwrap();
    watcher
        .call(Request::AddWatch { path: "/", mode: 1 })
        .await
        .unwrap();
    let write = |version| {
        Request::Multi(vec![
            MultiOp::SetData {
                path: "/a",
                data: Some(b"new"),
                version: -1,
            },
            MultiOp::Check {
                path: "/a",
                version,
            },
            MultiOp::Delete {
                path: "/a",
                version: -1,
            },
        ])
    };
    let error = MultiResult::Error;
    assert_eq!(
        wire.call(write(9)).await,
        Ok(Response::Multi(vec![
            error(ErrorCode::Ok),
            error(ErrorCode::BadVersion),
            error(ErrorCode::RuntimeInconsistency)
        ]))
    );
    assert_eq!(wire.get("/a").await.unwrap(), b"");
    assert!(
        matches!(wire.call(write(1)).await, Ok(Response::Multi(results)) if results.len() == 3)
    );
    let events = [watcher.event().await, watcher.event().await];
    assert_eq!(
        events.map(|event| event.kind),
        [EventKind::NodeDataChanged, EventKind::NodeDeleted]
    );
}

#[tokio::test]
async fn h52_a_deletion_wakes_those_who_watch_that_znode_only() {
    let server = start().await;
    let to = server.connect_string();
    let mut owner = Wire::open(&to).await;
    let mut waiters = Vec::new();
    for n in 0..20 {
        owner.create(&format!("/lock-{n}"), b"", 0).await.unwrap();
        let mut waiter = Wire::open(&to).await;
        waiter
            .call(Request::GetData {
                path: &format!("/lock-{n}"),
                watch: true,
            })
            .await
            .unwrap();
        waiters.push(waiter);
    }
    owner
        .call(Request::Delete {
            path: "/lock-7",
            version: -1,
        })
        .await
        .unwrap();
    owner.call(set("/lock-8", b"x")).await.unwrap();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&[Request::Sync { path: "/" }]).await;
        if n == 7 || n == 8 {
            assert_eq!(waiter.event().await.path, format!("/lock-{n}"));
        }
        assert_eq!(waiter.reply().await.0.err, 0, "{n} is left alone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_is_free_once_a_graceful_stop_returns() {
    // Where the system has all of 127.0.0.0/8, an address of this process alone: on 127.0.0.1
    // another process may be given the port between two of these servers.
    let [_, highest, high, low] = std::process::id().to_be_bytes();
    let mut address = if cfg!(target_os = "linux") {
        format!("127.{}.{high}.{low}:0", 100 + highest % 100)
    } else {
        "127.0.0.1:0".to_owned()
    };
    for _ in 0..30 {
        let server = Server::builder()
            .in_memory()
            .listen(&address)
            .start()
            .await
            .unwrap();
        address = server.local_addr().unwrap().to_string();
        server.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_quota_is_kept_refused_at_its_hard_limit_and_counted() {
    let server = start().await;
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/a", b"four", 0).await.unwrap();
    let folder = "/zookeeper/quota/a";
    wire.create(folder, b"", 0).await.unwrap();
    let limits = format!("{folder}/zookeeper_limits");
    let text = b"count=1,bytes=-1=;byteHardLimit=6";
    wire.create(&limits, text, 0).await.unwrap();
    let stats = format!("{folder}/zookeeper_stats");
    wire.create(&stats, b"count=0,bytes=0", 0).await.unwrap();
    wire.create("/a/b", b"2!", 0).await.unwrap();
    let refused = wire.call(set("/a/b", b"3!!")).await;
    assert_eq!(refused, Err(ErrorCode::QuotaExceeded));
    assert_eq!(wire.get(&stats).await.unwrap(), b"count=2,bytes=6");
    let mntr = word(&to, "mntr").await;
    for line in [
        "zk_baton_quota_soft_exceeded\t1",
        "zk_baton_quota_hard_exceeded\t1",
    ] {
        assert!(mntr.lines().any(|there| there == line), "{line}: {mntr}");
    }
}

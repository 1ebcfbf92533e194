//! Sessions: the handshake in every rule, re-attachment, expiry, what ends with them.

use std::time::{Duration, Instant};

use baton_proto::{ConnectRequest, ErrorCode, EventKind, Request, Response};

use crate::support::{PATIENCE, Wire, create, in_memory, no_session, set, start, watched};

#[tokio::test]
async fn a_session_gets_an_id_a_password_and_a_timeout_within_the_limits() {
    let server = start().await;
    let to = server.connect_string();
    for (wanted, given) in [(10_000, 10_000), (1, 1000), (i32::MAX, 120_000), (-1, 1000)] {
        let wire = Wire::open_with(
            &to,
            &ConnectRequest {
                timeout_ms: wanted,
                ..no_session()
            },
        )
        .await
        .unwrap();
        assert_eq!(wire.session.timeout_ms, given);
        assert!(wire.session.session_id > 0);
        assert_ne!(wire.session.password, [0; 16]);
        assert_eq!(wire.session.read_only, Some(false));
    }
    assert_eq!(server.active_sessions(), 4);
}

#[tokio::test]
async fn a_client_that_omits_the_read_only_byte_is_answered_without_it() {
    let server = start().await;
    let old_client = ConnectRequest {
        read_only: None,
        ..no_session()
    };
    let mut wire = Wire::open_with(&server.connect_string(), &old_client)
        .await
        .unwrap();
    assert_eq!(wire.session.read_only, None);
    assert!(wire.exists("/").await);
}

#[tokio::test]
async fn bytes_sent_behind_the_connect_request_are_not_lost() {
    let server = start().await;
    let mut wire = Wire::silent(&server.connect_string()).await;
    let mut bytes = Vec::new();
    baton_proto::frame::write_connect_request(&mut bytes, &no_session());
    baton_proto::frame::write_request(&mut bytes, 1, &create("/a", b"", 0));
    baton_proto::frame::write_request(&mut bytes, 2, &crate::support::get("/a"));
    wire.send_bytes(&bytes).await;
    assert!(wire.next_bytes().await.is_some());
    assert_eq!(wire.reply().await.0.xid, 1);
    assert_eq!(wire.reply().await.0.xid, 2);
}

#[tokio::test]
async fn a_client_that_has_seen_the_future_is_turned_away_without_an_answer() {
    let server = start().await;
    let future = ConnectRequest {
        last_zxid_seen: 1 << 40,
        ..no_session()
    };
    assert!(
        Wire::open_with(&server.connect_string(), &future)
            .await
            .is_none()
    );
}

#[tokio::test]
async fn a_session_goes_on_through_another_connection_and_the_old_one_is_closed() {
    let server = start().await;
    let to = server.connect_string();
    let mut first = Wire::open(&to).await;
    first.create("/mine", b"", 1).await.unwrap();
    let mut second = Wire::resume(&to, &first.session, 0).await.unwrap();
    assert_eq!(second.session.session_id, first.session.session_id);
    assert_eq!(second.session.password, first.session.password);
    assert!(first.is_closed().await, "one connection a session");
    assert_eq!(
        second
            .call(Request::GetEphemerals { prefix: "/" })
            .await
            .unwrap(),
        Response::Strings(vec!["/mine".to_owned()])
    );
    assert_eq!(server.active_sessions(), 1);
}

#[tokio::test]
async fn h02_what_the_old_connection_still_sends_is_not_applied_after_the_session_has_moved() {
    let server = start().await;
    let to = server.connect_string();
    for round in 0..10 {
        let mut first = Wire::open(&to).await;
        let session = first.session;
        let flood = tokio::spawn(async move {
            for n in 0.. {
                let path = format!("/r{round}-{n}");
                let mut bytes = Vec::new();
                baton_proto::frame::write_request(&mut bytes, n, &create(&path, b"", 0));
                if first.try_send_bytes(&bytes).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        tokio::time::sleep(Duration::from_millis(3)).await;
        let mut second = Wire::resume(&to, &session, 0).await.unwrap();
        let count = |response| match response {
            Response::Count(count) => count,
            other => panic!("{other:?}"),
        };
        let before = count(
            second
                .call(Request::GetAllChildrenNumber { path: "/" })
                .await
                .unwrap(),
        );
        flood.await.unwrap();
        second.call(Request::Sync { path: "/" }).await.unwrap();
        let after = count(
            second
                .call(Request::GetAllChildrenNumber { path: "/" })
                .await
                .unwrap(),
        );
        assert_eq!(before, after);
    }
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_session_are_answered_with_a_timeout_of_zero() {
    let server = start().await;
    let to = server.connect_string();
    let mut owner = Wire::open(&to).await;
    let session = owner.session;
    let attempts = [
        (session.session_id, vec![7; 16]),
        (session.session_id, vec![]),
        (session.session_id, vec![1; 15]),
        (session.session_id + 99, session.password.to_vec()),
        (-1, vec![0; 16]),
    ];
    for (session_id, password) in attempts {
        let request = ConnectRequest {
            session_id,
            password: &password,
            ..no_session()
        };
        let mut intruder = Wire::open_with(&to, &request).await.unwrap();
        assert!(intruder.session.is_refused());
        assert_eq!(
            (intruder.session.session_id, intruder.session.password),
            (0, [0; 16])
        );
        assert!(intruder.is_closed().await);
    }
    assert!(owner.exists("/").await, "the owner is not disturbed");
}

#[tokio::test]
async fn closing_a_session_deletes_its_ephemerals_is_answered_and_ends_the_connection() {
    let server = start().await;
    let to = server.connect_string();
    let mut leaving = Wire::open(&to).await;
    let mut staying = Wire::open(&to).await;
    leaving.create("/eph", b"", 1).await.unwrap();
    staying.call(watched("/eph")).await.unwrap();
    assert_eq!(
        leaving.call(Request::CloseSession).await,
        Ok(Response::Empty)
    );
    assert!(leaving.is_closed().await);
    assert_eq!(staying.event().await.kind, EventKind::NodeDeleted);
    assert!(!staying.exists("/eph").await);
    let refused = Wire::resume(&to, &leaving.session, 0).await.unwrap();
    assert!(refused.session.is_refused());
}

#[tokio::test]
async fn h26_a_silent_session_expires_after_its_timeout_and_not_before() {
    let tick = Duration::from_millis(50);
    let server = in_memory()
        .tick(tick)
        .min_session_timeout(Duration::from_secs(2))
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut staying = Wire::open(&to).await;
    let short = ConnectRequest {
        timeout_ms: 2000,
        ..no_session()
    };
    let mut silent = Wire::open_with(&to, &short).await.unwrap();
    silent.create("/eph", b"", 1).await.unwrap();
    staying.call(watched("/eph")).await.unwrap();
    let mut last_sent = Instant::now();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(600)).await;
        last_sent = Instant::now();
        silent.send(&[Request::Ping]).await;
        silent.reply().await;
    }
    assert_eq!(staying.event().await.kind, EventKind::NodeDeleted);
    assert!(
        last_sent.elapsed() >= Duration::from_secs(2),
        "ended early: {:?}",
        last_sent.elapsed()
    );
    assert!(silent.is_closed().await);
    assert!(!staying.exists("/eph").await);
    assert!(
        Wire::resume(&to, &silent.session, 0)
            .await
            .unwrap()
            .session
            .is_refused()
    );
}

#[tokio::test]
async fn a_session_without_a_connection_lives_on_for_its_timeout() {
    let server = in_memory()
        .tick(Duration::from_millis(20))
        .min_session_timeout(Duration::from_secs(2))
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let request = ConnectRequest {
        timeout_ms: 2000,
        ..no_session()
    };
    let mut wire = Wire::open_with(&to, &request).await.unwrap();
    wire.create("/eph", b"", 1).await.unwrap();
    let mut other = Wire::open(&to).await;
    other.call(watched("/eph")).await.unwrap();
    for _ in 0..5 {
        let session = wire.session;
        drop(wire);
        tokio::time::sleep(Duration::from_millis(500)).await;
        wire = Wire::resume(&to, &session, 0).await.unwrap();
        assert!(!wire.session.is_refused());
    }
    assert!(other.exists("/eph").await);
    drop(wire);
    assert_eq!(other.event().await.path, "/eph");
}

#[tokio::test]
async fn watches_are_set_again_after_a_reconnect_and_missed_events_are_made_up_for() {
    let server = start().await;
    let to = server.connect_string();
    let mut writer = Wire::open(&to).await;
    for path in ["/data", "/gone", "/parent", "/quiet", "/parent-gone"] {
        writer.create(path, b"", 0).await.unwrap();
    }
    let mut wire = Wire::open(&to).await;
    let seen = wire.send(&[crate::support::get("/data")]).await;
    let (header, _) = wire.reply().await;
    assert_eq!(header.xid, seen);
    let session = wire.session;
    drop(wire);
    writer.call(set("/data", b"new")).await.unwrap();
    for path in ["/gone", "/parent-gone"] {
        writer
            .call(Request::Delete { path, version: -1 })
            .await
            .unwrap();
    }
    writer.create("/parent/child", b"", 0).await.unwrap();
    writer.create("/came", b"", 0).await.unwrap();

    let mut wire = Wire::resume(&to, &session, header.zxid).await.unwrap();
    wire.send(&[Request::SetWatches2 {
        relative_zxid: header.zxid,
        data: vec!["/data", "/gone", "/quiet"],
        exist: vec!["/came", "/never"],
        child: vec!["/parent", "/parent-gone", "/quiet"],
        persistent: vec!["/quiet/persistent"],
        persistent_recursive: vec!["/quiet"],
    }])
    .await;
    let mut missed = Vec::new();
    for _ in 0..5 {
        let event = wire.event().await;
        missed.push((event.kind, event.path));
    }
    assert_eq!(
        missed,
        [
            (EventKind::NodeDataChanged, "/data".to_owned()),
            (EventKind::NodeDeleted, "/gone".to_owned()),
            (EventKind::NodeCreated, "/came".to_owned()),
            (EventKind::NodeChildrenChanged, "/parent".to_owned()),
            (EventKind::NodeDeleted, "/parent-gone".to_owned()),
        ]
    );
    assert_eq!(
        wire.reply().await.0.error(),
        ErrorCode::Ok,
        "the reply comes after the events"
    );
    writer.create("/never", b"", 0).await.unwrap();
    assert_eq!(wire.event().await.path, "/never");
    writer.call(set("/quiet", b"x")).await.unwrap();
    assert_eq!(wire.event().await.kind, EventKind::NodeDataChanged);
    writer.create("/quiet/persistent", b"", 0).await.unwrap();
    let events = [wire.event().await, wire.event().await];
    assert!(
        events
            .iter()
            .any(|e| e.kind == EventKind::NodeCreated && e.path == "/quiet/persistent")
    );
    assert!(
        events
            .iter()
            .any(|e| e.kind == EventKind::NodeChildrenChanged && e.path == "/quiet")
    );
}

#[tokio::test]
async fn h53_watches_end_with_their_connection() {
    let server = start().await;
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    for n in 0..100 {
        let path = format!("/n{n}");
        wire.call(Request::Exists {
            path: &path,
            watch: true,
        })
        .await
        .unwrap_err();
    }
    assert!(
        crate::support::word(&to, "wchs")
            .await
            .contains("Total watches:100")
    );
    wire.call(Request::RemoveWatches {
        path: "/n0",
        kind: 3,
    })
    .await
    .unwrap();
    assert_eq!(
        wire.call(Request::CheckWatches {
            path: "/n0",
            kind: 2
        })
        .await,
        Err(ErrorCode::NoWatcher)
    );
    assert_eq!(
        wire.call(Request::CheckWatches {
            path: "/n1",
            kind: 2
        })
        .await,
        Ok(Response::Empty)
    );
    assert!(
        crate::support::word(&to, "wchs")
            .await
            .contains("Total watches:99")
    );
    drop(wire);
    tokio::time::timeout(PATIENCE, async {
        while !crate::support::word(&to, "wchs")
            .await
            .contains("Total watches:0")
        {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_idle_server_knows_since_when() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    assert_eq!(server.idle(), Duration::ZERO);
    assert_eq!(
        (server.active_sessions(), server.active_connections()),
        (1, 1)
    );
    wire.call(Request::CloseSession).await.unwrap();
    assert!(wire.is_closed().await);
    tokio::time::timeout(PATIENCE, async {
        while server.idle() < Duration::from_millis(20) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(
        (server.active_sessions(), server.active_connections()),
        (0, 0)
    );
}

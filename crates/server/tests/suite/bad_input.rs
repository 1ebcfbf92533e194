//! Bad input of clients: each is refused by itself, and no other client is harmed.

use std::time::Duration;

use baton_proto::{AuthPacket, ErrorCode, OpCode, Request, Response, frame};
use baton_server::{Server, StartError};

use crate::support::{PATIENCE, Wire, create, decode, get, in_memory, set, start};

#[tokio::test]
async fn garbage_before_the_handshake_closes_the_connection_without_an_answer() {
    let server = start().await;
    let to = server.connect_string();
    let mut bystander = Wire::open(&to).await;
    let frames: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4],
        &[0x7f, 0xff, 0xff, 0xff, 0, 0],
        &[0, 0, 0, 0],
        &[0, 0, 0, 3, 1, 2, 3],
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01],
    ];
    for bytes in frames {
        let mut wire = Wire::silent(&to).await;
        wire.send_bytes(bytes).await;
        assert!(wire.rest().await.is_empty(), "{bytes:?}");
    }
    assert!(bystander.exists("/").await);
}

#[tokio::test]
async fn frames_with_an_impossible_length_close_their_connection_only() {
    let server = start().await;
    let to = server.connect_string();
    let mut bystander = Wire::open(&to).await;
    for length in [-1_i32, i32::MIN, (64 << 20) + 1, i32::MAX] {
        let mut wire = Wire::open(&to).await;
        wire.send_bytes(&length.to_be_bytes()).await;
        assert!(wire.is_closed().await, "{length}");
        assert!(
            !Wire::resume(&to, &wire.session, 0)
                .await
                .unwrap()
                .session
                .is_refused(),
            "the session lives on"
        );
    }
    assert!(bystander.exists("/").await);
}

#[tokio::test]
async fn a_frame_of_exactly_the_limit_is_taken() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"", 0).await.unwrap();
    let overhead = frame::write_request(&mut Vec::new(), 1, &set("/a", b""));
    let data = vec![1; 1_048_575 - overhead];
    assert!(wire.call(set("/a", &data)).await.is_ok());
    assert_eq!(wire.get("/a").await.unwrap(), data);
}

#[tokio::test]
async fn a_truncated_frame_is_waited_for_and_then_forgotten_with_its_connection() {
    let server = start().await;
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    let mut bytes = Vec::new();
    frame::write_request(&mut bytes, 1, &create("/half", b"data", 0));
    wire.send_bytes(&bytes[..bytes.len() - 1]).await;
    drop(wire);
    let mut other = Wire::open(&to).await;
    assert!(!other.exists("/half").await);
}

#[tokio::test]
async fn a_body_that_cannot_be_decoded_is_a_marshalling_error_and_the_connection_goes_on() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    for op in [
        OpCode::Create,
        OpCode::GetData,
        OpCode::Multi,
        OpCode::SetWatches,
        OpCode::MultiRead,
    ] {
        let mut bytes = Vec::new();
        let start = frame::begin(&mut bytes);
        bytes.extend_from_slice(&7_i32.to_be_bytes());
        bytes.extend_from_slice(&op.code().to_be_bytes());
        bytes.extend_from_slice(&[0x7f, 0xff]);
        frame::finish(&mut bytes, start);
        wire.send_bytes(&bytes).await;
        let (header, body) = wire.reply().await;
        assert_eq!(
            (header.xid, header.error()),
            (7, ErrorCode::MarshallingError),
            "{op}"
        );
        assert!(body.is_empty());
    }
    assert!(wire.exists("/").await);
}

#[tokio::test]
async fn unknown_and_internal_operations_are_unimplemented_and_end_the_connection() {
    let server = start().await;
    let to = server.connect_string();
    let mut owner = Wire::open(&to).await;
    owner.create("/victim", b"", 0).await.unwrap();
    for op in [0, 13, 20, -10, 10, 99, 12345, i32::MIN] {
        let mut wire = Wire::open(&to).await;
        let mut bytes = Vec::new();
        frame::write_request(&mut bytes, 1, &create(&format!("/op{op}"), b"", 0));
        let start = frame::begin(&mut bytes);
        bytes.extend_from_slice(&2_i32.to_be_bytes());
        bytes.extend_from_slice(&op.to_be_bytes());
        bytes.extend_from_slice(b"\0\0\0\x07/victim\xff\xff\xff\xff");
        frame::finish(&mut bytes, start);
        frame::write_request(&mut bytes, 3, &create("/never", b"", 0));
        wire.send_bytes(&bytes).await;
        assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
        let (header, _) = wire.reply().await;
        assert_eq!(
            (header.xid, header.zxid, header.error()),
            (2, -1, ErrorCode::Unimplemented),
            "{op}"
        );
        assert!(wire.is_closed().await);
    }
    assert!(
        owner.exists("/victim").await,
        "clients cannot delete containers"
    );
    assert!(!owner.exists("/never").await);
}

#[tokio::test]
async fn refusals_that_keep_the_connection() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let reconfig = Request::Reconfig {
        joining: None,
        leaving: None,
        new_members: None,
        config_id: -1,
    };
    assert_eq!(wire.call(reconfig).await, Err(ErrorCode::ReconfigDisabled));
    assert_eq!(
        wire.call(Request::AddWatch { path: "/", mode: 9 }).await,
        Err(ErrorCode::MarshallingError)
    );
    assert_eq!(
        wire.call(Request::AddWatch { path: "x", mode: 0 }).await,
        Err(ErrorCode::BadArguments)
    );
    assert_eq!(
        wire.call(Request::RemoveWatches { path: "/", kind: 9 })
            .await,
        Err(ErrorCode::MarshallingError)
    );
    assert_eq!(
        wire.call(Request::RemoveWatches { path: "/", kind: 3 })
            .await,
        Err(ErrorCode::NoWatcher)
    );
    wire.create("/a", b"", 0).await.unwrap();
    for path in ["nothing", "", "/a/", "/a/..", "/a/.", "/a\u{1}"] {
        assert_eq!(
            wire.create(path, b"", 0).await,
            Err(ErrorCode::BadArguments),
            "{path:?}"
        );
    }
    assert!(wire.exists("/").await);
}

#[tokio::test]
async fn sasl_is_refused_properly() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    assert_eq!(
        wire.call(Request::Sasl { token: Some(b"x") }).await,
        Err(ErrorCode::AuthFailed)
    );
    assert!(wire.is_closed().await);
}

#[tokio::test]
async fn credentials_add_to_the_connection_and_wrong_ones_end_it() {
    let server = start().await;
    let to = server.connect_string();
    let mut owner = Wire::open(&to).await;
    let auth = |scheme, auth| {
        Request::Auth(AuthPacket {
            kind: 0,
            scheme,
            auth: Some(auth),
        })
    };
    // Pipelined: the create must already run under the new identity.
    let mine = Request::Create(baton_proto::Create {
        op: baton_proto::CreateOp::Create,
        path: "/mine",
        data: Some(b"secret"),
        acl: Some(vec![baton_proto::Acl::creator_all()]),
        flags: 0,
        ttl_ms: 0,
    });
    owner
        .send(&[create("/before", b"", 0), auth("digest", b"me:pw"), mine])
        .await;
    assert_eq!(owner.reply().await.0.err, 0);
    assert_eq!(owner.reply().await.0.xid, -4);
    assert_eq!(owner.reply().await.0.err, 0);
    match owner.call(Request::WhoAmI).await.unwrap() {
        Response::WhoAmI(who) => {
            let who: Vec<_> = who
                .iter()
                .map(|who| (who.scheme.as_str(), who.user.as_str()))
                .collect();
            assert_eq!(who, [("ip", "127.0.0.1"), ("digest", "me")]);
        }
        other => panic!("{other:?}"),
    }
    let mut stranger = Wire::open(&to).await;
    assert_eq!(stranger.get("/mine").await, Err(ErrorCode::NoAuth));
    assert_eq!(
        stranger
            .call(Request::Exists {
                path: "/mine",
                watch: true
            })
            .await,
        Err(ErrorCode::NoAuth)
    );
    stranger
        .call(Request::AddWatch { path: "/", mode: 1 })
        .await
        .unwrap();
    owner.call(set("/mine", b"changed")).await.unwrap();
    owner.create("/open", b"", 0).await.unwrap();
    assert_eq!(
        stranger.event().await.path,
        "/open",
        "an event goes only to those who may read the znode"
    );
    stranger.send(&[auth("kerberos", b"x")]).await;
    assert_eq!(stranger.reply().await.0.error(), ErrorCode::AuthFailed);
    assert!(stranger.is_closed().await);
}

#[tokio::test]
async fn a_connection_that_never_names_its_session_is_closed() {
    let server = in_memory()
        .with(|options| options.handshake_timeout = Duration::from_millis(50))
        .start()
        .await
        .unwrap();
    let mut wire = Wire::silent(&server.connect_string()).await;
    assert!(wire.is_closed().await);
    let mut wire = Wire::silent(&server.connect_string()).await;
    wire.send_bytes(&[0, 0, 0]).await;
    assert!(wire.is_closed().await);
}

#[tokio::test]
async fn connections_beyond_the_limits_are_closed_and_others_go_on() {
    let server = in_memory()
        .with(|options| options.max_connections_per_address = 2)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut first = Wire::open(&to).await;
    let second = Wire::open(&to).await;
    assert!(
        Wire::open_with(&to, &crate::support::no_session())
            .await
            .is_none()
    );
    assert!(first.exists("/").await);
    drop(second);
    tokio::time::timeout(PATIENCE, async {
        while Wire::open_with(&to, &crate::support::no_session())
            .await
            .is_none()
        {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();

    let server = in_memory()
        .with(|options| options.max_connections = 1)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let _only = Wire::open(&to).await;
    assert!(
        Wire::open_with(&to, &crate::support::no_session())
            .await
            .is_none()
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_its_replies_is_read_no_further() {
    let server = crate::support::with_words()
        .with(|options| options.max_outbound_bytes = 100_000)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut wire = Wire::open(&to).await;
    wire.create("/big", &vec![1; 500_000], 0).await.unwrap();
    let mut bytes = Vec::new();
    for xid in 2..402 {
        frame::write_request(&mut bytes, xid, &get("/big"));
    }
    // 200 MB of replies are asked for and not read; the server must not hold them.
    wire.send_bytes(&bytes).await;
    let mut other = Wire::open(&to).await;
    for _ in 0..50 {
        assert!(other.exists("/big").await);
    }
    let cons = crate::support::word(&to, "cons").await;
    assert!(cons.contains("recved="), "{cons}");
    for xid in 2..402 {
        let (header, body) = wire.reply().await;
        assert_eq!(header.xid, xid);
        assert!(body.len() > 500_000);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_events_is_closed_and_others_go_on() {
    let server = in_memory()
        .with(|options| options.max_outbound_bytes = 10_000)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut slow = Wire::open(&to).await;
    slow.call(Request::AddWatch { path: "/", mode: 1 })
        .await
        .unwrap();
    let mut writer = Wire::open(&to).await;
    let name = "n".repeat(400);
    let path = format!("/{name}");
    writer.create(&path, b"", 0).await.unwrap();
    tokio::time::timeout(PATIENCE * 2, async {
        while server.active_connections() > 1 {
            let requests: Vec<_> = (0..100).map(|_| set(&path, b"x")).collect();
            writer.send(&requests).await;
            for _ in 0..100 {
                writer.reply().await;
            }
        }
    })
    .await
    .unwrap();
    let again = Wire::resume(&to, &slow.session, 0).await.unwrap();
    assert!(!again.session.is_refused(), "the session lives on");
}

#[tokio::test]
async fn a_port_in_use_a_folder_in_use_and_bad_settings_are_said_in_one_line() {
    let server = start().await;
    let taken = Server::builder()
        .listen(server.connect_string())
        .start()
        .await
        .unwrap_err();
    assert!(matches!(taken, StartError::Listen { .. }));
    let folder = tempfile::tempdir().unwrap();
    let running = Server::builder()
        .data_dir(folder.path())
        .start()
        .await
        .unwrap();
    let locked = Server::builder()
        .data_dir(folder.path())
        .start()
        .await
        .unwrap_err();
    drop(running);
    Server::builder()
        .data_dir(folder.path())
        .start()
        .await
        .unwrap()
        .shutdown()
        .await
        .unwrap();
    let nonsense = Server::builder()
        .listen("nonsense")
        .start()
        .await
        .unwrap_err();
    let setting = Server::builder()
        .tick(Duration::ZERO)
        .start()
        .await
        .unwrap_err();
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let not_a_folder = Server::builder().data_dir(&file).start().await.unwrap_err();
    let not_a_socket = Server::builder()
        .unix_socket(&file)
        .start()
        .await
        .unwrap_err();
    for (error, names) in [
        (taken, server.connect_string()),
        (locked, "in use".to_owned()),
        (nonsense, "nonsense".to_owned()),
        (setting, "tick".to_owned()),
        (not_a_folder, file.display().to_string()),
        (not_a_socket, file.display().to_string()),
    ] {
        let text = error.to_string();
        assert!(
            text.contains(&names) && !text.contains('\n') && text.contains([';', ':']),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_data_folder_of_another_version_or_with_damage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        Server::builder()
            .data_dir(folder.path())
            .listen("127.0.0.1:0")
            .start()
    };
    let server = start().await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    for n in 0..50 {
        wire.create(&format!("/n{n}"), &[7; 1000], 0).await.unwrap();
    }
    server.shutdown().await.unwrap();
    let log = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("log-")
        })
        .unwrap();
    let good = std::fs::read(&log).unwrap();
    let mut bad = good.clone();
    bad[20_000] ^= 1;
    std::fs::write(&log, &bad).unwrap();
    let damaged = start().await.unwrap_err().to_string();
    assert!(damaged.contains("damaged at byte"), "{damaged}");
    std::fs::write(&log, &good).unwrap();
    start().await.unwrap().shutdown().await.unwrap();
}

/// Frames made of good ones by chance: none may disturb another session, let alone the server.
#[tokio::test]
async fn broken_frames_by_the_thousand_leave_other_sessions_unharmed() {
    let server = start().await;
    let to = server.connect_string();
    let mut bystander = Wire::open(&to).await;
    bystander.create("/mine", b"untouched", 1).await.unwrap();
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut wire = Wire::open(&to).await;
        let mut bytes = Vec::new();
        for xid in 1..=rng.i32(..20) {
            let (a, b) = (
                format!("/f{}", rng.u64(..5)),
                format!("/f{}/x", rng.u64(..5)),
            );
            let watch = rng.u8(..100) < 50;
            let request = match rng.u64(..12) {
                0 => create(&a, b"data", rng.i32(..8)),
                1 => Request::Delete {
                    path: &a,
                    version: -1,
                },
                2 => set(&a, b"more"),
                3 => Request::GetData { path: &a, watch },
                4 => Request::GetChildren2 { path: &b, watch },
                5 => Request::Multi(vec![baton_proto::MultiOp::Delete {
                    path: &a,
                    version: 0,
                }]),
                6 => Request::AddWatch {
                    path: &a,
                    mode: rng.i32(..2),
                },
                7 => Request::SetWatches {
                    relative_zxid: 0,
                    data: vec![&a, &b],
                    exist: vec![&b],
                    child: vec![&a],
                },
                8 => Request::Ping,
                9 => Request::Sync { path: &a },
                10 => Request::RemoveWatches { path: &a, kind: 3 },
                _ => create(&b, b"", 3),
            };
            frame::write_request(&mut bytes, xid, &request);
        }
        for _ in 0..rng.u64(..6) {
            if !bytes.is_empty() {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u64(..8);
            }
        }
        if rng.u8(..100) < 30 {
            bytes.truncate(rng.usize(..=bytes.len()));
        }
        let _ = wire.try_send_bytes(&bytes).await;
        if rng.u8(..100) < 50 {
            bystander.call(Request::Sync { path: "/" }).await.unwrap();
        }
    }
    assert_eq!(bystander.get("/mine").await.unwrap(), b"untouched");
    let (header, body) = {
        bystander
            .send(&[Request::GetEphemerals { prefix: "/" }])
            .await;
        bystander.reply().await
    };
    assert_eq!(
        decode(OpCode::GetEphemerals, header, &body).unwrap(),
        Response::Strings(vec!["/mine".to_owned()])
    );
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_watch_asked_for_behind_a_write_ends_with_its_connection() {
    let server = start().await;
    let to = server.connect_string();
    for _ in 0..20 {
        let mut wire = Wire::open(&to).await;
        let mut requests = vec![set("/none", b""); 200];
        // It travels behind the writes, and is carried out when the connection may be gone.
        requests.push(Request::AddWatch {
            path: "/watched",
            mode: 1,
        });
        wire.send(&requests).await;
    }
    let mut patience = tokio::time::interval(Duration::from_millis(10));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        patience.tick().await;
        let mntr = crate::support::word(&to, "mntr").await;
        let count = |name: &str| {
            let line = mntr.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().last().unwrap().to_owned()
        };
        let alone = count("zk_num_alive_connections") == "1";
        if alone && count("zk_watch_count") == "0" {
            break;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{} watches of no connection",
            count("zk_watch_count")
        );
    }
}

//! Requests that are well formed and meant ill, or merely unusual: each is answered or refused,
//! what it costs has a bound, and everybody else goes on.

use baton_proto::{ConnectRequest, ErrorCode, MultiOp, MultiResult, Request, Response, frame};

use crate::support::{Frame, PATIENCE, Wire, create, get, in_memory, no_session, set, start};

#[tokio::test]
async fn many_large_reads_behind_a_write_are_answered_to_who_reads_them() {
    const READS: usize = 100;
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/big", &vec![7; 900_000], 0).await.unwrap();
    wire.create("/small", b"", 0).await.unwrap();
    let mut requests = vec![set("/small", b"x")];
    requests.extend(vec![get("/big"); READS]);
    let first = wire.send(&requests).await;
    for place in 0..=READS {
        let Some(Frame::Reply(header, _)) = wire.next().await else {
            panic!("closed after {place} replies");
        };
        assert_eq!(header.xid, first + i32::try_from(place).unwrap());
        assert_eq!(header.error(), ErrorCode::Ok);
    }
}

#[tokio::test]
async fn a_small_request_for_gigabytes_is_refused_and_one_for_megabytes_answered() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/b", &vec![7; 900_000], 0).await.unwrap();
    let read = MultiOp::GetData {
        path: "/b",
        watch: false,
    };
    let list = MultiOp::GetChildren {
        path: "/",
        watch: false,
    };
    for few in [10, 18] {
        let answer = wire.call(Request::MultiRead(vec![read.clone(); few])).await;
        let Ok(Response::Multi(results)) = answer else {
            panic!("{few} are not too many");
        };
        assert_eq!(results.len(), few);
    }
    for many in [19, 50_000] {
        let mut reads = vec![list.clone(), read.clone()];
        reads.extend(vec![read.clone(); many - 1]);
        let refused = wire.call(Request::MultiRead(reads)).await;
        assert_eq!(refused, Err(ErrorCode::BadArguments), "{many}");
    }
    assert!(wire.exists("/b").await, "the connection goes on");
}

#[tokio::test]
async fn ten_thousand_parts_of_a_multi_happen_together_or_not_at_all() {
    const PARTS: usize = 10_000;
    let server = start().await;
    let to = server.connect_string();
    let mut other = Wire::open(&to).await;
    other
        .call(Request::AddWatch { path: "/", mode: 1 })
        .await
        .unwrap();
    let mut wire = Wire::open(&to).await;
    let paths: Vec<String> = (0..PARTS).map(|place| format!("/{place}")).collect();
    let part = |path| match create(path, b"", 0) {
        Request::Create(create) => MultiOp::Create(create),
        _ => unreachable!(),
    };
    let mut parts: Vec<_> = paths.iter().map(|path| part(path)).collect();
    parts[PARTS - 1] = part("/0");
    let Ok(Response::Multi(failed)) = wire.call(Request::Multi(parts.clone())).await else {
        panic!("a multi that fails is answered part by part");
    };
    assert_eq!(failed[PARTS - 1], MultiResult::Error(ErrorCode::NodeExists));
    assert!(!wire.exists("/9998").await);
    parts[PARTS - 1] = part("/9999");
    parts.push(part("/one-too-many"));
    let refused = wire.call(Request::Multi(parts.clone())).await;
    assert_eq!(refused, Err(ErrorCode::BadArguments));
    parts.pop();
    let Ok(Response::Multi(done)) = wire.call(Request::Multi(parts)).await else {
        panic!("it is not too long");
    };
    assert_eq!(done.len(), PARTS);
    for path in &paths {
        assert_eq!(other.event().await.path, *path);
    }
}

#[tokio::test]
async fn a_hundred_thousand_watches_are_set_again_and_fire_once() {
    const WATCHES: usize = 100_000;
    let server = start().await;
    let to = server.connect_string();
    let mut writer = Wire::open(&to).await;
    writer.create("/99999", b"", 0).await.unwrap();
    let paths: Vec<String> = (0..WATCHES).map(|place| format!("/{place}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut wire = Wire::open(&to).await;
    for _ in 0..2 {
        wire.send(&[Request::SetWatches {
            relative_zxid: i64::MAX,
            data: vec!["/99999"],
            exist: paths[..WATCHES - 1].to_vec(),
            child: vec![],
        }])
        .await;
        assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    }
    writer.create("/7", b"", 0).await.unwrap();
    writer.call(set("/99999", b"x")).await.unwrap();
    writer.call(set("/99999", b"y")).await.unwrap();
    assert_eq!(wire.event().await.path, "/7");
    assert_eq!(wire.event().await.path, "/99999");
    // All of them are gone: each has its error before the answer.
    wire.send(&[Request::SetWatches {
        relative_zxid: 0,
        data: paths.clone(),
        exist: vec![],
        child: vec![],
    }])
    .await;
    let mut events = 0;
    while let Some(Frame::Event(..)) = wire.next().await {
        events += 1;
    }
    assert_eq!(events, WATCHES);
    assert!(wire.exists("/7").await);
}

#[tokio::test]
async fn a_path_as_deep_as_a_frame_allows_is_searched_for_and_a_deep_tree_is_made_counted_and_removed()
 {
    const DEPTH: usize = 2000;
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let deepest = "/a".repeat(400_000);
    assert!(!wire.exists(&deepest).await);
    assert_eq!(
        wire.create(&deepest, b"", 0).await,
        Err(ErrorCode::NoNode),
        "its parent is not there"
    );
    let paths: Vec<String> = (1..=DEPTH).map(|depth| "/a".repeat(depth)).collect();
    for path in &paths {
        wire.send(&[create(path, b"", 0)]).await;
    }
    for _ in &paths {
        assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    }
    let count = wire
        .call(Request::GetAllChildrenNumber { path: "/a" })
        .await;
    let count = count.unwrap();
    assert_eq!(count, Response::Count(i32::try_from(DEPTH - 1).unwrap()));
    for path in paths.iter().rev() {
        wire.send(&[Request::Delete { path, version: -1 }]).await;
        assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_reconnects_of_one_session_leaves_one_connection_and_its_ephemerals() {
    const SOCKETS: usize = 300;
    let server = start().await;
    let to = server.connect_string();
    let mut first = Wire::open(&to).await;
    first.create("/held", b"", 1).await.unwrap();
    let session = first.session;
    let storm: Vec<_> = (0..SOCKETS)
        .map(|_| {
            let to = to.clone();
            tokio::spawn(async move { Wire::resume(&to, &session, 0).await })
        })
        .collect();
    let mut wires = Vec::new();
    for attempt in storm {
        wires.extend(attempt.await.unwrap());
    }
    // Each was answered, or closed before: the last one that came has the session.
    let mut open = Vec::new();
    let one = async {
        while server.active_connections() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, one).await.unwrap();
    for mut wire in wires {
        assert!(!wire.session.is_refused());
        assert_eq!(wire.session.session_id, session.session_id);
        let mut ping = Vec::new();
        frame::write_request(&mut ping, baton_proto::xid::PING, &Request::Ping);
        if wire.try_send_bytes(&ping).await.is_ok() && !wire.is_closed().await {
            open.push(wire);
        }
    }
    assert_eq!(open.len(), 1);
    assert!(open[0].exists("/held").await);
    assert_eq!(server.active_sessions(), 1);
}

#[tokio::test]
async fn handshakes_that_are_never_finished_keep_nobody_out() {
    const HALF_OPEN: usize = 1500;
    let server = in_memory()
        .with(|options| options.max_connections = 2 * HALF_OPEN)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut handshake = Vec::new();
    let request = ConnectRequest {
        read_only: None,
        ..no_session()
    };
    frame::write_connect_request(&mut handshake, &request);
    let mut half_open = Vec::new();
    for place in 0..HALF_OPEN {
        let mut wire = Wire::silent(&to).await;
        wire.send_bytes(&handshake[..place % handshake.len()]).await;
        half_open.push(wire);
    }
    let mut good = Wire::open(&to).await;
    good.create("/good", b"", 0).await.unwrap();
    assert!(good.exists("/good").await);
    assert_eq!(server.active_sessions(), 1);
    drop(half_open);
    let gone = async {
        while server.active_connections() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn a_word_that_comes_letter_by_letter_is_answered() {
    let server = start().await;
    let to = server.connect_string();
    for (word, answer) in [
        ("ruok", "imok"),
        ("isro", "rw"),
        ("srvr", "Zookeeper version"),
    ] {
        let mut wire = Wire::silent(&to).await;
        for letter in word.as_bytes() {
            wire.send_bytes(&[*letter]).await;
            tokio::task::yield_now().await;
        }
        let shown = String::from_utf8(wire.rest().await).unwrap();
        assert!(shown.contains(answer), "{word}: {shown}");
    }
}

#[tokio::test]
async fn odd_names_are_kept_byte_by_byte_or_refused() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let mut kept = Vec::new();
    for name in [
        "\u{301}",
        "e\u{301}",
        "é",
        "\u{202e}",
        "\u{200b}",
        "\u{feff}",
        "🙂",
        "\u{10ffff}",
        "..a",
        "a..",
        "a b",
        " ",
        "%2f",
        "\\",
        "\u{fffd}",
        "\u{e000}",
        "\u{1}",
        "\u{7f}",
        "\u{85}",
        "\u{ffff}",
        "a\u{0}",
    ] {
        let path = format!("/{name}");
        match wire.create(&path, name.as_bytes(), 0).await {
            Ok(_) => kept.push((path, name)),
            Err(code) => assert_eq!(code, ErrorCode::BadArguments, "{name:?}"),
        }
    }
    assert!(kept.iter().any(|(_, name)| *name == "e\u{301}"));
    assert!(
        !kept
            .iter()
            .any(|(_, name)| *name == "a\u{0}" || *name == "\u{1}")
    );
    for (path, name) in &kept {
        assert_eq!(wire.get(path).await.unwrap(), name.as_bytes(), "{name:?}");
    }
}

#[tokio::test]
async fn credentials_without_number_or_end_are_refused_and_the_server_goes_on() {
    let server = start().await;
    let to = server.connect_string();
    let mut other = Wire::open(&to).await;
    let mut wire = Wire::open(&to).await;
    let mut refused = None;
    for place in 0..60 {
        let secret = format!("{place}{}:x", "u".repeat(900_000));
        let packet = baton_proto::AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(secret.as_bytes()),
        };
        if wire.call(Request::Auth(packet)).await.is_err() {
            refused = Some(place);
            break;
        }
    }
    if refused.is_none() {
        let _ = wire.create("/by-many", b"", 0).await;
    }
    other.create("/by-one", b"", 0).await.unwrap();
    assert_eq!(refused, Some(0), "a name of a megabyte is none");
    let mut wire = Wire::open(&to).await;
    let mut taken = 0;
    loop {
        let secret = format!("user{taken}:x");
        let packet = baton_proto::AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(secret.as_bytes()),
        };
        wire.send(&[Request::Auth(packet)]).await;
        let (header, _) = wire.reply().await;
        if header.error() == ErrorCode::AuthFailed {
            break;
        }
        assert_eq!(header.error(), ErrorCode::Ok);
        taken += 1;
    }
    assert_eq!(taken, 63, "64 names, of which one is the address");
    assert!(wire.is_closed().await, "as after any refused credentials");
    assert!(other.exists("/by-one").await);
}

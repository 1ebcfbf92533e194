//! Requests and their order, over loopback, frame by frame.

use baton_proto::{ErrorCode, EventKind, MultiOp, OpCode, Request, Response};

use crate::support::{Frame, Wire, create, decode, get, set, start, watched};

#[tokio::test]
async fn a_znode_is_created_read_written_and_deleted() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    assert_eq!(
        wire.create("/a", b"one", 0).await,
        Ok(Response::Path("/a".to_owned()))
    );
    assert_eq!(wire.get("/a").await.unwrap(), b"one");
    assert!(wire.call(set("/a", b"two")).await.is_ok());
    assert_eq!(wire.get("/a").await.unwrap(), b"two");
    assert_eq!(
        wire.call(Request::GetChildren {
            path: "/",
            watch: false
        })
        .await
        .unwrap(),
        Response::Children(vec!["zookeeper".to_owned(), "a".to_owned()])
    );
    assert_eq!(
        wire.call(Request::Delete {
            path: "/a",
            version: 7
        })
        .await,
        Err(ErrorCode::BadVersion)
    );
    assert_eq!(
        wire.call(Request::Delete {
            path: "/a",
            version: -1
        })
        .await,
        Ok(Response::Empty)
    );
    assert_eq!(wire.get("/a").await, Err(ErrorCode::NoNode));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_pipelined_read_sees_the_write_before_it_and_not_the_one_after() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"0", 0).await.unwrap();
    for round in 0..50 {
        let (one, two) = (format!("{round}-1"), format!("{round}-2"));
        let first = wire
            .send(&[
                set("/a", one.as_bytes()),
                get("/a"),
                set("/a", two.as_bytes()),
                get("/a"),
                Request::Sync { path: "/a" },
            ])
            .await;
        let ops = [
            OpCode::SetData,
            OpCode::GetData,
            OpCode::SetData,
            OpCode::GetData,
            OpCode::Sync,
        ];
        let mut seen = Vec::new();
        let mut zxid = 0;
        for (offset, op) in ops.into_iter().enumerate() {
            let (header, body) = wire.reply().await;
            assert_eq!(
                header.xid,
                first + offset as i32,
                "replies come in request order"
            );
            assert!(header.zxid >= zxid, "zxids never go back");
            zxid = header.zxid;
            if let Response::Data { data, .. } = decode(op, header, &body).unwrap() {
                seen.push(data.unwrap());
            }
        }
        assert_eq!(seen, [one.as_bytes(), two.as_bytes()]);
    }
}

#[tokio::test]
async fn the_reply_that_set_a_watch_comes_before_its_event_and_the_event_before_the_write_s_reply()
{
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/a", b"0", 0).await.unwrap();
    for _ in 0..50 {
        let first = wire
            .send(&[watched("/a"), set("/a", b"1"), get("/a")])
            .await;
        assert_eq!(wire.reply().await.0.xid, first);
        let event = wire.event().await;
        assert_eq!(
            (event.kind, event.path.as_str()),
            (EventKind::NodeDataChanged, "/a")
        );
        assert_eq!(wire.reply().await.0.xid, first + 1);
        assert_eq!(wire.reply().await.0.xid, first + 2);
    }
}

/// Short events are gathered for each connection, and long runs shared.
#[tokio::test]
async fn the_events_of_a_multi_keep_their_order_whoever_else_receives_them() {
    // More than a run that is copied for each connection has.
    const LONG: usize = 200;
    let server = start().await;
    let mut both = Wire::open(&server.connect_string()).await;
    let mut one = Wire::open(&server.connect_string()).await;
    for path in ["/a", "/b"] {
        both.create(path, b"", 0).await.unwrap();
        let watch = Request::AddWatch { path, mode: 0 };
        both.call(watch).await.unwrap();
    }
    let watch = Request::AddWatch {
        path: "/a",
        mode: 0,
    };
    one.call(watch).await.unwrap();
    let mut paths = vec!["/b", "/a", "/b"];
    paths.extend(["/a"; LONG]);
    paths.extend(["/b", "/a"]);
    let part = |path| MultiOp::SetData {
        path,
        data: None,
        version: -1,
    };
    let parts = paths.iter().copied().map(part).collect();
    let mut writer = Wire::open(&server.connect_string()).await;
    writer.call(Request::Multi(parts)).await.unwrap();
    for path in &paths {
        assert_eq!(both.event().await.path, *path);
    }
    for _ in 0..LONG + 2 {
        assert_eq!(one.event().await.path, "/a");
    }
    for wire in [&mut both, &mut one] {
        let nothing_more = wire.call(Request::Sync { path: "/" }).await;
        assert!(nothing_more.is_ok());
    }
}

#[tokio::test]
async fn an_event_comes_before_any_reply_that_shows_its_state() {
    let server = start().await;
    let mut writer = Wire::open(&server.connect_string()).await;
    let mut reader = Wire::open(&server.connect_string()).await;
    writer.create("/a", b"0", 0).await.unwrap();
    let rounds = 300;
    let write = tokio::spawn(async move {
        for round in 1..=rounds {
            writer
                .call(set("/a", round.to_string().as_bytes()))
                .await
                .unwrap();
        }
        writer
    });
    let mut last = 0;
    let mut armed_at = None;
    while last < rounds {
        let first = reader
            .send(&[watched("/a"), get("/a"), Request::Ping])
            .await;
        let mut replies = 0;
        while replies < 3 {
            match reader.next().await.unwrap() {
                Frame::Event(..) => {
                    assert!(armed_at.take().is_some(), "a watch fires once");
                }
                Frame::Reply(header, body) => {
                    replies += 1;
                    if header.xid < 0 {
                        continue;
                    }
                    let Response::Data { data, .. } =
                        decode(OpCode::GetData, header, &body).unwrap()
                    else {
                        panic!("data is due")
                    };
                    let value: i32 = String::from_utf8(data.unwrap().to_vec())
                        .unwrap()
                        .parse()
                        .unwrap();
                    if let Some(armed_at) = armed_at {
                        assert_eq!(value, armed_at, "the event has to come first");
                    }
                    assert!(value >= last);
                    last = value;
                    if header.xid == first {
                        armed_at = Some(value);
                    }
                }
            }
        }
    }
    write.await.unwrap();
}

#[tokio::test]
async fn a_watcher_type_that_does_not_exist_is_answered_as_zookeeper_does() {
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    for request in [
        Request::CheckWatches {
            path: "/a",
            kind: 9,
        },
        Request::RemoveWatches {
            path: "/a",
            kind: 9,
        },
    ] {
        assert_eq!(wire.call(request).await, Err(ErrorCode::MarshallingError));
    }
    server.shutdown().await.unwrap();
}

/// The answer to a ping does not wait for the core, which may be in the middle of an entry.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reply_has_a_lower_zxid_than_the_one_before_it() {
    let server = start().await;
    let to = server.connect_string();
    Wire::open(&to).await.create("/a", b"", 0).await.unwrap();
    let clients = (0..8).map(|_| {
        let to = to.clone();
        tokio::spawn(async move {
            let mut wire = Wire::open(&to).await;
            let mut highest = 0;
            for round in 0..300 {
                wire.send(&[set("/a", b"one"), set("/a", b"two")]).await;
                for _ in 0..4 {
                    wire.send(&[Request::Ping]).await;
                }
                for _ in 0..6 {
                    let (header, _) = wire.reply().await;
                    assert!(
                        header.zxid >= highest,
                        "round {round}: zxid {} in the reply with xid {}, after {highest}",
                        header.zxid,
                        header.xid
                    );
                    highest = header.zxid;
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    server.shutdown().await.unwrap();
}

/// A listing of many children is encoded while its client reads it; its place among the replies and
/// events is that of the moment which it shows.
#[tokio::test]
async fn a_long_listing_keeps_its_place_among_replies_and_events() {
    const CHILDREN: usize = 9000;
    let server = start().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    wire.create("/many", b"", 0).await.unwrap();
    let paths: Vec<String> = (0..CHILDREN)
        .map(|n| format!("/many/with-a-name-of-some-length-{n}"))
        .collect();
    let part = |path| match create(path, b"", 0) {
        Request::Create(create) => MultiOp::Create(create),
        _ => unreachable!(),
    };
    let parts = paths.iter().map(|path| part(path)).collect();
    wire.call(Request::Multi(parts)).await.unwrap();
    let list = |watch| Request::GetChildren2 {
        path: "/many",
        watch,
    };
    let reads = Request::MultiRead(vec![MultiOp::GetChildren {
        path: "/many",
        watch: false,
    }]);
    // The first listing comes at once, the second behind a write, in the core.
    let requests = [
        list(true),
        get("/many"),
        Request::Ping,
        create("/many/later", b"", 0),
        list(true),
        set("/many", b"x"),
        reads,
        create("/many/last", b"", 0),
        Request::Ping,
        get("/many"),
        list(false),
    ];
    let first = wire.send(&requests).await;
    let names = |response| match response {
        Ok(Response::Children2 { children, stat }) => {
            assert_eq!(stat.num_children as usize, children.len());
            children.len()
        }
        Ok(Response::Multi(results)) => match &results[..] {
            [baton_proto::MultiResult::Children(names)] => names.len(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let mut listed = Vec::new();
    let (mut events, mut pongs, mut next) = (0, 0, first);
    while next < first + 9 {
        let (header, body) = match wire.next().await {
            Some(Frame::Event(_, event)) => {
                assert_eq!(event.kind, EventKind::NodeChildrenChanged);
                assert_eq!(listed.len(), [1, 3][events], "behind what set its watch");
                events += 1;
                continue;
            }
            Some(Frame::Reply(header, _)) if header.xid == baton_proto::xid::PING => {
                pongs += 1;
                continue;
            }
            Some(Frame::Reply(header, body)) => (header, body),
            None => panic!("the connection is closed"),
        };
        assert_eq!((header.xid, header.err), (next, 0));
        match next - first {
            0 | 3 | 8 => listed.push(names(decode(OpCode::GetChildren2, header, &body))),
            5 => listed.push(names(decode(OpCode::MultiRead, header, &body))),
            _ => {}
        }
        next += 1;
    }
    let expected = [CHILDREN, CHILDREN + 1, CHILDREN + 1, CHILDREN + 2];
    assert_eq!(listed, expected);
    assert_eq!((events, pongs), (2, 2));
    assert!(wire.exists("/many").await);
}

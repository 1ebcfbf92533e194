//! Requests and their order, over loopback, frame by frame.

use baton_proto::{ErrorCode, EventKind, OpCode, Request, Response};

use crate::support::{Frame, Wire, decode, get, set, start, watched};

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

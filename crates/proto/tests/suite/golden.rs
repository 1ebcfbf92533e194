//! Recorded conversations of real clients with a real Apache ZooKeeper (`golden/README.md`): every
//! frame decodes, means what it must, and encodes again to the very same bytes.

use std::collections::{BTreeSet, HashMap};

use baton_proto::{
    ConnectRequest, ConnectResponse, Create, CreateMode, CreateOp, Decoder, ErrorCode, EventKind,
    KeeperState, Limits, MultiOp, MultiResult, OpCode, Perms, ReplyHeader, Request, RequestHeader,
    Response, WatcherEvent, xid,
};
use bytes::Bytes;

const JAVA: &str = include_str!("../golden/java-3.8.0.hex");
const KAZOO: &str = include_str!("../golden/kazoo-2.11.0.hex");

struct Frame {
    connection: u32,
    to_server: bool,
    label: String,
    bytes: Bytes,
}

fn frames(recording: &str) -> Vec<Frame> {
    recording
        .lines()
        .map(|line| {
            let mut fields = line.split(' ');
            let mut next = || fields.next().unwrap();
            let (connection, way, label, hex) = (next(), next(), next(), next());
            let digit = |index| u8::from_str_radix(&hex[index..index + 2], 16).unwrap();
            Frame {
                connection: connection.parse().unwrap(),
                to_server: way == ">",
                label: label.to_owned(),
                bytes: (0..hex.len()).step_by(2).map(digit).collect(),
            }
        })
        .collect()
}

/// One frame of a recording, decoded.
#[derive(Debug)]
enum DecodedFrame<'f> {
    ConnectRequest(ConnectRequest<'f>),
    ConnectResponse(ConnectResponse),
    Request(RequestHeader, Request<'f>),
    Reply(ReplyHeader, OpCode, Option<Response>),
    Event(ReplyHeader, WatcherEvent),
}

/// Decodes a whole recording, and encodes each frame again to compare.
fn said(frames: &[Frame]) -> Vec<DecodedFrame<'_>> {
    let limits = Limits::default();
    let mut open: HashMap<(u32, bool), ()> = HashMap::new();
    let mut waiting: Vec<(u32, i32, OpCode)> = Vec::new();
    let mut all = Vec::new();
    for frame in frames {
        let bytes = &frame.bytes;
        let mut from = Decoder::new(bytes, &limits);
        let mut again = Vec::new();
        let first = open
            .insert((frame.connection, frame.to_server), ())
            .is_none();
        let decoded = if first && frame.to_server {
            let request = ConnectRequest::decode(bytes, &limits).unwrap();
            request.encode(&mut again);
            DecodedFrame::ConnectRequest(request)
        } else if first {
            let response = ConnectResponse::decode(bytes, &limits).unwrap();
            response.encode(&mut again);
            DecodedFrame::ConnectResponse(response)
        } else if frame.to_server {
            let header = RequestHeader::decode(&mut from).unwrap();
            let op = OpCode::try_from(header.op).unwrap();
            let request = Request::decode(op, from.rest(), &limits).unwrap();
            assert_eq!(request.op(), op);
            assert_eq!(op.name(), frame.label);
            header.encode(&mut again);
            request.encode(&mut again);
            waiting.push((frame.connection, header.xid, op));
            DecodedFrame::Request(header, request)
        } else {
            let header = ReplyHeader::decode(&mut from).unwrap();
            header.encode(&mut again);
            if header.xid == xid::NOTIFICATION {
                let event = WatcherEvent::decode(&mut from).unwrap();
                event.encode(&mut again);
                DecodedFrame::Event(header, event)
            } else {
                let asked = |(connection, xid, _): &(u32, i32, OpCode)| {
                    *connection == frame.connection && *xid == header.xid
                };
                let (_, _, op) = waiting.remove(waiting.iter().position(asked).unwrap());
                let response = (header.err == 0).then(|| {
                    let body = bytes.slice(from.offset()..);
                    Response::decode(op, &body, &limits).unwrap()
                });
                if let Some(response) = &response {
                    response.encode(&mut again);
                }
                DecodedFrame::Reply(header, op, response)
            }
        };
        assert_eq!(again, bytes[..], "{} {:?}", frame.label, decoded);
        all.push(decoded);
    }
    all
}

/// The reply to each request of a connection-less view: every request with its reply, in request
/// order.
fn calls<'s>(
    said: &'s [DecodedFrame<'_>],
) -> Vec<(&'s Request<'s>, &'s ReplyHeader, Option<&'s Response>)> {
    let mut calls = Vec::new();
    for (index, request) in said.iter().enumerate() {
        if let DecodedFrame::Request(asked, request) = request {
            let answer = said[index..].iter().find_map(|said| match said {
                DecodedFrame::Reply(header, op, response)
                    if header.xid == asked.xid && *op == request.op() =>
                {
                    Some((header, response.as_ref()))
                }
                _ => None,
            });
            if let Some((header, response)) = answer {
                calls.push((request, header, response));
            }
        }
    }
    calls
}

#[test]
fn every_frame_of_the_java_client_is_the_same_after_decoding_and_encoding() {
    let frames = frames(JAVA);
    let said = said(&frames);
    let ops: BTreeSet<OpCode> = said
        .iter()
        .filter_map(|said| match said {
            DecodedFrame::Request(_, request) => Some(request.op()),
            _ => None,
        })
        .collect();
    // Servers alone use these, and a bare check is refused.
    let never = [
        OpCode::Notification,
        OpCode::Check,
        OpCode::DeleteContainer,
        OpCode::CreateSession,
    ];
    for op in OpCode::ALL {
        assert_eq!(ops.contains(&op), !never.contains(&op), "{op}");
    }
}

#[test]
fn every_frame_of_kazoo_is_the_same_after_decoding_and_encoding() {
    let frames = frames(KAZOO);
    let said = said(&frames);
    assert!(said.len() > 40);
    match &said[0] {
        DecodedFrame::ConnectRequest(request) => {
            assert_eq!((request.timeout_ms, request.session_id), (3000, 0))
        }
        other => panic!("{other:?}"),
    }
    let sequential =
        calls(&said)
            .into_iter()
            .find_map(|(request, _, response)| match (request, response) {
                (Request::Create(create), Some(Response::Path(path)))
                    if create.path == "/k/lock-" =>
                {
                    Some((create.mode(), path.clone()))
                }
                _ => None,
            });
    assert_eq!(
        sequential,
        Some((
            Ok(CreateMode::EphemeralSequential),
            "/k/lock-0000000002".to_owned()
        ))
    );
}

#[test]
fn handshakes_grant_resume_and_refuse() {
    let frames = frames(JAVA);
    let said = said(&frames);
    let asked: Vec<_> = said
        .iter()
        .filter_map(|said| match said {
            DecodedFrame::ConnectRequest(request) => Some(request),
            _ => None,
        })
        .collect();
    let granted: Vec<_> = said
        .iter()
        .filter_map(|said| match said {
            DecodedFrame::ConnectResponse(response) => Some(response),
            _ => None,
        })
        .collect();
    assert_eq!((asked.len(), granted.len()), (6, 6));
    assert_eq!(
        (
            asked[0].session_id,
            asked[0].last_zxid_seen,
            asked[0].timeout_ms
        ),
        (0, 0, 3000)
    );
    assert_eq!(
        (asked[0].password, asked[0].read_only),
        (&[0; 16][..], Some(false))
    );
    assert_eq!(
        (granted[0].timeout_ms, granted[0].read_only),
        (3000, Some(false))
    );
    assert_eq!(asked[1].session_id, granted[0].session_id);
    assert_eq!(asked[1].password, granted[0].password);
    assert!(asked[1].last_zxid_seen > 0);
    assert_eq!(granted[1].session_id, granted[0].session_id);
    assert_eq!(asked[5].session_id, 0x1234);
    assert_eq!(*granted[5], ConnectResponse::refused(Some(false)));
}

#[test]
fn fields_mean_what_the_client_asked_for() {
    let frames = frames(JAVA);
    let said = said(&frames);
    let calls = calls(&said);
    let reply = |wanted: &dyn Fn(&Request<'_>) -> bool| {
        let (_, header, response) = calls.iter().find(|(request, ..)| wanted(request)).unwrap();
        (**header, response.cloned())
    };
    let create = |path: &'static str, op: CreateOp| {
        reply(
            &move |request| matches!(request, Request::Create(create) if create.path == path && create.op == op),
        )
    };

    assert_eq!(
        create("/g", CreateOp::Create).1,
        Some(Response::Path("/g".to_owned()))
    );
    let (header, response) = create("/g/stat", CreateOp::Create2);
    match response {
        Some(Response::PathStat(path, stat)) => {
            assert_eq!(path, "/g/stat");
            assert_eq!(
                (stat.czxid, stat.mzxid, stat.pzxid),
                (header.zxid, header.zxid, header.zxid)
            );
            assert_eq!((stat.version, stat.cversion, stat.aversion), (0, 0, 0));
            assert_eq!(
                (stat.ephemeral_owner, stat.data_length, stat.num_children),
                (0, 0, 0)
            );
            assert!(stat.ctime == stat.mtime && stat.ctime > 1_600_000_000_000);
        }
        other => panic!("{other:?}"),
    }
    match create("/g/eseq-", CreateOp::Create2).1 {
        Some(Response::PathStat(path, stat)) => {
            assert_eq!(path, "/g/eseq-0000000003");
            assert!(stat.is_ephemeral());
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        create("/g/container", CreateOp::Container).1,
        Some(Response::PathStat(..))
    ));
    assert_eq!(
        create("/none/child", CreateOp::Create).0.error(),
        ErrorCode::NoNode
    );
    assert_eq!(
        create("/g/eph/child", CreateOp::Create).0.error(),
        ErrorCode::NoChildrenForEphemerals
    );

    match reply(&|request| matches!(request, Request::GetAcl { .. })).1 {
        Some(Response::Acl { acl, .. }) => {
            assert_eq!(
                (acl.len(), acl[0].perms, acl[0].scheme.as_ref()),
                (1, Perms::ALL, "digest")
            );
            assert!(acl[0].id.starts_with("user:"));
        }
        other => panic!("{other:?}"),
    }
    let data = reply(&|request| {
        matches!(
            request,
            Request::GetData {
                path: "/g/stat",
                ..
            }
        )
    })
    .1;
    assert!(
        matches!(data, Some(Response::Data { data: None, .. })),
        "null data stays null: {data:?}"
    );
    match reply(&|request| matches!(request, Request::WhoAmI)).1 {
        Some(Response::WhoAmI(infos)) => {
            assert!(
                infos
                    .iter()
                    .any(|info| info.scheme == "digest" && info.user == "user"),
                "{infos:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    let sync = reply(&|request| matches!(request, Request::Sync { .. })).1;
    assert_eq!(sync, Some(Response::Path("/g".to_owned())));
    let reconfig = reply(&|request| matches!(request, Request::Reconfig { .. })).0;
    assert_eq!(reconfig.error(), ErrorCode::ReconfigDisabled);
}

#[test]
fn a_ttl_travels_in_milliseconds() {
    let frames = frames(JAVA);
    let said = said(&frames);
    let modes: Vec<_> = said
        .iter()
        .filter_map(|said| match said {
            DecodedFrame::Request(
                _,
                Request::Create(
                    create @ Create {
                        op: CreateOp::Ttl, ..
                    },
                ),
            ) => Some(create.mode()),
            _ => None,
        })
        .collect();
    assert_eq!(
        modes,
        [
            Ok(CreateMode::PersistentTtl { ttl_ms: 60_000 }),
            Ok(CreateMode::PersistentSequentialTtl { ttl_ms: 60_000 }),
        ]
    );
}

#[test]
fn multis_succeed_fail_and_read() {
    let frames = frames(JAVA);
    let said = said(&frames);
    let multis: Vec<_> = calls(&said)
        .into_iter()
        .filter_map(|(request, header, response)| match (request, response) {
            (Request::Multi(ops) | Request::MultiRead(ops), Some(Response::Multi(results))) => {
                assert_eq!(header.err, 0);
                Some((ops, results))
            }
            _ => None,
        })
        .collect();
    assert_eq!(multis.len(), 3);
    let (ops, results) = multis[0];
    assert_eq!(
        ops[0],
        MultiOp::Check {
            path: "/g",
            version: -1
        }
    );
    // Whatever kind of create it was that has a stat, its result is typed create2; without, create.
    assert!(
        matches!(
            results[..],
            [
                MultiResult::Check,
                MultiResult::Create { .. },
                MultiResult::Create2 { .. },
                MultiResult::Create2 { .. },
                MultiResult::SetData(_),
                MultiResult::Delete,
            ]
        ),
        "{results:?}"
    );
    assert_eq!(
        multis[1].1,
        &MultiResult::failure(3, 1, ErrorCode::BadVersion)
    );
    assert!(matches!(
        multis[2].1[..],
        [
            MultiResult::Data { .. },
            MultiResult::Children(_),
            MultiResult::Error(ErrorCode::NoNode)
        ]
    ));
}

#[test]
fn watches_fire_and_are_armed_again() {
    let frames = frames(JAVA);
    let said = said(&frames);
    let mut kinds = BTreeSet::new();
    for one in &said {
        if let DecodedFrame::Event(header, event) = one {
            assert_eq!((header.xid, header.err), (xid::NOTIFICATION, 0));
            assert_eq!(event.state, KeeperState::SyncConnected);
            assert!(event.path.starts_with("/g"));
            kinds.insert(event.kind.code());
        }
    }
    for kind in [
        EventKind::NodeCreated,
        EventKind::NodeDataChanged,
        EventKind::NodeChildrenChanged,
    ] {
        assert!(kinds.contains(&kind.code()), "{kind:?}");
    }
    let set = said.iter().find_map(|said| match said {
        DecodedFrame::Request(
            header,
            Request::SetWatches2 {
                data,
                exist,
                child,
                persistent,
                persistent_recursive,
                ..
            },
        ) => {
            // An xid like any other request's, not the -8 that other clients use.
            assert!(header.xid > 0);
            Some((
                data.clone(),
                exist.clone(),
                child.clone(),
                persistent.clone(),
                persistent_recursive.clone(),
            ))
        }
        _ => None,
    });
    let (data, exist, child, persistent, recursive) = set.unwrap();
    assert_eq!(
        (data, exist, child),
        (vec!["/g/stat"], vec!["/g/never"], vec!["/g/stat"])
    );
    assert_eq!((persistent, recursive), (vec!["/g"], vec!["/g"]));
    let plain = said.iter().find_map(|said| match said {
        DecodedFrame::Request(
            _,
            Request::SetWatches {
                data, exist, child, ..
            },
        ) => Some((data.clone(), exist.clone(), child.clone())),
        _ => None,
    });
    assert_eq!(plain, Some((vec!["/g"], vec!["/g/never"], vec!["/g"])));
}

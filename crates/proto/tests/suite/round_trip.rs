//! Properties of the codec: what is encoded decodes to itself; what is cut short is a clean error
//! or, where a tail is optional, another legal record; and no bytes at all make a decoder panic.

use baton_proto::{
    Acl, AuthPacket, ClientInfo, ConnectRequest, ConnectResponse, Create, CreateOp, Decoder,
    ErrorCode, EventKind, KeeperState, Limits, MultiOp, MultiResult, OpCode, Perms, ReplyHeader,
    Request, RequestHeader, Response, Stat, WatcherEvent,
};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Owned parts from which a borrowed request is built.
#[derive(Debug, Clone)]
struct RequestParts {
    path: String,
    other: String,
    paths: Vec<String>,
    more_paths: Vec<String>,
    data: Option<Vec<u8>>,
    acl: Option<Vec<(i32, String, String)>>,
    number: i32,
    long: i64,
    flag: bool,
    sub_ops: Vec<(u8, String, Option<Vec<u8>>, i32)>,
}

fn parts() -> impl Strategy<Value = RequestParts> {
    let text = "\\PC{0,20}";
    let acl = option::of(vec((any::<i32>(), text, text), 0..3));
    let sub_ops = vec(
        (
            0..7_u8,
            text,
            option::of(vec(any::<u8>(), 0..20)),
            any::<i32>(),
        ),
        0..5,
    );
    (
        (
            text,
            text,
            vec(text, 0..4),
            vec(text, 0..4),
            option::of(vec(any::<u8>(), 0..40)),
        ),
        (acl, any::<i32>(), any::<i64>(), any::<bool>(), sub_ops),
    )
        .prop_map(
            |((path, other, paths, more_paths, data), (acl, number, long, flag, sub_ops))| {
                RequestParts {
                    path,
                    other,
                    paths,
                    more_paths,
                    data,
                    acl,
                    number,
                    long,
                    flag,
                    sub_ops,
                }
            },
        )
}

impl RequestParts {
    fn acl(&self) -> Option<Vec<Acl<'_>>> {
        let entry = |(perms, scheme, id): &'_ (i32, String, String)| {
            Acl::new(Perms(*perms), scheme.clone(), id.clone())
        };
        self.acl
            .as_ref()
            .map(|list| list.iter().map(entry).collect())
    }

    fn create(&self, op: CreateOp) -> Create<'_> {
        Create {
            op,
            path: &self.path,
            data: self.data.as_deref(),
            acl: self.acl(),
            flags: self.number,
            ttl_ms: if op == CreateOp::Ttl { self.long } else { -1 },
        }
    }

    fn writes(&self) -> Vec<MultiOp<'_>> {
        self.sub_ops
            .iter()
            .map(|(kind, path, data, version)| match kind {
                0 => MultiOp::Create(self.create(CreateOp::Create)),
                1 => MultiOp::Create(self.create(CreateOp::Create2)),
                2 => MultiOp::Create(self.create(CreateOp::Container)),
                3 => MultiOp::Create(self.create(CreateOp::Ttl)),
                4 => MultiOp::Check {
                    path,
                    version: *version,
                },
                5 => MultiOp::Delete {
                    path,
                    version: *version,
                },
                _ => MultiOp::SetData {
                    path,
                    data: data.as_deref(),
                    version: *version,
                },
            })
            .collect()
    }

    fn reads(&self) -> Vec<MultiOp<'_>> {
        self.sub_ops
            .iter()
            .map(|(kind, path, _, _)| match kind {
                0..3 => MultiOp::GetData {
                    path,
                    watch: self.flag,
                },
                _ => MultiOp::GetChildren {
                    path,
                    watch: self.flag,
                },
            })
            .collect()
    }

    /// One request of each operation.
    fn requests(&self) -> Vec<Request<'_>> {
        let path = self.path.as_str();
        let (version, kind, mode) = (self.number, self.number, self.number);
        let watch = self.flag;
        let first: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let second: Vec<&str> = self.more_paths.iter().map(String::as_str).collect();
        vec![
            Request::Create(self.create(CreateOp::Create)),
            Request::Create(self.create(CreateOp::Create2)),
            Request::Create(self.create(CreateOp::Container)),
            Request::Create(self.create(CreateOp::Ttl)),
            Request::Delete { path, version },
            Request::Exists { path, watch },
            Request::GetData { path, watch },
            Request::SetData {
                path,
                data: self.data.as_deref(),
                version,
            },
            Request::GetAcl { path },
            Request::SetAcl {
                path,
                acl: self.acl(),
                version,
            },
            Request::GetChildren { path, watch },
            Request::GetChildren2 { path, watch },
            Request::Sync { path },
            Request::Ping,
            Request::Check { path, version },
            Request::Multi(self.writes()),
            Request::MultiRead(self.reads()),
            Request::Reconfig {
                joining: Some(path),
                leaving: None,
                new_members: Some(&self.other),
                config_id: self.long,
            },
            Request::CheckWatches { path, kind },
            Request::RemoveWatches { path, kind },
            Request::DeleteContainer { path },
            Request::Auth(AuthPacket {
                kind,
                scheme: &self.other,
                auth: self.data.as_deref(),
            }),
            Request::SetWatches {
                relative_zxid: self.long,
                data: first.clone(),
                exist: second.clone(),
                child: first.clone(),
            },
            Request::SetWatches2 {
                relative_zxid: self.long,
                data: first.clone(),
                exist: second.clone(),
                child: second.clone(),
                persistent: first,
                persistent_recursive: second,
            },
            Request::Sasl {
                token: self.data.as_deref(),
            },
            Request::GetEphemerals { prefix: path },
            Request::GetAllChildrenNumber { path },
            Request::AddWatch { path, mode },
            Request::WhoAmI,
            Request::CreateSession {
                timeout_ms: version,
            },
            Request::CloseSession,
        ]
    }

    fn stat(&self) -> Stat {
        Stat {
            czxid: self.long,
            mzxid: self.long.wrapping_add(1),
            ctime: self.long.wrapping_add(2),
            mtime: self.long.wrapping_add(3),
            version: self.number,
            cversion: self.number.wrapping_add(1),
            aversion: self.number.wrapping_add(2),
            ephemeral_owner: self.long.wrapping_add(4),
            data_length: self.number.wrapping_add(3),
            num_children: self.number.wrapping_add(4),
            pzxid: self.long.wrapping_add(5),
        }
    }

    /// Every response that an operation can have.
    fn responses(&self) -> Vec<(OpCode, Response)> {
        let stat = self.stat();
        let path = || self.path.clone();
        let data = || self.data.clone().map(Bytes::from);
        let acl: Vec<_> = self
            .acl()
            .unwrap_or_default()
            .into_iter()
            .map(Acl::into_owned)
            .collect();
        let results = vec![
            MultiResult::Create { path: path() },
            MultiResult::Create2 { path: path(), stat },
            MultiResult::Delete,
            MultiResult::SetData(stat),
            MultiResult::Check,
            MultiResult::Data { data: data(), stat },
            MultiResult::Children(self.paths.clone()),
            MultiResult::Error(ErrorCode::from_code(self.number)),
        ];
        let infos = self.paths.iter().map(|scheme| ClientInfo {
            scheme: scheme.clone(),
            user: path(),
        });
        vec![
            (OpCode::Create, Response::Path(path())),
            (OpCode::Sync, Response::Path(path())),
            (OpCode::Create2, Response::PathStat(path(), stat)),
            (OpCode::CreateContainer, Response::PathStat(path(), stat)),
            (OpCode::CreateTtl, Response::PathStat(path(), stat)),
            (OpCode::Exists, Response::Stat(stat)),
            (OpCode::SetData, Response::Stat(stat)),
            (OpCode::SetAcl, Response::Stat(stat)),
            (OpCode::GetData, Response::Data { data: data(), stat }),
            (OpCode::Reconfig, Response::Data { data: data(), stat }),
            (OpCode::GetAcl, Response::Acl { acl, stat }),
            (OpCode::GetChildren, Response::Children(self.paths.clone())),
            (
                OpCode::GetChildren2,
                Response::Children2 {
                    children: self.paths.clone(),
                    stat,
                },
            ),
            (
                OpCode::GetEphemerals,
                Response::Strings(self.more_paths.clone()),
            ),
            (OpCode::GetAllChildrenNumber, Response::Count(self.number)),
            (OpCode::Multi, Response::Multi(results.clone())),
            (OpCode::MultiRead, Response::Multi(results)),
            (OpCode::AddWatch, Response::WatchAdded),
            (OpCode::WhoAmI, Response::WhoAmI(infos.collect())),
            (OpCode::Sasl, Response::Sasl(data())),
            (OpCode::Delete, Response::Empty),
            (OpCode::Ping, Response::Empty),
            (OpCode::CloseSession, Response::Empty),
        ]
    }
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

proptest! {
    #[test]
    fn every_request_decodes_to_itself_and_every_truncation_is_an_error(parts in parts()) {
        let limits = Limits::default();
        for request in parts.requests() {
            let mut bytes = encoded(|out| request.encode(out));
            prop_assert_eq!(Request::decode(request.op(), &bytes, &limits), Ok(request.clone()));
            for len in 0..bytes.len() {
                let error = Request::decode(request.op(), &bytes[..len], &limits).unwrap_err();
                prop_assert!(error.offset <= len, "{}", error);
            }
            bytes.extend_from_slice(b"ignored");
            prop_assert_eq!(Request::decode(request.op(), &bytes, &limits), Ok(request));
        }
    }

    #[test]
    fn every_response_decodes_to_itself_and_every_truncation_is_an_error(parts in parts()) {
        let limits = Limits::default();
        for (op, response) in parts.responses() {
            let bytes = Bytes::from(encoded(|out| response.encode(out)));
            prop_assert_eq!(Response::decode(op, &bytes, &limits), Ok(response));
            for len in 0..bytes.len() {
                prop_assert!(Response::decode(op, &bytes.slice(..len), &limits).is_err());
            }
        }
    }

    #[test]
    fn handshakes_decode_to_themselves(parts in parts(), read_only in option::of(any::<bool>())) {
        let limits = Limits::default();
        let request = ConnectRequest {
            protocol_version: parts.number,
            last_zxid_seen: parts.long,
            timeout_ms: parts.number,
            session_id: parts.long,
            password: parts.data.as_deref().unwrap_or_default(),
            read_only,
        };
        let bytes = encoded(|out| request.encode(out));
        prop_assert_eq!(ConnectRequest::decode(&bytes, &limits), Ok(request));
        let response = ConnectResponse {
            protocol_version: parts.number,
            timeout_ms: parts.number,
            session_id: parts.long,
            password: parts.long.to_be_bytes().repeat(2).try_into().unwrap(),
            read_only,
        };
        let bytes = encoded(|out| response.encode(out));
        prop_assert_eq!(ConnectResponse::decode(&bytes, &limits), Ok(response));
        // The last byte may be missing: that is the form of peers before 3.4.
        let needed = bytes.len() - usize::from(read_only.is_some());
        for len in 0..needed {
            prop_assert!(ConnectResponse::decode(&bytes[..len], &limits).is_err());
        }
        let old = ConnectResponse { read_only: None, ..response };
        prop_assert_eq!(ConnectResponse::decode(&bytes[..needed], &limits), Ok(old));
    }

    #[test]
    fn headers_and_events_decode_to_themselves(parts in parts(), kind in -1..8_i32, err in any::<i32>()) {
        prop_assume!(kind != 0);
        let limits = Limits::default();
        let request = RequestHeader { xid: parts.number, op: err };
        let bytes = encoded(|out| request.encode(out));
        prop_assert_eq!(RequestHeader::decode(&mut Decoder::new(&bytes, &limits)), Ok(request));
        let reply = ReplyHeader { xid: parts.number, zxid: parts.long, err };
        let bytes = encoded(|out| reply.encode(out));
        prop_assert_eq!(ReplyHeader::decode(&mut Decoder::new(&bytes, &limits)), Ok(reply));
        let event = WatcherEvent {
            kind: EventKind::try_from(kind).unwrap(),
            state: KeeperState::SyncConnected,
            path: parts.path,
        };
        let bytes = encoded(|out| event.encode(out));
        prop_assert_eq!(WatcherEvent::decode(&mut Decoder::new(&bytes, &limits)), Ok(event));
        for len in 0..bytes.len() {
            prop_assert!(WatcherEvent::decode(&mut Decoder::new(&bytes[..len], &limits)).is_err());
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..200)) {
        let limits = Limits::default();
        let shared = Bytes::from(bytes.clone());
        for op in OpCode::ALL {
            let _ = Request::decode(op, &bytes, &limits);
            let _ = Response::decode(op, &shared, &limits);
        }
        let _ = ConnectRequest::decode(&bytes, &limits);
        let _ = ConnectResponse::decode(&bytes, &limits);
        let _ = WatcherEvent::decode(&mut Decoder::new(&bytes, &limits));
    }
}

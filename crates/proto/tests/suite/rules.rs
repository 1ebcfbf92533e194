//! Frames, paths, sequence numbers, limits and codes: the rules with their edges.

use baton_proto::frame::{self, FrameError};
use baton_proto::path::{self, PathError};
use baton_proto::{
    Acl, Create, CreateMode, CreateOp, DecodeErrorKind, ErrorCode, Limits, MAX_TTL_MS, MultiOp,
    MultiResult, OpCode, Request, Response,
};
use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;

#[test]
fn codes_and_numbers_agree_both_ways() {
    for op in OpCode::ALL {
        assert_eq!(OpCode::try_from(op.code()), Ok(op));
    }
    for unknown in [10, 23, 99, 108, -1, -9, i32::MIN, i32::MAX] {
        assert!(OpCode::try_from(unknown).is_err(), "{unknown}");
    }
    for error in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_code(error.code()), error);
        assert!(!error.to_string().contains('\n'));
    }
    assert_eq!(ErrorCode::from_code(-999), ErrorCode::Unknown(-999));
    assert_eq!(ErrorCode::Unknown(-999).code(), -999);
    assert_eq!(
        ErrorCode::NoNode.to_string(),
        "NoNode: the znode does not exist"
    );
}

#[test]
fn a_frame_comes_out_only_when_it_has_all_arrived() {
    let mut whole = BytesMut::new();
    frame::write_request(&mut whole, 7, &Request::Ping);
    assert_eq!(&whole[..], [0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 11]);
    let mut arriving = BytesMut::new();
    for byte in &whole {
        assert_eq!(frame::split_frame(&mut arriving, 100), Ok(None));
        arriving.put_u8(*byte);
    }
    let body = frame::split_frame(&mut arriving, 100).unwrap().unwrap();
    assert_eq!(&body[..], &whole[4..]);
    assert_eq!(frame::split_frame(&mut arriving, 100), Ok(None));
}

#[test]
fn impossible_lengths_are_refused_before_the_frame_arrives() {
    let mut limit = BytesMut::from(&[0, 0, 0, 100][..]);
    assert_eq!(frame::split_frame(&mut limit, 100), Ok(None));
    let mut over = BytesMut::from(&[0, 0, 0, 101][..]);
    assert_eq!(
        frame::split_frame(&mut over, 100),
        Err(FrameError::TooLong {
            length: 101,
            max: 100
        })
    );
    let mut negative = BytesMut::from(&[0xff, 0xff, 0xff, 0xff][..]);
    assert_eq!(
        frame::split_frame(&mut negative, 100),
        Err(FrameError::Negative(-1))
    );
    let mut empty = BytesMut::from(&[0, 0, 0, 0][..]);
    assert_eq!(frame::split_frame(&mut empty, 100), Ok(Some(Bytes::new())));
}

#[test]
fn frames_are_written_in_place_behind_what_is_there() {
    let mut out = Vec::from(*b"before");
    let start = frame::begin(&mut out);
    out.put_slice(b"body");
    assert_eq!(frame::finish(&mut out, start), 4);
    assert_eq!(out, b"before\0\0\0\x04body");
}

#[test]
fn a_claimed_count_reserves_nothing() {
    // setWatches that claims two thousand million paths in a handful of bytes.
    let mut body = Vec::new();
    body.put_i64(1);
    body.put_i32(i32::MAX);
    body.put_i32(-1);
    let error = Request::decode(OpCode::SetWatches, &body, &Limits::default()).unwrap_err();
    assert_eq!(error.field, "SetWatches.dataWatches");
    assert!(
        matches!(error.kind, DecodeErrorKind::Truncated { left: 4, .. }),
        "{error}"
    );
}

#[test]
fn errors_say_what_and_where() {
    let limits = Limits::with_max_frame_bytes(10);
    let mut body = Vec::new();
    body.put_i32(21);
    let error = Request::decode(OpCode::Sync, &body, &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot decode SyncRequest.path at byte 4: length 21 exceeds the limit of 20 bytes"
    );
    let error = Request::decode(OpCode::Sync, &[0xff, 0xff, 0xff, 0xfe], &limits).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::NegativeLength(-2));
    let error = Request::decode(OpCode::Sync, &[0xff, 0xff, 0xff, 0xff], &limits).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::Null);
    let error = Request::decode(OpCode::Sync, &[0, 0, 0, 1, 0xc0], &limits).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::InvalidUtf8);
}

#[test]
fn a_multi_takes_writes_and_a_multi_read_takes_reads() {
    let limits = Limits::default();
    let write = Request::Multi(vec![MultiOp::Check {
        path: "/a",
        version: 3,
    }]);
    let read = Request::MultiRead(vec![MultiOp::GetData {
        path: "/a",
        watch: false,
    }]);
    for (request, other) in [(&write, OpCode::MultiRead), (&read, OpCode::Multi)] {
        let mut body = Vec::new();
        request.encode(&mut body);
        assert!(matches!(
            Request::decode(other, &body, &limits).unwrap_err().kind,
            DecodeErrorKind::UnknownValue(_)
        ));
    }
    let mut empty = Vec::new();
    Request::Multi(Vec::new()).encode(&mut empty);
    assert_eq!(
        Request::decode(OpCode::Multi, &empty, &limits),
        Ok(Request::Multi(Vec::new()))
    );
}

#[test]
fn a_failed_multi_names_its_culprit() {
    assert_eq!(
        MultiResult::failure(3, 1, ErrorCode::NoNode),
        [
            MultiResult::Error(ErrorCode::Ok),
            MultiResult::Error(ErrorCode::NoNode),
            MultiResult::Error(ErrorCode::RuntimeInconsistency),
        ]
    );
}

#[test]
fn data_shares_the_memory_of_its_frame() {
    let response = Response::Data {
        data: Some(Bytes::from_static(b"payload")),
        stat: baton_proto::Stat::default(),
    };
    let mut body = Vec::new();
    response.encode(&mut body);
    let body = Bytes::from(body);
    match Response::decode(OpCode::GetData, &body, &Limits::default()).unwrap() {
        Response::Data {
            data: Some(data), ..
        } => {
            assert_eq!(data.as_ptr(), body[4..].as_ptr());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_kind_of_a_create_comes_from_op_code_and_flags() {
    let modes = [
        CreateMode::Persistent,
        CreateMode::PersistentSequential,
        CreateMode::Ephemeral,
        CreateMode::EphemeralSequential,
        CreateMode::Container,
        CreateMode::PersistentTtl { ttl_ms: 1 },
        CreateMode::PersistentSequentialTtl { ttl_ms: MAX_TTL_MS },
    ];
    for mode in modes {
        let create = Create::new("/a", None, vec![Acl::open_unsafe()], mode);
        assert_eq!(create.mode(), Ok(mode));
    }
    let create = |op, flags, ttl_ms| Create {
        op,
        path: "/a",
        data: None,
        acl: None,
        flags,
        ttl_ms,
    };
    assert_eq!(
        create(CreateOp::Create, 4, -1).mode(),
        Ok(CreateMode::Persistent)
    );
    for refused in [
        create(CreateOp::Create2, 5, -1),
        create(CreateOp::Create, 7, -1),
        create(CreateOp::Create, -1, -1),
        create(CreateOp::Container, 1, -1),
        create(CreateOp::Ttl, 0, 10),
        create(CreateOp::Ttl, 5, 0),
        create(CreateOp::Ttl, 5, MAX_TTL_MS + 1),
    ] {
        assert_eq!(refused.mode(), Err(ErrorCode::BadArguments), "{refused:?}");
    }
}

#[test]
fn paths_are_judged_as_zookeeper_does() {
    for legal in [
        "/",
        "/a",
        "/a/b",
        "/a.b",
        "/...",
        "/a /b",
        "/\u{e4}\u{4e2d}",
        "/\u{d7ff}",
        "/\u{f900}",
    ] {
        assert_eq!(path::validate(legal), Ok(()), "{legal:?}");
    }
    let illegal_character = |character, offset| PathError::IllegalCharacter { character, offset };
    for (illegal, why) in [
        ("", PathError::Empty),
        ("a", PathError::NotAbsolute),
        ("/a/", PathError::TrailingSlash),
        ("//", PathError::TrailingSlash),
        ("//a", PathError::EmptyName { offset: 1 }),
        ("/a//b", PathError::EmptyName { offset: 3 }),
        ("/.", PathError::RelativeName { offset: 1 }),
        ("/a/../b", PathError::RelativeName { offset: 3 }),
        ("/a\0", illegal_character('\0', 2)),
        ("/a\u{1f}", illegal_character('\u{1f}', 2)),
        ("/\u{7f}", illegal_character('\u{7f}', 1)),
        ("/\u{9f}", illegal_character('\u{9f}', 1)),
        ("/\u{e000}", illegal_character('\u{e000}', 1)),
        ("/\u{f8ff}", illegal_character('\u{f8ff}', 1)),
        ("/\u{fff0}", illegal_character('\u{fff0}', 1)),
        ("/\u{1f512}", illegal_character('\u{1f512}', 1)),
    ] {
        assert_eq!(path::validate(illegal), Err(why), "{illegal:?}");
    }
    assert_eq!(path::validate_sequential("/a/"), Ok(()));
    assert_eq!(path::validate_sequential(""), Err(PathError::Empty));
}

#[test]
fn parents_names_and_chroots() {
    assert_eq!((path::parent("/a/b"), path::name("/a/b")), ("/a", "b"));
    assert_eq!((path::parent("/a"), path::name("/a")), ("/", "a"));
    assert_eq!((path::parent("/"), path::name("/")), ("/", ""));
    assert_eq!(path::join("/", "a"), "/a");
    assert_eq!(path::join("/a", "b"), "/a/b");
    assert_eq!(path::names("/a/b").collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(path::names("/").count(), 0);
    assert!(path::is_at_or_below("/a/b", "/a") && path::is_at_or_below("/a", "/a"));
    assert!(!path::is_at_or_below("/ab", "/a") && path::is_at_or_below("/ab", "/"));
    for (chroot, client, server) in [
        ("", "/a", "/a"),
        ("/", "/", "/"),
        ("/c", "/", "/c"),
        ("/c", "/a", "/c/a"),
    ] {
        assert_eq!(path::prepend_chroot(chroot, client), server);
        assert_eq!(path::strip_chroot(chroot, server), Some(client));
    }
    assert_eq!(path::strip_chroot("/c", "/cd"), None);
}

#[test]
fn sequence_numbers_keep_their_sign_and_their_length() {
    for (number, text) in [
        (0, "0000000000"),
        (2_147_483_647, "2147483647"),
        (-2_147_483_648, "-2147483648"),
        (-1, "-000000001"),
        (2_147_483_648, "2147483648"),
        (i64::MAX, "9223372036854775807"),
    ] {
        assert_eq!(path::format_sequence(number), text);
    }
}

proptest! {
    #[test]
    fn a_legal_path_is_its_parent_and_its_name(text in "(/[a-z.]{1,3}){1,4}") {
        if path::validate(&text).is_ok() {
            prop_assert_eq!(path::join(path::parent(&text), path::name(&text)), text);
        }
    }

    #[test]
    fn no_text_makes_the_path_rules_panic(text in any::<String>(), other in any::<String>()) {
        let _ = path::validate(&text);
        let _ = path::validate_sequential(&text);
        let _ = (path::parent(&text), path::name(&text), path::strip_chroot(&other, &text));
    }
}

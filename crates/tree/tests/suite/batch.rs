//! The payload of a log entry: it reads back as it was written, and nothing but a whole one reads
//! at all.

use std::num::NonZeroU64;

use baton_proto::OpCode;
use baton_tree::{
    BATCH_VERSION, Batch, BatchBuilder, BatchError, CloseReason, Command, FormatLevel, Identity,
    Origin, Stamp, Tree,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum OwnedCommand {
    Open(i64, [u8; 16], i32),
    Reattach(i64, [u8; 16], i32),
    Close(i64, bool),
    Write(OpCode, Vec<u8>),
    Reap(String, i64),
    /// Version 2 only.
    Reconfigure(i32, Vec<u8>),
    /// Version 2 only.
    SetLevel(FormatLevel),
    ResetTime(i64),
}

impl OwnedCommand {
    fn command(&self) -> Command<'_> {
        match self {
            Self::Open(session_id, password, timeout_ms) => Command::OpenSession {
                session_id: *session_id,
                password: *password,
                timeout_ms: *timeout_ms,
            },
            Self::Reattach(session_id, password, timeout_ms) => Command::ReattachSession {
                session_id: *session_id,
                password: *password,
                timeout_ms: *timeout_ms,
            },
            Self::Close(session_id, expired) => Command::CloseSession {
                session_id: *session_id,
                reason: if *expired {
                    CloseReason::Expired
                } else {
                    CloseReason::Client
                },
            },
            Self::Write(op, body) => Command::Write { op: *op, body },
            Self::Reap(path, czxid) => Command::DeleteContainer {
                path,
                czxid: *czxid,
            },
            Self::Reconfigure(refusal, body) => Command::Reconfigure {
                refusal: *refusal,
                body,
            },
            Self::SetLevel(level) => Command::SetLevel(*level),
            Self::ResetTime(to_ms) => Command::ResetTime { to_ms: *to_ms },
        }
    }
}

fn made(level: FormatLevel) -> BoxedStrategy<OwnedCommand> {
    let session = || (any::<i64>(), any::<[u8; 16]>(), any::<i32>());
    let of_version_1 = prop_oneof![
        session().prop_map(|(id, password, timeout)| OwnedCommand::Open(id, password, timeout)),
        session().prop_map(|(id, password, timeout)| OwnedCommand::Reattach(id, password, timeout)),
        (any::<i64>(), any::<bool>()).prop_map(|(id, expired)| OwnedCommand::Close(id, expired)),
        (
            prop::sample::select(OpCode::ALL.to_vec()),
            vec(any::<u8>(), 0..300)
        )
            .prop_map(|(op, body)| OwnedCommand::Write(op, body)),
        (".{0,20}", any::<i64>()).prop_map(|(path, czxid)| OwnedCommand::Reap(path, czxid)),
    ];
    match level {
        FormatLevel::Initial => of_version_1.boxed(),
        _ => prop_oneof![
            9 => of_version_1,
            1 => levels().prop_map(OwnedCommand::SetLevel),
            1 => any::<i64>().prop_map(OwnedCommand::ResetTime),
            1 => (any::<i32>(), vec(any::<u8>(), 0..300))
                .prop_map(|(refusal, body)| OwnedCommand::Reconfigure(refusal, body)),
        ]
        .boxed(),
    }
}

fn levels() -> impl Strategy<Value = FormatLevel> {
    crate::common::program::level()
}

fn identities() -> impl Strategy<Value = Vec<Identity>> {
    let identity = vec(("[a-z]{0,6}", ".{0,12}"), 0..3).prop_map(|ids| {
        let mut identity = Identity::anonymous();
        for (scheme, id) in ids {
            identity.add(scheme, id);
        }
        identity
    });
    vec(identity, 1..4)
}

/// A group: session, identity, first stamp, commands.
type Group = (i64, usize, Option<Stamp>, Vec<(i32, OwnedCommand)>);

#[derive(Debug, Clone)]
struct Plan {
    level: FormatLevel,
    groups: Vec<Group>,
}

fn stamp() -> impl Strategy<Value = Option<Stamp>> {
    let sequence = prop_oneof![0..5_u64, any::<u64>().prop_map(|number| number >> 1)];
    let stamp = (1..=u64::MAX, sequence).prop_map(|(nonce, sequence)| Stamp {
        nonce: NonZeroU64::new(nonce).unwrap(),
        sequence,
    });
    prop::option::weighted(0.8, stamp)
}

fn plan() -> impl Strategy<Value = Plan> {
    levels().prop_flat_map(|level| {
        let commands = vec((any::<i32>(), made(level)), 0..6);
        let group = (any::<i64>(), 0..4_usize, stamp(), commands);
        vec(group, 0..6).prop_map(move |groups| Plan { level, groups })
    })
}

fn build(time_ms: i64, identities: &[Identity], plan: &Plan) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(plan.level, time_ms);
    let mut len = 0;
    for (session, identity, first, commands) in &plan.groups {
        let place = identity % identities.len();
        let identity = &identities[place];
        match (*first).filter(|_| plan.level >= FormatLevel::SessionIdentities) {
            // Of those that a session stores: some new, some stored before.
            Some(first) if first.nonce.get() % 3 == 0 => {
                builder.begin_stored(*session, Some(identity), first);
            }
            Some(first) if first.nonce.get() % 3 == 1 => {
                builder.begin_stored(*session, None, first);
            }
            _ => builder.begin(*session, identity, *first),
        }
        for (cxid, made) in commands {
            builder.push(*cxid, made.command());
        }
        len += commands.len();
    }
    assert_eq!(builder.len(), len);
    assert_eq!(builder.is_empty(), len == 0);
    builder.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_reads_back_as_it_was_written(
        time_ms in any::<i64>(), identities in identities(), plan in plan(),
    ) {
        let payload = build(time_ms, &identities, &plan);
        let batch = Batch::decode(&payload).unwrap();
        prop_assert_eq!(batch.time_ms(), time_ms);
        prop_assert!(batch.identities().len() <= identities.len());
        let mut items = batch.iter();
        for (session, wanted, first, commands) in &plan.groups {
            for (place, (cxid, made)) in commands.iter().enumerate() {
                let (item, identity) = items.next().unwrap();
                let stamp = first.filter(|_| plan.level >= FormatLevel::Attachments);
                let stamp = stamp.map(|first| Stamp {
                    sequence: first.sequence + place as u64,
                    ..first
                });
                prop_assert_eq!(item.session, *session);
                prop_assert_eq!(item.cxid, *cxid);
                prop_assert_eq!(item.stamp, stamp);
                let kind = stamp.filter(|_| plan.level >= FormatLevel::SessionIdentities);
                let kind = kind.map(|stamp| stamp.nonce.get() % 3);
                prop_assert_eq!(item.identity.is_none(), kind == Some(1));
                prop_assert_eq!(item.stores_identity, kind == Some(0) && place == 0);
                let nobody = Identity::anonymous();
                let listed = match kind {
                    Some(1) => &nobody,
                    _ => &identities[wanted % identities.len()],
                };
                prop_assert_eq!(identity, listed);
                prop_assert_eq!(item.command, made.command());
            }
        }
        prop_assert!(items.next().is_none());
    }

    #[test]
    fn a_batch_cut_anywhere_or_with_bytes_added_is_refused(
        identities in identities(), plan in plan(),
    ) {
        let payload = build(1, &identities, &plan).to_vec();
        for end in 0..payload.len() {
            let refused = matches!(Batch::decode(&payload[..end]), Err(BatchError::Truncated { .. }));
            prop_assert!(refused, "cut at {}", end);
        }
        let mut longer = payload.clone();
        longer.push(0);
        prop_assert_eq!(
            Batch::decode(&longer),
            Err(BatchError::TrailingBytes { offset: payload.len() })
        );
    }

    #[test]
    fn no_bytes_make_decoding_panic(mut bytes in vec(any::<u8>(), 0..300)) {
        drop(Batch::decode(&bytes));
        for version in 1..=BATCH_VERSION {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            if let Ok(batch) = Batch::decode(&bytes) {
                Tree::new().apply_batch(&batch, &mut (), |_, _| {});
            }
        }
    }

    /// Almost a batch: much more of it decodes than of random bytes.
    #[test]
    fn no_damaged_batch_makes_decoding_or_applying_panic(
        identities in identities(),
        plan in plan(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut payload = build(1, &identities, &plan).to_vec();
        for (place, mask) in flips {
            let place = place.index(payload.len());
            payload[place] ^= mask;
        }
        if let Ok(batch) = Batch::decode(&payload) {
            for level in [FormatLevel::Initial, FormatLevel::NEWEST] {
                crate::common::tree_at(level).apply_batch(&batch, &mut (), |_, _| {});
            }
        }
    }
}

/// A payload of a few bytes that claims to have many of something.
#[test]
fn a_count_that_the_payload_cannot_have_is_refused_where_it_stands() {
    for version in 1..=BATCH_VERSION {
        let identities = [version, 0, 0xff, 0xff, 0x03, 1, 1];
        let ids = [version, 0, 1, 0xff, 0xff, 0x03, 1];
        let records = [version, 0, 1, 0, 0xff, 0xff, 0x03];
        for (payload, offset) in [(identities, 2), (ids, 3), (records, 4)] {
            let error = Batch::decode(&payload).unwrap_err();
            assert_eq!(error, BatchError::Truncated { offset }, "{payload:?}");
        }
    }
}

#[test]
fn equal_identities_are_stored_once() {
    let someone = Identity::from_ip("127.0.0.1".parse().unwrap());
    let other = Identity::from_ip("127.0.0.2".parse().unwrap());
    let mut builder = BatchBuilder::new(FormatLevel::Initial, 0);
    for place in 0..100 {
        let identity = if place % 2 == 0 { &someone } else { &other };
        let command = Command::Write {
            op: OpCode::Delete,
            body: b"",
        };
        builder.begin(1, identity, None);
        builder.push(place, command);
    }
    let payload = builder.finish();
    assert_eq!(Batch::decode(&payload).unwrap().identities().len(), 2);
    assert!(payload.len() < 100 * 14 + 60, "{} bytes", payload.len());
}

#[test]
fn a_batch_says_by_how_many_znodes_the_tree_may_grow() {
    let growth = |ops: &[OpCode]| {
        let mut builder = BatchBuilder::new(FormatLevel::NEWEST, 0);
        builder.begin(1, &Identity::anonymous(), None);
        for op in ops {
            builder.push(0, Command::Write { op: *op, body: b"" });
        }
        Batch::decode(&builder.finish()).unwrap().growth()
    };
    let creates = [
        OpCode::Create,
        OpCode::Create2,
        OpCode::CreateContainer,
        OpCode::CreateTtl,
    ];
    assert_eq!(growth(&creates), 4);
    assert_eq!(growth(&[OpCode::Create, OpCode::SetData, OpCode::Multi]), 1);
    assert_eq!(
        growth(&[OpCode::Delete, OpCode::SetData, OpCode::Delete]),
        -2
    );
}

#[test]
fn each_refusal_says_what_to_do() {
    let version = Batch::decode(&[9]).unwrap_err();
    assert_eq!(version, BatchError::UnknownVersion(9));
    assert!(version.to_string().contains("start the version"));
    // Kinds 6 and 7 belong to version 2; a command of version 2 belongs to a group.
    for (version, kind) in [(1, 77), (1, 6), (1, 7), (2, 77), (2, 4)] {
        let mut unknown_kind = vec![version, 0, 1, 0, 1, kind];
        unknown_kind.extend([0; 11]);
        let error = Batch::decode(&unknown_kind).unwrap_err();
        assert_eq!(error, BatchError::Invalid { offset: 5 });
        assert!(!error.to_string().contains('\n'));
    }
}

/// A sequence number that no integer holds.
#[test]
fn a_sequence_past_its_end_is_refused() {
    let nonce = NonZeroU64::MIN;
    for (sequence, fits) in [(u64::MAX - 1, true), (u64::MAX, false)] {
        let mut builder = BatchBuilder::new(FormatLevel::Attachments, 0);
        builder.begin(7, &Identity::anonymous(), Some(Stamp { nonce, sequence }));
        builder.push(
            0,
            Command::Write {
                op: OpCode::Delete,
                body: b"",
            },
        );
        let payload = builder.finish();
        let refused = matches!(Batch::decode(&payload), Err(BatchError::Invalid { .. }));
        assert_eq!(refused, !fits);
    }
}

#[test]
fn an_unknown_reason_to_close_a_session_is_refused_at_its_place() {
    let mut builder = BatchBuilder::new(FormatLevel::NEWEST, 0);
    let close = Command::CloseSession {
        session_id: 7,
        reason: CloseReason::Expired,
    };
    builder.begin(7, &Identity::anonymous(), None);
    builder.push(0, close);
    let mut payload = builder.finish().to_vec();
    let place = payload.len() - 1;
    assert_eq!(payload[place], 1, "the reason is the last byte");
    payload[place] = 2;
    let error = Batch::decode(&payload).unwrap_err();
    assert_eq!(error, BatchError::Invalid { offset: place });
}

#[test]
fn a_command_without_a_group_is_the_servers_own() {
    for level in [FormatLevel::Initial, FormatLevel::Attachments] {
        let mut builder = BatchBuilder::new(level, 0);
        builder.push(
            0,
            Command::DeleteContainer {
                path: "/c",
                czxid: 3,
            },
        );
        let payload = builder.finish();
        let batch = Batch::decode(&payload).unwrap();
        let (item, identity) = batch.iter().next().unwrap();
        assert_eq!((item.session, item.stamp), (0, None));
        assert_eq!(*identity, Identity::anonymous());
    }
}

/// A batch with one command, made by `origin`.
fn made_by(level: FormatLevel, origin: Option<Origin>) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(level, 0);
    if let Some(origin) = origin {
        builder.set_origin(origin);
    }
    assert!(builder.is_empty(), "the origin is not a command");
    let write = Command::Write {
        op: OpCode::Delete,
        body: b"",
    };
    builder.push(0, write);
    builder.finish()
}

#[test]
fn a_batch_says_which_server_made_it() {
    let origin = Origin {
        server: 127,
        run: u64::MAX,
        number: 300,
    };
    let payload = made_by(FormatLevel::Attachments, Some(origin));
    let batch = Batch::decode(&payload).unwrap();
    assert_eq!((batch.origin(), batch.items().len()), (Some(origin), 1));
    let payload = made_by(FormatLevel::Attachments, None);
    assert_eq!(Batch::decode(&payload).unwrap().origin(), None);
    let payload = made_by(FormatLevel::Initial, Some(origin));
    assert_eq!(Batch::decode(&payload).unwrap().origin(), None);
}

#[test]
fn an_origin_that_is_cut_off_or_comes_later_is_refused() {
    let origin = Origin {
        server: 3,
        run: 5,
        number: 7,
    };
    let payload = made_by(FormatLevel::Attachments, Some(origin));
    for end in 0..payload.len() {
        let error = Batch::decode(&payload[..end]).unwrap_err();
        assert!(matches!(error, BatchError::Truncated { .. }), "{error}");
    }
    // Version, time, no identities yet, three records: the origin, the group, the command.
    let record = [8, 3, 5, 0, 0, 0, 0, 0, 0, 0, 7];
    let at = payload
        .windows(record.len())
        .position(|found| found == record);
    let at = at.unwrap();
    let mut twice = payload.to_vec();
    twice.splice(at..at, record);
    twice[at - 1] += 1;
    let error = Batch::decode(&twice).unwrap_err();
    let offset = at + record.len();
    assert_eq!(error, BatchError::Invalid { offset });
}

#[test]
fn a_sync_takes_its_place_and_no_zxid() {
    let mut tree = Tree::new();
    let session_id = 7;
    let open = Command::OpenSession {
        session_id,
        password: [0; 16],
        timeout_ms: 1000,
    };
    let nobody = Identity::anonymous();
    tree.apply(0, 0, &nobody, open, &mut ());
    let (zxid, digest) = (tree.zxid(), tree.digest());
    let mut body = Vec::new();
    baton_proto::Request::Sync { path: "/a/b" }.encode(&mut body);
    let sync = Command::Write {
        op: OpCode::Sync,
        body: &body,
    };
    let outcome = tree.apply(0, session_id, &nobody, sync, &mut ());
    assert_eq!(
        outcome.result,
        Ok(baton_proto::Response::Path("/a/b".to_owned()))
    );
    assert_eq!((outcome.zxid, tree.zxid()), (zxid, zxid));
    assert_eq!(tree.digest(), digest);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Batches on disks have to be readable for ever: a change here needs a new version, and a reader
/// of both.
#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let mut identity = Identity::anonymous();
    identity.add("ip", "10.0.0.1");
    let mut builder = BatchBuilder::new(FormatLevel::Initial, 1_700_000_000_000);
    let session_id = 0x0102_0304_0506_0708;
    let password = [0xaa; 16];
    let timeout_ms = 10_000;
    let commands = [
        Command::OpenSession {
            session_id,
            password,
            timeout_ms,
        },
        Command::ReattachSession {
            session_id,
            password,
            timeout_ms,
        },
        Command::Write {
            op: OpCode::CloseSession,
            body: b"xyz",
        },
        Command::DeleteContainer {
            path: "/c",
            czxid: 3,
        },
        Command::CloseSession {
            session_id,
            reason: CloseReason::Expired,
        },
    ];
    for (cxid, command) in commands.into_iter().enumerate() {
        builder.begin(session_id, &identity, None);
        builder.push(cxid as i32 - 1, command);
    }
    let expected = concat!(
        "01",
        "80a0abfef962",
        "01",
        "01",
        "026970",
        "0831302e302e302e31",
        "05",
        "01080706050403020101000807060504030201aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa09c01",
        "02080706050403020100000807060504030201aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa09c01",
        "0408070605040302010200150378797a",
        "050807060504030201",
        "0400022f630300000000000000",
        "0308070605040302010600080706050403020101",
    );
    assert_eq!(hex(&builder.finish()), expected);
}

/// The same for version 2. The level is raised by a batch of that version, so that a reader of
/// version 1 alone refuses it by its first byte.
#[test]
fn the_bytes_of_version_2_stay_as_they_are() {
    let raising = BatchBuilder::raising(FormatLevel::Attachments, 1_700_000_000_000);
    let expected = "0280a0abfef962010002070000000000000000000000000000000000060002";
    assert_eq!(hex(&raising.finish()), expected);

    let mut identity = Identity::anonymous();
    identity.add("ip", "10.0.0.1");
    let mut builder = BatchBuilder::new(FormatLevel::Attachments, 1_700_000_000_000);
    let session_id = 0x0102_0304_0506_0708;
    let stamp = |sequence| {
        let nonce = NonZeroU64::new(0x1112_1314_1516_1718).unwrap();
        Some(Stamp { nonce, sequence })
    };
    builder.begin(session_id, &identity, stamp(0));
    let open = Command::OpenSession {
        session_id,
        password: [0xaa; 16],
        timeout_ms: 10_000,
    };
    builder.push(0, open);
    builder.begin(session_id, &identity, stamp(200));
    let write = |body| Command::Write {
        op: OpCode::SetData,
        body,
    };
    builder.push(1, write(b"xyz"));
    builder.push(2, write(b""));
    let close = |reason| Command::CloseSession { session_id, reason };
    builder.push(3, close(CloseReason::Client));
    builder.begin(session_id, &Identity::anonymous(), None);
    builder.push(0, close(CloseReason::Expired));
    builder.push(
        0,
        Command::DeleteContainer {
            path: "/c",
            czxid: 3,
        },
    );
    let expected = concat!(
        "02",
        "80a0abfef962",
        "02",
        "01",
        "026970",
        "0831302e302e302e31",
        "00",
        "09",
        "07080706050403020100181716151413121100",
        "01000807060504030201aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa09c01",
        "070807060504030201001817161514131211c801",
        "04020a0378797a",
        "04040a00",
        "0306080706050403020100",
        "070807060504030201010000000000000000",
        "0300080706050403020101",
        "0500022f630300000000000000",
    );
    assert_eq!(hex(&builder.finish()), expected);
}

/// The groups of level 6.
#[test]
fn the_bytes_of_stored_identities_stay_as_they_are() {
    let mut identity = Identity::anonymous();
    identity.add("ip", "10.0.0.1");
    let mut builder = BatchBuilder::new(FormatLevel::SessionIdentities, 1_700_000_000_000);
    let session_id = 0x0102_0304_0506_0708;
    let stamp = |sequence| Stamp {
        nonce: NonZeroU64::new(0x1112_1314_1516_1718).unwrap(),
        sequence,
    };
    let write = Command::Write {
        op: OpCode::SetData,
        body: b"x",
    };
    builder.begin_stored(session_id, Some(&identity), stamp(1));
    builder.push(1, write);
    builder.push(2, write);
    builder.begin_stored(session_id, None, stamp(3));
    builder.push(3, write);
    let expected = concat!(
        "02",
        "80a0abfef962",
        "01",
        "01",
        "026970",
        "0831302e302e302e31",
        "05",
        "0a080706050403020100181716151413121101",
        "04020a0178",
        "04040a0178",
        "0b0807060504030201181716151413121103",
        "04060a0178",
    );
    assert_eq!(hex(&builder.finish()), expected);
    // A group without a nonce belongs to no attachment.
    for kind in [10, 11] {
        let mut payload = vec![2, 0, 1, 0, 1, kind];
        payload.extend([0; 20]);
        let error = Batch::decode(&payload).unwrap_err();
        let offset = if kind == 10 { 15 } else { 14 };
        assert_eq!(error, BatchError::Invalid { offset });
    }
}

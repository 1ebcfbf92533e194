//! The payload of a log entry: it reads back as it was written, and nothing but a whole one reads
//! at all.

use baton_proto::OpCode;
use baton_tree::{
    BATCH_VERSION, Batch, BatchBuilder, BatchError, CloseReason, Command, Identity, Tree,
};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Made {
    Open(i64, [u8; 16], i32),
    Reattach(i64, [u8; 16], i32),
    Close(i64, bool),
    Write(OpCode, Vec<u8>),
    Reap(String, i64),
}

impl Made {
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
        }
    }
}

fn made() -> impl Strategy<Value = Made> {
    let session = || (any::<i64>(), any::<[u8; 16]>(), any::<i32>());
    prop_oneof![
        session().prop_map(|(id, password, timeout)| Made::Open(id, password, timeout)),
        session().prop_map(|(id, password, timeout)| Made::Reattach(id, password, timeout)),
        (any::<i64>(), any::<bool>()).prop_map(|(id, expired)| Made::Close(id, expired)),
        (
            prop::sample::select(OpCode::ALL.to_vec()),
            vec(any::<u8>(), 0..300)
        )
            .prop_map(|(op, body)| Made::Write(op, body)),
        (".{0,20}", any::<i64>()).prop_map(|(path, czxid)| Made::Reap(path, czxid)),
    ]
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

type Pushed = Vec<(i64, i32, usize, Made)>;

fn pushed() -> impl Strategy<Value = Pushed> {
    vec((any::<i64>(), any::<i32>(), 0..4_usize, made()), 0..20)
}

fn build(time_ms: i64, identities: &[Identity], pushed: &Pushed) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(time_ms);
    for (session, cxid, identity, made) in pushed {
        let identity = &identities[identity % identities.len()];
        builder.push(*session, *cxid, identity, made.command());
    }
    assert_eq!(builder.len(), pushed.len());
    builder.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_reads_back_as_it_was_written(
        time_ms in any::<i64>(), identities in identities(), pushed in pushed(),
    ) {
        let payload = build(time_ms, &identities, &pushed);
        let batch = Batch::decode(&payload).unwrap();
        prop_assert_eq!(batch.time_ms(), time_ms);
        prop_assert_eq!(batch.items().len(), pushed.len());
        prop_assert!(batch.identities().len() <= identities.len());
        for ((item, identity), (session, cxid, wanted, made)) in batch.iter().zip(&pushed) {
            prop_assert_eq!(item.session, *session);
            prop_assert_eq!(item.cxid, *cxid);
            prop_assert_eq!(identity, &identities[wanted % identities.len()]);
            prop_assert_eq!(item.command, made.command());
        }
    }

    #[test]
    fn a_batch_cut_anywhere_or_with_bytes_added_is_refused(
        identities in identities(), pushed in pushed(),
    ) {
        let payload = build(1, &identities, &pushed).to_vec();
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
        if let Some(first) = bytes.first_mut() {
            *first = BATCH_VERSION;
        }
        if let Ok(batch) = Batch::decode(&bytes) {
            Tree::new().apply_batch(&batch, &mut (), |_, _| {});
        }
    }
}

#[test]
fn equal_identities_are_stored_once() {
    let someone = Identity::from_ip("127.0.0.1".parse().unwrap());
    let other = Identity::from_ip("127.0.0.2".parse().unwrap());
    let mut builder = BatchBuilder::new(0);
    for place in 0..100 {
        let identity = if place % 2 == 0 { &someone } else { &other };
        let command = Command::Write {
            op: OpCode::Delete,
            body: b"",
        };
        builder.push(1, place, identity, command);
    }
    let payload = builder.finish();
    assert_eq!(Batch::decode(&payload).unwrap().identities().len(), 2);
    assert!(payload.len() < 100 * 14 + 60, "{} bytes", payload.len());
}

#[test]
fn each_refusal_says_what_to_do() {
    let version = Batch::decode(&[9]).unwrap_err();
    assert_eq!(version, BatchError::UnknownVersion(9));
    assert!(version.to_string().contains("start the version"));
    let mut unknown_kind = vec![BATCH_VERSION, 0, 1, 0, 1, 77];
    unknown_kind.extend([0; 11]);
    let error = Batch::decode(&unknown_kind).unwrap_err();
    assert_eq!(error, BatchError::Invalid { offset: 5 });
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn an_unknown_reason_to_close_a_session_is_refused_at_its_place() {
    let mut builder = BatchBuilder::new(0);
    let close = Command::CloseSession {
        session_id: 7,
        reason: CloseReason::Expired,
    };
    builder.push(7, 0, &Identity::anonymous(), close);
    let mut payload = builder.finish().to_vec();
    let place = payload.len() - 1;
    assert_eq!(payload[place], 1, "the reason is the last byte");
    payload[place] = 2;
    let error = Batch::decode(&payload).unwrap_err();
    assert_eq!(error, BatchError::Invalid { offset: place });
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is on disks already has to be readable for ever: a change here needs a new version, and a
/// reader of both.
#[test]
fn the_bytes_of_version_1_stay_as_they_are() {
    let mut identity = Identity::anonymous();
    identity.add("ip", "10.0.0.1");
    let mut builder = BatchBuilder::new(1_700_000_000_000);
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
        builder.push(session_id, cxid as i32 - 1, &identity, command);
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

//! Attachments, the connections that write for a session: a command is applied once, in order, and
//! only while its connection owns the session. And what changes with the format level.

use std::num::NonZeroU64;

use baton_proto::{Acl, Create, CreateMode, ErrorCode, OpCode, Request, Response};
use baton_tree::{
    Batch, BatchBuilder, BatchError, BatchItem, CloseReason, Command, FormatLevel, Identity,
    MAX_CHUNK_BYTES, Outcome, RestoreError, SessionInfo, Stamp, Tree, Unapplied,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::common::{Driver, SESSION, cases, drain, dump, password, restore, tree_at};

fn stamp(nonce: u64, sequence: u64) -> Option<Stamp> {
    let nonce = NonZeroU64::new(nonce).unwrap();
    Some(Stamp { nonce, sequence })
}

fn raised() -> Tree {
    tree_at(FormatLevel::Attachments)
}

fn apply(
    tree: &mut Tree,
    session: i64,
    stamp: Option<Stamp>,
    command: Command<'_>,
) -> Result<Outcome, Unapplied> {
    let item = BatchItem {
        session,
        cxid: 0,
        identity: Some(0),
        stores_identity: false,
        stamp,
        command,
    };
    tree.apply_item(1_000, &item, &Identity::anonymous(), &mut ())
}

fn open(tree: &mut Tree, session_id: i64, nonce: u64) {
    let open = Command::OpenSession {
        session_id,
        password: password(session_id),
        timeout_ms: 10_000,
    };
    let opened = apply(tree, session_id, stamp(nonce, 0), open).unwrap();
    assert_eq!(opened.result, Ok(Response::Empty));
}

fn reattach(tree: &mut Tree, session_id: i64, password: [u8; 16], nonce: u64) -> Outcome {
    let reattach = Command::ReattachSession {
        session_id,
        password,
        timeout_ms: 10_000,
    };
    apply(tree, session_id, stamp(nonce, 0), reattach).unwrap()
}

/// A sequential create below `/`, whose effect shows in the count of children.
fn create(
    tree: &mut Tree,
    session: i64,
    nonce: u64,
    sequence: u64,
) -> Result<Result<String, ErrorCode>, Unapplied> {
    let mode = CreateMode::PersistentSequential;
    let request = Request::Create(Create::new("/n-", None, vec![Acl::open_unsafe()], mode));
    let mut body = Vec::new();
    request.encode(&mut body);
    let op = request.op();
    let write = Command::Write { op, body: &body };
    let outcome = apply(tree, session, stamp(nonce, sequence), write)?;
    Ok(outcome.result.map(|response| match response {
        Response::PathStat(path, _) => path,
        other => panic!("a create answered {other:?}"),
    }))
}

fn info(tree: &Tree) -> SessionInfo {
    tree.session(SESSION).unwrap()
}

/// Everything that a refused command must leave as it is.
fn state(tree: &Tree) -> (Vec<String>, u64) {
    (dump(tree), tree.digest())
}

#[test]
fn r27_a_command_that_is_sent_again_is_applied_once() {
    let mut tree = raised();
    open(&mut tree, SESSION, 5);
    create(&mut tree, SESSION, 5, 1).unwrap().unwrap();
    create(&mut tree, SESSION, 5, 2).unwrap().unwrap();
    let before = state(&tree);
    for sequence in [2, 1, 0] {
        let again = create(&mut tree, SESSION, 5, sequence);
        assert_eq!(again, Err(Unapplied::Duplicate));
        assert_eq!(state(&tree), before, "no effect and no zxid");
    }
    let next = create(&mut tree, SESSION, 5, 3).unwrap();
    assert_eq!(next.unwrap(), "/n-0000000002");
}

/// A failed write has been applied too: it took its zxid and was answered.
#[test]
fn r27_a_write_that_failed_is_not_tried_again_either() {
    let mut tree = raised();
    open(&mut tree, SESSION, 5);
    let mut delete = |sequence| {
        let mut body = Vec::new();
        let (path, version) = ("/nothing", -1);
        Request::Delete { path, version }.encode(&mut body);
        let op = OpCode::Delete;
        let write = Command::Write { op, body: &body };
        apply(&mut tree, SESSION, stamp(5, sequence), write).map(|outcome| outcome.result)
    };
    assert_eq!(delete(1), Ok(Err(ErrorCode::NoNode)));
    assert_eq!(delete(1), Err(Unapplied::Duplicate));
    assert_eq!(delete(2), Ok(Err(ErrorCode::NoNode)));
}

#[test]
fn r28_a_gap_refuses_what_comes_behind_it() {
    let mut tree = raised();
    open(&mut tree, SESSION, 5);
    create(&mut tree, SESSION, 5, 1).unwrap().unwrap();
    let zxid = tree.zxid();
    let gap = create(&mut tree, SESSION, 5, 3);
    assert_eq!(gap, Err(Unapplied::AfterGap));
    assert!(info(&tree).is_broken);
    // Nor what was missing, should it come late: the client has no answer to what followed it.
    for sequence in [2, 3, 4] {
        let later = create(&mut tree, SESSION, 5, sequence);
        assert_eq!(later, Err(Unapplied::AfterGap));
    }
    let again = create(&mut tree, SESSION, 5, 1);
    assert_eq!(again, Err(Unapplied::Duplicate));
    assert_eq!(tree.zxid(), zxid);
    let close = Command::CloseSession {
        session_id: SESSION,
        reason: CloseReason::Client,
    };
    let closed = apply(&mut tree, SESSION, stamp(5, 4), close);
    assert_eq!(closed, Err(Unapplied::AfterGap));

    // A client that comes back through another connection goes on.
    reattach(&mut tree, SESSION, password(SESSION), 6);
    assert!(!info(&tree).is_broken);
    let next = create(&mut tree, SESSION, 6, 1).unwrap();
    assert_eq!(next.unwrap(), "/n-0000000001");
}

#[test]
fn r29_what_the_old_connection_sent_is_refused_once_the_session_has_moved() {
    let mut tree = raised();
    open(&mut tree, SESSION, 5);
    create(&mut tree, SESSION, 5, 1).unwrap().unwrap();
    let wrong = reattach(&mut tree, SESSION, [0; 16], 6).result;
    assert_eq!(wrong, Err(ErrorCode::SessionExpired));
    create(&mut tree, SESSION, 5, 2).unwrap().unwrap();
    reattach(&mut tree, SESSION, password(SESSION), 6);
    let before = state(&tree);
    for (nonce, sequence) in [(5, 3), (5, 1), (7, 1)] {
        let old = create(&mut tree, SESSION, nonce, sequence);
        assert_eq!(old, Err(Unapplied::SessionMoved));
    }
    let close = |reason| Command::CloseSession {
        session_id: SESSION,
        reason,
    };
    let old = apply(&mut tree, SESSION, stamp(5, 3), close(CloseReason::Client));
    assert_eq!(old, Err(Unapplied::SessionMoved));
    assert_eq!(state(&tree), before, "no effect and no zxid");
    create(&mut tree, SESSION, 6, 1).unwrap().unwrap();
    // The server itself needs no attachment.
    let expired = apply(&mut tree, SESSION, None, close(CloseReason::Expired)).unwrap();
    assert_eq!(expired.result, Ok(Response::Empty));
    let late = create(&mut tree, SESSION, 6, 2).unwrap();
    assert_eq!(late, Err(ErrorCode::SessionExpired), "as without a stamp");
}

/// One that attached before the level was raised goes on until its client comes back.
#[test]
fn r29_a_connection_without_a_nonce_writes_until_another_one_has_the_session() {
    for level in [
        FormatLevel::Initial,
        FormatLevel::Attachments,
        FormatLevel::Members,
        FormatLevel::BoundSessions,
        FormatLevel::BoundedCommands,
    ] {
        let mut tree = tree_at(level);
        let open = Command::OpenSession {
            session_id: SESSION,
            password: password(SESSION),
            timeout_ms: 10_000,
        };
        apply(&mut tree, SESSION, None, open)
            .unwrap()
            .result
            .unwrap();
        let unstamped = |tree: &mut Tree| {
            let (path, version, data) = ("/", -1, None);
            let mut body = Vec::new();
            let request = Request::SetData {
                path,
                data,
                version,
            };
            request.encode(&mut body);
            let op = OpCode::SetData;
            let write = Command::Write { op, body: &body };
            apply(tree, SESSION, None, write).map(|outcome| outcome.result.is_ok())
        };
        assert_eq!(unstamped(&mut tree), Ok(true));
        let stamped = create(&mut tree, SESSION, 5, 7);
        reattach(&mut tree, SESSION, password(SESSION), 6);
        match level {
            FormatLevel::Initial => {
                assert!(stamped.unwrap().is_ok(), "stamps are not stored yet");
                assert_eq!((info(&tree).nonce, unstamped(&mut tree)), (0, Ok(true)));
            }
            _ => {
                assert_eq!(stamped, Err(Unapplied::SessionMoved));
                assert_eq!(unstamped(&mut tree), Err(Unapplied::SessionMoved));
                create(&mut tree, SESSION, 6, 1).unwrap().unwrap();
            }
        }
    }
}

#[test]
fn r39_time_never_goes_back_from_level_2_on() {
    for (level, expected) in [
        (FormatLevel::Initial, [1_000, 500, 400]),
        (FormatLevel::Attachments, [1_000, 1_000, 1_000]),
    ] {
        let mut driver = Driver::over(tree_at(level));
        for (path, time_ms, expected) in [("/a", 1_000, expected[0]), ("/b", 500, expected[1])] {
            driver.time_ms = time_ms;
            driver.create(path, CreateMode::Persistent).unwrap();
            assert_eq!(driver.stat(path).ctime, expected);
        }
        // A replica that starts from a snapshot has the same time as one that applied all.
        driver.tree.begin_snapshot().unwrap();
        let mut restored = restore(&drain(&mut driver.tree, MAX_CHUNK_BYTES)).unwrap();
        std::mem::swap(&mut driver.tree, &mut restored);
        driver.time_ms = 400;
        driver.create("/c", CreateMode::Persistent).unwrap();
        assert_eq!(driver.stat("/c").ctime, expected[2]);
    }
}

#[test]
fn r39_replicas_whose_clocks_were_apart_are_alike() {
    let mut one = Driver::over(raised());
    let mut two = Driver::over(raised());
    for driver in [&mut one, &mut two] {
        driver.time_ms = 5_000;
        driver.create("/a", CreateMode::Persistent).unwrap();
    }
    assert_eq!(one.tree.digest(), two.tree.digest());
    // Time is state: who differs in it alone would differ in the next ctime.
    let nothing = Command::SetLevel(FormatLevel::NEWEST);
    one.time_ms = 6_000;
    one.apply(0, nothing);
    assert_ne!(one.tree.digest(), two.tree.digest());
    two.time_ms = 6_000;
    two.apply(0, nothing);
    assert_eq!(one.tree.digest(), two.tree.digest());
}

#[test]
fn r39_the_level_is_raised_and_never_lowered_and_takes_no_zxid() {
    let mut driver = Driver::new();
    driver.create("/e", CreateMode::Ephemeral).unwrap();
    assert_eq!(driver.tree.level(), FormatLevel::Initial);
    let zxid = driver.tree.zxid();
    let before = driver.tree.digest();
    for (level, allowed) in [
        (FormatLevel::Initial, true),
        (FormatLevel::Attachments, true),
        (FormatLevel::Attachments, true),
        (FormatLevel::Initial, false),
        (FormatLevel::Members, true),
        (FormatLevel::Attachments, false),
    ] {
        let outcome = driver.apply(0, Command::SetLevel(level));
        let refused = Err(ErrorCode::BadArguments);
        let expected = if allowed {
            Ok(Response::Empty)
        } else {
            refused
        };
        assert_eq!((outcome.result, outcome.zxid), (expected, zxid));
    }
    assert_eq!(driver.tree.level(), FormatLevel::Members);
    assert_ne!(driver.tree.digest(), before, "the level is state");
    driver.tree.begin_snapshot().unwrap();
    let restored = restore(&drain(&mut driver.tree, MAX_CHUNK_BYTES)).unwrap();
    assert_eq!(restored.level(), FormatLevel::Members);
    assert_eq!(dump(&restored), dump(&driver.tree));
}

#[test]
fn r39_an_unknown_level_is_refused_before_anything_is_applied() {
    let newer = FormatLevel::NEWEST.number() + 1;
    let mut builder = BatchBuilder::new(FormatLevel::NEWEST, 0);
    builder.push(
        0,
        Command::DeleteContainer {
            path: "/c",
            czxid: 3,
        },
    );
    builder.push(0, Command::SetLevel(FormatLevel::NEWEST));
    let mut payload = builder.finish().to_vec();
    *payload.last_mut().unwrap() = newer as u8;
    let error = Batch::decode(&payload).unwrap_err();
    assert_eq!(error, BatchError::UnknownLevel(newer));
    assert!(error.to_string().contains("start a newer version"));

    let mut tree = raised();
    tree.begin_snapshot().unwrap();
    let mut chunks = drain(&mut tree, MAX_CHUNK_BYTES);
    // The level and the time of an empty tree are the last bytes of the head.
    let level = chunks[0].len() - 2;
    assert_eq!(chunks[0][level], 2);
    chunks[0][level] = newer as u8;
    let error = restore(&chunks).unwrap_err();
    assert_eq!(error, RestoreError::UnknownLevel(newer));
    assert!(error.to_string().contains("start a newer version"));
    chunks[0][level] = 1;
    let broken = matches!(restore(&chunks), Err(RestoreError::Broken { chunk: 0, .. }));
    assert!(broken, "content format 2 is not that of level 1");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Batches on disks have to be readable for ever: a change here needs a new version, and a reader
/// of all.
#[test]
fn the_bytes_of_snapshot_version_2_stay_as_they_are() {
    let mut tree = raised();
    open(&mut tree, SESSION, 0x1112_1314_1516_1718);
    for sequence in [1, 2, 4] {
        let _ = create(&mut tree, SESSION, 0x1112_1314_1516_1718, sequence);
    }
    open(&mut tree, SESSION + 1, 9);
    let unattached = Command::OpenSession {
        session_id: SESSION + 2,
        password: [7; 16],
        timeout_ms: 10_000,
    };
    apply(&mut tree, SESSION + 2, None, unattached).unwrap();
    tree.begin_snapshot().unwrap();
    let chunks = drain(&mut tree, MAX_CHUNK_BYTES);
    let expected_head = "01020a06060316d95393bb1b6ddc02d00f";
    let expected_sessions = concat!(
        "02",
        "010000000000000103000000000000030000000000000000a09c01",
        "18171615141312110201",
        "020000000000000106000000000000030000000000000000a09c01",
        "09000000000000000000",
        "030000000000000107070707070707070707070707070707a09c01",
        "00000000000000000000",
    );
    assert_eq!(hex(&chunks[0]), expected_head);
    assert_eq!(hex(&chunks[1]), expected_sessions);
    assert_eq!(dump(&restore(&chunks).unwrap()), dump(&tree));
}

/// A snapshot as the version before this one wrote it.
#[test]
fn a_snapshot_of_version_1_is_restored_at_level_1() {
    let chunks = [
        "010108060601b09361eac9af5797",
        "02010000000000000103000000000000030000000000000000a09c01",
        "0301010205776f726c6406616e796f6e65",
        concat!(
            "04",
            "00002100000000000000010201",
            "0001097a6f6f6b65657065720000000001000",
            "201010571756f7461000000000200",
            "03011506636f6e66696700000000030001",
            "0104002b01630202d00fd00f0004646174610000000000000080020101",
            "05040301650300a01f00000178",
            "0100000000000001",
        ),
        "05",
    ];
    let chunks: Vec<Vec<u8>> = chunks
        .iter()
        .map(|chunk| {
            let digits = chunk.as_bytes().chunks(2);
            let byte =
                |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            digits.map(byte).collect()
        })
        .collect();
    let tree = restore(&chunks).unwrap();
    assert_eq!(tree.level(), FormatLevel::Initial);
    assert_eq!(info(&tree).nonce, 0);
    assert_eq!(tree.ephemerals(SESSION, ""), ["/c/e"]);
}

/// Possible commands of one session: with which nonce, and which number.
#[derive(Debug, Clone)]
enum Event {
    Attach(u64),
    Write(u64, u64),
    /// The next one of the present attachment.
    Next,
    Expire,
    Open(u64),
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (1..4_u64).prop_map(Event::Attach),
        6 => (1..4_u64, 0..6_u64).prop_map(|(nonce, sequence)| Event::Write(nonce, sequence)),
        10 => Just(Event::Next),
        1 => Just(Event::Expire),
        2 => (1..4_u64).prop_map(Event::Open),
        2 => Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(cases(400))]

    /// The rule in a few lines, held against the tree: what is applied is, in each attachment, 1,
    /// 2, 3, … up to the first gap, each once.
    #[test]
    fn r27_r28_r29_whatever_comes_each_command_is_applied_once_and_in_order(
        events in vec(event(), 0..60),
    ) {
        let mut tree = raised();
        open(&mut tree, SESSION, 1);
        let mut present = Some((1, 0, false));
        let mut applied = 0;
        for event in events {
            let zxid = tree.zxid();
            match event {
                Event::Attach(nonce) => {
                    let outcome = reattach(&mut tree, SESSION, password(SESSION), nonce);
                    prop_assert_eq!(outcome.result.is_ok(), present.is_some());
                    present = present.map(|_| (nonce, 0, false));
                }
                Event::Open(nonce) if present.is_none() => {
                    open(&mut tree, SESSION, nonce);
                    present = Some((nonce, 0, false));
                }
                Event::Open(_) => {}
                Event::Expire => {
                    let command = Command::CloseSession {
                        session_id: SESSION,
                        reason: CloseReason::Expired,
                    };
                    let outcome = apply(&mut tree, 0, None, command).unwrap();
                    prop_assert_eq!(outcome.result.is_ok(), present.take().is_some());
                }
                Event::Restart => {
                    tree.begin_snapshot().unwrap();
                    let digest = tree.digest();
                    tree = restore(&drain(&mut tree, MAX_CHUNK_BYTES)).unwrap();
                    prop_assert_eq!(tree.digest(), digest);
                }
                Event::Write(..) | Event::Next => {
                    let (nonce, sequence) = match (event, present) {
                        (Event::Write(nonce, sequence), _) => (nonce, sequence),
                        (_, Some((nonce, last, _))) => (nonce, last + 1),
                        _ => (1, 1),
                    };
                    let outcome = create(&mut tree, SESSION, nonce, sequence);
                    let Some((current, last, broken)) = &mut present else {
                        prop_assert_eq!(outcome, Ok(Err(ErrorCode::SessionExpired)));
                        continue;
                    };
                    let is_next = nonce == *current && !*broken && sequence == *last + 1;
                    prop_assert_eq!(outcome.is_ok(), is_next);
                    prop_assert_eq!(tree.zxid(), zxid + i64::from(is_next));
                    if is_next {
                        *last += 1;
                        applied += 1;
                    } else if nonce == *current && sequence > *last {
                        *broken = true;
                    }
                }
            }
            let found = tree.session(SESSION).map(|info| (info.nonce, info.last_sequence, info.is_broken));
            prop_assert_eq!(found, present);
        }
        let names = tree.get_children("/", &Identity::anonymous()).unwrap().0;
        prop_assert_eq!(names.filter(|name| name.starts_with("n-")).count(), applied);
    }
}

fn identity(ids: &[(&str, &str)]) -> Identity {
    let mut identity = Identity::anonymous();
    for (scheme, id) in ids {
        identity.add(*scheme, *id);
    }
    identity
}

/// Applies a command of a connection that has proved this.
fn apply_as(tree: &mut Tree, ids: &[(&str, &str)], command: Command<'_>) -> Outcome {
    tree.apply(1_000, SESSION, &identity(ids), command, &mut ())
}

fn opening() -> Command<'static> {
    Command::OpenSession {
        session_id: SESSION,
        password: password(SESSION),
        timeout_ms: 10_000,
    }
}

/// Returns whether a connection that has proved this can take the session over.
fn admits(tree: &mut Tree, ids: &[(&str, &str)]) -> bool {
    let wrong = Command::ReattachSession {
        session_id: SESSION,
        password: [0; 16],
        timeout_ms: 10_000,
    };
    assert!(apply_as(tree, ids, wrong).result.is_err());
    let right = Command::ReattachSession {
        session_id: SESSION,
        password: password(SESSION),
        timeout_ms: 10_000,
    };
    let admitted = tree.admits(SESSION, &password(SESSION), &identity(ids));
    let outcome = apply_as(tree, ids, right);
    assert_eq!(outcome.result.is_ok(), admitted.unwrap());
    outcome.result.is_ok()
}

/// The command that the server logs when a client has proved who it is by SASL.
fn sasl(tree: &mut Tree, ids: &[(&str, &str)]) -> Outcome {
    let mut body = Vec::new();
    let token = Some(&b"rspauth"[..]);
    Request::Sasl { token }.encode(&mut body);
    let op = OpCode::Sasl;
    apply_as(tree, ids, Command::Write { op, body: &body })
}

const ALICE: (&str, &str) = ("x509", "CN=alice");
const BOB: (&str, &str) = ("sasl", "bob");
const HOST: (&str, &str) = ("ip", "10.0.0.1");

#[test]
fn a19_a_session_is_bound_to_the_certificate_that_opened_it_from_level_4_on() {
    for level in [FormatLevel::Members, FormatLevel::BoundSessions] {
        let binds = level == FormatLevel::BoundSessions;
        let mut tree = tree_at(level);
        apply_as(&mut tree, &[HOST, ALICE], opening())
            .result
            .unwrap();
        assert_eq!(admits(&mut tree, &[HOST]), !binds);
        assert_eq!(admits(&mut tree, &[("x509", "CN=alic")]), !binds);
        assert_eq!(admits(&mut tree, &[("digest", "CN=alice")]), !binds);
        assert!(
            admits(&mut tree, &[BOB, ALICE]),
            "from another address, too"
        );
        assert_eq!(tree.bound_to(SESSION).len(), usize::from(binds));
    }
    // A session of before stays as it was.
    let mut tree = tree_at(FormatLevel::Members);
    apply_as(&mut tree, &[ALICE], opening()).result.unwrap();
    apply_as(
        &mut tree,
        &[],
        Command::SetLevel(FormatLevel::BoundSessions),
    );
    assert!(admits(&mut tree, &[HOST]));
    // Who takes it over binds it to nothing.
    assert!(admits(&mut tree, &[("x509", "CN=eve")]));
    assert!(admits(&mut tree, &[HOST]));
}

#[test]
fn a19_what_sasl_proves_binds_the_session_once_and_takes_no_zxid() {
    let mut tree = tree_at(FormatLevel::BoundSessions);
    apply_as(&mut tree, &[HOST], opening()).result.unwrap();
    let (zxid, before) = (tree.zxid(), tree.digest());
    let answer = sasl(&mut tree, &[HOST, BOB]);
    assert_eq!(
        answer.result,
        Ok(Response::Sasl(Some(b"rspauth"[..].into())))
    );
    assert_eq!((answer.zxid, tree.zxid()), (zxid, zxid));
    assert_ne!(tree.digest(), before);
    let bound = tree.digest();
    sasl(&mut tree, &[HOST, BOB, ("sasl", "eve")])
        .result
        .unwrap();
    assert_eq!(tree.digest(), bound);
    let [owner] = tree.bound_to(SESSION) else {
        panic!("one");
    };
    assert_eq!((owner.scheme.as_str(), owner.id.as_str()), BOB);
    // It comes after the attachment, so that does not ask for it.
    assert!(admits(&mut tree, &[HOST]));
    // A replica that begins with a snapshot knows it, too.
    tree.begin_snapshot().unwrap();
    let restored = restore(&drain(&mut tree, MAX_CHUNK_BYTES)).unwrap();
    assert_eq!(restored.bound_to(SESSION), tree.bound_to(SESSION));
    assert_eq!(restored.digest(), tree.digest());
    // Earlier levels know no such command.
    let mut tree = raised();
    apply_as(&mut tree, &[HOST], opening()).result.unwrap();
    let zxid = tree.zxid();
    let refused = sasl(&mut tree, &[HOST, BOB]);
    assert_eq!(refused.result, Err(ErrorCode::Unimplemented));
    assert_eq!(tree.zxid(), zxid + 1);
    assert_eq!(tree.bound_to(SESSION), []);
}

#[test]
fn the_bytes_of_snapshot_version_3_stay_as_they_are() {
    let mut tree = tree_at(FormatLevel::BoundSessions);
    apply_as(&mut tree, &[HOST, ALICE], opening())
        .result
        .unwrap();
    sasl(&mut tree, &[HOST, ALICE, BOB]).result.unwrap();
    open(&mut tree, SESSION + 1, 9);
    tree.begin_snapshot().unwrap();
    let chunks = drain(&mut tree, MAX_CHUNK_BYTES);
    let expected_head = "0103040404025d1ca14ce826a89504d00f";
    let expected_sessions = concat!(
        "02",
        "010000000000000103000000000000030000000000000000a09c01",
        "00000000000000000000",
        "02047835303908434e3d616c696365",
        "047361736c03626f62",
        "020000000000000106000000000000030000000000000000a09c01",
        "0900000000000000000000",
    );
    assert_eq!(hex(&chunks[0]), expected_head);
    assert_eq!(hex(&chunks[1]), expected_sessions);
    assert_eq!(dump(&restore(&chunks).unwrap()), dump(&tree));
}

/// A create of a znode of which its creator may do everything, and nobody else anything.
fn create_as(
    tree: &mut Tree,
    path: &str,
    sequence: u64,
    nonce: u64,
    (identity, stores_identity): (Option<&Identity>, bool),
) -> Result<bool, Unapplied> {
    let request = Request::Create(Create::new(
        path,
        None,
        vec![Acl::creator_all()],
        CreateMode::Persistent,
    ));
    let mut body = Vec::new();
    request.encode(&mut body);
    let item = BatchItem {
        session: SESSION,
        cxid: 0,
        identity: identity.map(|_| 0),
        stores_identity,
        stamp: Some(Stamp {
            nonce: NonZeroU64::new(nonce).unwrap(),
            sequence,
        }),
        command: Command::Write {
            op: request.op(),
            body: &body,
        },
    };
    let nobody = Identity::anonymous();
    let outcome = tree.apply_item(1_000, &item, identity.unwrap_or(&nobody), &mut ())?;
    Ok(outcome.result.is_ok())
}

#[test]
fn a_stored_identity_is_that_of_one_attachment_and_survives_a_snapshot() {
    let mut tree = tree_at(FormatLevel::SessionIdentities);
    open(&mut tree, SESSION, 5);
    let mut ann = Identity::anonymous();
    ann.add("digest", "ann:a");
    assert_eq!(
        create_as(&mut tree, "/secret", 1, 5, (Some(&ann), false)),
        Ok(true)
    );
    let referring = (None, false);
    assert_eq!(
        create_as(&mut tree, "/secret/a", 2, 5, referring),
        Ok(false),
        "nothing is stored yet"
    );
    let before = tree.digest();
    let storing = (Some(&ann), true);
    assert_eq!(create_as(&mut tree, "/secret/a", 3, 5, storing), Ok(true));
    assert_ne!(tree.digest(), before);
    // What was lost has stored nothing, and what refers to it is not applied.
    let mut after_gap = tree_at(FormatLevel::SessionIdentities);
    open(&mut after_gap, SESSION, 5);
    let gap = create_as(&mut after_gap, "/secret", 2, 5, referring);
    assert_eq!(gap, Err(Unapplied::AfterGap));

    tree.begin_snapshot().unwrap();
    let mut restored = restore(&drain(&mut tree, MAX_CHUNK_BYTES)).unwrap();
    for tree in [&mut tree, &mut restored] {
        assert_eq!(create_as(tree, "/secret/b", 4, 5, referring), Ok(true));
        let twice = create_as(tree, "/secret/c", 4, 5, referring);
        assert_eq!(twice, Err(Unapplied::Duplicate));
        reattach(tree, SESSION, password(SESSION), 6);
        let moved = create_as(tree, "/secret/c", 5, 5, referring);
        assert_eq!(moved, Err(Unapplied::SessionMoved));
        assert_eq!(create_as(tree, "/secret/c", 1, 6, referring), Ok(false));
    }
    assert_eq!(restored.digest(), tree.digest());
}

#[test]
fn a_client_of_no_name_stores_nothing() {
    let mut tree = tree_at(FormatLevel::SessionIdentities);
    open(&mut tree, SESSION, 5);
    let nobody = Identity::anonymous();
    let stored = create_as(&mut tree, "/secret", 1, 5, (Some(&nobody), true));
    assert_eq!(stored, Ok(false));
    tree.begin_snapshot().unwrap();
    let restored = restore(&drain(&mut tree, MAX_CHUNK_BYTES)).unwrap();
    assert_eq!(restored.digest(), tree.digest());
}

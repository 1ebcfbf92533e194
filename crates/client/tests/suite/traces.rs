//! The trace that a write belongs to: who is sent it, and who is not.

use std::cell::Cell;
use std::sync::Once;

use baton_client::{CreateMode, Session, TraceContext, set_trace_source};
use baton_proto::{Decoder, Limits, OpCode, RequestHeader, Response, Stat};
use bytes::Bytes;

use crate::support::{FakeServers, Peer, ReceivedRequest, SESSION, settle};

const TRACE: TraceContext = TraceContext {
    trace_id: [1; 16],
    span_id: [2; 8],
    flags: 1,
};

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// Traces of this thread, on which all tasks of a test run.
fn source() -> Option<TraceContext> {
    CURRENT.get()
}

fn begin_trace() {
    static SET: Once = Once::new();
    SET.call_once(|| set_trace_source(source).unwrap());
    CURRENT.set(Some(TRACE));
}

/// A frame, which may be none that a stock server knows.
async fn next(peer: &mut Peer) -> (i32, Bytes) {
    let frame = peer.frame().await.expect("the client is there");
    let header = RequestHeader::decode(&mut Decoder::new(&frame, &Limits::default())).unwrap();
    (header.op, frame.slice(RequestHeader::BYTES..))
}

/// Answers the client's probe: the server says this of itself.
async fn describe(peer: &mut Peer, data: &'static [u8]) {
    let probe = peer.any().await.unwrap();
    assert_eq!(probe.op, OpCode::GetData);
    let data = Some(Bytes::from_static(data));
    let stat = Stat::default();
    peer.ok(&probe, Some(Response::Data { data, stat })).await;
}

/// Submits a write and a read behind it, and waits until the server has described itself.
async fn ask(session: &Session) {
    session.exists("/described").await.unwrap();
    drop(session.create("/write", b"", CreateMode::Persistent));
    drop(session.exists("/read"));
}

/// Answers reads until the write comes, or what precedes it.
async fn answer_exists(peer: &mut Peer) {
    let asked: ReceivedRequest = peer.any().await.unwrap();
    assert_eq!(asked.op, OpCode::Exists);
    peer.ok(&asked, Some(Response::Stat(Stat::default()))).await;
}

const TRACED: &[u8] = b"{\"version\":\"1\",\"ping_lease\":true,\"traces\":true}";
const UNTRACED: &[u8] = b"{\"version\":\"1\",\"ping_lease\":true}";

#[tokio::test(start_paused = true)]
async fn a_write_names_its_trace_to_a_server_that_records_traces_and_a_read_does_not() {
    begin_trace();
    let mut world = FakeServers::new();
    let (session, mut peer) = world.session().await;
    describe(&mut peer, TRACED).await;
    tokio::join!(ask(&session), answer_exists(&mut peer));
    let (op, body) = next(&mut peer).await;
    assert_eq!(op, TraceContext::OP);
    assert_eq!(TraceContext::decode(&body), Some(TRACE));
    assert_eq!(next(&mut peer).await.0, OpCode::Create2 as i32);
    assert_eq!(next(&mut peer).await.0, OpCode::Exists as i32);
    // What is not recorded is not named.
    CURRENT.set(None);
    drop(session.delete("/write", None));
    assert_eq!(next(&mut peer).await.0, OpCode::Delete as i32);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_record_traces_gets_what_it_got_before() {
    begin_trace();
    let mut world = FakeServers::new();
    let (session, mut peer) = world.session().await;
    describe(&mut peer, UNTRACED).await;
    tokio::join!(ask(&session), answer_exists(&mut peer));
    assert_eq!(next(&mut peer).await.0, OpCode::Create2 as i32);
    assert_eq!(next(&mut peer).await.0, OpCode::Exists as i32);
}

/// On Apache ZooKeeper any client may make a znode there: the frame would end the connection at
/// each write.
#[tokio::test(start_paused = true)]
async fn a_znode_that_somebody_has_made_asks_for_no_traces() {
    begin_trace();
    let mut world = FakeServers::new();
    let (session, mut peer) = world.session().await;
    let probe = peer.any().await.unwrap();
    let data = Some(Bytes::from_static(TRACED));
    let stat = Stat {
        czxid: 7,
        mzxid: 7,
        ..Stat::default()
    };
    peer.ok(&probe, Some(Response::Data { data, stat })).await;
    tokio::join!(ask(&session), answer_exists(&mut peer));
    assert_eq!(next(&mut peer).await.0, OpCode::Create2 as i32);
    assert_eq!(next(&mut peer).await.0, OpCode::Exists as i32);
}

/// The write was not sent when the connection broke: it goes to the next server, whole and alone.
#[tokio::test(start_paused = true)]
async fn h02_the_next_server_is_asked_again_and_a_write_that_waited_is_sent_without_its_trace() {
    begin_trace();
    let mut world = FakeServers::with_buffer(64);
    let (session, mut peer) = world.session().await;
    describe(&mut peer, TRACED).await;
    tokio::join!(ask(&session), answer_exists(&mut peer));
    // Of what was submitted, 64 bytes fit: the trace, and not all of the write.
    let (op, _) = next(&mut peer).await;
    assert_eq!(op, TraceContext::OP);
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    describe(&mut peer, UNTRACED).await;
    let (op, body) = next(&mut peer).await;
    assert_eq!(op, OpCode::Create2 as i32);
    let limits = Limits::default();
    let request = baton_proto::Request::decode(OpCode::Create2, &body, &limits).unwrap();
    assert_eq!(request.path(), Some("/write"));
    assert_eq!(next(&mut peer).await.0, OpCode::Exists as i32);
}

/// The description of the server before says nothing of this one.
#[tokio::test(start_paused = true)]
async fn h02_a_write_names_no_trace_until_the_next_server_has_described_itself() {
    begin_trace();
    let mut world = FakeServers::new();
    let (session, mut peer) = world.session().await;
    describe(&mut peer, TRACED).await;
    tokio::join!(ask(&session), answer_exists(&mut peer));
    drop(peer);
    let mut peer = world.accept(SESSION).await;
    let probe = peer.any().await.unwrap();
    assert_eq!(probe.op, OpCode::GetData);
    settle().await;
    drop(session.create("/early", b"", CreateMode::Persistent));
    let mut came = Vec::new();
    for _ in 0..4 {
        came.push(next(&mut peer).await.0);
    }
    assert!(!came.contains(&TraceContext::OP), "{came:?}");
    assert!(came.contains(&(OpCode::Create2 as i32)), "{came:?}");
}

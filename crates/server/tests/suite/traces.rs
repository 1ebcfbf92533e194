//! Traced writes: what a server shows of them, and what clients cannot do with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};

use baton_proto::{ErrorCode, OpCode, Request, TraceContext, frame};
use baton_server::{Server, TracedWrite, TracerCounts, WriteStep, WriteTracer};

use crate::support::ensemble::Ensemble;
use crate::support::{PATIENCE, Wire, create, decode, in_memory, set};

/// Keeps what it is shown.
#[derive(Debug, Default)]
struct Recorder {
    shown: Mutex<Vec<TracedWrite>>,
    came: Condvar,
}

impl WriteTracer for Recorder {
    fn answered(&self, write: TracedWrite) {
        self.shown.lock().unwrap().push(write);
        self.came.notify_all();
    }

    fn counts(&self) -> TracerCounts {
        TracerCounts {
            exported: 5,
            dropped: 6,
            failed: 7,
        }
    }
}

impl Recorder {
    /// Returns at least this many traced writes: the answer to a client may come first.
    fn take(&self, count: usize) -> Vec<TracedWrite> {
        let shown = self.shown.lock().unwrap();
        let waits = |shown: &mut Vec<TracedWrite>| shown.len() < count;
        let waited = self.came.wait_timeout_while(shown, PATIENCE, waits);
        std::mem::take(&mut waited.unwrap().0)
    }

    fn steps(write: &TracedWrite) -> Vec<WriteStep> {
        write.steps.iter().map(|(step, _)| *step).collect()
    }
}

fn context(id: u8) -> TraceContext {
    TraceContext {
        trace_id: [id; 16],
        span_id: [id; 8],
        flags: 1,
    }
}

/// Sends the trace and the request in one write, and awaits the answer.
async fn traced(
    wire: &mut Wire,
    trace: TraceContext,
    request: Request<'_>,
) -> Result<(), ErrorCode> {
    let mut bytes = Vec::new();
    frame::write_trace_context(&mut bytes, &trace);
    wire.send_bytes(&bytes).await;
    wire.call(request).await.map(drop)
}

async fn server() -> (Server, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let tracer = Arc::clone(&recorder);
    let server = in_memory().with(|options| options.tracer = Some(tracer));
    (server.start().await.unwrap(), recorder)
}

#[tokio::test]
async fn a_server_shows_its_share_of_the_writes_that_a_client_traces_and_of_no_others() {
    let (server, recorder) = server().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let shown = wire.get("/zookeeper/baton").await.unwrap();
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.ends_with(",\"traces\":true}"), "{shown}");

    wire.create("/untraced", b"", 0).await.unwrap();
    traced(&mut wire, context(1), create("/traced", b"secret", 0))
        .await
        .unwrap();
    // A trace is that of one request.
    wire.create("/after", b"", 0).await.unwrap();
    let refused = traced(&mut wire, context(2), create("/traced", b"", 0)).await;
    assert_eq!(refused, Err(ErrorCode::NodeExists));
    // A read behind the frame uses it up.
    let mut bytes = Vec::new();
    frame::write_trace_context(&mut bytes, &context(3));
    wire.send_bytes(&bytes).await;
    assert!(wire.exists("/traced").await);
    wire.call(set("/traced", b"secret")).await.unwrap();

    let shown = recorder.take(2);
    assert_eq!(shown.len(), 2, "{shown:#?}");
    let [first, second] = &shown[..] else {
        unreachable!()
    };
    assert_eq!((first.context, second.context), (context(1), context(2)));
    assert_eq!(
        (first.op, first.path.as_deref()),
        (OpCode::Create, Some("/traced"))
    );
    assert_eq!(first.session, wire.session.session_id);
    assert_eq!(
        (first.code, second.code),
        (ErrorCode::Ok, ErrorCode::NodeExists)
    );
    assert_eq!(second.zxid, first.zxid + 2);
    assert_eq!(second.xid, first.xid + 2);
    for write in &shown {
        use WriteStep::{Batched, Committed, Synced};
        assert_eq!(Recorder::steps(write), [Batched, Synced, Committed]);
        let times = write.steps.iter().map(|(_, at)| *at);
        let times = [write.received].into_iter().chain(times);
        let times: Vec<_> = times.chain([write.answered]).collect();
        assert!(times.is_sorted(), "{write:?}");
        assert!(!format!("{write:?}").contains("secret"));
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a29_what_is_no_trace_and_what_is_not_sampled_is_passed_over() {
    let (server, recorder) = server().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let unsampled = TraceContext {
        flags: 0,
        ..context(1)
    };
    traced(&mut wire, unsampled, create("/a", b"", 0))
        .await
        .unwrap();
    let nothing = TraceContext {
        trace_id: [0; 16],
        ..context(1)
    };
    traced(&mut wire, nothing, create("/b", b"", 0))
        .await
        .unwrap();
    let mut short = Vec::new();
    frame::write_trace_context(&mut short, &context(1));
    short.truncate(short.len() - 1);
    let length = u32::try_from(short.len() - frame::LENGTH_BYTES).unwrap();
    short[..4].copy_from_slice(&length.to_be_bytes());
    wire.send_bytes(&short).await;
    wire.create("/c", b"", 0).await.unwrap();
    // A thousand of them are one: the last.
    let mut many = Vec::new();
    for id in 0..1000 {
        frame::write_trace_context(&mut many, &context(u8::try_from(id % 200).unwrap() + 1));
    }
    wire.send_bytes(&many).await;
    wire.create("/d", b"", 0).await.unwrap();
    let shown = recorder.take(1);
    assert_eq!(shown.len(), 1, "{shown:#?}");
    assert_eq!(shown[0].context, context(200));
    server.shutdown().await.unwrap();
}

/// A request that is refused for its size, or waits for its turn, is the next request all the same.
#[tokio::test]
async fn a_trace_before_a_request_over_the_limit_is_that_of_no_other_request() {
    let (server, recorder) = server().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let large = vec![0; 1_200_000];
    let refused = traced(&mut wire, context(1), create("/large", &large, 0)).await;
    assert_eq!(refused, Err(ErrorCode::BadArguments));
    wire.create("/untraced", b"", 0).await.unwrap();
    traced(&mut wire, context(2), create("/traced", b"", 0))
        .await
        .unwrap();
    let shown = recorder.take(1);
    let contexts: Vec<_> = shown.iter().map(|write| write.context).collect();
    assert_eq!(contexts, [context(2)], "{shown:#?}");
    server.shutdown().await.unwrap();
}

/// Bytes of a frame of this op, with its length before it.
fn raw(op: i32, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 8).unwrap();
    let head = [length, -64, op].map(i32::to_be_bytes).concat();
    [&head, body].concat()
}

#[tokio::test]
async fn a29_frames_of_any_length_leave_the_connection_and_its_answers_as_they_are() {
    let (server, recorder) = server().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    for length in [0, 1, 25, 27, 5_000, 1_000_000] {
        wire.send_bytes(&raw(TraceContext::OP, &vec![0xff; length]))
            .await;
        wire.create(&format!("/after-{length}"), b"", 0)
            .await
            .unwrap();
    }
    // One over the limit of all frames has the answer that all have.
    wire.send_bytes(&raw(TraceContext::OP, &vec![0xff; 1_200_000]))
        .await;
    let (header, _) = wire.reply().await;
    assert_eq!((header.xid, header.error()), (-64, ErrorCode::BadArguments));
    // What is behind the end of a context is that of a later version.
    let mut body = Vec::new();
    context(9).encode(&mut body);
    body.resize(900_000, 0xff);
    wire.send_bytes(&raw(TraceContext::OP, &body)).await;
    wire.create("/last", b"", 0).await.unwrap();
    let shown = recorder.take(1);
    let contexts: Vec<_> = shown.iter().map(|write| write.context).collect();
    assert_eq!(contexts, [context(9)], "{shown:#?}");
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a29_a_client_that_has_proved_nothing_has_no_trace_either() {
    let recorder = Arc::new(Recorder::default());
    let tracer = Arc::clone(&recorder);
    let server = in_memory().with(|options| {
        options.tracer = Some(tracer);
        options.required_schemes = vec!["digest".to_owned()];
    });
    let server = server.start().await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    let mut bytes = Vec::new();
    frame::write_trace_context(&mut bytes, &context(1));
    frame::write_request(&mut bytes, 1, &create("/refused", b"", 0));
    wire.send_bytes(&bytes).await;
    let (header, _) = wire.reply().await;
    let refusal = ErrorCode::SessionClosedRequireSaslAuth;
    assert_eq!(header.error(), refusal);
    assert!(wire.is_closed().await);
    // Before there is a session, a frame is none.
    let mut silent = Wire::silent(&server.connect_string()).await;
    bytes.clear();
    frame::write_trace_context(&mut bytes, &context(2));
    silent.send_bytes(&bytes).await;
    assert!(silent.is_closed().await);
    server.shutdown().await.unwrap();
    assert!(recorder.shown.lock().unwrap().is_empty());
}

#[tokio::test]
async fn many_traced_writes_in_one_batch_are_each_shown_with_their_own_trace() {
    let (server, recorder) = server().await;
    let mut wire = Wire::open(&server.connect_string()).await;
    let paths: Vec<String> = (0..100).map(|number| format!("/n{number}")).collect();
    let mut bytes = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        if number % 3 > 0 {
            let id = u8::try_from(number).unwrap();
            frame::write_trace_context(&mut bytes, &context(id));
        }
        let xid = i32::try_from(number).unwrap();
        frame::write_request(&mut bytes, xid, &create(path, b"", 0));
    }
    wire.send_bytes(&bytes).await;
    for number in 0..100 {
        let (header, body) = wire.reply().await;
        assert_eq!(header.xid, number);
        decode(OpCode::Create, header, &body).unwrap();
    }
    let traced: Vec<_> = (0..100_u8).filter(|number| number % 3 > 0).collect();
    let shown = recorder.take(traced.len());
    assert_eq!(shown.len(), traced.len());
    for (write, number) in shown.iter().zip(traced) {
        assert_eq!(write.context, context(number));
        assert_eq!(write.path.as_deref(), Some(&*format!("/n{number}")));
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_server_without_a_tracer_asks_for_no_trace_and_knows_no_such_frame() {
    let server = in_memory().start().await.unwrap();
    let mut wire = Wire::open(&server.connect_string()).await;
    let shown = wire.get("/zookeeper/baton").await.unwrap();
    assert!(!String::from_utf8(shown).unwrap().contains("traces"));
    let mut bytes = Vec::new();
    frame::write_trace_context(&mut bytes, &context(1));
    wire.send_bytes(&bytes).await;
    let (header, _) = wire.reply().await;
    assert_eq!(header.error(), ErrorCode::Unimplemented);
    assert!(wire.is_closed().await);
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_ensemble_the_server_of_the_client_shows_that_it_forwarded_the_write() {
    let mut ensemble = Ensemble::unstarted(3);
    let recorders: BTreeMap<u64, Arc<Recorder>> = (1..=3).map(|id| (id, Arc::default())).collect();
    for (id, recorder) in &recorders {
        let tracer = Arc::clone(recorder) as Arc<dyn WriteTracer>;
        ensemble.tracers.insert(*id, tracer);
    }
    ensemble.start_every().await;
    let leader = ensemble.leader().await;
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        let path = format!("/of-{id}");
        traced(&mut wire, context(1), create(&path, b"", 0))
            .await
            .unwrap();
        for (other, recorder) in &recorders {
            let shown = recorder.take(usize::from(*other == id));
            if *other != id {
                assert!(shown.is_empty(), "{other}: {shown:?}");
                continue;
            }
            let [write] = &shown[..] else {
                panic!("{shown:#?}")
            };
            assert_eq!(write.path.as_deref(), Some(&*path));
            let steps = Recorder::steps(write);
            let is_forwarded = steps.contains(&WriteStep::Forwarded);
            assert_eq!(is_forwarded, id != leader, "{steps:?}");
            // The others' disks may have been faster than its own.
            let known: Vec<_> = steps
                .into_iter()
                .filter(|step| !matches!(step, WriteStep::Forwarded | WriteStep::Synced))
                .collect();
            assert_eq!(known, [WriteStep::Batched, WriteStep::Committed]);
        }
    }
}

#[tokio::test]
async fn what_became_of_the_spans_is_in_the_metrics() {
    let recorder: Arc<dyn WriteTracer> = Arc::new(Recorder::default());
    let server = in_memory().with(|options| {
        options.tracer = Some(recorder);
        options.http = vec!["127.0.0.1:0".to_owned()];
    });
    let server = server.start().await.unwrap();
    let (_, page) = crate::support::http::get(server.http_addr().unwrap(), "/metrics").await;
    for line in [
        "baton_trace_spans_exported_total 5",
        "baton_trace_spans_dropped_total 6",
        "baton_trace_spans_failed_total 7",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    server.shutdown().await.unwrap();
}

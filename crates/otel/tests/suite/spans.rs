//! The spans themselves: which there are, whose children they are, and what they say.

use std::time::Duration;

use baton::{LeaderElection, Mutex, Semaphore, WorkQueue};
use baton_testkit::{CollectedSpan, Collector, CollectorBehavior, SpanValue};
use tracing::Instrument as _;

use super::Stage;

const LIMIT: Duration = Duration::from_secs(60);

/// Does `work` in a span of the program's own, and returns what a collector has got of it.
async fn collected(work: impl AsyncFnOnce(&baton::Client)) -> Vec<CollectedSpan> {
    let collector = Collector::start(CollectorBehavior::Good).unwrap();
    let stage = Stage::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).await;
    let span = tracing::info_span!(target: "baton", "program");
    work(&stage.client).instrument(span).await;
    let (client, server) = stage.stop(LIMIT).await;
    let spans = collector.spans();
    assert_eq!(spans.len() as u64, client.exported + server.exported);
    for counts in [client, server] {
        let lost = (counts.dropped, counts.failed, counts.waiting);
        assert_eq!(lost, (0, 0, 0), "{counts:?}");
    }
    spans
}

/// The only span of this name.
fn only<'a>(spans: &'a [CollectedSpan], name: &str) -> &'a CollectedSpan {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    let [one] = found[..] else {
        panic!("{name}: {found:#?} of {spans:#?}");
    };
    one
}

fn children<'a>(spans: &'a [CollectedSpan], of: &CollectedSpan) -> Vec<&'a str> {
    let mut found: Vec<_> = spans
        .iter()
        .filter(|span| span.parent_id == of.span_id)
        .collect();
    found.sort_by_key(|span| span.start_ns);
    found.into_iter().map(|span| &*span.name).collect()
}

#[tokio::test]
async fn spans_of_a_lock_from_client_and_server_are_one_trace() {
    let spans = collected(async |client| {
        let guard = Mutex::new(client, "/jobs/nightly").unwrap().acquire().await;
        let guard = guard.unwrap();
        guard.run(async {}).await.unwrap();
        guard.release().await.unwrap();
    })
    .await;
    let program = only(&spans, "program");
    assert!(program.parent_id.is_empty(), "{program:?}");
    for span in &spans {
        assert_eq!(span.trace_id, program.trace_id, "{span:?}");
        assert!(span.start_ns <= span.end_ns, "{span:?}");
        let is_server = span.service == "server";
        assert_eq!(is_server, span.kind == 2, "{span:?}");
    }
    assert_eq!(
        children(&spans, program),
        ["acquire", "hold", "run", "release"]
    );
    let (acquire, hold) = (only(&spans, "acquire"), only(&spans, "hold"));
    assert_eq!(acquire.text("baton.path"), "/jobs/nightly");
    assert!(hold.text("baton.path").starts_with("/jobs/nightly/"));
    let token = &acquire.attributes["baton.token"];
    assert!(matches!(token, SpanValue::Number(token) if *token > 0));
    assert_eq!(&hold.attributes["baton.token"], token);
    assert_eq!(hold.links, std::slice::from_ref(&acquire.span_id));
    assert!(hold.start_ns >= acquire.start_ns);

    // The server's share: the lock's folder and node, and their end.
    let release = only(&spans, "release");
    let delete = only(&spans, "delete");
    assert_eq!(delete.parent_id, release.span_id);
    assert_eq!(delete.text("rpc.system.name"), "zookeeper");
    assert_eq!(delete.text("rpc.method"), "delete");
    assert_eq!(delete.text("rpc.response.status_code"), "Ok");
    assert_eq!(delete.text("baton.path"), hold.text("baton.path"));
    assert!(delete.text("baton.session.id").starts_with("0x"));
    let names: Vec<_> = delete.events.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["batched", "synced", "committed"]);
    let times = delete.events.iter().map(|(_, at)| *at);
    let times = [delete.start_ns].into_iter().chain(times);
    let times: Vec<_> = times.chain([delete.end_ns]).collect();
    assert!(times.is_sorted(), "{delete:?}");
    let created = children(&spans, acquire);
    assert!(!created.is_empty(), "{spans:#?}");
    let of_server = spans.iter().filter(|span| span.service == "server");
    assert_eq!(of_server.count(), created.len() + 1, "{spans:#?}");
}

#[tokio::test]
async fn permits_terms_and_claims_have_spans_of_both_sides_too() {
    let spans = collected(async |client| {
        let semaphore = Semaphore::new(client, "/permits", 2).unwrap();
        let guard = semaphore.acquire(1).await.unwrap();
        guard.release().await.unwrap();
        let election = LeaderElection::new(client, "/leader").unwrap();
        let leadership = election.campaign().await.unwrap();
        leadership.resign().await.unwrap();
        let queue = WorkQueue::new(client, "/work").unwrap();
        queue.offer("secret item").await.unwrap();
        let claim = queue.take().await.unwrap();
        claim.ack().await.unwrap();
    })
    .await;
    let program = only(&spans, "program");
    assert!(spans.iter().all(|span| span.trace_id == program.trace_id));
    for (name, path) in [
        ("acquire", "/permits"),
        ("hold", "/permits"),
        ("campaign", "/leader"),
        ("hold", "/leader"),
        ("claim", "/work"),
        ("hold", "/work"),
        ("settle", "/work"),
    ] {
        let of_client = spans.iter().filter(|span| span.service == "client");
        let found = of_client.filter(|span| span.name == name);
        let mut found = found.filter(|span| span.text("baton.path").starts_with(path));
        assert!(found.next().is_some(), "{name} {path}: {spans:#?}");
    }
    for path in ["/permits", "/leader", "/work"] {
        let of_server = spans.iter().filter(|span| span.service == "server");
        let mut found = of_server.filter(|span| span.text("baton.path").starts_with(path));
        assert!(found.next().is_some(), "{path}: {spans:#?}");
    }
    // No data of any writer.
    assert!(!format!("{spans:?}").contains("secret"));
}

#[tokio::test]
async fn a_hold_that_was_lost_says_how() {
    let spans = collected(async |client| {
        let guard = Mutex::new(client, "/lost")
            .unwrap()
            .acquire()
            .await
            .unwrap();
        let session = client.session().await.unwrap();
        session.delete(guard.node(), None).await.unwrap();
        guard.lost().await;
    })
    .await;
    let hold = only(&spans, "hold");
    assert!(hold.text("baton.lost").contains("node"), "{hold:?}");
}

#[tokio::test]
async fn a29_a_path_of_a_thousand_bytes_is_cut() {
    let path = format!("/{}", "p".repeat(1000));
    let spans = collected(async |client| {
        let guard = Mutex::new(client, &path).unwrap().acquire().await.unwrap();
        guard.release().await.unwrap();
    })
    .await;
    for span in &spans {
        for (name, value) in &span.attributes {
            if let SpanValue::Text(text) = value {
                assert!(text.len() <= 256, "{name}: {text}");
            }
        }
    }
    assert_eq!(only(&spans, "acquire").text("baton.path"), &path[..256]);
}

/// Without a span of the program there is nothing that a write could belong to but the recipe's.
#[tokio::test]
async fn a_program_whose_spans_are_not_sampled_has_none_from_the_server_either() {
    let collector = Collector::start(CollectorBehavior::Good).unwrap();
    let stage = Stage::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())]).await;
    let span = tracing::info_span!(target: "baton", "program");
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    assert!(baton_otel::set_parent(&span, unsampled));
    let work = async {
        let guard = Mutex::new(&stage.client, "/quiet").unwrap().acquire().await;
        assert_eq!(baton_otel::traceparent(), None);
        guard.unwrap().release().await.unwrap();
    };
    work.instrument(span).await;
    let (client, server) = stage.stop(LIMIT).await;
    assert_eq!((client.exported, server.exported), (0, 0));
    assert!(collector.spans().is_empty());
}

#[tokio::test]
async fn a_trace_goes_on_from_another_process_and_to_the_next() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut handed_on = None;
    let spans = collected(async |client| {
        let span = tracing::info_span!(target: "baton", "verb");
        assert!(baton_otel::set_parent(&span, parent));
        let work = async {
            let guard = Mutex::new(client, "/job").unwrap().acquire().await.unwrap();
            handed_on = baton_otel::traceparent();
            guard.release().await.unwrap();
        };
        work.instrument(span).await;
    })
    .await;
    let hex = |id: &[u8]| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let verb = only(&spans, "verb");
    assert_eq!(hex(&verb.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&verb.parent_id), "00f067aa0ba902b7");
    let next = format!("00-{}-{}-01", hex(&verb.trace_id), hex(&verb.span_id));
    assert_eq!(handed_on, Some(next));
}

//! Collectors that are dead, slow, overloaded or talk nonsense: a lock takes no notice.

use std::net::TcpListener;
use std::time::Duration;

use baton::Mutex;
use baton_otel::Exporter;
use baton_testkit::{CertificateFiles, Certificates, Collector, CollectorBehavior};
use baton_tls::tokio_rustls::TlsAcceptor;
use baton_tls::{ClientAuth, Files, ServerTls};
use tracing_subscriber::layer::SubscriberExt as _;

use super::Stage;

/// Acquires and releases a lock this often, with these variables; returns what became of the spans.
async fn locks(
    rounds: usize,
    variables: &[(&str, &str)],
    limit: Duration,
) -> (baton_otel::SpanCounts, baton_otel::SpanCounts) {
    let stage = Stage::start(variables).await;
    let mutex = Mutex::new(&stage.client, "/lock").unwrap();
    for _ in 0..rounds {
        let guard = mutex.acquire().await.unwrap();
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    stage.stop(limit).await
}

#[tokio::test]
async fn a29_a_dead_collector_changes_nothing_for_a_lock() {
    // Nobody listens there: the port was free, and is not given to anybody else at once.
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}", port.local_addr().unwrap());
    drop(port);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*dead),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "200"),
    ];
    let (client, server) = locks(5, &variables, Duration::from_secs(60)).await;
    for counts in [client, server] {
        assert_eq!((counts.exported, counts.waiting), (0, 0), "{counts:?}");
        assert!(counts.failed >= 5, "{counts:?}");
    }
}

#[tokio::test]
async fn a29_a_collector_that_never_answers_ends_neither_locks_nor_the_flush() {
    let collector = Collector::start(CollectorBehavior::Silent).unwrap();
    let url = collector.url();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*url),
        // An hour: only the limit of the flush ends it.
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "4"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2"),
    ];
    let (client, _) = locks(10, &variables, Duration::from_millis(50)).await;
    collector.wait_for_requests(1);
    // Three spans a round: two are on their way for ever, four wait, the others were dropped.
    assert_eq!(client.exported, 0, "{client:?}");
    assert!(client.waiting <= 6, "{client:?}");
    assert_eq!(client.dropped, 30 - client.waiting, "{client:?}");
}

#[tokio::test]
async fn a29_what_a_collector_says_cannot_harm() {
    for manners in [
        CollectorBehavior::Nonsense,
        CollectorBehavior::Endless,
        CollectorBehavior::Busy,
    ] {
        let collector = Collector::start(manners).unwrap();
        let url = collector.url();
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*url),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "500"),
        ];
        let (client, server) = locks(2, &variables, Duration::from_secs(60)).await;
        for counts in [client, server] {
            let lost = (counts.exported, counts.waiting);
            assert_eq!(lost, (0, 0), "{manners:?}: {counts:?}");
            assert!(counts.failed > 0, "{manners:?}: {counts:?}");
        }
    }
}

/// A port with TLS in front of a collector.
async fn with_tls(collector: &Collector, files: CertificateFiles) -> u16 {
    let files = Files {
        certificates: files.certificate,
        key: files.key,
        authorities: None,
        revocation_lists: None,
    };
    let tls = ServerTls::load(files, ClientAuth::None).unwrap();
    let behind = collector.url().trim_start_matches("http://").to_owned();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = TlsAcceptor::from(tls.config());
            let behind = behind.clone();
            tokio::spawn(async move {
                // An exporter that does not trust it goes away.
                let Ok(mut inside) = acceptor.accept(stream).await else {
                    return;
                };
                let mut outside = tokio::net::TcpStream::connect(behind).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            });
        }
    });
    port
}

/// Two threads: the flush waits on one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_with_tls_gets_spans_where_its_authority_is_trusted_and_else_none() {
    let (ours, others) = (Certificates::new().unwrap(), Certificates::new().unwrap());
    let collector = Collector::start(CollectorBehavior::Good).unwrap();
    let port = with_tls(&collector, ours.server(&["localhost"]).unwrap()).await;
    let url = format!("https://localhost:{port}");
    for (authorities, is_trusted) in [(ours.authorities(), true), (others.authorities(), false)] {
        let authorities = authorities.display().to_string();
        let read = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.clone()),
            "OTEL_EXPORTER_OTLP_CERTIFICATE" => Some(authorities.clone()),
            _ => None,
        };
        let exporter = Exporter::start_with("client", &read).unwrap();
        let subscriber = tracing_subscriber::registry().with(exporter.layer());
        tracing::subscriber::with_default(subscriber, || {
            drop(tracing::info_span!(target: "baton", "acquire"));
        });
        let finish = move || exporter.finish(Duration::from_secs(60));
        let counts = tokio::task::spawn_blocking(finish).await.unwrap();
        let expected = (u64::from(is_trusted), u64::from(!is_trusted));
        assert_eq!((counts.exported, counts.failed), expected, "{counts:?}");
    }
    assert_eq!(collector.spans().len(), 1);
}

/// The status is that of a success, and the body says otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_that_a_collector_rejects_in_a_successful_answer_count_as_failed() {
    let collector = Collector::start(CollectorBehavior::Rejecting).unwrap();
    let url = collector.url();
    // The collector says two, whatever it was sent.
    for (spans, expected) in [(3, (1, 2)), (1, (0, 1))] {
        let read = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| url.clone());
        let exporter = Exporter::start_with("client", &read).unwrap();
        let subscriber = tracing_subscriber::registry().with(exporter.layer());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..spans {
                drop(tracing::info_span!(target: "baton", "acquire"));
            }
        });
        let finish = move || exporter.finish(Duration::from_secs(60));
        let counts = tokio::task::spawn_blocking(finish).await.unwrap();
        assert_eq!((counts.exported, counts.failed), expected, "{counts:?}");
    }
}

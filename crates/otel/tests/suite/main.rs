//! Traces of locks, semaphores, elections and queues, from client and server, on a collector.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

mod collectors;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use baton::session::{Client, Config};
use baton_otel::Exporter;
use baton_server::Server;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

/// A server that exports to a collector, and a client in the same process that does too.
struct Stage {
    server: Server,
    client: Client,
    of_client: Exporter,
    of_server: Exporter,
    _recording: DefaultGuard,
}

impl Stage {
    /// Both with these variables. Spans of this thread are recorded, on which a test's runtime runs
    /// all of its tasks.
    async fn start(variables: &[(&str, &str)]) -> Self {
        let read = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let of_client = Exporter::start_with("client", &read).unwrap();
        let of_server = Exporter::start_with("server", &read).unwrap();
        let subscriber = tracing_subscriber::registry().with(of_client.layer());
        let recording = tracing::subscriber::set_default(subscriber);
        let tracer = of_server.write_tracer();
        let server = Server::builder().in_memory().listen("127.0.0.1:0");
        let server = server.with(|options| options.tracer = Some(Arc::clone(&tracer)));
        let server = server.start().await.unwrap();
        // On this runtime, so that all spans have ended when the test has.
        let config = Config::new(&server.connect_string()).unwrap();
        let config = config.runtime(tokio::runtime::Handle::current());
        let client = Client::connect(config).await.unwrap();
        Self {
            server,
            client,
            of_client,
            of_server,
            _recording: recording,
        }
    }

    /// Stops both; what waits is exported for at most `limit`.
    async fn stop(self, limit: Duration) -> (baton_otel::SpanCounts, baton_otel::SpanCounts) {
        self.client
            .close_timeout(Duration::from_secs(60))
            .await
            .unwrap();
        self.server.shutdown().await.unwrap();
        (self.of_client.finish(limit), self.of_server.finish(limit))
    }
}

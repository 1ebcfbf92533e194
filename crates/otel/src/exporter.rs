//! The exporter of a process: what makes spans of `tracing`'s, and the thread that sends them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use baton_server::WriteTracer;
use baton_tls::ClientTls;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as _};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::http::{Feedback, OtlpClient};
use crate::queue::{self, QueueProcessor, SpanCounts, SpanQueue};
use crate::settings::Settings;
use crate::write_tracer::WriteSpanObserver;

/// The target of the spans that the recipes open.
const TARGET: &str = "baton";
/// The key of the resource's attribute that says which program it is.
const SERVICE_NAME: &str = "service.name";

/// Reason why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A variable of the environment cannot be used.
    #[error("{0}")]
    Setting(String),
    /// The exporting thread cannot run.
    #[error("cannot start the thread that exports traces: {0}; free some threads or memory")]
    Thread(std::io::Error),
}

/// Exports the spans of this process over OTLP (HTTP, protobuf), as the standard variables of the
/// environment say: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and
/// the others that docs/user/traces.md lists.
///
/// Anyone who ends a span never waits for the collector: finished spans wait in a queue with a
/// bound, what is over it is dropped and counted, and a thread of its own exports them. Dropped
/// without [`Exporter::finish`], it loses what still waits.
#[derive(Debug)]
pub struct Exporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    queue: Arc<SpanQueue>,
}

impl Exporter {
    /// Starts to export. `service` names the program where no variable does. From here on the
    /// writes of all sessions in this process name the trace that they belong to: see
    /// [`carry`](crate::carry).
    ///
    /// # Errors
    /// A variable that cannot be used, or no thread.
    pub fn start(service: &'static str) -> Result<Self, ExportError> {
        Self::start_with(service, &|name| std::env::var(name).ok())
    }

    /// [`Exporter::start`] with the variables that `read` reads, as far as they are for the
    /// exporter. Sampler, resource and headers come from the environment.
    ///
    /// # Errors
    /// As [`Exporter::start`].
    pub fn start_with(
        service: &'static str,
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ExportError> {
        let settings = Settings::from(read).map_err(ExportError::Setting)?;
        let setting = |error: &dyn std::fmt::Display| ExportError::Setting(error.to_string());
        let tls = settings.certificate.as_ref().map(ClientTls::new);
        let tls = tls
            .transpose()
            .map_err(|error| setting(&format_args!("OTEL_EXPORTER_OTLP_CERTIFICATE: {error}")))?;
        let feedback = Feedback::default();
        let client = OtlpClient {
            tls,
            timeout: settings.timeout,
            feedback: feedback.clone(),
        };
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(settings.endpoint.clone())
            .with_timeout(settings.timeout)
            .build()
            .map_err(|error| setting(&error))?;
        let resource = resource(service);
        exporter.set_resource(&resource);
        let queue = SpanQueue::new(&settings);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ExportError::Thread)?;
        let exported = Arc::clone(&queue);
        thread::Builder::new()
            .name("baton-traces".to_owned())
            .spawn(move || queue::export_all(&exported, &exporter, &runtime, &feedback))
            .map_err(ExportError::Thread)?;
        let provider = SdkTracerProvider::builder()
            .with_span_processor(QueueProcessor(Arc::clone(&queue)))
            .with_resource(resource)
            .build();
        let scope = InstrumentationScope::builder("baton")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let tracer = provider.tracer_with_scope(scope);
        crate::carry();
        Ok(Self {
            provider,
            tracer,
            queue,
        })
    }

    /// The layer that makes OpenTelemetry's spans of those that Baton opens with `tracing`. It
    /// takes no other spans, and no events.
    #[must_use]
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|of| of.is_span() && of.target() == TARGET))
    }

    /// Returns the tracer that a server needs for its share of the writes that clients trace.
    #[must_use]
    pub fn write_tracer(&self) -> Arc<dyn WriteTracer> {
        Arc::new(WriteSpanObserver {
            tracer: self.tracer.clone(),
            queue: Arc::clone(&self.queue),
        })
    }

    /// Returns the counts of spans by what became of them.
    #[must_use]
    pub fn counts(&self) -> SpanCounts {
        self.queue.counts()
    }

    /// Exports what waits, for at most `limit`. What has not gone out by then is lost: the counts
    /// say how much that is.
    #[must_use]
    pub fn finish(self, limit: Duration) -> SpanCounts {
        // Its processor is the queue, and its only error that it has been shut down before.
        let _ = self.provider.shutdown_with_timeout(limit);
        self.queue.counts()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Returns the source of the spans: the one that the environment names, else this program.
fn resource(service: &'static str) -> Resource {
    let known = Resource::builder().build();
    let name = known.get(&SERVICE_NAME.into());
    let is_unknown = match &name {
        Some(Value::String(name)) => name.as_str().starts_with("unknown_service"),
        _ => true,
    };
    let mut more = vec![
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    more.retain(|attribute| known.get(&attribute.key).is_none());
    if is_unknown {
        more.push(KeyValue::new(SERVICE_NAME, service));
    }
    Resource::builder().with_attributes(more).build()
}

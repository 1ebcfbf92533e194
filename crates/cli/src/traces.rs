//! Traces of this process, by OpenTelemetry. Owns when they are exported: where the environment
//! names a collector by the standard variables, and this `baton` was built with the feature `otel`.
//! Without that feature, a user who asks for traces is informed, and nothing else happens here.
//! Nothing of it decides anything about a lock.

#[cfg(feature = "otel")]
use std::time::Duration;

use crate::exit::Failure;
use crate::output::Output;
use crate::output::log::{self, LogLayer};

/// Time that a process that ends waits for the collector.
#[cfg(feature = "otel")]
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// The variables that name a collector.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// The traces of this process, while they are exported.
#[derive(Debug)]
pub(crate) struct Traces {
    #[cfg(feature = "otel")]
    exporter: baton_otel::Exporter,
    /// The span of the whole verb.
    #[cfg(feature = "otel")]
    verb: tracing::Span,
}

impl Traces {
    /// Begins the log of a verb, where BATON_LOG asks for one, and to export what the verb does, if
    /// its span has a `name`: in one span over all of it, in the trace of TRACEPARENT, if there is
    /// one.
    ///
    /// # Errors
    /// Text in BATON_LOG that is not a filter.
    pub(crate) fn of_verb(
        name: Option<&'static str>,
        output: &Output,
    ) -> Result<Option<Self>, Failure> {
        let log = log::of_verb(output)?;
        let traces = name.and_then(|_| Self::start("baton", output));
        #[cfg_attr(not(feature = "otel"), expect(unused_mut, reason = "nothing to set"))]
        let Some(mut traces) = traces else {
            if let Some(log) = log {
                subscribe(log);
            }
            return Ok(None);
        };
        #[cfg(feature = "otel")]
        {
            use tracing_subscriber::layer::SubscriberExt as _;
            use tracing_subscriber::util::SubscriberInitExt as _;
            let layer = traces.exporter.layer();
            // A second initialisation cannot happen: a process runs one verb.
            let _ = tracing_subscriber::registry()
                .with(log)
                .with(layer)
                .try_init();
            traces.verb =
                tracing::info_span!(target: "baton", "verb", otel.name = name.unwrap_or_default());
            if let Ok(parent) = std::env::var(baton_otel::TRACEPARENT) {
                baton_otel::set_parent(&traces.verb, &parent);
            }
        }
        #[cfg(not(feature = "otel"))]
        if let Some(log) = log {
            subscribe(log);
        }
        Ok(Some(traces))
    }

    /// Begins to export a server's share of the writes that clients trace.
    pub(crate) fn of_server(output: &Output) -> Option<Self> {
        Self::start("baton-server", output)
    }

    #[cfg(feature = "otel")]
    fn start(service: &'static str, output: &Output) -> Option<Self> {
        asked_by(&variable_of_process)?;
        match baton_otel::Exporter::start(service) {
            Ok(exporter) => Some(Self {
                exporter,
                verb: tracing::Span::none(),
            }),
            Err(error) => {
                output.note(format!("no traces are exported: {error}"));
                None
            }
        }
    }

    #[cfg(not(feature = "otel"))]
    fn start(_: &'static str, output: &Output) -> Option<Self> {
        let name = asked_by(&variable_of_process)?;
        output.note(format!(
            "{name} is set, but this baton was built without traces: none are exported; build it with --features otel, or \
             set OTEL_SDK_DISABLED=true"
        ));
        None
    }

    /// Returns the tracer of a server.
    #[cfg(feature = "otel")]
    pub(crate) fn write_tracer(&self) -> Option<std::sync::Arc<dyn baton_server::WriteTracer>> {
        Some(self.exporter.write_tracer())
    }

    /// Returns the tracer of a server.
    #[cfg(not(feature = "otel"))]
    pub(crate) fn write_tracer(&self) -> Option<std::sync::Arc<dyn baton_server::WriteTracer>> {
        None
    }

    /// Does `work` in the verb's span.
    pub(crate) fn within<T>(traces: Option<&Self>, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "otel")]
        let _entered = traces.map(|traces| traces.verb.enter());
        #[cfg(not(feature = "otel"))]
        let _ = traces;
        work()
    }

    /// Exports what still waits, for a limited time.
    pub(crate) fn finish(self, output: &Output) {
        #[cfg(feature = "otel")]
        {
            drop(self.verb);
            let counts = self.exporter.finish(FLUSH_LIMIT);
            let lost = counts.dropped + counts.failed + counts.waiting;
            if lost > 0 {
                output.verbose(|| {
                    format!(
                        "{lost} spans were lost, {} exported: the collector did not take them in time",
                        counts.exported
                    )
                });
            }
        }
        #[cfg(not(feature = "otel"))]
        let _ = output;
    }
}

/// Writes this process's events to its log.
fn subscribe(log: LogLayer) {
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    // A second initialisation cannot happen: a process runs one verb.
    let _ = tracing_subscriber::registry().with(log).try_init();
}

/// The variable by which a command that this process starts finds the trace that it belongs to.
pub(crate) fn variable() -> Option<(&'static str, String)> {
    #[cfg(feature = "otel")]
    return baton_otel::traceparent().map(|trace| (baton_otel::TRACEPARENT, trace));
    #[cfg(not(feature = "otel"))]
    None
}

fn variable_of_process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variable that asks for traces, if one does.
fn asked_by(read: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    let read = |name: &str| {
        let value = read(name).unwrap_or_default();
        value.trim().to_ascii_lowercase()
    };
    let exporter = read("OTEL_TRACES_EXPORTER");
    if read("OTEL_SDK_DISABLED") == "true" || !matches!(&*exporter, "" | "otlp") {
        return None;
    }
    let endpoint = ENDPOINTS.into_iter().find(|name| !read(name).is_empty());
    endpoint.or((exporter == "otlp").then_some("OTEL_TRACES_EXPORTER"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_exported_only_to_a_collector_that_the_environment_names() {
        let of = |variables: &[(&str, &str)]| {
            asked_by(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(endpoint.0, " ")]), None);
        assert_eq!(of(&[endpoint]), Some(endpoint.0));
        assert_eq!(
            of(&[endpoint, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a")]),
            Some("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        );
        assert_eq!(
            of(&[("OTEL_TRACES_EXPORTER", "otlp")]),
            Some("OTEL_TRACES_EXPORTER")
        );
        assert_eq!(of(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(of(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), None);
        assert_eq!(of(&[endpoint, ("OTEL_TRACES_EXPORTER", "zipkin")]), None);
    }
}

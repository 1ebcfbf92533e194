//! The server's log on standard error: its level, and its lines as text or as JSON.
//!
//! With `--json` each line is one object, like the errors of every verb, so that a program that
//! reads standard error needs one parser only.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;
use crate::output::Output;

/// The environment's variable for the level.
const LEVEL: &str = "BATON_LOG";

/// Sends the log to standard error, at the level that BATON_LOG names.
///
/// # Errors
/// Text in BATON_LOG that is not a level.
pub(crate) fn to_stderr(output: &Output) -> Result<(), Failure> {
    let level = level(output.quiet())?;
    // Sessions in this process are those of the console: their steps are no news of a server.
    let of_sessions = match level {
        LevelFilter::INFO => LevelFilter::WARN,
        level => level,
    };
    let targets = Targets::new().with_default(level);
    let targets = targets.with_target("baton_client", of_sessions);
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level);
    // A second initialisation cannot happen: a process runs one verb.
    let _ = if output.json() {
        let log = log.event_format(JsonLines).finish();
        log.with(targets).try_init()
    } else {
        log.finish().with(targets).try_init()
    };
    Ok(())
}

/// The level that BATON_LOG names; without it, `error` for `--quiet`, else `info`.
fn level(quiet: bool) -> Result<LevelFilter, Failure> {
    let asked = std::env::var_os(LEVEL).filter(|asked| !asked.is_empty());
    match asked {
        None if quiet => Ok(LevelFilter::ERROR),
        None => Ok(LevelFilter::INFO),
        Some(asked) => asked.to_string_lossy().parse().map_err(|_| {
            Failure::usage(format!(
                "{LEVEL} in the environment: {asked:?} is not a log level; use error, warn, info, debug, trace or off"
            ))
        }),
    }
}

/// One object a line: `timestamp`, `level`, `message`, and the event's own fields.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Fields(mut line) = fields;
        line.insert("timestamp".to_owned(), timestamp.into());
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        line.insert("level".to_owned(), level.into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// The fields of one event.
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::{JsonLines, Value};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_one_object_with_its_fields() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(JsonLines)
            .finish();
        tracing::subscriber::with_default(log, || {
            let error = std::io::Error::other("two\nlines \"quoted\"");
            tracing::warn!(session = 7_u64, peer = "a", %error, "refused");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!(line["message"], "refused");
        assert_eq!(line["session"], 7);
        assert_eq!(line["peer"], "a");
        assert_eq!(line["error"], "two\nlines \"quoted\"");
        assert!(line["timestamp"].as_str().is_some_and(|at| at.len() > 10));
    }
}

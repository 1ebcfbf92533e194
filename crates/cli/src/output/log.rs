//! The log of this process on standard error: always of a server, of another verb where BATON_LOG
//! asks for it. What it shows is [`log_filter`](super::log_filter)'s to say, how a line looks
//! [`log_lines`](super::log_lines)'s. Nobody waits for its reader.

use std::io::{self, Write};
use std::panic::PanicHookInfo;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::DefaultFields;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::exit::Failure;
use crate::output::log_filter::{self, LogFilter, VARIABLE};
use crate::output::log_lines::{JsonFields, JsonLines, LogFormat, TextLines};
use crate::output::{Output, error_stream};

/// A layer that writes the log.
pub(crate) type LogLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Begins the log of a server. Without a `filter` it has the level `error` for `--quiet`, `debug`
/// for `--verbose`, else `info`; without a `format`, objects for `--json`, else text.
pub(crate) fn of_server(output: &Output, filter: Option<&LogFilter>, format: Option<LogFormat>) {
    let default = match output {
        output if output.quiet() => LevelFilter::ERROR,
        output if output.is_verbose() => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    let default_format = if output.json() {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    let format = format.unwrap_or(default_format);
    start(output, format);
    let filter = log_filter::of_server(filter, default);
    // A second initialisation cannot happen: a process runs one verb.
    let _ = Registry::default()
        .with(layer(output, filter, format))
        .try_init();
    std::panic::set_hook(Box::new(log_panic));
}

/// The layer that writes the log of a verb other than `serve`, where BATON_LOG asks for one.
///
/// # Errors
/// Text in BATON_LOG that is not a filter.
pub(crate) fn of_verb(output: &Output) -> Result<Option<LogLayer>, Failure> {
    let Some(text) = std::env::var_os(VARIABLE) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    if text.trim().is_empty() {
        return Ok(None);
    }
    let filter: LogFilter = text
        .parse()
        .map_err(|why| Failure::usage(format!("{VARIABLE} in the environment: {why}")))?;
    let format = if output.json() {
        LogFormat::Json
    } else {
        LogFormat::Text
    };
    start(output, format);
    Ok(Some(layer(output, log_filter::of_verb(&filter), format)))
}

fn start(output: &Output, format: LogFormat) {
    output.has_log(format == LogFormat::Json);
    error_stream::start(match format {
        LogFormat::Text => |lines| LogFormat::Text.lost(lines),
        LogFormat::Json => |lines| LogFormat::Json.lost(lines),
    });
}

fn layer(output: &Output, filter: EnvFilter, format: LogFormat) -> LogLayer {
    let log = tracing_subscriber::fmt::layer().with_writer(ToOutput(output.clone()));
    match format {
        LogFormat::Json => log
            .fmt_fields(JsonFields)
            .event_format(JsonLines)
            .with_filter(filter)
            .boxed(),
        LogFormat::Text => {
            // At this level a reader wants to know what to name in the filter.
            let shows_targets = filter
                .max_level_hint()
                .is_some_and(|most| most > LevelFilter::INFO);
            log.fmt_fields(DefaultFields::new())
                .event_format(TextLines::new(shows_targets))
                .with_filter(filter)
                .boxed()
        }
    }
}

/// The line of a panic: the standard library would write it to standard error itself, in several
/// lines, and wait for their reader.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(tracing::field::display);
    let payload = panic.payload();
    let fixed = payload.downcast_ref::<&str>().copied();
    let panic = fixed.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let backtrace = std::backtrace::Backtrace::capture();
    let is_captured = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
    let backtrace = is_captured.then(|| tracing::field::display(&backtrace));
    let thread = std::thread::current();
    let thread = thread.name();
    tracing::error!(
        location,
        panic,
        thread,
        backtrace,
        "a thread panicked; report this"
    );
}

/// Sends each line to the output's standard error.
struct ToOutput(Output);

impl<'a> MakeWriter<'a> for ToOutput {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        Self(self.0.clone())
    }
}

impl Write for ToOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.log_line(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::log_lines::tests::captured;

    #[test]
    fn a_panic_is_one_line_with_its_place() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(log_panic));
        let text = captured(JsonLines, JsonFields, || {
            let caught = std::panic::catch_unwind(|| panic!("two\nlines of {}", 7));
            assert!(caught.is_err());
        });
        std::panic::set_hook(before);
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["panic"], "two\nlines of 7");
        let place = line["location"].as_str().unwrap();
        assert!(place.contains("log.rs:"), "{place}");
    }
}

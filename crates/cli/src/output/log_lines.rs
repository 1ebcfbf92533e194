//! The lines of the log: one for each event, as text or as a JSON object, whatever is in its
//! fields.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use baton_proto::OneLine;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The bytes of a value in a JSON line, and of a line of text; what is longer is cut.
const MOST_BYTES: usize = 16 << 10;

/// The form of the lines of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Time, level, message and fields, for people.
    Text,
    /// A JSON object.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!(
                "'{text}' is not a format of the log; write text or json"
            )),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

impl LogFormat {
    /// The line by which the log says how many lines are missing in it.
    pub(crate) fn lost(self, lines: u64) -> String {
        let mut now = String::new();
        // Without a time where the system's clock is before 1970.
        let _ = SystemTime.format_time(&mut Writer::new(&mut now));
        match self {
            Self::Text => format!("{now}  WARN lines of the log were lost here lines={lines}\n"),
            Self::Json => {
                let fields = Map::from_iter([("lines".to_owned(), lines.into())]);
                let head = Head {
                    timestamp: &now,
                    level: "warn",
                    target: "baton_log",
                };
                let message = "lines of the log were lost here";
                object(&head, message.into(), fields, Vec::new()) + "\n"
            }
        }
    }
}

/// Text, as `tracing` formats it, on one line each.
pub(crate) struct TextLines(Format<Full>);

impl TextLines {
    /// Lines that name the target of their event if `shows_targets`.
    pub(crate) fn new(shows_targets: bool) -> Self {
        Self(
            Format::default()
                .with_target(shows_targets)
                .with_ansi(false),
        )
    }
}

impl<S, N> FormatEvent<S, N> for TextLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        let line = line.strip_suffix('\n').unwrap_or(&line);
        writeln!(writer, "{}", OneLine(&cut(line)))
    }
}

/// One object a line: `timestamp`, `level`, `target`, `message`, the event's own fields, and the
/// spans that it happened in.
pub(crate) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let mut spans = Vec::new();
        for span in context
            .event_scope()
            .into_iter()
            .flat_map(|all| all.from_root())
        {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>();
            let fields = fields.and_then(|fields| serde_json::from_str(&fields.fields).ok());
            let mut fields: Map<String, Value> = fields.unwrap_or_default();
            fields.insert("name".to_owned(), span.name().into());
            spans.push(Value::Object(fields));
        }
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        let head = Head {
            timestamp: &timestamp,
            level: &level,
            target: event.metadata().target(),
        };
        writeln!(writer, "{}", object(&head, message, fields.0, spans))
    }
}

/// Text that every line has in front of its message.
struct Head<'a> {
    timestamp: &'a str,
    level: &'a str,
    target: &'a str,
}

/// The object of one line. A field that has the name of what every line has gets an underscore
/// behind it.
fn object(
    head: &Head<'_>,
    message: Value,
    fields: Map<String, Value>,
    spans: Vec<Value>,
) -> String {
    let mut line = format!(
        "{{\"timestamp\":{},\"level\":{},\"target\":{},\"message\":{message}",
        Value::from(head.timestamp),
        Value::from(head.level),
        Value::from(head.target),
    );
    let spans = (!spans.is_empty()).then(|| ("spans".to_owned(), Value::Array(spans)));
    let fields = fields.into_iter().map(|(mut name, value)| {
        if matches!(&*name, "timestamp" | "level" | "target" | "spans") {
            name.push('_');
        }
        (name, value)
    });
    for (name, value) in fields.chain(spans) {
        // Writing to a string does not fail.
        let _ = write!(line, ",{}:{value}", Value::from(name));
    }
    line.push('}');
    line
}

/// The fields of spans, kept as a JSON object.
pub(crate) struct JsonFields;

impl<'writer> FormatFields<'writer> for JsonFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut kept = Fields::default();
        fields.record(&mut kept);
        write!(writer, "{}", Value::Object(kept.0))
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &Record<'_>,
    ) -> fmt::Result {
        let mut kept = Fields(serde_json::from_str(&current.fields).unwrap_or_default());
        fields.record(&mut kept);
        current.fields = Value::Object(kept.0).to_string();
        Ok(())
    }
}

/// The fields of one event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, cut(&format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, cut(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

/// The text, or its beginning and its length.
fn cut(text: &str) -> String {
    if text.len() <= MOST_BYTES {
        return text.to_owned();
    }
    let mut ends = (0..=MOST_BYTES).rev();
    let shown = ends.find_map(|end| text.get(..end)).unwrap_or_default();
    format!("{shown}… ({} bytes)", text.len())
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::format::DefaultFields;

    use super::*;

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the log of the events of `work`.
    pub(in crate::output) fn captured<E, N>(lines: E, fields: N, work: impl FnOnce()) -> String
    where
        E: FormatEvent<tracing_subscriber::Registry, N> + Send + Sync + 'static,
        N: for<'a> FormatFields<'a> + Send + Sync + 'static,
    {
        use tracing_subscriber::layer::SubscriberExt;
        let kept = CapturedLog::default();
        let writer = kept.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .fmt_fields(fields)
            .event_format(lines);
        let log = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(log, work);
        String::from_utf8(kept.0.lock().unwrap().clone()).unwrap()
    }

    /// Values that would break a line if they could.
    const HOSTILE: [&str; 5] = [
        "two\nlines \"quoted\"",
        "\r\n2026-01-01T00:00:00Z  INFO all is well",
        "\u{1b}[2J\u{0}\u{7f}\u{2028}\u{202e}",
        "{\"level\":\"info\"}",
        "\u{fffd}\\n",
    ];

    #[test]
    fn each_event_is_one_object_with_its_fields_and_spans() {
        let text = captured(JsonLines, JsonFields, || {
            let error = std::io::Error::other(HOSTILE[0]);
            let span =
                tracing::info_span!("hold", path = HOSTILE[1], token = tracing::field::Empty);
            span.record("token", 7);
            let _entered = span.enter();
            tracing::warn!(session = 7_u64, peer = "a", level = "x", part = 0.5, %error, "refused");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!(line["target"], module_path!());
        assert_eq!(line["message"], "refused");
        assert_eq!(line["session"], 7);
        assert_eq!(line["peer"], "a");
        assert_eq!(line["part"], 0.5);
        assert_eq!(line["level_"], "x");
        assert_eq!(line["error"], HOSTILE[0]);
        assert!(line["timestamp"].as_str().is_some_and(|at| at.len() > 10));
        assert_eq!(line["spans"][0]["name"], "hold");
        assert_eq!(line["spans"][0]["path"], HOSTILE[1]);
        assert_eq!(line["spans"][0]["token"], 7);
    }

    /// A name that a client chose must not look like a line of the server.
    #[test]
    fn a02_no_value_makes_a_line_of_its_own() {
        let events = || {
            for value in HOSTILE {
                tracing::info!(shown = %value, debug = ?value, text = value, "{value}");
                tracing::info!(name: "span", "{}", value);
            }
        };
        let text = captured(TextLines::new(true), DefaultFields::new(), events);
        let lines = text.lines();
        assert_eq!(lines.count(), 2 * HOSTILE.len(), "{text}");
        let is_shown = |c: char| c == '\n' || !c.is_control();
        assert!(text.chars().all(is_shown), "{text:?}");
        assert!(!text.contains(['\u{2028}', '\u{202e}']), "{text:?}");
        let json = captured(JsonLines, JsonFields, events);
        assert_eq!(json.lines().count(), 2 * HOSTILE.len(), "{json}");
        for (at, line) in json.lines().enumerate() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["message"], HOSTILE[at / 2]);
        }
    }

    #[test]
    fn a_value_without_end_is_cut() {
        let long = "ü".repeat(1 << 20);
        let event = || tracing::info!(shown = %long, text = &*long, "refused");
        let text = captured(TextLines::new(false), DefaultFields::new(), event);
        assert!(text.len() < 20_000, "{}", text.len());
        assert!(text.trim_end().ends_with("bytes)"), "{text}");
        let json = captured(JsonLines, JsonFields, event);
        let line: Value = serde_json::from_str(&json).unwrap();
        for name in ["shown", "text"] {
            let value = line[name].as_str().unwrap();
            assert!(value.ends_with("… (2097152 bytes)"), "{name}");
            assert!(value.len() < 20_000, "{name}");
        }
    }

    #[test]
    fn lost_lines_are_reported_in_the_form_of_the_log() {
        let text = LogFormat::Text.lost(12);
        assert!(text.ends_with("lines=12\n"), "{text}");
        let line: Value = serde_json::from_str(&LogFormat::Json.lost(12)).unwrap();
        assert_eq!(
            (&line["lines"], &line["level"]),
            (&12.into(), &"warn".into())
        );
    }
}

//! Output: where results, notices, events and errors are written.
//!
//! Results go to standard output, everything else to standard error. A reader that went away
//! (`| head`) is not an error. With `--json`, results, events and errors are objects, one a line;
//! notices are left out. With `--quiet` only results and errors are written. On a terminal there
//! may be a status line below all of it, which is cleared before anything else is written; or a
//! verb has the whole screen, and lines wait until it is free again.
//!
//! | module | owns |
//! |---|---|
//! | `log` | when this process has a log, and where it goes |
//! | `log_filter`, `log_lines` | which events it shows; how a line looks |
//! | `confirm`, `passed_over` | questions; nodes that a listing could not read |
//! | `table`, `width`, `bytes` | tables; the width of text; data as text |
//! | `error_stream` | standard error, without waiting for its reader |
//! | `record` | a result as an object |
//! | `progress` | how far long work is, as a status line |

pub(crate) mod bytes;
pub(crate) mod confirm;
pub(crate) mod error_stream;
pub(crate) mod log;
pub(crate) mod log_filter;
pub(crate) mod log_lines;
pub(crate) mod passed_over;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod table;
pub(crate) mod width;

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use baton_proto::OneLine;
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::output::width::cut;

/// When colour is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum UseColor {
    /// On terminals, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl UseColor {
    fn is_used(self, is_terminal: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let variable = std::env::var_os("NO_COLOR");
                variable.is_none_or(|value| value.is_empty()) && !is_dumb() && is_terminal()
            }
        }
    }
}

/// Whether the terminal knows no control sequences.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|name| name == "dumb")
}

/// Style of results.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Style {
    pub(crate) color: UseColor,
    /// Whether tables may be wider than the terminal.
    pub(crate) wide: bool,
}

/// Meaning of a text, shown by its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A title.
    Title,
    Good,
    Warning,
    Bad,
}

impl Tone {
    const fn sequence(self) -> &'static str {
        match self {
            Self::Title => "\x1b[1m",
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// The messages that are written on standard error besides errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Nothing: `--quiet`.
    Quiet,
    /// Notices.
    Usual,
    /// Notices and remarks: `--verbose`.
    Verbose,
}

/// Standard output and standard error, and how this process writes to them. Cheap to clone; clones
/// share the status line.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    json: bool,
    level: Level,
    style: Style,
    screen: Arc<Mutex<Screen>>,
}

/// Content of the terminal besides lines.
#[derive(Debug, Default)]
struct Screen {
    /// Whether a status line is shown.
    status: bool,
    /// Whether there will be none any more: this process ends.
    ended: bool,
    /// Lines for standard error that wait until the whole screen is free again.
    kept: Option<Vec<u8>>,
    /// Whether standard error has a log of JSON objects, so that errors are objects, too.
    has_json_log: bool,
}

/// Bytes of lines that wait, at most.
const MOST_KEPT: usize = 16 << 10;

/// Keeps lines off the screen while a verb draws on all of it.
#[derive(Debug)]
pub(crate) struct WholeScreen(Output);

impl Drop for WholeScreen {
    /// Writes what has waited.
    fn drop(&mut self) {
        let kept = self.0.screen().kept.take();
        write_error(&kept.unwrap_or_default());
    }
}

impl Output {
    /// An output that writes JSON if `json`, and as much on standard error as `level` says.
    pub(crate) fn new(json: bool, level: Level) -> Self {
        Self {
            json,
            level,
            style: Style::default(),
            screen: Arc::default(),
        }
    }

    /// The same output with results that look so.
    pub(crate) fn with_style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// Whether results are JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Standard error has the log from now on.
    pub(crate) fn has_log(&self, is_json: bool) {
        self.screen().has_json_log = is_json;
    }

    /// Whether errors and events are JSON.
    fn has_json_errors(&self) -> bool {
        self.json || self.screen().has_json_log
    }

    /// Whether only results and errors are written.
    pub(crate) fn quiet(&self) -> bool {
        self.level == Level::Quiet
    }

    /// Whether a status line can be shown: standard error is a terminal, and this process is in its
    /// foreground.
    pub(crate) fn has_status(&self) -> bool {
        let error = std::io::stderr();
        let in_front = || tcgetpgrp(&error).is_ok_and(|group| group == getpgrp());
        !self.json && !self.quiet() && error.is_terminal() && in_front() && !is_dumb()
    }

    /// Writes the status line, in place of the one before. It is cut off at the terminal's edge.
    pub(crate) fn status(&self, text: &str) {
        let columns = tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        // A terminal of unknown width is taken to have 80 columns. The last one is left free: a
        // full line would wrap.
        let columns = if columns == 0 { 80 } else { columns };
        let line = OneLine(text).to_string();
        let line = cut(&line, columns.saturating_sub(1));
        let mut screen = self.screen();
        if screen.ended {
            return;
        }
        screen.status = true;
        write_error(format!("\r{line}\x1b[K").as_bytes());
    }

    /// Clears the status line, if there is one.
    pub(crate) fn clear_status(&self) {
        let mut screen = self.screen();
        if std::mem::take(&mut screen.status) {
            write_error(b"\r\x1b[K");
        }
    }

    /// Clears the status line, for good.
    pub(crate) fn end_status(&self) {
        self.screen().ended = true;
        self.clear_status();
    }

    fn screen(&self) -> std::sync::MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has lines for standard error wait until the answer is dropped: a verb draws on the whole
    /// screen.
    pub(crate) fn take_screen(&self) -> WholeScreen {
        self.screen().kept = Some(Vec::new());
        WholeScreen(self.clone())
    }

    /// Whether colour is used on standard output.
    pub(crate) fn uses_color(&self) -> bool {
        let is_terminal = || std::io::stdout().is_terminal();
        !self.json && self.style.color.is_used(is_terminal)
    }

    /// Writes one result: `record` as JSON, else `text`, each on a line of its own. Names and data
    /// of others are in it, so that what would end the line or control a terminal is escaped.
    pub(crate) fn result<T: Serialize>(&self, record: &T, text: impl AsRef<str>) {
        self.paragraph(record, OneLine(text.as_ref()).to_string());
    }

    /// Writes one result whose text has several lines, and nothing that others chose.
    pub(crate) fn paragraph<T: Serialize>(&self, record: &T, mut text: String) {
        if self.json {
            self.raw(json_line(record).as_bytes());
        } else {
            text.push('\n');
            self.raw(text.as_bytes());
        }
    }

    /// The columns into which results have to fit, if there is a limit.
    pub(crate) fn columns(&self) -> Option<usize> {
        let out = std::io::stdout();
        if self.style.wide || self.json || !out.is_terminal() {
            return None;
        }
        let size = tcgetwinsize(out).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// `text` in the colour of `tone`, where colour is used. Whatever others chose in it is
    /// escaped already.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        if !self.uses_color() {
            return text.to_owned();
        }
        format!("{}{text}\x1b[0m", tone.sequence())
    }

    /// Writes a table of results, each with its record for JSON and the tone of its line. Writes
    /// nothing where there are none.
    pub(crate) fn table<T: Serialize, const N: usize>(
        &self,
        titles: [&str; N],
        rows: impl IntoIterator<Item = (T, Option<Tone>, [String; N])>,
    ) {
        let mut tones = vec![Some(Tone::Title)];
        let mut cells = Vec::new();
        for (record, tone, row) in rows {
            if self.json {
                self.raw(json_line(&record).as_bytes());
            }
            tones.push(tone);
            cells.push(row.map(|cell| OneLine(&cell).to_string()));
        }
        if self.json || cells.is_empty() {
            return;
        }
        let mut text = String::new();
        let lines = table::lines(titles, &cells, self.columns());
        for (line, tone) in lines.iter().zip(tones) {
            match tone {
                Some(tone) => text.push_str(&self.paint(tone, line)),
                None => text.push_str(line),
            }
            text.push('\n');
        }
        self.raw(text.as_bytes());
    }

    /// Writes bytes to standard output as they are, and flushes.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        self.clear_status();
        let mut out = std::io::stdout().lock();
        // A closed pipe means that the reader wants no more: not an error.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    /// A notice for people, unless results are JSON.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.quiet() && !self.has_json_errors() {
            self.error_line(&format!("baton: {}", OneLine(text.as_ref())));
        }
    }

    /// A remark for people that is shown with `--verbose`.
    pub(crate) fn verbose(&self, text: impl FnOnce() -> String) {
        if self.is_verbose() && !self.screen().has_json_log {
            self.error_line(&format!("baton: {}", OneLine(&text())));
        }
    }

    /// Whether remarks are shown.
    pub(crate) fn is_verbose(&self) -> bool {
        self.level == Level::Verbose
    }

    /// Something that has happened: `record` as JSON, else `text` as a notice. On standard error,
    /// because standard output is the command's where there is one.
    pub(crate) fn event<T: Serialize>(&self, record: &T, text: impl AsRef<str>) {
        if self.has_json_errors() && !self.quiet() {
            self.error_line(json_line(record).trim_end());
        } else {
            self.note(text);
        }
    }

    fn error_line(&self, line: &str) {
        self.clear_status();
        self.keep_or_write(format!("{line}\n").as_bytes());
    }

    /// A whole line of the log.
    pub(crate) fn log_line(&self, line: &[u8]) {
        self.clear_status();
        self.keep_or_write(line);
    }

    fn keep_or_write(&self, line: &[u8]) {
        match &mut self.screen().kept {
            Some(kept) if kept.len() + line.len() > MOST_KEPT => {}
            Some(kept) => kept.extend_from_slice(line),
            None => write_error(line),
        }
    }

    /// Names a node that a listing could not read, as one line or one JSON object, on standard
    /// error.
    pub(crate) fn passed_over(&self, path: &str, why: &str) {
        #[derive(Serialize)]
        struct Record<'a> {
            passed_over: &'a str,
            why: &'a str,
        }
        if self.has_json_errors() {
            let record = Record {
                passed_over: path,
                why,
            };
            self.error_line(json_line(&record).trim_end());
        } else {
            let text = format!("{path}: passed over: {why}");
            self.error_line(&format!("baton: {}", OneLine(&text)));
        }
    }

    /// An error, as one line or one JSON object, on standard error.
    pub(crate) fn failure(&self, failure: &Failure) {
        #[derive(Serialize)]
        struct Record<'a> {
            error: &'a str,
            kind: &'a str,
            exit_code: u8,
        }
        if self.has_json_errors() {
            let record = Record {
                error: &failure.text,
                kind: failure.kind,
                exit_code: failure.exit_code,
            };
            self.error_line(json_line(&record).trim_end());
        } else if failure.exit_code != exit::OK || self.is_verbose() {
            // `-E 0` says that not to acquire is no failure: cron would send a mail about it.
            self.error_line(&format!("baton: {}", OneLine(&failure.text)));
        } else {
            self.clear_status();
        }
    }
}

/// One JSON object and a line break.
fn json_line<T: Serialize>(record: &T) -> String {
    let mut line = serde_json::to_string(record).unwrap_or_else(|error| {
        format!("{{\"error\":\"cannot write the record as JSON: {error}\"}}")
    });
    line.push('\n');
    line
}

/// Writes to standard error in one call, so that lines of several processes do not mix.
fn write_error(bytes: &[u8]) {
    error_stream::write(bytes);
}

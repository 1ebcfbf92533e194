//! Where results, remarks and errors are written.
//!
//! Results go to standard output, everything else to standard error. A reader that went away (`| head`) is not an
//! error. With `--json`, results and errors are objects, one a line; remarks are left out.

use std::io::Write;

use serde::Serialize;

use crate::exit::Failure;

/// The two ways out of the process, and how to write on them.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    json: bool,
    verbose: bool,
}

impl Output {
    /// An output that writes JSON if `json`, and remarks if `verbose`.
    pub(crate) fn new(json: bool, verbose: bool) -> Self {
        Self { json, verbose }
    }

    /// Whether results are JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Writes one result: `record` as JSON, else `text` as it is, each on a line of its own.
    pub(crate) fn result<T: Serialize>(&self, record: &T, text: impl AsRef<str>) {
        if self.json {
            self.raw(json_line(record).as_bytes());
        } else {
            let mut line = text.as_ref().to_owned();
            line.push('\n');
            self.raw(line.as_bytes());
        }
    }

    /// Writes bytes to standard output as they are, and flushes.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        let mut out = std::io::stdout().lock();
        // A closed pipe means that the reader has seen enough; there is nobody left to tell.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    /// A remark for people that is always shown, unless results are JSON.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.json {
            eprint_line(&format!("baton: {}", text.as_ref()));
        }
    }

    /// A remark for people that is shown with `--verbose`.
    pub(crate) fn verbose(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            eprint_line(&format!("baton: {}", text()));
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
        if self.json {
            let record = Record {
                error: &failure.text,
                kind: failure.kind,
                exit_code: failure.exit_code,
            };
            eprint_line(json_line(&record).trim_end());
        } else {
            eprint_line(&format!("baton: {}", failure.text));
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

/// Writes a line to standard error in one call, so that lines of several processes do not mix.
fn eprint_line(text: &str) {
    let _ = std::io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

//! Golden answers: what Apache ZooKeeper said, recorded in files of this crate, for machines where
//! it is not installed.

use std::fs;
use std::path::PathBuf;

/// Writes the file again from what is compared with it.
const RECORD: &str = "BATON_RECORD_GOLDEN";

/// Compares a transcript with the recorded one.
///
/// # Panics
/// At the first line that differs, with the lines before it.
#[allow(clippy::panic)] // It is called by tests only.
pub fn compare(name: &str, transcript: &str) {
    let path = path(name);
    let golden =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (heard, golden) = (lines(transcript), lines(&golden));
    let first = (0..heard.len().max(golden.len())).find(|at| heard.get(*at) != golden.get(*at));
    if let Some(first) = first {
        let before = golden
            .get(first.saturating_sub(8)..first)
            .unwrap_or_default();
        panic!(
            "{name}, line {}:\n  {}\n  recorded: {}\n  heard:    {}",
            first + 1,
            before.join("\n  "),
            golden.get(first).unwrap_or(&"nothing more"),
            heard.get(first).unwrap_or(&"nothing more"),
        );
    }
}

/// [`compare`] for the server that the golden answers are of: with `BATON_RECORD_GOLDEN` set, the
/// file is written first.
///
/// # Panics
/// As [`compare`], or because the file cannot be written.
#[allow(clippy::panic)] // It is called by tests only.
pub fn compare_or_record(name: &str, transcript: &str) {
    if std::env::var_os(RECORD).is_some_and(|value| !value.is_empty()) {
        let path = path(name);
        fs::write(&path, transcript).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    compare(name, transcript);
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

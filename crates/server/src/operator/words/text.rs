//! Lines of an answer.

/// Appends a line.
pub(super) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    use std::fmt::Write as _;
    let _ = writeln!(out, "{text}");
}

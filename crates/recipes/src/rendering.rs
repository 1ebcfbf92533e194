//! Rendering of ids, bytes and texts that other programs chose: in JSON, and on one line.
//!
//! Owns these forms only. What others wrote to the tree must never end a line or command a
//! terminal.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use serde::Serializer;

/// The longest text of another library that is shown on a line.
const LONGEST_TEXT: usize = 60;

/// A session's id as operators know it: a number of this size is not exact in every JSON reader.
pub(crate) fn session_id<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("0x{id:x}"))
}

/// A value by its text.
pub(crate) fn text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Bytes as text; what is not UTF-8 is replaced.
pub(crate) fn lossy<B: AsRef<[u8]>, S: Serializer>(
    bytes: &B,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes.as_ref()))
}

/// A duration as a number of milliseconds.
pub(crate) fn milliseconds<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let millis = duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    serde::Serialize::serialize(&millis, serializer)
}

/// Bytes that are a short text without control characters, trimmed.
pub(crate) fn short_text(data: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(data).ok()?.trim();
    let is_shown = !text.is_empty()
        && text.chars().count() <= LONGEST_TEXT
        && !text.chars().any(char::is_control);
    is_shown.then_some(text)
}

/// A text on one line: characters that end a line, command a terminal or turn the direction of
/// writing are escaped.
pub(crate) struct OneLine<'a>(pub &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            let is_format = matches!(letter,
                '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if letter.is_control() || is_format {
                write!(f, "{}", letter.escape_debug())?;
            } else {
                f.write_char(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_and_other_text_stays_as_it_is() {
        let shown = OneLine("a\nb\u{1b}[2J\u{202e}\u{2028}c\\é").to_string();
        assert_eq!(shown, "a\\nb\\u{1b}[2J\\u{202e}\\u{2028}c\\é");
    }

    #[test]
    fn only_short_text_without_control_characters_is_shown() {
        assert_eq!(short_text(b" 10.0.0.1\n"), Some("10.0.0.1"));
        for other in [&b""[..], b" ", b"\xff\xfe", b"a\x1bb", &[b'x'; 61]] {
            assert_eq!(short_text(other), None, "{other:?}");
        }
    }
}

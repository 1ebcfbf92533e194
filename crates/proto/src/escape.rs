//! Text that a peer chose, made fit for a line that people read: a log, a terminal, the answer to a
//! four-letter word.

use std::fmt::{self, Write as _};

/// Displays text on one line: a character that is not printable, and the backslash, is written as
/// an escape of Rust's (`\n`, `\u{1b}`, `\\`), so that no text can end the line, colour a terminal
/// or pass for another text.
///
/// ```
/// use baton_proto::Escaped;
/// assert_eq!(Escaped("/a b/ü").to_string(), "/a b/ü");
/// assert_eq!(Escaped("/a\n\u{1b}[2J").to_string(), "/a\\n\\u{1b}[2J");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(
    /// The text.
    pub &'a str,
);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        pad_escaped(self.0, &['"', '\''], f)
    }
}

/// Displays text on one line as [`Escaped`] does, but leaves backslashes and tabs as they are: for
/// output that is read by people and by programs alike.
///
/// ```
/// use baton_proto::OneLine;
/// assert_eq!(OneLine("a\tb\\c\n\u{1b}[2J").to_string(), "a\tb\\c\\n\\u{1b}[2J");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct OneLine<'a>(
    /// The text.
    pub &'a str,
);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        pad_escaped(self.0, &['"', '\'', '\\', '\t'], f)
    }
}

/// `kept` are those among the characters that `escape_debug` escapes which stay as they are.
fn pad_escaped(text: &str, kept: &[char], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = |byte: u8| {
        (byte.is_ascii_graphic() && byte != b'\\')
            || byte == b' '
            || kept.contains(&char::from(byte))
    };
    if text.bytes().all(|byte| byte.is_ascii() && plain(byte)) {
        return f.pad(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for part in text.split_inclusive(kept) {
        let (text, kept) = match part.strip_suffix(kept) {
            Some(text) => (text, part.get(text.len()..).unwrap_or_default()),
            None => (part, ""),
        };
        write!(escaped, "{}{kept}", text.escape_debug())?;
    }
    f.pad(&escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_line_commands_a_terminal_or_passes_for_another() {
        for (text, shown) in [
            ("/plain path/it's \"quoted\"", "/plain path/it's \"quoted\""),
            ("/ü/日本/e\u{301}", "/ü/日本/e\u{301}"),
            ("/a\n/b", "/a\\n/b"),
            ("/a\\n/b", "/a\\\\n/b"),
            ("\t\r\0", "\\t\\r\\0"),
            ("\u{1b}[31m\u{9b}2J", "\\u{1b}[31m\\u{9b}2J"),
            (
                "\u{202e}txt\u{2028}\u{200b}",
                "\\u{202e}txt\\u{2028}\\u{200b}",
            ),
            ("", ""),
        ] {
            assert_eq!(Escaped(text).to_string(), shown);
        }
        assert_eq!(format!("{:<6}|", Escaped("a\n")), "a\\n   |");
        assert_eq!(
            OneLine("it's \"a\\b\"\tc\r\n").to_string(),
            "it's \"a\\b\"\tc\\r\\n"
        );
    }
}

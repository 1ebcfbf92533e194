//! Java's properties format, in which a zoo.cfg is written: lines, comments, continuations,
//! escapes. Knows no key.
//!
//! The crate `java-properties` does not serve here: it has had no release since 2.0.0, brings a
//! regular-expression engine and an encoding library with it, and accepts a key without a value,
//! which is refused here with its line.

/// One entry: its line, counted from 1, its key and its value, both without space around them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: String,
}

/// All entries in their order.
///
/// # Errors
/// The number of a line that has a key and nothing behind it, or a wrong escape, and the line.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let mut entries = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, text)) = lines.next() {
        let text = text.trim();
        if text.is_empty() || text.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = text.to_owned();
        while continues(&whole) {
            whole.pop();
            let Some((_, more)) = lines.next() else {
                break;
            };
            whole.push_str(more.trim());
        }
        let (key, value) = split(&whole).ok_or_else(|| (line, whole.clone()))?;
        entries.push(Entry {
            line,
            key: unescape(key.trim()).ok_or_else(|| (line, whole.clone()))?,
            value: unescape(value.trim()).ok_or_else(|| (line, whole.clone()))?,
        });
    }
    Ok(entries)
}

/// The text of such a file, as Java reads it: each byte is a character of Latin-1. Others are
/// written as \\uXXXX.
pub(super) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Whether the line ends with an odd number of backslashes.
fn continues(line: &str) -> bool {
    let backslashes = line.len() - line.trim_end_matches('\\').len();
    !backslashes.is_multiple_of(2)
}

/// Key and value: the first `=`, `:` or space that is not escaped is between them.
fn split(line: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, letter) in line.char_indices() {
        if !escaped && (matches!(letter, '=' | ':') || letter.is_whitespace()) {
            let (key, rest) = line.split_at(at);
            let rest = rest.trim_start();
            let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return Some((key, value));
        }
        escaped = !escaped && letter == '\\';
    }
    None
}

/// The text without its escapes; `None` for a `\u` that is not a character.
fn unescape(text: &str) -> Option<String> {
    let mut units = Vec::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '\\' => match letters.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits = letters.as_str().get(..4)?;
                    units.push(u16::from_str_radix(digits, 16).ok()?);
                    letters.nth(3);
                    continue;
                }
                Some(other) => other,
                None => continue,
            },
            letter => letter,
        };
        units.extend_from_slice(letter.encode_utf16(&mut [0; 2]));
    }
    String::from_utf16(&units).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_comments_continuations_and_escapes_are_java_s() {
        let text =
            "# c\n! c\n\na=1\nb : 2\nc 3\nd = x\\\n   y\ne\\=f=g\\\\\nh=\nserver.1=a:1:2;3\n";
        let found: Vec<(usize, String, String)> = entries(text)
            .unwrap()
            .into_iter()
            .map(|entry| (entry.line, entry.key, entry.value))
            .collect();
        let expected = [
            (4, "a", "1"),
            (5, "b", "2"),
            (6, "c", "3"),
            (7, "d", "xy"),
            (9, "e=f", "g\\"),
            (10, "h", ""),
            (11, "server.1", "a:1:2;3"),
        ];
        let expected = expected.map(|(line, key, value)| (line, key.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
        assert_eq!(entries("a=1\nalone"), Err((2, "alone".to_owned())));
    }

    #[test]
    fn bytes_are_latin_1_and_other_characters_are_escaped() {
        let found = |bytes: &[u8]| entries(&text(bytes)).map(|found| found[0].value.clone());
        assert_eq!(found(b"a=/d\xe4ta"), Ok("/däta".to_owned()));
        assert_eq!(
            found(b"a=/\\u65e5\\ud83d\\ude00\\r."),
            Ok("/日😀\r.".to_owned())
        );
        for wrong in [&b"a=\\u12"[..], b"a=\\uzzzz", b"a=\\ud83d"] {
            assert!(found(wrong).is_err_and(|(line, _)| line == 1));
        }
    }
}

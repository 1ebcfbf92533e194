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
/// The number of a line that has a key and nothing behind it, and the line.
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
            key: unescape(key.trim()),
            value: unescape(value.trim()),
        });
    }
    Ok(entries)
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

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => {}
            },
            letter => out.push(letter),
        }
    }
    out
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
}

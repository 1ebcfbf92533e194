//! Width of a text in columns of a terminal, and the part of it that fits.

/// The columns that `text` takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

/// Letters from U+1100 on count as two: many of them are that wide.
fn width_of(letter: char) -> usize {
    if letter < '\u{1100}' { 1 } else { 2 }
}

/// The beginning of `text` that fits into this number of columns.
pub(crate) fn cut(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, letter) in text.char_indices() {
        used += width_of(letter);
        if used > columns {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

/// `text` in this number of columns; a mark stands for what does not fit.
pub(crate) fn shortened(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    format!("{}~", cut(text, columns.saturating_sub(1)))
}

/// `text` in lines of at most this number of columns, broken between words. A longer word has a
/// line of its own.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_cut_at_the_edge_whatever_it_is_written_in() {
        assert_eq!(cut("held", 4), "held");
        assert_eq!(cut("held", 3), "hel");
        assert_eq!(cut("häl\u{6c34}d", 4), "häl");
        assert_eq!(cut("häl\u{6c34}d", 5), "häl\u{6c34}");
        assert_eq!(cut("x", 0), "");
    }

    #[test]
    fn what_is_left_out_has_a_mark() {
        assert_eq!(shortened("held", 4), "held");
        assert_eq!(shortened("held by", 5), "held~");
        assert_eq!(shortened("\u{6c34}\u{6c34}", 3), "\u{6c34}~");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("who holds it", 9), ["who holds", "it"]);
        assert_eq!(wrapped("a verylongword b", 4), ["a", "verylongword", "b"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}

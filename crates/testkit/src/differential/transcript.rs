//! A difference as text that a person reads. Owns the form; compares nothing but where the first
//! difference is.

use std::fmt::Write as _;

use super::generator::LARGE;
use super::program::Program;

/// Writes down the requests, line by line, and what was heard of each, up to the first line at
/// which the servers differ.
pub(super) fn transcript(
    program: &Program,
    ours: &[Vec<String>],
    theirs: &[Vec<String>],
) -> String {
    let mut text = String::new();
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        match program.lines.get(index) {
            Some(line) => _ = writeln!(text, "{line}"),
            None => text.push_str("all sessions are closed\n"),
        }
        if ours == theirs {
            for line in ours {
                let _ = writeln!(text, "        {line}");
            }
            continue;
        }
        for (who, heard) in [("Baton    ", ours), ("ZooKeeper", theirs)] {
            for line in heard {
                let _ = writeln!(text, "  {who}: {line}");
            }
        }
        break;
    }
    let large = String::from_utf8_lossy(LARGE);
    let text = text
        .replace(&format!("{LARGE:?}"), "LARGE")
        .replace(large.as_ref(), "LARGE");
    with_words(&text)
}

/// Data that is text, as text.
fn with_words(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let list = after.split_once(']');
        rest = match list.and_then(|(list, behind)| Some((words(list)?, behind))) {
            Some((words, behind)) => {
                let _ = write!(out, "b{words:?}");
                behind
            }
            None => {
                out.push('[');
                after
            }
        };
    }
    out + rest
}

fn words(list: &str) -> Option<String> {
    let letter = |number: &str| {
        let byte: u8 = number.parse().ok()?;
        (byte.is_ascii_graphic() || byte == b' ').then_some(char::from(byte))
    };
    list.split(", ").map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_is_text_reads_as_text() {
        let data = format!("Some({:?}), [], [Acl], {:?} [7, 8]", b"one two", b"=3");
        assert_eq!(
            with_words(&data),
            "Some(b\"one two\"), [], [Acl], b\"=3\" [7, 8]"
        );
    }
}

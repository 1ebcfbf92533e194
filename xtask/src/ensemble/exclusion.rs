//! Exclusion as the thing that a lock protects sees it: a file to which the commands of all holders
//! append lines, each with a fencing token and the time. Pure: it reads the file's text.

use std::collections::BTreeSet;

/// One line of a holder's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) token: u64,
    /// The wall clock's nanoseconds when the line was made.
    nanos: u128,
    pub(super) who: String,
}

/// The lines of the file. What a command had not finished when it was killed is left out.
pub(super) fn lines(text: &str) -> Vec<Line> {
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let read = whole.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Line {
            token: words.next()?.parse().ok()?,
            nanos: words.next()?.parse().ok()?,
            who: words.next()?.to_owned(),
        })
    });
    read.collect()
}

/// Returns what contradicts that one holds at a time: a line with a lower token behind one with a
/// higher token, a line that was made before one of an earlier holder, and a token that two share.
pub(super) fn violations(lines: &[Line]) -> Vec<String> {
    let mut found = Vec::new();
    for pair in lines.windows(2) {
        let [one, next] = pair else {
            continue;
        };
        if next.token < one.token {
            found.push(format!("{next:?} was written after {one:?}"));
        }
        if next.token != one.token && next.nanos < one.nanos {
            found.push(format!(
                "{next:?} was made before {one:?} and written after it"
            ));
        }
        if next.token == one.token && next.who != one.who {
            found.push(format!("{one:?} and {next:?} have one token"));
        }
    }
    found
}

/// Returns the number of holders.
pub(super) fn holders(lines: &[Line]) -> usize {
    let tokens: BTreeSet<u64> = lines.iter().map(|line| line.token).collect();
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        violations(&lines(text)).len()
    }

    #[test]
    fn holders_one_after_the_other_are_fine_and_a_torn_line_is_left_out() {
        let text = "5 100 a\n5 120 a\n9 130 b\n9 140 b\n12 1";
        assert_eq!(found(text), 0);
        assert_eq!(holders(&lines(text)), 2);
        assert_eq!(lines(text).len(), 4);
    }

    #[test]
    fn two_at_once_are_found_by_token_and_by_time() {
        assert!(found("5 100 a\n9 130 b\n5 140 a\n") > 0, "by token");
        assert_eq!(found("5 100 a\n5 140 a\n9 130 b\n"), 1, "by time");
        assert_eq!(found("5 100 a\n5 110 b\n"), 1, "one token for two");
    }
}

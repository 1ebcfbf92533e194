//! Asking a person before something is deleted.
//!
//! Owns when there is somebody to ask: both the question and the answer go through a terminal. A
//! script is never kept waiting.

use std::io::{BufRead, IsTerminal, Write};

use baton_proto::OneLine;

/// The answer to a question about a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// Nobody is there: standard input or standard error is not a terminal.
    Nobody,
}

/// Shows these lines and asks `question` on the terminal, if there is one. Whatever is not a clear
/// yes is a no.
pub(crate) fn ask(shown: &[String], question: &str) -> Answer {
    let (input, error) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !error.is_terminal() {
        return Answer::Nobody;
    }
    let shown = shown
        .iter()
        .map(|line| format!("baton: {}\n", OneLine(line)));
    let text: String = shown.collect();
    let _ = write!(error.lock(), "{text}baton: {} [y/N] ", OneLine(question));
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(_) if is_yes(&line) => Answer::Yes,
        _ => Answer::No,
    }
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        for yes in ["y\n", "Y\n", " yes \n", "YES"] {
            assert!(is_yes(yes), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no\n", "yep\n", "yy\n"] {
            assert!(!is_yes(no), "{no:?}");
        }
    }
}

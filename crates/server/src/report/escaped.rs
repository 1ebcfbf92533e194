//! A client's text as the log shows it: escaped and shortened, so that no client writes lines of
//! its own.

use std::fmt;

use baton_proto::{Decoder, Limits};

/// Characters of a client's text that get into a line.
const SHOWN_CHARS: usize = 100;

/// A client's text, for the log.
pub(crate) struct EscapedText<'a>(pub(crate) &'a str);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EscapedText(text) = self;
        match text.char_indices().nth(SHOWN_CHARS) {
            None => write!(f, "{}", text.escape_debug()),
            Some((end, _)) => {
                let shown = text.get(..end).unwrap_or_default();
                write!(f, "{}… ({} bytes)", shown.escape_debug(), text.len())
            }
        }
    }
}

/// " of PATH" for a line about a request, or nothing where the request has no path.
pub(crate) struct OfPath<'a>(Option<&'a str>);

impl<'a> OfPath<'a> {
    /// The path that a record begins with, as the records of most operations do.
    pub(crate) fn of_record(body: &'a [u8]) -> Self {
        let path = Decoder::new(body, &Limits::default()).string("path").ok();
        Self(path.filter(|path| path.starts_with('/')))
    }
}

impl fmt::Display for OfPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, " of {}", EscapedText(path)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a02_a_peers_text_makes_no_lines_of_its_own_and_is_cut() {
        assert_eq!(
            EscapedText("/a\n2026 WARN all is well").to_string(),
            "/a\\n2026 WARN all is well"
        );
        assert_eq!(EscapedText("/\u{1b}[31m").to_string(), "/\\u{1b}[31m");
        let long = "ü".repeat(1 << 20);
        let shown = EscapedText(&long).to_string();
        assert!(shown.len() < 300, "{shown}");
        assert!(shown.ends_with("… (2097152 bytes)"), "{shown}");
    }

    #[test]
    fn the_path_of_a_record_is_found_where_there_is_one() {
        let mut body = Vec::new();
        baton_proto::wire::put_string(&mut body, "/secret");
        body.push(1);
        assert_eq!(OfPath::of_record(&body).0, Some("/secret"));
        assert_eq!(OfPath::of_record(b"\0\0\0\x0e\0\xff\xff\xff\xff").0, None);
        assert_eq!(OfPath::of_record(b"").0, None);
    }
}

//! The words of a command line under construction, as a shell will understand them, and a value as
//! it has to be written there. Knows quotes, backslashes and variables; runs nothing.

use std::env;

/// A word; `None`: the shell has to expand it first, and only the shell can.
pub(super) type Word = Option<String>;

/// A command line up to the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The words before the one at the cursor, the command's name first.
    pub(super) before: Vec<Word>,
    /// The word at the cursor.
    pub(super) current: Word,
    /// Position and quotes of the value.
    pub(super) place: Place,
    /// Whether it names the file of a redirection.
    pub(super) is_redirection: bool,
}

/// Position of a value: what stands there already, and stays, and in which quotes it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes of the value that stay.
    kept: usize,
    /// The quote in which it is.
    quote: Option<char>,
}

impl Place {
    /// `value` as bash has to find it on its command line; `None`: it cannot be written there.
    pub(super) fn write(self, value: &str) -> Option<String> {
        let rest = value.get(self.kept..)?;
        let mut written = String::with_capacity(rest.len() + 8);
        for char in rest.chars() {
            match (self.quote, char) {
                (Some('\''), '\'') => written.push_str("'\\''"),
                (Some('\''), _) => written.push(char),
                // An interactive shell reads it as a reference to its history, quoted or not.
                (Some(_), '!') => return None,
                (Some(_), '$' | '`' | '"' | '\\') => written.extend(['\\', char]),
                (Some(_), _) => written.push(char),
                (None, _) if is_plain(char) => written.push(char),
                (None, _) => written.extend(['\\', char]),
            }
        }
        Some(written)
    }
}

/// Whether a character means nothing to a shell, wherever it stands.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || "/_-.,@%+:=".contains(char) || !char.is_ascii()
}

/// Splits a command line of bash, which ends at the cursor. `breaks` are the characters at which
/// the shell begins a new word to replace (COMP_WORDBREAKS).
pub(super) fn of_bash(line: &str, breaks: &str) -> Words {
    let mut scan = Scan::default();
    scan.read(line, true);
    let breaks_here = |(at, char): &(usize, char)| breaks.contains(*char) && scan.is_bare(*at);
    let start = match scan.quote {
        Some((_, at)) => at + 1,
        None => line
            .char_indices()
            .rfind(breaks_here)
            .map_or(0, |(at, char)| at + char.len_utf8()),
    };
    // Of the word's bytes, those that its text before `start` has.
    let kept = scan
        .lengths
        .iter()
        .take_while(|(at, _)| *at <= start)
        .last()
        .map_or(0, |(_, length)| *length);
    let place = Place {
        kept,
        quote: scan.quote.map(|(quote, _)| quote),
    };
    scan.into_words(place)
}

/// Words that a shell has split, and not unquoted; the last is the one at the cursor. The shell
/// itself writes values in its place.
pub(super) fn of_split<'a>(words: impl IntoIterator<Item = &'a str>) -> Words {
    let mut before = Vec::new();
    let mut last = Scan::default();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let mut scan = Scan::default();
        scan.read(word, false);
        if words.peek().is_some() {
            before.push(scan.word.end());
        } else {
            last = scan;
        }
    }
    Words {
        before,
        current: last.word.end(),
        place: Place::default(),
        is_redirection: false,
    }
}

/// A word that is being read.
#[derive(Debug, Default)]
struct Partial {
    text: String,
    is_begun: bool,
    is_unknown: bool,
}

impl Partial {
    fn push(&mut self, char: char) {
        self.is_begun = true;
        self.text.push(char);
    }

    fn end(self) -> Word {
        (!self.is_unknown).then_some(self.text)
    }
}

/// The scan of a line.
#[derive(Debug, Default)]
struct Scan {
    before: Vec<Word>,
    word: Partial,
    /// The quote that is open, and where.
    quote: Option<(char, usize)>,
    /// Bytes of the line at which the word has how many bytes of text.
    lengths: Vec<(usize, usize)>,
    /// Positions of characters that are neither quoted nor quotes.
    bare: Vec<usize>,
    /// A word that follows is the file of a redirection.
    redirects: bool,
}

impl Scan {
    fn is_bare(&self, at: usize) -> bool {
        self.bare.binary_search(&at).is_ok()
    }

    /// Reads a line, or with `!splits` one word.
    fn read(&mut self, line: &str, splits: bool) {
        let mut chars = line.char_indices().peekable();
        while let Some((at, char)) = chars.next() {
            let quote = self.quote.map(|(quote, _)| quote);
            self.note(at);
            match (quote, char) {
                (Some(quote), _) if char == quote => self.quote = None,
                (None, '\'' | '"') => {
                    self.quote = Some((char, at));
                    self.word.is_begun = true;
                }
                (Some('\''), _) => self.word.push(char),
                (_, '\\') => {
                    let next = chars.next();
                    match (quote, next) {
                        (_, None | Some((_, '\n'))) => {}
                        (Some(_), Some((_, next))) if !"$`\"\\".contains(next) => {
                            self.word.push(char);
                            self.word.push(next);
                        }
                        (_, Some((_, next))) => self.word.push(next),
                    }
                }
                (_, '$') => {
                    let rest = line.get(at + 1..).unwrap_or_default();
                    let used = self.expand(rest, quote.is_some());
                    while chars.peek().is_some_and(|(next, _)| *next <= at + used) {
                        chars.next();
                    }
                }
                (_, '`') => {
                    self.word.is_unknown = true;
                    self.word.is_begun = true;
                }
                (None, '~') if !self.word.is_begun => self.home(line.get(at + 1..)),
                (None, _) if splits && char.is_whitespace() => {
                    self.bare.push(at);
                    self.end_word();
                }
                (None, '<' | '>') if splits => {
                    self.bare.push(at);
                    // The number of a file that is redirected.
                    if self.word.text.bytes().all(|byte| byte.is_ascii_digit()) {
                        self.word = Partial::default();
                    }
                    self.end_word();
                    self.redirects = true;
                }
                (None, _) => {
                    if "*?[{".contains(char) {
                        self.word.is_unknown = true;
                    }
                    self.bare.push(at);
                    self.word.push(char);
                }
                (Some(_), _) => self.word.push(char),
            }
        }
        self.note(line.len());
    }

    fn note(&mut self, at: usize) {
        self.lengths.push((at, self.word.text.len()));
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        if !word.is_begun {
            return;
        }
        self.lengths.clear();
        if !std::mem::take(&mut self.redirects) {
            self.before.push(word.end());
        }
    }

    /// Reads a variable after its dollar sign. Returns how many bytes it takes.
    fn expand(&mut self, rest: &str, is_quoted: bool) -> usize {
        self.word.is_begun = true;
        let (name, used) = match rest.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((name, _)) => (name, name.len() + 2),
                None => ("", 0),
            },
            None => {
                let other = |char: char| !char.is_ascii_alphanumeric() && char != '_';
                let length = rest.find(other).unwrap_or(rest.len());
                (rest.get(..length).unwrap_or_default(), length)
            }
        };
        let is_name = |name: &str| {
            let mut bytes = name.bytes();
            let first = bytes.next();
            first.is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let value = is_name(name).then(|| env::var(name).ok()).flatten();
        // Without quotes, the shell splits it and searches for files.
        let is_one =
            |value: &String| is_quoted || !value.contains([' ', '\t', '\n', '*', '?', '[']);
        match value.filter(is_one) {
            Some(value) => self.word.text.push_str(&value),
            None => self.word.is_unknown = true,
        }
        used
    }

    /// Reads a tilde at the beginning of a word.
    fn home(&mut self, rest: Option<&str>) {
        let rest = rest.unwrap_or_default();
        self.word.is_begun = true;
        let is_own = rest.is_empty() || rest.starts_with(['/', ' ']);
        match env::var("HOME") {
            Ok(home) if is_own => self.word.text.push_str(&home),
            _ => self.word.is_unknown = true,
        }
    }

    fn into_words(self, place: Place) -> Words {
        Words {
            before: self.before,
            current: self.word.end(),
            place,
            is_redirection: self.redirects,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Word breaks of bash.
    const BREAKS: &str = " \t\n\"'><=;|&(:";

    fn known(words: &[&str]) -> Vec<Word> {
        words.iter().map(|word| Some((*word).to_owned())).collect()
    }

    #[test]
    fn a_line_is_split_as_a_shell_splits_it() {
        for (line, before, current) in [
            ("baton ", &["baton"][..], ""),
            ("baton get /a", &["baton", "get"], "/a"),
            ("baton  get\t/a\\ b/c", &["baton", "get"], "/a b/c"),
            ("baton get '/a b'/\"c $", &["baton", "get"], "/a b/c $"),
            ("baton get \"/a\\\"\\b", &["baton", "get"], "/a\"\\b"),
            ("baton 2>/dev/null get /a:b", &["baton", "get"], "/a:b"),
            (
                "baton --servers=h:1 ls '",
                &["baton", "--servers=h:1", "ls"],
                "",
            ),
            ("baton '' x", &["baton", ""], "x"),
        ] {
            let words = of_bash(line, BREAKS);
            assert_eq!(words.before, known(before), "{line}");
            // A lone dollar sign may become anything.
            let wanted = (!current.ends_with('$')).then(|| current.to_owned());
            assert_eq!(words.current, wanted, "{line}");
            assert!(!words.is_redirection);
        }
        assert!(of_bash("baton get /a > fi", BREAKS).is_redirection);
        assert!(of_bash("baton get /a 2>", BREAKS).is_redirection);
    }

    #[test]
    fn what_only_the_shell_can_expand_is_unknown() {
        for word in [
            "$(touch x)",
            "`touch x`",
            "*.pem",
            "~other/x",
            "{a,b}",
            "$BATON_NO_SUCH_VARIABLE",
        ] {
            let words = of_bash(&format!("baton --auth-file {word} get /"), BREAKS);
            assert!(words.before.contains(&None), "{word}: {words:?}");
            let last = of_split(["baton", word]);
            assert_eq!(last.current, None, "{word}");
        }
        let home = env::var("HOME").unwrap();
        let words = of_split(["baton", "~/x", "$HOME/y", "\"${HOME}\"", "'$HOME'", ""]);
        let wanted = [
            "baton",
            &format!("{home}/x"),
            &format!("{home}/y"),
            &home,
            "$HOME",
        ];
        assert_eq!(words.before, known(&wanted));
        assert_eq!(words.current, Some(String::new()));
    }

    /// Checks that a value goes on at the shell's last break, or behind the quote that is open:
    /// there the shell begins to replace.
    #[test]
    fn a_value_goes_on_where_the_shell_begins_to_replace() {
        for (line, value, written) in [
            ("baton get /a", "/a b", "/a\\ b"),
            ("baton get /a:", "/a:b", "b"),
            ("baton get /a\\:", "/a:b", "/a:b"),
            ("baton --context=d", "--context=de v", "de\\ v"),
            ("baton get \"/a", "/a$b", "/a\\$b"),
            ("baton get '/a", "/a'b", "/a'\\''b"),
            ("baton get '/a b'/c", "/a b/c d", "/a\\ b/c\\ d"),
            ("baton get /a/\"b", "/a/b c", "b c"),
            ("baton get ", "/a", "/a"),
            ("baton get /x>", "/a", "/a"),
        ] {
            let words = of_bash(line, BREAKS);
            assert_eq!(words.place.write(value).as_deref(), Some(written), "{line}");
        }
        let words = of_bash("baton get \"/a", BREAKS);
        assert_eq!(words.place.write("/a!b"), None);
    }

    /// The shell itself says whether it finds the value again, and nothing else.
    #[test]
    fn no_value_is_more_than_a_word_to_a_shell() {
        let values = [
            "/$(touch /tmp/x)",
            "/`id`",
            "/a;b",
            "/a&b|c",
            "/a'b",
            "/a\"b",
            "/a\\b",
            "/a b",
            "/#a",
            "/~",
            "/{a,b}",
            "/*",
            "/a!b",
            "/a<b>c",
            "/(a)",
            "/-rf",
            "/ü日",
            "/a^b",
            "/[a]",
            "/$HOME",
        ];
        for open in ["", "'", "\""] {
            let line = format!("baton get {open}/");
            let place = of_bash(&line, BREAKS).place;
            for value in values {
                let Some(written) = place.write(value) else {
                    assert!(open == "\"" && value.contains('!'), "{value}");
                    continue;
                };
                let script = format!("printf '%s\\n' {open}{written}{open}");
                let shown = Command::new("sh").args(["-c", &script]).output().unwrap();
                let shown = String::from_utf8(shown.stdout).unwrap();
                assert_eq!(shown, format!("{value}\n"), "{script}");
            }
        }
    }
}

//! The file of users for SASL: lines `NAME:PASSWORD`, or the JAAS file of a ZooKeeper server. Reads
//! text; knows no files.

use std::collections::BTreeMap;

/// The section of a JAAS file that ZooKeeper's servers read.
const SECTION: &str = "Server";
/// Class name of the module that authenticates by Kerberos.
const KERBEROS: &str = "Krb5LoginModule";
/// Prefix of the options of users there.
const USER: &str = "user_";

/// The users of a file, with their passwords.
///
/// # Errors
/// What is wrong, with the line, and without a password.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, String>, String> {
    let users = match is_jaas(text) {
        true => from_jaas(text)?,
        false => from_lines(text)?,
    };
    match users.is_empty() {
        true => Err("names no user; write a line NAME:PASSWORD for each".to_owned()),
        false => Ok(users),
    }
}

/// A JAAS file begins with the name of a section and a brace.
fn is_jaas(text: &str) -> bool {
    let mut tokens = Tokens::of(text);
    let name = tokens
        .next()
        .is_some_and(|(_, token)| matches!(token, Token::Word(_)));
    name && matches!(tokens.next(), Some((_, Token::Mark('{'))))
}

fn from_lines(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut users = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, password) = line
            .split_once(':')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("line {number} is not NAME:PASSWORD"))?;
        add(&mut users, name, password, number)?;
    }
    Ok(users)
}

fn add(
    users: &mut BTreeMap<String, String>,
    name: &str,
    password: &str,
    line: usize,
) -> Result<(), String> {
    match users.insert(name.to_owned(), password.to_owned()) {
        None => Ok(()),
        Some(_) => Err(format!("line {line} names the user {name} a second time")),
    }
}

fn from_jaas(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut users = BTreeMap::new();
    let mut tokens = Tokens::of(text).peekable();
    let mut has_section = false;
    while let Some((line, token)) = tokens.next() {
        let Token::Word(section) = token else {
            return Err(format!("line {line} begins no section NAME {{ … }};"));
        };
        if !matches!(tokens.next(), Some((_, Token::Mark('{')))) {
            return Err(format!("the section {section} in line {line} has no {{"));
        }
        let is_wanted = section == SECTION;
        has_section |= is_wanted;
        loop {
            match tokens.next() {
                Some((_, Token::Mark('}'))) => break,
                Some((line, Token::Word(key)))
                    if matches!(tokens.peek(), Some((_, Token::Mark('=')))) =>
                {
                    tokens.next();
                    let Some((_, Token::Word(value) | Token::Quoted(value))) = tokens.next() else {
                        return Err(format!("line {line}: {key} has no value"));
                    };
                    if let Some(name) = key.strip_prefix(USER).filter(|_| is_wanted) {
                        add(&mut users, name, &value, line)?;
                    }
                }
                Some((line, Token::Word(class))) if is_wanted && class.ends_with(KERBEROS) => {
                    return Err(format!(
                        "line {line}: the section {SECTION} asks for Kerberos, which baton serve does not have; give \
                         clients passwords (DigestLoginModule with user_NAME=\"PASSWORD\"), or certificates"
                    ));
                }
                // The class of the module, its flag, and the end of it.
                Some(_) => {}
                None => return Err(format!("the section {section} in line {line} has no end")),
            }
        }
        tokens.next_if(|(_, token)| *token == Token::Mark(';'));
    }
    match has_section {
        true => Ok(users),
        false => Err(format!(
            "has no section {SECTION}, which a ZooKeeper server reads"
        )),
    }
}

/// A part of a JAAS file.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    /// A brace, a sign of equality, a semicolon; or what belongs to nothing.
    Mark(char),
}

/// The parts of a JAAS file, with their lines.
struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
        }
    }

    /// Goes on behind this many bytes.
    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }

    /// Goes on behind blanks and comments.
    fn skip_blanks(&mut self) {
        loop {
            let blanks = self.rest.len() - self.rest.trim_start().len();
            self.skip(blanks);
            let end = if self.rest.starts_with("//") || self.rest.starts_with('#') {
                self.rest.find('\n')
            } else if self.rest.starts_with("/*") {
                self.rest.find("*/").map(|at| at + 2)
            } else {
                return;
            };
            self.skip(end.unwrap_or(self.rest.len()));
        }
    }
}

impl Iterator for Tokens<'_> {
    type Item = (usize, Token);

    fn next(&mut self) -> Option<(usize, Token)> {
        self.skip_blanks();
        let line = self.line;
        let first = self.rest.chars().next()?;
        if first == '"' {
            let mut value = String::new();
            let mut letters = self.rest.char_indices().skip(1);
            let mut end = self.rest.len();
            while let Some((at, letter)) = letters.next() {
                match letter {
                    '"' => {
                        end = at + 1;
                        break;
                    }
                    '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
                    letter => value.push(letter),
                }
            }
            self.skip(end);
            return Some((line, Token::Quoted(value)));
        }
        let is_mark = |letter: char| matches!(letter, '{' | '}' | '=' | ';' | '"');
        if is_mark(first) {
            self.skip(first.len_utf8());
            return Some((line, Token::Mark(first)));
        }
        let ends = |letter: char| letter.is_whitespace() || is_mark(letter);
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let word = self.rest.get(..end).unwrap_or_default().to_owned();
        self.skip(end);
        Some((line, Token::Word(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(text: &str) -> Vec<(String, String)> {
        read(text).unwrap().into_iter().collect()
    }

    fn pair(name: &str, password: &str) -> (String, String) {
        (name.to_owned(), password.to_owned())
    }

    #[test]
    fn lines_name_users_with_their_passwords() {
        let text = "# who may\nbob:sec:ret # not a comment\n\neve:\n";
        let expected = [pair("bob", "sec:ret # not a comment"), pair("eve", "")];
        assert_eq!(users(text), expected);
    }

    #[test]
    fn a_jaas_file_is_read_as_a_zookeeper_reads_it() {
        let text = "// of the servers\nServer {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n\
            \x20 user_super=\"admin\\\"secret\" /* all\nof it */ user_bob = secret\n  # one more\n  user_eve=\"a b;}\";\n};\n\
            Client { x required username=\"c\" user_no=\"n\"; };";
        let expected = [
            pair("bob", "secret"),
            pair("eve", "a b;}"),
            pair("super", "admin\"secret"),
        ];
        assert_eq!(users(text), expected);
    }

    #[test]
    fn what_names_nobody_is_refused_with_the_line_and_without_a_password() {
        for (text, why) in [
            ("", "names no user"),
            ("# nobody\n", "names no user"),
            ("bob:x\nsecret\n", "line 2 is not"),
            (":secret", "line 1 is not"),
            (
                "bob:a\nbob:secret",
                "line 2 names the user bob a second time",
            ),
            (
                "Client { x required user_bob=\"secret\"; };",
                "no section Server",
            ),
            ("Server { x required; };", "names no user"),
            (
                "Server {\n com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };",
                "line 2: the section Server asks for Kerberos",
            ),
            (
                "Server { x required user_bob=\"secret\";",
                "the section Server in line 1 has no end",
            ),
            (
                "Server {\n x required user_bob=;};",
                "line 2: user_bob has no value",
            ),
            (
                "Server { x required user_b=a\nuser_b=secret; };",
                "line 2 names the user b a second",
            ),
            ("Server { }; = secret", "begins no section"),
            ("Server { }; Other", "the section Other in line 1 has no {"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(
                refused.contains(why) && !refused.contains("secret"),
                "{text}: {refused}"
            );
        }
    }

    #[test]
    fn no_text_of_marks_ends_badly() {
        const PARTS: [&str; 12] = [
            "Server", "{", "}", ";", "=", "\"", "\\", "user_a", "/*", "*/", "\n", "#",
        ];
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let count = random.usize(..12);
            let parts: Vec<&str> = (0..count).filter_map(|_| random.choice(PARTS)).collect();
            let text = parts.join(random.choice(["", " "]).unwrap_or_default());
            drop(read(&text));
            drop(read(&format!("Server {{ {text}")));
        }
    }
}

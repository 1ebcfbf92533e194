//! The text form of messages: directives `name=value`, separated by commas, values in quotes where
//! they need them (RFC 2831 §7.1).

use crate::error::SaslError;

/// The longest message.
const MAX_BYTES: usize = 4096;
/// The most directives of one message.
const MAX_DIRECTIVES: usize = 64;

/// The directives of a message, in its order.
pub(crate) struct Directives<'a>(Vec<(&'a str, Vec<u8>)>);

impl<'a> Directives<'a> {
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, SaslError> {
        if message.len() > MAX_BYTES {
            return Err(SaslError::TooLong);
        }
        let mut found = Vec::new();
        let mut rest = skip(message, b", \t\r\n");
        while !rest.is_empty() {
            if found.len() >= MAX_DIRECTIVES {
                return Err(SaslError::Malformed);
            }
            let (name, behind) = split(rest, |byte| !is_name(byte));
            let name = std::str::from_utf8(name).map_err(|_| SaslError::Malformed)?;
            let behind = skip(behind, BLANKS);
            let behind = behind.strip_prefix(b"=").ok_or(SaslError::Malformed)?;
            let (value, behind) = read_value(skip(behind, BLANKS))?;
            if name.is_empty() {
                return Err(SaslError::Malformed);
            }
            found.push((name, value));
            let behind = skip(behind, BLANKS);
            if !behind.is_empty() && !behind.starts_with(b",") {
                return Err(SaslError::Malformed);
            }
            rest = skip(behind, b", \t\r\n");
        }
        Ok(Self(found))
    }

    /// The values of this directive.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let named = move |(known, _): &&(&str, Vec<u8>)| known.eq_ignore_ascii_case(name);
        self.0.iter().filter(named).map(|(_, value)| &**value)
    }

    /// The value of a directive that a message has once at most.
    pub(crate) fn once(&self, name: &'static str) -> Result<Option<&[u8]>, SaslError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(SaslError::Twice(name)),
        }
    }

    /// The value of a directive that a message must have.
    pub(crate) fn needed(&self, name: &'static str) -> Result<&[u8], SaslError> {
        self.once(name)?.ok_or(SaslError::Missing(name))
    }

    /// Returns whether texts are UTF-8; otherwise they are ISO 8859-1.
    pub(crate) fn is_utf8(&self) -> Result<bool, SaslError> {
        match self.once("charset")? {
            None => Ok(false),
            Some(name) if name.eq_ignore_ascii_case(b"utf-8") => Ok(true),
            Some(_) => Err(SaslError::Impossible("charset")),
        }
    }
}

const BLANKS: &[u8] = b" \t\r\n";

/// A value in quotes, or a bare one.
fn read_value(text: &[u8]) -> Result<(Vec<u8>, &[u8]), SaslError> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let (value, rest) = split(text, |byte| byte == b',' || BLANKS.contains(&byte));
        return match value.contains(&b'"') {
            true => Err(SaslError::Malformed),
            false => Ok((value.to_vec(), rest)),
        };
    };
    let mut value = Vec::new();
    loop {
        match rest {
            [b'"', behind @ ..] => return Ok((value, behind)),
            [b'\\', byte, behind @ ..] | [byte, behind @ ..] => {
                value.push(*byte);
                rest = behind;
            }
            [] => return Err(SaslError::Malformed),
        }
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// Splits before the first byte at which `ends`.
fn split(text: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let at = text.iter().position(|byte| ends(*byte));
    text.split_at(at.unwrap_or(text.len()))
}

fn skip<'a>(text: &'a [u8], bytes: &[u8]) -> &'a [u8] {
    split(text, |byte| !bytes.contains(&byte)).1
}

/// A value in quotes.
pub(crate) fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for letter in value.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
    text
}

/// A text as its message's charset has it.
pub(crate) fn text(bytes: &[u8], is_utf8: bool, name: &'static str) -> Result<String, SaslError> {
    if is_utf8 {
        let text = std::str::from_utf8(bytes).map_err(|_| SaslError::Impossible(name))?;
        return Ok(text.to_owned());
    }
    Ok(bytes.iter().copied().map(char::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_with_and_without_quotes() {
        let text = br#" realm="a, b",nonce=x1 ,, qop = auth,user="\"q\\" ,realm="""#;
        let read = Directives::read(text).unwrap();
        assert_eq!(read.all("realm").collect::<Vec<_>>(), [&b"a, b"[..], b""]);
        assert_eq!(read.needed("Nonce"), Ok(&b"x1"[..]));
        assert_eq!(read.needed("qop"), Ok(&b"auth"[..]));
        assert_eq!(read.needed("user"), Ok(&br#""q\"#[..]));
        assert_eq!(read.once("realm"), Err(SaslError::Twice("realm")));
        assert_eq!(read.needed("nc"), Err(SaslError::Missing("nc")));
        assert_eq!(quoted(r#"a"b\"#), r#""a\"b\\""#);
        assert!(Directives::read(b"").unwrap().0.is_empty());
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bad in [
            "a", "=a", "a=\"b", "a=\"b\\", "a=b c", "a=\"b\"c", "a=b\"c", "\u{e9}=a", "a b=c",
        ] {
            let refused = Directives::read(bad.as_bytes()).err();
            assert_eq!(refused, Some(SaslError::Malformed), "{bad}");
        }
        let long = vec![b'a'; MAX_BYTES + 1];
        assert_eq!(Directives::read(&long).err(), Some(SaslError::TooLong));
        let many = "a=b,".repeat(MAX_DIRECTIVES + 1);
        let refused = Directives::read(many.as_bytes()).err();
        assert_eq!(refused, Some(SaslError::Malformed));
    }
}

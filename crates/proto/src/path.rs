//! Paths of znodes: what is legal, parent and name, the number of a sequential
//! znode, and the chroot of a connect string. Pure text; whether a znode exists is the tree's
//! matter.

use std::borrow::Cow;

/// Digits in the number that a server appends to a sequential znode's name.
pub const SEQUENCE_DIGITS: usize = 10;

/// Reason why a path is not legal. The answer to it is `BadArguments`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path is empty.
    #[error("the path is empty; the shortest is \"/\"")]
    Empty,
    /// No `/` at the start.
    #[error("the path does not start with \"/\"")]
    NotAbsolute,
    /// A `/` at the end.
    #[error("the path ends with \"/\"; leave that off")]
    TrailingSlash,
    /// Two slashes with nothing between.
    #[error("the path has an empty name at byte {offset}")]
    EmptyName {
        /// Its position, in bytes.
        offset: usize,
    },
    /// A name `.` or `..`.
    #[error("the path has a relative name, \".\" or \"..\", at byte {offset}")]
    RelativeName {
        /// Start of the name, in bytes.
        offset: usize,
    },
    /// A character outside what the protocol allows.
    #[error("the path has the character {character:?} at byte {offset}, which is not allowed")]
    IllegalCharacter {
        /// The character.
        character: char,
        /// Its position, in bytes.
        offset: usize,
    },
}

/// Checks a path by the rules of ZooKeeper.
///
/// # Errors
/// The first rule that is broken, and where.
pub fn validate(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    let Some(names) = path.strip_prefix('/') else {
        return Err(PathError::NotAbsolute);
    };
    if names.is_empty() {
        return Ok(());
    }
    if let Some((offset, character)) = path
        .char_indices()
        .find(|(_, character)| !is_legal(*character))
    {
        return Err(PathError::IllegalCharacter { character, offset });
    }
    if names.ends_with('/') {
        return Err(PathError::TrailingSlash);
    }
    let mut offset = 1;
    for name in names.split('/') {
        match name {
            "" => return Err(PathError::EmptyName { offset }),
            "." | ".." => return Err(PathError::RelativeName { offset }),
            _ => offset += name.len() + 1,
        }
    }
    Ok(())
}

/// Checks the path of a sequential create, which gets its number later: it may end with `/`, and
/// its last name may be `.` or `..`.
///
/// # Errors
/// As [`validate`] for the path with a number at its end.
pub fn validate_sequential(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    validate(&format!("{path}1"))
}

/// Everything but control characters, the private use area, the specials, and all beyond the basic
/// multilingual plane.
fn is_legal(character: char) -> bool {
    matches!(character, '\u{20}'..='\u{7e}' | '\u{a0}'..='\u{d7ff}' | '\u{f900}'..='\u{ffef}')
}

/// The path of the parent; of `/`, itself. Expects a legal path.
#[must_use]
pub fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

/// The last name; of `/`, the empty string. Expects a legal path.
#[must_use]
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The path of the child `name` of `parent`.
#[must_use]
pub fn join(parent: &str, name: &str) -> String {
    let parent = if parent == "/" { "" } else { parent };
    let mut path = String::with_capacity(parent.len() + 1 + name.len());
    path.push_str(parent);
    path.push('/');
    path.push_str(name);
    path
}

/// The names of a path from the top; none for `/`.
pub fn names(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Returns whether `path` is `ancestor` or lies below it.
#[must_use]
pub fn is_at_or_below(path: &str, ancestor: &str) -> bool {
    match path.strip_prefix(if ancestor == "/" { "" } else { ancestor }) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// The suffix that a server appends to the name of a sequential znode: at least [`SEQUENCE_DIGITS`]
/// characters, zero-padded, a minus sign counted among them.
#[must_use]
pub fn format_sequence(number: i64) -> String {
    format!("{number:0SEQUENCE_DIGITS$}")
}

/// Returns whether a name ends as [`format_sequence`] writes a number, as the names of all
/// sequential znodes do. Others may have such a name too.
#[must_use]
pub fn has_sequence(name: &str) -> bool {
    let bytes = name.as_bytes();
    let tail = bytes.len().checked_sub(SEQUENCE_DIGITS);
    let tail = tail.and_then(|from| bytes.get(from..)).unwrap_or_default();
    match tail {
        [b'-' | b'0'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The server's path for a client's path under `chroot`, which is empty, `/`, or a legal path.
#[must_use]
pub fn prepend_chroot<'p>(chroot: &str, path: &'p str) -> Cow<'p, str> {
    match (chroot, path) {
        ("" | "/", _) => Cow::Borrowed(path),
        (_, "/") => Cow::Owned(chroot.to_owned()),
        _ => Cow::Owned(format!("{chroot}{path}")),
    }
}

/// The client's path for a server's path; `None` if that lies outside `chroot`.
#[must_use]
pub fn strip_chroot<'p>(chroot: &str, path: &'p str) -> Option<&'p str> {
    match chroot {
        "" | "/" => Some(path),
        _ => match path.strip_prefix(chroot)? {
            "" => Some("/"),
            rest => rest.starts_with('/').then_some(rest),
        },
    }
}

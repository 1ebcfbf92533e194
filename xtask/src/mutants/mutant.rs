//! One mutant: where it is, which operator made it, and what the code says with it and without.
//!
//! A mutant's identity in reports and excuses is its file, function, operator and original text:
//! lines move too often.

use std::fmt;
use std::ops::Range;

/// Kind of a mutant's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operator {
    /// `<` for `<=`, `>` for `>=`, and back.
    Boundary,
    /// `==` for `!=`, and back.
    Equality,
    /// `&&` for `||`, and back.
    AndOr,
    /// `!` left out.
    Not,
    /// A condition, or one side of a chain with `let`, that always holds.
    AlwaysTrue,
    /// A condition that never holds.
    AlwaysFalse,
    /// A call in a chain of conditions negated: a resend allowed that is forbidden, and the like.
    Negated,
    /// `+` for `-`, and back.
    Arithmetic,
    /// An integer literal that is one higher.
    Literal,
    /// An index, or a count of elements, that is one higher.
    Index,
    /// A statement left out.
    LeftOut,
    /// A sync left out, of a file or of a server's view.
    SyncLeftOut,
    /// A watch, or whatever else is armed, not set.
    WatchLeftOut,
    /// A change that is sent without the version it expects.
    VersionLeftOut,
    /// An instant later than it should be: taken at the answer instead of at the request.
    Later,
    /// Two neighbouring statements in the other order: an event before its reply.
    Swapped,
    /// A function that does nothing and returns a default.
    Body,
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Boundary => "boundary",
            Self::Equality => "equality",
            Self::AndOr => "and-or",
            Self::Not => "not",
            Self::AlwaysTrue => "always-true",
            Self::AlwaysFalse => "always-false",
            Self::Negated => "negated",
            Self::Arithmetic => "arithmetic",
            Self::Literal => "literal",
            Self::Index => "index",
            Self::LeftOut => "left-out",
            Self::SyncLeftOut => "sync-left-out",
            Self::WatchLeftOut => "watch-left-out",
            Self::VersionLeftOut => "version-left-out",
            Self::Later => "later",
            Self::Swapped => "swapped",
            Self::Body => "body",
        })
    }
}

/// Form in which a mutant is written into the source beside the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `(if on { replacement } else { original })`.
    Expression,
    /// `if on { replacement } else { original }`: the range is of whole statements.
    Statements,
    /// `!on && original`: the range is a condition with a `let` in it.
    Condition,
    /// `if on { return replacement; } original`: the range is the text between a body's braces.
    Body,
}

/// One mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mutant {
    /// Its file, from the repository's root.
    pub(super) file: String,
    /// The function around it: `Type::function`.
    pub(super) function: String,
    /// Line of its first byte, from 1.
    pub(super) line: usize,
    /// Line of its last byte.
    pub(super) last_line: usize,
    /// The bytes of its file that it replaces.
    pub(super) range: Range<usize>,
    pub(super) operator: Operator,
    pub(super) shape: Shape,
    /// The text of `range`, on one line.
    pub(super) original: String,
    /// The replacement; empty where something is left out.
    pub(super) replacement: String,
}

impl Mutant {
    /// Describes it on one line of bounded length.
    pub(super) fn change(&self) -> String {
        let replacement = match (&*self.replacement, self.shape) {
            ("", Shape::Body) => "return".to_owned(),
            ("", _) => "nothing".to_owned(),
            (text, _) => short(&one_line(text)),
        };
        format!("{} => {replacement}", short(&self.original))
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            function,
            operator,
            ..
        } = self;
        write!(f, "{file}:{line} {function} {operator}: {}", self.change())
    }
}

/// Text with each run of white space as one blank.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Shortens code to the room of a line of a report.
fn short(text: &str) -> String {
    const MOST: usize = 100;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let begin: String = text.chars().take(MOST - 20).collect();
    let end: Vec<char> = text.chars().rev().take(17).collect();
    format!("{begin}...{}", end.into_iter().rev().collect::<String>())
}

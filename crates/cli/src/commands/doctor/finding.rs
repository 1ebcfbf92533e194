//! Finding of a check: how bad it is, of which server, and what to do.

use baton_proto::OneLine;
use serde::Serialize;

use crate::output::width::shortened;

/// The most columns of what a server or a znode says, in a finding.
const QUOTED: usize = 160;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Nothing is wrong.
    Ok,
    /// The check could not be made.
    Unknown,
    /// It works, and will not for long, or not under all circumstances.
    Warning,
    /// It does not work, or what it promises does not hold.
    Error,
}

impl Severity {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Cause of a finding, and its remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    pub(super) cause: String,
    pub(super) consequence: String,
    pub(super) remedy: String,
}

/// The result of one check of one server, or of all together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) check: &'static str,
    /// The server, the znode, or `all`.
    pub(super) place: String,
    pub(super) finding: String,
    /// None where all is well.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<Advice>,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        check: &'static str,
        place: &str,
        finding: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            check,
            place: place.to_owned(),
            finding: finding.into(),
            advice: None,
        }
    }

    pub(super) fn ok(check: &'static str, place: &str, finding: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, place, finding)
    }

    pub(super) fn warning(check: &'static str, place: &str, finding: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, place, finding)
    }

    pub(super) fn error(check: &'static str, place: &str, finding: impl Into<String>) -> Self {
        Self::new(Severity::Error, check, place, finding)
    }

    /// Adds advice, unless all is well.
    pub(super) fn advise(
        mut self,
        cause: impl Into<String>,
        consequence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        self.advice = (self.severity != Severity::Ok).then(|| Advice {
            cause: cause.into(),
            consequence: consequence.into(),
            remedy: remedy.into(),
        });
        self
    }

    /// A check that could not be made.
    pub(super) fn unknown(check: &'static str, place: &str, why: &str, remedy: &str) -> Self {
        let finding = format!("not checked: {}", quoted(why));
        let finding = Self::new(Severity::Unknown, check, place, finding);
        finding.advise(why, "this check was not made", remedy)
    }
}

/// Quotes a server or a znode, in bounded length and without control characters.
pub(super) fn quoted(text: &str) -> String {
    // Far less is shown, so that not all of a huge text is escaped first.
    let some: String = text.chars().take(4 * QUOTED).collect();
    shortened(&OneLine(some.trim()).to_string(), QUOTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_short_and_cannot_control_a_terminal() {
        let long = quoted(&"\u{1b}[2J\n".repeat(1 << 16));
        assert!(long.chars().count() <= QUOTED, "{long}");
        assert!(!long.chars().any(char::is_control), "{long}");
        assert_eq!(quoted(" follower "), "follower");
    }

    #[test]
    fn severities_are_ordered_by_how_bad_they_are() {
        let all = [
            Severity::Ok,
            Severity::Unknown,
            Severity::Warning,
            Severity::Error,
        ];
        assert!(all.is_sorted());
    }
}

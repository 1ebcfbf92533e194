//! The number at the end of a child's name.
//!
//! Owns how many digits make a number of the server's, and its sign (H20, H22, H23). Must never
//! read a number that the server cannot have appended.

/// A child's name split before its trailing decimal digits.
pub(super) struct NumericTail<'a> {
    pub(super) prefix: &'a str,
    digits: &'a str,
}

impl<'a> NumericTail<'a> {
    /// Java prints the number with `%010d`: at least ten characters, the sign among them.
    const LEAST_DIGITS: usize = 9;

    pub(super) fn of(child: &'a str) -> Option<Self> {
        let prefix = child.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = child.get(prefix.len()..)?;
        let least = if prefix.ends_with('-') {
            Self::LEAST_DIGITS
        } else {
            Self::LEAST_DIGITS + 1
        };
        (digits.len() >= least).then_some(Self { prefix, digits })
    }

    /// `Some(number)` where the prefix ends with `token`, or with `token` and a sign; the number is
    /// `None` past 64 bits (H22).
    pub(super) fn after(&self, token: &str) -> Option<Option<i64>> {
        if self.prefix.ends_with(token) {
            return Some(self.number(false));
        }
        let unsigned = self.prefix.strip_suffix('-')?;
        unsigned.ends_with(token).then(|| self.number(true))
    }

    pub(super) fn number(&self, negative: bool) -> Option<i64> {
        if !negative && self.digits.len() <= Self::LEAST_DIGITS {
            return None;
        }
        let magnitude: i128 = self.digits.parse().ok()?;
        i64::try_from(if negative { -magnitude } else { magnitude }).ok()
    }
}

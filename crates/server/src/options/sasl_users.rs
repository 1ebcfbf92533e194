//! Users with passwords, for SASL. Owns that no password is written where settings are shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The users that may authenticate by SASL, with their passwords. Without any there is no SASL.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SaslUsers(Arc<BTreeMap<String, String>>);

impl SaslUsers {
    /// The password of this user, if there is one of that name.
    pub(crate) fn password(&self, user: &str) -> Option<String> {
        self.0.get(user).cloned()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, String)> for SaslUsers {
    /// Pairs of name and password.
    fn from_iter<I: IntoIterator<Item = (String, String)>>(users: I) -> Self {
        Self(Arc::new(users.into_iter().collect()))
    }
}

impl fmt::Debug for SaslUsers {
    /// Names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_in_no_debug_text() {
        let users = SaslUsers::from_iter([("bob".to_owned(), "secret".to_owned())]);
        let text = format!("{users:?}");
        assert!(text.contains("bob") && !text.contains("secret"), "{text}");
    }
}

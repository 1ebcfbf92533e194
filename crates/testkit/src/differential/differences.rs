//! The differences that are meant: their names and reasons, read from `differences.txt`. What each
//! name leaves out is in `generate` and `run`.

use crate::launch::zookeeper;

const TEXT: &str = include_str!("differences.txt");
/// Prefix of the names that count only where the peer is a later version than Debian's.
const LATER: &str = "3.9-";

/// A name that the list does not have.
#[derive(Debug, thiserror::Error)]
#[error("no difference is called {name:?}; there are: {known}")]
pub struct UnknownDifference {
    name: String,
    known: String,
}

/// The known differences, which are no failure.
#[derive(Debug, Clone)]
pub struct Differences {
    names: Vec<&'static str>,
}

impl Differences {
    /// All that are meant for the ZooKeeper that [`zookeeper_classpath`] names.
    ///
    /// [`zookeeper_classpath`]: crate::zookeeper_classpath
    #[must_use]
    pub fn meant() -> Self {
        Self::meant_for(zookeeper::is_named())
    }

    fn meant_for(is_later: bool) -> Self {
        let names = listed().map(|(name, _)| name);
        Self {
            names: names
                .filter(|name| is_later || !name.starts_with(LATER))
                .collect(),
        }
    }

    /// Treats this one as a bug.
    ///
    /// # Errors
    /// [`UnknownDifference`] with the names there are.
    pub fn compare(&mut self, name: &str) -> Result<(), UnknownDifference> {
        let before = self.names.len();
        self.names.retain(|known| *known != name);
        if self.names.len() < before {
            return Ok(());
        }
        Err(UnknownDifference {
            name: name.to_owned(),
            known: self.names.join(", "),
        })
    }

    pub(super) fn has(&self, name: &'static str) -> bool {
        debug_assert!(
            listed().any(|(known, _)| known == name),
            "{name} is not in differences.txt"
        );
        self.names.contains(&name)
    }
}

fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    TEXT.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_has_a_reason_and_one_that_is_unknown_is_refused() {
        let lines = TEXT
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(listed().count(), lines.count());
        assert!(listed().all(|(_, reason)| reason.ends_with('.')));
        let later = Differences::meant_for(true);
        assert!(later.has("3.9-undecoded-write"));
        let mut differences = Differences::meant_for(false);
        assert!(!differences.has("3.9-undecoded-write") && differences.has("sasl"));
        assert!(differences.compare("event-zxid").is_ok());
        assert!(!differences.has("event-zxid"));
        assert!(differences.compare("no-such").is_err());
    }
}

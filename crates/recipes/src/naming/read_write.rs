//! The names of read/write locks.
//!
//! Owns their form in each library. A reader that was a writer has the writer's number in its name
//! (H43).

use uuid::Uuid;

use super::sequence_number::NumericTail;
use super::{Child, Family, LockMode, Refusal, UnknownDialect};
use crate::record;

const MODES: [LockMode; 2] = [LockMode::Shared, LockMode::Exclusive];

/// Library whose names a read/write lock's path carries. Every participant on one path must use the
/// same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RwDialect {
    /// `_c_<uuid>-__READ__#`, `_c_<uuid>-__WRIT__#`: Curator's `InterProcessReadWriteLock`.
    #[default]
    Curator,
    /// `<32 hex>__rlock__#`, `<32 hex>__lock__#`: kazoo's `ReadLock` and `WriteLock`.
    Kazoo,
    /// `<host>-R-#`, `<host>-W-#`: the shared lock as articles describe it. Ours are
    /// `<host>.<32 hex>-R-#`.
    Host,
}

impl RwDialect {
    pub(super) const ALL: [Self; 3] = [Self::Curator, Self::Kazoo, Self::Host];

    /// The name of this naming scheme as options and messages spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
            Self::Host => "host",
        }
    }

    /// The token before the number.
    fn token(self, mode: LockMode) -> &'static str {
        match (self, mode) {
            (Self::Curator, LockMode::Shared) => "__READ__",
            (Self::Curator, LockMode::Exclusive) => "__WRIT__",
            (Self::Kazoo, LockMode::Shared) => "__rlock__",
            (Self::Kazoo, LockMode::Exclusive) => "__lock__",
            (Self::Host, LockMode::Shared) => "-R-",
            (Self::Host, LockMode::Exclusive) => "-W-",
        }
    }

    pub(super) fn own_prefix(self, mode: LockMode, marker: &Uuid) -> String {
        let token = self.token(mode);
        match self {
            Self::Curator => format!("_c_{}-{token}", marker.hyphenated()),
            Self::Kazoo => format!("{}{token}", marker.simple()),
            // The others read what follows the last dash; the marker makes the name ours alone.
            Self::Host => {
                let host = record::host_name().replace('/', "_");
                format!("{host}.{}{token}", marker.simple())
            }
        }
    }

    /// The name of the reader that the writer called `writer` becomes: a new marker, and the number
    /// that it had.
    pub(crate) fn downgraded(self, writer: &str, marker: &Uuid) -> Option<String> {
        let (_, number) = writer.rsplit_once(self.token(LockMode::Exclusive))?;
        Some(self.own_prefix(LockMode::Shared, marker) + number)
    }

    pub(super) fn classify(self, child: &str) -> Child {
        if let Some(found) = NumericTail::of(child).and_then(|tail| self.among_waiters(&tail)) {
            return found;
        }
        // The others would count it by its token alone.
        let counted = self != Self::Host && MODES.iter().any(|k| child.contains(self.token(*k)));
        if counted {
            return Child::Refused(Refusal::UnreadableNumber);
        }
        Family::of(child).among_others()
    }

    /// Returns the meaning of a child with this end, if it has a token of the lock's waiter nodes.
    pub(super) fn among_waiters(self, tail: &NumericTail<'_>) -> Option<Child> {
        MODES.into_iter().find_map(|mode| {
            let number = tail.after(self.token(mode))?;
            Some(match number {
                Some(number) => Child::Waiter { number, mode },
                None => Child::Refused(Refusal::UnreadableNumber),
            })
        })
    }
}

impl std::fmt::Display for RwDialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for RwDialect {
    type Err = UnknownDialect;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        UnknownDialect::or_named(s, &Self::ALL, Self::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: &str = "_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-__READ__0000000007";

    #[test]
    fn each_dialect_reads_what_it_emits_and_spells_its_name() {
        for dialect in RwDialect::ALL {
            assert_eq!(dialect.as_str().parse(), Ok(dialect));
            for mode in [LockMode::Shared, LockMode::Exclusive] {
                let prefix = dialect.own_prefix(mode, &Uuid::new_v4());
                for (text, number) in [("0000000042", 42), ("-2147483648", -2_147_483_648)] {
                    let child = dialect.classify(&format!("{prefix}{text}"));
                    assert_eq!(child, Child::Waiter { number, mode }, "{dialect}");
                }
            }
        }
        assert!("zookeeper".parse::<RwDialect>().is_err());
    }

    #[test]
    fn h43_a_downgraded_writer_keeps_its_number_and_reads_as_a_reader() {
        for dialect in RwDialect::ALL {
            let writer = dialect.own_prefix(LockMode::Exclusive, &Uuid::new_v4()) + "0000000042";
            let reader = dialect.downgraded(&writer, &Uuid::new_v4()).unwrap();
            let expected = Child::Waiter {
                number: 42,
                mode: LockMode::Shared,
            };
            assert_eq!(dialect.classify(&reader), expected, "{reader}");
        }
    }

    #[test]
    fn names_of_the_articles_are_read_without_our_marker() {
        let reads = |child, number, mode| {
            assert_eq!(
                RwDialect::Host.classify(child),
                Child::Waiter { number, mode }
            );
        };
        reads("192.168.0.1-R-0000000001", 1, LockMode::Shared);
        reads("host-7-W-0000000012", 12, LockMode::Exclusive);
    }

    #[test]
    fn h13_a_lock_of_another_kind_or_library_is_refused_and_other_children_are_skipped() {
        for dialect in RwDialect::ALL {
            for plain in ["config", "0", "notes-2024"] {
                assert_eq!(dialect.classify(plain), Child::Bystander, "{plain}");
            }
            for foreign in [
                "_c_x-lock-0000000001",
                "lease-0000000001",
                "anything0000000001",
                "x__READ__99999999999999999999",
            ] {
                let child = dialect.classify(foreign);
                assert!(matches!(child, Child::Refused(_)), "{dialect}: {foreign}");
            }
        }
        assert!(matches!(
            RwDialect::Kazoo.classify(READER),
            Child::Refused(_)
        ));
        assert!(matches!(
            RwDialect::Curator.classify("x__READ__y"),
            Child::Refused(_)
        ));
    }

    #[test]
    fn readers_wait_for_writers_and_writers_for_all() {
        assert!(!LockMode::Shared.waits_for(LockMode::Shared));
        assert!(LockMode::Shared.waits_for(LockMode::Exclusive));
        assert!(LockMode::Exclusive.waits_for(LockMode::Shared));
        assert!(LockMode::Exclusive.waits_for(LockMode::Exclusive));
    }
}

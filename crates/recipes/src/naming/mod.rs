//! Dialects: how each library names its lock nodes.
//!
//! Locks of one [`Dialect`] exclude each other, whichever library wrote their nodes. A waiter node
//! of another dialect in the same folder is refused, because it would not wait for ours: see
//! [`Refusal`]. Choose the dialect with [`Mutex::dialect`](crate::Mutex::dialect) and its kin, and
//! [`RwDialect`] with [`RwLock::dialect`](crate::RwLock::dialect).

// Owns the names of every library that may use the same wait queue (`docs/internals/hazards.md`,
// "Names on the tree"). It must never guess: a child that may be a waiter node and cannot be
// ordered against ours is refused (H13), because treating it as "behind us" is how two clients
// come to hold one lock.

mod lock_mode;
mod read_write;
mod scheme;
mod sequence_number;

pub(crate) use lock_mode::LockMode;
pub use read_write::RwDialect;
pub(crate) use scheme::NamingScheme;

use uuid::Uuid;

use sequence_number::NumericTail;

/// Library whose names a path carries. Every participant on one path must use the same one.
///
/// No name satisfies two families at once, so the choice belongs to the path, not to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// `_c_<uuid>-lock-#`: Curator's `InterProcessMutex` and `LeaderSelector`; go-zk's `Lock` reads
    /// and writes it too.
    #[default]
    Curator,
    /// `_c_<uuid>-latch-#`: Curator's `LeaderLatch`. The default of [`crate::LeaderElection`].
    CuratorLatch,
    /// `<32 hex>__lock__#`: kazoo's `Lock` and `Election`.
    Kazoo,
    /// `x-<session>-#`: zookeeper-recipes' `WriteLock` in Java and `zkr_lock` in C. Ours are
    /// `x-<session>-<32 hex>-#`.
    WriteLock,
    /// `n_#`: zookeeper-recipes' `LeaderElectionSupport`, which reads all that follows `n_` as one
    /// number and fails at any other child. Ours are `n_<marker>#`, where the marker is written in
    /// zeros of other scripts, which Java reads as zeros.
    ElectionSupport,
}

/// The digit zero of sixteen scripts: Arabic, Persian, NKo, Devanagari, Bengali, Gurmukhi,
/// Gujarati, Oriya, Tamil, Telugu, Kannada, Malayalam, Thai, Lao, Tibetan, Burmese.
///
/// A marker has to be in the name, or an offer whose reply was lost could not be distinguished from
/// another's (H61); and Java's `Integer.valueOf`, which is what `LeaderElectionSupport` reads names
/// with, takes the digits of every script. So 128 bits are written as leading zeros: sixteen kinds
/// of zero, four bits each.
const ZEROS: [char; 16] = [
    '\u{660}', '\u{6f0}', '\u{7c0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}', '\u{b66}',
    '\u{be6}', '\u{c66}', '\u{ce6}', '\u{d66}', '\u{e50}', '\u{ed0}', '\u{f20}', '\u{1040}',
];

/// A marker in zeros.
fn in_zeros(marker: &Uuid) -> String {
    let halves = marker
        .as_bytes()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15]);
    halves
        .filter_map(|half| ZEROS.get(usize::from(half)))
        .collect()
}

/// Meaning of one child of a lock path to a participant of a given naming scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// A waiter node with this number.
    Waiter {
        /// The number that the server appended.
        number: i64,
        /// Its lock mode.
        mode: LockMode,
    },
    /// No waiter node in any naming scheme: no lock token, no sequence number. Skipped.
    Bystander,
    /// Perhaps a waiter node that cannot be ordered, or that would not wait for ours.
    Refused(Refusal),
}

/// Reason why a child makes a lock path unusable for a naming scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A lock or offer of another family, which would not wait for ours or we not for it.
    OtherDialect(&'static str),
    /// Our family's token is there, but no number that fits in 64 bits follows it.
    UnreadableNumber,
    /// A sequential node of a library that we do not know.
    UnknownSequential,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherDialect(whose) => {
                write!(f, "it is {whose}, which does not wait for ours")
            }
            Self::UnreadableNumber => f.write_str("its sequence number cannot be read"),
            Self::UnknownSequential => {
                f.write_str("it is a sequential node of a library unknown to Baton")
            }
        }
    }
}

/// The families of names, after parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// A waiter node of this dialect, with its number.
    Waiter(Dialect, i64),
    /// A known family that ours never shares a wait queue with.
    Foreign(&'static str),
    Unreadable,
    UnknownSequential,
    Plain,
}

impl Dialect {
    const ALL: [Self; 5] = [
        Self::Curator,
        Self::CuratorLatch,
        Self::Kazoo,
        Self::WriteLock,
        Self::ElectionSupport,
    ];

    /// The name of this naming scheme as options and messages spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Curator => "curator",
            Self::CuratorLatch => "curator-latch",
            Self::Kazoo => "kazoo",
            Self::WriteLock => "zookeeper-recipes",
            Self::ElectionSupport => "leader-election-support",
        }
    }

    /// The name of our node without its number.
    pub(crate) fn own_prefix(self, marker: &Uuid, session_id: i64) -> String {
        match self {
            Self::Curator => format!("_c_{}-lock-", marker.hyphenated()),
            Self::CuratorLatch => format!("_c_{}-latch-", marker.hyphenated()),
            Self::Kazoo => format!("{}__lock__", marker.simple()),
            // The other libraries read what follows the last dash; the marker makes the name ours
            // alone (H16).
            Self::WriteLock => format!("x-{session_id}-{}-", marker.simple()),
            Self::ElectionSupport => format!("n_{}", in_zeros(marker)),
        }
    }

    /// Returns the meaning of `child`, a name without its directory, to a participant of this
    /// naming scheme.
    pub(crate) fn classify(self, child: &str) -> Child {
        match Family::of(child) {
            Family::Waiter(dialect, number) if dialect == self => Child::Waiter {
                number,
                mode: LockMode::Exclusive,
            },
            family => family.among_others(),
        }
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        UnknownDialect::or_named(s, &Self::ALL, Self::as_str)
    }
}

/// The name of an unknown naming scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{given}\" is an unknown naming scheme; use {known}")]
pub struct UnknownDialect {
    given: String,
    known: String,
}

impl UnknownDialect {
    /// The dialect of `all` that `name` calls `given`.
    fn or_named<D: Copy>(given: &str, all: &[D], name: fn(D) -> &'static str) -> Result<D, Self> {
        if let Some(dialect) = all.iter().copied().find(|dialect| name(*dialect) == given) {
            return Ok(dialect);
        }
        let names: Vec<_> = all.iter().copied().map(name).collect();
        let known = match names.split_last() {
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        };
        Err(Self {
            given: given.to_owned(),
            known,
        })
    }
}

impl Family {
    fn of(child: &str) -> Self {
        let Some(tail) = NumericTail::of(child) else {
            return Self::without_number(child);
        };
        for (token, dialect) in [
            ("lock-", Dialect::Curator),
            ("latch-", Dialect::CuratorLatch),
            ("__lock__", Dialect::Kazoo),
        ] {
            if let Some(number) = tail.after(token) {
                return number.map_or(Self::Unreadable, |number| Self::Waiter(dialect, number));
            }
        }
        for (token, whose) in [
            ("__READ__", "a Curator read lock"),
            ("__WRIT__", "a Curator write lock"),
            ("__rlock__", "a kazoo read lock"),
            ("lease-", "a Curator semaphore lease"),
            ("qn-", "a queue item"),
            ("queue-", "a Curator queue item"),
        ] {
            if tail.after(token).is_some() {
                return Self::Foreign(whose);
            }
        }
        let numbered = |dialect, negative| match tail.number(negative) {
            Some(number) => Self::Waiter(dialect, number),
            None => Self::UnknownSequential,
        };
        if let Some(rest) = tail.prefix.strip_prefix("n_") {
            let negative = rest.ends_with('-');
            let marker = rest.strip_suffix('-').unwrap_or(rest);
            if marker.chars().all(|c| ZEROS.contains(&c)) {
                return numbered(Dialect::ElectionSupport, negative);
            }
        }
        match write_lock_sign(tail.prefix) {
            Some(negative) => numbered(Dialect::WriteLock, negative),
            None => Self::UnknownSequential,
        }
    }

    /// Returns the meaning of a child of this family to participants of every other.
    fn among_others(self) -> Child {
        let whose = match self {
            Self::Plain => return Child::Bystander,
            Self::UnknownSequential => return Child::Refused(Refusal::UnknownSequential),
            Self::Unreadable => return Child::Refused(Refusal::UnreadableNumber),
            Self::Foreign(whose) => whose,
            Self::Waiter(Dialect::Curator, _) => "a Curator or go-zk lock",
            Self::Waiter(Dialect::CuratorLatch, _) => "a Curator LeaderLatch",
            Self::Waiter(Dialect::Kazoo, _) => "a kazoo lock",
            Self::Waiter(Dialect::WriteLock, _) => "a zookeeper-recipes WriteLock",
            Self::Waiter(Dialect::ElectionSupport, _) => "a LeaderElectionSupport offer",
        };
        Child::Refused(Refusal::OtherDialect(whose))
    }

    /// A child that ends in no sequence number. A lock token in it still makes it suspect: Curator
    /// and kazoo would count it.
    fn without_number(child: &str) -> Self {
        if child == "lock" {
            Self::Foreign("a simple lock")
        } else if child.contains("__lock__") || child.contains("latch-") || child.contains("lock-")
        {
            Self::Unreadable
        } else {
            Self::Plain
        }
    }
}

/// `x-<session>-` in decimal (Java, perhaps negative) or 16 hex digits (C), or with a marker
/// `x-<session>-<32 hex>-`; yields whether a second `-` at the end is the number's sign (H20).
fn write_lock_sign(prefix: &str) -> Option<bool> {
    let is_session =
        |text: &str| text.parse::<i64>().is_ok() || u64::from_str_radix(text, 16).is_ok();
    let is_waiter = |text: &str| {
        is_session(text)
            || text
                .rsplit_once('-')
                .is_some_and(|(session, marker)| marker.len() == 32 && is_session(session))
    };
    let name = prefix.strip_prefix("x-")?.strip_suffix('-')?;
    if is_waiter(name) {
        return Some(false);
    }
    is_waiter(name.strip_suffix('-')?).then_some(true)
}

/// The number that is all of `text`, as servers append it: ten digits or more, perhaps with a sign.
pub(crate) fn sequence_number(text: &str) -> Option<i64> {
    let tail = NumericTail::of(text)?;
    match tail.prefix {
        "" => tail.number(false),
        "-" => tail.number(true),
        _ => None,
    }
}

/// The number that ends `child`, whatever precedes it; a `-` before it is read as part of the name.
pub(crate) fn trailing_number(child: &str) -> Option<i64> {
    NumericTail::of(child)?.number(false)
}

/// The number of a semaphore's lease `lease-#`, whatever precedes it, or `None` for a child of
/// another kind.
pub(crate) fn lease_number(child: &str) -> Option<i64> {
    NumericTail::of(child)?.after("lease-")?
}

/// Returns whether `child` has the name of a lease of kazoo's semaphore: 32 hex digits.
pub(crate) fn is_kazoo_lease(child: &str) -> bool {
    child.len() == 32 && child.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter_number(dialect: Dialect, child: &str) -> Option<i64> {
        match dialect.classify(child) {
            Child::Waiter { number, .. } => Some(number),
            _ => None,
        }
    }

    fn refused(dialect: Dialect, child: &str) -> bool {
        matches!(dialect.classify(child), Child::Refused(_))
    }

    const U36: &str = "5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11";
    const H32: &str = "5c1b0f546d3c4f0b9d0e0a4b7d3f2e11";

    #[test]
    fn each_dialect_reads_what_it_emits() {
        let marker = Uuid::parse_str(U36).unwrap();
        for dialect in Dialect::ALL {
            for session in [7, -7, i64::MIN, i64::MAX] {
                let prefix = dialect.own_prefix(&marker, session);
                assert_eq!(
                    waiter_number(dialect, &format!("{prefix}0000000042")),
                    Some(42)
                );
                assert_eq!(
                    waiter_number(dialect, &format!("{prefix}-2147483648")),
                    Some(-2_147_483_648)
                );
                assert_eq!(
                    waiter_number(dialect, &format!("{prefix}-000000005")),
                    Some(-5)
                );
            }
            assert_eq!(dialect.as_str().parse(), Ok(dialect));
        }
    }

    #[test]
    fn h20_the_sign_survives_a_separator_that_is_a_dash() {
        assert_eq!(
            waiter_number(Dialect::Curator, "lock--2147483648"),
            Some(-2_147_483_648)
        );
        assert_eq!(
            waiter_number(Dialect::WriteLock, "x-123--2147483647"),
            Some(-2_147_483_647)
        );
        assert_eq!(
            waiter_number(Dialect::WriteLock, "x--123-2147483647"),
            Some(2_147_483_647)
        );
        assert_eq!(
            waiter_number(Dialect::WriteLock, "x--123--2147483648"),
            Some(-2_147_483_648)
        );
        assert_eq!(
            waiter_number(Dialect::WriteLock, "x-00000000abcdef12-0000000003"),
            Some(3)
        );
        assert_eq!(
            waiter_number(Dialect::ElectionSupport, "n_-2147483648"),
            Some(-2_147_483_648)
        );
    }

    #[test]
    fn h61_an_offer_for_leader_election_support_carries_a_marker_that_java_reads_as_zeros() {
        let marker = Uuid::from_u128(0x0123_4567_89ab_cdef_0000_0000_ffff_ffff);
        let prefix = Dialect::ElectionSupport.own_prefix(&marker, 7);
        let zeros: Vec<char> = prefix.strip_prefix("n_").unwrap().chars().collect();
        assert_eq!((zeros.len(), &zeros[..16]), (32, &ZEROS[..]));
        assert_eq!(
            baton_proto::path::validate(&format!("/{prefix}0000000001")),
            Ok(())
        );
        assert!(refused(Dialect::ElectionSupport, "n_x0000000001"));
        assert!(refused(
            Dialect::CuratorLatch,
            &format!("{prefix}0000000001")
        ));
    }

    #[test]
    fn h22_longer_numbers_parse_and_too_long_ones_fail_closed() {
        assert_eq!(
            waiter_number(Dialect::Curator, "lock-9223372036854775807"),
            Some(9_223_372_036_854_775_807)
        );
        assert_eq!(
            waiter_number(Dialect::Curator, "lock-00000000000004294967296"),
            Some(4_294_967_296)
        );
        assert!(refused(Dialect::Curator, "lock-9223372036854775808"));
        assert!(refused(
            Dialect::Kazoo,
            "__lock__99999999999999999999999999999999999999999999"
        ));
    }

    #[test]
    fn h23_a_prefix_with_the_token_or_digits_in_it_yields_the_last_number() {
        assert_eq!(
            waiter_number(Dialect::Curator, "lock-7-lock-0000000001"),
            Some(1)
        );
        assert_eq!(
            waiter_number(Dialect::Curator, "lock-0000000009-lock-0000000001"),
            Some(1)
        );
        assert_eq!(
            waiter_number(Dialect::Kazoo, "12__lock__34__lock__0000000002"),
            Some(2)
        );
        assert_eq!(
            waiter_number(Dialect::Curator, &format!("_c_{U36}-my-lock-0000000003")),
            Some(3)
        );
    }

    #[test]
    fn h13_what_cannot_be_ordered_is_refused_and_what_is_no_lock_is_skipped() {
        for plain in ["0", "config", "notes-2024", "leader", U36] {
            assert_eq!(
                Dialect::Curator.classify(plain),
                Child::Bystander,
                "{plain}"
            );
        }
        let kazoo = format!("{H32}__lock__0000000001");
        let curator = format!("_c_{U36}-lock-0000000001");
        let go = format!("_c_{H32}-lock-0000000001");
        assert!(refused(Dialect::Curator, &kazoo));
        assert!(refused(Dialect::Kazoo, &curator));
        assert!(refused(Dialect::WriteLock, &curator));
        assert!(refused(Dialect::Curator, "x-123-0000000001"));
        assert_eq!(waiter_number(Dialect::Curator, &go), Some(1));
        for foreign in [
            "n_0000000001",
            "anything0000000001",
            "lock-7",
            "lock-config",
            "_c_x-latch-0000000001",
            "_c_x-__READ__0000000001",
            "_c_x-__WRIT__0000000001",
            "qn-0000000001",
        ] {
            assert!(refused(Dialect::Curator, foreign), "{foreign}");
        }
    }

    #[test]
    fn each_child_is_read_by_the_one_scheme_that_it_belongs_to() {
        let marker = Uuid::parse_str(U36).unwrap();
        for dialect in Dialect::ALL {
            let naming = NamingScheme::Exclusive(dialect);
            let child = dialect.own_prefix(&marker, 7) + "0000000003";
            let (found, what) = NamingScheme::classify_any(&child);
            assert_eq!(found, Some(naming), "{child}");
            assert_eq!(what, dialect.classify(&child), "{child}");
        }
        for (child, expected) in [
            ("x-__READ__0000000003", Some(RwDialect::Curator)),
            ("x__rlock__0000000003", Some(RwDialect::Kazoo)),
            ("host-W-0000000003", Some(RwDialect::Host)),
            ("lease-0000000003", None),
            ("lock-9223372036854775808", None),
            ("lock-000000003", None),
            ("config", None),
        ] {
            let (found, _) = NamingScheme::classify_any(child);
            assert_eq!(found, expected.map(NamingScheme::ReadWrite), "{child}");
        }
    }

    #[test]
    fn a_bare_number_is_what_a_server_appends_and_nothing_else() {
        assert_eq!(sequence_number("0000000007"), Some(7));
        assert_eq!(sequence_number("-2147483648"), Some(-2_147_483_648));
        for other in ["", "7", "x0000000007", "0000000007x", "--000000007"] {
            assert_eq!(sequence_number(other), None, "{other}");
        }
    }
}

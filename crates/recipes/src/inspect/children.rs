//! The children of a lock's directory, by naming scheme.
//!
//! Owns which child is a node of a wait queue, of which library and in which mode. It never
//! guesses: a child that no naming scheme reads is listed as foreign.

use baton_proto::path::join;
use serde::{Serialize, Serializer};

use crate::naming::{self, Child, Dialect, LockMode, NamingScheme, Refusal, RwDialect};
use crate::rendering::{self, OneLine};

/// The one node of a simple lock.
pub(super) const SIMPLE: &str = "lock";

/// Library whose names a node of a lock has. Nodes of different schemes do not wait for one
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// A mutex or an election.
    Mutex(Dialect),
    /// A read/write lock.
    ReadWrite(RwDialect),
    /// The one node `lock` of [`SimpleMutex`](crate::lock::SimpleMutex).
    Simple,
    /// A permit of [`Semaphore`](crate::Semaphore) and Curator's `InterProcessSemaphoreV2`.
    Semaphore,
    /// A permit of kazoo's `Semaphore`.
    KazooSemaphore,
}

impl Scheme {
    /// The name of the scheme: for mutexes and read/write locks as options and messages spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutex(dialect) => dialect.as_str(),
            Self::ReadWrite(dialect) => dialect.as_str(),
            Self::Simple => "simple",
            Self::Semaphore => "curator-semaphore",
            Self::KazooSemaphore => "kazoo-semaphore",
        }
    }

    /// The naming scheme, where names contain a number.
    pub(super) fn naming(self) -> Option<NamingScheme> {
        match self {
            Self::Mutex(dialect) => Some(NamingScheme::Exclusive(dialect)),
            Self::ReadWrite(dialect) => Some(NamingScheme::ReadWrite(dialect)),
            Self::Simple | Self::Semaphore | Self::KazooSemaphore => None,
        }
    }
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Scheme {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Lock mode of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeMode {
    /// One holder at a time.
    Exclusive,
    /// A reader, together with other readers.
    Read,
    /// A writer among readers.
    Write,
    /// One permit of a semaphore.
    Permit,
}

impl std::fmt::Display for NodeMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permit => "permit",
        })
    }
}

/// A child that looks like a lock's node but belongs to no wait queue here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ForeignChild {
    /// Full path.
    pub path: String,
    /// Reason why it belongs to no wait queue.
    #[serde(serialize_with = "rendering::text")]
    pub why: Refusal,
}

impl ForeignChild {
    /// Its name, without the directory.
    #[must_use]
    pub fn name(&self) -> &str {
        baton_proto::path::name(&self.path)
    }
}

/// The path, and why it belongs to no wait queue, on one line.
impl std::fmt::Display for ForeignChild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", OneLine(&self.path), self.why)
    }
}

/// A child that has the name of a node of a wait queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Full path.
    pub path: String,
    /// The number in its name; 0 where the name has none.
    pub number: i64,
    pub scheme: Scheme,
    pub mode: NodeMode,
}

impl Candidate {
    pub(super) fn name(&self) -> &str {
        baton_proto::path::name(&self.path)
    }
}

/// The children of one directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Children {
    pub candidates: Vec<Candidate>,
    pub foreign: Vec<ForeignChild>,
    /// The names of the other children.
    pub others: Vec<String>,
}

impl Children {
    /// The children of `dir`.
    pub(super) fn of_lock(dir: &str, names: Vec<String>) -> Self {
        let mut children = Self::default();
        for name in names {
            let candidate = |number, scheme, mode| Candidate {
                path: join(dir, &name),
                number,
                scheme,
                mode,
            };
            if name == SIMPLE {
                let simple = candidate(0, Scheme::Simple, NodeMode::Exclusive);
                children.candidates.push(simple);
                continue;
            }
            match NamingScheme::classify_any(&name) {
                (Some(NamingScheme::Exclusive(dialect)), Child::Waiter { number, .. }) => {
                    let scheme = Scheme::Mutex(dialect);
                    let found = candidate(number, scheme, NodeMode::Exclusive);
                    children.candidates.push(found);
                }
                (Some(NamingScheme::ReadWrite(dialect)), Child::Waiter { number, mode }) => {
                    let mode = match mode {
                        LockMode::Shared => NodeMode::Read,
                        LockMode::Exclusive => NodeMode::Write,
                    };
                    let found = candidate(number, Scheme::ReadWrite(dialect), mode);
                    children.candidates.push(found);
                }
                (_, Child::Refused(why)) => {
                    let path = join(dir, &name);
                    children.foreign.push(ForeignChild { path, why });
                }
                _ => children.others.push(name),
            }
        }
        children.name_writers_of_kazoo();
        children
    }

    /// kazoo names its writers like its mutexes: they are writers where there are readers.
    fn name_writers_of_kazoo(&mut self) {
        let shared = Scheme::ReadWrite(RwDialect::Kazoo);
        if self.candidates.iter().any(|child| child.scheme == shared) {
            for child in &mut self.candidates {
                if child.scheme == Scheme::Mutex(Dialect::Kazoo) {
                    (child.scheme, child.mode) = (shared, NodeMode::Write);
                }
            }
        }
    }

    /// The children of the folder of permits `dir`. A child that has not the name of a permit is
    /// foreign: Curator counts it all the same.
    pub(super) fn of_permits(dir: &str, names: Vec<String>) -> Self {
        let mut children = Self::default();
        for name in names {
            match naming::lease_number(&name) {
                Some(number) => children.candidates.push(Candidate {
                    path: join(dir, &name),
                    number,
                    scheme: Scheme::Semaphore,
                    mode: NodeMode::Permit,
                }),
                None => children.foreign.push(ForeignChild {
                    path: join(dir, &name),
                    why: Refusal::UnreadableNumber,
                }),
            }
        }
        children
    }

    /// Removes the permits of kazoo's semaphore at `dir` from the other children.
    pub(super) fn take_kazoo_permits(&mut self, dir: &str) -> Vec<Candidate> {
        let taken = self
            .others
            .extract_if(.., |name| naming::is_kazoo_lease(name));
        taken
            .map(|name| Candidate {
                path: join(dir, &name),
                number: 0,
                scheme: Scheme::KazooSemaphore,
                mode: NodeMode::Permit,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[&str]) -> Vec<(String, Scheme, NodeMode)> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let children = Children::of_lock("/x", names);
        let found = children.candidates.into_iter();
        found
            .map(|child| (child.name().to_owned(), child.scheme, child.mode))
            .collect()
    }

    #[test]
    fn writers_of_kazoo_are_writers_only_beside_readers() {
        let alone = read(&["ab__lock__0000000001"]);
        assert_eq!(alone[0].1, Scheme::Mutex(Dialect::Kazoo));
        let beside = read(&["ab__lock__0000000001", "cd__rlock__0000000002"]);
        let shared = Scheme::ReadWrite(RwDialect::Kazoo);
        assert_eq!(
            beside
                .iter()
                .map(|child| (child.1, child.2))
                .collect::<Vec<_>>(),
            [(shared, NodeMode::Write), (shared, NodeMode::Read)]
        );
    }

    #[test]
    fn what_no_scheme_reads_is_foreign_or_another_child_and_never_a_waiter() {
        let names = ["lock-000000007", "order-0000000001", "config", "lock-7"];
        let names = names.map(str::to_owned).to_vec();
        let children = Children::of_lock("/x", names);
        assert_eq!(children.candidates, []);
        let foreign: Vec<_> = children.foreign.iter().map(ForeignChild::name).collect();
        assert_eq!(foreign, ["lock-000000007", "order-0000000001", "lock-7"]);
        assert_eq!(children.others, ["config"]);
    }
}

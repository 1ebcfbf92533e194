//! The recipe that a folder belongs to, by its data and the names of its children.
//!
//! Owns the marks that a recipe looks for where something is at its path that is not its own, so
//! that it refuses by name instead of changing what another recipe counts on. A folder without such
//! a mark is nobody's.

use std::fmt;

use baton_client::{Error, Session};

use crate::naming::{self, Child, NamingScheme};
use crate::record::Record;

/// The folder of a semaphore's permits.
pub(crate) const LEASES: &str = "leases";

/// The children of kazoo's locking queue: items, and claims on them.
pub(crate) const LOCKING_QUEUE: [&str; 2] = ["entries", "taken"];

/// A folder with more children is not listed just to find out whose it is.
const MOST_LISTED: i32 = 64;

/// Kind of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    WorkQueue,
    Latch,
    DoubleBarrier,
    Semaphore,
    LockingQueue,
    WaitQueue,
    SimpleLock,
    /// Sequential nodes that are no waiters: a queue's, for example.
    Numbered,
    /// A node with the data that Baton writes into its own.
    Node,
}

/// The fields by which the data of a folder is known.
const FIELDS: [(&str, Kind); 3] = [
    ("work_queue", Kind::WorkQueue),
    ("latch_count", Kind::Latch),
    ("double_barrier_round", Kind::DoubleBarrier),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WorkQueue => "a work queue",
            Self::Latch => "a countdown latch",
            Self::DoubleBarrier => "a double barrier",
            Self::Semaphore => "a semaphore",
            Self::LockingQueue => "a locking queue",
            Self::WaitQueue => "the wait queue of a lock or an election",
            Self::SimpleLock => "a simple lock",
            Self::Numbered => "a queue, or another recipe with numbered nodes",
            Self::Node => "a barrier, or a node of another recipe",
        })
    }
}

impl Kind {
    /// Kind of a folder with this data and these children; `None` where nothing says so.
    pub(crate) fn of_folder(data: &[u8], names: &[String]) -> Option<Self> {
        if data.first() == Some(&b'{') {
            let fields = serde_json::from_slice::<serde_json::Map<_, _>>(data);
            let fields = fields.unwrap_or_default();
            let mut known = FIELDS
                .iter()
                .filter(|(field, _)| fields.contains_key(*field));
            if let Some((_, kind)) = known.next() {
                return Some(*kind);
            }
            if Record::from_bytes(data).is_some() {
                return Some(Self::Node);
            }
        }
        Self::of_names(names)
    }

    /// Kind of a folder with these children.
    pub(crate) fn of_names(names: &[String]) -> Option<Self> {
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        if has(LEASES) {
            return Some(Self::Semaphore);
        }
        if LOCKING_QUEUE.into_iter().any(has) {
            return Some(Self::LockingQueue);
        }
        if has("lock") {
            return Some(Self::SimpleLock);
        }
        let is_waiter =
            |name: &String| matches!(NamingScheme::classify_any(name).1, Child::Waiter { .. });
        if names.iter().any(is_waiter) {
            return Some(Self::WaitQueue);
        }
        let is_numbered = |name: &String| naming::trailing_number(name).is_some();
        names.iter().any(is_numbered).then_some(Self::Numbered)
    }
}

/// A folder as far as it shows whose it is.
#[derive(Debug, Default)]
pub(crate) struct FolderMarks {
    pub data: Vec<u8>,
    /// The children's names; none where there are too many of them to list.
    pub names: Vec<String>,
}

impl FolderMarks {
    /// Reads the folder; without marks where there is none.
    pub(crate) async fn read(session: &Session, path: &str) -> Result<Self, Error> {
        let read = match session.get_data(path).await {
            Ok(read) => read,
            Err(error) if error.is_no_node() => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let names = match read.stat.num_children {
            1..=MOST_LISTED => match session.children(path).await {
                Ok(children) => children.names,
                Err(error) if error.is_no_node() => Vec::new(),
                Err(error) => return Err(error),
            },
            _ => Vec::new(),
        };
        Ok(Self {
            data: read.data.to_vec(),
            names,
        })
    }

    /// Kind of the folder; `None` where nothing says so.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of_folder(&self.data, &self.names)
    }
}

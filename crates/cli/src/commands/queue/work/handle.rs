//! The work queue that a command line names, and what its errors come to.

use baton::WorkQueue;
use baton::work_queue::WorkError;

use crate::connection::Connection;
use crate::exit::{self, Failure};
use crate::paths;

/// The path of a work queue.
#[derive(Debug, clap::Args)]
pub(super) struct QueuePath {
    /// The queue's path.
    #[arg(value_parser = paths::recipe)]
    pub(super) path: String,
}

impl QueuePath {
    /// The queue's handle.
    pub(super) fn open(&self, connection: &Connection) -> Result<WorkQueue, Failure> {
        open(connection, &self.path)
    }
}

/// The handle of the queue at `path`.
pub(super) fn open(connection: &Connection, path: &str) -> Result<WorkQueue, Failure> {
    WorkQueue::new(&connection.client, path).map_err(|error| Failure::usage(error.to_string()))
}

/// The failure for an error of the library.
pub(super) fn failure(error: WorkError) -> Failure {
    match error {
        WorkError::Full { .. } => Failure::new(exit::NOTHING, "full", error.to_string()),
        WorkError::Duplicate { .. } => Failure::new(exit::NOTHING, "duplicate", error.to_string()),
        WorkError::NoDeadLetter { .. } => {
            Failure::new(exit::NOTHING, "no_dead_letter", error.to_string())
        }
        WorkError::Damaged { path, node } => Failure::new(
            exit::NOTHING,
            "damaged",
            format!(
                "{path}: the queue is damaged: somebody deleted its node {node}; make it again: baton queue work repair {path}"
            ),
        ),
        WorkError::NotAWorkQueue { path, found } => Failure::baton(format!(
            "{path}: there is no work queue at this node: {found}; take the items of a plain queue with baton queue take {path}, \
             or use another path for a work queue"
        )),
        WorkError::CapacityDiffers {
            path,
            agreed,
            asked,
        } => Failure::baton(capacity_differs(&path, agreed, asked)),
        WorkError::TimedOut { .. } => Failure::new(exit::BATON, "connection", error.to_string()),
        WorkError::SettleUnknown { .. } | WorkError::OfferUnknown { .. } => {
            Failure::new(exit::BATON, "unknown", error.to_string())
        }
        WorkError::BadItem { .. } | WorkError::BadOption { .. } | WorkError::BadPath { .. } => {
            Failure::usage(error.to_string())
        }
        error => Failure::baton(error.to_string()),
    }
}

/// The library's text names a call.
fn capacity_differs(path: &str, agreed: Option<u64>, asked: Option<u64>) -> String {
    let asked = asked.map_or("none".to_owned(), |items| items.to_string());
    match agreed {
        Some(agreed) => format!(
            "{path}: the queue was made with --capacity {agreed}, and {asked} was asked for; leave --capacity out, or give {agreed}"
        ),
        None => format!(
            "{path}: the queue was made without --capacity, and {asked} was asked for; leave --capacity out, or use another path"
        ),
    }
}

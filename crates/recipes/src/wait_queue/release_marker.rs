//! The sign that a waiter node went because its holder released.
//!
//! Owns the release marker, a node at `<waiter node>.released` that the change which deletes the
//! waiter node creates and deletes as well. Nobody ever sees it, but a watch on its path reports
//! its creation: the waiter that is notified knows that the holder itself released. A waiter node
//! that goes with its session, by another's hand, or before it held, has no such marker.

use baton_client::{CreateMode, Op};

/// The path of the release marker of the waiter node at `path`.
pub(crate) fn release_marker(path: &str) -> String {
    format!("{path}.released")
}

/// The parts of a change that notify all who watch `path`, where no node is ever seen.
pub(crate) fn signal(path: String) -> [Op; 2] {
    [
        Op::create(path.clone(), Vec::new(), CreateMode::Persistent),
        Op::delete(path, None),
    ]
}

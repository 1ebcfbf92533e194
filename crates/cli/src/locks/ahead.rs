//! Who is before this process in a wait queue, as a command shows it while it waits.
//!
//! Two requests, however long the queue: its names, and the data of one holder. It only reads, and
//! decides nothing: the order is by the server's numbers alone, and a queue that has wrapped around
//! them is shown in another order than it is served in.

use baton_client::Session;
use baton_proto::path::{join, name};

use crate::locks::lock_queue::{self, NodeKind, QueueNode};

/// The part of a wait queue before this process.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// The holder; the first of several. `None` where that could not be read.
    pub(crate) holder: Option<QueueNode>,
    /// This process's position among those who wait, from 1; 0 where nobody is before it.
    pub(crate) position: usize,
    /// How many wait.
    pub(crate) waiting: usize,
}

/// One node of a queue.
struct Waiter {
    number: i64,
    name: String,
    kind: NodeKind,
}

/// The part of the wait queue before this process's waiter node `own` at `path`; `None` where that
/// could not be read.
pub(crate) async fn read(
    session: &Session,
    path: &str,
    is_semaphore: bool,
    own: &str,
) -> Option<Ahead> {
    let (holders, waiters) = if is_semaphore {
        (join(path, "leases"), join(path, "locks"))
    } else {
        (path.to_owned(), path.to_owned())
    };
    let queue = in_order(session.children(&waiters).await.ok()?.names);
    let at = queue.iter().position(|waiter| waiter.name == name(own))?;
    if is_semaphore {
        let leases = in_order(session.children(&holders).await.ok()?.names);
        return Some(Ahead {
            holder: first(session, &holders, leases).await,
            position: at + 1,
            waiting: queue.len(),
        });
    }
    let readers = queue
        .iter()
        .take_while(|waiter| waiter.kind == NodeKind::Read)
        .count();
    let holding = readers.max(1);
    let (position, waiting) = ((at + 1).saturating_sub(holding), queue.len() - holding);
    let holder = match position {
        0 => None,
        _ => first(session, &holders, queue).await,
    };
    Some(Ahead {
        holder,
        position,
        waiting,
    })
}

async fn first(session: &Session, folder: &str, queue: Vec<Waiter>) -> Option<QueueNode> {
    let first = queue.into_iter().next()?;
    let minted = first.kind != NodeKind::Exclusive;
    let node = vec![(first.name, first.kind)];
    let mut aside = lock_queue::Skipped::default();
    let read = lock_queue::read_nodes(session, folder, node, minted, &mut aside).await;
    read.ok()?.into_iter().next()
}

/// The nodes of the queue among the names, by number.
fn in_order(names: Vec<String>) -> Vec<Waiter> {
    let mut queue: Vec<Waiter> = names
        .into_iter()
        .filter_map(|name| {
            let kind = NodeKind::of(&name)?;
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let digits = name.get(stem.len()..)?;
            let number: i64 = digits.parse().unwrap_or(0);
            let is_negative = stem.ends_with("--");
            Some(Waiter {
                number: if is_negative { -number } else { number },
                kind,
                name,
            })
        })
        .collect();
    queue.sort_by_key(|waiter| waiter.number);
    queue
}

//! The leases of a semaphore: which of them count.
//!
//! Owns the rule of the grant: a lease counts once no more than the maximum were created up to it.
//! Curator's rule, that there are no more than the maximum at all, grants only what this one grants
//! too, so both keep the maximum on one path. Must never leave out a child that it cannot read:
//! others count it.

use baton_client::{Error, Session};

use crate::naming::{self, Child, Dialect};
use crate::wait_queue::WaiterNode;
use crate::wait_queue::order::{self, SequentialChild};

/// The folder of those who wait for permits.
pub(crate) const LOCKS: &str = "locks";

/// Whether leases of ours count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStatus {
    /// All of them count.
    Granted,
    /// Others must go first.
    Waiting,
    /// One of them has been deleted.
    Gone,
}

/// Returns whether `mine` count among `names`, the children of `dir`, which were listed after they
/// were created.
pub(super) async fn status(
    session: &Session,
    dir: &str,
    names: Vec<String>,
    mine: &[WaiterNode],
    permits: u32,
) -> Result<LeaseStatus, Error> {
    let mut unreadable = 0;
    let mut leases = Vec::with_capacity(names.len());
    for name in names {
        match naming::lease_number(&name) {
            Some(number) => leases.push(SequentialChild {
                name,
                number,
                czxid: None,
            }),
            None => unreadable += 1,
        }
    }
    let leases = order::arrange_with(session, dir, leases).await?;
    let mut found = 0;
    let mut up_to_last = 0;
    for (before, child) in leases.iter().enumerate() {
        if mine.iter().any(|lease| lease.name() == child.name) {
            found += 1;
            up_to_last = before + 1;
        }
    }
    Ok(if found < mine.len() {
        LeaseStatus::Gone
    } else if up_to_last + unreadable <= usize::try_from(permits).unwrap_or(usize::MAX) {
        LeaseStatus::Granted
    } else {
        LeaseStatus::Waiting
    })
}

/// A child of the semaphore's own node that belongs to a semaphore of another kind, and what it is.
pub(super) fn foreign(children: &[String]) -> Option<(&str, &'static str)> {
    children.iter().find_map(|child| {
        let whose = if naming::is_kazoo_lease(child) {
            "a lease of kazoo's Semaphore"
        } else if matches!(Dialect::Curator.classify(child), Child::Waiter { .. }) {
            "a lock, or a lease of Curator's first semaphore"
        } else {
            return None;
        };
        Some((child.as_str(), whose))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_other_semaphores_are_distinguished_from_bystanders() {
        let own = ["locks", "leases", "notes"].map(str::to_owned);
        assert_eq!(foreign(&own), None);
        for child in [
            "5c1b0f546d3c4f0b9d0e0a4b7d3f2e11",
            "_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-lock-0000000007",
        ] {
            let children = ["locks".to_owned(), child.to_owned()];
            assert_eq!(foreign(&children).map(|found| found.0), Some(child));
        }
    }
}

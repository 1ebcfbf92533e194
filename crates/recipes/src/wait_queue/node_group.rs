//! Several nodes of ours, created in one multi: all of them or none.
//!
//! Owns them while the outcome of the multi is open; dropped before it is known, it has the session
//! find out and delete what there is (H10). Must never send the multi again before it is known that
//! it was not applied (H01), which the markers show.

use std::sync::Arc;

use baton_client::{Children, CreateMode, CreatedNode, Error, Op, OpResult, Pending, Session};
use bytes::Bytes;

use super::WaiterNode;
use super::waiter_node::PARENT_ATTEMPTS;
use crate::parents::{ParentKind, ensure_parents};
use crate::retry;

/// Place at which one node of a group is created. The prefix carries a marker that no other create
/// has used or will use.
#[derive(Debug)]
pub(crate) struct NewNode {
    pub dir: Arc<str>,
    pub prefix: String,
}

/// A group that is created, and what its directories held right after.
pub(crate) struct Group {
    /// In the order of the requested nodes.
    pub waiters: Vec<WaiterNode>,
    /// In the order that was asked for; each as of an instant after the creation.
    pub listings: Vec<Result<Children, Error>>,
}

/// Creates the requested nodes, if `conditions` hold, and lists `dirs` in the same packet.
///
/// `seats` is called again for each attempt. Missing directories are made as containers.
/// Cancel-safe: dropping the future leaves no node behind.
///
/// # Errors
/// Those of the client; one of `conditions` that does not hold is a refusal with an index below
/// their number.
pub(crate) async fn join_all(
    session: &Session,
    conditions: &[Op],
    nodes_wanted: &(dyn Fn() -> Vec<NewNode> + Send + Sync),
    data: &[u8],
    dirs: &[&str],
) -> Result<Group, Error> {
    let data = Bytes::copy_from_slice(data);
    let mut parents_made = 0;
    loop {
        let (create, pending) = PendingGroup::send(session, conditions, nodes_wanted(), &data);
        let listings: Vec<_> = dirs.iter().map(|dir| session.children(dir)).collect();
        match create.settle(pending).await {
            Ok(Ok(waiters)) => {
                let mut listed = Vec::with_capacity(listings.len());
                for listing in listings {
                    listed.push(listing.await);
                }
                let listings = listed;
                return Ok(Group { waiters, listings });
            }
            Ok(Err(GroupMissing)) => {}
            Err(error)
                if lacks_a_directory(&error, conditions) && parents_made < PARENT_ATTEMPTS =>
            {
                parents_made += 1;
                let mut dirs: Vec<_> = nodes_wanted()
                    .into_iter()
                    .map(|wanted| wanted.dir)
                    .collect();
                dirs.dedup();
                for dir in dirs {
                    ensure_parents(session, &dir, ParentKind::Container).await?;
                }
            }
            Err(error) => retry::until_retryable(session, error).await?,
        }
    }
}

/// Deletes `waiters` before a refusal is returned: returns when they are gone, or when the
/// connection is lost; they are deleted in any case. All requests are queued at the first poll, so
/// that dropping the future takes none of them back.
pub(crate) async fn withdraw_all(waiters: impl IntoIterator<Item = WaiterNode>) {
    let deletions: Vec<_> = waiters.into_iter().map(WaiterNode::withdraw).collect();
    for deletion in deletions {
        let _ = deletion.await;
    }
}

fn lacks_a_directory(error: &Error, conditions: &[Op]) -> bool {
    error.is_no_node()
        && error
            .multi_index()
            .is_some_and(|index| index >= conditions.len())
}

/// The group does not exist, or not whole; what there is of it is being deleted.
struct GroupMissing;

/// A multi under way.
struct PendingGroup<'a> {
    session: &'a Session,
    conditions: usize,
    nodes_wanted: Vec<NewNode>,
    /// Whether nodes may exist without anybody owning them.
    open: bool,
}

impl<'a> PendingGroup<'a> {
    /// Queues the multi; nothing has been awaited when this returns.
    fn send(
        session: &'a Session,
        conditions: &[Op],
        nodes_wanted: Vec<NewNode>,
        data: &Bytes,
    ) -> (Self, Pending<Vec<OpResult>>) {
        let mut ops = conditions.to_vec();
        ops.extend(nodes_wanted.iter().map(|wanted| {
            let path = baton_proto::path::join(&wanted.dir, &wanted.prefix);
            Op::create(path, data.clone(), CreateMode::EphemeralSequential)
        }));
        let pending = session.multi(&ops);
        let create = Self {
            session,
            conditions: conditions.len(),
            nodes_wanted,
            open: true,
        };
        (create, pending)
    }

    async fn settle(
        mut self,
        pending: Pending<Vec<OpResult>>,
    ) -> Result<Result<Vec<WaiterNode>, GroupMissing>, Error> {
        let nodes = match pending.await {
            Ok(results) => self.identify(results).await?,
            Err(error) if error.is_maybe_applied() => self.resolve(error).await?,
            Err(error) => {
                self.open = false;
                return Err(error);
            }
        };
        if nodes.len() < self.nodes_wanted.len() {
            // None, or a part because somebody has deleted the rest. The drop deletes what there
            // is.
            self.open = !nodes.is_empty();
            return Ok(Err(GroupMissing));
        }
        self.open = false;
        let waiters = nodes
            .into_iter()
            .zip(&self.nodes_wanted)
            .map(|(node, wanted)| {
                WaiterNode::new(self.session, &wanted.dir, node.path, node.stat.czxid)
            });
        Ok(Ok(waiters.collect()))
    }

    /// The nodes that the multi made. Apache ZooKeeper does not return their records along with
    /// them.
    async fn identify(&self, results: Vec<OpResult>) -> Result<Vec<CreatedNode>, Error> {
        let made: Vec<_> = results
            .into_iter()
            .skip(self.conditions)
            .filter_map(|result| match result {
                OpResult::Created { path, stat } => Some((path, stat)),
                _ => None,
            })
            .map(|(path, stat)| {
                let asked = stat.is_none().then(|| self.session.exists(&path));
                (path, stat, asked)
            })
            .collect();
        let mut nodes = Vec::with_capacity(made.len());
        for (path, stat, asked) in made {
            let stat = match (stat, asked) {
                (Some(stat), _) => Some(stat),
                (None, Some(asked)) => match asked.await {
                    Ok(stat) => stat,
                    Err(error) => {
                        retry::until_retryable(self.session, error).await?;
                        let again = || self.session.exists(&path);
                        retry::read(self.session, again).await?
                    }
                },
                (None, None) => None,
            };
            nodes.extend(stat.map(|stat| CreatedNode { path, stat }));
        }
        Ok(nodes)
    }

    /// Finds our nodes by marker and owner session, on a server that has caught up (H01–H03).
    async fn resolve(&self, lost: Error) -> Result<Vec<CreatedNode>, Error> {
        let mut nodes = Vec::with_capacity(self.nodes_wanted.len());
        for wanted in &self.nodes_wanted {
            let recover = || self.session.recover_create(&wanted.dir, &wanted.prefix);
            nodes.extend(retry::resolve(self.session, lost.clone(), recover).await?);
        }
        Ok(nodes)
    }
}

impl Drop for PendingGroup<'_> {
    /// The caller went away before the outcome was known, or cannot use it: the session deletes in
    /// the background what there is.
    fn drop(&mut self) {
        if self.open {
            for wanted in &self.nodes_wanted {
                drop(self.session.discard_create(&wanted.dir, &wanted.prefix));
            }
        }
    }
}

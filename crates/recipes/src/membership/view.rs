//! Members of a group, as they change.
//!
//! Owns the list of members made of a [`TreeCache`]. Must never list an own registration that is
//! not in force (H81), nor show a list that never was: each is the group as of one instant.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use baton_proto::path;
use bytes::Bytes;
use tokio::sync::watch;

use super::error::MemberError;
use super::layout::GroupLayout;
use super::node_control::{NodeControl, NodeState};
use crate::cache::{CacheError, CacheEvents, CacheStatus, Snapshot, TreeCache};
use crate::record::Record;

/// A member, as read from its node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its id. In kazoo's layouts several members may have the same.
    pub id: String,
    /// Its own data.
    pub data: Bytes,
    /// Full path of its node.
    pub node: String,
    /// The session that owns the node.
    pub session_id: i64,
    /// The change that created the node; another one after each registration.
    pub czxid: i64,
    /// The change that wrote its data last.
    pub mzxid: i64,
    /// Record of the member, where it is Baton's.
    pub record: Option<Record>,
}

/// The members now, and the difference to the update before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupUpdate {
    /// Everybody, sorted by node name.
    pub members: Arc<[Member]>,
    /// Those of them who were not there before.
    pub joined: Vec<Member>,
    /// Those of them who were there, and have registered again without a gap, or have other data.
    pub changed: Vec<Member>,
    /// Those who are not there any more.
    pub left: Vec<Member>,
    /// The zxid up to which every change is in the list.
    pub as_of: i64,
    /// Full paths of nodes in the group that we may not read: they may be members, and are in no
    /// list.
    pub unreadable: Vec<String>,
}

/// The registrations made through one [`Membership`](super::Membership), for its views.
#[derive(Debug)]
pub(super) struct OwnRegistrations {
    nodes: Mutex<Vec<Weak<NodeControl>>>,
    changes: watch::Sender<u64>,
}

impl OwnRegistrations {
    pub(super) fn new() -> Self {
        Self {
            nodes: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    pub(super) fn add(&self, node: &Arc<NodeControl>) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|node| node.strong_count() > 0);
        nodes.push(Arc::downgrade(node));
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Returns whether the node at `path`, created by `czxid`, may be listed: it is none of ours,
    /// or our registration is in force.
    fn allows(&self, path: &str, czxid: i64) -> bool {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ours = nodes
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|node| &*node.path == path)
            .peekable();
        ours.peek().is_none()
            || ours.any(|node| match node.state() {
                NodeState::Present(registered) => registered.czxid == czxid,
                // Another's node, as long as ours cannot be there.
                NodeState::Blocked(MemberError::Taken { .. }) => true,
                _ => false,
            })
    }
}

/// The members of a group, as they change. Dropping it removes its watch.
#[derive(Debug)]
pub struct GroupView {
    pub(super) layout: GroupLayout,
    cache: TreeCache,
    events: CacheEvents,
    own: Arc<OwnRegistrations>,
    own_changes: watch::Receiver<u64>,
    reported: Option<BTreeMap<String, Member>>,
    told_unreadable: Vec<String>,
}

impl GroupView {
    pub(super) fn new(layout: GroupLayout, cache: TreeCache, own: &Arc<OwnRegistrations>) -> Self {
        Self {
            layout,
            events: cache.events(),
            cache,
            own: Arc::clone(own),
            own_changes: own.changes.subscribe(),
            reported: None,
            told_unreadable: Vec::new(),
        }
    }

    /// Returns at first all members, as joined; later each change. Changes that follow each other
    /// faster than this is called are returned as one; lists in between are skipped. Without a
    /// connection, nothing is returned. Cancel-safe.
    ///
    /// # Errors
    /// [`MemberError::View`] once the client is closed. Refusals do not end it; see
    /// [`GroupView::status`].
    pub async fn next(&mut self) -> Result<GroupUpdate, MemberError> {
        if self.reported.is_none() {
            self.cache.ready().await?;
        }
        loop {
            self.own_changes.mark_unchanged();
            let snapshot = self.cache.snapshot();
            let members = members(self.layout, self.cache.path(), &snapshot, &self.own);
            if let Some(update) = self.difference(members, &snapshot) {
                return Ok(update);
            }
            drop(snapshot);
            tokio::select! {
                biased;
                event = self.events.next() => if event.is_none() {
                    self.cache.ready().await?;
                },
                _ = self.own_changes.changed() => {}
            }
        }
    }

    /// Returns whether the view follows the group now, or is interrupted.
    #[must_use]
    pub fn status(&self) -> CacheStatus {
        self.cache.status()
    }

    /// Resolves with the server's error when the server does not let this client read the group.
    /// The view keeps trying. The future does not borrow the view.
    pub fn refused(&self) -> impl Future<Output = CacheError> + use<> {
        let cache = self.cache.clone();
        async move {
            let mut status = cache.status();
            loop {
                match status {
                    CacheStatus::Retrying {
                        error: error @ CacheError::Client { .. },
                        ..
                    } => return error,
                    other => status = cache.status_other_than(&other).await,
                }
            }
        }
    }

    fn difference(
        &mut self,
        members: BTreeMap<String, Member>,
        snapshot: &Snapshot,
    ) -> Option<GroupUpdate> {
        let first = self.reported.is_none();
        let reported = self.reported.take().unwrap_or_default();
        let (mut joined, mut changed) = (Vec::new(), Vec::new());
        for (node, member) in &members {
            match reported.get(node) {
                None => joined.push(member.clone()),
                Some(before) if before != member => changed.push(member.clone()),
                Some(_) => {}
            }
        }
        let left: Vec<_> = reported
            .into_iter()
            .filter_map(|(node, member)| (!members.contains_key(&node)).then_some(member))
            .collect();
        let unreadable: Vec<_> = snapshot.unreadable().map(str::to_owned).collect();
        let hidden = std::mem::replace(&mut self.told_unreadable, unreadable.clone()) != unreadable;
        let update = GroupUpdate {
            members: members.values().cloned().collect(),
            joined,
            changed,
            left,
            as_of: snapshot.as_of(),
            unreadable,
        };
        self.reported = Some(members);
        let differences = [&update.joined, &update.changed, &update.left];
        (first || hidden || differences.iter().any(|list| !list.is_empty())).then_some(update)
    }
}

/// The members in a snapshot, by node. Persistent children are no members: they would never leave.
pub(super) fn members(
    layout: GroupLayout,
    group: &str,
    snapshot: &Snapshot,
    own: &OwnRegistrations,
) -> BTreeMap<String, Member> {
    let mut members = BTreeMap::new();
    for (node, cached) in snapshot.iter() {
        let stat = &cached.stat;
        if node == group || stat.ephemeral_owner == 0 || !own.allows(node, stat.czxid) {
            continue;
        }
        let Some(said) = layout.decode(path::name(node), &cached.data) else {
            continue;
        };
        let member = Member {
            id: said.id,
            data: said.data,
            node: node.to_owned(),
            session_id: stat.ephemeral_owner,
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            record: said.record,
        };
        members.insert(node.to_owned(), member);
    }
    members
}

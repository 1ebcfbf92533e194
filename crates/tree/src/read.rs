//! The reads (protocol.md §1.4): each checks the ACL and borrows from the tree. None changes
//! anything, waits, or allocates more than its answer.

use std::ops::Bound;

use baton_proto::{Acl, ErrorCode, PASSWORD_BYTES, Perms, Stat};

use crate::acl_list::AclList;
use crate::arena::{Children, Node};
use crate::child_names::ChildListing;
use crate::identity::{AuthId, Identity};
use crate::level::FormatLevel;
use crate::sessions::{EphemeralCursor, SessionInfo};
use crate::tree::Tree;

/// The names of a znode's children in the order of their creation, which is the same on every
/// replica.
#[derive(Debug, Clone)]
pub struct ChildNames<'a>(Children<'a>);

impl<'a> Iterator for ChildNames<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, node) = self.0.next()?;
        Some(name_of(node))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for ChildNames<'_> {}

/// A child as [`Tree::peek_children`] shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeekedChild<'a> {
    /// Its name.
    pub name: &'a str,
    /// Time at which it was created, in milliseconds since 1970.
    pub ctime: i64,
    /// Number of children.
    pub num_children: u32,
}

fn name_of(node: Node<'_>) -> &str {
    std::str::from_utf8(node.name()).unwrap_or_default()
}

impl Tree {
    fn readable(
        &self,
        path: &str,
        identity: &Identity,
        wanted: Perms,
    ) -> Result<Node<'_>, ErrorCode> {
        let id = self.arena.lookup(path).ok_or(ErrorCode::NoNode)?;
        let node = self.arena.node(id);
        if self.permits(node, identity, wanted) {
            Ok(node)
        } else {
            Err(ErrorCode::NoAuth)
        }
    }

    /// Data and stat; `None` is null.
    ///
    /// # Errors
    /// `NoNode`; `NoAuth` without READ.
    pub fn get_data(
        &self,
        path: &str,
        identity: &Identity,
    ) -> Result<(Option<&[u8]>, Stat), ErrorCode> {
        let node = self.readable(path, identity, Perms::READ)?;
        Ok((node.data(), self.stat_of(node)))
    }

    /// The stat.
    ///
    /// # Errors
    /// `NoNode`; `NoAuth` without READ.
    pub fn exists(&self, path: &str, identity: &Identity) -> Result<Stat, ErrorCode> {
        self.readable(path, identity, Perms::READ)
            .map(|node| self.stat_of(node))
    }

    /// The names of the children, and the stat.
    ///
    /// # Errors
    /// `NoNode`; `NoAuth` without READ.
    pub fn get_children(
        &self,
        path: &str,
        identity: &Identity,
    ) -> Result<(ChildNames<'_>, Stat), ErrorCode> {
        let node = self.readable(path, identity, Perms::READ)?;
        Ok((ChildNames(self.arena.children(node)), self.stat_of(node)))
    }

    /// ACL and stat. Without ADMIN, digests are shown as `user:x`.
    ///
    /// # Errors
    /// `NoNode`; `NoAuth` without READ or ADMIN.
    pub fn get_acl(
        &self,
        path: &str,
        identity: &Identity,
    ) -> Result<(Vec<Acl<'static>>, Stat), ErrorCode> {
        let node = self.readable(path, identity, Perms::READ | Perms::ADMIN)?;
        let list = self.acls.get(node.acl());
        let shown = if list.permits(identity, Perms::ADMIN) {
            list.entries().to_vec()
        } else {
            list.masked()
        };
        Ok((shown, self.stat_of(node)))
    }

    /// Shows the paths of further ephemerals of a session to `visit`, in the order of their
    /// creation, as long as that returns `true`. `false`: there are no more. For a walk in slices,
    /// as [`Tree::next_ephemerals`].
    pub fn ephemerals_after(
        &self,
        session: i64,
        cursor: &mut EphemeralCursor,
        mut visit: impl FnMut(&str) -> bool,
    ) -> bool {
        let Some(of) = self.sessions.get(session) else {
            return false;
        };
        let last = cursor.last.and_then(|(_, last)| last);
        let above = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = of.ephemerals.range((above, Bound::Unbounded));
        left.any(|ephemeral| {
            cursor.last = Some((session, Some(*ephemeral)));
            !visit(&self.arena.path_of(ephemeral.node))
        })
    }

    /// Paths of the session's ephemerals that begin with these characters, sorted.
    #[must_use]
    pub fn ephemerals(&self, session: i64, prefix: &str) -> Vec<String> {
        let mut paths = Vec::new();
        self.ephemerals_after(session, &mut EphemeralCursor::default(), |path| {
            if path.starts_with(prefix) {
                paths.push(path.to_owned());
            }
            true
        });
        paths.sort_unstable();
        paths
    }

    /// Paths of ephemerals of the session, `most` of them at most.
    #[must_use]
    pub fn some_ephemerals(&self, session: i64, most: usize) -> Vec<String> {
        let session = self.sessions.get(session).into_iter();
        let ephemerals = session.flat_map(|session| &session.ephemerals);
        ephemerals
            .take(most)
            .map(|ephemeral| self.arena.path_of(ephemeral.node))
            .collect()
    }

    /// Number of all descendants.
    ///
    /// # Errors
    /// `NoNode`; `NoAuth` without READ.
    pub fn count_descendants(&self, path: &str, identity: &Identity) -> Result<i32, ErrorCode> {
        let node = self.readable(path, identity, Perms::READ)?;
        let count = self.arena.family(node).below.nodes;
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// The names of the children at one moment, to be handed out in slices; `None` where they are
    /// few. Without a check, which [`Tree::get_children`] makes.
    #[must_use]
    pub fn listing(&self, path: &str) -> Option<ChildListing> {
        self.arena.listing(self.arena.lookup(path)?)
    }

    /// The most steps that a read of this path costs a client of this identity: names of the path
    /// and entries of the ACL that are looked at.
    #[must_use]
    pub fn read_steps(&self, path: &str, identity: &Identity) -> usize {
        let names = path.bytes().filter(|byte| *byte == b'/').count();
        let found = self.arena.lookup(path);
        let entries = found.map_or(0, |id| {
            let acl = self.arena.node(id).acl();
            self.acls.get(acl).most_comparisons(identity)
        });
        names + entries
    }

    /// Stat and ACL, without a check: for re-arming watches and for filtering events.
    #[must_use]
    pub fn peek(&self, path: &str) -> Option<(Stat, &AclList)> {
        let node = self.arena.node(self.arena.lookup(path)?);
        Some((self.stat_of(node), self.acls.get(node.acl())))
    }

    /// The data, without a check: for the server's own metrics.
    #[must_use]
    pub fn peek_data(&self, path: &str) -> Option<&[u8]> {
        self.arena.node(self.arena.lookup(path)?).data()
    }

    /// The children in the order of their creation, without a check: for the server's own metrics.
    /// None where there is no such znode.
    pub fn peek_children(&self, path: &str) -> impl Iterator<Item = PeekedChild<'_>> {
        let id = self.arena.lookup(path);
        let children = id.map(|id| self.arena.children(self.arena.node(id)));
        children
            .into_iter()
            .flatten()
            .map(|(_, child)| PeekedChild {
                name: name_of(child),
                ctime: child.ctime(),
                num_children: self.arena.family(child).num_children,
            })
    }

    /// The open sessions, in the order of their ids.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = SessionInfo> {
        self.sessions.iter().map(|(id, session)| session.info(id))
    }

    /// The open sessions whose id is above `after`, or all, in the order of their ids.
    pub fn sessions_after(&self, after: Option<i64>) -> impl Iterator<Item = SessionInfo> {
        let sessions = self.sessions.after(after);
        sessions.map(|(id, session)| session.info(id))
    }

    /// Appends the owner and path of further ephemerals, in the order of sessions: at most `limit`,
    /// and no more once they have `max_bytes`. `false`: there are no more. For a walk in slices,
    /// between which the tree may change: an ephemeral that is there from the first to the last is
    /// found, once.
    pub fn next_ephemerals(
        &self,
        cursor: &mut EphemeralCursor,
        limit: usize,
        max_bytes: usize,
        found: &mut Vec<(i64, String)>,
    ) -> bool {
        let mut left = limit;
        let mut bytes = 0;
        let begun = cursor.last.and_then(|(id, node)| {
            let session = self.sessions.get(id)?;
            Some((id, session, node))
        });
        let after = cursor.last.map(|(id, _)| id);
        let others = self.sessions.after(after);
        let others = others.map(|(id, session)| (id, session, None));
        for (id, session, node) in begun.into_iter().chain(others) {
            if left == 0 {
                return true;
            }
            let above = node.map_or(Bound::Unbounded, Bound::Excluded);
            cursor.last = Some((id, node));
            for ephemeral in session.ephemerals.range((above, Bound::Unbounded)) {
                if left == 0 || bytes >= max_bytes {
                    return true;
                }
                let path = self.arena.path_of(ephemeral.node);
                left -= 1;
                bytes += path.len();
                found.push((id, path));
                cursor.last = Some((id, Some(*ephemeral)));
            }
            // A session without ephemerals costs a look, too.
            left = left.saturating_sub(1);
        }
        false
    }

    /// One open session.
    #[must_use]
    pub fn session(&self, id: i64) -> Option<SessionInfo> {
        self.sessions.get(id).map(|session| session.info(id))
    }

    /// An ended session that has ephemerals left, for the next command that deletes some of them:
    /// another [`crate::Command::CloseSession`] of it.
    #[must_use]
    pub fn unfinished_end(&self) -> Option<i64> {
        self.sessions.unfinished_end()
    }

    /// Returns whether no session can be opened with this id: one has it, or from
    /// [`FormatLevel::UniqueSessionIds`](crate::FormatLevel::UniqueSessionIds) on may have had it.
    #[must_use]
    pub fn is_session_id_used(&self, id: i64) -> bool {
        let is_known = self.session(id).is_some() || self.is_ending(id);
        let keeps_newest = self.level >= FormatLevel::UniqueSessionIds;
        is_known || keeps_newest && self.sessions.newest_like(id).is_some_and(|it| it >= id)
    }

    /// The highest id whose first byte is that of `id` and with which a session was opened, as far
    /// as that is known.
    #[must_use]
    pub fn newest_session_id_like(&self, id: i64) -> Option<i64> {
        self.sessions.newest_like(id)
    }

    /// Returns whether session `id` has ended and has ephemerals left.
    #[must_use]
    pub fn is_ending(&self, id: i64) -> bool {
        self.sessions.is_ending(id)
    }

    /// Returns whether a connection with this password and these identities may take session `id`
    /// over. `None`: there is no such session.
    #[must_use]
    pub fn admits(
        &self,
        id: i64,
        password: &[u8; PASSWORD_BYTES],
        identity: &Identity,
    ) -> Option<bool> {
        let session = self.sessions.get(id)?;
        Some(session.admits(password, identity))
    }

    /// The identities to which session `id` is bound: anyone who takes it over has to prove them.
    /// None if there is no such session.
    #[must_use]
    pub fn bound_to(&self, id: i64) -> &[AuthId] {
        self.sessions
            .get(id)
            .map_or(&[], |session| &session.bound_to)
    }

    /// Number of znodes, `/` among them. ZooKeeper reports one more (protocol.md §1.6).
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.arena.len()
    }

    /// Number of ephemerals.
    #[must_use]
    pub fn ephemeral_count(&self) -> usize {
        self.sessions.ephemerals()
    }

    /// Number of distinct ACLs.
    #[must_use]
    pub fn acl_count(&self) -> usize {
        self.acls.len()
    }

    /// Bytes of all names and data.
    #[must_use]
    pub fn approximate_bytes(&self) -> usize {
        self.arena.payload_bytes()
    }
}

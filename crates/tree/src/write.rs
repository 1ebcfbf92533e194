//! The writes: create, delete, set, set ACL, check (protocol.md §1.4, §1.6, §1.10). Owns the
//! checks, in ZooKeeper's order, and what each write changes. A write checks everything before it
//! changes anything.
//!
//! # Sequential names past 2147483647
//!
//! The number in a sequential name is the count of all children ever created under the parent, kept
//! in 64 bits and printed with at least ten digits. ZooKeeper keeps 32: there the count sticks at
//! 2147483647 and, in a pipeline, turns negative, so that equal and falling numbers appear and
//! locks are granted twice (H19, H21). Here it goes on: 2147483648, 2147483649, … up to
//! [`MAX_SEQUENCE`] = 9999999999. All of these have ten digits, so every peer that compares text
//! (Curator, kazoo, the C recipes) or parses 64 bits (go-zk, the Rust crates, the queues) keeps the
//! right order; a wrap-around to negative numbers would keep it for none of them, as `-` sorts
//! before the digits. A peer that parses 32 bits fails on its own side, loudly.
//!
//! The next number would have eleven digits, which text comparison sorts to the front and which
//! fixed-width parsers cut (H22): two holders. So the create is refused with `BadArguments`, for
//! this parent and for sequential names only. The way on is a new parent, or the same one deleted
//! and created again. At 1000 creates a second it takes 115 days to get there;
//! [`Tree::sequence_headroom`] says how far it is.

use std::borrow::Cow;

use baton_proto::{Acl, CONFIG_PATH, Create, ErrorCode, Perms, Response, Stat, path};

use crate::acl_rules::{self, AclAllowance};
use crate::acl_table::{AclId, OPEN};
use crate::arena::{LastWrite, NewNode, NodeId};
use crate::effects::ChangeKind;
use crate::identity::Identity;
use crate::kind::Kind;
use crate::quota::Growth;
use crate::recorder::{Context, PendingChange, Recorder, Undo, UnloggedRecorder};
use crate::server_list::ServerList;
use crate::tree::{INITIAL_PATHS, Tree};

/// The highest number in a sequential name: the last one of ten digits.
pub const MAX_SEQUENCE: i64 = 9_999_999_999;

/// The version after `current`, if that is the expected one. Never -1, which would read as "any"
/// (H24).
fn next_version(current: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected != -1 && expected != current {
        return Err(ErrorCode::BadVersion);
    }
    Ok(match current.wrapping_add(1) {
        -1 => 0,
        next => next,
    })
}

/// The parent's path and where the name begins, as far as a path can be split before it is
/// validated.
fn split_parent(path: &str) -> Result<(&str, usize), ErrorCode> {
    if path.contains('\0') {
        return Err(ErrorCode::BadArguments);
    }
    let slash = path.rfind('/').ok_or(ErrorCode::BadArguments)?;
    let parent = path.get(..slash.max(1)).ok_or(ErrorCode::BadArguments)?;
    Ok((parent, slash + 1))
}

impl Tree {
    pub(crate) fn create(
        &mut self,
        context: &Context<'_>,
        request: &Create<'_>,
        recorder: &mut impl Recorder,
    ) -> Result<(String, Stat), ErrorCode> {
        let mode = request.mode()?;
        let (parent_path, name_start) = split_parent(request.path)?;
        let acl = acl_rules::checked(request.acl.as_deref(), context.identity, context.acls)?;
        let parent_id = self.arena.lookup(parent_path).ok_or(ErrorCode::NoNode)?;
        self.count_check(parent_id, context.identity);
        let parent = self.arena.node(parent_id);
        if !self.permits(parent, context.identity, Perms::CREATE) {
            return Err(ErrorCode::NoAuth);
        }
        let family = self.arena.family(parent);
        let path = if mode.is_sequential() {
            if !(0..=MAX_SEQUENCE).contains(&family.creates) {
                return Err(ErrorCode::BadArguments);
            }
            Cow::Owned(request.path.to_owned() + &path::format_sequence(family.creates))
        } else {
            Cow::Borrowed(request.path)
        };
        path::validate(&path).map_err(|_| ErrorCode::BadArguments)?;
        let name = path.get(name_start..).unwrap_or_default().as_bytes();
        if name.is_empty() || self.arena.child(parent_id, name).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(Kind::of_owner(parent.details().owner), Kind::Ephemeral(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let quota = self.quota_over(&path);
        let growth = Growth {
            count: 1,
            bytes: request.data.map_or(0, <[u8]>::len) as i64,
        };
        self.within_quota(quota.as_ref(), growth, recorder)?;

        let parent_acl = parent.acl();
        self.begin_family_change(parent_path, parent_id);
        let acl = acl.map_or(OPEN, |acl| self.acls.acquire(acl));
        let kind = Kind::of_mode(mode, context.session);
        let new = NewNode {
            czxid: context.zxid,
            mzxid: context.zxid,
            ctime: context.time_ms,
            mtime: context.time_ms,
            owner: kind.owner(),
            acl,
            version: 0,
            aversion: 0,
            birth: context.birth,
        };
        let id = self.arena.insert(new, parent_id, name, request.data);
        self.pass_over(id);
        let family_now = self.arena.family_mut(parent_id);
        family_now.creates = family_now.creates.wrapping_add(1);
        family_now.pzxid = context.zxid;
        self.end_family_change(parent_path, parent_id);
        self.count_in(&path, id);
        self.note_kind(kind, id);
        if let Some(journal) = recorder.journal() {
            journal.push(Undo::Created {
                id,
                parent_pzxid: family.pzxid,
            });
        }
        let owned = (kind.ephemeral_owner(), acl);
        self.record_with(
            context,
            recorder,
            ChangeKind::Created,
            &path,
            owned,
            request.data,
        );
        let changed = ChangeKind::ChildrenChanged;
        self.record(context, recorder, changed, parent_path, (0, parent_acl));
        let stat = self.stat_of(self.arena.node(id));
        self.charge(quota.as_ref(), growth, recorder);
        self.begin_stats(&path, id, recorder);
        Ok((path.into_owned(), stat))
    }

    pub(crate) fn delete(
        &mut self,
        context: &Context<'_>,
        path: &str,
        version: i32,
        recorder: &mut impl Recorder,
    ) -> Result<(), ErrorCode> {
        let (parent_path, name_start) = split_parent(path)?;
        if INITIAL_PATHS.contains(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let parent_id = self.arena.lookup(parent_path).ok_or(ErrorCode::NoNode)?;
        let name = path.get(name_start..).unwrap_or_default();
        self.count_check(parent_id, context.identity);
        // Asked before whether the znode exists, so that a client that may not delete is not shown
        // that.
        let parent = self.arena.node(parent_id);
        if !self.permits(parent, context.identity, Perms::DELETE) {
            return Err(ErrorCode::NoAuth);
        }
        // The parent of "//a" reads as "/", but there is no znode of that path.
        if parent_path == "/" && name_start != 1 {
            return Err(ErrorCode::NoNode);
        }
        let id = self
            .arena
            .child(parent_id, name.as_bytes())
            .ok_or(ErrorCode::NoNode)?;
        let node = self.arena.node(id);
        next_version(node.details().version, version)?;
        if self.arena.family(node).num_children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(context, path, id, recorder);
        Ok(())
    }

    /// The server's own deletion: only of the znode that was meant, and only if it is still due.
    pub(crate) fn reap(
        &mut self,
        context: &Context<'_>,
        path: &str,
        czxid: i64,
        recorder: &mut impl Recorder,
    ) -> Result<Response, ErrorCode> {
        let id = self.arena.lookup(path).ok_or(ErrorCode::NoNode)?;
        let node = self.arena.node(id);
        if self.arena.family(node).num_children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        let due = match Kind::of_owner(node.details().owner) {
            Kind::Container => true,
            Kind::Ttl(ttl_ms) => context.time_ms.saturating_sub(node.details().mtime) > ttl_ms,
            Kind::Persistent | Kind::Ephemeral(_) => false,
        };
        if !due || node.czxid() != czxid {
            return Err(ErrorCode::BadVersion);
        }
        self.remove(context, path, id, recorder);
        Ok(Response::Empty)
    }

    /// Removes a znode without children. Everything has been checked.
    pub(crate) fn remove(
        &mut self,
        context: &Context<'_>,
        path: &str,
        id: NodeId,
        recorder: &mut impl Recorder,
    ) {
        self.steps += 1;
        let parent_path = path::parent(path);
        let node = self.arena.node(id);
        let parent_id = node.parent();
        let kind = Kind::of_owner(node.details().owner);
        self.begin_family_change(parent_path, parent_id);
        self.save(id);
        self.count_out(path, id);
        self.forget_kind(kind, id);
        let node = self.arena.take_out(id);
        let family = self.arena.family_mut(parent_id);
        let parent_pzxid = std::mem::replace(&mut family.pzxid, context.zxid);
        self.end_family_change(parent_path, parent_id);
        let owned = (kind.ephemeral_owner(), node.acl());
        self.record(context, recorder, ChangeKind::Deleted, path, owned);
        let parent_acl = self.arena.node(parent_id).acl();
        let changed = ChangeKind::ChildrenChanged;
        self.record(context, recorder, changed, parent_path, (0, parent_acl));
        let quota = self.quota_over(path);
        let growth = Growth {
            count: -1,
            bytes: -(node.payload.data_len() as i64),
        };
        self.charge(quota.as_ref(), growth, recorder);
        match recorder.journal() {
            Some(journal) => journal.push(Undo::Deleted { node, parent_pzxid }),
            None => {
                self.arena.free_removed(&node);
                self.acls.release(node.acl());
            }
        }
    }

    pub(crate) fn set_data(
        &mut self,
        context: &Context<'_>,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        recorder: &mut impl Recorder,
    ) -> Result<Stat, ErrorCode> {
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let id = self.arena.lookup(path).ok_or(ErrorCode::NoNode)?;
        self.count_check(id, context.identity);
        let node = self.arena.node(id);
        if !self.permits(node, context.identity, Perms::WRITE) {
            return Err(ErrorCode::NoAuth);
        }
        let quota = self.quota_over(path);
        let growth = Growth {
            count: 0,
            bytes: data.map_or(0, <[u8]>::len) as i64 - node.data_len() as i64,
        };
        self.within_quota(quota.as_ref(), growth, recorder)?;
        if path == CONFIG_PATH && self.servers().is_some() {
            // Only a reconfig changes the list, since the members change with it.
            return Err(ErrorCode::BadArguments);
        }
        let next = next_version(node.details().version, version)?;
        let acl = node.acl();
        let write = LastWrite {
            mzxid: context.zxid,
            mtime: context.time_ms,
            version: next,
        };
        self.replace_data(path, id, data, recorder, write);
        let stat = self.stat_of(self.arena.node(id));
        self.record(context, recorder, ChangeKind::DataChanged, path, (0, acl));
        self.charge(quota.as_ref(), growth, recorder);
        Ok(stat)
    }

    /// Puts a list of servers into the znode that shows it. Its version does not count, as in
    /// ZooKeeper: the list has one of its own.
    pub(crate) fn store_list(
        &mut self,
        context: &Context<'_>,
        text: &[u8],
        recorder: &mut impl Recorder,
    ) -> Result<Stat, ErrorCode> {
        let path = CONFIG_PATH;
        let id = self.arena.lookup(path).ok_or(ErrorCode::NoNode)?;
        let acl = self.arena.node(id).acl();
        let write = LastWrite {
            mzxid: context.zxid,
            mtime: context.time_ms,
            version: -1,
        };
        self.replace_data(path, id, Some(text), recorder, write);
        let stat = self.stat_of(self.arena.node(id));
        self.record(context, recorder, ChangeKind::DataChanged, path, (0, acl));
        Ok(stat)
    }

    /// Makes this the tree of a new cluster: no servers are listed, and no zxid up to `beyond` is
    /// given, so that none is given twice where a former cluster gave more than this tree knows
    /// (R20).
    pub fn begin_new_cluster(&mut self, beyond: i64) {
        self.zxid = self.zxid.max(beyond);
        if self.servers().is_none() {
            return;
        }
        let identity = Identity::anonymous();
        let context = Context {
            time_ms: self.time_ms,
            zxid: self.zxid,
            session: 0,
            identity: &identity,
            acls: &AclAllowance::at(self.level),
            birth: 0,
        };
        // The znode is never deleted.
        let _ = self.store_list(&context, b"", &mut UnloggedRecorder(&mut ()));
    }

    /// The servers of the ensemble; `None` on a server alone, and before a leader has listed them.
    #[must_use]
    pub fn servers(&self) -> Option<ServerList> {
        let id = self.arena.lookup(CONFIG_PATH)?;
        let data = self.arena.node(id).data().filter(|data| !data.is_empty())?;
        ServerList::read(std::str::from_utf8(data).ok()?)
    }

    /// Returns whether a client of this identity may change the servers: whether it may write where
    /// they are listed.
    #[must_use]
    pub fn may_reconfigure(&self, identity: &Identity) -> bool {
        let listed = self.arena.lookup(CONFIG_PATH);
        listed.is_some_and(|id| self.permits(self.arena.node(id), identity, Perms::WRITE))
    }

    pub(crate) fn set_acl(
        &mut self,
        context: &Context<'_>,
        path: &str,
        acl: Option<&[Acl<'_>]>,
        version: i32,
    ) -> Result<Stat, ErrorCode> {
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let acl = acl_rules::checked(acl, context.identity, context.acls)?;
        let id = self.arena.lookup(path).ok_or(ErrorCode::NoNode)?;
        self.count_check(id, context.identity);
        let node = self.arena.node(id);
        if !self.permits(node, context.identity, Perms::ADMIN) {
            return Err(ErrorCode::NoAuth);
        }
        let next = next_version(node.details().aversion, version)?;
        self.begin_family_change(path, id);
        let acl = acl.map_or(OPEN, |acl| self.acls.acquire(acl));
        self.arena.set_aversion(id, next);
        let before = self.arena.replace_acl(id, acl);
        self.acls.release(before);
        self.end_family_change(path, id);
        Ok(self.stat_of(self.arena.node(id)))
    }

    /// The check of a multi.
    pub(crate) fn check(
        &mut self,
        context: &Context<'_>,
        path: &str,
        version: i32,
    ) -> Result<(), ErrorCode> {
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let id = self.arena.lookup(path).ok_or(ErrorCode::NoNode)?;
        self.count_check(id, context.identity);
        let node = self.arena.node(id);
        if !self.permits(node, context.identity, Perms::READ) {
            return Err(ErrorCode::NoAuth);
        }
        next_version(node.details().version, version).map(|_| ())
    }

    fn record(
        &self,
        context: &Context<'_>,
        recorder: &mut impl Recorder,
        kind: ChangeKind,
        path: &str,
        owned: (i64, AclId),
    ) {
        self.record_with(context, recorder, kind, path, owned, None);
    }

    fn record_with(
        &self,
        context: &Context<'_>,
        recorder: &mut impl Recorder,
        kind: ChangeKind,
        path: &str,
        (session, acl): (i64, AclId),
        data: Option<&[u8]>,
    ) {
        let zxid = context.zxid;
        let noted = PendingChange {
            data,
            kind,
            path,
            zxid,
            session,
            acl,
        };
        recorder.change(noted, &self.acls);
    }

    /// Returns the number of further sequential znodes that can be created under this one before
    /// their numbers would need eleven digits; `None` if there is no such znode.
    #[must_use]
    pub fn sequence_headroom(&self, path: &str) -> Option<i64> {
        let id = self.arena.lookup(path)?;
        let creates = self.arena.family(self.arena.node(id)).creates;
        Some((MAX_SEQUENCE + 1).saturating_sub(creates).max(0))
    }
}

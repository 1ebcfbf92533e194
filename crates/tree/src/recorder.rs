//! Circumstances of a write: who writes and when, whom it notifies, and how it can be undone.

use crate::acl_rules::AclAllowance;
use crate::acl_table::{AclId, AclTable};
use crate::arena::{LastWrite, NodeId, Payload, Record};
use crate::effects::{Change, ChangeKind, Effects, OverQuota};
use crate::identity::Identity;

/// Context of a write: session, identity, time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) time_ms: i64,
    pub(crate) zxid: i64,
    pub(crate) session: i64,
    pub(crate) identity: &'a Identity,
    /// Room for the ACLs of its command.
    pub(crate) acls: &'a AclAllowance,
    /// Number of this operation in its command.
    pub(crate) birth: u32,
}

/// Receives the changes that a write makes.
pub(crate) trait Recorder {
    /// A change, with the number of the ACL that filters its events.
    fn change(&mut self, change: PendingChange<'_>, acls: &AclTable);

    /// A write that goes, or would go, over a quota. Called also for a write that fails.
    fn over_quota(&mut self, over: OverQuota<'_>);

    /// The undo journal, if the write may be undone.
    fn journal(&mut self) -> Option<&mut Vec<Undo>>;
}

/// A change before its ACL has been looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingChange<'a> {
    pub(crate) kind: ChangeKind,
    pub(crate) path: &'a str,
    pub(crate) zxid: i64,
    /// See [`Change::session`].
    pub(crate) session: i64,
    pub(crate) acl: AclId,
    /// See [`Change::data`].
    pub(crate) data: Option<&'a [u8]>,
}

/// For a write that stands alone: what is done is final.
pub(crate) struct UnloggedRecorder<'e, E>(pub(crate) &'e mut E);

impl<E: Effects> Recorder for UnloggedRecorder<'_, E> {
    fn change(&mut self, change: PendingChange<'_>, acls: &AclTable) {
        self.0.event(Change {
            kind: change.kind,
            path: change.path,
            zxid: change.zxid,
            session: change.session,
            acl: acls.get(change.acl),
            data: change.data,
        });
    }

    fn over_quota(&mut self, over: OverQuota<'_>) {
        self.0.over_quota(over);
    }

    fn journal(&mut self) -> Option<&mut Vec<Undo>> {
        None
    }
}

/// Step that takes one write back, everything after it having been taken back.
#[derive(Debug)]
pub(crate) enum Undo {
    Created {
        id: NodeId,
        parent_pzxid: i64,
    },
    Deleted {
        node: Record,
        parent_pzxid: i64,
    },
    Set {
        id: NodeId,
        old: Payload,
        before: LastWrite,
    },
}

//! Effects of an applied command: the outcome for the one who asked, and the changes for those who
//! watch. Owns the types only; which watch fires on which change is the server's business
//! (protocol.md §1.7).

use baton_proto::{ErrorCode, Response};

use crate::AclList;

/// Kind of a change to a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It came to be: fires data watches on it (`NodeCreated`).
    Created,
    /// It went: fires data watches and child watches on it (`NodeDeleted`).
    Deleted,
    /// Its data was written: fires data watches on it (`NodeDataChanged`).
    DataChanged,
    /// A child came or went: fires child watches on it (`NodeChildrenChanged`). Follows the child's
    /// own change.
    ChildrenChanged,
}

/// One change, reported after the command that made it has succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// To which znode.
    pub path: &'a str,
    /// The zxid of the command.
    pub zxid: i64,
    /// The session that owns the znode, of one that came or went; 0 for a znode without one, and
    /// for every other change.
    pub session: i64,
    /// The znode's ACL at that moment, a deleted one's last: an event goes only to those who may
    /// read (protocol.md §1.7).
    pub acl: &'a AclList,
    /// The data of a znode that was created, unless it is null.
    pub data: Option<&'a [u8]>,
}

/// Quantity that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaOf {
    /// Znodes.
    Count,
    /// Bytes of data.
    Bytes,
}

/// A write that goes over a quota, or would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverQuota<'a> {
    /// The path whose quota it is.
    pub path: &'a str,
    /// The quantity over its limit.
    pub of: QuotaOf,
    /// Amount that there would be.
    pub amount: i64,
    /// Amount that there may be.
    pub limit: i64,
    /// Whether the write was refused for it.
    pub is_hard: bool,
}

/// Takes the changes of a command, in the order in which they happened.
pub trait Effects {
    /// One change. The tree already shows it, and shows nothing later than the command that made
    /// it.
    fn event(&mut self, change: Change<'_>);

    /// A quota that the command went over, or would have; reported whether or not it succeeded.
    /// Nothing, unless said otherwise.
    fn over_quota(&mut self, over: OverQuota<'_>) {
        let _ = over;
    }
}

/// For replays, where no client watches.
impl Effects for () {
    fn event(&mut self, _: Change<'_>) {}
}

/// Outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The zxid that the command took; for a re-attachment, which takes none, the last one taken.
    pub zxid: i64,
    /// The body of the reply, or the error for its header. A multi that failed is `Ok` with its
    /// errors inside, as its header says 0 (protocol.md §1.9).
    pub result: Result<Response, ErrorCode>,
}

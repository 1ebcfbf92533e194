//! An observer of what the server applies: for metrics of programs that know what znodes mean. Owns
//! what an observer is shown, and when. The server itself does not know any recipe.

use std::fmt;

use baton_tree::{PeekedChild, Tree, Znode};

/// Author of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedBy {
    /// A client, in this session.
    Client(i64),
    /// The end of the session that owned the znode: its client closed it.
    ClosedSession,
    /// The end of the session that owned the znode: it expired.
    ExpiredSession,
    /// The server, of its own accord.
    Server,
}

/// A znode that came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedChange<'a> {
    /// Whether it was created; else it was deleted.
    pub is_created: bool,
    /// Its path.
    pub path: &'a str,
    /// The session that owns it; 0 if none does.
    pub session: i64,
    /// Author of its creation or deletion.
    pub by: ChangedBy,
    /// The zxid of the change. The parts of a multi have the same.
    pub zxid: i64,
    /// When: milliseconds since 1970, by the clock of the leader that made the log entry.
    pub time_ms: i64,
    /// The data with which it was created, where everybody may read it; a null is empty.
    pub open_data: Option<&'a [u8]>,
}

/// The tree as an observer reads it: all of it, whatever the ACLs are, and only while it is shown.
pub struct ObservedTree<'a>(&'a Tree);

impl fmt::Debug for ObservedTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedTree")
            .field("znodes", &self.0.node_count())
            .finish()
    }
}

impl<'a> ObservedTree<'a> {
    /// A view of `tree`.
    #[must_use]
    pub fn new(tree: &'a Tree) -> Self {
        Self(tree)
    }

    /// Shows every znode, parents before their children.
    pub fn each_znode(&self, mut visit: impl FnMut(&Znode<'_>)) {
        let all = self.0.visit_znodes(|znode| {
            visit(znode);
            Ok::<_, std::convert::Infallible>(())
        });
        match all {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// A znode's data; `None` where there is no such znode, or its data is null.
    #[must_use]
    pub fn data(&self, path: &str) -> Option<&[u8]> {
        self.0.peek_data(path)
    }

    /// A znode's children in the order of their creation; none where there is no such znode.
    pub fn children(&self, path: &str) -> impl Iterator<Item = PeekedChild<'_>> {
        self.0.peek_children(path)
    }
}

/// Is shown every znode that comes or goes, and adds to the metrics of one server.
///
/// The server calls it while it holds the tree: whatever takes long here keeps all clients waiting.
/// An observer belongs to one server at a time. Over a restart of that server it may live on: what
/// it has counted is then counted further.
pub trait ChangeObserver: fmt::Debug + Send + Sync {
    /// The state is this from now on: after a start, and once a snapshot of another server has
    /// taken the place of the state.
    fn restored(&self, tree: &ObservedTree<'_>);

    /// A znode came or went. Called in the order of the log, and never for what a start replays.
    fn changed(&self, change: &ObservedChange<'_>);

    /// The metrics at this moment, milliseconds since 1970, in Prometheus's text format. They are
    /// written out once the tree is released.
    fn sample(&self, tree: &ObservedTree<'_>, now_ms: i64) -> Box<dyn fmt::Display>;
}

//! Ended sessions that have ephemerals left, which further entries delete. Owns who waits for the
//! end of each: its client, whose request to close it is answered once the last ephemeral is gone,
//! and the owner of a server that has it expire. Every server keeps this from the entries that it
//! applies, so that the next leader's deletions are answered like the first one's.

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_tree::{BatchItem, CloseReason, Command, Tree};
use tokio::sync::oneshot;

use crate::connections::inbox::{Group, Queued};

/// The request of a client that closes its session.
#[derive(Debug)]
pub(crate) struct CloseRequest {
    pub(crate) group: Group,
    pub(crate) request: Queued,
}

/// A session that has ended and has ephemerals left.
#[derive(Debug)]
struct Ending {
    reason: CloseReason,
    request: Option<CloseRequest>,
    /// Receivers that are notified besides the client.
    waiting: Vec<oneshot::Sender<()>>,
}

/// The sessions whose end is not complete.
#[derive(Debug, Default)]
pub(crate) struct SessionEnds {
    ending: BTreeMap<i64, Ending>,
}

impl SessionEnds {
    /// Notes the end of a session that was applied just now, if it has left ephemerals. `true`: the
    /// request is answered by [`SessionEnds::next_complete`].
    pub(crate) fn begun(
        &mut self,
        tree: &Tree,
        item: &BatchItem<'_>,
        request: Option<(&Group, &Queued)>,
    ) -> bool {
        let Command::CloseSession { session_id, reason } = item.command else {
            return false;
        };
        if self.ending.contains_key(&session_id) || !tree.is_ending(session_id) {
            return false;
        }
        let request = request.map(|(group, request)| CloseRequest {
            group: Group {
                conn: Arc::clone(&group.conn),
                identity: Arc::clone(&group.identity),
                ..*group
            },
            request: *request,
        });
        let ending = Ending {
            reason,
            request,
            waiting: Vec::new(),
        };
        self.ending.insert(session_id, ending);
        true
    }

    /// Has `applied` notified when the session has no ephemeral left.
    pub(crate) fn notify(&mut self, session: i64, applied: oneshot::Sender<()>) {
        if let Some(ending) = self.ending.get_mut(&session) {
            ending.waiting.push(applied);
        } else {
            // The asker may have gone.
            let _ = applied.send(());
        }
    }

    /// The client's request that has ended the session, for the audit record.
    pub(crate) fn closed_by(&self, session: i64) -> Option<&Group> {
        let request = self.ending.get(&session)?.request.as_ref();
        request.map(|request| &request.group)
    }

    /// Returns the reason for which the session has ended. After a restart this is unknown for a
    /// session whose end began before.
    pub(crate) fn reason(&self, session: i64) -> CloseReason {
        let ending = self.ending.get(&session);
        ending.map_or(CloseReason::Expired, |ending| ending.reason)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ending.is_empty()
    }

    /// Removes a session that has no ephemeral left, and notifies who waits for that. Returns the
    /// request that is to be answered; `None`: all that are here have ephemerals left.
    pub(crate) fn next_complete(&mut self, tree: &Tree) -> Option<Option<CloseRequest>> {
        let mut sessions = self.ending.keys();
        let session = *sessions.find(|session| !tree.is_ending(**session))?;
        let ending = self.ending.remove(&session)?;
        for applied in ending.waiting {
            // The asker may have gone.
            let _ = applied.send(());
        }
        Some(ending.request)
    }
}

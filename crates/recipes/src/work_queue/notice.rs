//! The node that informs a claim's owner of a settlement by another process.
//!
//! Owns that node, which is called `verdicts/<claim>` on the tree, and its bytes. The process that
//! settles the claim writes it in the change that ends the claim; it is deleted with the claim.

use baton_client::{Op, Session};
use serde::{Deserialize, Serialize};

use super::settlement::SettledState;
use crate::retry;

/// The notice node of a claim of this process. Deleted when this is dropped.
#[derive(Debug)]
pub(super) struct SettlementNotice {
    session: Session,
    path: String,
    czxid: i64,
}

/// Content of the node.
#[derive(Serialize, Deserialize)]
struct NoticeBody {
    settled: SettledState,
}

impl SettlementNotice {
    pub(super) fn new(session: &Session, path: String, czxid: i64) -> Self {
        Self {
            session: session.clone(),
            path,
            czxid,
        }
    }

    /// Returns the settlement of the item by another process; `None` where none has settled it, or
    /// the node cannot be read any more.
    pub(super) async fn read(&self) -> Option<SettledState> {
        let read = || self.session.get_data(&self.path);
        let read = retry::read(&self.session, read).await.ok()?;
        let body = serde_json::from_slice::<NoticeBody>(&read.data).ok()?;
        Some(body.settled)
    }
}

impl Drop for SettlementNotice {
    fn drop(&mut self) {
        drop(self.session.delete_eventually(&self.path, self.czxid));
    }
}

/// The part of a settlement that informs the claim's owner, whose notice node is `node`.
pub(super) fn notify(node: &str, settled: SettledState) -> Op {
    // A name always has a JSON form.
    let body = serde_json::to_vec(&NoticeBody { settled }).unwrap_or_default();
    Op::set_data(node, body, None)
}

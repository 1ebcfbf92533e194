//! The node that locks an item for one consumer.
//!
//! Owns that node from the change that creates it to its deletion, and the notification of its end.
//! Its name is the item's, so a later claim may have the same path. The node must never be deleted
//! except by its `czxid`, or under the item's version (H09, H18, H67).

use std::sync::Arc;

use baton_client::{CreateMode, Error, LeaseHold, Op, OpResult, Session};
use bytes::Bytes;
use uuid::Uuid;

use super::error::QueueError;
use super::folder::Folder;
use crate::guard::{self, GuardState, LostReason};
use crate::parents::{ParentKind, ensure_parents};
use crate::retry;
use crate::wait_queue::{NodeDeletion, OwnNodeWatch};

/// The version of the claims of this library. Claims of other libraries have version 0, so a change
/// conditioned on this version fails on them. Each claim of this library raises the item's version,
/// by which a change distinguishes them.
pub(super) const VERSION: i32 = 1;

/// A claim of this process.
#[derive(Debug)]
pub(super) struct ItemClaim {
    state: Arc<GuardState>,
    czxid: i64,
    open: bool,
    /// Keeps the session open.
    session: Session,
    _lease: Arc<LeaseHold>,
}

/// Outcome of an attempt to claim an item.
pub(super) enum ClaimOutcome {
    Claimed(ClaimedItem),
    /// Another consumer has the item, or has removed it.
    Taken,
    /// The item cannot be read, or cannot be locked: the reason.
    Unreadable(String),
    /// Try again: the item has changed, or the connection.
    Again,
}

/// An item and the claim on it.
#[derive(Debug)]
pub(super) struct ClaimedItem {
    pub claim: ItemClaim,
    pub items: Vec<Bytes>,
    /// The data of the item's node.
    pub data: Bytes,
    /// The version of the item's node under this claim. No other claim of this library has it.
    pub version: i32,
}

impl ItemClaim {
    fn new(session: &Session, path: &str, czxid: i64, lease: Arc<LeaseHold>) -> Self {
        let token = u64::try_from(czxid).unwrap_or_default();
        let state = Arc::new(GuardState::new(
            session,
            vec![NodeDeletion::unmarked(path, czxid)],
            token,
        ));
        let own_node = OwnNodeWatch::at(session, path, czxid);
        let watching = guard::watch(own_node, Arc::clone(&state));
        session.runtime().spawn(watching);
        Self {
            state,
            czxid,
            open: true,
            session: session.clone(),
            _lease: lease,
        }
    }

    pub(super) fn state(&self) -> &Arc<GuardState> {
        &self.state
    }

    /// This process has deleted the claim's node.
    pub(super) fn settled(mut self) {
        self.open = false;
    }
}

impl Drop for ItemClaim {
    fn drop(&mut self) {
        self.state.end(LostReason::Released);
        if self.open && self.state.take_over_removal() {
            drop(
                self.session
                    .delete_eventually(self.state.path(), self.czxid),
            );
        }
    }
}

/// Claims the item `name` of `folder` by a node of that name in `claims`.
///
/// Must be driven to its end: a claim for a cancelled caller is freed when the result is dropped
/// (H69).
pub(super) async fn claim_item(
    folder: &Folder,
    session: &Session,
    claims: &str,
    name: &str,
    lease: Arc<LeaseHold>,
) -> Result<ClaimOutcome, QueueError> {
    let node = baton_proto::path::join(folder.path(), name);
    let read = match session.get_data(&node).await {
        Ok(read) => read,
        Err(error) if error.is_no_node() => return Ok(ClaimOutcome::Taken),
        Err(error) => return again(folder, session, error).await,
    };
    let items = match folder.format().decode(read.data.clone()) {
        Ok(items) => items,
        Err(why) => return Ok(ClaimOutcome::Unreadable(why)),
    };
    let path = baton_proto::path::join(claims, name);
    let marker = Bytes::from(Uuid::new_v4().simple().to_string());
    let parts = [
        Op::create(&*path, marker.clone(), CreateMode::Ephemeral),
        Op::set_data(&*path, marker.clone(), None),
        Op::set_data(&*node, read.data.clone(), Some(read.stat.version)),
    ];
    let czxid = match session.multi(&parts).await {
        Ok(results) => results.iter().find_map(|result| match result {
            OpResult::DataSet(stat) => Some(stat.czxid),
            _ => None,
        }),
        Err(error) if error.is_maybe_applied() => {
            match resolve_claim(session, claims, &path, &marker, error).await {
                Ok(found) => found,
                Err(error) => {
                    drop(session.discard_create_at(&path, &marker));
                    return again(folder, session, error).await;
                }
            }
        }
        Err(error) if error.is_too_large() => {
            // An item of another library, too large to be written together with the claim.
            return Ok(ClaimOutcome::Unreadable(error.to_string()));
        }
        Err(error) => {
            return match error.multi_index() {
                Some(0) if error.is_node_exists() => Ok(ClaimOutcome::Taken),
                Some(0) if error.is_no_node() => {
                    let made = ensure_parents(session, claims, ParentKind::Persistent).await;
                    folder.or_retry(session, made).await?;
                    Ok(ClaimOutcome::Again)
                }
                Some(_) if error.is_no_node() => Ok(ClaimOutcome::Taken),
                Some(_) if error.is_bad_version() => Ok(ClaimOutcome::Again),
                _ => again(folder, session, error).await,
            };
        }
    };
    let Some(czxid) = czxid else {
        return Ok(ClaimOutcome::Again);
    };
    let claim = ItemClaim::new(session, &path, czxid, lease);
    // The answer arrived after the lease had ended (H29): the claim is freed, and the next attempt
    // rests on newer evidence.
    if claim.state().check().is_err() {
        return Ok(ClaimOutcome::Again);
    }
    Ok(ClaimOutcome::Claimed(ClaimedItem {
        claim,
        items,
        data: read.data,
        version: read.stat.version.wrapping_add(1),
    }))
}

async fn again(
    folder: &Folder,
    session: &Session,
    error: Error,
) -> Result<ClaimOutcome, QueueError> {
    folder.or_retry(session, Err::<(), _>(error)).await?;
    Ok(ClaimOutcome::Again)
}

/// Resolves an unknown outcome: the `czxid` of the claim on a server that has caught up, if the
/// node has this claim's marker *and* belongs to this session.
async fn resolve_claim(
    session: &Session,
    claims: &str,
    path: &str,
    marker: &[u8],
    lost: Error,
) -> Result<Option<i64>, Error> {
    let read = || async {
        match session.read_latest(claims, |s| s.get_data(path)).await {
            Ok(read) => {
                let ours = read.data == marker && read.stat.ephemeral_owner == session.id();
                Ok(ours.then_some(read.stat.czxid))
            }
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    };
    retry::resolve(session, lost, read).await
}

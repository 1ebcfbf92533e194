//! The node that says that an item is ours for now.
//!
//! Owns it from the change that creates it to its deletion, and the news of its end. Its name is
//! the item's, so another claim may come to have the same path: it must never be deleted but by its
//! `czxid`, or under the item's version (H09, H18, H67).

use super::QueueError;
use super::folder::Folder;
use crate::guard::{self, GuardState, LostReason};
use crate::parents::{Parents, ensure_parents};
use crate::retry;
use crate::wait_queue::{NodeDeletion, OwnNodeWatch};
use baton_client::{CreateMode, Error, LeaseHold, Op, OpResult, Session};
use bytes::Bytes;
use std::sync::Arc;
use uuid::Uuid;

/// The version of our claims. Those of other libraries have 0, which is how a change that is
/// conditioned on ours tells them apart; ours from one another it tells by the version of the item,
/// which each of ours raises.
pub(super) const VERSION: i32 = 1;

/// An item that is ours for now.
#[derive(Debug)]
pub(super) struct Claim {
    state: Arc<GuardState>,
    czxid: i64,
    open: bool,
    _lease: Arc<LeaseHold>,
}

/// What an attempt to claim an item came to.
pub(super) enum Attempt {
    Claimed(Claimed),
    /// Taken by another, or gone.
    Taken,
    /// It cannot be read, or not be locked.
    Unreadable(String),
    /// Look again: it was changed, or the connection was.
    Again,
}

/// An item and the claim on it.
#[derive(Debug)]
pub(super) struct Claimed {
    pub claim: Claim,
    pub items: Vec<Bytes>,
    /// The node's data as it is.
    pub data: Bytes,
    /// The version of the item's node under this claim, and no other of ours.
    pub version: i32,
}

impl Claim {
    fn new(session: &Session, path: &str, czxid: i64, lease: Arc<LeaseHold>) -> Self {
        let token = u64::try_from(czxid).unwrap_or_default();
        let state = Arc::new(GuardState::new(
            session.clone(),
            vec![NodeDeletion::unmarked(path, czxid)],
            token,
        ));
        let own_node = OwnNodeWatch::at(session, path, czxid);
        tokio::spawn(guard::watch(own_node, Arc::clone(&state)));
        Self {
            state,
            czxid,
            open: true,
            _lease: lease,
        }
    }

    pub(super) fn state(&self) -> &Arc<GuardState> {
        &self.state
    }

    /// The node is gone, by our own doing.
    pub(super) fn settled(mut self) {
        self.open = false;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.state.end(LostReason::Released);
        if self.open && self.state.take_over_removal() {
            let session = self.state.session();
            drop(session.delete_eventually(self.state.path(), self.czxid));
        }
    }
}

/// Claims the item `name` of `folder` by a node of that name in `claims`.
///
/// To be driven to its end: what it claims for a caller that has gone is freed when its result is
/// dropped (H69).
pub(super) async fn claim(
    folder: &Folder,
    session: &Session,
    claims: &str,
    name: &str,
    lease: Arc<LeaseHold>,
) -> Result<Attempt, QueueError> {
    let node = baton_proto::path::join(folder.path(), name);
    let read = match session.get_data(&node).await {
        Ok(read) => read,
        Err(error) if error.is_no_node() => return Ok(Attempt::Taken),
        Err(error) => return again(folder, session, error).await,
    };
    let items = match folder.format().decode(read.data.clone()) {
        Ok(items) => items,
        Err(why) => return Ok(Attempt::Unreadable(why)),
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
            match look(session, claims, &path, &marker).await {
                Ok(found) => found,
                Err(error) => {
                    drop(session.discard_create_at(&path, &marker));
                    return again(folder, session, error).await;
                }
            }
        }
        Err(error) if error.is_too_large() => {
            // Another library's: to be locked it would have to be written together with the claim.
            return Ok(Attempt::Unreadable(error.to_string()));
        }
        Err(error) => {
            return match error.multi_index() {
                Some(0) if error.is_node_exists() => Ok(Attempt::Taken),
                Some(0) if error.is_no_node() => {
                    let made = ensure_parents(session, claims, Parents::Persistent).await;
                    folder.after(session, made).await?;
                    Ok(Attempt::Again)
                }
                Some(_) if error.is_no_node() => Ok(Attempt::Taken),
                Some(_) if error.is_bad_version() => Ok(Attempt::Again),
                _ => again(folder, session, error).await,
            };
        }
    };
    let Some(czxid) = czxid else {
        return Ok(Attempt::Again);
    };
    let claim = Claim::new(session, &path, czxid, lease);
    // The news came after the lease had run out (H29): the claim is freed, and the next attempt
    // rests on newer evidence.
    if claim.state().check().is_err() {
        return Ok(Attempt::Again);
    }
    Ok(Attempt::Claimed(Claimed {
        claim,
        items,
        data: read.data,
        version: read.stat.version.wrapping_add(1),
    }))
}

async fn again(folder: &Folder, session: &Session, error: Error) -> Result<Attempt, QueueError> {
    folder.after(session, Err::<(), _>(error)).await?;
    Ok(Attempt::Again)
}

/// The `czxid` of our claim, as a server that has caught up sees it: by our marker *and* by our
/// session.
async fn look(
    session: &Session,
    claims: &str,
    path: &str,
    marker: &[u8],
) -> Result<Option<i64>, Error> {
    loop {
        if !retry::until_connected(session).await {
            // Whatever there was goes with the session.
            return Ok(None);
        }
        let caught_up = session.sync(claims);
        let read = session.get_data(path);
        let read = match caught_up.await {
            Ok(()) => read.await,
            Err(error) => Err(error),
        };
        match read {
            Ok(read) => {
                let ours = read.data == marker && read.stat.ephemeral_owner == session.id();
                return Ok(ours.then_some(read.stat.czxid));
            }
            Err(error) if error.is_no_node() => return Ok(None),
            Err(error) => retry::until_retryable(session, error).await?,
        }
    }
}

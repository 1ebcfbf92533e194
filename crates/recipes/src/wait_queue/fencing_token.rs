//! Fencing tokens for grants that do not come in the order of creation.
//!
//! Owns the change of our own node at its grant, whose zxid is the token
//! (`docs/internals/hazards.md`, the trap of fencing tokens). Must never overwrite a request to
//! release that somebody has written there.

use baton_client::Data;

use super::{AcquireError, WaiterNode};
use crate::retry;

/// Changes the node of a grant, and returns the zxid of that change: larger than that of every
/// earlier grant.
///
/// `data` is what the node was created with. Where an answer is lost, the node is read and changed
/// again; only what was acknowledged becomes a token. Cancel-safe.
pub(crate) async fn mint_token(waiter: &WaiterNode, data: &[u8]) -> Result<i64, AcquireError> {
    let session = waiter.session();
    let mut data = data.to_vec();
    // Since its creation nobody has changed it, or somebody asks for a release.
    let mut version = 0;
    loop {
        match session.set_data(waiter.path(), &data, Some(version)).await {
            Ok(stat) => return Ok(stat.mzxid),
            Err(error) if error.is_no_node() => return Err(AcquireError::OwnNodeGone),
            Err(error) if error.is_bad_version() || error.is_maybe_applied() => {
                let now = read_own(waiter).await?;
                data = now.data.to_vec();
                version = now.stat.version;
            }
            Err(error) => retry::until_retryable(session, error).await?,
        }
    }
}

/// Our node as it is now, which must still be ours.
pub(crate) async fn read_own(waiter: &WaiterNode) -> Result<Data, AcquireError> {
    let session = waiter.session();
    match retry::read(session, || session.get_data(waiter.path())).await {
        Ok(read) if read.stat.ephemeral_owner == session.id() => Ok(read),
        Ok(_) => Err(AcquireError::OwnNodeGone),
        Err(error) if error.is_no_node() => Err(AcquireError::OwnNodeGone),
        Err(error) => Err(error.into()),
    }
}

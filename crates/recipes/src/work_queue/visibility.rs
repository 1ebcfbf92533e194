//! The visibility timeout of a claim: until when other consumers leave the item alone.
//!
//! Owns the whole rule. The claim notes its timeout in the item. Others add it to the time of the
//! item's last change, by the servers' clock: [`hidden_until_ms`]. The owner counts it from the
//! instant at which it sent that change, by its own clock: [`deadline`], which therefore comes
//! first. [`extend`] writes the item again, which moves both.

use std::sync::Arc;
use std::time::Duration;

use baton_client::{BootInstant, Error, Op, Session, Stat};

use super::envelope::ClaimMark;
use super::held_item::HeldItem;
use crate::guard::ClaimDeadline;
use crate::receipt::task_gone;
use crate::retry;
use crate::server_clock::millis;

/// The mark of the claim whose node has the name `node`, for the item.
pub(super) fn mark(node: String, visibility: Option<Duration>) -> ClaimMark {
    ClaimMark {
        node,
        visibility_ms: visibility.map(millis),
    }
}

/// ClaimDeadline when the claim hides the item from others, by the servers' clock; `None` for as
/// long as the claim's node exists. `item` is the stat of the item.
pub(super) fn hidden_until_ms(mark: &ClaimMark, item: &Stat) -> Option<i64> {
    mark.visibility_ms
        .map(|visibility_ms| item.mtime.saturating_add(visibility_ms))
}

/// Returns when a claim that was sent at `sent` times out, by our own clock.
pub(super) fn deadline(sent: BootInstant, visibility: Option<Duration>) -> Arc<ClaimDeadline> {
    Arc::new(ClaimDeadline::new(sent, visibility))
}

/// Restarts the visibility timeout of a claim; `false` where the claim's node is gone. Goes on if
/// the caller goes away.
pub(super) async fn extend(held: &HeldItem) -> Result<bool, Error> {
    let timed = |mark: &ClaimMark| mark.visibility_ms.is_some();
    if !held.envelope.claim.as_ref().is_some_and(timed) {
        return Ok(true);
    }
    let session = held.guard.session().clone();
    let (version, until) = (Arc::clone(&held.version), Arc::clone(&held.until));
    let data = held.envelope.seal(&held.payload);
    let (entry, node) = (held.entry.clone(), held.guard.node().to_owned());
    let task = session.runtime().spawn(async move {
        // A settlement waits for this lock, and so for the version that the item has then.
        let mut version = version.lock().await;
        loop {
            let sent = session.clock().now();
            let parts = [
                Op::check(&*node, None),
                Op::set_data(&*entry, data.clone(), Some(*version)),
            ];
            match session.multi(&parts).await {
                Ok(_) => {
                    *version = version.wrapping_add(1);
                    until.renew(sent);
                    return Ok(true);
                }
                Err(error) if error.is_maybe_applied() => {
                    match version_under_claim(&session, &node, &entry, error).await? {
                        Some(now) if now == version.wrapping_add(1) => {
                            *version = now;
                            until.renew(sent);
                            return Ok(true);
                        }
                        Some(_) => {}
                        None => return Ok(false),
                    }
                }
                Err(error) => retry::until_retryable(&session, error).await?,
            }
        }
    });
    task.await
        .unwrap_or_else(|_| Err(task_gone(held.guard.node())))
}

/// Resolves the unknown outcome of an extension: the item's version on a server that has caught up;
/// `None` where the claim's node is gone.
async fn version_under_claim(
    session: &Session,
    node: &str,
    entry: &str,
    lost: Error,
) -> Result<Option<i32>, Error> {
    let read = || async {
        let caught_up = session.sync(entry);
        let (claim, item) = (session.exists(node), session.exists(entry));
        caught_up.await?;
        Ok(claim.await?.and(item.await?).map(|item| item.version))
    };
    retry::resolve(session, lost, read).await
}

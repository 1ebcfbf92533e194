//! Resignation of a leader at the request of another process.
//!
//! Owns the request, which the leader may take its time with, and the removal, which it is only
//! notified of. Both are bound to the leader that was seen: a later leader is left alone
//! (H18).

use baton_client::{CleanupError, Error, Session};

use super::{ElectionError, Leader, LeaderElection, departure};
use crate::retry;
use crate::wait_queue::RELEASE_REQUEST;

impl LeaderElection {
    /// Asks `leader` to resign: a Baton leader drops its work, or stops its command, and withdraws.
    /// It leads until it has done so. Returns `false` where it does not lead any more. Leaders of
    /// other libraries ignore the request.
    ///
    /// The request replaces the offer's data. Dropping the future does not take it back.
    ///
    /// # Errors
    /// [`ElectionError`]; asking again is safe.
    pub async fn ask_to_resign(&self, leader: &Leader) -> Result<bool, ElectionError> {
        loop {
            let session = self.acquisition.session().await?;
            let asked = async {
                session.sync(&leader.node).await?;
                let Some(stat) = session.exists(&leader.node).await? else {
                    return Ok(false);
                };
                if u64::try_from(stat.czxid) != Ok(leader.token) {
                    return Ok(false);
                }
                let set = session.set_data(&leader.node, RELEASE_REQUEST, Some(stat.version));
                set.await.map(|_| true)
            };
            match asked.await {
                Ok(asked) => return Ok(asked),
                Err(error) if error.is_no_node() => return Ok(false),
                // Setting it twice does no harm, so the outcome need not be resolved.
                Err(error) if error.is_bad_version() => {}
                Err(error) => self.after(&session, error).await?,
            }
        }
    }

    /// Deletes the node of `leader`, of any library. The leader is notified that it no longer leads
    /// (one of Baton at the latest by its lease), and the next candidate is elected at once.
    /// Returns `false` where the node was not there any more.
    ///
    /// # Errors
    /// [`ElectionError`]; doing it again is safe.
    pub async fn depose(&self, leader: &Leader) -> Result<bool, ElectionError> {
        loop {
            let session = self.acquisition.session().await?;
            // A lost answer is the next read's to report.
            let _ = session.sync(&leader.node).await;
            match session.exists(&leader.node).await {
                Ok(Some(stat)) if u64::try_from(stat.czxid) == Ok(leader.token) => {
                    let parts = departure::removal_of(&leader.node, stat.version);
                    if session.multi(&parts).await.is_ok() {
                        return Ok(true);
                    }
                    // Refused, or not answered: without a marker for observers, and until it is
                    // certain.
                    match session.delete_eventually(&leader.node, stat.czxid).await {
                        Ok(()) => return Ok(true),
                        Err(CleanupError::Refused(error)) => return Err(self.client_error(error)),
                        Err(_) => {}
                    }
                }
                Ok(_) => return Ok(false),
                Err(error) => self.after(&session, error).await?,
            }
        }
    }

    fn client_error(&self, source: Error) -> ElectionError {
        ElectionError::client(self.path(), source)
    }

    async fn after(&self, session: &Session, error: Error) -> Result<(), ElectionError> {
        match retry::until_readable(session, error).await {
            Err(error) if !session.state().is_final() => Err(self.client_error(error)),
            _ => Ok(()),
        }
    }
}

//! The handle by which recipes are read from outside.
//!
//! Owns how a read goes on after a lost connection or session.

use std::sync::Arc;

use baton_client::{Client, Error, Session};

use super::error::InspectError;
use crate::retry;
use crate::server_clock::ServerClock;

/// Reads recipes without taking part in them. Cheap to clone; nothing is sent until a method is
/// called.
///
/// Each read is at least as new as the call, goes on after lost connections and sessions, and may
/// be dropped at any time. See the [module](super) for an example.
#[derive(Clone, Debug)]
pub struct Inspector {
    pub(super) client: Client,
    clock: Arc<ServerClock>,
}

impl Inspector {
    /// An inspector that reads through `client`. Nothing is sent.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            clock: Arc::default(),
        }
    }

    /// Milliseconds since 1970 by the server's clock, for [`NodeInfo::age_at`]: not ahead of it,
    /// and behind by at most a round trip.
    ///
    /// No read shows this clock, so this method makes a node below `dir` and deletes it in the same
    /// change, at most once a minute for each session. `dir` is made if it does not exist; this
    /// client must be allowed to make nodes there.
    ///
    /// [`NodeInfo::age_at`]: super::NodeInfo::age_at
    ///
    /// # Errors
    /// [`InspectError`].
    pub async fn server_now_ms(&self, dir: &str) -> Result<i64, InspectError> {
        self.run(|session| async move { self.clock.now_ms(&session, dir).await })
            .await
    }

    /// Runs `attempt`, with one session after the other, until one comes to an end.
    pub(super) async fn run<T, F>(&self, attempt: impl Fn(Session) -> F) -> Result<T, InspectError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            let session = self.client.session().await?;
            match attempt(session.clone()).await {
                Ok(done) => return Ok(done),
                Err(error) => retry::until_next_attempt(&session, error).await?,
            }
        }
    }
}

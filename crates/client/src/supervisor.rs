//! Sessions one after the other, for those who outlive one.
//!
//! Owns the making of a new session after the loss of one. It must never replace a session under somebody's hands: whoever
//! holds the old one learns of its end, and asks for the new one (`H37`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::config::Config;
use crate::error::{CloseError, ConnectError};
use crate::session::Session;

/// Hands out a live [`Session`], and makes a new one after the loss of one. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = baton_client::Client::connect(baton_client::Config::new("127.0.0.1:2181")?).await?;
/// loop {
///     let session = client.session().await?;
///     // … work with this session, until it is over …
///     println!("lost: {}", session.ended().await);
/// #   break;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    current: Mutex<Option<Session>>,
    closed: AtomicBool,
}

impl Client {
    /// Opens the first session.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub async fn connect(config: Config) -> Result<Self, ConnectError> {
        let client = Self::lazy(config);
        client.session().await?;
        Ok(client)
    }

    /// A client that opens its first session when it is first asked for one.
    #[must_use]
    pub fn lazy(config: Config) -> Self {
        let shared = Shared {
            config,
            current: Mutex::new(None),
            closed: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The live session, or a new one when there is none any more. Callers at the same time get the same.
    ///
    /// Cancel safe: a session that was being opened is closed in the background.
    ///
    /// # Errors
    /// As [`Session::connect`]; [`ConnectError::Closed`] after [`Client::close`].
    pub async fn session(&self) -> Result<Session, ConnectError> {
        let mut current = self.shared.current.lock().await;
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(ConnectError::Closed);
        }
        if let Some(session) = current
            .as_ref()
            .filter(|session| !session.state().is_final())
        {
            return Ok(session.clone());
        }
        let session = Session::connect(self.shared.config.clone()).await?;
        *current = Some(session.clone());
        Ok(session)
    }

    /// How sessions are opened.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Closes the live session, if any: see [`Session::close`]. No new one is made after this.
    ///
    /// # Errors
    /// As [`Session::close`].
    pub async fn close(&self, limit: Duration) -> Result<(), CloseError> {
        self.shared.closed.store(true, Ordering::Release);
        let session = self.shared.current.lock().await.take();
        match session {
            Some(session) => session.close(limit).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

//! [`Client`]: opens a new session after the loss of one, for programs that outlive a session.
//!
//! Owns the making of a new session after the loss of one. It must never replace a session that is
//! in use: anyone who holds the old one is notified of its end, and asks for the new one (`H37`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use baton_proto::Acl;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};

use crate::config::Config;
use crate::error::{CloseError, ConnectError};
use crate::session::{Session, shared_acl};
use crate::state::EndReason;

/// Owner of the live [`Session`], which opens a new one after a loss. Cheap to clone.
///
/// When the last handle of the client and of its session is dropped, guards included, the session
/// is closed; the drop waits a moment for that: see [`Session`]. A program whose `main` ends with
/// its guards and its client therefore leaves no lock behind. One that leaves by
/// [`std::process::exit`] drops nothing, and its locks stay until the session timeout is over.
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
    shared: Arc<ClientState>,
    /// `None` in a handle that keeps neither client nor session open.
    handles: Option<Arc<ClientHandles>>,
    /// The ACL of the nodes that sessions of this handle create; `None`: open to everybody.
    acl: Option<Arc<[Acl<'static>]>>,
}

struct ClientState {
    config: Config,
    /// Locked while a session is being opened.
    current: Mutex<Option<Session>>,
    /// The same, for those who do not wait.
    newest: parking_lot::Mutex<Option<Session>>,
    closed: watch::Sender<bool>,
}

/// Dropped with the last handle.
struct ClientHandles(Arc<ClientState>);

impl Drop for ClientHandles {
    fn drop(&mut self) {
        self.0.closed.send_replace(true);
        // A task that is opening a session ends then, and drops the session.
        let current = self.0.current.try_lock().ok().and_then(|mut c| c.take());
        let newest = self.0.newest.lock().take();
        drop((current, newest));
    }
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

    /// Creates a client that opens its first session on first use.
    #[must_use]
    pub fn lazy(config: Config) -> Self {
        let shared = ClientState {
            config,
            current: Mutex::new(None),
            newest: parking_lot::Mutex::new(None),
            closed: watch::Sender::new(false),
        };
        let shared = Arc::new(shared);
        Self {
            handles: Some(Arc::new(ClientHandles(Arc::clone(&shared)))),
            shared,
            acl: None,
        }
    }

    /// Returns a handle of this client whose sessions create nodes with this ACL: see
    /// [`Session::with_acl`]. Both handles share one session, and one close.
    #[must_use]
    pub fn with_acl(&self, acl: &[Acl<'_>]) -> Self {
        Self {
            acl: Some(shared_acl(acl)),
            ..self.clone()
        }
    }

    /// Returns a handle of this client that does not keep it open, with
    /// [detached](Session::detached) sessions: for background tasks that must not keep the client
    /// alive. Once no other handle is left, the client is closed.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            handles: None,
            ..self.clone()
        }
    }

    /// Returns the runtime of the sessions: the client's own thread, which this starts if
    /// necessary, or the one of [`Config::runtime`].
    ///
    /// # Errors
    /// [`ConnectError::NoRuntime`] where the client's thread cannot be started.
    pub fn runtime(&self) -> Result<Handle, ConnectError> {
        self.shared
            .config
            .chosen_runtime()
            .map(|(runtime, _)| runtime)
    }

    /// The session as this handle hands it out.
    fn handed_out(&self, session: &Session) -> Session {
        let session = session.with_shared_acl(self.acl.clone());
        match self.handles {
            Some(_) => session,
            None => session.detached(),
        }
    }

    /// Returns the live session, or opens a new one. Concurrent callers get the same session. After
    /// a loss, attempts go on for [`Config::new_session_within`].
    ///
    /// Cancel safe: a session that was being opened is closed in the background.
    ///
    /// # Errors
    /// As [`Session::connect`]; [`ConnectError::Closed`] once [`Client::close`] was called.
    pub async fn session(&self) -> Result<Session, ConnectError> {
        let shared = &self.shared;
        let mut current = shared.current.lock().await;
        if *shared.closed.borrow() {
            return Err(ConnectError::Closed);
        }
        let mut limit = shared.config.connect_within;
        if let Some(session) = current.as_ref() {
            if !session.state().is_final() {
                return Ok(self.handed_out(session));
            }
            // A new session would have the same credentials.
            if session.end_reason() == Some(EndReason::AuthRequired) {
                let servers = shared.config.servers();
                return Err(ConnectError::AuthRequired { servers });
            }
            limit = shared.config.new_session_within.unwrap_or(limit);
        }
        let mut closed = shared.closed.subscribe();
        let session = tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => return Err(ConnectError::Closed),
            session = Session::connect(shared.config.clone().connect_within(limit)) => session?,
        };
        *current = Some(session.clone());
        *shared.newest.lock() = Some(session.clone());
        // The last handle that keeps the client open may have gone meanwhile.
        if *shared.closed.borrow() {
            current.take();
            shared.newest.lock().take();
            return Err(ConnectError::Closed);
        }
        Ok(self.handed_out(&session))
    }

    /// Returns the session that was opened last, live or ended; `None` before the first one and
    /// after [`Client::close`]. Never waits, and never opens one.
    #[must_use]
    pub fn newest(&self) -> Option<Session> {
        let newest = self.shared.newest.lock();
        let newest = newest.as_ref()?;
        Some(self.handed_out(newest))
    }

    /// Returns the configuration by which sessions are opened.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Closes the live session, if any: see [`Session::close`]. No new one is made after this.
    ///
    /// # Errors
    /// As [`Session::close`].
    pub async fn close(&self) -> Result<(), CloseError> {
        match self.take_session().await {
            Some(session) => session.close().await,
            None => Ok(()),
        }
    }

    /// Like [`Client::close`], for at most `limit`.
    ///
    /// # Errors
    /// As [`Session::close`], after `limit`.
    pub async fn close_timeout(&self, limit: Duration) -> Result<(), CloseError> {
        match self.take_session().await {
            Some(session) => session.close_timeout(limit).await,
            None => Ok(()),
        }
    }

    /// The live session, of a client that opens none any more.
    async fn take_session(&self) -> Option<Session> {
        self.shared.closed.send_replace(true);
        // A task that is opening a session ends then, and drops the session.
        let session = self.shared.current.lock().await.take();
        self.shared.newest.lock().take();
        session
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

//! A server in this process, and a client to it: for tests, examples, and programs that need no
//! other machine.
//!
//! [`Embedded`] has an example. It needs the feature `embedded`.

// Owns both, so that neither outlives the other by accident. Must never listen beyond this
// machine.

use baton_client::{Client, Config, ConfigError, ConnectError};
use baton_server::{Server, ServerError, StartError};
use std::path::Path;
use std::time::Duration;

/// How long [`Embedded::shutdown`] waits for the session to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A server in this process, listening on a free loopback port, and a client connected to it.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let baton = baton::embedded::Embedded::in_memory().await?;
/// let mutex = baton::Mutex::new(baton.client(), "/demo")?;
/// let guard = mutex.acquire().await?;
/// assert_eq!(guard.check(), Ok(()));
/// guard.release().await?;
/// baton.shutdown().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug)]
pub struct Embedded {
    client: Client,
    server: Server,
}

/// The server in this process could not be started, reached or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It cannot be connected to.
    #[error("the embedded server does not answer: {0}")]
    Connect(#[from] ConnectError),
    /// Its address makes no connect string.
    #[error("the embedded server's address is unusable: {0}")]
    Address(#[from] ConfigError),
    /// It failed.
    #[error(transparent)]
    Server(#[from] ServerError),
}

impl Embedded {
    /// A server that keeps everything in memory: what it holds ends with it.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn in_memory() -> Result<Self, EmbeddedError> {
        Self::connect(
            Server::builder()
                .in_memory()
                .listen("127.0.0.1:0")
                .start()
                .await?,
        )
        .await
    }

    /// A server that keeps what it acknowledges in `data_dir`, and has what was there before.
    ///
    /// # Errors
    /// [`EmbeddedError`]; another process with the same folder is refused.
    pub async fn durable(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let server = Server::builder()
            .data_dir(data_dir)
            .listen("127.0.0.1:0")
            .start()
            .await?;
        Self::connect(server).await
    }

    async fn connect(server: Server) -> Result<Self, EmbeddedError> {
        let client = Client::connect(Config::new(&server.connect_string())?).await?;
        Ok(Self { client, server })
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What other processes on this machine connect to.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.server.connect_string()
    }

    /// Closes the client's session and stops the server, in this order, so that its ephemeral nodes
    /// are gone at once.
    ///
    /// # Errors
    /// [`EmbeddedError::Server`] where the server could not stop in order.
    pub async fn shutdown(self) -> Result<(), EmbeddedError> {
        if let Err(error) = self.client.close(CLOSE_LIMIT).await {
            tracing::warn!(%error, "the embedded client's session");
        }
        Ok(self.server.shutdown().await?)
    }
}

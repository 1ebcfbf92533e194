//! A server in this process, and a client of it: for tests, examples, and programs on one machine.
//! Needs the feature `embedded`.
//!
//! A test of a program that uses Baton makes happen what is rare elsewhere:
//!
//! - [`Embedded::expire`]: a session expires, as that of a program which was silent for too long.
//!   Its guards end, its locks pass on.
//! - [`Embedded::pause`], [`Embedded::resume`]: the server stops answering and keeps its
//!   connections, as a stopped process does. Guards end when their lease does.
//! - [`Embedded::restart`]: connections break, the data and the sessions stay. Guards outlive it.
//!
//! ```
//! use std::time::Duration;
//!
//! use baton::embedded::Embedded;
//! use baton::{LostReason, Mutex};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Embedded::builder()
//!     .tick(Duration::from_millis(50))
//!     .start()
//!     .await?;
//! // The program under test: work that must stop once the lock is lost.
//! let guard = Mutex::new(server.client(), "/report")?.acquire().await?;
//! let session = guard.session().id();
//! let work = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
//!
//! server.expire(session).await?;
//! assert_eq!(work.await?, Err(LostReason::SessionLost));
//! // The next holder, on a new session of the same client.
//! let next = Mutex::new(server.client(), "/report")?.acquire().await?;
//! next.release().await?;
//! server.shutdown().await?;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```

// Owns server and client, so that neither outlives the other by accident. Must never listen beyond
// this machine.
//
// | module | owns |
// |---|---|
// | `server_thread` | the thread of the server's sockets: paused and resumed |

mod server_thread;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use baton_client::{Client, Config, ConfigError, ConnectError};
use baton_server::{MemoryStorage, Options, Server, StorageChoice};

use server_thread::ServerThread;

pub use baton_server::{ServerError, StartError};

/// Time that [`Embedded::shutdown`] waits for the session to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A server in this process, listening on a loopback port, and a client connected to it.
///
/// The server runs on threads of its own, so that a test which blocks its runtime, or pauses the
/// runtime's clock, does not stop the server. Dropping it stops the server at once and ends the
/// client's session by its time-out; [`Embedded::shutdown`] closes the session first.
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
    config: Config,
    /// `None` after a restart that failed.
    server: Option<Server>,
    start: StartSettings,
    addr: SocketAddr,
    // Last: the server's tasks end before their thread does.
    thread: ServerThread,
}

/// Error of a server in this process: it could not be started, reached or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It cannot be connected to.
    #[error("the embedded server does not answer: {0}")]
    Connect(ConnectError),
    /// Its address makes no connect string.
    #[error("the embedded server's address is unusable: {0}")]
    Address(ConfigError),
    /// It failed.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server has no session of this id, or does not run.
    #[error("the embedded server has no session 0x{0:x}; it may have expired already")]
    NoSession(i64),
}

impl From<ConnectError> for EmbeddedError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<ConfigError> for EmbeddedError {
    fn from(error: ConfigError) -> Self {
        Self::Address(error)
    }
}

/// Builder of an embedded server.
///
/// ```
/// # use std::time::Duration;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = baton::embedded::Embedded::builder()
///     .tick(Duration::from_millis(50))
///     .min_session_timeout(Duration::from_millis(200))
///     .client(|config| config.session_timeout(Duration::from_millis(400)))
///     .start()
///     .await?;
/// # server.shutdown().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing starts before `start`"]
pub struct EmbeddedBuilder {
    port: u16,
    options: Options,
    client: fn(Config) -> Config,
}

impl EmbeddedBuilder {
    /// Sets the port on `127.0.0.1`. Default: 0, a free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the tick of the session clock: a silent session expires within its timeout and one tick
    /// more. Default: 200 ms.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.options.tick = tick;
        self
    }

    /// Sets the shortest session timeout that a client gets; at least one tick. Default: 1 s.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.options.min_session_timeout = timeout;
        self
    }

    /// Sets the longest session timeout that a client gets. Default: 120 s.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.options.max_session_timeout = timeout;
        self
    }

    /// Stores the data in this folder, which is created if it does not exist. Another process with
    /// the same folder is refused.
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.storage = StorageChoice::Folder(path.into());
        self
    }

    /// Keeps the data in memory, which is the default: it survives [`Embedded::restart`], and ends
    /// with the [`Embedded`].
    pub fn in_memory(mut self) -> Self {
        self.options.storage = StorageChoice::Memory;
        self
    }

    /// Sets the configuration of [`Embedded::client`] and of the clients of [`Embedded::connect`],
    /// like the session timeout and the credentials. Default: that of [`Config::new`].
    pub fn client(mut self, change: fn(Config) -> Config) -> Self {
        self.client = change;
        self
    }

    /// Starts the server and connects the client to it.
    ///
    /// # Errors
    /// [`EmbeddedError`]; nothing is left running. Cancelling leaves nothing running either.
    pub async fn start(self) -> Result<Embedded, EmbeddedError> {
        let thread = ServerThread::start().map_err(StartError::System)?;
        let start = StartSettings {
            options: self.options,
            memory: MemoryStorage::new(),
        };
        let server = start
            .server(&thread, (Ipv4Addr::LOCALHOST, self.port).into())
            .await?;
        let config = (self.client)(Config::new(&server.connect_string())?);
        let addr = server
            .local_addr()
            .unwrap_or((Ipv4Addr::LOCALHOST, self.port).into());
        Ok(Embedded {
            client: Client::connect(config.clone()).await?,
            config,
            server: Some(server),
            start,
            addr,
            thread,
        })
    }
}

/// Settings that a server is started from, at first and again.
#[derive(Debug)]
struct StartSettings {
    options: Options,
    /// Used where the options name no folder.
    memory: MemoryStorage,
}

impl StartSettings {
    async fn server(&self, thread: &ServerThread, addr: SocketAddr) -> Result<Server, StartError> {
        let mut options = self.options.clone();
        options.listen = vec![addr.to_string()];
        let memory = self.memory.clone();
        on(thread, async move {
            match options.storage {
                StorageChoice::Memory => Server::start_with(options, Arc::new(memory)).await,
                StorageChoice::Folder(_) => Server::start(options).await,
            }
        })
        .await?
    }
}

/// Runs `work` on the thread of the server, whose runtime has timers and sockets.
async fn on<T: Send + 'static>(
    thread: &ServerThread,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, ServerError> {
    let done = thread.handle().spawn(work).await;
    done.map_err(|_| ServerError::Defect)
}

impl Embedded {
    /// Returns a builder, for other settings than the default.
    pub fn builder() -> EmbeddedBuilder {
        EmbeddedBuilder {
            port: 0,
            options: Options::default(),
            client: |config| config,
        }
    }

    /// Starts a server that keeps its data in memory, until the server ends.
    ///
    /// # Errors
    /// [`EmbeddedError`].
    pub async fn in_memory() -> Result<Self, EmbeddedError> {
        Self::builder().start().await
    }

    /// Starts a server that stores its data in `data_dir`, and begins with the data that is there.
    ///
    /// # Errors
    /// [`EmbeddedError`]; another process with the same folder is refused.
    pub async fn durable(data_dir: &Path) -> Result<Self, EmbeddedError> {
        Self::builder().data_dir(data_dir).start().await
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Connects a further client with the same settings and its own session, like that of another
    /// process.
    ///
    /// # Errors
    /// [`EmbeddedError::Connect`].
    pub async fn connect(&self) -> Result<Client, EmbeddedError> {
        Ok(Client::connect(self.config.clone()).await?)
    }

    /// Returns the connect string for other processes on this machine; the same after a restart.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addr.to_string()
    }

    /// Expires a session now, as if its client had been silent for the session's timeout: its
    /// ephemeral nodes are deleted, its watches end, and its client receives that when it connects
    /// again, which it does at once. The id is [`Session::id`](crate::Session::id).
    ///
    /// Where the server is paused, its clients receive nothing of this before it is resumed.
    /// Cancelling does not take the request back.
    ///
    /// # Errors
    /// [`EmbeddedError::NoSession`].
    pub async fn expire(&self, session: i64) -> Result<(), EmbeddedError> {
        let expired = match &self.server {
            Some(server) => server.expire_session(session).await,
            None => false,
        };
        expired
            .then_some(())
            .ok_or(EmbeddedError::NoSession(session))
    }

    /// Stops the server as SIGSTOP stops a process: connections stay open, new ones are not
    /// refused, and nothing is answered until [`Embedded::resume`]. It has stopped when this
    /// returns. The server does not count the pause against any session; a client whose server has
    /// not answered for the whole session timeout gives its session up by itself.
    pub async fn pause(&self) {
        self.thread.pause().await;
    }

    /// Lets the server go on after [`Embedded::pause`]; does nothing where it runs.
    pub fn resume(&self) {
        self.thread.resume();
    }

    /// Stops the server in order and starts it again on the same port with the same data. Its
    /// connections break; sessions go on, each with its full timeout from the start on. A server
    /// that is paused is resumed.
    ///
    /// # Errors
    /// [`EmbeddedError::Server`] where it had failed, [`EmbeddedError::Start`] where it does not
    /// start again; in both cases, and where the future is dropped, it may be called again.
    pub async fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.resume();
        if let Some(server) = self.server.take() {
            on(&self.thread, server.shutdown()).await??;
        }
        self.server = Some(self.start.server(&self.thread, self.addr).await?);
        Ok(())
    }

    /// Closes the client's session and stops the server, in this order, so that its ephemeral nodes
    /// are gone at once. A server that is paused is resumed.
    ///
    /// # Errors
    /// [`EmbeddedError::Server`] where the server could not stop in order.
    pub async fn shutdown(self) -> Result<(), EmbeddedError> {
        self.resume();
        if let Err(error) = self.client.close_timeout(CLOSE_LIMIT).await {
            tracing::warn!(%error, "the embedded client's session");
        }
        if let Some(server) = self.server {
            on(&self.thread, server.shutdown()).await??;
        }
        Ok(())
    }
}

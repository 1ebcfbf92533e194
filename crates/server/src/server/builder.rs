//! Settings, one call each, and the start. Owns no meaning: every setting is a field of
//! [`Options`].

use std::path::PathBuf;
use std::time::Duration;

use crate::error::StartError;
use crate::options::{EnsembleOptions, Options, ServerTlsOptions, StorageChoice};
use crate::server::Server;

/// Builds a server. Each call sets one field of [`Options`], which says what it means.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    options: Options,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Keeps the state in this folder; it is made if it does not exist. See [`Options::storage`].
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.storage = StorageChoice::Folder(path.into());
        self
    }

    /// Keeps the state in memory only. See [`Options::storage`].
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.options.storage = StorageChoice::Memory;
        self
    }

    /// Listens on `HOST:PORT`, too. See [`Options::listen`].
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.options.listen.push(address.into());
        self
    }

    /// Listens on `HOST:PORT` for clients with TLS, too. See [`Options::secure_listen`].
    #[must_use]
    pub fn secure_listen(mut self, address: impl Into<String>) -> Self {
        self.options.secure_listen.push(address.into());
        self
    }

    /// See [`Options::tls`].
    #[must_use]
    pub fn tls(mut self, tls: ServerTlsOptions) -> Self {
        self.options.tls = Some(tls);
        self
    }

    /// Listens on this unix socket, too. See [`Options::unix_sockets`],
    /// [`Options::unix_socket_mode`].
    #[must_use]
    pub fn unix_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.unix_sockets.push(path.into());
        self
    }

    /// Answers HTTP on `HOST:PORT`, too. See [`Options::http`].
    #[must_use]
    pub fn http(mut self, address: impl Into<String>) -> Self {
        self.options.http.push(address.into());
        self
    }

    /// See [`Options::tick`].
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.options.tick = tick;
        self
    }

    /// See [`Options::min_session_timeout`].
    #[must_use]
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.options.min_session_timeout = timeout;
        self
    }

    /// See [`Options::max_session_timeout`].
    #[must_use]
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.options.max_session_timeout = timeout;
        self
    }

    /// Makes the server one of these. See [`Options::ensemble`], [`Options::server_id`].
    #[must_use]
    pub fn ensemble(mut self, server_id: u8, ensemble: EnsembleOptions) -> Self {
        self.options.server_id = server_id;
        self.options.ensemble = Some(ensemble);
        self
    }

    /// Changes any other setting in place.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// The settings so far.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Starts the server on the calling tokio runtime.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start(self) -> Result<Server, StartError> {
        Server::start(self.options).await
    }
}

impl Server {
    /// A server with every setting at its default: in memory, without a listener.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }
}

//! Baton's server inside the test's own process: quick to start, and a drop is a crash. Owns the
//! server and its folder.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use baton_server::{Server, StartError};
use tempfile::TempDir;

use super::process::temp_dir;
use super::{LaunchError, ServerOptions};

/// Between two checks whether a killed server's listener is gone, and for how long to check.
const LISTENER_PAUSE: Duration = Duration::from_millis(5);
const LISTENER_LIMIT: Duration = Duration::from_secs(10);

/// An embedded server, or what is needed to start it again.
#[derive(Debug)]
pub(super) struct Embedded {
    pub(super) dir: TempDir,
    options: ServerOptions,
    server: Option<Server>,
}

impl Embedded {
    pub(super) fn new(options: ServerOptions) -> Result<Self, LaunchError> {
        Ok(Self {
            dir: temp_dir()?,
            options,
            server: None,
        })
    }

    /// Starts on a free port, and says which.
    pub(super) async fn start(&mut self) -> Result<SocketAddr, LaunchError> {
        self.start_on((Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Starts on `addr`, which a server that was killed a moment ago may still have: its runtime
    /// closes the listener in its own time.
    pub(super) async fn start_on(&mut self, addr: SocketAddr) -> Result<SocketAddr, LaunchError> {
        let mut patience = tokio::time::interval(LISTENER_PAUSE);
        let given_up = tokio::time::Instant::now() + LISTENER_LIMIT;
        let server = loop {
            patience.tick().await;
            match self.start_once(addr).await {
                Err(StartError::Listen { source, .. })
                    if source.kind() == ErrorKind::AddrInUse
                        && tokio::time::Instant::now() < given_up => {}
                outcome => {
                    break outcome.map_err(|error| LaunchError::Embedded(error.to_string()))?;
                }
            }
        };
        let addr = server.local_addr().unwrap_or(addr);
        self.server = Some(server);
        Ok(addr)
    }

    async fn start_once(&self, addr: SocketAddr) -> Result<Server, StartError> {
        let options = &self.options;
        Server::builder()
            .data_dir(self.dir.path().join("data"))
            .listen(addr.to_string())
            .tick(options.tick)
            .min_session_timeout(options.min_session_timeout)
            .max_session_timeout(options.max_session_timeout)
            .with(|all| all.four_letter_words = vec!["*".to_owned()])
            .start()
            .await
    }

    /// Ends it as a crash would.
    pub(super) fn kill(&mut self) {
        self.server = None;
    }

    pub(super) async fn stop(&mut self) -> Result<(), LaunchError> {
        match self.server.take() {
            Some(server) => server
                .shutdown()
                .await
                .map_err(|error| LaunchError::Embedded(error.to_string())),
            None => Ok(()),
        }
    }
}

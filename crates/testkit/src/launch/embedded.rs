//! Baton's server inside the test's own process: quick to start, and a drop is a crash. Owns the
//! server and its folder.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_server::{EnsembleOptions, Server, StartError};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::background::background;
use super::member::Member;
use super::process::temp_dir;
use super::{LaunchError, POLL, START_PATIENCE, ServerOptions, TlsOptions, free_addr, serves};
use crate::inspect::four_letter_word;

/// Between two checks whether a killed server's listener is gone, and for how long to check.
const LISTENER_PAUSE: Duration = Duration::from_millis(5);
const LISTENER_LIMIT: Duration = Duration::from_secs(10);

/// An embedded server, or what is needed to start it again.
#[derive(Debug)]
pub(super) struct Embedded {
    pub(super) dir: TempDir,
    /// Address at which it listens for clients with TLS.
    pub(super) secure_addr: Option<SocketAddr>,
    options: ServerOptions,
    member: Option<Member>,
    starting: Option<JoinHandle<Result<Server, StartError>>>,
    server: Option<Server>,
}

impl Embedded {
    /// A server alone, which runs on the runtime on which it is launched.
    pub(super) fn new(options: ServerOptions) -> Result<Self, LaunchError> {
        let secure_addr = options.tls.as_ref().map(|_| free_addr()).transpose()?;
        Ok(Self {
            dir: temp_dir()?,
            secure_addr,
            options,
            member: None,
            starting: None,
            server: None,
        })
    }

    /// A server of an ensemble, which runs on a runtime of the testkit: the others depend on it
    /// while the test blocks its own.
    pub(super) fn member(options: ServerOptions, member: Member) -> Result<Self, LaunchError> {
        let mut embedded = Self::new(options)?;
        embedded.member = Some(member);
        Ok(embedded)
    }

    /// Starts on a free port, and says which.
    pub(super) async fn start(&mut self) -> Result<SocketAddr, LaunchError> {
        self.start_on((Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Starts on `addr`, and says on which port.
    pub(super) async fn start_on(&mut self, addr: SocketAddr) -> Result<SocketAddr, LaunchError> {
        self.launch(addr)?;
        self.wait_serving(addr).await
    }

    /// Begins to start on `addr`.
    pub(super) fn launch(&mut self, addr: SocketAddr) -> Result<(), LaunchError> {
        let start = start(
            self.dir.path().join("data"),
            self.options.clone(),
            self.member.clone(),
            addr,
            self.secure_addr,
        );
        let runtime = match &self.member {
            Some(_) => background()?.clone(),
            None => Handle::current(),
        };
        self.starting = Some(runtime.spawn(start));
        Ok(())
    }

    /// Waits until what was launched serves, and says on which port.
    pub(super) async fn wait_serving(
        &mut self,
        addr: SocketAddr,
    ) -> Result<SocketAddr, LaunchError> {
        let failed = |error: &dyn Error| LaunchError::Embedded(error.to_string());
        if let Some(starting) = &mut self.starting {
            let started = tokio::time::timeout(START_PATIENCE, starting).await;
            let started = started.map_err(|elapsed| failed(&elapsed));
            if started.is_err() {
                self.kill();
            }
            self.starting = None;
            let server = started?.map_err(|ended| failed(&ended))?;
            self.server = Some(server.map_err(|error| failed(&error))?);
        }
        let bound = self.server.as_ref().and_then(Server::local_addr);
        let addr = bound.unwrap_or(addr);
        if self.member.is_some() {
            wait_part_taken(addr).await?;
        }
        Ok(addr)
    }

    pub(super) fn runs(&self) -> bool {
        self.server.is_some() || self.starting.is_some()
    }

    /// Ends it as a crash would.
    pub(super) fn kill(&mut self) {
        if let Some(starting) = self.starting.take() {
            starting.abort();
        }
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

impl Drop for Embedded {
    /// Before its folder goes.
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server on `addr`, which a server that was killed a moment ago may still have: its
/// runtime closes the listener in its own time.
async fn start(
    folder: PathBuf,
    options: ServerOptions,
    member: Option<Member>,
    addr: SocketAddr,
    secure_addr: Option<SocketAddr>,
) -> Result<Server, StartError> {
    let mut patience = tokio::time::interval(LISTENER_PAUSE);
    let given_up = tokio::time::Instant::now() + LISTENER_LIMIT;
    loop {
        patience.tick().await;
        let member = member.clone();
        let tls = options.tls.as_ref();
        let outcome = Server::builder()
            .data_dir(&folder)
            .listen(addr.to_string())
            .tick(options.tick)
            .min_session_timeout(options.min_session_timeout)
            .max_session_timeout(options.max_session_timeout)
            .with(|all| {
                all.four_letter_words = vec!["*".to_owned()];
                all.reap_interval = options.reap_interval;
                all.secure_listen
                    .extend(secure_addr.map(|addr| addr.to_string()));
                all.tls = tls.map(TlsOptions::of_baton);
                all.sasl_users = options.sasl_users.iter().cloned().collect();
                if options.requires_sasl {
                    all.required_schemes = vec!["sasl".to_owned()];
                }
                if let Some(member) = member {
                    let usual = EnsembleOptions::default();
                    all.server_id = member.id;
                    all.ensemble = Some(EnsembleOptions {
                        servers: member.servers,
                        listen: Some(member.listen.to_string()),
                        tick: options.consensus_tick.unwrap_or(usual.tick),
                        ..usual
                    });
                }
            })
            .start()
            .await;
        match outcome {
            Err(error) if error.is_address_in_use() && tokio::time::Instant::now() < given_up => {}
            outcome => return outcome,
        }
    }
}

/// Waits until the server leads or follows.
async fn wait_part_taken(addr: SocketAddr) -> Result<(), LaunchError> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        let answer = four_letter_word(addr, "srvr").await;
        if answer.as_deref().is_ok_and(serves) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(LaunchError::Embedded(format!(
                "{addr} neither leads nor follows: {answer:?}"
            )));
        }
        tokio::time::sleep(POLL).await;
    }
}

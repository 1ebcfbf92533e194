//! One of the two servers, or ensembles of them: in a state in which nothing happens by itself, so
//! that a program has one outcome.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_proto::{Acl, ConnectRequest, Create, CreateMode, Request};
use baton_server::Server;

use super::differences::Differences;
use super::error::OracleError;
use super::program::Program;
use super::reach::{ServerAccess, SessionCertificates};
use super::run::Run;
use crate::launch::{Ensemble, LaunchError, ServerOptions, Target, TestServer};

/// Above all programs' folders.
const TOP: &str = "/programs";

/// No session of a program has this but one that is to end by itself.
const SHORTEST_SESSION: Duration = Duration::from_secs(1);
const LONGEST_SESSION: Duration = Duration::from_secs(60);
/// An election would close connections that a program uses.
const CONSENSUS_TICK: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum RunningServers {
    InMemory(Server),
    Launched(Ensemble),
}

#[derive(Debug)]
pub(super) struct Side {
    running: RunningServers,
    reach: ServerAccess,
}

impl Side {
    /// Starts a server that stands alone, or an ensemble of this number; reached with TLS if
    /// there are certificates.
    pub(super) async fn start(
        target: Target,
        servers: usize,
        certified: Option<Arc<SessionCertificates>>,
    ) -> Result<Self, OracleError> {
        let side = match target {
            Target::Baton if servers == 1 => Self::in_memory(certified).await?,
            _ => Self::launched(target, servers, certified).await?,
        };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: i32::try_from(LONGEST_SESSION.as_millis()).unwrap_or(i32::MAX),
            session_id: 0,
            password: &[0; 16],
            read_only: Some(false),
        };
        let mut client = side.reach.handshake(0, 0, &request).await?;
        for path in [TOP.to_owned(), format!("/zookeeper/quota{TOP}")] {
            let open = vec![Acl::open_unsafe()];
            let create = Create::new(&path, None, open, CreateMode::Persistent);
            client.call(&Request::Create(create)).await?;
        }
        client.close().await?;
        Ok(side)
    }

    async fn in_memory(certified: Option<Arc<SessionCertificates>>) -> Result<Self, OracleError> {
        let failed = |error: &dyn std::fmt::Display| LaunchError::Embedded(error.to_string());
        let builder = match &certified {
            Some(certified) => Server::builder()
                .secure_listen("127.0.0.1:0")
                .tls(certified.server().of_baton()),
            None => Server::builder().listen("127.0.0.1:0"),
        };
        let server = builder
            .in_memory()
            .min_session_timeout(SHORTEST_SESSION)
            .max_session_timeout(LONGEST_SESSION)
            .with(|options| options.reap_interval = Duration::ZERO)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        let secure_addr = server.secure_addrs().first().copied();
        let addr = secure_addr
            .or_else(|| server.local_addr())
            .ok_or_else(|| failed(&"does not listen"))?;
        Ok(Self {
            running: RunningServers::InMemory(server),
            reach: ServerAccess {
                addrs: vec![addr],
                certified,
            },
        })
    }

    async fn launched(
        target: Target,
        servers: usize,
        certified: Option<Arc<SessionCertificates>>,
    ) -> Result<Self, OracleError> {
        let options = options(certified.as_deref());
        let ensemble = match servers {
            1 => Ensemble::start_processes(target, servers, options).await?,
            _ => Ensemble::start_with(target, servers, options).await?,
        };
        if servers > 1 {
            // Which server leads is decided before a program begins, and does not change any more.
            ensemble.wait_leader().await?;
        }
        let addrs = ensemble.servers().iter().map(addr_of).collect();
        Ok(Self {
            reach: ServerAccess { addrs, certified },
            running: RunningServers::Launched(ensemble),
        })
    }

    pub(super) async fn run(
        &self,
        program: &Program,
        number: u64,
        differences: &Differences,
    ) -> Result<Vec<Vec<String>>, OracleError> {
        let folder = format!("{TOP}/{number}/folder");
        let run = Run::begin(&self.reach, &folder, program, differences).await?;
        Ok(run.play(program).await)
    }

    pub(super) async fn stop(self) {
        match self.running {
            // It has nothing to lose, and a failure to stop is no difference.
            RunningServers::InMemory(server) => drop(server.shutdown().await),
            RunningServers::Launched(ensemble) => drop(ensemble),
        }
    }
}

/// Returns the address at which sessions reach a server.
fn addr_of(server: &TestServer) -> SocketAddr {
    server.secure_addr().unwrap_or_else(|| server.addr())
}

/// Options of servers that are not made by [`Side::in_memory`].
fn options(certified: Option<&SessionCertificates>) -> ServerOptions {
    ServerOptions {
        tls: certified.map(|certified| certified.server().clone()),
        min_session_timeout: SHORTEST_SESSION,
        max_session_timeout: LONGEST_SESSION,
        reap_interval: Duration::ZERO,
        wires: None,
        consensus_tick: Some(CONSENSUS_TICK),
        java_args: vec![
            "-Dznode.container.checkIntervalMs=86400000".to_owned(),
            // What is compared is the protocol, not the disk.
            "-Dzookeeper.forceSync=no".to_owned(),
            // As Baton always does.
            "-Dzookeeper.enforceQuota=true".to_owned(),
        ],
        ..ServerOptions::default()
    }
}

//! One of the two servers, or ensembles of them: in a state in which nothing happens by itself, so
//! that a program has one outcome.

use std::net::SocketAddr;
use std::time::Duration;

use baton_proto::{Acl, Create, CreateMode, Request};
use baton_server::Server;

use super::differences::Differences;
use super::error::OracleError;
use super::program::Program;
use super::run::Run;
use crate::launch::{Ensemble, LaunchError, ServerOptions, Target, TestServer};
use crate::raw::{RawClient, RawError};

/// Above all programs' folders.
const TOP: &str = "/programs";

/// No session of a program has this but one that is to end by itself.
const SHORTEST_SESSION: Duration = Duration::from_secs(1);
const LONGEST_SESSION: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Running {
    Baton(Server),
    ZooKeeper(TestServer),
    Ensemble(Ensemble),
}

#[derive(Debug)]
pub(super) struct Side {
    running: Running,
    /// Where each of its servers listens, in the order of their numbers.
    addrs: Vec<SocketAddr>,
}

impl Side {
    /// Starts a server that stands alone, or an ensemble of this number.
    pub(super) async fn start(target: Target, servers: usize) -> Result<Self, OracleError> {
        let side = match target {
            _ if servers > 1 => Self::ensemble(target, servers).await?,
            Target::Baton => Self::baton().await?,
            Target::ZooKeeper => Self::zookeeper().await?,
        };
        let first = side.addrs.first().copied().ok_or(RawError::Closed)?;
        let mut client = RawClient::connect(first, LONGEST_SESSION).await?;
        for path in [TOP.to_owned(), format!("/zookeeper/quota{TOP}")] {
            let open = vec![Acl::open_unsafe()];
            let create = Create::new(&path, None, open, CreateMode::Persistent);
            client.call(&Request::Create(create)).await?;
        }
        client.close().await?;
        Ok(side)
    }

    async fn baton() -> Result<Self, OracleError> {
        let failed = |error: &dyn std::fmt::Display| LaunchError::Embedded(error.to_string());
        let server = Server::builder()
            .in_memory()
            .listen("127.0.0.1:0")
            .min_session_timeout(SHORTEST_SESSION)
            .max_session_timeout(LONGEST_SESSION)
            .with(|options| options.reap_interval = Duration::ZERO)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        let addr = server
            .local_addr()
            .ok_or_else(|| failed(&"does not listen"))?;
        Ok(Self {
            running: Running::Baton(server),
            addrs: vec![addr],
        })
    }

    async fn zookeeper() -> Result<Self, OracleError> {
        let server = TestServer::start_process(Target::ZooKeeper, options()).await?;
        Ok(Self {
            addrs: vec![server.addr()],
            running: Running::ZooKeeper(server),
        })
    }

    async fn ensemble(target: Target, servers: usize) -> Result<Self, OracleError> {
        let ensemble = Ensemble::start_with(target, servers, options()).await?;
        // Which server leads is decided before a program begins, and does not change any more.
        ensemble.wait_leader().await?;
        let servers = ensemble.servers().iter();
        Ok(Self {
            addrs: servers.map(TestServer::addr).collect(),
            running: Running::Ensemble(ensemble),
        })
    }

    pub(super) async fn run(
        &self,
        program: &Program,
        number: u64,
        differences: &Differences,
    ) -> Result<Vec<Vec<String>>, OracleError> {
        let folder = format!("{TOP}/{number}/folder");
        let run = Run::begin(&self.addrs, &folder, program, differences).await?;
        Ok(run.play(program).await)
    }

    pub(super) async fn stop(self) {
        match self.running {
            // It has nothing to lose, and a failure to stop is no difference.
            Running::Baton(server) => drop(server.shutdown().await),
            Running::ZooKeeper(server) => drop(server),
            Running::Ensemble(ensemble) => drop(ensemble),
        }
    }
}

/// Of servers that are not made by [`Side::baton`].
fn options() -> ServerOptions {
    ServerOptions {
        min_session_timeout: SHORTEST_SESSION,
        max_session_timeout: LONGEST_SESSION,
        reap_interval: Duration::ZERO,
        has_wires: false,
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

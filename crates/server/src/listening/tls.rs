//! The certificates of the server's ports: read at start, and again when their files have changed.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_tls::{ClientAuth, PeerTls, ReloadOutcome, ServerTls, TlsError};

use crate::options::ServerTlsOptions;

/// The certificates of the server's ports, for metrics.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    pub(crate) of_clients: OnceLock<Arc<ServerTls>>,
    pub(crate) of_servers: OnceLock<Arc<PeerTls>>,
}

impl Certificates {
    /// When the certificate of the ports for clients and HTTP ends, in seconds since 1970.
    pub(crate) fn of_clients_until(&self) -> Option<u64> {
        seconds(self.of_clients.get()?.valid_until()?)
    }

    /// When that of the port for servers ends.
    pub(crate) fn of_servers_until(&self) -> Option<u64> {
        seconds(self.of_servers.get()?.valid_until()?)
    }
}

fn seconds(at: SystemTime) -> Option<u64> {
    Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// TLS of the ports for clients and HTTP. Both read the same files.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    /// For ZooKeeper's clients.
    pub(crate) clients: Arc<ServerTls>,
    /// For HTTP, where a client may show a certificate if clients are asked for one at all.
    pub(crate) http: Arc<ServerTls>,
    interval: Duration,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and the remedy.
    pub(crate) fn load(options: &ServerTlsOptions) -> Result<Self, TlsError> {
        let clients = ServerTls::load(options.files.clone(), options.client_auth)?;
        let for_http = match options.client_auth {
            ClientAuth::None => ClientAuth::None,
            // Supervisors and those who have a token need none.
            ClientAuth::Optional | ClientAuth::Required => ClientAuth::Optional,
        };
        let http = ServerTls::load(options.files.clone(), for_http)?;
        Ok(Self {
            clients: Arc::new(clients),
            http: Arc::new(http),
            interval: options.reload_interval,
        })
    }

    /// Looks at the files again and again, until it is aborted. New connections use what has
    /// changed; the open ones are the matter of `changed`.
    pub(crate) async fn keep_current(self, changed: impl Fn(&ServerTls) + Send + Sync + 'static) {
        let interval = self.interval;
        let reload = move || {
            let _ = self.http.reload();
            let outcome = self.clients.reload();
            if outcome == ReloadOutcome::Reloaded {
                changed(&self.clients);
            }
            outcome
        };
        reload_every(interval, reload, "clients").await;
    }
}

/// Looks at the files of TLS between servers again and again, until it is aborted.
pub(crate) async fn keep_peers_current(tls: Arc<PeerTls>, interval: Duration) {
    reload_every(interval, move || tls.reload(), "servers").await;
}

async fn reload_every(
    interval: Duration,
    reload: impl Fn() -> ReloadOutcome + Send + Sync + 'static,
    ports: &str,
) {
    let reload = Arc::new(reload);
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let reload = Arc::clone(&reload);
        // Reading files may take long where they come over a network.
        let reloaded = tokio::task::spawn_blocking(move || reload());
        report(reloaded.await.unwrap_or(ReloadOutcome::Unchanged), ports);
    }
}

/// The line about files that have changed.
fn report(outcome: ReloadOutcome, ports: &str) {
    match outcome {
        ReloadOutcome::Unchanged => {}
        ReloadOutcome::Reloaded => {
            tracing::info!(ports, "new connections use the changed TLS files");
        }
        ReloadOutcome::Kept(error) => {
            tracing::warn!(
                ports,
                "the changed TLS files are not used, the old ones stay in use: {error}"
            );
        }
    }
}

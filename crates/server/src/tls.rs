//! The certificate of the server's ports: read at start, and again when its files have changed.

use std::sync::Arc;
use std::time::Duration;

use baton_tls::{ClientAuth, ReloadOutcome, ServerTls, TlsError};

use crate::options::ServerTlsOptions;

/// TLS of the ports of one server. Both read the same files.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    /// For ZooKeeper's clients.
    pub(crate) clients: Arc<ServerTls>,
    /// For HTTP, which asks for no client certificate.
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
        let http = ServerTls::load(options.files.clone(), ClientAuth::None)?;
        Ok(Self {
            clients: Arc::new(clients),
            http: Arc::new(http),
            interval: options.reload_interval,
        })
    }

    /// Looks at the files again and again, until it is aborted. New connections use what has
    /// changed.
    pub(crate) async fn keep_current(self) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let this = self.clone();
            // Reading files may take long where they come over a network.
            let reloaded = tokio::task::spawn_blocking(move || {
                let _ = this.http.reload();
                this.clients.reload()
            });
            report(
                reloaded.await.unwrap_or(ReloadOutcome::Unchanged),
                "clients",
            );
        }
    }
}

/// The line about files that have changed.
pub(crate) fn report(outcome: ReloadOutcome, ports: &str) {
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

//! Access of a program's sessions to the servers of one side: their addresses and, with TLS, the
//! certificate that each session shows.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use baton_proto::ConnectRequest;
use baton_tls::ClientTls;

use super::generator::SUBJECTS;
use crate::certificates::Certificates;
use crate::launch::{LaunchError, TlsOptions};
use crate::raw::{RawClient, RawError};

/// Both sides' certificates, and how each session connects.
#[derive(Debug)]
pub(super) struct SessionCertificates {
    /// Keeps the files.
    _certificates: Certificates,
    server: TlsOptions,
    /// TLS of the sessions in turn. The last one shows no certificate.
    clients: Vec<ClientTls>,
}

impl SessionCertificates {
    /// Makes the certificates.
    pub(super) fn new() -> Result<Self, LaunchError> {
        Self::make().map_err(|source| LaunchError::Io {
            what: "cannot make the certificates of the sessions".to_owned(),
            source,
        })
    }

    fn make() -> io::Result<Self> {
        let certificates = Certificates::new()?;
        let server = certificates.server(&["localhost", "127.0.0.1"])?;
        let authorities = certificates.authorities();
        let trusting = || ClientTls::new(&authorities).map_err(io::Error::other);
        let mut clients = Vec::new();
        for subject in SUBJECTS {
            let files = certificates.client(subject.trim_start_matches("CN="))?;
            let client = trusting()?.with_identity(files.certificate, files.key);
            clients.push(client.map_err(io::Error::other)?);
        }
        clients.push(trusting()?);
        Ok(Self {
            _certificates: certificates,
            server: TlsOptions {
                server,
                authorities,
                client_auth: "want",
            },
            clients,
        })
    }

    /// Returns the TLS that a server of a side needs.
    pub(super) fn server(&self) -> &TlsOptions {
        &self.server
    }
}

/// The servers of one side as sessions reach them.
#[derive(Debug)]
pub(super) struct ServerAccess {
    /// Addresses of the servers, in the order of their numbers.
    pub(super) addrs: Vec<SocketAddr>,
    /// Without it, there is no TLS.
    pub(super) certified: Option<Arc<SessionCertificates>>,
}

impl ServerAccess {
    /// Returns whether there is more than one server.
    pub(super) fn has_several(&self) -> bool {
        self.addrs.len() > 1
    }

    /// Connects the session with this number to a server. Both are counted round and round.
    pub(super) async fn handshake(
        &self,
        server: usize,
        session: usize,
        request: &ConnectRequest<'_>,
    ) -> Result<RawClient, RawError> {
        let turn = |number: usize, count: usize| number % count.max(1);
        let addr = self.addrs.get(turn(server, self.addrs.len()));
        let addr = *addr.ok_or(RawError::Closed)?;
        let Some(certified) = &self.certified else {
            return RawClient::handshake(addr, request).await;
        };
        let client = turn(session, certified.clients.len());
        let client = certified.clients.get(client).ok_or(RawError::Closed)?;
        RawClient::handshake_with_tls(addr, client, request).await
    }
}

//! TCP without encryption, and the rule where a port for servers may listen: on loopback addresses,
//! unless all its connections are encrypted or the settings allow others explicitly.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};

use crate::codec::Refusal;
use crate::net::stream::{Acceptor, Connector, DialFailure};

/// Exposure of the port for other servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// From this machine only.
    #[default]
    LoopbackOnly,
    /// From everywhere: the network itself keeps strangers away.
    PlaintextNetwork,
    /// From everywhere: each connection is encrypted, and both sides show a certificate.
    Encrypted,
}

/// Reason why the port for other servers cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The address cannot be resolved.
    #[error("the address {address} for other servers cannot be resolved: {source}; correct it")]
    Unresolved {
        /// The address.
        address: String,
        /// The cause.
        r#source: io::Error,
    },
    /// The address is not a loopback address, and nobody allowed that.
    #[error(
        "the address {address} for other servers is {resolved}, which other machines can reach: connections between \
         servers are neither encrypted nor authenticated without TLS, and any host that reaches this port can change \
         everything. Use TLS between the servers, or a loopback address, or, where the network keeps strangers away, \
         allow plaintext connections of servers explicitly"
    )]
    Exposed {
        /// The address.
        address: String,
        /// Resolved address.
        resolved: SocketAddr,
    },
    /// The system refuses to listen there.
    #[error(
        "cannot listen on {address} for other servers: {source}; stop the program that has the address, or correct \
         the address"
    )]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        r#source: io::Error,
    },
}

/// Accepts plain TCP connections.
#[derive(Debug)]
pub struct TcpAcceptor {
    listener: TcpListener,
}

impl TcpAcceptor {
    /// Listens on `HOST:PORT`; the host `*` is every address.
    ///
    /// # Errors
    /// [`BindError`]; with [`Exposure::LoopbackOnly`] for every address that is not of loopback.
    pub async fn bind(address: &str, exposure: Exposure) -> Result<TcpAcceptor, BindError> {
        let resolved = resolve(address).await?;
        let exposed = resolved
            .iter()
            .find(|address| !address.ip().to_canonical().is_loopback());
        if let (Exposure::LoopbackOnly, Some(exposed)) = (exposure, exposed) {
            return Err(BindError::Exposed {
                address: address.to_owned(),
                resolved: *exposed,
            });
        }
        let listener = TcpListener::bind(&*resolved)
            .await
            .map_err(|source| BindError::Listen {
                address: address.to_owned(),
                source,
            })?;
        Ok(TcpAcceptor { listener })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

async fn resolve(address: &str) -> Result<Vec<SocketAddr>, BindError> {
    let unresolved = |source| BindError::Unresolved {
        address: address.to_owned(),
        source,
    };
    if let Some(port) = address.strip_prefix("*:") {
        let port: u16 = port
            .parse()
            .map_err(|_| unresolved(io::Error::new(io::ErrorKind::InvalidInput, "not a port")))?;
        return Ok(vec![
            (Ipv6Addr::UNSPECIFIED, port).into(),
            (Ipv4Addr::UNSPECIFIED, port).into(),
        ]);
    }
    let found = tokio::net::lookup_host(address).await.map_err(unresolved)?;
    let found: Vec<SocketAddr> = found.collect();
    if found.is_empty() {
        return Err(unresolved(io::ErrorKind::AddrNotAvailable.into()));
    }
    Ok(found)
}

impl Acceptor for TcpAcceptor {
    type Incoming = TcpStream;
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, String)> {
        let (stream, remote) = self.listener.accept().await?;
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Ok((stream, remote.to_string()))
    }

    async fn secure(&self, incoming: TcpStream) -> io::Result<TcpStream> {
        incoming.set_nodelay(true)?;
        Ok(incoming)
    }

    fn verify(&self, _: &TcpStream, _: u64, _: Option<&str>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Opens plain TCP connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpConnector;

impl Connector for TcpConnector {
    type Connected = TcpStream;
    type Stream = TcpStream;

    async fn connect(&self, _peer: u64, address: &str) -> Result<TcpStream, DialFailure> {
        let found = tokio::net::lookup_host(address)
            .await
            .map_err(|error| DialFailure::Unresolved(error.to_string()))?;
        let mut failure = DialFailure::Unresolved("no address".to_owned());
        for address in found {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }

    async fn secure(&self, _: &str, connected: TcpStream) -> Result<TcpStream, DialFailure> {
        Ok(connected)
    }
}

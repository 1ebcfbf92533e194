//! Transport of bytes to a server: an injectable trait and its implementation over TCP and unix
//! sockets.
//!
//! Owns name resolution and connecting. It must never interpret a byte of the protocol, nor decide
//! whether to try again.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::clock::BoxFuture;

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A connected byte stream of any kind.
pub type BoxStream = Box<dyn Stream>;

/// One entry of a server list, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Host {
    /// A host name or literal address with its port; resolved again before every attempt.
    Tcp {
        /// Name, IPv4 or (without brackets) IPv6 address.
        name: String,
        /// TCP port.
        port: u16,
    },
    /// A unix socket's path.
    Unix(PathBuf),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A resolved address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket's path.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Resolves and connects. Implement it to tunnel or to inject faults. TLS
/// ([`Config::tls`](crate::Config::tls)) is put on top of the streams that it opens.
///
/// A write to a stream that fails must not have sent any of its bytes: the session reports the
/// operations in them as not sent.
pub trait Transport: Send + Sync + 'static {
    /// The endpoints behind one entry of the server list, asked again before every attempt.
    fn resolve(&self, host: &Host) -> BoxFuture<io::Result<Vec<Endpoint>>>;

    /// Opens a stream. The caller bounds the time; dropping the future gives the attempt up.
    fn connect(&self, endpoint: &Endpoint) -> BoxFuture<io::Result<BoxStream>>;
}

/// Plain sockets by tokio: TCP (without Nagle's delay) and, on unix, unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketTransport;

impl Transport for SocketTransport {
    fn resolve(&self, host: &Host) -> BoxFuture<io::Result<Vec<Endpoint>>> {
        let host = host.clone();
        Box::pin(async move {
            match host {
                Host::Tcp { name, port } => Ok(tokio::net::lookup_host((name.as_str(), port))
                    .await?
                    .map(Endpoint::Tcp)
                    .collect()),
                Host::Unix(path) => Ok(vec![Endpoint::Unix(path)]),
            }
        })
    }

    fn connect(&self, endpoint: &Endpoint) -> BoxFuture<io::Result<BoxStream>> {
        let endpoint = endpoint.clone();
        Box::pin(async move {
            match endpoint {
                Endpoint::Tcp(addr) => {
                    let stream = tokio::net::TcpStream::connect(addr).await?;
                    stream.set_nodelay(true)?;
                    Ok(Box::new(stream) as BoxStream)
                }
                #[cfg(unix)]
                Endpoint::Unix(path) => {
                    Ok(Box::new(tokio::net::UnixStream::connect(path).await?) as BoxStream)
                }
                #[cfg(not(unix))]
                Endpoint::Unix(_) => Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this system has no unix sockets: use HOST:PORT",
                )),
            }
        })
    }
}

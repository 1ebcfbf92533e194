//! TCP with TLS: both servers show a certificate. While the servers of an ensemble change from
//! plain connections to TLS, a port takes both kinds; the first byte shows which one it is.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use baton_tls::rustls::pki_types::ServerName;
use baton_tls::tokio_rustls::{self, client, server};
use baton_tls::{PeerTls, TlsFailure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::codec::Refusal;
use crate::net::plain::{TcpAcceptor, TcpConnector};
use crate::net::stream::{Acceptor, Connector, DialFailure};

/// The first byte of a connection with TLS: the kind of record that a handshake is in. The preface
/// of a plain connection begins with another one.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Time that the other side may take to read why its handshake failed.
const LINGER: Duration = Duration::from_millis(200);
/// Bytes that are read at once from a connection that is over.
const LINGER_BYTES: usize = 4 << 10;

/// Accepts connections with TLS, and plain ones too if it is to.
#[derive(Debug)]
pub struct TlsAcceptor {
    listener: TcpAcceptor,
    tls: Arc<PeerTls>,
    accepts_plain: bool,
    /// The one handshake that is computed. What servers send to each other has the same thread, and
    /// gets its turn between two steps of handshakes, however many strangers connect.
    turn: Semaphore,
}

impl TlsAcceptor {
    /// Accepts the connections of `listener`. Plain ones are refused unless `accepts_plain`:
    /// without them, [`TcpAcceptor::bind`] may have had
    /// [`Exposure::Encrypted`](crate::net::Exposure).
    pub fn new(listener: TcpAcceptor, tls: Arc<PeerTls>, accepts_plain: bool) -> TlsAcceptor {
        TlsAcceptor {
            listener,
            tls,
            accepts_plain,
            turn: Semaphore::new(1),
        }
    }
}

impl Acceptor for TlsAcceptor {
    type Incoming = TcpStream;
    type Stream = PeerStream;

    async fn accept(&self) -> io::Result<(TcpStream, String)> {
        self.listener.accept().await
    }

    async fn secure(&self, incoming: TcpStream) -> io::Result<PeerStream> {
        let incoming = self.listener.secure(incoming).await?;
        let mut first = [0];
        if incoming.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first != [HANDSHAKE_RECORD] {
            // Refused once it has said which server it is, if it is one.
            return Ok(PeerStream::Plain(incoming));
        }
        let acceptor = tokio_rustls::TlsAcceptor::from(self.tls.accepting());
        let handshake = acceptor.accept(incoming).into_fallible();
        match in_turns(&self.turn, handshake).await {
            Ok(stream) => Ok(PeerStream::Tls(Box::new(stream))),
            Err((error, stream)) => {
                let failure = TlsFailure::of_accepting(&error);
                linger(stream).await;
                Err(failure.into())
            }
        }
    }

    fn verify(
        &self,
        stream: &PeerStream,
        server: u64,
        address: Option<&str>,
    ) -> Result<(), Refusal> {
        let stream = match stream {
            PeerStream::Plain(_) if self.accepts_plain => return Ok(()),
            PeerStream::Plain(_) => return Err(Refusal::TlsRequired),
            PeerStream::Tls(stream) => stream,
        };
        // A server of a newer membership is known by its authority alone: a server that was away
        // hears of the members from those that it does not know yet.
        let Some(host) = address.map(host_of) else {
            return Ok(());
        };
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let verified = match certificate {
            Some(certificate) => self.tls.check_host(certificate, host),
            None => Err(TlsFailure::NoCertificate),
        };
        verified.map_err(|failure| {
            let names = match failure {
                TlsFailure::WrongHost {
                    expected,
                    presented,
                } => format!("{expected}, but for {presented}"),
                other => format!("{host} ({other})"),
            };
            Refusal::other_host(server, &names)
        })
    }
}

/// Opens connections with TLS.
#[derive(Debug, Clone)]
pub struct TlsConnector {
    tls: Arc<PeerTls>,
}

impl TlsConnector {
    /// Shows the certificate of `tls`, and trusts its authorities.
    pub fn new(tls: Arc<PeerTls>) -> TlsConnector {
        TlsConnector { tls }
    }
}

impl Connector for TlsConnector {
    type Connected = TcpStream;
    type Stream = client::TlsStream<TcpStream>;

    async fn connect(&self, peer: u64, address: &str) -> Result<TcpStream, DialFailure> {
        TcpConnector.connect(peer, address).await
    }

    async fn secure(
        &self,
        address: &str,
        connected: TcpStream,
    ) -> Result<client::TlsStream<TcpStream>, DialFailure> {
        let host = host_of(address);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| DialFailure::Tls(TlsFailure::BadName(host.to_owned())))?;
        let connector = tokio_rustls::TlsConnector::from(self.tls.connecting());
        match connector.connect(name, connected).into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, stream)) => {
                linger(stream).await;
                Err(DialFailure::Tls(TlsFailure::of_handshake(&error)))
            }
        }
    }
}

/// The host of `HOST:PORT`, as a certificate has it.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bracketed = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    // A final dot means the same host.
    host.strip_suffix('.').unwrap_or(host)
}

/// Polls the future only while it holds the turn, which it never does while it waits for the other
/// side.
async fn in_turns<F: Future>(turn: &Semaphore, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        {
            let _turn = turn.acquire().await;
            let step = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
            if let Poll::Ready(output) = step {
                return output;
            }
        }
        // The future has left the waker of this task with what it waits for.
        let mut is_woken = false;
        std::future::poll_fn(|_| match std::mem::replace(&mut is_woken, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// Reads until the other side ends a connection that has failed. With unread bytes in its buffer
/// the system would reset the connection, and the alert that says why would be lost.
async fn linger(mut stream: TcpStream) {
    let drained = async {
        if stream.shutdown().await.is_ok() {
            let mut rest = [0; LINGER_BYTES];
            while let Ok(1..) = stream.read(&mut rest).await {}
        }
    };
    let _ = timeout(LINGER, drained).await;
}

/// A connection that was accepted.
#[derive(Debug)]
pub enum PeerStream {
    /// Neither encrypted nor authenticated.
    Plain(TcpStream),
    /// Encrypted; the other side has shown a certificate.
    Tls(Box<server::TlsStream<TcpStream>>),
}

impl AsyncRead for PeerStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            PeerStream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            PeerStream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            PeerStream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            PeerStream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            PeerStream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_as_certificates_have_it() {
        for (address, host) in [
            ("zk1.example:2888", "zk1.example"),
            ("zk1.example.:2888", "zk1.example"),
            ("10.0.0.1:2888", "10.0.0.1"),
            ("[::1]:2888", "::1"),
        ] {
            assert_eq!(host_of(address), host);
        }
    }
}

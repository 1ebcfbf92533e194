//! The TLS handshake of a client's connection: which connections have one, in which order the
//! server computes them, and the identity that a client's certificate proves.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_tls::rustls::{self, ServerConnection};
use baton_tls::{ServerTls, TlsFailure, failure, subject};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, tcp};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::audit::line::{Ending, Operation};
use crate::audit::record::Principal;
use crate::auth::credentials;
use crate::connections::conn::Conn;
use crate::net::end::{End, closed};
use crate::net::stream::Stream;
use crate::net::tls_socket;
use crate::report::notice::Notice;
use crate::state::ServerState;

/// The first byte of a TLS connection: the kind of record that a handshake is in. No four-letter
/// word begins with it, and as the first byte of a frame's length it is over every limit.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Bytes that one read asks the socket for: most handshakes are shorter.
const READ_BYTES: usize = 4 << 10;

/// Handshakes that are computed at a time. One takes up to a millisecond; the tasks of others wait
/// here and not between those of open sessions, whose turn comes after at most this many.
const COMPUTED_AT_A_TIME: usize = 4;

/// TLS of a port for clients.
#[derive(Debug, Clone)]
pub(crate) struct PortTls {
    tls: Arc<ServerTls>,
    /// Whether clients without TLS are served, too.
    plain_too: bool,
    turns: Arc<Semaphore>,
}

impl PortTls {
    pub(crate) fn new(tls: Arc<ServerTls>, plain_too: bool) -> Self {
        Self {
            tls,
            plain_too,
            turns: Arc::new(Semaphore::new(COMPUTED_AT_A_TIME)),
        }
    }

    /// The connection as it is to be served: after its handshake, where it has TLS.
    ///
    /// # Errors
    /// How it ended. A client that has not done its part at `deadline` is closed.
    pub(crate) async fn open(
        &self,
        state: &ServerState,
        conn: &Conn,
        stream: TcpStream,
        deadline: Instant,
    ) -> Result<Stream, End> {
        let opened = tokio::select! {
            biased;
            reason = closed(conn) => return Err(End::Closed(reason)),
            opened = tokio::time::timeout_at(deadline, self.begin(state, conn, stream)) => opened,
        };
        let outcome = opened.unwrap_or_else(|_| {
            state.stats.handshakes_timed_out.fetch_add(1, Relaxed);
            let what = match self.plain_too {
                true => "it did not begin in time, with TLS or without",
                false => "it did not complete the TLS handshake in time; a client without TLS needs another port",
            };
            Err(End::Refused(Notice::NoSession, what.to_owned()))
        });
        // Bytes of the handshake are no longer held.
        state.set_unfinished(conn, 0, true);
        outcome
    }

    async fn begin(
        &self,
        state: &ServerState,
        conn: &Conn,
        stream: TcpStream,
    ) -> Result<Stream, End> {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) => {}
            _ => return Err(End::Gone),
        }
        if first != [HANDSHAKE_RECORD] {
            if self.plain_too {
                return Ok(Stream::Tcp(stream));
            }
            let what = "it does not speak TLS, which this port asks for; let it use TLS, or the port without";
            return Err(End::Refused(Notice::Tls, what.to_owned()));
        }
        let outcome = self.shake_hands(state, conn, stream).await;
        let counter = match &outcome {
            Ok(_) => &state.stats.tls_handshakes,
            Err(_) => &state.stats.tls_handshakes_failed,
        };
        counter.fetch_add(1, Relaxed);
        outcome
    }

    async fn shake_hands(
        &self,
        state: &ServerState,
        conn: &Conn,
        stream: TcpStream,
    ) -> Result<Stream, End> {
        let config = self.tls.config();
        let session = ServerConnection::new(Arc::clone(&config));
        let mut session = session.map_err(|error| refused(&error))?;
        let (mut input, output) = stream.into_split();
        let mut encrypted: Vec<u8> = Vec::new();
        let mut received = 0;
        while session.is_handshaking() {
            encrypted.reserve(READ_BYTES);
            match input.read_buf(&mut encrypted).await {
                Ok(0) if received > 0 => {
                    let what = TlsFailure::GaveUp.to_string();
                    return Err(End::Refused(Notice::Tls, what));
                }
                Ok(0) | Err(_) => return Err(End::Gone),
                Ok(bytes) => received += bytes,
            }
            state.set_unfinished(conn, received, false);
            {
                let _turn = self.turns.acquire().await;
                if let Err(error) = compute(&mut session, &mut encrypted) {
                    // The alert, for a client that still reads.
                    let _ = tls_socket::send(&mut session, &output);
                    return Err(refused(&error));
                }
            }
            send_all(&mut session, &output)
                .await
                .map_err(|_| End::Gone)?;
        }
        self.identify(state, conn, &session)?;
        if !Arc::ptr_eq(&config, &self.tls.config()) {
            // The files have changed since it began, and open connections may have been verified
            // before this one had shown its certificate.
            let verified = self.tls.verify(conn.certificates());
            verified.map_err(|error| refused(&error))?;
        }
        let (input, output) = tls_socket::halves(input, output, session, encrypted);
        Ok(Stream::Tls(Box::new(input), output))
    }

    /// Adds what the client's certificate proves to the identity of the connection.
    fn identify(
        &self,
        state: &ServerState,
        conn: &Conn,
        session: &ServerConnection,
    ) -> Result<(), End> {
        let Some(shown @ [certificate, ..]) = session.peer_certificates() else {
            return Ok(());
        };
        conn.set_certificates(shown);
        let refused = |why: String| {
            state.stats.auth_failed.fetch_add(1, Relaxed);
            End::Refused(Notice::BadCredentials, why)
        };
        let subject =
            subject::of_certificate(certificate).map_err(|error| refused(error.to_string()))?;
        let identity = credentials::add_subject(&conn.identity(), subject, &state.options)
            .map_err(|error| refused(error.to_string()))?;
        conn.set_identity(Arc::new(identity));
        let (login, success) = (Operation::Login, Ending::Success);
        state.record(
            login,
            success,
            || Principal::of(conn),
            |fields| {
                fields.word("scheme", "x509");
            },
        );
        Ok(())
    }
}

/// Gives the session what has arrived, until the handshake needs more or is complete. What is
/// behind it stays in `encrypted`.
fn compute(session: &mut ServerConnection, encrypted: &mut Vec<u8>) -> Result<(), rustls::Error> {
    let mut taken = 0;
    while session.is_handshaking() {
        let rest = encrypted.get(taken..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        match tls_socket::give(session, rest)? {
            0 => {
                return Err(rustls::Error::General(
                    "the client closed the session".to_owned(),
                ));
            }
            count => taken += count,
        }
    }
    encrypted.drain(..taken);
    Ok(())
}

async fn send_all(session: &mut ServerConnection, output: &tcp::OwnedWriteHalf) -> io::Result<()> {
    while !tls_socket::send(session, output)? {
        poll_fn(|cx| output.as_ref().poll_write_ready(cx)).await?;
    }
    Ok(())
}

fn refused(error: &rustls::Error) -> End {
    End::Refused(Notice::Tls, failure::explain(error))
}

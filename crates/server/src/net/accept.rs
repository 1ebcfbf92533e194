//! Accepts connections and runs the task of each.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use baton_tree::Identity;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::audit::line::{Ending, Operation};
use crate::audit::record::Principal;
use crate::connections::conn::{CloseReason, Conn};
use crate::connections::peer::Peer;
use crate::connections::registry::TooMany;
use crate::listening::listener::{Listener, canonical};
use crate::net::connection::Connection;
use crate::net::end::End;
use crate::net::stream::Stream;
use crate::net::tls_handshake::PortTls;
use crate::report::notice::Notice;
use crate::state::{ServerState, WATCHES_PER_LOCK};

/// Pause when the system has no file descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until it is aborted. Dropping it closes the listening socket; connections go
/// on.
pub(crate) async fn accept(state: Arc<ServerState>, listener: Listener, tls: Option<PortTls>) {
    loop {
        let accepted: io::Result<Result<_, String>> = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, peer)| {
                // Replies are small and whole; waiting for more to send would only delay them.
                let _ = stream.set_nodelay(true);
                let accepted = match &tls {
                    Some(tls) => Accepted::MayHaveTls(stream, tls.clone()),
                    None => Accepted::Ready(Stream::Tcp(stream)),
                };
                Ok((accepted, Peer::Tcp(canonical(peer))))
            }),
            Listener::Unix {
                listener, access, ..
            } => listener.accept().await.map(|(stream, _)| {
                access.check(stream.peer_cred())?;
                Ok((Accepted::Ready(Stream::Unix(stream)), Peer::Local))
            }),
        };
        match accepted {
            Ok(Err(why)) => {
                let stats = &state.stats;
                stats.connections_accepted.fetch_add(1, Relaxed);
                stats.auth_failed.fetch_add(1, Relaxed);
                let who = || Principal::at(&Peer::Local, None);
                state.record(Operation::Connect, Ending::Failure, who, |fields| {
                    fields.sentence("reason", &why);
                });
                let line = format_args!("connection refused: {why}");
                state.notice(Notice::BadCredentials, Some(&Peer::Local), line);
            }
            Ok(Ok((accepted, peer))) => {
                if let Some(life) = take_on(&state, accepted, peer) {
                    tokio::spawn(life);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; raise the limit of open files if this goes on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Closes the connections that clients open, until it is dropped: while a member starts, which may
/// take long or wait for other servers, they are to try the next server at once.
pub(crate) async fn turn_away(listeners: &[(Listener, Option<PortTls>)]) -> Infallible {
    std::future::poll_fn(|context| {
        for (listener, _) in listeners {
            let Listener::Tcp(listener) = listener else {
                continue;
            };
            // After an error they wait in the system's queue.
            while let Poll::Ready(Ok(_)) = listener.poll_accept(context) {}
        }
        Poll::Pending
    })
    .await
}

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) enum Accepted {
    Ready(Stream),
    /// From within this process, for somebody who has shown over HTTP who it is.
    Known(Stream, Arc<Identity>),
    /// On a port that has TLS.
    MayHaveTls(TcpStream, PortTls),
}

/// Registers a connection and returns its task, to be spawned. `None`: the connection is refused.
pub(crate) fn take_on(
    state: &Arc<ServerState>,
    accepted: Accepted,
    peer: Peer,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    state.stats.connections_accepted.fetch_add(1, Relaxed);
    let conn = match state.open(peer) {
        Ok(conn) => conn,
        Err(why) => {
            match why {
                TooMany::FromAddress(_) => {
                    state.stats.refused_from_address.fetch_add(1, Relaxed);
                }
                TooMany::InAll(_) => {
                    state.stats.refused_in_all.fetch_add(1, Relaxed);
                }
                TooMany::Stopping => {}
            }
            let notice = Notice::ConnectionRefused;
            state.notice(
                notice,
                Some(&peer),
                format_args!("connection refused: {why}"),
            );
            return None;
        }
    };
    let state = Arc::clone(state);
    Some(async move {
        // Removes the connection however the task ends.
        let registered = RegisteredConnection {
            state: Arc::clone(&state),
            conn: Arc::clone(&conn),
        };
        let deadline = Instant::now() + state.options.handshake_timeout;
        let opened = match accepted {
            Accepted::Ready(stream) => Ok(stream),
            Accepted::Known(stream, identity) => {
                conn.set_identity(identity);
                Ok(stream)
            }
            // Boxed so that the future of a connection without TLS stays small.
            Accepted::MayHaveTls(stream, tls) => {
                Box::pin(tls.open(&state, &conn, stream, deadline)).await
            }
        };
        let end = match opened {
            Ok(stream) => {
                let mut connection = Connection::new(Arc::clone(&state), conn, stream);
                connection.serve(deadline).await
            }
            Err(end) => end,
        };
        match end {
            End::Gone => {
                let stats = &state.stats;
                stats.connections_dropped.fetch_add(1, Relaxed);
                tracing::debug!(%peer, "connection closed by the client");
            }
            End::Closed(reason) => {
                let text = reason.text();
                let notice = match reason {
                    CloseReason::TooSlow | CloseReason::AllTooSlow => Some(Notice::SlowReader),
                    CloseReason::Unfinished => Some(Notice::Unfinished),
                    CloseReason::TooManySessions | CloseReason::TooManySessionsOfAddress => {
                        Some(Notice::Sessions)
                    }
                    CloseReason::CertificateRefused => Some(Notice::BadCredentials),
                    _ => None,
                };
                if let Some(notice) = notice {
                    let what = format_args!("connection closed: {text}");
                    state.notice(notice, Some(&peer), what);
                } else {
                    tracing::debug!(%peer, "connection closed: {text}");
                }
            }
            End::Refused(notice, what) => {
                if matches!(notice, Notice::Tls | Notice::BadCredentials) {
                    let who = || Principal::at(&peer, None);
                    state.record(Operation::Connect, Ending::Failure, who, |fields| {
                        fields.sentence("reason", &what);
                    });
                }
                state.notice(
                    notice,
                    Some(&peer),
                    format_args!("connection closed: {what}"),
                );
            }
        }
        registered.forget_watches().await;
        drop(registered);
    })
}

struct RegisteredConnection {
    state: Arc<ServerState>,
    conn: Arc<Conn>,
}

impl RegisteredConnection {
    /// Removes the watches of a connection whose client is gone. Others get their turn in between.
    async fn forget_watches(&self) {
        // It sets none from now on.
        self.conn.close(CloseReason::SocketGone, &mut Vec::new());
        let (watches, id) = (&self.state.watches, self.conn.id);
        while watches.lock().forget(id, WATCHES_PER_LOCK) {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        self.state.forget(&self.conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::state::tests::state;

    /// An idle session is to cost 3 kB; its task and its entry are the largest parts.
    #[tokio::test]
    async fn a_connection_is_small() {
        let state = state(Options::default());
        let (stream, _other) = tokio::net::UnixStream::pair().unwrap();
        let accepted = Accepted::Ready(Stream::Unix(stream));
        let task = take_on(&state, accepted, Peer::Local).unwrap();
        let bytes = size_of_val(&task) + size_of::<Conn>();
        assert!(bytes <= 1300, "{bytes} bytes");
    }
}

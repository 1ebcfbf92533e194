//! A TCP connection with TLS after its handshake. Its reading half and everybody who writes share
//! one session of rustls behind a lock.
//!
//! The lock is nearly always free: the connection's task reads, and the core writes only while that
//! task sleeps (see [`Outlet`](crate::connections::conn::Outlet)). A lock that is free costs some
//! 20 ns, and encrypting a small answer some 300 ns; a task of its own for writing would cost each
//! answer a change of thread, which is ten times as much. So the core encrypts small answers itself
//! and leaves larger ones to the connection's task.

use std::io::{self, BufRead, IoSlice, Write};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use baton_tls::rustls::ServerConnection;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::{TcpStream, tcp};

/// Encrypted bytes that one read asks the socket for: a record of the longest kind, about.
const READ_BYTES: usize = 16 << 10;

/// The half that is read, by the connection's task alone.
#[derive(Debug)]
pub(crate) struct TlsInput {
    half: tcp::OwnedReadHalf,
    /// Encrypted bytes that have arrived.
    encrypted: Vec<u8>,
    /// Number of them that the session has taken.
    taken: usize,
    has_ended: bool,
    /// Bytes that the session has taken since it gave any: of a record that is not whole.
    unfinished: usize,
    socket: Arc<TlsSocket>,
}

/// The half that is written, with the session that both halves need.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    half: tcp::OwnedWriteHalf,
    session: Mutex<ServerConnection>,
    /// Whether bytes of the client have left the system's buffer and wait here for the task.
    held_bytes: AtomicUsize,
    /// These, and those of a record that is not whole, about.
    unfinished_bytes: AtomicUsize,
    /// Bytes of answers that are encrypted and that the system has not taken, about.
    unsent_bytes: AtomicUsize,
}

/// Joins the halves of a connection whose handshake is complete. `encrypted` is what has arrived
/// behind the handshake.
pub(crate) fn halves(
    input: tcp::OwnedReadHalf,
    output: tcp::OwnedWriteHalf,
    session: ServerConnection,
    encrypted: Vec<u8>,
) -> (TlsInput, Arc<TlsSocket>) {
    let socket = Arc::new(TlsSocket {
        half: output,
        session: Mutex::new(session),
        // Perhaps nothing; the first read finds out.
        held_bytes: AtomicUsize::new(1),
        unfinished_bytes: AtomicUsize::new(0),
        unsent_bytes: AtomicUsize::new(0),
    });
    let input = TlsInput {
        half: input,
        encrypted,
        taken: 0,
        has_ended: false,
        unfinished: 0,
        socket: Arc::clone(&socket),
    };
    (input, socket)
}

/// Sends what the session has to send. `false`: the system takes no more now.
pub(crate) fn send(session: &mut ServerConnection, half: &tcp::OwnedWriteHalf) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(&mut Sink(half)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Gives the session some of `encrypted`; how many bytes that was.
///
/// # Errors
/// The client broke the rules of TLS, or the session is closed for its input.
pub(crate) fn give(
    session: &mut ServerConnection,
    mut encrypted: &[u8],
) -> Result<usize, baton_tls::rustls::Error> {
    use baton_tls::rustls::Error;

    // An error here means that the session has no room, which it always has after it was emptied.
    let taken = session
        .read_tls(&mut encrypted)
        .map_err(|error| Error::General(error.to_string()))?;
    session.process_new_packets()?;
    Ok(taken)
}

/// Moves what the session has decrypted into `buf`.
fn take_plain(session: &mut ServerConnection, buf: &mut ReadBuf<'_>) -> Plain {
    loop {
        let mut reader = session.reader();
        let count = match reader.fill_buf() {
            Ok([]) => return Plain::Ended,
            Ok(chunk) => {
                let count = chunk.len().min(buf.remaining());
                buf.put_slice(chunk.get(..count).unwrap_or_default());
                count
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Plain::None,
            // The stream ended without TLS saying so. Requests have their own lengths, so nothing
            // can be cut off unnoticed.
            Err(_) => return Plain::Ended,
        };
        reader.consume(count);
        if buf.remaining() == 0 {
            return Plain::Full;
        }
    }
}

/// The socket as the session writes to it.
struct Sink<'a>(&'a tcp::OwnedWriteHalf);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsInput {
    /// Ready with whether more may be there than `buf` had room for.
    fn poll(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let socket = Arc::clone(&self.socket);
        let before = buf.filled().len();
        loop {
            {
                let mut session = socket.session.lock();
                loop {
                    let had = buf.filled().len();
                    let plain = take_plain(&mut session, buf);
                    if buf.filled().len() > had {
                        self.unfinished = 0;
                    }
                    match plain {
                        Plain::None => {}
                        Plain::Full => return Poll::Ready(Ok(true)),
                        Plain::Ended => return Poll::Ready(Ok(false)),
                    }
                    let rest = self.encrypted.get(self.taken..).unwrap_or_default();
                    if rest.is_empty() {
                        break;
                    }
                    let outcome = give(&mut session, rest);
                    // Answers of TLS itself: to a change of keys, or an alert.
                    let sent = send(&mut session, &socket.half);
                    match outcome {
                        // The client has ended the session, so that nothing behind counts.
                        Ok(0) => self.taken = self.encrypted.len(),
                        Ok(count) => {
                            self.taken += count;
                            self.unfinished += count;
                        }
                        Err(error) => return Poll::Ready(Err(io::Error::other(error))),
                    }
                    sent?;
                }
            }
            self.encrypted.clear();
            self.taken = 0;
            if buf.filled().len() > before || self.has_ended {
                return Poll::Ready(Ok(false));
            }
            self.encrypted.reserve(READ_BYTES);
            let read = pin!(self.half.read_buf(&mut self.encrypted)).poll(cx);
            match read {
                Poll::Pending => {
                    // An idle connection keeps no buffer.
                    self.encrypted = Vec::new();
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(0)) => {
                    self.has_ended = true;
                    let mut session = socket.session.lock();
                    session.read_tls(&mut io::empty())?;
                }
                Poll::Ready(Ok(_)) => {}
            }
        }
    }
}

/// Plaintext that the session had decrypted.
enum Plain {
    /// No more than was taken.
    None,
    /// More than there was room for, perhaps.
    Full,
    /// The end of the stream.
    Ended,
}

impl AsyncRead for TlsInput {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = this.poll(cx, buf);
        let more = matches!(outcome, Poll::Ready(Ok(true)));
        let held = this.encrypted.len() - this.taken.min(this.encrypted.len());
        let held = held + usize::from(more);
        this.socket.held_bytes.store(held, SeqCst);
        let unfinished = &this.socket.unfinished_bytes;
        unfinished.store(held + this.unfinished, Relaxed);
        outcome.map_ok(|_| ())
    }
}

impl TlsSocket {
    /// Encrypts and sends what the system takes at once; how many bytes that was. What is encrypted
    /// and not sent is bounded by the session's buffer of 64 KiB.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.session.lock();
        if !self.send(&mut session, 0)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = session.writer().write(bytes)?;
        self.send(&mut session, count)?;
        Ok(count)
    }

    /// Sends what is encrypted, `more` bytes of it since the last time.
    fn send(&self, session: &mut ServerConnection, more: usize) -> io::Result<bool> {
        let done = send(session, &self.half)?;
        let unsent = match done {
            true => 0,
            false => self.unsent_bytes.load(Relaxed) + more,
        };
        self.unsent_bytes.store(unsent, Relaxed);
        Ok(done)
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.half.as_ref().poll_write_ready(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// Ready when the system has taken everything that is encrypted.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.send(&mut self.session.lock(), 0)? {
            ready!(self.half.as_ref().poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Says that no more comes, and ends the stream to the client.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        {
            let mut session = self.session.lock();
            session.send_close_notify();
            // Of a client that does not read, nothing is expected any more.
            let _ = self.send(&mut session, 0);
        }
        socket2::SockRef::from(self.half.as_ref()).shutdown(Shutdown::Write)
    }

    /// Has the connection break when it is closed.
    pub(crate) fn reset(&self) -> io::Result<()> {
        socket2::SockRef::from(self.half.as_ref()).set_linger(Some(Duration::ZERO))
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Relaxed)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(SeqCst)
    }

    /// Bytes of the client that wait here, whole requests or not.
    pub(crate) fn unfinished_bytes(&self) -> usize {
        self.unfinished_bytes.load(Relaxed)
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.half.as_ref()
    }
}

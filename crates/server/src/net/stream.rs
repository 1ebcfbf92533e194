//! A connected socket, TCP with TLS or without, or unix: they differ in nothing that the
//! connection's task has to know. Its halves are apart because the core may write to it while the
//! task waits for input.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::connections::conn::{DIRECT_BYTES, Outlet};
use crate::net::tls_socket::{TlsInput, TlsSocket};

/// The most that the core writes to a connection with TLS by itself: encrypting that takes about as
/// long as waking a task.
const DIRECT_TLS_BYTES: usize = 4 << 10;

/// Input of a simulated connection.
#[cfg(feature = "simulation")]
pub trait MemoryInput: AsyncRead + std::fmt::Debug + Send + Unpin + 'static {}
#[cfg(feature = "simulation")]
impl<T: AsyncRead + std::fmt::Debug + Send + Unpin + 'static> MemoryInput for T {}

/// Output of a simulated connection. Dropping it ends the stream.
#[cfg(feature = "simulation")]
pub trait MemoryOutput: std::fmt::Debug + Send + Sync + 'static {
    /// Takes what it can, at once; how many bytes that was. It must not say `WouldBlock`.
    ///
    /// # Errors
    /// The connection is broken.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Ends the stream.
    fn shutdown(&self);
}

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// After its handshake.
    Tls(Box<TlsInput>, Arc<TlsSocket>),
    Unix(UnixStream),
    /// A simulated connection, its halves apart already.
    #[cfg(feature = "simulation")]
    Memory(Box<dyn MemoryInput>, Box<dyn MemoryOutput>),
}

/// The half that is read.
#[derive(Debug)]
pub(crate) enum Input {
    Tcp(tcp::OwnedReadHalf),
    Tls(Box<TlsInput>),
    Unix(unix::OwnedReadHalf),
    #[cfg(feature = "simulation")]
    Memory(Box<dyn MemoryInput>),
}

/// The half that is written.
#[derive(Debug)]
pub(crate) enum Output {
    Tcp(tcp::OwnedWriteHalf),
    Tls(Arc<TlsSocket>),
    Unix(unix::OwnedWriteHalf),
    #[cfg(feature = "simulation")]
    Memory(Box<dyn MemoryOutput>),
}

impl Stream {
    pub(crate) fn into_halves(self) -> (Input, Output) {
        match self {
            Stream::Tcp(stream) => {
                let (input, output) = stream.into_split();
                (Input::Tcp(input), Output::Tcp(output))
            }
            Stream::Tls(input, output) => (Input::Tls(input), Output::Tls(output)),
            Stream::Unix(stream) => {
                let (input, output) = stream.into_split();
                (Input::Unix(input), Output::Unix(output))
            }
            #[cfg(feature = "simulation")]
            Stream::Memory(input, output) => (Input::Memory(input), Output::Memory(output)),
        }
    }
}

impl AsyncRead for Input {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Input::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Input::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
            Input::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(feature = "simulation")]
            Input::Memory(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl Output {
    /// Writes what the socket takes. What it has taken may wait for [`Output::poll_flush`].
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self {
                Output::Tcp(half) => ready!(half.as_ref().poll_write_ready(cx))?,
                Output::Tls(socket) => return socket.poll_write(cx, bytes),
                Output::Unix(half) => ready!(half.as_ref().poll_write_ready(cx))?,
                #[cfg(feature = "simulation")]
                Output::Memory(_) => {}
            }
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Ready when the system has taken everything that was written.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Output::Tls(socket) => socket.poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Bytes that were written and that the system has not taken.
    pub(crate) fn unsent_bytes(&self) -> usize {
        match self {
            Output::Tls(socket) => socket.unsent_bytes(),
            _ => 0,
        }
    }

    /// Bytes of the client that wait between the system's buffer and the connection's task.
    pub(crate) fn unfinished_bytes(&self) -> usize {
        match self {
            Output::Tls(socket) => socket.unfinished_bytes(),
            _ => 0,
        }
    }

    /// Ends the stream to the client.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self {
            Output::Tcp(half) => socket2::SockRef::from(half.as_ref()).shutdown(Shutdown::Write),
            Output::Tls(socket) => socket.shutdown(),
            Output::Unix(half) => socket2::SockRef::from(half.as_ref()).shutdown(Shutdown::Write),
            #[cfg(feature = "simulation")]
            Output::Memory(half) => {
                half.shutdown();
                Ok(())
            }
        }
    }
}

impl Output {
    /// Has the connection break when it is closed, instead of ending: what was sent is not whole.
    pub(crate) fn reset(&self) -> io::Result<()> {
        match self {
            Output::Tcp(half) => {
                socket2::SockRef::from(half.as_ref()).set_linger(Some(Duration::ZERO))
            }
            Output::Tls(socket) => socket.reset(),
            // These two know no difference.
            Output::Unix(_) => Ok(()),
            #[cfg(feature = "simulation")]
            Output::Memory(_) => Ok(()),
        }
    }
}

impl Outlet for Output {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Tcp(half) => half.try_write(bytes),
            Output::Tls(socket) => socket.try_write(bytes),
            Output::Unix(half) => half.try_write(bytes),
            #[cfg(feature = "simulation")]
            Output::Memory(half) => half.try_write(bytes),
        }
    }

    fn unread_bytes(&self) -> u64 {
        let unread = match self {
            Output::Tcp(half) => rustix::io::ioctl_fionread::<&TcpStream>(half.as_ref()),
            Output::Tls(socket) => rustix::io::ioctl_fionread(socket.stream()),
            Output::Unix(half) => rustix::io::ioctl_fionread::<&UnixStream>(half.as_ref()),
            // A simulated connection wakes its task with what it brings.
            #[cfg(feature = "simulation")]
            Output::Memory(_) => Ok(0),
        };
        // Of a socket that is broken nothing more can be read.
        unread.unwrap_or(0)
    }

    fn held_bytes(&self) -> usize {
        match self {
            Output::Tls(socket) => socket.held_bytes(),
            _ => 0,
        }
    }

    fn has_unsent_bytes(&self) -> bool {
        self.unsent_bytes() > 0
    }

    fn direct_bytes(&self) -> usize {
        match self {
            Output::Tls(_) => DIRECT_TLS_BYTES,
            _ => DIRECT_BYTES,
        }
    }
}

//! A connected socket, TCP or unix: the two differ in nothing that the connection's task has to know. Its halves are apart
//! because the core may write to it while the task waits for input.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::core::conn::Outlet;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// What comes in.
#[derive(Debug)]
pub(crate) enum Input {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

/// What goes out.
#[derive(Debug)]
pub(crate) enum Output {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
}

impl Stream {
    pub(crate) fn into_halves(self) -> (Input, Output) {
        match self {
            Stream::Tcp(stream) => {
                let (input, output) = stream.into_split();
                (Input::Tcp(input), Output::Tcp(output))
            }
            Stream::Unix(stream) => {
                let (input, output) = stream.into_split();
                (Input::Unix(input), Output::Unix(output))
            }
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
            Input::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl Output {
    /// Writes what the socket takes.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self {
                Output::Tcp(half) => ready!(half.as_ref().poll_write_ready(cx))?,
                Output::Unix(half) => ready!(half.as_ref().poll_write_ready(cx))?,
            }
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Tells the client that nothing more comes.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self {
            Output::Tcp(half) => socket2::SockRef::from(half.as_ref()).shutdown(Shutdown::Write),
            Output::Unix(half) => socket2::SockRef::from(half.as_ref()).shutdown(Shutdown::Write),
        }
    }
}

impl Outlet for Output {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Tcp(half) => half.try_write(bytes),
            Output::Unix(half) => half.try_write(bytes),
        }
    }
}

//! One lean connection: handshake, frames out in one write for a batch, replies in order. It keeps
//! no watches, never reconnects and never retries: in a measurement a lost connection is the end.

use std::error::Error;
use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use baton_proto::{
    ConnectRequest, ConnectResponse, ErrorCode, Limits, PASSWORD_BYTES, ReplyHeader, Request, frame,
};
use baton_tls::ClientTls;
use baton_tls::tokio_rustls::client::TlsStream;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::Result;

const READ_BUFFER_BYTES: usize = 128 * 1024;
/// Session timeout to ask for.
const SESSION_TIMEOUT_MS: i32 = 30_000;

/// A connected socket.
#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    async fn connect(addr: &str, tls: Option<&ClientTls>) -> io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls else {
            return Ok(Self::Tcp(stream));
        };
        let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = tls.connect(host, stream).await?;
        Ok(Self::Tls(Box::new(stream)))
    }

    /// Waits until something can be read, and leaves it there. With TLS only reading shows whether
    /// there is something.
    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.readable().await,
            Self::Tls(_) => Ok(()),
        }
    }

    /// Reads what is there; waits for it unless something `has_come` already, and then reads
    /// nothing if there is no more.
    async fn read(&mut self, into: &mut [u8], has_come: bool) -> io::Result<Option<usize>> {
        loop {
            let tried = match self {
                Self::Tcp(s) => s.try_read(into),
                Self::Tls(s) => {
                    let read = poll_fn(|cx| {
                        let mut buffer = ReadBuf::new(into);
                        match Pin::new(&mut *s).poll_read(cx, &mut buffer) {
                            Poll::Ready(read) => {
                                Poll::Ready(read.map(|()| Some(buffer.filled().len())))
                            }
                            Poll::Pending if has_come => Poll::Ready(Ok(None)),
                            Poll::Pending => Poll::Pending,
                        }
                    });
                    return read.await;
                }
            };
            match tried {
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                Err(e) => return Err(e),
            }
        }
    }

    async fn write_all(&mut self, mut from: &[u8]) -> io::Result<()> {
        if let Self::Tls(s) = self {
            s.write_all(from).await?;
            return s.flush().await;
        }
        while !from.is_empty() {
            let tried = match self {
                Self::Tcp(s) => s.try_write(from),
                Self::Tls(_) => break,
            };
            match tried {
                Ok(n) => from = from.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self {
                    Self::Tcp(s) => s.writable().await?,
                    Self::Tls(_) => break,
                },
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Requests encoded and not yet written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    last_xid: i32,
}

impl Outbox {
    /// Appends one request frame.
    pub(crate) fn push(&mut self, request: &Request<'_>) {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        frame::write_request(&mut self.bytes, self.last_xid, request);
    }
}

/// One reply frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply<'a> {
    /// The request's number, or a negative one for events.
    pub(crate) xid: i32,
    /// Error code, 0 for success.
    pub(crate) err: i32,
    /// The bytes after the header.
    pub(crate) body: &'a [u8],
}

/// Bytes received and not yet taken.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    fn new() -> Self {
        Self {
            bytes: vec![0; READ_BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// Room to read into; moves or grows what is there when little is left behind it.
    fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        self.bytes.get_mut(self.end..).unwrap_or_default()
    }

    /// The next whole frame's payload.
    fn frame(&mut self) -> Option<&[u8]> {
        let available = self.bytes.get(self.start..self.end)?;
        let (prefix, rest) = available.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*prefix) as usize;
        let payload = rest.get(..length)?;
        self.start += 4 + length;
        Some(payload)
    }

    /// The next whole reply, or `None` until more has arrived. A frame too short for a header is
    /// the error.
    pub(crate) fn reply(&mut self) -> std::result::Result<Option<Reply<'_>>, usize> {
        let Some(payload) = self.frame() else {
            return Ok(None);
        };
        let length = payload.len();
        let Some((header, body)) = payload.split_first_chunk::<{ ReplyHeader::BYTES }>() else {
            return Err(length);
        };
        let [x0, x1, x2, x3, .., e0, e1, e2, e3] = *header;
        Ok(Some(Reply {
            xid: i32::from_be_bytes([x0, x1, x2, x3]),
            err: i32::from_be_bytes([e0, e1, e2, e3]),
            body,
        }))
    }
}

/// A connection with a session of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The server's address, for messages.
    pub(crate) addr: String,
    /// The requests that the next [`flush`](Self::flush) sends.
    pub(crate) outbox: Outbox,
    /// The bytes that were received.
    pub(crate) inbox: Inbox,
    /// Whether some of them have been read by [`readable`](Self::readable) since the last
    /// [`fill`](Self::fill).
    has_come: bool,
    socket: Socket,
}

impl Connection {
    /// Connects and opens a session.
    pub(crate) async fn open(addr: &str, tls: Option<&ClientTls>) -> Result<Self> {
        let socket = Socket::connect(addr, tls)
            .await
            .map_err(|error| format!("cannot connect to {addr}: {error}"))?;
        let mut this = Self {
            addr: addr.to_owned(),
            outbox: Outbox::default(),
            inbox: Inbox::new(),
            has_come: false,
            socket,
        };
        let hello = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: SESSION_TIMEOUT_MS,
            session_id: 0,
            password: &[0; PASSWORD_BYTES],
            read_only: Some(false),
        };
        frame::write_connect_request(&mut this.outbox.bytes, &hello);
        this.flush().await?;
        let limits = Limits::default();
        loop {
            this.fill().await?;
            let answer = this
                .inbox
                .frame()
                .map(|bytes| ConnectResponse::decode(bytes, &limits));
            match answer {
                None => {}
                Some(Ok(answer)) if !answer.is_refused() => return Ok(this),
                Some(Ok(_)) => return Err(this.protocol("it gave no session")),
                Some(Err(error)) => return Err(this.protocol(error)),
            }
        }
    }

    /// Writes all that was pushed.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        let written = self.socket.write_all(&self.outbox.bytes).await;
        written.map_err(|e| self.lost(e))?;
        self.outbox.bytes.clear();
        Ok(())
    }

    /// Waits until something has come.
    pub(crate) async fn readable(&mut self) -> Result<()> {
        if let Socket::Tls(_) = self.socket {
            self.fill().await?;
            self.has_come = true;
            return Ok(());
        }
        self.socket.readable().await.map_err(|e| self.lost(e))
    }

    /// Reads what has arrived since the last time; waits for it if that is nothing.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        let has_come = std::mem::take(&mut self.has_come);
        let read = self.socket.read(self.inbox.room(), has_come).await;
        match read.map_err(|e| self.lost(e))? {
            Some(0) => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
            Some(n) => {
                self.inbox.end += n;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Sends one request and waits for its answer: for set-up and cleaning, not for measuring.
    pub(crate) async fn call(
        &mut self,
        request: &Request<'_>,
    ) -> Result<std::result::Result<(), ErrorCode>> {
        self.outbox.push(request);
        self.flush().await?;
        loop {
            match self.inbox.reply() {
                Ok(Some(reply)) if reply.xid > 0 => {
                    return Ok(if reply.err == 0 {
                        Ok(())
                    } else {
                        Err(ErrorCode::from_code(reply.err))
                    });
                }
                Ok(Some(_)) => {}
                Ok(None) => self.fill().await?,
                Err(length) => return Err(self.short_frame(length)),
            }
        }
    }

    /// Ends the session. The server's answer is awaited so that the session is gone when this
    /// returns.
    pub(crate) async fn close(mut self) -> Result<()> {
        self.call(&Request::CloseSession).await.map(|_| ())
    }

    fn lost(&self, error: io::Error) -> Box<dyn Error> {
        format!("{} ended the connection: {error}", self.addr).into()
    }

    /// A protocol error of this server.
    pub(crate) fn protocol(&self, what: impl Display) -> Box<dyn Error> {
        let addr = &self.addr;
        format!("{addr} does not answer as a ZooKeeper server: {what}").into()
    }

    /// The error for a reply without a whole header.
    pub(crate) fn short_frame(&self, length: usize) -> Box<dyn Error> {
        self.protocol(format!(
            "a reply of {length} bytes is shorter than its header"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox_with(bytes: &[u8]) -> Inbox {
        let mut inbox = Inbox::new();
        inbox.room()[..bytes.len()].copy_from_slice(bytes);
        inbox.end = bytes.len();
        inbox
    }

    #[test]
    fn replies_are_taken_whole() {
        let mut wire = Vec::new();
        for xid in [1i32, 2] {
            wire.extend_from_slice(&18u32.to_be_bytes());
            wire.extend_from_slice(&xid.to_be_bytes());
            wire.extend_from_slice(&[0; 8]);
            wire.extend_from_slice(&(-101i32).to_be_bytes());
            wire.extend_from_slice(b"ab");
        }
        let (whole, cut) = (wire.len(), wire.len() - 1);
        let mut inbox = inbox_with(&wire[..cut]);
        let first = inbox.reply().unwrap().unwrap();
        assert_eq!((first.xid, first.err, first.body), (1, -101, &b"ab"[..]));
        assert!(inbox.reply().unwrap().is_none());
        inbox.bytes[cut] = wire[cut];
        inbox.end = whole;
        assert_eq!(inbox.reply().unwrap().unwrap().xid, 2);
        assert!(inbox.reply().unwrap().is_none());
    }

    #[test]
    fn a_frame_larger_than_the_buffer_gets_room() {
        let mut inbox = inbox_with(&(READ_BUFFER_BYTES as u32 * 2).to_be_bytes());
        inbox.end = READ_BUFFER_BYTES;
        assert!(inbox.reply().unwrap().is_none());
        assert!(!inbox.room().is_empty());
    }

    #[test]
    fn a_reply_without_a_header_is_refused() {
        assert_eq!(inbox_with(&[0, 0, 0, 1, 9]).reply().unwrap_err(), 1);
    }
}

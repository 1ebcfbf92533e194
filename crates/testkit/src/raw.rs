//! One connection without any intelligence: it sends what it is given and shows what comes back.
//! For tests of servers, and for reading a tree without trusting the client under test. Never
//! reconnects, never pings.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use baton_proto::{
    ConnectRequest, ConnectResponse, DecodeError, Decoder, ErrorCode, Limits, OpCode, ReplyHeader,
    Request, Response, WatcherEvent, frame, xid,
};
use baton_tls::ClientTls;
use baton_tls::tokio_rustls::client::TlsStream;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Reason why a raw connection could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RawError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The bytes are not the protocol.
    #[error("the server's answer cannot be decoded: {0}")]
    Decode(DecodeError),
    /// The bytes are not even a frame.
    #[error("the server's answer is not a frame: {0}")]
    Frame(frame::FrameError),
    /// The server refused the session.
    #[error("the server refused session 0x{session_id:x}: expired, or the password is wrong")]
    SessionRefused {
        /// The session that was asked for.
        session_id: i64,
    },
    /// The reply has an error in its header.
    #[error("the server answered {0}")]
    Rejected(ErrorCode),
    /// A reply came whose xid is not the next expected.
    #[error("reply with xid {got} where {expected} is due")]
    OutOfOrder {
        /// The xid that came.
        got: i32,
        /// The xid of the oldest request without a reply.
        expected: i32,
    },
}

impl From<io::Error> for RawError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<DecodeError> for RawError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<frame::FrameError> for RawError {
    fn from(error: frame::FrameError) -> Self {
        Self::Frame(error)
    }
}

/// One reply as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawReply {
    /// Its header.
    pub header: ReplyHeader,
    /// Its body, not decoded; most often empty if the header has an error.
    pub body: Bytes,
}

/// A connection, with TLS or without.
#[derive(Debug)]
enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    async fn connect(server: SocketAddr) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(server).await?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes).await,
            Self::Tls(socket) => {
                socket.write_all(bytes).await?;
                socket.flush().await
            }
        }
    }

    async fn read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read_buf(into).await,
            Self::Tls(socket) => socket.read_buf(into).await,
        }
    }

    /// Ends the stream; with TLS by TLS's own end.
    async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.shutdown().await,
            Self::Tls(socket) => socket.shutdown().await,
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(socket) => socket.get_ref().0,
        }
    }
}

/// A raw connection with a session.
#[derive(Debug)]
pub struct RawClient {
    socket: Socket,
    inbound: BytesMut,
    limits: Limits,
    session: ConnectResponse,
    next_xid: i32,
    waiting: VecDeque<(i32, OpCode)>,
    events: VecDeque<(i64, WatcherEvent)>,
}

impl RawClient {
    /// Opens a new session.
    ///
    /// # Errors
    /// No connection, or the server does not grant a session.
    pub async fn connect(server: SocketAddr, session_timeout: Duration) -> Result<Self, RawError> {
        Self::open(server, session_timeout, 0, &[0; 16], 0).await
    }

    /// Takes up a session, as a client that saw `last_zxid_seen`.
    ///
    /// # Errors
    /// [`RawError::SessionRefused`] if the server does not have the session or the password is
    /// wrong; [`RawError::Closed`] if the server is behind `last_zxid_seen`; no connection.
    pub async fn resume(
        server: SocketAddr,
        session_timeout: Duration,
        session_id: i64,
        password: &[u8],
        last_zxid_seen: i64,
    ) -> Result<Self, RawError> {
        Self::open(
            server,
            session_timeout,
            session_id,
            password,
            last_zxid_seen,
        )
        .await
    }

    async fn open(
        server: SocketAddr,
        session_timeout: Duration,
        session_id: i64,
        password: &[u8],
        last_zxid_seen: i64,
    ) -> Result<Self, RawError> {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen,
            timeout_ms: i32::try_from(session_timeout.as_millis()).unwrap_or(i32::MAX),
            session_id,
            password,
            read_only: Some(false),
        };
        Self::handshake(server, &request).await
    }

    /// Connects with exactly this request.
    ///
    /// # Errors
    /// [`RawError::SessionRefused`]; [`RawError::Closed`] if the server does not answer it; no
    /// connection.
    pub async fn handshake(
        server: SocketAddr,
        request: &ConnectRequest<'_>,
    ) -> Result<Self, RawError> {
        let socket = Socket::connect(server).await?;
        Self::greet(Socket::Plain(socket), request).await
    }

    /// [`RawClient::handshake`] on a connection with TLS. The server's certificate must be for its
    /// address.
    ///
    /// # Errors
    /// As [`RawClient::handshake`].
    pub async fn handshake_with_tls(
        server: SocketAddr,
        tls: &ClientTls,
        request: &ConnectRequest<'_>,
    ) -> Result<Self, RawError> {
        let socket = Socket::connect(server).await?;
        let socket = tls.connect(&server.ip().to_string(), socket).await;
        let socket = socket.map_err(io::Error::other)?;
        Self::greet(Socket::Tls(Box::new(socket)), request).await
    }

    async fn greet(mut socket: Socket, request: &ConnectRequest<'_>) -> Result<Self, RawError> {
        let mut out = BytesMut::new();
        frame::write_connect_request(&mut out, request);
        socket.write_all(&out).await?;
        let limits = Limits::with_max_frame_bytes(64 << 20);
        let mut inbound = BytesMut::new();
        let body = read_frame(&mut socket, &mut inbound, &limits).await?;
        let session = ConnectResponse::decode(&body, &limits)?;
        if session.is_refused() {
            return Err(RawError::SessionRefused {
                session_id: request.session_id,
            });
        }
        Ok(Self {
            socket,
            inbound,
            limits,
            session,
            next_xid: 1,
            waiting: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Returns the server's grant.
    #[must_use]
    pub fn session(&self) -> &ConnectResponse {
        &self.session
    }

    /// Sends a request without waiting; returns its xid. Pings, credentials and setWatches get
    /// their own xids.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn send(&mut self, request: &Request<'_>) -> Result<i32, RawError> {
        let xid = match request.op() {
            OpCode::Ping => xid::PING,
            OpCode::Auth => xid::AUTH,
            OpCode::SetWatches | OpCode::SetWatches2 => xid::SET_WATCHES,
            _ => {
                self.next_xid += 1;
                self.next_xid - 1
            }
        };
        let mut out = BytesMut::new();
        frame::write_request(&mut out, xid, request);
        self.waiting.push_back((xid, request.op()));
        self.socket.write_all(&out).await?;
        Ok(xid)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), RawError> {
        Ok(self.socket.write_all(bytes).await?)
    }

    /// Sends the end of the stream; what the server still sends can be received.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn finish(&mut self) -> Result<(), RawError> {
        Ok(self.socket.shutdown().await?)
    }

    /// Resets the connection: what has not been sent is thrown away.
    pub fn reset(self) {
        // Only an earlier end keeps this from being a reset.
        let _ = self.socket.tcp().set_zero_linger();
    }

    /// Receives the next reply; events that come before it are kept for [`RawClient::next_event`].
    ///
    /// # Errors
    /// The connection ended, or what came is not a reply. An error in the header is not an error
    /// here.
    pub async fn receive(&mut self) -> Result<RawReply, RawError> {
        loop {
            let reply = self.read().await?;
            if reply.header.xid == xid::NOTIFICATION {
                self.keep_event(&reply)?;
                continue;
            }
            if self
                .waiting
                .front()
                .is_some_and(|(xid, _)| *xid == reply.header.xid)
            {
                self.waiting.pop_front();
            }
            return Ok(reply);
        }
    }

    /// Receives the reply to the oldest request that has none yet, and decodes it.
    ///
    /// # Errors
    /// [`RawError::Rejected`] with the header's error; [`RawError::OutOfOrder`] if it is another
    /// request's.
    pub async fn receive_response(&mut self) -> Result<(ReplyHeader, Response), RawError> {
        let (expected, op) = self.waiting.front().copied().unwrap_or((0, OpCode::Ping));
        let reply = self.receive().await?;
        if reply.header.xid != expected {
            return Err(RawError::OutOfOrder {
                got: reply.header.xid,
                expected,
            });
        }
        match reply.header.error() {
            ErrorCode::Ok => Ok((
                reply.header,
                Response::decode(op, &reply.body, &self.limits)?,
            )),
            code => Err(RawError::Rejected(code)),
        }
    }

    /// Sends a request and receives its reply.
    ///
    /// # Errors
    /// As [`RawClient::send`] and [`RawClient::receive_response`].
    pub async fn call(&mut self, request: &Request<'_>) -> Result<Response, RawError> {
        self.send(request).await?;
        self.receive_response().await.map(|(_, response)| response)
    }

    /// The next watch event and the zxid in its header; waits for one if none was kept.
    ///
    /// # Errors
    /// The connection ended, or a reply came instead of an event.
    pub async fn next_event(&mut self) -> Result<(i64, WatcherEvent), RawError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let reply = self.read().await?;
            if reply.header.xid != xid::NOTIFICATION {
                return Err(RawError::OutOfOrder {
                    got: reply.header.xid,
                    expected: xid::NOTIFICATION,
                });
            }
            self.keep_event(&reply)?;
        }
    }

    /// The events that came before some reply and were not asked for yet.
    pub fn take_events(&mut self) -> Vec<(i64, WatcherEvent)> {
        self.events.drain(..).collect()
    }

    /// Closes the session and waits for the server's answer: its ephemerals are gone then.
    ///
    /// # Errors
    /// The connection ended first.
    pub async fn close(mut self) -> Result<(), RawError> {
        self.call(&Request::CloseSession).await.map(|_| ())
    }

    fn keep_event(&mut self, reply: &RawReply) -> Result<(), RawError> {
        let event = WatcherEvent::decode(&mut Decoder::new(&reply.body, &self.limits))?;
        self.events.push_back((reply.header.zxid, event));
        Ok(())
    }

    async fn read(&mut self) -> Result<RawReply, RawError> {
        let body = read_frame(&mut self.socket, &mut self.inbound, &self.limits).await?;
        let mut from = Decoder::new(&body, &self.limits);
        let header = ReplyHeader::decode(&mut from)?;
        Ok(RawReply {
            header,
            body: body.slice(from.offset()..),
        })
    }
}

async fn read_frame(
    socket: &mut Socket,
    inbound: &mut BytesMut,
    limits: &Limits,
) -> Result<Bytes, RawError> {
    loop {
        if let Some(body) = frame::split_frame(inbound, limits.max_frame_bytes)? {
            return Ok(body);
        }
        if socket.read_buf(inbound).await? == 0 {
            return Err(RawError::Closed);
        }
    }
}

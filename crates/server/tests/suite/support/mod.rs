//! A client that sends exactly the frames it is given, for the server's own tests.
#![allow(dead_code)]

pub mod ensemble;
pub mod gate;
pub mod http;
pub mod log;
pub mod relay;
pub mod tls;

use std::time::Duration;

use baton_proto::{
    ConnectRequest, ConnectResponse, Create, CreateOp, Decoder, ErrorCode, EventKind, Limits,
    OpCode, ReplyHeader, Request, Response, WatcherEvent, frame, xid,
};
use baton_server::{Builder, Server};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Longer than anything here takes, also on a machine with far too much work; a test that waits
/// longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn in_memory() -> Builder {
    Server::builder().in_memory().listen("127.0.0.1:0")
}

pub async fn start() -> Server {
    in_memory().start().await.unwrap()
}

/// A server that answers every four-letter word.
pub fn with_words() -> Builder {
    in_memory().with(|options| options.four_letter_words = vec!["*".to_owned()])
}

trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

pub struct Wire {
    socket: Box<dyn Socket>,
    input: BytesMut,
    next_xid: i32,
    pub session: ConnectResponse,
}

/// A frame from the server.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Reply(ReplyHeader, Bytes),
    Event(i64, WatcherEvent),
}

impl Frame {
    pub fn event(kind: EventKind, path: &str) -> impl Fn(&Frame) -> bool {
        move |frame| matches!(frame, Frame::Event(_, event) if event.kind == kind && event.path == path)
    }
}

pub fn no_session() -> ConnectRequest<'static> {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 40_000,
        session_id: 0,
        password: &[0; 16],
        read_only: Some(false),
    }
}

impl Wire {
    async fn socket(to: &str) -> Box<dyn Socket> {
        match to.strip_prefix("unix:") {
            Some(path) => Box::new(UnixStream::connect(path).await.unwrap()),
            None => {
                let socket = TcpStream::connect(to).await.unwrap();
                socket.set_nodelay(true).unwrap();
                Box::new(socket)
            }
        }
    }

    /// A socket that has said nothing.
    pub async fn silent(to: &str) -> Wire {
        Wire {
            socket: Wire::socket(to).await,
            input: BytesMut::new(),
            next_xid: 1,
            session: ConnectResponse::refused(None),
        }
    }

    pub async fn open(to: &str) -> Wire {
        Wire::open_with(to, &no_session()).await.unwrap()
    }

    /// `None`: the server closed the connection without an answer.
    pub async fn open_with(to: &str, request: &ConnectRequest<'_>) -> Option<Wire> {
        Wire::silent(to).await.ask_for_session(request).await
    }

    /// A session over this stream. `None`: the server closed it without an answer.
    pub async fn open_on(
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Option<Wire> {
        Wire::ask_on(socket, &no_session()).await
    }

    /// Sends this request like [`Wire::open_on`].
    pub async fn ask_on(
        socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: &ConnectRequest<'_>,
    ) -> Option<Wire> {
        let wire = Wire {
            socket: Box::new(socket),
            input: BytesMut::new(),
            next_xid: 1,
            session: ConnectResponse::refused(None),
        };
        wire.ask_for_session(request).await
    }

    async fn ask_for_session(self, request: &ConnectRequest<'_>) -> Option<Wire> {
        let mut wire = self;
        let mut bytes = Vec::new();
        frame::write_connect_request(&mut bytes, request);
        wire.try_send_bytes(&bytes).await.ok()?;
        let frame = wire.next_bytes().await?;
        wire.session = ConnectResponse::decode(&frame, &Limits::default()).unwrap();
        Some(wire)
    }

    pub async fn resume(to: &str, old: &ConnectResponse, last_zxid_seen: i64) -> Option<Wire> {
        let request = ConnectRequest {
            last_zxid_seen,
            session_id: old.session_id,
            password: &old.password,
            timeout_ms: old.timeout_ms,
            ..no_session()
        };
        Wire::open_with(to, &request).await
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
        self.socket.flush().await.unwrap();
    }

    pub async fn try_send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes).await?;
        self.socket.flush().await
    }

    /// Sends requests in one write; returns the xid of the first.
    pub async fn send(&mut self, requests: &[Request<'_>]) -> i32 {
        let first = self.next_xid;
        let mut bytes = Vec::new();
        for request in requests {
            let xid = match request {
                Request::Ping => xid::PING,
                Request::Auth(_) => xid::AUTH,
                Request::SetWatches { .. } | Request::SetWatches2 { .. } => xid::SET_WATCHES,
                _ => {
                    self.next_xid += 1;
                    self.next_xid - 1
                }
            };
            frame::write_request(&mut bytes, xid, request);
        }
        self.send_bytes(&bytes).await;
        first
    }

    /// The next frame's bytes; `None` when the server has closed the connection.
    pub async fn next_bytes(&mut self) -> Option<Bytes> {
        tokio::time::timeout(PATIENCE, async {
            loop {
                if let Some(frame) = frame::split_frame(&mut self.input, usize::MAX).unwrap() {
                    return Some(frame);
                }
                match self.socket.read_buf(&mut self.input).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        })
        .await
        .expect("the server answers")
    }

    pub async fn next(&mut self) -> Option<Frame> {
        let bytes = self.next_bytes().await?;
        let limits = Limits::default();
        let mut decoder = Decoder::new(&bytes, &limits);
        let header = ReplyHeader::decode(&mut decoder).unwrap();
        if header.xid == xid::NOTIFICATION {
            return Some(Frame::Event(
                header.zxid,
                WatcherEvent::decode(&mut decoder).unwrap(),
            ));
        }
        Some(Frame::Reply(header, bytes.slice(ReplyHeader::BYTES..)))
    }

    pub async fn reply(&mut self) -> (ReplyHeader, Bytes) {
        match self.next().await {
            Some(Frame::Reply(header, body)) => (header, body),
            other => panic!("a reply is due, not {other:?}"),
        }
    }

    pub async fn event(&mut self) -> WatcherEvent {
        match self.next().await {
            Some(Frame::Event(_, event)) => event,
            other => panic!("an event is due, not {other:?}"),
        }
    }

    /// One request and its reply; events in between are a failure.
    pub async fn call(&mut self, request: Request<'_>) -> Result<Response, ErrorCode> {
        let op = request.op();
        self.send(&[request]).await;
        let (header, body) = self.reply().await;
        decode(op, header, &body)
    }

    pub async fn create(
        &mut self,
        path: &str,
        data: &[u8],
        flags: i32,
    ) -> Result<Response, ErrorCode> {
        self.call(create(path, data, flags)).await
    }

    pub async fn get(&mut self, path: &str) -> Result<Vec<u8>, ErrorCode> {
        match self.call(Request::GetData { path, watch: false }).await? {
            Response::Data { data, .. } => Ok(data.unwrap_or_default().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    pub async fn exists(&mut self, path: &str) -> bool {
        self.call(Request::Exists { path, watch: false })
            .await
            .is_ok()
    }

    /// Everything the server sends until it closes the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut all = self.input.to_vec();
        let read = self.socket.read_to_end(&mut all);
        let _ = tokio::time::timeout(PATIENCE, read)
            .await
            .expect("the server closes the connection");
        all
    }

    pub async fn is_closed(&mut self) -> bool {
        self.next_bytes().await.is_none()
    }
}

pub fn decode(op: OpCode, header: ReplyHeader, body: &Bytes) -> Result<Response, ErrorCode> {
    match header.error() {
        ErrorCode::Ok => Ok(Response::decode(op, body, &Limits::default()).unwrap()),
        code => Err(code),
    }
}

pub fn create<'a>(path: &'a str, data: &'a [u8], flags: i32) -> Request<'a> {
    Request::Create(Create {
        op: CreateOp::Create,
        path,
        data: Some(data),
        acl: Some(vec![baton_proto::Acl::open_unsafe()]),
        flags,
        ttl_ms: 0,
    })
}

pub fn set<'a>(path: &'a str, data: &'a [u8]) -> Request<'a> {
    Request::SetData {
        path,
        data: Some(data),
        version: -1,
    }
}

pub fn get(path: &str) -> Request<'_> {
    Request::GetData { path, watch: false }
}

pub fn watched(path: &str) -> Request<'_> {
    Request::GetData { path, watch: true }
}

/// Returns the answer to the four-letter word.
pub async fn word(to: &str, word: &str) -> String {
    let mut wire = Wire::silent(to).await;
    wire.send_bytes(word.as_bytes()).await;
    String::from_utf8(wire.rest().await).unwrap()
}

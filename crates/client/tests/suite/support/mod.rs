//! A server that does what a test asks of it, over an in-memory transport, on a clock that the test
//! moves.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::sync::Arc;
use std::time::Duration;

use baton_client::testing::{DuplexListener, DuplexTransport, VirtualClock};
use baton_client::{BoxStream, Config, LeaseMode, LeaseOptions, Session, Stream};
use baton_proto::{
    ConnectRequest, ConnectResponse, Decoder, ErrorCode, EventKind, Limits, OpCode, ReplyHeader,
    Request, RequestHeader, Response, Stat, frame,
};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub const T: Duration = Duration::from_secs(4);
pub const TICK: Duration = Duration::from_secs(1);
pub const SESSION: i64 = 0x77;
/// Time that a peer waits for the client, by the test's clock: one that never does what is due
/// fails the test.
const PATIENCE: Duration = Duration::from_secs(300);

/// The world of one test.
pub struct FakeServers {
    pub clock: VirtualClock,
    pub transport: DuplexTransport,
    pub listener: DuplexListener,
}

impl FakeServers {
    pub fn new() -> Self {
        Self::with_buffer(1 << 20)
    }

    pub fn with_buffer(bytes: usize) -> Self {
        let (transport, listener) = DuplexTransport::new(bytes);
        Self {
            clock: VirtualClock::new(),
            transport,
            listener,
        }
    }

    pub fn config(&self) -> Config {
        self.configured(Config::new("server:1").unwrap())
    }

    /// The configuration with the clock and the transport of this world.
    pub fn configured(&self, config: Config) -> Config {
        config
            .session_timeout(T)
            .lease(LeaseOptions {
                tick: Some(TICK),
                mode: LeaseMode::Auto,
                ..LeaseOptions::default()
            })
            .runtime(tokio::runtime::Handle::current())
            .clock(Arc::new(self.clock.clone()))
            .transport(Arc::new(self.transport.clone()))
    }

    /// A session and the server's end of its first connection.
    pub async fn session(&mut self) -> (Session, Peer) {
        self.session_with(self.config()).await
    }

    pub async fn session_with(&mut self, config: Config) -> (Session, Peer) {
        let connect = tokio::spawn(Session::connect(config));
        let peer = self.accept(SESSION).await;
        (connect.await.unwrap().unwrap(), peer)
    }

    /// Accepts a connection and its session.
    pub async fn accept(&mut self, id: i64) -> Peer {
        let mut peer = self.accept_raw().await;
        peer.open(id).await;
        peer
    }

    pub async fn accept_raw(&mut self) -> Peer {
        Peer::new(self.accept_stream().await)
    }

    pub async fn accept_stream(&mut self) -> DuplexStream {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        accepted.expect("the client connects").unwrap()
    }
}

/// The server's end of one connection.
pub struct Peer {
    pub stream: BoxStream,
    pub buffer: BytesMut,
    pub zxid: i64,
    pub last_zxid_seen: i64,
    /// Whether the probe is answered as Baton's server does.
    pub baton: bool,
    /// Whether it is answered as a server of Baton's ensemble does.
    pub member: bool,
}

/// A request as it came in.
#[derive(Debug)]
pub struct ReceivedRequest {
    pub xid: i32,
    pub op: OpCode,
    pub body: Bytes,
}

impl ReceivedRequest {
    pub fn request(&self) -> Request<'_> {
        Request::decode(self.op, &self.body, &Limits::default()).unwrap()
    }

    pub fn path(&self) -> String {
        self.request().path().unwrap_or_default().to_owned()
    }
}

impl Peer {
    pub fn new(stream: impl Stream) -> Self {
        Self {
            stream: Box::new(stream),
            buffer: BytesMut::new(),
            zxid: 100,
            last_zxid_seen: 0,
            baton: false,
            member: false,
        }
    }

    /// Gives the client the session that it asks for.
    pub async fn open(&mut self, id: i64) {
        let hello = self.frame().await.expect("a handshake");
        let limits = Limits::default();
        let request = ConnectRequest::decode(&hello, &limits).unwrap();
        self.last_zxid_seen = request.last_zxid_seen;
        assert!(
            request.session_id == 0 || request.session_id == id,
            "asks for its own session"
        );
        self.answer_hello(id).await;
    }

    pub async fn answer_hello(&mut self, id: i64) {
        let response = if id == 0 {
            ConnectResponse::refused(Some(false))
        } else {
            ConnectResponse {
                protocol_version: 0,
                timeout_ms: i32::try_from(T.as_millis()).unwrap(),
                session_id: id,
                password: [7; 16],
                read_only: Some(false),
            }
        };
        let mut out = Vec::new();
        frame::write_connect_response(&mut out, &response);
        self.stream.write_all(&out).await.unwrap();
    }

    /// One frame, or `None` when the client has gone.
    pub async fn frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = frame::split_frame(&mut self.buffer, 1 << 24).unwrap() {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The next request of any kind.
    pub async fn any(&mut self) -> Option<ReceivedRequest> {
        let body = self.frame().await?;
        let limits = Limits::default();
        let header = RequestHeader::decode(&mut Decoder::new(&body, &limits)).unwrap();
        let op = OpCode::try_from(header.op).unwrap();
        Some(ReceivedRequest {
            xid: header.xid,
            op,
            body: body.slice(RequestHeader::BYTES..),
        })
    }

    /// The next ping, unanswered.
    pub async fn ping(&mut self) -> ReceivedRequest {
        let ping = tokio::time::timeout(PATIENCE, self.any()).await;
        let ping = ping.expect("a ping is due").expect("the client is there");
        assert_eq!(ping.op, OpCode::Ping);
        ping
    }

    /// The next request that is neither a ping nor the client's probe, which are answered.
    pub async fn next(&mut self) -> Option<ReceivedRequest> {
        loop {
            let asked = self.any().await?;
            if asked.op == OpCode::Ping {
                self.ok(&asked, None).await;
            } else if asked.op == OpCode::GetData && asked.path() == "/zookeeper/baton" {
                self.answer_probe(&asked).await;
            } else {
                return Some(asked);
            }
        }
    }

    pub async fn answer_probe(&mut self, asked: &ReceivedRequest) {
        if self.baton || self.member {
            let data = Some(Bytes::from_static(match self.member {
                true => b"{\"version\":\"1\", \"ping_lease\": false, \"lease\": \"ping\"}",
                false => b"{\"version\":\"1\", \"ping_lease\": true}",
            }));
            self.ok(
                asked,
                Some(Response::Data {
                    data,
                    stat: Stat::default(),
                }),
            )
            .await;
        } else {
            self.refuse(asked, ErrorCode::NoNode).await;
        }
    }

    /// The next request, which must be `op`.
    pub async fn expect(&mut self, op: OpCode) -> ReceivedRequest {
        let asked = tokio::time::timeout(PATIENCE, self.next()).await;
        let asked = asked.unwrap_or_else(|_| panic!("no {op} within {PATIENCE:?}"));
        let asked = asked.expect("the client is there");
        assert_eq!(asked.op, op, "{asked:?}");
        asked
    }

    /// Answers pings and the probe until the client goes, and returns what else came.
    pub async fn until_gone(&mut self) -> Vec<ReceivedRequest> {
        let mut all = Vec::new();
        while let Some(asked) = self.next().await {
            all.push(asked);
        }
        all
    }

    pub async fn ok(&mut self, asked: &ReceivedRequest, response: Option<Response>) {
        self.zxid += i64::from(asked.op.is_write());
        self.reply(asked.xid, 0, response).await;
    }

    /// Answers a read of data: there is none.
    pub async fn no_data(&mut self, asked: &ReceivedRequest, stat: Stat) {
        self.ok(asked, Some(Response::Data { data: None, stat }))
            .await;
    }

    pub async fn refuse(&mut self, asked: &ReceivedRequest, code: ErrorCode) {
        self.reply(asked.xid, code.code(), None).await;
    }

    pub async fn reply(&mut self, xid: i32, err: i32, response: Option<Response>) {
        let mut out = Vec::new();
        frame::write_reply(
            &mut out,
            ReplyHeader {
                xid,
                zxid: self.zxid,
                err,
            },
            response.as_ref(),
        );
        // The client may have cut the connection by itself.
        let _ = self.stream.write_all(&out).await;
        let _ = self.stream.flush().await;
    }

    /// An event of a server that does not say which change it was.
    pub async fn event(&mut self, kind: EventKind, path: &str) {
        self.event_of(-1, kind, path).await;
    }

    /// An event of the change with this zxid.
    pub async fn event_of(&mut self, zxid: i64, kind: EventKind, path: &str) {
        let mut out = Vec::new();
        frame::write_event(&mut out, zxid, kind, path);
        let _ = self.stream.write_all(&out).await;
    }

    /// Answers the client's first request, its probe.
    pub async fn answer_next_probe(&mut self) {
        let probe = self.any().await.unwrap();
        self.answer_probe(&probe).await;
        settle().await;
    }
}

pub fn stat(czxid: i64, owner: i64) -> Stat {
    Stat {
        czxid,
        ephemeral_owner: owner,
        ..Stat::default()
    }
}

/// Lets every task run until all wait for time or for each other.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

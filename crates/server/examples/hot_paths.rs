//! Takes one path of a request a number of times: `hot_paths PATH TIMES`. `cargo xtask
//! instructions` counts the instructions that it takes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use std::hint::black_box;
use std::io;
use std::sync::Arc;

use baton_proto::{
    Acl, ConnectRequest, Create, CreateMode, Decoder, Limits, OpCode, ReplyHeader, Request,
    RequestHeader, Response, Stat, frame,
};
use baton_server::simulation::{MemoryOutput, SimulatedClocks, SimulatedServer};
use baton_server::{MemoryStorage, Options};
use baton_tree::{Command, Identity, Tree};
use baton_wal::{Entry, Record, Wal, WalOptions};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const PATH: &str = "/parent/node-0000000001";
const VALUE: [u8; 100] = [7; 100];
const SESSION: i64 = 1;
/// Connections that watch what is changed.
const WATCHERS: usize = 100;

fn main() {
    let [path, times] = [1, 2].map(|at| std::env::args().nth(at).expect("PATH TIMES"));
    let times = times.parse().expect("a number");
    match &*path {
        "decode" => decode(times),
        "apply" => apply(times),
        "append" => append(times),
        "encode" => encode(times),
        "set" => requests(times, 0, &set()),
        "get" => requests(times, 0, &get(false)),
        "watched set" => requests(times, WATCHERS, &set()),
        _ => panic!("no path {path}"),
    }
}

fn set() -> Request<'static> {
    Request::SetData {
        path: PATH,
        data: Some(&VALUE),
        version: -1,
    }
}

fn get(watch: bool) -> Request<'static> {
    Request::GetData { path: PATH, watch }
}

fn creates() -> [Request<'static>; 2] {
    ["/parent", PATH].map(|path| {
        let acl = vec![Acl::open_unsafe()];
        Request::Create(Create::new(path, Some(&VALUE), acl, CreateMode::Persistent))
    })
}

/// A request's frame, from the bytes of a socket to its fields.
fn decode(times: usize) {
    let mut bytes = Vec::new();
    frame::write_request(&mut bytes, 1, &set());
    let limits = Limits::default();
    let mut buffer = BytesMut::with_capacity(bytes.len());
    for _ in 0..times {
        buffer.extend_from_slice(&bytes);
        let request = frame::split_frame(&mut buffer, 1 << 20).unwrap().unwrap();
        let mut decoder = Decoder::new(&request, &limits);
        let header = RequestHeader::decode(&mut decoder).unwrap();
        black_box(Request::decode(OpCode::SetData, decoder.rest(), &limits).unwrap());
        black_box(header);
    }
}

/// A write, decided and applied.
fn apply(times: usize) {
    let identity = Identity::from_ip("127.0.0.1".parse().unwrap());
    let mut tree = Tree::seeded(1);
    let mut apply = |command: Command<'_>| {
        let outcome = tree.apply(1, SESSION, &identity, command, &mut ());
        assert!(outcome.result.is_ok());
    };
    apply(Command::OpenSession {
        session_id: SESSION,
        password: [7; 16],
        timeout_ms: 10_000,
    });
    let mut body = Vec::new();
    for create in creates() {
        body.clear();
        create.encode(&mut body);
        let op = create.op();
        apply(Command::Write { op, body: &body });
    }
    body.clear();
    set().encode(&mut body);
    for _ in 0..times {
        let op = OpCode::SetData;
        apply(Command::Write { op, body: &body });
    }
}

/// A log entry, written.
fn append(times: usize) {
    let (mut wal, _) = Wal::open(Arc::new(MemoryStorage::new()), WalOptions::default()).unwrap();
    let payload = Bytes::from_static(&[7; 200]);
    for index in 1..=times as u64 {
        let payload = payload.clone();
        let entry = Entry {
            index,
            term: 1,
            kind: 1,
            payload,
        };
        wal.append(&[Record::Entry(entry)]).unwrap();
    }
}

/// The reply to a read, as bytes for a socket.
fn encode(times: usize) {
    let response = Response::Data {
        data: Some(Bytes::from_static(&VALUE)),
        stat: Stat::default(),
    };
    let header = ReplyHeader {
        xid: 1,
        zxid: 1,
        err: 0,
    };
    let mut out = Vec::with_capacity(1024);
    for _ in 0..times {
        out.clear();
        frame::write_reply(&mut out, header, Some(&response));
        black_box(&out);
    }
}

/// Bytes that the server writes to a connection.
#[derive(Debug)]
struct Output(UnboundedSender<Vec<u8>>);

impl MemoryOutput for Output {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn shutdown(&self) {}
}

struct Connection {
    requests: DuplexStream,
    answers: UnboundedReceiver<Vec<u8>>,
}

impl Connection {
    async fn open(server: &SimulatedServer) -> Self {
        let (requests, input) = tokio::io::duplex(4096);
        let (output, answers) = unbounded_channel();
        server.serve(input, Output(output));
        let mut connection = Self { requests, answers };
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 30_000,
            session_id: 0,
            password: &[0; 16],
            read_only: Some(false),
        };
        let mut out = Vec::new();
        frame::write_connect_request(&mut out, &request);
        connection.requests.write_all(&out).await.unwrap();
        connection.answers.recv().await.unwrap();
        connection
    }

    async fn call(&mut self, request: &Request<'_>) {
        let mut out = Vec::new();
        frame::write_request(&mut out, 1, request);
        self.requests.write_all(&out).await.unwrap();
        self.answers.recv().await.unwrap();
    }
}

/// A request and its answer through the whole server but its sockets and its disk, beside these
/// connections that watch the node before each.
fn requests(times: usize, watchers: usize, request: &Request<'_>) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let storage = Arc::new(MemoryStorage::new());
        let clocks = SimulatedClocks::at(1_700_000_000_000);
        let server = SimulatedServer::start(Options::default(), storage, clocks).unwrap();
        let mut client = Connection::open(&server).await;
        for create in creates() {
            client.call(&create).await;
        }
        let mut watching = Vec::new();
        for _ in 0..watchers {
            watching.push(Connection::open(&server).await);
        }
        for _ in 0..times {
            for watcher in &mut watching {
                watcher.call(&get(true)).await;
            }
            client.call(request).await;
            for watcher in &mut watching {
                watcher.answers.recv().await.unwrap();
            }
        }
    });
}

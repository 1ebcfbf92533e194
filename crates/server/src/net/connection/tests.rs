//! The task of a connection on a server of an ensemble. The test is the core.

use std::collections::BTreeMap;

use baton_proto::{
    ConnectResponse, Decoder, OpCode, PASSWORD_BYTES, ReplyHeader, Request, Response, frame, xid,
};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::unanswered::READS_BEHIND;
use super::*;
use crate::connections::conn::Attached;
use crate::connections::inbox::{Kind, Work};
use crate::connections::peer::Peer;
use crate::connections::touch::Touch;
use crate::options::{EnsembleOptions, Options};
use crate::state::ensemble_status::EnsembleStatus;

const SESSION: i64 = 7;

/// A client's end of a connection to a server of an ensemble, and the server's state.
struct Stage {
    state: Arc<ServerState>,
    conn: Arc<Conn>,
    client: UnixStream,
}

impl Stage {
    /// With its session attached.
    async fn new() -> Self {
        Self::with(Options::default()).await
    }

    async fn with(options: Options) -> Self {
        let mut state = crate::state::tests::state(options);
        let ensemble = EnsembleOptions {
            servers: BTreeMap::from([(1, "localhost:1".to_owned())]),
            ..EnsembleOptions::default()
        };
        let status = EnsembleStatus::new(1, &ensemble);
        Arc::get_mut(&mut state).unwrap().ensemble = Some(Mutex::new(status));
        let conn = state.open(Peer::Local).unwrap();
        let (client, server) = UnixStream::pair().unwrap();
        let stream = Stream::Unix(server);
        let deadline = tokio::time::Instant::now() + state.options.handshake_timeout;
        let mut connection = Connection::new(Arc::clone(&state), Arc::clone(&conn), stream);
        tokio::spawn(async move { connection.serve(deadline).await });
        let mut stage = Self {
            state,
            conn,
            client,
        };
        let password = [7; PASSWORD_BYTES];
        let mut hello = Vec::new();
        let request = baton_proto::ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 4000,
            session_id: SESSION,
            password: &password,
            read_only: None,
        };
        frame::write_connect_request(&mut hello, &request);
        stage.client.write_all(&hello).await.unwrap();
        assert_eq!(stage.handed_in(1).await.len(), 1);
        stage.conn.attach(Attached {
            session: SESSION,
            timeout_ms: 4000,
            touch: Touch::new(0),
            nonce: None,
            last_sequence: 0.into(),
            is_read_only: false,
            stored_identity: Default::default(),
        });
        let response = ConnectResponse {
            protocol_version: 0,
            timeout_ms: 4000,
            session_id: SESSION,
            password,
            read_only: None,
        };
        stage.answer(|conn, wake| {
            conn.push(1, wake, |out| {
                frame::write_connect_response(out, &response);
            });
        });
        stage.read_frame().await;
        stage
    }

    async fn ask(&mut self, xid: i32, request: &Request<'_>) {
        let mut out = Vec::new();
        frame::write_request(&mut out, xid, request);
        self.client.write_all(&out).await.unwrap();
    }

    async fn read_frame(&mut self) -> Vec<u8> {
        let length = self.client.read_u32().await.unwrap();
        let mut frame = vec![0; length as usize];
        self.client.read_exact(&mut frame).await.unwrap();
        frame
    }

    /// The header of the next reply.
    async fn reply(&mut self) -> ReplyHeader {
        let frame = self.read_frame().await;
        ReplyHeader::decode(&mut Decoder::new(&frame, &self.state.limits)).unwrap()
    }

    /// The next `count` requests that the task hands to the core.
    async fn handed_in(&self, count: usize) -> Vec<Kind> {
        let mut kinds = Vec::new();
        let mut work = Work::default();
        while kinds.len() < count {
            self.state.inbox.take(&mut work);
            kinds.extend(work.requests.iter().map(|request| request.kind));
            tokio::task::yield_now().await;
        }
        self.state.inbox.take(&mut work);
        kinds
    }

    fn answer(&self, push: impl FnOnce(&Arc<Conn>, &mut Vec<Arc<Conn>>)) {
        let mut wake = Vec::new();
        push(&self.conn, &mut wake);
        for conn in wake {
            conn.wake(false);
        }
    }
}

const READ: Request<'static> = Request::Exists {
    path: "/nothing",
    watch: false,
};

#[tokio::test]
async fn r33_a_ping_goes_to_the_core_and_reads_do_not_wait_for_it() {
    let mut stage = Stage::new().await;
    for _ in 0..2 {
        stage.ask(xid::PING, &Request::Ping).await;
        assert_eq!(stage.handed_in(1).await, [Kind::Ping]);
    }
    // As many as may wait behind a write, and one more.
    for xid in 0..=i32::try_from(READS_BEHIND).unwrap() {
        stage.ask(xid, &READ).await;
        assert_eq!(stage.reply().await.xid, xid, "answered at once");
    }
    stage.answer(|conn, wake| conn.push_pongs(2, 3, wake));
    for _ in 0..2 {
        let pong = stage.reply().await;
        assert_eq!((pong.xid, pong.zxid, pong.err), (xid::PING, 3, 0));
    }
}

#[tokio::test]
async fn a_read_behind_a_write_waits_for_it_though_a_ping_is_answered_before() {
    let mut stage = Stage::new().await;
    stage.ask(1, &Request::Sync { path: "/" }).await;
    assert_eq!(stage.handed_in(1).await, [Kind::Write(OpCode::Sync)]);
    stage.ask(xid::PING, &Request::Ping).await;
    stage.ask(2, &READ).await;
    let handed_in = stage.handed_in(2).await;
    assert_eq!(handed_in, [Kind::Ping, Kind::Read(OpCode::Exists)]);
    stage.answer(|conn, wake| conn.push_pongs(1, 0, wake));
    assert_eq!(stage.reply().await.xid, xid::PING);
    stage.ask(3, &READ).await;
    assert_eq!(stage.handed_in(1).await, [Kind::Read(OpCode::Exists)]);
    let reply = |xid| ReplyHeader {
        xid,
        zxid: 0,
        err: 0,
    };
    stage.answer(|conn, wake| {
        conn.push(1, wake, |out| {
            frame::write_reply(out, reply(1), Some(&Response::Path("/".to_owned())));
        });
        for xid in [2, 3] {
            conn.push(1, wake, |out| {
                frame::write_reply(out, reply(xid), None);
            });
        }
    });
    for xid in [1, 2, 3] {
        assert_eq!(stage.reply().await.xid, xid);
    }
    stage.ask(4, &READ).await;
    assert_eq!(stage.reply().await.xid, 4, "nothing is in flight");
}

/// The core answers a ping after the task has looked for answers, and before a read is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::await_holding_lock, reason = "the task is to wait for it")]
async fn a_pong_that_arrives_while_a_read_is_answered_is_not_in_flight_any_more() {
    const MOST: i32 = 3;
    let mut stage = Stage::with(Options {
        max_requests_in_flight: MOST as usize,
        ..Options::default()
    })
    .await;
    for xid in 1..MOST {
        stage.ask(xid::PING, &Request::Ping).await;
        assert_eq!(stage.handed_in(1).await, [Kind::Ping]);
        let state = Arc::clone(&stage.state);
        let tree = state.tree.write();
        stage.ask(xid, &READ).await;
        // It has taken the read on, and waits for the tree.
        while stage.conn.stats.last_cxid.load(Relaxed) != xid as u64 {
            tokio::task::yield_now().await;
        }
        stage.answer(|conn, wake| conn.push_pongs(1, 0, wake));
        drop(tree);
        assert_eq!(stage.reply().await.xid, xid::PING);
        assert_eq!(stage.reply().await.xid, xid);
    }
    // Both pongs have arrived: there is room for a ping and a read.
    stage.ask(xid::PING, &Request::Ping).await;
    assert_eq!(stage.handed_in(1).await, [Kind::Ping]);
    stage.ask(MOST, &READ).await;
    let reply = tokio::time::timeout(std::time::Duration::from_secs(60), stage.reply());
    let reply = reply.await.expect("the read does not wait for the ping");
    assert_eq!(reply.xid, MOST);
}

#[tokio::test]
async fn a_read_in_slices_waits_for_earlier_requests_in_the_task_and_not_in_the_core() {
    let mut stage = Stage::new().await;
    let read = baton_proto::MultiOp::GetData {
        path: "/",
        watch: false,
    };
    let reads = Request::MultiRead(vec![read; 3]);
    stage.ask(1, &Request::Sync { path: "/" }).await;
    stage.ask(2, &reads).await;
    stage.ask(3, &READ).await;
    assert_eq!(stage.handed_in(1).await, [Kind::Write(OpCode::Sync)]);
    let reply = ReplyHeader {
        xid: 1,
        zxid: 0,
        err: 0,
    };
    stage.answer(|conn, wake| {
        conn.push(1, wake, |out| {
            frame::write_reply(out, reply, Some(&Response::Path("/".to_owned())));
        });
    });
    for xid in [1, 2, 3] {
        assert_eq!(stage.reply().await.xid, xid);
    }
    assert_eq!(
        stage.handed_in(0).await,
        [],
        "nothing else came to the core"
    );
}

#[tokio::test]
async fn pings_that_are_not_answered_count_as_requests_in_flight() {
    let mut stage = Stage::new().await;
    let most = stage.state.options.max_requests_in_flight;
    for _ in 0..most {
        stage.ask(xid::PING, &Request::Ping).await;
    }
    assert!(
        stage
            .handed_in(most)
            .await
            .iter()
            .all(|kind| *kind == Kind::Ping)
    );
    stage.ask(1, &READ).await;
    stage.answer(|conn, wake| conn.push_pongs(1, 0, wake));
    assert_eq!(stage.reply().await.xid, xid::PING, "it comes first");
    assert_eq!(stage.reply().await.xid, 1);
}

#[tokio::test]
async fn credentials_use_the_turn_up_and_known_ones_copy_no_names() {
    const PACKETS: usize = 1000;
    let mut stage = Stage::new().await;
    let packet = Request::Auth(baton_proto::AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(b"user:password"),
    });
    stage.ask(xid::AUTH, &packet).await;
    assert_eq!(stage.reply().await.err, 0);
    let before = stage.conn.identity();
    let mut out = Vec::new();
    for _ in 0..PACKETS {
        frame::write_request(&mut out, xid::AUTH, &packet);
    }
    stage.client.write_all(&out).await.unwrap();
    // One thread: what is read between two turns of this task was answered in one of the other.
    const REPLY_BYTES: usize = 20;
    let mut answered = 0;
    let mut buffer = vec![0; PACKETS * REPLY_BYTES];
    while answered < PACKETS * REPLY_BYTES {
        tokio::task::yield_now().await;
        let Ok(bytes) = stage.client.try_read(&mut buffer) else {
            continue;
        };
        assert!(bytes <= 64 * REPLY_BYTES, "{bytes} bytes in one turn");
        answered += bytes;
    }
    assert!(Arc::ptr_eq(&before, &stage.conn.identity()));
}

//! Clients with TLS: what they may do, how the server knows them, and what goes wrong.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use baton_proto::{
    Acl, AuthPacket, ConnectRequest, ConnectResponse, Create, CreateOp, ErrorCode, EventKind,
    Perms, Request,
};
use baton_server::{ClientAuth, Server, StartError};
use baton_tls::rustls::ClientConfig;
use rcgen::date_time_ymd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::support::ensemble::Ensemble;
use crate::support::tls::{Fleet, Pair, SOON, connect, open};
use crate::support::{Frame, PATIENCE, Wire, get, http, no_session, set, watched, word};

fn secure(server: &Server) -> SocketAddr {
    server.secure_addrs()[0]
}

async fn get_over_tls(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
    path: &str,
) -> io::Result<String> {
    let mut stream = connect(to, config).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8(answer).unwrap())
}

/// Creates a znode that nobody but its creator may read.
async fn create_private(wire: &mut Wire, path: &str) -> Result<(), ErrorCode> {
    let acl = Acl::new(Perms::ALL, "auth", "");
    let request = Request::Create(Create {
        op: CreateOp::Create,
        path,
        data: Some(b"mine"),
        acl: Some(vec![acl]),
        flags: 0,
        ttl_ms: 0,
    });
    wire.call(request).await.map(|_| ())
}

#[tokio::test]
async fn clients_with_tls_and_without_see_the_same_tree() {
    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::None).start().await.unwrap();
    let mut plain = Wire::open(&server.connect_string()).await;
    let mut tls = open(secure(&server), &fleet.client(None)).await;
    tls.create("/a", b"1", 0).await.unwrap();
    assert_eq!(plain.get("/a").await.unwrap(), b"1");
    // An event of another connection is written by the core, to a task that sleeps.
    for round in 0..50 {
        tls.call(watched("/a")).await.unwrap();
        plain.call(set("/a", b"2")).await.unwrap();
        let event = tls.event().await;
        assert_eq!(
            (event.kind, event.path.as_str()),
            (EventKind::NodeDataChanged, "/a"),
            "{round}"
        );
    }
    assert_eq!(server.active_sessions(), 2);
    server.shutdown().await.unwrap();
    assert!(tls.is_closed().await);
}

#[tokio::test]
async fn large_requests_and_answers_go_through_in_order() {
    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::None).start().await.unwrap();
    let mut wire = open(secure(&server), &fleet.client(None)).await;
    let large: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
    wire.create("/large", &large, 0).await.unwrap();
    wire.create("/small", b"", 0).await.unwrap();
    let mut requests = Vec::new();
    for _ in 0..20 {
        requests.extend([get("/large"), set("/small", b"x"), get("/small")]);
    }
    let first = wire.send(&requests).await;
    for place in 0..60 {
        let Some(Frame::Reply(header, body)) = wire.next().await else {
            panic!("closed after {place} replies");
        };
        assert_eq!(header.xid, first + place);
        assert_eq!(header.error(), ErrorCode::Ok);
        if place % 3 == 0 {
            assert_eq!(body[4..4 + large.len()], large);
        }
    }
}

/// A socket that writes and reads few bytes at a time.
struct Dribble(TcpStream, usize);

impl AsyncRead for Dribble {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let few = self.1;
        let mut part = buf.take(few);
        let read = Pin::new(&mut self.0).poll_read(cx, &mut part);
        let count = part.filled().len();
        let bytes = part.filled().to_vec();
        if count > 0 {
            buf.put_slice(&bytes);
        }
        read
    }
}

impl AsyncWrite for Dribble {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let few = self.1.min(bytes.len());
        Pin::new(&mut self.0).poll_write(cx, &bytes[..few])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn records_that_arrive_in_pieces_are_put_together() {
    use baton_tls::rustls::pki_types::ServerName;
    use baton_tls::tokio_rustls::TlsConnector;

    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::None).start().await.unwrap();
    for few in [1, 7, 1000] {
        let socket = TcpStream::connect(secure(&server)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connecting = TlsConnector::from(fleet.client(None));
        let stream = connecting
            .connect(name, Dribble(socket, few))
            .await
            .unwrap();
        let mut wire = Wire::open_on(stream).await.unwrap();
        let path = format!("/in-pieces-of-{few}");
        wire.create(&path, &[7; 3000], 0).await.unwrap();
        assert_eq!(wire.get(&path).await.unwrap(), [7; 3000]);
    }
}

#[tokio::test]
async fn a_client_is_known_by_the_subject_of_its_certificate() {
    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::Optional).start().await.unwrap();
    let to = secure(&server);
    let worker = fleet.client(Some(&fleet.issue("worker")));
    let mut owner = open(to, &worker).await;
    create_private(&mut owner, "/private").await.unwrap();
    let acl = owner
        .call(Request::GetAcl { path: "/private" })
        .await
        .unwrap();
    assert!(format!("{acl:?}").contains("CN=worker"), "{acl:?}");
    // Another certificate of the same subject is the same client.
    let renewed = fleet.client(Some(&fleet.issue("worker")));
    assert_eq!(
        open(to, &renewed).await.get("/private").await.unwrap(),
        b"mine"
    );
    // It may also be named in an auth packet, as ZooKeeper's clients do.
    let x509 = || {
        Request::Auth(AuthPacket {
            kind: 0,
            scheme: "x509",
            auth: Some(b""),
        })
    };
    owner.call(x509()).await.unwrap();
    for stranger in [
        open(to, &fleet.client(Some(&fleet.issue("other")))).await,
        open(to, &fleet.client(Some(&fleet.issue("worker,O=x")))).await,
        open(to, &fleet.client(None)).await,
        Wire::open(&server.connect_string()).await,
    ] {
        let mut stranger = stranger;
        assert_eq!(stranger.get("/private").await, Err(ErrorCode::NoAuth));
        assert_eq!(
            stranger.call(set("/private", b"x")).await,
            Err(ErrorCode::NoAuth)
        );
    }
    let mut unknown = open(to, &fleet.client(None)).await;
    assert_eq!(unknown.call(x509()).await, Err(ErrorCode::AuthFailed));
    assert!(unknown.is_closed().await);
}

#[tokio::test]
async fn the_superuser_may_be_a_subject() {
    let fleet = Fleet::new();
    let builder = fleet.server(ClientAuth::Optional).with(|options| {
        let tls = options.tls.as_mut().unwrap();
        tls.super_subject = Some("CN=admin".to_owned());
    });
    let server = builder.start().await.unwrap();
    let to = secure(&server);
    let mut owner = open(to, &fleet.client(Some(&fleet.issue("worker")))).await;
    create_private(&mut owner, "/private").await.unwrap();
    let mut admin = open(to, &fleet.client(Some(&fleet.issue("admin")))).await;
    assert_eq!(admin.get("/private").await.unwrap(), b"mine");
    let mut imitator = open(to, &fleet.client(Some(&fleet.issue("admin ")))).await;
    assert_eq!(imitator.get("/private").await, Err(ErrorCode::NoAuth));
}

#[tokio::test]
async fn a19_a_session_that_a_certificate_has_opened_is_taken_over_with_it_alone() {
    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::Optional).start().await.unwrap();
    let to = secure(&server);
    let (alice, bob) = (fleet.issue("alice"), fleet.issue("bob"));
    let mut owner = open(to, &fleet.client(Some(&alice))).await;
    owner.create("/held", b"", 1).await.unwrap();
    let session = owner.session;
    let request = ConnectRequest {
        session_id: session.session_id,
        password: &session.password,
        ..no_session()
    };
    let over_tls = async |own: Option<&Pair>| {
        let stream = connect(to, &fleet.client(own)).await.unwrap();
        Wire::ask_on(stream, &request).await.unwrap()
    };
    // As with a wrong password, there is no such session.
    for own in [None, Some(&bob)] {
        assert_eq!(over_tls(own).await.session.session_id, 0);
    }
    let plain = Wire::open_with(&server.connect_string(), &request).await;
    assert_eq!(plain.unwrap().session.session_id, 0);
    assert!(owner.exists("/held").await, "it has not moved");
    // A new certificate of the same subject.
    let renewed = fleet.issue("alice");
    let mut owner = over_tls(Some(&renewed)).await;
    assert_eq!(owner.session.session_id, session.session_id);
    assert!(owner.exists("/held").await);
}

/// The answer to a client that asks for this session, with a certificate or without.
async fn ask_for(to: SocketAddr, config: &Arc<ClientConfig>, session: &ConnectResponse) -> Wire {
    let request = ConnectRequest {
        session_id: session.session_id,
        password: &session.password,
        ..no_session()
    };
    // Closed while there is no leader.
    let answered = async {
        loop {
            let stream = connect(to, config).await.unwrap();
            if let Some(wire) = Wire::ask_on(stream, &request).await {
                return wire;
            }
            tokio::time::sleep(SOON).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap()
}

async fn refused_credentials(server: &Server) -> u64 {
    let shown = word(&server.connect_string(), "mntr").await;
    let line = shown
        .lines()
        .find_map(|line| line.strip_prefix("zk_auth_failed_count\t"));
    line.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a19_the_session_of_a_certificate_obeys_nobody_else_at_any_server_or_after_a_restart() {
    let fleet = Fleet::new();
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.audit = true;
    ensemble.client_tls = Some(fleet.options(ClientAuth::Optional));
    ensemble.start_every().await;
    let [one, other, _] = ensemble.ids()[..] else {
        panic!("three servers");
    };
    let alice = fleet.client(Some(&fleet.issue("alice")));
    let bob = fleet.client(Some(&fleet.issue("bob")));
    let nobody = fleet.client(None);
    // Once the leader has heard that each server knows the format.
    let bound = async {
        loop {
            let owner = ask_for(secure(ensemble.server(one)), &alice, &no_response()).await;
            let thief = ask_for(secure(ensemble.server(other)), &nobody, &owner.session).await;
            if thief.session.session_id == 0 {
                return owner;
            }
        }
    };
    let mut owner = tokio::time::timeout(PATIENCE, bound).await.unwrap();
    owner.create("/held", b"", 1).await.unwrap();
    let session = owner.session;
    for id in [one, other] {
        let server = ensemble.server(id);
        let before = refused_credentials(server).await;
        for thief in [&nobody, &bob] {
            let answer = ask_for(secure(server), thief, &session).await;
            assert_eq!(answer.session.session_id, 0, "server {id}");
        }
        assert_eq!(refused_credentials(server).await, before + 2);
        assert!(owner.exists("/held").await, "nobody has moved it");
    }
    // The owner moves, all servers start again, and it is still the owner's.
    let mut owner = ask_for(secure(ensemble.server(other)), &alice, &session).await;
    assert_eq!(owner.session.session_id, session.session_id);
    assert!(owner.exists("/held").await);
    for id in 1..=3 {
        ensemble.stop(id).await;
    }
    ensemble.start_every().await;
    for id in ensemble.ids() {
        let to = secure(ensemble.server(id));
        for thief in [&nobody, &bob] {
            let answer = ask_for(to, thief, &session).await;
            assert_eq!(answer.session.session_id, 0, "server {id}");
        }
        let mut owner = ask_for(to, &alice, &session).await;
        assert_eq!(owner.session.session_id, session.session_id);
        assert!(owner.exists("/held").await);
    }
    for id in 1..=3 {
        ensemble.stop(id).await;
    }
    for id in [one, other] {
        let record = std::fs::read_to_string(ensemble.audit_file(id)).unwrap();
        let attempts = record.lines().filter(|line| {
            line.contains("CN%3Dbob")
                && line.contains("operation=sessionReattach")
                && line.contains("result=failure")
        });
        assert_eq!(
            attempts.count(),
            2,
            "before the restart and after it: {record}"
        );
    }
}

/// Answer to a client that has no session.
fn no_response() -> ConnectResponse {
    ConnectResponse {
        protocol_version: 0,
        timeout_ms: 0,
        session_id: 0,
        password: [0; 16],
        read_only: None,
    }
}

#[tokio::test]
async fn a06_who_has_no_valid_certificate_gets_no_session() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    let server = fleet.server(ClientAuth::Required).start().await.unwrap();
    let to = secure(&server);
    let expired = fleet.issue_with("worker", |params| {
        params.not_after = date_time_ymd(2020, 1, 1)
    });
    for own in [None, Some(expired), Some(other.issue("worker"))] {
        let config = fleet.client(own.as_ref());
        // With TLS 1.3 the client sees it when it reads.
        if let Ok(stream) = connect(to, &config).await {
            assert!(Wire::open_on(stream).await.is_none());
        }
    }
    assert_eq!(server.active_sessions(), 0);
    let mut good = open(to, &fleet.client(Some(&fleet.issue("worker")))).await;
    assert!(good.exists("/").await);
}

/// Relays one connection to `to`, and returns what passed: from the client, and from the server.
async fn recorded(
    listener: &TcpListener,
    to: SocketAddr,
) -> (
    tokio::task::JoinHandle<Vec<u8>>,
    tokio::task::JoinHandle<Vec<u8>>,
) {
    async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Vec<u8> {
        let mut all = Vec::new();
        let mut part = [0; 4096];
        while let Ok(bytes @ 1..) = from.read(&mut part).await {
            all.extend_from_slice(&part[..bytes]);
            if to.write_all(&part[..bytes]).await.is_err() {
                break;
            }
        }
        all
    }
    let (client, _) = listener.accept().await.unwrap();
    let server = TcpStream::connect(to).await.unwrap();
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let said = tokio::spawn(copy(from_client, to_server));
    let answered = tokio::spawn(copy(from_server, to_client));
    (said, answered)
}

#[tokio::test]
async fn a03_a04_who_listens_on_the_wire_sees_no_password_and_no_data_and_can_replay_nothing() {
    const DATA: &[u8] = b"the-plan-is-to-meet-at-noon";
    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::Optional).start().await.unwrap();
    let to = secure(&server);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = fleet.client(Some(&fleet.issue("worker-of-the-plan")));
    let through = listener.local_addr().unwrap();
    let (stream, (said, answered)) =
        tokio::join!(connect(through, &config), recorded(&listener, to));
    let mut wire = Wire::open_on(stream.unwrap()).await.unwrap();
    wire.create("/plan", DATA, 0).await.unwrap();
    assert_eq!(wire.get("/plan").await.unwrap(), DATA);
    let session = wire.session;
    drop(wire);
    let (said, answered) = (said.await.unwrap(), answered.await.unwrap());
    assert!(said.len() > 500 && answered.len() > 500);
    for secret in [DATA, &session.password, b"/plan", b"worker-of-the-plan"] {
        for passed in [&said, &answered] {
            let found = passed.windows(secret.len()).any(|part| part == secret);
            assert!(
                !found,
                "{:?} passed in plain",
                String::from_utf8_lossy(secret)
            );
        }
    }
    let sessions = server.active_sessions();
    let mut replay = TcpStream::connect(to).await.unwrap();
    let _ = replay.write_all(&said).await;
    let _ = replay.shutdown().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, replay.read_to_end(&mut rest))
        .await
        .unwrap();
    assert_eq!(
        server.active_sessions(),
        sessions,
        "no session was opened or taken over"
    );
}

#[tokio::test]
async fn one_port_serves_clients_with_tls_and_without() {
    let fleet = Fleet::new();
    let builder = crate::support::with_words().tls(fleet.options(ClientAuth::None));
    let server = builder
        .with(|options| options.port_unification = true)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let config = fleet.client(None);
    let mut plain = Wire::open(&to).await;
    plain.create("/a", b"1", 0).await.unwrap();
    let mut tls = open(&to, &config).await;
    assert_eq!(tls.get("/a").await.unwrap(), b"1");
    assert_eq!(word(&to, "ruok").await, "imok");
    let mut stream = connect(&to, &config).await.unwrap();
    stream.write_all(b"srvr").await.unwrap();
    let mut answer = String::new();
    // The end of the answer is the end of the TLS session, too.
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("Mode: standalone"), "{answer}");
}

#[tokio::test]
async fn a_client_on_the_wrong_port_is_disconnected() {
    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::None).start().await.unwrap();
    assert!(
        connect(server.connect_string(), &fleet.client(None))
            .await
            .is_err()
    );
    let to = secure(&server).to_string();
    assert!(
        Wire::open_with(&to, &crate::support::no_session())
            .await
            .is_none()
    );
    assert_eq!(word(&to, "ruok").await, "");
    assert_eq!(server.active_sessions(), 0);
}

#[tokio::test]
async fn a13_half_open_handshakes_keep_nobody_out_and_end() {
    const HALF_OPEN: usize = 600;
    let fleet = Fleet::new();
    let server = fleet
        .server(ClientAuth::None)
        .with(|options| options.max_connections = 2 * HALF_OPEN)
        .start()
        .await
        .unwrap();
    let to = secure(&server);
    // The head of a record and a part of a ClientHello that never ends.
    let begun = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 200]].concat();
    let mut half_open = Vec::new();
    for place in 0..HALF_OPEN {
        let mut socket = TcpStream::connect(to).await.unwrap();
        socket
            .write_all(&begun[..place % begun.len()])
            .await
            .unwrap();
        half_open.push(socket);
    }
    let mut good = open(to, &fleet.client(None)).await;
    good.create("/good", b"", 0).await.unwrap();
    assert_eq!(server.active_sessions(), 1);
    drop(half_open);
    let gone = async {
        while server.active_connections() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    assert!(good.exists("/good").await);
}

#[tokio::test]
async fn a13_a_handshake_that_is_never_finished_is_ended_by_the_server() {
    let fleet = Fleet::new();
    let server = fleet
        .server(ClientAuth::None)
        .with(|options| options.handshake_timeout = SOON)
        .start()
        .await
        .unwrap();
    for begun in [&b""[..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]] {
        let mut socket = TcpStream::connect(secure(&server)).await.unwrap();
        socket.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await;
        let _ = ended.expect("the server closes it");
    }
}

#[tokio::test]
async fn a14_oversized_and_damaged_records_end_their_connection_alone() {
    let fleet = Fleet::new();
    let server = fleet.server(ClientAuth::None).start().await.unwrap();
    let to = secure(&server);
    let config = fleet.client(None);
    let mut good = open(to, &config).await;
    good.create("/good", b"", 0).await.unwrap();
    let ends = async |bytes: &[u8], mut socket: TcpStream| {
        let _ = socket.write_all(bytes).await;
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await;
        let _ = ended.expect("the server closes it");
    };
    // Before the handshake: a record over the limit.
    let oversized = [&[0x16, 3, 3, 0xff, 0xff][..], &[0; 70_000]].concat();
    ends(&oversized, TcpStream::connect(to).await.unwrap()).await;
    // Behind it: records that nobody has encrypted, and one over the limit.
    for record in [
        &[0x17, 3, 3, 0, 40][..],
        &[0x17, 3, 3, 0xff, 0xff],
        &[0x16, 3, 3, 0, 4],
    ] {
        let stream = connect(to, &config).await.unwrap();
        let (socket, _) = stream.into_inner();
        ends(&[record, &[0; 300]].concat(), socket).await;
    }
    assert!(good.exists("/good").await);
    assert_eq!(server.active_sessions(), 1);
}

#[tokio::test]
async fn whatever_the_first_bytes_are_the_port_goes_on() {
    let fleet = Fleet::new();
    let builder = crate::support::in_memory().tls(fleet.options(ClientAuth::Optional));
    let server = builder
        .with(|options| options.port_unification = true)
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    let mut rng = fastrand::Rng::with_seed(16);
    for round in 0..400 {
        let mut bytes: Vec<u8> = (0..rng.usize(..200)).map(|_| rng.u8(..)).collect();
        match round % 4 {
            0 => bytes.insert(0, 0x16),
            1 => drop(bytes.splice(..0, [0x16, 3, rng.u8(..5), 0, rng.u8(..)])),
            2 => drop(bytes.splice(..0, [0, 0, 0, 0x2c])),
            _ => {}
        }
        let mut socket = TcpStream::connect(&to).await.unwrap();
        let _ = socket.write_all(&bytes).await;
        let _ = socket.shutdown().await;
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await;
        let _ = ended.unwrap_or_else(|_| panic!("round {round} hangs: {bytes:02x?}"));
    }
    let mut good = open(&to, &fleet.client(None)).await;
    assert!(good.exists("/").await);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_within_the_bound() {
    let fleet = Fleet::new();
    let server = fleet
        .server(ClientAuth::None)
        .with(|options| {
            options.max_outbound_bytes = 64 << 10;
            options.max_outbound_bytes_in_all = 1 << 20;
        })
        .start()
        .await
        .unwrap();
    let config = fleet.client(None);
    let mut slow = open(secure(&server), &config).await;
    let mut writer = open(secure(&server), &config).await;
    writer.create("/w", b"", 0).await.unwrap();
    writer.create("/large", &vec![7; 800_000], 0).await.unwrap();
    // Answers of 40 MB, none of which is read: the server must not hold them.
    slow.send(&vec![get("/large"); 50]).await;
    for _ in 0..200 {
        writer.call(set("/w", b"x")).await.unwrap();
    }
    assert!(writer.exists("/w").await);
    for place in 0..50 {
        match slow.next().await {
            Some(Frame::Reply(header, _)) => assert_eq!(header.error(), ErrorCode::Ok),
            // It may have been closed, in between answers.
            None => break,
            other => panic!("{place}: {other:?}"),
        }
    }
    assert!(writer.exists("/w").await);
}

#[tokio::test]
async fn a_changed_certificate_is_used_without_a_restart() {
    let fleet = Fleet::new();
    let builder = fleet.server(ClientAuth::None).with(|options| {
        options.https = vec!["127.0.0.1:0".to_owned()];
        options.tls.as_mut().unwrap().reload_interval = SOON;
    });
    let server = builder.start().await.unwrap();
    let to = secure(&server);
    let config = fleet.client(None);
    let mut old = open(to, &config).await;
    let renewed = fleet.issue("renewed");
    fleet.files(&renewed);
    for address in [to, server.https_addrs()[0]] {
        let used = async {
            loop {
                let stream = connect(address, &config).await.unwrap();
                let (_, session) = stream.get_ref();
                let shown = session.peer_certificates().unwrap()[0].to_vec();
                let subject = baton_tls::subject::of_certificate(&shown).unwrap();
                if subject == "CN=renewed" {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, used).await.unwrap();
    }
    assert!(old.exists("/").await, "connections that are open stay");
}

#[tokio::test]
async fn a28_a_connection_ends_when_its_certificate_is_not_accepted_any_more() {
    let (fleet, other) = (Fleet::new(), Fleet::new());
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let builder = fleet.server(client_auth).with(|options| {
            options.tls.as_mut().unwrap().reload_interval = SOON;
        });
        let both = format!("{}{}", fleet.authority, other.authority);
        fleet.write("ca.pem", &both);
        let server = builder.start().await.unwrap();
        let to = secure(&server);
        let [own, theirs] = [&fleet, &other].map(|of| fleet.client(Some(&of.issue("worker"))));
        let mut own = open(to, &own).await;
        let mut leaving = open(to, &theirs).await;
        assert!(leaving.exists("/").await);
        let chained = fleet.client(Some(&fleet.issue_through_intermediate("chained")));
        let mut chained = open(to, &chained).await;
        assert!(chained.exists("/").await);
        let mut nobody = match client_auth {
            ClientAuth::Optional => Some(open(to, &fleet.client(None)).await),
            _ => None,
        };
        fleet.write("ca.pem", &fleet.authority);
        assert!(leaving.is_closed().await);
        // Its session waits for a certificate of an authority that is left.
        assert!(own.exists("/").await);
        assert!(chained.exists("/").await);
        if let Some(nobody) = &mut nobody {
            assert!(nobody.exists("/").await);
        }
        if let Ok(stream) = connect(to, &theirs).await {
            assert!(Wire::open_on(stream).await.is_none());
        }
    }
}

#[tokio::test]
async fn http_has_a_port_with_tls() {
    let fleet = Fleet::new();
    // Clients of ZooKeeper's protocol need a certificate, those of HTTP do not.
    let server = fleet
        .server(ClientAuth::Required)
        .with(|options| options.https = vec!["127.0.0.1:0".to_owned()])
        .start()
        .await
        .unwrap();
    let to = server.https_addrs()[0];
    let answer = get_over_tls(to, &fleet.client(None), "/healthz")
        .await
        .unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"),
        "{answer}"
    );
    let mut plain = TcpStream::connect(to).await.unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer))
        .await
        .unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let stranger = Fleet::new();
    assert!(
        get_over_tls(to, &stranger.client(None), "/healthz")
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a18_a_certificate_changes_something_where_the_request_says_so_and_its_subject_is_trusted()
{
    let fleet = Fleet::new();
    let server = fleet
        .server(ClientAuth::Required)
        .with(|options| {
            options.https = vec!["127.0.0.1:0".to_owned()];
            let tls = options.tls.as_mut().unwrap();
            tls.super_subject = Some("CN=admin".to_owned());
        })
        .start()
        .await
        .unwrap();
    let to = server.https_addrs()[0];
    let (admin, worker) = (fleet.issue("admin"), fleet.issue("worker"));
    let header = "\r\nAuthorization: x509";
    for (own, header, wanted) in [
        (Some(&admin), header, "HTTP/1.1 200"),
        // As a browser that was led here sends it.
        (Some(&admin), "", "HTTP/1.1 401"),
        (Some(&worker), header, "HTTP/1.1 403"),
        (None, header, "HTTP/1.1 403"),
    ] {
        let mut stream = connect(to, &fleet.client(own)).await.unwrap();
        let request = format!(
            "POST /commands/srst HTTP/1.1\r\nHost: localhost\r\nConnection: close{header}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(wanted), "{answer}");
    }
    let stranger = Fleet::new();
    let config = fleet.client(Some(&stranger.issue("admin")));
    assert!(get_over_tls(to, &config, "/metrics").await.is_err());
}

#[tokio::test]
async fn a_server_with_both_kinds_of_http_answers_each() {
    let fleet = Fleet::new();
    let server = fleet
        .server(ClientAuth::None)
        .with(|options| {
            options.https = vec!["127.0.0.1:0".to_owned()];
            options.http = vec!["127.0.0.1:0".to_owned()];
        })
        .start()
        .await
        .unwrap();
    let config = fleet.client(None);
    open(secure(&server), &config).await;
    let (status, metrics) = http::get(server.http_addr().unwrap(), "/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("\nbaton_tls_handshakes 1\n"), "{metrics}");
    let over_tls = get_over_tls(server.https_addrs()[0], &config, "/metrics")
        .await
        .unwrap();
    assert!(
        over_tls.contains("baton_tls_handshakes_failed 0"),
        "{over_tls}"
    );
}

#[tokio::test]
async fn files_and_settings_that_cannot_be_used_stop_the_start_with_one_line() {
    let fleet = Fleet::new();
    let refused = async |change: &dyn Fn(&mut baton_server::Options)| {
        let builder = fleet.server(ClientAuth::None).with(change);
        let error = builder.start().await.unwrap_err();
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        (error, line)
    };
    let missing = fleet.write("x", "").with_file_name("missing.pem");
    let (error, line) = refused(&|options| {
        options.tls.as_mut().unwrap().files.key = missing.clone();
    })
    .await;
    assert!(matches!(error, StartError::Tls(_)), "{error:?}");
    assert!(
        line.contains("missing.pem") && line.contains("correct the path"),
        "{line}"
    );
    let (_, line) = refused(&|options| {
        let tls = options.tls.as_mut().unwrap();
        tls.client_auth = ClientAuth::Required;
        tls.files.authorities = None;
    })
    .await;
    assert!(line.contains("no CA file is named"), "{line}");
    let (_, line) = refused(&|options| options.tls = None).await;
    assert!(
        line.contains("tls_cert") && line.contains("must be given"),
        "{line}"
    );
    let (_, line) = refused(&|options| options.secure_listen.clear()).await;
    assert!(line.contains("secure_listen"), "{line}");
    let (_, line) = refused(&|options| {
        options.port_unification = true;
        options.listen.clear();
    })
    .await;
    assert!(line.contains("port_unification"), "{line}");
}

#[tokio::test]
async fn a_server_with_tls_alone_names_its_port_so() {
    let fleet = Fleet::new();
    let server = fleet
        .server(ClientAuth::None)
        .with(|options| options.listen.clear())
        .start()
        .await
        .unwrap();
    let port = secure(&server).port();
    assert_eq!(server.connect_string(), format!("tls://127.0.0.1:{port}"));
    assert_eq!(server.local_addr(), None);
}

#[tokio::test]
async fn the_end_of_the_certificate_in_use_is_in_the_metrics_and_moves_with_it() {
    let fleet = Fleet::new();
    let ending = |year| {
        fleet.issue_with("server", |params| {
            params.not_after = date_time_ymd(year, 1, 1);
        })
    };
    let seconds = |year| date_time_ymd(year, 1, 1).unix_timestamp();
    let server = fleet.server(ClientAuth::None).http("127.0.0.1:0");
    fleet.files(&ending(2040));
    let server = server.with(|options| {
        options.tls.as_mut().unwrap().reload_interval = SOON;
    });
    let server = server.start().await.unwrap();
    let shown = async || {
        let (_, page) = http::get(server.http_addr().unwrap(), "/metrics").await;
        assert!(!page.contains("baton_peer_tls_certificate"), "{page}");
        let name = "baton_tls_certificate_not_after_timestamp_seconds ";
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(shown().await, seconds(2040));
    fleet.files(&ending(2041));
    let until = async {
        while shown().await != seconds(2041) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, until).await.unwrap();
    server.shutdown().await.unwrap();
}

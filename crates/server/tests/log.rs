//! Log lines about bad input: one for each case, with the peer and the cause, and of a flood no
//! flood.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "suite/support/mod.rs"]
mod support;

use std::sync::LazyLock;
use std::time::Duration;

use baton_proto::{Acl, AuthPacket, ErrorCode, MultiOp, OpCode, Perms, Request, frame};
use baton_server::{ClientAuth, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::ensemble::{Ensemble, be_superuser};
use support::log::{LOG, lines};
use support::tls::{self, Fleet};
use support::{Wire, create, get, http, in_memory, set, watched, word};

const CONFIG: &str = "/zookeeper/config";

/// The one line with this in it, which has to name a peer; it is written before or just after the
/// client's answer.
async fn line(with: &str) {
    line_of("127.0.0.1", with).await;
}

async fn line_of(peer: &str, with: &str) {
    let patience = async {
        while lines(with).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(support::PATIENCE, patience).await;
    assert!(came.is_ok(), "no line with {with:?}");
    let found = lines(with);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains(&format!("peer={peer}")), "{found:?}");
}

/// A request with this body, whatever that is.
fn raw(op: OpCode, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = frame::begin(&mut bytes);
    bytes.extend_from_slice(&7_i32.to_be_bytes());
    bytes.extend_from_slice(&op.code().to_be_bytes());
    bytes.extend_from_slice(body);
    frame::finish(&mut bytes, start);
    bytes
}

fn auth<'a>(scheme: &'a str, auth: &'a [u8]) -> Request<'a> {
    Request::Auth(AuthPacket {
        kind: 0,
        scheme,
        auth: Some(auth),
    })
}

async fn refused(wire: &mut Wire, request: Request<'_>, code: ErrorCode, with: &str) {
    assert_eq!(wire.call(request).await, Err(code));
    line(with).await;
}

async fn start() -> (Server, String) {
    LazyLock::force(&LOG);
    let server = in_memory()
        .http("127.0.0.1:0")
        .with(|options| {
            options.max_frame_bytes = 100_000;
            options.max_connections_per_address = 20;
            options.handshake_timeout = Duration::from_millis(300);
        })
        .start()
        .await
        .unwrap();
    let to = server.connect_string();
    (server, to)
}

#[tokio::test]
async fn each_bad_input_has_its_line_with_peer_and_cause() {
    let (server, to) = start().await;
    let mut silent = Wire::silent(&to).await;
    assert!(silent.is_closed().await);
    line("connection closed: it did not open or resume a session in time").await;
    for (bytes, with) in [
        (&(-7_i32).to_be_bytes()[..], "frame length -7 is negative"),
        (&i32::MAX.to_be_bytes(), "frame of 2147483647 bytes exceeds"),
        (b"\0\0\0\x03abc", "its first frame is not a ConnectRequest"),
    ] {
        let mut wire = Wire::silent(&to).await;
        wire.send_bytes(bytes).await;
        assert!(wire.is_closed().await, "{with}");
        line(with).await;
    }
    let mut wire = Wire::open(&to).await;
    for (op, with) in [
        (OpCode::GetData, "refused getData: "),
        (OpCode::SetData, "refused setData: "),
        (OpCode::Multi, "refused multi: its record cannot be decoded"),
    ] {
        wire.send_bytes(&raw(op, &[0x7f, 0xff])).await;
        assert_eq!(wire.reply().await.0.error(), ErrorCode::MarshallingError);
        line(with).await;
    }
    let large = vec![7; 150_000];
    let too_large = set("/a", &large);
    let with = "refused a request of 1500";
    refused(&mut wire, too_large, ErrorCode::BadArguments, with).await;

    let readable = vec![Acl::new(Perms::READ, "world", "anyone")];
    let closed = vec![Acl::new(Perms::ADMIN, "world", "anyone")];
    for (path, acl) in [("/readable", readable), ("/closed", closed)] {
        wire.create(path, b"", 0).await.unwrap();
        let set_acl = Request::SetAcl {
            path,
            acl: Some(acl),
            version: -1,
        };
        wire.call(set_acl).await.unwrap();
    }
    let denied = ErrorCode::NoAuth;
    let with = "refused getData of /closed: ";
    refused(&mut wire, get("/closed"), denied, with).await;
    let with = "refused setData of /readable: ";
    refused(&mut wire, set("/readable", b""), denied, with).await;
    let set = Request::Multi(vec![MultiOp::SetData {
        path: "/closed",
        data: None,
        version: -1,
    }]);
    wire.call(set).await.unwrap();
    line("refused multi: NoAuth").await;
    let mut nobody = create("/forged\n2026 WARN all is well", b"", 0);
    if let Request::Create(create) = &mut nobody {
        create.acl = Some(vec![Acl::new(Perms::ALL, "nonsense", "x")]);
    }
    let with = "refused create of /forged\\n2026 WARN all is well: ";
    refused(&mut wire, nobody, ErrorCode::InvalidAcl, with).await;

    let mut other = Wire::open(&to).await;
    other.send(&[auth("kerb\neros", b"secret")]).await;
    assert_eq!(other.reply().await.0.error(), ErrorCode::AuthFailed);
    line("credentials of scheme 'kerb\\neros' are refused").await;
    assert!(lines("secret").is_empty());
    let mut other = Wire::open(&to).await;
    let sasl = Request::Sasl { token: Some(b"x") };
    let with = "this server has no users for SASL";
    refused(&mut other, sasl, ErrorCode::AuthFailed, with).await;
    let mut other = Wire::open(&to).await;
    other.send_bytes(&raw(OpCode::DeleteContainer, b"")).await;
    assert!(other.reply().await.0.error() == ErrorCode::Unimplemented);
    line("it asked for op 20: ").await;
    let mut stolen = wire.session;
    stolen.password = [9; 16];
    let other = Wire::resume(&to, &stolen, 0).await.unwrap();
    assert_eq!(other.session.timeout_ms, 0);
    line(&format!("session 0x{:x} refused", stolen.session_id)).await;

    let telling = server.http_addr().unwrap();
    let wrong = "Authorization: digest me:hush\r\n";
    assert_eq!(
        http::ask(telling, "GET", "/commands/srst", wrong, "")
            .await
            .0,
        403
    );
    line("refused stat_reset over HTTP: ").await;
    assert!(lines("hush").is_empty());

    let mut held = Vec::new();
    for _ in 0..25 {
        held.push(Wire::silent(&to).await);
    }
    let refused = || !lines("connection refused: ").is_empty();
    while !refused() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(target_os = "linux")] // Others have one loopback address unless they are given more.
#[tokio::test]
async fn who_makes_noise_hides_nobody_else() {
    let (server, to) = start().await;
    let noise = (-9_i32).to_be_bytes();
    for _ in 0..60 {
        let mut noisy = Wire::silent(&to).await;
        noisy.send_bytes(&noise).await;
        assert!(noisy.is_closed().await);
    }
    assert!((1..=20).contains(&lines("frame length -9 is negative").len()));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.local_addr().unwrap()).await.unwrap();
    other.write_all(&(-8_i32).to_be_bytes()).await.unwrap();
    let mut rest = Vec::new();
    let closed = other.read_to_end(&mut rest);
    let _ = tokio::time::timeout(support::PATIENCE, closed)
        .await
        .unwrap();
    line_of("127.0.0.2", "frame length -8 is negative").await;
}

#[tokio::test]
async fn a_flood_of_bad_input_is_no_flood_in_the_log() {
    let (_server, to) = start().await;
    let mut wire = Wire::open(&to).await;
    for _ in 0..50 {
        let mut bytes = Vec::new();
        for _ in 0..20 {
            bytes.extend_from_slice(&raw(OpCode::AddWatch, b"\x7f"));
        }
        wire.send_bytes(&bytes).await;
        for _ in 0..20 {
            wire.reply().await;
        }
    }
    assert!(word(&to, "ruok").await.contains("imok"));
    let written = lines("refused addWatch").len();
    assert!((1..=60).contains(&written), "{written} lines");
}

#[tokio::test]
async fn each_failure_of_tls_has_its_line_with_peer_and_remedy() {
    LazyLock::force(&LOG);
    let (fleet, stranger) = (Fleet::new(), Fleet::new());
    let server = fleet
        .server(ClientAuth::Required)
        .with(|options| options.handshake_timeout = Duration::from_secs(1))
        .start()
        .await
        .unwrap();
    let secure = server.secure_addrs()[0].to_string();
    assert_eq!(word(&secure, "ruok").await, "");
    line("it does not speak TLS, which this port asks for; let it use TLS").await;
    let plain = server.connect_string();
    assert!(tls::connect(&plain, &fleet.client(None)).await.is_err());
    line("it wants to speak TLS to a port without TLS; let it connect without TLS").await;
    let refused = async |config, with: &str| {
        if let Ok(mut stream) = tls::connect(&secure, &config).await {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
        line(with).await;
    };
    refused(fleet.client(None), "it showed no certificate").await;
    let expired = fleet.issue_with("x", |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    refused(fleet.client(Some(&expired)), "its certificate has expired").await;
    let distrusts = stranger.client(Some(&fleet.issue("x")));
    refused(distrusts, "this side's certificate").await;
    let mut silent = tokio::net::TcpStream::connect(&secure).await.unwrap();
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest).await;
    line("it did not complete the TLS handshake in time").await;
    let mut leaving = tokio::net::TcpStream::connect(&secure).await.unwrap();
    leaving.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
    leaving.shutdown().await.unwrap();
    let _ = leaving.read_to_end(&mut rest).await;
    line("it ended the connection during the TLS handshake").await;
    let nobody = fleet.issue_with("x", |params| {
        params.distinguished_name = rcgen::DistinguishedName::new();
    });
    refused(
        fleet.client(Some(&nobody)),
        "the certificate has an empty subject",
    )
    .await;
}

#[tokio::test]
async fn files_of_tls_that_change_have_their_lines() {
    LazyLock::force(&LOG);
    let fleet = Fleet::new();
    let builder = fleet.server(ClientAuth::None).with(|options| {
        options.tls.as_mut().unwrap().reload_interval = tls::SOON;
    });
    let _server = builder.start().await.unwrap();
    let written = async |with: &str| {
        let patience = async {
            while lines(with).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let came = tokio::time::timeout(support::PATIENCE, patience).await;
        assert!(came.is_ok(), "no line with {with:?}");
    };
    let other = fleet.issue("other");
    fleet.write("server.key", &other.key);
    written("the old ones stay in use: the private key in").await;
    fleet.write("server.pem", &other.certificate);
    written("new connections use the changed TLS files").await;
}

/// From there on no server of the ensemble can be replaced by one of an earlier version.
#[tokio::test(flavor = "multi_thread")]
async fn every_server_of_an_ensemble_says_that_the_format_level_was_raised() {
    LazyLock::force(&LOG);
    let ensemble = Ensemble::start(3).await;
    let patience = async {
        while lines("format level raised").len() < ensemble.ids().len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let came = tokio::time::timeout(support::PATIENCE, patience).await;
    assert!(came.is_ok(), "{:#?}", lines("format level raised"));
}

/// They need not find out by a server that is silent.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_removed_server_see_the_new_list_and_are_sent_elsewhere_at_once() {
    LazyLock::force(&LOG);
    let ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let removed = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
    let mut client = ensemble.open(removed).await;
    client.call(watched(CONFIG)).await.unwrap();
    let mut wire = ensemble.open(leader).await;
    be_superuser(&mut wire).await;
    let id = removed.to_string();
    let remove = Request::Reconfig {
        joining: None,
        leaving: Some(&id),
        new_members: None,
        config_id: -1,
    };
    wire.call(remove).await.unwrap();
    assert_eq!(client.event().await.path, CONFIG);
    assert!(client.is_closed().await);
    let why = "this server was removed from its ensemble; let the client connect to another server";
    assert_eq!(lines(why).len(), 1, "not because it knows no leader");
}

/// It has promised and acknowledged what it knows no more, so its vote is none until it is removed
/// and added again.
#[tokio::test(flavor = "multi_thread")]
async fn a_voter_that_waits_without_its_folder_is_none_that_a_change_can_count_on() {
    LazyLock::force(&LOG);
    let mut ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    ensemble.kill(others[0]).await;
    ensemble.lose_folder(others[0]);
    let waiting = ensemble.start_waiting(others[0]);
    let refused = format!(
        "server={leader} remote={} by=\"the other server\"",
        ensemble.peer_address(leader)
    );
    let asked = async {
        while lines(&refused).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let asked = tokio::time::timeout(support::PATIENCE, asked).await;
    asked.expect("the leader refuses it");
    // Its client may not change the members: NoAuth, if the others were enough.
    let mut wire = ensemble.open(leader).await;
    let id = others[1].to_string();
    let remove = Request::Reconfig {
        joining: None,
        leaving: Some(&id),
        new_members: None,
        config_id: -1,
    };
    let code = wire.call(remove).await.unwrap_err();
    assert_eq!(code, ErrorCode::NewConfigNoQuorum);
    waiting.abort();
}

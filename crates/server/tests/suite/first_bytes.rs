//! The first bytes of a connection to a port that takes TLS and what has none: whatever they are,
//! the server ends that connection alone. Beginnings of real ones, mutated from a fixed seed.

use baton_proto::frame;
use baton_server::ClientAuth;
use baton_tls::rustls::ClientConnection;
use baton_tls::rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::tls::{Fleet, open};
use crate::support::{PATIENCE, Wire, no_session, word};

const ROUNDS: usize = 1_500;
/// Bytes that mean something at the beginning.
const MARKS: [u8; 9] = [0, 1, 0x14, 0x15, 0x16, 0x17, 0x80, b'r', 0xff];

fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
    for _ in 0..random.usize(1..4) {
        // The head decides what becomes of the rest.
        let limit = if random.bool() { 12 } else { bytes.len() };
        let at = random.usize(0..=limit.min(bytes.len()));
        let mark = MARKS[random.usize(0..MARKS.len())];
        match random.u8(0..5) {
            0 if at < bytes.len() => bytes[at] = mark,
            1 => bytes.insert(at, mark),
            2 => bytes.truncate(at),
            3 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
            _ => bytes.extend_from_within(..at),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a13_a14_whatever_a_connection_begins_with_ends_that_connection_alone() {
    let fleet = Fleet::new();
    let server = fleet
        .server(ClientAuth::Optional)
        .with(|options| options.port_unification = true)
        .start()
        .await
        .unwrap();
    let plain = server.connect_string();
    let to = server.local_addr().unwrap();
    let config = fleet.client(None);
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    let mut session = ClientConnection::new(config.clone(), name).unwrap();
    session.write_tls(&mut hello).unwrap();
    let mut handshake = Vec::new();
    frame::write_connect_request(&mut handshake, &no_session());
    let seeds = [
        hello,
        handshake,
        b"ruok".to_vec(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n".to_vec(),
    ];
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..ROUNDS {
        let mut bytes = seeds[round % seeds.len()].clone();
        mutate(&mut random, &mut bytes);
        let ended = async {
            let mut stream = TcpStream::connect(to).await.unwrap();
            // The server may have seen enough before all of it was sent.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        ended.unwrap_or_else(|_| panic!("round {round} does not end: {bytes:?}"));
    }
    assert_eq!(word(&plain, "ruok").await, "imok");
    let mut good = Wire::open(&plain).await;
    good.create("/good", b"", 0).await.unwrap();
    let mut encrypted = open(to, &config).await;
    assert!(encrypted.exists("/good").await);
    drop((good, encrypted));
    let gone = async {
        while server.active_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

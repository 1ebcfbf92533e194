//! Strangers at the port: garbage, other protocols, recordings, connections that say nothing. None
//! of them keeps a server out, takes memory, or ends a connection that is established.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use baton_consensus::MessageKind;
use baton_peers::codec::{
    Confirmation, ForeignProtocol, Frame, FrameType, Lane, PREFACE, Refusal, Welcome,
};
use baton_peers::net::{Acceptor, BindError, Exposure, PeerEvent, RefusedBy, TcpAcceptor};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep};

use crate::examples;
use crate::memory::{Network, Server, name, pair};
use crate::raw::{RawConnection, encoded, hello};

fn refused(event: PeerEvent) -> Option<Refusal> {
    match event {
        PeerEvent::Refused { refusal, by, .. } => {
            assert_eq!(by, RefusedBy::Us);
            Some(refusal)
        }
        _ => None,
    }
}

/// Another protocol is named in the log, and gets no answer.
#[tokio::test(start_paused = true)]
async fn other_protocols_are_named() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let cases: [(&[u8], ForeignProtocol); 6] = [
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            ForeignProtocol::Tls,
        ),
        (b"GET /metrics HTTP/1.1\r\n\r\n", ForeignProtocol::Http),
        (b"ruok", ForeignProtocol::FourLetterWord),
        (
            b"\xff\xff\xff\xff\xff\xff\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02",
            ForeignProtocol::ZooKeeperElection,
        ),
        (
            b"\x00\x00\x00\x0b\x00\x00\x00\x00\x00\x00\x00\x01",
            ForeignProtocol::ZooKeeperQuorum,
        ),
        (
            b"\x01\x02\x03\x04\x05\x06\x07\x08",
            ForeignProtocol::Unknown,
        ),
    ];
    for (bytes, foreign) in cases {
        let mut raw = RawConnection::open(&network, 1);
        raw.write(bytes).await;
        let mut answer = Vec::new();
        raw.wire.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty());
        assert_eq!(one.until(refused).await, Refusal::Foreign(foreign));
    }
    assert_eq!(one.peers.counters().foreign.load(Relaxed), 6);
}

/// The answer says what is wrong, to anyone who speaks the protocol.
#[tokio::test(start_paused = true)]
async fn frames_that_must_not_come_first_are_refused_at_their_head() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let raft = Frame::Raft(vec![examples::message(MessageKind::Heartbeat)]);
    let mut huge = vec![0xff; 4];
    huge.extend([FrameType::Hello.code(), 0, 0, 0, 0, 0, 0, 0]);
    let mut damaged = encoded(&Frame::Hello(hello(2, 1, Lane::Urgent)));
    damaged[50] ^= 1;
    let confirm = Frame::Confirm(Confirmation { echo: 1 });
    for bytes in [
        encoded(&raft)[..12].to_vec(),
        huge,
        damaged,
        encoded(&confirm),
    ] {
        let mut raw = RawConnection::open(&network, 1);
        raw.write(&PREFACE).await;
        raw.write(&bytes).await;
        let Some(Frame::Refused(refusal)) = raw.frame().await else {
            panic!("no answer to {bytes:?}");
        };
        assert!(matches!(refusal, Refusal::BadFrame(_)));
        assert_eq!(raw.frame().await, None);
        assert_eq!(one.until(refused).await, refusal);
    }
    assert_eq!(one.peers.counters().foreign.load(Relaxed), 0);
    assert_eq!(one.peers.counters().refused.load(Relaxed), 4);
}

/// A server that answers wrongly at an address of the list is refused by anyone who has connected.
#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_the_hello_is_refused() {
    let network = Network::default();
    let acceptor = network.listen(&name(2));
    let mut one = Server::start(&network, 1, 2);
    type Change = fn(&mut Welcome);
    let changes: [(Change, Refusal); 5] = [
        (|welcome| welcome.echo ^= 1, Refusal::NotConfirmed),
        (
            |welcome| {
                welcome.hello.lane = match welcome.hello.lane {
                    Lane::Urgent => Lane::Log,
                    _ => Lane::Urgent,
                };
            },
            Refusal::NotConfirmed,
        ),
        (
            |welcome| welcome.hello.from = 3,
            Refusal::WrongServer {
                expected: 2,
                found: 3,
            },
        ),
        (
            |welcome| welcome.hello.to = 3,
            Refusal::WrongServer {
                expected: 3,
                found: 1,
            },
        ),
        (
            |welcome| {
                welcome.hello.cluster = 9;
                welcome.hello.membership_index = 4;
            },
            Refusal::NotAMember {
                id: 1,
                cluster: 9,
                membership_index: 4,
            },
        ),
    ];
    for (change, expected) in changes {
        let (wire, _) = acceptor.accept().await.unwrap();
        let mut raw = RawConnection::on(wire);
        let Some(Frame::Hello(theirs)) = raw.frame().await else {
            panic!("no hello");
        };
        let mut welcome = Welcome {
            hello: hello(2, 1, theirs.lane),
            echo: theirs.nonce,
        };
        change(&mut welcome);
        raw.write(&PREFACE).await;
        raw.send(&Frame::Welcome(welcome)).await;
        let refused_as = one.until(refused).await;
        assert_eq!(refused_as, expected);
        assert_eq!(raw.frame().await, Some(Frame::Refused(expected)));
    }
    assert!(one.peers.open_lanes(2).is_empty());
}

/// A server that accepts connections and never answers.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_a_hello_is_given_up_after_a_second() {
    let network = Network::default();
    let acceptor = network.listen(&name(2));
    let before = Instant::now();
    let mut one = Server::start(&network, 1, 2);
    let refusal = one.until(refused).await;
    assert_eq!(refusal, Refusal::Late { after_ms: 1000 });
    assert_eq!(before.elapsed().as_millis(), 1000);
    drop(acceptor);
}

/// A recorded handshake opens nothing, and ends nothing.
#[tokio::test(start_paused = true)]
async fn r17_a_recorded_handshake_opens_nothing() {
    let network = Network::default();
    let (mut one, mut two) = pair(&network).await;
    let mut honest = RawConnection::open(&network, 1);
    let recorded = hello(2, 1, Lane::Urgent);
    let Welcome { hello: theirs, .. } = honest.greet(&recorded).await;
    drop(honest);
    let mut replay = RawConnection::open(&network, 1);
    let again = replay.greet(&recorded).await;
    assert_ne!(again.hello.nonce, theirs.nonce);
    let echo = theirs.nonce;
    replay.send(&Frame::Confirm(Confirmation { echo })).await;
    let answer = replay.frame().await;
    assert_eq!(answer, Some(Frame::Refused(Refusal::NotConfirmed)));
    assert_eq!(one.until(refused).await, Refusal::NotConfirmed);
    sleep(Duration::from_secs(2)).await;
    for event in one.so_far().into_iter().chain(two.so_far()) {
        assert!(
            !matches!(event, PeerEvent::Disconnected { .. }),
            "{event:?}"
        );
    }
}

/// Bytes that come one by one, or never, hold a place for a second at most.
#[tokio::test(start_paused = true)]
async fn a_slow_handshake_is_given_up() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let before = Instant::now();
    let mut slow = RawConnection::open(&network, 1);
    let mut bytes = PREFACE.to_vec();
    bytes.extend(encoded(&Frame::Hello(hello(2, 1, Lane::Urgent))));
    let dribble = tokio::spawn(async move {
        for byte in bytes {
            slow.write(&[byte]).await;
            sleep(Duration::from_millis(100)).await;
        }
    });
    let refusal = one.until(refused).await;
    assert_eq!(refusal, Refusal::Late { after_ms: 1000 });
    assert_eq!(before.elapsed().as_millis(), 1000);
    assert!(dribble.await.is_err(), "the connection was closed under it");
}

/// Thousands of silent connections keep no server out.
#[tokio::test(start_paused = true)]
async fn many_silent_connections_keep_no_server_out() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    let mut silent = Vec::new();
    for _ in 0..2000 {
        silent.push(RawConnection::open(&network, 1));
    }
    let mut raw = RawConnection::connect(&network, 2, 1, Lane::Urgent).await;
    let message = baton_consensus::PeerMessage {
        from: 2,
        to: 1,
        ..examples::message(MessageKind::Heartbeat)
    };
    raw.send(&Frame::Raft(vec![message])).await;
    let mut crowded_out = 0;
    loop {
        match one.event().await {
            PeerEvent::Refused { refusal, .. } => {
                assert_eq!(refusal, Refusal::Busy { limit: 64 });
                crowded_out += 1;
            }
            PeerEvent::Frame { .. } => break,
            _ => {}
        }
    }
    assert_eq!(crowded_out, 2000 + 1 - 64);
    assert_eq!(one.peers.counters().crowded_out.load(Relaxed), crowded_out);
}

/// A client that only looks whether the port is open causes no event.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_closed_at_once_is_not_reported() {
    let network = Network::default();
    let mut one = Server::start(&network, 1, 0);
    drop(RawConnection::open(&network, 1));
    sleep(Duration::from_secs(5)).await;
    assert!(one.so_far().is_empty());
}

#[tokio::test]
async fn the_port_for_servers_is_bound_to_loopback_unless_the_network_is_allowed() {
    let bind = TcpAcceptor::bind;
    for address in ["127.0.0.1:0", "localhost:0"] {
        let acceptor = bind(address, Exposure::LoopbackOnly).await.unwrap();
        assert!(acceptor.local_addr().unwrap().ip().is_loopback());
    }
    for address in ["0.0.0.0:0", "[::]:0", "*:0", "192.0.2.1:0"] {
        let error = bind(address, Exposure::LoopbackOnly).await.unwrap_err();
        assert!(matches!(error, BindError::Exposed { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("neither encrypted nor authenticated"),
            "{text}"
        );
        assert!(!text.contains("  "), "{text}");
    }
    let acceptor = bind("*:0", Exposure::PlaintextNetwork).await.unwrap();
    assert!(acceptor.local_addr().unwrap().ip().is_unspecified());
    let error = bind("127.0.0.1:x", Exposure::LoopbackOnly)
        .await
        .unwrap_err();
    assert!(matches!(error, BindError::Unresolved { .. }));
}

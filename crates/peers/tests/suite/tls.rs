//! TLS between servers: who is let in, what both sides say when somebody is not, and the change
//! from plain connections.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_peers::codec::{
    ForeignProtocol, Forward, Frame, Lane, PREFACE, Refusal, Stage, take_frame,
};
use baton_peers::net::{DialFailure, PeerEvent, RefusedBy};
use baton_tls::rustls::{ClientConfig, HandshakeKind, ServerConfig, crypto};
use baton_tls::{PeerTls, ReloadOutcome, TlsFailure, tokio_rustls};
use bytes::BytesMut;
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::raw::{encoded, hello};
use crate::tls_certificates::{
    Authority, CertificatePair, Folder, LONG, Mode, Node, connect, der, dial, own_host,
    self_signed, stranger,
};

fn tls_failed(event: PeerEvent) -> Option<TlsFailure> {
    match event {
        PeerEvent::TlsFailed { failure, .. } => Some(failure),
        _ => None,
    }
}

fn refused(event: PeerEvent) -> Option<(Option<u64>, RefusedBy, Refusal)> {
    match event {
        PeerEvent::Refused {
            peer, by, refusal, ..
        } => Some((peer, by, refusal)),
        _ => None,
    }
}

fn dial_failed(event: PeerEvent) -> Option<DialFailure> {
    match event {
        PeerEvent::DialFailed { failure, .. } => Some(failure),
        _ => None,
    }
}

/// Server 1 with TLS only, on a host of its own.
async fn one(authority: &Authority) -> (Node, String) {
    let host = own_host();
    let tls = Mode::TlsAlone(authority.tls(&[&host]));
    (Node::start(1, 1, tls, &format!("{host}:0")).await, host)
}

/// Returns the answer of a server to the hello of server 2.
async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Frame> {
    stream.write_all(&PREFACE).await?;
    let hello = encoded(&Frame::Hello(hello(2, 1, Lane::Urgent)));
    stream.write_all(&hello).await?;
    stream.flush().await?;
    let mut buffer = BytesMut::new();
    loop {
        if buffer.len() > PREFACE.len() {
            let mut behind = BytesMut::from(&buffer[PREFACE.len()..]);
            if let Some((kind, body)) = take_frame(&mut behind, Stage::Handshake).unwrap() {
                return Ok(Frame::decode(kind, body).unwrap());
            }
        }
        let read = timeout(LONG, stream.read_buf(&mut buffer));
        if read.await.unwrap()? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[tokio::test]
async fn frames_of_all_sizes_arrive_in_order_and_the_end_of_a_process_is_noticed() {
    let authority = Authority::new();
    let (mut one, host) = one(&authority).await;
    let tls = Mode::TlsAlone(authority.tls(&[&host]));
    let mut two = Node::start(2, 1, tls, &format!("{host}:0")).await;
    connect(&[&one, &two]);
    one.connections(6).await;
    let sizes: Vec<usize> = (0..60).map(|place| place * place * 500 + 1).collect();
    for (first, bytes) in (1..).zip(&sizes) {
        let forward = |first| {
            Frame::Forward(Forward {
                run: 1,
                first,
                count: 1,
                body: vec![7; *bytes].into(),
            })
        };
        // More than may wait for one server is sent here.
        while one.peers.send(2, forward(first)).is_err() {
            tokio::task::yield_now().await;
        }
    }
    for (first, bytes) in (1..).zip(&sizes) {
        let frame = two.until(|event| match event {
            PeerEvent::Frame {
                frame: Frame::Forward(forward),
                ..
            } => Some(forward),
            _ => None,
        });
        let frame = frame.await;
        assert_eq!((frame.first, frame.body.len()), (first, *bytes));
    }
    two.peers.stop().await;
    let gone = one.until(|event| match event {
        PeerEvent::Gone { peer } => Some(peer),
        _ => None,
    });
    assert_eq!(gone.await, 2);
}

/// The file names no purpose, or both: a certificate of either kind is a server's.
#[tokio::test]
async fn certificates_without_purposes_are_those_of_servers() {
    let authority = Authority::new();
    let (mut one, host) = one(&authority).await;
    let pair = authority.sign(&[&host], |params| params.extended_key_usages.clear());
    let tls = Mode::TlsAlone(authority.tls_with(&pair, true));
    let two = Node::start(2, 1, tls, &format!("{host}:0")).await;
    connect(&[&one, &two]);
    one.connections(6).await;
}

#[tokio::test]
async fn a05_a_stranger_without_a_servers_certificate_is_refused_with_one_line_on_both_sides() {
    let authority = Authority::new();
    let (mut one, host) = one(&authority).await;
    let hosts = [&*host];
    let foreign = Authority::new().sign(&hosts, |_| {});
    let expired = authority.sign(&hosts, |params| {
        params.not_after = date_time_ymd(2020, 1, 1)
    });
    let early = authority.sign(&hosts, |params| {
        params.not_before = date_time_ymd(4000, 1, 1)
    });
    let of_client = authority.sign(&hosts, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let for_accepting = authority.sign(&hosts, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let alone = self_signed(&hosts);
    let cases: [(&str, Option<&CertificatePair>, &str, &str); 7] = [
        ("none", None, "showed no certificate", "asks for a cert"),
        ("foreign", Some(&foreign), "by no authority", "certificate"),
        ("alone", Some(&alone), "by no authority", "certificate"),
        ("expired", Some(&expired), "has expired", "has expired"),
        ("early", Some(&early), "not valid yet", "certificate"),
        (
            "of a client",
            Some(&of_client),
            "another purpose",
            "refuses",
        ),
        (
            "one end",
            Some(&for_accepting),
            "another purpose",
            "refuses",
        ),
    ];
    for (name, own, here, there) in cases {
        let config = stranger(&authority, own);
        let theirs = match dial(&one.address, &host, &config).await {
            // With TLS 1.3 the first read says what became of the certificate.
            Ok(mut stream) => answer(&mut stream).await.unwrap_err(),
            Err(error) => error,
        };
        let theirs = TlsFailure::of(&theirs).unwrap_or_else(|| panic!("{name}: {theirs}"));
        assert!(theirs.to_string().contains(there), "{name}: {theirs}");
        let ours = one.until(tls_failed).await.to_string();
        assert!(ours.contains(here), "{name}: {ours}");
        assert!(!ours.contains('\n'), "{ours}");
    }
    let counters = one.peers.counters();
    assert_eq!(counters.tls_failed.load(Relaxed), 7);
    assert_eq!(counters.refused.load(Relaxed), 0);
    assert!(one.peers.open_lanes(2).is_empty());
}

#[tokio::test]
async fn a05_the_certificate_of_one_server_is_not_that_of_another() {
    let authority = Authority::new();
    let (mut one, host) = one(&authority).await;
    let of_third = authority.sign(&["zk3.example"], |_| {});
    let config = stranger(&authority, Some(&of_third));
    let addresses = |at: &str| BTreeMap::from([(2, format!("{at}:9"))]);
    one.peers.set_addresses(&addresses("127.0.0.1"));
    let mut stream = dial(&one.address, &host, &config).await.unwrap();
    let expected = Refusal::OtherHost {
        id: 2,
        names: "127.0.0.1, but for zk3.example".to_owned(),
    };
    let answered = answer(&mut stream).await.unwrap();
    assert_eq!(answered, Frame::Refused(expected.clone()));
    let noticed = one.until(refused).await;
    assert_eq!(noticed, (Some(2), RefusedBy::Us, expected));
    // At the address of the list that this server has for it, the same server is welcome, and so is
    // one that this server does not know yet.
    for known in [addresses("zk3.example."), BTreeMap::new()] {
        one.peers.set_addresses(&known);
        let mut stream = dial(&one.address, &host, &config).await.unwrap();
        let answered = answer(&mut stream).await.unwrap();
        assert!(matches!(answered, Frame::Welcome(_)), "{answered:?}");
    }
    // Without the check, the authority alone decides.
    let pair = authority.sign(&[&host], |_| {});
    let mode = Mode::TlsAlone(authority.tls_with(&pair, false));
    let lax = Node::start(1, 1, mode, &format!("{host}:0")).await;
    lax.peers.set_addresses(&addresses("127.0.0.1"));
    let mut stream = dial(&lax.address, &host, &config).await.unwrap();
    let answered = answer(&mut stream).await.unwrap();
    assert!(matches!(answered, Frame::Welcome(_)), "{answered:?}");
}

#[tokio::test]
async fn a05_a_server_that_moves_is_known_by_its_former_host_until_it_has_moved() {
    let authority = Authority::new();
    let (one, host) = one(&authority).await;
    let of_host = |host: &str| stranger(&authority, Some(&authority.sign(&[host], |_| {})));
    let answered = async |config: &Arc<ClientConfig>| {
        let mut stream = dial(&one.address, &host, config).await.unwrap();
        answer(&mut stream).await.unwrap()
    };
    let is_welcome = |answered: &Frame| matches!(answered, Frame::Welcome(_));
    let refused = |shown: &str| {
        Frame::Refused(Refusal::OtherHost {
            id: 2,
            names: format!("new.example, but for {shown}"),
        })
    };
    // Its address is corrected before it moves.
    for at in ["old.example", "mistake.example", "new.example"] {
        let address = BTreeMap::from([(2, format!("{at}:9"))]);
        one.peers.set_addresses(&address);
    }
    let (old, new) = (of_host("old.example"), of_host("new.example"));
    let mistake = of_host("mistake.example");
    assert!(is_welcome(&answered(&old).await));
    assert_eq!(answered(&mistake).await, refused("mistake.example"));
    assert!(is_welcome(&answered(&new).await));
    assert_eq!(answered(&old).await, refused("old.example"), "it has moved");
    assert!(is_welcome(&answered(&new).await));
}

/// A server of another authority, or for another host, or one whose certificate has expired.
#[tokio::test]
async fn a07_whoever_answers_in_the_place_of_a_server_is_refused_with_one_line() {
    let authority = Authority::new();
    let elsewhere = authority.sign(&["zk9.example"], |_| {});
    let foreign = Authority::new().sign(&["localhost", "127.0.0.1"], |_| {});
    let hosts = ["localhost", "127.0.0.1"];
    let expired = authority.sign(&hosts, |params| {
        params.not_after = date_time_ymd(2020, 1, 1)
    });
    let of_client = authority.sign(&hosts, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    for (pair, here, there) in [
        (
            &elsewhere,
            "is not for 127.0.0.1, but for zk9.example",
            "refuses",
        ),
        (
            &foreign,
            "by no authority",
            "refuses this side's certificate",
        ),
        (&expired, "has expired", "has expired"),
        (&of_client, "another purpose", "refuses"),
    ] {
        let (mut one, _) = one(&authority).await;
        let (chain, key) = der(pair);
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        one.peers.set_addresses(&BTreeMap::from([(2, address)]));
        let (socket, _) = listener.accept().await.unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let theirs = timeout(LONG, acceptor.accept(socket)).await.unwrap();
        let theirs = TlsFailure::of(&theirs.unwrap_err()).unwrap().to_string();
        assert!(theirs.contains(there), "{theirs}");
        let DialFailure::Tls(ours) = one.until(dial_failed).await else {
            panic!("another failure than {here}");
        };
        assert!(ours.to_string().contains(here), "{ours}");
    }
}

#[tokio::test]
async fn a_plain_server_and_one_with_tls_alone_both_say_what_to_do() {
    let authority = Authority::new();
    let (mut one, host) = one(&authority).await;
    let mut plain = Node::start(2, 1, Mode::Plain, &format!("{host}:0")).await;
    // The plain one connects.
    let known = BTreeMap::from([(1, one.address.clone())]);
    plain.peers.set_addresses(&known);
    let (peer, by, refusal) = plain.until(refused).await;
    assert_eq!((peer, by), (Some(1), RefusedBy::Them));
    assert_eq!(refusal, Refusal::TlsRequired);
    let text = refusal.to_string();
    assert!(
        text.contains("ensemble.tls") && text.contains("sslQuorum"),
        "{text}"
    );
    let ours = one.until(refused).await;
    assert_eq!(ours, (Some(2), RefusedBy::Us, Refusal::TlsRequired));
    plain.peers.set_addresses(&BTreeMap::new());
    // The one with TLS connects.
    let known = BTreeMap::from([(2, plain.address.clone())]);
    one.peers.set_addresses(&known);
    let failure = one.until(dial_failed).await;
    assert_eq!(failure, DialFailure::Tls(TlsFailure::Closed));
    assert!(failure.to_string().contains("may be one without TLS"));
    let by_plain = |event| refused(event).filter(|(_, by, _)| *by == RefusedBy::Us);
    let theirs = plain.until(by_plain).await;
    let expected = Refusal::Foreign(ForeignProtocol::Tls);
    assert_eq!(theirs, (None, RefusedBy::Us, expected.clone()));
    assert!(expected.to_string().contains("ensemble.tls"));
    assert!(one.peers.open_lanes(2).is_empty() && plain.peers.open_lanes(1).is_empty());
}

/// The list of members is not for strangers.
#[tokio::test]
async fn a05_a_stranger_without_tls_reads_nothing_of_the_members() {
    let authority = Authority::new();
    let (mut one, _) = one(&authority).await;
    one.peers.update_local(|local| local.cluster = 0x5EC2E7);
    let mut stream = TcpStream::connect(&one.address).await.unwrap();
    let answered = answer(&mut stream).await.unwrap();
    assert_eq!(answered, Frame::Refused(Refusal::TlsRequired));
    let noticed = one.until(refused).await;
    assert_eq!(noticed, (Some(2), RefusedBy::Us, Refusal::TlsRequired));
    // Other protocols get no answer, with TLS or without, and are named.
    for is_encrypted in [false, true] {
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        let mut answer = Vec::new();
        if is_encrypted {
            let own = authority.sign(&["localhost"], |_| {});
            let host = one.address.rsplit_once(':').unwrap().0;
            let config = stranger(&authority, Some(&own));
            let mut stream = dial(&one.address, host, &config).await.unwrap();
            stream.write_all(request).await.unwrap();
            let _ = stream.read_to_end(&mut answer).await;
        } else {
            let mut stream = TcpStream::connect(&one.address).await.unwrap();
            stream.write_all(request).await.unwrap();
            let _ = stream.read_to_end(&mut answer).await;
        }
        assert!(answer.is_empty(), "{answer:?}");
        let (_, _, refusal) = one.until(refused).await;
        assert_eq!(refusal, Refusal::Foreign(ForeignProtocol::Http));
    }
}

/// Three servers that restart one after the other: all stay reachable for each other in every mix
/// of neighbouring steps.
#[tokio::test]
async fn servers_change_from_plain_to_tls_one_after_the_other_and_stay_connected() {
    let authority = Authority::new();
    let host = own_host();
    let tls = authority.tls(&[&host]);
    let steps = [
        Mode::AcceptsBoth(Arc::clone(&tls)),
        Mode::TlsAndBoth(Arc::clone(&tls)),
        Mode::TlsAlone(tls),
    ];
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(Node::start(id, 1, Mode::Plain, &format!("{host}:0")).await);
    }
    connect(&nodes.iter().collect::<Vec<_>>());
    for node in &mut nodes {
        node.connections(12).await;
    }
    for (run, mode) in (2..).zip(&steps) {
        for at in 0..nodes.len() {
            let old = nodes.remove(at);
            let (id, address) = (old.id, old.address.clone());
            old.peers.stop().await;
            let new = Node::start(id, run, mode.clone(), &address).await;
            nodes.insert(at, new);
            connect(&nodes.iter().collect::<Vec<_>>());
            nodes[at].connections(12).await;
            for other in nodes.iter_mut().filter(|other| other.id != id) {
                other.connections(6).await;
            }
        }
    }
}

#[tokio::test]
async fn new_connections_use_changed_files_and_open_ones_stay() {
    let (old, new) = (Authority::new(), Authority::new());
    let host = own_host();
    let folder = Folder::new();
    let files = folder.files(&old.sign(&[&host], |_| {}), &[&old]);
    let tls = Arc::new(PeerTls::load(files, true).unwrap());
    let at = format!("{host}:0");
    let mut one = Node::start(1, 1, Mode::TlsAlone(Arc::clone(&tls)), &at).await;
    let mut two = Node::start(2, 1, Mode::TlsAlone(old.tls(&[&host])), &at).await;
    connect(&[&one, &two]);
    one.connections(6).await;
    two.connections(6).await;
    // Of one authority to the other: first trust both, then show the new one.
    folder.files(&old.sign(&[&host], |_| {}), &[&old, &new]);
    assert_eq!(tls.reload(), ReloadOutcome::Reloaded);
    folder.files(&new.sign(&[&host], |_| {}), &[&old]);
    let ReloadOutcome::Kept(error) = tls.reload() else {
        panic!("a certificate that the others would refuse");
    };
    assert!(error.to_string().contains("signed by no authority"));
    folder.files(&new.sign(&[&host], |_| {}), &[&old, &new]);
    assert_eq!(tls.reload(), ReloadOutcome::Reloaded);
    assert_eq!(tls.reload(), ReloadOutcome::Unchanged);
    // A third server trusts the new one alone.
    let mut three = Node::start(3, 1, Mode::TlsAlone(new.tls(&[&host])), &at).await;
    connect(&[&one, &three]);
    three.connections(6).await;
    one.connections(6).await;
    while let Ok(event) = two.events.try_recv() {
        let is_open = !matches!(
            &event,
            PeerEvent::Disconnected { link, .. }
                if link.direction == baton_peers::net::Direction::Outbound
        );
        assert!(is_open, "{event:?}");
    }
}

/// Connections that say nothing, those that begin a handshake, and those that go on to its end
/// without a certificate.
#[tokio::test]
async fn a13_half_open_handshakes_by_the_hundred_keep_no_server_out() {
    let authority = Authority::new();
    let (mut one, host) = one(&authority).await;
    let config = stranger(&authority, None);
    let mut held = Vec::new();
    for round in 0..300 {
        let mut socket = TcpStream::connect(&one.address).await.unwrap();
        match round % 3 {
            0 => {}
            // The head of a record that does not come.
            1 => socket.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).await.unwrap(),
            _ => {
                let config = Arc::clone(&config);
                let host = host.clone();
                let address = one.address.clone();
                tokio::spawn(async move { dial(&address, &host, &config).await.map(drop) });
            }
        }
        held.push(socket);
    }
    let tls = Mode::TlsAlone(authority.tls(&[&host]));
    let two = Node::start(2, 1, tls, &format!("{host}:0")).await;
    connect(&[&one, &two]);
    one.connections(6).await;
    assert!(one.peers.counters().crowded_out.load(Relaxed) > 0);
}

#[tokio::test]
async fn a14_damaged_and_oversized_records_end_their_own_connection_alone() {
    let authority = Authority::new();
    let (mut one, host) = one(&authority).await;
    let tls = Mode::TlsAlone(authority.tls(&[&host]));
    let two = Node::start(2, 1, tls, &format!("{host}:0")).await;
    connect(&[&one, &two]);
    one.connections(6).await;
    let own = authority.sign(&[&host], |_| {});
    let config = stranger(&authority, Some(&own));
    let mut rng = fastrand::Rng::with_seed(15);
    for round in 0..60 {
        let mut junk: Vec<u8> = (0..rng.usize(40..2000)).map(|_| rng.u8(..)).collect();
        let mut rest = Vec::new();
        match round % 3 {
            // A record over every limit, and one of chance.
            0 => junk.splice(..0, [0x16, 3, 3, 0xff, 0xff]).for_each(drop),
            1 => junk.splice(..0, [0x16, 3, 1, 0, 30, 1, 0]).for_each(drop),
            // Behind a handshake that was complete: damaged records.
            _ => {
                let stream = dial(&one.address, &host, &config).await.unwrap();
                let (mut socket, _) = stream.into_inner();
                junk.splice(..0, [0x17, 3, 3, 0, 32]);
                socket.write_all(&junk).await.unwrap();
                let _ = timeout(LONG, socket.read_to_end(&mut rest)).await.unwrap();
                let failure = one.until(tls_failed).await;
                assert!(matches!(failure, TlsFailure::Misbehaved(_)), "{failure:?}");
                continue;
            }
        }
        let mut socket = TcpStream::connect(&one.address).await.unwrap();
        let _ = socket.write_all(&junk).await;
        let _ = timeout(LONG, socket.read_to_end(&mut rest)).await.unwrap();
        let failure = one.until(tls_failed).await.to_string();
        assert!(!failure.contains('\n') && !failure.is_empty(), "{failure}");
    }
    assert_eq!(one.peers.open_lanes(2).len(), Lane::ALL.len());
}

#[tokio::test]
async fn a08_sessions_of_tls_between_servers_are_never_resumed() {
    let authority = Authority::new();
    let (one, host) = one(&authority).await;
    let own = authority.sign(&["zk2.example"], |_| {});
    let config = stranger(&authority, Some(&own));
    for _ in 0..2 {
        let mut stream = dial(&one.address, &host, &config).await.unwrap();
        // Behind the handshake, where tickets would come.
        answer(&mut stream).await.unwrap();
        let (_, session) = stream.get_ref();
        assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
    }
}

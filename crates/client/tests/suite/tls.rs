//! A session with TLS: what goes through it, what a lost connection means, and how each failure is
//! reported.

use std::sync::Arc;

use baton_client::{ClientTls, Config, ConnectError, CreateMode, Session, State, TlsFailure};
use baton_proto::{OpCode, Response, Stat};
use baton_testkit::{CertificateFiles, Certificates};
use baton_tls::tokio_rustls::TlsAcceptor;
use baton_tls::{ClientAuth, Files, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::support::{FakeServers, Peer, SESSION, T, settle};

fn server(certificates: &Certificates, host: &str, client_auth: ClientAuth) -> TlsAcceptor {
    let CertificateFiles { certificate, key } = certificates.server(&[host]).unwrap();
    let files = Files {
        certificates: certificate,
        key,
        authorities: Some(certificates.authorities()),
        revocation_lists: None,
    };
    TlsAcceptor::from(ServerTls::load(files, client_auth).unwrap().config())
}

fn client(certificates: &Certificates) -> ClientTls {
    ClientTls::new(certificates.authorities()).unwrap()
}

impl FakeServers {
    async fn accept_tls(&mut self, tls: &TlsAcceptor) -> Peer {
        let stream = self.accept_stream().await;
        let mut peer = Peer::new(tls.accept(stream).await.unwrap());
        peer.open(SESSION).await;
        peer
    }
}

#[tokio::test(start_paused = true)]
async fn operations_go_out_together_through_a_connection_with_tls_that_holds_little() {
    let trial = Certificates::new().unwrap();
    let listening = server(&trial, "server", ClientAuth::None);
    // Far less than what is sent: records wait in the middle of an operation.
    let mut world = FakeServers::with_buffer(700);
    let config = world.config().tls(client(&trial)).auth("digest", b"u:p");
    let connect = tokio::spawn(Session::connect(config));
    let mut peer = world.accept_tls(&listening).await;
    let asked = peer.any().await.unwrap();
    assert_eq!(asked.op, OpCode::Auth, "before anything else");
    peer.ok(&asked, None).await;
    let s = connect.await.unwrap().unwrap();
    let data = vec![7; 3_000];
    let all: Vec<_> = (0..100).map(|_| s.set_data("/n", &data, None)).collect();
    let mut received = Vec::new();
    for _ in 0..all.len() {
        // Nothing is answered before the last has come.
        received.push(peer.expect(OpCode::SetData).await);
    }
    for asked in &received {
        peer.ok(asked, Some(Response::Stat(Stat::default()))).await;
    }
    for pending in all {
        pending.await.unwrap();
    }

    drop(peer);
    let mut peer = world.accept_tls(&listening).await;
    assert_eq!(peer.any().await.unwrap().op, OpCode::Auth, "again");
    settle().await;
    assert!(matches!(s.state(), State::Connected { epoch: 2 }));
}

/// Records with a part of an operation have left, and nobody knows how much of them was read.
#[tokio::test(start_paused = true)]
async fn an_operation_whose_write_failed_within_tls_may_have_been_applied() {
    let trial = Certificates::new().unwrap();
    let listening = server(&trial, "server", ClientAuth::None);
    let mut world = FakeServers::with_buffer(1 << 10);
    let config = world.config().tls(client(&trial));
    let connect = tokio::spawn(Session::connect(config));
    let mut peer = world.accept_tls(&listening).await;
    peer.answer_next_probe().await;
    let s = connect.await.unwrap().unwrap();
    let large = s.create("/n", &vec![1; 500_000], CreateMode::Persistent);
    let mut some = [0; 4_096];
    peer.stream.read_exact(&mut some).await.unwrap();
    drop(peer);
    let error = large.await.unwrap_err();
    assert!(error.is_maybe_applied(), "{error}");
}

/// Serves every attempt of a session until it gives up.
async fn refusal(
    world: &mut FakeServers,
    config: Config,
    mut serve: impl AsyncFnMut(DuplexStream),
) -> ConnectError {
    let connecting = Session::connect(config.connect_within(T));
    let mut connecting = Box::pin(connecting);
    loop {
        tokio::select! {
            biased;
            done = &mut connecting => return done.unwrap_err(),
            stream = world.listener.accept() => {
                // The client has to go on meanwhile.
                tokio::select! {
                    biased;
                    done = &mut connecting => return done.unwrap_err(),
                    () = serve(stream.unwrap()) => {}
                }
            }
        }
    }
}

fn failure(error: &ConnectError) -> &TlsFailure {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains("server"), "{text}");
    match error {
        ConnectError::Tls { failure, .. } => failure,
        error => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_failure_of_tls_is_reported_as_what_it_is() {
    let trial = Certificates::new().unwrap();
    let mut world = FakeServers::new();
    let tls = client(&trial);
    let config = |world: &FakeServers| world.config().tls(tls.clone());

    let other = server(&trial, "other", ClientAuth::None);
    let of_client = config(&world);
    let error = refusal(&mut world, of_client, async |stream| {
        assert!(other.accept(stream).await.is_err());
    });
    let error = error.await;
    let TlsFailure::WrongHost {
        expected,
        presented,
    } = failure(&error)
    else {
        panic!("{error}");
    };
    assert_eq!((expected.as_str(), presented.as_str()), ("server", "other"));

    let stranger = server(&Certificates::new().unwrap(), "server", ClientAuth::None);
    let of_client = config(&world);
    let error = refusal(&mut world, of_client, async |stream| {
        assert!(stranger.accept(stream).await.is_err());
    });
    assert_eq!(failure(&error.await), &TlsFailure::UnknownAuthority);

    let of_client = config(&world);
    let error = refusal(&mut world, of_client, async |mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    assert_eq!(failure(&error.await), &TlsFailure::NotTls);

    let of_client = config(&world);
    let error = refusal(&mut world, of_client, async |stream| drop(stream));
    assert_eq!(failure(&error.await), &TlsFailure::Closed);

    let strict = server(&trial, "server", ClientAuth::Required);
    let of_client = config(&world);
    let error = refusal(&mut world, of_client, async |stream| {
        assert!(strict.accept(stream).await.is_err());
    });
    assert_eq!(failure(&error.await), &TlsFailure::CertificateRequired);
}

#[tokio::test(start_paused = true)]
async fn a_client_shows_its_certificate_to_a_server_that_asks_for_one() {
    let trial = Certificates::new().unwrap();
    let strict = server(&trial, "server", ClientAuth::Required);
    let CertificateFiles { certificate, key } = trial.client("alice").unwrap();
    let tls = client(&trial).with_identity(certificate, key).unwrap();
    let mut world = FakeServers::new();
    let connect = tokio::spawn(Session::connect(world.config().tls(tls)));
    let stream = world.accept_stream().await;
    let stream = strict.accept(stream).await.unwrap();
    let (_, about) = stream.get_ref();
    assert_eq!(about.peer_certificates().map(<[_]>::len), Some(1));
    let mut peer = Peer::new(stream);
    peer.open(SESSION).await;
    connect.await.unwrap().unwrap();
}

/// The other way round: the server speaks TLS, and the client does not know.
#[tokio::test(start_paused = true)]
async fn a_server_that_takes_tls_alone_is_named_as_that() {
    const ALERT: &[u8] = &[0x15, 0x03, 0x03, 0, 2, 2, 50];
    let mut world = FakeServers::new();
    let config = world.config();
    let error = refusal(&mut world, config, async |mut stream| {
        let _ = stream.write_all(ALERT).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let error = error.await;
    assert_eq!(failure(&error), &TlsFailure::TlsOnly);
    assert!(error.to_string().contains("tls://"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a20_a_list_that_asks_for_tls_is_never_reached_without() {
    let world = FakeServers::new();
    let config = Config::new("tls://server:1")
        .unwrap()
        .transport(Arc::new(world.transport.clone()));
    let error = Session::connect(config).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::TlsNotConfigured { .. }),
        "{error}"
    );
    assert!(
        error.to_string().starts_with("tls://server:1 asks for TLS"),
        "{error}"
    );
    assert_eq!(world.transport.attempts(), 0);
}

//! Handshakes between rustls clients and the server's configuration, in memory.

use std::sync::Arc;

use baton_tls::failure::explain;
use baton_tls::rustls::{self, ClientConfig, ClientConnection, HandshakeKind, ServerConnection};
use baton_tls::{ClientAuth, ReloadOutcome, ServerTls, subject};
use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};

use crate::support::{Ca, Folder, client, meet, named, why};

fn shake_hands(
    client: &Arc<ClientConfig>,
    server: &ServerTls,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    meet(client, &server.config())
}

#[test]
fn a_client_certificate_is_none_optional_or_required() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let files = folder.files(&ca.sign(|_| {}), Some(&ca));
    let own = ca.sign(|params| params.distinguished_name = named("worker"));
    let (with, without) = (client(&ca, Some(&own)), client(&ca, None));
    for (client_auth, is_known, is_served) in [
        (ClientAuth::None, false, true),
        (ClientAuth::Optional, true, true),
        (ClientAuth::Required, true, false),
    ] {
        let server = ServerTls::load(files.clone(), client_auth).unwrap();
        let (_, session) = shake_hands(&with, &server).unwrap();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let subject = certificate.map(|der| subject::of_certificate(der).unwrap());
        assert_eq!(
            subject.as_deref(),
            is_known.then_some("CN=worker"),
            "{client_auth}"
        );
        let outcome = shake_hands(&without, &server);
        assert_eq!(outcome.is_ok(), is_served, "{client_auth}");
        if !is_served {
            assert!(why(outcome).contains("showed no certificate"));
        }
    }
}

#[test]
fn a06_expired_foreign_and_self_signed_certificates_of_clients_are_refused() {
    let (ca, other) = (Ca::new("authority"), Ca::new("authority"));
    let folder = Folder::new();
    let files = folder.files(&ca.sign(|_| {}), Some(&ca));
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let server = ServerTls::load(files.clone(), client_auth).unwrap();
        let expired = ca.sign(|params| params.not_after = date_time_ymd(2020, 1, 1));
        let refused = why(shake_hands(&client(&ca, Some(&expired)), &server));
        assert!(refused.contains("expired"), "{refused}");
        let early = ca.sign(|params| params.not_before = date_time_ymd(4000, 1, 1));
        let refused = why(shake_hands(&client(&ca, Some(&early)), &server));
        assert!(refused.contains("not valid yet"), "{refused}");
        // The other authority has the same name.
        let foreign = other.sign(|_| {});
        let refused = why(shake_hands(&client(&ca, Some(&foreign)), &server));
        assert!(
            refused.contains("signed by no authority") || refused.contains("issue it again"),
            "{refused}"
        );
        let of_server = ca.sign(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        let refused = why(shake_hands(&client(&ca, Some(&of_server)), &server));
        assert!(refused.contains("clientAuth"), "{refused}");
    }
}

#[test]
fn a07_a_server_of_another_authority_or_name_is_refused_by_the_client() {
    let (ca, other) = (Ca::new("authority"), Ca::new("other"));
    let folder = Folder::new();
    let server = ServerTls::load(folder.files(&ca.sign(|_| {}), None), ClientAuth::None).unwrap();
    let refused = why(shake_hands(&client(&other, None), &server));
    assert!(refused.contains("signed by no authority"), "{refused}");
    let elsewhere = other.sign(|params| {
        params.subject_alt_names = rcgen::CertificateParams::new(vec!["elsewhere".to_owned()])
            .unwrap()
            .subject_alt_names;
    });
    let server = ServerTls::load(folder.files(&elsewhere, None), ClientAuth::None).unwrap();
    let refused = why(shake_hands(&client(&other, None), &server));
    assert!(refused.contains("subjectAltName"), "{refused}");
}

#[test]
fn a08_a_session_with_a_client_certificate_is_never_resumed_unverified() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let files = folder.files(&ca.sign(|_| {}), Some(&ca));
    for (client_auth, second) in [
        (ClientAuth::None, HandshakeKind::Resumed),
        (ClientAuth::Optional, HandshakeKind::Full),
        (ClientAuth::Required, HandshakeKind::Full),
    ] {
        let server = ServerTls::load(files.clone(), client_auth).unwrap();
        let client = client(&ca, Some(&ca.sign(|_| {})));
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let (_, session) = shake_hands(&client, &server).unwrap();
            kinds.push(session.handshake_kind());
        }
        assert_eq!(
            kinds,
            [Some(HandshakeKind::Full), Some(second)],
            "{client_auth}"
        );
    }
}

#[test]
fn changed_files_are_used_by_new_connections_and_broken_ones_are_not() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let (first, second) = (ca.sign(|_| {}), ca.sign(|_| {}));
    let files = folder.files(&first, None);
    let server = ServerTls::load(files.clone(), ClientAuth::None).unwrap();
    let client = client(&ca, None);
    let shown = || {
        let (client, _) = shake_hands(&client, &server).unwrap();
        client.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown();
    assert_eq!(server.reload(), ReloadOutcome::Unchanged);
    // One file of two: they do not belong together.
    folder.write("server.pem", &second.certificate);
    let ReloadOutcome::Kept(error) = server.reload() else {
        panic!("a certificate without its key");
    };
    assert!(error.to_string().contains("does not belong"), "{error}");
    assert_eq!(shown(), before);
    assert_eq!(
        server.reload(),
        ReloadOutcome::Unchanged,
        "it is reported once"
    );
    folder.write("server.key", &second.key);
    assert_eq!(server.reload(), ReloadOutcome::Reloaded);
    let after = shown();
    assert_ne!(after, before);
    std::fs::remove_file(&files.key).unwrap();
    assert!(matches!(server.reload(), ReloadOutcome::Kept(_)));
    assert_eq!(shown(), after);
    // Moved into its place, as those who write files safely do.
    let new = folder.write("new.key", &second.key);
    std::fs::rename(new, &files.key).unwrap();
    assert_eq!(server.reload(), ReloadOutcome::Reloaded);
    assert_eq!(shown(), after);
}

#[test]
fn a09_tickets_of_before_a_reload_do_not_resume() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let pair = ca.sign(|_| {});
    let server = ServerTls::load(folder.files(&pair, None), ClientAuth::None).unwrap();
    let client = client(&ca, None);
    shake_hands(&client, &server).unwrap();
    let new = ca.sign(|_| {});
    folder.files(&new, None);
    assert_eq!(server.reload(), ReloadOutcome::Reloaded);
    let (_, session) = shake_hands(&client, &server).unwrap();
    assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
}

#[test]
fn a10_only_tls_1_2_and_1_3_are_spoken() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let server = ServerTls::load(folder.files(&ca.sign(|_| {}), None), ClientAuth::None).unwrap();
    // A ClientHello of TLS 1.1: no supported_versions, one old cipher.
    let body = [&[3, 2][..], &[7; 32], &[0], &[0, 2, 0xc0, 0x13], &[1, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    let hello = [&[1, 0, 0, length][..], &body].concat();
    let length = u8::try_from(hello.len()).unwrap();
    let record = [&[0x16, 3, 1, 0, length][..], &hello].concat();
    let mut session = ServerConnection::new(server.config()).unwrap();
    session.read_tls(&mut &record[..]).unwrap();
    let refused = explain(&session.process_new_packets().unwrap_err());
    assert!(refused.contains("TLS"), "{refused}");
    let mut alert = Vec::new();
    session.write_tls(&mut alert).unwrap();
    assert_eq!(alert[0], 0x15, "an alert says why");
}

#[test]
fn bytes_that_are_not_tls_are_refused_in_one_line() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let server = ServerTls::load(folder.files(&ca.sign(|_| {}), None), ClientAuth::None).unwrap();
    let mut rng = fastrand::Rng::with_seed(15);
    for round in 0..2000 {
        let mut session = ServerConnection::new(server.config()).unwrap();
        let mut bytes: Vec<u8> = (0..rng.usize(1..600)).map(|_| rng.u8(..)).collect();
        if round % 2 == 0 {
            // The head of a record, and chance behind it.
            bytes.splice(..0, [0x16, 3, rng.u8(..5), rng.u8(..2), rng.u8(..)]);
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            if session.read_tls(&mut rest).unwrap_or(0) == 0 {
                break;
            }
            if let Err(error) = session.process_new_packets() {
                let line = explain(&error);
                assert!(!line.contains('\n') && !line.is_empty(), "{line}");
                break;
            }
        }
        assert!(session.is_handshaking());
    }
}

//! Chains of one to three certificates, at every place where a certificate is judged: the handshake
//! of each side, between servers, at start, and when an open connection is judged again.

use std::time::{Duration, UNIX_EPOCH};

use baton_tls::rustls::pki_types::CertificateDer;
use baton_tls::rustls::pki_types::pem::PemObject;
use baton_tls::{ClientAuth, ClientTls, Files, PeerTls, ReloadOutcome, ServerTls};
use rcgen::{SerialNumber, date_time_ymd};

use crate::support::{Ca, CertificatePair, Folder, client, meet, why};

/// A root and two intermediate authorities, each certified by the one before.
fn authorities() -> [Ca; 3] {
    let root = Ca::new("root");
    let first = root.intermediate("first");
    let second = first.intermediate("second");
    [root, first, second]
}

/// The pair without the certificates of intermediate authorities.
fn alone(pair: &CertificatePair) -> CertificatePair {
    let end = "-----END CERTIFICATE-----\n";
    let certificate = pair.certificate.replace("\r\n", "\n");
    let own = certificate.split(end).next().unwrap();
    CertificatePair {
        certificate: format!("{own}{end}"),
        key: pair.key.clone(),
    }
}

fn certificates(pair: &CertificatePair) -> Vec<CertificateDer<'static>> {
    let certificates = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    certificates.map(Result::unwrap).collect()
}

#[test]
fn a_client_with_a_chain_is_accepted_and_stays_accepted_when_it_is_judged_again() {
    let authorities = authorities();
    let root = &authorities[0];
    let folder = Folder::new();
    let server = ServerTls::load(
        folder.files(&root.sign(|_| {}), Some(root)),
        ClientAuth::Required,
    )
    .unwrap();
    for (depth, ca) in authorities.iter().enumerate() {
        let own = ca.sign(|_| {});
        assert_eq!(certificates(&own).len(), depth + 1);
        let (_, session) = meet(&client(root, Some(&own)), &server.config()).unwrap();
        let shown = session.peer_certificates().unwrap();
        assert_eq!(shown.len(), depth + 1);
        server.verify(shown).unwrap();
        if depth > 0 {
            // The test would notice a judgement that ignores the chain.
            server.verify(&shown[..1]).unwrap_err();
            let outcome = meet(&client(root, Some(&alone(&own))), &server.config());
            let refused = why(outcome);
            assert!(refused.contains("signed by no authority"), "{refused}");
        }
    }
}

#[test]
fn a_chain_is_valid_until_its_first_certificate_ends() {
    let root = Ca::new("root");
    let year_3000 = UNIX_EPOCH + Duration::from_secs(32_503_680_000);
    for (intermediate, own) in [(3000, 3500), (3500, 3000)] {
        let authority = root.intermediate_until("first", intermediate);
        let own = authority.sign(|it| it.not_after = date_time_ymd(own, 1, 1));
        let folder = Folder::new();
        let files = || folder.files(&own, Some(&root));
        let server = ServerTls::load(files(), ClientAuth::Required).unwrap();
        let peer = PeerTls::load(files(), true).unwrap();
        let ends = [server.valid_until(), peer.valid_until()];
        assert_eq!(ends, [Some(year_3000); 2]);
    }
}

#[test]
fn a_server_with_a_chain_is_accepted_by_clients() {
    let authorities = authorities();
    let root = &authorities[0];
    for (depth, ca) in authorities.iter().enumerate() {
        let folder = Folder::new();
        let own = ca.sign(|_| {});
        let trusting = ClientTls::new(folder.write("root.pem", &root.pem)).unwrap();
        let load = |own: &CertificatePair| {
            ServerTls::load(folder.files(own, None), ClientAuth::None).unwrap()
        };
        meet(&trusting.config(), &load(&own).config()).unwrap();
        let any_host = trusting.without_hostname_check();
        meet(&any_host.config(), &load(&own).config()).unwrap();
        if depth > 0 {
            why(meet(&any_host.config(), &load(&alone(&own)).config()));
        }
    }
}

#[test]
fn servers_with_chains_accept_each_other_and_their_own_at_start() {
    let authorities = authorities();
    let root = &authorities[0];
    for checks_hosts in [true, false] {
        let folders = [Folder::new(), Folder::new(), Folder::new()];
        let peers: Vec<PeerTls> = authorities
            .iter()
            .zip(&folders)
            .map(|(ca, folder)| folder.files(&ca.sign(|_| {}), Some(root)))
            .map(|files| PeerTls::load(files, checks_hosts).unwrap())
            .collect();
        for connects in &peers {
            for accepts in &peers {
                meet(&connects.connecting(), &accepts.accepting()).unwrap();
            }
        }
        let cut = alone(&authorities[2].sign(|_| {}));
        let refused = PeerTls::load(folders[2].files(&cut, Some(root)), checks_hosts);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("server.pem"), "{refused}");
    }
}

#[test]
fn a23_a_client_of_an_intermediate_authority_is_judged_again_by_the_lists_of_all() {
    let authorities = authorities();
    let [root, first, _] = &authorities;
    let folder = Folder::new();
    let lists = |revoked: &[u64]| {
        let [root, first, second] = &authorities;
        let others = format!("{}{}", root.revoke(&[]), second.revoke(&[]));
        format!("{others}{}", first.revoke(revoked))
    };
    let files = Files {
        revocation_lists: Some(folder.write("crl.pem", lists(&[]))),
        ..folder.files(&root.sign(|_| {}), Some(root))
    };
    let server = ServerTls::load(files, ClientAuth::Required).unwrap();
    let own = first.sign(|params| params.serial_number = Some(SerialNumber::from(7_u64)));
    let (_, session) = meet(&client(root, Some(&own)), &server.config()).unwrap();
    server.verify(session.peer_certificates().unwrap()).unwrap();
    folder.write("crl.pem", lists(&[7]));
    assert_eq!(server.reload(), ReloadOutcome::Reloaded);
    let again = server.verify(session.peer_certificates().unwrap());
    let again = baton_tls::failure::explain(&again.unwrap_err());
    assert!(again.contains("was revoked"), "{again}");
    assert!(why(meet(&client(root, Some(&own)), &server.config())).contains("was revoked"));
}

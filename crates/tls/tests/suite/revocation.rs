//! Certificates that their authority has revoked: who is refused, and which lists are.

use baton_tls::failure::explain;
use baton_tls::rustls::ServerConnection;
use baton_tls::{ClientAuth, Files, PeerTls, ReloadOutcome, ServerTls, TlsError};
use rcgen::SerialNumber;

use crate::support::{Ca, CertificatePair, Folder, client, meet, why};

/// A certificate with this serial number.
fn numbered(ca: &Ca, serial: u64) -> CertificatePair {
    ca.sign(|params| params.serial_number = Some(SerialNumber::from(serial)))
}

/// The files of a server with this certificate and these lists.
fn files(folder: &Folder, own: &CertificatePair, ca: &Ca, lists: &str) -> Files {
    Files {
        revocation_lists: Some(folder.write("crl.pem", lists)),
        ..folder.files(own, Some(ca))
    }
}

#[test]
fn a23_a_revoked_client_is_refused_in_one_line_from_the_next_reading_of_the_list_on() {
    let ca = Ca::new("authority");
    let [own, alice, bob] = [1, 2, 3].map(|serial| numbered(&ca, serial));
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let folder = Folder::new();
        let files = files(&folder, &own, &ca, &ca.revoke(&[]));
        let server = ServerTls::load(files, client_auth).unwrap();
        let asks = |pair: &CertificatePair| meet(&client(&ca, Some(pair)), &server.config());
        let (_, of_alice) = asks(&alice).unwrap();
        let (_, of_bob) = asks(&bob).unwrap();
        let stays = |session: &ServerConnection| {
            let verified = server.verify(session.peer_certificates().unwrap());
            verified.map_err(|error| explain(&error))
        };
        assert_eq!(stays(&of_alice), Ok(()));
        folder.write("crl.pem", ca.revoke(&[7, 2]));
        assert_eq!(server.reload(), ReloadOutcome::Reloaded);
        let refused = why(asks(&alice));
        assert_eq!(refused, "its certificate was revoked; give it a new one");
        asks(&bob).unwrap();
        // Of the connections from before.
        assert_eq!(stays(&of_alice), Err(refused.clone()));
        assert_eq!(stays(&of_bob), Ok(()));
        assert_eq!(server.verify(&[]), Ok(()), "who has shown none");
        // A list that is damaged lets nobody in again.
        folder.write("crl.pem", "");
        assert!(matches!(server.reload(), ReloadOutcome::Kept(_)));
        assert_eq!(why(asks(&alice)), refused);
    }
}

#[test]
fn a23_where_no_list_speaks_for_an_authority_its_clients_are_refused() {
    let (ca, other) = (Ca::new("authority"), Ca::new("other"));
    let folder = Folder::new();
    let own = numbered(&ca, 1);
    let mut files = files(&folder, &own, &ca, &ca.revoke(&[]));
    files.authorities = Some(folder.write("ca.pem", format!("{}{}", ca.pem, other.pem)));
    let server = ServerTls::load(files, ClientAuth::Required).unwrap();
    let asks = |of: &Ca| meet(&client(&ca, Some(&numbered(of, 5))), &server.config());
    asks(&ca).unwrap();
    let refused = why(asks(&other));
    assert!(
        refused.contains("append that authority's list"),
        "{refused}"
    );
    folder.write(
        "crl.pem",
        format!("{}{}", other.revoke(&[]), ca.revoke(&[5])),
    );
    assert_eq!(server.reload(), ReloadOutcome::Reloaded);
    asks(&other).unwrap();
    assert!(why(asks(&ca)).contains("was revoked"));
    // Somebody else's list under the authority's name.
    folder.write("crl.pem", Ca::new("authority").revoke(&[]));
    assert_eq!(server.reload(), ReloadOutcome::Reloaded);
    let refused = why(asks(&ca));
    assert!(refused.contains("cannot be used"), "{refused}");
}

#[test]
fn a23_servers_refuse_a_revoked_server_in_both_directions() {
    let ca = Ca::new("authority");
    let (here, there) = (Folder::new(), Folder::new());
    let [own, thief] = [1, 2].map(|serial| numbered(&ca, serial));
    let own = PeerTls::load(files(&here, &own, &ca, &ca.revoke(&[])), true).unwrap();
    // The thief does not take the new list.
    let thief = PeerTls::load(there.files(&thief, Some(&ca)), true).unwrap();
    meet(&own.connecting(), &thief.accepting()).unwrap();
    here.write("crl.pem", ca.revoke(&[2]));
    assert_eq!(own.reload(), ReloadOutcome::Reloaded);
    for (connects, accepts) in [(&own, &thief), (&thief, &own)] {
        let refused = why(meet(&connects.connecting(), &accepts.accepting()));
        assert!(refused.contains("was revoked"), "{refused}");
    }
    let any_host = files(&here, &numbered(&ca, 3), &ca, &ca.revoke(&[2]));
    let any_host = PeerTls::load(any_host, false).unwrap();
    let refused = why(meet(&any_host.connecting(), &thief.accepting()));
    assert!(refused.contains("was revoked"), "{refused}");
    // A server whose own certificate was revoked says so when it starts.
    let revoked = PeerTls::load(files(&here, &numbered(&ca, 2), &ca, &ca.revoke(&[2])), true);
    let text = revoked.unwrap_err().to_string();
    assert!(
        text.contains("server.pem") && text.contains("was revoked"),
        "{text}"
    );
}

#[test]
fn a_file_of_lists_that_cannot_be_used_is_refused_with_its_remedy() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let own = numbered(&ca, 1);
    let list = ca.revoke(&[1]);
    let der = list
        .lines()
        .filter(|line| !line.starts_with('-'))
        .collect::<String>();
    let cut = format!(
        "-----BEGIN X509 CRL-----\n{}\n-----END X509 CRL-----\n",
        &der[..der.len() / 8 * 4]
    );
    for (lists, parts) in [
        ("", &["CRL file", "BEGIN X509 CRL"][..]),
        (ca.pem.as_str(), &["has no list of revoked certificates"]),
        (
            &cut,
            &["list 1 in the CRL file", "take it from its authority"],
        ),
        (
            &format!("{list}{}", ca.revoke_until(&[], 2020)),
            &["list 2 in the CRL file", "2020", "put the newest list"],
        ),
    ] {
        let files = files(&folder, &own, &ca, lists);
        let path = files.revocation_lists.clone().unwrap();
        for error in [
            ServerTls::load(files.clone(), ClientAuth::Required).unwrap_err(),
            PeerTls::load(files, true).unwrap_err(),
        ] {
            let line = error.to_string();
            assert!(!line.contains('\n'), "{line}");
            assert!(line.contains(path.to_str().unwrap()), "{line}");
            for part in parts {
                assert!(line.contains(part), "no '{part}' in: {line}");
            }
        }
    }
    let mut missing = files(&folder, &own, &ca, &list);
    missing.revocation_lists = Some(folder.path("none.pem"));
    let error = ServerTls::load(missing, ClientAuth::Required).unwrap_err();
    assert!(matches!(error, TlsError::Unreadable { .. }), "{error}");
    // In DER, long and short.
    for begin in [[0x30, 0x82, 1, 2, 0x30], [0x30, 0x81, 200, 0x30, 0x81]] {
        folder.write("crl.der", begin);
        let mut der = files(&folder, &own, &ca, &list);
        der.revocation_lists = Some(folder.path("crl.der"));
        let error = ServerTls::load(der, ClientAuth::Required).unwrap_err();
        assert!(
            error.to_string().contains("openssl crl -inform DER"),
            "{error}"
        );
    }
}

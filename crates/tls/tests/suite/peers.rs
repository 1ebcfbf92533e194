//! The certificates of the servers of an ensemble: which are refused at start, and when changed
//! ones are used.

use baton_tls::rustls::pki_types::CertificateDer;
use baton_tls::rustls::pki_types::pem::PemObject;
use baton_tls::{Files, PeerTls, ReloadOutcome, TlsFailure};
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};

use crate::support::{Ca, Folder};

#[test]
fn what_other_servers_would_refuse_is_refused_at_start_with_the_file_and_the_remedy() {
    let (ca, other) = (Ca::new("authority"), Ca::new("authority"));
    let folder = Folder::new();
    let refused = |files: Files| {
        let refused = PeerTls::load(files, true).unwrap_err().to_string();
        assert!(!refused.contains('\n'), "{refused}");
        refused
    };
    PeerTls::load(folder.files(&ca.sign(|_| {}), Some(&ca)), true).unwrap();
    let without = ca.sign(|params| params.extended_key_usages.clear());
    PeerTls::load(folder.files(&without, Some(&ca)), true).unwrap();
    for purpose in [ClientAuth, ServerAuth] {
        let one_end = ca.sign(|params| params.extended_key_usages = vec![purpose.clone()]);
        let refused = refused(folder.files(&one_end, Some(&ca)));
        assert!(
            refused.contains("server.pem")
                && refused.contains("not both serverAuth and clientAuth"),
            "{purpose:?}: {refused}"
        );
    }
    let foreign = refused(folder.files(&other.sign(|_| {}), Some(&ca)));
    assert!(
        foreign.contains("server.pem") && foreign.contains("ca.pem"),
        "{foreign}"
    );
    let nobody = refused(folder.files(&ca.sign(|_| {}), None));
    assert!(nobody.contains("no CA file"), "{nobody}");
    // What is refused for every port is refused here, too.
    let files = folder.files(&ca.sign(|_| {}), Some(&ca));
    crate::support::chmod(&files.key, 0o644);
    assert!(refused(files).contains("chmod 600"));
}

#[test]
fn a_changed_certificate_is_taken_if_other_servers_would_take_it() {
    let (ca, other) = (Ca::new("authority"), Ca::new("authority"));
    let folder = Folder::new();
    let tls = PeerTls::load(folder.files(&ca.sign(|_| {}), Some(&ca)), true).unwrap();
    let before = tls.accepting();
    assert_eq!(tls.reload(), ReloadOutcome::Unchanged);
    folder.files(&other.sign(|_| {}), Some(&ca));
    let ReloadOutcome::Kept(error) = tls.reload() else {
        panic!("a certificate of another authority");
    };
    assert!(
        error.to_string().contains("signed by no authority"),
        "{error}"
    );
    assert!(std::sync::Arc::ptr_eq(&before, &tls.accepting()));
    assert_eq!(tls.reload(), ReloadOutcome::Unchanged, "reported once");
    folder.files(&other.sign(|_| {}), Some(&other));
    assert_eq!(tls.reload(), ReloadOutcome::Reloaded);
    assert!(!std::sync::Arc::ptr_eq(&before, &tls.accepting()));
}

#[test]
fn the_host_of_a_server_that_connects_is_one_of_its_certificate() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let own = ca.sign(|_| {});
    let files = folder.files(&own, Some(&ca));
    let der = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    let tls = PeerTls::load(files.clone(), true).unwrap();
    for host in ["localhost", "LOCALHOST", "localhost."] {
        tls.check_host(&der, host).unwrap();
    }
    for host in ["elsewhere", "127.0.0.1", "::1", "sub.localhost"] {
        let failure = tls.check_host(&der, host).unwrap_err();
        assert!(matches!(failure, TlsFailure::WrongHost { .. }), "{failure}");
        assert!(failure.to_string().contains(host), "{failure}");
    }
    let failure = tls.check_host(&der, "no name").unwrap_err();
    assert!(matches!(failure, TlsFailure::BadName(_)), "{failure}");
    let any = PeerTls::load(files, false).unwrap();
    any.check_host(&der, "elsewhere").unwrap();
}

//! Each file that cannot be used is refused with one line that names it and the remedy.

use std::path::Path;

use baton_tls::pem::{read_authorities, read_certificates, read_identity, read_key};
use baton_tls::{ClientAuth, FileRole, Files, ServerTls, TlsError};
use rcgen::date_time_ymd;

use crate::support::{Ca, CertificatePair, Folder, chmod};

/// A certificate of version 1, which rustls refuses.
const VERSION_ONE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBGDCBvwIUKY0459EpYdC6Gjk7ZPVhI5bIVtAwCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMCAXDTI2MTEyMzE0MjYyMFoYDzIxMjYxMDMwMTQyNjIwWjAOMQww
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARGz9lr7HQRDiaU
MOg/+bPPKq+gJlpBgS0SkY5tA7PWZIe6wWoJvM2CwqoDONHbBiawiJBTSKeUJRVs
3jbDg3ZDMAoGCCqGSM49BAMCA0gAMEUCIQD92Ao/S9qqQViPpasvkRuDH3tAjJdo
sIpBFOhqzS16jQIgTHdaa+t8fJF3pSr77shllFodpCr2Mr3WgykhJFdVNTI=
-----END CERTIFICATE-----
";

/// The line names the file and holds these words.
fn refused(error: &TlsError, path: &Path, words: &[&str]) {
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    for part in words.iter().copied().chain([path.to_str().unwrap()]) {
        assert!(line.contains(part), "no '{part}' in: {line}");
    }
}

fn good() -> (Folder, Ca, CertificatePair) {
    let ca = Ca::new("authority");
    let pair = ca.sign(|_| {});
    (Folder::new(), ca, pair)
}

#[test]
fn good_files_are_taken_one_by_one_and_together() {
    let (folder, ca, pair) = good();
    let chain = format!("{}{}", pair.certificate, ca.pem);
    let certificates = folder.write("chain.pem", &chain);
    let key = folder.write("key.pem", &pair.key);
    assert_eq!(read_identity(&certificates, &key).unwrap().cert.len(), 2);
    // As ZooKeeper has it: the key and the certificates in one file, in any order.
    let both = folder.write("both.pem", format!("{}{chain}", pair.key));
    assert_eq!(read_identity(&both, &both).unwrap().cert.len(), 2);
    assert_eq!(
        read_authorities(&folder.write("ca.pem", &ca.pem))
            .unwrap()
            .len(),
        1
    );
    // Text around the sections, and lines of Windows.
    let noisy = format!("subject=CN\r\n{}", chain.replace('\n', "\r\n"));
    let noisy = folder.write("noisy.pem", noisy);
    assert_eq!(
        read_certificates(&noisy, FileRole::Certificate)
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_file_that_is_missing_or_is_a_folder_is_named() {
    let folder = Folder::new();
    let missing = folder.path("nowhere.pem");
    for error in [
        read_key(&missing).unwrap_err(),
        read_authorities(&missing).unwrap_err(),
        read_certificates(&missing, FileRole::Certificate).unwrap_err(),
    ] {
        refused(
            &error,
            &missing,
            &["cannot be read", "No such file", "correct the path"],
        );
    }
    let is_folder = folder.path("");
    let error = read_key(&is_folder).unwrap_err();
    refused(
        &error,
        &is_folder,
        &["key file", "cannot be read", "permissions"],
    );
}

#[test]
fn a_key_that_others_may_read_is_refused_with_the_command() {
    let (folder, _, pair) = good();
    let key = folder.write("key.pem", &pair.key);
    for mode in [0o644, 0o604, 0o620, 0o660, 0o601, 0o666] {
        chmod(&key, mode);
        let command = format!("chmod 600 {}", key.display());
        refused(
            &read_key(&key).unwrap_err(),
            &key,
            &[&format!("{mode:04o}"), &command],
        );
    }
    for mode in [0o600, 0o400, 0o640, 0o440] {
        chmod(&key, mode);
        read_key(&key).unwrap();
    }
    // A certificate is not secret.
    let certificate = folder.write("cert.pem", &pair.certificate);
    chmod(&certificate, 0o644);
    chmod(&key, 0o600);
    read_identity(&certificate, &key).unwrap();
}

#[test]
fn a_certificate_out_of_its_time_is_refused_with_the_date() {
    let (folder, ca, pair) = good();
    let key = folder.write("key.pem", &pair.key);
    let expired = ca.sign(|params| params.not_after = date_time_ymd(2020, 2, 3));
    let path = folder.write("expired.pem", &expired.certificate);
    let error = read_identity(&path, &key).unwrap_err();
    refused(
        &error,
        &path,
        &["certificate 1", "expired", "2020", "put a new one"],
    );
    let early = ca.sign(|params| params.not_before = date_time_ymd(4000, 1, 1));
    let path = folder.write("early.pem", &early.certificate);
    let error = read_identity(&path, &key).unwrap_err();
    refused(&error, &path, &["becomes valid only", "4000", "clock"]);
    // Old authorities may stay beside their successors; alone they are of no use.
    let mixed = folder.write("mixed.pem", format!("{}{}", expired.certificate, ca.pem));
    assert_eq!(read_authorities(&mixed).unwrap().len(), 2);
    let old = folder.write("old.pem", &expired.certificate);
    let error = read_authorities(&old).unwrap_err();
    refused(&error, &old, &["CA file", "expired", "2020"]);
}

#[test]
fn a_key_of_another_certificate_is_refused_with_both_files() {
    let (folder, ca, pair) = good();
    let certificates = folder.write("cert.pem", &pair.certificate);
    let key = folder.write("other.key", &ca.sign(|_| {}).key);
    let error = read_identity(&certificates, &key).unwrap_err();
    let both = ["does not belong to", certificates.to_str().unwrap()];
    refused(&error, &key, &both);
    // The chain in the wrong order is the usual cause.
    let chain = folder.write("chain.pem", format!("{}{}", ca.pem, pair.certificate));
    let key = folder.write("own.key", &pair.key);
    let error = read_identity(&chain, &key).unwrap_err();
    refused(&error, &key, &["first"]);
}

#[test]
fn a_file_without_what_it_is_for_is_refused() {
    let (folder, ca, pair) = good();
    let key_alone = folder.write("key.pem", &pair.key);
    let error = read_authorities(&key_alone).unwrap_err();
    refused(
        &error,
        &key_alone,
        &["CA file", "no certificate", "file of a private key"],
    );
    let certificate_alone = folder.write("ca.pem", &ca.pem);
    let error = read_key(&certificate_alone).unwrap_err();
    refused(
        &error,
        &certificate_alone,
        &["no private key", "BEGIN PRIVATE KEY"],
    );
    for nothing in ["", "hello\n", "\0\0\0"] {
        let path = folder.write("nothing.pem", nothing);
        refused(
            &read_authorities(&path).unwrap_err(),
            &path,
            &["no certificate"],
        );
    }
    let trusted = "-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n";
    let path = folder.write("trusted.pem", trusted);
    refused(
        &read_authorities(&path).unwrap_err(),
        &path,
        &["openssl x509"],
    );
}

#[test]
fn a_key_with_a_passphrase_is_refused_with_the_command() {
    let folder = Folder::new();
    let pkcs8 =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let path = folder.write("secret.key", pkcs8);
    let command = format!("openssl pkey -in {}", path.display());
    refused(
        &read_key(&path).unwrap_err(),
        &path,
        &["passphrase", &command],
    );
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let path = folder.write("old.key", old);
    let error = read_key(&path).unwrap_err();
    refused(&error, &path, &["passphrase"]);
}

#[test]
fn stores_of_java_and_der_are_refused_with_the_command_that_converts_them() {
    let folder = Folder::new();
    let jks = folder.write("store.jks", [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
    refused(
        &read_authorities(&jks).unwrap_err(),
        &jks,
        &[
            "JKS",
            "keytool -importkeystore",
            "openssl pkcs12 -in store.p12 -nokeys",
        ],
    );
    let p12 = folder.write("store.p12", [0x30, 0x82, 1, 2, 0x02, 0x01, 0x03, 0x30]);
    let error = read_key(&p12).unwrap_err();
    refused(&error, &p12, &["PKCS#12", "openssl pkcs12", "-nodes"]);
    let der = folder.write("cert.der", [0x30, 0x82, 1, 2, 0x30, 0x82, 1, 2]);
    let error = read_certificates(&der, FileRole::Certificate).unwrap_err();
    refused(&error, &der, &["in DER", "openssl x509 -inform DER"]);
    let error = read_key(&der).unwrap_err();
    refused(&error, &der, &["openssl pkey -inform DER"]);
}

#[test]
fn damaged_pem_is_refused_and_its_content_is_not_repeated() {
    let (folder, _, pair) = good();
    let secret: String = pair.key.lines().nth(1).unwrap().to_owned();
    for (damaged, cause) in [
        (pair.key.replace("-----END", "----END"), "no END line"),
        (pair.key.replace("KEY-----", "KEY"), "BEGIN line"),
        (pair.key.replace(&secret, &format!("!{secret}")), "base64"),
    ] {
        let path = folder.write("damaged.key", &damaged);
        let error = read_key(&path).unwrap_err();
        refused(&error, &path, &["not valid PEM", cause, "write it again"]);
        assert!(!error.to_string().contains(&secret));
    }
}

#[test]
fn what_is_no_certificate_no_key_or_far_too_long_is_refused() {
    let (folder, _, pair) = good();
    let junk = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let path = folder.write("junk.pem", junk);
    let error = read_authorities(&path).unwrap_err();
    refused(
        &error,
        &path,
        &["certificate 1", "not an X.509 certificate"],
    );
    let junk = "-----BEGIN PRIVATE KEY-----\nMAMCAQE=\n-----END PRIVATE KEY-----\n";
    let key = folder.write("junk.key", junk);
    let certificates = folder.write("cert.pem", &pair.certificate);
    let error = read_identity(&certificates, &key).unwrap_err();
    refused(&error, &key, &["cannot be used", "use an RSA, ECDSA"]);
    let path = folder.write("long.pem", vec![b'\n'; (4 << 20) + 1]);
    refused(
        &read_key(&path).unwrap_err(),
        &path,
        &["more than", "correct the path"],
    );
}

#[test]
fn a_certificate_of_version_1_is_refused_at_start() {
    let (folder, _, pair) = good();
    let path = folder.write("v1.pem", VERSION_ONE);
    let key = folder.write("key.pem", &pair.key);
    let error = read_identity(&path, &key).unwrap_err();
    refused(&error, &path, &["X.509 version 1", "version 3"]);
}

#[test]
fn client_certificates_need_an_authority() {
    let (folder, ca, pair) = good();
    let files = folder.files(&pair, None);
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let refused = ServerTls::load(files.clone(), client_auth).unwrap_err();
        assert_eq!(refused, TlsError::NoAuthorities);
    }
    ServerTls::load(files, ClientAuth::None).unwrap();
    ServerTls::load(folder.files(&pair, Some(&ca)), ClientAuth::Required).unwrap();
    // A bad CA file is reported even if nobody is asked for a certificate.
    let bad = Files {
        authorities: Some(folder.path("missing")),
        revocation_lists: None,
        ..folder.files(&pair, None)
    };
    ServerTls::load(bad, ClientAuth::None).unwrap_err();
}

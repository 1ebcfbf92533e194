//! Handshakes with servers whose certificates are wrong in one way each.
#![cfg(feature = "authority")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::authority::{Authority, IssuedCertificate, Purpose};

const DAY: Duration = Duration::from_secs(86_400);

/// An authority, and a folder with its certificate.
struct Trial {
    folder: tempfile::TempDir,
    authority: Authority,
    files: IssuedCertificate,
}

impl Trial {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, files) = Authority::create("Trial", DAY).unwrap();
        let trial = Self {
            folder,
            authority,
            files,
        };
        trial.write("ca.pem", &trial.files.certificate);
        trial
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let private = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, private).unwrap();
        }
        path
    }

    fn client(&self) -> ClientTls {
        ClientTls::new(self.folder.path().join("ca.pem")).unwrap()
    }

    fn issue(&self, purpose: Purpose, hosts: &[&str]) -> IssuedCertificate {
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        self.authority.issue(purpose, "x", &hosts, DAY).unwrap()
    }

    /// A certificate for `zk1` that the authority has signed as it is.
    fn signed(&self, change: impl FnOnce(&mut CertificateParams)) -> IssuedCertificate {
        let mut params = CertificateParams::new(vec!["zk1".to_owned()]).unwrap();
        change(&mut params);
        let authority = KeyPair::from_pem(&self.files.key).unwrap();
        let issuer = rcgen::Issuer::from_ca_cert_pem(&self.files.certificate, authority).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        IssuedCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Shows what it was given, however wrong that is.
#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn der(issued: &IssuedCertificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()
}

fn server(certificate: CertificateDer<'static>, key: &str) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let shown = FixedCertificate(Arc::new(CertifiedKey::new(vec![certificate], key)));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    Arc::new(config)
}

async fn connect(
    client: &ClientTls,
    name: &str,
    config: Arc<ServerConfig>,
) -> Result<TlsStream<DuplexStream>, TlsFailure> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let accepting = tokio::spawn(TlsAcceptor::from(config).accept(theirs));
    let connected = client.connect(name, ours).await;
    if connected.is_ok() {
        let mut accepted = accepting.await.unwrap().unwrap();
        accepted.write_all(b"hello").await.unwrap();
        accepted.flush().await.unwrap();
    }
    connected
}

async fn failure(client: &ClientTls, name: &str, server: Arc<ServerConfig>) -> TlsFailure {
    let failure = connect(client, name, server).await.err().unwrap();
    let text = failure.to_string();
    assert!(text.contains("; ") && !text.contains('\n'), "{text}");
    failure
}

#[tokio::test]
async fn a_server_is_accepted_by_each_of_its_names_and_by_no_other() {
    let trial = Trial::new();
    let issued = trial.issue(Purpose::Server, &["zk1", "10.0.0.1", "::1"]);
    let server = server(der(&issued), &issued.key);
    let client = trial.client();
    for name in ["zk1", "zk1.", "ZK1", "10.0.0.1", "::1"] {
        let mut stream = connect(&client, name, Arc::clone(&server)).await.unwrap();
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello", "{name}");
    }
    for name in ["zk2", "10.0.0.2"] {
        let failure = failure(&client, name, Arc::clone(&server)).await;
        let TlsFailure::WrongHost {
            expected,
            presented,
        } = &failure
        else {
            panic!("{failure}");
        };
        assert_eq!(expected, name);
        assert!(
            presented.contains("zk1") && presented.contains("10.0.0.1"),
            "{presented}"
        );
    }
    let failure = failure(&client, "not a host", Arc::clone(&server)).await;
    assert_eq!(failure, TlsFailure::BadName("not a host".to_owned()));
    // A clone with the check on does not take over what the one without has accepted.
    let careless = client.clone().without_hostname_check();
    for _ in 0..2 {
        connect(&careless, "zk2", Arc::clone(&server))
            .await
            .unwrap();
        let refused = connect(&client, "zk2", Arc::clone(&server)).await.err();
        assert!(
            matches!(refused, Some(TlsFailure::WrongHost { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn each_wrong_certificate_has_a_failure_of_its_own() {
    let trial = Trial::new();
    let strict = trial.client();
    // Everything but the name is verified without the check of the name, too.
    for client in [&strict, &strict.clone().without_hostname_check()] {
        let now = time::OffsetDateTime::now_utc();
        let expired = trial.signed(|params| {
            params.not_before = now - time::Duration::days(2);
            params.not_after = now - time::Duration::days(1);
        });
        let config = server(der(&expired), &expired.key);
        let failed = failure(client, "zk1", config).await;
        assert!(matches!(failed, TlsFailure::Expired { .. }), "{failed}");

        let early = trial.signed(|params| params.not_before = now + time::Duration::days(1));
        let config = server(der(&early), &early.key);
        let failed = failure(client, "zk1", config).await;
        assert!(matches!(failed, TlsFailure::NotYetValid { .. }), "{failed}");

        let stranger = Trial::new().issue(Purpose::Server, &["zk1"]);
        let config = server(der(&stranger), &stranger.key);
        assert_eq!(
            failure(client, "zk1", config).await,
            TlsFailure::UnknownAuthority
        );

        let of_client = trial.issue(Purpose::Client, &["zk1"]);
        let config = server(der(&of_client), &of_client.key);
        assert_eq!(
            failure(client, "zk1", config).await,
            TlsFailure::WrongPurpose
        );

        let authority = server(der(&trial.files), &trial.files.key);
        assert_eq!(
            failure(client, "zk1", authority).await,
            TlsFailure::AuthorityAsPeer
        );

        let issued = trial.issue(Purpose::Server, &["zk1"]);
        let first = server(version_one(&der(&issued)), &issued.key);
        assert_eq!(failure(client, "zk1", first).await, TlsFailure::VersionOne);
    }
}

#[tokio::test]
async fn a_server_without_tls_is_named_as_that() {
    let client = Trial::new().client();
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    theirs
        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await
        .unwrap();
    let failed = client.connect("zk1", ours).await.err();
    assert_eq!(failed, Some(TlsFailure::NotTls));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    drop(theirs);
    let failed = client.connect("zk1", ours).await.err();
    assert_eq!(failed, Some(TlsFailure::Closed));
}

#[tokio::test]
async fn files_that_change_are_read_again_and_bad_ones_change_nothing() {
    let trial = Trial::new();
    let issued = trial.issue(Purpose::Server, &["zk1"]);
    let config = server(der(&issued), &issued.key);
    let client = trial.client();
    assert_eq!(client.reload(), ReloadOutcome::Unchanged);
    trial.write("ca.pem", "nothing");
    assert!(matches!(
        client.reload(),
        ReloadOutcome::Kept(TlsError::Lacks { .. })
    ));
    assert_eq!(client.reload(), ReloadOutcome::Unchanged, "reported once");
    connect(&client, "zk1", Arc::clone(&config)).await.unwrap();
    let other = Trial::new();
    trial.write("ca.pem", &other.files.certificate);
    assert_eq!(client.reload(), ReloadOutcome::Reloaded);
    assert_eq!(
        failure(&client, "zk1", config).await,
        TlsFailure::UnknownAuthority
    );
}

/// The same certificate as one of version 1: without a version and without extensions.
fn version_one(der: &[u8]) -> CertificateDer<'static> {
    const VERSION_3: &[u8] = &[0xa0, 0x03, 0x02, 0x01, 0x02];
    let (_, parsed) = x509_parser::parse_x509_certificate(der).unwrap();
    let signed = parsed.tbs_certificate.as_ref();
    let behind = &der[4 + signed.len()..];
    let inner = &signed[4..];
    assert!(inner.starts_with(VERSION_3));
    let extensions = inner
        .windows(2)
        .rposition(|two| two == [0xa3, 0x81] || two == [0xa3, 0x82]);
    let inner = &inner[VERSION_3.len()..extensions.unwrap()];
    let sequence = |content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        let head = match length {
            [0, short @ 0..128] => vec![0x30, short],
            [0, long] => vec![0x30, 0x81, long],
            [high, low] => vec![0x30, 0x82, high, low],
        };
        [&head, content].concat()
    };
    let signed = sequence(inner);
    CertificateDer::from(sequence(&[&signed, behind].concat()))
}

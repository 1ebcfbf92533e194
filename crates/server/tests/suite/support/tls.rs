//! Authorities, certificates and clients with TLS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use baton_server::{Builder, ClientAuth, ServerTlsOptions, TlsFiles};
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use baton_tls::rustls::{self, ClientConfig, RootCertStore};
use baton_tls::tokio_rustls::TlsConnector;
use baton_tls::tokio_rustls::client::TlsStream;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use tokio::net::TcpStream;

use super::{Wire, in_memory};

/// An authority, and a folder for the files of those who use it.
pub struct Fleet {
    issuer: Issuer<'static, KeyPair>,
    pub authority: String,
    folder: tempfile::TempDir,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Fleet {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            authority,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The authority's own certificate.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A certificate of this name, signed by an intermediate authority, which follows it.
    pub fn issue_through_intermediate(&self, name: &str) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name = named("intermediate");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let intermediate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let below = Self {
            issuer: Issuer::new(params, key),
            authority: self.authority.clone(),
            folder: tempfile::tempdir().unwrap(),
        };
        let mut pair = below.issue(name);
        pair.certificate.push_str(&intermediate);
        pair
    }

    /// A certificate of this name for the host 127.0.0.1 and the name localhost.
    pub fn issue(&self, name: &str) -> Pair {
        self.issue_with(name, |_| {})
    }

    pub fn issue_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let hosts = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = named(name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;

        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// The files of a server with this certificate.
    pub fn files(&self, pair: &Pair) -> TlsFiles {
        TlsFiles {
            certificates: self.write("server.pem", &pair.certificate),
            key: self.write("server.key", &pair.key),
            authorities: Some(self.write("ca.pem", &self.authority)),
            revocation_lists: None,
        }
    }

    pub fn options(&self, client_auth: ClientAuth) -> ServerTlsOptions {
        ServerTlsOptions {
            client_auth,
            ..ServerTlsOptions::new(self.files(&self.issue("server")))
        }
    }

    /// A server in memory with a plain port and one with TLS.
    pub fn server(&self, client_auth: ClientAuth) -> Builder {
        in_memory()
            .secure_listen("127.0.0.1:0")
            .tls(self.options(client_auth))
    }

    /// Returns the configuration of a client that trusts this authority.
    pub fn client(&self, own: Option<&Pair>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match own {
            Some(own) => {
                let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes());
                let chain = chain.map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        })
    }
}

/// Often enough for a test that waits for a change.
pub const SOON: Duration = Duration::from_millis(10);

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// A stream with TLS to this address.
pub async fn connect(
    to: impl ToString,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(to.to_string()).await?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::clone(config))
        .connect(name, socket)
        .await
}

/// A session over TLS.
pub async fn open(to: impl ToString, config: &Arc<ClientConfig>) -> Wire {
    Wire::open_on(connect(to, config).await.unwrap())
        .await
        .unwrap()
}

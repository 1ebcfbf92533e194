//! Authorities and certificates of the tests, and the files that hold them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_tls::Files;
use baton_tls::failure::explain;
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use baton_tls::rustls::{
    self, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams,
    SerialNumber, date_time_ymd,
};

/// An authority.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
    /// The certificates between those that it signs and the root, in PEM; a root has none.
    chain: String,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct CertificatePair {
    pub certificate: String,
    pub key: String,
}

impl Ca {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
            chain: String::new(),
        }
    }

    /// An intermediate authority, certified by this one. What it signs carries the chain.
    pub fn intermediate(&self, name: &str) -> Self {
        self.intermediate_until(name, 4000)
    }

    /// [`Ca::intermediate`] with a certificate that ends at the beginning of this year.
    pub fn intermediate_until(&self, name: &str, year: i32) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            chain: format!("{pem}{}", self.chain),
            pem,
        }
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()
    }

    pub fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> CertificatePair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = named("localhost");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap().pem();
        CertificatePair {
            certificate: format!("{own}{}", self.chain),
            key: key.serialize_pem(),
        }
    }
}

impl Ca {
    /// The list of what it has revoked, by the serial numbers, in PEM.
    pub fn revoke(&self, serials: &[u64]) -> String {
        self.revoke_until(serials, 4000)
    }

    /// [`Ca::revoke`] with a next list that comes at the beginning of this year.
    pub fn revoke_until(&self, serials: &[u64], year: i32) -> String {
        let at = date_time_ymd(2000, 1, 1);
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: at,
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// Returns the configuration of a client that trusts this authority.
pub fn client(trusted: &Ca, own: Option<&CertificatePair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der()).unwrap();
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

/// Both sides, once the handshake is over for the server and the client has read what it sent; the
/// error of the side that refused.
pub fn meet(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    loop {
        let mut moved = 0;
        let mut bytes = Vec::new();
        while client.wants_write() {
            moved += client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        bytes.clear();
        while server.wants_write() {
            moved += server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
        if moved == 0 {
            assert!(!client.is_handshaking() && !server.is_handshaking());
            return Ok((client, server));
        }
    }
}

/// The line about a handshake that was refused.
pub fn why(outcome: Result<(ClientConnection, ServerConnection), rustls::Error>) -> String {
    explain(&outcome.map(|_| ()).unwrap_err())
}

pub fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// A folder with the files of one side.
pub struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that its owner alone may read.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        chmod(&path, 0o600);
        path
    }

    /// The files of a server with this certificate, whose clients' certificates `ca` signs.
    pub fn files(&self, pair: &CertificatePair, ca: Option<&Ca>) -> Files {
        Files {
            certificates: self.write("server.pem", &pair.certificate),
            key: self.write("server.key", &pair.key),
            authorities: ca.map(|ca| self.write("ca.pem", &ca.pem)),
            revocation_lists: None,
        }
    }
}

pub fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

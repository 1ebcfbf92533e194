//! Authorities, certificates and servers with TLS on loopback.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use baton_peers::handshake::LocalServer;
use baton_peers::net::{
    Exposure, PeerEvent, PeerEvents, Peers, TcpAcceptor, TcpConnector, TlsAcceptor, TlsConnector,
};
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use baton_tls::rustls::{ClientConfig, RootCertStore, crypto};
use baton_tls::tokio_rustls;
use baton_tls::tokio_rustls::client::TlsStream;
use baton_tls::{Files, PeerTls};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::memory::{incarnation, options};

/// A guard against waiting for ever; nothing takes as long.
pub const LONG: Duration = Duration::from_secs(120);

/// A loopback address for one test of one process, so that a server finds its port free when it
/// starts again.
pub fn own_host() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    if !cfg!(target_os = "linux") {
        return "127.0.0.1".to_owned();
    }
    let process = std::process::id();
    let (high, low) = ((process >> 8) % 250 + 1, process % 256);
    format!("127.{high}.{low}.{}", NEXT.fetch_add(1, Relaxed))
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct CertificatePair {
    pub certificate: String,
    pub key: String,
}

/// An authority; all have the same name.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name = named("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A server's certificate for these hosts, but for what `change` changes.
    pub fn sign(
        &self,
        hosts: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificatePair {
        let (params, key) = request(hosts, change);
        CertificatePair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Returns the TLS of a server that shows and trusts these.
    pub fn tls(&self, hosts: &[&str]) -> Arc<PeerTls> {
        self.tls_with(&self.sign(hosts, |_| {}), true)
    }

    pub fn tls_with(&self, own: &CertificatePair, checks_hosts: bool) -> Arc<PeerTls> {
        let folder = Folder::new();
        let files = folder.files(own, &[self]);
        Arc::new(PeerTls::load(files, checks_hosts).unwrap())
    }
}

/// A certificate that has signed itself.
pub fn self_signed(hosts: &[&str]) -> CertificatePair {
    let (params, key) = request(hosts, |_| {});
    CertificatePair {
        certificate: params.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

fn request(
    hosts: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> (CertificateParams, KeyPair) {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(hosts).unwrap();
    params.distinguished_name = named("server");
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    change(&mut params);
    (params, KeyPair::generate().unwrap())
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// The files of one server.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn files(&self, own: &CertificatePair, trusted: &[&Authority]) -> Files {
        let trusted: String = trusted.iter().map(|authority| &*authority.pem).collect();
        Files {
            certificates: self.write("server.pem", &own.certificate),
            key: self.write("server.key", &own.key),
            authorities: Some(self.write("ca.pem", &trusted)),
            revocation_lists: None,
        }
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;

        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

/// A client that connects with this certificate, if any, and trusts the authority.
pub fn stranger(trusted: &Authority, own: Option<&CertificatePair>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(trusted.pem.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match own {
        Some(own) => {
            let (chain, key) = der(own);
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

pub fn der(pair: &CertificatePair) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    (chain, key)
}

/// The stranger's stream, which knows the server by this host.
pub async fn dial(
    address: &str,
    host: &str,
    config: &Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
    connector.connect(name, socket).await
}

/// Way in which a server connects to others and accepts them.
#[derive(Clone)]
pub enum Mode {
    Plain,
    /// Connects without TLS, and accepts both.
    AcceptsBoth(Arc<PeerTls>),
    /// Connects with TLS, and accepts both.
    TlsAndBoth(Arc<PeerTls>),
    TlsAlone(Arc<PeerTls>),
}

struct Channel(mpsc::UnboundedSender<PeerEvent>);

impl PeerEvents for Channel {
    fn event(&self, event: PeerEvent) {
        let _ = self.0.send(event);
    }
}

/// One server: its transport and what it was notified of.
pub struct Node {
    pub id: u64,
    pub address: String,
    pub peers: Peers,
    pub events: mpsc::UnboundedReceiver<PeerEvent>,
}

impl Node {
    /// Listens at this address.
    pub async fn start(id: u64, run: u64, mode: Mode, at: &str) -> Node {
        let listener = TcpAcceptor::bind(at, Exposure::Encrypted).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, events) = mpsc::unbounded_channel();
        let local = LocalServer::new(id, incarnation(id), run);
        let (options, events_to) = (options(id), Arc::new(Channel(sender)));
        let peers = match &mode {
            Mode::Plain => Peers::start(options, local, TcpConnector, listener, events_to),
            Mode::AcceptsBoth(tls) => {
                let listener = TlsAcceptor::new(listener, Arc::clone(tls), true);
                Peers::start(options, local, TcpConnector, listener, events_to)
            }
            Mode::TlsAndBoth(tls) | Mode::TlsAlone(tls) => {
                let is_both = matches!(mode, Mode::TlsAndBoth(_));
                let listener = TlsAcceptor::new(listener, Arc::clone(tls), is_both);
                let connector = TlsConnector::new(Arc::clone(tls));
                Peers::start(options, local, connector, listener, events_to)
            }
        };
        let (host, _) = at.rsplit_once(':').unwrap();
        Node {
            id,
            address: format!("{host}:{port}"),
            peers,
            events,
        }
    }

    /// The first event that `select` selects; those before it are dropped.
    pub async fn until<T>(&mut self, mut select: impl FnMut(PeerEvent) -> Option<T>) -> T {
        loop {
            let event = timeout(LONG, self.events.recv()).await.unwrap().unwrap();
            if let Some(selected) = select(event) {
                return selected;
            }
        }
    }

    /// Waits until this many connections have been established since the last event that was
    /// looked at.
    pub async fn connections(&mut self, mut count: usize) {
        while count > 0 {
            let is_new = |event| matches!(event, PeerEvent::Connected { .. }).then_some(());
            self.until(is_new).await;
            count -= 1;
        }
    }
}

/// Has all of them connect to each other.
pub fn connect(nodes: &[&Node]) {
    let addresses: BTreeMap<u64, String> = nodes
        .iter()
        .map(|node| (node.id, node.address.clone()))
        .collect();
    for node in nodes {
        node.peers.set_addresses(&addresses);
    }
}

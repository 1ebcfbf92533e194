//! A client that asks for a second handshake on its connection, as TLS 1.2 allows. rustls never
//! asks, so its secrets are taken out and the request is encrypted here.

use std::io::{Read, Write};
use std::sync::Arc;

use baton_tls::failure::explain;
use baton_tls::rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use baton_tls::rustls::crypto::ring::{cipher_suite, default_provider};
use baton_tls::rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    RootCertStore, ServerConnection, SupportedCipherSuite, version,
};
use baton_tls::{ClientAuth, ServerTls};

use crate::support::{Ca, Folder, meet};

const SUITE: SupportedCipherSuite = cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;

/// A client of TLS 1.2 with the one suite whose records need nothing but key, vector and number.
fn client_of_tls12(ca: &Ca) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der()).unwrap();
    let mut provider = default_provider();
    provider.cipher_suites = vec![SUITE];
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    Arc::new(config)
}

/// The sending side of a connection, without the rules that rustls keeps.
struct Sender {
    records: Box<dyn MessageEncrypter>,
    next: u64,
}

impl Sender {
    fn of(client: ClientConnection) -> Self {
        let (next, secrets) = client.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = secrets else {
            panic!("another suite was agreed");
        };
        let SupportedCipherSuite::Tls12(suite) = SUITE else {
            panic!("a suite of TLS 1.2");
        };
        let records = suite.aead_alg.encrypter(key, iv.as_ref(), &[]);
        Self { records, next }
    }

    fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let message = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(payload),
        };
        let record = self.records.encrypt(message, self.next).unwrap();
        self.next += 1;
        record.encode()
    }
}

/// A ClientHello of TLS 1.2: version, random, no session, one suite, no compression.
fn client_hello() -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0xcc, 0xa9], &[1, 0]].concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[1, 0, 0, length][..], &body].concat()
}

fn deliver(server: &mut ServerConnection, record: &[u8]) -> Result<(), String> {
    server.read_tls(&mut &record[..]).unwrap();
    let outcome = server.process_new_packets();
    outcome.map(|_| ()).map_err(|error| explain(&error))
}

#[test]
fn a27_a_renegotiation_is_refused_and_asking_again_ends_the_connection() {
    let ca = Ca::new("authority");
    let folder = Folder::new();
    let files = folder.files(&ca.sign(|_| {}), Some(&ca));
    let tls = ServerTls::load(files, ClientAuth::Optional).unwrap();
    let (client, mut server) = meet(&client_of_tls12(&ca), &tls.config()).unwrap();
    let certificate_before = server.peer_certificates().map(<[_]>::len);
    let mut sender = Sender::of(client);

    // The first request changes nothing: an alert answers it, and the connection goes on.
    let hello = sender.record(ContentType::Handshake, &client_hello());
    deliver(&mut server, &hello).unwrap();
    let mut alert = Vec::new();
    server.write_tls(&mut alert).unwrap();
    assert_eq!(
        alert[0], 0x15,
        "an alert says that there is no renegotiation"
    );
    assert!(!server.is_handshaking());
    let data = sender.record(ContentType::ApplicationData, b"ruok");
    deliver(&mut server, &data).unwrap();
    let mut read = [0; 4];
    server.reader().read_exact(&mut read).unwrap();
    assert_eq!(&read, b"ruok");
    server.writer().write_all(b"imok").unwrap();
    assert!(server.wants_write());
    assert_eq!(
        server.peer_certificates().map(<[_]>::len),
        certificate_before
    );

    // Who goes on asking is disconnected, for work that costs the client nothing.
    let hello = sender.record(ContentType::Handshake, &client_hello());
    let refused = deliver(&mut server, &hello).unwrap_err();
    assert!(refused.contains("Renegotiation"), "{refused}");
    assert!(!refused.contains('\n'), "{refused}");
}

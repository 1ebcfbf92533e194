//! TLS between the servers of one ensemble. Both ends of a connection show their certificate, so a
//! server's certificate has to do for both ends.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{
    Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};

use crate::client::{accepting_any_host, server_name};
use crate::error::TlsError;
use crate::failure::TlsFailure;
use crate::pem::{
    Files, chain_valid_until, read_authorities, read_identity, read_revocation_lists,
};
use crate::provider::provider;
use crate::reload::{FileStamps, ReloadOutcome, ReloadedFiles};

/// TLS of a server with the other servers of its ensemble, in both directions. Its files are read
/// again when they have changed.
///
/// A certificate must be signed by an authority of the files and may be used for both ends of a
/// connection: its extended key usages, if it has any, name `serverAuth` and `clientAuth`. Where
/// there are lists of revoked certificates, it must not be on one. No session is resumed, because
/// rustls would not verify the certificate again.
#[derive(Debug)]
pub struct PeerTls {
    files: Files,
    checks_hosts: bool,
    current: ReloadedFiles<CurrentConfig>,
}

#[derive(Debug, Clone)]
struct CurrentConfig {
    accepting: Arc<ServerConfig>,
    connecting: Arc<ClientConfig>,
    valid_until: Option<SystemTime>,
}

impl PeerTls {
    /// Reads the files. With `checks_hosts`, a certificate must be for the host by which its server
    /// is reached.
    ///
    /// # Errors
    /// [`TlsError`] names the file and the remedy; so a certificate is refused that the other
    /// servers would refuse.
    pub fn load(files: Files, checks_hosts: bool) -> Result<Self, TlsError> {
        let current =
            ReloadedFiles::load(|| FileStamps::of(&files), || read(&files, checks_hosts))?;
        Ok(Self {
            files,
            checks_hosts,
            current,
        })
    }

    /// The configuration for a new connection of another server.
    #[must_use]
    pub fn accepting(&self) -> Arc<ServerConfig> {
        self.current.current().accepting
    }

    /// The configuration for a new connection to another server.
    #[must_use]
    pub fn connecting(&self) -> Arc<ClientConfig> {
        self.current.current().connecting
    }

    /// Returns when the certificate in use ends, or the first one of its chain that does.
    #[must_use]
    pub fn valid_until(&self) -> Option<SystemTime> {
        self.current.current().valid_until
    }

    /// Returns whether the certificate is for this host, where hosts are checked: for a server that
    /// has connected, and that this one reaches by this host.
    ///
    /// # Errors
    /// [`TlsFailure::WrongHost`].
    pub fn check_host(
        &self,
        certificate: &CertificateDer<'_>,
        host: &str,
    ) -> Result<(), TlsFailure> {
        if !self.checks_hosts {
            return Ok(());
        }
        let name = server_name(host)?;
        let failed = |error: rustls::Error| TlsFailure::of_rustls(&error);
        let certificate = ParsedCertificate::try_from(certificate).map_err(failed)?;
        verify_server_name(&certificate, &name).map_err(failed)
    }

    /// Reads the files again if they have changed. New connections use what is read; those that
    /// are open stay as they are. Files that are refused change nothing, and are reported once.
    pub fn reload(&self) -> ReloadOutcome {
        let stamps = FileStamps::of(&self.files);
        self.current
            .reload(stamps, || read(&self.files, self.checks_hosts))
    }
}

fn read(files: &Files, checks_hosts: bool) -> Result<CurrentConfig, TlsError> {
    let refused = |error: &dyn fmt::Display| TlsError::Refused(error.to_string());
    let authorities = files.authorities.as_deref();
    let authorities = authorities.ok_or(TlsError::NoAuthorities)?;
    let roots = read_authorities(authorities)?;
    let identity = read_identity(&files.certificates, &files.key)?;
    let revoked = read_revocation_lists(files.revocation_lists.as_deref(), &roots)?;
    let verifier = PeerVerifier::new(Arc::clone(&roots), revoked.clone());
    let verifier = verifier.map_err(|error| refused(&error))?;
    verifier.check_own(&identity, &files.certificates, authorities)?;
    let valid_until = chain_valid_until(&identity.cert);
    let own = Arc::new(SingleCertAndKey::from(identity));
    let mut accepting = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::<SingleCertAndKey>::clone(&own));
    accepting.session_storage = Arc::new(NoServerSessionStorage {});
    accepting.send_tls13_tickets = 0;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
        .with_crls(revoked)
        .build()
        .map_err(|error| refused(&error))?;
    let mut connecting = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?
        .with_webpki_verifier(Arc::clone(&verifier))
        .with_client_cert_resolver(own);
    if !checks_hosts {
        connecting = accepting_any_host(&connecting, &verifier);
    }
    connecting.resumption = Resumption::disabled();
    Ok(CurrentConfig {
        accepting: Arc::new(accepting),
        connecting: Arc::new(connecting),
        valid_until,
    })
}

/// Verifies the certificate of a server that connects. A client's own certificate does not do, even
/// of the same authority: it has to be one for servers, too.
#[derive(Debug)]
struct PeerVerifier {
    roots: Arc<RootCertStore>,
    as_client: Arc<dyn ClientCertVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PeerVerifier {
    fn new(
        roots: Arc<RootCertStore>,
        revoked: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, rustls::server::VerifierBuilderError> {
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let as_client = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider);
        Ok(Self {
            roots,
            // It looks the certificate up in the lists, for both roles.
            as_client: as_client.with_crls(revoked).build()?,
            algorithms,
        })
    }

    /// Refuses a certificate of this server that another one with the same authorities would
    /// refuse.
    fn check_own(
        &self,
        identity: &CertifiedKey,
        path: &Path,
        authorities: &Path,
    ) -> Result<(), TlsError> {
        let Some((own, chain)) = identity.cert.split_first() else {
            return Ok(());
        };
        let verified = self.verify_client_cert(own, chain, UnixTime::now());
        let Err(error) = verified else {
            return Ok(());
        };
        Err(match TlsFailure::of_rustls(&error) {
            TlsFailure::WrongPurpose => TlsError::NotForBothEnds {
                path: path.to_owned(),
            },
            TlsFailure::UnknownAuthority => TlsError::NotOfAuthority {
                path: path.to_owned(),
                authorities: authorities.to_owned(),
            },
            other => TlsError::Refused(format!("{}: {other}", path.display())),
        })
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.as_client.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .as_client
            .verify_client_cert(end_entity, intermediates, now)?;
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.as_client.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.as_client.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.as_client.supported_verify_schemes()
    }
}

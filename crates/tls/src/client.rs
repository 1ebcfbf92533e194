//! Servers that a client trusts, and the certificate that it shows them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::TlsError;
use crate::failure::TlsFailure;
use crate::pem::{read_authorities, read_identity};
use crate::provider::provider;
use crate::reload::{FileStamps, ReloadOutcome, ReloadedFiles};

/// Servers that a client trusts, and the certificate that it shows them. Cheap to clone; clones
/// share what was read.
///
/// A server's certificate must be for the name by which the client reaches the server, and an
/// authority of the file must have signed it. The files are read again before a connection if
/// they have changed.
///
/// ```no_run
/// # fn main() -> Result<(), baton_tls::TlsError> {
/// use baton_tls::ClientTls;
///
/// let tls = ClientTls::new("ca.pem")?.with_identity("client.pem", "client.key")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClientTls {
    files: ClientFiles,
    /// Whether a certificate may be for any name.
    any_host: bool,
    current: Arc<ReloadedFiles<CurrentConfig>>,
}

#[derive(Clone, Debug)]
struct ClientFiles {
    authorities: PathBuf,
    /// The certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

impl ClientFiles {
    fn stamps(&self) -> FileStamps {
        let mut paths: Vec<&Path> = vec![&self.authorities];
        if let Some((certificates, key)) = &self.identity {
            paths.extend([certificates.as_path(), key.as_path()]);
        }
        FileStamps::of_paths(&paths)
    }
}

#[derive(Clone)]
struct CurrentConfig {
    config: Arc<ClientConfig>,
    verifier: Arc<WebPkiServerVerifier>,
}

impl ClientTls {
    /// Trusts servers whose certificates an authority of this PEM file has signed.
    ///
    /// # Errors
    /// [`TlsError`] names the file and the remedy.
    pub fn new(authorities: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let files = ClientFiles {
            authorities: authorities.into(),
            identity: None,
        };
        Self::load(files, false)
    }

    /// Shows a certificate of the client's own to servers that ask for one: the PEM file of the
    /// certificate with its chain, and that of its private key, which other users must not be able
    /// to read. Both may be one file.
    ///
    /// # Errors
    /// [`TlsError`] names the file and the remedy.
    pub fn with_identity(
        self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, TlsError> {
        let files = ClientFiles {
            identity: Some((certificates.into(), key.into())),
            ..self.files
        };
        Self::load(files, self.any_host)
    }

    /// Accepts a certificate for any name, as long as a trusted authority has signed it: anyone who
    /// has the certificate and key of any host of that authority can then answer in a server's
    /// place.
    #[must_use]
    pub fn without_hostname_check(mut self) -> Self {
        let current = self.current.map(|current| CurrentConfig {
            config: Arc::new(accepting_any_host(&current.config, &current.verifier)),
            ..current
        });
        self.any_host = true;
        self.current = Arc::new(current);
        self
    }

    fn load(files: ClientFiles, any_host: bool) -> Result<Self, TlsError> {
        let current = ReloadedFiles::load(|| files.stamps(), || read(&files, any_host))?;
        Ok(Self {
            files,
            any_host,
            current: Arc::new(current),
        })
    }

    /// Returns whether a certificate of the client's own is shown to servers that ask for one.
    #[must_use]
    pub fn has_identity(&self) -> bool {
        self.files.identity.is_some()
    }

    /// The configuration for a new connection.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        self.current.current().config
    }

    /// Reads the files again if they have changed, for new connections. Files that are refused
    /// change nothing, and are reported once.
    pub fn reload(&self) -> ReloadOutcome {
        let stamps = self.files.stamps();
        self.current
            .reload(stamps, || read(&self.files, self.any_host))
    }

    /// Does the handshake on a connected stream. `name` is the host name or address by which the
    /// server was reached.
    ///
    /// A certificate of this client that the server refuses is reported by the first read from the
    /// stream, not here: TLS 1.3 has no answer to it. [`TlsFailure::of`] recognizes that error.
    ///
    /// # Errors
    /// [`TlsFailure`].
    pub async fn connect<S>(&self, name: &str, stream: S) -> Result<TlsStream<S>, TlsFailure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let server = server_name(name)?;
        let connecting = TlsConnector::from(self.config()).connect(server, stream);
        connecting
            .await
            .map_err(|error| TlsFailure::of_handshake(&error))
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("files", &self.files)
            .field("any_host", &self.any_host)
            .finish_non_exhaustive()
    }
}

fn read(files: &ClientFiles, any_host: bool) -> Result<CurrentConfig, TlsError> {
    let refused = |error: &dyn fmt::Display| TlsError::Refused(error.to_string());
    let provider = provider();
    let roots = read_authorities(&files.authorities)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .build()
        .map_err(|error| refused(&error))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?
        .with_webpki_verifier(Arc::clone(&verifier));
    let mut config = match &files.identity {
        Some((certificates, key)) => {
            let identity = read_identity(certificates, key)?;
            builder.with_client_cert_resolver(Arc::new(OwnCertificate(identity)))
        }
        None => builder.with_no_client_auth(),
    };
    if any_host {
        config = accepting_any_host(&config, &verifier);
    }
    Ok(CurrentConfig {
        config: Arc::new(config),
        verifier,
    })
}

/// A host's name or address as a certificate has it.
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>, TlsFailure> {
    // A final dot means the same host, and is not part of its name in a certificate.
    let plain = name.strip_suffix('.').unwrap_or(name);
    ServerName::try_from(plain.to_owned()).map_err(|_| TlsFailure::BadName(name.to_owned()))
}

pub(crate) fn accepting_any_host(
    config: &ClientConfig,
    verifier: &Arc<WebPkiServerVerifier>,
) -> ClientConfig {
    let mut config = config.clone();
    // A session that was opened with this must not be resumed with the check on.
    config.resumption = Resumption::default();
    let verifier = AnyHost(Arc::clone(verifier));
    config
        .dangerous()
        .set_certificate_verifier(Arc::new(verifier));
    config
}

/// The client's one certificate.
#[derive(Debug)]
struct OwnCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for OwnCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Verifies everything of a server's certificate but its name.
#[derive(Debug)]
struct AnyHost(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is compared last.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;

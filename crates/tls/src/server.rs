//! A server's certificate, and what it asks of clients: the configuration of rustls for accepting.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;

use crate::error::TlsError;
use crate::pem::{
    Files, chain_valid_until, read_authorities, read_identity, read_revocation_lists,
};
use crate::provider::provider;
use crate::reload::{FileStamps, ReloadOutcome, ReloadedFiles};

/// Whether clients have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// No client is asked for one.
    None,
    /// A client may show one, which has to be valid then.
    Optional,
    /// A client without a valid one is refused.
    #[default]
    Required,
}

impl FromStr for ClientAuth {
    type Err = String;

    /// Reads Baton's words, and ZooKeeper's: `none`, `want`, `need`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "optional" | "want" => Ok(Self::Optional),
            "required" | "need" => Ok(Self::Required),
            _ => Err(format!(
                "'{text}' is not a rule for client certificates; write none, optional or required"
            )),
        }
    }
}

impl fmt::Display for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Optional => "optional",
            Self::Required => "required",
        })
    }
}

/// TLS of a server. Its files are read again when they have changed.
#[derive(Debug)]
pub struct ServerTls {
    files: Files,
    client_auth: ClientAuth,
    current: ReloadedFiles<CurrentConfig>,
}

/// Value made of the files.
#[derive(Debug, Clone)]
struct CurrentConfig {
    config: Arc<ServerConfig>,
    /// `None`: clients are not asked for certificates.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    valid_until: Option<SystemTime>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and the remedy.
    pub fn load(files: Files, client_auth: ClientAuth) -> Result<Self, TlsError> {
        let current = ReloadedFiles::load(
            || FileStamps::of(&files),
            || read_files(&files, client_auth),
        )?;
        Ok(Self {
            files,
            client_auth,
            current,
        })
    }

    /// The configuration for a new connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.current().config
    }

    /// Returns whether a client that shows these certificates, its own first, would be accepted
    /// now.
    ///
    /// # Errors
    /// Why it would be refused: [`failure::explain`](crate::failure::explain) says it in words.
    pub fn verify(&self, certificates: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let CurrentConfig { verifier, .. } = self.current.current();
        let (Some(verifier), [own, others @ ..]) = (verifier, certificates) else {
            return Ok(());
        };
        let verified = verifier.verify_client_cert(own, others, UnixTime::now());
        verified.map(|_| ())
    }

    /// Returns when the certificate in use ends, or the first one of its chain that does.
    #[must_use]
    pub fn valid_until(&self) -> Option<SystemTime> {
        self.current.current().valid_until
    }

    /// Returns whether clients are asked for a certificate.
    #[must_use]
    pub fn client_auth(&self) -> ClientAuth {
        self.client_auth
    }

    /// Reads the files again if they have changed. New connections use what is read; those that
    /// are open stay as they are: [`ServerTls::verify`] says which would be refused now. Files that
    /// are refused change nothing, and are reported once.
    pub fn reload(&self) -> ReloadOutcome {
        let stamps = FileStamps::of(&self.files);
        self.current
            .reload(stamps, || read_files(&self.files, self.client_auth))
    }
}

fn read_files(files: &Files, client_auth: ClientAuth) -> Result<CurrentConfig, TlsError> {
    let refused = |error: &dyn fmt::Display| TlsError::Refused(error.to_string());
    let identity = read_identity(&files.certificates, &files.key)?;
    let valid_until = chain_valid_until(&identity.cert);
    // Read in any case: a bad file is reported at start.
    let roots = files.authorities.as_deref().map(read_authorities);
    let roots = roots.transpose()?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?;
    let (builder, verifier) = match client_auth {
        ClientAuth::None => (builder.with_no_client_auth(), None),
        ClientAuth::Optional | ClientAuth::Required => {
            let roots = roots.ok_or(TlsError::NoAuthorities)?;
            let revoked = read_revocation_lists(files.revocation_lists.as_deref(), &roots)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = verifier.with_crls(revoked);
            let verifier = match client_auth {
                ClientAuth::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build().map_err(|error| refused(&error))?;
            let builder = builder.with_client_cert_verifier(Arc::clone(&verifier));
            (builder, Some(verifier))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if client_auth == ClientAuth::None {
        // Tickets keep the state of a session at the client, so no number of clients costs memory.
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(|error| refused(&error))?;
        config.send_tls13_tickets = 1;
    } else {
        // A resumed session is not verified again (A08): a certificate that has expired, or whose
        // authority was removed, would still be an identity.
        config.send_tls13_tickets = 0;
    }
    Ok(CurrentConfig {
        config: Arc::new(config),
        verifier,
        valid_until,
    })
}

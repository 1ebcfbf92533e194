//! A private authority and the certificates that it signs: for a trial, a test or a small fleet.
//!
//! Keys are ECDSA on P-256, and certificates of X.509 version 3. It writes no file.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;

/// Backdating of certificates, for clocks that are behind.
const BACKDATED: Duration = Duration::from_secs(3600);

/// Reason why an authority or a certificate could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A host's name cannot stand in a certificate.
    #[error(
        "'{0}' is not the name of a host or an address; write one, like zk1.example or 10.0.0.1"
    )]
    BadHost(String),
    /// A server's certificate without a name is one that every client refuses.
    #[error("a server's certificate needs the names by which clients reach the server; give one")]
    NoHosts,
    /// The files of an authority are not what they should be.
    #[error(
        "the authority's {what} cannot be read: {cause}; take the files that were made together"
    )]
    Unreadable {
        /// Certificate or key.
        what: &'static str,
        /// The cause.
        cause: String,
    },
    /// The validity would end after all dates that a certificate can have.
    #[error("certificates cannot be valid for so long; give a shorter time")]
    TooLong,
    /// The library that writes certificates refused.
    #[error("the certificate cannot be made: {0}; report this")]
    Failed(String),
}

/// Purpose of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A server: shown to clients, and to the other servers of an ensemble, also when it connects
    /// to them.
    Server,
    /// A client.
    Client,
}

/// A certificate and its private key, each in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The certificate.
    pub certificate: String,
    /// The private key. Anyone who has it can act in the name of the certificate.
    pub key: String,
}

impl std::fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes an authority of this name, whose own certificate is valid for so long. Clients and
    /// servers that trust [`IssuedCertificate::certificate`] trust what it signs.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn create(
        name: &str,
        valid: Duration,
    ) -> Result<(Self, IssuedCertificate), AuthorityError> {
        let mut params = params(name, valid)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?;
        let issued = IssuedCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        };
        let issuer = Issuer::new(params, key);
        Ok((Self { issuer }, issued))
    }

    /// The authority that [`Authority::create`] has made, from its certificate and key in PEM.
    ///
    /// # Errors
    /// [`AuthorityError::Unreadable`].
    pub fn open(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let unreadable = |what, error: rcgen::Error| AuthorityError::Unreadable {
            what,
            cause: error.to_string(),
        };
        let key = KeyPair::from_pem(key).map_err(|error| unreadable("key", error))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key);
        let issuer = issuer.map_err(|error| unreadable("certificate", error))?;
        Ok(Self { issuer })
    }

    /// Makes a key, and signs a certificate for it. `name` is the common name of the subject;
    /// ZooKeeper's x509 identity of a client is `CN=name`. `hosts` are the names and addresses
    /// that the certificate is for, which a server needs.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn issue(
        &self,
        purpose: Purpose,
        name: &str,
        hosts: &[String],
        valid: Duration,
    ) -> Result<IssuedCertificate, AuthorityError> {
        if purpose == Purpose::Server && hosts.is_empty() {
            return Err(AuthorityError::NoHosts);
        }
        let mut params = params(name, valid)?;
        for host in hosts {
            let names = CertificateParams::new(vec![host.clone()]);
            let names = names.map_err(|_| AuthorityError::BadHost(host.clone()))?;
            if host.is_empty() || host.contains(char::is_whitespace) {
                return Err(AuthorityError::BadHost(host.clone()));
            }
            params.subject_alt_names.extend(names.subject_alt_names);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match purpose {
            Purpose::Server => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
            Purpose::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(IssuedCertificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

/// The subject and the validity of a certificate.
fn params(name: &str, valid: Duration) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now
        .checked_sub(signed(BACKDATED)?)
        .ok_or(AuthorityError::TooLong)?;
    params.not_after = now
        .checked_add(signed(valid)?)
        .ok_or(AuthorityError::TooLong)?;
    Ok(params)
}

fn signed(duration: Duration) -> Result<time::Duration, AuthorityError> {
    time::Duration::try_from(duration).map_err(|_| AuthorityError::TooLong)
}

fn failed(error: rcgen::Error) -> AuthorityError {
    AuthorityError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use x509_parser::pem::parse_x509_pem;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn an_authority_that_is_opened_again_signs_like_the_one_that_was_made() {
        let (made, files) = Authority::create("Trial", 10 * DAY).unwrap();
        let opened = Authority::open(&files.certificate, &files.key).unwrap();
        let (_, authority) = parse_x509_pem(files.certificate.as_bytes()).unwrap();
        let authority = authority.parse_x509().unwrap();
        assert!(authority.is_ca());
        let hosts = [
            "zk1.example".to_owned(),
            "10.0.0.1".to_owned(),
            "::1".to_owned(),
        ];
        for signer in [made, opened] {
            let issued = signer.issue(Purpose::Server, "zk1", &hosts, DAY).unwrap();
            let (_, leaf) = parse_x509_pem(issued.certificate.as_bytes()).unwrap();
            let leaf = leaf.parse_x509().unwrap();
            assert_eq!(leaf.issuer(), authority.subject());
            assert_eq!(leaf.subject().to_string(), "CN=zk1");
            assert_eq!(leaf.version().0, 2, "X.509 version 3");
            let names = leaf.subject_alternative_name().unwrap().unwrap();
            assert_eq!(names.value.general_names.len(), 3);
            assert!(!leaf.is_ca());
        }
    }

    #[test]
    fn what_cannot_be_a_certificate_is_refused_with_its_reason() {
        let (authority, files) = Authority::create("Trial", DAY).unwrap();
        let issue = |hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            authority
                .issue(Purpose::Server, "x", &hosts, DAY)
                .unwrap_err()
        };
        assert_eq!(issue(&[]), AuthorityError::NoHosts);
        for host in ["", "a b", "zürich"] {
            assert_eq!(
                issue(&[host]),
                AuthorityError::BadHost(host.to_owned()),
                "{host}"
            );
        }
        let forever = authority.issue(Purpose::Client, "x", &[], Duration::MAX);
        assert_eq!(forever.unwrap_err(), AuthorityError::TooLong);
        for (certificate, key) in [
            ("", ""),
            (&files.certificate[..], "junk"),
            ("junk", &files.key),
        ] {
            let error = Authority::open(certificate, key).unwrap_err();
            assert!(
                matches!(error, AuthorityError::Unreadable { .. }),
                "{error}"
            );
        }
        assert!(!format!("{files:?}").contains("PRIVATE"));
    }
}

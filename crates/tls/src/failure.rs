//! Reason why a connection with TLS failed, and what to do about it, in words for an error or a
//! line of the log. "It" is the other side.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};
use rustls_pki_types::UnixTime;
use x509_parser::time::ASN1Time;

/// Returns why the handshake failed, and the remedy, as the end of a sentence.
#[must_use]
pub fn explain(error: &Error) -> String {
    TlsFailure::of_rustls(error).to_string()
}

/// Reason why a connection with TLS failed. Each text is one line with the cause and the remedy, in
/// which "it" is the other side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The certificate is for other names than the one that was used.
    #[error(
        "its certificate is not for {expected}, but for {presented}; issue one with that name or address as subjectAltName, or connect by a name that it has"
    )]
    WrongHost {
        /// The name that was used.
        expected: String,
        /// The names in the certificate.
        presented: String,
    },
    /// No authority that is trusted has signed the certificate.
    #[error(
        "its certificate is signed by no authority of the CA file; add its authority to the CA file, or give it a certificate of one that is there, with the chain"
    )]
    UnknownAuthority,
    /// The certificate has expired.
    #[error("its certificate has expired{at}; give it a new one")]
    Expired {
        /// When, in brackets; empty if that is not known.
        at: String,
    },
    /// The certificate is not valid yet.
    #[error("its certificate is not valid yet{at}; set the clocks of both hosts")]
    NotYetValid {
        /// Time at which it will be, in brackets; empty if that is not known.
        at: String,
    },
    /// The certificate was revoked.
    #[error("its certificate was revoked; give it a new one")]
    Revoked,
    /// No list says whether the certificate was revoked.
    #[error(
        "no list of the CRL file is of the authority that signed its certificate; append that authority's list to the CRL file"
    )]
    NotInRevocationLists,
    /// The list of revoked certificates that the authority should have signed cannot be used.
    #[error(
        "the list of revoked certificates for its authority cannot be used ({0}); take the list that this authority has signed"
    )]
    BadRevocationList(String),
    /// The certificate is of version 1 of X.509.
    #[error(
        "its certificate is of X.509 version 1, which is refused here; issue it again as version 3"
    )]
    VersionOne,
    /// The certificate is an authority's own.
    #[error(
        "it shows the certificate of an authority as its own; issue it one that is not an authority's (basicConstraints CA:FALSE)"
    )]
    AuthorityAsPeer,
    /// The certificate was issued for another role.
    #[error(
        "its certificate is for another purpose; issue one with the extended key usage of its role (clientAuth for clients, serverAuth for servers, both for the servers of an ensemble)"
    )]
    WrongPurpose,
    /// The certificate cannot be used for another reason.
    #[error("its certificate is refused ({0}); issue it again")]
    BadCertificate(String),
    /// A client showed no certificate, and has to.
    #[error("it showed no certificate, which this side asks for; give it a certificate and key")]
    NoCertificate,
    /// The other side's first bytes are not TLS.
    #[error("it does not speak TLS; switch TLS on there, or use a port without TLS")]
    NotTls,
    /// The server accepts only TLS, and the client asked for none.
    #[error("it accepts only TLS at this port; write tls:// before the servers")]
    TlsOnly,
    /// The connection was closed in the middle of the handshake.
    #[error(
        "it closed the connection during the TLS handshake; its port may be one without TLS, and if not, its log says why"
    )]
    Closed,
    /// A client, or another server that connects, closed the connection in the middle of the
    /// handshake.
    #[error(
        "it ended the connection during the TLS handshake; if that goes on, look whether it trusts this server's certificate"
    )]
    GaveUp,
    /// The other side wants a certificate of this one, which shows none.
    #[error("it asks for a certificate; give this side a certificate and key")]
    CertificateRequired,
    /// The other side does not know the authority of this side's certificate.
    #[error("it does not know the authority of this side's certificate; give it the CA file")]
    AuthorityRefused,
    /// The other side says that this side's certificate has expired.
    #[error("it says that this side's certificate has expired; put a new one in its place")]
    CertificateExpired,
    /// The other side refuses this side's certificate.
    #[error(
        "it refuses this side's certificate ({0}); compare its CA file, and the names in the certificate with the address that it uses"
    )]
    CertificateRefused(String),
    /// Both sides have no version or cipher in common; a server with TLS 1.2 may also miss the
    /// client's certificate.
    #[error(
        "it has no version or cipher of TLS in common, or misses a certificate ({0}); let it use TLS 1.2 or 1.3, or give this side a certificate and key"
    )]
    Incompatible(String),
    /// The other side accepts no signature of this side's key.
    #[error("it accepts no signature of this side's key; use an ECDSA (P-256) or RSA key")]
    KeyRefused,
    /// A message over the limits of TLS.
    #[error("it sent a message over the limit of TLS; look who connects there")]
    Oversized,
    /// The other side broke the rules of TLS.
    #[error("it broke the rules of TLS ({0}); look who connects there, or update it")]
    Misbehaved(String),
    /// The other side ended the handshake.
    #[error("it ended the handshake ({0}); its log may say why")]
    Ended(String),
    /// The name of a server that no certificate can have.
    #[error("'{0}' is not a name that a certificate can have; write a host name or an address")]
    BadName(String),
    /// The network failed during the handshake.
    #[error("the TLS handshake failed ({0}); check the network in between")]
    Io(String),
    /// Another failure.
    #[error("TLS failed ({0})")]
    Other(String),
}

impl TlsFailure {
    /// The failure of TLS that this error of a stream stands for, if it is one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref()?;
        if let Some(failure) = inner.downcast_ref::<Self>() {
            return Some(failure.clone());
        }
        inner.downcast_ref::<Error>().map(Self::of_rustls)
    }

    /// The failure that this error of a handshake stands for, on the side that has connected.
    #[must_use]
    pub fn of_handshake(error: &io::Error) -> Self {
        Self::of(error).unwrap_or_else(|| match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error.to_string()),
        })
    }

    /// The failure that this error of a handshake stands for, on the side that has accepted.
    #[must_use]
    pub fn of_accepting(error: &io::Error) -> Self {
        match Self::of_handshake(error) {
            Self::Closed => Self::GaveUp,
            other => other,
        }
    }

    pub(crate) fn of_rustls(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(certificate) => Self::of_certificate(certificate),
            Error::InvalidCertRevocationList(error) => {
                Self::BadRevocationList(format!("{error:?}"))
            }
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::PeerIncompatible(PeerIncompatible::NoSignatureSchemesInCommon) => {
                Self::KeyRefused
            }
            Error::PeerIncompatible(reason) => Self::Incompatible(format!("{reason:?}")),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            Error::InvalidMessage(
                InvalidMessage::HandshakePayloadTooLarge
                | InvalidMessage::CertificatePayloadTooLarge
                | InvalidMessage::MessageTooLarge,
            )
            | Error::PeerSentOversizedRecord => Self::Oversized,
            Error::InvalidMessage(_) | Error::PeerMisbehaved(_) | Error::DecryptError => {
                Self::Misbehaved(error.to_string())
            }
            error => Self::Other(error.to_string()),
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        let at = |time: &UnixTime| format!(" ({})", shown(*time));
        match error {
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => Self::WrongHost {
                expected: expected.to_str().into_owned(),
                presented: names(presented),
            },
            CertificateError::NotValidForName => Self::WrongHost {
                expected: "the address that is used".to_owned(),
                presented: "another name".to_owned(),
            },
            // The signature is bad where another authority has the same name.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            CertificateError::ExpiredContext { not_after, .. } => {
                Self::Expired { at: at(not_after) }
            }
            CertificateError::Expired => Self::Expired { at: String::new() },
            CertificateError::NotValidYetContext { not_before, .. } => {
                Self::NotYetValid { at: at(not_before) }
            }
            CertificateError::NotValidYet => Self::NotYetValid { at: String::new() },
            CertificateError::Revoked => Self::Revoked,
            CertificateError::UnknownRevocationStatus => Self::NotInRevocationLists,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::WrongPurpose
            }
            // The errors of `webpki` that rustls has no names for.
            CertificateError::Other(other) => match format!("{:?}", other.0).as_str() {
                "UnsupportedCertVersion" => Self::VersionOne,
                "CaUsedAsEndEntity" => Self::AuthorityAsPeer,
                other => Self::BadCertificate(other.to_owned()),
            },
            error => Self::BadCertificate(error.to_string()),
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        let shown = || format!("{alert:?}");
        match alert {
            AlertDescription::UnknownCA => Self::AuthorityRefused,
            AlertDescription::CertificateExpired => Self::CertificateExpired,
            AlertDescription::CertificateRequired => Self::CertificateRequired,
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError => Self::CertificateRefused(shown()),
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
                Self::Incompatible(shown())
            }
            _ => Self::Ended(shown()),
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Closed | Self::GaveUp => io::ErrorKind::ConnectionAborted,
            Self::BadName(_) => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::InvalidData,
        }
    }
}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        Self::new(failure.kind(), failure)
    }
}

/// The most names of a certificate that a message repeats.
const SHOWN_NAMES: usize = 5;

/// The names of a certificate, which somebody else has written: on one line, and not too many.
fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "no name at all (it has no subjectAltName)".to_owned();
    }
    let shown = presented.iter().take(SHOWN_NAMES);
    let mut shown: Vec<_> = shown.map(|name| plain(name)).collect();
    if presented.len() > SHOWN_NAMES {
        shown.push(format!("{} more", presented.len() - SHOWN_NAMES));
    }
    shown.join(", ")
}

/// `DnsName("zk1")` and the like as `zk1`.
fn plain(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    let inner = inner.unwrap_or(name).trim_matches('"');
    inner
        .chars()
        .filter(|c| !c.is_control())
        .take(255)
        .collect()
}

fn shown(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok();
    let time = seconds.and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    time.map_or_else(
        || "at an impossible time".to_owned(),
        |time| time.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use rustls::CertRevocationListError;

    use super::*;

    #[test]
    fn every_failure_is_one_line_with_its_remedy() {
        for (error, part) in [
            (CertificateError::UnknownIssuer.into(), "add its authority"),
            (
                CertificateError::Expired.into(),
                "expired; give it a new one",
            ),
            (CertificateError::NotValidYet.into(), "set the clocks"),
            (CertificateError::Revoked.into(), "was revoked; give it"),
            (
                CertificateError::UnknownRevocationStatus.into(),
                "append that authority's list",
            ),
            (
                Error::InvalidCertRevocationList(CertRevocationListError::BadSignature),
                "(BadSignature); take the list",
            ),
            (CertificateError::NotValidForName.into(), "subjectAltName"),
            (CertificateError::InvalidPurpose.into(), "serverAuth"),
            (CertificateError::BadSignature.into(), "add its authority"),
            (CertificateError::BadEncoding.into(), "issue it again"),
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "asks for a certificate",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "give it the CA file",
            ),
            (
                Error::AlertReceived(AlertDescription::ProtocolVersion),
                "TLS 1.2 or 1.3",
            ),
            (
                Error::AlertReceived(AlertDescription::InternalError),
                "InternalError",
            ),
            (Error::DecryptError, "broke the rules"),
        ] {
            let wrapped = io::Error::new(io::ErrorKind::InvalidData, error.clone());
            let text = TlsFailure::of(&wrapped).unwrap().to_string();
            assert!(text.contains(part), "{error:?}: {text}");
            assert!(text.contains("; ") && !text.contains('\n'), "{text}");
            assert_eq!(explain(&error), text);
        }
    }

    #[test]
    fn what_is_not_of_tls_is_none_of_its_failures() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(TlsFailure::of(&refused), None);
        assert_eq!(TlsFailure::of(&io::Error::other("else")), None);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(TlsFailure::of_handshake(&reset), TlsFailure::Closed);
        let wrapped = io::Error::from(TlsFailure::TlsOnly);
        assert_eq!(TlsFailure::of(&wrapped), Some(TlsFailure::TlsOnly));
    }

    #[test]
    fn names_of_certificates_stay_on_one_line_and_few() {
        let presented: Vec<_> = (0..7).map(|n| format!("DnsName(\"zk{n}\n\")")).collect();
        assert_eq!(names(&presented), "zk0, zk1, zk2, zk3, zk4, 2 more");
        assert_eq!(names(&["IpAddress(127.0.0.1)".to_owned()]), "127.0.0.1");
        assert!(names(&[]).contains("subjectAltName"));
    }
}

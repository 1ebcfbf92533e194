//! Why a handshake failed, and what to do about it, for a line of the log. A text never contains
//! what the other side sent.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

/// Why the handshake failed, and the remedy, as the end of a sentence. "It" is the other side.
#[must_use]
pub fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(certificate) => of_certificate(certificate),
        Error::NoCertificatesPresented => {
            "it showed no certificate, which this side asks for; give it a certificate and key"
                .to_owned()
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::PeerIncompatible(reason) => of_incompatible(reason),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => "it does not speak TLS; switch TLS on there, or let it use a port without TLS"
            .to_owned(),
        Error::InvalidMessage(
            InvalidMessage::HandshakePayloadTooLarge
            | InvalidMessage::CertificatePayloadTooLarge
            | InvalidMessage::MessageTooLarge,
        )
        | Error::PeerSentOversizedRecord => {
            "it sent a message over the limit of TLS; look who connects there".to_owned()
        }
        Error::InvalidMessage(_) | Error::PeerMisbehaved(_) | Error::DecryptError => {
            format!("it broke the rules of TLS ({error}); look who connects there, or update it")
        }
        error => format!("TLS failed ({error})"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; give it a new one".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; set the clocks of both hosts".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "its certificate is signed by no authority of the CA file; add its authority to the CA \
             file, or give it a certificate of one that is there, with the chain"
                .to_owned()
        }
        CertificateError::Revoked => {
            "its certificate was revoked; give it a new one".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name than the address that is used; issue one with that \
             name or address as subjectAltName, or connect by a name that it has"
                .to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is for another purpose; issue one with the extended key usage of its \
             role (clientAuth for clients, serverAuth for servers)"
                .to_owned()
        }
        CertificateError::Other(other) if other.to_string().contains("UnsupportedCertVersion") => {
            "its certificate is of X.509 version 1; issue it again as version 3".to_owned()
        }
        error => format!("its certificate is refused ({error}); issue it again"),
    }
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => {
            "it does not know the authority of this side's certificate; give it the CA file"
                .to_owned()
        }
        AlertDescription::CertificateExpired => {
            "it says that this side's certificate has expired; put a new one in its place"
                .to_owned()
        }
        AlertDescription::CertificateRequired => {
            "it asks for a certificate; give this side a certificate and key".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => format!(
            "it refuses this side's certificate ({alert:?}); compare its CA file, and the names in the \
             certificate with the address that it uses"
        ),
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => format!(
            "it has no version or cipher of TLS in common ({alert:?}); let it use TLS 1.2 or 1.3"
        ),
        alert => format!("it ended the handshake ({alert:?})"),
    }
}

fn of_incompatible(reason: &PeerIncompatible) -> String {
    match reason {
        PeerIncompatible::NoSignatureSchemesInCommon => {
            "it accepts no signature of this side's key; use an ECDSA (P-256) or RSA key".to_owned()
        }
        reason => {
            format!(
                "it has no version or cipher of TLS in common ({reason:?}); let it use TLS 1.2 or 1.3"
            )
        }
    }
}

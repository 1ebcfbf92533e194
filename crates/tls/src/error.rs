//! Reason why a file or a setting of TLS is refused. Each text is one line that names the file and
//! the remedy.

use std::path::PathBuf;

/// Purpose of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRole {
    /// A certificate, and the chain behind it.
    Certificate,
    /// The private key of the certificate.
    Key,
    /// The authorities whose certificates are trusted.
    Authorities,
    /// The certificates that authorities have revoked (CRL).
    RevocationLists,
}

impl std::fmt::Display for FileRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FileRole::Certificate => "certificate file",
            FileRole::Key => "key file",
            FileRole::Authorities => "CA file",
            FileRole::RevocationLists => "CRL file",
        })
    }
}

/// Reason why a file or a setting of TLS is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("the {role} {path} cannot be read: {cause}; correct the path or its permissions", path = .path.display())]
    Unreadable {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: String,
    },
    /// Other users may read the private key.
    #[error(
        "the {role} {path} has a private key that other users may read (mode {mode:04o}); run: chmod 600 {path}",
        path = .path.display()
    )]
    Exposed {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file is far larger than such a file is.
    #[error("the {role} {path} has more than {limit} bytes, which no such file has; correct the path", path = .path.display())]
    TooLarge {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// The most bytes that are read.
        limit: u64,
    },
    /// The file has a format other than PEM.
    #[error("the {role} {path} is {format}, Baton reads PEM; convert it: {command}", path = .path.display())]
    NotPem {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// The format that it seems to have.
        format: &'static str,
        /// The command that converts it.
        command: String,
    },
    /// The file is damaged PEM.
    #[error("the {role} {path} is not valid PEM: {cause}; write it again", path = .path.display())]
    BrokenPem {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// Position at which reading stopped.
        cause: String,
    },
    /// The file has nothing of what it is for.
    #[error("the {role} {path} has no {what}; it needs {needs}", path = .path.display())]
    Lacks {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// The missing part.
        what: &'static str,
        /// The required content.
        needs: &'static str,
    },
    /// The private key is protected by a passphrase.
    #[error(
        "the private key in {path} is encrypted with a passphrase; decrypt it: openssl pkey -in {path} -out key.pem \
         && chmod 600 key.pem",
        path = .path.display()
    )]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// A certificate that cannot be used.
    #[error("certificate {number} in the {role} {path} cannot be used: {cause}; {remedy}", path = .path.display())]
    BadCertificate {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// Its place in the file, from 1.
        number: usize,
        /// The cause.
        cause: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A list of revoked certificates that cannot be used.
    #[error("list {number} in the CRL file {path} cannot be used: {cause}; {remedy}", path = .path.display())]
    BadRevocationList {
        /// The file.
        path: PathBuf,
        /// Its place in the file, from 1.
        number: usize,
        /// The cause.
        cause: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A certificate that is not valid at this time.
    #[error("certificate {number} in the {role} {path} {state} on {at}; {remedy}", path = .path.display())]
    OutOfTime {
        /// Purpose of the file.
        role: FileRole,
        /// The file.
        path: PathBuf,
        /// Its place in the file, from 1.
        number: usize,
        /// Whether it has expired, or is not valid yet.
        state: &'static str,
        /// Time at which that was, or will be.
        at: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The private key cannot be used for TLS.
    #[error("the private key in {path} cannot be used: {cause}; use an RSA, ECDSA (P-256, P-384) or Ed25519 key", path = .path.display())]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The private key is not that of the certificate.
    #[error(
        "the private key in {key} does not belong to the first certificate in {certificates}; use the key that the \
         certificate was made with, and put the server's or client's own certificate first",
        key = .key.display(), certificates = .certificates.display()
    )]
    KeyMismatch {
        /// The file of the certificates.
        certificates: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Client certificates are asked for, but no authority is named that could have signed them.
    #[error(
        "client certificates are asked for, but no CA file is named; name the file of the authorities that sign them"
    )]
    NoAuthorities,
    /// The certificate of a server of an ensemble is for one end of a connection only.
    #[error(
        "the certificate in {path} cannot be shown to the other servers of an ensemble: its extended key usages are \
         not both serverAuth and clientAuth; issue one with both (baton cert server does)",
        path = .path.display()
    )]
    NotForBothEnds {
        /// The file.
        path: PathBuf,
    },
    /// The other servers of an ensemble would not know the authority of the certificate.
    #[error(
        "the certificate in {path} is signed by no authority of the CA file {authorities}, so the other servers would \
         refuse it; name the file of the authority that signs the certificates of all servers, and append the chain \
         to the certificate",
        path = .path.display(), authorities = .authorities.display()
    )]
    NotOfAuthority {
        /// The file.
        path: PathBuf,
        /// The file of the authorities.
        authorities: PathBuf,
    },
    /// Refused for another reason.
    #[error("TLS cannot be used with these files and settings: {0}")]
    Refused(String),
}

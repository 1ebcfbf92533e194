//! Certificates, keys, authorities and their lists of revoked certificates in PEM files.
//! Everything that can be wrong with a file is found here, before a connection needs it.

use std::fmt::Display;
use std::fs::Metadata;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::nom;
use x509_parser::nom::Parser as _;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

use crate::error::{FileRole, TlsError};
use crate::provider::provider;

/// The most bytes of a file: a thousand certificates are shorter.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The same of lists of revoked certificates, of which large authorities have many.
const MAX_LISTS_BYTES: u64 = 64 << 20;
/// Permissions with which others than the owner and the group could use a file of secrets, or
/// others than the owner could change it.
#[cfg(unix)]
const EXPOSED_MODE: u32 = 0o027;

/// The files of one side of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, followed by the certificates of its chain.
    pub certificates: PathBuf,
    /// The private key of the certificate. May be the same file.
    pub key: PathBuf,
    /// The certificates of the authorities that sign the other side's certificates.
    pub authorities: Option<PathBuf>,
    /// The lists of the certificates that these authorities have revoked. With it, a certificate of
    /// the other side is refused if a list has it, and if there is no list of its authority.
    pub revocation_lists: Option<PathBuf>,
}

impl Files {
    /// Every file, each once.
    pub(crate) fn paths(&self) -> Vec<&Path> {
        let mut paths = vec![self.certificates.as_path()];
        if self.key != self.certificates {
            paths.push(&self.key);
        }
        paths.extend(self.authorities.as_deref());
        paths.extend(self.revocation_lists.as_deref());
        paths
    }
}

/// Reads a certificate with its chain and its private key, and checks that they belong together
/// and are valid now.
///
/// # Errors
/// [`TlsError`] names the file and the remedy.
pub fn read_identity(certificates: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = read_certificates(certificates, FileRole::Certificate)?;
    let private = read_key(key)?;
    let signing = rustls::crypto::ring::sign::any_supported_type(&private);
    let signing = signing.map_err(|error| TlsError::BadKey {
        path: key.to_owned(),
        cause: error.to_string(),
    })?;
    let identity = CertifiedKey::new(chain, signing);
    match identity.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(Arc::new(identity))
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::KeyMismatch {
            certificates: certificates.to_owned(),
            key: key.to_owned(),
        }),
        Err(error) => Err(TlsError::BadCertificate {
            role: FileRole::Certificate,
            path: certificates.to_owned(),
            number: 1,
            cause: error.to_string(),
            remedy: "issue a certificate of version 3 for the name of this host",
        }),
    }
}

/// Reads the certificates of authorities.
///
/// # Errors
/// [`TlsError`] names the file and the remedy; a file without a certificate is refused.
pub fn read_authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    let certificates = read_certificates(path, FileRole::Authorities)?;
    for (number, certificate) in (1..).zip(certificates) {
        roots
            .add(certificate)
            .map_err(|error| TlsError::BadCertificate {
                role: FileRole::Authorities,
                path: path.to_owned(),
                number,
                cause: error.to_string(),
                remedy: "replace it with the authority's certificate, or remove it",
            })?;
    }
    Ok(Arc::new(roots))
}

/// Reads the lists of revoked certificates of a file. Without a file there are none.
///
/// A list that is out of date is refused here, like a certificate that has expired. One that gets
/// out of date while it is in use stays in use.
///
/// # Errors
/// [`TlsError`] names the file and the remedy; a file without a list is refused.
pub fn read_revocation_lists(
    path: Option<&Path>,
    authorities: &Arc<RootCertStore>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let Some(path) = path else {
        return Ok(Vec::new());
    };
    let role = FileRole::RevocationLists;
    let text = read(path, role)?;
    let mut lists = Vec::new();
    for (kind, der) in sections(&text, path, role)? {
        if kind != SectionKind::Crl {
            continue;
        }
        let bad = |cause: String, remedy| TlsError::BadRevocationList {
            path: path.to_owned(),
            number: lists.len() + 1,
            cause,
            remedy,
        };
        let write_again = "take it from its authority again, as a whole list of version 2";
        let due = next_update(&der).map_err(|error| bad(error, write_again))?;
        if due.timestamp() < now() {
            let cause = format!("its authority has promised a newer one for {due}");
            return Err(bad(cause, "put the newest list in its place"));
        }
        let list = CertificateRevocationListDer::from(der);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(authorities), provider());
        let usable = verifier.with_crls([list.clone()]).build();
        usable.map_err(|error| bad(error.to_string(), write_again))?;
        lists.push(list);
    }
    if lists.is_empty() {
        return Err(TlsError::Lacks {
            role,
            path: path.to_owned(),
            what: "list of revoked certificates",
            needs: "a section BEGIN X509 CRL for each authority",
        });
    }
    Ok(lists)
}

/// Returns when the list is to be replaced by a newer one.
fn next_update(der: &[u8]) -> Result<ASN1Time, String> {
    let (_, list) = CertificateRevocationList::from_der(der)
        .map_err(|error| format!("it is not an X.509 list ({error})"))?;
    list.next_update()
        .ok_or_else(|| "it does not say when a newer one comes (nextUpdate)".to_owned())
}

/// Reads every certificate of a file, in its order. Of a certificate file the first one must be
/// valid now, of a CA file at least one.
///
/// # Errors
/// [`TlsError`] names the file and the remedy.
pub fn read_certificates(
    path: &Path,
    role: FileRole,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path, role)?;
    let mut certificates = Vec::new();
    let mut out_of_time = None;
    let mut valid = 0;
    for (kind, der) in sections(&text, path, role)? {
        if kind != SectionKind::Certificate {
            continue;
        }
        let number = certificates.len() + 1;
        match check(&der, path, role, number) {
            Ok(()) => valid += 1,
            Err(error @ TlsError::OutOfTime { .. }) => {
                if role == FileRole::Certificate && number == 1 {
                    return Err(error);
                }
                out_of_time.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
        certificates.push(CertificateDer::from(der));
    }
    if certificates.is_empty() {
        return Err(lacks_certificate(&text, path, role));
    }
    match out_of_time {
        // Old authorities may stay in the file beside their successors.
        Some(error) if valid == 0 => Err(error),
        _ => Ok(certificates),
    }
}

/// Reads the first private key of a file.
///
/// # Errors
/// [`TlsError`] names the file and the remedy; a key that other users may read is refused.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(path, FileRole::Key)?;
    if is_encrypted_key(&text) {
        return Err(TlsError::EncryptedKey {
            path: path.to_owned(),
        });
    }
    for (kind, der) in sections(&text, path, FileRole::Key)? {
        if let Some(key) = PrivateKeyDer::from_pem(kind, der) {
            refuse_exposed(path)?;
            return Ok(key);
        }
    }
    Err(TlsError::Lacks {
        role: FileRole::Key,
        path: path.to_owned(),
        what: "private key",
        needs: "a section BEGIN PRIVATE KEY (or BEGIN RSA PRIVATE KEY, BEGIN EC PRIVATE KEY)",
    })
}

/// Returns the error for a file without a certificate, by what the file may be.
fn lacks_certificate(text: &[u8], path: &Path, role: FileRole) -> TlsError {
    let needs = if contains(text, b"BEGIN TRUSTED CERTIFICATE") {
        "BEGIN CERTIFICATE in place of OpenSSL's BEGIN TRUSTED CERTIFICATE (openssl x509 converts it)"
    } else if contains(text, b"PRIVATE KEY-----") {
        "a section BEGIN CERTIFICATE; this is a file of a private key"
    } else {
        "a section BEGIN CERTIFICATE"
    };
    TlsError::Lacks {
        role,
        path: path.to_owned(),
        what: "certificate",
        needs,
    }
}

fn is_encrypted_key(text: &[u8]) -> bool {
    contains(text, b"BEGIN ENCRYPTED PRIVATE KEY") || contains(text, b"Proc-Type: 4,ENCRYPTED")
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn read(path: &Path, role: FileRole) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error: std::io::Error| TlsError::Unreadable {
        role,
        path: path.to_owned(),
        cause: error.to_string(),
    };
    let limit = match role {
        FileRole::RevocationLists => MAX_LISTS_BYTES,
        _ => MAX_FILE_BYTES,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut text);
    read.map_err(unreadable)?;
    if text.len() as u64 > limit {
        return Err(TlsError::TooLarge {
            role,
            path: path.to_owned(),
            limit,
        });
    }
    match foreign_format(&text, path, role) {
        Some(error) => Err(error),
        None => Ok(text),
    }
}

/// The refusal of a key store of Java's, or of bare DER.
fn foreign_format(text: &[u8], path: &Path, role: FileRole) -> Option<TlsError> {
    const JKS: &[u8] = &[0xfe, 0xed, 0xfe, 0xed];
    /// A SEQUENCE that is longer than its short form allows: of 128 bytes, or of 256.
    const SHORT_DER: &[u8] = &[0x30, 0x81];
    const DER: &[u8] = &[0x30, 0x82];
    /// The INTEGER 3 that a PKCS#12 file begins with, inside its SEQUENCE.
    const PKCS12_VERSION: &[u8] = &[0x02, 0x01, 0x03];
    let shown = path.display();
    let what = match role {
        FileRole::Authorities | FileRole::RevocationLists => "-nokeys",
        FileRole::Certificate | FileRole::Key => "-nodes",
    };
    let of_pkcs12 = |file: &str| format!("openssl pkcs12 -in {file} {what} -out store.pem");
    let (format, command) = if text.starts_with(JKS) {
        let to_pkcs12 = format!(
            "keytool -importkeystore -srckeystore {shown} -destkeystore store.p12 -deststoretype PKCS12"
        );
        let command = format!("{to_pkcs12} && {}", of_pkcs12("store.p12"));
        ("a Java key store (JKS)", command)
    } else if text.starts_with(DER) && text.get(4..7) == Some(PKCS12_VERSION) {
        (
            "a PKCS#12 store (of Java or OpenSSL)",
            of_pkcs12(&shown.to_string()),
        )
    } else if text.starts_with(DER) || text.starts_with(SHORT_DER) {
        let convert = match role {
            FileRole::Key => "pkey",
            FileRole::Certificate | FileRole::Authorities => "x509",
            FileRole::RevocationLists => "crl",
        };
        let command = format!("openssl {convert} -inform DER -in {shown} -out store.pem");
        ("in DER", command)
    } else {
        return None;
    };
    Some(TlsError::NotPem {
        role,
        path: path.to_owned(),
        format,
        command,
    })
}

fn sections(
    text: &[u8],
    path: &Path,
    role: FileRole,
) -> Result<Vec<(SectionKind, Vec<u8>)>, TlsError> {
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(text);
    sections
        .collect::<Result<_, pem::Error>>()
        .map_err(|error| TlsError::BrokenPem {
            role,
            path: path.to_owned(),
            cause: match error {
                pem::Error::MissingSectionEnd { .. } => "a section has no END line".to_owned(),
                pem::Error::IllegalSectionStart { .. } => "a BEGIN line is damaged".to_owned(),
                // The text of a section may be a private key, so it is not repeated.
                _ => "a section is not base64".to_owned(),
            },
        })
}

/// Refuses a certificate that rustls would refuse on every connection, and one that is not valid
/// now.
fn check(der: &[u8], path: &Path, role: FileRole, number: usize) -> Result<(), TlsError> {
    let bad = |cause: String, remedy| TlsError::BadCertificate {
        role,
        path: path.to_owned(),
        number,
        cause,
        remedy,
    };
    let parsed = parse(der).map_err(|error| {
        bad(
            format!("it is not an X.509 certificate ({error})"),
            "write it again",
        )
    })?;
    if parsed.version() != X509Version::V3 && role == FileRole::Certificate {
        // Authorities of version 1 are only names with keys to rustls.
        return Err(bad(
            format!("it is of X.509 version {}", parsed.version().0 + 1),
            "issue it again as version 3, with the names of the host as subjectAltName",
        ));
    }
    let now = now();
    let validity = parsed.validity();
    let out_of_time = |state, at: &dyn Display, remedy| TlsError::OutOfTime {
        role,
        path: path.to_owned(),
        number,
        state,
        at: at.to_string(),
        remedy,
    };
    if validity.not_after.timestamp() < now {
        let at = &validity.not_after;
        return Err(out_of_time("expired", at, "put a new one in its place"));
    }
    if validity.not_before.timestamp() > now {
        let at = &validity.not_before;
        let remedy = "set the clock of this host, or wait";
        return Err(out_of_time("becomes valid only", at, remedy));
    }
    Ok(())
}

/// The time in seconds, as certificates have it.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// The end of a certificate in DER; `None`: it cannot be read, or ends before 1970.
fn valid_until(der: &[u8]) -> Option<SystemTime> {
    let ends = parse(der).ok()?.validity().not_after.timestamp();
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(ends).ok()?))
}

/// Returns when the first certificate of a chain ends; those that cannot be read do not count.
#[must_use]
pub fn chain_valid_until(chain: &[CertificateDer<'_>]) -> Option<SystemTime> {
    chain.iter().filter_map(|der| valid_until(der)).min()
}

/// Parses a certificate without its extensions, which nobody here asks for.
pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, String> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    match parser.parse(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("bytes follow it".to_owned()),
        Err(error) => Err(match error {
            nom::Err::Incomplete(_) => "it is cut off".to_owned(),
            nom::Err::Error(error) | nom::Err::Failure(error) => error.to_string(),
        }),
    }
}

/// The mode of a file of secrets that others than its owner and group can use, or that others than
/// its owner can change. `None`: nobody else can; or the system has no modes.
#[cfg(unix)]
#[must_use]
pub fn exposed_mode(about: &Metadata) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;

    let mode = about.permissions().mode() & 0o7777;
    (mode & EXPOSED_MODE != 0).then_some(mode)
}

/// `None`: the system has no modes.
#[cfg(not(unix))]
#[must_use]
pub fn exposed_mode(_: &Metadata) -> Option<u32> {
    None
}

fn refuse_exposed(path: &Path) -> Result<(), TlsError> {
    let about = std::fs::metadata(path).map_err(|error| TlsError::Unreadable {
        role: FileRole::Key,
        path: path.to_owned(),
        cause: error.to_string(),
    })?;
    match exposed_mode(&about) {
        Some(mode) => Err(TlsError::Exposed {
            role: FileRole::Key,
            path: path.to_owned(),
            mode,
        }),
        None => Ok(()),
    }
}

//! Certificates for tests: an authority in a temporary folder, and what it signs, valid for a day.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_tls::authority::{Authority, IssuedCertificate, Purpose};
use tempfile::TempDir;

const VALID: Duration = Duration::from_secs(86_400);

/// An authority, and the folder with the files of what it has signed. The folder goes with it.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
    authority: Authority,
}

/// The PEM files of a certificate and its key, which only their owner can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Certificates {
    /// Makes an authority that nobody else has.
    ///
    /// # Errors
    /// A folder or a file that cannot be made.
    pub fn new() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let made = Authority::create("Authority of a test", VALID);
        let (authority, own) = made.map_err(io::Error::other)?;
        write(&folder.path().join("ca.pem"), &own.certificate)?;
        Ok(Self { folder, authority })
    }

    /// The PEM file with the authority's certificate.
    #[must_use]
    pub fn authorities(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for a server that is reached by these names and addresses. The first one names
    /// the files, which are written again if they exist.
    ///
    /// # Errors
    /// A name that cannot be a host's; a file that cannot be written.
    pub fn server(&self, hosts: &[&str]) -> io::Result<CertificateFiles> {
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let name = hosts.first().map_or("", String::as_str);
        let issued = self.authority.issue(Purpose::Server, name, &hosts, VALID);
        self.write(name, &issued.map_err(io::Error::other)?)
    }

    /// A certificate for a client, whom servers know as `CN=name`. The name is also that of the
    /// files, which are written again if they exist.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn client(&self, name: &str) -> io::Result<CertificateFiles> {
        let issued = self.authority.issue(Purpose::Client, name, &[], VALID);
        self.write(name, &issued.map_err(io::Error::other)?)
    }

    fn write(&self, name: &str, issued: &IssuedCertificate) -> io::Result<CertificateFiles> {
        let files = CertificateFiles {
            certificate: self.folder.path().join(format!("{name}.pem")),
            key: self.folder.path().join(format!("{name}.key")),
        };
        write(&files.certificate, &issued.certificate)?;
        write(&files.key, &issued.key)?;
        Ok(files)
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
}

//! Servers with TLS and identities, and the certificates and passwords of their clients: made by
//! `baton cert`, in a folder of their own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use baton_testkit::{CertificateFiles, ServerOptions, Target, TlsOptions};

use crate::Result;
use crate::command::output;
use crate::process::Server;

/// The users of SASL that servers know, with their passwords.
pub(crate) const USERS: [(&str, &str); 2] = [("carol", "carols-secret"), ("dave", "daves-secret")];
/// Clients with certificates of the authority that servers trust.
pub(crate) const CLIENTS: [&str; 2] = ["alice", "bob"];
/// One with a certificate of another authority.
pub(crate) const STRANGER: &str = "mallory";

/// The names by which clients reach a server.
const HOSTS: [&str; 2] = ["127.0.0.1", "localhost"];

/// An authority, another one, and what both have signed.
#[derive(Debug)]
pub(crate) struct Credentials {
    dir: PathBuf,
}

impl Credentials {
    /// Makes all of them by `baton cert`.
    pub(crate) fn make(baton: &Path, dir: &Path) -> Result<Self> {
        let cert = |act: &str, folder: &Path, names: &[&str]| {
            let mut command = Command::new(baton);
            command.args(["cert", act]).arg(folder).args(names);
            output(&mut command).map(|_| ())
        };
        let made = Self {
            dir: dir.join("credentials"),
        };
        let (ours, other) = (made.dir.join("ours"), made.dir.join("other"));
        cert("init", &ours, &HOSTS)?;
        cert("init", &other, &HOSTS)?;
        for name in CLIENTS {
            cert("client", &ours, &[name])?;
        }
        cert("client", &other, &[STRANGER])?;
        for (folder, name) in [(&ours, CLIENTS[0]), (&ours, CLIENTS[1]), (&other, STRANGER)] {
            let part = |extension| fs::read_to_string(folder.join(format!("{name}.{extension}")));
            made.secret(&format!("{name}-both.pem"), &(part("pem")? + &part("key")?))?;
        }
        Ok(made)
    }

    /// Writes a file that nobody else may read.
    pub(crate) fn secret(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(path)
    }

    /// The certificate of the authority that has signed the servers' and clients', or of the other
    /// one.
    pub(crate) fn authority(&self, is_ours: bool) -> PathBuf {
        let folder = if is_ours { "ours" } else { "other" };
        self.dir.join(folder).join("ca.pem")
    }

    /// The certificate of a client and its key.
    pub(crate) fn client(&self, name: &str) -> (PathBuf, PathBuf) {
        let folder = if name == STRANGER { "other" } else { "ours" };
        let file = |extension| self.dir.join(folder).join(format!("{name}.{extension}"));
        (file("pem"), file("key"))
    }

    /// Both in one file, as Java wants them.
    pub(crate) fn both(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}-both.pem"))
    }

    /// Starts a server with a port for TLS besides the one without, from a zoo.cfg. `client_auth`
    /// says in ZooKeeper's words whether it wants certificates.
    pub(crate) fn start(
        &self,
        target: Target,
        baton: &Path,
        folder: &Path,
        client_auth: &'static str,
    ) -> Result<Server> {
        let file = |name| self.dir.join("ours").join(name);
        let options = ServerOptions {
            by_zoo_cfg: true,
            tls: Some(TlsOptions {
                server: CertificateFiles {
                    certificate: file("server.pem"),
                    key: file("server.key"),
                },
                authorities: self.authority(true),
                client_auth,
            }),
            sasl_users: USERS
                .map(|(name, password)| (name.to_owned(), password.to_owned()))
                .into(),
            ..ServerOptions::default()
        };
        Server::start_with(target, baton, folder, options)
    }
}

//! `baton cert`: a private authority, and certificates that it signs, for a trial or a small fleet.
//! Connects to no server. A private key is never printed, and its file is open to its owner only
//! from the moment it exists.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_tls::authority::{Authority, AuthorityError, IssuedCertificate, Purpose};
use nix::unistd::{Uid, User};
use rustix::system::uname;
use serde::Serialize;

use crate::context::Context;
use crate::exit::{self, Failure};
use crate::folders;

/// The authority's files in its folder.
const AUTHORITY: &str = "ca";
/// Validity of an authority, in days: longer than what it signs.
const AUTHORITY_DAYS: u32 = 3_650;
const DAY: Duration = Duration::from_secs(86_400);
/// The port that is proposed for TLS: ZooKeeper's usual secureClientPort.
const PORT: u16 = 2281;

/// Make a private authority and certificates for TLS.
///
/// A process that can read ca.key can make certificates that all servers and clients of this
/// authority accept. Do not copy ca.key to them: give each ca.pem and its own two files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton cert init ./tls                       to try it out on this machine
  baton cert init ./tls zk1.example 10.0.0.1  the names of its server
  baton cert server ./tls zk2.example         for one more server, also among
                                              the servers of an ensemble
  baton cert client ./tls alice               for one more client
  baton cert server ./tls zk2.example --replace    before the old one expires

init and server print the settings to paste. Servers and clients read replaced
files without a restart.
Exit codes: 0 done   1 a file of this name exists already
            125 no authority in DIR, or DIR cannot be written")]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Make an authority in DIR, and certificates for a server and a client of it.
    Init {
        /// The folder; it is made if need be.
        dir: PathBuf,
        /// The names and addresses by which clients reach the server [default: those of this
        /// machine].
        #[arg(value_name = "HOST")]
        hosts: Vec<String>,
        #[command(flatten)]
        validity: Validity,
    },
    /// Sign a certificate for a server: for its clients, and for the other servers of an ensemble.
    Server {
        /// The folder of the authority.
        dir: PathBuf,
        /// The names and addresses by which the server is reached; the first one names the files.
        #[arg(value_name = "HOST", required = true)]
        hosts: Vec<String>,
        #[command(flatten)]
        writing: WriteOptions,
    },
    /// Sign a certificate for a client. Servers know the client as the x509 identity CN=NAME.
    Client {
        /// The folder of the authority.
        dir: PathBuf,
        /// The client's name, which also names the files.
        name: String,
        #[command(flatten)]
        writing: WriteOptions,
    },
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Validity {
    /// For how many days a certificate is valid.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct WriteOptions {
    #[command(flatten)]
    validity: Validity,
    /// Replace the files of an earlier certificate.
    #[arg(long)]
    replace: bool,
}

/// A certificate that was made.
#[derive(Debug, Serialize)]
struct MadeCertificate {
    certificate: String,
    key: String,
    /// Hosts or names that it is for.
    names: Vec<String>,
    days: u32,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match &args.act {
        Act::Init {
            dir,
            hosts,
            validity,
        } => init(dir, hosts, *validity, context),
        Act::Server {
            dir,
            hosts,
            writing,
        } => {
            let folder = Folder::at(dir)?;
            let first = hosts.first().map_or("", String::as_str);
            let files = folder.files(first)?;
            let issued =
                folder
                    .open()?
                    .issue(Purpose::Server, first, hosts, DAY * writing.validity.days);
            files.write(&issued.map_err(refused)?, writing.replace)?;
            show(context, &files, hosts.clone(), writing.validity);
            if !context.output.json() && !writing.replace {
                let authority = folder.authority_files();
                let text = [server_lines(&files), ensemble_lines(&authority, &files)];
                context
                    .output
                    .paragraph(&(), text.concat().trim_end().to_owned());
            }
            Ok(exit::OK)
        }
        Act::Client { dir, name, writing } => {
            let folder = Folder::at(dir)?;
            let files = folder.files(name)?;
            let authority = folder.open()?;
            let issued = authority.issue(Purpose::Client, name, &[], DAY * writing.validity.days);
            files.write(&issued.map_err(refused)?, writing.replace)?;
            show(
                context,
                &files,
                vec![format!("CN={name}")],
                writing.validity,
            );
            Ok(exit::OK)
        }
    }
}

fn init(
    dir: &Path,
    hosts: &[String],
    validity: Validity,
    context: &Context,
) -> Result<u8, Failure> {
    let folder = Folder::at(dir)?;
    folder.make()?;
    let hosts = if hosts.is_empty() {
        own_names()
    } else {
        hosts.to_vec()
    };
    let first = hosts.first().map_or("", String::as_str);
    let user = own_user();
    let authority = folder.authority_files();
    let (server, client) = (folder.files("server")?, folder.files("client")?);
    for files in [&authority, &server, &client] {
        files.refuse_existing()?;
    }
    let name = format!("Private authority of {}", host_name());
    let days = validity.days.max(AUTHORITY_DAYS);
    let (signing, own) = Authority::create(&name, DAY * days).map_err(refused)?;
    let valid = DAY * validity.days;
    let of_server = signing.issue(Purpose::Server, first, &hosts, valid);
    let of_client = signing.issue(Purpose::Client, &user, &[], valid);
    // All of it can be made before a file is written.
    let (of_server, of_client) = (of_server.map_err(refused)?, of_client.map_err(refused)?);
    authority.write(&own, false)?;
    server.write(&of_server, false)?;
    client.write(&of_client, false)?;
    show(context, &authority, vec![name], Validity { days });
    show(context, &server, hosts.clone(), validity);
    show(context, &client, vec![format!("CN={user}")], validity);
    if !context.output.json() {
        let text = lines(&authority, &server, &client, first);
        context.output.paragraph(&(), text);
    }
    Ok(exit::OK)
}

fn show(context: &Context, files: &Files, names: Vec<String>, Validity { days }: Validity) {
    let text = format!(
        "{} and {}: for {}, valid for {days} days",
        files.certificate.display(),
        files.key.display(),
        names.join(", ")
    );
    let made = MadeCertificate {
        certificate: files.certificate.display().to_string(),
        key: files.key.display().to_string(),
        names,
        days,
    };
    context.output.result(&made, text);
}

/// Returns the lines to paste into the configurations of a server, of an ensemble's servers and of
/// a client.
fn lines(authority: &Files, server: &Files, client: &Files, host: &str) -> String {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let ca = &authority.certificate;
    format!(
        "{server}To let only clients in that have a certificate of this authority, add
  tls_ca = {ca_toml}
{ensemble}
A client, by flags or by ~/.config/baton/config.toml:
  baton lock --servers tls://{host}:{PORT} --tls-ca {ca} /demo -- echo held
  servers = \"tls://{host}:{PORT}\"
  tls_ca = {ca_toml}
Its own certificate, for servers that ask for one:
  tls_cert = {client_toml}
  tls_key = {client_key_toml}",
        server = server_lines(server),
        ensemble = ensemble_lines(authority, server),
        ca = shell(ca),
        ca_toml = toml(ca),
        client_toml = toml(&client.certificate),
        client_key_toml = toml(&client.key),
    )
}

/// Returns the lines to paste into the configuration of a server, for its clients.
fn server_lines(server: &Files) -> String {
    format!(
        "
A server, by flags or by its baton.toml:
  baton serve --secure-listen 0.0.0.0:{PORT} --tls-cert {cert} --tls-key {key}
  secure_listen = \"0.0.0.0:{PORT}\"
  tls_cert = {cert_toml}
  tls_key = {key_toml}
",
        cert = shell(&server.certificate),
        key = shell(&server.key),
        cert_toml = toml(&server.certificate),
        key_toml = toml(&server.key),
    )
}

/// Returns the lines to paste into the configuration of one of an ensemble's servers, for the
/// others.
fn ensemble_lines(authority: &Files, server: &Files) -> String {
    format!(
        "
TLS among the servers of an ensemble, in the baton.toml of this one (each
server has a certificate of its own, for the host of its address there):
  [ensemble]
  tls = true
  tls_cert = {cert}
  tls_key = {key}
  tls_ca = {ca}
",
        cert = toml(&server.certificate),
        key = toml(&server.key),
        ca = toml(&authority.certificate),
    )
}

/// A path as one word of a shell.
fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@".contains(c);
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn toml(path: &Path) -> String {
    toml::Value::from(path.display().to_string()).to_string()
}

/// The folder of an authority.
struct Folder(PathBuf);

impl Folder {
    fn at(dir: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(dir).map_err(|error| {
            Failure::usage(format!(
                "{} is not a folder: {error}; name another",
                dir.display()
            ))
        })?;
        // The settings that are printed name its files.
        folders::text(&absolute)?;
        Ok(Self(absolute))
    }

    fn make(&self) -> Result<(), Failure> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0);
        made.map_err(|error| cannot(&self.0, "made", &error))
    }

    fn authority_files(&self) -> Files {
        Files::named(&self.0, AUTHORITY)
    }

    /// The files of a certificate with this name.
    fn files(&self, name: &str) -> Result<Files, Failure> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@:".contains(c);
        let is_fine = !name.is_empty()
            && !name.starts_with(['.', '-'])
            && name.chars().all(is_plain)
            && name != AUTHORITY;
        if !is_fine {
            return Err(Failure::usage(format!(
                "'{name}' cannot name the files of a certificate; use letters, digits and . _ - @ :, and not {AUTHORITY}"
            )));
        }
        Ok(Files::named(&self.0, name))
    }

    /// The authority that was made here.
    fn open(&self) -> Result<Authority, Failure> {
        let files = self.authority_files();
        if !files.key.exists() {
            return Err(Failure::baton(format!(
                "no authority in {dir}; make one with baton cert init {dir}",
                dir = self.0.display()
            )));
        }
        // Refuses a key that others may have read.
        baton_tls::pem::read_key(&files.key).map_err(|error| Failure::baton(error.to_string()))?;
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|error| cannot(path, "read", &error))
        };
        Authority::open(&read(&files.certificate)?, &read(&files.key)?)
            .map_err(|error| Failure::baton(format!("{}: {error}", self.0.display())))
    }
}

/// The two files of a certificate.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn named(folder: &Path, name: &str) -> Self {
        Self {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        }
    }

    fn refuse_existing(&self) -> Result<(), Failure> {
        let both = [&self.certificate, &self.key];
        match both
            .into_iter()
            .find(|path| path.symlink_metadata().is_ok())
        {
            None => Ok(()),
            Some(path) => Err(Failure::new(
                exit::NOTHING,
                "exists",
                format!(
                    "{} exists; name another, remove it, or (of a server or client) give --replace",
                    path.display()
                ),
            )),
        }
    }

    fn write(&self, issued: &IssuedCertificate, replace: bool) -> Result<(), Failure> {
        if !replace {
            self.refuse_existing()?;
        }
        // A server that reads both meanwhile notices that they do not match, and reads again.
        write(&self.key, &issued.key, 0o600)?;
        write(&self.certificate, &issued.certificate, 0o644)
    }
}

/// Writes a file beside its place and moves it there, so that nobody reads half of it.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&beside, path)
    })();
    written.map_err(|error| {
        // It is what this call has made, or not there.
        let _ = std::fs::remove_file(&beside);
        cannot(path, "written", &error)
    })
}

fn cannot(path: &Path, action: &str, error: &std::io::Error) -> Failure {
    Failure::baton(format!(
        "{} cannot be {action}: {error}; correct the path or its permissions",
        path.display()
    ))
}

fn refused(error: AuthorityError) -> Failure {
    match error {
        AuthorityError::BadHost(_) | AuthorityError::NoHosts | AuthorityError::TooLong => {
            Failure::usage(error.to_string())
        }
        error => Failure::baton(error.to_string()),
    }
}

/// The names by which a client on this machine reaches a server on it, and those of the network, as
/// far as the machine knows its name.
fn own_names() -> Vec<String> {
    let mut names = vec![
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    let own = host_name();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    if !own.is_empty() && own.chars().all(is_name) && !names.contains(&own) {
        names.push(own);
    }
    names
}

fn host_name() -> String {
    uname().nodename().to_string_lossy().to_ascii_lowercase()
}

/// The name of this user, as a client.
fn own_user() -> String {
    match User::from_uid(Uid::current()) {
        Ok(Some(user)) => user.name,
        _ => "client".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_word_of_a_shell_and_one_text_of_toml() {
        for (path, word) in [
            ("/etc/baton/ca.pem", "/etc/baton/ca.pem"),
            ("/home/a b/ca.pem", "'/home/a b/ca.pem'"),
            ("/x'y", "'/x'\\''y'"),
        ] {
            assert_eq!(shell(Path::new(path)), word);
        }
        assert_eq!(toml(Path::new("/a\"b")), "'/a\"b'");
    }

    #[test]
    fn a_folder_whose_path_no_setting_can_name_is_refused() {
        use std::os::unix::ffi::OsStrExt;

        let refused = Folder::at(Path::new(std::ffi::OsStr::from_bytes(b"/tls\xff")));
        assert!(refused.err().unwrap().text.contains("not UTF-8"));
    }

    #[test]
    fn names_that_would_leave_the_folder_or_hide_are_refused() {
        let folder = Folder(PathBuf::from("/tls"));
        for name in ["", "..", ".x", "-x", "a/b", "a b", "ca", "ü"] {
            assert!(folder.files(name).is_err(), "{name}");
        }
        for name in ["zk1.example", "10.0.0.1", "::1", "alice@example"] {
            let files = folder.files(name).unwrap();
            assert_eq!(files.key, PathBuf::from(format!("/tls/{name}.key")));
        }
    }

    #[test]
    fn this_machine_is_reached_by_its_loopback_names() {
        let names = own_names();
        assert_eq!(names[..3], ["localhost", "127.0.0.1", "::1"]);
        assert!(names.len() <= 4);
        assert!(!own_user().is_empty());
    }
}

//! The clients of the trials: how each gets whom to trust and who it is, and what became of what it
//! did. A client that lacks something says so with the reason, and has no part in trials of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use baton_client::{Acl, ClientTls, Config, CreateMode, Error, Session};
use tokio::runtime::Runtime;

use super::trials::{Access, Act, Feature, Outcome, Port};
use crate::command::output;
use crate::peer::python;
use crate::process::Server;
use crate::secure::Credentials;
use crate::{Result, java, root};

/// For a client that is to get in, on a busy machine; a JVM starts within it.
const PATIENCE: Duration = Duration::from_secs(45);
/// For one that is to be refused: a client may go on trying for as long as it is let.
const REFUSAL: Duration = Duration::from_secs(8);

const C_CLIENT: &str = "/usr/lib/zookeeper/bin/cli_mt";
const C_LIBRARY: &str = "libzookeeper_mt.so.2";

/// A client under trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    Java,
    Kazoo,
    C,
    OpenSsl,
    Library,
    Command,
}

impl Client {
    pub(super) const ALL: [Self; 6] = [
        Self::Java,
        Self::Kazoo,
        Self::C,
        Self::OpenSsl,
        Self::Library,
        Self::Command,
    ];

    pub(super) fn name(self) -> String {
        let name = match self {
            Self::Java => {
                return format!("Java client {} with Netty", java::version("zookeeper"));
            }
            Self::Kazoo => "kazoo 2.11.0",
            Self::C => "C client 3.8.0 (`cli_mt`)",
            Self::OpenSsl => "`openssl s_client`",
            Self::Library => "Baton's library",
            Self::Command => "Baton's command",
        };
        name.to_owned()
    }

    /// Returns what is missing on this machine, and the package that brings it.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Self::Java => java::zookeeper_with_tls()
                .err()
                .map(|error| error.to_string()),
            Self::Kazoo => python().err().map(|error| error.to_string()),
            Self::C => (!Path::new(C_CLIENT).is_file())
                .then(|| format!("{C_CLIENT} is missing; install: apt-get install zookeeper-bin")),
            Self::OpenSsl => Command::new("openssl")
                .arg("version")
                .output()
                .is_err()
                .then(|| "openssl is missing; install: apt-get install openssl".to_owned()),
            Self::Library | Self::Command => None,
        }
    }

    /// Returns why the client cannot do that, or nothing if there is nothing to say about it;
    /// `None`: it can.
    pub(super) fn lacks(self, feature: Feature) -> Result<Option<&'static str>> {
        use Feature::{Certificates, Sasl, Sessions, Tls, Versions};
        Ok(match (self, feature) {
            (Self::C, Tls | Certificates | Versions) if !c_library_links("libssl")? => {
                Some("with TLS: Debian builds it without OpenSSL")
            }
            (Self::C, Sasl) if !c_library_links("libsasl2")? => {
                Some("with SASL: Debian builds it without Cyrus SASL")
            }
            (Self::OpenSsl, Sasl | Sessions) => {
                Some("with a session: it does the handshake and asks `ruok` behind it")
            }
            (Self::OpenSsl, Versions) => None,
            (_, Versions) => Some(""),
            _ => None,
        })
    }

    /// Connects, does one thing, and says what became of it.
    pub(super) fn attempt(
        self,
        trial: &Setting<'_>,
        access: &Access,
        act: Act,
        expected: Outcome,
    ) -> Result<Outcome> {
        let patience = match expected {
            Outcome::Refused => REFUSAL,
            Outcome::Done | Outcome::NoAuth => PATIENCE,
        };
        match self {
            // Their verbs make open znodes only.
            Self::C | Self::Command if act == Act::Own => library(trial, access, act, patience),
            Self::Java => java_client(trial, access, act, patience),
            Self::Kazoo => kazoo(trial, access, act, patience),
            Self::C => c_client(trial, access, patience),
            Self::OpenSsl => openssl(trial, access, patience),
            Self::Command => command(trial, access, act),
            Self::Library => library(trial, access, act, patience),
        }
    }
}

/// Server and credentials of a trial's step.
pub(super) struct Setting<'a> {
    pub(super) server: &'a Server,
    pub(super) port: Port,
    pub(super) credentials: &'a Credentials,
    pub(super) baton: &'a Path,
    pub(super) runtime: &'a Runtime,
    /// The znode of the trial.
    pub(super) path: &'a str,
}

impl Setting<'_> {
    fn addr(&self) -> Result<String> {
        match self.port {
            Port::Plain => Ok(self.server.addr()),
            Port::Secure | Port::Required => {
                let secure = self.server.secure_addr();
                Ok(secure.ok_or("the server has no port for TLS")?.to_string())
            }
        }
    }
}

/// Returns whether Debian's C client links a library of this name.
fn c_library_links(library: &str) -> Result<bool> {
    let linked = output(Command::new("ldd").arg(C_CLIENT))?;
    let own = linked
        .lines()
        .find(|line| line.contains(C_LIBRARY))
        .and_then(|line| line.split_whitespace().nth(2));
    let of_own = match own {
        Some(path) => output(Command::new("ldd").arg(path))?,
        None => String::new(),
    };
    Ok((linked + &of_own).contains(library))
}

fn act_name(act: Act) -> &'static str {
    match act {
        Act::Open => "open",
        Act::Own => "own",
        Act::Read => "read",
    }
}

/// Reads the outcome in a client's last line.
fn said(text: &str) -> Result<Outcome> {
    match text.lines().last().unwrap_or_default().trim() {
        "done" => Ok(Outcome::Done),
        "no-auth" => Ok(Outcome::NoAuth),
        "refused" => Ok(Outcome::Refused),
        other => Err(format!("a client said {other:?} at last").into()),
    }
}

fn java_client(
    trial: &Setting<'_>,
    access: &Access,
    act: Act,
    patience: Duration,
) -> Result<Outcome> {
    let credentials = trial.credentials;
    let mut options = Vec::new();
    let mut set = |name: &str, value: &str| options.push(format!("-Dzookeeper.{name}={value}"));
    if let Some(is_ours) = access.trusts_ours {
        set("client.secure", "true");
        set(
            "clientCnxnSocket",
            "org.apache.zookeeper.ClientCnxnSocketNetty",
        );
        let authority = credentials.authority(is_ours);
        set("ssl.trustStore.location", &authority.display().to_string());
        set("ssl.trustStore.type", "PEM");
    }
    if let Some(name) = access.certificate {
        let store = credentials.both(name);
        set("ssl.keyStore.location", &store.display().to_string());
        set("ssl.keyStore.type", "PEM");
    }
    match access.sasl {
        Some((user, password)) => {
            let module = "org.apache.zookeeper.server.auth.DigestLoginModule required";
            let text =
                format!("Client {{ {module} username=\"{user}\" password=\"{password}\"; }};\n");
            let file = credentials.secret("client-jaas.conf", &text)?;
            options.push(format!(
                "-Djava.security.auth.login.config={}",
                file.display()
            ));
        }
        None => set("sasl.client", "false"),
    }
    let mut command = java::peer_with_tls("SecurityClient", &options)?;
    command
        .arg(trial.addr()?)
        .arg(patience.as_millis().to_string());
    command.args([act_name(act), trial.path]);
    command.args(access.digest);
    said(&output(&mut command)?)
}

fn kazoo(trial: &Setting<'_>, access: &Access, act: Act, patience: Duration) -> Result<Outcome> {
    let mut command = Command::new(python()?);
    command.arg(root().join("xtask/python/security_client.py"));
    command
        .arg(trial.addr()?)
        .arg(patience.as_millis().to_string());
    command.args([act_name(act), trial.path]);
    if let Some(is_ours) = access.trusts_ours {
        command
            .arg("--ca")
            .arg(trial.credentials.authority(is_ours));
    }
    if let Some(name) = access.certificate {
        let (certificate, key) = trial.credentials.client(name);
        command.arg("--cert").arg(certificate).arg("--key").arg(key);
    }
    if let Some(digest) = access.digest {
        command.args(["--digest", digest]);
    }
    if let Some((user, password)) = access.sasl {
        command.arg("--sasl").arg(format!("{user}:{password}"));
    }
    said(&output(&mut command)?)
}

/// The shell of the C client, which reads what another client has made, after `addauth`.
fn c_client(trial: &Setting<'_>, access: &Access, patience: Duration) -> Result<Outcome> {
    let mut script = String::new();
    if let Some(digest) = access.digest {
        script += &format!("addauth digest {digest}\n");
    }
    script += &format!("get {}\n", trial.path);
    let mut command = Command::new("timeout");
    command.arg(patience.as_secs().to_string());
    command.args(["sh", "-c"]);
    // It neither waits for a connection before it takes commands, nor for answers before it quits.
    command.arg(format!(
        "(sleep 3; printf '%s' \"$1\"; sleep 4; echo quit) | {C_CLIENT} -h {} 2>&1",
        trial.addr()?
    ));
    command.args(["cli", &script]);
    let said = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&said.stdout);
    if said.contains("rc = -102") {
        Ok(Outcome::NoAuth)
    } else if said.contains("rc = 0") {
        Ok(Outcome::Done)
    } else {
        Ok(Outcome::Refused)
    }
}

/// The handshake, and a word behind it.
fn openssl(trial: &Setting<'_>, access: &Access, patience: Duration) -> Result<Outcome> {
    let mut command = Command::new("timeout");
    command.arg(patience.as_secs().to_string());
    command.args([
        "sh",
        "-c",
        "printf ruok | openssl \"$@\" 2>&1",
        "openssl",
        "s_client",
    ]);
    command.args(["-connect", &trial.addr()?, "-quiet", "-verify_return_error"]);
    command.args(["-verify_ip", "127.0.0.1"]);
    let is_ours = access.trusts_ours.unwrap_or(true);
    command
        .arg("-CAfile")
        .arg(trial.credentials.authority(is_ours));
    if let Some(name) = access.certificate {
        let (certificate, key) = trial.credentials.client(name);
        command.arg("-cert").arg(certificate).arg("-key").arg(key);
    }
    command.args(access.tls_version.iter().copied().flatten());
    let said = command.stdin(Stdio::null()).output()?;
    let is_answered = String::from_utf8_lossy(&said.stdout).contains("imok");
    Ok(if is_answered {
        Outcome::Done
    } else {
        Outcome::Refused
    })
}

fn library(trial: &Setting<'_>, access: &Access, act: Act, patience: Duration) -> Result<Outcome> {
    let mut config = Config::new(&servers(trial, access)?)?.connect_within(patience);
    if let Some(is_ours) = access.trusts_ours {
        let mut tls = ClientTls::new(trial.credentials.authority(is_ours))?;
        if let Some(name) = access.certificate {
            let (certificate, key) = trial.credentials.client(name);
            tls = tls.with_identity(certificate, key)?;
        }
        config = config.tls(tls);
    }
    if let Some(digest) = access.digest {
        config = config.auth("digest", digest.as_bytes());
    }
    if let Some((user, password)) = access.sasl {
        config = config.sasl(user, password);
    }
    trial.runtime.block_on(async {
        let Ok(session) = Session::connect(config).await else {
            return Ok(Outcome::Refused);
        };
        let done = do_in(&session, act, trial.path).await;
        let _ = session.close_timeout(PATIENCE).await;
        match done {
            Ok(()) => Ok(Outcome::Done),
            Err(error) if error.is_no_auth() => Ok(Outcome::NoAuth),
            Err(error) if error.code().is_some() => Err(error.into()),
            Err(_) => Ok(Outcome::Refused),
        }
    })
}

async fn do_in(session: &Session, act: Act, path: &str) -> std::result::Result<(), Error> {
    match act {
        Act::Open => {
            session
                .create(path, b"data", CreateMode::Persistent)
                .await?;
            session.get_data(path).await?;
            session.delete(path, None).await
        }
        Act::Own => {
            let own = session.with_acl(&[Acl::creator_all()]);
            own.create(path, b"data", CreateMode::Persistent)
                .await
                .map(|_| ())
        }
        Act::Read => session.get_data(path).await.map(|_| ()),
    }
}

/// The server as Baton's clients name it.
fn servers(trial: &Setting<'_>, access: &Access) -> Result<String> {
    let addr = trial.addr()?;
    Ok(match access.trusts_ours {
        Some(_) => format!("tls://{addr}"),
        None => addr,
    })
}

/// The verbs of the command: one after another to make, read and remove a znode and to hold a lock.
fn command(trial: &Setting<'_>, access: &Access, act: Act) -> Result<Outcome> {
    let digest = access.digest.map(|digest| format!("digest:{digest}\n"));
    let sasl = access.sasl;
    let sasl = sasl.map(|(user, password)| format!("sasl:{user}:{password}\n"));
    let auth_file: Option<PathBuf> = match digest.or(sasl) {
        Some(line) => Some(trial.credentials.secret("auth", &line)?),
        None => None,
    };
    let verb = |words: &[&str]| -> Result<Outcome> {
        let mut command = Command::new(trial.baton);
        let (name, rest) = words.split_first().ok_or("no verb")?;
        command
            .arg(name)
            .arg("--servers")
            .arg(servers(trial, access)?);
        if let Some(is_ours) = access.trusts_ours {
            command
                .arg("--tls-ca")
                .arg(trial.credentials.authority(is_ours));
        }
        if let Some(name) = access.certificate {
            let (certificate, key) = trial.credentials.client(name);
            command
                .arg("--tls-cert")
                .arg(certificate)
                .arg("--tls-key")
                .arg(key);
        }
        if let Some(file) = &auth_file {
            command.arg("--auth-file").arg(file);
        }
        let said = command.args(rest).stdin(Stdio::null()).output()?;
        let errors = String::from_utf8_lossy(&said.stderr);
        match said.status.code() {
            Some(0) => Ok(Outcome::Done),
            Some(1) if errors.contains("NoAuth") || errors.contains("permission") => {
                Ok(Outcome::NoAuth)
            }
            Some(125) => Ok(Outcome::Refused),
            _ => Err(format!("{command:?} ended with {}: {}", said.status, errors.trim()).into()),
        }
    };
    if act == Act::Read {
        return verb(&["get", trial.path]);
    }
    let lock = format!("{}-lock", trial.path);
    for words in [
        ["create", trial.path, "data"].as_slice(),
        &["get", trial.path],
        &["rm", trial.path],
        &["lock", &lock, "--", "true"],
    ] {
        match verb(words)? {
            Outcome::Done => {}
            other => return Ok(other),
        }
    }
    Ok(Outcome::Done)
}

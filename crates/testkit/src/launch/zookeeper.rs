//! Apache ZooKeeper from the distribution's jars: where they are, and a configuration for tests.
//! Owns the files it writes into the temporary folder; starts nothing itself.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::process::{Folder, Process, write_secret};
use super::zoo_cfg::zoo_cfg;
use super::{LaunchError, ServerOptions, free_addr};

const JARS: &str = "/usr/share/java";
const STANDALONE: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const QUORUM: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A Java machine that is small and starts quickly.
pub(super) const QUICK: [&str; 3] = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// Time that a follower may take to catch up with its leader.
const START_LIMIT: Duration = Duration::from_secs(10);

/// One member of an ensemble, as another sees it.
#[derive(Clone)]
pub(super) struct Peer {
    /// Its number, from 1.
    pub(super) id: usize,
    /// Address at which followers find it when it leads.
    pub(super) quorum: SocketAddr,
    /// Address at which it votes.
    pub(super) election: SocketAddr,
}

/// A Java class path that runs ZooKeeper's server and command line: `BATON_ZOOKEEPER_CLASSPATH`, or
/// Debian's jars.
///
/// # Errors
/// [`LaunchError::NotInstalled`] names the packages.
pub fn classpath() -> Result<String, LaunchError> {
    if let Some(named) = named() {
        return Ok(named);
    }
    // Its manifest names the other jars that it needs, but none that writes the log.
    let mut path = Vec::new();
    for (jar, packages) in [
        ("zookeeper.jar", "libzookeeper-java"),
        ("slf4j-simple.jar", "libslf4j-java libzookeeper-java"),
    ] {
        let file = format!("{JARS}/{jar}");
        if !PathBuf::from(&file).is_file() {
            return Err(LaunchError::NotInstalled {
                missing: file,
                packages,
            });
        }
        path.push(file);
    }
    Ok(path.join(":"))
}

fn named() -> Option<String> {
    let named = std::env::var("BATON_ZOOKEEPER_CLASSPATH").ok();
    named.filter(|named| !named.is_empty())
}

/// Returns whether `BATON_ZOOKEEPER_CLASSPATH` names another ZooKeeper than Debian's.
pub(crate) fn is_named() -> bool {
    named().is_some()
}

/// [`classpath`] with what TLS needs besides: jars that the manifest of Debian's does not name.
fn classpath_with_netty() -> Result<String, LaunchError> {
    let mut path = classpath()?;
    if path.starts_with(JARS) {
        for jar in ["netty-codec", "netty-resolver"] {
            let file = format!("{JARS}/{jar}.jar");
            if !PathBuf::from(&file).is_file() {
                return Err(LaunchError::NotInstalled {
                    missing: file,
                    packages: "libnetty-java",
                });
            }
            path = format!("{path}:{file}");
        }
    }
    Ok(path)
}

fn java() -> Result<PathBuf, LaunchError> {
    let candidates = std::env::var_os("JAVA_HOME")
        .map(|home| PathBuf::from(home).join("bin/java"))
        .into_iter()
        .chain([
            PathBuf::from("/usr/bin/java"),
            PathBuf::from("/usr/local/bin/java"),
        ]);
    candidates
        .into_iter()
        .find(|java| java.is_file())
        .ok_or_else(|| LaunchError::NotInstalled {
            missing: "java".to_owned(),
            packages: "default-jre-headless",
        })
}

/// Returns whether Apache ZooKeeper can be started here: for tests that also run where it is not
/// installed.
#[must_use]
pub fn is_installed() -> bool {
    java().is_ok() && classpath().is_ok()
}

/// A server alone.
pub(super) fn standalone(
    addr: SocketAddr,
    options: &ServerOptions,
) -> Result<Process, LaunchError> {
    build(STANDALONE, addr, options, "")
}

/// A member of an ensemble.
pub(super) fn member(
    id: usize,
    addr: SocketAddr,
    peers: &[Peer],
    options: &ServerOptions,
) -> Result<Process, LaunchError> {
    let init_limit = START_LIMIT.as_millis() / options.tick.as_millis().max(1);
    let mut lines = format!(
        "initLimit={}\nsyncLimit={}\n",
        init_limit.max(2),
        options.sync_limit
    );
    for peer in peers {
        let (host, quorum, election) = (peer.quorum.ip(), peer.quorum.port(), peer.election.port());
        let _ = writeln!(lines, "server.{}={host}:{quorum}:{election}", peer.id);
    }
    let process = build(QUORUM, addr, options, &lines)?;
    fs::write(process.data_dir().join("myid"), id.to_string())
        .map_err(LaunchError::io("cannot write myid"))?;
    Ok(process)
}

fn build(
    main: &str,
    addr: SocketAddr,
    options: &ServerOptions,
    more: &str,
) -> Result<Process, LaunchError> {
    let classpath = match options.tls {
        Some(_) => classpath_with_netty()?,
        None => classpath()?,
    };
    let program = java()?;
    let folder = Folder::of(options)?;
    fs::create_dir_all(folder.path().join("data"))
        .map_err(LaunchError::io("cannot make the data folder"))?;
    let secure_addr = options.tls.as_ref().map(|_| free_addr()).transpose()?;
    let config = zoo_cfg(folder.path(), addr, secure_addr, options, more)?;
    let own = [
        "-Djava.net.preferIPv4Stack=true",
        "-Dzookeeper.extendedTypesEnabled=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    ];
    let mut args = options.java_machine.clone();
    args.extend(own.map(str::to_owned));
    args.extend(options.java_args.iter().cloned());
    if !options.sasl_users.is_empty() {
        let users = options.sasl_users.iter();
        let users = users.map(|(name, password)| format!(" user_{name}=\"{password}\""));
        let login = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        let text = format!("Server {{ {login}{}; }};\n", users.collect::<String>());
        let jaas = folder.path().join("jaas.conf");
        write_secret(&jaas, &text)?;
        let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        args.push(format!(
            "-Djava.security.auth.login.config={}",
            jaas.display()
        ));
        args.push(format!("-Dzookeeper.authProvider.1={provider}"));
    }
    if options.requires_sasl {
        args.push("-Dzookeeper.sessionRequireClientSASLAuth=true".to_owned());
    }
    args.extend([
        "-cp".to_owned(),
        classpath,
        main.to_owned(),
        config.display().to_string(),
    ]);
    Ok(Process::new(
        "ZooKeeper",
        program,
        args,
        folder,
        secure_addr,
    ))
}

//! Apache ZooKeeper from the distribution's jars: where they are, and a configuration for tests.
//! Owns the files it writes into the temporary folder; starts nothing itself.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::process::{Process, temp_dir};
use super::{LaunchError, ServerOptions};

const JARS: &str = "/usr/share/java";
const STANDALONE: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const QUORUM: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// How long a follower may take to catch up with its leader.
const START_LIMIT: Duration = Duration::from_secs(10);

/// One member of an ensemble, as another sees it.
#[derive(Clone)]
pub(super) struct Peer {
    /// Its number, from 1.
    pub(super) id: usize,
    /// Where followers find it when it leads.
    pub(super) quorum: SocketAddr,
    /// Where it votes.
    pub(super) election: SocketAddr,
}

/// A Java class path that runs ZooKeeper's server and command line: `BATON_ZOOKEEPER_CLASSPATH`, or
/// Debian's jars.
///
/// # Errors
/// [`LaunchError::NotInstalled`] names the packages.
pub fn classpath() -> Result<String, LaunchError> {
    let named = std::env::var("BATON_ZOOKEEPER_CLASSPATH");
    if let Some(named) = named.ok().filter(|named| !named.is_empty()) {
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

/// Whether Apache ZooKeeper can be started here: for tests that also run where it is not installed.
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
    let classpath = classpath()?;
    let program = java()?;
    let dir = temp_dir()?;
    let data = dir.path().join("data");
    fs::create_dir(&data).map_err(LaunchError::io("cannot make the data folder"))?;
    let config = dir.path().join("zoo.cfg");
    let text = format!(
        "tickTime={}\nminSessionTimeout={}\nmaxSessionTimeout={}\ndataDir={}\nclientPort={}\n\
         clientPortAddress={}\nmaxClientCnxns=0\n4lw.commands.whitelist=*\nadmin.enableServer=false\n{more}",
        options.tick.as_millis(),
        options.min_session_timeout.as_millis(),
        options.max_session_timeout.as_millis(),
        data.display(),
        addr.port(),
        addr.ip(),
    );
    fs::write(&config, text).map_err(LaunchError::io("cannot write zoo.cfg"))?;
    let mut args: Vec<String> = [
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
        "-Dzookeeper.extendedTypesEnabled=true",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    ]
    .map(str::to_owned)
    .into();
    args.extend(options.java_args.iter().cloned());
    args.extend([
        "-cp".to_owned(),
        classpath,
        main.to_owned(),
        config.display().to_string(),
    ]);
    Ok(Process::new("ZooKeeper", program, args, dir))
}

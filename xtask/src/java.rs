//! The Java peers: where Debian keeps their jars, what is missing, and how our own small programs
//! are compiled and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, command, root};

/// The main class of a server; alone or one of several, as its zoo.cfg says.
pub(crate) const SERVER_CLASS: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

const PACKAGES: &str = "zookeeper libzookeeper-java libnetty-java libcurator-recipes-java libslf4j-java openjdk-17-jdk-headless";
const JARS: &str = "/usr/share/java";
const ZOOKEEPER: [&str; 2] = ["zookeeper", "slf4j-simple"];
/// What TLS needs besides, which the manifest of Debian's zookeeper.jar does not name.
const NETTY: [&str; 2] = ["netty-codec", "netty-resolver"];
const PEERS: [&str; 9] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "guava",
    "zookeeper",
    "zookeeper-recipes-lock",
    "zookeeper-recipes-election",
    "zookeeper-recipes-queue",
    "slf4j-simple",
];

/// The class path of Apache ZooKeeper's server.
pub(crate) fn zookeeper() -> Result<Vec<PathBuf>> {
    jars(&ZOOKEEPER)
}

/// The same for servers and clients with TLS.
pub(crate) fn zookeeper_with_tls() -> Result<Vec<PathBuf>> {
    let mut path = zookeeper()?;
    path.extend(jars(&NETTY)?);
    Ok(path)
}

fn jars(names: &[&str]) -> Result<Vec<PathBuf>> {
    let jars: Vec<PathBuf> = names
        .iter()
        .map(|name| Path::new(JARS).join(format!("{name}.jar")))
        .collect();
    match jars.iter().find(|jar| !jar.is_file()) {
        Some(missing) => Err(format!(
            "{} is missing; install: apt-get install {PACKAGES}",
            missing.display()
        )
        .into()),
        None => Ok(jars),
    }
}

/// Finds every tool, or says what to install.
pub(crate) fn require() -> Result<()> {
    jars(&ZOOKEEPER)?;
    jars(&PEERS)?;
    for tool in ["java", "javac"] {
        if Command::new(tool).arg("-version").output().is_err() {
            return Err(format!("{tool} is missing; install: apt-get install {PACKAGES}").into());
        }
    }
    Ok(())
}

/// `java` with a class path.
pub(crate) fn command(class_path: &[PathBuf]) -> Result<Command> {
    let mut command = Command::new("java");
    command.arg("-cp").arg(std::env::join_paths(class_path)?);
    Ok(command)
}

/// Compiles the programs of `xtask/java`.
pub(crate) fn compile() -> Result<()> {
    let folder = root().join("xtask/java");
    let mut javac = Command::new("javac");
    javac
        .arg("-cp")
        .arg(std::env::join_paths(jars(&PEERS)?)?)
        // Curator's classes carry annotations of packages that are not needed.
        .args(["-nowarn", "-Xlint:none", "-d"])
        .arg(classes()?);
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "java")
        {
            javac.arg(file);
        }
    }
    command::output(&mut javac).map(|_| ())
}

fn classes() -> Result<PathBuf> {
    let classes = command::target_dir()?.join("xtask-java");
    std::fs::create_dir_all(&classes)?;
    Ok(classes)
}

/// Compiles the programs of `xtask/java` and returns a command that runs one of them.
pub(crate) fn program(class: &str) -> Result<Command> {
    compile()?;
    compiled(&[], class)
}

/// Options of a small process of many.
const SMALL: [&str; 5] = [
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.digest.enabled=false",
];

/// A command that runs one of the programs that were compiled before, as one small process of many.
pub(crate) fn peer(class: &str) -> Result<Command> {
    compiled(&SMALL, class)
}

/// As [`peer`], with these options and what TLS needs.
pub(crate) fn peer_with_tls(class: &str, options: &[String]) -> Result<Command> {
    let mut class_path = zookeeper_with_tls()?;
    class_path.push(classes()?);
    let mut command = command(&class_path)?;
    command.args(SMALL).args(options);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", class]);
    Ok(command)
}

fn compiled(options: &[&str], class: &str) -> Result<Command> {
    let mut class_path = jars(&PEERS)?;
    class_path.push(classes()?);
    let mut command = command(&class_path)?;
    command.args(options);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", class]);
    Ok(command)
}

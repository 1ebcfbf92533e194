//! The Java peers: Debian's jars or those that Maven fetches at pinned versions, what is missing,
//! and how our own small programs are compiled and run.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::{Result, command, files, root};

/// Names the class path of the peers to this program's children and to the tests' launcher, where
/// it is not Debian's.
const CLASS_PATH: &str = "BATON_ZOOKEEPER_CLASSPATH";

/// Source of the jars of Apache ZooKeeper and Curator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Source {
    /// The distribution's packages: ZooKeeper 3.8.
    Debian,
    /// The versions of xtask/java/pom.xml, fetched by mvn into the build's folder: ZooKeeper 3.9.
    Maven,
}

const PACKAGES: &str = "zookeeper libzookeeper-java libnetty-java libcurator-recipes-java libslf4j-java openjdk-17-jdk-headless";
const JARS: &str = "/usr/share/java";
const ZOOKEEPER: [&str; 2] = ["zookeeper", "slf4j-simple"];
/// Jars that TLS needs besides, which the manifest of Debian's zookeeper.jar does not name.
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

/// The class path of servers and clients with TLS.
pub(crate) fn zookeeper_with_tls() -> Result<Vec<PathBuf>> {
    let mut path = jars(&ZOOKEEPER)?;
    path.extend(jars(&NETTY)?);
    Ok(path)
}

/// The jars of these names; all that Maven has fetched, if that is the source.
///
/// # Errors
/// The jar that is missing and the packages that bring it.
fn jars(names: &[&str]) -> Result<Vec<PathBuf>> {
    let debian = |name: &&str| Path::new(JARS).join(format!("{name}.jar"));
    if let Some(fetched) = std::env::var_os(CLASS_PATH).filter(|path| !path.is_empty()) {
        let mut path: Vec<PathBuf> = std::env::split_paths(&fetched).collect();
        // No repository has these.
        let only_debian = names
            .iter()
            .filter(|name| name.starts_with("zookeeper-recipes"));
        path.extend(present(only_debian.map(debian).collect())?);
        return Ok(path);
    }
    present(names.iter().map(debian).collect())
}

fn present(jars: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    match jars.iter().find(|jar| !jar.is_file()) {
        Some(missing) => Err(format!(
            "{} is missing; install: apt-get install {PACKAGES}",
            missing.display()
        )
        .into()),
        None => Ok(jars),
    }
}

/// Runs this very task again with the jars that Maven fetches; `None`: it runs with them already.
pub(crate) fn again_with(source: Source) -> Result<Option<ExitStatus>> {
    if source == Source::Debian || std::env::var_os(CLASS_PATH).is_some() {
        return Ok(None);
    }
    let folder = command::target_dir()?.join("java-peers");
    let mut fetch = Command::new("mvn");
    fetch
        .args([
            "--batch-mode",
            "--quiet",
            "dependency:copy-dependencies",
            "--file",
        ])
        .arg(root().join("xtask/java/pom.xml"))
        .arg(format!("-DoutputDirectory={}", folder.display()));
    let fetched = fetch
        .output()
        .map_err(|error| format!("mvn: {error}; install: apt-get install maven"))?;
    if !fetched.status.success() {
        // It complains on its standard output.
        let said = String::from_utf8_lossy(&fetched.stdout);
        let first = said.lines().find(|line| line.starts_with("[ERROR]"));
        let why = first.unwrap_or("it says nothing; run it by hand");
        return Err(format!("{fetch:?} ended with {}: {why}", fetched.status).into());
    }
    let status = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(CLASS_PATH, folder.join("*"))
        .status()?;
    Ok(Some(status))
}

/// The version of this artifact that the tasks use: `zookeeper` or `curator-recipes`.
pub(crate) fn version(artifact: &str) -> String {
    let fetched = std::env::var_os(CLASS_PATH).filter(|path| !path.is_empty());
    let folder = fetched.as_ref().map_or(Path::new(JARS), |path| {
        Path::new(path).parent().unwrap_or(Path::new(JARS))
    });
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let mut versions = names.filter_map(|name| version_of(&name, artifact).map(str::to_owned));
    versions
        .next()
        .unwrap_or_else(|| "of unknown version".to_owned())
}

/// The version in a jar's file name, if it is of this artifact.
fn version_of<'a>(file: &'a str, artifact: &str) -> Option<&'a str> {
    let version = file.strip_prefix(artifact)?.strip_prefix('-')?;
    let version = version.strip_suffix(".jar")?;
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then_some(version)
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
fn command(class_path: &[PathBuf]) -> Result<Command> {
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
    javac.args(files::below(&folder, "java")?);
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

/// [`peer`] with these options and what TLS needs.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_artifact_and_of_none_that_begins_alike() {
        for (file, expected) in [
            ("zookeeper-3.9.5.jar", Some("3.9.5")),
            ("zookeeper-jute-3.9.5.jar", None),
            ("zookeeper.jar", None),
            ("zookeeper-3.9.5.txt", None),
        ] {
            assert_eq!(version_of(file, "zookeeper"), expected, "{file}");
        }
    }
}

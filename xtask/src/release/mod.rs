//! `cargo xtask release`: all files of a release, from one version, each checked by installing it.
//!
//! A release is a static command, a tarball with manual pages, completions and licences, a Debian
//! package, a bill of materials, a Homebrew formula, the sums of all, and the packages in the
//! order in which the registry needs them. What this machine lacks is named before anything is
//! built. `docs/project/releasing.md` is the page for the person who releases.
//!
//! | module | owns |
//! |---|---|
//! | `command_file` | the static command: how it is built, and what makes it static |
//! | `deb` | the Debian package |
//! | `sbom` | the bill of materials |
//! | `metadata` | what cargo says of the workspace: versions, dependencies, publishing order |

mod command_file;
mod deb;
mod metadata;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::metadata::Metadata;
use crate::{Result, command, root};

/// The only target that this task builds for.
const ARCHITECTURE: &str = "x86_64";

/// Make all files of a release, and check each by installing it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder to write into.
    #[arg(long, value_name = "DIR", default_value = "target/release-files")]
    out: PathBuf,
    /// Take this static command, built already: to try the packaging.
    #[arg(long, value_name = "FILE")]
    command: Option<PathBuf>,
    /// Base URL of the downloads, which the formula names.
    #[arg(
        long,
        value_name = "URL",
        default_value = "https://example.invalid/baton"
    )]
    base_url: String,
    /// Do not compile each package as the registry would.
    #[arg(long)]
    no_verify: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    refuse_missing_tools()?;
    refuse_changes(args)?;
    let metadata = Metadata::read()?;
    let version = metadata.version()?;
    let out = std::path::absolute(&args.out)?;
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;

    let built = match &args.command {
        Some(file) => std::path::absolute(file)?,
        None => command_file::build()?,
    };
    command_file::refuse_dynamic(&built)?;
    let stage = command::target_dir()?.join("release-stage");
    let name = format!("baton-{version}-{ARCHITECTURE}-linux");
    let folder = stage_files(&stage, &name, &built)?;

    let tarball = out.join(format!("{name}.tar.gz"));
    make_tarball(&tarball, &folder)?;
    let package = deb::make(&out, &version, &built, &folder.join("man"))?;
    let sbom = out.join(format!("baton-{version}.cdx.json"));
    fs::write(&sbom, sbom::of(&metadata)?)?;
    write_formula(&out, &version, &args.base_url, &tarball)?;
    write_sums(&out)?;
    check_tarball(&tarball, &name)?;
    deb::check(&package)?;
    check_packages(&metadata, args)?;

    println!("{}:", out.display());
    for line in fs::read_to_string(out.join("SHA256SUMS"))?.lines() {
        println!("  {line}");
    }
    println!(
        "publish in this order: {}",
        metadata.publishing_order().join(" ")
    );
    if args.base_url.contains("example.invalid") {
        println!("not done: baton.rb names no place to download from (--base-url URL)");
    }
    println!("not done: aarch64, for which this machine has no linker and no library");
    Ok(())
}

fn refuse_missing_tools() -> Result<()> {
    let missing: Vec<&str> = [
        "git",
        "tar",
        "gzip",
        "sha256sum",
        "dpkg-deb",
        "debootstrap",
        "unshare",
    ]
    .into_iter()
    .filter(|tool| Command::new(tool).arg("--version").output().is_err())
    .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("not installed here: {}", missing.join(", ")).into()),
    }
}

/// A release is what a commit has.
fn refuse_changes(args: &Args) -> Result<()> {
    let mut status = Command::new("git");
    status.args(["status", "--porcelain"]).current_dir(root());
    let changed = command::output(&mut status)?;
    match changed.is_empty() || args.command.is_some() {
        true => Ok(()),
        false => Err(format!("files differ from the commit; commit them first:\n{changed}").into()),
    }
}

/// Puts the files of the tarball into a folder of this name.
fn stage_files(stage: &Path, name: &str, built: &Path) -> Result<PathBuf> {
    if stage.exists() {
        fs::remove_dir_all(stage)?;
    }
    let folder = stage.join(name);
    for part in ["bin", "man", "completions"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::copy(built, folder.join("bin/baton"))?;
    command::output(Command::new(built).arg("man").arg(folder.join("man")))?;
    for (shell, file) in [
        ("bash", "baton.bash"),
        ("zsh", "_baton"),
        ("fish", "baton.fish"),
    ] {
        let script = command::output(Command::new(built).args(["completions", shell]))?;
        fs::write(folder.join("completions").join(file), script)?;
    }
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        fs::copy(root().join(file), folder.join(file))?;
    }
    Ok(folder)
}

/// Makes a tarball that is the same each time for the same files.
fn make_tarball(tarball: &Path, folder: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(root());
    let date = command::output(&mut git)?;
    let (above, name) = (folder.parent(), folder.file_name());
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", date.trim()))
        .args(["--use-compress-program", "gzip -9n", "--create", "--file"])
        .arg(tarball)
        .arg("--directory")
        .arg(above.ok_or("no folder")?)
        .arg(name.ok_or("no name")?);
    command::output(&mut tar)?;
    Ok(())
}

/// The sum of a file, in hexadecimal.
fn sum(file: &Path) -> Result<String> {
    let line = command::output(Command::new("sha256sum").arg(file))?;
    let sum = line.split_whitespace().next();
    Ok(sum.ok_or("sha256sum printed nothing")?.to_owned())
}

fn write_formula(out: &Path, version: &str, base_url: &str, tarball: &Path) -> Result<()> {
    let name = tarball.file_name().and_then(|name| name.to_str());
    let url = format!("{base_url}/{}", name.ok_or("no name")?);
    let text = include_str!("../../../packaging/homebrew/baton.rb.in")
        .replace("@VERSION@", version)
        .replace("@URL@", &url)
        .replace("@SHA256@", &sum(tarball)?);
    Ok(fs::write(out.join("baton.rb"), text)?)
}

fn write_sums(out: &Path) -> Result<()> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(out)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut text = String::new();
    for name in names {
        text += &format!("{}  {name}\n", sum(&out.join(&name))?);
    }
    fs::write(out.join("SHA256SUMS"), text)?;
    let mut check = Command::new("sha256sum");
    command::output(check.args(["--check", "SHA256SUMS"]).current_dir(out))?;
    Ok(())
}

/// Holds a lock in a root that has the tarball's files, `/proc`, `/dev` and nothing else.
fn check_tarball(tarball: &Path, name: &str) -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(tarball);
    command::output(tar.arg("--directory").arg(root.path()))?;
    for file in [
        "man/baton-lock.1",
        "completions/_baton",
        "LICENSE-MIT",
        "LICENSE-APACHE",
    ] {
        if !root.path().join(name).join(file).is_file() {
            return Err(format!("the tarball has no {file}").into());
        }
    }
    let baton = format!("/{name}/bin/baton");
    for system in ["proc", "dev"] {
        fs::create_dir(root.path().join(system))?;
    }
    // The local server, which would stay for ten minutes, ends with its namespace.
    let mut lock = Command::new("unshare");
    lock.args(["--user", "--map-root-user", "--mount", "--pid", "--fork"])
        .args(["--kill-child", "/bin/sh", "-ec"])
        .arg("mount -t proc proc \"$1/proc\"; mount --rbind /dev \"$1/dev\"; exec chroot \"$@\"")
        .args([Path::new("check"), root.path()])
        .args([&baton, "lock", "/demo", "--", &baton, "version"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("BATON_DATA_DIR", "/state");
    let said = command::output(&mut lock)?;
    match said.starts_with("baton ") {
        true => Ok(()),
        false => Err(format!("the command of the tarball said {said:?}").into()),
    }
}

/// Has cargo do all of a publication but the upload.
fn check_packages(metadata: &Metadata, args: &Args) -> Result<()> {
    let mut publish = Command::new(env!("CARGO"));
    publish.args(["publish", "--dry-run", "--quiet"]);
    for package in metadata.publishing_order() {
        publish.args(["--package", &package]);
    }
    if args.no_verify {
        publish.arg("--no-verify");
    }
    if args.command.is_some() {
        publish.arg("--allow-dirty");
    }
    command::output(publish.current_dir(root()))?;
    Ok(())
}

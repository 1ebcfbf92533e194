//! Hands to the command what it was built from and for: the commit, the target, the compiler.
//!
//! The commit is what BATON_COMMIT says, for packagers; else that of the package, if this is one
//! from a registry; else that of the repository. Where none of them is known, there is none, and
//! the build goes on.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Digits of the commit that are shown.
const DIGITS: usize = 12;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=BATON_COMMIT");
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let given = std::env::var("BATON_COMMIT").unwrap_or_default();
    let given = Some(given.trim().to_owned()).filter(|given| is_plain(given));
    let commit = given
        .or_else(|| of_package(&here))
        .or_else(|| of_repository(&here))
        .unwrap_or_default();
    let version = variable("CARGO_PKG_VERSION");
    let shown = match &*commit {
        "" => version,
        commit => format!("{version} ({commit})"),
    };
    println!("cargo:rustc-env=BATON_BUILD_COMMIT={commit}");
    println!("cargo:rustc-env=BATON_BUILD_VERSION={shown}");
    println!("cargo:rustc-env=BATON_BUILD_TARGET={}", variable("TARGET"));
    println!(
        "cargo:rustc-env=BATON_BUILD_PROFILE={}",
        variable("PROFILE")
    );
    let compiler = output(Command::new(variable("RUSTC")).arg("--version"));
    let compiler = compiler.unwrap_or_default();
    println!("cargo:rustc-env=BATON_BUILD_RUSTC={compiler}");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Whether this can be shown as a commit: one short word.
fn is_plain(commit: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._+/".contains(c);
    (1..=64).contains(&commit.len()) && commit.chars().all(is_allowed)
}

/// The commit that cargo has put into a package.
fn of_package(here: &Path) -> Option<String> {
    let file = here.join(".cargo_vcs_info.json");
    let text = std::fs::read_to_string(&file).ok()?;
    println!("cargo:rerun-if-changed={}", file.display());
    let (_, after) = text.split_once("\"sha1\"")?;
    let sha = after.split('"').nth(1)?.get(..DIGITS)?;
    let is_dirty = text.split(char::is_whitespace).collect::<String>();
    let dirty = if is_dirty.contains("\"dirty\":true") {
        "-dirty"
    } else {
        ""
    };
    Some(format!("{sha}{dirty}")).filter(|commit| is_plain(commit))
}

/// The commit of the repository whose root is that of this workspace, with `-dirty` if what is
/// built differs from it.
fn of_repository(here: &Path) -> Option<String> {
    let root = here.parent()?.parent()?;
    // Somebody else's repository may have this folder in it.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if std::fs::canonicalize(top).ok()? != std::fs::canonicalize(root).ok()? {
        return None;
    }
    let digits = format!("--short={DIGITS}");
    let commit = git(root, &["rev-parse", &digits, "HEAD"])?;
    // What a new commit or another branch changes. Of a file that does not exist, cargo would
    // believe that it has changed each time.
    let branch = git(root, &["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "logs/HEAD"].into_iter().chain(branch.as_deref()) {
        let path = git(root, &["rev-parse", "--git-path", name])?;
        watch(&root.join(path));
    }
    // What the command is built from, and not the index, which each `git status` may touch.
    let mut sources = vec!["Cargo.toml".to_owned(), "Cargo.lock".to_owned()];
    for entry in std::fs::read_dir(root.join("crates")).ok()?.flatten() {
        let name = entry.file_name().into_string().ok()?;
        for part in ["src", "Cargo.toml", "build.rs"] {
            sources.push(format!("crates/{name}/{part}"));
        }
    }
    sources.retain(|source| root.join(source).exists());
    for source in &sources {
        watch(&root.join(source));
    }
    let mut compared = vec!["diff", "--quiet", "HEAD", "--"];
    compared.extend(sources.iter().map(String::as_str));
    let status = command(root, &compared).status().ok()?;
    let dirty = match status.code() {
        Some(0) => "",
        Some(1) => "-dirty",
        _ => return None,
    };
    Some(format!("{commit}{dirty}")).filter(|commit| is_plain(commit))
}

/// Has cargo run this again when the file or folder changes, if there is one.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

fn command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    // A hook of git's that builds has these for another folder.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    // Without locks: it writes nothing.
    command.arg("--no-optional-locks").arg("-C").arg(root);
    command.args(args);
    command
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    output(&mut command(root, args))
}

/// The one line that the command prints, if it succeeds.
fn output(command: &mut Command) -> Option<String> {
    let ran = command.output().ok()?;
    let text = String::from_utf8(ran.stdout).ok()?;
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    (ran.status.success() && !line.is_empty()).then_some(line)
}

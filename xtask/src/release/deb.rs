//! The Debian package, from the files of `packaging/debian`, and its check in a clean root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, command, process, root};

const ARCHITECTURE: &str = "amd64";
/// The release of Debian that the package is tried on.
const SUITE: &str = "bookworm";

/// A row of the list of files.
#[derive(Debug)]
struct Row<'a> {
    from: &'a str,
    to: &'a str,
    mode: u32,
}

fn rows(list: &str) -> Result<Vec<Row<'_>>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let row = (words.next(), words.next(), words.next());
            let (Some(from), Some(to), Some(mode)) = row else {
                return Err(format!("not a file, a path and a mode: {line}").into());
            };
            let mode = u32::from_str_radix(mode, 8)?;
            Ok(Row { from, to, mode })
        })
        .collect()
}

/// Makes the package of this command and these manual pages.
pub(super) fn make(out: &Path, version: &str, built: &Path, man: &Path) -> Result<PathBuf> {
    let stage = command::target_dir()?.join("deb");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    let debian = root().join("packaging/debian");
    let list = fs::read_to_string(debian.join("files"))?;
    let mut size = 0;
    for row in rows(&list)? {
        let from = match row.from {
            "target/baton" => built.to_owned(),
            "target/man/*.1" => man.join("*.1"),
            file => root().join(file),
        };
        for file in matching(&from)? {
            let mut to = stage.join(row.to);
            if row.to.ends_with('/') {
                to = to.join(file.file_name().ok_or("no name")?);
            }
            fs::create_dir_all(to.parent().ok_or("no folder")?)?;
            fs::copy(&file, &to)?;
            size += fs::metadata(&file)?.len();
            fs::set_permissions(&to, fs::Permissions::from_mode(row.mode))?;
            if row.from.ends_with(".1") {
                command::output(Command::new("gzip").args(["-9n"]).arg(&to))?;
            }
        }
    }
    let control = stage.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let fields = fs::read_to_string(debian.join("control"))?
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", ARCHITECTURE)
        .replace("@SIZE@", &size.div_ceil(1024).to_string());
    fs::write(control.join("control"), fields)?;
    fs::write(control.join("conffiles"), "/etc/baton/server.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        fs::copy(debian.join(script), control.join(script))?;
        fs::set_permissions(control.join(script), fs::Permissions::from_mode(0o755))?;
    }
    let package = out.join(format!("baton_{version}_{ARCHITECTURE}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group"]);
    command::output(build.arg(&stage).arg(&package))?;
    Ok(package)
}

/// The files of a path whose last part may begin with `*`, in order.
fn matching(path: &Path) -> Result<Vec<PathBuf>> {
    let name = path.file_name().and_then(|name| name.to_str());
    let Some(ending) = name.and_then(|name| name.strip_prefix('*')) else {
        return Ok(vec![path.to_owned()]);
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(path.parent().ok_or("no folder")?)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(format!("there is no {}", path.display()).into()),
        false => Ok(found),
    }
}

/// Installs the package in a clean root, uses it and removes it. Needs the rights of root.
pub(super) fn check(package: &Path) -> Result<()> {
    let base = command::target_dir()?.join(format!("root-{SUITE}"));
    if !base.join("etc/debian_version").exists() {
        println!(
            "making a clean root of Debian {SUITE} in {}",
            base.display()
        );
        let mut make = Command::new("debootstrap");
        make.args(["--variant=minbase", "--include=adduser", SUITE]);
        command::output(make.arg(&base))?;
    }
    let clean = tempfile::tempdir()?;
    let root = clean.path().join("root");
    command::output(Command::new("cp").arg("-a").arg(&base).arg(&root))?;
    let script = self::root().join("packaging/debian/check-installed");
    fs::copy(package, root.join("baton.deb"))?;
    fs::copy(script, root.join("check"))?;
    // Processes that the check leaves end with its namespace.
    process::succeed(
        Command::new("unshare")
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec"])
            .arg("ip link set lo up; mount -t proc proc \"$1/proc\"; exec chroot \"$1\" /check /baton.deb")
            .args([Path::new("check"), &root]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_files_is_understood_and_names_what_is_there() {
        let list = fs::read_to_string(root().join("packaging/debian/files")).unwrap();
        let rows = rows(&list).unwrap();
        for row in &rows {
            if !row.from.starts_with("target/") {
                for file in matching(&root().join(row.from)).unwrap() {
                    assert!(file.is_file(), "{}", file.display());
                }
            }
        }
        assert!(rows.len() > 5);
        assert!(super::rows("a b\n").is_err());
    }
}

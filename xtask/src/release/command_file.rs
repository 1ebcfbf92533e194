//! The command of a release: one file that needs no library of the machine that it runs on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, command, process, root};

/// The program header that names a loader of libraries.
const PT_INTERP: u32 = 3;

/// Builds it with the profile `dist`: with musl where its target and its compiler are installed,
/// else with the static library of glibc.
pub(super) fn build() -> Result<PathBuf> {
    let mut rustup = Command::new("rustup");
    let targets = command::output(rustup.args(["target", "list", "--installed"]));
    let musl = "x86_64-unknown-linux-musl";
    let has_musl = targets.is_ok_and(|targets| targets.lines().any(|target| target == musl))
        // Some dependencies have parts in C.
        && Command::new("musl-gcc").arg("--version").output().is_ok();
    let target = if has_musl {
        musl
    } else {
        "x86_64-unknown-linux-gnu"
    };
    println!("building for {target}, with the profile dist");
    process::succeed(
        Command::new(env!("CARGO"))
            .args(["rustc", "--locked", "--profile", "dist"])
            .args(["--package", "baton-locks-cli", "--bin", "baton"])
            .args(["--target", target])
            .args(["--", "-C", "target-feature=+crt-static"])
            .current_dir(root()),
    )?;
    Ok(command::target_dir()?.join(target).join("dist/baton"))
}

/// Refuses a file that needs libraries.
pub(super) fn refuse_dynamic(file: &Path) -> Result<()> {
    let shown = file.display();
    match needs_loader(&fs::read(file)?) {
        Some(false) => Ok(()),
        Some(true) => Err(format!(
            "{shown} needs the libraries of its machine; build it with -C target-feature=+crt-static"
        )
        .into()),
        None => Err(format!("{shown} is not an executable of 64 bits").into()),
    }
}

/// Returns whether an ELF file of 64 bits, low byte first, names a loader.
fn needs_loader(elf: &[u8]) -> Option<bool> {
    let bytes = |at: usize, count: usize| elf.get(at..at.checked_add(count)?);
    let number = |at: usize, count: usize| {
        let bytes = bytes(at, count)?.iter().rev();
        let value = bytes.fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if bytes(0, 6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut kinds = Vec::new();
    for index in 0..count {
        kinds.push(number(first.checked_add(size.checked_mul(index)?)?, 4)?);
    }
    Some(kinds.contains(&(PT_INTERP as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with program headers of these kinds.
    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(kinds.len()).unwrap();
        for kind in kinds {
            file.extend(kind.to_le_bytes());
            file.extend([0; 52]);
        }
        file
    }

    #[test]
    fn a_file_that_names_a_loader_is_not_static() {
        assert_eq!(needs_loader(&elf(&[1, 2])), Some(false));
        assert_eq!(needs_loader(&elf(&[1, PT_INTERP])), Some(true));
        assert_eq!(needs_loader(b"#!/bin/sh\n"), None);
        assert_eq!(needs_loader(&elf(&[1, 2])[..100]), None);
        // This test is built as every program here is.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(needs_loader(&own), Some(true));
    }
}

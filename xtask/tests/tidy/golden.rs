//! Frames, folders and snapshots of earlier builds stay as they are: what this build reads of them
//! is what it reads of servers and disks that nobody can change. `xtask/golden-digests.txt` has the
//! digest of each file; a new one gets a line, and no line is changed or removed.

use std::fs;

use super::{files, refuse, root};

const FOLDERS: [&str; 3] = [
    "crates/peers/tests/golden",
    "crates/server/tests/golden",
    "crates/wal/tests/fixtures",
];

/// FNV-1a of 64 bits: an edit of a file by mistake is found out.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[test]
fn files_of_earlier_builds_are_not_edited() {
    let listed = fs::read_to_string(root().join("xtask/golden-digests.txt")).unwrap();
    let mut listed: Vec<&str> = listed.lines().collect();
    let mut found = Vec::new();
    for folder in FOLDERS {
        files(&root().join(folder), "", &mut found);
    }
    let mut problems = Vec::new();
    for path in found {
        let name = path.strip_prefix(root()).unwrap().display();
        let line = format!("{:016x} {name}", digest(&fs::read(&path).unwrap()));
        match listed.iter().position(|known| *known == line) {
            Some(at) => drop(listed.remove(at)),
            None => problems.push(format!(
                "{name} is not as it was, or is new: restore it, or add the line `{line}` to xtask/golden-digests.txt"
            )),
        }
    }
    let missing = listed.iter();
    problems.extend(missing.map(|line| format!("missing or changed: {line}")));
    refuse(&problems);
}

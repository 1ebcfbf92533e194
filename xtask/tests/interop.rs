//! A short run of the mixed groups, with the libraries themselves. Where they are not installed it
//! says so and passes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use baton_testkit::skip;

fn interop(more: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["interop", "--only", "mixed"])
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn h90_locks_shared_with_curator_kazoo_and_writelock_are_never_held_twice() {
    let run = interop(&["--seconds", "3", "--server", "baton", "--group", "`Mutex`"]);
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("install") {
        skip("curator", said.trim());
        return;
    }
    let rows = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{rows}");
    let outside_tables = rows
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('|'));
    assert_eq!(
        outside_tables.count(),
        3,
        "one line for each library:\n{rows}"
    );
}

//! The progress of long work on a terminal. The work is an import whose snapshot comes through a
//! FIFO, so that it takes as long as the test wants.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::terminal::Terminal;
use crate::common::{CommandHome, Ran, until};

/// A folder of ZooKeeper's whose newest snapshot is a FIFO.
fn endless(home: &CommandHome, name: &str) -> (PathBuf, PathBuf) {
    let folder = home.path(name);
    fs::create_dir_all(folder.join("version-2")).unwrap();
    let fifo = folder.join("version-2/snapshot.1");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    (folder, fifo)
}

fn import(home: &CommandHome, folder: &std::path::Path, into: &str) -> Command {
    let folder = folder.to_str().unwrap();
    let into = home.path(into);
    home.baton(&[
        "import",
        "--zookeeper-data",
        folder,
        "--zookeeper-log",
        folder,
        "--data-dir",
        into.to_str().unwrap(),
    ])
}

#[test]
fn a_terminal_shows_how_far_the_work_is_and_a_pipe_does_not() {
    let home = CommandHome::new();
    let (folder, fifo) = endless(&home, "piped");
    let mut piped = import(&home, &folder, "piped-new");
    let piped = piped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let piped = piped.unwrap();
    // Returns when the command reads.
    let mut to_piped = File::options().write(true).open(&fifo).unwrap();
    to_piped.write_all(b"ZKSN").unwrap();
    let (folder, fifo) = endless(&home, "shown");
    let mut terminal = Terminal::run(&import(&home, &folder, "shown-new"), 40);
    let mut to_shown = File::options().write(true).open(&fifo).unwrap();
    to_shown.write_all(b"ZKSN").unwrap();
    until("the progress is shown", || {
        terminal
            .text()
            .contains("\rreading the snapshot: 4 B\u{1b}[K")
    });
    // It has run for longer than the other.
    drop(to_piped);
    let ran = Ran::from(piped.wait_with_output().unwrap());
    assert!(ran.complaint().contains("snapshot"), "{ran:?}");
    terminal.keys("\u{3}");
    let status = terminal.child.wait().unwrap();
    assert_eq!(status.signal(), Some(2));
    assert!(terminal.is_restored());
    until("the line is cleared", || {
        let text = terminal.text();
        let text = text.trim_end_matches("\r\n");
        text.ends_with("\r\u{1b}[K")
    });
    assert!(!home.path("shown-new").exists());
}

#[test]
fn the_line_is_cleared_before_an_error() {
    let home = CommandHome::new();
    let (folder, fifo) = endless(&home, "shown");
    let mut terminal = Terminal::run(&import(&home, &folder, "new"), 40);
    let mut to_shown = File::options().write(true).open(&fifo).unwrap();
    to_shown.write_all(b"ZKSN").unwrap();
    until("the progress is shown", || {
        terminal.text().contains("\rreading the snapshot")
    });
    drop(to_shown);
    assert_ne!(terminal.child.wait().unwrap().code(), Some(0));
    until("the error is shown", || {
        terminal.text().contains("\r\u{1b}[Kbaton: ")
    });
}

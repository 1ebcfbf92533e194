//! Stories: what sessions ask of a server, and all that they receive, as text that a reader can
//! follow. Each `.txt` beside this file is played on a fresh server and must read as it is written.
//! `BATON_UPDATE_STORIES=1` writes what was received.
//!
//! A line that is not indented is something that happens; the indented lines after it are what is
//! received, by whom. After each line every connection is listened to, so an event stands where it
//! was caused. `(zxid 3)` is the zxid in the frame's header: the server's last decision when it was
//! written. `#` begins a comment.

mod script;
mod stage;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use stage::Stage;

/// The story again, with what is received now.
async fn play(story: &str) -> String {
    let mut stage = Stage::set_up().await;
    let mut replayed = String::new();
    for line in story.lines() {
        if line.starts_with("  ") {
            continue;
        }
        let _ = writeln!(replayed, "{line}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        for received in stage.act(line).await {
            let _ = writeln!(replayed, "  {received}");
        }
    }
    replayed
}

fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "txt"))
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_story_reads_as_it_is_written() {
    let update = std::env::var_os("BATON_UPDATE_STORIES").is_some();
    let files = stories();
    assert!(!files.is_empty());
    let mut changed = Vec::new();
    for file in files {
        let written = std::fs::read_to_string(&file).unwrap();
        let replayed = play(&written).await;
        if replayed == written {
            continue;
        }
        if update {
            std::fs::write(&file, &replayed).unwrap();
            continue;
        }
        let name = file.file_name().unwrap().display();
        let line = replayed
            .lines()
            .zip(written.lines())
            .position(|(now, then)| now != then)
            .map_or(0, |index| index + 1);
        changed.push(format!("{name}, from line {line}, now reads:\n{replayed}"));
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

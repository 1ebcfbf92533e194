//! The overlap detector: a folder that every holder of a lock notes its turn in, whatever language
//! it is written in.
//!
//! A holder makes the file `holder`, and must be the first to do so; appends its name to `turns`;
//! removes `holder`. A file `holder` that is already there is an overlap.
//! `xtask/java/CuratorTurns.java` does the same.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::Result;

/// Take one turn while a lock is held; run by `baton lock`.
#[derive(Debug, clap::Args)]
pub(crate) struct Turn {
    register: PathBuf,
    name: String,
    /// Milliseconds to hold.
    #[arg(default_value_t = 1)]
    hold_ms: u64,
}

/// Notes one turn.
pub(crate) fn take_turn(turn: &Turn) -> Result<()> {
    let holder = turn.register.join("holder");
    let alone = match File::create_new(&holder) {
        Ok(mut file) => {
            writeln!(file, "{}", turn.name)?;
            true
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            append(&turn.register.join("overlaps"), &turn.name)?;
            false
        }
        Err(error) => return Err(format!("{}: {error}", holder.display()).into()),
    };
    append(&turn.register.join("turns"), &turn.name)?;
    sleep(Duration::from_millis(turn.hold_ms));
    if alone {
        fs::remove_file(&holder)?;
    }
    Ok(())
}

fn append(file: &Path, name: &str) -> Result<()> {
    // One write call, so that two holders' lines do not mix.
    Ok(File::options()
        .create(true)
        .append(true)
        .open(file)?
        .write_all(format!("{name}\n").as_bytes())?)
}

/// Content of a register.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Turns in all.
    pub(crate) turns: usize,
    /// Times that the turn went from one name to another.
    pub(crate) hand_overs: usize,
    /// Turns that began while another had not ended.
    pub(crate) overlaps: usize,
}

/// Reads a register.
pub(crate) fn tally(register: &Path) -> Tally {
    let lines = |name: &str| fs::read_to_string(register.join(name)).unwrap_or_default();
    let turns = lines("turns");
    let names: Vec<&str> = turns.lines().collect();
    Tally {
        turns: names.len(),
        hand_overs: names
            .windows(2)
            .filter(|pair| pair.first() != pair.last())
            .count(),
        overlaps: lines("overlaps").lines().count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_an_overlap() {
        let folder = tempfile::tempdir().unwrap();
        let turn = |name: &str| Turn {
            register: folder.path().to_owned(),
            name: name.to_owned(),
            hold_ms: 0,
        };
        take_turn(&turn("a")).unwrap();
        take_turn(&turn("b")).unwrap();
        assert_eq!(
            tally(folder.path()),
            Tally {
                turns: 2,
                hand_overs: 1,
                overlaps: 0
            }
        );
        fs::write(folder.path().join("holder"), "a").unwrap();
        take_turn(&turn("b")).unwrap();
        assert_eq!(
            tally(folder.path()),
            Tally {
                turns: 3,
                hand_overs: 1,
                overlaps: 1
            }
        );
    }
}

//! Removes folders and files under construction when the user stops the command, as any other
//! failure does, so that the next attempt does not find them; and leaves the terminal clean.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::exit::Failure;
use crate::output::Output;
use crate::signals::{self, Signals};

/// Number of times that a folder that is being written to is removed before it is left behind.
const ATTEMPTS: u32 = 100;

/// Folders under construction, once stops are handled here.
static UNFINISHED: Mutex<Option<Vec<PathBuf>>> = Mutex::new(None);

/// From now on a signal that asks the process to end clears the status line first.
///
/// # Errors
/// The system refuses.
pub(crate) fn heed_stops(output: &Output) -> Result<(), Failure> {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    if unfinished.is_some() {
        return Ok(());
    }
    let mut signals = Signals::new()?;
    let output = output.clone();
    let waiter = std::thread::Builder::new()
        .name("baton-stop".to_owned())
        .spawn(move || {
            let Some(number) = signals.wait_for_stop() else {
                return;
            };
            // Held to the end: the work's own failure, now that its folder is gone, must not be
            // reported.
            let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            output.end_status();
            for folder in unfinished.take().iter().flatten() {
                remove(folder);
            }
            let code = signals::ended_by(number);
            signals::die_if_ended(code);
            std::process::exit(code.into());
        });
    waiter.map_err(|error| {
        Failure::baton(format!(
            "cannot start a thread: {error}; free some threads or memory"
        ))
    })?;
    *unfinished = Some(Vec::new());
    Ok(())
}

/// Does `work`, which makes `folder` (or a file of that name) and gives it its name at the end. A
/// signal that asks the process to end removes the folder first, and nothing else: one that was
/// there before is another process's.
pub(crate) fn removed_when_stopped<T>(
    output: &Output,
    folder: &Path,
    work: impl FnOnce() -> T,
) -> Result<T, Failure> {
    if folder.exists() {
        return Ok(work());
    }
    heed_stops(output)?;
    let change = |change: &dyn Fn(&mut Vec<PathBuf>)| {
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        unfinished.as_mut().into_iter().for_each(change);
    };
    change(&|all| all.push(folder.to_owned()));
    let outcome = work();
    change(&|all| all.retain(|other| other != folder));
    Ok(outcome)
}

/// Removes an unfinished file. Another program may put another file into the folder meanwhile.
fn remove(folder: &Path) {
    if std::fs::remove_file(folder).is_ok() {
        return;
    }
    for _ in 0..ATTEMPTS {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => return,
        }
    }
}

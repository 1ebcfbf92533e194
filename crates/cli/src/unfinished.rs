//! Removes folders and files under construction when the user stops the command, as any other
//! failure does, so that the next attempt does not find them; and leaves the terminal clean.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::exit::Failure;
use crate::output::Output;
use crate::signals;

/// How often a folder that is being written to is removed before it is left behind.
const ATTEMPTS: u32 = 100;

/// What is under construction, once stops are handled here.
static UNFINISHED: Mutex<Option<Vec<PathBuf>>> = Mutex::new(None);

/// From now on a signal that asks the process to end clears the status line first. Call it before
/// other threads are started: they inherit that these signals are not theirs.
///
/// # Errors
/// The system refuses.
pub(crate) fn heed_stops(output: &Output) -> Result<(), Failure> {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    if unfinished.is_some() {
        return Ok(());
    }
    let cannot =
        |error: nix::Error| Failure::baton(format!("cannot handle signals: {error}; report this"));
    let stops: SigSet = signals::heeded_stops().collect();
    // Threads that are started later inherit it, so that only the one below takes these signals.
    stops.thread_block().map_err(cannot)?;
    let output = output.clone();
    let waiter = std::thread::Builder::new()
        .name("baton-stop".to_owned())
        .spawn(move || {
            let Ok(signal) = stops.wait() else {
                return;
            };
            // Held to the end: the work's own failure, now that its folder is gone, must not be
            // reported.
            let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            output.end_status();
            for folder in unfinished.take().iter().flatten() {
                remove(folder);
            }
            std::process::exit(signals::exit_code(signal as i32).into());
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

/// Whoever writes to the folder may put another file into it meanwhile.
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

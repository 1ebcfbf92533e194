//! Removes a folder or a file under construction when the user stops the command, as any other
//! failure does, so that the next attempt does not find it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::exit::Failure;
use crate::signals;

/// How often a folder that is being written to is removed before it is left behind.
const ATTEMPTS: u32 = 100;

/// Does `work`, which makes `folder` (or a file of that name) and gives it its name at the end. A
/// signal that asks the process to end removes the folder first, and nothing else: one that was
/// there before is another process's.
pub(crate) fn removed_when_stopped<T>(
    folder: &Path,
    work: impl FnOnce() -> T,
) -> Result<T, Failure> {
    if folder.exists() {
        return Ok(work());
    }
    let cannot =
        |error: nix::Error| Failure::baton(format!("cannot handle signals: {error}; report this"));
    let stops: SigSet = signals::heeded_stops().collect();
    let before = SigSet::thread_get_mask().map_err(cannot)?;
    // Threads that `work` starts inherit it, so that only the one below takes these signals.
    stops.thread_block().map_err(cannot)?;
    let working = Arc::new(Mutex::new(true));
    let folder = folder.to_owned();
    let is_working = Arc::clone(&working);
    let waiter = std::thread::Builder::new()
        .name("baton-stop".to_owned())
        .spawn(move || {
            let Ok(signal) = stops.wait() else {
                return;
            };
            // Held to the end: the work's own failure, now that its folder is gone, must not be
            // reported.
            let working = is_working.lock().unwrap_or_else(PoisonError::into_inner);
            if *working {
                remove(&folder);
            }
            std::process::exit(signals::exit_code(signal as i32).into());
        });
    let waiter = waiter.map_err(|error| {
        Failure::baton(format!(
            "cannot start a thread: {error}; free some threads or memory"
        ))
    });
    let outcome = waiter.map(|_| work());
    *working.lock().unwrap_or_else(PoisonError::into_inner) = false;
    before.thread_set_mask().map_err(cannot)?;
    outcome
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

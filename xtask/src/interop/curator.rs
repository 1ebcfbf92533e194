//! Curator's `InterProcessMutex` and `baton lock` in the queue of one lock, turn by turn, with no
//! overlap.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::command::output;
use crate::process::{Kind, OwnedChild, Server};
use crate::register::tally;
use crate::{Result, java};

const LOCK: &str = "/interop/lock";
/// Processes of `baton lock` that queue up: one would leave the wait queue empty while the next
/// one starts.
const BATONS: usize = 3;

/// Runs until the lock has gone from one to the other `hand_overs` times.
pub(super) fn run(kind: &Kind, baton: &Path, hand_overs: usize, dir: &Path) -> Result<()> {
    let dir = dir.join(format!("curator-{}", kind.name().replace(' ', "-")));
    let register = dir.join("register");
    std::fs::create_dir_all(&register)?;
    let server = Server::start(kind, &dir)?;
    let mut curator = OwnedChild::start(
        java::program("CuratorTurns")?
            .args([&server.addr(), LOCK])
            .arg(&register),
    )?;

    let enough = AtomicBool::new(false);
    let result = thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..BATONS)
            .map(|_| {
                scope.spawn(|| {
                    let worked = work(&enough, &server.addr(), baton, &register, hand_overs);
                    enough.store(true, Ordering::Relaxed);
                    worked.map_err(|error| error.to_string())
                })
            })
            .collect();
        for worker in workers {
            worker.join().map_err(|_| "a worker panicked")??;
        }
        Ok(())
    });
    std::fs::write(register.join("stop"), "")?;
    result?;
    let status = curator.0.wait()?;
    let tally = tally(&register);
    println!(
        "Curator and baton lock on {}: {} turns, {} hand-overs between the two, {} overlaps",
        kind.name(),
        tally.turns,
        tally.hand_overs,
        tally.overlaps
    );
    if tally.overlaps > 0 || tally.hand_overs < hand_overs || !status.success() {
        return Err(format!(
            "the two did not share the lock: {tally:?}, Curator ended with {status}"
        )
        .into());
    }
    Ok(())
}

fn work(
    enough: &AtomicBool,
    servers: &str,
    baton: &Path,
    register: &Path,
    hand_overs: usize,
) -> Result<()> {
    while !enough.load(Ordering::Relaxed) && tally(register).hand_overs < hand_overs {
        let mut lock = Command::new(baton);
        lock.args(["lock", LOCK, "--servers", servers, "--wait", "60s", "--"]);
        output(
            lock.arg(std::env::current_exe()?)
                .arg("turn")
                .arg(register)
                .arg("baton"),
        )?;
    }
    Ok(())
}

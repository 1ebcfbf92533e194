//! Trials with the command: a lock that is held through every fault while two others wait, and a
//! lock that goes from hand to hand while leaders are killed.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::exclusion::{self, Line};
use super::faults::{CUT_BOTH, CUT_INCOMING, CUT_OUTGOING, FaultKind, ServerFault};
use super::load::PATIENCE;
use super::stage::{Report, SERVERS, Settings, Stage};
use crate::Result;
use crate::process::OwnedChild;

const PATH: &str = "/deploy";
/// The session of who holds the lock outlives each fault.
const HELD_TIMEOUT: &str = "40s";
/// The sessions of those that hand the lock on.
const HANDED_TIMEOUT: &str = "6s";
/// Signs of life that a holder has to show after each fault.
const BEATS: usize = 10;
const POLL: Duration = Duration::from_millis(20);
/// The exit code of `baton lock` whose lock was lost.
const LOST: i32 = 113;

/// Appends a line each 20 ms until there is a file `done`.
const HOLD: &str =
    "while [ ! -e done ]; do echo \"$BATON_TOKEN $(date +%s%N) $0\" >> lines; sleep 0.02; done";
/// Appends a few lines.
const PASS: &str =
    "for beat in 1 2 3 4; do echo \"$BATON_TOKEN $(date +%s%N) $0\" >> lines; sleep 0.02; done";

/// A folder in which commands run under the lock.
struct LockFolder {
    dir: TempDir,
}

impl LockFolder {
    fn new() -> Result<Self> {
        Ok(Self {
            dir: tempfile::tempdir()?,
        })
    }

    fn lines(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.dir.path().join("lines")).unwrap_or_default();
        exclusion::lines(&text)
    }

    /// `baton lock` whose command runs `script` as `who`.
    fn lock(&self, baton: &Path, servers: &str, timeout: &str, script: &str, who: &str) -> Command {
        let mut command = Command::new(baton);
        command
            .args(["lock", "--servers", servers, "--session-timeout", timeout])
            .args([
                "--connect-timeout",
                "60s",
                PATH,
                "--",
                "sh",
                "-c",
                script,
                who,
            ])
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// The violations so far, as an error.
    fn check(&self) -> Result<()> {
        let violations = exclusion::violations(&self.lines());
        match violations.is_empty() {
            true => Ok(()),
            false => Err(violations.join("; ").into()),
        }
    }
}

/// A lock is held through every fault in turn, while two others wait for it.
pub(super) async fn held(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::without_clients(settings, true).await?;
    let outcome = hold_through_all(&mut stage).await;
    stage.finish(outcome).await
}

/// Two commands take a lock in turn, again and again, while leaders are killed.
pub(super) async fn handed_on(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::without_clients(settings, true).await?;
    let outcome = hand_on(&mut stage).await;
    stage.finish(outcome).await
}

/// Faults, and whether the leader is hit.
const FAULTS: [(FaultKind, bool); 9] = [
    (FaultKind::Kill, true),
    (FaultKind::Pause, true),
    (CUT_BOTH, true),
    (FaultKind::KillAll, true),
    (FaultKind::Restart, true),
    (CUT_OUTGOING, true),
    (CUT_INCOMING, true),
    (FaultKind::Restart, false),
    (FaultKind::Kill, false),
];

/// Has the fault of this number strike, and mends it.
async fn strike(stage: &mut Stage, number: usize) -> Result<FaultKind> {
    let (kind, of_leader) = FAULTS[number % FAULTS.len()];
    let leader = stage.ensemble.wait_leader().await?;
    let victim = (leader + usize::from(!of_leader)) % SERVERS;
    let fault = ServerFault { kind, victim };
    let struck = async {
        fault.begin(stage).await?;
        match kind.leaves_connections() {
            true => sleep(stage.pause()).await,
            false if kind == FaultKind::KillAll => {}
            // The others have a leader while it is away.
            false => {
                stage.ensemble.wait_leader().await?;
                stage.moment().await;
            }
        }
        fault.end(stage)?;
        Result::Ok(stage.ensemble.wait_leader().await?)
    };
    let struck = struck.await;
    struck.map_err(|error| format!("{kind:?}: {error}"))?;
    Ok(kind)
}

async fn hold_through_all(stage: &mut Stage) -> Result<()> {
    let (home, baton) = (LockFolder::new()?, stage.settings.baton()?);
    let servers = stage.ensemble.connect_string();
    let command = |script, who| home.lock(&baton, &servers, HELD_TIMEOUT, script, who);
    let mut holder = OwnedChild::start(&mut command(HOLD, "holder"))?;
    until(|| Ok(!home.lines().is_empty())).await?;
    let mut waiters = Vec::new();
    for who in ["first", "second"] {
        waiters.push(OwnedChild::start(&mut command(PASS, who))?);
    }
    for number in 0.. {
        if !stage.has_next_run() {
            break;
        }
        let fault = strike(stage, number).await?;
        let before = home.lines().len();
        until(|| {
            if let Some(status) = holder.0.try_wait()? {
                return Err(format!("the holder ended with {status} after {fault:?}").into());
            }
            Ok(home.lines().len() >= before + BEATS)
        })
        .await?;
        if let Some(other) = home.lines().iter().find(|line| line.who != "holder") {
            return Err(format!("{other:?} has the lock that is held, after {fault:?}").into());
        }
    }
    fs::write(home.dir.path().join("done"), "")?;
    ended(&mut holder).await?;
    for waiter in &mut waiters {
        ended(waiter).await?;
    }
    home.check()?;
    match exclusion::holders(&home.lines()) {
        3 => Ok(()),
        other => Err(format!("{other} have held the lock, not 3").into()),
    }
}

/// Waits until a command has ended, which it must have done without complaint.
async fn ended(command: &mut OwnedChild) -> Result<()> {
    let mut status: Option<ExitStatus> = None;
    until(|| {
        status = command.0.try_wait()?;
        Ok(status.is_some())
    })
    .await?;
    match status {
        Some(status) if !status.success() => Err(format!("baton lock ended with {status}").into()),
        _ => Ok(()),
    }
}

/// Waits until it is so.
async fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > deadline {
            return Err(format!("nothing has happened for {PATIENCE:?}").into());
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// Results of the commands that one taker has started.
#[derive(Debug, Default)]
struct TakerResults {
    whole: usize,
    lost: usize,
    others: Vec<String>,
}

async fn hand_on(stage: &mut Stage) -> Result<()> {
    let (home, baton) = (LockFolder::new()?, stage.settings.baton()?);
    let servers = stage.ensemble.connect_string();
    let stop = Arc::new(AtomicBool::new(false));
    let takers: Vec<JoinHandle<TakerResults>> = ["first", "second"]
        .into_iter()
        .map(|who| {
            let mut command = home.lock(&baton, &servers, HANDED_TIMEOUT, PASS, who);
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || take_again_and_again(&mut command, &stop))
        })
        .collect();
    let outcome = fail_under_takers(stage, &home).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for taker in takers {
        let joined = tokio::task::spawn_blocking(move || taker.join()).await?;
        all.push(joined.map_err(|_| "a taker's thread has panicked")?);
    }
    outcome?;
    home.check()?;
    for taken in &all {
        if taken.whole == 0 || !taken.others.is_empty() {
            return Err(format!("the commands ended otherwise than expected: {all:?}").into());
        }
        // A session that was lost breaks no promise: its lock passed on in time.
        stage.report.disturbances += u64::try_from(taken.lost)?;
    }
    stage.report.acknowledged = exclusion::holders(&home.lines());
    Ok(())
}

async fn fail_under_takers(stage: &mut Stage, home: &LockFolder) -> Result<()> {
    for number in 0.. {
        if !stage.has_next_run() {
            break;
        }
        let before = exclusion::holders(&home.lines());
        strike(stage, number).await?;
        // Both have their turn again.
        until(|| Ok(exclusion::holders(&home.lines()) >= before + 4)).await?;
        home.check()?;
    }
    Ok(())
}

fn take_again_and_again(command: &mut Command, stop: &AtomicBool) -> TakerResults {
    let mut taken = TakerResults::default();
    while !stop.load(Ordering::Relaxed) {
        match OwnedChild::start(command).and_then(|mut child| Ok(child.0.wait()?)) {
            Ok(status) if status.success() => taken.whole += 1,
            Ok(status) if status.code() == Some(LOST) => taken.lost += 1,
            Ok(status) => taken.others.push(status.to_string()),
            Err(error) => {
                taken.others.push(error.to_string());
                return taken;
            }
        }
    }
    taken
}

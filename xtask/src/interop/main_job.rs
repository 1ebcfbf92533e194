//! The main job end to end with the command: processes contend, holders and servers are killed,
//! nothing overlaps and nothing is lost. The same steps on Baton's server, on Apache ZooKeeper
//! alone, and on three of which one is killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::command::output;
use crate::process::{Ensemble, Kind, OwnedChild, Server};
use crate::register::tally;

const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a server may take beyond the timeout to expire a session, and a waiter to be notified.
const EXPIRY_SLACK: Duration = Duration::from_secs(10);
const WORKERS: usize = 4;
const TURNS_EACH: usize = 10;
const ITEMS: usize = 50;

/// The servers under test, and what "a server dies in mid-run" means for them.
enum Target {
    Alone(Server),
    Three(Ensemble),
}

impl Target {
    fn addrs(&self) -> String {
        match self {
            Self::Alone(server) => server.addr(),
            Self::Three(ensemble) => ensemble.addrs(),
        }
    }

    /// A server alone comes back on its data; of three the leader stays away.
    fn crash(&mut self) -> Result<()> {
        match self {
            Self::Alone(server) => {
                server.kill();
                server.restart().map(|_| ())
            }
            Self::Three(ensemble) => ensemble.kill_leader(),
        }
    }
}

/// Runs all steps on every kind of server, and on three of Apache ZooKeeper.
pub(super) fn run(kinds: &[Kind], baton: &Path, dir: &Path) -> Result<()> {
    for kind in kinds {
        let dir = dir.join(format!("main-job-{}", kind.name().replace(' ', "-")));
        steps(
            &format!("{} alone", kind.name()),
            Target::Alone(Server::start(kind, &dir)?),
            baton,
            &dir,
        )?;
    }
    let dir = dir.join("main-job-three");
    steps(
        "three of Apache ZooKeeper",
        Target::Three(Ensemble::start(&dir)?),
        baton,
        &dir,
    )
}

fn steps(name: &str, mut target: Target, baton: &Path, dir: &Path) -> Result<()> {
    let job = Job {
        baton,
        servers: target.addrs(),
        dir,
    };
    job.contend("before")?;
    println!(
        "{name}: {} turns of {WORKERS} processes, 0 overlaps",
        WORKERS * TURNS_EACH
    );
    let waited = job.holder_dies()?;
    println!("{name}: holder killed, its child ended with it, the next one in after {waited:.1?}");
    job.put_items()?;
    job.server_dies(&mut target)?;
    println!("{name}: server killed in mid-run, the lock stayed with its holder");
    job.take_items()?;
    println!("{name}: {ITEMS} items put before the kill, {ITEMS} taken after it, in order");
    job.elect()?;
    job.contend("after")?;
    println!(
        "{name}: election won, and {} turns after the kill, 0 overlaps",
        WORKERS * TURNS_EACH
    );
    Ok(())
}

struct Job<'a> {
    baton: &'a Path,
    servers: String,
    dir: &'a Path,
}

impl Job<'_> {
    fn baton(&self, verb: &[&str]) -> Command {
        let mut command = Command::new(self.baton);
        command
            .args(verb)
            .args(["--servers", &self.servers])
            .stdin(Stdio::null());
        command
    }

    fn lock(&self, path: &str) -> Command {
        let timeout = format!("{}s", SESSION_TIMEOUT.as_secs());
        self.baton(&[
            "lock",
            path,
            "--wait",
            "120s",
            "--session-timeout",
            &timeout,
        ])
    }

    /// Several processes take the lock in turn.
    fn contend(&self, name: &str) -> Result<()> {
        let register = self.dir.join(format!("register-{name}"));
        std::fs::create_dir_all(&register)?;
        let turn = |worker: usize| -> Result<()> {
            let mut lock = self.lock("/main-job/contend");
            lock.arg("--")
                .arg(std::env::current_exe()?)
                .arg("turn")
                .arg(&register)
                .arg(worker.to_string());
            output(&mut lock).map(|_| ())
        };
        thread::scope(|scope| -> Result<()> {
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    scope.spawn(move || {
                        (0..TURNS_EACH)
                            .try_for_each(|_| turn(worker))
                            .map_err(|error| error.to_string())
                    })
                })
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| Ok(worker.join().map_err(|_| "a worker panicked")??))
        })?;
        let tally = tally(&register);
        if tally.overlaps > 0 || tally.turns != WORKERS * TURNS_EACH {
            return Err(format!("the lock did not exclude: {tally:?}").into());
        }
        Ok(())
    }

    /// Kills a holder; its child must end, and the next one must get in when the session has
    /// expired.
    fn holder_dies(&self) -> Result<Duration> {
        let child_pid = self.dir.join("child.pid");
        let mut holder = self.hold(
            "/main-job/killed",
            &format!(
                "echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600",
                child_pid.display()
            ),
        )?;
        await_that("the holder's child runs", || child_pid.exists())?;
        let pid: u32 = std::fs::read_to_string(&child_pid)?.trim().parse()?;
        let killed = Instant::now();
        holder.kill();
        await_that("the killed holder's child ends", || !alive(pid))?;
        output(self.lock("/main-job/killed").args(["--", "true"]))?;
        let waited = killed.elapsed();
        if waited > SESSION_TIMEOUT + EXPIRY_SLACK {
            return Err(format!(
                "the next one waited {waited:?} for a session of {SESSION_TIMEOUT:?}"
            )
            .into());
        }
        Ok(waited)
    }

    /// Kills a server while a lock is held for longer than the outage: the holder must not notice,
    /// a waiter must not get in.
    fn server_dies(&self, target: &mut Target) -> Result<()> {
        let (held, freed, late) = (
            self.dir.join("held"),
            self.dir.join("freed"),
            self.dir.join("late"),
        );
        let script = format!(
            "touch {}; sleep 8; touch {}",
            held.display(),
            freed.display()
        );
        let mut holder = self.hold("/main-job/server", &script)?;
        await_that("the lock is held", || held.exists())?;
        let mut waiter = self.hold(
            "/main-job/server",
            &format!("test -e {} || touch {}", freed.display(), late.display()),
        )?;
        target.crash()?;
        let (held_to, waited) = (holder.0.wait()?, waiter.0.wait()?);
        if !held_to.success() || !waited.success() || late.exists() {
            let overlapped = if late.exists() {
                "the waiter got in early"
            } else {
                "no overlap"
            };
            return Err(
                format!("holder ended with {held_to}, waiter with {waited}, {overlapped}").into(),
            );
        }
        Ok(())
    }

    fn hold(&self, path: &str, script: &str) -> Result<OwnedChild> {
        OwnedChild::start(self.lock(path).args(["--", "sh", "-c", script]))
    }

    fn put_items(&self) -> Result<()> {
        (0..ITEMS).try_for_each(|n| {
            let item = format!("item {n}");
            output(&mut self.baton(&["queue", "put", "/main-job/queue", &item])).map(|_| ())
        })
    }

    fn take_items(&self) -> Result<()> {
        (0..ITEMS).try_for_each(|n| {
            let item = output(&mut self.baton(&["queue", "take", "/main-job/queue"]))?;
            if item.trim_end() == format!("item {n}") {
                return Ok(());
            }
            Err(format!("took '{}' where item {n} was due", item.trim_end()).into())
        })
    }

    fn elect(&self) -> Result<()> {
        output(
            self.baton(&["elect", "/main-job/leader"])
                .args(["--", "true"]),
        )
        .map(|_| ())
    }
}

/// Waits until `done`, for as long as a session may take to expire.
fn await_that(what: &str, done: impl Fn() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() > SESSION_TIMEOUT + EXPIRY_SLACK {
            return Err(format!("waited in vain until {what}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns whether a process still runs; one that ended and was not yet reaped does not.
fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

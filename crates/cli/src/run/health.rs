//! The health check: a command of the user's that says whether what runs under the lock works
//! (`hazards.md` H39).
//!
//! Owns the runs of that command; `tenure` acts on a failure. A run that takes too long is killed
//! with its whole process group.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use crate::access::AUTH_VARIABLE;
use crate::duration;
use crate::exit::Failure;
use crate::run::supervise::OnLost;

/// Options of the health check.
#[derive(Debug, clap::Args)]
pub(crate) struct HealthOptions {
    /// Check CMD with this line, run by sh -c; stop it when the exit code is not 0.
    ///
    /// With any other code, or none in time, CMD is stopped as if the lock was being lost, and the
    /// lock is released.
    #[arg(hide_short_help = true, long, value_name = "LINE")]
    health_cmd: Option<OsString>,
    /// Interval of checks, and the limit on each.
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = duration::parse, default_value = "10s", requires = "health_cmd")]
    health_every: Duration,
}

/// A health check: the line to run, and how often.
#[derive(Debug)]
pub(crate) struct Health {
    line: OsString,
    every: Duration,
}

impl HealthOptions {
    /// The check that was asked for, if any.
    pub(crate) fn health(&self, on_lost: OnLost) -> Result<Option<Health>, Failure> {
        let Some(line) = &self.health_cmd else {
            return Ok(None);
        };
        if on_lost == OnLost::Ignore {
            return Err(Failure::usage(
                "--health-cmd stops an unhealthy command, --on-lost ignore never stops it; use one of them",
            ));
        }
        if self.health_every.is_zero() {
            return Err(Failure::usage(
                "--health-every 0s leaves no time to answer; use 1s or more",
            ));
        }
        Ok(Some(Health {
            line: line.clone(),
            every: self.health_every,
        }))
    }
}

impl Health {
    /// Runs the check periodically; resolves with the first failure.
    pub(crate) async fn fails(&self, environment: &[(&'static str, String)]) -> String {
        let mut due = tokio::time::interval(self.every);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The command has just begun: it is asked after its first period.
        due.tick().await;
        loop {
            due.tick().await;
            if let Err(wrong) = self.ask(environment).await {
                return wrong;
            }
        }
    }

    async fn ask(&self, environment: &[(&'static str, String)]) -> Result<(), String> {
        let started = Command::new("sh")
            .arg("-c")
            .arg(&self.line)
            .envs(environment.iter().cloned())
            .env_remove(AUTH_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut asked = started.map_err(|error| format!("the health command: {error}"))?;
        let mut group = Group(asked.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
        let answered = tokio::time::timeout(self.every, asked.wait()).await;
        if answered.is_ok() {
            // Reaped: the number may soon be another's.
            group.0 = None;
        }
        match answered {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("the health command failed ({status})")),
            Ok(Err(error)) => Err(format!("the health command: {error}")),
            Err(_) => Err(format!(
                "the health command has not answered within {}",
                duration::show(self.every)
            )),
        }
    }
}

/// The processes of one run that has not ended; killed when this is dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // They may have ended this instant.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

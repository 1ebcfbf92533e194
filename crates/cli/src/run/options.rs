//! The options of every verb that runs a command while it holds something, and what they come to:
//! the command's words, its session, the time between notice and KILL.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::connection::{Connection, SessionOptions};
use crate::context::Context;
use crate::duration;
use crate::exit::Failure;
use crate::run::health::{Health, HealthOptions};
use crate::run::lease::LeaseArgs;
use crate::run::supervise::OnLost;
use crate::signals::{self, Signals};

/// Options of every verb that runs a command while it holds something.
#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// Signal that stops CMD before the lock is lost; KILL follows.
    ///
    /// CMD is dead before the server can grant the lock to another process, except with `ignore`.
    #[arg(
        long,
        value_name = "ACTION",
        value_enum,
        default_value = "term",
        hide_short_help = true
    )]
    pub(crate) on_lost: OnLost,
    /// Time from that signal to KILL [default: 5s; at most 3/10 of the session timeout].
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// Name shown to other processes [default: CMD].
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Time without contact after which the servers end the session and its locks.
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = duration::parse, default_value = "10s")]
    pub(crate) session_timeout: Duration,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    health: HealthOptions,
    /// Run this line with sh -c, not CMD.
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "command"
    )]
    pub(crate) line: Option<OsString>,
    /// The command and its arguments.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl RunOptions {
    /// The command and its arguments; empty where none was given.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.line {
            Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }

    /// The health check that was asked for, if any.
    pub(crate) fn health(&self) -> Result<Option<Health>, Failure> {
        let health = self.health.health(self.on_lost)?;
        if health.is_some() && self.words().is_empty() {
            return Err(Failure::usage(
                "--health-cmd checks a command; give the command after two dashes: -- CMD",
            ));
        }
        Ok(health)
    }

    /// The name to show to others.
    pub(crate) fn shown_name(&self) -> String {
        const LONGEST: usize = 120;
        let name = self.name.clone().unwrap_or_else(|| {
            let words: Vec<_> = self
                .words()
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            if words.is_empty() {
                "baton".to_owned()
            } else {
                words.join(" ")
            }
        });
        name.chars().take(LONGEST).collect()
    }

    /// Connects to hold something under these options, once it is known that they make sense; or
    /// the exit code, where a signal asks to end first.
    pub(crate) async fn open(
        &self,
        context: &Context,
    ) -> Result<ControlFlow<u8, (Connection, Signals)>, Failure> {
        self.notice(self.session_timeout)?;
        self.health()?;
        let mut signals = Signals::new()?;
        tokio::select! {
            connection = Connection::open(context, self.session()) => {
                connection.map(|connection| ControlFlow::Continue((connection, signals)))
            }
            number = signals.stop() => Ok(ControlFlow::Break(signals::ended_by(number))),
        }
    }

    /// The options of a session that holds something under these options.
    pub(crate) fn session(&self) -> SessionOptions {
        SessionOptions {
            timeout: self.session_timeout,
            lease: Some(self.lease.options()),
            lasting: true,
        }
    }

    /// The time between notice and KILL under this session timeout.
    ///
    /// More than 3/10 of it could be due while nothing is wrong: between two heartbeats the lease
    /// runs down that far.
    pub(crate) fn notice(&self, session_timeout: Duration) -> Result<Duration, Failure> {
        let most = session_timeout * 3 / 10;
        match self.kill_after {
            Some(asked) if asked > most => Err(Failure::usage(format!(
                "--kill-after {} needs a session timeout of at least {} (this one is {}); use --session-timeout",
                duration::show(asked),
                duration::show(Duration::from_millis(
                    u64::try_from((asked.as_millis() * 10).div_ceil(3)).unwrap_or(u64::MAX)
                )),
                duration::show(session_timeout)
            ))),
            Some(asked) => Ok(asked),
            None => Ok(most.min(Duration::from_secs(5))),
        }
    }
}

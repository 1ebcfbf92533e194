//! Running a command for as long as something is held: a lock, a leadership.
//!
//! Owns the rule of loss (`hazards.md` H85): the guardian is told the lease's end, as it moves, and
//! stops the command before it. The command has ended and was reaped when [`run`] returns, so the
//! caller may release then, and not before.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::Duration;

use baton::{Claim, LockError, LostReason, ReleaseError};

use crate::args::Context;
use crate::connect::{Connection, SessionOptions};
use crate::duration;
use crate::exit::{self, Failure};
use crate::health::{Health, HealthOptions};
use crate::lease::{self, LeaseArgs};
use crate::signals::{self, Signals};
use crate::stop::Stop;
use crate::supervise::{Command, Ended, Event, OnLost, Supervised, boottime};

/// How long the server's word on a release is waited for.
pub(crate) const FAREWELL: Duration = Duration::from_secs(3);

/// Something that is held under a lease.
pub(crate) trait Tenure {
    /// What it is, for remarks: "the lock".
    fn what(&self) -> &'static str;
    /// For how long it is known to be held if no server answers from now on.
    fn remaining(&self) -> Duration;
    /// Resolves when it is no longer held.
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static;
    /// Resolves when somebody asks its holder to give it up. It is held until then.
    fn asked(&self) -> impl Future<Output = ()> + Send + 'static {
        std::future::pending()
    }
}

impl Tenure for Claim {
    fn what(&self) -> &'static str {
        "the claim on the item"
    }
    fn remaining(&self) -> Duration {
        Claim::remaining(self)
    }
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        Claim::lost(self)
    }
}

/// Options of every verb that runs a command while it holds something.
#[derive(Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// What happens to the command when the lock is being lost: a signal as notice, then KILL in
    /// time; or nothing.
    ///
    /// The command is dead before the server can give the lock to anyone else, except with
    /// `ignore`.
    #[arg(
        long,
        value_name = "ACTION",
        value_enum,
        default_value = "term",
        verbatim_doc_comment
    )]
    pub(crate) on_lost: OnLost,
    /// Time between the notice and KILL; at most 3/10 of the session timeout [default: 5s, or
    /// that].
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// What others see as the holder's name [default: the command].
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// The session timeout to ask for: after this long without a request from this process, the
    /// server gives the lock away.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "10s")]
    pub(crate) session_timeout: Duration,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    health: HealthOptions,
    /// Run this line with sh -c, in place of CMD.
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "command"
    )]
    pub(crate) line: Option<OsString>,
    /// The command and its arguments, after `--`.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

impl RunOptions {
    /// The command's words; none where none was given.
    pub(crate) fn words(&self) -> Vec<OsString> {
        match &self.line {
            Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }

    /// How to find out whether the command is well, if that was asked for.
    pub(crate) fn health(&self) -> Result<Option<Health>, Failure> {
        let health = self.health.health(self.on_lost)?;
        if health.is_some() && self.words().is_empty() {
            return Err(Failure::usage(
                "--health-cmd asks after a command; say which one after two dashes: -- CMD",
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
            number = signals.stop() => Ok(ControlFlow::Break(signals::exit_code(number))),
        }
    }

    /// What a session needs to know to hold something under these options.
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

/// Why something could not be had, with the options that mend it.
pub(crate) fn not_acquired(error: &LockError) -> Failure {
    match error {
        LockError::Lease { path, source } => {
            Failure::baton(format!("{path}: {}", lease::refusal(source)))
        }
        error @ LockError::TimedOut { .. } => {
            Failure::new(exit::BATON, "connection", error.to_string())
        }
        error => Failure::baton(error.to_string()),
    }
}

/// How a command ended, and whether it was left to end by itself.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The command's own end.
    pub(crate) ended: Ended,
    /// Why it was to be stopped, if that came first.
    pub(crate) stop: Option<Stop>,
}

/// Runs a command while `tenure` lasts and it is well. Signals that arrive are passed on to it.
pub(crate) async fn run(
    context: &Context,
    tenure: &impl Tenure,
    command: &Command,
    health: Option<&Health>,
    session_timeout: Duration,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    // Between KILL and the lease's end: time for the system to end the command.
    let margin =
        (session_timeout / 40).clamp(Duration::from_millis(20), Duration::from_millis(250));
    let notice = if command.on_lost == OnLost::Kill {
        Duration::ZERO
    } else {
        command.kill_after
    };
    let deadlines = |lease_end: Duration| {
        let kill_at = lease_end.saturating_sub(margin);
        (kill_at.saturating_sub(notice), kill_at)
    };
    let output = &context.output;
    let begun = boottime();
    let mut lease_end = begun + tenure.remaining();
    let (notice_at, kill_at) = deadlines(lease_end);
    let mut child = Supervised::start(command, notice_at, kill_at)?;
    let mut stop: Option<Stop> = None;
    let mut losing = std::pin::pin!(tenure.lost());
    let mut asked = false;
    let mut asking = std::pin::pin!(tenure.asked());
    let failing = async {
        match health {
            Some(health) => health.fails(&command.environment).await,
            None => std::future::pending().await,
        }
    };
    let mut failing = std::pin::pin!(failing);
    let mut look = tokio::time::interval(
        (session_timeout / 40).clamp(Duration::from_millis(10), Duration::from_millis(250)),
    );
    let what = tenure.what();
    let ignored = command.on_lost == OnLost::Ignore;
    loop {
        tokio::select! {
            event = child.next() => match event? {
                Event::Started(pid) => output.verbose(|| format!("running, pid {pid}")),
                Event::Resumed => output.note(format!("the command runs under {what}, so it cannot be suspended; it goes on")),
                Event::Notice if stop.is_some() => {}
                Event::Notice => output.note(format!(
                    "no server answers and the lease is running out: stopping the command (KILL in {})",
                    duration::show(notice)
                )),
                Event::Ended(ended) => {
                    output.verbose(|| format!("the command ended after {}", duration::show(boottime().saturating_sub(begun))));
                    return Ok(Outcome { ended, stop });
                }
            },
            reason = &mut losing, if stop.is_none() => {
                stop = Some(Stop::Lost(reason));
                output.note(Stop::Lost(reason).remark(what, ignored));
                if !ignored {
                    let now = boottime();
                    // With the lease the time to be polite is over; a lock that was taken away was
                    // taken on purpose.
                    let over = matches!(reason, LostReason::LeaseEnded | LostReason::ClaimTimedOut);
                    let grace = if over { Duration::ZERO } else { notice };
                    child.lease(now, now + grace).await;
                }
            }
            () = &mut asking, if !asked && stop.is_none() => {
                asked = true;
                output.note(Stop::Asked.remark(what, ignored));
                if !ignored {
                    stop = Some(Stop::Asked);
                    let now = boottime();
                    child.lease(now, (now + notice).min(lease_end.saturating_sub(margin))).await;
                }
            }
            wrong = &mut failing, if stop.is_none() => {
                // The lock is ours still, and stays so until the command has ended.
                stop = Some(Stop::Unwell);
                output.note(format!("{wrong}; stopping the command"));
                let now = boottime();
                child.lease(now, (now + notice).min(lease_end.saturating_sub(margin))).await;
            }
            number = signals.next() => {
                output.verbose(|| format!("passing {} on to the command", signals::name(number)));
                child.signal(number).await;
            }
            _ = look.tick(), if stop.is_none() => {
                let end = boottime() + tenure.remaining();
                if end > lease_end + Duration::from_millis(1) {
                    lease_end = end;
                    let (notice_at, kill_at) = deadlines(lease_end);
                    child.lease(notice_at, kill_at).await;
                }
            }
        }
    }
}

/// The exit code that an outcome gives, and what is said about it.
pub(crate) fn verdict(outcome: &Outcome, on_lost: OnLost, what: &str) -> Result<u8, Failure> {
    let stopped = outcome.ended.stopped || (outcome.stop.is_some() && on_lost != OnLost::Ignore);
    if !stopped {
        return Ok(outcome.ended.exit_code());
    }
    // Without a word from the session, it was the guardian that knew the lease's end.
    let stop = outcome.stop.unwrap_or(Stop::Lost(LostReason::LeaseEnded));
    Err(stop.failure_of_command(what))
}

/// Ends a tenure whose command has ended and was reaped: now, and not before, `releasing` may let
/// the next one in. What was lost just as the command ended counts as lost.
pub(crate) async fn conclude(
    context: &Context,
    outcome: Result<u8, Failure>,
    on_lost: OnLost,
    what: &str,
    releasing: impl Future<Output = Result<(), ReleaseError>>,
) -> Result<u8, Failure> {
    match tokio::time::timeout(FAREWELL, releasing).await {
        Ok(Ok(())) => {}
        Ok(Err(ReleaseError::Lost { reason, .. })) if outcome.is_ok() && on_lost != OnLost::Ignore => {
            return Err(Failure::new(
                exit::LOST,
                "lost",
                format!("{what} was lost as the command ended ({reason}); check what it did last"),
            ));
        }
        Ok(Err(error)) => context.output.verbose(|| error.to_string()),
        Err(_) => context.output.note(format!(
            "{what}: no server confirmed the release; it passes on at the latest when the session times out"
        )),
    }
    outcome
}

/// Waits, without a command, for a signal to end, for the loss, or until somebody asks for what is
/// held.
pub(crate) async fn hold(tenure: &impl Tenure, signals: &mut Signals) -> Result<i32, Stop> {
    tokio::select! {
        number = signals.stop() => Ok(number),
        reason = tenure.lost() => Err(Stop::Lost(reason)),
        () = tenure.asked() => Err(Stop::Asked),
    }
}

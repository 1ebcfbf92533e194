//! Running a command for as long as something is held: a lock, a leadership.
//!
//! Owns the rule of loss (`hazards.md` H85): the guardian always knows the end of the lease, and
//! stops the command before it. The command has ended and was reaped when [`run_while_held`]
//! returns, so the caller may release then, and not before.

use std::time::Duration;

use baton::LostReason;
use baton::guard::ReleaseError;
use baton::work_queue::Claim;

use crate::context::Context;
use crate::duration;
use crate::exit::Failure;
use crate::run::health::Health;
use crate::run::stop::Stop;
use crate::run::supervise::{Command, CommandEnd, Event, OnLost, SupervisedCommand, boottime};
use crate::signals::{self, Signals};

/// Time that a release may wait for the server's confirmation.
pub(crate) const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Something that is held under a lease.
pub(crate) trait Tenure {
    /// Its name in messages: "the lock".
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

/// End of a command, and why it was stopped if it was.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The command's own end.
    pub(crate) ended: CommandEnd,
    /// Reason why it was stopped, where it did not end by itself first.
    pub(crate) stop: Option<Stop>,
}

/// Runs a command while `tenure` lasts and it is well. Signals that arrive are passed on to it.
pub(crate) async fn run_while_held(
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
    let mut child = SupervisedCommand::start(command, notice_at, kill_at)?;
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
    let mut check = tokio::time::interval(
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
                    // Once the lease is over, there is no time for a notice. A lock that somebody
                    // has broken leaves that time: it was broken on purpose.
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
                // This process holds the lock until the command has ended.
                stop = Some(Stop::Unhealthy);
                output.note(format!("{wrong}; stopping the command"));
                let now = boottime();
                child.lease(now, (now + notice).min(lease_end.saturating_sub(margin))).await;
            }
            received = signals.received() => {
                if child.signal(received).await {
                    let name = signals::name(received.number);
                    output.verbose(|| format!("passing {name} on to the command"));
                }
            }
            _ = check.tick(), if stop.is_none() => {
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

/// The exit code of an outcome, or the failure to report.
pub(crate) fn exit_code(outcome: &Outcome, on_lost: OnLost, what: &str) -> Result<u8, Failure> {
    let stopped = outcome.ended.stopped || (outcome.stop.is_some() && on_lost != OnLost::Ignore);
    if !stopped {
        return Ok(outcome.ended.outcome());
    }
    // Where the session has reported no loss, the guardian has seen the lease end.
    let stop = outcome.stop.unwrap_or(Stop::Lost(LostReason::LeaseEnded));
    Err(stop.failure_of_command(what))
}

/// Releases what was held, once its command has ended and was reaped: the next waiter may be
/// granted it now, and not before. A loss just as the command ended counts as a loss.
pub(crate) async fn conclude(
    context: &Context,
    outcome: Result<u8, Failure>,
    on_lost: OnLost,
    what: &str,
    releasing: impl Future<Output = Result<(), ReleaseError>>,
) -> Result<u8, Failure> {
    match tokio::time::timeout(RELEASE_LIMIT, releasing).await {
        Ok(Ok(())) => {}
        Ok(Err(ReleaseError::Lost { reason, .. })) if outcome.is_ok() && on_lost != OnLost::Ignore => {
            return Err(Failure::lost("lost",
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

//! The loop of a worker: claim an item, run the command, settle the item.
//!
//! An item is settled by what its command has done, and only after the command has ended and was
//! reaped; a command whose claim is lost is stopped before another worker can have the item.

use std::cell::Cell;
use std::time::Duration;

use baton::WorkQueue;
use baton::work_queue::{Claim, WorkError};
use tokio::sync::watch;

use super::handle::{failure, open};
use crate::connection::Connection;
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::run::options::RunOptions;
use crate::run::stop::Stop;
use crate::run::supervise::{Command, OnLost};
use crate::run::tenure::{self, Outcome};
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;

/// The longest wait between two attempts, unless the first is longer.
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);

/// Options of a worker.
#[derive(Debug, clap::Args)]
pub(super) struct WorkerOptions {
    /// Number of commands to run at a time.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Number of attempts that an item gets, unless it was put with its own number.
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
    /// Wait after an item's first failure; doubled with each further one, up to 10m.
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = duration::parse, default_value = "1s")]
    backoff: Duration,
    /// Time limit of one attempt; CMD is stopped when it ends [default: as long as it takes].
    #[arg(long, value_name = "DUR", value_parser = duration::parse_some)]
    visibility: Option<Duration>,
    /// Exit with 0 when no item is available.
    #[arg(long)]
    until_empty: bool,
    #[command(flatten)]
    run: RunOptions,
}

impl WorkerOptions {
    /// Time that an item is held at least while no server answers: notice and KILL must fit into
    /// it.
    fn limit(&self, session_timeout: Duration) -> Duration {
        self.visibility.map_or(session_timeout, |visibility| {
            visibility.min(session_timeout)
        })
    }
}

/// The state that the jobs of one worker share.
struct Worker<'a> {
    args: &'a WorkerOptions,
    path: &'a str,
    context: &'a Context,
    queue: WorkQueue,
    /// No further items are taken; those under way are finished.
    stopping: watch::Sender<bool>,
    signal: Cell<Option<i32>>,
    /// Number of items that have a command that runs.
    in_hand: Cell<u32>,
    failed: Cell<Option<Failure>>,
}

/// Works on items until the queue is empty, if that was asked for, or until a signal.
pub(super) async fn work(
    args: &WorkerOptions,
    path: &str,
    context: &Context,
) -> Result<u8, Failure> {
    let options = &args.run;
    if options.words().is_empty() {
        return Err(Failure::usage(
            "a command is needed, after --, or a line for the shell with -c; see baton queue work --help",
        ));
    }
    // Before anything is asked of a server: what can be refused without one.
    options.notice(args.limit(options.session_timeout))?;
    options.health()?;
    let mut signals = Signals::new()?;
    let connection = tokio::select! {
        connection = Connection::open(context, options.session()) => connection?,
        number = signals.stop() => return Ok(signals::ended_by(number)),
    };
    let mut queue = open(&connection, path)?
        .max_attempts(args.max_attempts)
        .backoff(args.backoff, args.backoff.max(LONGEST_BACKOFF))
        .name(&options.shown_name());
    if let Some(visibility) = args.visibility {
        queue = queue.visibility(visibility);
    }
    let worker = Worker {
        args,
        path,
        context,
        queue,
        stopping: watch::Sender::new(false),
        signal: Cell::new(None),
        in_hand: Cell::new(0),
        failed: Cell::new(None),
    };
    let jobs = all((0..args.jobs).map(|_| job(&worker)));
    let stop = async {
        loop {
            worker.stop(signals.stop().await);
        }
    };
    let in_hand = &worker.in_hand;
    let awaited = AwaitedEvent::NextItem { path, in_hand };
    tokio::select! {
        () = connection.wait(&awaited, jobs) => {}
        () = stop => {}
    }
    let given_back = worker.queue.give_back().await;
    let Worker { signal, failed, .. } = worker;
    connection.close().await;
    if let Some(failure) = failed.into_inner() {
        return Err(failure);
    }
    given_back.map_err(failure)?;
    Ok(signal.into_inner().map_or(exit::OK, signals::ended_by))
}

/// Drives all of them, on the calling thread: a command's death signal hangs on the thread that
/// started it.
async fn all<F: Future<Output = ()>>(jobs: impl Iterator<Item = F>) {
    let mut jobs: Vec<_> = jobs.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        jobs.retain_mut(|job| job.as_mut().poll(cx).is_pending());
        if jobs.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// Takes items and runs the command for each, until the worker stops.
async fn job(worker: &Worker<'_>) {
    let mut stopping = worker.stopping.subscribe();
    loop {
        let claim = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            claim = worker.next() => claim,
        };
        let done = match claim {
            Ok(Some(claim)) => {
                worker.in_hand.update(|items| items + 1);
                worker.context.output.clear_status();
                let done = worker.run(claim).await;
                worker.in_hand.update(|items| items.saturating_sub(1));
                done
            }
            Ok(None) => return,
            Err(error) => Err(failure(error)),
        };
        if let Err(failure) = done {
            worker.failed.set(Some(failure));
            worker.stopping.send_replace(true);
            return;
        }
    }
}

impl Worker<'_> {
    fn stop(&self, number: i32) {
        self.signal.set(Some(number));
        self.stopping.send_replace(true);
    }

    async fn next(&self) -> Result<Option<Claim>, WorkError> {
        if self.args.until_empty {
            self.queue.poll().await
        } else {
            self.queue.take().await.map(Some)
        }
    }

    /// Runs the command for one item, and settles the item by what it has done.
    async fn run(&self, claim: Claim) -> Result<(), Failure> {
        let options = &self.args.run;
        // The command ends before the claim does, also where the lease ends first and the session
        // lives on.
        if let Err(reason) = claim.keep_node() {
            let what = "the claim on the item";
            self.context
                .output
                .note(Stop::Lost(reason).remark_before(what));
            return Ok(());
        }
        let (id, attempt) = (claim.id().to_owned(), claim.attempt());
        let session = claim.session().clone();
        let limit = self.args.limit(session.timeout());
        let command = Command {
            words: options.words(),
            environment: vec![
                ("BATON_PATH", self.path.to_owned()),
                ("BATON_NODE", claim.item().to_owned()),
                ("BATON_TOKEN", claim.token().to_string()),
                ("BATON_SESSION", format!("0x{:x}", session.id())),
                ("BATON_ITEM_ID", id.clone()),
                ("BATON_ATTEMPT", attempt.to_string()),
            ],
            on_lost: options.on_lost,
            kill_after: options.notice(limit)?,
            json: self.context.output.json(),
            input: Some(claim.payload().to_vec()),
            session: None,
        };
        let output = &self.context.output;
        output.verbose(|| format!("item {id}, attempt {attempt}"));
        let health = options.health()?;
        let mut signals = Signals::new()?;
        let outcome = tenure::run_while_held(
            self.context,
            &claim,
            &command,
            health.as_ref(),
            limit,
            &mut signals,
        )
        .await;
        // The command may have ended by a signal that was passed on, before the worker itself has
        // heard of it.
        if let Some(number) = signals.asked_to_end() {
            self.stop(number);
        }
        let settled = match outcome {
            Err(failure) => {
                let _ = claim.release().await;
                return Err(failure);
            }
            Ok(outcome) => self.settle(claim, &outcome).await?,
        };
        match settled {
            Ok(()) => {}
            // The worker that has the item now runs it again; this one cannot prevent that.
            Err(error @ (WorkError::ClaimLost { .. } | WorkError::Changed { .. })) => {
                output.note(error.to_string());
            }
            Err(error) => return Err(failure(error)),
        }
        Ok(())
    }

    async fn settle(
        &self,
        claim: Claim,
        outcome: &Outcome,
    ) -> Result<Result<(), WorkError>, Failure> {
        let ended = outcome.ended;
        if outcome.stop == Some(Stop::Unhealthy) {
            return Ok(claim.nack("the command was unhealthy").await);
        }
        let lost = outcome.stop.is_some() && self.args.run.on_lost != OnLost::Ignore;
        if ended.stopped || lost {
            // The note that it was lost has been made. Dropped, what may be left of the claim is
            // ended.
            drop(claim);
            return Ok(Ok(()));
        }
        if ended.code == Some(0) {
            return Ok(claim.ack().await);
        }
        if let Some(code @ (126 | 127)) = ended.code {
            // No item will fare better with this command: not the item's fault, and no attempt of
            // its.
            let _ = claim.release().await;
            return Err(Failure::new(
                u8::try_from(code).unwrap_or(exit::BATON),
                "command",
                format!(
                    "{}: the command cannot be run (exit code {code}); the item was given back, and this worker stops",
                    self.path
                ),
            ));
        }
        if *self.stopping.borrow() {
            return Ok(claim.release().await);
        }
        let reason = match (ended.code, ended.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(number)) => format!("died of {}", signals::name(number)),
            (None, None) => "ended for an unknown reason".to_owned(),
        };
        self.context
            .output
            .verbose(|| format!("item {}: {reason}", claim.id()));
        Ok(claim.nack(&reason).await)
    }
}

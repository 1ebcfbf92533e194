//! `baton queue work`: a command for each item of a work queue, and the looks at such a queue that
//! go with it.
//!
//! Owns the loop of a worker: claim, run, settle. An item is settled by what its command has done,
//! and only after the command has ended and was reaped; a command whose claim is lost is stopped
//! before another worker can have the item.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::time::Duration;

use baton::{Claim, WorkError, WorkItem, WorkQueue};
use clap::Subcommand;
use tokio::sync::watch;

use crate::args::Context;
use crate::connect::{BRIEF, Connection};
use crate::duration;
use crate::exit::{self, Failure};
use crate::paths;
use crate::signals::{self, Signals};
use crate::stop::Stop;
use crate::supervise::{Command, OnLost};
use crate::tenure::{self, Outcome, RunOptions};
use crate::verbs::queue::Input;
use crate::verbs::waiting::Awaited;
use crate::verbs::work_admin::{self, Looked};
use crate::verbs::work_take::{Ack, Nack, Take};

/// The longest wait between two attempts, unless the first is longer.
const LONGEST_BACKOFF: Duration = Duration::from_secs(600);

/// Run a command for each item of a work queue: the item on its standard input, exit code 0 for
/// done.
///
/// Claims an item, runs CMD, and removes the item when CMD has exited with 0. With any other code
/// the item comes back later, each time after twice as long, and after --max-attempts it is kept as
/// a dead letter. If the claim is being lost, CMD is stopped before another worker can get the
/// item. If this baton is killed, CMD is killed too and the item comes back.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "put|take|ack|nack|depth|claims|dead|replay|discard|purge|repair",
    override_usage = "baton queue work [OPTIONS] PATH -- CMD...\n       baton queue work put PATH [ITEM]...\n       baton queue work take PATH\n       baton queue work ack|nack PATH --token N\n       baton queue work depth|claims|dead PATH\n       baton queue work replay|discard PATH NAME...\n       baton queue work purge|repair PATH",
    after_help = "Examples:
  baton queue work put /thumbs cat.jpg dog.jpg
  find . -name '*.jpg' | baton queue work put /thumbs --lines --batch 100
  baton queue work /thumbs -j 4 -- ./resize        for ever, four at a time
  baton queue work /thumbs --until-empty -c 'read f; convert $f small/$f'
  baton queue work put /thumbs --priority 0 --delay 10m --id cat cat.jpg
  baton queue work take /thumbs                    for a script; see baton queue
                                                   work take --help
  baton queue work dead /thumbs                    what never worked, and why
  baton queue work replay /thumbs --all
  baton queue work purge /thumbs                   all that nobody works on

CMD finds in its environment, besides what baton lock gives:
  BATON_ITEM_ID      the item's id, the same at every attempt
  BATON_ATTEMPT      which attempt this is, from 1

Exit codes:  0 the queue is empty (--until-empty)
             128+N ended by signal N, its items settled or given back
             1 nothing there   125 baton failed   2 usage
             126, 127 CMD cannot be run, not found"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    admin: Option<Admin>,
    /// The queue's path.
    #[arg(required = true, value_name = "PATH", value_parser = paths::recipe)]
    path: Option<String>,
    /// The number of commands that run at a time.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// How often an item may be tried, unless it says otherwise itself.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
    /// How long an item waits after its first failed attempt, doubled with each further one up to
    /// ten minutes.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "1s")]
    backoff: Duration,
    /// The time for one attempt: before it is over CMD is stopped, and the item goes to another
    /// [default: as long as it takes].
    #[arg(long, value_name = "DUR", value_parser = duration::parse_some)]
    visibility: Option<Duration>,
    /// Exit with 0 when no item is available.
    #[arg(long)]
    until_empty: bool,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, Subcommand)]
enum Admin {
    /// Put items in: each ITEM, or what comes on standard input.
    Put {
        /// The queue's path.
        #[arg(value_parser = paths::recipe)]
        path: String,
        /// The items, each one an argument.
        #[arg(value_name = "ITEM")]
        items: Vec<String>,
        #[command(flatten)]
        input: Input,
        /// From 0, the most urgent, to 999.
        #[arg(long, value_name = "N", default_value_t = WorkItem::USUAL_PRIORITY)]
        priority: u16,
        /// Delay before the item becomes available.
        #[arg(long, value_name = "DUR", value_parser = duration::parse)]
        delay: Option<Duration>,
        /// The item's id: refused with exit code 1 while another item has it.
        #[arg(long, value_name = "TEXT")]
        id: Option<String>,
        /// How often these items may be tried, whatever the workers say.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        max_attempts: Option<u32>,
        /// The most items that the queue takes, agreed when it is made; when it is full, exit code
        /// 1.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        capacity: Option<u64>,
        /// The number of items that are put in one change, all or none.
        #[arg(long, value_name = "N", default_value = "1")]
        batch: NonZeroUsize,
    },
    /// Claim the first item, print it, and keep it until it is settled by `ack` or `nack`.
    Take(Take),
    /// Settle an item that `take` has claimed: it is done, and removed.
    Ack(Ack),
    /// Settle an item that `take` has claimed: the attempt failed, and the item comes back later.
    Nack(Nack),
    #[command(flatten)]
    Looked(Looked),
}

impl Args {
    /// How long an item is held at least, without a word from a server: notice and KILL must find
    /// room within it.
    fn limit(&self, session_timeout: Duration) -> Duration {
        self.visibility.map_or(session_timeout, |visibility| {
            visibility.min(session_timeout)
        })
    }
}

/// Runs the verb.
pub(crate) async fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    match (&args.admin, &args.path) {
        (None, Some(path)) => work(args, path, context).await,
        (None, None) => Err(Failure::usage(
            "a queue needs a path, like /jobs; see baton queue work --help",
        )),
        (Some(Admin::Take(take)), _) => take.run(context).await,
        (Some(Admin::Ack(ack)), _) => ack.run(context).await,
        (Some(Admin::Nack(nack)), _) => nack.run(context).await,
        (Some(Admin::Looked(looked)), _) => {
            connected(context, async |connection| {
                work_admin::look(looked, context, connection).await
            })
            .await
        }
        (Some(admin @ Admin::Put { .. }), _) => {
            connected(context, async |connection| {
                put(admin, context, connection).await
            })
            .await
        }
    }
}

async fn connected(
    context: &Context,
    act: impl AsyncFnOnce(&Connection) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let connection = Connection::open(context, BRIEF).await?;
    let outcome = act(&connection).await;
    connection.close().await;
    outcome
}

async fn put(admin: &Admin, context: &Context, connection: &Connection) -> Result<u8, Failure> {
    let Admin::Put {
        path,
        items,
        input,
        priority,
        delay,
        id,
        max_attempts,
        capacity,
        batch,
    } = admin
    else {
        return Ok(exit::OK);
    };
    let mut queue = open(connection, path)?;
    if let Some(capacity) = capacity {
        queue = queue.capacity(*capacity);
    }
    let given = input.items(items, context)?;
    if id.is_some() && given.len() != 1 {
        return Err(Failure::usage(format!(
            "--id is for one item, and there are {}; put them one by one",
            given.len()
        )));
    }
    let of = |payload: &Vec<u8>| {
        let mut item = WorkItem::new(payload.clone())
            .priority(*priority)
            .delay(delay.unwrap_or_default());
        if let Some(id) = id {
            item = item.id(id);
        }
        if let Some(attempts) = max_attempts {
            item = item.max_attempts(*attempts);
        }
        item
    };
    for some in given.chunks(batch.get()) {
        queue
            .offer_all(some.iter().map(of))
            .await
            .map_err(failure)?;
    }
    Ok(exit::OK)
}

/// What the jobs of one worker share.
struct Worker<'a> {
    args: &'a Args,
    path: &'a str,
    context: &'a Context,
    queue: WorkQueue,
    /// No further items are taken; those under way are finished.
    stopping: watch::Sender<bool>,
    signal: Cell<Option<i32>>,
    /// How many items have a command that runs.
    in_hand: Cell<u32>,
    failed: Cell<Option<Failure>>,
}

async fn work(args: &Args, path: &str, context: &Context) -> Result<u8, Failure> {
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
        number = signals.stop() => return Ok(signals::exit_code(number)),
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
    let awaited = Awaited::NextItem { path, in_hand };
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
    Ok(signal.into_inner().map_or(exit::OK, signals::exit_code))
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

/// Takes items and runs the command for each, until told to stop.
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
        };
        let output = &self.context.output;
        output.verbose(|| format!("item {id}, attempt {attempt}"));
        let health = options.health()?;
        let mut signals = Signals::new()?;
        let outcome = tenure::run(
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
            // Whoever has the item now does it again: nothing that this worker can do about it.
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
        if outcome.stop == Some(Stop::Unwell) {
            return Ok(claim.nack("the command was not well").await);
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

/// The handle of the queue at `path`.
pub(super) fn open(connection: &Connection, path: &str) -> Result<WorkQueue, Failure> {
    WorkQueue::new(&connection.client, path).map_err(|error| Failure::usage(error.to_string()))
}

/// What an error of the library comes to here.
pub(super) fn failure(error: WorkError) -> Failure {
    match error {
        WorkError::Full { .. } => Failure::new(exit::NOTHING, "full", error.to_string()),
        WorkError::Duplicate { .. } => Failure::new(exit::NOTHING, "duplicate", error.to_string()),
        WorkError::NoDeadLetter { .. } => {
            Failure::new(exit::NOTHING, "no_dead_letter", error.to_string())
        }
        WorkError::Damaged { path, node } => Failure::new(
            exit::NOTHING,
            "damaged",
            format!(
                "{path}: the queue is damaged: somebody deleted its node {node}; make it again: baton queue work repair {path}"
            ),
        ),
        WorkError::CapacityDiffers {
            path,
            agreed,
            asked,
        } => Failure::baton(capacity_differs(&path, agreed, asked)),
        WorkError::TimedOut { .. } => Failure::new(exit::BATON, "connection", error.to_string()),
        WorkError::SettleUnknown { .. } | WorkError::OfferUnknown { .. } => {
            Failure::new(exit::BATON, "unknown", error.to_string())
        }
        WorkError::BadItem { .. } | WorkError::BadPath { .. } => Failure::usage(error.to_string()),
        error => Failure::baton(error.to_string()),
    }
}

/// The library's text names a call.
fn capacity_differs(path: &str, agreed: Option<u64>, asked: Option<u64>) -> String {
    let asked = asked.map_or("none".to_owned(), |items| items.to_string());
    match agreed {
        Some(agreed) => format!(
            "{path}: the queue was made with --capacity {agreed}, and {asked} was asked for; leave --capacity out, or give {agreed}"
        ),
        None => format!(
            "{path}: the queue was made without --capacity, and {asked} was asked for; leave --capacity out, or use another path"
        ),
    }
}

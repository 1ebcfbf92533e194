//! `baton barrier`: a command that starts when all have come, and the gate that is opened and
//! closed.

use std::ops::ControlFlow;
use std::time::Duration;

use baton::barrier::{BarrierEntry, BarrierError, BarrierLayout, RoundEnd};
use baton::{Barrier, DoubleBarrier, LostReason};
use baton_client::Session;

use super::listing;
use crate::connection::{Connection, LASTING};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::paths::{self, Prefix};
use crate::run::options::RunOptions;
use crate::run::supervise::{Command, SessionTicket};
use crate::run::tenure::{self, Tenure};
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;

/// Start a command once N processes have joined; end once all are done.
///
/// All of them get the same outcome: if one gives up after its --timeout, nobody starts, and all
/// exit with 124. A process that crashes does not hold the others up. Without CMD, the processes
/// only wait for each other. PATH can be used again: each use is a round.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "ls|show|open|close|wait",
    override_usage = "baton barrier [OPTIONS] PATH --count N [-- CMD...]\n       baton barrier ls [PREFIX]\n       baton barrier show|open|close PATH\n       baton barrier wait PATH [--timeout DUR]",
    after_help = "Examples:
  baton barrier /step --count 3 -- ./compute       three of these start
                                                   together, and end together
  baton barrier /step --count 3 --timeout 1m       wait for two others; 124 for
                                                   all if they do not come
  baton barrier close /maintenance                 waiters stay blocked until
                                                   the barrier is opened
  baton barrier wait /maintenance --timeout 1h && ./start

CMD finds in its environment BATON_PATH, BATON_NODE, BATON_SESSION, and
BATON_ROUND, which counts: 1, 2, 3 …

Exit codes:  CMD's own   128+N CMD died of signal N
             113 this process's membership expired; CMD was stopped
             124 a participant timed out   125 baton failed   2 usage
             126 CMD cannot be run   127 CMD not found"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The barrier: a path like /step, the same for all who meet.
    #[arg(required = true, value_name = "PATH", value_parser = paths::recipe)]
    path: Option<String>,
    /// Number of processes in the round; the same for all.
    #[arg(short = 'N', long, required = true, value_name = "N")]
    count: Option<u32>,
    /// Fail the round, for all, if some have not joined after this time [default: never].
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Fail the round, for all, if some have not finished this long after this process [default:
    /// never].
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    leave_timeout: Option<Duration>,
    /// Share the barrier with processes that use Curator or kazoo. Without a common outcome: see
    /// docs/user/recipes.md.
    #[arg(long)]
    curator: bool,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the barriers: closed gates, double barriers, latches.
    Ls(Prefix),
    /// Show the state of a barrier, and which processes have joined.
    Show {
        /// The barrier's path.
        #[arg(value_parser = paths::legal)]
        path: String,
    },
    #[command(flatten)]
    Gate(Gate),
}

#[derive(Debug, clap::Subcommand)]
enum Gate {
    /// Open a gate: all its waiters continue.
    Open {
        /// The gate's path.
        #[arg(value_parser = paths::recipe)]
        path: String,
    },
    /// Close a gate.
    Close {
        /// The gate's path.
        #[arg(value_parser = paths::recipe)]
        path: String,
    },
    /// Wait until a gate is open.
    Wait {
        /// The gate's path.
        #[arg(value_parser = paths::recipe)]
        path: String,
        /// Wait at most this long, then exit 124 [default: for ever].
        #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
        timeout: Option<Duration>,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(async {
        match (&args.verb, &args.path, args.count) {
            (Some(Verb::Ls(Prefix { prefix })), _, _) => listing::barriers(context, prefix).await,
            (Some(Verb::Show { path }), _, _) => listing::barrier(context, path).await,
            (Some(Verb::Gate(gate)), _, _) => at_gate(gate, context).await,
            (None, Some(path), Some(count)) => meet(args, path, count, context).await,
            _ => Err(Failure::usage(
                "a barrier needs a path and a number, like /step --count 3; see baton barrier --help",
            )),
        }
    })?
}

async fn at_gate(gate: &Gate, context: &Context) -> Result<u8, Failure> {
    let (Gate::Open { path } | Gate::Close { path } | Gate::Wait { path, .. }) = gate;
    let connection = Connection::open(context, LASTING).await?;
    let mut signals = Signals::new()?;
    let barrier = Barrier::new(&connection.client, path).map_err(|error| failure(&error))?;
    let doing = async {
        match gate {
            Gate::Open { .. } => barrier.open().await.map(|()| "open"),
            Gate::Close { .. } => barrier.close().await.map(|()| "closed"),
            Gate::Wait { timeout: None, .. } => barrier.wait().await.map(|()| "open"),
            Gate::Wait {
                timeout: Some(limit),
                ..
            } => barrier.wait_timeout(*limit).await.map(|()| "open"),
        }
    };
    let awaited = AwaitedEvent::Gate { path };
    let doing = async {
        match gate {
            Gate::Wait { .. } => connection.wait(&awaited, doing).await,
            Gate::Open { .. } | Gate::Close { .. } => doing.await,
        }
    };
    let outcome = tokio::select! {
        outcome = doing => outcome.map_err(|error| failure(&error)).map(|gate| {
            context.output.result(&record! { path, gate }, format!("{path} is {gate}"));
            exit::OK
        }),
        number = signals.stop() => Ok(signals::ended_by(number)),
    };
    connection.close().await;
    outcome
}

async fn meet(args: &Args, path: &str, count: u32, context: &Context) -> Result<u8, Failure> {
    let options = &args.run;
    let (connection, mut signals) = match options.open(context).await? {
        ControlFlow::Continue(opened) => opened,
        ControlFlow::Break(code) => return Ok(code),
    };
    let outcome = enter(args, path, count, context, &connection, &mut signals).await;
    connection.close().await;
    outcome
}

async fn enter(
    args: &Args,
    path: &str,
    count: u32,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let layout = if args.curator {
        BarrierLayout::Curator
    } else {
        BarrierLayout::Rounds
    };
    let barrier = DoubleBarrier::new(&connection.client, path, count)
        .map_err(|error| failure(&error))?
        .layout(layout)
        .name(&args.run.shown_name());
    let entering = async {
        match args.timeout {
            Some(limit) => barrier.enter_timeout(limit).await,
            None => barrier.enter().await,
        }
    };
    let awaited = AwaitedEvent::Meeting {
        path,
        count,
        barrier: &barrier,
    };
    let entered = tokio::select! {
        entered = connection.wait(&awaited, entering) => entered.map_err(|error| failure(&error))?,
        number = signals.stop() => return Ok(signals::ended_by(number)),
    };
    let round = entered.round();
    let quiet = !args.run.words().is_empty();
    print_stage(context, path, round, quiet, None);
    let code = inside(args, path, context, (connection, &entered), signals).await?;
    let leaving = async {
        match args.leave_timeout {
            Some(limit) => entered.leave_timeout(limit).await,
            None => entered.leave().await,
        }
    };
    let awaited = AwaitedEvent::Others { path };
    let left = tokio::select! {
        left = connection.wait(&awaited, leaving) => left,
        number = signals.stop() => return Ok(signals::ended_by(number)),
    };
    match left {
        Ok(left) => {
            print_stage(context, path, round, quiet, Some(left));
            Ok(code)
        }
        // The command's failure says more.
        Err(error) if code != exit::OK => {
            context.output.note(error.to_string());
            Ok(code)
        }
        Err(error) => Err(failure(&error)),
    }
}

/// The membership of this process, as long as the others can rely on it.
struct Membership<'a> {
    entered: &'a BarrierEntry,
    session: &'a Session,
}

impl Tenure for Membership<'_> {
    fn what(&self) -> &'static str {
        "the membership"
    }
    fn remaining(&self) -> Duration {
        self.session.lease().remaining()
    }
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let gone = self.entered.lost();
        let session = self.session.clone();
        async move {
            tokio::select! {
                () = gone => if session.state().is_final() {
                    LostReason::SessionLost
                } else {
                    LostReason::NodeGone
                },
                () = session.lease_ended() => LostReason::LeaseEnded,
            }
        }
    }
}

/// Runs the command, if there is one.
async fn inside(
    args: &Args,
    path: &str,
    context: &Context,
    (connection, entered): (&Connection, &BarrierEntry),
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let options = &args.run;
    let words = options.words();
    if words.is_empty() {
        return Ok(exit::OK);
    }
    let session = entered.session();
    let _lease = session
        .hold_lease()
        .await
        .map_err(|error| Failure::baton(format!("{path}: {error}")))?;
    let round = entered.round().map(|round| round.to_string());
    let command = Command {
        words,
        environment: vec![
            ("BATON_PATH", path.to_owned()),
            ("BATON_NODE", entered.node().to_owned()),
            ("BATON_SESSION", format!("0x{:x}", session.id())),
            ("BATON_ROUND", round.unwrap_or_default()),
        ],
        on_lost: options.on_lost,
        kill_after: options.notice(session.timeout())?,
        json: context.output.json(),
        input: None,
        session: SessionTicket::of(connection, session),
    };
    let membership = Membership { entered, session };
    let timeout = session.timeout();
    let health = options.health()?;
    let outcome = tenure::run_while_held(
        context,
        &membership,
        &command,
        health.as_ref(),
        timeout,
        signals,
    )
    .await?;
    tenure::exit_code(
        &outcome,
        options.on_lost,
        &format!("the membership in {path}"),
    )
}

/// Standard output is the command's, where there is one.
fn print_stage(
    context: &Context,
    path: &str,
    round: Option<u64>,
    quiet: bool,
    left: Option<RoundEnd>,
) {
    let state = if left.is_some() { "left" } else { "entered" };
    let lost = left.map(|left| left.lost);
    let mut text = format!("{state} {path}");
    if let Some(round) = round {
        text.push_str(&format!(" round {round}"));
    }
    if let Some(lost @ 1..) = lost {
        text.push_str(&format!("; {lost} were lost before they had left"));
    }
    if !quiet {
        let shown = record! { path, state, round, ?lost };
        context.output.result(&shown, text);
    } else if lost.is_some_and(|lost| lost > 0) {
        context.output.note(text);
    } else {
        context.output.verbose(|| text);
    }
}

fn failure(error: &BarrierError) -> Failure {
    let text = error.to_string();
    match error {
        BarrierError::TimedOut { waited_for, .. } if !waited_for.is_others() => {
            Failure::new(exit::BATON, "connection", text)
        }
        BarrierError::TimedOut { .. }
        | BarrierError::Aborted { .. }
        | BarrierError::Broken { .. } => Failure::new(exit::NOT_ACQUIRED, "not_acquired", text),
        BarrierError::Lost { .. } => Failure::lost("lost", text),
        BarrierError::BadPath { .. } | BarrierError::BadCount { .. } => Failure::usage(text),
        _ => Failure::baton(text),
    }
}

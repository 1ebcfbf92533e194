//! `baton elect`: a command for as long as this process leads, and the looks at who leads.

use std::time::{SystemTime, UNIX_EPOCH};

use baton::{ElectionError, Leader, LeaderElection, Leadership};
use serde::Serialize;

use crate::args::Context;
use crate::connect::{BRIEF, Connection};
use crate::exit::{self, Failure};
use crate::signals::{self, Signals};
use crate::supervise::Command;
use crate::tenure::{self, RunOptions};

/// Run a command while being the leader of a group of processes.
///
/// Stands for election at PATH, waits until elected, runs CMD, and resigns when CMD has ended. If leadership is being lost,
/// CMD is stopped before anyone else can be elected. Without CMD, leads until a signal comes.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "watch|show",
    override_usage = "baton elect [OPTIONS] PATH [-- CMD...]\n       baton elect watch PATH\n       baton elect show PATH",
    after_help = "Examples:
  baton elect /scheduler -- ./scheduler        one of many runs it; the next takes over
  baton elect -v --name eu-1 /scheduler -- ./scheduler
  baton elect watch /scheduler --json          one line for each new leader
  baton elect show /scheduler

CMD finds in its environment what `baton lock` gives (BATON_PATH BATON_NODE BATON_TOKEN BATON_SESSION
BATON_ACQUIRED_AT), and BATON_TERM, which counts the terms of this election: 1, 2, 3 …
With --verbose each stage is told: offer, determination, election, whom we follow.

Exit codes:  CMD's own   128+N CMD died of signal N   113 leadership was lost and CMD stopped
             125 baton failed   2 usage   126 CMD cannot be run   127 CMD not found"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    look: Option<Look>,
    /// The election: a path like /scheduler, the same for all candidates.
    #[arg(required = true, value_name = "PATH")]
    path: Option<String>,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, clap::Subcommand)]
enum Look {
    /// Print who leads, and each change, until a signal comes.
    Watch {
        /// The election's path.
        path: String,
    },
    /// Print who leads. Exits with 1 if nobody does.
    Show {
        /// The election's path.
        path: String,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(async {
        match (&args.look, &args.path) {
            (Some(Look::Watch { path }), _) => watch(path, context).await,
            (Some(Look::Show { path }), _) => show(path, context).await,
            (None, Some(path)) => elect(&args.run, path, context).await,
            (None, None) => Err(Failure::usage(
                "an election needs a path, like /scheduler; see baton elect --help",
            )),
        }
    })?
}

async fn elect(options: &RunOptions, path: &str, context: &Context) -> Result<u8, Failure> {
    options.notice(options.session_timeout)?;
    let mut signals = Signals::new()?;
    let connecting = Connection::open(context, options.session());
    let connection = tokio::select! {
        connection = connecting => connection?,
        number = signals.stop() => return Ok(signals::exit_code(number)),
    };
    let outcome = lead(options, path, context, &connection, &mut signals).await;
    connection.close().await;
    outcome
}

async fn lead(
    options: &RunOptions,
    path: &str,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let election = election(connection, path)?.name(&options.shown_name());
    let mut stages = election.stages();
    let output = context.output.clone();
    let telling = tokio::spawn(async move {
        while let Some(stage) = stages.next().await {
            output.verbose(|| format!("election: {stage:?}"));
        }
    });
    let leadership = tokio::select! {
        leadership = election.campaign() => leadership.map_err(|error| failure(&error))?,
        number = signals.stop() => return Ok(signals::exit_code(number)),
    };
    let outcome = under(options, path, context, connection, &leadership, signals).await;
    // The command has ended and was reaped: now, and not before, another may lead.
    let resigned =
        tokio::time::timeout(std::time::Duration::from_secs(3), leadership.resign()).await;
    if !matches!(resigned, Ok(Ok(()))) {
        context.output.verbose(|| {
            format!("{path}: no server confirmed the resignation; the session's end does it")
        });
    }
    telling.abort();
    outcome
}

async fn under(
    options: &RunOptions,
    path: &str,
    context: &Context,
    connection: &Connection,
    leadership: &Leadership,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Leading<'a> {
        path: &'a str,
        node: &'a str,
        term: u64,
        token: u64,
    }
    let term = leadership.term();
    let session = connection.session().await?;
    let words = options.words();
    if words.is_empty() {
        let leading = Leading {
            path,
            node: leadership.node(),
            term: term.epoch,
            token: term.token,
        };
        let text = format!(
            "leading {path} term {} token {} node {}",
            term.epoch,
            term.token,
            leadership.node()
        );
        context.output.result(&leading, text);
        return match tenure::hold(leadership, signals).await {
            Ok(_) => Ok(exit::OK),
            Err(reason) => Err(Failure::new(
                exit::LOST,
                "lost",
                format!("leadership of {path} was lost: {reason}; run it again"),
            )),
        };
    }
    let acquired_at = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let command = Command {
        words,
        environment: vec![
            ("BATON_PATH", path.to_owned()),
            ("BATON_NODE", leadership.node().to_owned()),
            ("BATON_TOKEN", term.token.to_string()),
            ("BATON_TERM", term.epoch.to_string()),
            ("BATON_SESSION", format!("0x{:x}", session.id())),
            ("BATON_ACQUIRED_AT", acquired_at.to_string()),
        ],
        on_lost: options.on_lost,
        kill_after: options.notice(session.timeout())?,
        json: context.output.json(),
    };
    let outcome = tenure::run(context, leadership, &command, session.timeout(), signals).await?;
    tenure::verdict(&outcome, options.on_lost, &format!("leadership of {path}"))
}

async fn watch(path: &str, context: &Context) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    let connection = Connection::open(context, BRIEF).await?;
    let mut observer = election(&connection, path)?.observe();
    loop {
        tokio::select! {
            leader = observer.next() => tell(context, path, leader.map_err(|error| failure(&error))?.as_ref()),
            _ = signals.stop() => break,
        }
    }
    drop(observer);
    connection.close().await;
    Ok(exit::OK)
}

async fn show(path: &str, context: &Context) -> Result<u8, Failure> {
    let connection = Connection::open(context, BRIEF).await?;
    let leader = election(&connection, path)?
        .leader()
        .await
        .map_err(|error| failure(&error))?;
    tell(context, path, leader.as_ref());
    connection.close().await;
    Ok(if leader.is_some() {
        exit::OK
    } else {
        exit::NOTHING
    })
}

fn tell(context: &Context, path: &str, leader: Option<&Leader>) {
    #[derive(Serialize)]
    struct Shown<'a> {
        path: &'a str,
        leader: Option<String>,
        node: Option<&'a str>,
        token: Option<u64>,
        session: Option<String>,
        since_ms: Option<u64>,
    }
    let who = leader.map(|leader| match &leader.record {
        Some(record) => {
            let name = record
                .name
                .as_deref()
                .map(|name| format!(" ({name})"))
                .unwrap_or_default();
            format!("{}:{}{name}", record.host, record.pid)
        }
        None => String::from_utf8_lossy(&leader.data).into_owned(),
    });
    let text = match (leader, &who) {
        (Some(leader), Some(who)) => format!("{path} led by {who} token {}", leader.token),
        _ => format!("{path} has no leader"),
    };
    let shown = Shown {
        path,
        leader: who,
        node: leader.map(|leader| leader.node.as_str()),
        token: leader.map(|leader| leader.token),
        session: leader.map(|leader| format!("0x{:x}", leader.session_id)),
        since_ms: leader.and_then(|leader| Some(leader.record.as_ref()?.since_ms)),
    };
    context.output.result(&shown, text);
}

fn election(connection: &Connection, path: &str) -> Result<LeaderElection, Failure> {
    LeaderElection::new(&connection.client, path).map_err(|error| Failure::usage(error.to_string()))
}

fn failure(error: &ElectionError) -> Failure {
    match error {
        ElectionError::Line(error) => tenure::not_acquired(error),
        error => Failure::baton(error.to_string()),
    }
}

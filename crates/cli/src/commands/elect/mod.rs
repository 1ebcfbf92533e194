//! `baton elect`: a command for as long as this process leads.
//!
//! Owns the order of things: elected, hook, command, hook, resigned. Another may lead only when all
//! of it is over.

mod election;
mod endpoint;
mod leaders;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton::election::Stage;
use baton::lock::WaitProgress;
use baton::naming::Dialect;
use baton::{Leadership, LostReason};

use self::election::{ElectionSelector, election, failure};
use self::endpoint::Endpoint;
use super::listing;
use crate::access::AUTH_VARIABLE;
use crate::connection::Connection;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::paths::{self, Prefix};
use crate::run::guard;
use crate::run::nested::{self, LockRequest};
use crate::run::options::RunOptions;
use crate::run::stop::Stop;
use crate::run::supervise::{Command, SessionTicket};
use crate::run::tenure::{self, Tenure};
use crate::signals::{self, Signals};
use crate::waiting::{AwaitedEvent, Role};

/// Run a command while this process is the leader of a group.
///
/// Joins the election at PATH, waits until elected, runs CMD, and resigns when CMD has ended. If
/// leadership is about to be lost, CMD is stopped before another candidate can be elected. Without
/// CMD, leads until a signal comes.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_value_name = "ls|watch|show|resign",
    override_usage = "baton elect [OPTIONS] PATH [-- CMD...]\n       baton elect ls [PREFIX]\n       baton elect watch|show PATH\n       baton elect resign PATH [--token N] [--force]",
    after_help = "Examples:
  baton elect /scheduler -- ./scheduler        one of many runs it; the next
                                               takes over
  baton elect watch /scheduler --json          one line for each change
  baton elect resign /scheduler                ask the leader to stop and let
                                               the next one lead
  baton elect --http 127.0.0.1:4040 /scheduler -- ./scheduler
                                               GET / answers who leads
  baton elect --on-elected 'ip addr add …' --on-demoted 'ip addr del …' /vip

CMD finds in its environment what `baton lock` gives (BATON_PATH BATON_NODE
BATON_TOKEN BATON_SESSION BATON_ACQUIRED_AT), and BATON_TERM, which counts the
terms of this election: 1, 2, 3 …

Exit codes:  CMD's own   128+N CMD died of signal N
             113 leadership was lost, or resigned on request; CMD was
                 stopped
             125 baton failed   2 usage   126 CMD cannot be run
             127 CMD not found"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    admin: Option<Admin>,
    /// The election: a path like /scheduler, the same for all candidates.
    #[arg(required = true, value_name = "PATH", value_parser = paths::recipe)]
    path: Option<String>,
    /// Id that this candidate stores in its node, instead of Baton's record (host, pid, name).
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
    /// A file that holds this id.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        conflicts_with = "id"
    )]
    data: Option<PathBuf>,
    /// Library whose names to use, to compete with its processes: curator-latch, curator
    /// (LeaderSelector), kazoo, leader-election-support.
    #[arg(hide_short_help = true, long, value_name = "LIBRARY", default_value_t = Dialect::CuratorLatch)]
    dialect: Dialect,
    /// Run this line with sh -c once elected, before CMD. If it fails, resign with its exit code.
    #[arg(long, value_name = "LINE")]
    on_elected: Option<OsString>,
    /// Run this line with sh -c after a term, when CMD has ended. An orderly resignation waits for
    /// it.
    #[arg(long, value_name = "LINE")]
    on_demoted: Option<OsString>,
    /// Serve HTTP on this address: GET / answers 200 while this process leads, else 503, and names
    /// the leader.
    ///
    /// The answer is JSON: `leading`, `lease_ms`, `term`; `name` and `token` of the leader, and
    /// `age_ms`, how old that news may be.
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    #[command(flatten)]
    run: RunOptions,
}

#[derive(Debug, clap::Subcommand)]
enum Admin {
    /// List the elections.
    Ls(Prefix),
    /// Print who leads, and each change, until a signal comes.
    Watch {
        #[command(flatten)]
        which: ElectionSelector,
    },
    /// Print who leads. Exits with 1 if nobody does.
    Show {
        #[command(flatten)]
        which: ElectionSelector,
    },
    /// Ask the leader to stop its command and resign. Exits with 1 if nobody leads, or not the
    /// leader with --token.
    Resign {
        #[command(flatten)]
        which: ElectionSelector,
        /// Only the leader with this token, as `elect show` prints it.
        #[arg(long, value_name = "N")]
        token: Option<u64>,
        /// Do not ask: delete the leader's node. The leader is notified and stops, but the next
        /// candidate leads at once.
        #[arg(long)]
        force: bool,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    context.block_on(async {
        match (&args.admin, &args.path) {
            (Some(Admin::Ls(Prefix { prefix })), _) => listing::elections(context, prefix).await,
            (Some(Admin::Watch { which }), _) => leaders::watch(which, context).await,
            (Some(Admin::Show { which }), _) => leaders::show(which, context).await,
            (
                Some(Admin::Resign {
                    which,
                    token,
                    force,
                }),
                _,
            ) => leaders::resign(which, *token, *force, context).await,
            (None, Some(path)) => elect(args, path, context).await,
            (None, None) => Err(Failure::usage(
                "an election needs a path, like /scheduler; see baton elect --help",
            )),
        }
    })?
}

async fn elect(args: &Args, path: &str, context: &Context) -> Result<u8, Failure> {
    let options = &args.run;
    // Before there is a session: until then the answer is that this process does not lead.
    let endpoint = match &args.http {
        Some(address) => Some(Endpoint::open(address, path, context).await?),
        None => None,
    };
    let (connection, mut signals) = match options.open(context).await? {
        ControlFlow::Continue(opened) => opened,
        ControlFlow::Break(code) => return Ok(code),
    };
    let outcome = lead(args, path, context, &connection, endpoint, &mut signals).await;
    connection.close().await;
    outcome
}

async fn lead(
    args: &Args,
    path: &str,
    context: &Context,
    connection: &Connection,
    mut endpoint: Option<Endpoint>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut election = election(connection, path, args.dialect)?.name(&args.run.shown_name());
    if let Some(data) = own_data(args)? {
        election = election.data(&data);
    }
    if let Some(endpoint) = &mut endpoint {
        endpoint.observe(&connection.client, &election);
    }
    let mut stages = election.stages();
    let output = context.output.clone();
    let reporting = tokio::spawn(async move {
        while let Some(stage) = stages.next().await {
            output.verbose(|| format!("election: {}", stage_text(&stage)));
        }
    });
    let progress = WaitProgress::new();
    let election = election.progress(&progress);
    let awaited = AwaitedEvent::Turn {
        path,
        role: Role::Leader,
        progress,
    };
    let acquiring = async {
        nested::refuse(connection, path, LockRequest::Exclusive).await?;
        election.campaign().await.map_err(|error| failure(&error))
    };
    let leadership = tokio::select! {
        leadership = connection.wait(&awaited, acquiring) => leadership?,
        number = signals.stop() => return Ok(signals::ended_by(number)),
    };
    if let Some(endpoint) = &endpoint {
        endpoint.leads(&leadership);
    }
    // Hooks and command end before another leads, also where the lease ends first and the session
    // lives on.
    if let Err(reason) = leadership.keep_node() {
        return Err(Stop::Lost(reason).failure(&format!("leadership of {path}")));
    }
    let serving = ServingLeader {
        leadership: &leadership,
        environment: environment(path, connection, &leadership).await?,
    };
    let outcome = under(args, path, context, connection, &serving, signals).await;
    if let Some(line) = &args.on_demoted {
        demoted(line, &serving, context).await;
    }
    let what = format!("leadership of {path}");
    let resigning = leadership.resign();
    let outcome = tenure::conclude(context, outcome, args.run.on_lost, &what, resigning).await;
    reporting.abort();
    outcome
}

/// The data of this candidate's node, if it was given.
fn own_data(args: &Args) -> Result<Option<Vec<u8>>, Failure> {
    match (&args.id, &args.data) {
        (Some(id), _) => Ok(Some(id.clone().into_bytes())),
        (None, Some(file)) => std::fs::read(file).map(Some).map_err(|error| {
            let file = file.display();
            Failure::usage(format!(
                "--data {file}: {error}; name a file that can be read"
            ))
        }),
        (None, None) => Ok(None),
    }
}

/// A term, which also ends when somebody asks the leader to resign.
struct ServingLeader<'a> {
    leadership: &'a Leadership,
    environment: Vec<(&'static str, String)>,
}

impl Tenure for ServingLeader<'_> {
    fn what(&self) -> &'static str {
        "leadership"
    }
    fn remaining(&self) -> Duration {
        self.leadership.remaining()
    }
    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.leadership.lost()
    }
    fn asked(&self) -> impl Future<Output = ()> + Send + 'static {
        guard::asked(self.leadership.on_revoke())
    }
}

/// The environment of the command and the hooks.
async fn environment(
    path: &str,
    connection: &Connection,
    leadership: &Leadership,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let term = leadership.term();
    let session = connection.session().await?;
    let acquired_at = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    Ok(vec![
        ("BATON_PATH", path.to_owned()),
        ("BATON_NODE", leadership.node().to_owned()),
        ("BATON_TOKEN", term.token.to_string()),
        ("BATON_TERM", term.epoch.to_string()),
        ("BATON_SESSION", format!("0x{:x}", session.id())),
        ("BATON_ACQUIRED_AT", acquired_at.to_string()),
        nested::variable(&format!("0x{:x}", session.id()), leadership.node()),
    ])
}

/// Runs the hook for being elected and then the command; or, without a command, leads until a
/// signal.
async fn under(
    args: &Args,
    path: &str,
    context: &Context,
    connection: &Connection,
    serving: &ServingLeader<'_>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let hook = args.on_elected.as_ref().map(shell);
    if let Some(words) = hook {
        let code = serve(args, path, context, connection, serving, words, signals).await?;
        if code != exit::OK {
            context.output.note(format!(
                "--on-elected failed with exit code {code}: resigning from {path}"
            ));
            return Ok(code);
        }
    }
    let words = args.run.words();
    if !words.is_empty() {
        return serve(args, path, context, connection, serving, words, signals).await;
    }
    let term = serving.leadership.term();
    let node = serving.leadership.node();
    let leading = record! { path, node, term: term.epoch, token: term.token };
    let text = format!(
        "leading {path} term {} token {} node {node}",
        term.epoch, term.token
    );
    context.output.result(&leading, text);
    let leading = tenure::hold(serving, signals);
    match connection.wait(&AwaitedEvent::News { path }, leading).await {
        Ok(number) => Ok(signals::lasted_until(number)),
        Err(Stop::Asked) => Err(resigned(path)),
        Err(stop) => Err(stop.failure(&format!("leadership of {path}"))),
    }
}

fn shell(line: &OsString) -> Vec<OsString> {
    vec!["sh".into(), "-c".into(), line.clone()]
}

/// Runs one command for as long as the term lasts.
async fn serve(
    args: &Args,
    path: &str,
    context: &Context,
    connection: &Connection,
    serving: &ServingLeader<'_>,
    words: Vec<OsString>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let session = connection.session().await?;
    let timeout = session.timeout();
    let command = Command {
        words,
        environment: serving.environment.clone(),
        on_lost: args.run.on_lost,
        kill_after: args.run.notice(timeout)?,
        json: context.output.json(),
        input: None,
        session: SessionTicket::of(connection, &session),
    };
    let health = args.run.health()?;
    let outcome = tenure::run_while_held(
        context,
        serving,
        &command,
        health.as_ref(),
        timeout,
        signals,
    )
    .await?;
    if outcome.stop == Some(Stop::Asked) {
        return Err(resigned(path));
    }
    tenure::exit_code(&outcome, args.run.on_lost, &format!("leadership of {path}"))
}

/// The failure where the term ended because somebody asked the leader to resign.
fn resigned(path: &str) -> Failure {
    let text = format!("{path}: asked to resign, and did; run it again to be a candidate again");
    Failure::lost("resigned", text)
}

/// Runs the hook for the end of a term to its end, even if another process leads by then.
async fn demoted(line: &OsString, serving: &ServingLeader<'_>, context: &Context) {
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(line);
    command.envs(
        serving
            .environment
            .iter()
            .map(|(name, value)| (name, value)),
    );
    command.env_remove(AUTH_VARIABLE);
    command.stdin(std::process::Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.status()).await;
    match ended {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => context.output.note(format!(
            "--on-demoted failed: {status}; check what it left undone"
        )),
        Ok(Err(error)) => context.output.note(format!(
            "--on-demoted cannot be run: {error}; check the line"
        )),
        Err(_) => context.output.note("--on-demoted cannot be run"),
    }
}

/// A stage of the election, for people.
fn stage_text(stage: &Stage) -> String {
    match stage {
        Stage::Start => "begins".to_owned(),
        Stage::OfferStart => "creates its node".to_owned(),
        Stage::OfferComplete { node } => format!("its node is {node}"),
        Stage::DetermineStart => "reads its position".to_owned(),
        Stage::DetermineComplete { position } => format!("nodes before it: {position}"),
        Stage::ElectedStart => "first in the wait queue".to_owned(),
        Stage::ElectedComplete { term } => {
            format!("elected for term {}, token {}", term.epoch, term.token)
        }
        Stage::ReadyStart => "not first in the wait queue".to_owned(),
        Stage::ReadyComplete { following } => format!("follows {following}"),
        Stage::Failed { reason } => format!("failed: {reason}"),
        Stage::StopStart => "withdraws".to_owned(),
        Stage::StopComplete => "has withdrawn".to_owned(),
        other => format!("{other:?}"),
    }
}

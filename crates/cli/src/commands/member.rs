//! `baton member`: a command as a member of a group; who the members are.

use std::ffi::OsString;
use std::time::Duration;

use baton::membership::{GroupLayout, GroupUpdate, Member, MemberError, NodeState, Registration};
use baton::{LostReason, Membership};
use serde::Serialize;
use uuid::Uuid;

use super::listing;
use crate::connection::{BRIEF, Connection, LASTING, SessionOptions};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::bytes::{self, DataField};
use crate::output::record::record;
use crate::output::table::known;
use crate::paths;
use crate::run::supervise::{Command, OnLost, SessionTicket};
use crate::run::tenure::{self, Tenure};
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;

/// Be a member of a group while a command runs; list the members.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton member join /web -- ./server           a member while ./server runs
  baton member join /web --id eu-1 --data port=80 -- ./server
  baton member join /web                       a member until Ctrl-C
  baton member ls /web                         who is there
  baton member watch /web --json               one line for each change

A lost connection does not end the membership. After a lost session the next
session joins again; CMD is not stopped for that. Any number of members may
join: for one process at a time, use lock or elect.

CMD finds in its environment: BATON_PATH the group  BATON_NODE the member's node
BATON_SESSION the first session's id
Exit codes: CMD's own   128+N CMD died of signal N
            113 another process has taken over this --instance
            1 there is no member (ls)   125 baton failed   2 usage
            126 CMD cannot be run   127 CMD not found")]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    /// Naming scheme and data of members, to share the group with another library.
    #[arg(
        long,
        value_enum,
        default_value = "native",
        value_name = "LAYOUT",
        global = true
    )]
    layout: Layout,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Layout {
    /// Baton's: a line that says who it is, then the data. Curator's GroupMember sees these
    /// members.
    Native,
    /// Curator's GroupMember: only the data.
    Curator,
    /// kazoo's Party.
    Party,
    /// kazoo's ShallowParty.
    ShallowParty,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Be a member while CMD runs, or until a signal comes.
    Join(Join),
    /// Print the members; without a path, all groups.
    Ls {
        /// The group's path.
        #[arg(value_parser = paths::recipe)]
        path: Option<String>,
    },
    /// Print the members, and again at each change, until a signal comes.
    Watch {
        /// The group's path.
        #[arg(value_parser = paths::recipe)]
        path: String,
    },
}

#[derive(Debug, clap::Args)]
struct Join {
    /// The group: a path like /web, the same for all members.
    #[arg(value_parser = paths::recipe)]
    path: String,
    /// The id that the others see [default: host and process id].
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Data that the others see.
    #[arg(long, value_name = "TEXT", default_value = "")]
    data: OsString,
    /// A UUID that stays the same over restarts: the registration of an earlier process with the
    /// same UUID is taken over at once.
    #[arg(long, value_name = "UUID")]
    instance: Option<Uuid>,
    /// Session timeout: after this time without contact, the others see this member leave.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "10s")]
    session_timeout: Duration,
    /// Run this line with sh -c, instead of CMD.
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "command"
    )]
    line: Option<OsString>,
    /// The command and its arguments, after `--`.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let layout = match args.layout {
        Layout::Native => GroupLayout::Native,
        Layout::Curator => GroupLayout::GroupMember,
        Layout::Party => GroupLayout::Party,
        Layout::ShallowParty => GroupLayout::ShallowParty,
    };
    context.block_on(async {
        if let Act::Ls { path: None } = &args.act {
            return listing::groups(context).await;
        }
        let mut signals = Signals::new()?;
        let options = match &args.act {
            Act::Join(join) => SessionOptions {
                timeout: join.session_timeout,
                ..LASTING
            },
            Act::Ls { .. } => BRIEF,
            Act::Watch { .. } => LASTING,
        };
        let connecting = Connection::open(context, options);
        let connection = tokio::select! {
            connection = connecting => connection?,
            number = signals.stop() => return Ok(signals::ended_by(number)),
        };
        let path = match &args.act {
            Act::Join(Join { path, .. }) | Act::Watch { path } => path,
            Act::Ls { path } => path.as_deref().unwrap_or("/"),
        };
        let outcome = async {
            let group = Membership::new(&connection.client, path)
                .map_err(|error| failure(&error))?
                .layout(layout);
            match &args.act {
                Act::Join(options) => {
                    join(options, &group, context, &connection, &mut signals).await
                }
                Act::Ls { .. } => tokio::select! {
                    listed = list(&group, context) => listed,
                    failure = connection.failed() => Err(failure),
                    number = signals.stop() => Ok(signals::ended_by(number)),
                },
                Act::Watch { .. } => watch(&group, context, &connection, &mut signals).await,
            }
        }
        .await;
        connection.close().await;
        outcome
    })?
}

async fn join(
    options: &Join,
    group: &Membership,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let group = match options.instance {
        Some(instance) => group.clone().instance(instance),
        None => group.clone(),
    };
    let id = options.id.clone().unwrap_or_else(|| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        format!("{host}-{}", std::process::id())
    });
    let registration = group
        .join(&id, options.data.as_encoded_bytes())
        .map_err(|error| failure(&error))?;
    let awaited = AwaitedEvent::News { path: group.path() };
    let registered = tokio::select! {
        registered = connection.wait(&awaited, registration.registered()) => registered.map_err(|error| failure(&error))?,
        number = signals.stop() => return Ok(signals::ended_by(number)),
        never = report_obstacles(&registration, context) => match never {},
    };
    let (path, node) = (group.path(), registration.node().path());
    let session_id = format!("0x{:x}", registered.session_id);
    let words = match &options.line {
        Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
        None => options.command.clone(),
    };
    let tenure = RegisteredMember(&registration);
    let outcome = if words.is_empty() {
        let text = format!("joined {path} node {node} session {session_id}");
        let joined = record! { path, id: &id, node, session: session_id };
        context.output.result(&joined, text);
        let holding = tenure::hold(&tenure, signals);
        tokio::select! {
            held = connection.wait(&awaited, holding) => match held {
                Ok(number) => Ok(signals::lasted_until(number)),
                Err(_) => Err(ended(&registration)),
            },
            never = report_obstacles(&registration, context) => match never {},
        }
    } else {
        let session = connection.session().await?;
        let timeout = session.timeout();
        let command = Command {
            words,
            environment: vec![
                ("BATON_PATH", path.to_owned()),
                ("BATON_NODE", node.to_owned()),
                ("BATON_SESSION", session_id),
            ],
            on_lost: OnLost::Term,
            kill_after: (timeout * 3 / 10).min(Duration::from_secs(5)),
            json: context.output.json(),
            input: None,
            session: SessionTicket::of(connection, &session),
        };
        let ran = tokio::select! {
            ran = tenure::run_while_held(context, &tenure, &command, None, timeout, signals) => ran?,
            never = report_obstacles(&registration, context) => match never {},
        };
        match ran.stop {
            Some(_) => Err(ended(&registration)),
            None => Ok(ran.ended.outcome()),
        }
    };
    // If no server answers now, the end of the session removes the node.
    let _ = tokio::time::timeout(Duration::from_secs(3), registration.leave()).await;
    outcome
}

/// Membership lasts until it is given up: sessions come and go under it.
struct RegisteredMember<'a>(&'a Registration);

impl Tenure for RegisteredMember<'_> {
    fn what(&self) -> &'static str {
        "the membership"
    }

    fn remaining(&self) -> Duration {
        const YEARS: Duration = Duration::from_secs(1 << 30);
        YEARS
    }

    fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let ended = self.0.node().ended();
        async move {
            ended.await;
            LostReason::NodeGone
        }
    }
}

/// Reports why the registration is not there, whenever the reason changes.
async fn report_obstacles(
    registration: &Registration,
    context: &Context,
) -> std::convert::Infallible {
    let node = registration.node();
    let mut state = node.state();
    loop {
        match &state {
            NodeState::Blocked(error) => context.output.note(format!("not registered: {error}")),
            state => context
                .output
                .verbose(|| format!("registration: {state:?}")),
        }
        state = node.state_other_than(&state).await;
    }
}

fn ended(registration: &Registration) -> Failure {
    match registration.node().state() {
        NodeState::Ended(error) => Failure::lost("lost", error.to_string()),
        _ => Failure::lost("lost", "not registered any more; join again"),
    }
}

async fn list(group: &Membership, context: &Context) -> Result<u8, Failure> {
    let update = group.roll().await.map_err(|error| failure(&error))?;
    let members = &update.members;
    let rows = members.iter().map(|member| {
        let line = MemberRow::of(member);
        let process = known(member.record.as_ref());
        let data = bytes::beginning(&member.data);
        let cells = [line.id.to_owned(), process, line.session.clone(), data];
        (line, None, cells)
    });
    let titles = ["ID", "PROCESS", "SESSION", "DATA"];
    context.output.table(titles, rows);
    for node in &update.unreadable {
        context.output.passed_over(node, UNREADABLE);
    }
    Ok(if members.is_empty() || !update.unreadable.is_empty() {
        exit::NOTHING
    } else {
        exit::OK
    })
}

/// The notice for a node in the group that its ACL hides.
const UNREADABLE: &str = "its ACL does not let this program read it; it may be a member";

#[derive(Serialize)]
struct MemberRow<'a> {
    id: &'a str,
    node: &'a str,
    session: String,
    czxid: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(flatten)]
    data: DataField<'a>,
}

impl<'a> MemberRow<'a> {
    fn of(member: &'a Member) -> Self {
        let record = member.record.as_ref();
        Self {
            id: &member.id,
            node: &member.node,
            session: format!("0x{:x}", member.session_id),
            czxid: member.czxid,
            host: record.map(|record| &*record.host),
            pid: record.map(|record| record.pid),
            data: DataField::new(&member.data),
        }
    }
}

async fn watch(
    group: &Membership,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let mut view = group.updates().map_err(|error| failure(&error))?;
    let mut refused = std::pin::pin!(view.refused());
    let mut reported = false;
    let watching = async {
        loop {
            tokio::select! {
                update = view.next() => match update {
                    Ok(update) => print_update(context, &update),
                    Err(error) => break failure(&error),
                },
                error = &mut refused, if !reported => {
                    reported = true;
                    context.output.note(format!("{error}; trying again from time to time"));
                }
            }
        }
    };
    let awaited = AwaitedEvent::News { path: group.path() };
    tokio::select! {
        failure = connection.wait(&awaited, watching) => Err(failure),
        number = signals.stop() => Ok(signals::ended_by(number)),
    }
}

/// One line: everybody, then what is new.
fn print_update(context: &Context, update: &GroupUpdate) {
    #[derive(Serialize)]
    struct Update<'a> {
        members: Vec<&'a str>,
        joined: Vec<&'a str>,
        changed: Vec<&'a str>,
        left: Vec<&'a str>,
        as_of: i64,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        unreadable: Vec<&'a str>,
    }
    fn ids(members: &[Member]) -> Vec<&str> {
        members.iter().map(|member| &*member.id).collect()
    }
    let shown = Update {
        members: ids(&update.members),
        joined: ids(&update.joined),
        changed: ids(&update.changed),
        left: ids(&update.left),
        as_of: update.as_of,
        unreadable: update.unreadable.iter().map(String::as_str).collect(),
    };
    let mut text = format!(
        "{} members: {}",
        shown.members.len(),
        shown.members.join(" ")
    );
    for (what, ids) in [
        ("joined", &shown.joined),
        ("changed", &shown.changed),
        ("left", &shown.left),
        ("not readable", &shown.unreadable),
    ] {
        if !ids.is_empty() {
            text.push_str(&format!("; {what}: {}", ids.join(" ")));
        }
    }
    context.output.result(&shown, text);
}

fn failure(error: &MemberError) -> Failure {
    let text = error.to_string();
    match error {
        MemberError::BadPath { .. } | MemberError::BadId { .. } | MemberError::NoRoom { .. } => {
            Failure::usage(text)
        }
        MemberError::Superseded { .. } => Failure::lost("lost", text),
        _ => Failure::baton(text),
    }
}

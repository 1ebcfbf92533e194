//! The tree verbs: `ls get set create stat watch acl`.
//!
//! Thin over the client: one request each (but `ls -r` and `create -p`). They never retry a write.

use std::io::Read;

use baton_client::{AddWatchMode, CreateMode, Error, PersistentEvent, Reason, Session, Stat};
use serde::Serialize;

use crate::args::Context;
use crate::connect::{BRIEF, Connection, LASTING};
use crate::exit::{self, Failure};
use crate::paths;
use crate::signals::Signals;
use crate::verbs::bytes;
use crate::verbs::passed_over::PassedOver;
use crate::verbs::waiting::Awaited;

/// List a znode's children.
///
/// With -r, a znode whose children may not be listed is printed, and named on standard error; the
/// exit code is 1 then.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  baton ls -r /deploy")]
pub(crate) struct Ls {
    /// The znode.
    #[arg(value_name = "PATH", default_value = "/", value_parser = paths::legal)]
    path: String,
    /// Everything below, as full paths.
    #[arg(short, long)]
    recursive: bool,
}

/// Print a znode's data.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  baton get /config/limits --json")]
pub(crate) struct Get {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
}

/// Replace a znode's data.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  baton set /config/limits 25\n  baton set /config/limits --if-version 3 < limits.json"
)]
pub(crate) struct Set {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
    /// The new data [default: standard input].
    #[arg(value_name = "DATA")]
    data: Option<String>,
    /// Only if the data has this version.
    #[arg(long, value_name = "N")]
    if_version: Option<i32>,
}

/// Create a znode, and print its path.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  baton create -p /config/limits 25\n  baton create -p --sequential /orders/order- ''"
)]
pub(crate) struct Create {
    /// The znode.
    #[arg(value_name = "PATH")]
    path: String,
    /// Its data.
    #[arg(value_name = "DATA", default_value = "")]
    data: String,
    /// Have the server append a number.
    #[arg(long)]
    sequential: bool,
    /// Make it a container: deleted some time after its last child.
    #[arg(long, conflicts_with = "sequential")]
    container: bool,
    /// Make missing parents, too.
    #[arg(short, long)]
    parents: bool,
}

/// Print a znode's record: versions, times, owner.
#[derive(Debug, clap::Args)]
pub(crate) struct StatOf {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
}

/// Print each change of a znode and its children, until a signal comes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  baton watch -r / --json")]
pub(crate) struct Watch {
    /// The znode; it need not exist.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
    /// Of everything below, too.
    #[arg(short, long)]
    recursive: bool,
    /// End after so many changes.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Print who may do what with a znode.
#[derive(Debug, clap::Args)]
pub(crate) struct AclOf {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
}

/// A path as a result.
#[derive(Serialize)]
struct PathLine<'a> {
    path: &'a str,
}

/// A znode's record as a result.
#[derive(Serialize)]
struct StatLine<'a> {
    path: &'a str,
    czxid: i64,
    mzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    cversion: i32,
    aversion: i32,
    ephemeral_owner: String,
    data_length: i32,
    num_children: i32,
    pzxid: i64,
}

impl<'a> StatLine<'a> {
    fn new(path: &'a str, stat: &Stat) -> Self {
        Self {
            path,
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            ctime: stat.ctime,
            mtime: stat.mtime,
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: format!("0x{:x}", stat.ephemeral_owner),
            data_length: stat.data_length,
            num_children: stat.num_children,
            pzxid: stat.pzxid,
        }
    }

    fn text(&self) -> String {
        format!(
            "czxid {}\nmzxid {}\nctime {}\nmtime {}\nversion {}\ncversion {}\naversion {}\nephemeral_owner {}\n\
             data_length {}\nnum_children {}\npzxid {}",
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.cversion,
            self.aversion,
            self.ephemeral_owner,
            self.data_length,
            self.num_children,
            self.pzxid
        )
    }
}

/// `baton ls`.
pub(crate) fn ls(args: &Ls, context: &Context) -> Result<u8, Failure> {
    with_session(context, async |session| {
        let mut passed_over = PassedOver::default();
        let mut todo = vec![args.path.clone()];
        while let Some(path) = todo.pop() {
            let listed = session.children(&path).await;
            let mut names = match listed {
                Ok(children) => children.names,
                Err(error) if path == args.path => return Err(failure(error)),
                // Deleted since its parent was listed.
                Err(error) if error.is_no_node() => continue,
                Err(error) if error.is_no_auth() => {
                    passed_over.add(context, &path, &error);
                    Vec::new()
                }
                Err(error) => return Err(failure(error)),
            };
            names.sort_unstable();
            if args.recursive {
                context.output.result(&PathLine { path: &path }, &path);
                todo.extend(
                    names
                        .iter()
                        .rev()
                        .map(|name| baton_proto::path::join(&path, name)),
                );
                continue;
            }
            for name in names {
                context.output.result(
                    &PathLine {
                        path: &baton_proto::path::join(&path, &name),
                    },
                    &name,
                );
            }
        }
        Ok(passed_over.exit_code())
    })
}

/// `baton get`.
pub(crate) fn get(args: &Get, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Got<'a> {
        #[serde(flatten)]
        data: bytes::Shown<'a>,
        #[serde(flatten)]
        stat: StatLine<'a>,
    }
    with_session(context, async |session| {
        let read = session.get_data(&args.path).await.map_err(failure)?;
        let got = Got {
            data: bytes::Shown::new(&read.data),
            stat: StatLine::new(&args.path, &read.stat),
        };
        bytes::tell(context, &got, &read.data);
        Ok(exit::OK)
    })
}

/// `baton set`.
pub(crate) fn set(args: &Set, context: &Context) -> Result<u8, Failure> {
    let data = match &args.data {
        Some(data) => data.clone().into_bytes(),
        None => {
            let mut data = Vec::new();
            std::io::stdin()
                .lock()
                .read_to_end(&mut data)
                .map_err(|error| {
                    Failure::usage(format!(
                        "standard input cannot be read: {error}; give the data as an argument"
                    ))
                })?;
            data
        }
    };
    with_session(context, async |session| {
        let stat = session
            .set_data(&args.path, &data, args.if_version)
            .await
            .map_err(failure)?;
        context.output.result(
            &StatLine::new(&args.path, &stat),
            format!("version {}", stat.version),
        );
        Ok(exit::OK)
    })
}

/// `baton create`.
pub(crate) fn create(args: &Create, context: &Context) -> Result<u8, Failure> {
    if args.sequential {
        paths::legal_with_number(&args.path)
    } else {
        paths::legal(&args.path)
    }
    .map_err(Failure::usage)?;
    let mode = match (args.sequential, args.container) {
        (true, _) => CreateMode::PersistentSequential,
        (false, true) => CreateMode::Container,
        (false, false) => CreateMode::Persistent,
    };
    with_session(context, async |session| {
        if args.parents {
            make_parents(session, &args.path).await?;
        }
        let made = session
            .create(&args.path, args.data.as_bytes(), mode)
            .await
            .map_err(failure)?;
        context
            .output
            .result(&PathLine { path: &made.path }, &made.path);
        Ok(exit::OK)
    })
}

async fn make_parents(session: &Session, path: &str) -> Result<(), Failure> {
    let slashes: Vec<usize> = path
        .match_indices('/')
        .map(|(at, _)| at)
        .filter(|at| *at > 0)
        .collect();
    for at in slashes {
        let parent = path.split_at(at).0;
        match session.create(parent, b"", CreateMode::Persistent).await {
            Ok(_) => {}
            Err(error) if error.is_node_exists() => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(())
}

/// `baton stat`.
pub(crate) fn stat(args: &StatOf, context: &Context) -> Result<u8, Failure> {
    with_session(context, async |session| {
        match session.exists(&args.path).await.map_err(failure)? {
            Some(stat) => {
                let line = StatLine::new(&args.path, &stat);
                context.output.paragraph(&line, line.text());
                Ok(exit::OK)
            }
            None => Err(Failure::new(
                exit::NOTHING,
                "no_node",
                format!(
                    "{}: no such znode; see baton ls for what is there",
                    args.path
                ),
            )),
        }
    })
}

/// `baton watch`.
pub(crate) fn watch(args: &Watch, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Changed<'a> {
        event: String,
        path: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        zxid: Option<i64>,
    }
    let mode = if args.recursive {
        AddWatchMode::PersistentRecursive
    } else {
        AddWatchMode::Persistent
    };
    let show = |event: PersistentEvent| match event {
        PersistentEvent::Change(change) => {
            let event = format!("{:?}", change.kind);
            let text = format!("{event} {}", change.path);
            let path = &change.path;
            let zxid = change.zxid;
            context.output.result(&Changed { event, path, zxid }, text);
        }
        PersistentEvent::Resync => {
            let path = &args.path;
            let text = format!("Resync {path} (changes may have been missed: read anew)");
            let event = "Resync".to_owned();
            let zxid = None;
            context.output.result(&Changed { event, path, zxid }, text);
        }
    };
    context.block_on(async {
        let mut signals = Signals::new()?;
        let connection = tokio::select! {
            connection = Connection::open(context, LASTING) => connection?,
            _ = signals.stop() => return Ok(exit::OK),
        };
        let watching = async {
            let mut seen = 0;
            // Of the session that was watched on before, if any.
            let mut is_lost = false;
            loop {
                let session = connection.session().await?;
                let mut events = match session.watch_persistent(&args.path, mode).await {
                    Ok(events) => events,
                    Err(error) if session.state().is_final() || is_passing(&error) => continue,
                    Err(error) => return Err(failure(error)),
                };
                context.output.verbose(|| format!("watching {}", args.path));
                if is_lost {
                    show(PersistentEvent::Resync);
                }
                loop {
                    if args.count.is_some_and(|count| seen >= count) {
                        return Ok(exit::OK);
                    }
                    let Ok(event) = events.next().await else {
                        break;
                    };
                    seen += u64::from(matches!(event, PersistentEvent::Change(_)));
                    show(event);
                }
                is_lost = true;
            }
        };
        let awaited = Awaited::News { path: &args.path };
        let outcome = tokio::select! {
            outcome = connection.wait(&awaited, watching) => outcome,
            _ = signals.stop() => Ok(exit::OK),
        };
        connection.close().await;
        outcome
    })?
}

/// Whether a request was lost with its connection, so that it may be sent on the next one.
fn is_passing(error: &Error) -> bool {
    matches!(
        error,
        Error::NotSent {
            reason: Reason::Disconnected | Reason::ConnectionLost,
            ..
        } | Error::Unanswered {
            reason: Reason::Disconnected | Reason::ConnectionLost,
            ..
        } | Error::MaybeApplied {
            reason: Reason::Disconnected | Reason::ConnectionLost,
            ..
        }
    )
}

/// `baton acl`.
pub(crate) fn acl(args: &AclOf, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Entry<'a> {
        perms: &'a str,
        scheme: &'a str,
        id: &'a str,
    }
    with_session(context, async |session| {
        let (entries, _) = session.get_acl(&args.path).await.map_err(failure)?;
        for entry in &entries {
            let bits = entry.perms.0;
            let perms: String = "rwcda"
                .chars()
                .enumerate()
                .filter(|(at, _)| bits & (1 << at) != 0)
                .map(|(_, letter)| letter)
                .collect();
            let text = format!("{perms} {} {}", entry.scheme, entry.id);
            context.output.result(
                &Entry {
                    perms: &perms,
                    scheme: &entry.scheme,
                    id: &entry.id,
                },
                text,
            );
        }
        Ok(exit::OK)
    })
}

/// Runs `work` on a session of its own, which ends with it.
pub(super) fn with_session(
    context: &Context,
    work: impl AsyncFnOnce(&Session) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    context.block_on(async {
        let connection = Connection::open(context, BRIEF).await?;
        let outcome = match connection.session().await {
            Ok(session) => work(&session).await,
            Err(failure) => Err(failure),
        };
        connection.close().await;
        outcome
    })?
}

/// A refusal of the server is an answer (exit code 1); anything else is a failure of baton (125).
pub(super) fn failure(error: Error) -> Failure {
    let (exit_code, kind) = match &error {
        Error::Rejected { .. } | Error::MultiRejected { .. } => (exit::NOTHING, "rejected"),
        _ if matches!(error.reason(), Some(Reason::BadPath(_))) => (exit::USAGE, "usage"),
        _ => (exit::BATON, "baton"),
    };
    Failure::new(exit_code, kind, error.to_string())
}

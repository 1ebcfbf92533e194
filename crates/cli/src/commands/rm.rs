//! `baton rm`: one znode, or with `-r` all below it.
//!
//! Owns what a recursive removal says before it begins, and what it leaves. A node of a live
//! session (a held lock, a member, a claimed item) is deleted only with consent: the subtree is
//! searched for such nodes before anything is deleted, and each node is checked again. Memory is
//! bounded by the names of a few folders, and the rounds over a folder that others fill are
//! limited.

use std::time::Duration;

use baton::inspect::{Inspector, LockKind};
use baton_client::{Children, Session};
use baton_proto::path::{join, parent};

use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::confirm::{self, Answer};
use crate::output::record::record;
use crate::paths;
use crate::znode::failure;

/// Nodes that are listed or deleted at once.
const AT_ONCE: usize = 128;
/// The names of a larger folder are not kept while another is worked on.
const KEPT_NAMES: usize = 1000;
/// Number of times that a folder is emptied again because others have put something there.
const ROUNDS: u32 = 20;
/// The most rounds over all folders.
const ROUNDS_IN_ALL: u32 = 10 * ROUNDS;
/// Growth of the pauses between those.
const PAUSE: Duration = Duration::from_millis(10);
/// Nodes that are named where there may be any number of them.
const NAMED: usize = 10;
/// The number of nodes that are named in the one line of an error.
const IN_ONE_LINE: usize = 3;
/// The subtree that belongs to the servers.
const SYSTEM: &str = "/zookeeper";

/// Delete a znode.
///
/// With -r, everything below it too. A node of a live session, like a held lock, is deleted only
/// with --yes, or after a yes on the terminal; otherwise the exit code is 1, and nothing is
/// deleted. If others create nodes in a folder meanwhile, it is emptied again, up to twenty times.
/// The nodes / and /zookeeper are never deleted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  baton rm /config/limits --if-version 3\n  baton rm -r /old\n  baton rm -r --dry-run /prod"
)]
pub(crate) struct Args {
    /// The znode.
    #[arg(value_name = "PATH", value_parser = paths::legal)]
    path: String,
    /// Delete all descendants, too.
    #[arg(short, long, conflicts_with = "if_version")]
    recursive: bool,
    /// Do not ask: also delete nodes of live sessions.
    #[arg(short, long, requires = "recursive")]
    yes: bool,
    /// Delete nothing: print what would be deleted, and which nodes live sessions hold.
    #[arg(long, requires = "recursive", conflicts_with = "yes")]
    dry_run: bool,
    /// Only if its data has this version.
    #[arg(long, value_name = "N")]
    if_version: Option<i32>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if args.recursive && args.path == SYSTEM {
        return Err(Failure::new(
            exit::NOTHING,
            "rejected",
            format!("{SYSTEM} belongs to the servers and is never deleted; name a path outside it"),
        ));
    }
    context.block_on(Connection::during(
        context,
        BRIEF,
        async |connection: &Connection| {
            let session = connection.session().await?;
            if args.recursive {
                let inspector = Inspector::new(&connection.client);
                return remove_all(&session, &inspector, args, context).await;
            }
            session
                .delete(&args.path, args.if_version)
                .await
                .map_err(failure)?;
            print_deleted(context, &args.path);
            Ok(exit::OK)
        },
    ))?
}

fn print_deleted(context: &Context, path: &str) {
    if context.output.json() {
        context.output.result(&record! { deleted: path }, "");
    } else {
        context.output.verbose(|| format!("deleted {path}"));
    }
}

async fn remove_all(
    session: &Session,
    inspector: &Inspector,
    args: &Args,
    context: &Context,
) -> Result<u8, Failure> {
    let path = &args.path;
    // Below a chroot, a node of that name is like any other.
    let spares_system = path == "/"
        && session
            .exists("/zookeeper/quota")
            .await
            .map_err(failure)?
            .is_some();
    let walk = Walk {
        session,
        path,
        spares_system,
    };
    let mut consent = args.yes;
    if !consent {
        let survey = walk.survey(context, args.dry_run).await?;
        let held = survey.describe(inspector).await;
        if args.dry_run {
            for line in &held {
                context.output.note(format!("held: {line}"));
            }
            return Ok(exit::OK);
        }
        if survey.held > 0 || path == "/" {
            let shown: Vec<_> = held.iter().map(|line| format!("held: {line}")).collect();
            consent = match confirm::ask(&shown, &survey.question(path)) {
                Answer::Yes => true,
                Answer::No => {
                    return Err(refused("declined", format!("{path}: nothing was deleted")));
                }
                Answer::Nobody if survey.held == 0 => false,
                Answer::Nobody => return Err(survey.refusal(path, &held)),
            };
        }
    }
    let mut removal = Removal {
        walk: &walk,
        context,
        consent,
        deleted: 0,
        left: 0,
        named: Vec::new(),
        rounds: 0,
    };
    removal.run().await?;
    if path == "/" {
        let but = if spares_system {
            format!(" but {SYSTEM}, which belongs to the servers")
        } else {
            String::new()
        };
        if removal.left == 0 {
            context
                .output
                .note(format!("/: everything below it was deleted{but}"));
        }
    }
    removal.outcome()
}

fn refused(kind: &'static str, text: String) -> Failure {
    Failure::new(exit::NOTHING, kind, text)
}

/// The way through a subtree.
struct Walk<'a> {
    session: &'a Session,
    path: &'a str,
    /// Whether what belongs to the servers is passed over.
    spares_system: bool,
}

/// A folder under way.
struct Frame {
    path: String,
    /// Children still to be visited; `None` where they are to be listed.
    names: Option<Vec<String>>,
    rounds: u32,
    /// Whether something below it stays, so that it has to stay too.
    stays: bool,
}

impl Frame {
    fn new(path: String, names: Vec<String>) -> Self {
        Self {
            path,
            names: Some(names).filter(|names| names.len() <= KEPT_NAMES),
            rounds: 0,
            stays: false,
        }
    }

    /// The full paths of the next children.
    fn next(&mut self) -> Vec<String> {
        let names = self.names.get_or_insert_default();
        let rest = names.len().saturating_sub(AT_ONCE);
        let next = names.split_off(rest);
        next.iter().map(|name| join(&self.path, name)).collect()
    }
}

impl Walk<'_> {
    /// The children of a node, without those that are passed over; `None` where it is gone.
    async fn list(&self, path: &str) -> Result<Option<Children>, baton_client::Error> {
        match self.session.children(path).await {
            Ok(mut children) => {
                if self.spares_system && path == "/" {
                    children.names.retain(|name| name != "zookeeper");
                }
                Ok(Some(children))
            }
            Err(error) if error.is_no_node() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The node at the top, which has to be there.
    async fn top(&self) -> Result<Children, Failure> {
        let mut children = self.session.children(self.path).await.map_err(failure)?;
        if self.spares_system {
            children.names.retain(|name| name != "zookeeper");
        }
        Ok(children)
    }

    /// Whether a node is one that is never deleted.
    fn keeps(&self, path: &str) -> bool {
        path == "/"
    }

    /// Visits all nodes, and prints them if they are to be shown.
    async fn survey(&self, context: &Context, show: bool) -> Result<Survey, Failure> {
        let mut survey = Survey::default();
        let top = self.top().await?;
        let mut see = |path: &str, owner: i64| {
            if self.keeps(path) {
                return;
            }
            survey.nodes += 1;
            if owner != 0 {
                survey.held += 1;
                if survey.named.len() < NAMED {
                    survey.named.push((path.to_owned(), owner));
                }
            }
            if show {
                would(context, path, owner);
            }
        };
        see(self.path, top.stat.ephemeral_owner);
        let mut frames = vec![Frame::new(self.path.to_owned(), top.names)];
        while let Some(frame) = frames.last_mut() {
            if frame.names.is_none() {
                let listed = self.list(&frame.path).await;
                frame.names = Some(match listed {
                    Ok(children) => children.map_or_else(Vec::new, |children| children.names),
                    Err(error) if error.is_no_auth() => Vec::new(),
                    Err(error) => return Err(failure(error)),
                });
            }
            let paths = frame.next();
            if paths.is_empty() {
                frames.pop();
                continue;
            }
            let asked: Vec<_> = paths
                .into_iter()
                .map(|path| {
                    let listing = self.session.children(&path);
                    (path, listing)
                })
                .collect();
            for (path, listing) in asked {
                match listing.await {
                    Ok(children) => {
                        see(&path, children.stat.ephemeral_owner);
                        if !children.names.is_empty() {
                            frames.push(Frame::new(path, children.names));
                        }
                    }
                    Err(error) if error.is_no_node() => {}
                    // Its owner is unknown; if the removal fails on it, the error says so.
                    Err(error) if error.is_no_auth() => see(&path, 0),
                    Err(error) => return Err(failure(error)),
                }
            }
        }
        Ok(survey)
    }
}

/// Prints a node that would be deleted.
fn would(context: &Context, path: &str, owner: i64) {
    let session = (owner != 0).then(|| format!("0x{owner:x}"));
    context
        .output
        .result(&record! { path, would_delete: true, ?session }, path);
}

/// The nodes of a subtree: how many, and which of them live sessions own.
#[derive(Debug, Default)]
struct Survey {
    nodes: u64,
    /// Number of them that belong to live sessions.
    held: u64,
    /// The first of those, with their sessions.
    named: Vec<(String, i64)>,
}

impl Survey {
    fn question(&self, path: &str) -> String {
        match self.held {
            0 => format!("delete {} nodes, all below {path}?", self.nodes),
            held => format!(
                "delete {path} with {} nodes, {held} of which belong to live sessions?",
                self.nodes
            ),
        }
    }

    fn refusal(&self, path: &str, held: &[String]) -> Failure {
        let named = held.get(..IN_ONE_LINE).unwrap_or(held).join("; ");
        refused(
            "held",
            format!(
                "{path}: nothing was deleted, because live sessions hold {} of its nodes: {named}; stop those who use them, or delete them all the same with --yes",
                self.held
            ),
        )
    }

    /// One line for each lock, or other folder, in which live sessions have nodes.
    async fn describe(&self, inspector: &Inspector) -> Vec<String> {
        let mut lines = Vec::new();
        let mut described: Vec<String> = Vec::new();
        for (node, owner) in &self.named {
            let folder = parent(node);
            if described.iter().any(|path| path == folder) {
                continue;
            }
            // The permits of a semaphore, and those who wait for one, are in folders of its own.
            let above = parent(folder);
            let mut line = None;
            for path in [above, folder] {
                // A user who may not read the record is shown the node and its session.
                let Ok(found) = inspector.lock(path).await else {
                    continue;
                };
                let inside = path == folder || found.kind == LockKind::Semaphore;
                if inside && let Some(first) = found.nodes().next() {
                    let waiting = found.waiters.len();
                    line = Some(format!("{path} by {first}, {waiting} waiting"));
                    described.push(folder.to_owned());
                    if path == above {
                        described.extend(["leases", "locks"].map(|name| join(above, name)));
                    }
                    break;
                }
            }
            lines.push(line.unwrap_or_else(|| format!("{node} by session 0x{owner:x}")));
        }
        let named = u64::try_from(self.named.len()).unwrap_or(u64::MAX);
        if self.held > named {
            lines.push(format!("and {} more nodes", self.held - named));
        }
        lines
    }
}

/// A removal under way.
struct Removal<'a> {
    walk: &'a Walk<'a>,
    context: &'a Context,
    /// Whether what live sessions hold may go, too.
    consent: bool,
    deleted: u64,
    left: u64,
    named: Vec<String>,
    /// Number of times that a folder was emptied again.
    rounds: u32,
}

impl Removal<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let top = self.walk.top().await?;
        let mut frames = vec![Frame::new(self.walk.path.to_owned(), top.names)];
        if top.stat.ephemeral_owner != 0 && !self.consent {
            self.leave(self.walk.path, "a live session holds it");
            return Ok(());
        }
        while let Some(mut frame) = frames.pop() {
            if frame.names.is_none() {
                match self.walk.list(&frame.path).await {
                    Ok(Some(children)) => frame.names = Some(children.names),
                    Ok(None) => continue,
                    Err(error) if error.is_no_auth() => {
                        self.leave(&frame.path, "its children may not be listed");
                        stays(&mut frames, &frame.path);
                        continue;
                    }
                    Err(error) => return Err(self.broken(error)),
                }
            }
            let paths = frame.next();
            if !paths.is_empty() {
                let inner = self.some(&mut frame, paths).await?;
                frames.push(frame);
                frames.extend(inner);
                continue;
            }
            if self.walk.keeps(&frame.path) && !frame.stays {
                // What has come meanwhile goes as well.
                if self.again(&mut frame, &mut frames).await? {
                    frames.push(frame);
                }
                continue;
            }
            if frame.stays {
                stays(&mut frames, &frame.path);
                continue;
            }
            match self.walk.session.delete(&frame.path, None).await {
                Ok(()) => self.gone(&frame.path),
                Err(error) if error.is_no_node() => {}
                Err(error) if error.is_not_empty() => {
                    if self.again(&mut frame, &mut frames).await? {
                        frames.push(frame);
                    }
                }
                Err(error) if error.code().is_some() => {
                    self.leave(&frame.path, &error.to_string());
                    stays(&mut frames, &frame.path);
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
        Ok(())
    }

    /// Deletes those of these children that have none themselves; the others are to be emptied
    /// first.
    async fn some(&mut self, frame: &mut Frame, paths: Vec<String>) -> Result<Vec<Frame>, Failure> {
        let session = self.walk.session;
        let asked: Vec<_> = paths
            .into_iter()
            .map(|path| {
                let listing = session.children(&path);
                (path, listing)
            })
            .collect();
        let mut inner = Vec::new();
        let mut deleting = Vec::new();
        for (path, listing) in asked {
            let names = match listing.await {
                Ok(children) if children.stat.ephemeral_owner != 0 && !self.consent => {
                    // It was not there when it was asked for consent.
                    self.leave(&path, "a live session holds it");
                    frame.stays = true;
                    continue;
                }
                Ok(children) => children.names,
                Err(error) if error.is_no_node() => continue,
                // It may be deleted all the same, if it has no children.
                Err(error) if error.is_no_auth() => Vec::new(),
                Err(error) => return Err(self.broken(error)),
            };
            if names.is_empty() {
                let deletion = session.delete(&path, None);
                deleting.push((path, deletion));
            } else {
                inner.push(Frame::new(path, names));
            }
        }
        for (path, deletion) in deleting {
            match deletion.await {
                Ok(()) => self.gone(&path),
                Err(error) if error.is_no_node() => {}
                // It has got children since, or they may not be listed.
                Err(error) if error.is_not_empty() => inner.push(Frame {
                    path,
                    names: None,
                    rounds: 0,
                    stays: false,
                }),
                Err(error) if error.code().is_some() => {
                    self.leave(&path, &error.to_string());
                    frame.stays = true;
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
        Ok(inner)
    }

    /// Has a folder listed once more that others have put something into; `false` where that has
    /// gone on for too long.
    async fn again(&mut self, frame: &mut Frame, frames: &mut [Frame]) -> Result<bool, Failure> {
        frame.rounds += 1;
        self.rounds += 1;
        if frame.rounds > 1 {
            tokio::time::sleep(PAUSE * frame.rounds).await;
        }
        let listed = self.walk.list(&frame.path).await;
        let names = match listed.map_err(|error| self.broken(error))? {
            Some(children) => children.names,
            None => return Ok(false),
        };
        if self.walk.keeps(&frame.path) && names.is_empty() {
            return Ok(false);
        }
        if frame.rounds > ROUNDS || self.rounds > ROUNDS_IN_ALL {
            self.leave(&frame.path, "others keep creating nodes there");
            stays(frames, &frame.path);
            return Ok(false);
        }
        frame.names = Some(names);
        Ok(true)
    }

    fn gone(&mut self, path: &str) {
        self.deleted += 1;
        print_deleted(self.context, path);
    }

    fn leave(&mut self, path: &str, why: &str) {
        self.left += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("{path} ({why})"));
        }
    }

    /// Half of it is done, and the rest is not.
    fn broken(&self, error: baton_client::Error) -> Failure {
        let Failure {
            exit_code,
            kind,
            text,
        } = failure(error);
        Failure::new(
            exit_code,
            kind,
            format!(
                "{}: stopped after {} nodes were deleted: {text}",
                self.walk.path, self.deleted
            ),
        )
    }

    fn outcome(&self) -> Result<u8, Failure> {
        if self.left == 0 {
            return Ok(exit::OK);
        }
        let named = self
            .named
            .get(..IN_ONE_LINE)
            .unwrap_or(&self.named)
            .join("; ");
        let more = match self.left.saturating_sub(IN_ONE_LINE as u64) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Err(refused(
            "left",
            format!(
                "{}: {} nodes were deleted, but not all: {named}{more}; stop those who use them, then repeat it",
                self.walk.path, self.deleted
            ),
        ))
    }
}

/// Marks the parent of a node that stays: it stays, too.
fn stays(frames: &mut [Frame], path: &str) {
    let above = parent(path);
    if let Some(above) = frames.iter_mut().rev().find(|frame| frame.path == above) {
        above.stays = true;
    }
}

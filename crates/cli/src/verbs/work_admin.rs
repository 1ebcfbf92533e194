//! The looks at a work queue, and what is done with dead letters, from the command line.

use baton::WorkQueue;
use serde::Serialize;

use crate::args::Context;
use crate::connect::Connection;
use crate::duration;
use crate::exit::{self, Failure};
use crate::paths;
use crate::verbs::bytes;
use crate::verbs::work::{failure, open};

/// Dead letters that one call shows or replays.
const MANY: usize = 1000;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Looked {
    /// Show how much is in the queue. Exits with 1 where there is no queue.
    Depth {
        /// The queue's path.
        #[arg(value_parser = paths::legal)]
        path: String,
    },
    /// List the items that somebody works on.
    Claims {
        /// The queue's path.
        #[arg(value_parser = paths::legal)]
        path: String,
    },
    /// List the dead letters: what was tried too often, or could not be read.
    Dead {
        /// The queue's path.
        #[arg(value_parser = paths::legal)]
        path: String,
    },
    /// Put dead letters back into the queue, their attempts counted anew.
    Replay {
        /// The queue's path.
        #[arg(value_parser = paths::legal)]
        path: String,
        /// Their names, as `dead` lists them.
        #[arg(value_name = "NAME", required_unless_present = "all")]
        names: Vec<String>,
        /// All of them.
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Remove dead letters for good.
    Discard {
        /// The queue's path.
        #[arg(value_parser = paths::legal)]
        path: String,
        /// Their names, as `dead` lists them.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// Does what was asked.
pub(super) async fn look(
    looked: &Looked,
    context: &Context,
    connection: &Connection,
) -> Result<u8, Failure> {
    match looked {
        Looked::Depth { path } => depth(&open(connection, path)?, context).await,
        Looked::Claims { path } => claims(&open(connection, path)?, context).await,
        Looked::Dead { path } => dead(&open(connection, path)?, context).await,
        Looked::Replay { path, names, all } => {
            let queue = open(connection, path)?;
            let mut names = names.clone();
            loop {
                if *all {
                    let letters = queue.dead_letters(MANY).await.map_err(failure)?;
                    names = letters.into_iter().map(|letter| letter.name).collect();
                }
                for name in &names {
                    queue.replay(name).await.map_err(failure)?;
                }
                if !*all || names.is_empty() {
                    return Ok(exit::OK);
                }
            }
        }
        Looked::Discard { path, names } => {
            let queue = open(connection, path)?;
            for name in names {
                queue.discard(name).await.map_err(failure)?;
            }
            Ok(exit::OK)
        }
    }
}

async fn depth(queue: &WorkQueue, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Shown<'a> {
        path: &'a str,
        items: u64,
        delayed: u64,
        dead: u64,
        oldest_ms: Option<u128>,
        capacity: Option<u64>,
    }
    let Some(depth) = queue.depth().await.map_err(failure)? else {
        return Ok(exit::NOTHING);
    };
    let shown = Shown {
        path: queue.path(),
        items: depth.items,
        delayed: depth.delayed,
        dead: depth.dead,
        oldest_ms: depth.oldest.map(|age| age.as_millis()),
        capacity: depth.capacity,
    };
    let oldest = depth.oldest.map_or("-".to_owned(), duration::show);
    let text = format!(
        "items {}  delayed {}  dead {}  oldest {oldest}  capacity {}",
        depth.items,
        depth.delayed,
        depth.dead,
        depth
            .capacity
            .map_or("-".to_owned(), |items| items.to_string())
    );
    context.output.result(&shown, text);
    Ok(exit::OK)
}

async fn claims(queue: &WorkQueue, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Shown<'a> {
        item: &'a str,
        id: &'a str,
        attempt: u32,
        token: u64,
        session: String,
        host: Option<&'a str>,
        pid: Option<u32>,
        name: Option<&'a str>,
    }
    for claim in queue.claims().await.map_err(failure)? {
        let record = claim.record.as_ref();
        let shown = Shown {
            item: &claim.item,
            id: &claim.id,
            attempt: claim.attempt,
            token: claim.token,
            session: format!("0x{:x}", claim.session),
            host: record.map(|record| record.host.as_str()),
            pid: record.map(|record| record.pid),
            name: record.and_then(|record| record.name.as_deref()),
        };
        let who = record.map_or(String::new(), |record| {
            format!(
                "  {}:{} {}",
                record.host,
                record.pid,
                record.name.as_deref().unwrap_or_default()
            )
        });
        let text = format!(
            "{}  attempt {}  token {}{who}",
            claim.id, claim.attempt, claim.token
        );
        context.output.result(&shown, text);
    }
    Ok(exit::OK)
}

async fn dead(queue: &WorkQueue, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Shown<'a> {
        name: &'a str,
        id: &'a str,
        priority: u16,
        attempts: u32,
        reason: &'a str,
        #[serde(flatten)]
        data: bytes::Shown<'a>,
    }
    let letters = queue.dead_letters(MANY).await.map_err(failure)?;
    if letters.len() == MANY {
        context
            .output
            .note(format!("only the first {MANY} are shown"));
    }
    for letter in letters {
        let shown = Shown {
            name: &letter.name,
            id: &letter.id,
            priority: letter.priority,
            attempts: letter.attempts,
            reason: &letter.reason,
            data: bytes::Shown::new(&letter.payload),
        };
        let text = format!(
            "{}  {}  {} attempts  {}",
            letter.name, letter.id, letter.attempts, letter.reason
        );
        context.output.result(&shown, text);
    }
    Ok(exit::OK)
}

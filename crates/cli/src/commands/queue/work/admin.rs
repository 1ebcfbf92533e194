//! Administration of a work queue, its dead letters, purge and repair: the verbs of `queue work`
//! that claim nothing.

use baton::WorkQueue;
use serde::Serialize;

use super::handle::{QueuePath, failure};
use crate::connection::Connection;
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::bytes;
use crate::output::confirm::{self, Answer};
use crate::output::record::record;
use crate::output::table::known;

/// Dead letters that one call shows or replays.
const MANY: usize = 1000;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum AdminVerb {
    /// Show the number of items, by state.
    Depth(QueuePath),
    /// List the claimed items and their workers.
    Claims(QueuePath),
    /// List the dead letters, which failed too often.
    Dead(QueuePath),
    /// Put dead letters back into the queue.
    Replay {
        #[command(flatten)]
        queue: QueuePath,
        /// Their names, as `dead` lists them.
        #[arg(value_name = "NAME", required_unless_present = "all")]
        names: Vec<String>,
        /// All of them.
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Remove dead letters for good.
    Discard {
        #[command(flatten)]
        queue: QueuePath,
        /// Their names, as `dead` lists them.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Remove all items that nobody has claimed.
    ///
    /// Delayed ones among them; their ids are free again. On a terminal it asks first. Prints how
    /// many were removed, and how many were left because somebody works on them. Exits with 1 where
    /// there is no queue, and where the answer is no.
    Purge {
        #[command(flatten)]
        queue: QueuePath,
        /// The dead letters, too.
        #[arg(long)]
        dead: bool,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
    },
    /// Create missing nodes of the queue again.
    ///
    /// Their paths are printed. put and take do this by themselves, except for the node of the ids
    /// while the queue has items: after a repair, a second item with the id of one in the queue can
    /// be put.
    Repair(QueuePath),
}

/// Does what was asked.
pub(super) async fn run(
    verb: &AdminVerb,
    context: &Context,
    connection: &Connection,
) -> Result<u8, Failure> {
    match verb {
        AdminVerb::Depth(queue) => depth(&queue.open(connection)?, context).await,
        AdminVerb::Claims(queue) => claims(&queue.open(connection)?, context).await,
        AdminVerb::Dead(queue) => dead(&queue.open(connection)?, context).await,
        AdminVerb::Replay { queue, names, all } => {
            let queue = queue.open(connection)?;
            let mut names = names.clone();
            loop {
                if *all {
                    let letters = queue.oldest_dead_letters(MANY).await.map_err(failure)?;
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
        AdminVerb::Discard { queue, names } => {
            let queue = queue.open(connection)?;
            for name in names {
                queue.discard(name).await.map_err(failure)?;
            }
            Ok(exit::OK)
        }
        AdminVerb::Purge { queue, dead, yes } => {
            purge(&queue.open(connection)?, *dead, *yes, context).await
        }
        AdminVerb::Repair(queue) => repair(&queue.open(connection)?, context).await,
    }
}

async fn depth(queue: &WorkQueue, context: &Context) -> Result<u8, Failure> {
    let Some(depth) = queue.depth().await.map_err(failure)? else {
        return Ok(exit::NOTHING);
    };
    let shown = record! {
        path: queue.path(),
        items: depth.items,
        delayed: depth.delayed,
        dead: depth.dead,
        oldest_ms: depth.oldest.map(|age| age.as_millis()),
        capacity: depth.capacity,
    };
    let text = format!(
        "items {}  delayed {}  dead {}  oldest {}  capacity {}",
        depth.items,
        depth.delayed,
        depth.dead,
        known(depth.oldest.map(duration::show)),
        known(depth.capacity)
    );
    context.output.result(&shown, text);
    Ok(exit::OK)
}

async fn purge(queue: &WorkQueue, dead: bool, yes: bool, context: &Context) -> Result<u8, Failure> {
    let path = queue.path();
    let Some(depth) = queue.depth().await.map_err(failure)? else {
        return Ok(exit::NOTHING);
    };
    if !yes {
        let letters = match dead {
            true => format!(" and {} dead letters", depth.dead),
            false => String::new(),
        };
        let question = format!(
            "{path}: remove those of its {} items that nobody has claimed{letters}?",
            depth.items
        );
        if confirm::ask(&[], &question) == Answer::No {
            return Err(Failure::new(
                exit::NOTHING,
                "declined",
                format!("{path}: nothing was removed"),
            ));
        }
    }
    let purged = queue.purge().await.map_err(failure)?;
    let letters = match dead {
        true => Some(queue.purge_dead().await.map_err(failure)?),
        false => None,
    };
    let shown = record! {
        path,
        removed: purged.removed,
        left: purged.left,
        ?dead_removed: letters.map(|letters| letters.removed),
        ?dead_left: letters.map(|letters| letters.left),
    };
    let mut text = format!("removed {}  left {}", purged.removed, purged.left);
    if let Some(letters) = letters {
        text.push_str(&format!(
            "  dead removed {}  dead left {}",
            letters.removed, letters.left
        ));
    }
    context.output.result(&shown, text);
    Ok(exit::OK)
}

async fn repair(queue: &WorkQueue, context: &Context) -> Result<u8, Failure> {
    let made = queue.repair().await.map_err(failure)?;
    for node in &made {
        context.output.result(&record! { made: node }, node);
    }
    if made.is_empty() && queue.depth().await.map_err(failure)?.is_none() {
        return Ok(exit::NOTHING);
    }
    Ok(exit::OK)
}

async fn claims(queue: &WorkQueue, context: &Context) -> Result<u8, Failure> {
    let seen = queue.all_claims().await.map_err(failure)?;
    let rows = seen.claims.iter().map(|claim| {
        let record = claim.record.as_ref();
        let shown = record! {
            item: &claim.item,
            id: &claim.id,
            attempt: claim.attempt,
            token: claim.token,
            session: format!("0x{:x}", claim.session),
            host: record.map(|record| record.host.as_str()),
            pid: record.map(|record| record.pid),
            name: record.and_then(|record| record.name.as_deref()),
        };
        let cells = [
            claim.id.clone(),
            claim.attempt.to_string(),
            claim.token.to_string(),
            known(record),
        ];
        (shown, None, cells)
    });
    let titles = ["ITEM", "ATTEMPT", "TOKEN", "PROCESS"];
    context.output.table(titles, rows);
    for node in &seen.unreadable {
        context
            .output
            .passed_over(node, "its ACL does not let this program read it");
    }
    Ok(if seen.unreadable.is_empty() {
        exit::OK
    } else {
        exit::NOTHING
    })
}

async fn dead(queue: &WorkQueue, context: &Context) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct DeadLetterRow<'a> {
        name: &'a str,
        id: &'a str,
        priority: u16,
        attempts: u32,
        reason: &'a str,
        #[serde(flatten)]
        data: bytes::DataField<'a>,
    }
    let letters = queue.oldest_dead_letters(MANY).await.map_err(failure)?;
    if letters.len() == MANY {
        context
            .output
            .note(format!("only the first {MANY} are shown"));
    }
    let rows = letters.iter().map(|letter| {
        let shown = DeadLetterRow {
            name: &letter.name,
            id: &letter.id,
            priority: letter.priority,
            attempts: letter.attempts,
            reason: &letter.reason,
            data: bytes::DataField::new(&letter.payload),
        };
        let cells = [
            letter.name.clone(),
            letter.attempts.to_string(),
            letter.reason.clone(),
            bytes::beginning(&letter.payload),
        ];
        (shown, None, cells)
    });
    let titles = ["NAME", "ATTEMPTS", "ERROR", "PAYLOAD"];
    context.output.table(titles, rows);
    Ok(exit::OK)
}

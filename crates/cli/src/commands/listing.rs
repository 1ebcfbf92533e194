//! Recipes of a kind, over a whole tree: `ls` of semaphores, elections, barriers, queues and
//! groups.
//!
//! Owns the rows. What is a recipe of which kind says the survey.

use baton::inspect::{LockKind, LockNode, NodeInfo};
use baton_console::{Limits, Recipe, SessionReader, Surveyor};

use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::table::known;

/// Reads the whole tree once, within the bounds of a survey.
pub(crate) async fn survey(
    context: &Context,
    connection: &Connection,
) -> Result<Surveyor, Failure> {
    let failed = |error: baton_console::SurveyError| Failure::baton(error.to_string());
    let reader = SessionReader::of(&connection.client)
        .await
        .map_err(failed)?;
    let mut surveyor = Surveyor::new(Limits::default());
    surveyor.update(&reader).await.map_err(failed)?;
    if surveyor.tree().is_partial {
        context
            .output
            .note("the tree is larger than a survey's bounds: the rest of it was not read");
    }
    Ok(surveyor)
}

/// Prints the recipes at or below `prefix` of which `row` makes a row, in the order of their paths.
async fn list<const N: usize>(
    context: &Context,
    prefix: &str,
    titles: [&str; N],
    row: impl Fn(&Recipe) -> Option<[String; N]>,
) -> Result<u8, Failure> {
    Connection::during(context, BRIEF, async |connection: &Connection| {
        let surveyor = survey(context, connection).await?;
        let below = format!("{}/", prefix.trim_end_matches('/'));
        let found = surveyor.recipes().iter();
        let found = found.filter(|(path, _)| *path == prefix || path.starts_with(&below));
        let rows = found.filter_map(|(_, recipe)| Some((recipe, None, row(recipe)?)));
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() {
            context
                .output
                .note(format!("there are none below {prefix}"));
            return Ok(exit::OK);
        }
        context.output.table(titles, rows);
        Ok(exit::OK)
    })
    .await
}

/// Lists the semaphores.
pub(crate) async fn semaphores(context: &Context, prefix: &str) -> Result<u8, Failure> {
    list(
        context,
        prefix,
        ["PATH", "HELD", "HOLDER", "WAITING"],
        |recipe| {
            let Recipe::Lock(lock) = recipe else {
                return None;
            };
            let is_one = lock.kind == LockKind::Semaphore;
            is_one.then(|| {
                let held = held(lock.holders.len(), lock.permits);
                [
                    lock.path.clone(),
                    held,
                    first(&lock.holders),
                    lock.waiters.len().to_string(),
                ]
            })
        },
    )
    .await
}

/// Lists the elections.
pub(crate) async fn elections(context: &Context, prefix: &str) -> Result<u8, Failure> {
    let titles = ["PATH", "LEADER", "TERM", "TOKEN", "WAITING"];
    list(context, prefix, titles, |recipe| {
        let Recipe::Election(election) = recipe else {
            return None;
        };
        let queue = &election.queue;
        let token = queue.holders.first().and_then(|leader| leader.token);
        Some([
            queue.path.clone(),
            first(&queue.holders),
            known(election.term.as_ref().map(|term| term.epoch)),
            known(token),
            queue.waiters.len().to_string(),
        ])
    })
    .await
}

/// Lists the gates, double barriers and latches.
pub(crate) async fn barriers(context: &Context, prefix: &str) -> Result<u8, Failure> {
    list(
        context,
        prefix,
        ["PATH", "KIND", "STATE", "PRESENT"],
        |recipe| {
            let Recipe::Barrier(barrier) = recipe else {
                return None;
            };
            Some([
                barrier.path.clone(),
                barrier.kind.to_owned(),
                barrier.to_string(),
                barrier.members.len().to_string(),
            ])
        },
    )
    .await
}

/// Prints the barrier at `path`: its state, then who is present.
pub(crate) async fn barrier(context: &Context, path: &str) -> Result<u8, Failure> {
    Connection::during(context, BRIEF, async |connection: &Connection| {
        let surveyor = survey(context, connection).await?;
        let Some(found @ Recipe::Barrier(barrier)) = surveyor.recipes().get(path) else {
            let text = format!("{path}: no barrier; baton barrier ls lists those there are");
            return Err(Failure::new(exit::NOTHING, "no_node", text));
        };
        let mut text = format!("{path} is {barrier}");
        if barrier.kind == "double" && !barrier.members.is_empty() {
            let present: Vec<_> = barrier.members.iter().map(NodeInfo::to_string).collect();
            text.push_str(&format!("; present: {}", present.join(", ")));
        }
        context.output.result(found, text);
        Ok(exit::OK)
    })
    .await
}

/// Lists the queues.
pub(crate) async fn queues(context: &Context) -> Result<u8, Failure> {
    let titles = [
        "PATH", "LAYOUT", "ITEMS", "OLDEST", "CLAIMED", "DEAD", "WAITING",
    ];
    list(context, "/", titles, |recipe| {
        let Recipe::Queue(queue) = recipe else {
            return None;
        };
        Some([
            queue.path.clone(),
            queue.layout.to_owned(),
            held(
                usize::try_from(queue.depth).unwrap_or(usize::MAX),
                queue.capacity,
            ),
            known(queue.oldest_since_ms.map(duration::show_since)),
            queue.claims.len().to_string(),
            queue.dead.to_string(),
            queue.consumers.to_string(),
        ])
    })
    .await
}

/// Lists the groups.
pub(crate) async fn groups(context: &Context) -> Result<u8, Failure> {
    list(context, "/", ["PATH", "MEMBERS"], |recipe| match recipe {
        Recipe::Members(group) => Some([group.path.clone(), group.members.len().to_string()]),
        _ => None,
    })
    .await
}

/// This number, and the most there may be.
pub(crate) fn held(count: usize, most: Option<impl std::fmt::Display>) -> String {
    match most {
        Some(most) => format!("{count} of {most}"),
        None => count.to_string(),
    }
}

/// The first holder, and how many others there are.
pub(crate) fn first(holders: &[LockNode]) -> String {
    match holders {
        [] => "-".to_owned(),
        [one] => one.to_string(),
        [one, others @ ..] => format!("{one} +{}", others.len()),
    }
}

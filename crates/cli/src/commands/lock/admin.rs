//! `baton lock ls`, `show`, `revoke` and `break`: locks, seen and changed from outside.
//!
//! Owns what they print, and the two changes. Both are bound to the holder that was seen: another
//! one that holds by then is left alone (H18).

use baton::inspect::{InspectError, Inspector, LockKind, LockNode, LockSnapshot};
use serde::Serialize;

use crate::commands::listing;
use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::locks::{self, NodeLine, token};
use crate::output::passed_over::PassedOver;
use crate::output::record::record;
use crate::walk::Walk;

/// Lists what is held at or below `prefix`.
pub(super) async fn list(context: &Context, prefix: &str) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Lock {
        path: String,
        kind: LockKind,
        holding: usize,
        waiting: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        permits: Option<u32>,
        #[serde(flatten)]
        first: serde_json::Value,
    }
    on_inspector(context, async |inspector: &Inspector| {
        // `true` marks the folders of a semaphore, whose nodes have been listed with it.
        let mut passed_over = PassedOver::default();
        let mut rows = Vec::new();
        let mut walk = Walk::at((prefix.to_owned(), false));
        let read = |(path, _): (String, bool)| {
            let inspector = inspector.clone();
            async move { inspector.lock(&path).await }
        };
        while let Some(((path, listed), lock)) = walk.next(read).await {
            let lock = match lock {
                Ok(lock) => lock,
                Err(error) if error.is_no_auth() && path != prefix => {
                    passed_over.add(&context.output, &path, &error);
                    continue;
                }
                Err(error) => return Err(locks::failure(&error)),
            };
            if !listed {
                passed_over.extend(&context.output, &lock.unreadable);
            }
            if !listed && let Some(first) = lock.nodes().next() {
                let (holding, waiting) = (lock.holders.len(), lock.waiters.len());
                let permits = lock.permits;
                let line = Lock {
                    path: path.clone(),
                    kind: lock.kind,
                    holding,
                    waiting,
                    permits,
                    first: serde_json::to_value(NodeLine::new(first)).unwrap_or_default(),
                };
                let held = match (lock.is_complete(), lock.kind) {
                    (false, _) => "not all of it readable".to_owned(),
                    (true, LockKind::Semaphore) => listing::held(holding, permits),
                    (true, _) => holding.to_string(),
                };
                let token = token(first).to_string();
                let cells = [
                    path.clone(),
                    first.to_string(),
                    held,
                    waiting.to_string(),
                    token,
                ];
                rows.push((line, None, cells));
            }
            walk.descend(lock.folders().into_iter().map(|folder| {
                let below = baton_proto::path::join(&path, &folder.name);
                (below, folder.is_part_of_lock)
            }));
        }
        let titles = ["PATH", "HOLDER", "HELD", "WAITING", "TOKEN"];
        context.output.table(titles, rows);
        Ok(passed_over.exit_code())
    })
    .await
}

/// Shows the line at `path`.
pub(in crate::commands) async fn show(context: &Context, path: &str) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct LockNodeRow<'a> {
        path: &'a str,
        kind: LockKind,
        state: &'a str,
        #[serde(flatten)]
        node: NodeLine<'a>,
    }
    on_inspector(context, async |inspector: &Inspector| {
        let lock = read(inspector, path).await?;
        let mut passed_over = PassedOver::default();
        passed_over.extend(&context.output, &lock.unreadable);
        if !lock.is_in_use() {
            if !lock.is_complete() {
                return Ok(passed_over.exit_code());
            }
            context.output.note(format!("nobody holds {path}"));
            return Ok(exit::NOTHING);
        }
        let rows = lock.nodes().enumerate().map(|(at, node)| {
            let state = match (at < lock.holders.len(), lock.is_complete()) {
                (true, true) => "holds",
                // A node that we may not read may come before it.
                (true, false) => "unknown",
                (false, _) => "waits",
            };
            let cells = [
                state.to_owned(),
                token(node).to_string(),
                node.to_string(),
                duration::show_since(node.info.since_ms),
                format!("0x{:x}", node.info.session_id),
                node.info.path.clone(),
            ];
            let shown = LockNodeRow {
                path,
                kind: lock.kind,
                state,
                node: NodeLine::new(node),
            };
            (shown, None, cells)
        });
        let titles = ["STATE", "TOKEN", "PROCESS", "FOR", "SESSION", "NODE"];
        context.output.table(titles, rows);
        Ok(passed_over.exit_code())
    })
    .await
}

/// Asks all holders, or only the one with `token`, to release.
pub(super) async fn revoke(
    context: &Context,
    path: &str,
    token: Option<u64>,
) -> Result<u8, Failure> {
    on_inspector(context, async |inspector: &Inspector| {
        let lock = read(inspector, path).await?;
        let mut asked = 0;
        for holder in holders(&lock, token) {
            let is_asked = inspector.revoke(holder).await;
            // Otherwise it has released by itself, or somebody else has asked it.
            if is_asked.map_err(|error| refused(path, &error))? {
                asked += 1;
                let record = record! {
                    path,
                    asked: &holder.info.path,
                    token: locks::token(holder),
                };
                let text = format!("{path}: asked {holder} to release");
                context.output.result(&record, text);
            }
        }
        if asked == 0 {
            return Err(changed(path, token));
        }
        Ok(exit::OK)
    })
    .await
}

/// Deletes the holder's node, if it is still the one with this token.
pub(super) async fn break_holder(context: &Context, path: &str, token: u64) -> Result<u8, Failure> {
    on_inspector(context, async |inspector: &Inspector| {
        let lock = read(inspector, path).await?;
        let Some(holder) = lock.holder_with_token(token) else {
            return Err(changed(path, Some(token)));
        };
        let is_broken = inspector.break_holder(holder).await;
        if is_broken.map_err(|error| refused(path, &error))? {
            context.output.result(
                &record! { broken: &holder.info.path, token },
                format!("broke {path}: {holder} was notified"),
            );
            Ok(exit::OK)
        } else {
            Err(Failure::new(
                exit::NOTHING,
                "changed",
                format!("{path} was released just now; nothing to break"),
            ))
        }
    })
    .await
}

/// Runs `work` with an inspector on a connection of its own.
async fn on_inspector(
    context: &Context,
    work: impl AsyncFnOnce(&Inspector) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    Connection::during(context, BRIEF, async |connection: &Connection| {
        work(&Inspector::new(&connection.client)).await
    })
    .await
}

/// The wait queue at `path`.
async fn read(inspector: &Inspector, path: &str) -> Result<LockSnapshot, Failure> {
    let lock = inspector.lock(path).await;
    lock.map_err(|error| locks::failure(&error))
}

/// Those who hold, or only the one with `token`.
fn holders(lock: &LockSnapshot, token: Option<u64>) -> impl Iterator<Item = &LockNode> {
    let holders = lock.holders.iter();
    holders.filter(move |holder| token.is_none_or(|token| holder.token == Some(token)))
}

fn changed(path: &str, token: Option<u64>) -> Failure {
    let with = token.map_or_else(String::new, |token| format!(" with token {token}"));
    Failure::new(
        exit::NOTHING,
        "changed",
        format!("{path} is not held{with}; see who holds it: baton lock show {path}"),
    )
}

fn refused(path: &str, error: &InspectError) -> Failure {
    Failure::baton(format!("{path}: {error}"))
}

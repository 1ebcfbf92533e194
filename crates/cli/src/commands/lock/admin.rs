//! `baton lock ls`, `show`, `revoke` and `break`: locks, seen and changed from outside.
//!
//! Owns what they say, and the two changes. Both are bound to the holder that was seen: whoever
//! holds by then is left alone (H18).

use baton_client::{Error, Op, Session};
use serde::Serialize;

use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::locks::lock_queue::{self, Kind, LockState, QueueNode};
use crate::output::passed_over::PassedOver;
use crate::znode::on_session;

/// The data that asks the holder of a lock to release, for Curator's revocable locks and Baton's.
const REQUEST: &[u8] = b"__REVOKE__";

/// Lists what is held at or below `prefix`.
pub(super) async fn list(context: &Context, prefix: &str) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Lock<'a> {
        path: &'a str,
        kind: Kind,
        holding: usize,
        waiting: usize,
        #[serde(skip_serializing_if = "Option::is_none")]
        permits: Option<u32>,
        #[serde(flatten)]
        first: &'a QueueNode,
    }
    on_session(context, async |session: &Session| {
        // `true` marks the folders of a semaphore, whose nodes have been listed with it.
        let mut passed_over = PassedOver::default();
        let mut todo = vec![(prefix.to_owned(), false)];
        while let Some((path, listed)) = todo.pop() {
            let found = match lock_queue::read(session, &path).await {
                Ok(found) => found,
                Err(error) if error.is_no_auth() && path != prefix => {
                    passed_over.add(&context.output, &path, &error);
                    continue;
                }
                Err(error) => return Err(lock_queue::failure(&error)),
            };
            if !listed {
                passed_over.extend(&context.output, &found.unreadable);
            }
            let certain = found.unreadable.is_empty();
            let (lock, mut others) = (found.lock, found.others);
            let mut semaphore = false;
            if let Some(state) = lock.filter(|_| !listed)
                && let Some(first) = state.nodes.first()
            {
                semaphore = state.kind == Kind::Semaphore;
                let (holding, waiting) = (state.holding, state.waiting());
                let permits = state.permits;
                let lock = Lock {
                    path: &path,
                    kind: state.kind,
                    holding,
                    waiting,
                    permits,
                    first,
                };
                let held = match (state.kind, permits) {
                    (Kind::Semaphore, Some(permits)) => format!("  {holding} of {permits} held"),
                    (Kind::Semaphore, None) => format!("  {holding} held"),
                    _ if holding > 1 => format!("  {holding} read"),
                    _ => String::new(),
                };
                let unsure = if certain {
                    ""
                } else {
                    "  not all of it readable"
                };
                let text = format!(
                    "{path}  token {}  {}{held}  {waiting} waiting{unsure}",
                    first.token,
                    first.who()
                );
                context.output.result(&lock, text);
            }
            others.sort_unstable_by(|one, other| other.cmp(one));
            for name in &others {
                let own = semaphore && ["leases", "locks"].contains(&&**name);
                // Where those wait who want a permit of kazoo's semaphore beside it.
                let beside = name
                    .strip_suffix("-__lock__")
                    .is_some_and(|stem| others.iter().any(|name| name == stem));
                todo.push((baton_proto::path::join(&path, name), own || beside));
            }
        }
        Ok(passed_over.exit_code())
    })
    .await
}

/// Shows the line at `path`.
pub(super) async fn show(context: &Context, path: &str) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Shown<'a> {
        path: &'a str,
        kind: Kind,
        state: &'a str,
        #[serde(flatten)]
        node: &'a QueueNode,
    }
    on_session(context, async |session: &Session| {
        let found = lock_queue::read(session, path).await;
        let found = found.map_err(|error| lock_queue::failure(&error))?;
        let mut passed_over = PassedOver::default();
        passed_over.extend(&context.output, &found.unreadable);
        let Some(lock) = found.lock else {
            if !found.unreadable.is_empty() {
                return Ok(passed_over.exit_code());
            }
            context.output.note(format!("nobody holds {path}"));
            return Ok(exit::NOTHING);
        };
        for (at, node) in lock.nodes.iter().enumerate() {
            let state = match (at < lock.holding, found.unreadable.is_empty()) {
                (true, true) => "holds",
                // A node that we may not read may come before it.
                (true, false) => "unknown",
                (false, _) => "waits",
            };
            let text = format!(
                "{state}  token {}  {}  for {}  session {}  {}",
                node.token,
                node.who(),
                duration::show_since(node.since_ms),
                node.session,
                node.node
            );
            let shown = Shown {
                path,
                kind: lock.kind,
                state,
                node,
            };
            context.output.result(&shown, text);
        }
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
    #[derive(Serialize)]
    struct Asked<'a> {
        path: &'a str,
        asked: &'a str,
        token: i64,
    }
    on_session(context, async |session: &Session| {
        let lock = read(session, path).await?;
        let mut asked = 0;
        for holder in holders(lock.as_ref(), token) {
            let set = session.set_data(&holder.node, REQUEST, Some(holder.version));
            match set.await {
                Ok(_) => {
                    asked += 1;
                    let record = Asked {
                        path,
                        asked: &holder.node,
                        token: holder.token,
                    };
                    let text = format!("{path}: asked {} to let go", holder.who());
                    context.output.result(&record, text);
                }
                // It has released by itself, or somebody else has asked it.
                Err(error) if error.is_no_node() || error.is_bad_version() => {}
                Err(error) => return Err(refused(path, &error)),
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
    #[derive(Serialize)]
    struct Broken<'a> {
        broken: &'a str,
        token: u64,
    }
    on_session(context, async |session: &Session| {
        let lock = read(session, path).await?;
        let Some(holder) = holders(lock.as_ref(), Some(token)).next() else {
            return Err(changed(path, Some(token)));
        };
        // The name is unique to this holder, so no other holder's node can be deleted. Only the
        // holders of a simple lock share one name: whoever takes such a lock within this round trip
        // loses its node instead, and is notified.
        let broken = session
            .multi(&[Op::delete(&holder.node, Some(holder.version))])
            .await;
        match broken {
            Ok(_) => {
                context.output.result(
                    &Broken {
                        broken: &holder.node,
                        token,
                    },
                    format!("broke {path}: {} was notified", holder.who()),
                );
                Ok(exit::OK)
            }
            Err(error) if error.is_no_node() || error.is_bad_version() => Err(Failure::new(
                exit::NOTHING,
                "changed",
                format!("{path} was released just now; nothing to break"),
            )),
            Err(error) => Err(refused(path, &error)),
        }
    })
    .await
}

/// The wait queue at `path`, if there is one.
async fn read(session: &Session, path: &str) -> Result<Option<LockState>, Failure> {
    let found = lock_queue::read(session, path).await;
    Ok(found.map_err(|error| lock_queue::failure(&error))?.lock)
}

/// Those who hold, or only the one with `token`.
fn holders(lock: Option<&LockState>, token: Option<u64>) -> impl Iterator<Item = &QueueNode> {
    let holders = lock.map(LockState::holders).unwrap_or_default();
    holders
        .iter()
        .filter(move |holder| token.is_none_or(|token| u64::try_from(holder.token) == Ok(token)))
}

fn changed(path: &str, token: Option<u64>) -> Failure {
    let with = token.map_or_else(String::new, |token| format!(" with token {token}"));
    Failure::new(
        exit::NOTHING,
        "changed",
        format!("{path} is not held{with}; see who holds it: baton lock show {path}"),
    )
}

fn refused(path: &str, error: &Error) -> Failure {
    Failure::baton(format!("{path}: {error}"))
}

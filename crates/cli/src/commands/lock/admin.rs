//! Locks as anyone may look at them: `baton lock ls`, `show`, `revoke` and `break`.
//!
//! Owns what they say, and the two changes. Both are bound to the holder that was seen: whoever
//! holds by then is left alone (H18).

use baton_client::{Error, Op, Session};
use serde::Serialize;

use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::locks::lock_queue::{self, Kind, Line, Place};
use crate::output::passed_over::PassedOver;
use crate::znode::on_session;

/// What Curator's revocable locks take for a request to let go; Baton's do too.
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
        first: &'a Place,
    }
    on_session(context, async |session: &Session| {
        // With the folders of a semaphore's own, whose nodes have been told already.
        let mut passed_over = PassedOver::default();
        let mut todo = vec![(prefix.to_owned(), false)];
        while let Some((path, told)) = todo.pop() {
            let looked = match lock_queue::read(session, &path).await {
                Ok(looked) => looked,
                Err(error) if error.is_no_auth() && path != prefix => {
                    passed_over.add(&context.output, &path, &error);
                    continue;
                }
                Err(error) => return Err(lock_queue::failure(&error)),
            };
            if !told {
                passed_over.extend(&context.output, &looked.unreadable);
            }
            let certain = looked.unreadable.is_empty();
            let (line, mut others) = (looked.line, looked.others);
            let mut semaphore = false;
            if let Some(line) = line.filter(|_| !told)
                && let Some(first) = line.places.first()
            {
                semaphore = line.kind == Kind::Semaphore;
                let (holding, waiting) = (line.holding, line.waiting());
                let permits = line.permits;
                let lock = Lock {
                    path: &path,
                    kind: line.kind,
                    holding,
                    waiting,
                    permits,
                    first,
                };
                let held = match (line.kind, permits) {
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
        place: &'a Place,
    }
    on_session(context, async |session: &Session| {
        let looked = lock_queue::read(session, path).await;
        let looked = looked.map_err(|error| lock_queue::failure(&error))?;
        let mut passed_over = PassedOver::default();
        passed_over.extend(&context.output, &looked.unreadable);
        let Some(line) = looked.line else {
            if !looked.unreadable.is_empty() {
                return Ok(passed_over.exit_code());
            }
            context.output.note(format!("nobody holds {path}"));
            return Ok(exit::NOTHING);
        };
        for (at, place) in line.places.iter().enumerate() {
            let state = match (at < line.holding, looked.unreadable.is_empty()) {
                (true, true) => "holds",
                // A node that we may not read may come before it.
                (true, false) => "unknown",
                (false, _) => "waits",
            };
            let text = format!(
                "{state}  token {}  {}  for {}  session {}  {}",
                place.token,
                place.who(),
                duration::show_since(place.since_ms),
                place.session,
                place.node
            );
            let shown = Shown {
                path,
                kind: line.kind,
                state,
                place,
            };
            context.output.result(&shown, text);
        }
        Ok(passed_over.exit_code())
    })
    .await
}

/// Asks those who hold, or only the one with `token`, to let go.
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
        let line = look(session, path).await?;
        let mut asked = 0;
        for holder in holders(line.as_ref(), token) {
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
                // It has let go by itself, or was asked by somebody else.
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
        let line = look(session, path).await?;
        let Some(holder) = holders(line.as_ref(), Some(token)).next() else {
            return Err(changed(path, Some(token)));
        };
        // The name is unique to this holder, so nobody else's node can be hit. Only a simple lock's
        // holders share one: whoever takes it within this very round trip is hit in the other's
        // place, and is told.
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

/// What stands at `path`.
async fn look(session: &Session, path: &str) -> Result<Option<Line>, Failure> {
    let looked = lock_queue::read(session, path).await;
    Ok(looked.map_err(|error| lock_queue::failure(&error))?.line)
}

/// Those who hold, or only the one with `token`.
fn holders(line: Option<&Line>, token: Option<u64>) -> impl Iterator<Item = &Place> {
    let holders = line.map(Line::holders).unwrap_or_default();
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

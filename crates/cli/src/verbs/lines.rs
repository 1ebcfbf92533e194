//! The line at a lock, as anyone may see it: who holds, who waits. Reads the tree only, except to break a lock.
//!
//! Order is that of creation (`czxid`), which is the order in line for every dialect (`hazards.md` §2.1, H21).

use baton::Record;
use baton_client::{Op, Session};
use serde::Serialize;

use crate::args::Context;
use crate::connect::{BRIEF, Connection};
use crate::exit::{self, Failure};

/// One place in line.
#[derive(Debug, Serialize)]
struct Place {
    node: String,
    token: i64,
    session: String,
    since_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Record>,
    #[serde(skip)]
    version: i32,
}

impl Place {
    fn who(&self) -> String {
        match &self.holder {
            Some(record) => {
                let name = record
                    .name
                    .as_deref()
                    .map(|name| format!(" ({name})"))
                    .unwrap_or_default();
                format!("{}:{}{name}", record.host, record.pid)
            }
            None => "another program".to_owned(),
        }
    }
}

/// Whether a node's name is that of a place in line: some prefix and ten digits, or more, that the server gave.
fn is_place(name: &str) -> bool {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    digits >= 10
        && [
            "lock-", "latch-", "__lock__", "__read__", "__writ__", "read-", "write-",
        ]
        .iter()
        .any(|part| name.contains(part))
}

async fn places(session: &Session, path: &str) -> Result<Vec<Place>, Failure> {
    let names = match session.children(path).await {
        Ok(children) => children.names,
        Err(error) if error.is_no_node() => Vec::new(),
        Err(error) => return Err(Failure::baton(error.to_string())),
    };
    let mut places = Vec::new();
    for name in names.iter().filter(|name| is_place(name)) {
        let node = baton_proto::path::join(path, name);
        match session.get_data(&node).await {
            Ok(read) => places.push(Place {
                token: read.stat.czxid,
                session: format!("0x{:x}", read.stat.ephemeral_owner),
                since_ms: read.stat.ctime,
                holder: Record::from_bytes(&read.data),
                version: read.stat.version,
                node,
            }),
            // It has left the line since.
            Err(error) if error.is_no_node() => {}
            Err(error) => return Err(Failure::baton(error.to_string())),
        }
    }
    places.sort_by_key(|place| place.token);
    Ok(places)
}

/// Lists what is held at or below `prefix`.
pub(super) async fn list(context: &Context, prefix: &str) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Lock<'a> {
        path: &'a str,
        waiting: usize,
        #[serde(flatten)]
        first: &'a Place,
    }
    let connection = Connection::open(context, BRIEF).await?;
    let session = connection.session().await?;
    let mut todo = vec![prefix.to_owned()];
    while let Some(path) = todo.pop() {
        let line = places(&session, &path).await?;
        if let Some(first) = line.first() {
            let waiting = line.len() - 1;
            let lock = Lock {
                path: &path,
                waiting,
                first,
            };
            context.output.result(
                &lock,
                format!(
                    "{path}  token {}  {}  {waiting} waiting",
                    first.token,
                    first.who()
                ),
            );
        }
        let mut names = match session.children(&path).await {
            Ok(children) => children.names,
            Err(error) if error.is_no_node() => Vec::new(),
            Err(error) => return Err(Failure::baton(error.to_string())),
        };
        names.retain(|name| !is_place(name));
        names.sort_unstable_by(|one, other| other.cmp(one));
        todo.extend(
            names
                .iter()
                .map(|name| baton_proto::path::join(&path, name)),
        );
    }
    connection.close().await;
    Ok(exit::OK)
}

/// Shows the line at `path`.
pub(super) async fn show(context: &Context, path: &str) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Shown<'a> {
        path: &'a str,
        state: &'a str,
        #[serde(flatten)]
        place: &'a Place,
    }
    let connection = Connection::open(context, BRIEF).await?;
    let session = connection.session().await?;
    let line = places(&session, path).await?;
    for (at, place) in line.iter().enumerate() {
        let state = if at == 0 { "holds" } else { "waits" };
        let text = format!(
            "{state}  token {}  {}  session {}  {}",
            place.token,
            place.who(),
            place.session,
            place.node
        );
        context.output.result(&Shown { path, state, place }, text);
    }
    connection.close().await;
    if line.is_empty() {
        context.output.note(format!("nobody holds {path}"));
        return Ok(exit::NOTHING);
    }
    Ok(exit::OK)
}

/// Deletes the holder's node, if it is still the one with this token.
pub(super) async fn break_holder(context: &Context, path: &str, token: u64) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Broken<'a> {
        broken: &'a str,
        token: u64,
    }
    let connection = Connection::open(context, BRIEF).await?;
    let session = connection.session().await?;
    let line = places(&session, path).await?;
    let Some(holder) = line
        .first()
        .filter(|holder| u64::try_from(holder.token) == Ok(token))
    else {
        connection.close().await;
        return Err(Failure::new(
            exit::NOTHING,
            "changed",
            format!(
                "{path} is not held with token {token}; see who holds it: baton lock show {path}"
            ),
        ));
    };
    // The name is unique to this holder, so nobody else's node can be hit (H18).
    let broken = session
        .multi(&[Op::delete(&holder.node, Some(holder.version))])
        .await;
    let outcome = match broken {
        Ok(_) => {
            context.output.result(
                &Broken {
                    broken: &holder.node,
                    token,
                },
                format!("broke {path}: {} was told", holder.who()),
            );
            Ok(exit::OK)
        }
        Err(error) if error.is_no_node() => Err(Failure::new(
            exit::NOTHING,
            "changed",
            format!("{path} was released just now; nothing to break"),
        )),
        Err(error) => Err(Failure::baton(error.to_string())),
    };
    connection.close().await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::is_place;

    #[test]
    fn places_are_told_from_other_children() {
        assert!(is_place(
            "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lock-0000000007"
        ));
        assert!(is_place("0123456789abcdef__lock__0000000012"));
        assert!(!is_place("deploy"));
        assert!(!is_place("lock-7"));
        assert!(!is_place("order-0000000001"));
    }
}

//! The line at a lock, as anyone may see it: who holds, who waits. Reads the tree only, except to break a lock.
//!
//! Order is that of creation (`czxid`), which is the order in line for every dialect (`hazards.md` §2.1, H21), but for a writer
//! that has become a reader: it keeps its place (H43).

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
    /// The `czxid` that counts for the order.
    #[serde(skip)]
    rank: i64,
    #[serde(skip)]
    reads: bool,
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

/// What stands before the number in the name of a node that reads.
const READS: [&str; 3] = ["__READ__", "__rlock__", "-R-"];
/// The same where it writes beside such.
const WRITES: [&str; 2] = ["__WRIT__", "-W-"];
/// The same where it does either alone. (Kazoo's writers are called like its locks.)
const ALONE: [&str; 3] = ["lock-", "latch-", "__lock__"];

/// What stands before the number in a node's name, if that is the name of a place in line: ten digits, or more, that the server
/// gave, perhaps with a sign.
fn token_of(name: &str) -> Option<&'static str> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if name.len() - stem.len() < 9 {
        return None;
    }
    let tokens = READS.into_iter().chain(WRITES).chain(ALONE);
    tokens.into_iter().find(|token| {
        stem.ends_with(token) || stem.strip_suffix('-').is_some_and(|s| s.ends_with(token))
    })
}

fn is_place(name: &str) -> bool {
    token_of(name).is_some()
}

/// How many of a line hold: the first, or all readers up to the first writer.
fn holders(line: &[Place]) -> usize {
    let readers = line.iter().take_while(|place| place.reads).count();
    readers.max(line.len().min(1))
}

async fn places(session: &Session, path: &str) -> Result<Vec<Place>, Failure> {
    let names = match session.children(path).await {
        Ok(children) => children.names,
        Err(error) if error.is_no_node() => Vec::new(),
        Err(error) => return Err(Failure::baton(error.to_string())),
    };
    let mut places = Vec::new();
    let shared = names
        .iter()
        .any(|name| token_of(name).is_some_and(|token| !ALONE.contains(&token)));
    for name in &names {
        let Some(token) = token_of(name) else {
            continue;
        };
        let node = baton_proto::path::join(path, name);
        match session.get_data(&node).await {
            Ok(read) => {
                let holder = Record::from_bytes(&read.data);
                let czxid = read.stat.czxid;
                let kept = holder.as_ref().and_then(|record| record.place);
                places.push(Place {
                    // Among readers and writers the token is minted at the grant, by a change of the node.
                    token: if shared { read.stat.mzxid } else { czxid },
                    rank: kept.map_or(czxid, |place| place.min(czxid)),
                    reads: READS.contains(&token),
                    session: format!("0x{:x}", read.stat.ephemeral_owner),
                    since_ms: read.stat.ctime,
                    holder,
                    version: read.stat.version,
                    node,
                });
            }
            // It has left the line since.
            Err(error) if error.is_no_node() => {}
            Err(error) => return Err(Failure::baton(error.to_string())),
        }
    }
    places.sort_by_key(|place| place.rank);
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
            let waiting = line.len() - holders(&line);
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
    let holders = holders(&line);
    for (at, place) in line.iter().enumerate() {
        let state = if at < holders { "holds" } else { "waits" };
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
        .iter()
        .take(holders(&line))
        .find(|holder| u64::try_from(holder.token) == Ok(token))
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
    use super::{Place, holders, is_place, token_of};

    #[test]
    fn places_are_told_from_other_children() {
        for place in [
            "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lock-0000000007",
            "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-__READ__0000000007",
            "0123456789abcdef__lock__0000000012",
            "host.0123456789abcdef-W-0000000012",
            "_c_x-lock--2147483648",
        ] {
            assert!(is_place(place), "{place}");
        }
        for other in ["deploy", "lock-7", "order-0000000001", "lock", "0000000001"] {
            assert!(!is_place(other), "{other}");
        }
        assert_eq!(token_of("0123__rlock__0000000012"), Some("__rlock__"));
    }

    #[test]
    fn one_holds_or_all_readers_before_the_first_writer() {
        let line = |kinds: &str| -> Vec<Place> {
            let place = |kind| Place {
                node: String::new(),
                token: 0,
                session: String::new(),
                since_ms: 0,
                holder: None,
                rank: 0,
                reads: kind == 'R',
                version: 0,
            };
            kinds.chars().map(place).collect()
        };
        for (kinds, expected) in [
            ("", 0),
            ("W", 1),
            ("WW", 1),
            ("RRW", 2),
            ("WRR", 1),
            ("RR", 2),
        ] {
            assert_eq!(holders(&line(kinds)), expected, "{kinds}");
        }
    }
}

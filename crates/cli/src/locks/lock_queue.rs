//! What stands at a lock's path, whichever library put it there: who holds, who waits, in order.
//!
//! Owns how a line is read for people. It only reads, and decides nothing about who holds; a node
//! counts only while a session owns it. Order is that of creation (`czxid`), which is the order in
//! line for every dialect (`hazards.md` §2.1, H21), but for a writer that has become a reader: it
//! keeps its place (H43).

use baton::Record;
use baton_client::{Error, Session};
use baton_proto::path::join;
use serde::Serialize;

use crate::exit::Failure;

/// The one node of a simple lock.
const SIMPLE: &str = "lock";
/// What stands before the number in the name of a node that reads.
const READS: [&str; 3] = ["__READ__", "__rlock__", "-R-"];
/// The same where it writes beside such.
const WRITES: [&str; 2] = ["__WRIT__", "-W-"];
/// The same where it does either alone. (Kazoo's writers are called like its locks.)
const ALONE: [&str; 3] = ["lock-", "latch-", "__lock__"];
/// The same of a semaphore's permit.
const LEASE: &str = "lease-";
/// What is written to a holder's node to ask for the lock: Curator's word, and that of ZooKeeper's
/// page on recipes.
const REQUESTS: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];
/// The longest text of another library's that is shown as its holder's name.
const LONGEST_NAME: usize = 60;

/// What kind of lock a line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// One at a time: a mutex, an election.
    Lock,
    /// Readers and writers.
    ReadWrite,
    /// One node that all watch.
    Simple,
    /// Permits.
    Semaphore,
}

/// One place in line.
#[derive(Debug, Serialize)]
pub(crate) struct Place {
    pub(crate) node: String,
    pub(crate) token: i64,
    pub(crate) session: String,
    pub(crate) since_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<Record>,
    /// What another library's node holds, if it is a short text.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    /// Whether it is asked to let go.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) asked: bool,
    /// The `czxid` that counts for the order.
    #[serde(skip)]
    rank: i64,
    #[serde(skip)]
    reads: bool,
    #[serde(skip)]
    pub(crate) version: i32,
}

impl Place {
    /// Who it is, for people.
    pub(crate) fn who(&self) -> String {
        match (&self.holder, &self.data) {
            (Some(record), _) => shown(record),
            (None, _) if self.asked => "asked to let go".to_owned(),
            (None, Some(text)) => format!("another program ({text})"),
            (None, None) => "another program".to_owned(),
        }
    }
}

/// A process that has written a record of Baton's, for people: host, process id and name.
pub(crate) fn shown(record: &Record) -> String {
    let name = record
        .name
        .as_deref()
        .map(|name| format!(" ({name})"))
        .unwrap_or_default();
    format!("{}:{}{name}", record.host, record.pid)
}

/// All that stands at one path, those who hold first.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) kind: Kind,
    pub(crate) places: Vec<Place>,
    /// How many of them hold.
    pub(crate) holding: usize,
    /// Of a semaphore, how many permits there are.
    pub(crate) permits: Option<u32>,
}

impl Line {
    pub(crate) fn holders(&self) -> &[Place] {
        self.places.get(..self.holding).unwrap_or_default()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.places.len() - self.holding
    }
}

/// What a look at one path has found.
#[derive(Debug)]
pub(crate) struct Looked {
    /// What stands there.
    pub(crate) line: Option<Line>,
    /// The names of the children that are no part of it.
    pub(crate) others: Vec<String>,
    /// The nodes that should have been read and could not be, and why. One of them may come before
    /// all others.
    pub(crate) unreadable: Vec<(String, Error)>,
}

/// What stands at `path`, as far as we may read it.
///
/// # Errors
/// The children of `path` cannot be listed, or the connection was lost.
pub(crate) async fn read(session: &Session, path: &str) -> Result<Looked, Error> {
    let (own, mut others) = match session.children(path).await {
        Ok(children) => split(children.names),
        Err(error) if error.is_no_node() => Default::default(),
        Err(error) => return Err(error),
    };
    let mut aside = Aside::default();
    let line = match permits(session, path, &others, &mut aside).await? {
        Some(semaphore) => semaphore,
        None => {
            let kind = match () {
                () if own.iter().any(|(_, stands)| stands.is_shared()) => Kind::ReadWrite,
                () if own.iter().any(|(name, _)| name == SIMPLE) => Kind::Simple,
                () => Kind::Lock,
            };
            let minted = kind == Kind::ReadWrite;
            let places = places(session, path, own, minted, &mut aside).await?;
            Line {
                kind,
                holding: holding(&places),
                places,
                permits: None,
            }
        }
    };
    let bystanders = aside.bystanders.iter();
    others.extend(
        bystanders
            .filter(|node| baton_proto::path::parent(node) == path)
            .map(|node| baton_proto::path::name(node).to_owned()),
    );
    Ok(Looked {
        line: Some(line).filter(|line| !line.places.is_empty()),
        others,
        unreadable: aside.unreadable,
    })
}

/// What was met on the way and stands in no line.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// Nodes that could not be read, and why.
    unreadable: Vec<(String, Error)>,
    /// Nodes of no session that are called like a place: whole paths.
    bystanders: Vec<String>,
}

/// What was read, or `None` where the node is gone, or where we may not read it: that is noted.
fn readable<T>(path: &str, read: Result<T, Error>, aside: &mut Aside) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_no_node() => Ok(None),
        Err(error) if error.is_no_auth() => {
            aside.unreadable.push((path.to_owned(), error));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The semaphore at `path`, if there is one: whose permits are held, or whose number is known.
async fn permits(
    session: &Session,
    path: &str,
    others: &[String],
    aside: &mut Aside,
) -> Result<Option<Line>, Error> {
    let (leases, waiting) = if others.iter().any(|name| name == "leases") {
        // Curator's and ours: permits and waiters have folders of their own.
        let leases = join(path, "leases");
        let permit = |stands| stands == Stands::Permit;
        let leases = under(session, &leases, permit, aside).await?;
        (leases, join(path, "locks"))
    } else {
        // kazoo's: permits are children of the path, and who waits has a folder beside it.
        let bare = others.iter().filter(|name| is_bare_marker(name));
        let leases: Vec<_> = bare
            .map(|name| (join(path, name), Stands::Permit))
            .collect();
        if leases.is_empty() {
            return Ok(None);
        }
        (leases, format!("{path}-__lock__"))
    };
    let permits = number_at(session, path, aside).await?;
    let mut all = places(session, path, leases, true, aside).await?;
    // Curator does not store the number; kazoo does, and others name other things by 32 hex digits.
    if permits.is_none() && (all.is_empty() || waiting.ends_with("-__lock__")) {
        return Ok(None);
    }
    let holding = all.len();
    let alone = |stands| stands == Stands::Alone;
    let waiters = under(session, &waiting, alone, aside).await?;
    all.extend(places(session, path, waiters, false, aside).await?);
    Ok(Some(Line {
        kind: Kind::Semaphore,
        places: all,
        holding,
        permits,
    }))
}

/// As what a child stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stands {
    Alone,
    Reading,
    Writing,
    Permit,
}

impl Stands {
    fn is_shared(self) -> bool {
        matches!(self, Self::Reading | Self::Writing)
    }

    /// What a name says; `None` where it is no place in a line. The server's number has ten digits
    /// or more, perhaps a sign.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if name == SIMPLE {
            return Some(Self::Alone);
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        if name.len() - stem.len() < 9 {
            return None;
        }
        let unsigned = stem.strip_suffix('-').unwrap_or(stem);
        let ends = |tokens: &[&str]| {
            tokens
                .iter()
                .any(|token| stem.ends_with(token) || unsigned.ends_with(token))
        };
        if ends(&READS) {
            Some(Self::Reading)
        } else if ends(&WRITES) {
            Some(Self::Writing)
        } else if ends(&[LEASE]) {
            Some(Self::Permit)
        } else if ends(&ALONE) || is_write_lock(stem) || is_offer(unsigned) {
            Some(Self::Alone)
        } else {
            None
        }
    }
}

/// zookeeper-recipes' `WriteLock`: `x-`, the session in decimal or hex, perhaps a marker of ours.
fn is_write_lock(stem: &str) -> bool {
    stem.strip_prefix("x-").is_some_and(|rest| {
        rest.ends_with('-')
            && rest.len() > 1
            && rest.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
    })
}

/// zookeeper-recipes' `LeaderElectionSupport`: `n_`, perhaps a marker of ours in zeros of other
/// scripts.
fn is_offer(stem: &str) -> bool {
    stem.strip_prefix("n_")
        .is_some_and(|marker| marker.chars().all(|c| !c.is_ascii() && c.is_numeric()))
}

/// The 32 hex digits by which kazoo names a semaphore's permit.
fn is_bare_marker(name: &str) -> bool {
    name.len() == 32 && name.chars().all(|c| c.is_ascii_hexdigit())
}

/// The places among the names, and the rest. A permit is none by itself.
fn split(names: Vec<String>) -> (Vec<(String, Stands)>, Vec<String>) {
    let mut line = Vec::new();
    let mut others = Vec::new();
    for name in names {
        match Stands::of(&name) {
            Some(stands) if stands != Stands::Permit => line.push((name, stands)),
            _ => others.push(name),
        }
    }
    (line, others)
}

/// The children of a folder that stand there as `wanted`, with their whole paths.
async fn under(
    session: &Session,
    folder: &str,
    wanted: impl Fn(Stands) -> bool,
    aside: &mut Aside,
) -> Result<Vec<(String, Stands)>, Error> {
    let listed = session.children(folder).await;
    let Some(children) = readable(folder, listed, aside)? else {
        return Ok(Vec::new());
    };
    Ok(children
        .names
        .iter()
        .filter_map(|name| Some((join(folder, name), Stands::of(name)?)))
        .filter(|(_, stands)| wanted(*stands))
        .collect())
}

/// How many of a line hold: the first, or all readers up to the first writer.
fn holding(line: &[Place]) -> usize {
    let readers = line.iter().take_while(|place| place.reads).count();
    readers.max(line.len().min(1))
}

/// Reads the nodes, which are named by their whole paths or below `path`, and puts them in order.
/// Tokens are `minted` at the grant, by a change of the node, or else its creation's.
pub(crate) async fn places(
    session: &Session,
    path: &str,
    nodes: Vec<(String, Stands)>,
    minted: bool,
    aside: &mut Aside,
) -> Result<Vec<Place>, Error> {
    let mut places = Vec::with_capacity(nodes.len());
    for (name, stands) in nodes {
        let node = if name.starts_with('/') {
            name
        } else {
            join(path, &name)
        };
        let read = session.get_data(&node).await;
        let read = match readable(&node, read, aside)? {
            Some(read) if read.stat.ephemeral_owner != 0 => read,
            // No session's, hence nobody's: a folder whose name is that of a place, for one.
            Some(_) => {
                aside.bystanders.push(node);
                continue;
            }
            // It has left the line since.
            None => continue,
        };
        let holder = Record::from_bytes(&read.data);
        let asked = REQUESTS.contains(&&*read.data);
        let czxid = read.stat.czxid;
        let kept = holder.as_ref().and_then(|record| record.place);
        places.push(Place {
            token: if minted { read.stat.mzxid } else { czxid },
            rank: kept.map_or(czxid, |place| place.min(czxid)),
            reads: stands == Stands::Reading,
            session: format!("0x{:x}", read.stat.ephemeral_owner),
            since_ms: read.stat.ctime,
            data: (holder.is_none() && !asked)
                .then(|| short_text(&read.data))
                .flatten(),
            holder,
            asked,
            version: read.stat.version,
            node,
        });
    }
    places.sort_by_key(|place| place.rank);
    Ok(places)
}

/// What another library has put there, if it can be shown on one line.
fn short_text(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok()?.trim();
    let shown = !text.is_empty()
        && text.chars().count() <= LONGEST_NAME
        && !text.chars().any(char::is_control);
    shown.then(|| text.to_owned())
}

async fn number_at(session: &Session, path: &str, aside: &mut Aside) -> Result<Option<u32>, Error> {
    let read = session.get_data(path).await;
    Ok(readable(path, read, aside)?.and_then(|read| {
        let text = std::str::from_utf8(&read.data).ok()?;
        text.trim().parse().ok()
    }))
}

pub(crate) fn failure(error: &Error) -> Failure {
    Failure::baton(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Place, Stands, holding, is_bare_marker};

    #[test]
    fn places_are_told_from_other_children() {
        for (place, stands) in [
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lock-0000000007",
                Stands::Alone,
            ),
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-latch-0000000007",
                Stands::Alone,
            ),
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-__READ__0000000007",
                Stands::Reading,
            ),
            (
                "_c_a41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10-lease-0000000007",
                Stands::Permit,
            ),
            ("0123456789abcdef__lock__0000000012", Stands::Alone),
            ("0123__rlock__0000000012", Stands::Reading),
            ("host.0123456789abcdef-W-0000000012", Stands::Writing),
            ("_c_x-lock--2147483648", Stands::Alone),
            ("lock", Stands::Alone),
            ("x-72057594037927936-0000000003", Stands::Alone),
            ("x--72057594037927936-0000000003", Stands::Alone),
            (
                "x-12-0123456789abcdef0123456789abcdef-0000000003",
                Stands::Alone,
            ),
            ("n_0000000003", Stands::Alone),
            ("n_\u{660}\u{6f0}0000000003", Stands::Alone),
            ("n_-2147483648", Stands::Alone),
        ] {
            assert_eq!(Stands::of(place), Some(stands), "{place}");
        }
        for other in [
            "deploy",
            "lock-7",
            "order-0000000001",
            "locks",
            "0000000001",
            "x-ray-0000000001",
            "n_odes0000000001",
            "qn-0000000001",
        ] {
            assert_eq!(Stands::of(other), None, "{other}");
        }
        assert!(is_bare_marker("0123456789abcdef0123456789abcdef"));
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
                data: None,
                asked: false,
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
            assert_eq!(holding(&line(kinds)), expected, "{kinds}");
        }
    }
}

//! Requests of clients with their outcomes, and the promises about them: writes have one order,
//! which agrees with time and with each session's own; none is lost, applied twice or passed over;
//! reads go forward, and behind a sync they show what was complete before.

use std::collections::BTreeMap;

use baton_client::Stat;
use tokio::time::Instant;

use crate::stage::{FinalState, Stage};

pub(super) const JOURNAL: &str = "/h/journal";
pub(super) const EPHEMERALS: &str = "/h/eph";
pub(super) const REGISTERS: usize = 2;

/// The path of a register.
pub(super) fn register(number: usize) -> String {
    format!("/h/r{number}")
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A sequential node below the journal.
    Append,
    /// A new value of a register.
    Set(usize),
    /// A register's value.
    Read(usize),
    /// The same, behind a sync.
    SyncedRead(usize),
}

/// Outcomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was answered. Of an append the node's birth, of a register the last change and the
    /// version.
    Applied { zxid: i64, version: i32 },
    /// It was refused, and had no effect.
    Refused,
    /// It was not sent.
    NotSent,
    /// Nobody knows.
    Unknown,
}

/// Client, session, kind, tag and time of an operation.
pub(super) type RequestRow = (usize, i64, Kind, String, Instant);

/// One operation.
#[derive(Clone, Debug)]
struct Record {
    client: usize,
    session: i64,
    kind: Kind,
    /// Tag that a write writes. Each is used once.
    tag: String,
    asked: Instant,
    answered: Option<Instant>,
    outcome: Outcome,
    /// Tag that a read has shown.
    seen: Option<String>,
}

/// All operations of a run, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Record>);

impl Records {
    /// An operation is asked for. Returns its number.
    pub(super) fn begin(&mut self, (client, session, kind, tag, asked): RequestRow) -> usize {
        self.0.push(Record {
            client,
            session,
            kind,
            tag,
            asked,
            answered: None,
            outcome: Outcome::Unknown,
            seen: None,
        });
        self.0.len() - 1
    }

    /// An operation has come to its end.
    pub(super) fn end(&mut self, number: usize, outcome: Outcome, seen: Option<String>) {
        if let Some(record) = self.0.get_mut(number) {
            record.answered = Some(Instant::now());
            record.outcome = outcome;
            record.seen = seen;
        }
    }

    /// Judges everything, at rest.
    pub(super) fn judge(&self, stage: &Stage, state: &FinalState) {
        self.judge_journal(stage, state);
        for number in 0..REGISTERS {
            self.judge_register(stage, state, number);
        }
    }

    fn judge_journal(&self, stage: &Stage, state: &FinalState) {
        let mut births: BTreeMap<String, i64> = BTreeMap::new();
        let mut names: Vec<(String, Stat)> = state.nodes(JOURNAL);
        names.sort_by_key(|(_, stat)| stat.czxid);
        if !names.is_sorted_by(|(one, _), (other, _)| one < other) {
            stage.fail("the numbers of the journal do not follow the order of its writes");
        }
        for (path, stat) in &names {
            let data = state.data(path).unwrap_or_default();
            let tag = String::from_utf8_lossy(&data).into_owned();
            if let Some(before) = births.insert(tag.clone(), stat.czxid) {
                stage.fail(&format!(
                    "{tag} was written twice, as zxid {before} and {}",
                    stat.czxid
                ));
            }
        }
        let appends: Vec<&Record> = self.0.iter().filter(|it| it.kind == Kind::Append).collect();
        for append in &appends {
            let birth = births.get(&append.tag);
            match (append.outcome, birth) {
                (Outcome::Applied { zxid, .. }, Some(birth)) if *birth == zxid => {}
                (Outcome::Applied { zxid, .. }, found) => stage.fail(&format!(
                    "{} was answered as zxid {zxid}, and is there as {found:?}",
                    append.tag
                )),
                (Outcome::Refused | Outcome::NotSent, Some(birth)) => stage.fail(&format!(
                    "{} had no effect ({:?}), and is there as zxid {birth}",
                    append.tag, append.outcome
                )),
                _ => {}
            }
        }
        let present: Vec<(&Record, i64)> = appends
            .iter()
            .filter_map(|append| Some((*append, *births.get(&append.tag)?)))
            .collect();
        judge_order(stage, &present, "zxid");
        self.judge_gaps(stage, &births);
    }

    /// Judges that nothing which one connection has sent is there behind something that is not.
    fn judge_gaps(&self, stage: &Stage, births: &BTreeMap<String, i64>) {
        for (conn, tags) in stage.network().sent() {
            let mut missing = None;
            for tag in tags {
                if !births.contains_key(&tag) {
                    missing = Some(tag);
                } else if let Some(before) = &missing {
                    stage.fail(&format!(
                        "connection {conn} has sent {before} and then {tag}, and only {tag} is there"
                    ));
                }
            }
        }
    }

    fn judge_register(&self, stage: &Stage, state: &FinalState, number: usize) {
        let sets = self.0.iter().filter(|it| it.kind == Kind::Set(number));
        let reads =
            |it: &&Record| matches!(it.kind, Kind::Read(of) | Kind::SyncedRead(of) if of == number);
        let mut versions: BTreeMap<String, i32> = BTreeMap::new();
        let mut tags: BTreeMap<i32, String> = BTreeMap::new();
        let mut is_at = |tag: &str, version: i32| {
            let before = versions.insert(tag.to_owned(), version);
            if let Some(before) = before.filter(|before| *before != version) {
                stage.fail(&format!(
                    "{tag} is version {before} and version {version} of register {number}"
                ));
            }
            let other = tags.insert(version, tag.to_owned());
            if let Some(other) = other.filter(|other| *other != tag) {
                stage.fail(&format!(
                    "version {version} of register {number} is {other} and {tag}"
                ));
            }
        };
        for record in self.0.iter().filter(|it| it.kind.is_of(number)) {
            if let Outcome::Applied { version, .. } = record.outcome {
                is_at(record.seen.as_deref().unwrap_or(&record.tag), version);
            }
        }
        let path = register(number);
        let nodes = state.nodes("/h");
        let last = nodes.iter().find(|(node, _)| *node == path);
        let last = last.map_or(0, |(_, stat)| stat.version);
        let data = state.data(&path).unwrap_or_default();
        is_at(&String::from_utf8_lossy(&data), last);
        let is_beyond = versions.values().any(|version| *version > last);
        stage.expect(!is_beyond, || {
            format!("register {number} ends at version {last}, and was seen at a later one")
        });
        let present: Vec<(&Record, i64)> = sets
            .filter_map(|set| Some((set, i64::from(*versions.get(&set.tag)?))))
            .collect();
        judge_order(stage, &present, "version");
        for read in self.0.iter().filter(reads) {
            self.judge_read(stage, number, read);
        }
        self.judge_sessions(stage, number);
    }

    /// Judges a read behind a sync: it must show everything that was complete when the sync was
    /// asked for.
    fn judge_read(&self, stage: &Stage, number: usize, read: &Record) {
        let Outcome::Applied { version, .. } = read.outcome else {
            return;
        };
        if read.kind != Kind::SyncedRead(number) {
            return;
        }
        for other in self.0.iter().filter(|it| it.kind.is_of(number)) {
            if let Outcome::Applied { version: known, .. } = other.outcome
                && other.answered.is_some_and(|answered| answered < read.asked)
                && known > version
            {
                stage.fail(&format!(
                    "client {} reads version {version} of register {number} behind a sync, and client {} knew \
                     version {known} before",
                    read.client, other.client
                ));
                return;
            }
        }
    }

    /// Each session goes forward.
    fn judge_sessions(&self, stage: &Stage, number: usize) {
        let mut newest: BTreeMap<i64, i32> = BTreeMap::new();
        for record in self.0.iter().filter(|it| it.kind.is_of(number)) {
            let Outcome::Applied { version, .. } = record.outcome else {
                continue;
            };
            let newest = newest.entry(record.session).or_insert(version);
            if version < *newest {
                stage.fail(&format!(
                    "session 0x{:x} has version {version} of register {number} after version {newest}: {}",
                    record.session, record.tag
                ));
            }
            *newest = version.max(*newest);
        }
    }
}

impl Kind {
    fn is_of(self, number: usize) -> bool {
        match self {
            Self::Append => false,
            Self::Set(of) | Self::Read(of) | Self::SyncedRead(of) => of == number,
        }
    }
}

/// Writes with their places in the one order: who was answered before another was asked for comes
/// first, and so does what a session asked for first.
fn judge_order(stage: &Stage, present: &[(&Record, i64)], what: &str) {
    for (place, (later, at)) in present.iter().enumerate() {
        for (earlier, before) in present.iter().take(place) {
            let in_time = matches!(earlier.outcome, Outcome::Applied { .. })
                && earlier
                    .answered
                    .is_some_and(|answered| answered < later.asked);
            let in_session = earlier.session == later.session;
            if (in_time || in_session) && before >= at {
                let why = if in_session {
                    "of its session"
                } else {
                    "that was complete"
                };
                stage.fail(&format!(
                    "{} has {what} {at}, and {}, an earlier write {why}, has {before}",
                    later.tag, earlier.tag
                ));
                return;
            }
        }
    }
}

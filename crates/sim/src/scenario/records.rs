//! Requests of clients with their outcomes, as a history that the test kit's rules judge; and the
//! rule that each connection's writes are there without a gap.

use std::collections::BTreeSet;

use baton_client::Stat;
use baton_testkit::history::{self, Act, CreatedZnode, EndState, Operation, Version};
use tokio::time::Instant;

use crate::stage::{FinalState, Stage};

pub(super) const JOURNAL: &str = "/h/journal";
pub(super) const EPHEMERALS: &str = "/h/eph";
pub(super) const REGISTERS: usize = 2;

/// The path of a register.
pub(super) fn register(number: usize) -> String {
    format!("/h/r{number}")
}

/// A state of a register.
pub(super) fn version(stat: &Stat) -> Version {
    Version {
        number: stat.version,
        zxid: stat.mzxid,
    }
}

/// All operations of a run, in the order in which they were asked for.
#[derive(Debug)]
pub(super) struct Records {
    began: Instant,
    operations: Vec<Operation>,
    /// Each session counts as a client.
    sessions: Vec<i64>,
}

impl Records {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            operations: Vec::new(),
            sessions: Vec::new(),
        }
    }

    /// An operation is asked for, with nothing known of its outcome. Returns its number.
    pub(super) fn begin(&mut self, session: i64, value: String, act: Act) -> usize {
        let known = self.sessions.iter().position(|other| *other == session);
        let client = known.unwrap_or(self.sessions.len());
        if known.is_none() {
            self.sessions.push(session);
        }
        let (number, now) = (self.operations.len(), self.began.elapsed());
        self.operations.push(Operation {
            client,
            number: number as u64,
            value,
            begun: now,
            ended: now,
            act,
        });
        number
    }

    /// An operation has come to its end.
    pub(super) fn end(&mut self, number: usize, act: Act) {
        if let Some(operation) = self.operations.get_mut(number) {
            operation.ended = self.began.elapsed();
            operation.act = act;
        }
    }

    /// Judges everything, at rest.
    pub(super) fn judge(&self, stage: &Stage, state: &FinalState) {
        let text = |path: &str| {
            let data = state.data(path).unwrap_or_default();
            String::from_utf8_lossy(&data).into_owned()
        };
        let created = state.nodes(JOURNAL).into_iter().map(|(path, stat)| {
            let value = text(&path);
            let (name, zxid) = (path, stat.czxid);
            (CreatedZnode { name, zxid }, value)
        });
        let nodes = state.nodes("/h");
        let registers = (0..REGISTERS).map(|number| {
            let path = register(number);
            let found = nodes.iter().find(|(node, _)| *node == path);
            let none = Version { number: 0, zxid: 0 };
            (text(&path), found.map_or(none, |(_, stat)| version(stat)))
        });
        let ending = EndState {
            created: created.collect(),
            registers: registers.collect(),
        };
        for problem in history::check(&self.operations, &ending) {
            stage.fail(&problem);
        }
        let there: BTreeSet<&str> = ending.created.iter().map(|(_, value)| &**value).collect();
        judge_gaps(stage, &there);
    }
}

/// Judges that nothing which one connection has sent is there behind something that is not.
fn judge_gaps(stage: &Stage, there: &BTreeSet<&str>) {
    for (conn, values) in stage.network().sent() {
        let mut missing = None;
        for value in values {
            if !there.contains(value.as_str()) {
                missing = Some(value);
            } else if let Some(before) = &missing {
                stage.fail(&format!(
                    "connection {conn} has sent {before} and then {value}, and only {value} is there"
                ));
            }
        }
    }
}

//! Facts that only an observer over time has: hand-overs, past leaders, rates of queues.
//!
//! Owns times by this machine's clock, moved so that it is not behind the newest node that was
//! seen. They begin with the survey, and are as exact as its rounds are frequent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;

use crate::recipes::{self, Recipe, Turnover, process};
use crate::tree::KnownTree;

/// Past holders that are kept of each lock and election.
const PAST: usize = 20;
/// Over how long rates are measured.
const RATE_MS: i64 = 60_000;
/// Points of one queue that rates are measured by.
const RATE_POINTS: usize = 64;

/// A holder of the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PastHolder {
    /// Its node.
    pub node: String,
    /// Its fencing token.
    pub token: Option<u64>,
    /// Its process, as far as the node said so.
    pub process: Option<String>,
    /// When it was first seen to hold, milliseconds since 1970; `None`: it held when the survey
    /// began.
    pub from_ms: Option<i64>,
    /// When it was first seen not to hold any more.
    pub until_ms: i64,
}

/// Rates of a queue or a wait queue in the minute before the survey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rates {
    /// Items put, or nodes made of those who want to hold, per second.
    pub put: f64,
    /// Items taken, settled or deleted, or nodes of those who released or gave up, per second.
    pub taken: f64,
}

/// The past of one recipe.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Changed {
    /// When the present first holder was first seen to hold; `None`: since before the survey began.
    pub held_since_ms: Option<i64>,
    /// Number of times that another holder was seen.
    pub hand_overs: u64,
    /// Those who held before, the newest last.
    pub past: VecDeque<PastHolder>,
    /// Rates of a queue, a lock or an election. Shorter turns than a round count too.
    pub rates: Option<Rates>,
    #[serde(skip)]
    holder: Option<Present>,
    #[serde(skip)]
    folders: BTreeMap<(String, i64), [i64; 2]>,
    #[serde(skip)]
    totals: VecDeque<(i64, [i64; 2])>,
}

#[derive(Clone, Debug, PartialEq)]
struct Present {
    czxid: i64,
    node: String,
    token: Option<u64>,
    process: Option<String>,
}

/// The past of all recipes.
#[derive(Debug, Default)]
pub(crate) struct History {
    all: BTreeMap<String, Changed>,
    began: bool,
}

impl History {
    pub(crate) fn of(&self, path: &str) -> Option<&Changed> {
        self.all.get(path)
    }

    /// Notes what these recipes have come to at `now_ms`.
    pub(crate) fn note(
        &mut self,
        recipes: &BTreeMap<String, Recipe>,
        tree: &KnownTree,
        changed: &BTreeSet<String>,
        now_ms: i64,
    ) {
        let is_first = !std::mem::replace(&mut self.began, true);
        for path in changed {
            match recipes.get(path) {
                None => {
                    self.all.remove(path);
                }
                Some(Recipe::Queue(queue)) => {
                    let known = self.all.entry(path.clone()).or_default();
                    known.note_turnover(&queue.turnover, now_ms);
                }
                Some(recipe) => {
                    let Some(queue) = recipe.queue() else {
                        continue;
                    };
                    let turnover = recipes::turnover_of(tree, queue);
                    let holder = queue.holders.first().map(|holder| Present {
                        czxid: holder.info.czxid,
                        node: holder.info.path.clone(),
                        token: holder.token,
                        process: process(&holder.info),
                    });
                    let since_ms = (!is_first).then_some(now_ms);
                    let known = self.all.entry(path.clone()).or_default();
                    known.note_turnover(turnover.as_slice(), now_ms);
                    known.note_holder(holder, since_ms, now_ms);
                }
            }
        }
    }

    /// Measures all rates again; returns the recipes whose rates are different now.
    pub(crate) fn measure(&mut self, now_ms: i64) -> Vec<String> {
        let mut changed = Vec::new();
        for (path, known) in &mut self.all {
            if known.totals.is_empty() {
                continue;
            }
            let rates = known.measured(now_ms);
            if known.rates != Some(rates) {
                known.rates = Some(rates);
                changed.push(path.clone());
            }
        }
        changed
    }
}

impl Changed {
    fn note_holder(&mut self, holder: Option<Present>, since_ms: Option<i64>, now_ms: i64) {
        let is_same = match (&self.holder, &holder) {
            (Some(before), Some(now)) => before.czxid == now.czxid && before.node == now.node,
            (None, None) => true,
            _ => false,
        };
        if is_same {
            self.holder = holder;
            return;
        }
        let since_ms = match &self.holder {
            Some(_) => Some(now_ms),
            None => since_ms,
        };
        if let Some(before) = self.holder.take() {
            self.past.push_back(PastHolder {
                node: before.node,
                token: before.token,
                process: before.process,
                from_ms: self.held_since_ms,
                until_ms: now_ms,
            });
            while self.past.len() > PAST {
                self.past.pop_front();
            }
            self.hand_overs += u64::from(holder.is_some());
        }
        self.held_since_ms = since_ms.filter(|_| holder.is_some());
        self.holder = holder;
    }

    fn note_turnover(&mut self, turnover: &[Turnover], now_ms: i64) {
        let mut total = self.totals.back().map_or([0, 0], |(_, total)| *total);
        let is_first = self.totals.is_empty();
        let mut folders = BTreeMap::new();
        for (path, czxid, counts) in turnover {
            let key = (path.clone(), *czxid);
            let before = self.folders.remove(&key);
            if !is_first {
                let [made, deleted] = before.unwrap_or([0, 0]);
                total[0] += (counts[0] - made).max(0);
                total[1] += (counts[1] - deleted).max(0);
            }
            folders.insert(key, *counts);
        }
        // A folder that is gone had become empty.
        for [made, deleted] in std::mem::take(&mut self.folders).into_values() {
            total[1] += made - deleted;
        }
        self.folders = folders;
        self.totals.push_back((now_ms, total));
        while self.totals.len() > RATE_POINTS {
            self.totals.pop_front();
        }
        self.rates = Some(self.measured(now_ms));
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "rates are shown with two digits"
    )]
    fn measured(&self, now_ms: i64) -> Rates {
        let from = now_ms - RATE_MS;
        let before = self.totals.iter().rev().find(|(at, _)| *at <= from);
        let Some((at, [made, deleted])) = before.or_else(|| self.totals.front()).copied() else {
            return Rates::default();
        };
        let last = self
            .totals
            .back()
            .map_or([made, deleted], |(_, last)| *last);
        let seconds = (now_ms - at.max(from)).max(1_000) as f64 / 1_000.0;
        let rate = |now: i64, then: i64| ((now - then) as f64 / seconds * 100.0).round() / 100.0;
        Rates {
            put: rate(last[0], made),
            taken: rate(last[1], deleted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(folders: &[(&str, [i64; 2])]) -> Vec<Turnover> {
        let turnover = folders.iter();
        turnover
            .map(|(path, counts)| ((*path).to_owned(), 1, *counts))
            .collect()
    }

    #[test]
    fn rates_are_those_of_the_last_minute_and_of_folders_that_come_and_go() {
        let mut known = Changed::default();
        known.note_turnover(&folders(&[("a", [100, 40])]), 0);
        assert_eq!(known.rates, Some(Rates::default()));
        // Ten put and five taken in ten seconds.
        known.note_turnover(&folders(&[("a", [110, 45])]), 10_000);
        let rates = known.rates.unwrap();
        assert_eq!((rates.put, rates.taken), (1.0, 0.5));
        // The first folder is emptied and removed, a second one comes.
        known.note_turnover(&folders(&[("b", [5, 0])]), 20_000);
        let rates = known.rates.unwrap();
        assert_eq!((rates.put, rates.taken), (0.75, 3.5));
        let later = known.measured(200_000);
        assert_eq!((later.put, later.taken), (0.0, 0.0));
    }

    #[test]
    fn a_hand_over_is_seen_and_the_first_holder_has_no_known_beginning() {
        let holder = |czxid: i64| {
            Some(Present {
                czxid,
                node: format!("/x/{czxid}"),
                token: u64::try_from(czxid).ok(),
                process: None,
            })
        };
        let mut known = Changed::default();
        known.note_holder(holder(1), None, 5);
        assert_eq!((known.held_since_ms, known.hand_overs), (None, 0));
        known.note_holder(holder(2), Some(10), 10);
        assert_eq!((known.held_since_ms, known.hand_overs), (Some(10), 1));
        let past = known.past.back().unwrap();
        assert_eq!(
            (past.token, past.from_ms, past.until_ms),
            (Some(1), None, 10)
        );
        known.note_holder(None, Some(20), 20);
        assert_eq!((known.held_since_ms, known.hand_overs), (None, 1));
        known.note_holder(holder(3), Some(30), 30);
        assert_eq!((known.held_since_ms, known.past.len()), (Some(30), 2));
    }
}

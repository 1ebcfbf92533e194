//! The survey as rows of text, and what has changed between two of them.
//!
//! Owns the rows that a page gets: `docs/internals/console.md` lists their fields. A row is short
//! whatever the length of its queue; the whole of one recipe is asked for by its path.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use baton::inspect::{LockNode, LockSnapshot, NodeInfo};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::history::Changed;
use crate::recipes::{Recipe, process};
use crate::survey::{Surveyor, Updated};

/// Holders and members that a row lists.
const LISTED: usize = 8;
/// Rows of one message.
const MESSAGE_ROWS: usize = 250;

/// The kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Meta,
    Deadlock,
    Lock,
    Election,
    Queue,
    Barrier,
    Members,
    Session,
    Client,
    Server,
}

/// A row, as its JSON.
#[derive(Clone, Debug)]
pub(crate) struct Row(Arc<RawValue>);

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// All rows at one moment. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    rows: Arc<BTreeMap<(Kind, String), Row>>,
}

/// A message to a page: rows that are new or different, and ids of those that are gone.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Message {
    /// Whether the page discards all rows that it has, before it takes those of this message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reset: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    set: BTreeMap<Kind, BTreeMap<String, Row>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    gone: BTreeMap<Kind, Vec<String>>,
}

impl Scene {
    /// Sets a row, unless it is the same.
    pub(crate) fn set(&mut self, kind: Kind, id: &str, row: &impl Serialize) {
        // Rows are made of strings, numbers and lists of them.
        let Ok(row) = serde_json::value::to_raw_value(row) else {
            return;
        };
        let key = (kind, id.to_owned());
        let known = self.rows.get(&key);
        if known.is_none_or(|known| known.0.get() != row.get()) {
            Arc::make_mut(&mut self.rows).insert(key, Row(Arc::from(row)));
        }
    }

    /// Removes the rows of a kind whose ids are not among these.
    pub(crate) fn retain(&mut self, kind: Kind, is_kept: impl Fn(&str) -> bool) {
        let is_kept = |(of, id): &(Kind, String)| *of != kind || is_kept(id);
        if !self.rows.keys().all(is_kept) {
            Arc::make_mut(&mut self.rows).retain(|key, _| is_kept(key));
        }
    }

    /// Takes in what a round has changed.
    pub(crate) fn take_in(&mut self, surveyor: &Surveyor, updated: &Updated) {
        const KINDS: [Kind; 5] = [
            Kind::Lock,
            Kind::Election,
            Kind::Queue,
            Kind::Barrier,
            Kind::Members,
        ];
        for path in &updated.recipes {
            let recipe = surveyor.recipes().get(path);
            let kind = recipe.map(kind_of);
            for other in KINDS {
                let key = (other, path.clone());
                if Some(other) != kind && self.rows.contains_key(&key) {
                    Arc::make_mut(&mut self.rows).remove(&key);
                }
            }
            if let (Some(recipe), Some(kind)) = (recipe, kind) {
                let past = surveyor.past(path);
                self.set(kind, path, &RecipeRow::of(path, recipe, past));
            }
        }
        if !updated.others {
            return;
        }
        let sessions = surveyor.sessions();
        self.retain(Kind::Session, |id| {
            i64::from_str_radix(id, 16).is_ok_and(|id| sessions.contains_key(&id))
        });
        for (id, session) in sessions {
            self.set(Kind::Session, &format!("{id:x}"), session);
        }
        let deadlocks = surveyor.deadlocks();
        let ids: Vec<_> = deadlocks.iter().map(|deadlock| deadlock.id()).collect();
        let known: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        self.retain(Kind::Deadlock, |id| known.contains(id));
        for (id, deadlock) in ids.iter().zip(deadlocks) {
            self.set(Kind::Deadlock, id, deadlock);
        }
    }

    /// The messages that bring a page from `before` to this; from nothing, if it has nothing.
    pub(crate) fn since(&self, before: Option<&Scene>) -> Vec<Message> {
        let none = BTreeMap::new();
        let known = before.map_or(&none, |scene| &*scene.rows);
        let mut messages = vec![Message {
            reset: before.is_none(),
            ..Message::default()
        }];
        let mut rows = 0;
        let mut add = |messages: &mut Vec<Message>| {
            rows += 1;
            if rows % MESSAGE_ROWS == 0 {
                messages.push(Message::default());
            }
        };
        for ((kind, id), row) in &*self.rows {
            let is_known = known
                .get(&(*kind, id.clone()))
                .is_some_and(|known| Arc::ptr_eq(&known.0, &row.0));
            if !is_known && let Some(message) = messages.last_mut() {
                let of_kind = message.set.entry(*kind).or_default();
                of_kind.insert(id.clone(), row.clone());
                add(&mut messages);
            }
        }
        for (kind, id) in known.keys() {
            if !self.rows.contains_key(&(*kind, id.clone()))
                && let Some(message) = messages.last_mut()
            {
                message.gone.entry(*kind).or_default().push(id.clone());
                add(&mut messages);
            }
        }
        messages
            .retain(|message| message.reset || !message.set.is_empty() || !message.gone.is_empty());
        messages
    }
}

fn kind_of(recipe: &Recipe) -> Kind {
    match recipe {
        Recipe::Lock(_) => Kind::Lock,
        Recipe::Election(_) => Kind::Election,
        Recipe::Queue(_) => Kind::Queue,
        Recipe::Barrier(_) => Kind::Barrier,
        Recipe::Members(_) => Kind::Members,
    }
}

/// A holder, waiter, claim or member in short.
#[derive(Debug, Serialize)]
pub(crate) struct Party<'a> {
    node: &'a str,
    session: String,
    czxid: i64,
    since_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asked: bool,
    /// The path of the item, of a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<&'a str>,
    /// The id, of a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

impl<'a> Party<'a> {
    fn of(info: &'a NodeInfo) -> Self {
        let record = info.record.as_ref();
        Self {
            node: &info.path,
            session: format!("0x{:x}", info.session_id),
            czxid: info.czxid,
            since_ms: info.since_ms,
            host: record.map(|record| &*record.host),
            pid: record.map(|record| record.pid),
            command: record.and_then(|record| record.name.as_deref()),
            text: if record.is_none() {
                process(info)
            } else {
                None
            },
            token: None,
            mode: None,
            asked: false,
            item: None,
            id: None,
        }
    }

    pub(crate) fn of_lock(node: &'a LockNode) -> Self {
        Self {
            token: node.token,
            mode: Some(node.mode.to_string()),
            asked: node.asked,
            ..Self::of(&node.info)
        }
    }
}

/// The row of a recipe.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RecipeRow<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dialect: Option<String>,
    holders: Vec<Party<'a>>,
    held: usize,
    waiting: usize,
    /// The first that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Party<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    /// Whether nodes of several naming schemes are there, each with a holder of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mixed: bool,
    /// Nodes that block the path and belong to nobody who could release.
    #[serde(skip_serializing_if = "is_zero")]
    foreign: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<QueuePart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    barrier: Option<BarrierPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    past: Option<&'a Changed>,
}

#[derive(Debug, Serialize)]
struct QueuePart<'a> {
    depth: u64,
    capacity: Option<u64>,
    oldest: Option<&'a str>,
    oldest_since_ms: Option<i64>,
    claimed: usize,
    /// Whether only the oldest items were read, so that more may be claimed.
    partly_read: bool,
    retried: u64,
    dead: u64,
    consumers: u64,
}

#[derive(Debug, Serialize)]
struct BarrierPart {
    phase: &'static str,
    count: Option<u32>,
    left: Option<u32>,
    round: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}

impl<'a> RecipeRow<'a> {
    pub(crate) fn of(path: &'a str, recipe: &'a Recipe, past: Option<&'a Changed>) -> Self {
        Self::listing(path, recipe, past, LISTED)
    }

    /// [`of`](Self::of) with more of the holders or members.
    pub(crate) fn listing(
        path: &'a str,
        recipe: &'a Recipe,
        past: Option<&'a Changed>,
        most: usize,
    ) -> Self {
        let row = Self {
            path,
            past,
            ..Self::default()
        };
        match recipe {
            Recipe::Lock(lock) => row.with_queue(lock, most),
            Recipe::Election(election) => Self {
                term: election.term.map(|term| term.epoch),
                ..row.with_queue(&election.queue, most)
            },
            Recipe::Queue(queue) => Self {
                dialect: Some(queue.layout.to_owned()),
                held: queue.claims.len(),
                holders: queue
                    .claims
                    .iter()
                    .take(most)
                    .map(|claim| Party {
                        item: Some(&claim.item),
                        token: u64::try_from(claim.info.czxid).ok(),
                        ..Party::of(&claim.info)
                    })
                    .collect(),
                queue: Some(QueuePart {
                    depth: queue.depth,
                    capacity: queue.capacity,
                    oldest: queue.oldest.as_deref(),
                    oldest_since_ms: queue.oldest_since_ms,
                    claimed: queue.claims.len(),
                    partly_read: queue.read < queue.depth,
                    retried: queue.retried,
                    dead: queue.dead,
                    consumers: queue.consumers,
                }),
                ..row
            },
            Recipe::Barrier(barrier) => Self {
                kind: Some(barrier.kind.to_owned()),
                held: barrier.members.len(),
                holders: barrier.members.iter().take(most).map(Party::of).collect(),
                barrier: Some(BarrierPart {
                    phase: barrier.phase,
                    count: barrier.count,
                    left: barrier.left,
                    round: barrier.round,
                }),
                ..row
            },
            Recipe::Members(group) => Self {
                kind: Some("members".to_owned()),
                held: group.members.len(),
                holders: group
                    .members
                    .iter()
                    .take(most)
                    .map(|member| Party {
                        id: Some(&member.id),
                        ..Party::of(&member.info)
                    })
                    .collect(),
                ..row
            },
        }
    }

    fn with_queue(self, queue: &'a LockSnapshot, most: usize) -> Self {
        let kind = serde_json::to_value(queue.kind).ok();
        let kind = kind.and_then(|kind| kind.as_str().map(str::to_owned));
        Self {
            kind,
            dialect: queue.nodes().next().map(|node| node.scheme.to_string()),
            holders: queue
                .holders
                .iter()
                .take(most)
                .map(Party::of_lock)
                .collect(),
            held: queue.holders.len(),
            waiting: queue.waiters.len(),
            next: queue.waiters.first().map(Party::of_lock),
            permits: queue.permits,
            mixed: queue.is_mixed(),
            foreign: queue.foreign.len() + queue.unowned.len(),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(messages: &[Message]) -> String {
        serde_json::to_string(messages).unwrap_or_default()
    }

    #[test]
    fn only_what_has_changed_is_sent_and_what_is_gone() {
        let mut first = Scene::default();
        first.set(Kind::Lock, "/a", &1);
        first.set(Kind::Lock, "/b", &1);
        assert_eq!(
            text(&first.since(None)),
            r#"[{"reset":true,"set":{"lock":{"/a":1,"/b":1}}}]"#
        );
        let mut second = first.clone();
        second.set(Kind::Lock, "/a", &1);
        assert_eq!(text(&second.since(Some(&first))), "[]");
        second.set(Kind::Lock, "/b", &2);
        second.set(Kind::Queue, "/c", &3);
        second.retain(Kind::Lock, |id| id != "/a");
        assert_eq!(
            text(&second.since(Some(&first))),
            r#"[{"set":{"lock":{"/b":2},"queue":{"/c":3}},"gone":{"lock":["/a"]}}]"#
        );
        assert_eq!(text(&Scene::default().since(None)), r#"[{"reset":true}]"#);
    }

    #[test]
    fn many_rows_are_several_messages() {
        let mut scene = Scene::default();
        for at in 0..600 {
            scene.set(Kind::Lock, &at.to_string(), &at);
        }
        let messages = scene.since(None);
        assert_eq!(messages.len(), 3);
        assert!(messages.iter().skip(1).all(|message| !message.reset));
    }
}

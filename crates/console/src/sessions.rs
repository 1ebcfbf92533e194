//! Holds and waits of each session.
//!
//! Owns the view by session. That a session exists is known only by its nodes, and by what servers
//! say of their connections.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::recipes::{Recipe, process};
use crate::tree::KnownTree;

/// Places of one kind that are listed of a session; of more, only the number is known.
const MOST: usize = 50;

/// A place in a recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Use {
    /// The recipe's path.
    pub path: String,
    /// The session's node.
    pub node: String,
    /// Since when it has existed, milliseconds since 1970 by the server's clock.
    pub since_ms: i64,
}

/// Holds and waits of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionUse {
    /// The session.
    #[serde(rename = "session", serialize_with = "hexadecimal")]
    pub id: i64,
    /// The process, as far as one of its nodes says so.
    pub process: Option<String>,
    /// Things that it holds, leads, works on or is a member of: the first 50.
    pub holds: Vec<Use>,
    /// Number of all of them.
    pub held: usize,
    /// Things that it waits for: the first 50.
    pub waits: Vec<Use>,
    /// Number of all of them.
    pub waiting: usize,
    /// Its nodes, with those that are in no recipe.
    pub nodes: usize,
}

fn hexadecimal<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("0x{id:x}"))
}

/// The sessions that own a node, each with its places.
pub(crate) fn of(
    tree: &KnownTree,
    recipes: &BTreeMap<String, Recipe>,
) -> BTreeMap<i64, SessionUse> {
    let mut sessions: BTreeMap<i64, SessionUse> = BTreeMap::new();
    for (_, node) in tree.iter() {
        if node.stat.ephemeral_owner != 0 {
            let id = node.stat.ephemeral_owner;
            sessions.entry(id).or_insert_with(|| new(id)).nodes += 1;
        }
    }
    for (path, recipe) in recipes {
        let waiting = recipe.waiters().iter().map(|node| (&node.info, true));
        let all = recipe.holders().map(|info| (info, false)).chain(waiting);
        for (info, waits) in all.filter(|(info, _)| info.session_id != 0) {
            let id = info.session_id;
            let session = sessions.entry(id).or_insert_with(|| new(id));
            if session.process.is_none() {
                session.process = process(info);
            }
            let (list, count) = match waits {
                true => (&mut session.waits, &mut session.waiting),
                false => (&mut session.holds, &mut session.held),
            };
            *count += 1;
            if list.len() < MOST {
                list.push(Use {
                    path: path.clone(),
                    node: info.path.clone(),
                    since_ms: info.since_ms,
                });
            }
        }
    }
    sessions
}

fn new(id: i64) -> SessionUse {
    SessionUse {
        id,
        ..SessionUse::default()
    }
}

//! Details that are asked for by path: the whole of one recipe, the wait-for graph, a node of the
//! tree.
//!
//! Owns the bounds of these answers, which a page pages through.

use std::collections::BTreeMap;
use std::fmt::Write;

use baton_client::{Client, Error, Stat};
use serde::Serialize;

use crate::error::SurveyError;
use crate::recipes::{Letter, Recipe, process};
use crate::scene::{Party, RecipeRow};
use crate::survey::Surveyor;

/// Holders, waiters, members and children of one answer.
const PAGE: usize = 500;
/// Edges of the graph that are drawn.
const MOST_EDGES: usize = 200;
/// Holders for which one waiter is drawn to wait.
const MOST_HOLDERS: usize = 3;
/// Bytes of a node that are shown.
const SHOWN_BYTES: usize = 16 << 10;

/// The whole of one recipe, as JSON: holders and waiters from the position `from` on.
pub(crate) fn recipe(surveyor: &Surveyor, path: &str, from: usize) -> Option<Box<[u8]>> {
    #[derive(Serialize)]
    struct Detail<'a> {
        #[serde(flatten)]
        row: RecipeRow<'a>,
        from: usize,
        waiters: Vec<Party<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        letters: Option<&'a [Letter]>,
    }
    let recipe = surveyor.recipes().get(path)?;
    let waiters = recipe.waiters().iter().skip(from).take(PAGE);
    let detail = Detail {
        row: RecipeRow::listing(path, recipe, surveyor.past(path), PAGE),
        from,
        waiters: waiters.map(Party::of_lock).collect(),
        letters: match recipe {
            Recipe::Queue(queue) => Some(&queue.letters),
            _ => None,
        },
    };
    serde_json::to_vec(&detail).ok().map(Vec::into_boxed_slice)
}

/// The wait-for graph.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Graph {
    edges: Vec<Edge>,
    /// The process of each session, where it is known.
    sessions: BTreeMap<String, String>,
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct Edge {
    from: String,
    to: String,
    locks: Vec<String>,
    count: usize,
}

/// Each waiting session with the sessions of the holders that it waits for; the locks with most
/// waiters first, if that is too much to draw.
pub(crate) fn graph(surveyor: &Surveyor) -> Graph {
    const NAMED_LOCKS: usize = 3;
    let mut busiest: Vec<_> = surveyor.recipes().iter().collect();
    busiest.sort_by_key(|(_, recipe)| std::cmp::Reverse(recipe.waiters().len()));
    let mut stuck: Vec<&str> = surveyor
        .deadlocks()
        .iter()
        .flat_map(|deadlock| deadlock.steps.iter().map(|step| step.lock.as_str()))
        .collect();
    stuck.sort_unstable();
    busiest.sort_by_key(|(path, _)| stuck.binary_search(&path.as_str()).is_err());
    let mut edges: BTreeMap<(i64, i64), (Vec<String>, usize)> = BTreeMap::new();
    let mut graph = Graph::default();
    for (path, recipe) in busiest {
        let Some(queue) = recipe.queue() else {
            continue;
        };
        for waiter in &queue.waiters {
            for holder in queue.holders.iter().take(MOST_HOLDERS) {
                let key = (waiter.info.session_id, holder.info.session_id);
                if key.0 == key.1 {
                    continue;
                }
                if edges.len() >= MOST_EDGES && !edges.contains_key(&key) {
                    graph.left_out += 1;
                    continue;
                }
                let (locks, count) = edges.entry(key).or_default();
                *count += 1;
                if locks.len() < NAMED_LOCKS {
                    locks.push(path.clone());
                }
                for node in [waiter, holder] {
                    if let Some(process) = process(&node.info) {
                        let session = format!("0x{:x}", node.info.session_id);
                        graph.sessions.entry(session).or_insert(process);
                    }
                }
            }
        }
    }
    let edge = |((from, to), (locks, count))| Edge {
        from: format!("0x{from:x}"),
        to: format!("0x{to:x}"),
        locks,
        count,
    };
    graph.edges = edges.into_iter().map(edge).collect();
    graph
}

/// A node of the tree.
#[derive(Debug, Serialize)]
pub(crate) struct NodeDetail {
    stat: NodeStat,
    /// Number of children, and some of their names, sorted.
    count: usize,
    children: Vec<String>,
    data: String,
    /// Whether the data is shown in hexadecimal.
    binary: bool,
    cut: bool,
    forbidden: Option<String>,
}

#[derive(Debug, Serialize)]
struct NodeStat {
    #[serde(flatten)]
    stat: Stat,
    /// In hexadecimal, as operators know it.
    owner: String,
}

/// The node at `path`, with its children from a position on; `None`: there is none. What this
/// client may not read is left out, and that is said.
pub(crate) async fn node(
    client: &Client,
    path: &str,
    from: usize,
) -> Result<Option<NodeDetail>, SurveyError> {
    let session = client.session().await?;
    let (stat, listed) = (session.exists(path), session.children(path));
    let Some(stat) = stat.await? else {
        return Ok(None);
    };
    let mut detail = NodeDetail {
        stat: NodeStat {
            owner: format!("0x{:x}", stat.ephemeral_owner),
            stat: Stat {
                ephemeral_owner: 0,
                ..stat
            },
        },
        count: 0,
        children: Vec::new(),
        data: String::new(),
        binary: false,
        cut: false,
        forbidden: None,
    };
    match listed.await {
        Ok(listed) => {
            let mut names = listed.names;
            names.sort_unstable();
            detail.count = names.len();
            detail.children = names.into_iter().skip(from).take(PAGE).collect();
        }
        Err(error) => detail.refused(error)?,
    }
    if from == 0 && stat.data_length > 0 {
        match session.get_data(path).await {
            Ok(read) => detail.show(&read.data),
            Err(error) => detail.refused(error)?,
        }
    }
    Ok(Some(detail))
}

impl NodeDetail {
    fn refused(&mut self, error: Error) -> Result<(), SurveyError> {
        if error.is_no_auth() {
            self.forbidden = Some(error.to_string());
            return Ok(());
        }
        if error.is_no_node() {
            return Ok(());
        }
        Err(error.into())
    }

    fn show(&mut self, data: &[u8]) {
        let shown = data.get(..SHOWN_BYTES).unwrap_or(data);
        self.cut = shown.len() < data.len();
        // A cut may fall into a letter.
        let text = match std::str::from_utf8(shown) {
            Ok(text) => Some(text),
            Err(error) if self.cut && error.error_len().is_none() => shown
                .get(..error.valid_up_to())
                .and_then(|shown| std::str::from_utf8(shown).ok()),
            Err(_) => None,
        };
        let is_text = |text: &&str| !text.chars().any(|c| c.is_control() && !c.is_whitespace());
        match text.filter(is_text) {
            Some(text) => text.clone_into(&mut self.data),
            None => {
                self.binary = true;
                for line in shown.chunks(32) {
                    for byte in line {
                        // Writing to a string does not fail.
                        let _ = write!(self.data, "{byte:02x} ");
                    }
                    self.data.push('\n');
                }
            }
        }
    }
}

//! Details that are asked for by path: the whole of one recipe, a node of the tree.
//!
//! Owns the bounds of these answers, which a page pages through.

use std::fmt::Write;

use baton_client::{Client, Error, Stat};
use serde::Serialize;

use crate::error::SurveyError;
use crate::recipes::{Letter, Recipe};
use crate::scene::{Party, RecipeRow};
use crate::survey::Surveyor;

/// Holders, waiters, members and children of one answer.
const PAGE: usize = 500;
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

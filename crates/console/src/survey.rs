//! The survey as a whole: one round after the other.
//!
//! Owns the order in which a round's parts follow each other. A round that found no change costs
//! one read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::SurveyError;
use crate::history::{Changed, History};
use crate::reader::TreeReader;
use crate::recipes::{self, Recipe};
use crate::sessions::{self, SessionUse};
use crate::tree::{self, KnownTree, Limits};
use crate::waits::{self, Deadlock, WaitGraph};

/// Pause after a round, in multiples of the round: a survey takes at most this part of the time of
/// one thread.
const REST: u32 = 25;
/// Between two rounds, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The pause after a round that took so long, after this number of failures in a row: `least`, and
/// more after a long round or failures.
#[must_use]
pub fn pause_after(took: Duration, failures: u32, least: Duration) -> Duration {
    (took * REST)
        .max(least * failures.clamp(1, 10))
        .min(LONGEST_PAUSE.max(least))
}

/// Changes of one round.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Updated {
    /// The paths of recipes that are new, gone or different.
    pub recipes: BTreeSet<String>,
    /// Whether sessions or deadlocks may be different.
    pub others: bool,
}

/// Keeps a survey of a tree. Make a new one for a new session.
#[derive(Debug, Default)]
pub struct Surveyor {
    limits: Limits,
    tree: KnownTree,
    recipes: BTreeMap<String, Recipe>,
    sessions: BTreeMap<i64, SessionUse>,
    deadlocks: Vec<Deadlock>,
    history: History,
    watched: HashSet<String>,
    /// Lead of the servers' clock over this machine's.
    ahead_ms: i64,
}

impl Surveyor {
    /// A survey with these bounds. Nothing is read.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Reads what has changed since the last call. Always give it the same reader.
    ///
    /// # Errors
    /// [`SurveyError`]; the next call goes on from there.
    pub async fn update(&mut self, reader: &impl TreeReader) -> Result<Updated, SurveyError> {
        let round = self.tree.round(reader, &self.limits, &self.watched).await?;
        let newest = round.changed.iter().filter_map(|path| self.tree.get(path));
        let newest = newest
            .map(|node| node.stat.ctime.max(node.stat.mtime))
            .max();
        if let Some(newest) = newest {
            self.ahead_ms = self.ahead_ms.max(newest - local_ms());
        }
        let now_ms = self.now_ms();
        let mut updated = Updated::default();
        if !round.changed.is_empty() {
            let touched = tree::touched(&round.changed);
            updated.recipes = recipes::update(&mut self.recipes, &self.tree, &touched);
            updated.others = true;
            self.sessions = sessions::of(&self.tree, &self.recipes);
            self.watched = self
                .recipes
                .values()
                .flat_map(Recipe::holders)
                .map(|info| info.path.clone())
                .collect();
            let (recipes, changed) = (&self.recipes, &updated.recipes);
            self.history.note(recipes, &self.tree, changed, now_ms);
        }
        updated.recipes.extend(self.history.measure(now_ms));
        if round.walked {
            let tree = &self.tree;
            let written = |path: &str| tree.get(path).map(|node| node.stat.mzxid);
            let cycles = WaitGraph::of(&self.recipes, written).cycles();
            let before = std::mem::take(&mut self.deadlocks);
            self.deadlocks = waits::verified(reader, cycles).await?;
            updated.others |= before != self.deadlocks;
        }
        Ok(updated)
    }

    /// The recipes, by path.
    #[must_use]
    pub fn recipes(&self) -> &BTreeMap<String, Recipe> {
        &self.recipes
    }

    /// Returns the known past of a recipe.
    #[must_use]
    pub fn past(&self, path: &str) -> Option<&Changed> {
        self.history.of(path)
    }

    /// The sessions that own a node.
    #[must_use]
    pub fn sessions(&self) -> &BTreeMap<i64, SessionUse> {
        &self.sessions
    }

    /// The cycles of the wait-for graph. Each of them stood at one instant of the last round.
    #[must_use]
    pub fn deadlocks(&self) -> &[Deadlock] {
        &self.deadlocks
    }

    /// The known tree.
    #[must_use]
    pub fn tree(&self) -> &KnownTree {
        &self.tree
    }

    /// Milliseconds since 1970, by this machine's clock or that of the servers, whichever is known
    /// to be ahead: no node that was seen is newer.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        local_ms() + self.ahead_ms
    }
}

/// Milliseconds since 1970 by this machine's clock.
pub(crate) fn local_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0))
}

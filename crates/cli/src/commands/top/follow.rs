//! The survey, kept current by two tasks: one reads the tree, one asks the servers about
//! themselves.
//!
//! A slow server must not hold up the tree, nor a large tree the keys: each task hands over what it
//! has through a channel of its own, and only what a round has changed is copied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton_client::Client;
use baton_console::servers::{Connection, ServerRow, connections, row};
use baton_console::{
    Answers, Changed, Deadlock, Limits, Recipe, SessionReader, SessionUse, SurveyError, Surveyor,
    TreeReader, Updated, Words, pause_after,
};
use tokio::sync::watch;

/// Between two questions to the servers about themselves, at least.
const SERVERS_PACE: Duration = Duration::from_secs(5);
/// The words that servers are asked.
const WORDS: [&str; 3] = ["srvr", "mntr", "cons"];

/// A recipe, and what is known of its past.
#[derive(Debug)]
pub(super) struct ObservedRecipe {
    pub(super) recipe: Recipe,
    pub(super) past: Changed,
}

/// Findings of the last rounds on the tree. Cheap to clone for what it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) recipes: BTreeMap<String, Arc<ObservedRecipe>>,
    pub(super) sessions: Arc<BTreeMap<i64, SessionUse>>,
    pub(super) deadlocks: Arc<Vec<Deadlock>>,
    /// Number of nodes that were read.
    pub(super) nodes: usize,
    /// Whether a bound has kept something out.
    pub(super) partial: bool,
    /// Whether a round has ended at all.
    pub(super) is_known: bool,
    /// Failure of the last round.
    pub(super) error: Option<String>,
    /// The servers' clock at the last round, and when that was here.
    now: Option<(i64, Instant)>,
}

impl Tree {
    /// Milliseconds since 1970 by the servers' clock.
    pub(super) fn now_ms(&self) -> i64 {
        let Some((then_ms, at)) = self.now else {
            return 0;
        };
        then_ms.saturating_add(i64::try_from(at.elapsed().as_millis()).unwrap_or(0))
    }

    /// Takes in what a round has changed.
    pub(super) fn take_in(&mut self, surveyor: &Surveyor, updated: &Updated) {
        for path in &updated.recipes {
            let Some(recipe) = surveyor.recipes().get(path) else {
                self.recipes.remove(path);
                continue;
            };
            let seen = ObservedRecipe {
                recipe: recipe.clone(),
                past: surveyor.past(path).cloned().unwrap_or_default(),
            };
            self.recipes.insert(path.clone(), Arc::new(seen));
        }
        if updated.others || !self.is_known {
            self.sessions = Arc::new(surveyor.sessions().clone());
            self.deadlocks = Arc::new(surveyor.deadlocks().to_vec());
        }
        self.nodes = surveyor.tree().len();
        self.partial = surveyor.tree().is_partial;
        self.now = Some((surveyor.now_ms(), Instant::now()));
        self.is_known = true;
        self.error = None;
    }
}

/// Keeps the tree current for ever.
pub(super) async fn tree(client: &Client, least: Duration, kept: &watch::Sender<Tree>) {
    let mut survey = None;
    let mut failures = 0_u32;
    loop {
        let began = Instant::now();
        let outcome = round(client, &mut survey, kept).await;
        failures = match &outcome {
            Ok(()) => 0,
            Err(_) => failures.saturating_add(1),
        };
        if let Err(error) = outcome {
            kept.send_modify(|tree| tree.error = Some(error.to_string()));
        }
        tokio::time::sleep(pause_after(began.elapsed(), failures, least)).await;
    }
}

/// One round, by a session that is not over.
async fn round(
    client: &Client,
    survey: &mut Option<(SessionReader, Surveyor)>,
    kept: &watch::Sender<Tree>,
) -> Result<(), SurveyError> {
    survey.take_if(|(reader, _)| reader.is_over());
    let (reader, surveyor) = match survey {
        Some(survey) => survey,
        None => {
            let reader = SessionReader::of(client).await?;
            survey.insert((reader, Surveyor::new(Limits::default())))
        }
    };
    let is_new = surveyor.tree().is_empty();
    once(reader, surveyor, is_new, kept).await
}

/// One round of this survey. One that `is_new` is of a session that may not read what the one
/// before could.
pub(super) async fn once(
    reader: &impl TreeReader,
    surveyor: &mut Surveyor,
    is_new: bool,
    kept: &watch::Sender<Tree>,
) -> Result<(), SurveyError> {
    let updated = surveyor.update(reader).await?;
    kept.send_modify(|tree| {
        if is_new {
            *tree = Tree::default();
        }
        tree.take_in(surveyor, &updated);
    });
    Ok(())
}

/// A server, and what it does between two questions.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) row: ServerRow,
    /// Requests of its clients, with their pings, per second.
    pub(super) requests: Option<f64>,
    pub(super) reads: Option<f64>,
    pub(super) writes: Option<f64>,
    /// Mean times to their answers, in milliseconds.
    pub(super) read_ms: Option<f64>,
    pub(super) write_ms: Option<f64>,
    /// The time within which 99 of 100 syncs of its log ended, in milliseconds.
    pub(super) sync_ms: Option<f64>,
}

/// Reports of the servers about themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Servers {
    pub(super) all: Vec<Server>,
    /// The connections of sessions, where servers list them.
    pub(super) clients: BTreeMap<i64, Connection>,
}

/// Counters of one server. Each is absent where the server does not tell it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    requests: Option<f64>,
    reads: Option<f64>,
    read_ms: Option<f64>,
    writes: Option<f64>,
    write_ms: Option<f64>,
}

impl Counters {
    fn of(answers: &Answers) -> Self {
        let metric = |name| answers.metric(name);
        let received = || answers.field("Received")?.parse().ok();
        Self {
            requests: metric("zk_packets_received").or_else(received),
            reads: metric("zk_cnt_readlatency"),
            read_ms: metric("zk_sum_readlatency"),
            writes: metric("zk_cnt_updatelatency"),
            write_ms: metric("zk_sum_updatelatency"),
        }
    }
}

impl Server {
    /// Returns the summary of these answers; `before` are the seconds since the last ones, and
    /// their counters.
    pub(super) fn of(answers: &Answers, before: Option<(f64, Counters)>) -> (Self, Counters) {
        let now = Counters::of(answers);
        // A counter that has gone back is one of a server that has restarted.
        let more = |part: fn(&Counters) -> Option<f64>| {
            let (_, before) = before.as_ref()?;
            Some(part(&now)? - part(before)?).filter(|more| *more >= 0.0)
        };
        let rate = |part| {
            let (seconds, _) = before.as_ref().filter(|(seconds, _)| *seconds > 0.0)?;
            Some(more(part)? / seconds)
        };
        let mean = |total, count| {
            let count = more(count).filter(|count| *count > 0.0)?;
            Some(more(total)? / count)
        };
        let server = Self {
            row: row(answers),
            requests: rate(|counters| counters.requests),
            reads: rate(|counters| counters.reads),
            writes: rate(|counters| counters.writes),
            read_ms: mean(|counters| counters.read_ms, |counters| counters.reads),
            write_ms: mean(|counters| counters.write_ms, |counters| counters.writes),
            sync_ms: answers.metric("zk_p99_fsynctime"),
        };
        (server, now)
    }
}

/// Asks the servers about themselves for ever.
pub(super) async fn servers(words: &impl Words, least: Duration, kept: &watch::Sender<Servers>) {
    let mut before: BTreeMap<String, (Instant, Counters)> = BTreeMap::new();
    loop {
        let answers = words.ask(&WORDS).await;
        let at = Instant::now();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0));
        let mut servers = Servers::default();
        for answers in &answers {
            let earlier = before.remove(&answers.address);
            let earlier = earlier.map(|(then, counters)| (then.elapsed().as_secs_f64(), counters));
            let (server, counters) = Server::of(answers, earlier);
            if server.row.error.is_none() {
                before.insert(answers.address.clone(), (at, counters));
            }
            servers.all.push(server);
            servers.clients.extend(connections(answers, now_ms));
        }
        kept.send_replace(servers);
        tokio::time::sleep(SERVERS_PACE.max(least)).await;
    }
}

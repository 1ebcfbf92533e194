//! The survey that viewers look at: kept while somebody does, at a pace that its cost sets.
//!
//! Owns when a round begins, and what a page shows when one fails. One survey serves all viewers
//! of one identity. Nothing that a viewer asks for makes a round begin sooner.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use baton_client::Client;
use serde::Serialize;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::error::SurveyError;
use crate::reader::SessionReader;
use crate::scene::{Kind, Scene};
use crate::servers::{self, Connection, Words};
use crate::survey::{Surveyor, local_ms, pause_after};
use crate::tree::Limits;

/// Between two rounds, at least.
const PACE: Duration = Duration::from_secs(1);
/// Between two questions to the servers about themselves.
const SERVERS_PACE: Duration = Duration::from_secs(5);
/// Time that the survey goes on after the last viewer has gone.
const LINGER: Duration = Duration::from_secs(30);
/// Viewers at a time.
pub(crate) const MOST_VIEWERS: usize = 16;
/// The words that servers are asked.
const WORDS: [&str; 3] = ["srvr", "mntr", "cons"];

/// A survey with its viewers. Cheap to clone; the survey runs while there is a viewer.
#[derive(Clone)]
pub struct Console {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    name: String,
    words: Option<Arc<dyn Words>>,
    limits: Limits,
    scene: watch::Sender<Scene>,
    surveyor: Mutex<Option<(SessionReader, Surveyor)>>,
    /// Result of the last round.
    rounds: watch::Sender<Result<(), SurveyError>>,
    /// Viewers of this survey, at most.
    most: usize,
    own_places: Arc<Semaphore>,
    /// Places that it shares with other surveys.
    places: Arc<Semaphore>,
    task: std::sync::Mutex<Option<AbortHandle>>,
}

impl Inner {
    fn viewers(&self) -> usize {
        self.most
            .saturating_sub(self.own_places.available_permits())
    }

    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the survey's task out, unless somebody has begun to look: a viewer that comes from now
    /// on starts another.
    fn ends_unseen(&self) -> bool {
        let mut task = self.task();
        let ends = self.viewers() == 0;
        if ends {
            *task = None;
        }
        ends
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("name", &self.inner.name)
            .field("viewers", &self.inner.viewers())
            .finish_non_exhaustive()
    }
}

/// The row about the survey itself.
#[derive(Debug, Serialize)]
struct Meta<'a> {
    /// The servers, for people.
    servers: &'a str,
    /// Milliseconds since 1970 at the last round, by the clock by which nodes are dated.
    now_ms: i64,
    nodes: usize,
    /// Whether a bound has kept something out.
    partial: bool,
    round_ms: u128,
    error: Option<String>,
}

/// A place among the viewers, given back when it is dropped.
pub(crate) struct Viewer {
    pub(crate) scenes: watch::Receiver<Scene>,
    _places: [OwnedSemaphorePermit; 2],
}

impl Viewer {
    /// A viewer of these scenes with a place of each kind; `None`: all places of one are taken.
    pub(crate) fn new(
        scenes: watch::Receiver<Scene>,
        [own, shared]: [Arc<Semaphore>; 2],
    ) -> Option<Self> {
        let places = [
            own.try_acquire_owned().ok()?,
            shared.try_acquire_owned().ok()?,
        ];
        Some(Self {
            scenes,
            _places: places,
        })
    }
}

impl Console {
    /// A survey through `client`, of servers that people call `name`. Nothing is read until
    /// somebody looks.
    #[must_use]
    pub fn new(client: &Client, name: &str, words: Option<Arc<dyn Words>>) -> Self {
        let places = Arc::new(Semaphore::new(MOST_VIEWERS));
        Self::sharing(client, name, words, MOST_VIEWERS, places)
    }

    /// [`Console::new`] with a limit on viewers, each of whom takes one of these permits too.
    pub(crate) fn sharing(
        client: &Client,
        name: &str,
        words: Option<Arc<dyn Words>>,
        most: usize,
        places: Arc<Semaphore>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                client: client.clone(),
                name: name.to_owned(),
                words,
                limits: Limits::default(),
                scene: watch::Sender::default(),
                surveyor: Mutex::default(),
                rounds: watch::Sender::new(Ok(())),
                most,
                own_places: Arc::new(Semaphore::new(most)),
                places,
                task: std::sync::Mutex::default(),
            }),
        }
    }

    /// The client that the survey reads through.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Whether nobody else has it, and nothing keeps its survey current.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// A place among the viewers; `None`: all are taken.
    pub(crate) fn view(&self) -> Option<Viewer> {
        let places = [&self.inner.own_places, &self.inner.places].map(Arc::clone);
        let viewer = Viewer::new(self.inner.scene.subscribe(), places)?;
        self.keep_current();
        Some(viewer)
    }

    /// Has the survey kept current for a while. Whether nobody has done so until now, so that what
    /// is known is old.
    fn keep_current(&self) -> bool {
        let mut task = self.inner.task();
        let starts = task.as_ref().is_none_or(AbortHandle::is_finished);
        if starts {
            let survey = keep(Arc::clone(&self.inner));
            *task = Some(tokio::spawn(survey).abort_handle());
        }
        starts
    }

    /// Returns what `read` makes of the survey, which is as old as its last round. Waits for the
    /// first one, and for one more if nobody has kept the survey current.
    pub(crate) async fn with<T>(
        &self,
        read: impl FnOnce(&Surveyor) -> T,
    ) -> Result<T, SurveyError> {
        let mut rounds = self.inner.rounds.subscribe();
        let mut is_old = self.keep_current();
        loop {
            if !is_old
                && let Some((_, surveyor)) = &*self.inner.surveyor.lock().await
                && !surveyor.tree().is_empty()
            {
                return Ok(read(surveyor));
            }
            // The sender is this console's.
            let _ = rounds.changed().await;
            rounds.borrow_and_update().clone()?;
            is_old = false;
        }
    }
}

/// One round, by a session that is not over.
async fn round(
    inner: &Inner,
    place: &mut Option<(SessionReader, Surveyor)>,
) -> Result<(), SurveyError> {
    place.take_if(|(reader, _)| reader.is_over());
    if place.is_none() {
        let reader = SessionReader::of(&inner.client).await?;
        *place = Some((reader, Surveyor::new(inner.limits.clone())));
    }
    let Some((reader, surveyor)) = place else {
        return Ok(());
    };
    let is_new = surveyor.tree().is_empty();
    let updated = surveyor.update(reader).await?;
    inner.scene.send_if_modified(|scene| {
        if is_new {
            // What the session before has seen may not be what this one may read.
            for kind in [
                Kind::Lock,
                Kind::Election,
                Kind::Queue,
                Kind::Barrier,
                Kind::Members,
                Kind::Session,
                Kind::Deadlock,
            ] {
                scene.retain(kind, |_| false);
            }
        }
        scene.take_in(surveyor, &updated);
        is_new || updated.others || !updated.recipes.is_empty()
    });
    Ok(())
}

/// Keeps the survey current until nobody has looked for a while.
async fn keep(inner: Arc<Inner>) {
    let mut looked = Instant::now();
    let mut failures = 0_u32;
    // Ends with this task: a server that does not answer does not hold rounds up.
    let mut servers = JoinSet::new();
    if inner.words.is_some() {
        servers.spawn(keep_asking(Arc::clone(&inner)));
    }
    loop {
        if inner.viewers() > 0 {
            looked = Instant::now();
        } else if looked.elapsed() > LINGER && inner.ends_unseen() {
            return;
        }
        let began = Instant::now();
        let mut place = inner.surveyor.lock().await;
        let outcome = round(&inner, &mut place).await;
        let took = began.elapsed();
        failures = match &outcome {
            Ok(()) => 0,
            Err(_) => failures.saturating_add(1),
        };
        if let Err(error) = &outcome {
            tracing::debug!(%error, "a round of the survey failed; it is tried again");
        }
        report(&inner, place.as_ref(), outcome.as_ref().err(), took);
        drop(place);
        let _ = inner.rounds.send_replace(outcome);
        tokio::time::sleep(pause_after(took, failures, PACE)).await;
    }
}

/// Asks the servers about themselves, now and then.
async fn keep_asking(inner: Arc<Inner>) {
    loop {
        ask_servers(&inner).await;
        tokio::time::sleep(SERVERS_PACE).await;
    }
}

/// Says what the last round has come to. The page receives a mere passage of time only now and
/// then.
fn report(
    inner: &Inner,
    place: Option<&(SessionReader, Surveyor)>,
    error: Option<&SurveyError>,
    took: Duration,
) {
    const RESOLUTION_MS: i64 = 10_000;
    let surveyor = place.map(|(_, surveyor)| surveyor);
    let now_ms = surveyor.map_or(0, Surveyor::now_ms);
    let meta = Meta {
        servers: &inner.name,
        now_ms: now_ms - now_ms % RESOLUTION_MS,
        nodes: surveyor.map_or(0, |surveyor| surveyor.tree().len()),
        partial: surveyor.is_some_and(|surveyor| surveyor.tree().is_partial),
        // In steps, for the same reason.
        round_ms: took.as_millis() / 100 * 100,
        error: error.map(ToString::to_string),
    };
    inner
        .scene
        .send_modify(|scene| scene.set(Kind::Meta, "", &meta));
}

/// Asks the servers about themselves and their connections.
async fn ask_servers(inner: &Inner) {
    let Some(words) = &inner.words else { return };
    let answers = words.ask(&WORDS).await;
    let now_ms = local_ms();
    let mut clients: BTreeMap<i64, Connection> = BTreeMap::new();
    for answers in &answers {
        clients.extend(servers::connections(answers, now_ms));
    }
    inner.scene.send_modify(|scene| {
        scene.retain(Kind::Server, |id| {
            answers.iter().any(|answers| answers.address == id)
        });
        for answers in &answers {
            scene.set(Kind::Server, &answers.address, &servers::row(answers));
        }
        scene.retain(Kind::Client, |id| {
            i64::from_str_radix(id, 16).is_ok_and(|id| clients.contains_key(&id))
        });
        for (session, connection) in &clients {
            scene.set(Kind::Client, &format!("{session:x}"), connection);
        }
    });
}

//! The survey that viewers look at: kept while somebody does, at a pace that its cost sets.
//!
//! Owns when a round begins, and what a page shows when one fails. One survey serves all viewers
//! of one identity.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use baton_client::Client;
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;

use crate::error::SurveyError;
use crate::reader::SessionReader;
use crate::scene::{Kind, Scene};
use crate::servers::{self, Connection, Words};
use crate::survey::{Surveyor, local_ms};
use crate::tree::Limits;

/// Between two rounds, at least.
const PACE: Duration = Duration::from_secs(1);
/// How many times as long as a round the pause after it is: a survey takes at most this part of
/// the time of one thread.
const REST: u32 = 25;
/// Between two rounds, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Between two questions to the servers about themselves.
const SERVERS_PACE: Duration = Duration::from_secs(5);
/// How long the survey goes on after the last viewer has gone.
const LINGER: Duration = Duration::from_secs(30);
/// Viewers at a time.
const MOST_VIEWERS: usize = 16;
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
    viewers: AtomicUsize,
    task: std::sync::Mutex<Option<AbortHandle>>,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("name", &self.inner.name)
            .field("viewers", &self.inner.viewers.load(Relaxed))
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
    inner: Arc<Inner>,
    pub(crate) scenes: watch::Receiver<Scene>,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.inner.viewers.fetch_sub(1, Relaxed);
    }
}

impl Console {
    /// A survey through `client`, of servers that people call `name`. Nothing is read until
    /// somebody looks.
    #[must_use]
    pub fn new(client: &Client, name: &str, words: Option<Arc<dyn Words>>) -> Self {
        Self {
            inner: Arc::new(Inner {
                client: client.clone(),
                name: name.to_owned(),
                words,
                limits: Limits::default(),
                scene: watch::Sender::default(),
                surveyor: Mutex::default(),
                viewers: AtomicUsize::new(0),
                task: std::sync::Mutex::default(),
            }),
        }
    }

    /// The client that the survey reads through.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// A place among the viewers; `None`: all are taken.
    pub(crate) fn view(&self) -> Option<Viewer> {
        let more = |count: usize| (count < MOST_VIEWERS).then_some(count + 1);
        self.inner
            .viewers
            .fetch_update(Relaxed, Relaxed, more)
            .ok()?;
        let viewer = Viewer {
            inner: Arc::clone(&self.inner),
            scenes: self.inner.scene.subscribe(),
        };
        let mut task = self
            .inner
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let survey = keep(Arc::clone(&self.inner));
            *task = Some(tokio::spawn(survey).abort_handle());
        }
        Some(viewer)
    }

    /// What `read` makes of the survey as it is; brought up to date first if nobody keeps it.
    pub(crate) async fn with<T>(
        &self,
        read: impl FnOnce(&Surveyor) -> T,
    ) -> Result<T, SurveyError> {
        let mut place = self.inner.surveyor.lock().await;
        if self.inner.viewers.load(Relaxed) == 0 || place.is_none() {
            round(&self.inner, &mut place).await?;
        }
        match &*place {
            Some((_, surveyor)) => Ok(read(surveyor)),
            // A round leaves a surveyor behind.
            None => Ok(read(&Surveyor::new(self.inner.limits.clone()))),
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
    let mut asked: Option<Instant> = None;
    let mut failures = 0_u32;
    loop {
        if inner.viewers.load(Relaxed) > 0 {
            looked = Instant::now();
        } else if looked.elapsed() > LINGER {
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
        report(&inner, place.as_ref(), outcome.err(), took);
        drop(place);
        if asked.is_none_or(|at| at.elapsed() > SERVERS_PACE) {
            asked = Some(Instant::now());
            ask_servers(&inner).await;
        }
        let pause = (took * REST)
            .max(PACE * failures.clamp(1, 10))
            .min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
}

/// Says what the last round has come to. The page receives a mere passage of time only now and
/// then.
fn report(
    inner: &Inner,
    place: Option<&(SessionReader, Surveyor)>,
    error: Option<SurveyError>,
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
        error: error.map(|error| error.to_string()),
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

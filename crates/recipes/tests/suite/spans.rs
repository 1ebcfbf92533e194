//! The spans and events that a program may record: their names and fields are documented.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex as StdMutex};

#[cfg(feature = "embedded")]
use baton::LostReason;
use baton::{LeaderElection, Mutex, Semaphore, WorkQueue};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::common::{Stage, within};

/// A span or an event: its name or message, and its fields.
#[derive(Clone, Debug, Default)]
struct RecordedSpan {
    name: String,
    level: Option<Level>,
    fields: BTreeMap<String, String>,
}

impl Visit for RecordedSpan {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.name = format!("{value:?}");
        } else {
            let value = format!("{value:?}");
            self.fields
                .insert(field.name().to_owned(), value.trim_matches('"').to_owned());
        }
    }
}

/// Keeps the spans of the recipes and the events of sessions.
#[derive(Clone, Default)]
struct Recorder {
    /// Spans by id, which is given again once a span is closed.
    open: Arc<StdMutex<BTreeMap<u64, RecordedSpan>>>,
    closed: Arc<StdMutex<Vec<RecordedSpan>>>,
    events: Arc<StdMutex<Vec<RecordedSpan>>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        if attributes.metadata().target() != "baton" {
            return;
        }
        let mut seen = RecordedSpan {
            name: attributes.metadata().name().to_owned(),
            level: Some(*attributes.metadata().level()),
            ..RecordedSpan::default()
        };
        attributes.record(&mut seen);
        self.open.lock().unwrap().insert(id.into_u64(), seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(seen) = self.open.lock().unwrap().get_mut(&id.into_u64()) {
            values.record(seen);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut seen = RecordedSpan {
            level: Some(*event.metadata().level()),
            ..RecordedSpan::default()
        };
        event.record(&mut seen);
        if ["session state changed", "guard lost"].contains(&&*seen.name) {
            self.events.lock().unwrap().push(seen);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let closed = self.open.lock().unwrap().remove(&id.into_u64());
        self.closed.lock().unwrap().extend(closed);
    }
}

impl Recorder {
    /// Records on this thread, on which a test's runtime runs all of its tasks, and those of a
    /// client of [`Stage::client_here`].
    fn start() -> (Self, DefaultGuard) {
        // Beside a single one, a thread without a subscriber decides for all whether a span that it
        // is the first to open is recorded.
        static ANOTHER: LazyLock<Dispatch> =
            LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
        LazyLock::force(&ANOTHER);
        let recorder = Self::default();
        let subscriber = tracing_subscriber::registry().with(recorder.clone());
        (recorder, tracing::subscriber::set_default(subscriber))
    }

    /// No span of this name is open, and some were.
    fn expect_closed(&self, name: &str) {
        let (open, closed) = (self.open.lock().unwrap(), self.closed.lock().unwrap());
        assert!(!open.values().any(|seen| seen.name == name), "{open:#?}");
        assert!(closed.iter().any(|seen| seen.name == name), "{closed:#?}");
    }

    /// The span of this name whose fields hold `path` and `token`.
    fn expect(&self, name: &str, path: &str, token: u64) {
        let (open, closed) = (self.open.lock().unwrap(), self.closed.lock().unwrap());
        let token = token.to_string();
        let found = open.values().chain(&*closed).any(|seen| {
            seen.name == name
                && seen.level == Some(Level::INFO)
                && seen.fields.get("path").is_some_and(|at| at == path)
                && seen.fields.get("token") == Some(&token)
        });
        assert!(found, "{name} {path} {token}: {open:#?} {closed:#?}");
    }
}

#[tokio::test]
async fn each_step_of_a_recipe_has_a_span_with_path_and_token() {
    let stage = Stage::new("spans").await;
    let (recorder, _recording) = Recorder::start();
    let client = stage.client_here().await;
    let at = |name: &str| format!("{}/{name}", stage.path);

    let guard = within(Mutex::new(&client, &at("mutex")).unwrap().acquire()).await;
    let guard = guard.unwrap();
    let (node, token) = (guard.node().to_owned(), guard.token());
    within(guard.run(async {})).await.unwrap();
    within(guard.release()).await.unwrap();
    recorder.expect("acquire", &at("mutex"), token);
    recorder.expect("hold", &node, token);
    recorder.expect("run", &node, token);
    recorder.expect("release", &node, token);

    let semaphore = Semaphore::new(&client, &at("semaphore"), 2).unwrap();
    let guard = within(semaphore.acquire(1)).await.unwrap();
    recorder.expect("acquire", &at("semaphore"), guard.token());
    within(guard.release()).await.unwrap();

    let election = LeaderElection::new(&client, &at("election")).unwrap();
    let leadership = within(election.campaign()).await.unwrap();
    recorder.expect("campaign", &at("election"), leadership.token());
    within(leadership.resign()).await.unwrap();

    let queue = WorkQueue::new(&client, &at("work")).unwrap();
    within(queue.offer("item")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    let (item, token) = (claim.item().to_owned(), claim.token());
    recorder.expect("claim", &at("work"), token);
    within(claim.ack()).await.unwrap();
    recorder.expect_closed("hold");
    recorder.expect("settle", &item, token);
}

#[tokio::test]
async fn each_change_of_a_sessions_state_is_an_event() {
    let stage = Stage::new("events").await;
    let (recorder, _recording) = Recorder::start();
    let client = stage.client_here().await;
    let session = within(client.session()).await.unwrap();
    within(client.close_timeout(std::time::Duration::from_secs(5)))
        .await
        .unwrap();
    let events = recorder.events.lock().unwrap().clone();
    let id = format!("0x{:x}", session.id());
    assert!(
        events
            .iter()
            .all(|event| event.level == Some(Level::INFO) && event.fields["session"] == id),
        "{events:?}"
    );
    let states: Vec<_> = events.iter().map(|event| &*event.fields["state"]).collect();
    assert_eq!(states, ["connected (connection 1)", "closed"]);
    assert_eq!(events[1].fields["reason"], "the session is closed");
}

/// A client of an embedded server on this test's runtime.
#[cfg(feature = "embedded")]
fn here(config: baton::Config) -> baton::Config {
    config.runtime(tokio::runtime::Handle::current())
}

/// The facts that an operator looks for first: which session was lost, and what it held.
#[cfg(feature = "embedded")]
#[tokio::test]
async fn a_lost_session_is_a_warning_and_so_is_each_guard_of_it_once() {
    use baton::embedded::Embedded;
    let server = within(Embedded::builder().client(here).start())
        .await
        .unwrap();
    let (recorder, _recording) = Recorder::start();
    let client = server.connect().await.unwrap();
    let session = within(client.session()).await.unwrap();
    let mutex = Mutex::new(&client, "/report").unwrap();
    let guard = within(mutex.acquire()).await.unwrap();
    let other = Mutex::new(&client, "/other").unwrap();
    let other = within(other.acquire()).await.unwrap();
    within(server.expire(session.id())).await.unwrap();
    within(guard.lost()).await;
    within(other.lost()).await;
    assert!(guard.check().is_err());
    let id = format!("0x{:x}", session.id());
    let lost =
        |event: &RecordedSpan| event.level == Some(Level::WARN) && event.fields["session"] == id;
    let events = recorder.events.lock().unwrap().clone();
    let lost: Vec<_> = events.into_iter().filter(lost).collect();
    let of = |name: &str| lost.iter().filter(|event| event.name == name).count();
    assert_eq!(of("session state changed"), 1, "{lost:#?}");
    assert_eq!(of("guard lost"), 2, "{lost:#?}");
    let of_guard = |event: &&RecordedSpan| {
        event
            .fields
            .get("path")
            .is_some_and(|at| at == guard.node())
    };
    let line = lost.iter().find(of_guard).unwrap();
    assert_eq!(line.fields["token"], guard.token().to_string());
    assert_eq!(line.fields["reason"], LostReason::SessionLost.to_string());
}

/// A program that closes its session has lost nothing.
#[tokio::test]
async fn a_session_that_the_program_closes_is_no_warning() {
    let stage = Stage::new("closes").await;
    let (recorder, _recording) = Recorder::start();
    let client = stage.client_here().await;
    let mutex = Mutex::new(&client, &format!("{}/mutex", stage.path)).unwrap();
    let guard = within(mutex.acquire()).await.unwrap();
    within(client.close_timeout(std::time::Duration::from_secs(5)))
        .await
        .unwrap();
    assert!(guard.check().is_err());
    drop(guard);
    let events = recorder.events.lock().unwrap().clone();
    let warned = events.iter().any(|event| event.level == Some(Level::WARN));
    assert!(!warned, "{events:#?}");
}

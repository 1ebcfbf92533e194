//! `baton elect --http`: a small HTTP endpoint that says who leads, for load balancers and health
//! checks.
//!
//! Owns what it says. Whether this process leads is asked of the term's lease at each request,
//! never remembered; who else leads is answered with its age, and not at all once that could be
//! older than the session's timeout. So a process that is cut off names nobody, rather than a
//! leader that was.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use baton::election::Term;
use baton::guard::GuardStatus;
use baton::{LeaderElection, Leadership};
use baton_client::{Client, Session};
use baton_server::{StartError, http};
use tokio::task::JoinSet;

use super::leaders;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::record::record;

/// Between two attempts to find out who leads.
const PAUSE: Duration = Duration::from_secs(1);

/// The state behind the endpoint's answers.
#[derive(Default)]
struct EndpointState {
    path: String,
    /// The newest term of this process, if it has led.
    term: Option<(GuardStatus, Term)>,
    /// Leader that this session has read.
    seen: Option<(Session, Option<OtherLeader>)>,
}

/// The leader, as other sessions see it.
#[derive(Clone)]
struct OtherLeader {
    name: String,
    token: u64,
}

/// An endpoint that answers until it is dropped.
pub(super) struct Endpoint {
    known: Arc<Mutex<EndpointState>>,
    tasks: JoinSet<()>,
}

impl Endpoint {
    /// Listens on `address`, and says so.
    pub(super) async fn open(
        address: &str,
        path: &str,
        context: &Context,
    ) -> Result<Self, Failure> {
        let (listener, local) = http::bind(address).await.map_err(|error| match &error {
            StartError::Listen { source, .. } if source.kind() == ErrorKind::InvalidInput => {
                Failure::usage(format!("--http: {error}"))
            }
            _ => Failure::baton(format!("--http: {error}")),
        })?;
        context.output.note(format!(
            "{path}: the current leader is served at http://{local}/"
        ));
        let known = Arc::new(Mutex::new(EndpointState {
            path: path.to_owned(),
            ..EndpointState::default()
        }));
        let router = Router::new()
            .route("/", get(answer))
            .with_state(Arc::clone(&known));
        let mut tasks = JoinSet::new();
        tasks.spawn(http::serve(router, listener));
        Ok(Self { known, tasks })
    }

    /// Also answers who else leads.
    pub(super) fn observe(&mut self, client: &Client, election: &LeaderElection) {
        let (client, election) = (client.clone(), election.clone());
        self.tasks
            .spawn(observe(client, election, Arc::clone(&self.known)));
    }

    /// From now on this process leads, as long as the lease of `leadership` lasts.
    pub(super) fn leads(&self, leadership: &Leadership) {
        known(&self.known).term = Some((leadership.status(), leadership.term()));
    }
}

fn known(known: &Mutex<EndpointState>) -> MutexGuard<'_, EndpointState> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps up with who leads, one session after the other.
async fn observe(client: Client, election: LeaderElection, known_to: Arc<Mutex<EndpointState>>) {
    loop {
        if let Ok(session) = client.session().await {
            // So that what the session knows is renewed: the lease says how old it may be.
            let _lease = session.hold_lease().await;
            let mut observer = election.leaders();
            loop {
                let leader = tokio::select! {
                    leader = observer.next() => leader,
                    _ = session.ended() => break,
                };
                let Ok(leader) = leader else { break };
                let seen = leader.map(|leader| OtherLeader {
                    name: leaders::name(&leader),
                    token: leader.token,
                });
                known(&known_to).seen = Some((session.clone(), seen));
            }
        }
        known(&known_to).seen = None;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Answers 200 while this process leads, else 503.
async fn answer(State(state): State<Arc<Mutex<EndpointState>>>) -> Response {
    let known = known(&state);
    let term = known
        .term
        .as_ref()
        .filter(|(status, _)| status.check().is_ok());
    let seen = known.seen.as_ref().and_then(|(session, seen)| {
        let left = session.lease().remaining();
        let age = session.timeout().saturating_sub(left);
        (!left.is_zero()).then_some((seen.as_ref(), age))
    });
    let leader = seen.and_then(|(seen, _)| seen);
    let answer = record! {
        path: &known.path,
        leading: term.is_some(),
        lease_ms: term.map(|(status, _)| status.remaining().as_millis()),
        term: term.map(|(_, term)| term.epoch),
        name: leader.map(|seen| &*seen.name),
        token: leader.map(|seen| seen.token),
        age_ms: seen.map(|(_, age)| age.as_millis()),
    };
    let status = if term.is_some() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let text = serde_json::to_string(&answer).unwrap_or_default() + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

//! `GET /v1/health` and `GET /metrics`.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use crate::error::milliseconds;
use crate::state::Shared;

/// The state of an agent.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    version: &'static str,
    boot_id: String,
    now_ns: u64,
    servers: String,
    sessions: usize,
    guards: usize,
    claims: usize,
    holds: usize,
    /// For how long no server could be reached.
    unavailable_for_ms: Option<u64>,
}

pub(crate) async fn get(State(shared): State<Shared>) -> Json<Health> {
    let unavailable = shared.sessions.unavailable_for();
    Json(Health {
        version: env!("CARGO_PKG_VERSION"),
        boot_id: shared.boot_id.to_string(),
        now_ns: crate::boot_clock::now_ns(),
        servers: shared.sessions.servers(),
        sessions: shared.sessions.count(),
        guards: shared.held.count(),
        claims: shared.claims.count(),
        holds: shared.holds.count(),
        unavailable_for_ms: unavailable.map(milliseconds),
    })
}

pub(crate) async fn metrics(State(shared): State<Shared>) -> String {
    let unavailable = shared.sessions.unavailable_for().unwrap_or_default();
    format!(
        "# TYPE baton_agent_sessions gauge\nbaton_agent_sessions {}\n\
         # TYPE baton_agent_guards gauge\nbaton_agent_guards {}\n\
         # TYPE baton_agent_claims gauge\nbaton_agent_claims {}\n\
         # TYPE baton_agent_holds gauge\nbaton_agent_holds {}\n\
         # TYPE baton_agent_unavailable_seconds gauge\nbaton_agent_unavailable_seconds {}\n",
        shared.sessions.count(),
        shared.held.count(),
        shared.claims.count(),
        shared.holds.count(),
        unavailable.as_secs_f64(),
    )
}

//! `POST /v1/elect/PATH`: leadership that lives as long as its response.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use baton::LeaderElection;
use baton::lock::WaitProgress;
use serde::Deserialize;

use crate::body::{self, ZnodeRequest};
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::events::respond;
use crate::held::{Holding, data_of, hold};
use crate::lock::waiting;
use crate::state::Shared;

/// The body of a request to lead.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ElectRequest {
    wait_ms: Option<u64>,
    session_timeout_ms: Option<u64>,
    name: Option<String>,
    /// Shown to those who watch the election, such as an address.
    data: String,
    data_base64: Option<String>,
}

pub(crate) async fn post(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    ZnodeRequest {
        path,
        params: request,
    }: ZnodeRequest<ElectRequest>,
) -> Result<Response, ApiError> {
    let data = data_of(&request.data, request.data_base64.as_deref())?;
    let client = shared.sessions.client(caller, request.session_timeout_ms)?;
    let name = request.name.unwrap_or_else(|| caller.label());
    let election = LeaderElection::new(&client, &path);
    let election = election.map_err(|error| ApiError::of(&path, &error))?;
    Ok(respond(move |events| async move {
        let progress = WaitProgress::new();
        let election = election.name(&name).data(&data).progress(&progress);
        let campaign = async {
            match body::limit(request.wait_ms) {
                None => election.campaign().await.map(Some),
                Some(limit) if limit.is_zero() => election.try_campaign().await,
                Some(limit) => election.campaign_timeout(limit).await.map(Some),
            }
        };
        let Some(elected) = waiting(campaign, &progress, &events).await else {
            return;
        };
        let elected = elected.map_err(|error| ApiError::of(&path, &error));
        shared.sessions.note(elected.as_ref().err());
        match elected {
            Ok(Some(leadership)) => {
                let holding = Holding::Term(leadership);
                hold(shared.held, caller, &shared.boot_id, &path, holding, events).await;
            }
            Ok(None) => {
                let next = "wait with wait_ms";
                let cause = "somebody else leads";
                events.refuse(ApiError::new(Code::NotAcquired, path, cause, next));
            }
            Err(error) => events.refuse(error),
        }
    })
    .await)
}

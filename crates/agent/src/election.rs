//! `POST /v1/elect/PATH`: leadership that lives as long as its response.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use baton::LeaderElection;
use baton::lock::WaitProgress;
use serde::Deserialize;

use crate::body::LastingRequest;
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::events::respond;
use crate::held::{Holding, data_of};
use crate::openapi::{Field, Kind};
use crate::state::Shared;
use crate::waiting::{waiting, within};

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

/// The fields of [`ElectRequest`].
pub(crate) const FIELDS: [Field; 5] = [
    Field::new("wait_ms", Kind::Count),
    Field::new("session_timeout_ms", Kind::Count),
    Field::new("name", Kind::Text),
    Field::new("data", Kind::Text),
    Field::new("data_base64", Kind::Text),
];

pub(crate) async fn hold(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    LastingRequest {
        path,
        params: request,
        mut hold,
    }: LastingRequest<ElectRequest>,
) -> Result<Response, ApiError> {
    let data = data_of(&request.data, request.data_base64.as_deref())?;
    let client = shared
        .sessions
        .client(&caller, request.session_timeout_ms)?;
    let name = request.name.unwrap_or_else(|| caller.program());
    let election = LeaderElection::new(&client, &path);
    let election = election.map_err(|error| ApiError::of(&path, &error))?;
    Ok(respond(move |events| async move {
        let progress = WaitProgress::new();
        let election = election.name(&name).pid(caller.shown_pid()).data(&data);
        let election = election.progress(&progress);
        let campaign = within(
            request.wait_ms,
            || election.campaign(),
            || election.try_campaign(),
            |limit| election.campaign_timeout(limit),
        );
        let campaign = async { campaign.await.map_err(|error| ApiError::of(&path, &error)) };
        let held = (path.as_str(), &mut hold);
        let elected = waiting(campaign, request.wait_ms, &progress, held, &events).await;
        let Some(elected) = elected else {
            return;
        };
        let not_acquired = || {
            let (cause, next) = ("somebody else leads", "wait with wait_ms");
            ApiError::new(Code::NotAcquired, path.clone(), cause, next)
        };
        let granted = elected.and_then(|term| term.map(Holding::Term).ok_or_else(not_acquired));
        shared
            .hold(&caller, (&client, &path), granted, hold, events)
            .await;
    })
    .await)
}

/// Reads bytes as a body, for a fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn parse(bytes: &[u8]) {
    // Refused or not, it ends.
    let _ = crate::body::parse::<ElectRequest>(bytes);
}

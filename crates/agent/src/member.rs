//! `POST /v1/member/PATH`: a registration that lives as long as its response. `GET`: the members,
//! a line for each change.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use baton::Membership;
use baton::membership::Member;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{LastingRequest, OpenBody, Rest};
use crate::caller::Caller;
use crate::error::ApiError;
use crate::events::respond;
use crate::held::data_of;
use crate::openapi::{Field, Kind};
use crate::state::Shared;

/// The body of a request to join.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinRequest {
    id: String,
    #[serde(default)]
    data: String,
    data_base64: Option<String>,
    session_timeout_ms: Option<u64>,
}

/// The fields of [`JoinRequest`].
pub(crate) const FIELDS: [Field; 4] = [
    Field::required("id", Kind::Text),
    Field::new("data", Kind::Text),
    Field::new("data_base64", Kind::Text),
    Field::new("session_timeout_ms", Kind::Count),
];

pub(crate) async fn join(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    LastingRequest {
        path,
        params: request,
        mut hold,
    }: LastingRequest<JoinRequest>,
) -> Result<Response, ApiError> {
    let data = data_of(&request.data, request.data_base64.as_deref())?;
    let client = shared
        .sessions
        .client(&caller, request.session_timeout_ms)?;
    let group = Membership::new(&client, &path).map_err(|error| ApiError::of(&path, &error))?;
    Ok(respond(move |events| async move {
        // Keeps the session open.
        let _client = client;
        let joined = match group.join(&request.id, &data) {
            Ok(joined) => joined,
            Err(error) => return events.refuse(ApiError::of(&path, &error)),
        };
        let registered = tokio::select! {
            biased;
            registered = joined.registered() => registered,
            () = events.gone() => return joined.leave().await,
            ended = hold.ended() => {
                joined.leave().await;
                if ended.is_ok() {
                    events.refuse(OpenBody::gave_up(&path));
                }
                return;
            }
        };
        if let Err(error) = registered {
            return events.refuse(ApiError::of(&path, &error));
        }
        let event = json!({ "event": "joined", "path": path, "id": request.id });
        let mut is_released = false;
        if events.send(&event).is_ok() {
            tokio::select! {
                ended = hold.ended() => is_released = ended.is_ok(),
                () = joined.node().ended() => {
                    let next = "join again, under another id if this one is taken";
                    let event = json!({ "event": "lost", "next_step": next });
                    // The caller may have gone.
                    let _ = events.send(&event);
                }
                () = events.gone() => {}
            }
        }
        joined.leave().await;
        if is_released {
            // The caller may have gone.
            let _ = events.send(&json!({ "event": "released" }));
        }
    })
    .await)
}

pub(crate) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    rest: Rest,
) -> Result<Response, ApiError> {
    let path = rest.znode_path();
    let client = shared.sessions.client(&caller, None)?;
    let group = Membership::new(&client, &path).map_err(|error| ApiError::of(&path, &error))?;
    Ok(respond(move |events| async move {
        // Keeps the session open.
        let _client = client;
        let mut updates = match group.updates() {
            Ok(updates) => updates,
            Err(error) => return events.refuse(ApiError::of(&path, &error)),
        };
        loop {
            let update = tokio::select! {
                biased;
                update = updates.next() => update,
                () = events.gone() => return,
            };
            let update = match update {
                Ok(update) => update,
                Err(error) => return events.refuse(ApiError::of(&path, &error)),
            };
            let members: Vec<Value> = update.members.iter().map(shown).collect();
            if events
                .send(&json!({ "event": "members", "members": members }))
                .is_err()
            {
                return;
            }
        }
    })
    .await)
}

fn shown(member: &Member) -> Value {
    json!({
        "id": member.id,
        "data": String::from_utf8_lossy(&member.data),
        "session": format!("0x{:x}", member.session_id),
    })
}

/// Reads bytes as a body, for a fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn parse(bytes: &[u8]) {
    // Refused or not, it ends.
    let _ = crate::body::parse::<JoinRequest>(bytes);
}

//! `POST /v1/queue/PATH/put`, `take`, `ack`, `nack` and `extend`: a work queue whose claims live as
//! long as the response that took them, or until they are settled.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use baton::WorkQueue;
use baton::work_queue::{Claim, WorkItem};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::body::{self, Rest};
use crate::caller::Caller;
use crate::claims::Settle;
use crate::error::{ApiError, Code};
use crate::events::{Events, respond};
use crate::held::data_of;
use crate::lease::{self, Lease};
use crate::openapi::{Answer, Field, Kind, Operation};
use crate::state::Shared;
use crate::waiting::within;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PutRequest {
    data: String,
    data_base64: Option<String>,
    priority: Option<u16>,
    delay_ms: Option<u64>,
    id: Option<String>,
    max_attempts: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TakeRequest {
    wait_ms: Option<u64>,
    visibility_ms: Option<u64>,
    session_timeout_ms: Option<u64>,
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleRequest {
    claim: String,
    #[serde(default)]
    reason: String,
    delay_ms: Option<u64>,
}

/// The fields of [`SettleRequest`].
const SETTLE_FIELDS: [Field; 3] = [
    Field::required("claim", Kind::Text),
    Field::new("reason", Kind::Text),
    Field::new("delay_ms", Kind::Count),
];

/// The requests about a queue.
pub(crate) const OPERATIONS: [Operation; 5] = [
    Operation::post("/v1/queue/{path}/put", "Puts an item.").fields(&[
        Field::new("data", Kind::Text),
        Field::new("data_base64", Kind::Text),
        Field::new("priority", Kind::Count),
        Field::new("delay_ms", Kind::Count),
        Field::new("id", Kind::Text),
        Field::new("max_attempts", Kind::Count),
    ]),
    Operation::post(
        "/v1/queue/{path}/take",
        "Takes an item; it comes back if the response closes first.",
    )
    .fields(&[
        Field::new("wait_ms", Kind::Count),
        Field::new("visibility_ms", Kind::Count),
        Field::new("session_timeout_ms", Kind::Count),
        Field::new("name", Kind::Text),
    ])
    .answers(Answer::Stream),
    Operation::post("/v1/queue/{path}/ack", "Removes an item: it is done.").fields(&SETTLE_FIELDS),
    Operation::post("/v1/queue/{path}/nack", "Gives an item back.").fields(&SETTLE_FIELDS),
    Operation::post("/v1/queue/{path}/extend", "Extends a claim.").fields(&SETTLE_FIELDS),
];

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum ItemEvent<'a> {
    Item {
        claim: &'a str,
        item: &'a str,
        /// The payload, where it is text.
        data: Option<&'a str>,
        data_base64: String,
        attempt: u32,
        token: u64,
        #[serde(flatten)]
        lease: Lease<'a>,
    },
    Lease(Lease<'a>),
    Lost {
        reason: String,
        next_step: &'static str,
    },
    Settled {},
}

pub(crate) async fn post(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    rest: Rest,
    body: Body,
) -> Result<Response, ApiError> {
    let unknown = || {
        let next = "end the path in /put, /take, /ack, /nack or /extend";
        ApiError::refused(format!("/v1/queue/{}", rest.0), "no such operation", next)
            .with_status(axum::http::StatusCode::NOT_FOUND)
    };
    let (path, action) = rest.split_action().ok_or_else(unknown)?;
    let done = Json(json!({ "done": true })).into_response();
    let claims = &shared.claims;
    match action {
        "put" => put(&shared, &caller, &path, body::read(body).await?).await,
        "take" => take(shared, caller, path, body::read(body).await?).await,
        "ack" => {
            let request: SettleRequest = body::read(body).await?;
            claims.settle(&caller, &request.claim, Settle::Ack).await?;
            Ok(done)
        }
        "nack" => {
            let request: SettleRequest = body::read(body).await?;
            let how = Settle::Nack {
                reason: request.reason,
                delay: request.delay_ms.map(Duration::from_millis),
            };
            claims.settle(&caller, &request.claim, how).await?;
            Ok(done)
        }
        "extend" => {
            let request: SettleRequest = body::read(body).await?;
            claims
                .settle(&caller, &request.claim, Settle::Extend)
                .await?;
            Ok(done)
        }
        _ => Err(unknown()),
    }
}

async fn put(
    shared: &Shared,
    caller: &Caller,
    path: &str,
    request: PutRequest,
) -> Result<Response, ApiError> {
    let client = shared.sessions.client(caller, None)?;
    let refused = |error: baton::work_queue::WorkError| ApiError::of(path, &error);
    let queue = WorkQueue::new(&client, path).map_err(refused)?;
    let mut item = WorkItem::new(data_of(&request.data, request.data_base64.as_deref())?);
    if let Some(priority) = request.priority {
        item = item.priority(priority);
    }
    if let Some(delay) = request.delay_ms {
        item = item.delay(Duration::from_millis(delay));
    }
    if let Some(id) = request.id {
        item = item.id(id);
    }
    if let Some(attempts) = request.max_attempts {
        item = item.max_attempts(attempts);
    }
    let offered = queue.offer(item).await.map_err(refused);
    let item = shared.sessions.note(offered)?;
    Ok(Json(json!({ "item": item })).into_response())
}

async fn take(
    shared: Shared,
    caller: Caller,
    path: String,
    request: TakeRequest,
) -> Result<Response, ApiError> {
    let client = shared
        .sessions
        .client(&caller, request.session_timeout_ms)?;
    let queue = WorkQueue::new(&client, &path);
    let mut queue = queue.map_err(|error| ApiError::of(&path, &error))?;
    queue = queue.name(&request.name.unwrap_or_else(|| caller.program()));
    queue = queue.pid(caller.shown_pid());
    if let Some(visibility) = request.visibility_ms {
        queue = queue.visibility(Duration::from_millis(visibility));
    }
    Ok(respond(move |events| async move {
        // Keeps the session open.
        let _client = client;
        let taking = within(
            request.wait_ms,
            || queue.take(),
            || queue.poll(),
            |limit| queue.take_timeout(limit),
        );
        let taken = tokio::select! {
            biased;
            taken = taking => taken.map_err(|error| ApiError::of(&path, &error)),
            () = events.gone() => return,
        };
        match shared.sessions.note(taken) {
            Ok(Some(claim)) => own(&shared, &caller, claim, events).await,
            Ok(None) => {
                let next = "wait with wait_ms, or put an item";
                events.refuse(ApiError::new(
                    Code::NotAcquired,
                    path,
                    "no item is there",
                    next,
                ));
            }
            Err(error) => events.refuse(error),
        }
    })
    .await)
}

/// Owns a claim for a caller until it is settled or lost or the caller goes.
async fn own(shared: &Shared, caller: &Caller, claim: Claim, events: Events) {
    let (entry, mut inbox) = match shared.claims.add(caller) {
        Ok(added) => added,
        Err(error) => return events.refuse(error),
    };
    let boot_id = &shared.boot_id;
    let event = ItemEvent::Item {
        claim: entry.id(),
        item: claim.id(),
        data: std::str::from_utf8(claim.payload()).ok(),
        data_base64: STANDARD.encode(claim.payload()),
        attempt: claim.attempt(),
        token: claim.token(),
        lease: Lease::of(boot_id, || claim.remaining()),
    };
    let mut is_gone = events.send(&event).is_err();
    let mut lost = std::pin::pin!(claim.lost());
    while !is_gone {
        tokio::select! {
            biased;
            reason = &mut lost => {
                let reason = reason.to_string();
                let next_step = "stop the work on the item: another consumer may have it";
                // The caller may have gone.
                let _ = events.send(&ItemEvent::Lost { reason, next_step });
                return;
            }
            () = events.gone() => is_gone = true,
            command = inbox.recv() => {
                let Some((how, answer)) = command else { return };
                let item = claim.item().to_owned();
                let settled = match how {
                    Settle::Extend => {
                        let extended = claim.extend().await;
                        let extended = extended.map_err(|error| ApiError::of(&item, &error));
                        // The asker may have gone.
                        let _ = answer.send(extended);
                        let lease = Lease::of(boot_id, || claim.remaining());
                        is_gone = events.send(&ItemEvent::Lease(lease)).is_err();
                        continue;
                    }
                    Settle::Ack => claim.ack().await,
                    Settle::Nack { reason, delay: None } => claim.nack(&reason).await,
                    Settle::Nack { reason, delay: Some(delay) } => {
                        claim.nack_after(delay, &reason).await
                    }
                };
                let settled = settled.map_err(|error| ApiError::of(&item, &error));
                if settled.is_ok() {
                    // The caller may have gone.
                    let _ = events.send(&ItemEvent::Settled {});
                }
                let _ = answer.send(settled);
                return;
            }
            () = lease::pause(claim.remaining()) => {
                let lease = Lease::of(boot_id, || claim.remaining());
                is_gone = events.send(&ItemEvent::Lease(lease)).is_err();
            }
        }
    }
    // The item is for the next consumer at once. No server has to say so: the claim ends by itself.
    let _ = claim.release().await;
}

/// Reads bytes as a body, for a fuzzer.
#[cfg(feature = "testing")]
pub(crate) fn parse(bytes: &[u8]) {
    let _ = crate::body::parse::<PutRequest>(bytes);
    let _ = crate::body::parse::<TakeRequest>(bytes);
    let _ = crate::body::parse::<SettleRequest>(bytes);
}

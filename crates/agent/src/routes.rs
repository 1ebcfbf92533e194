//! The interface, version 1: which handler answers which path, and the fields of each request. The
//! router and the OpenAPI document are both made of the one table.

use axum::http::StatusCode;
use axum::routing::{MethodRouter, any, get, post};
use axum::{Json, Router};
use serde_json::Value;

use crate::error::ApiError;
use crate::openapi::{self, Answer, Field, Kind, Operation};
use crate::state::Shared;
use crate::{counter, election, guard, health, hold, listing, lock, member, queue};

/// A pattern of paths, its handlers, and what they do.
struct Route {
    pattern: &'static str,
    handlers: fn() -> MethodRouter<Shared>,
    operations: &'static [Operation],
}

/// Each request of the interface.
const ROUTES: [Route; 12] = [
    Route {
        pattern: "/v1/lock/{*path}",
        handlers: || post(lock::hold).put(lock::hold),
        operations: &[
            Operation::post(
                "/v1/lock/{path}",
                "Holds a lock as long as the response is open.",
            )
            .fields(&lock::FIELDS)
            .answers(Answer::Stream),
            Operation::put(
                "/v1/lock/{path}",
                "Holds a lock as long as the body is open; its first line has the fields.",
            )
            .fields(&lock::FIELDS)
            .answers(Answer::Stream),
        ],
    },
    Route {
        pattern: "/v1/guard/{id}/{action}",
        handlers: || post(guard::post),
        operations: &[
            Operation::post(
                "/v1/guard/{id}/release",
                "Releases, and waits for a server's confirmation.",
            ),
            Operation::post(
                "/v1/guard/{id}/renew",
                "The milliseconds left of the lease, counted from before the request was sent.",
            ),
            Operation::post(
                "/v1/guard/{id}/txn",
                "Applies writes together if the lock is still held.",
            )
            .fields(&[Field::required("writes", Kind::List)]),
        ],
    },
    Route {
        pattern: "/v1/token/{*path}",
        handlers: || get(listing::token),
        operations: &[Operation::get(
            "/v1/token/{path}/{number}",
            "Whether the number is the token of the present holder.",
        )],
    },
    Route {
        pattern: "/v1/hold/{*path}",
        handlers: || post(hold::post).delete(hold::delete),
        operations: &[
            Operation::post("/v1/hold/{path}", "Holds a lock that outlives the request.").fields(
                &[
                    Field::required("ttl_ms", Kind::Count),
                    Field::new("token", Kind::Count),
                    Field::new("lock", Kind::Object),
                ],
            ),
            Operation::delete("/v1/hold/{path}", "Releases such a lock.")
                .parameters(&[Field::required("token", Kind::Count)]),
        ],
    },
    Route {
        pattern: "/v1/elect/{*path}",
        handlers: || post(election::hold).put(election::hold),
        operations: &[
            Operation::post("/v1/elect/{path}", "Leads as long as the response is open.")
                .fields(&election::FIELDS)
                .answers(Answer::Stream),
            Operation::put("/v1/elect/{path}", "Leads as long as the body is open.")
                .fields(&election::FIELDS)
                .answers(Answer::Stream),
        ],
    },
    Route {
        pattern: "/v1/queue/{*path}",
        handlers: || post(queue::post),
        operations: &queue::OPERATIONS,
    },
    Route {
        pattern: "/v1/member/{*path}",
        handlers: || post(member::join).put(member::join).get(member::get),
        operations: &[
            Operation::post(
                "/v1/member/{path}",
                "Is a member as long as the response is open.",
            )
            .fields(&member::FIELDS)
            .answers(Answer::Stream),
            Operation::put(
                "/v1/member/{path}",
                "Is a member as long as the body is open.",
            )
            .fields(&member::FIELDS)
            .answers(Answer::Stream),
            Operation::get("/v1/member/{path}", "The members, a line for each change.")
                .answers(Answer::Stream),
        ],
    },
    Route {
        pattern: "/v1/counter/{*path}",
        handlers: || post(counter::post).get(counter::get),
        operations: &[
            Operation::post(
                "/v1/counter/{path}/add",
                "Adds to a counter, and returns its value.",
            )
            .fields(&[Field::new("delta", Kind::Integer)]),
            Operation::get("/v1/counter/{path}", "The value of a counter."),
        ],
    },
    Route {
        pattern: "/v1/locks",
        handlers: || get(listing::locks),
        operations: &[Operation::get(
            "/v1/locks",
            "Who holds and who waits: of one lock, or of all below a prefix.",
        )
        .parameters(&[
            Field::new("path", Kind::Text),
            Field::new("prefix", Kind::Text),
        ])],
    },
    Route {
        pattern: "/v1/health",
        handlers: || get(health::get),
        operations: &[Operation::get(
            "/v1/health",
            "The agent, its sessions, and since when no server answers.",
        )],
    },
    Route {
        pattern: "/v1/openapi.json",
        handlers: || get(document),
        operations: &[Operation::get("/v1/openapi.json", "This document.")],
    },
    Route {
        pattern: "/metrics",
        handlers: || get(health::metrics),
        operations: &[
            Operation::get("/metrics", "Metrics of the agent for Prometheus.")
                .answers(Answer::Text),
        ],
    },
];

/// The interface. Each request needs its [`Caller`](crate::Caller) as an extension.
pub(crate) fn router(shared: Shared) -> Router {
    routed(|_| true).fallback(unknown).with_state(shared)
}

/// The interface without what is not below `/v1/`, to be merged with other routes.
pub(crate) fn below_v1(shared: Shared) -> Router {
    routed(|pattern| pattern.starts_with("/v1/"))
        .route("/v1/{*rest}", any(unknown))
        .with_state(shared)
}

fn routed(is_wanted: fn(&str) -> bool) -> Router<Shared> {
    let routes = ROUTES.iter().filter(|route| is_wanted(route.pattern));
    let router = routes.fold(Router::new(), |router, route| {
        router.route(route.pattern, (route.handlers)())
    });
    router.method_not_allowed_fallback(wrong_method)
}

/// Reads bytes as the body of each request, for a fuzzer.
#[cfg(feature = "testing")]
pub fn parse_bodies(bytes: &[u8]) {
    lock::parse(bytes);
    hold::parse(bytes);
    election::parse(bytes);
    member::parse(bytes);
    queue::parse(bytes);
    guard::parse(bytes);
    counter::parse(bytes);
}

async fn document() -> Json<Value> {
    Json(whole_document())
}

fn whole_document() -> Value {
    openapi::document(ROUTES.iter().flat_map(|route| route.operations))
}

async fn unknown(request: axum::extract::Request) -> ApiError {
    let next = "use a path of the interface's version 1, such as /v1/lock/PATH";
    let thing = request.uri().path().to_owned();
    ApiError::refused(thing, "no such path", next).with_status(StatusCode::NOT_FOUND)
}

async fn wrong_method(request: axum::extract::Request) -> ApiError {
    let thing = format!("{} {}", request.method(), request.uri().path());
    let next = "use the method that the interface gives for this path";
    ApiError::refused(thing, "this path has no such method", next)
        .with_status(StatusCode::METHOD_NOT_ALLOWED)
}

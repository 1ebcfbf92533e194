//! Baton's agent: the guard of a lock for programs in any language, over HTTP/1.1 with JSON lines
//! on a unix socket. A lock lives as long as the exchange that holds it: when the program dies, the
//! kernel closes the socket and the agent releases the lock at once.
//!
//! Owns the interface (`docs/internals/agent.md`) and the sessions behind it. Never extends a lease
//! beyond what its own guard shows, and never shows one owner what another holds.
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `agent` | the listening socket, the bound on connections, the stop |
//! | `connection` | one connection of a caller: its requests and their answers |
//! | `interface` | the same routes for callers whom another program admits |
//! | `routes` | which handler answers which path, and the fields of each request |
//! | `hold`, `election` | the handlers of locks that outlive their request, and of leadership |
//! | `lock`, `guard`, `queue`, `member`, `counter`, `listing`, `health` | the other handlers |
//! | `waiting` | a caller that waits: for how long, and the events of its position |
//! | `state` | what the handlers share |
//! | `hold_table`, `claims` | locks that outlive their request; claims on items of work queues |
//! | `held` | what is held for callers: the life of one guard, from grant to release |
//! | `sessions` | the sessions of each owner |
//! | `caller` | the caller behind a connection, and what it owns |
//! | `body` | the JSON of a request, and the limits on it |
//! | `events` | a response of JSON lines |
//! | `input` | the bytes of a caller: heads, and bodies for the handlers |
//! | `framing` | where heads and bodies of HTTP end |
//! | `error` | refusals: thing, cause, next step, HTTP status |
//! | `openapi` | requests as they are documented |
//! | `lease` | the end of a lease, as callers receive it |
//! | `boot_clock` | the clock of leases, as callers of the same machine read it |

#![forbid(unsafe_code)]

mod agent;
mod body;
mod boot_clock;
mod caller;
mod claims;
mod connection;
mod counter;
mod election;
mod error;
mod events;
mod framing;
mod guard;
mod health;
mod held;
mod hold;
mod hold_table;
mod input;
mod interface;
mod lease;
mod listing;
mod lock;
mod member;
mod openapi;
mod queue;
mod routes;
mod sessions;
mod state;
mod waiting;

pub use agent::{Agent, AgentOptions, StartError};
pub use caller::Caller;
#[cfg(feature = "testing")]
pub use framing::parse_requests;
pub use interface::{Interface, refusal};
#[cfg(feature = "testing")]
pub use routes::parse_bodies;

//! A ZooKeeper-protocol session that knows its own lease and never guesses an outcome.
//!
//! - [`Session`]: one session with the servers. It reconnects by itself; when it is over,
//!   it stays over.
//! - [`Client`]: makes a new session after the loss of one, and hands it on explicitly.
//! - [`Pending`]: an operation on its way. Its [`Error`] distinguishes *not sent*, *maybe applied*
//!   and *rejected*.
//! - [`Session::lease`]: until when the session is known to live, wait-free.
//! - [`Session::states`]: every change of state, in order, none dropped.
//!
//! This crate decides whether a session is alive; the crates above ask it. It never retries a
//! write.
//!
//! | module | owns |
//! |---|---|
//! | `supervisor` | [`Client`]: a new session after a loss |
//! | `session/` | one session: connection, operations, outcomes, watches, cleanup |
//! | `config` | options of a session |
//! | `lease/` | until when the session is known to live |
//! | `runtime` | the thread that sessions run on |
//! | `error` | how operations fail |
//! | `state` | every change of state, to every listener, in order |
//! | `testing` | helpers for tests of users of this crate |
//! | `tls` | TLS, or none of it without the feature |
//! | `transport`, `values` | sockets; what operations take and yield |
//! | `traces` | the trace that a write belongs to |
//! | `clock` | the clock that also runs while the machine sleeps |
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations, unnameable_types)]

pub mod testing;

mod clock;
mod config;
mod error;
mod lease;
mod runtime;
mod session;
mod state;
mod supervisor;
mod tls;
mod traces;
mod transport;
mod values;

pub use baton_proto::{
    Acl, AddWatchMode, ClientAddress, ClientInfo, CreateMode, EnsembleConfig, EnsembleConfigError,
    EnsembleMember, ErrorCode, EventKind, MemberError, MemberRole, OpCode, PeerAddress, Perms,
    Stat, TraceContext, path,
};
#[cfg(feature = "tls")]
pub use baton_tls::{ClientTls, TlsError, TlsFailure};
pub use clock::{BootInstant, BoxFuture, Clock, SystemClock};
pub use config::{Config, DEFAULT_PORT};
pub use error::{
    CloseError, ConfigError, ConnectError, Error, LeaseError, Reason, ReconfigError, SaslFailure,
    SessionLost,
};
pub use lease::{LeaseMode, LeaseOptions};
pub use runtime::block_on;
pub use session::{
    Cleanup, CleanupError, DeleteOptions, Deletion, Lease, LeaseHold, Pending, PendingApplied,
    PersistentEvent, PersistentWatch, Session, Watch, WatchEvent, WithZxid,
};
pub use state::{EndReason, State, StateStream};
pub use supervisor::Client;
pub use traces::{TraceSource, set_trace_source};
pub use transport::{BoxStream, Endpoint, Host, SocketTransport, Stream, Transport};
pub use values::{Children, CreatedNode, Data, MembershipChange, Op, OpResult, SessionExport};

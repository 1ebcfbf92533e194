//! The session below the recipes: connections, states, options and errors of operations.
//!
//! [`Client`] opens a session and a new one after a loss; recipes take a `&Client`. [`Session`] is
//! one session, with every operation on the tree. [`crate::tree`] has what these operations take
//! and yield, [`crate::lease`] until when a session is known to live. [`EnsembleConfig`] says
//! which servers are members, and [`Session::change_members`] changes that. [`Config::tls`]
//! encrypts the connections, as [`ClientTls`] says; [`Config::auth`] and [`Config::sasl`] prove who
//! the client is. [`set_trace_source`] has writes name the trace that they belong to, for servers
//! that record their share of it.
//!
//! ```no_run
//! # async fn example() -> Result<(), baton::Error> {
//! use baton::session::{Client, Config};
//! use baton::tree::CreateMode;
//!
//! let client = Client::connect(Config::new("127.0.0.1:2181")?).await?;
//! let session = client.session().await?;
//! session.create("/greeting", b"hello", CreateMode::Ephemeral).await?;
//! client.close().await?;
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use baton_client::{
    BoxFuture, BoxStream, Cleanup, CleanupError, Client, ClientAddress, ClientInfo, CloseError,
    Config, ConfigError, ConnectError, DEFAULT_PORT, EndReason, Endpoint, EnsembleConfig,
    EnsembleConfigError, EnsembleMember, Error, Host, MemberError, MemberRole, MembershipChange,
    PeerAddress, Pending, PendingApplied, Reason, ReconfigError, SaslFailure, Session,
    SessionExport, SessionLost, SocketTransport, State, StateStream, Stream, TraceContext,
    TraceSource, Transport, set_trace_source,
};
#[cfg(feature = "tls")]
#[doc(inline)]
pub use baton_client::{ClientTls, TlsError, TlsFailure};

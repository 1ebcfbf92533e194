//! Test kit for coordination code: servers that can be killed, a network that can be cut at any
//! frame, and checkers that notice when a promise is broken.
//!
//! - [`Proxy`]: a loopback proxy that understands frames and fails where a script says.
//! - [`TestServer`], [`Ensemble`]: Baton or Apache ZooKeeper on loopback, in a temporary folder,
//!   gone on drop; an ensemble's servers can be cut off from one another.
//! - [`RawClient`]: one connection with no intelligence at all, to see what a server really
//!   answers.
//! - [`ExclusionChecker`]: notices two holders at once and tokens that do not grow.
//! - [`differential`]: random programs on Baton and on Apache ZooKeeper, which must answer the
//!   same.
//! - [`history`]: requests and answers of many clients, and the rules that they must keep.
//! - [`golden`]: answers of Apache ZooKeeper that were recorded, for machines without one.
//! - [`Certificates`]: an authority for a test, and the certificates that it signs.
//! - [`Collector`]: a collector of OpenTelemetry spans, good or bad.
//! - [`inspect`]: four-letter words, and listings of what is left behind.
//! - [`zookeeper_or_skip`], [`skip`]: tests that do not run everywhere, and say so.
//!
//! Everything listens on loopback only and ends with the value that started it.
//!
//! A test that a client copes with a lost reply reads like this:
//!
//! ```
//! use std::time::Duration;
//!
//! use baton_proto::{Acl, Create, CreateMode, OpCode, Request};
//! use baton_testkit::{Action, Match, Proxy, RawClient, Target, TestServer, Variant, inspect};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = TestServer::start(Target::Baton).await?;
//! let proxy = Proxy::start(server.addr()).await?;
//! let fault = proxy.on(Match::reply(OpCode::Create2).nth(1)).then(Action::Cut(Variant::Rst));
//!
//! let mut client = RawClient::connect(proxy.addr(), Duration::from_secs(10)).await?;
//! let open = vec![Acl::open_unsafe()];
//! let create = Create::new("/job", Some(b"1"), open, CreateMode::Persistent);
//! assert!(client.call(&Request::Create(create)).await.is_err());
//!
//! // The reply was lost; the znode was created all the same.
//! fault.fired().await;
//! assert_eq!(inspect::tree(server.addr(), "/job").await?.len(), 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

// | module | owns |
// |---|---|
// | `differential` | random programs on two servers, whose answers must be the same |
// | `golden` | recorded answers of Apache ZooKeeper |
// | `peers` | tests that are skipped where a peer is not installed |
// | `launch` | servers as processes or in this one |
// | `inspect` | four-letter words, listings of the tree |
// | `raw`, `proxy` | one connection without intelligence; the proxy that fails by a script |
// | `certificates` | an authority in a temporary folder |
// | `collector` | a collector of OpenTelemetry spans |
// | `history` | requests and answers of clients, and the rules that they must keep |
// | `exclusion` | notices two holders at once, and tokens that do not grow |

pub mod differential;
pub mod golden;
pub mod history;
pub mod inspect;
pub mod proxy;

mod certificates;
mod collector;
mod exclusion;
mod launch;
mod peers;
mod raw;

pub use certificates::{CertificateFiles, Certificates};
pub use collector::{CollectedSpan, Collector, CollectorBehavior, SpanValue};
pub use exclusion::{ExclusionChecker, Occupancy, Violation};
pub use inspect::four_letter_word;
pub use launch::{
    Direction, Ensemble, LaunchError, ServerOptions, Target, TestServer, TlsOptions, baton_binary,
    free_addr, zookeeper_classpath, zookeeper_is_installed,
};
pub use peers::{skip, zookeeper_or_skip};
pub use proxy::{Action, Fault, Frame, FrameKind, Match, Proxy, Variant};
pub use raw::{RawClient, RawError};

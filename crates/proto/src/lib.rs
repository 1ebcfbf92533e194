//! The ZooKeeper client protocol in both directions: frames, headers, records, op codes, errors,
//! `Stat`, ACLs and the rules for paths.
//!
//! This crate owns the bytes and nothing else. It never opens a socket, never reads a clock, never
//! decides what a request means. Requests are borrowed from the frame they were read from; the same
//! types encode. Every decoder takes bytes from an untrusted peer: it returns a [`DecodeError`]
//! that names the field and the offset, never panics, and never allocates more than a small
//! multiple of the bytes it was given.
//!
//! A whole request, from the caller's words to bytes and back:
//!
//! ```
//! use baton_proto::{Decoder, Limits, OpCode, Request, RequestHeader, frame};
//! use bytes::BytesMut;
//!
//! let mut wire = BytesMut::new();
//! frame::write_request(&mut wire, 1, &Request::Delete { path: "/lock", version: -1 });
//!
//! let limits = Limits::default();
//! let body = frame::split_frame(&mut wire, limits.max_frame_bytes)?.expect("a whole frame");
//! let mut decoder = Decoder::new(&body, &limits);
//! let header = RequestHeader::decode(&mut decoder)?;
//! let op = OpCode::try_from(header.op)?;
//! let request = Request::decode(op, decoder.rest(), &limits)?;
//! assert_eq!(request, Request::Delete { path: "/lock", version: -1 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A module uses only those below it:
//!
//! | module | owns |
//! |---|---|
//! | `frame` | the length before each frame, and its limit; whole frames of every kind |
//! | `request`, `response` | the bodies of requests and of replies |
//! | `multi` | the chains of `multi` and `multiRead` |
//! | `connect`, `header`, `event` | the first frames, the headers, watch events |
//! | `trace_context` | the trace that a request belongs to, in a frame of Baton's own |
//! | `fields` | fields that several bodies have in common |
//! | `create`, `acl`, `stat` | records inside bodies |
//! | `op_code`, `error_code` | numbers of operations and of errors |
//! | `ensemble_config` | the lines that name the servers of an ensemble |
//! | `path` | legal paths, parent and name, the number of a sequential znode, the chroot |
//! | `decode`, `wire` | reading and writing jute's primitive types |
//! | `limits` | bounds on what a peer may send |
//! | `escape` | a path as a person may safely see it |

#![forbid(unsafe_code)]

pub mod frame;
pub mod path;
pub mod wire;

mod acl;
mod connect;
mod create;
mod decode;
mod ensemble_config;
mod error_code;
mod escape;
mod event;
mod fields;
mod header;
mod limits;
mod multi;
mod op_code;
mod request;
mod response;
mod stat;
mod trace_context;

pub use acl::{Acl, Perms};
pub use connect::{ConnectRequest, ConnectResponse, PASSWORD_BYTES};
pub use create::{Create, CreateMode, CreateOp, MAX_TTL_MS};
pub use decode::{DecodeError, DecodeErrorKind, Decoder};
pub use ensemble_config::{
    CONFIG_PATH, ClientAddress, EnsembleConfig, EnsembleConfigError, EnsembleMember, MemberError,
    MemberRole, PeerAddress,
};
pub use error_code::ErrorCode;
pub use escape::{Escaped, OneLine};
pub use event::{AddWatchMode, EventKind, KeeperState, UnknownValue, WatcherEvent, WatcherKind};
pub use header::{ReplyHeader, RequestHeader, xid};
pub use limits::Limits;
pub use multi::{MultiOp, MultiResult};
pub use op_code::{OpCode, UnknownOp};
pub use request::{AuthPacket, Request};
pub use response::{ClientInfo, Response};
pub use stat::Stat;
pub use trace_context::TraceContext;

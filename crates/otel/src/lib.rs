//! OpenTelemetry traces of Baton's locks, semaphores, elections and queues, from the client to the
//! server.
//!
//! The recipes open spans with `tracing`, and this crate carries the trace that they belong to over
//! the ZooKeeper protocol: [`carry`] is all that a program needs which exports its `tracing` spans
//! by `tracing-opentelemetry`. A Baton server that records traces then adds its share of each write
//! to the program's own trace. Any other server, ZooKeeper among them, gets what it got before.
//!
//! ```no_run
//! // The program has installed the layer of `tracing-opentelemetry`.
//! baton_otel::carry();
//! ```
//!
//! With the feature `export` the crate also exports, for the command `baton` and for programs that
//! have no OpenTelemetry SDK of their own: [`Exporter`] is configured by the standard variables
//! of the environment.
//!
//! | module | owns |
//! |---|---|
//! | `exporter` | the exporter of a process: its start, its layers, its end |
//! | `write_tracer` | the server's share of a write as a span |
//! | `queue` | finished spans on their way out: bounded, and what is over the bound is counted |
//! | `settings` | the variables of the environment |
//! | `http` | one POST to a collector, with bounds |
//! | `context` | the trace that code belongs to, and how it is written |
#![forbid(unsafe_code)]
#![deny(missing_debug_implementations, unnameable_types)]

mod context;
#[cfg(feature = "export")]
mod exporter;
#[cfg(feature = "export")]
mod http;
#[cfg(feature = "export")]
mod queue;
#[cfg(feature = "export")]
mod settings;
#[cfg(feature = "export")]
mod write_tracer;

pub use context::{TRACEPARENT, carry, set_parent, traceparent};
#[cfg(feature = "export")]
pub use exporter::{ExportError, Exporter};
#[cfg(feature = "export")]
pub use queue::SpanCounts;

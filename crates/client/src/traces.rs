//! The trace of a program's writes, for servers that record spans of it.
//!
//! Owns where it comes from. This crate knows no way of tracing: anyone who does names the source.

use std::sync::OnceLock;

use baton_proto::TraceContext;

/// Function that returns the trace and the span of the calling code; `None` where it is not
/// recorded.
pub type TraceSource = fn() -> Option<TraceContext>;

static SOURCE: OnceLock<TraceSource> = OnceLock::new();

/// From now on, each write of every session in this process names the trace that `source` yields
/// where the write is submitted, on the thread that submits it. Only a server of Baton's that has
/// said on this connection that it records traces receives it; all others get what they got before.
///
/// # Errors
/// `source`, where there is a source already.
pub fn set_trace_source(source: TraceSource) -> Result<(), TraceSource> {
    SOURCE.set(source)
}

/// The trace that the caller's code belongs to.
pub(crate) fn current() -> Option<TraceContext> {
    SOURCE.get()?()
}

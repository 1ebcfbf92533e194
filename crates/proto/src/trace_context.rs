//! The trace that a write belongs to (protocol.md §10): the body of a frame of Baton's own. A
//! client sends it before the write, and only to a server that has said on this connection that it
//! takes such frames. It has no reply.

use bytes::BufMut;

/// The only version of the format so far: that of the binary form of a W3C `traceparent`.
const VERSION: u8 = 0;
/// The flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// Trace of the next request, and the span that has caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace; never only zeros.
    pub trace_id: [u8; 16],
    /// The span that has caused the request; never only zeros.
    pub span_id: [u8; 8],
    /// The flags of the trace, as in a `traceparent`.
    pub flags: u8,
}

impl TraceContext {
    /// The op code of the frame, which no version of ZooKeeper has.
    pub const OP: i32 = -64;
    /// Size of the body.
    pub const BYTES: usize = 1 + 16 + 8 + 1;

    /// Returns whether the trace is recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Writes the body.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_u8(VERSION);
        out.put_slice(&self.trace_id);
        out.put_slice(&self.span_id);
        out.put_u8(self.flags);
    }

    /// Reads the body; `None` where it is too short, of another version, or names no trace or no
    /// span. Further bytes are ignored.
    #[must_use]
    pub fn decode(body: &[u8]) -> Option<Self> {
        let (version, rest) = body.split_first()?;
        let (trace_id, rest) = rest.split_first_chunk()?;
        let (span_id, rest) = rest.split_first_chunk()?;
        let context = Self {
            trace_id: *trace_id,
            span_id: *span_id,
            flags: *rest.first()?,
        };
        let is_valid = *version == VERSION && *trace_id != [0; 16] && *span_id != [0; 8];
        is_valid.then_some(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: TraceContext = TraceContext {
        trace_id: [7; 16],
        span_id: [9; 8],
        flags: 1,
    };

    fn body() -> Vec<u8> {
        let mut body = Vec::new();
        CONTEXT.encode(&mut body);
        body
    }

    #[test]
    fn a_context_is_read_as_it_was_written() {
        let mut body = body();
        assert_eq!(body.len(), TraceContext::BYTES);
        assert_eq!(TraceContext::decode(&body), Some(CONTEXT));
        body.extend_from_slice(b"of a later version");
        assert_eq!(TraceContext::decode(&body), Some(CONTEXT));
    }

    #[test]
    fn what_names_no_trace_or_no_span_is_none() {
        let body = body();
        for short in 0..body.len() {
            assert_eq!(TraceContext::decode(&body[..short]), None, "{short}");
        }
        for zeros in [0..1, 1..17, 17..25] {
            let mut damaged = body.clone();
            damaged[zeros.clone()].fill(if zeros.start == 0 { 1 } else { 0 });
            assert_eq!(TraceContext::decode(&damaged), None, "{zeros:?}");
        }
    }
}

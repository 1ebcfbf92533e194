//! Spans of a write whose client traces it: when the write reached which step. Owns the steps, and
//! the record that a tracer is shown. The server makes no trace by itself, and knows only those
//! that clients name (protocol.md §10).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use baton_proto::{ErrorCode, OpCode, TraceContext};

/// Bytes of a path that a tracer is shown.
const PATH_BYTES: usize = 256;

/// A step of a write on its way through a server, in the order in which a write takes them. Which
/// of them a write takes depends on the server: one that follows forwards it, one that stands
/// alone or leads has it in its own log first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteStep {
    /// The core has put it into a batch, which becomes one log entry.
    Batched,
    /// The batch was sent to the leader.
    Forwarded,
    /// The entry is on this server's disk.
    Synced,
    /// The entry is committed, and is being applied.
    Committed,
}

impl WriteStep {
    /// All of them, in order.
    const ALL: [Self; 4] = [
        Self::Batched,
        Self::Forwarded,
        Self::Synced,
        Self::Committed,
    ];

    /// The name of the step in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batched => "batched",
            Self::Forwarded => "forwarded",
            Self::Synced => "synced",
            Self::Committed => "committed",
        }
    }
}

/// A write that was answered, and whose client traces it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TracedWrite {
    /// The trace, and the span of the client that has caused the write.
    pub context: TraceContext,
    /// The operation.
    pub op: OpCode,
    /// The znode, cut where it is long; `None` for a multi.
    pub path: Option<Box<str>>,
    /// The session.
    pub session: i64,
    /// The client's number of the request.
    pub xid: i32,
    /// The zxid of the answer.
    pub zxid: i64,
    /// Result of the write.
    pub code: ErrorCode,
    /// When its last byte was read.
    pub received: Instant,
    /// When it reached which step, in order.
    pub steps: Vec<(WriteStep, Instant)>,
    /// When its answer was ready to be sent.
    pub answered: Instant,
}

/// Counts of a tracer's spans so far, by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracerCounts {
    /// A collector has taken them.
    pub exported: u64,
    /// Too many waited, so they were dropped.
    pub dropped: u64,
    /// No collector took them.
    pub failed: u64,
}

/// Is shown each write that was answered and that its client traces.
///
/// The core of the server calls it, and all clients wait meanwhile: it has to be brief, and must
/// not wait for anything.
pub trait WriteTracer: fmt::Debug + Send + Sync {
    /// A write was answered.
    fn answered(&self, write: TracedWrite);

    /// Returns the counts of the spans so far, for the server's metrics.
    fn counts(&self) -> TracerCounts;
}

/// A write on its way that its client traces.
#[derive(Debug)]
pub(crate) struct WriteOnItsWay {
    context: TraceContext,
    op: OpCode,
    path: Option<Box<str>>,
    received: Instant,
    /// Nanoseconds from `received` to each step, and one more; 0: not reached.
    steps: [AtomicU64; WriteStep::ALL.len()],
}

impl WriteOnItsWay {
    /// Memory that one takes, at most.
    pub(crate) const BYTES: usize = 512;

    pub(crate) fn new(
        context: TraceContext,
        op: OpCode,
        path: Option<&str>,
        received: Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            context,
            op,
            path: path.map(|path| Box::from(cut(path))),
            received,
            steps: Default::default(),
        })
    }

    /// It has reached this step, for the first time or again.
    pub(crate) fn mark(&self, step: WriteStep, now: Instant) {
        let since = now.saturating_duration_since(self.received).as_nanos();
        let since = u64::try_from(since).unwrap_or(u64::MAX - 1);
        if let Some(place) = self.steps.get(step as usize) {
            place.store(since.saturating_add(1), Relaxed);
        }
    }

    /// Returns the record for a tracer, now that the write was answered.
    pub(crate) fn answered(
        &self,
        (session, xid): (i64, i32),
        (zxid, code): (i64, ErrorCode),
        now: Instant,
    ) -> TracedWrite {
        let steps = WriteStep::ALL.into_iter().zip(&self.steps);
        let reached = steps.filter_map(|(step, since)| {
            let since = since.load(Relaxed).checked_sub(1)?;
            Some((step, self.received + std::time::Duration::from_nanos(since)))
        });
        TracedWrite {
            context: self.context,
            op: self.op,
            path: self.path.clone(),
            session,
            xid,
            zxid,
            code,
            received: self.received,
            steps: reached.collect(),
            answered: now,
        }
    }
}

/// The beginning of a path, as much of it as a tracer is shown.
fn cut(path: &str) -> &str {
    let mut end = path.len().min(PATH_BYTES);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CONTEXT: TraceContext = TraceContext {
        trace_id: [1; 16],
        span_id: [2; 8],
        flags: 1,
    };

    #[test]
    fn the_steps_that_were_reached_are_shown_in_order() {
        let received = Instant::now();
        let at = |millis| received + Duration::from_millis(millis);
        let write = WriteOnItsWay::new(CONTEXT, OpCode::Create, Some("/a"), received);
        write.mark(WriteStep::Committed, at(9));
        write.mark(WriteStep::Batched, at(0));
        // Sent again, after a change of leader.
        write.mark(WriteStep::Forwarded, at(3));
        write.mark(WriteStep::Forwarded, at(5));
        let shown = write.answered((7, 8), (9, ErrorCode::Ok), at(10));
        let steps = [
            (WriteStep::Batched, at(0)),
            (WriteStep::Forwarded, at(5)),
            (WriteStep::Committed, at(9)),
        ];
        assert_eq!(shown.steps, steps);
        assert_eq!((shown.session, shown.xid, shown.zxid), (7, 8, 9));
        assert_eq!((shown.received, shown.answered), (received, at(10)));
        assert_eq!(shown.path.as_deref(), Some("/a"));
    }

    #[test]
    fn a29_a_long_path_is_cut_at_a_letter() {
        let path = format!("/{}", "ä".repeat(PATH_BYTES));
        let write = WriteOnItsWay::new(CONTEXT, OpCode::Delete, Some(&path), Instant::now());
        let shown = write.answered((0, 0), (0, ErrorCode::NoNode), Instant::now());
        let shown = shown.path.unwrap();
        assert_eq!(shown.len(), PATH_BYTES - 1);
        assert!(path.starts_with(&*shown));
    }
}

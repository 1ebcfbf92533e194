//! The server's share of a write as a span: a child of the span that has caused the write, with an
//! event for each step that the write took. Names are those of the semantic conventions for RPC.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use baton_server::{ErrorCode, TracedWrite, TracerCounts, WriteTracer};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use crate::queue::SpanQueue;

/// Makes a span of each write that a client traces.
#[derive(Debug)]
pub(crate) struct WriteSpanObserver {
    pub(crate) tracer: SdkTracer,
    pub(crate) queue: Arc<SpanQueue>,
}

impl WriteTracer for WriteSpanObserver {
    fn answered(&self, write: TracedWrite) {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let at = |then: Instant| {
            let ago = now.saturating_duration_since(then);
            wall.checked_sub(ago).unwrap_or(wall)
        };
        let context = write.context;
        let cause = SpanContext::new(
            TraceId::from_bytes(context.trace_id),
            SpanId::from_bytes(context.span_id),
            TraceFlags::new(context.flags),
            true,
            TraceState::default(),
        );
        let name = write.op.to_string();
        let mut attributes = vec![
            KeyValue::new("rpc.system.name", "zookeeper"),
            KeyValue::new("rpc.method", name.clone()),
            KeyValue::new("rpc.response.status_code", code_name(write.code)),
            KeyValue::new("baton.session.id", format!("0x{:x}", write.session)),
            KeyValue::new("baton.xid", i64::from(write.xid)),
            KeyValue::new("baton.zxid", write.zxid),
        ];
        if let Some(path) = write.path {
            attributes.push(KeyValue::new("baton.path", String::from(path)));
        }
        let builder = self
            .tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .with_start_time(at(write.received))
            .with_attributes(attributes);
        let context = Context::new().with_remote_span_context(cause);
        let mut span = self.tracer.build_with_context(builder, &context);
        for (step, when) in write.steps {
            span.add_event_with_timestamp(step.name(), at(when), Vec::new());
        }
        span.end_with_timestamp(at(write.answered));
    }

    fn counts(&self) -> TracerCounts {
        let counts = self.queue.counts();
        TracerCounts {
            exported: counts.exported,
            dropped: counts.dropped,
            failed: counts.failed,
        }
    }
}

/// The name of an error code, as ZooKeeper's clients write it.
fn code_name(code: ErrorCode) -> String {
    format!("{code:?}")
}

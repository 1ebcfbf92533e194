//! The trace that code belongs to: read from the current span, written as a `traceparent`.

use baton_client::TraceContext;
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The variable of the environment by which processes hand a trace on.
pub const TRACEPARENT: &str = "TRACEPARENT";

/// From now on each write of every Baton session in this process names the trace of the span in
/// which it is called: the current span of `tracing`, or else OpenTelemetry's current context.
/// Traces that are not sampled are not named. To call it again changes nothing.
pub fn carry() {
    // Set before: by us, or by a program that knows a better source.
    let _ = baton_client::set_trace_source(current);
}

/// The `traceparent` of the current span; `None` where there is none, or it is not sampled.
#[must_use]
pub fn traceparent() -> Option<String> {
    let context = span_context().filter(SpanContext::is_sampled)?;
    let (trace, span, flags) = (
        context.trace_id(),
        context.span_id(),
        context.trace_flags().to_u8(),
    );
    Some(format!("00-{trace}-{span}-{flags:02x}"))
}

/// Makes `span` a child of the span that this `traceparent` names. `false`: it names none.
pub fn set_parent(span: &Span, traceparent: &str) -> bool {
    let Some(parent) = parse(traceparent) else {
        return false;
    };
    let context = Context::new().with_remote_span_context(parent);
    span.set_parent(context).is_ok()
}

/// Returns the trace that each write names.
fn current() -> Option<TraceContext> {
    let context = span_context().filter(SpanContext::is_sampled)?;
    Some(TraceContext {
        trace_id: context.trace_id().to_bytes(),
        span_id: context.span_id().to_bytes(),
        flags: context.trace_flags().to_u8(),
    })
}

fn span_context() -> Option<SpanContext> {
    let of = |context: Context| {
        let span = context.span();
        let context = span.span_context();
        context.is_valid().then(|| context.clone())
    };
    of(Span::current().context()).or_else(|| of(Context::current()))
}

/// Reads a `traceparent` of W3C's version 00, or what a later version has in common with it.
fn parse(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let mut part = |length: usize| {
        let is_hex = |part: &&str| {
            part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        parts.next().filter(is_hex)
    };
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    if version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_traceparent_is_read_as_the_standard_has_it() {
        let read = parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!(read.trace_id().to_string(), TRACE);
        assert_eq!(read.span_id().to_string(), SPAN);
        assert!(read.is_sampled() && read.is_remote());
        assert!(
            !parse(&format!("00-{TRACE}-{SPAN}-00"))
                .unwrap()
                .is_sampled()
        );
        // A later version may have more.
        assert!(parse(&format!("cc-{TRACE}-{SPAN}-01-more")).is_some());
    }

    #[test]
    fn what_is_no_traceparent_is_ignored() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            "garbage".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}é-{SPAN}-01"),
        ] {
            assert!(parse(&text).is_none(), "{text}");
        }
    }
}

//! Finished spans on their way to the collector. Anyone who ends a span never waits: a span that
//! finds the queue full is dropped and counted, and so is a batch that the collector does not take.
//! One thread exports, one batch at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};

use crate::http::Feedback;
use crate::settings::Settings;

/// Bytes of a text in an attribute; the rest is cut off.
const TEXT_BYTES: usize = 256;
/// Interval of log lines about a collector that does not take spans.
const REMINDER: Duration = Duration::from_secs(60);

/// Counts of spans by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanCounts {
    /// The collector has taken them.
    pub exported: u64,
    /// The queue was full, so they were dropped.
    pub dropped: u64,
    /// The collector did not take them: it could not be reached, was too slow, or refused them.
    pub failed: u64,
    /// They wait for their turn.
    pub waiting: u64,
}

#[derive(Debug, Default)]
struct State {
    spans: VecDeque<SpanData>,
    /// Since when the oldest of them waits.
    since: Option<Instant>,
    /// Spans of the batch that is being exported.
    in_export: usize,
    /// Whether what waits is to go out without waiting for more.
    is_flushed: bool,
    is_closed: bool,
}

/// The queue, as the ends of spans and the exporting thread share it.
#[derive(Debug)]
pub(crate) struct SpanQueue {
    state: Mutex<State>,
    /// There may be something to export.
    came: Condvar,
    /// A batch is done.
    went: Condvar,
    most: usize,
    batch: usize,
    delay: Duration,
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl SpanQueue {
    pub(crate) fn new(settings: &Settings) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            came: Condvar::new(),
            went: Condvar::new(),
            most: settings.queue,
            batch: settings.batch,
            delay: settings.delay,
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// A poisoned queue is still a queue: nothing under the lock leaves it half-way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> SpanCounts {
        let state = self.state();
        SpanCounts {
            exported: self.exported.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            failed: self.failed.load(Relaxed),
            waiting: (state.spans.len() + state.in_export) as u64,
        }
    }

    fn push(&self, span: SpanData) {
        let mut state = self.state();
        if state.is_closed || state.spans.len() >= self.most {
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        state.spans.push_back(span);
        // Of the first one the thread has to know when its wait ends.
        let length = state.spans.len();
        if length == 1 {
            state.since = Some(Instant::now());
        }
        drop(state);
        if length == 1 || length == self.batch {
            self.came.notify_one();
        }
    }

    /// The next batch, once it is full or its first span has waited long enough; `None` once the
    /// queue is closed and empty.
    fn next(&self) -> Option<Vec<SpanData>> {
        let mut state = self.state();
        loop {
            let waited = state.since.map(|since| since.elapsed());
            let is_due = state.spans.len() >= self.batch
                || (!state.spans.is_empty()
                    && (state.is_flushed
                        || state.is_closed
                        || waited.is_some_and(|waited| waited >= self.delay)));
            if is_due {
                break;
            }
            if state.is_closed {
                return None;
            }
            state.is_flushed = false;
            state = match waited {
                None => self
                    .came
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(waited) => {
                    let left = self.delay.saturating_sub(waited);
                    let woken = self.came.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        let count = state.spans.len().min(self.batch);
        let batch: Vec<_> = state.spans.drain(..count).collect();
        state.since = (!state.spans.is_empty()).then(Instant::now);
        state.in_export = batch.len();
        Some(batch)
    }

    /// The batch is done: how many of its spans the collector has taken, and how many it has not.
    fn done(&self, taken: usize, failed: usize) {
        self.exported.fetch_add(taken as u64, Relaxed);
        self.failed.fetch_add(failed as u64, Relaxed);
        self.state().in_export = 0;
        self.went.notify_all();
    }

    /// Waits until everything that waits now has gone out, for at most `limit`. `false`: it has
    /// not.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.state();
        state.is_flushed = true;
        self.came.notify_all();
        while !state.spans.is_empty() || state.in_export > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.went.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Takes no more spans. The thread ends once it has exported what waits.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.came.notify_all();
    }
}

/// Hands the ends of spans to the queue.
#[derive(Debug)]
pub(crate) struct QueueProcessor(pub(crate) Arc<SpanQueue>);

impl SpanProcessor for QueueProcessor {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

    fn on_end(&self, mut span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        for attribute in &mut span.attributes {
            rename(attribute);
            cut(&mut attribute.value);
        }
        self.0.push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.flush(Duration::from_secs(5));
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.flush(timeout);
        self.0.close();
        Ok(())
    }
}

/// The fields of the recipes' spans have short names; attributes of all programs meet in one place.
fn rename(attribute: &mut KeyValue) {
    let name = match attribute.key.as_str() {
        "path" => "baton.path",
        "token" => "baton.token",
        "epoch" => "baton.epoch",
        "lost" => "baton.lost",
        _ => return,
    };
    attribute.key = name.into();
    // `tracing` hands numbers without a sign on as texts.
    if let Value::String(text) = &attribute.value
        && let Ok(number) = text.as_str().parse::<i64>()
        && name != "baton.path"
    {
        attribute.value = number.into();
    }
}

fn cut(value: &mut Value) {
    let Value::String(text) = value else {
        return;
    };
    let text = text.as_str();
    if text.len() <= TEXT_BYTES {
        return;
    }
    let mut end = TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = text.get(..end).unwrap_or_default().to_owned();
    *value = Value::String(kept.into());
}

/// Exports what the queue hands out until it is closed: the work of the exporting thread.
/// `feedback` has what the collector said of it.
pub(crate) fn export_all(
    queue: &SpanQueue,
    exporter: &impl SpanExporter,
    runtime: &tokio::runtime::Runtime,
    feedback: &Feedback,
) {
    let mut logged: Option<Instant> = None;
    while let Some(batch) = queue.next() {
        let count = batch.len();
        let outcome = runtime.block_on(exporter.export(batch));
        let rejected = usize::try_from(feedback.take_rejected()).unwrap_or(usize::MAX);
        let failed = match outcome {
            Ok(()) => rejected.min(count),
            Err(_) => count,
        };
        queue.done(count - failed, failed);
        if failed == 0 {
            continue;
        }
        if logged.is_none_or(|at| at.elapsed() >= REMINDER) {
            logged = Some(Instant::now());
            let counts = queue.counts();
            tracing::warn!(
                cause = feedback.cause(),
                failed = counts.failed,
                dropped = counts.dropped,
                "traces are lost: the collector did not take them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use opentelemetry::InstrumentationScope;
    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId};
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;

    fn settings() -> Settings {
        Settings {
            queue: 3,
            batch: 2,
            delay: Duration::from_secs(3600),
            timeout: Duration::from_secs(1),
            endpoint: String::new(),
            certificate: None,
        }
    }

    fn span(attributes: Vec<KeyValue>) -> SpanData {
        let context = SpanContext::new(
            TraceId::from(1_u128),
            SpanId::from(1_u64),
            TraceFlags::SAMPLED,
            false,
            Default::default(),
        );
        SpanData {
            span_context: context,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Borrowed("hold"),
            start_time: std::time::SystemTime::UNIX_EPOCH,
            end_time: std::time::SystemTime::UNIX_EPOCH,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped_and_counted() {
        let queue = SpanQueue::new(&settings());
        for _ in 0..5 {
            queue.push(span(Vec::new()));
        }
        let counts = queue.counts();
        assert_eq!((counts.waiting, counts.dropped), (3, 2));
        // Nobody exports: the wait for that has its limit.
        assert!(!queue.flush(Duration::from_millis(20)));
        let batch = queue.next().unwrap();
        assert_eq!(batch.len(), 2);
        assert_eq!(queue.counts().waiting, 3);
        queue.done(2, 0);
        // A flush lets a batch go that is not full.
        assert!(!queue.flush(Duration::ZERO));
        assert_eq!(queue.next().unwrap().len(), 1);
        queue.done(0, 1);
        let counts = queue.counts();
        assert_eq!((counts.waiting, counts.exported, counts.failed), (0, 2, 1));
        queue.close();
        assert!(queue.next().is_none());
        queue.push(span(Vec::new()));
        assert_eq!(queue.counts().dropped, 3);
    }

    #[test]
    fn a29_texts_are_cut_and_names_are_ours() {
        let queue = SpanQueue::new(&settings());
        let into = QueueProcessor(Arc::clone(&queue));
        let path = format!("/{}", "ä".repeat(4000));
        let token = KeyValue::new("token", "7");
        into.on_end(span(vec![KeyValue::new("path", path), token.clone()]));
        into.on_end(span(vec![token]));
        let batch = queue.next().unwrap();
        let Value::String(kept) = &batch[0].attributes[0].value else {
            panic!("{batch:?}");
        };
        assert_eq!(batch[0].attributes[0].key.as_str(), "baton.path");
        assert_eq!(kept.as_str().len(), TEXT_BYTES - 1);
        assert_eq!(batch[1].attributes[0], KeyValue::new("baton.token", 7_i64));
    }
}

//! Log lines about clients: what each did wrong and which limit it met, one line each with the
//! client's address and the cause. The lines about each client are limited (see
//! [`rate_limit`](super::rate_limit)), so that nobody who sends garbage by the million fills the
//! disk with it or hides what others do. Nothing that a client sent gets into a line unescaped or
//! in full length.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use baton_proto::ErrorCode;
use parking_lot::Mutex;

use crate::connections::peer::{Peer, PeerGroup};
use crate::report::escaped::OfPath;
use crate::report::notice::Notice;
use crate::report::rate_limit::RateLimit;

/// Writes rate-limited lines about clients into the log.
#[derive(Debug)]
pub(crate) struct ClientLog {
    limit: Mutex<RateLimit>,
    /// When a summary of suppressed lines is due; `u64::MAX` if none were suppressed.
    due_ms: AtomicU64,
    suppressed: AtomicU64,
}

impl Default for ClientLog {
    fn default() -> Self {
        Self {
            limit: Mutex::default(),
            due_ms: AtomicU64::new(u64::MAX),
            suppressed: AtomicU64::new(0),
        }
    }
}

impl ClientLog {
    /// Server time at which the summary of suppressed lines is due; `u64::MAX` if none were
    /// suppressed.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.load(Relaxed)
    }

    /// Lines suppressed since the start.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Relaxed)
    }

    /// Writes a line about `peer`, unless the rate limit suppresses it. `None` stands for the
    /// server itself, or for a client that has disconnected.
    pub(crate) fn report(
        &self,
        notice: Notice,
        peer: Option<&Peer>,
        what: fmt::Arguments<'_>,
        now_ms: u64,
    ) {
        if !self.permits(notice, PeerGroup::of(peer), now_ms) {
            return;
        }
        let peer = PeerOrNone(peer);
        if notice.is_routine() {
            tracing::info!(%peer, "{what}");
        } else {
            tracing::warn!(%peer, "{what}");
        }
    }

    /// Whether a line about this client may be written; counts it either way.
    pub(crate) fn permits(&self, notice: Notice, client: PeerGroup, now_ms: u64) -> bool {
        self.report_suppressed(now_ms);
        let mut limit = self.limit.lock();
        let is_permitted = limit.permit(client, notice, now_ms);
        if !is_permitted {
            self.due_ms.store(limit.ends_ms(), Relaxed);
            self.suppressed.fetch_add(1, Relaxed);
        }
        is_permitted
    }

    /// Writes the summary of suppressed lines, if the rate-limit window has ended.
    pub(crate) fn report_suppressed(&self, now_ms: u64) {
        let mut summaries = Vec::new();
        if let Some(mut limit) = self.limit.try_lock() {
            summaries = limit.end_window(now_ms);
            if !summaries.is_empty() {
                self.due_ms.store(u64::MAX, Relaxed);
            }
        }
        for summary in summaries {
            if summary.notice.is_routine() {
                tracing::info!("{summary}");
            } else {
                tracing::warn!("{summary}");
            }
        }
    }

    /// Writes the line for a request that is answered with `code`, if that code is one for the log.
    pub(crate) fn report_refused(
        &self,
        peer: &Peer,
        op: &dyn fmt::Display,
        body: &[u8],
        code: ErrorCode,
        now_ms: u64,
    ) {
        match code {
            ErrorCode::MarshallingError => self.report(
                Notice::BadRecord,
                Some(peer),
                format_args!("refused {op}: its record cannot be decoded"),
                now_ms,
            ),
            ErrorCode::NoAuth | ErrorCode::InvalidAcl => self.report(
                Notice::Denied,
                Some(peer),
                format_args!("refused {op}{}: {code}", OfPath::of_record(body)),
                now_ms,
            ),
            _ => {}
        }
    }
}

struct PeerOrNone<'a>(Option<&'a Peer>);

impl fmt::Display for PeerOrNone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => write!(f, "{peer}"),
            None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::rate_limit::LINES_EACH;

    #[test]
    fn what_was_left_out_is_due_once_and_then_nothing_is() {
        let log = ClientLog::default();
        let notice = || {
            let peer = Some(&Peer::Local);
            log.report(Notice::BadFrame, peer, format_args!("a bad frame"), 7);
        };
        for _ in 0..LINES_EACH {
            notice();
        }
        assert_eq!(log.due_ms(), u64::MAX, "nothing was suppressed");
        notice();
        let due_ms = log.due_ms();
        assert_eq!(log.suppressed(), 1);
        log.report_suppressed(due_ms - 1);
        assert_eq!(log.due_ms(), due_ms);
        log.report_suppressed(due_ms);
        assert_eq!(log.due_ms(), u64::MAX);
    }
}

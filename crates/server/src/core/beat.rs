//! How late the sockets' tasks get their turn: measured by one of them, shown, and forgiven to all sessions. The core asks it
//! for a round before it ends a session, so that whatever waited on the sockets has been read by then. Never ends a
//! session itself, and never blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::clock::now;
use super::notices::Notice;
use super::shared::Shared;
use super::stats::micros;

/// Turns that every other task gets before a round counts as made: one to accept a connection, one to read its first frame,
/// one for the tasks that these have woken.
const TURNS: usize = 3;

/// What the core and the beating task share.
#[derive(Debug, Default)]
pub(crate) struct Beat {
    beating: AtomicBool,
    asked: AtomicU64,
    made: AtomicU64,
    wanted: Notify,
}

/// A round that the core has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round(u64);

impl Beat {
    /// Asks for a round; [`Inbox::nudge`](super::inbox::Inbox::nudge) tells when it has been made. `None`: there are no
    /// sockets whose tasks could be late, as in a simulation.
    pub(crate) fn ask(&self) -> Option<Round> {
        if !self.beating.load(Ordering::Acquire) {
            return None;
        }
        let round = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.wanted.notify_one();
        Some(Round(round))
    }

    /// Whether the round has been made: what waited on sockets when it was asked for has been read since.
    pub(crate) fn is_made(&self, round: Round) -> bool {
        self.made.load(Ordering::Acquire) >= round.0
    }
}

/// How often the lag is measured: several times in the shortest timeout, and at each step of the session clock.
fn interval(shared: &Shared) -> Duration {
    let options = &shared.options;
    let shortest = options.min_session_timeout / 8;
    options.tick.min(shortest).max(Duration::from_millis(1))
}

/// Beats until it is dropped. To be run where the sockets' tasks run.
pub(crate) async fn beat(shared: Arc<Shared>) {
    let beat = &shared.beat;
    let every = interval(&shared);
    beat.beating.store(true, Ordering::Release);
    loop {
        let mark = shared.time.mark();
        let due = now() + every;
        let asked = tokio::select! {
            () = tokio::time::sleep_until(due.into()) => false,
            () = beat.wanted.notified() => true,
        };
        let woken = now();
        let round = beat.asked.load(Ordering::Acquire);
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let since = if asked { due.min(woken) } else { due };
        let lag = now().saturating_duration_since(since);
        shared.stats.socket_lag.record(micros(lag));
        if lag > every {
            shared.time.forgive(mark, lag);
        }
        if lag > 2 * every {
            shared.notice(
                Notice::Lag,
                None,
                format_args!(
                    "sockets were served {lag:.0?} late, and no session is charged with it; give the server more processors or fewer costly requests"
                ),
            );
        }
        if round > beat.made.load(Ordering::Acquire) {
            beat.made.store(round, Ordering::Release);
            shared.inbox.nudge();
        }
    }
}

//! How late the sockets' tasks get their turn: measured by one of them, shown, and forgiven to all
//! sessions. The core asks it for a round before it ends a session, so that whatever waited on the
//! sockets has been read by then. Never ends a session itself, and never blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::options::Options;
use crate::report::notices::Notice;
use crate::session::clocks::now;
use crate::state::Shared;
use crate::stats::counters::micros;

/// Turns that every other task gets before a round counts as made: one to accept a connection, one
/// to read its first frame, one for the tasks that these have woken.
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
    /// Asks for a round; [`Inbox::nudge`](crate::connections::inbox::Inbox::nudge) tells when it
    /// has been made. `None`: there are no sockets whose tasks could be late, as in a simulation.
    pub(crate) fn ask(&self) -> Option<Round> {
        if !self.beating.load(Ordering::Acquire) {
            return None;
        }
        let round = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.wanted.notify_one();
        Some(Round(round))
    }

    /// Whether the round has been made: what waited on sockets when it was asked for has been read
    /// since.
    pub(crate) fn is_made(&self, round: Round) -> bool {
        self.made.load(Ordering::Acquire) >= round.0
    }
}

/// How often the lag is measured: several times in the shortest timeout, and at each step of the
/// session clock.
fn interval(options: &Options) -> Duration {
    let shortest = options.min_session_timeout / 8;
    options.tick.min(shortest).max(Duration::from_millis(1))
}

/// Beats until it is dropped. To be run where the sockets' tasks run.
pub(crate) async fn beat(shared: Arc<Shared>) {
    let beat = &shared.beat;
    let every = interval(&shared.options);
    beat.beating.store(true, Ordering::Release);
    loop {
        let mark = shared.time.mark();
        let due = now() + every;
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = beat.wanted.notified() => {}
        }
        let woken = now();
        let round = beat.asked.load(Ordering::Acquire);
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        // A round that the core asked for begins before the beat is due.
        let lag = now().saturating_duration_since(due.min(woken));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::inbox::Work;
    use crate::report::rate_limit::LINES_EACH;
    use crate::state::tests::shared;

    const EVERY: Duration = Duration::from_millis(10);

    /// A server without sockets, whose beat runs when the test waits.
    async fn beating() -> Arc<Shared> {
        let shared = shared(Options {
            tick: EVERY,
            min_session_timeout: 8 * EVERY,
            ..Options::default()
        });
        tokio::spawn(beat(Arc::clone(&shared)));
        turns().await;
        shared
    }

    /// Lets the beat go on until it waits, at the same instant of the test's clock.
    async fn turns() {
        for _ in 0..4 * TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// Nobody else gets a turn for so long, and then the beat does.
    async fn block(time: Duration) {
        tokio::time::advance(time).await;
        turns().await;
    }

    #[test]
    fn it_beats_several_times_in_the_shortest_timeout_and_in_each_tick() {
        let of = |tick, min_session_timeout| {
            interval(&Options {
                tick,
                min_session_timeout,
                ..Options::default()
            })
        };
        let ms = Duration::from_millis;
        assert_eq!(of(ms(50), ms(800)), ms(50));
        assert_eq!(of(ms(200), ms(800)), ms(100));
        assert_eq!(of(ms(200), ms(1)), ms(1), "a pause, at least");
        assert_eq!(of(ms(0), ms(800)), ms(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_sockets_are_late_is_measured_and_from_one_interval_on_forgiven() {
        let shared = beating().await;
        let longest = || shared.stats.socket_lag.spread().max;
        block(EVERY).await;
        assert_eq!((shared.stats.socket_lag.spread().count, longest()), (1, 0));
        block(2 * EVERY).await;
        assert_eq!(longest(), micros(EVERY));
        assert_eq!(shared.time.forgiven(), Duration::ZERO);
        let late = EVERY + Duration::from_millis(1);
        block(EVERY + late).await;
        assert_eq!(longest(), micros(late));
        assert_eq!(shared.time.forgiven(), late);
        block(EVERY + 5 * late).await;
        assert_eq!(shared.time.forgiven(), 6 * late, "each time anew");
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_hears_of_sockets_that_are_more_than_two_intervals_late() {
        let shared = beating().await;
        let left_out = || shared.stats.lines_left_out.load(Ordering::Relaxed);
        // The log takes that many lines of one kind, and counts those beyond.
        for _ in 0..=LINES_EACH {
            block(3 * EVERY).await;
        }
        assert_eq!(left_out(), 0);
        for _ in 0..=LINES_EACH {
            block(3 * EVERY + Duration::from_millis(1)).await;
        }
        assert_eq!(left_out(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_is_made_once_it_is_asked_for_and_the_core_is_woken_for_it_alone() {
        let idle = shared(Options::default());
        assert_eq!(idle.beat.ask(), None, "no sockets are served yet");
        let shared = beating().await;
        block(EVERY).await;
        assert!(!shared.inbox.is_nudged(), "nobody has asked");
        for _ in 0..3 {
            let round = shared.beat.ask().unwrap();
            assert!(!shared.beat.is_made(round));
            // No time passes.
            turns().await;
            assert!(shared.beat.is_made(round));
            assert!(shared.inbox.is_nudged());
            shared.inbox.take(&mut Work::default(), None);
            block(EVERY).await;
            assert!(!shared.inbox.is_nudged());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_takes_long_is_late_from_its_beginning_on() {
        let shared = beating().await;
        block(Duration::from_millis(2)).await;
        shared.beat.ask().unwrap();
        // The beat begins its round.
        tokio::task::yield_now().await;
        block(5 * EVERY).await;
        assert_eq!(shared.time.forgiven(), 5 * EVERY);
    }

    /// The core looks once it is woken, and would sleep on with nobody to wake it again.
    #[test]
    fn a_round_counts_as_made_before_the_core_is_woken_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let shared = runtime.block_on(beating());
        let round = shared.beat.ask().unwrap();
        let beat = shared.inbox.while_held(|| {
            let beat = std::thread::spawn(move || runtime.block_on(turns()));
            let begun = std::time::Instant::now();
            while !shared.beat.is_made(round) {
                assert!(begun.elapsed() < Duration::from_secs(30), "it is not made");
                std::thread::yield_now();
            }
            beat
        });
        beat.join().unwrap();
        assert!(shared.inbox.is_nudged());
    }
}

//! Lag of the socket tasks: measured by a task beside them, shown as a metric, and not counted
//! against any session. Makes the rounds that the core asks for. Never ends a session, and never
//! blocks.

use std::sync::Arc;
use std::time::Duration;

use crate::options::Options;
use crate::report::notice::Notice;
use crate::state::ServerState;
use crate::time::micros;

/// Turns that every other task gets before a round counts as made: one to accept a connection, one
/// to read its first frame, one for the tasks that these have woken.
const TURNS: usize = 3;

/// Returns the interval of the measurement: several times in the shortest session timeout, and at
/// each tick of the session clock.
fn interval(options: &Options) -> Duration {
    let shortest = options.min_session_timeout / 8;
    options.tick.min(shortest).max(Duration::from_millis(1))
}

/// Measures the lag until it is dropped. To be run where the socket tasks run.
pub(crate) async fn measure(state: Arc<ServerState>) {
    let rounds = &state.rounds;
    let every = interval(&state.options);
    rounds.begin();
    loop {
        let mark = state.time.mark();
        let due = state.time.now() + every;
        // A server that nobody uses is late for nobody: it sleeps until somebody comes.
        let is_used = state.idle().is_zero();
        let is_due = tokio::select! {
            () = tokio::time::sleep_until(state.time.timer_at(due)), if is_used => true,
            () = rounds.wanted() => false,
        };
        let woken = state.time.now();
        let round = rounds.asked();
        if !is_due && rounds.is_made(round) {
            // The server is used from here on.
            continue;
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        // A round that the core asked for begins before the measurement is due, or without one.
        let begun = if is_used { due.min(woken) } else { woken };
        let lag = state.time.now().saturating_duration_since(begun);
        state.stats.socket_lag.record(micros(lag));
        if lag > every {
            state.time.forgive(mark, lag);
        }
        if lag > 2 * every {
            state.notice(
                Notice::Lag,
                None,
                format_args!(
                    "sockets were served {lag:.0?} late, and sessions are not charged for it; give the server more processors or fewer costly requests"
                ),
            );
        }
        if rounds.set_made(round) {
            state.inbox.nudge();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::inbox::Work;
    use crate::connections::peer::Peer;
    use crate::report::rate_limit::LINES_EACH;
    use crate::state::tests::state;

    const EVERY: Duration = Duration::from_millis(10);

    /// A server without sockets, whose lag task runs when the test waits.
    async fn beating() -> Arc<ServerState> {
        let state = state(Options {
            tick: EVERY,
            min_session_timeout: 8 * EVERY,
            ..Options::default()
        });
        state.set_sessions(1);
        tokio::spawn(measure(Arc::clone(&state)));
        turns().await;
        state
    }

    /// Lets the lag task go on until it waits, at the same instant of the test's clock.
    async fn turns() {
        for _ in 0..4 * TURNS {
            tokio::task::yield_now().await;
        }
    }

    /// No task gets a turn for `time`; then the lag task does.
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
        let state = beating().await;
        let longest = || state.stats.socket_lag.spread().max;
        block(EVERY).await;
        assert_eq!((state.stats.socket_lag.spread().count, longest()), (1, 0));
        block(2 * EVERY).await;
        assert_eq!(longest(), micros(EVERY));
        assert_eq!(state.time.forgiven(), Duration::ZERO);
        let late = EVERY + Duration::from_millis(1);
        block(EVERY + late).await;
        assert_eq!(longest(), micros(late));
        assert_eq!(state.time.forgiven(), late);
        block(EVERY + 5 * late).await;
        assert_eq!(state.time.forgiven(), 6 * late, "each time again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unused_server_is_not_measured() {
        let state = beating().await;
        state.set_sessions(0);
        block(2 * EVERY).await;
        let measured = || state.stats.socket_lag.spread().count;
        let before = measured();
        for _ in 0..100 {
            block(EVERY).await;
        }
        assert_eq!(measured(), before);
        let round = state.rounds.ask().unwrap();
        turns().await;
        assert!(state.rounds.is_made(round));
        assert_eq!(state.time.forgiven(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_client_of_an_unused_server_is_not_charged_either() {
        for by_connection in [false, true] {
            let state = beating().await;
            state.set_sessions(0);
            block(EVERY).await;
            let used = match by_connection {
                true => state.open(Peer::Local).is_ok(),
                false => {
                    state.set_sessions(1);
                    true
                }
            };
            assert!(used);
            turns().await;
            block(6 * EVERY).await;
            assert_eq!(state.time.forgiven(), 5 * EVERY);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_hears_of_sockets_that_are_more_than_two_intervals_late() {
        let state = beating().await;
        let left_out = || state.client_log.suppressed();
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
        let idle = state(Options::default());
        assert_eq!(idle.rounds.ask(), None, "no sockets are served yet");
        let state = beating().await;
        block(EVERY).await;
        assert!(!state.inbox.is_nudged(), "nobody has asked");
        for _ in 0..3 {
            let round = state.rounds.ask().unwrap();
            assert!(!state.rounds.is_made(round));
            // No time passes.
            turns().await;
            assert!(state.rounds.is_made(round));
            assert!(state.inbox.is_nudged());
            state.inbox.take(&mut Work::default());
            block(EVERY).await;
            assert!(!state.inbox.is_nudged());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_takes_long_is_late_from_its_beginning_on() {
        let state = beating().await;
        block(Duration::from_millis(2)).await;
        state.rounds.ask().unwrap();
        // The task begins its round.
        tokio::task::yield_now().await;
        block(5 * EVERY).await;
        assert_eq!(state.time.forgiven(), 5 * EVERY);
    }

    /// The core checks once when it is woken; nothing would wake it a second time.
    #[test]
    fn a_round_counts_as_made_before_the_core_is_woken_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let state = runtime.block_on(beating());
        let round = state.rounds.ask().unwrap();
        let beat = state.inbox.while_held(|| {
            let beat = std::thread::spawn(move || runtime.block_on(turns()));
            let begun = std::time::Instant::now();
            while !state.rounds.is_made(round) {
                assert!(begun.elapsed() < Duration::from_secs(30), "it is not made");
                std::thread::yield_now();
            }
            beat
        });
        beat.join().unwrap();
        assert!(state.inbox.is_nudged());
    }
}

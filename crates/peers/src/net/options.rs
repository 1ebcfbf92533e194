//! Times and limits of a transport.

use std::sync::Arc;
use std::time::Duration;

/// Times. The defaults fit servers of one data centre.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Limit on opening a stream.
    pub dial_timeout: Duration,
    /// Limit on the whole handshake, on either side.
    pub handshake_timeout: Duration,
    /// The pause after the first failed attempt.
    pub first_pause: Duration,
    /// The longest pause between attempts.
    pub longest_pause: Duration,
    /// Interval of each side's signs of life.
    pub alive_interval: Duration,
    /// A connection on which nothing arrives for this long ends.
    pub silence_limit: Duration,
    /// Limit on the last frames of a connection when it ends.
    pub last_words_timeout: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            dial_timeout: Duration::from_millis(300),
            handshake_timeout: Duration::from_secs(1),
            first_pause: Duration::from_millis(20),
            longest_pause: Duration::from_secs(1),
            alive_interval: Duration::from_secs(2),
            silence_limit: Duration::from_secs(5),
            last_words_timeout: Duration::from_millis(500),
        }
    }
}

/// Limits on memory.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes that may wait for one peer on the lanes of the log and of snapshots. A single frame
    /// may be larger, if nothing else waits.
    pub outbound_bytes: usize,
    /// Bytes that may wait for one peer on the urgent lane.
    pub urgent_bytes: usize,
    /// Bytes received from one peer on the lanes of the log and of snapshots that the owner may
    /// hold; beyond them nothing more is read there. A single frame may be larger, if the owner
    /// holds nothing else.
    pub inbound_bytes: usize,
    /// The same for the urgent lane.
    pub inbound_urgent_bytes: usize,
    /// Connections that may wait for their handshake; a further one takes the place of the oldest.
    pub handshakes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            outbound_bytes: 8 << 20,
            urgent_bytes: 1 << 20,
            inbound_bytes: 32 << 20,
            inbound_urgent_bytes: 4 << 20,
            handshakes: 64,
        }
    }
}

/// Settings of a transport.
#[derive(Debug, Clone)]
pub struct Options {
    /// Times.
    pub timing: Timing,
    /// Limits.
    pub limits: Limits,
    /// Decides the pauses between attempts and the numbers of handshakes. Draw it again for each
    /// start of a server.
    pub seed: u64,
    /// The wall clock.
    pub wall_clock: WallClock,
}

/// A wall clock, in milliseconds since 1970.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl WallClock {
    /// A clock that this function reads.
    pub fn new(now_ms: impl Fn() -> i64 + Send + Sync + 'static) -> WallClock {
        WallClock(Arc::new(now_ms))
    }

    /// The time.
    pub fn now_ms(&self) -> i64 {
        (self.0)()
    }
}

impl std::fmt::Debug for WallClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WallClock").field(&self.now_ms()).finish()
    }
}

impl Options {
    /// The default times and limits.
    pub fn new(seed: u64, wall_clock: WallClock) -> Options {
        Options {
            timing: Timing::default(),
            limits: Limits::default(),
            seed,
            wall_clock,
        }
    }
}

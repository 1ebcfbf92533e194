//! Options of a lease: the ensemble's timing, the clocks, and the mode.

use std::time::Duration;

/// Kind of request by which a session's lease is proved.
///
/// It matters on Apache ZooKeeper only: there a server answers reads and pings by itself, also
/// while it is cut off from its leader. Baton's server says which of its answers mean that the
/// leader has counted the request: all of them where it stands alone, in an ensemble those to
/// pings, writes and syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LeaseMode {
    /// Pings on Baton's server, small writes on any other. Sound on every ensemble with nothing
    /// stated.
    #[default]
    Auto,
    /// Small writes on every server.
    Strict,
    /// Pings on every server. Elsewhere than on Baton's server this needs [`LeaseOptions::tick`]
    /// and [`LeaseOptions::sync_limit`], and a session timeout of at least `2·(3·sync_limit +
    /// 1)·tick`: 64 s with ZooKeeper's stock settings.
    Ping,
}

/// Options of a lease: the ensemble's timing, the clocks, and the mode.
///
/// The protocol does not carry an ensemble's `tickTime` and `syncLimit`. With nothing stated the
/// lease assumes only that the session timeout is at least two ticks, which ZooKeeper enforces
/// unless its `minSessionTimeout` is set lower.
///
/// ```
/// # use std::time::Duration;
/// # use baton_client::{Config, LeaseMode, LeaseOptions};
/// let lease = LeaseOptions {
///     tick: Some(Duration::from_secs(2)),
///     sync_limit: Some(5),
///     mode: LeaseMode::Ping,
///     ..LeaseOptions::default()
/// };
/// let minute = Duration::from_secs(60);
/// let config = Config::new("zk1:2181,zk2:2181")?.session_timeout(minute).lease(lease);
/// # Ok::<(), baton_client::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// The ensemble's `tickTime`; `None` (the default) for half the session timeout, the most that
    /// it can be on an ensemble whose `minSessionTimeout` is not set below two ticks. A shorter
    /// tick leaves more of the lease. Without effect on Baton's server.
    pub tick: Option<Duration>,
    /// The ensemble's `syncLimit` in ticks; used by [`LeaseMode::Ping`] only, which needs it.
    /// Without effect on Baton's server.
    pub sync_limit: Option<u32>,
    /// Largest difference between the rates of a server's clock and this machine's, in parts per
    /// million (10,000 = 1 %).
    pub clock_rate_ppm: u32,
    /// Slack for a leader that is late with its timers (50 ms, but never more than a twentieth of
    /// the session timeout).
    pub epsilon: Duration,
    /// Requests that the lease rests on.
    pub mode: LeaseMode,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            tick: None,
            sync_limit: None,
            clock_rate_ppm: 10_000,
            epsilon: Duration::from_millis(50),
            mode: LeaseMode::Auto,
        }
    }
}

//! Sizes and times of transfers.

use std::time::Duration;

use baton_peers::codec::MAX_UNACKED_BYTES;

/// Sizes and times of transfers.
#[derive(Debug, Clone)]
pub(crate) struct TransferLimits {
    /// Bytes of one chunk, at most `baton_peers::codec::MAX_CHUNK_BYTES`.
    pub(crate) chunk_bytes: usize,
    /// Bytes on their way to one peer without an acknowledgement. They wait in the same queue as
    /// log entries, so they are far below what that may hold.
    pub(crate) window_bytes: usize,
    /// Bytes that a receiver takes without having stored them.
    pub(crate) unstored_bytes: usize,
    /// Bytes that leave in a second, to all peers together; 0 is no limit.
    pub(crate) bytes_per_second: u64,
    /// Longest time for which a transfer may make no progress (R24). The log is kept that long.
    pub(crate) stall_limit: Duration,
    /// Longest time without progress before a transfer of another peer may take its place.
    pub(crate) idle_limit: Duration,
    /// Pause before a frame that found no room is sent again.
    pub(crate) send_again: Duration,
    /// The pause after the first failure that another attempt would only repeat. Each further one
    /// doubles it, up to the longest.
    pub(crate) first_pause: Duration,
    /// The longest pause.
    pub(crate) longest_pause: Duration,
}

impl Default for TransferLimits {
    fn default() -> Self {
        Self {
            chunk_bytes: 256 << 10,
            window_bytes: 2 << 20,
            unstored_bytes: MAX_UNACKED_BYTES,
            bytes_per_second: 64 << 20,
            stall_limit: Duration::from_secs(600),
            idle_limit: Duration::from_secs(5),
            send_again: Duration::from_millis(10),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
        }
    }
}

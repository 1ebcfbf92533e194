//! Counters for metrics: plain atomics, read at any time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Counters of one peer, over all its connections.
#[derive(Debug, Default)]
pub struct PeerCounters {
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
    /// Frames received, without signs of life.
    pub frames_in: AtomicU64,
    /// Frames sent, without signs of life.
    pub frames_out: AtomicU64,
    /// Connections that were established, in both directions.
    pub connections: AtomicU64,
    /// Frames that were not sent: no connection, no room, or the connection ended before.
    pub dropped: AtomicU64,
    /// Frames that a superseded connection delivered, which were dropped.
    pub stale: AtomicU64,
    /// Frames that were refused; each ends its connection.
    pub bad_frames: AtomicU64,
    /// Bytes that wait to be sent.
    pub queued_bytes: AtomicU64,
    /// The newest round trip, in microseconds; 0 before there was one.
    pub round_trip_us: AtomicU64,
    /// The peer's wall clock minus this server's, in milliseconds, at the newest handshake.
    pub clock_offset_ms: AtomicI64,
}

/// Counters of connections that belong to no peer yet.
#[derive(Debug, Default)]
pub struct TransportCounters {
    /// Connections that were accepted.
    pub accepted: AtomicU64,
    /// Handshakes that were refused, by either side.
    pub refused: AtomicU64,
    /// Accepted connections that could not be encrypted.
    pub tls_failed: AtomicU64,
    /// Connections that began with the bytes of another protocol.
    pub foreign: AtomicU64,
    /// Connections that were closed since too many waited for their handshake.
    pub crowded_out: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Relaxed);
}

//! The bounds a decoder enforces on what a peer may send. Owns the numbers only; where a bound is
//! broken, the decoder or the frame splitter says so.

/// Bounds on frames and on the strings and buffers inside them (protocol.md §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest frame accepted, in bytes, without its 4-byte length. ZooKeeper calls it
    /// `jute.maxbuffer`.
    pub max_frame_bytes: usize,
    /// Excess over `max_frame_bytes` that one string or buffer inside a record may claim before it
    /// is refused as too long rather than as truncated. ZooKeeper calls it
    /// `jute.maxbuffer.extrasize`.
    pub extra_bytes: usize,
}

impl Limits {
    /// ZooKeeper's default frame limit: 1 MiB less one byte.
    pub const DEFAULT_MAX_FRAME_BYTES: usize = 0xf_ffff;

    /// Limits with this frame bound and an equal allowance for inner fields.
    #[must_use]
    pub const fn with_max_frame_bytes(max_frame_bytes: usize) -> Self {
        Self {
            max_frame_bytes,
            extra_bytes: max_frame_bytes,
        }
    }

    /// Longest string or buffer that a record may hold, in bytes.
    #[must_use]
    pub const fn max_field_bytes(&self) -> usize {
        self.max_frame_bytes.saturating_add(self.extra_bytes)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::with_max_frame_bytes(Self::DEFAULT_MAX_FRAME_BYTES)
    }
}

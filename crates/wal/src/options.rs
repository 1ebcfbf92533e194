//! Options of a log.

use crate::error::WalError;

/// Options of a log.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// The cluster of a new folder, and the one required of a folder that is there; `None` takes
    /// what is there and draws one for a new folder.
    pub cluster_id: Option<u64>,
    /// A segment that has reached this many bytes is followed by a new one: 4 KiB to 1 GiB, default
    /// 64 MiB.
    pub segment_bytes: u64,
    /// A segment grows by this many zero bytes at a time, ahead of the records: default 1 MiB.
    pub extend_bytes: u64,
    /// Number of snapshots that are kept, with the log from the oldest of them on: 1 or more,
    /// default 3.
    pub keep_snapshots: usize,
}

impl Default for WalOptions {
    fn default() -> WalOptions {
        WalOptions {
            cluster_id: None,
            segment_bytes: 64 << 20,
            extend_bytes: 1 << 20,
            keep_snapshots: 3,
        }
    }
}

/// Refuses options that are out of range.
pub(crate) fn check_options(options: &WalOptions) -> Result<(), WalError> {
    let refuse = |name, value, accepted| {
        Err(WalError::Option {
            name,
            value,
            accepted,
        })
    };
    if !((4 << 10)..=(1 << 30)).contains(&options.segment_bytes) {
        return refuse("segment_bytes", options.segment_bytes, "4096 to 1073741824");
    }
    if !((4 << 10)..=(1 << 30)).contains(&options.extend_bytes) {
        return refuse("extend_bytes", options.extend_bytes, "4096 to 1073741824");
    }
    if options.keep_snapshots == 0 {
        return refuse("keep_snapshots", 0, "1 or more");
    }
    Ok(())
}

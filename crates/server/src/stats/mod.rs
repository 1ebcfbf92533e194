//! Counters and measurements, taken without a lock.
//!
//! | module | owns |
//! |---|---|
//! | `progress` | since when the core has been at its present step |
//! | `counters` | the counters of the server and of each connection |
//! | `requests` | requests by operation, sizes of replies |
//! | `replication` | the counters of a server of an ensemble |
//! | `sizes` | the last, the smallest and the largest of several sizes |
//! | `distribution` | minimum, mean, maximum and quantiles of one measurement |

pub(crate) mod counters;
pub(crate) mod distribution;
pub(crate) mod progress;
pub(crate) mod replication;
pub(crate) mod requests;
pub(crate) mod sizes;

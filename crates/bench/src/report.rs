//! The result of a run. It holds measurements only; it never decides whether they are good.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::process::Usage;

/// The measurements of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The workload's name.
    pub(crate) workload: String,
    /// The servers as given.
    pub(crate) servers: String,
    /// Connections, or clients for the recipes' workloads.
    pub(crate) connections: usize,
    /// Requests kept in flight on each connection.
    pub(crate) in_flight: usize,
    /// Bytes of each value written.
    pub(crate) value_bytes: usize,
    /// Length of the measured window.
    pub(crate) seconds: f64,
    /// Operations that ended in the window.
    pub(crate) ops: u64,
    /// Operations a second.
    pub(crate) ops_per_second: f64,
    /// Time from the request's encoding to its reply, microseconds.
    pub(crate) latency_us: Latency,
    /// CPU time that the load generator itself took for an operation.
    pub(crate) generator_cpu_us_per_op: f64,
    /// The cost of the server, where `--pid` named it.
    pub(crate) server: Option<ServerCost>,
}

/// Percentiles of the latency, microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    /// Arithmetic mean.
    pub(crate) mean: f64,
    /// Median.
    pub(crate) p50: f64,
    /// 90th percentile.
    pub(crate) p90: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// 99.9th percentile.
    pub(crate) p999: f64,
    /// Largest.
    pub(crate) max: f64,
}

/// The cost of the server's processes in the measured window.
#[derive(Debug, Serialize)]
pub(crate) struct ServerCost {
    /// User and system time for one operation, microseconds.
    pub(crate) cpu_us_per_op: f64,
    /// Processors kept busy on average.
    pub(crate) cores: f64,
    /// Resident memory at the end of the window.
    pub(crate) resident_bytes: u64,
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub(crate) fn from_nanos(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| round(histogram.value_at_quantile(quantile) as f64 / 1e3, 2);
        Self {
            mean: round(histogram.mean() / 1e3, 2),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: round(histogram.max() as f64 / 1e3, 2),
        }
    }
}

impl ServerCost {
    /// From readings at the window's two ends.
    pub(crate) fn between(before: Usage, after: Usage, ops: u64, window: Duration) -> Self {
        let cpu = after.cpu.saturating_sub(before.cpu);
        Self {
            cpu_us_per_op: per_op_us(cpu, ops),
            cores: round(
                cpu.as_secs_f64() / window.as_secs_f64().max(f64::EPSILON),
                2,
            ),
            resident_bytes: after.resident_bytes,
        }
    }
}

/// Microseconds of `cpu` for one of `ops`.
pub(crate) fn per_op_us(cpu: Duration, ops: u64) -> f64 {
    round(cpu.as_secs_f64() * 1e6 / ops.max(1) as f64, 3)
}

/// Rounds to `digits` decimals: a number in a report has no more digits than were measured.
pub(crate) fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

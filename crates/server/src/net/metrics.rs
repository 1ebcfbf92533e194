//! Every figure that the server tells of itself, defined once: its name, what it is, what it means, where it comes from.
//! `mntr`, `/commands/monitor` and `/metrics` are three ways to write this table down. Names are ZooKeeper's where it has
//! one (protocol.md §7.3); what only Baton has begins with `baton_`.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Map, Number, Value as Json};

use crate::core::distribution::Spread;
use crate::core::shared::Shared;
use crate::core::stats::Stats;
use crate::core::watches::WatchCounts;

/// Shares of which the summaries tell the quantile: of `/metrics`, and with their names in `mntr`.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];
/// The bounds of histograms, as powers of two of microseconds: 16 µs to 17 s.
const BOUNDS: std::ops::RangeInclusive<u32> = 4..=24;
const MICROS_PER_SECOND: f64 = 1e6;

/// What kind of figure it is, in Prometheus's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
    Summary,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        }
    }
}

/// One figure's value.
#[derive(Debug)]
enum Value {
    Count(u64),
    Real(f64),
    /// A number of things.
    Things(Spread),
    /// Microseconds, told in milliseconds, as ZooKeeper does.
    Millis(Spread),
    /// Microseconds, told in seconds.
    Seconds(Spread),
}

struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    read: fn(&Sample<'_>) -> Value,
}

/// What the figures are read from, taken once for all of them.
struct Sample<'a> {
    shared: &'a Shared,
    stats: &'a Stats,
    latency: Spread,
    watches: WatchCounts,
    nodes: usize,
    ephemerals: usize,
    acls: usize,
    data_bytes: usize,
    sessions_with_ephemerals: usize,
    connections: usize,
    attached: usize,
    outbound_bytes: u64,
    outbound_bytes_max: u64,
    bytes: (u64, u64),
    open_files: u64,
    max_files: u64,
}

impl<'a> Sample<'a> {
    fn take(shared: &'a Shared) -> Self {
        let (nodes, ephemerals, acls, data_bytes, sessions_with_ephemerals) = {
            let tree = shared.tree.read();
            let holding = tree.sessions().filter(|session| session.ephemerals > 0);
            (
                // ZooKeeper counts one more than there are (protocol.md §1.6).
                tree.node_count() + 1,
                tree.ephemeral_count(),
                tree.acl_count(),
                tree.approximate_bytes(),
                holding.count(),
            )
        };
        let connections = shared.all_connections();
        let waiting = connections.iter().map(|conn| conn.waiting_bytes());
        let (open_files, max_files) = file_descriptors();
        Self {
            shared,
            stats: &shared.stats,
            latency: shared.stats.latency(),
            watches: shared.watches.lock().counts(),
            nodes,
            ephemerals,
            acls,
            data_bytes,
            sessions_with_ephemerals,
            connections: connections.len(),
            attached: connections
                .iter()
                .filter(|conn| conn.attached().is_some())
                .count(),
            outbound_bytes: waiting.clone().sum(),
            outbound_bytes_max: waiting.max().unwrap_or(0),
            bytes: shared.transferred_bytes(),
            open_files,
            max_files,
        }
    }
}

fn count(value: usize) -> Value {
    Value::Count(value as u64)
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Sample<'_>) -> Value) -> Metric {
    Metric {
        name,
        kind: Kind::Gauge,
        help,
        read,
    }
}

const fn counter(name: &'static str, help: &'static str, read: fn(&Sample<'_>) -> Value) -> Metric {
    Metric {
        kind: Kind::Counter,
        ..gauge(name, help, read)
    }
}

const fn summary(name: &'static str, help: &'static str, read: fn(&Sample<'_>) -> Value) -> Metric {
    Metric {
        kind: Kind::Summary,
        ..gauge(name, help, read)
    }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    read: fn(&Sample<'_>) -> Value,
) -> Metric {
    Metric {
        kind: Kind::Histogram,
        ..gauge(name, help, read)
    }
}

/// The table. docs/operations.md shows it to operators.
static TABLE: &[Metric] = &[
    gauge(
        "avg_latency",
        "Mean time from a request's arrival to its answer, in milliseconds.",
        |s| Value::Real(s.latency.mean() / 1000.0),
    ),
    gauge(
        "max_latency",
        "Longest time from a request's arrival to its answer, in milliseconds.",
        |s| Value::Count(s.latency.max / 1000),
    ),
    gauge(
        "min_latency",
        "Shortest time from a request's arrival to its answer, in milliseconds.",
        |s| Value::Count(s.latency.min / 1000),
    ),
    gauge("packets_received", "Requests received.", |s| {
        Value::Count(s.stats.received.load(Relaxed))
    }),
    gauge("packets_sent", "Requests answered.", |s| {
        Value::Count(s.stats.sent.load(Relaxed))
    }),
    gauge("num_alive_connections", "Connections that are open.", |s| {
        count(s.connections)
    }),
    gauge(
        "outstanding_requests",
        "Requests that wait for the log or are being worked on.",
        |s| count(s.shared.inbox.queued_requests()),
    ),
    gauge(
        "znode_count",
        "Znodes, as ZooKeeper counts them: one more than there are.",
        |s| count(s.nodes),
    ),
    gauge("watch_count", "Watches that are set.", |s| {
        count(s.watches.watches)
    }),
    gauge("ephemerals_count", "Ephemeral znodes.", |s| {
        count(s.ephemerals)
    }),
    gauge(
        "approximate_data_size",
        "Bytes of all paths and data.",
        |s| count(s.data_bytes),
    ),
    gauge("acl_count", "Different ACLs.", |s| count(s.acls)),
    gauge("global_sessions", "Sessions that are open.", |s| {
        count(s.shared.sessions.load(Relaxed))
    }),
    gauge(
        "local_sessions",
        "Always 0: every session is in the log.",
        |_| Value::Count(0),
    ),
    gauge("uptime", "Milliseconds since the start.", |s| {
        Value::Count(s.shared.time.uptime_ms())
    }),
    gauge(
        "open_file_descriptor_count",
        "Open files and sockets of the process.",
        |s| Value::Count(s.open_files),
    ),
    gauge(
        "max_file_descriptor_count",
        "Files and sockets that the process may open.",
        |s| Value::Count(s.max_files),
    ),
    counter("auth_failed_count", "Credentials that were refused.", |s| {
        Value::Count(s.stats.auth_failed.load(Relaxed))
    }),
    counter(
        "connection_request_count",
        "Connections accepted or refused.",
        |s| Value::Count(s.stats.connections_accepted.load(Relaxed)),
    ),
    counter(
        "connection_rejected",
        "Connections refused, because of either limit.",
        |s| {
            Value::Count(
                s.stats.refused_from_address.load(Relaxed) + s.stats.refused_in_all.load(Relaxed),
            )
        },
    ),
    counter(
        "connection_revalidate_count",
        "Sessions that went on through another connection.",
        |s| Value::Count(s.stats.sessions_reattached.load(Relaxed)),
    ),
    counter("stale_sessions_expired", "Sessions that expired.", |s| {
        Value::Count(s.stats.sessions_expired.load(Relaxed))
    }),
    counter(
        "sessionless_connections_expired",
        "Connections closed because they named no session in time.",
        |s| Value::Count(s.stats.handshakes_timed_out.load(Relaxed)),
    ),
    counter(
        "large_requests_rejected",
        "Requests over the limit of bytes.",
        |s| Value::Count(s.stats.large_requests.load(Relaxed)),
    ),
    counter(
        "quota_soft_exceeded",
        "Writes that went over a soft quota.",
        |s| Value::Count(s.stats.quota_soft_exceeded.load(Relaxed)),
    ),
    counter(
        "quota_hard_exceeded",
        "Writes refused because of a hard quota.",
        |s| Value::Count(s.stats.quota_hard_exceeded.load(Relaxed)),
    ),
    counter(
        "bytes_received_count",
        "Bytes received from clients.",
        |s| Value::Count(s.bytes.0),
    ),
    counter("response_bytes", "Bytes sent to clients.", |s| {
        Value::Count(s.bytes.1)
    }),
    counter("watch_bytes", "Bytes of watch events.", |s| {
        Value::Count(s.stats.watch_bytes.load(Relaxed))
    }),
    counter(
        "commit_count",
        "Writes committed, of clients and of the server itself.",
        |s| Value::Count(s.stats.commands.load(Relaxed)),
    ),
    counter("snap_count", "Snapshots written.", |s| {
        Value::Count(s.stats.snapshots.load(Relaxed))
    }),
    summary(
        "fsynctime",
        "Time of a sync of the log, in milliseconds.",
        |s| Value::Millis(s.stats.sync_time.spread()),
    ),
    summary(
        "readlatency",
        "Time to the answer of a read, in milliseconds.",
        |s| Value::Millis(s.stats.reads.spread()),
    ),
    summary(
        "updatelatency",
        "Time to the answer of a write, or of a read behind one, in milliseconds.",
        |s| Value::Millis(s.stats.updates.spread()),
    ),
    summary(
        "sync_processor_batch_size",
        "Writes that shared one log entry and its sync.",
        |s| Value::Things(s.stats.batch_requests.spread()),
    ),
    summary(
        "snapshottime",
        "Time from a snapshot's start until it is durable, in milliseconds.",
        |s| Value::Millis(s.stats.snapshot_time.spread()),
    ),
    summary(
        "dbinittime",
        "Time of recovery at the start, in milliseconds.",
        |s| Value::Millis(s.stats.start_time.spread()),
    ),
    summary(
        "startup_snap_load_time",
        "Time to read the log and the newest snapshot at the start, in milliseconds.",
        |s| Value::Millis(s.stats.load_snapshot_time.spread()),
    ),
    summary(
        "startup_txns_load_time",
        "Time to apply the log at the start, in milliseconds.",
        |s| Value::Millis(s.stats.load_log_time.spread()),
    ),
    summary(
        "startup_txns_loaded",
        "Log entries applied at the start.",
        |s| Value::Things(s.stats.load_log_entries.spread()),
    ),
    summary(
        "node_created_watch_count",
        "Watchers told of a created znode.",
        |s| Value::Things(s.stats.created_watches.spread()),
    ),
    summary(
        "node_deleted_watch_count",
        "Watchers told of a deleted znode.",
        |s| Value::Things(s.stats.deleted_watches.spread()),
    ),
    summary(
        "node_changed_watch_count",
        "Watchers told of changed data.",
        |s| Value::Things(s.stats.changed_watches.spread()),
    ),
    summary(
        "node_children_watch_count",
        "Watchers told of changed children.",
        |s| Value::Things(s.stats.children_watches.spread()),
    ),
    histogram("baton_sync_seconds", "Time of a sync of the log.", |s| {
        Value::Seconds(s.stats.sync_time.spread())
    }),
    summary("baton_log_entry_bytes", "Bytes of a log entry.", |s| {
        Value::Things(s.stats.batch_bytes.spread())
    }),
    gauge(
        "baton_queue_bytes",
        "Bytes of requests that wait for the log.",
        |s| count(s.shared.inbox.queued_bytes()),
    ),
    gauge(
        "baton_queue_bytes_limit",
        "Bytes of requests from which on sockets are read no further.",
        |s| count(s.shared.options.max_queued_bytes),
    ),
    gauge(
        "baton_outbound_bytes",
        "Bytes of replies and events that clients have not fetched.",
        |s| Value::Count(s.outbound_bytes),
    ),
    gauge(
        "baton_outbound_bytes_max",
        "The same of the connection that has most.",
        |s| Value::Count(s.outbound_bytes_max),
    ),
    counter(
        "baton_slow_readers_closed",
        "Connections closed because they did not read.",
        |s| Value::Count(s.stats.slow_readers_closed.load(Relaxed)),
    ),
    counter(
        "baton_rejected_per_address",
        "Connections refused because their address has too many.",
        |s| Value::Count(s.stats.refused_from_address.load(Relaxed)),
    ),
    counter(
        "baton_rejected_in_all",
        "Connections refused because there are too many.",
        |s| Value::Count(s.stats.refused_in_all.load(Relaxed)),
    ),
    counter(
        "baton_connections_shed",
        "Connections that an operator shed.",
        |s| Value::Count(s.stats.connections_shed.load(Relaxed)),
    ),
    gauge("baton_watched_paths", "Paths with a watch.", |s| {
        count(s.watches.paths)
    }),
    gauge(
        "baton_watching_connections",
        "Connections with a watch.",
        |s| count(s.watches.connections),
    ),
    gauge(
        "baton_sessions_with_ephemerals",
        "Sessions that hold or wait for something: those with an ephemeral znode.",
        |s| count(s.sessions_with_ephemerals),
    ),
    gauge(
        "baton_sessions_without_connection",
        "Sessions whose client is away; what they hold is freed when they expire.",
        |s| count(s.shared.sessions.load(Relaxed).saturating_sub(s.attached)),
    ),
    counter(
        "baton_znodes_reaped",
        "Empty containers and outlived TTL znodes removed.",
        |s| Value::Count(s.stats.reaped.load(Relaxed)),
    ),
    histogram(
        "baton_snapshot_slice_seconds",
        "How long a slice of a snapshot kept all other requests waiting.",
        |s| Value::Seconds(s.stats.snapshot_slice.spread()),
    ),
    gauge(
        "baton_snapshot_slice_max_seconds",
        "The longest such pause since the start.",
        |s| Value::Real(s.stats.snapshot_slice.spread().max as f64 / MICROS_PER_SECOND),
    ),
];

/// The figures by name, without a prefix, as `mntr` and `/commands/monitor` tell them: a distribution becomes several.
fn flat(shared: &Shared) -> Vec<(String, Number)> {
    let sample = Sample::take(shared);
    let mut all = Vec::new();
    for metric in TABLE {
        let (spread, per) = match (metric.read)(&sample) {
            Value::Count(count) => {
                all.push((metric.name.to_owned(), count.into()));
                continue;
            }
            Value::Real(real) => {
                all.push((metric.name.to_owned(), rounded(real, metric.name)));
                continue;
            }
            Value::Things(spread) => (spread, 1),
            Value::Millis(spread) => (spread, 1000),
            Value::Seconds(spread) => (spread, 1_000_000),
        };
        let name = |part: &str| format!("{part}_{}", metric.name);
        let scaled = |micros: u64| -> Number {
            if metric.kind == Kind::Histogram {
                rounded(micros as f64 / per as f64, metric.name)
            } else {
                (micros / per).into()
            }
        };
        let mean = rounded(spread.mean() / per as f64, metric.name);
        all.push((name("avg"), mean));
        all.push((name("min"), scaled(spread.min)));
        all.push((name("max"), scaled(spread.max)));
        all.push((name("cnt"), spread.count.into()));
        all.push((name("sum"), scaled(spread.sum)));
        for (part, share) in PERCENTILES {
            all.push((name(part), scaled(spread.quantile(share))));
        }
    }
    all
}

/// Four digits behind the point, as ZooKeeper writes them; for seconds, the microseconds.
fn rounded(real: f64, name: &str) -> Number {
    let steps = if name.ends_with("_seconds") {
        MICROS_PER_SECOND
    } else {
        1e4
    };
    Number::from_f64((real * steps).round() / steps).unwrap_or_else(|| 0.into())
}

/// As `mntr` writes them.
pub(super) fn as_lines(shared: &Shared, out: &mut String) {
    for (name, value) in flat(shared) {
        let _ = writeln!(out, "zk_{name}\t{value}");
    }
}

/// As `/commands/monitor` writes them.
pub(super) fn as_json(shared: &Shared) -> Map<String, Json> {
    flat(shared)
        .into_iter()
        .map(|(name, value)| (name, Json::Number(value)))
        .collect()
}

/// As Prometheus reads them.
pub(super) fn as_exposition(shared: &Shared) -> String {
    let sample = Sample::take(shared);
    let mut out = String::new();
    for metric in TABLE {
        let name = metric.name;
        let _ = writeln!(out, "# HELP {name} {}", metric.help);
        let _ = writeln!(out, "# TYPE {name} {}", metric.kind.name());
        let (spread, per) = match (metric.read)(&sample) {
            Value::Count(count) => {
                let _ = writeln!(out, "{name} {count}");
                continue;
            }
            Value::Real(real) => {
                let _ = writeln!(out, "{name} {real}");
                continue;
            }
            Value::Things(spread) => (spread, 1.0),
            Value::Millis(spread) => (spread, 1000.0),
            Value::Seconds(spread) => (spread, MICROS_PER_SECOND),
        };
        if metric.kind == Kind::Histogram {
            for power in BOUNDS {
                let bound = 1_u64 << power;
                let _ = writeln!(
                    out,
                    "{name}_bucket{{le=\"{}\"}} {}",
                    bound as f64 / per,
                    spread.below(bound)
                );
            }
            let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {}", spread.count);
        } else {
            for share in QUANTILES {
                let value = spread.quantile(share) as f64 / per;
                let _ = writeln!(out, "{name}{{quantile=\"{share}\"}} {value}");
            }
        }
        let _ = writeln!(out, "{name}_sum {}", spread.sum as f64 / per);
        let _ = writeln!(out, "{name}_count {}", spread.count);
    }
    out
}

/// Open and allowed; 0 where the system does not tell.
fn file_descriptors() -> (u64, u64) {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (open, limit.current.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_one_name_and_docs_operations_shows_it() {
        let docs = include_str!("../../../../docs/operations.md");
        let mut names: Vec<_> = TABLE.iter().map(|metric| metric.name).collect();
        for name in &names {
            assert!(
                docs.contains(&format!("`{name}`")),
                "docs/operations.md does not show {name}"
            );
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len(), "a name stands for two figures");
    }
}

//! The table of metrics, each defined once: its name, what it is, what it means, where it comes
//! from. Names are ZooKeeper's where it has one (protocol.md §7.3); what only Baton has begins with
//! `baton_`. docs/operate/monitor.md shows it to operators; `zookeeper-absent.txt` has ZooKeeper's
//! metrics that are not here.

mod agreement;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use baton_consensus::Role;
use baton_proto::OpCode;
use baton_tree::QuotaState;

use crate::observers::traces::TracerCounts;
use crate::operator::facts;
use crate::operator::members;
use crate::state::ServerState;
use crate::state::ensemble_status::EnsembleStatus;
use crate::stats::counters::Stats;
use crate::stats::distribution::Spread;
use crate::stats::replication::ReplicationStats;
use crate::stats::requests::COUNTED;
use crate::watch::table::WatchCounts;

const MICROS_PER_SECOND: f64 = 1e6;

/// The kind of a metric, in Prometheus's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    Counter,
    Summary,
    Histogram,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Summary => "summary",
            Kind::Histogram => "histogram",
        }
    }
}

/// The value of a metric.
#[derive(Debug)]
pub(super) enum Value {
    Count(u64),
    Signed(i64),
    /// A number for each znode under the root that has any.
    ByNamespace(Vec<(String, i64)>),
    /// A number for each server of the ensemble but this one.
    ByServer(Vec<(u64, i64)>),
    /// Facts of the server, by label; the value is 1.
    Labels(Vec<(&'static str, String)>),
    /// Not measured by this server: it has no such part.
    Absent,
    Real(f64),
    /// A number of things.
    Things(Spread),
    /// Microseconds, shown in milliseconds, as ZooKeeper does.
    Millis(Spread),
    /// The same for each other server of the ensemble that this one has measured.
    MillisByServer(Vec<(u64, Spread)>),
    /// Microseconds, shown in seconds.
    Seconds(Spread),
}

/// Reads a metric.
#[derive(Debug, Clone, Copy)]
enum Source {
    Read(fn(&Sample<'_>) -> Value),
    /// The number of requests of these kinds.
    Requests(&'static [OpCode]),
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    source: Source,
}

impl Metric {
    pub(super) fn value(&self, sample: &Sample<'_>) -> Value {
        match self.source {
            Source::Read(read) => read(sample),
            Source::Requests(ops) => Value::Count(sample.stats.requests.of(ops)),
        }
    }
}

/// Every metric.
pub(super) fn all() -> impl Iterator<Item = Metric> {
    let requests = COUNTED.iter().map(|(name, ops)| Metric {
        name,
        kind: Kind::Counter,
        help: "Requests of this kind.",
        source: Source::Requests(ops),
    });
    TABLE
        .iter()
        .chain(agreement::TABLE)
        .copied()
        .chain(requests)
}

/// The values that metrics are read from, taken once for all of them.
pub(super) struct Sample<'a> {
    state: &'a ServerState,
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
    reply_sizes: (i64, i64, i64),
    quotas: Vec<QuotaState>,
    /// Time left to the attached session that is nearest to its end.
    least_time_left_ms: u64,
    open_files: u64,
    max_files: u64,
    /// `None`: the server stands alone.
    ensemble: Option<EnsembleStatus>,
}

impl<'a> Sample<'a> {
    pub(super) fn take(state: &'a ServerState) -> Self {
        let mut sessions_with_ephemerals = 0;
        facts::each_session(state, |session| {
            sessions_with_ephemerals += usize::from(session.ephemerals > 0);
        });
        let (nodes, ephemerals, acls, data_bytes, quotas) = {
            let tree = state.tree.read();
            (
                // ZooKeeper counts one more than there are (protocol.md §1.6).
                tree.node_count() + 1,
                tree.ephemeral_count(),
                tree.acl_count(),
                tree.approximate_bytes(),
                tree.quota_states(),
            )
        };
        let connections = state.all_connections();
        let waiting = connections.iter().map(|conn| conn.waiting_bytes());
        let (open_files, max_files) = file_descriptors();
        Self {
            state,
            stats: &state.stats,
            latency: state.stats.latency(),
            watches: state.watches.lock().counts(),
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
            bytes: state.transferred_bytes(),
            reply_sizes: facts::reply_sizes(state),
            quotas,
            least_time_left_ms: facts::least_time_left_ms(state, &connections),
            open_files,
            max_files,
            ensemble: members::status(state),
        }
    }

    /// A metric that only a server of an ensemble has.
    fn member(&self, read: impl FnOnce(&EnsembleStatus) -> Value) -> Value {
        self.ensemble.as_ref().map_or(Value::Absent, read)
    }

    /// A counter that only a server with a tracer has.
    fn spans(&self, read: fn(&TracerCounts) -> u64) -> Value {
        let tracer = self.state.options.tracer.as_ref();
        tracer.map_or(Value::Absent, |tracer| Value::Count(read(&tracer.counts())))
    }

    /// A counter that only a server of an ensemble has.
    fn replication(&self, read: impl FnOnce(&ReplicationStats) -> Value) -> Value {
        self.member(|_| read(&self.stats.replication))
    }

    /// A metric that only the leader of an ensemble has.
    fn leader(&self, read: impl FnOnce(&EnsembleStatus) -> Value) -> Value {
        self.member(|status| match status.role {
            Role::Leader => read(status),
            _ => Value::Absent,
        })
    }
}

/// Sums up, by the first name of their paths, what quotas say; as ZooKeeper does.
fn by_namespace(quotas: &[QuotaState], what: fn(&QuotaState) -> i64) -> Value {
    let mut sums = BTreeMap::<&str, i64>::new();
    for quota in quotas {
        let key = facts::namespace(&quota.path);
        let sum = sums.entry(key).or_default();
        *sum = sum.saturating_add(what(quota));
    }
    let sums = sums.into_iter();
    Value::ByNamespace(sums.map(|(key, sum)| (key.to_owned(), sum)).collect())
}

/// Lines of the audit record, and lines that it lacks.
fn audit_counts(sample: &Sample<'_>) -> (u64, u64) {
    let audit = sample.state.audit.as_ref();
    audit.map_or((0, 0), |audit| audit.counts())
}

fn known(value: Option<u64>) -> Value {
    value.map_or(Value::Absent, Value::Count)
}

fn count(value: usize) -> Value {
    Value::Count(value as u64)
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Sample<'_>) -> Value) -> Metric {
    Metric {
        name,
        kind: Kind::Gauge,
        help,
        source: Source::Read(read),
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

/// The table, but for the requests of each kind.
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
        |s| count(s.state.inbox.queued_requests()),
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
        count(s.state.sessions.load(Relaxed))
    }),
    gauge(
        "local_sessions",
        "Always 0: every session is in the log.",
        |_| Value::Count(0),
    ),
    gauge("uptime", "Milliseconds since the start.", |s| {
        Value::Count(s.state.time.uptime_ms())
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
    gauge(
        "last_client_response_size",
        "Bytes of the last answer to a request; -1 before the first.",
        |s| Value::Signed(s.reply_sizes.0),
    ),
    gauge(
        "min_client_response_size",
        "Bytes of the smallest answer to a request; -1 before the first.",
        |s| Value::Signed(s.reply_sizes.1),
    ),
    gauge(
        "max_client_response_size",
        "Bytes of the largest answer to a request; -1 before the first.",
        |s| Value::Signed(s.reply_sizes.2),
    ),
    gauge(
        "quota_count_limit_per_namespace",
        "Znodes allowed by the quotas under each child of the root; -1 for no limit.",
        |s| by_namespace(&s.quotas, |quota| quota.count_limit),
    ),
    gauge(
        "quota_bytes_limit_per_namespace",
        "Bytes of data allowed by them; -1 for no limit.",
        |s| by_namespace(&s.quotas, |quota| quota.bytes_limit),
    ),
    gauge(
        "quota_count_usage_per_namespace",
        "Znodes that count against them.",
        |s| by_namespace(&s.quotas, |quota| quota.count),
    ),
    gauge(
        "quota_bytes_usage_per_namespace",
        "Bytes of data that count against them.",
        |s| by_namespace(&s.quotas, |quota| quota.bytes),
    ),
    counter(
        "quota_exceeded_error_per_namespace",
        "Writes refused because of one of them.",
        |s| Value::ByNamespace(s.stats.quota_refusals.by_namespace()),
    ),
    counter("op_count_total", "Requests of all kinds below.", |s| {
        Value::Count(s.stats.requests.total())
    }),
    counter(
        "connection_drop_count",
        "Connections whose client went without closing its session.",
        |s| Value::Count(s.stats.connections_dropped.load(Relaxed)),
    ),
    counter(
        "auth_failed_count",
        "Credentials that were refused, and attempts to take over a session of somebody else.",
        |s| Value::Count(s.stats.auth_failed.load(Relaxed)),
    ),
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
        "baton_handshakes_unanswered",
        "Connections closed because their session could not be written down in time.",
        |s| Value::Count(s.stats.handshakes_unanswered.load(Relaxed)),
    ),
    counter(
        "baton_tls_handshakes",
        "TLS handshakes of clients that were completed.",
        |s| Value::Count(s.stats.tls_handshakes.load(Relaxed)),
    ),
    counter(
        "baton_tls_handshakes_failed",
        "TLS handshakes of clients that failed.",
        |s| Value::Count(s.stats.tls_handshakes_failed.load(Relaxed)),
    ),
    counter(
        "large_requests_rejected",
        "Requests over the limit of bytes.",
        |s| Value::Count(s.stats.large_requests.load(Relaxed)),
    ),
    counter(
        "baton_quota_soft_exceeded",
        "Writes that went over a soft quota.",
        |s| Value::Count(s.stats.quota_soft_exceeded.load(Relaxed)),
    ),
    counter(
        "baton_quota_hard_exceeded",
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
    counter(
        "digest_mismatches_count",
        "Times that another server's state was not this one's.",
        |s| Value::Count(s.stats.digest_mismatches.load(Relaxed)),
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
        "Watchers notified of a created znode.",
        |s| Value::Things(s.stats.created_watches.spread()),
    ),
    summary(
        "node_deleted_watch_count",
        "Watchers notified of a deleted znode.",
        |s| Value::Things(s.stats.deleted_watches.spread()),
    ),
    summary(
        "node_changed_watch_count",
        "Watchers notified of changed data.",
        |s| Value::Things(s.stats.changed_watches.spread()),
    ),
    summary(
        "node_children_watch_count",
        "Watchers notified of changed children.",
        |s| Value::Things(s.stats.children_watches.spread()),
    ),
    histogram(
        "baton_queue_seconds",
        "Time from the arrival of an entry's oldest request until the entry is made.",
        |s| Value::Seconds(s.stats.queue_time.spread()),
    ),
    histogram(
        "baton_apply_seconds",
        "Time to apply a log entry and to answer the clients that wait for it.",
        |s| Value::Seconds(s.stats.apply_time.spread()),
    ),
    gauge(
        "baton_disk_full",
        "1 while writes wait for room on the disk, else 0.",
        |s| Value::Count(s.stats.disk_full.load(Relaxed).into()),
    ),
    gauge(
        "baton_core_busy_seconds",
        "How long the core has been at its present step, which is a sync if a disk hangs; 0 while it waits for work.",
        |s| Value::Real(s.state.core_busy().as_secs_f64()),
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
        |s| count(s.state.inbox.queued_bytes()),
    ),
    gauge(
        "baton_queue_bytes_limit",
        "Bytes of requests from which on sockets are read no further.",
        |s| count(s.state.options.max_queued_bytes),
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
    gauge(
        "baton_outbound_bytes_limit",
        "Bytes of them past which connections are closed; past half of them requests wait for their client to read.",
        |s| count(s.state.options.max_outbound_bytes_in_all),
    ),
    counter(
        "baton_slow_readers_closed",
        "Connections closed because they did not read.",
        |s| Value::Count(s.stats.slow_readers_closed.load(Relaxed)),
    ),
    counter(
        "baton_slow_readers_closed_in_all",
        "Of these, those closed because too much waited for all clients together.",
        |s| Value::Count(s.stats.all_too_slow_closed.load(Relaxed)),
    ),
    counter(
        "baton_event_floods_closed",
        "Connections closed because one change caused more events than are handed out at once.",
        |s| Value::Count(s.stats.event_floods_closed.load(Relaxed)),
    ),
    counter(
        "baton_large_answers_refused",
        "multiReads and getEphemerals refused because their answer would be too long.",
        |s| Value::Count(s.stats.large_answers_refused.load(Relaxed)),
    ),
    gauge(
        "baton_unfinished_bytes",
        "Bytes that have arrived of requests which are not whole, or wait to be taken on.",
        |s| count(s.state.inbound.held_bytes()),
    ),
    gauge(
        "baton_unfinished_bytes_limit",
        "Bytes of them past which connections are closed.",
        |s| count(s.state.options.max_unfinished_bytes),
    ),
    counter(
        "baton_unfinished_closed",
        "Connections closed because too many such bytes waited of all clients together.",
        |s| Value::Count(s.stats.unfinished_closed.load(Relaxed)),
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
    counter(
        "baton_sessions_refused",
        "Sessions that were not opened because the limit was reached.",
        |s| Value::Count(s.stats.sessions_refused.load(Relaxed)),
    ),
    counter(
        "baton_log_lines_left_out",
        "Lines about peers that the log does not have, because it has enough of their kind.",
        |s| Value::Count(s.state.client_log.suppressed()),
    ),
    counter(
        "baton_log_lines_lost",
        "Lines of the log that nobody received: standard error did not take them in time, or not at all.",
        |s| Value::Count(s.state.options.lost_log_lines.load(Relaxed)),
    ),
    gauge(
        "baton_build_info",
        "Always 1; the labels are the version and the commit that the server was built from.",
        |s| {
            let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
            let commit = s.state.options.commit.clone();
            let commit = commit.map(|commit| ("commit", commit));
            Value::Labels([version].into_iter().chain(commit).collect())
        },
    ),
    counter("baton_audit_records", "Lines of the audit record.", |s| {
        Value::Count(audit_counts(s).0)
    }),
    counter(
        "baton_audit_records_lost",
        "Lines that the audit record lacks: they found no room, or could not be written.",
        |s| Value::Count(audit_counts(s).1),
    ),
    gauge(
        "baton_watch_cost_bytes",
        "Bytes that watches take, as their bound counts them.",
        |s| count(s.watches.bytes),
    ),
    gauge(
        "baton_watch_cost_bytes_limit",
        "Bytes past which a watch is refused.",
        |s| count(s.state.options.max_watch_bytes_in_all),
    ),
    counter(
        "baton_watches_refused",
        "Watches that were refused, because of any of their bounds.",
        |s| Value::Count(s.stats.watches_refused.load(Relaxed)),
    ),
    gauge(
        "baton_tls_certificate_not_after_timestamp_seconds",
        "When the certificate of the ports for clients and HTTP ends, in seconds since 1970.",
        |s| known(s.state.certificates.of_clients_until()),
    ),
    gauge(
        "baton_peer_tls_certificate_not_after_timestamp_seconds",
        "When the certificate of the port for other servers ends, in seconds since 1970.",
        |s| known(s.state.certificates.of_servers_until()),
    ),
    gauge(
        "baton_backup_last_success_timestamp_seconds",
        "When a whole backup was last sent since the start, in seconds since 1970.",
        |s| known(s.state.backups.last_success().map(|last| last.at_seconds)),
    ),
    gauge(
        "baton_backup_last_size_bytes",
        "Bytes of that backup.",
        |s| known(s.state.backups.last_success().map(|last| last.bytes)),
    ),
    counter(
        "baton_backups_total",
        "Whole backups that were sent.",
        |s| Value::Count(s.state.backups.counts().0),
    ),
    counter(
        "baton_backups_failed_total",
        "Backups that could not be made, or that broke off.",
        |s| Value::Count(s.state.backups.counts().1),
    ),
    counter(
        "baton_trace_spans_exported_total",
        "Spans of traced writes that a collector has taken.",
        |s| s.spans(|counts| counts.exported),
    ),
    counter(
        "baton_trace_spans_dropped_total",
        "Spans of traced writes that were dropped because too many waited.",
        |s| s.spans(|counts| counts.dropped),
    ),
    counter(
        "baton_trace_spans_failed_total",
        "Spans of traced writes that no collector took.",
        |s| s.spans(|counts| counts.failed),
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
        |s| count(s.state.sessions.load(Relaxed).saturating_sub(s.attached)),
    ),
    counter(
        "baton_sessions_expired_holding",
        "Sessions that expired while they had an ephemeral znode: what they held was taken from them.",
        |s| Value::Count(s.stats.sessions_expired_holding.load(Relaxed)),
    ),
    gauge(
        "baton_session_time_left_min_seconds",
        "Time until the first session with a connection expires if its client stays silent; 0 without one.",
        |s| Value::Real(s.least_time_left_ms as f64 / 1000.0),
    ),
    histogram(
        "baton_socket_lag_seconds",
        "How late the sockets were served, measured several times in the shortest session timeout.",
        |s| Value::Seconds(s.stats.socket_lag.spread()),
    ),
    counter(
        "baton_lag_forgiven_seconds",
        "Time in which sockets were not read, or the log had no room: no session is charged with it.",
        |s| Value::Real(s.state.time.forgiven().as_secs_f64()),
    ),
    counter(
        "baton_session_ends_put_off",
        "Times that a session was not ended because bytes of its client waited to be read.",
        |s| Value::Count(s.stats.session_ends_put_off.load(Relaxed)),
    ),
    counter(
        "baton_znodes_reaped",
        "Empty containers and expired TTL znodes removed.",
        |s| Value::Count(s.stats.reaped.load(Relaxed)),
    ),
    gauge(
        "baton_most_steps",
        "The most steps under one hold of the tree's lock since the start: znodes, ACL entries and watchers looked at, events handed over.",
        |s| Value::Count(s.stats.most_steps.load(Relaxed)),
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
    gauge("quorum_size", "Of an ensemble: servers that vote.", |s| {
        s.member(|status| count(status.voters.len()))
    }),
    gauge(
        "learners",
        "Of the leader: servers that it has heard from in the last round of heartbeats.",
        |s| s.leader(|status| count(status.progress.iter().filter(|peer| peer.active).count())),
    ),
    gauge(
        "synced_followers",
        "Of the leader: of these, the voters that it sends entries to, not a snapshot.",
        |s| s.leader(|status| count(members::synced(status).voters)),
    ),
    gauge(
        "synced_non_voting_followers",
        "Of the leader: the same of servers that are listed to vote and do not yet.",
        |s| s.leader(|status| count(members::synced(status).joining)),
    ),
    gauge(
        "synced_observers",
        "Of the leader: the same of observers.",
        |s| s.leader(|status| count(members::synced(status).observers)),
    ),
    counter(
        "proposal_count",
        "Of an ensemble: log entries with writes that this server has proposed as the leader.",
        |s| s.replication(|stats| Value::Count(stats.proposals.load(Relaxed))),
    ),
    gauge(
        "last_proposal_size",
        "Of the leader: bytes of the newest of these entries; -1 before the first.",
        |s| s.leader(|_| Value::Signed(s.stats.replication.proposal_sizes.signed().0)),
    ),
    gauge(
        "min_proposal_size",
        "Of the leader: bytes of the smallest of them; -1 before the first.",
        |s| s.leader(|_| Value::Signed(s.stats.replication.proposal_sizes.signed().1)),
    ),
    gauge(
        "max_proposal_size",
        "Of the leader: bytes of the largest of them; -1 before the first.",
        |s| s.leader(|_| Value::Signed(s.stats.replication.proposal_sizes.signed().2)),
    ),
    summary(
        "quorum_ack_latency",
        "Of an ensemble: time from the proposal of an entry until this leader knew that a majority has it, in milliseconds.",
        |s| s.replication(|stats| Value::Millis(stats.quorum_ack_latency.spread())),
    ),
    summary(
        "ack_latency",
        "Of an ensemble: time from the proposal of an entry until this leader knew that a certain other server has it, in milliseconds.",
        |s| s.replication(|stats| Value::MillisByServer(stats.ack_latency())),
    ),
    summary(
        "propagation_latency",
        "Of an ensemble: time from when a server took a write on until this one applied it, in milliseconds, by the wall clocks of both.",
        |s| s.replication(|stats| Value::Millis(stats.propagation_latency.spread())),
    ),
    counter(
        "learner_proposal_received_count",
        "Of an ensemble: log entries received from leaders.",
        |s| s.replication(|stats| Value::Count(stats.entries_received.load(Relaxed))),
    ),
    counter(
        "learner_commit_received_count",
        "Of an ensemble: log entries that were committed while another server led.",
        |s| s.replication(|stats| Value::Count(stats.commits_received.load(Relaxed))),
    ),
    counter(
        "looking_count",
        "Of an ensemble: times that this server began to look for a leader.",
        |s| s.replication(|stats| Value::Count(stats.looking.load(Relaxed))),
    ),
    summary(
        "election_time",
        "Of an ensemble: time until it knew a leader again, in milliseconds.",
        |s| s.replication(|stats| Value::Millis(stats.election_time.spread())),
    ),
    summary(
        "follower_sync_time",
        "Of an ensemble: time from when it knew a leader until it had applied everything that was committed before, in milliseconds.",
        |s| s.replication(|stats| Value::Millis(stats.follower_sync_time.spread())),
    ),
    summary(
        "observer_sync_time",
        "Of an ensemble: the same while it was an observer.",
        |s| s.replication(|stats| Value::Millis(stats.observer_sync_time.spread())),
    ),
    summary(
        "unavailable_time",
        "Of an ensemble: time for which this server could answer no write, in milliseconds, from the end of one leader until the next one's first entry was applied.",
        |s| s.replication(|stats| Value::Millis(stats.unavailable_time.spread())),
    ),
    summary(
        "leader_unavailable_time",
        "Of an ensemble: of these times, those that ended with the lead of this server.",
        |s| s.replication(|stats| Value::Millis(stats.leader_unavailable_time.spread())),
    ),
    summary(
        "inflight_snap_count",
        "Of an ensemble: snapshots that this leader was sending when it began with one, that one among them.",
        |s| s.replication(|stats| Value::Things(stats.snapshots_in_flight.spread())),
    ),
    histogram(
        "baton_tick_lateness_seconds",
        "Of an ensemble: how late this server made the steps of its elections.",
        |s| s.replication(|stats| Value::Seconds(stats.tick_lateness.spread())),
    ),
    gauge(
        "baton_election_timeout_doubled",
        "Of an ensemble: 1 while this server waits twice as long for a leader because it was late several times, else 0.",
        |s| s.replication(|stats| Value::Count(stats.is_cautious.load(Relaxed).into())),
    ),
    gauge(
        "leader_uptime",
        "Of the leader: milliseconds since it was elected.",
        |s| {
            s.leader(|status| {
                let since = status.has_led_since.unwrap_or_else(|| s.state.time.now());
                let led = s.state.time.now().saturating_duration_since(since);
                Value::Count(u64::try_from(led.as_millis()).unwrap_or(u64::MAX))
            })
        },
    ),
    gauge(
        "baton_is_leader",
        "Of an ensemble: 1 on the leader, else 0.",
        |s| s.member(|status| count(usize::from(status.role == Role::Leader))),
    ),
    gauge(
        "baton_leader_id",
        "Of an ensemble: the id of the leader; -1 while none is known.",
        |s| s.member(|status| Value::Signed(members::leader(status).0)),
    ),
    gauge(
        "baton_is_read_only",
        "Of an ensemble: 1 while this server is in read-only mode, else 0.",
        |s| s.member(|status| count(usize::from(status.is_read_only))),
    ),
    gauge(
        "baton_term",
        "Of an ensemble: the term, which grows with each election.",
        |s| s.member(|status| Value::Count(status.term)),
    ),
    gauge(
        "baton_commit_index",
        "Of an ensemble: the newest log entry that is known to be committed.",
        |s| s.member(|status| Value::Count(status.commit)),
    ),
    gauge(
        "baton_applied_index",
        "Of an ensemble: the newest log entry that this server has applied.",
        |s| s.member(|status| Value::Count(status.applied)),
    ),
    gauge(
        "baton_server_connected",
        "Of an ensemble: for each other server, 1 while this one is connected to it, else 0.",
        |s| {
            s.member(|status| {
                let others = status.servers.keys().filter(|id| **id != status.id);
                let connected = others.map(|id| (*id, status.connected.contains(id).into()));
                Value::ByServer(connected.collect())
            })
        },
    ),
    gauge(
        "baton_server_match_index",
        "Of the leader: for each other server, the newest log entry that it is known to have.",
        |s| {
            s.leader(|status| {
                let peers = status.progress.iter();
                let matched =
                    peers.map(|peer| (peer.id, i64::try_from(peer.matched).unwrap_or(i64::MAX)));
                Value::ByServer(matched.collect())
            })
        },
    ),
];

/// Open and allowed; 0 where the system does not say.
fn file_descriptors() -> (u64, u64) {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    (open, facts::open_files_limit().unwrap_or(0))
}

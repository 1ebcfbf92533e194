//! The table of metrics, each defined once: its name, what it is, what it means, where it comes
//! from. Names are ZooKeeper's where it has one (protocol.md §7.3); what only Baton has begins with
//! `baton_`. docs/operate/monitor.md shows it to operators; `zookeeper-absent.txt` has ZooKeeper's
//! metrics that are not here.

mod agreement;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
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
        let waiting: Vec<u64> = connections
            .iter()
            .map(|conn| conn.waiting_bytes())
            .collect();
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
            outbound_bytes: waiting.iter().sum(),
            outbound_bytes_max: waiting.iter().copied().max().unwrap_or(0),
            bytes: state.transferred_bytes(),
            reply_sizes: facts::reply_sizes(state),
            quotas,
            least_time_left_ms: facts::least_time_left_ms(state, &connections),
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

fn loaded(counter: &AtomicU64) -> Value {
    Value::Count(counter.load(Relaxed))
}

fn count(value: usize) -> Value {
    Value::Count(value as u64)
}

/// Declares a table: a row is `Kind "name" => |sample| value; "help"`.
macro_rules! metrics {
    ($($kind:ident $name:literal => $read:expr; $help:literal)*) => {
        &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            help: $help,
            source: Source::Read($read),
        }),*]
    };
}
use metrics;

/// The table, but for the requests of each kind.
static TABLE: &[Metric] = metrics! {
    Gauge "avg_latency" => |s| Value::Real(s.latency.mean() / 1000.0);
        "Mean time from a request's arrival to its answer, in milliseconds."
    Gauge "max_latency" => |s| Value::Count(s.latency.max / 1000);
        "Longest time from a request's arrival to its answer, in milliseconds."
    Gauge "min_latency" => |s| Value::Count(s.latency.min / 1000);
        "Shortest time from a request's arrival to its answer, in milliseconds."
    Gauge "packets_received" => |s| loaded(&s.stats.received);
        "Requests received."
    Gauge "packets_sent" => |s| loaded(&s.stats.sent);
        "Requests answered."
    Gauge "num_alive_connections" => |s| count(s.connections);
        "Connections that are open."
    Gauge "outstanding_requests" => |s| count(s.state.inbox.queued_requests());
        "Requests that wait for the log or are being worked on."
    Gauge "znode_count" => |s| count(s.nodes);
        "Znodes, as ZooKeeper counts them: one more than there are."
    Gauge "watch_count" => |s| count(s.watches.watches);
        "Watches that are set."
    Gauge "ephemerals_count" => |s| count(s.ephemerals);
        "Ephemeral znodes."
    Gauge "approximate_data_size" => |s| count(s.data_bytes);
        "Bytes of all paths and data."
    Gauge "acl_count" => |s| count(s.acls);
        "Different ACLs."
    Gauge "global_sessions" => |s| count(s.state.sessions.load(Relaxed));
        "Sessions that are open."
    Gauge "local_sessions" => |_| Value::Count(0);
        "Always 0: every session is in the log."
    Gauge "uptime" => |s| Value::Count(s.state.time.uptime_ms());
        "Milliseconds since the start."
    Gauge "open_file_descriptor_count" => |_| Value::Count(facts::open_files());
        "Open files and sockets of the process."
    Gauge "max_file_descriptor_count" => |_| Value::Count(facts::open_files_limit().unwrap_or(0));
        "Files and sockets that the process may open."
    Gauge "last_client_response_size" => |s| Value::Signed(s.reply_sizes.0);
        "Bytes of the last answer to a request; -1 before the first."
    Gauge "min_client_response_size" => |s| Value::Signed(s.reply_sizes.1);
        "Bytes of the smallest answer to a request; -1 before the first."
    Gauge "max_client_response_size" => |s| Value::Signed(s.reply_sizes.2);
        "Bytes of the largest answer to a request; -1 before the first."
    Gauge "quota_count_limit_per_namespace" =>
        |s| by_namespace(&s.quotas, |quota| quota.count_limit);
        "Znodes allowed by the quotas under each child of the root; -1 for no limit."
    Gauge "quota_bytes_limit_per_namespace" =>
        |s| by_namespace(&s.quotas, |quota| quota.bytes_limit);
        "Bytes of data allowed by them; -1 for no limit."
    Gauge "quota_count_usage_per_namespace" => |s| by_namespace(&s.quotas, |quota| quota.count);
        "Znodes that count against them."
    Gauge "quota_bytes_usage_per_namespace" => |s| by_namespace(&s.quotas, |quota| quota.bytes);
        "Bytes of data that count against them."
    Counter "quota_exceeded_error_per_namespace" =>
        |s| Value::ByNamespace(s.stats.quota_refusals.by_namespace());
        "Writes refused because of one of them."
    Counter "op_count_total" => |s| Value::Count(s.stats.requests.total());
        "Requests of all kinds below."
    Counter "connection_drop_count" => |s| loaded(&s.stats.connections_dropped);
        "Connections whose client went without closing its session."
    Counter "auth_failed_count" => |s| loaded(&s.stats.auth_failed);
        "Credentials that were refused, and attempts to take over a session of somebody else."
    Counter "connection_request_count" => |s| loaded(&s.stats.connections_accepted);
        "Connections accepted or refused."
    Counter "connection_rejected" =>
        |s| {
            let Stats { refused_from_address, refused_in_all, .. } = s.stats;
            Value::Count(refused_from_address.load(Relaxed) + refused_in_all.load(Relaxed))
        };
        "Connections refused, because of either limit."
    Counter "connection_revalidate_count" => |s| loaded(&s.stats.sessions_reattached);
        "Sessions that went on through another connection."
    Counter "stale_sessions_expired" => |s| loaded(&s.stats.sessions_expired);
        "Sessions that expired."
    Counter "sessionless_connections_expired" => |s| loaded(&s.stats.handshakes_timed_out);
        "Connections closed because they named no session in time."
    Counter "baton_handshakes_unanswered" => |s| loaded(&s.stats.handshakes_unanswered);
        "Connections closed because their session could not be written down in time."
    Counter "baton_tls_handshakes" => |s| loaded(&s.stats.tls_handshakes);
        "TLS handshakes of clients that were completed."
    Counter "baton_tls_handshakes_failed" => |s| loaded(&s.stats.tls_handshakes_failed);
        "TLS handshakes of clients that failed."
    Counter "large_requests_rejected" => |s| loaded(&s.stats.large_requests);
        "Requests over the limit of bytes."
    Counter "baton_quota_soft_exceeded" => |s| loaded(&s.stats.quota_soft_exceeded);
        "Writes that went over a soft quota."
    Counter "baton_quota_hard_exceeded" => |s| loaded(&s.stats.quota_hard_exceeded);
        "Writes refused because of a hard quota."
    Counter "bytes_received_count" => |s| Value::Count(s.bytes.0);
        "Bytes received from clients."
    Counter "response_bytes" => |s| Value::Count(s.bytes.1);
        "Bytes sent to clients."
    Counter "watch_bytes" => |s| loaded(&s.stats.watch_bytes);
        "Bytes of watch events."
    Counter "commit_count" => |s| loaded(&s.stats.commands);
        "Writes committed, of clients and of the server itself."
    Counter "digest_mismatches_count" => |s| loaded(&s.stats.digest_mismatches);
        "Times that another server's state was not this one's."
    Counter "snap_count" => |s| loaded(&s.stats.snapshots);
        "Snapshots written."
    Summary "fsynctime" => |s| Value::Millis(s.stats.sync_time.spread());
        "Time of a sync of the log, in milliseconds."
    Summary "readlatency" => |s| Value::Millis(s.stats.reads.spread());
        "Time to the answer of a read, in milliseconds."
    Summary "updatelatency" => |s| Value::Millis(s.stats.updates.spread());
        "Time to the answer of a write, or of a read behind one, in milliseconds."
    Summary "sync_processor_batch_size" => |s| Value::Things(s.stats.batch_requests.spread());
        "Writes that shared one log entry and its sync."
    Summary "snapshottime" => |s| Value::Millis(s.stats.snapshot_time.spread());
        "Time from a snapshot's start until it is durable, in milliseconds."
    Summary "dbinittime" => |s| Value::Millis(s.stats.start_time.spread());
        "Time of recovery at the start, in milliseconds."
    Summary "startup_snap_load_time" => |s| Value::Millis(s.stats.load_snapshot_time.spread());
        "Time to read the log and the newest snapshot at the start, in milliseconds."
    Summary "startup_txns_load_time" => |s| Value::Millis(s.stats.load_log_time.spread());
        "Time to apply the log at the start, in milliseconds."
    Summary "startup_txns_loaded" => |s| Value::Things(s.stats.load_log_entries.spread());
        "Log entries applied at the start."
    Summary "node_created_watch_count" => |s| Value::Things(s.stats.created_watches.spread());
        "Watchers notified of a created znode."
    Summary "node_deleted_watch_count" => |s| Value::Things(s.stats.deleted_watches.spread());
        "Watchers notified of a deleted znode."
    Summary "node_changed_watch_count" => |s| Value::Things(s.stats.changed_watches.spread());
        "Watchers notified of changed data."
    Summary "node_children_watch_count" => |s| Value::Things(s.stats.children_watches.spread());
        "Watchers notified of changed children."
    Histogram "baton_queue_seconds" => |s| Value::Seconds(s.stats.queue_time.spread());
        "Time from the arrival of an entry's oldest request until the entry is made."
    Histogram "baton_apply_seconds" => |s| Value::Seconds(s.stats.apply_time.spread());
        "Time to apply a log entry and to answer the clients that wait for it."
    Gauge "baton_disk_full" => |s| Value::Count(s.stats.disk_full.load(Relaxed).into());
        "1 while writes wait for room on the disk, else 0."
    Gauge "baton_core_busy_seconds" => |s| Value::Real(s.state.core_busy().as_secs_f64());
        "How long the core has been at its present step, which is a sync if a disk hangs; 0 while it waits for work."
    Histogram "baton_sync_seconds" => |s| Value::Seconds(s.stats.sync_time.spread());
        "Time of a sync of the log."
    Summary "baton_log_entry_bytes" => |s| Value::Things(s.stats.batch_bytes.spread());
        "Bytes of a log entry."
    Gauge "baton_queue_bytes" => |s| count(s.state.inbox.queued_bytes());
        "Bytes of requests that wait for the log."
    Gauge "baton_queue_bytes_limit" => |s| count(s.state.options.max_queued_bytes);
        "Bytes of requests from which on sockets are read no further."
    Gauge "baton_outbound_bytes" => |s| Value::Count(s.outbound_bytes);
        "Bytes of replies and events that clients have not fetched."
    Gauge "baton_outbound_bytes_max" => |s| Value::Count(s.outbound_bytes_max);
        "The same of the connection that has most."
    Gauge "baton_outbound_bytes_limit" => |s| count(s.state.options.max_outbound_bytes_in_all);
        "Bytes of them past which connections are closed; past half of them requests wait for their client to read."
    Counter "baton_slow_readers_closed" => |s| loaded(&s.stats.slow_readers_closed);
        "Connections closed because they did not read."
    Counter "baton_slow_readers_closed_in_all" => |s| loaded(&s.stats.all_too_slow_closed);
        "Of these, those closed because too much waited for all clients together."
    Counter "baton_event_floods_closed" => |s| loaded(&s.stats.event_floods_closed);
        "Connections closed because one change caused more events than are handed out at once."
    Counter "baton_large_answers_refused" => |s| loaded(&s.stats.large_answers_refused);
        "multiReads and getEphemerals refused because their answer would be too long."
    Gauge "baton_unfinished_bytes" => |s| count(s.state.inbound.held_bytes());
        "Bytes that have arrived of requests which are not whole, or wait to be taken on."
    Gauge "baton_unfinished_bytes_limit" => |s| count(s.state.options.max_unfinished_bytes);
        "Bytes of them past which connections are closed."
    Counter "baton_unfinished_closed" => |s| loaded(&s.stats.unfinished_closed);
        "Connections closed because too many such bytes waited of all clients together."
    Counter "baton_rejected_per_address" => |s| loaded(&s.stats.refused_from_address);
        "Connections refused because their address has too many."
    Counter "baton_rejected_in_all" => |s| loaded(&s.stats.refused_in_all);
        "Connections refused because there are too many."
    Counter "baton_connections_shed" => |s| loaded(&s.stats.connections_shed);
        "Connections that an operator shed."
    Counter "baton_sessions_refused" => |s| loaded(&s.stats.sessions_refused);
        "Sessions that were not opened because the limit was reached."
    Counter "baton_log_lines_left_out" => |s| Value::Count(s.state.client_log.suppressed());
        "Lines about peers that the log does not have, because it has enough of their kind."
    Counter "baton_log_lines_lost" => |s| loaded(&s.state.options.lost_log_lines);
        "Lines of the log that nobody received: standard error did not take them in time, or not at all."
    Gauge "baton_build_info" => |s| {
        let version = ("version", env!("CARGO_PKG_VERSION").to_owned());
        let commit = s.state.options.commit.clone();
        let commit = commit.map(|commit| ("commit", commit));
        Value::Labels([version].into_iter().chain(commit).collect())
    };
        "Always 1; the labels are the version and the commit that the server was built from."
    Counter "baton_audit_records" => |s| Value::Count(audit_counts(s).0);
        "Lines of the audit record."
    Counter "baton_audit_records_lost" => |s| Value::Count(audit_counts(s).1);
        "Lines that the audit record lacks: they found no room, or could not be written."
    Gauge "baton_watch_cost_bytes" => |s| count(s.watches.bytes);
        "Bytes that watches take, as their bound counts them."
    Gauge "baton_watch_cost_bytes_limit" => |s| count(s.state.options.max_watch_bytes_in_all);
        "Bytes past which a watch is refused."
    Counter "baton_watches_refused" => |s| loaded(&s.stats.watches_refused);
        "Watches that were refused, because of any of their bounds."
    Gauge "baton_tls_certificate_not_after_timestamp_seconds" =>
        |s| known(s.state.certificates.of_clients_until());
        "When the certificate of the ports for clients and HTTP ends, in seconds since 1970."
    Gauge "baton_peer_tls_certificate_not_after_timestamp_seconds" =>
        |s| known(s.state.certificates.of_servers_until());
        "When the certificate of the port for other servers ends, in seconds since 1970."
    Gauge "baton_backup_last_success_timestamp_seconds" =>
        |s| known(s.state.backups.last_success().map(|last| last.at_seconds));
        "When a whole backup was last sent since the start, in seconds since 1970."
    Gauge "baton_backup_last_size_bytes" =>
        |s| known(s.state.backups.last_success().map(|last| last.bytes));
        "Bytes of that backup."
    Counter "baton_backups_total" => |s| Value::Count(s.state.backups.counts().0);
        "Whole backups that were sent."
    Counter "baton_backups_failed_total" => |s| Value::Count(s.state.backups.counts().1);
        "Backups that could not be made, or that broke off."
    Counter "baton_trace_spans_exported_total" => |s| s.spans(|counts| counts.exported);
        "Spans of traced writes that a collector has taken."
    Counter "baton_trace_spans_dropped_total" => |s| s.spans(|counts| counts.dropped);
        "Spans of traced writes that were dropped because too many waited."
    Counter "baton_trace_spans_failed_total" => |s| s.spans(|counts| counts.failed);
        "Spans of traced writes that no collector took."
    Gauge "baton_watched_paths" => |s| count(s.watches.paths);
        "Paths with a watch."
    Gauge "baton_watching_connections" => |s| count(s.watches.connections);
        "Connections with a watch."
    Gauge "baton_sessions_with_ephemerals" => |s| count(s.sessions_with_ephemerals);
        "Sessions that hold or wait for something: those with an ephemeral znode."
    Gauge "baton_sessions_without_connection" =>
        |s| count(s.state.sessions.load(Relaxed).saturating_sub(s.attached));
        "Sessions whose client is away; what they hold is freed when they expire."
    Counter "baton_sessions_expired_holding" => |s| loaded(&s.stats.sessions_expired_holding);
        "Sessions that expired while they had an ephemeral znode: what they held was taken from them."
    Gauge "baton_session_time_left_min_seconds" =>
        |s| Value::Real(s.least_time_left_ms as f64 / 1000.0);
        "Time until the first session with a connection expires if its client stays silent; 0 without one."
    Histogram "baton_socket_lag_seconds" => |s| Value::Seconds(s.stats.socket_lag.spread());
        "How late the sockets were served, measured several times in the shortest session timeout."
    Counter "baton_lag_forgiven_seconds" => |s| Value::Real(s.state.time.forgiven().as_secs_f64());
        "Time in which sockets were not read, or the log had no room: no session is charged with it."
    Counter "baton_session_ends_put_off" => |s| loaded(&s.stats.session_ends_put_off);
        "Times that a session was not ended because bytes of its client waited to be read."
    Counter "baton_znodes_reaped" => |s| loaded(&s.stats.reaped);
        "Empty containers and expired TTL znodes removed."
    Gauge "baton_most_steps" => |s| loaded(&s.stats.most_steps);
        "The most steps under one hold of the tree's lock since the start: znodes, ACL entries and watchers looked at, events handed over."
    Histogram "baton_snapshot_slice_seconds" => |s| Value::Seconds(s.stats.snapshot_slice.spread());
        "How long a slice of a snapshot kept all other requests waiting."
    Gauge "baton_snapshot_slice_max_seconds" =>
        |s| Value::Real(s.stats.snapshot_slice.spread().max as f64 / MICROS_PER_SECOND);
        "The longest such pause since the start."
    Gauge "quorum_size" => |s| s.member(|status| count(status.voters.len()));
        "Of an ensemble: servers that vote."
    Gauge "learners" =>
        |s| s.leader(|status| count(status.progress.iter().filter(|peer| peer.active).count()));
        "Of the leader: servers that it has heard from in the last round of heartbeats."
    Gauge "synced_followers" => |s| s.leader(|status| count(members::synced(status).voters));
        "Of the leader: of these, the voters that it sends entries to, not a snapshot."
    Gauge "synced_non_voting_followers" =>
        |s| s.leader(|status| count(members::synced(status).joining));
        "Of the leader: the same of servers that are listed to vote and do not yet."
    Gauge "synced_observers" => |s| s.leader(|status| count(members::synced(status).observers));
        "Of the leader: the same of observers."
    Counter "proposal_count" => |s| s.replication(|stats| loaded(&stats.proposals));
        "Of an ensemble: log entries with writes that this server has proposed as the leader."
    Gauge "last_proposal_size" =>
        |s| s.leader(|_| Value::Signed(s.stats.replication.proposal_sizes.signed().0));
        "Of the leader: bytes of the newest of these entries; -1 before the first."
    Gauge "min_proposal_size" =>
        |s| s.leader(|_| Value::Signed(s.stats.replication.proposal_sizes.signed().1));
        "Of the leader: bytes of the smallest of them; -1 before the first."
    Gauge "max_proposal_size" =>
        |s| s.leader(|_| Value::Signed(s.stats.replication.proposal_sizes.signed().2));
        "Of the leader: bytes of the largest of them; -1 before the first."
    Summary "quorum_ack_latency" =>
        |s| s.replication(|stats| Value::Millis(stats.quorum_ack_latency.spread()));
        "Of an ensemble: time from the proposal of an entry until this leader knew that a majority has it, in milliseconds."
    Summary "ack_latency" => |s| s.replication(|stats| Value::MillisByServer(stats.ack_latency()));
        "Of an ensemble: time from the proposal of an entry until this leader knew that a certain other server has it, in milliseconds."
    Summary "propagation_latency" =>
        |s| s.replication(|stats| Value::Millis(stats.propagation_latency.spread()));
        "Of an ensemble: time from when a server took a write on until this one applied it, in milliseconds, by the wall clocks of both."
    Counter "learner_proposal_received_count" =>
        |s| s.replication(|stats| loaded(&stats.entries_received));
        "Of an ensemble: log entries received from leaders."
    Counter "learner_commit_received_count" =>
        |s| s.replication(|stats| loaded(&stats.commits_received));
        "Of an ensemble: log entries that were committed while another server led."
    Counter "looking_count" => |s| s.replication(|stats| loaded(&stats.looking));
        "Of an ensemble: times that this server began to look for a leader."
    Summary "election_time" =>
        |s| s.replication(|stats| Value::Millis(stats.election_time.spread()));
        "Of an ensemble: time until it knew a leader again, in milliseconds."
    Summary "follower_sync_time" =>
        |s| s.replication(|stats| Value::Millis(stats.follower_sync_time.spread()));
        "Of an ensemble: time from when it knew a leader until it had applied everything that was committed before, in milliseconds."
    Summary "observer_sync_time" =>
        |s| s.replication(|stats| Value::Millis(stats.observer_sync_time.spread()));
        "Of an ensemble: the same while it was an observer."
    Summary "unavailable_time" =>
        |s| s.replication(|stats| Value::Millis(stats.unavailable_time.spread()));
        "Of an ensemble: time for which this server could answer no write, in milliseconds, from the end of one leader until the next one's first entry was applied."
    Summary "leader_unavailable_time" =>
        |s| s.replication(|stats| Value::Millis(stats.leader_unavailable_time.spread()));
        "Of an ensemble: of these times, those that ended with the lead of this server."
    Summary "inflight_snap_count" =>
        |s| s.replication(|stats| Value::Things(stats.snapshots_in_flight.spread()));
        "Of an ensemble: snapshots that this leader was sending when it began with one, that one among them."
    Histogram "baton_tick_lateness_seconds" =>
        |s| s.replication(|stats| Value::Seconds(stats.tick_lateness.spread()));
        "Of an ensemble: how late this server made the steps of its elections."
    Gauge "baton_election_timeout_doubled" =>
        |s| s.replication(|stats| Value::Count(stats.is_cautious.load(Relaxed).into()));
        "Of an ensemble: 1 while this server waits twice as long for a leader because it was late several times, else 0."
    Gauge "leader_uptime" => |s| {
        s.leader(|status| {
            let since = status.has_led_since.unwrap_or_else(|| s.state.time.now());
            let led = s.state.time.now().saturating_duration_since(since);
            Value::Count(u64::try_from(led.as_millis()).unwrap_or(u64::MAX))
        })
    };
        "Of the leader: milliseconds since it was elected."
    Gauge "baton_is_leader" =>
        |s| s.member(|status| count(usize::from(status.role == Role::Leader)));
        "Of an ensemble: 1 on the leader, else 0."
    Gauge "baton_leader_id" => |s| s.member(|status| Value::Signed(members::leader(status).0));
        "Of an ensemble: the id of the leader; -1 while none is known."
    Gauge "baton_is_read_only" => |s| s.member(|status| count(usize::from(status.is_read_only)));
        "Of an ensemble: 1 while this server is in read-only mode, else 0."
    Gauge "baton_term" => |s| s.member(|status| Value::Count(status.term));
        "Of an ensemble: the term, which grows with each election."
    Gauge "baton_commit_index" => |s| s.member(|status| Value::Count(status.commit));
        "Of an ensemble: the newest log entry that is known to be committed."
    Gauge "baton_applied_index" => |s| s.member(|status| Value::Count(status.applied));
        "Of an ensemble: the newest log entry that this server has applied."
    Gauge "baton_server_connected" => |s| {
        s.member(|status| {
            let others = status.servers.keys().filter(|id| **id != status.id);
            let connected = others.map(|id| (*id, status.connected.contains(id).into()));
            Value::ByServer(connected.collect())
        })
    };
        "Of an ensemble: for each other server, 1 while this one is connected to it, else 0."
    Gauge "baton_server_match_index" => |s| {
        s.leader(|status| {
            let peers = status.progress.iter();
            let matched =
                peers.map(|peer| (peer.id, i64::try_from(peer.matched).unwrap_or(i64::MAX)));
            Value::ByServer(matched.collect())
        })
    };
        "Of the leader: for each other server, the newest log entry that it is known to have."
};

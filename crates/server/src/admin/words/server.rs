//! `srvr`, `stat`, `conf`, `envi`: the server at a glance, and how it is set up.

use std::sync::atomic::Ordering::Relaxed;

use super::{facts, line, lists};
use crate::report::listings::{Gathering, Refusal};
use crate::state::Shared;

pub(super) fn summary(shared: &Shared) -> String {
    let mut out = String::new();
    version(&mut out);
    figures(shared, &mut out);
    out
}

/// `stat`: the summary with every connection.
pub(super) fn with_clients(shared: &Shared) -> Result<String, Refusal> {
    let mut out = String::new();
    version(&mut out);
    out.push_str("Clients:\n");
    for conn in facts::connections(shared, &mut Gathering::new(shared)?)? {
        lists::connection(&conn, &mut out);
        out.push_str(")\n");
    }
    out.push('\n');
    figures(shared, &mut out);
    Ok(out)
}

fn version(out: &mut String) {
    line(out, format_args!("Zookeeper version: {}", facts::version()));
}

fn figures(shared: &Shared, out: &mut String) {
    let stats = &shared.stats;
    let latency = stats.latency();
    line(
        out,
        format_args!(
            "Latency min/avg/max: {}/{:.4}/{}",
            latency.min / 1000,
            latency.mean() / 1000.0,
            latency.max / 1000
        ),
    );
    line(
        out,
        format_args!("Received: {}", stats.received.load(Relaxed)),
    );
    line(out, format_args!("Sent: {}", stats.sent.load(Relaxed)));
    line(
        out,
        format_args!("Connections: {}", shared.open_connections()),
    );
    line(
        out,
        format_args!("Outstanding: {}", shared.inbox.queued_requests()),
    );
    line(out, format_args!("Zxid: 0x{:x}", shared.zxid()));
    line(out, format_args!("Mode: standalone"));
    line(
        out,
        format_args!("Node count: {}", shared.tree.read().node_count() + 1),
    );
}

pub(super) fn configuration(shared: &Shared) -> Result<String, Refusal> {
    let mut out = String::new();
    let options = &shared.options;
    let folder = facts::folder(shared);
    let (snapshots, log) = facts::file_bytes(shared);
    let values: [(&str, &dyn std::fmt::Display); 12] = [
        ("clientPort", &facts::client_port(shared)),
        ("secureClientPort", &-1),
        ("dataDir", &folder),
        ("dataDirSize", &snapshots),
        ("dataLogDir", &folder),
        ("dataLogSize", &log),
        ("tickTime", &options.tick.as_millis()),
        ("maxClientCnxns", &options.max_connections_per_address),
        (
            "minSessionTimeout",
            &options.min_session_timeout.as_millis(),
        ),
        (
            "maxSessionTimeout",
            &options.max_session_timeout.as_millis(),
        ),
        ("clientPortListenBacklog", &facts::BACKLOG),
        ("serverId", &options.server_id),
    ];
    for (name, value) in values {
        line(&mut out, format_args!("{name}={value}"));
    }
    Ok(out)
}

pub(super) fn environment() -> String {
    let mut out = "Environment:\n".to_owned();
    for (name, value) in facts::environment() {
        line(&mut out, format_args!("{name}={value}"));
    }
    out
}

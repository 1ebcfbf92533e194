//! `srvr`, `stat`, `conf`, `envi`: the server at a glance, and how it is set up.

use std::sync::atomic::Ordering::Relaxed;

use super::lists;
use super::text::line;
use crate::operator::facts;
use crate::operator::members;
use crate::report::listings::{Refusal, SizeLimit};
use crate::state::ServerState;

pub(super) fn summary_text(state: &ServerState) -> String {
    let mut out = String::new();
    first_lines(state, &mut out);
    counters(state, &mut out);
    out
}

/// `stat`: the summary with every connection.
pub(super) fn with_clients(state: &ServerState) -> Result<String, Refusal> {
    let mut out = String::new();
    first_lines(state, &mut out);
    out.push_str("Clients:\n");
    for conn in facts::connections(state, &mut SizeLimit::new(&state.listings)?)? {
        lists::connection_line(&conn, &mut out);
        out.push_str(")\n");
    }
    out.push('\n');
    counters(state, &mut out);
    Ok(out)
}

fn first_lines(state: &ServerState, out: &mut String) {
    line(out, format_args!("Zookeeper version: {}", facts::version()));
    if state.is_read_only() {
        out.push_str("READ-ONLY mode; serving only read-only clients\n");
    }
}

fn counters(state: &ServerState, out: &mut String) {
    let stats = &state.stats;
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
        format_args!("Connections: {}", state.open_connections()),
    );
    line(
        out,
        format_args!("Outstanding: {}", state.inbox.queued_requests()),
    );
    line(out, format_args!("Zxid: 0x{:x}", state.zxid()));
    line(out, format_args!("Mode: {}", members::mode(state)));
    line(
        out,
        format_args!("Node count: {}", state.tree.read().node_count() + 1),
    );
    if members::mode(state) == "leader" {
        let (last, min, max) = stats.replication.proposal_sizes.signed();
        line(
            out,
            format_args!("Proposal sizes last/min/max: {last}/{min}/{max}"),
        );
    }
}

pub(super) fn configuration_text(state: &ServerState) -> Result<String, Refusal> {
    let mut out = String::new();
    let options = &state.options;
    let folder = facts::folder(state);
    let (snapshots, log) = facts::file_bytes(state);
    let values: [(&str, &dyn std::fmt::Display); 12] = [
        ("clientPort", &facts::client_port(state)),
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
        ("clientPortListenBacklog", &crate::options::BACKLOG),
        ("serverId", &options.server_id),
    ];
    for (name, value) in values {
        line(&mut out, format_args!("{name}={value}"));
    }
    for text in members::configuration(state) {
        line(&mut out, format_args!("{text}"));
    }
    Ok(out)
}

pub(super) fn environment_text() -> String {
    let mut out = "Environment:\n".to_owned();
    for (name, value) in facts::environment() {
        line(&mut out, format_args!("{name}={value}"));
    }
    out
}

//! The line of the log that says, once a server serves, which one it is: its version and data, what
//! it has recovered, its part in an ensemble, where it listens, its limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use crate::core::start::starting::Recovery;
use crate::operator::facts;
use crate::state::ServerState;

/// Writes the line. `addresses` are those that the server listens on, each kind with what stands
/// before its addresses.
pub(crate) fn log(
    state: &ServerState,
    recovery: Recovery,
    addresses: &[(&str, &[SocketAddr])],
    unix_sockets: &[PathBuf],
) {
    let tree = state.tree.read();
    let (znodes, format_level) = (tree.node_count(), tree.level().number());
    drop(tree);
    let options = &state.options;
    let ensemble = options.ensemble.as_ref();
    let role = match ensemble {
        None => "alone",
        Some(ensemble) if ensemble.observers.contains(&options.server_id.into()) => "observer",
        Some(_) => "voter",
    };
    let buffers = [
        options.max_outbound_bytes_in_all,
        options.max_queued_bytes,
        options.max_unfinished_bytes,
        options.max_watch_bytes_in_all,
    ];
    let commit = options.commit.as_ref().map(tracing::field::display);
    let cluster = recovery.cluster.map(|cluster| format!("{cluster:016x}"));
    let cluster = cluster.as_ref().map(tracing::field::display);
    tracing::info!(
        version = %env!("CARGO_PKG_VERSION"),
        commit,
        pid = std::process::id(),
        data = %facts::folder(state),
        format_level,
        snapshot_index = recovery.snapshot_index,
        snapshot_zxid = format_args!("0x{:x}", recovery.snapshot_zxid),
        log_entries = recovery.log_entries,
        torn_bytes = recovery.torn_bytes,
        start_ms = u64::try_from(recovery.took.as_millis()).unwrap_or(u64::MAX),
        zxid = format_args!("0x{:x}", state.zxid()),
        znodes,
        sessions = state.sessions.load(Relaxed),
        %role,
        server = ensemble.map(|_| options.server_id),
        servers = ensemble.map(|ensemble| ensemble.servers.len()),
        cluster,
        listen = %places(addresses, unix_sockets),
        open_files = facts::open_files_limit(),
        max_connections = options.max_connections,
        max_sessions = options.max_sessions,
        max_buffer_bytes = buffers.iter().fold(0, |sum: usize, bytes| sum.saturating_add(*bytes)),
        "the server serves"
    );
}

/// Addresses at which the server listens, separated by commas.
fn places(addresses: &[(&str, &[SocketAddr])], unix_sockets: &[PathBuf]) -> String {
    let ports = addresses
        .iter()
        .flat_map(|(kind, all)| all.iter().map(move |address| format!("{kind}{address}")));
    let sockets = unix_sockets.iter().map(|path| {
        // The working folder may be the data folder.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        format!("unix:{}", path.display())
    });
    ports.chain(sockets).collect::<Vec<_>>().join(",")
}

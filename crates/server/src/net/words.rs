//! Four-letter words: a client's first four bytes may be one of them instead of a frame's length (protocol.md §7.1).
//! Answers in the shapes that ZooKeeper's tools parse. Never changes anything but counters.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use crate::core::shared::Shared;

/// A word that the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(&'static str);

const KNOWN: &[&str] = &[
    "ruok", "srvr", "stat", "isro", "mntr", "cons", "conf", "envi", "dump", "wchs", "wchc", "wchp",
    "dirs", "srst", "crst",
];

/// The word that these bytes are, if they are one. No frame that the server would take has such a length.
pub(super) fn recognise(bytes: [u8; 4]) -> Option<Word> {
    KNOWN
        .iter()
        .find(|word| word.as_bytes() == bytes)
        .map(|word| Word(word))
}

/// What the server says to it.
pub(super) fn answer(shared: &Shared, word: Word) -> String {
    let Word(word) = word;
    if !shared
        .options
        .four_letter_words
        .iter()
        .any(|allowed| allowed == word || allowed == "*")
    {
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    let mut out = String::new();
    match word {
        "ruok" => out.push_str("imok"),
        "isro" => out.push_str("rw"),
        "srvr" => server(shared, &mut out, false),
        "stat" => server(shared, &mut out, true),
        "mntr" => monitor(shared, &mut out),
        "cons" => connections(shared, &mut out),
        "conf" => configuration(shared, &mut out),
        "envi" => environment(&mut out),
        "dump" => sessions(shared, &mut out),
        "wchs" => {
            let counts = shared.watches.lock().counts();
            line(
                &mut out,
                format_args!(
                    "{} connections watching {} paths",
                    counts.connections, counts.paths
                ),
            );
            line(&mut out, format_args!("Total watches:{}", counts.watches));
        }
        "wchc" => watches_by_session(shared, &mut out),
        "wchp" => watches_by_path(shared, &mut out),
        "dirs" => {
            let bytes = data_bytes(shared);
            line(&mut out, format_args!("datadir_size: {bytes}"));
            line(&mut out, format_args!("logdir_size: {bytes}"));
        }
        "srst" => {
            shared.stats.reset();
            out.push_str("Server stats reset.\n");
        }
        "crst" => {
            for conn in shared.all_connections() {
                conn.stats.reset();
            }
            out.push_str("Connection stats reset.\n");
        }
        _ => {}
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

fn version() -> String {
    format!("3.9.5-baton-{}", env!("CARGO_PKG_VERSION"))
}

fn server(shared: &Shared, out: &mut String, clients: bool) {
    line(out, format_args!("Zookeeper version: {}", version()));
    if clients {
        out.push_str("Clients:\n");
        for conn in shared.all_connections() {
            let (received, sent) = (
                conn.stats.received.load(Relaxed),
                conn.stats.sent.load(Relaxed),
            );
            let queued = received.saturating_sub(sent);
            line(
                out,
                format_args!(
                    " /{}[1](queued={queued},recved={received},sent={sent})",
                    conn.peer
                ),
            );
        }
        out.push('\n');
    }
    let stats = &shared.stats;
    let (min, mean, max) = stats.latency_ms();
    line(
        out,
        format_args!("Latency min/avg/max: {min}/{mean:.4}/{max}"),
    );
    let (received, sent) = (stats.received.load(Relaxed), stats.sent.load(Relaxed));
    line(out, format_args!("Received: {received}"));
    line(out, format_args!("Sent: {sent}"));
    line(
        out,
        format_args!("Connections: {}", shared.open_connections()),
    );
    line(
        out,
        format_args!("Outstanding: {}", received.saturating_sub(sent)),
    );
    line(out, format_args!("Zxid: 0x{:x}", shared.zxid()));
    line(out, format_args!("Mode: standalone"));
    line(
        out,
        format_args!("Node count: {}", shared.tree.read().node_count() + 1),
    );
}

fn monitor(shared: &Shared, out: &mut String) {
    let stats = &shared.stats;
    let (min, mean, max) = stats.latency_ms();
    let watches = shared.watches.lock().counts();
    let (nodes, ephemerals, bytes, acls) = {
        let tree = shared.tree.read();
        (
            tree.node_count() + 1,
            tree.ephemeral_count(),
            tree.approximate_bytes(),
            tree.acl_count(),
        )
    };
    let syncs = stats.commits.load(Relaxed);
    let sync_us = stats.sync_nanos.load(Relaxed) / 1000;
    let (received, sent) = (stats.received.load(Relaxed), stats.sent.load(Relaxed));
    let mut put =
        |key: &str, value: &dyn std::fmt::Display| line(out, format_args!("zk_{key}\t{value}"));
    put("version", &version());
    put("server_state", &"standalone");
    put("avg_latency", &format_args!("{mean:.4}"));
    put("max_latency", &max);
    put("min_latency", &min);
    put("packets_received", &received);
    put("packets_sent", &sent);
    put("num_alive_connections", &shared.open_connections());
    put("outstanding_requests", &received.saturating_sub(sent));
    put("znode_count", &nodes);
    put("watch_count", &watches.watches);
    put("ephemerals_count", &ephemerals);
    put("approximate_data_size", &bytes);
    put("acl_count", &acls);
    put("global_sessions", &shared.sessions.load(Relaxed));
    put("local_sessions", &0);
    put("uptime", &shared.time.uptime_ms());
    put(
        "connection_request_count",
        &stats.connections_accepted.load(Relaxed),
    );
    put(
        "connection_rejected",
        &stats.connections_refused.load(Relaxed),
    );
    put(
        "stale_sessions_expired",
        &stats.sessions_expired.load(Relaxed),
    );
    put("auth_failed_count", &stats.auth_failed.load(Relaxed));
    put("commit_count", &stats.entries.load(Relaxed));
    put("snap_count", &stats.snapshots.load(Relaxed));
    put("fsynctime_count", &syncs);
    put("fsynctime_sum_us", &sync_us);
    put("fsynctime_avg_us", &sync_us.checked_div(syncs).unwrap_or(0));
    put(
        "fsynctime_max_us",
        &(stats.sync_nanos_max.load(Relaxed) / 1000),
    );
    put("queued_bytes", &shared.inbox.queued_bytes());
    if let Some((open, limit)) = file_descriptors() {
        put("open_file_descriptor_count", &open);
        put("max_file_descriptor_count", &limit);
    }
}

fn file_descriptors() -> Option<(usize, u64)> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    Some((open, limit))
}

fn connections(shared: &Shared, out: &mut String) {
    let now_ms = shared.time.now_ms();
    for conn in shared.all_connections() {
        let (received, sent) = (
            conn.stats.received.load(Relaxed),
            conn.stats.sent.load(Relaxed),
        );
        let queued = received.saturating_sub(sent);
        let _ = write!(
            out,
            " /{}[1](queued={queued},recved={received},sent={sent}",
            conn.peer
        );
        if let Some(attached) = conn.attached() {
            let op = conn.stats.last_op.load(Relaxed) as u32 as i32;
            let op = baton_proto::OpCode::try_from(op).map_or("NA", baton_proto::OpCode::name);
            let _ = write!(
                out,
                ",sid=0x{:x},lop={op},est={},to={},lcxid=0x{:x},waiting_bytes={}",
                attached.session,
                now_ms.saturating_sub(conn.since_ms),
                attached.timeout_ms,
                conn.stats.last_cxid.load(Relaxed),
                conn.waiting_bytes(),
            );
        }
        out.push_str(")\n");
    }
    out.push('\n');
}

fn configuration(shared: &Shared, out: &mut String) {
    let options = &shared.options;
    let folder = match &options.storage {
        crate::options::StorageChoice::Memory => "(memory)".to_owned(),
        crate::options::StorageChoice::Folder(path) => path.display().to_string(),
    };
    let port = options
        .listen
        .first()
        .and_then(|listen| listen.rsplit(':').next())
        .unwrap_or("-1");
    line(out, format_args!("clientPort={port}"));
    line(out, format_args!("secureClientPort=-1"));
    line(out, format_args!("dataDir={folder}"));
    line(out, format_args!("dataDirSize={}", data_bytes(shared)));
    line(out, format_args!("dataLogDir={folder}"));
    line(out, format_args!("tickTime={}", options.tick.as_millis()));
    line(
        out,
        format_args!("maxClientCnxns={}", options.max_connections_per_address),
    );
    line(
        out,
        format_args!(
            "minSessionTimeout={}",
            options.min_session_timeout.as_millis()
        ),
    );
    line(
        out,
        format_args!(
            "maxSessionTimeout={}",
            options.max_session_timeout.as_millis()
        ),
    );
    line(out, format_args!("serverId={}", options.server_id));
}

fn environment(out: &mut String) {
    let host = rustix::system::uname();
    out.push_str("Environment:\n");
    line(out, format_args!("zookeeper.version={}", version()));
    line(
        out,
        format_args!("baton.version={}", env!("CARGO_PKG_VERSION")),
    );
    line(
        out,
        format_args!("host.name={}", host.nodename().to_string_lossy()),
    );
    line(
        out,
        format_args!("os.name={}", host.sysname().to_string_lossy()),
    );
    line(
        out,
        format_args!("os.arch={}", host.machine().to_string_lossy()),
    );
    line(
        out,
        format_args!("os.version={}", host.release().to_string_lossy()),
    );
}

fn sessions(shared: &Shared, out: &mut String) {
    let tree = shared.tree.read();
    let count = tree.sessions().len();
    line(out, format_args!("SessionTracker dump:"));
    line(out, format_args!("Session Sets ({count})/({count}):"));
    for session in tree.sessions() {
        line(
            out,
            format_args!("0x{:x}\ttimeout={}ms", session.id, session.timeout_ms),
        );
    }
    line(out, format_args!("ephemeral nodes dump:"));
    let owners: Vec<_> = tree
        .sessions()
        .filter(|session| session.ephemerals > 0)
        .collect();
    line(
        out,
        format_args!("Sessions with Ephemerals ({}):", owners.len()),
    );
    for owner in owners {
        line(out, format_args!("0x{:x}:", owner.id));
        for path in tree.ephemerals(owner.id, "/") {
            line(out, format_args!("\t{path}"));
        }
    }
    drop(tree);
    line(out, format_args!("Connections dump:"));
    line(
        out,
        format_args!("Connections Sets ({})", shared.open_connections()),
    );
}

fn watches_by_session(shared: &Shared, out: &mut String) {
    let by_path = shared.watches.lock().by_path();
    let mut by_session = std::collections::BTreeMap::<i64, Vec<&str>>::new();
    for (path, conns) in &by_path {
        for conn in conns {
            by_session.entry(conn.session()).or_default().push(path);
        }
    }
    for (session, paths) in by_session {
        line(out, format_args!("0x{session:x}"));
        for path in paths {
            line(out, format_args!("\t{path}"));
        }
    }
}

fn watches_by_path(shared: &Shared, out: &mut String) {
    let by_path = shared.watches.lock().by_path();
    for (path, conns) in by_path {
        line(out, format_args!("{path}"));
        for conn in conns {
            line(out, format_args!("\t0x{:x}", conn.session()));
        }
    }
}

/// Bytes of all files in the data folder.
fn data_bytes(shared: &Shared) -> u64 {
    let crate::options::StorageChoice::Folder(path) = &shared.options.storage else {
        return 0;
    };
    let Ok(files) = std::fs::read_dir(path) else {
        return 0;
    };
    files
        .filter_map(|file| file.ok()?.metadata().ok())
        .map(|data| data.len())
        .sum()
}

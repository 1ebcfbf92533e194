//! `/commands/NAME`: what the four-letter words tell, as JSON, under the names and with the fields of ZooKeeper's admin
//! server (protocol.md §7.2). A command that changes something asks for credentials; see [`may_change`].

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::StatusCode;
use baton_proto::{AuthPacket, Perms};
use baton_tree::Identity;
use serde_json::{Map, Value, json};

use super::super::{auth, facts, metrics};
use crate::core::conn::{CloseReason, Conn, Peer};
use crate::core::notices::Notice;
use crate::core::shared::Shared;

/// A request for a command.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) peer: SocketAddr,
    pub(super) post: bool,
    pub(super) authorization: Option<Vec<u8>>,
    pub(super) query: String,
    pub(super) body: Vec<u8>,
}

/// An answer without `command` and `error`; or what is wrong, with its status.
type Told = Result<Map<String, Value>, (StatusCode, String)>;

/// Who may give a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Anyone,
    /// Whoever [`may_change`].
    Trusted,
    /// The same, and by POST only.
    TrustedPost,
}

struct Command {
    /// Its name, then its aliases.
    names: &'static [&'static str],
    access: Access,
    run: fn(&Shared, &Asked) -> Told,
}

const fn tells(names: &'static [&'static str], run: fn(&Shared, &Asked) -> Told) -> Command {
    Command {
        names,
        access: Access::Anyone,
        run,
    }
}

static COMMANDS: &[Command] = &[
    Command {
        access: Access::Trusted,
        ..tells(&["connection_stat_reset", "crst"], |shared, _| {
            for conn in shared.all_connections() {
                conn.stats.reset();
            }
            Ok(Map::new())
        })
    },
    tells(&["configuration", "conf", "config"], |shared, _| {
        Ok(configuration(shared))
    }),
    tells(&["connections", "cons"], |shared, _| {
        Ok(connections(shared))
    }),
    tells(&["dirs"], |shared, _| {
        let (snapshots, log) = facts::file_bytes(shared);
        Ok(fields(
            json!({"datadir_size": snapshots, "logdir_size": log}),
        ))
    }),
    tells(&["dump"], |shared, _| Ok(dump(shared))),
    tells(&["environment", "env", "envi"], |_, _| {
        let pairs = facts::environment().into_iter();
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect())
    }),
    tells(&["get_trace_mask", "gtmk"], |shared, _| {
        Ok(fields(
            json!({"tracemask": shared.stats.trace_mask.load(Relaxed)}),
        ))
    }),
    tells(&["hash"], |_, _| Ok(fields(json!({"digests": []})))),
    tells(&["initial_configuration", "icfg"], |_, _| {
        Ok(fields(json!({"initial_configuration": null})))
    }),
    tells(&["is_read_only", "isro"], |_, _| {
        Ok(fields(json!({"read_only": false})))
    }),
    tells(&["last_snapshot", "lsnp"], |shared, _| {
        let millis = shared.stats.last_snapshot_ms.load(Relaxed);
        let (zxid, seconds) = if millis == 0 {
            (-1, -1)
        } else {
            let zxid = shared.stats.last_snapshot_zxid.load(Relaxed);
            (zxid, millis / 1000)
        };
        Ok(fields(
            json!({"zxid": format!("{zxid:x}"), "timestamp": seconds}),
        ))
    }),
    tells(&["leader", "lead"], |shared, _| {
        let id = shared.options.server_id;
        Ok(fields(
            json!({"is_leader": true, "leader_id": id, "leader_ip": ""}),
        ))
    }),
    tells(&["monitor", "mntr"], |shared, _| {
        let mut all = fields(json!({"version": facts::version(), "server_state": "standalone"}));
        all.append(&mut metrics::as_json(shared));
        Ok(all)
    }),
    Command {
        access: Access::Trusted,
        ..tells(&["observer_connection_stat_reset", "orst"], |_, _| {
            Ok(Map::new())
        })
    },
    tells(&["observers", "obsr"], |_, _| {
        Ok(fields(json!({"synced_observers": 0, "observers": []})))
    }),
    tells(&["restore", "rest"], |_, _| {
        Err(not_offered(
            "stop the server, put a backup of the data folder in its place, start it",
        ))
    }),
    tells(&["ruok"], |_, _| Ok(Map::new())),
    tells(&["server_stats", "srvr"], |shared, _| {
        Ok(server_stats(shared))
    }),
    Command {
        access: Access::Trusted,
        ..tells(&["set_trace_mask", "stmk"], set_trace_mask)
    },
    Command {
        access: Access::TrustedPost,
        ..tells(&["shed_connections", "shed"], shed)
    },
    tells(&["snapshot", "snap"], |_, _| {
        Err(not_offered(
            "the server writes snapshots by itself; back the data folder up as docs/operations.md says",
        ))
    }),
    tells(&["stats", "stat"], |shared, _| {
        let mut all = server_stats(shared);
        all.append(&mut connections(shared));
        Ok(all)
    }),
    Command {
        access: Access::Trusted,
        ..tells(&["stat_reset", "srst"], |shared, _| {
            shared.stats.reset();
            Ok(Map::new())
        })
    },
    tells(&["system_properties", "sysp"], |_, _| Ok(Map::new())),
    tells(&["voting_view"], |_, _| {
        Ok(fields(json!({"current_config": {}})))
    }),
    tells(&["watches", "wchc"], |shared, _| {
        let by_session = facts::watches_by_session(shared).into_iter();
        let by_session: Map<_, _> = by_session
            .map(|(id, paths)| (id.to_string(), json!(paths)))
            .collect();
        Ok(fields(json!({"session_id_to_watched_paths": by_session})))
    }),
    tells(&["watches_by_path", "wchp"], |shared, _| {
        let by_path = facts::watches_by_path(shared).into_iter();
        let by_path: Map<_, _> = by_path.map(|(path, ids)| (path, json!(ids))).collect();
        Ok(fields(json!({"path_to_session_ids": by_path})))
    }),
    tells(&["watch_summary", "wchs"], |shared, _| {
        let counts = shared.watches.lock().counts();
        Ok(fields(json!({
            "num_connections": counts.connections,
            "num_paths": counts.paths,
            "num_total_watches": counts.watches,
        })))
    }),
    tells(&["zabstate"], |shared, _| {
        Ok(fields(json!({
            "myid": shared.options.server_id,
            "is_leader": true,
            "voting": false,
            "last_zxid": format!("0x{:x}", shared.zxid()),
            "zabstate": "",
        })))
    }),
];

/// All commands with their aliases.
pub(super) fn list() -> Value {
    let all: Map<_, _> = COMMANDS
        .iter()
        .filter_map(|command| {
            let (name, aliases) = command.names.split_first()?;
            Some(((*name).to_owned(), json!(aliases)))
        })
        .collect();
    json!({"commands": all, "command": "commands", "error": null})
}

/// Does what is asked.
pub(super) fn run(shared: &Shared, asked: &Asked) -> (StatusCode, Value) {
    let known = COMMANDS
        .iter()
        .find(|command| command.names.contains(&asked.name.as_str()));
    let Some(command) = known else {
        let text = format!("Unknown command: {}; see /commands", asked.name);
        return (StatusCode::NOT_FOUND, failure(&asked.name, &text));
    };
    let name = command.names.first().copied().unwrap_or_default();
    let told = permitted(shared, command.access, asked).and_then(|()| (command.run)(shared, asked));
    match told {
        Ok(mut told) => {
            told.insert("command".to_owned(), json!(name));
            told.insert("error".to_owned(), Value::Null);
            (StatusCode::OK, Value::Object(told))
        }
        Err((status, what)) => {
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                shared.notice(
                    Notice::BadCredentials,
                    Some(&Peer::Tcp(asked.peer)),
                    format_args!("refused the command {name}: {what}"),
                );
            }
            (status, failure(name, &what))
        }
    }
}

/// The answer of a command that failed.
pub(super) fn failure(name: &str, what: &str) -> Value {
    json!({"command": name, "error": what})
}

fn permitted(shared: &Shared, access: Access, asked: &Asked) -> Result<(), (StatusCode, String)> {
    if access == Access::Anyone {
        return Ok(());
    }
    let Some(authorization) = &asked.authorization else {
        return Err((
            StatusCode::UNAUTHORIZED,
            "this command changes something; send 'Authorization: digest USER:PASSWORD'".to_owned(),
        ));
    };
    if !may_change(shared, authorization) {
        return Err((
            StatusCode::FORBIDDEN,
            "these credentials are not enough: take the superuser's, or those of a digest user whom the ACL of / names with all permissions".to_owned(),
        ));
    }
    if access == Access::TrustedPost && !asked.post {
        let text = "this command is given by POST".to_owned();
        return Err((StatusCode::METHOD_NOT_ALLOWED, text));
    }
    Ok(())
}

/// Whether these credentials may change something: the superuser's may, and those that have every permission on `/`,
/// unless everybody has.
fn may_change(shared: &Shared, authorization: &[u8]) -> bool {
    let Some(credentials) = authorization
        .split_at_checked(7)
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"digest "))
        .map(|(_, credentials)| credentials)
    else {
        return false;
    };
    let nobody = Identity::anonymous();
    let packet = AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(credentials),
    };
    let Ok(identity) = auth::add(&nobody, &packet, &shared.options) else {
        shared.stats.auth_failed.fetch_add(1, Relaxed);
        return false;
    };
    let tree = shared.tree.read();
    let named = tree.peek("/").is_some_and(|(_, acl)| {
        acl.permits(&identity, Perms::ALL) && !acl.permits(&nobody, Perms::ALL)
    });
    let enough = identity.is_super() || named;
    if !enough {
        shared.stats.auth_failed.fetch_add(1, Relaxed);
    }
    enough
}

fn not_offered(instead: &str) -> (StatusCode, String) {
    (
        StatusCode::NOT_IMPLEMENTED,
        format!("Baton does not offer this over HTTP; {instead}"),
    )
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn configuration(shared: &Shared) -> Map<String, Value> {
    let options = &shared.options;
    let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(0);
    fields(json!({
        "client_port": facts::client_port(shared),
        "data_dir": facts::folder(shared),
        "data_log_dir": facts::folder(shared),
        "tick_time": millis(options.tick),
        "max_client_cnxns": options.max_connections_per_address,
        "min_session_timeout": millis(options.min_session_timeout),
        "max_session_timeout": millis(options.max_session_timeout),
        "client_port_listen_backlog": facts::BACKLOG,
        "server_id": options.server_id,
    }))
}

fn connections(shared: &Shared) -> Map<String, Value> {
    let all: Vec<Value> = shared
        .all_connections()
        .iter()
        .map(|conn| connection(shared, conn))
        .collect();
    fields(json!({"connections": all, "secure_connections": []}))
}

fn connection(shared: &Shared, conn: &Conn) -> Value {
    let stats = &conn.stats;
    let mut told = fields(json!({
        "remote_socket_address": conn.peer.to_string(),
        "interest_ops": u8::from(conn.attached().is_some()),
        "outstanding_requests": stats.outstanding(),
        "packets_received": stats.received.load(Relaxed),
        "packets_sent": stats.sent.load(Relaxed),
    }));
    if let Some(attached) = conn.attached() {
        let (min, mean, max) = stats.latency_ms();
        told.append(&mut fields(json!({
            "session_id": attached.session,
            "last_operation": facts::last_op(conn),
            "established": facts::wall_ms(shared, conn.since_ms),
            "session_timeout": attached.timeout_ms,
            "last_cxid": stats.last_cxid.load(Relaxed) as u32 as i32,
            "last_zxid": stats.last_zxid.load(Relaxed),
            "last_response_time": stats.last_response_ms.load(Relaxed),
            "last_latency": stats.last_latency_us.load(Relaxed) / 1000,
            "min_latency": min,
            "avg_latency": mean,
            "max_latency": max,
        })));
    }
    Value::Object(told)
}

fn dump(shared: &Shared) -> Map<String, Value> {
    let ends = facts::ends(shared);
    let mut by_end: Map<String, Value> = ends
        .attached
        .iter()
        .map(|(end_ms, conns)| {
            let ids: Vec<i64> = conns.iter().map(|conn| conn.session()).collect();
            (end_ms.to_string(), json!(ids))
        })
        .collect();
    if !ends.away.is_empty() {
        by_end.insert("without_connection".to_owned(), json!(ends.away));
    }
    let ephemerals = facts::ephemerals(shared).into_iter();
    let ephemerals: Map<_, _> = ephemerals
        .map(|(id, paths)| (id.to_string(), json!(paths)))
        .collect();
    fields(json!({
        "expiry_time_to_session_ids": by_end,
        "session_id_to_ephemeral_paths": ephemerals,
    }))
}

fn server_stats(shared: &Shared) -> Map<String, Value> {
    let stats = &shared.stats;
    let latency = stats.latency();
    let (snapshots, log) = facts::file_bytes(shared);
    let (last, min, max) = facts::reply_sizes(shared);
    let sizes = json!({"last_buffer_size": last, "min_buffer_size": min, "max_buffer_size": max});
    fields(json!({
        "version": facts::version(),
        "read_only": false,
        "server_stats": {
            "packets_sent": stats.sent.load(Relaxed),
            "packets_received": stats.received.load(Relaxed),
            "avg_latency": latency.mean() / 1000.0,
            "min_latency": latency.min / 1000,
            "max_latency": latency.max / 1000,
            "data_dir_size": snapshots,
            "log_dir_size": log,
            "last_processed_zxid": shared.zxid(),
            "outstanding_requests": shared.inbox.queued_requests(),
            "fsync_threshold_exceed_count": stats.slow_syncs.load(Relaxed),
            "auth_failed_count": stats.auth_failed.load(Relaxed),
            "non_mtlsremote_conn_count": 0,
            "non_mtlslocal_conn_count": 0,
            "client_response_stats": sizes,
            "server_state": "standalone",
            "num_alive_client_connections": shared.open_connections(),
            "uptime": shared.time.uptime_ms(),
        },
        "client_response": sizes,
        "node_count": shared.tree.read().node_count() + 1,
    }))
}

/// A parameter: of the query, or of a body that is a JSON object.
fn parameter(asked: &Asked, name: &str) -> Option<i64> {
    let in_query = asked
        .query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.parse().ok());
    match in_query {
        Some(value) => value,
        None => serde_json::from_slice::<Value>(&asked.body)
            .ok()?
            .get(name)?
            .as_i64(),
    }
}

fn set_trace_mask(shared: &Shared, asked: &Asked) -> Told {
    let mask = parameter(asked, "traceMask").ok_or_else(|| {
        let text = "setTraceMask requires long traceMask argument".to_owned();
        (StatusCode::BAD_REQUEST, text)
    })?;
    shared.stats.trace_mask.store(mask, Relaxed);
    Ok(fields(json!({"tracemask": mask})))
}

/// Closes the given share of the connections that have a session, the oldest first: their clients connect again, here or
/// elsewhere, and keep their sessions.
fn shed(shared: &Shared, asked: &Asked) -> Told {
    let percentage = parameter(asked, "percentage")
        .and_then(|given| usize::try_from(given).ok())
        .filter(|given| (1..=100).contains(given))
        .ok_or_else(|| {
            let text = "give the share of connections to close: {\"percentage\": 1 to 100}";
            (StatusCode::BAD_REQUEST, text.to_owned())
        })?;
    let mut all = shared.all_connections();
    all.retain(|conn| conn.attached().is_some());
    let share = (all.len() * percentage).div_ceil(100);
    let mut wake = Vec::new();
    for conn in all.iter().take(share) {
        conn.close(CloseReason::Shed, &mut wake);
    }
    for conn in wake {
        conn.wake(false);
    }
    let shed = share as u64;
    shared.stats.connections_shed.fetch_add(shed, Relaxed);
    tracing::info!(connections = shed, "connections shed, as an operator asked");
    Ok(fields(
        json!({"percentage_shed": percentage, "connections_shed": shed}),
    ))
}

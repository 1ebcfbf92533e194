//! `/commands/NAME`: what the four-letter words show, as JSON, under the names and with the fields
//! of ZooKeeper's admin server (protocol.md §7.2). Who may give a command is the matter of
//! `access`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::response::Response;
use baton_consensus::Role;
use baton_tree::FormatLevel;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::access::{Caller, RequestKind};
use super::json as answered;
use super::streams::{self, Stream};
use crate::audit::line::{Ending, Operation};
use crate::audit::record::Principal;
use crate::auth::tokens::Tokens;
use crate::connections::conn::{CloseReason, Conn};
use crate::connections::peer::Peer;
use crate::listening::http::LongAnswer;
use crate::operator::facts;
use crate::operator::members;
use crate::operator::metrics;
use crate::report::listings::{ListingName, Refusal, SizeLimit, Source};
use crate::state::ServerState;

/// A request for a command.
#[derive(Debug)]
pub(super) struct CommandQuery {
    pub(super) name: String,
    pub(super) post: bool,
    pub(super) query: String,
    /// With which the answer may last longer.
    pub(super) long: Option<LongAnswer>,
}

/// Bytes of a request's body.
const MAX_BODY_BYTES: usize = 4 << 10;

impl CommandQuery {
    /// A parameter of the query.
    pub(super) fn in_query(&self, name: &str) -> Option<&str> {
        let pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter(|(key, _)| *key == name);
        values.next().map(|(_, value)| value)
    }
}

/// An answer without `command` and `error`; or what is wrong, with its status.
type Fields = Result<Map<String, Value>, (StatusCode, String)>;

/// Callers that may run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Anyone,
    /// Callers who may change something.
    Trusted,
    /// The same, and by POST only.
    TrustedPost,
}

/// Execution of a command.
#[derive(Clone, Copy)]
enum Run {
    /// At once: it costs no more with more connections, sessions and watches.
    Now(fn(&ServerState) -> Map<String, Value>),
    /// Answered by a listing.
    Listed(
        Source,
        fn(&ServerState) -> Result<Map<String, Value>, Refusal>,
    ),
    /// With what the request says, its body among it, on a thread that may wait.
    Query(fn(&ServerState, &CommandQuery, &[u8]) -> Fields),
    /// Answered by a stream of bytes, out or in.
    Streams(Stream),
}

struct Command {
    /// Its name, then its aliases.
    names: &'static [&'static str],
    access: Access,
    run: Run,
}

const fn shows(
    names: &'static [&'static str],
    run: fn(&ServerState) -> Map<String, Value>,
) -> Command {
    Command {
        names,
        access: Access::Anyone,
        run: Run::Now(run),
    }
}

const fn lists(
    names: &'static [&'static str],
    source: Source,
    run: fn(&ServerState) -> Result<Map<String, Value>, Refusal>,
) -> Command {
    Command {
        names,
        access: Access::Anyone,
        run: Run::Listed(source, run),
    }
}

const fn does(
    names: &'static [&'static str],
    access: Access,
    run: fn(&ServerState, &CommandQuery, &[u8]) -> Fields,
) -> Command {
    Command {
        names,
        access,
        run: Run::Query(run),
    }
}

const fn streams(names: &'static [&'static str], access: Access, stream: Stream) -> Command {
    Command {
        names,
        access,
        run: Run::Streams(stream),
    }
}

static COMMANDS: &[Command] = &[
    streams(&["backup"], Access::Trusted, Stream::Backup),
    does(
        &["connection_stat_reset", "crst"],
        Access::Trusted,
        |state, _, _| {
            for conn in state.all_connections() {
                conn.stats.reset();
            }
            Ok(Map::new())
        },
    ),
    shows(&["configuration", "conf", "config"], configuration_json),
    lists(&["connections", "cons"], Source::Memory, connections_json),
    lists(&["dirs"], Source::Folder, |state| {
        let (snapshots, log) = facts::file_bytes(state);
        Ok(fields(
            json!({"datadir_size": snapshots, "logdir_size": log}),
        ))
    }),
    lists(&["dump"], Source::Memory, dump),
    shows(&["environment", "env", "envi"], |_| {
        let pairs = facts::environment().into_iter();
        pairs
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect()
    }),
    shows(&["get_trace_mask", "gtmk"], |state| {
        fields(json!({"tracemask": state.stats.trace_mask.load(Relaxed)}))
    }),
    shows(&["hash"], |_| fields(json!({"digests": []}))),
    shows(&["initial_configuration", "icfg"], |state| {
        fields(json!({"initial_configuration": members::initial_configuration(state)}))
    }),
    shows(&["is_read_only", "isro"], |state| {
        fields(json!({"read_only": state.is_read_only()}))
    }),
    shows(&["last_snapshot", "lsnp"], |state| {
        let millis = state.stats.last_snapshot_ms.load(Relaxed);
        let (zxid, seconds) = if millis == 0 {
            (-1, -1)
        } else {
            let zxid = state.stats.last_snapshot_zxid.load(Relaxed);
            (zxid, millis / 1000)
        };
        fields(json!({"zxid": format!("{zxid:x}"), "timestamp": seconds}))
    }),
    shows(&["leader", "lead"], |state| {
        let Some(status) = members::status(state) else {
            let id = state.options.server_id;
            return fields(json!({"is_leader": true, "leader_id": id, "leader_ip": ""}));
        };
        let (id, host) = members::leader(&status);
        let is_leader = status.role == Role::Leader;
        fields(json!({"is_leader": is_leader, "leader_id": id, "leader_ip": host}))
    }),
    lists(&["monitor", "mntr"], Source::Memory, |state| {
        let mode = members::mode(state);
        let mut all = fields(json!({"version": facts::version(), "server_state": mode}));
        if let Some(state) = members::peer_state(state) {
            all.append(&mut fields(json!({"peer_state": state})));
        }
        all.append(&mut metrics::as_json(state));
        Ok(all)
    }),
    does(
        &["observer_connection_stat_reset", "orst"],
        Access::Trusted,
        |_, _, _| Ok(Map::new()),
    ),
    shows(&["observers", "obsr"], |_| {
        fields(json!({"synced_observers": 0, "observers": []}))
    }),
    does(&["reset_time"], Access::TrustedPost, |state, _, _| {
        reset_time(state)
    }),
    does(&["restore", "rest"], Access::TrustedPost, |_, _, _| {
        Err(not_offered("stop the server and use baton restore"))
    }),
    shows(&["ruok"], |_| Map::new()),
    lists(&["server_stats", "srvr"], Source::Folder, |state| {
        Ok(server_stats(state))
    }),
    does(&["set_trace_mask", "stmk"], Access::Trusted, set_trace_mask),
    does(&["shed_connections", "shed"], Access::TrustedPost, shed),
    streams(&["snapshot", "snap"], Access::Trusted, Stream::Snapshot),
    lists(&["stats", "stat"], Source::Folder, |state| {
        let mut all = server_stats(state);
        all.append(&mut connections_json(state)?);
        Ok(all)
    }),
    does(&["stat_reset", "srst"], Access::Trusted, |state, _, _| {
        state.stats.reset();
        Ok(Map::new())
    }),
    shows(&["system_properties", "sysp"], |_| Map::new()),
    does(&["transfer"], Access::TrustedPost, transfer),
    shows(&["voting_view"], |state| {
        let status = members::status(state);
        let voters = status.map(|status| members::voters(state, &status));
        let voters: Map<_, _> = voters
            .unwrap_or_default()
            .into_iter()
            .map(|(id, voter)| (id.to_string(), json!(voter)))
            .collect();
        fields(json!({"current_config": voters}))
    }),
    lists(&["watches", "wchc"], Source::Memory, |state| {
        let mut size = SizeLimit::new(&state.listings)?;
        let by_session = facts::watches_by_session(state, &mut size)?;
        let by_session: Map<_, _> = by_session
            .into_iter()
            .map(|(id, paths)| (id.to_string(), json!(paths)))
            .collect();
        Ok(fields(json!({"session_id_to_watched_paths": by_session})))
    }),
    lists(&["watches_by_path", "wchp"], Source::Memory, |state| {
        let mut size = SizeLimit::new(&state.listings)?;
        let by_path = facts::watches_by_path(state, &mut size)?.into_iter();
        let by_path: Map<_, _> = by_path
            .map(|watched| (watched.path.into_string(), json!(&*watched.sessions)))
            .collect();
        Ok(fields(json!({"path_to_session_ids": by_path})))
    }),
    lists(&["watch_summary", "wchs"], Source::Memory, |state| {
        let counts = state.watches.lock().counts();
        Ok(fields(json!({
            "num_connections": counts.connections,
            "num_paths": counts.paths,
            "num_total_watches": counts.watches,
        })))
    }),
    shows(&["zabstate"], |state| {
        let status = members::status(state);
        let (is_leader, voting, phase) = status.map_or((true, false, ""), |status| {
            let votes = status.voters.contains(&status.id);
            let phase = members::phase(&status);
            (status.role == Role::Leader, votes, phase)
        });
        fields(json!({
            "myid": state.options.server_id,
            "is_leader": is_leader,
            "voting": voting,
            "last_zxid": format!("0x{:x}", state.zxid()),
            "zabstate": phase,
        }))
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

/// Does what is asked, if the caller may ask that.
pub(super) async fn run(
    state: &Arc<ServerState>,
    tokens: Option<&Arc<Tokens>>,
    caller: &Arc<Caller>,
    asked: CommandQuery,
    body: Body,
) -> Response {
    let known = COMMANDS
        .iter()
        .find(|command| command.names.contains(&asked.name.as_str()));
    let kind = match known.map(|command| command.access) {
        None | Some(Access::Anyone) => RequestKind::Read,
        Some(Access::Trusted | Access::TrustedPost) => RequestKind::Change,
    };
    let what = known.and_then(|command| command.names.first());
    let what = what.copied().unwrap_or("a command");
    if let Err((status, why)) = caller.check(state, tokens, kind, what).await {
        if kind == RequestKind::Change {
            record(state, what, caller, Ending::Failure);
        }
        return answered(status, text_of(&failure(&asked.name, &why)));
    }
    let Some(command) = known else {
        let text = format!("Unknown command: {}; see /commands", asked.name);
        return refusal(&asked.name, &(StatusCode::NOT_FOUND, text));
    };
    let name = command.names.first().copied().unwrap_or_default();
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        let what = "the request's body is too long or broke off".to_owned();
        return refusal(name, &(StatusCode::PAYLOAD_TOO_LARGE, what));
    };
    match command.run {
        Run::Now(run) => answered(StatusCode::OK, text_of(&finished(name, run(state)))),
        Run::Streams(stream) => {
            let streaming = asked.in_query("streaming");
            let is_sent = streaming.is_none_or(|value| value.eq_ignore_ascii_case("true"));
            let answer = streams::answer(state, stream, is_sent, asked.long.as_ref()).await;
            record(state, name, caller, Ending::of(&answer));
            answer.unwrap_or_else(|refused| refusal(name, &refused))
        }
        Run::Listed(source, run) => {
            let listed = state.list(ListingName::Command(name), source, move |state| {
                Ok(pretty(&finished(name, run(state)?)))
            });
            match listed.await {
                Ok(listing) => answered(StatusCode::OK, Bytes::from_owner(listing)),
                Err(why) => {
                    let what = format!("{name} is not executed because {why}");
                    refusal(name, &(StatusCode::SERVICE_UNAVAILABLE, what))
                }
            }
        }
        Run::Query(run) => {
            let (state, caller) = (Arc::clone(state), Arc::clone(caller));
            let answer = tokio::task::spawn_blocking(move || {
                if command.access == Access::TrustedPost && !asked.post {
                    record(&state, name, &caller, Ending::Failure);
                    let text = "this command is given by POST".to_owned();
                    return Err((StatusCode::METHOD_NOT_ALLOWED, text));
                }
                let answer = run(&state, &asked, &body);
                if command.access != Access::Anyone {
                    record(&state, name, &caller, Ending::of(&answer));
                }
                answer
            });
            match answer.await {
                Ok(Ok(answer)) => answered(StatusCode::OK, text_of(&finished(name, answer))),
                Ok(Err(refused)) => refusal(name, &refused),
                Err(_) => {
                    let what = "the server failed at it; report this".to_owned();
                    refusal(name, &(StatusCode::INTERNAL_SERVER_ERROR, what))
                }
            }
        }
    }
}

/// The answer of a command that is refused, or fails.
fn refusal(name: &str, (status, what): &(StatusCode, String)) -> Response {
    answered(*status, text_of(&failure(name, what)))
}

/// Records a command that changes something, or was to.
fn record(state: &ServerState, name: &'static str, caller: &Caller, ending: Ending) {
    let who = || Principal::at(&Peer::Tcp(caller.peer), Some(caller.claimed(state)));
    state.record(Operation::Command, ending, who, |fields| {
        fields.word("command", name);
        fields.word("via", "http");
    });
}

fn finished(name: &str, mut answer: Map<String, Value>) -> Value {
    answer.insert("command".to_owned(), json!(name));
    answer.insert("error".to_owned(), Value::Null);
    Value::Object(answer)
}

fn pretty(answer: &Value) -> String {
    format!("{answer:#}\n")
}

/// An answer as it is sent.
pub(super) fn text_of(answer: &Value) -> Bytes {
    pretty(answer).into()
}

/// The answer of a command that failed.
pub(super) fn failure(name: &str, what: &str) -> Value {
    json!({"command": name, "error": what})
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

fn configuration_json(state: &ServerState) -> Map<String, Value> {
    let options = &state.options;
    let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(0);
    let mut all = fields(json!({
        "client_port": facts::client_port(state),
        "data_dir": facts::folder(state),
        "data_log_dir": facts::folder(state),
        "tick_time": millis(options.tick),
        "max_client_cnxns": options.max_connections_per_address,
        "min_session_timeout": millis(options.min_session_timeout),
        "max_session_timeout": millis(options.max_session_timeout),
        "client_port_listen_backlog": crate::options::BACKLOG,
        "server_id": options.server_id,
    }));
    if let Some(status) = members::status(state) {
        let mut more = fields(json!({"quorum_port": members::port(&status), "peer_type": 0}));
        all.append(&mut more);
    }
    all
}

fn connections_json(state: &ServerState) -> Result<Map<String, Value>, Refusal> {
    let all = facts::connections(state, &mut SizeLimit::new(&state.listings)?)?;
    let all: Vec<Value> = all
        .iter()
        .map(|conn| connection_json(state, conn))
        .collect();
    Ok(fields(
        json!({"connections": all, "secure_connections": []}),
    ))
}

fn connection_json(state: &ServerState, conn: &Conn) -> Value {
    let stats = &conn.stats;
    let mut answer = fields(json!({
        "remote_socket_address": conn.peer.to_string(),
        "interest_ops": u8::from(conn.attached().is_some()),
        "outstanding_requests": stats.outstanding(),
        "packets_received": stats.received.load(Relaxed),
        "packets_sent": stats.sent.load(Relaxed),
    }));
    if let Some(attached) = conn.attached() {
        let (min, mean, max) = stats.latency_ms();
        answer.append(&mut fields(json!({
            "session_id": attached.session,
            "last_operation": facts::last_op(conn),
            "established": facts::wall_ms(state, conn.since_ms),
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
    Value::Object(answer)
}

fn dump(state: &ServerState) -> Result<Map<String, Value>, Refusal> {
    let mut size = SizeLimit::new(&state.listings)?;
    let ends = facts::ends(state, &mut size)?;
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
    let ephemerals = facts::ephemerals(state, &mut size)?.into_iter();
    let ephemerals: Map<_, _> = ephemerals
        .map(|(id, paths)| (id.to_string(), json!(paths)))
        .collect();
    Ok(fields(json!({
        "expiry_time_to_session_ids": by_end,
        "session_id_to_ephemeral_paths": ephemerals,
    })))
}

fn server_stats(state: &ServerState) -> Map<String, Value> {
    let stats = &state.stats;
    let latency = stats.latency();
    let (snapshots, log) = facts::file_bytes(state);
    let (last, min, max) = facts::reply_sizes(state);
    let sizes = json!({"last_buffer_size": last, "min_buffer_size": min, "max_buffer_size": max});
    fields(json!({
        "version": facts::version(),
        "read_only": state.is_read_only(),
        "server_stats": {
            "packets_sent": stats.sent.load(Relaxed),
            "packets_received": stats.received.load(Relaxed),
            "avg_latency": latency.mean() / 1000.0,
            "min_latency": latency.min / 1000,
            "max_latency": latency.max / 1000,
            "data_dir_size": snapshots,
            "log_dir_size": log,
            "last_processed_zxid": state.zxid(),
            "outstanding_requests": state.inbox.queued_requests(),
            "fsync_threshold_exceed_count": stats.slow_syncs.load(Relaxed),
            "auth_failed_count": stats.auth_failed.load(Relaxed),
            "non_mtlsremote_conn_count": 0,
            "non_mtlslocal_conn_count": 0,
            "client_response_stats": sizes,
            "server_state": members::mode(state),
            "num_alive_client_connections": state.open_connections(),
            "uptime": state.time.uptime_ms(),
        },
        "client_response": sizes,
        "node_count": state.tree.read().node_count() + 1,
    }))
}

/// A parameter: of the query, or of a body that is a JSON object.
fn parameter(asked: &CommandQuery, body: &[u8], name: &str) -> Option<i64> {
    let in_query = asked.in_query(name).map(|value| value.parse().ok());
    match in_query {
        Some(value) => value,
        None => serde_json::from_slice::<Value>(body)
            .ok()?
            .get(name)?
            .as_i64(),
    }
}

fn set_trace_mask(state: &ServerState, asked: &CommandQuery, body: &[u8]) -> Fields {
    let mask = parameter(asked, body, "traceMask").ok_or_else(|| {
        let text = "setTraceMask requires long traceMask argument".to_owned();
        (StatusCode::BAD_REQUEST, text)
    })?;
    state.stats.trace_mask.store(mask, Relaxed);
    Ok(fields(json!({"tracemask": mask})))
}

/// Has the leader set the time of the tree back to the clocks. That it has been, the metric
/// `baton_time_ahead_seconds` says.
fn reset_time(state: &ServerState) -> Fields {
    let refuse = |text: &str| Err((StatusCode::CONFLICT, text.to_owned()));
    if let Some(status) = members::status(state)
        && status.role != Role::Leader
    {
        return refuse(&not_the_leader(status.leader));
    }
    let (level, time_ms) = {
        let tree = state.tree.read();
        (tree.level(), tree.time_ms())
    };
    if level < FormatLevel::SessionIdentities {
        return refuse(
            "a server of an earlier version is a member, which cannot do that: finish the upgrade first",
        );
    }
    state.inbox.reset_time();
    Ok(fields(json!({"time_ms": time_ms})))
}

/// Names the server to ask in place of this one.
fn not_the_leader(leader: Option<u64>) -> String {
    match leader {
        Some(leader) => format!("this server does not lead: ask server {leader}"),
        None => "no leader is known: ask again when one is".to_owned(),
    }
}

/// Hands leadership over to another server. That it leads then, `leader` of any server says.
fn transfer(state: &ServerState, asked: &CommandQuery, body: &[u8]) -> Fields {
    let to = parameter(asked, body, "to").and_then(|id| u64::try_from(id).ok());
    let to = to.ok_or_else(|| {
        let text = "say which server is to lead: ?to=ID".to_owned();
        (StatusCode::BAD_REQUEST, text)
    })?;
    let refuse = |text: &str| Err((StatusCode::CONFLICT, text.to_owned()));
    let Some(status) = members::status(state) else {
        return refuse("this server stands alone");
    };
    if status.role != Role::Leader {
        return refuse(&not_the_leader(status.leader));
    }
    if to == status.id {
        return refuse("this server leads already");
    }
    if !status.voters.contains(&to) {
        return refuse("that server does not vote: name one that does, as voting_view lists them");
    }
    if !status.connected.contains(&to) {
        return refuse("that server is not connected");
    }
    state.inbox.hand_over(to);
    Ok(fields(json!({"from": status.id, "to": to})))
}

/// Closes the given share of the connections that have a session, the oldest first: their clients
/// connect again, here or elsewhere, and keep their sessions.
fn shed(state: &ServerState, asked: &CommandQuery, body: &[u8]) -> Fields {
    let percentage = parameter(asked, body, "percentage")
        .and_then(|given| usize::try_from(given).ok())
        .filter(|given| (1..=100).contains(given))
        .ok_or_else(|| {
            let text = "give the share of connections to close: {\"percentage\": 1 to 100}";
            (StatusCode::BAD_REQUEST, text.to_owned())
        })?;
    let mut all = state.all_connections();
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
    state.stats.connections_shed.fetch_add(shed, Relaxed);
    tracing::info!(connections = shed, "connections shed, as an operator asked");
    Ok(fields(
        json!({"percentage_shed": percentage, "connections_shed": shed}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a command that is given at once.
    fn answer(state: &ServerState, name: &str) -> Value {
        let command = COMMANDS
            .iter()
            .find(|command| command.names.contains(&name));
        match command.map(|command| command.run) {
            Some(Run::Now(run)) => Value::Object(run(state)),
            _ => panic!("{name} is not a command that is answered at once"),
        }
    }

    #[test]
    fn a_member_names_the_leader_and_the_voters() {
        let state = members::tests::member(Role::Follower, Some(1));
        assert_eq!(
            answer(&state, "lead"),
            json!({"is_leader": false, "leader_id": 1, "leader_ip": "127.0.0.1"})
        );
        let voters = json!({
            "1": "127.0.0.1:2888:2888:participant",
            "2": "[::1]:2889:2889:participant",
            "3": "localhost:2890:3890:participant;2183",
        });
        assert_eq!(
            answer(&state, "voting_view"),
            json!({"current_config": voters})
        );
        let initial = answer(&state, "icfg");
        let lines = initial["initial_configuration"].as_str().unwrap();
        assert_eq!(lines.lines().count(), 3);
        let phase = answer(&state, "zabstate");
        assert_eq!(
            (&phase["voting"], &phase["zabstate"], &phase["is_leader"]),
            (&json!(true), &json!("broadcast"), &json!(false))
        );
        assert_eq!(answer(&state, "conf")["quorum_port"], 2889);
        assert_eq!(
            server_stats(&state)["server_stats"]["server_state"],
            "follower"
        );
        assert_eq!(answer(&state, "isro")["read_only"], false);
        let cut_off = members::tests::member(Role::Candidate, None);
        cut_off.ensemble.as_ref().unwrap().lock().is_read_only = true;
        assert_eq!(answer(&cut_off, "isro")["read_only"], true);
        assert_eq!(server_stats(&cut_off)["read_only"], true);
        let alone = crate::state::tests::state(crate::options::Options::default());
        assert_eq!(answer(&alone, "icfg")["initial_configuration"], Value::Null);
        assert_eq!(answer(&alone, "voting_view"), json!({"current_config": {}}));
        assert_eq!(answer(&alone, "lead")["leader_id"], 1);
        assert_eq!(answer(&alone, "conf").get("quorum_port"), None);
    }
}
